//! The HTML report: a bar for each event and method, its length the share of broken connections.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{NAME, Row, SUMMARY, note};
use crate::error::{LabError, Result};
use crate::report::html;

/// Writes the file `scale-out.html`, and returns its path.
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
    for group in rows.chunk_by(|one, other| one.event == other.event) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            "<section class=\"bars\"><h2>{}</h2>",
            html::escape(group[0].event)
        );
        for row in group {
            bar(&mut body, row);
        }
        body.push_str("</section>\n");
    }
    if let Some(row) = rows.first() {
        let _ = writeln!(body, "<p>{}</p>", html::escape(&note(row)));
    }
    html::document(NAME, &body)
}

fn bar(body: &mut String, row: &Row) {
    let broken = row.broken.unwrap_or(0);
    let percent = broken as f64 / f64::from(row.connections.max(1)) * 100.0;
    let class = if row.method == "nftables" {
        "bar base"
    } else {
        "bar"
    };
    let shown = match (row.broken, row.outage_ms, row.worst_outage_ms) {
        (Some(broken), Some(median), Some(worst)) => format!(
            "{broken} of {} connections broken; {median} ms without an answer, at most {worst} ms",
            row.connections
        ),
        _ => row.error.clone().unwrap_or_default(),
    };
    let _ = writeln!(
        body,
        "<div><span>{}</span><span class=\"track\"><span class=\"{class}\" style=\"width: \
         {percent:.1}%\"></span></span><span>{}</span></div>",
        html::escape(row.method),
        html::escape(&shown)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(event: &'static str, method: &'static str, broken: Option<usize>) -> Row {
        Row {
            event,
            method,
            directors: 4,
            connections: 400,
            broken,
            worst_broken: broken,
            outage_ms: broken.map(|_| 20),
            worst_outage_ms: broken.map(|_| 30),
            runs: 1,
            error: broken.is_none().then(|| "a <b> failed".to_owned()),
        }
    }

    #[test]
    fn bars_are_shares_of_all_connections() {
        let rows = [
            row("director-added", "nftables", Some(100)),
            row("director-added", "direct", Some(0)),
            row("director-cut", "direct", None),
        ];
        let page = page(&rows);
        assert_eq!(page.matches("<section").count(), 2);
        assert!(
            page.contains("width: 25.0%") && page.contains("width: 0.0%"),
            "{page}"
        );
        assert!(
            page.contains("a &lt;b&gt; failed") && page.contains("100 of 400 connections broken")
        );
    }
}
