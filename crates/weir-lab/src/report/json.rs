//! Writes the JSON report, whose fields are stable. Only the HTML file contains charts and notes.

use super::{Event, Failure, Report, Row};

#[derive(serde::Serialize)]
struct Document<'a> {
    experiment: &'a str,
    rows: &'a [Row],
    #[serde(skip_serializing_if = "<[Event]>::is_empty")]
    events: &'a [Event],
    #[serde(skip_serializing_if = "<[Failure]>::is_empty")]
    failures: &'a [Failure],
}

pub(super) fn render(report: &Report) -> String {
    let document = Document {
        experiment: &report.experiment,
        rows: &report.rows,
        events: &report.events,
        failures: &report.failures,
    };
    // Serialization can fail only for maps with non-string keys and for writers, and the report uses neither.
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::example;

    #[test]
    fn fields_match_the_documented_ones() {
        insta::assert_snapshot!(super::render(&example::report()));
    }

    #[test]
    fn latencies_are_additional_fields() {
        insta::assert_snapshot!(super::render(&example::timed_report()));
    }
}
