//! The HTML report: a bar for each fault and pair, its length the median outage.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{NAME, Row, SUMMARY, note};
use crate::error::{LabError, Result};
use crate::report::html;

/// Writes the file `director-failover.html`, and returns its path.
///
/// # Errors
/// The directory cannot be written.
pub(super) fn write(directory: &Path, rows: &[Row]) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).map_err(LabError::file(directory))?;
    let path = directory.join(format!("{NAME}.html"));
    std::fs::write(&path, page(rows)).map_err(LabError::file(&path))?;
    Ok(std::fs::canonicalize(&path).unwrap_or(path))
}

fn page(rows: &[Row]) -> String {
    let mut body = format!("<p>{}</p>\n", html::escape(SUMMARY));
    let most = rows.iter().filter_map(|row| row.outage_ms).max();
    let most = most.unwrap_or(0).max(1);
    let mut faults: Vec<&str> = Vec::new();
    for row in rows {
        if !faults.contains(&row.fault) {
            faults.push(row.fault);
        }
    }
    for fault in faults {
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            "<section class=\"bars\"><h2>{}</h2>",
            html::escape(fault)
        );
        for row in rows.iter().filter(|row| row.fault == fault) {
            bar(&mut body, row, most);
        }
        body.push_str("</section>\n");
    }
    let _ = writeln!(body, "<p>{}</p>", html::escape(&note()));
    html::document(NAME, &body)
}

fn bar(body: &mut String, row: &Row, most: u64) {
    // A share of the longest one.
    let percent = row.outage_ms.unwrap_or(0) as f64 / most as f64 * 100.0;
    let class = if row.pair.starts_with("weir") {
        "bar"
    } else {
        "bar base"
    };
    let shown = match (row.outage_ms, row.p95_ms, row.worst_ms) {
        (Some(median), Some(p95), Some(worst)) => format!(
            "{median} ms, 95 % {p95} ms, at most {worst} ms; {} of {} flows broken",
            row.broken.unwrap_or(0),
            row.flows
        ),
        _ => row.error.clone().unwrap_or_default(),
    };
    let _ = writeln!(
        body,
        "<div><span>{}</span><span class=\"track\"><span class=\"{class}\" style=\"width: \
         {percent:.1}%\"></span></span><span>{}</span></div>",
        html::escape(row.pair),
        html::escape(&shown)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fault: &'static str, pair: &'static str, outage_ms: Option<u64>) -> Row {
        Row {
            fault,
            pair,
            outage_ms,
            p95_ms: outage_ms,
            worst_ms: outage_ms,
            broken: outage_ms.map(|_| 1),
            flows: 50,
            runs: 3,
            error: outage_ms.is_none().then(|| "a <b> failed".to_owned()),
        }
    }

    #[test]
    fn bars_are_shares_of_the_longest_outage_by_fault() {
        let rows = [
            row("cut", "keepalived", Some(400)),
            row("cut", "weir", Some(100)),
            row("stop", "weir", None),
        ];
        let page = page(&rows);
        assert_eq!(page.matches("<section").count(), 2);
        assert!(
            page.contains("width: 100.0%") && page.contains("width: 25.0%"),
            "{page}"
        );
        assert!(page.contains("a &lt;b&gt; failed") && page.contains("1 of 50 flows broken"));
    }
}
