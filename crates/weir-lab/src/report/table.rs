//! Formats the report as a text table.

use std::fmt::Write as _;

use super::{BASE, DIRECTOR, Report, Row, headline, latency};

/// Returns the summary, the table, the failures and the notes.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("{}: {}\n\n", report.experiment, report.summary);
    for line in headline::summarize(report).iter().chain(&report.busy) {
        text += &format!("{line}\n\n");
    }
    let width = report
        .rows
        .iter()
        .map(|row| row.name.len())
        .max()
        .unwrap_or(0)
        .max("method".len());
    if report.is_timed() {
        write_timed_rows(&mut text, report, width);
    } else {
        write_rows(&mut text, report, width);
    }
    for failure in &report.failures {
        // Print only the first line of an error. The complete text has already been printed and is in the HTML file.
        let error = failure.error.lines().next().unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<width$}  not measured: {error}", failure.method);
    }
    text.push('\n');
    for note in &report.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

fn write_timed_rows(text: &mut String, report: &Report, width: usize) {
    let titles = latency::titles(report);
    let line = |text: &mut String, name: &str, cells: &[String]| {
        let _ = write!(text, "{name:<width$}");
        for (cell, title) in cells.iter().zip(&titles) {
            let _ = write!(text, "  {cell:>wide$}", wide = title.len().max(8));
        }
        text.push('\n');
    };
    line(text, "method", &titles);
    for row in &report.rows {
        line(text, &row.name, &latency::cells(row));
    }
}

fn write_rows(text: &mut String, report: &Report, width: usize) {
    let traffic = !report.panels.is_empty();
    let _ = write!(
        text,
        "{:<width$}  requests/s       KB/s  failed    seconds  ×{BASE}",
        "method"
    );
    text.push_str(if traffic {
        "  director sends  receives (Mbit/s)\n"
    } else {
        "\n"
    });
    for row in &report.rows {
        let _ = write!(
            text,
            "{:<width$}  {:>10.2}  {:>9.2}  {:>6}  {:>9.3}  {:>11}",
            row.name,
            row.requests_per_second,
            row.kbytes_per_second,
            row.failed,
            row.seconds,
            ratio(row)
        );
        if let Some((sends, receives)) = report
            .panel(row)
            .and_then(|panel| panel.series.mean(DIRECTOR))
        {
            let _ = write!(text, "  {sends:>14.2}  {receives:>8.2}");
        }
        text.push('\n');
    }
}

/// Formats a ratio with two decimals, or as a dash if there is none.
pub(super) fn ratio(row: &Row) -> String {
    row.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::super::example;

    #[test]
    fn latencies_have_separate_columns() {
        insta::assert_snapshot!(super::render(&example::timed_report()));
    }

    #[test]
    fn columns_are_aligned() {
        let mut report = example::report();
        report.busy = Some("The machine was busy.".into());
        insta::assert_snapshot!(super::render(&report));
    }
}
