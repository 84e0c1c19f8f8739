//! The report for the terminal.

use std::fmt::Write as _;

use super::{BASE, DIRECTOR, Report, Row};

/// The table, the failures and the notes.
pub(crate) fn render(report: &Report) -> String {
    let traffic = !report.panels.is_empty();
    let mut text = format!("{}: {}\n\n", report.experiment, report.summary);
    let width = report
        .rows
        .iter()
        .map(|row| row.name.len())
        .max()
        .unwrap_or(0)
        .max("method".len());
    // Writing to a String cannot fail.
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
    for failure in &report.failures {
        // Some programs explain over many lines; those were shown when it happened, and stand in the HTML file.
        let error = failure.error.lines().next().unwrap_or_default();
        let _ = writeln!(text, "{:<width$}  not measured: {error}", failure.method);
    }
    text.push('\n');
    for note in &report.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// The ratio with two decimals, or a dash.
pub(super) fn ratio(row: &Row) -> String {
    row.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::super::example;

    #[test]
    fn the_table_aligns() {
        insta::assert_snapshot!(super::render(&example::report()));
    }
}
