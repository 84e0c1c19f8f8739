//! Summarizes a run in one sentence.

use super::{BASE, DIRECTOR, Panel, Report, Row};

/// Share of the link's rate at which the director's link counts as saturated.
pub(super) const SATURATION_SHARE: f64 = 0.9;

/// Returns the summary; `None` = nothing was measured.
pub(crate) fn summarize(report: &Report) -> Option<String> {
    let outcome = if report.has_shares() {
        slow_server_latency(report)?
    } else if report.is_timed() {
        slowest_request(report)?
    } else if !report.events.is_empty() {
        failover_times(report)?
    } else {
        compare_with_one_server(report).or_else(|| fastest_method(report))?
    };
    let failed: u64 = report.rows.iter().map(|row| row.failed).sum();
    let failed = match failed {
        0 => "no request failed".to_owned(),
        1 => "1 request failed".to_owned(),
        count => format!("{count} requests failed"),
    };
    let methods = match report.failures.len() {
        0 => String::new(),
        _ if !report.events.is_empty() => "; the run did not meet its requirements".to_owned(),
        1 => "; 1 method was not measured".to_owned(),
        count => format!("; {count} methods were not measured"),
    };
    Some(format!("{outcome}; {failed}{methods}."))
}

/// Returns whether the director's link is saturated.
pub(super) fn is_saturated(panel: &Panel) -> bool {
    let (sends, _) = panel.series.mean(DIRECTOR).unwrap_or_default();
    sends >= SATURATION_SHARE * panel.link
}

fn compare_with_one_server(report: &Report) -> Option<String> {
    let ratio = |row: &&Row| row.ratio.unwrap_or_default();
    let balanced_rows = || {
        let rows = report.rows.iter();
        rows.filter(|row| row.method() != BASE && row.ratio.is_some())
    };
    let best = balanced_rows().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    let worst = balanced_rows().min_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    let times = |row: &Row| row.ratio.unwrap_or_default();
    let mut text = format!(
        "{} serves {:.2} times as many requests as one server alone",
        best.name,
        times(best)
    );
    if worst.name != best.name {
        text += &format!(", {} {:.2} times", worst.name, times(worst));
        if report.panel(worst).is_some_and(is_saturated) {
            text += ", because its replies fill the director's link";
        }
    }
    Some(text)
}

fn fastest_method(report: &Report) -> Option<String> {
    let by_rate = |a: &&Row, b: &&Row| a.requests_per_second.total_cmp(&b.requests_per_second);
    let best = report.rows.iter().max_by(by_rate)?;
    let rate = best.requests_per_second;
    Some(match report.rows.len() {
        1 => format!("{} serves {rate:.1} requests per second", best.name),
        _ => format!(
            "{} serves the most requests, {rate:.1} per second",
            best.name
        ),
    })
}

/// Returns a sentence about the slowest request of the disturbed runs, or of all runs if none was disturbed.
fn slowest_request(report: &Report) -> Option<String> {
    let disturbed = |row: &&Row| {
        let timing = row.timing.as_ref();
        timing.is_some_and(|timing| !timing.disturbances.is_empty())
    };
    let has_disturbed_run = report.rows.iter().any(|row| disturbed(&row));
    let rows = report
        .rows
        .iter()
        .filter(|row| !has_disturbed_run || disturbed(row));
    let timed = rows.filter_map(|row| Some((row, row.timing.as_ref()?)));
    let slowest_requests: Vec<(&Row, f64)> = timed
        .map(|(row, timing)| (row, timing.latency.quantile_ms(1.0)))
        .collect();
    let (row, milliseconds) = slowest_requests.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let change_count: usize = report
        .rows
        .iter()
        .filter_map(|row| row.timing.as_ref())
        .map(|timing| timing.disturbances.len())
        .sum();
    let changes = match change_count {
        0 => String::new(),
        1 => " over 1 change".to_owned(),
        count => format!(" over {count} changes"),
    };
    Some(format!(
        "The slowest request{changes} took {milliseconds:.1} ms ({})",
        row.name
    ))
}

/// Returns a sentence about the best and the worst 99th percentile in the runs with a slow first server.
fn slow_server_latency(report: &Report) -> Option<String> {
    let workload = super::share::HEADLINE_WORKLOAD;
    let rows = report
        .rows
        .iter()
        .filter(|row| row.workload() == Some(workload));
    let timed =
        rows.filter_map(|row| Some((row.method(), row.timing.as_ref()?.latency.quantile_ms(0.99))));
    let percentiles: Vec<(&str, f64)> = timed.collect();
    let best = percentiles.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let worst = percentiles.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "With one of four servers 20 ms slower, 99 % of the requests took at most {:.1} ms with {}, {:.1} ms with {}",
        best.1, best.0, worst.1, worst.0
    ))
}

fn failover_times(report: &Report) -> Option<String> {
    let seconds = |prefix: &str| {
        let mut events = report.events.iter();
        let event = events.find(|event| event.event.starts_with(prefix));
        event.map(|event| event.seconds)
    };
    let (down, up) = (seconds("down after")?, seconds("up after")?);
    Some(format!(
        "The stopped server was removed from the pool after {down:.2} s, and added again {up:.2} s after its restart"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{Event, example};
    use super::*;

    fn headline(report: &Report) -> String {
        summarize(report).unwrap_or_default()
    }

    #[test]
    fn best_and_worst_method_are_compared_with_one_server() {
        let mut report = example::report();
        assert_eq!(
            headline(&report),
            "direct serves 3.99 times as many requests as one server alone, nat 0.98 times, because its replies fill \
             the director's link; no request failed; 1 method was not measured."
        );
        report.rows[1].failed = 2;
        report.failures.clear();
        report.panels.clear();
        assert!(headline(&report).ends_with("nat 0.98 times; 2 requests failed."));
        report.rows.retain(|row| row.method() != BASE);
        report.rows.iter_mut().for_each(|row| row.ratio = None);
        assert!(headline(&report).starts_with("direct serves the most requests, 1.0 per second"));
    }

    #[test]
    fn slowest_request_is_from_a_disturbed_run() {
        let report = example::timed_report();
        assert_eq!(
            headline(&report),
            "The slowest request over 3 changes took 31.0 ms (proxy/keep-alive-disturbed); no request failed."
        );
    }

    #[test]
    fn headline_contains_failover_times() {
        let mut report = example::report();
        let event = |event: &str, seconds| Event {
            event: event.to_owned(),
            seconds,
        };
        report.events = vec![
            event("down after the stop", 0.61),
            event("up after the start", 0.4),
        ];
        report.failures.clear();
        assert_eq!(
            headline(&report),
            "The stopped server was removed from the pool after 0.61 s, and added again 0.40 s after its restart; no \
             request failed."
        );
        report.rows.clear();
        report.events.clear();
        assert_eq!(summarize(&report), None);
    }
}
