//! The output of experiments in which something fails: a line, a bar and a JSON object for each fault and method.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::html;
use crate::error::{LabError, Result};
use crate::output;
use crate::progress::Progress;

/// The result of one fault with one method.
pub(crate) trait FaultRow: Serialize {
    /// Rows of one fault follow each other, and have a section of the chart.
    fn fault(&self) -> &str;
    /// What is compared.
    fn method(&self) -> &str;
    /// Whether Weir is compared with this method.
    fn is_base(&self) -> bool;
    /// The length of its bar. The unit does not matter: bars are shares of [`About::most`].
    fn length(&self) -> f64;
    /// The text of its bar; `None` = there is no result.
    fn label(&self) -> Option<String>;
    /// The columns of the table between the method and the error, aligned with [`About::columns`].
    fn columns(&self) -> String;
    /// Why a run failed.
    fn error(&self) -> Option<&str>;
}

/// An experiment, for its output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) name: &'a str,
    pub(crate) summary: &'a str,
    /// The names of the first two columns with their widths.
    pub(crate) heads: [(&'a str, usize); 2],
    /// The heads of [`FaultRow::columns`].
    pub(crate) columns: &'a str,
    /// The length of a full bar.
    pub(crate) most: f64,
    /// What the figures mean, below the table.
    pub(crate) note: &'a str,
}

/// A row of the table without its line break.
pub(crate) fn line<R: FaultRow>(about: &About<'_>, row: &R) -> String {
    let [(_, fault), (_, method)] = about.heads;
    let text = format!(
        "{:<fault$} {:<method$} {}  {}",
        row.fault(),
        row.method(),
        row.columns(),
        row.error().unwrap_or_default()
    );
    text.trim_end().to_owned()
}

fn table<R: FaultRow>(about: &About<'_>, rows: &[R]) -> String {
    let [(first, fault), (second, method)] = about.heads;
    let mut text = format!("{first:<fault$} {second:<method$} {}\n", about.columns);
    for row in rows {
        text.push_str(&line(about, row));
        text.push('\n');
    }
    text.push_str(about.note);
    text.push('\n');
    text
}

/// Writes the chart, prints the table or JSON, and returns whether all runs succeeded.
///
/// # Errors
/// The directory of the chart or standard output cannot be written.
pub(crate) fn finish<R: FaultRow>(
    about: &About<'_>,
    rows: &[R],
    directory: &Path,
    json: bool,
    progress: &Progress,
) -> Result<bool> {
    let page = write(about, rows, directory)?;
    progress.line(&format!("report: {}", page.display()));
    if json {
        let document = serde_json::json!({ "experiment": about.name, "rows": rows });
        output::print(&format!("{document}\n"))?;
    } else {
        output::print(&table(about, rows))?;
    }
    Ok(rows.iter().all(|row| row.error().is_none()))
}

fn write<R: FaultRow>(about: &About<'_>, rows: &[R], directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).map_err(LabError::file(directory))?;
    let path = directory.join(format!("{}.html", about.name));
    std::fs::write(&path, page(about, rows)).map_err(LabError::file(&path))?;
    Ok(std::fs::canonicalize(&path).unwrap_or(path))
}

fn page<R: FaultRow>(about: &About<'_>, rows: &[R]) -> String {
    let mut body = format!("<p>{}</p>\n", html::escape(about.summary));
    for group in rows.chunk_by(|one, other| one.fault() == other.fault()) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            "<section class=\"bars\"><h2>{}</h2>",
            html::escape(group[0].fault())
        );
        for row in group {
            bar(&mut body, about, row);
        }
        body.push_str("</section>\n");
    }
    let _ = writeln!(body, "<p>{}</p>", html::escape(about.note));
    html::document(about.name, &body)
}

fn bar<R: FaultRow>(body: &mut String, about: &About<'_>, row: &R) {
    let most = about.most.max(f64::MIN_POSITIVE);
    let percent = (row.length() / most * 100.0).clamp(0.0, 100.0);
    let class = if row.is_base() { "bar base" } else { "bar" };
    let shown = row.label();
    let shown = shown.unwrap_or_else(|| row.error().unwrap_or_default().to_owned());
    let _ = writeln!(
        body,
        "<div><span>{}</span><span class=\"track\"><span class=\"{class}\" style=\"width: \
         {percent:.1}%\"></span></span><span>{}</span></div>",
        html::escape(row.method()),
        html::escape(&shown)
    );
}

/// A time in a table, or `-`.
pub(crate) fn milliseconds(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |it| format!("{it} ms"))
}

/// The entries of an experiment with these names; no names = all.
///
/// # Errors
/// An unknown name, with the known ones.
pub(crate) fn chosen<T: Copy>(
    experiment: &str,
    option: &'static str,
    all: &[T],
    name: impl Fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<T>> {
    let known: Vec<&str> = all.iter().map(&name).collect();
    if let Some(wrong) = names.iter().find(|it| !known.contains(&it.as_str())) {
        return Err(LabError::Usage {
            option,
            reason: format!(
                "unknown name \"{wrong}\"; {experiment} has: {}",
                known.join(", ")
            ),
        });
    }
    let is_chosen = |it: &&T| names.is_empty() || names.iter().any(|one| one == name(it));
    Ok(all.iter().filter(is_chosen).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Row(&'static str, &'static str, Option<u32>);

    impl FaultRow for Row {
        fn fault(&self) -> &str {
            self.0
        }

        fn method(&self) -> &str {
            self.1
        }

        fn is_base(&self) -> bool {
            self.1 == "peer"
        }

        fn length(&self) -> f64 {
            self.2.map_or(0.0, f64::from)
        }

        fn label(&self) -> Option<String> {
            self.2.map(|it| format!("{it} broken"))
        }

        fn columns(&self) -> String {
            self.2
                .map_or_else(|| format!("{:>6}", "-"), |it| format!("{it:>6}"))
        }

        fn error(&self) -> Option<&str> {
            self.2.is_none().then_some("a <b> failed")
        }
    }

    const ABOUT: About<'_> = About {
        name: "example",
        summary: "what < breaks",
        heads: [("FAULT", 6), ("METHOD", 7)],
        columns: "BROKEN",
        most: 400.0,
        note: "A note.",
    };

    fn rows() -> [Row; 3] {
        [
            Row("cut", "peer", Some(100)),
            Row("cut", "weir", Some(0)),
            Row("stop", "weir", None),
        ]
    }

    #[test]
    fn rows_of_a_fault_share_a_section() {
        let page = page(&ABOUT, &rows());
        assert_eq!(page.matches("<section").count(), 2);
        assert_eq!(page.matches("bar base").count(), 1);
        assert!(
            page.contains("width: 25.0%") && page.contains("width: 0.0%"),
            "{page}"
        );
        assert!(
            page.contains("a &lt;b&gt; failed") && page.contains("100 broken"),
            "{page}"
        );
        assert!(page.contains("what &lt; breaks"), "{page}");
    }

    #[test]
    fn columns_of_the_table_are_aligned() {
        let expected = "FAULT  METHOD  BROKEN\ncut    peer       100\ncut    weir         0\nstop   weir         -  a \
                        <b> failed\nA note.\n";
        assert_eq!(table(&ABOUT, &rows()), expected);
    }

    #[test]
    fn names_select_entries() {
        let choose = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&it| it.to_owned()).collect();
            chosen("example", "--faults", &["cut", "stop"], |it| *it, &names)
        };
        assert_eq!(choose(&[]).map(|it| it.len()).ok(), Some(2));
        assert_eq!(choose(&["stop"]).ok(), Some(vec!["stop"]));
        let error = choose(&["stop", "run"]).expect_err("unknown");
        assert_eq!(
            error.to_string(),
            "--faults: unknown name \"run\"; example has: cut, stop"
        );
    }
}
