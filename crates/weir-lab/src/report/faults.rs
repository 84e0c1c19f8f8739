//! Prints the output of experiments that inject faults: a line, a bar and a JSON object for each fault and method.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::html;
use crate::error::{LabError, Result};
use crate::output;
use crate::progress::Progress;

/// The result of one fault with one method.
pub(crate) trait FaultRow: Serialize {
    /// Returns the name of the fault. Rows with the same fault are adjacent and share a section of the chart.
    fn fault(&self) -> &str;
    /// Returns the name of the method.
    fn method(&self) -> &str;
    /// Returns whether Weir is compared with this method.
    fn is_base(&self) -> bool;
    /// Returns the length of the bar. The unit does not matter: bars are shares of [`Description::full_bar`].
    fn length(&self) -> f64;
    /// Returns the text of the bar; `None` = there is no result.
    fn label(&self) -> Option<String>;
    /// Returns the length and text of a second bar, which is a share of the longest one; `None` = there is none.
    fn second_bar(&self) -> Option<(f64, String)> {
        None
    }
    /// Returns the columns between the method and the error in the table, aligned with [`Description::columns`].
    fn columns(&self) -> String;
    /// Returns why a run failed; `None` = all runs succeeded.
    fn error(&self) -> Option<&str>;
}

/// The description of an experiment for its output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description<'a> {
    pub(crate) name: &'a str,
    pub(crate) summary: &'a str,
    /// Headings and widths of the first two columns.
    pub(crate) headings: [(&'a str, usize); 2],
    /// The heading of [`FaultRow::columns`].
    pub(crate) columns: &'a str,
    /// The length of a full bar.
    pub(crate) full_bar: f64,
    /// The heading of the second bars.
    pub(crate) second_bars: &'a str,
    /// An explanation of the figures, below the table.
    pub(crate) note: &'a str,
}

/// Returns a row of the table without a line break.
pub(crate) fn line<R: FaultRow>(description: &Description<'_>, row: &R) -> String {
    let [(_, fault), (_, method)] = description.headings;
    let text = format!(
        "{:<fault$} {:<method$} {}  {}",
        row.fault(),
        row.method(),
        row.columns(),
        row.error().unwrap_or_default()
    );
    text.trim_end().to_owned()
}

fn table<R: FaultRow>(description: &Description<'_>, rows: &[R]) -> String {
    let [(first, fault), (second, method)] = description.headings;
    let mut text = format!(
        "{first:<fault$} {second:<method$} {}\n",
        description.columns
    );
    for row in rows {
        text.push_str(&line(description, row));
        text.push('\n');
    }
    text.push_str(description.note);
    text.push('\n');
    text
}

/// Writes the chart, prints the table or JSON, and returns whether all runs succeeded.
///
/// # Errors
/// Fails if the chart or standard output cannot be written.
pub(crate) fn finish<R: FaultRow>(
    description: &Description<'_>,
    rows: &[R],
    directory: &Path,
    json: bool,
    progress: &Progress,
) -> Result<bool> {
    let page = write(description, rows, directory)?;
    progress.line(&format!("report: {}", page.display()));
    if json {
        let document = serde_json::json!({ "experiment": description.name, "rows": rows });
        output::print(&format!("{document}\n"))?;
    } else {
        output::print(&table(description, rows))?;
    }
    Ok(rows.iter().all(|row| row.error().is_none()))
}

fn write<R: FaultRow>(
    description: &Description<'_>,
    rows: &[R],
    directory: &Path,
) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).map_err(LabError::file(directory))?;
    let path = directory.join(format!("{}.html", description.name));
    std::fs::write(&path, page(description, rows)).map_err(LabError::file(&path))?;
    Ok(std::fs::canonicalize(&path).unwrap_or(path))
}

fn page<R: FaultRow>(description: &Description<'_>, rows: &[R]) -> String {
    let mut body = format!("<p>{}</p>\n", html::escape(description.summary));
    let second_bars = rows.iter().filter_map(FaultRow::second_bar);
    let longest = second_bars.map(|it| it.0).fold(0.0, f64::max);
    for group in rows.chunk_by(|a, b| a.fault() == b.fault()) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            "<section class=\"bars\"><h2>{}</h2>",
            html::escape(group[0].fault())
        );
        for row in group {
            write_result(&mut body, description, row);
        }
        write_second_bars(&mut body, description.second_bars, longest, group);
        body.push_str("</section>\n");
    }
    let _ = writeln!(body, "<p>{}</p>", html::escape(description.note));
    html::document(description.name, &body)
}

fn write_result<R: FaultRow>(body: &mut String, description: &Description<'_>, row: &R) {
    let text = row.label();
    let text = text.unwrap_or_else(|| row.error().unwrap_or_default().to_owned());
    let full_bar = description.full_bar.max(f64::MIN_POSITIVE);
    write_bar(body, row, row.length() / full_bar, &text);
}

/// Writes the second bars of a fault's rows, if there are any. `longest` is the length of a full bar.
fn write_second_bars<R: FaultRow>(body: &mut String, heading: &str, longest: f64, rows: &[R]) {
    let bars = rows.iter();
    let bars = bars.filter_map(|row| Some((row, row.second_bar()?)));
    for (number, (row, (length, text))) in bars.enumerate() {
        if number == 0 {
            // Writing to a String cannot fail.
            let _ = writeln!(body, "<h3>{}</h3>", html::escape(heading));
        }
        write_bar(body, row, length / longest.max(f64::MIN_POSITIVE), &text);
    }
}

/// Writes a bar. `share` is its length relative to a full bar.
fn write_bar<R: FaultRow>(body: &mut String, row: &R, share: f64, text: &str) {
    let percent = (share * 100.0).clamp(0.0, 100.0);
    let class = if row.is_base() { "bar base" } else { "bar" };
    let _ = writeln!(
        body,
        "<div><span>{}</span><span class=\"track\"><span class=\"{class}\" style=\"width: \
         {percent:.1}%\"></span></span><span>{}</span></div>",
        html::escape(row.method()),
        html::escape(text)
    );
}

/// Formats a time for a table; `-` = there is none.
pub(crate) fn milliseconds(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |it| format!("{it} ms"))
}

/// Returns the entries of an experiment with these names; no names = all entries.
///
/// # Errors
/// Fails if a name is unknown. The error lists the known names.
pub(crate) fn select<T: Copy>(
    experiment: &str,
    option: &'static str,
    all: &[T],
    name: impl Fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<T>> {
    let known_names: Vec<&str> = all.iter().map(&name).collect();
    if let Some(unknown) = names.iter().find(|it| !known_names.contains(&it.as_str())) {
        return Err(LabError::Usage {
            option,
            reason: format!(
                "unknown name \"{unknown}\"; {experiment} supports: {}",
                known_names.join(", ")
            ),
        });
    }
    let is_selected =
        |it: &&T| names.is_empty() || names.iter().any(|selected| selected == name(it));
    Ok(all.iter().filter(is_selected).copied().collect())
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

        fn second_bar(&self) -> Option<(f64, String)> {
            let cost = self.2?;
            Some((f64::from(cost + 100), format!("cost {cost}")))
        }

        fn columns(&self) -> String {
            self.2
                .map_or_else(|| format!("{:>6}", "-"), |it| format!("{it:>6}"))
        }

        fn error(&self) -> Option<&str> {
            self.2.is_none().then_some("a <b> failed")
        }
    }

    const DESCRIPTION: Description<'_> = Description {
        name: "example",
        summary: "what < breaks",
        headings: [("FAULT", 6), ("METHOD", 7)],
        columns: "BROKEN",
        full_bar: 400.0,
        second_bars: "Cost & more",
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
        let page = page(&DESCRIPTION, &rows());
        assert_eq!(page.matches("<section").count(), 2);
        assert_eq!(page.matches("bar base").count(), 2);
        assert!(
            page.contains("width: 25.0%") && page.contains("width: 0.0%"),
            "{page}"
        );
        assert!(
            page.contains("a &lt;b&gt; failed") && page.contains("100 broken"),
            "{page}"
        );
        assert!(page.contains("what &lt; breaks"), "{page}");
        // The longest second bar is full. A fault without second bars has no heading for them.
        assert_eq!(page.matches("<h3>Cost &amp; more</h3>").count(), 1);
        assert!(
            page.contains("width: 100.0%") && page.contains("width: 50.0%"),
            "{page}"
        );
    }

    #[test]
    fn columns_of_the_table_are_aligned() {
        let expected = "FAULT  METHOD  BROKEN\ncut    peer       100\ncut    weir         0\nstop   weir         -  a \
                        <b> failed\nA note.\n";
        assert_eq!(table(&DESCRIPTION, &rows()), expected);
    }

    #[test]
    fn entries_are_selected_by_name() {
        let select_names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&it| it.to_owned()).collect();
            select("example", "--faults", &["cut", "stop"], |it| *it, &names)
        };
        assert_eq!(select_names(&[]).map(|it| it.len()).ok(), Some(2));
        assert_eq!(select_names(&["stop"]).ok(), Some(vec!["stop"]));
        let error = select_names(&["stop", "run"]).expect_err("an unknown name was accepted");
        assert_eq!(
            error.to_string(),
            "--faults: unknown name \"run\"; example supports: cut, stop"
        );
    }
}
