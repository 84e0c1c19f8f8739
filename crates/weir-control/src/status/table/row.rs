//! Formats a server's row.

use super::super::{Server, time};
use super::layout::{columns, format_age, format_short};
use super::view::View;

/// The cells of a row.
pub(super) type Columns<const N: usize> = [String; N];

/// Returns whether a server is not in its normal state and therefore needs an operator's attention.
pub(super) fn needs_attention(server: &Server) -> bool {
    !matches!(server.state.as_str(), "up" | "unchecked")
        || server.overridden.is_some()
        || server.removed
        || server.ejected.is_some()
        || server.warning.is_some()
        || server.slow_start.is_some()
        || server.check_weight.is_some()
}

fn state(server: &Server) -> &str {
    if server.removed {
        "removed"
    } else if server.overloaded {
        "full"
    } else {
        &server.state
    }
}

/// Returns the reason for a server's state, followed by the causes of a changed weight, the latency and the reason for
/// an ejection.
fn reason(server: &Server) -> String {
    let reason = match &server.overridden {
        // Do not show an override that equals the state.
        Some(active) if *active != server.state => {
            format!("{} (override: {active})", server.reason)
        }
        _ => server.reason.clone(),
    };
    let reason = reason + &weight_changes(server) + &latency(server);
    match &server.ejected {
        Some(ejected) => format!("{reason} (ejected: {})", ejected.reason),
        None => reason,
    }
}

/// Returns the estimated latency of a layer 4 server.
fn latency(server: &Server) -> String {
    let estimated = server.latency.as_ref().filter(|_| server.proxy.is_none());
    let text = estimated.map(|latency| {
        format!(
            " (latency: {} ms, p99 {} ms)",
            latency.mean_ms, latency.p99_ms
        )
    });
    text.unwrap_or_default()
}

/// Returns the causes of a changed weight other than the override: checks and slow start.
fn weight_changes(server: &Server) -> String {
    let check = server.check_weight.map(|weight| format!("check {weight}"));
    let percent = |ramp: u32| f64::from(ramp) / 10.0;
    let ramp = server
        .slow_start
        .map(|ramp| format!("slow start {:.0} %", percent(ramp)));
    let layers: Vec<String> = check.into_iter().chain(ramp).collect();
    if layers.is_empty() {
        String::new()
    } else {
        format!(" (weight: {})", layers.join(", "))
    }
}

/// Returns the last results of each check, newest last, in at most `width` characters.
fn probes(server: &Server, width: usize) -> String {
    let checks = server.checks.len().max(1);
    let length = (width.saturating_add(1) / checks).saturating_sub(1).max(1);
    let last = |results: &str| {
        let skipped = results.chars().count().saturating_sub(length);
        results.chars().skip(skipped).collect::<String>()
    };
    let strips: Vec<String> = server
        .checks
        .iter()
        .map(|check| last(&check.results))
        .collect();
    strips.join(" ").chars().take(width).collect()
}

/// Formats rows of unlimited width, for programs and files.
pub(super) mod wide {
    use super::*;

    pub(in super::super) const HEADER: [&str; 10] = [
        "SERVER", "FORWARD", "STATE", "WEIGHT", "ACTIVE", "INACTIVE", "TOTAL", "SINCE", "PROBES",
        "REASON",
    ];

    pub(in super::super) fn row(server: &Server) -> Columns<10> {
        let weight = if server.weight == server.effective_weight {
            server.weight.to_string()
        } else {
            format!("{} of {}", server.effective_weight, server.weight)
        };
        [
            server.address.clone(),
            server.forward.clone(),
            state(server).to_owned(),
            weight,
            server.active_connections.to_string(),
            server.inactive_connections.to_string(),
            server.totals.connections.to_string(),
            server.since.clone(),
            probes(server, usize::MAX),
            reason(server),
        ]
    }
}

/// Formats rows that fit into 80 columns, for terminals.
pub(super) mod narrow {
    use super::*;

    /// Maximum length of an address in a row; a longer address gets its own line.
    const MAX_ADDRESS: usize = 20;
    const MAX_PROBES: usize = 8;
    const STATE: usize = 1;
    const HEADER: [&str; 8] = [
        "SERVER", "STATE", "WEIGHT", "ACTIVE", "INACT", "TOTAL", "SINCE", "PROBES",
    ];

    /// Writes the table, with reasons below the servers that need attention, or below every server if `view.all` is
    /// set.
    pub(in super::super) fn table(
        out: &mut String,
        servers: &[&Server],
        view: &View<'_>,
        width: usize,
    ) {
        let rows: Vec<Columns<8>> = std::iter::once(HEADER.map(str::to_owned))
            .chain(servers.iter().map(|server| row(server, view)))
            .collect();
        let mut table = String::new();
        columns(&mut table, &rows, |column, cell| {
            if column == STATE && view.color {
                add_color(cell)
            } else {
                cell
            }
        });
        let mut lines = table.lines();
        for line in lines.by_ref().take(1) {
            out.push_str(&format!("{line}\n"));
        }
        for (line, server) in lines.zip(servers) {
            if server.address.chars().count() > MAX_ADDRESS {
                out.push_str(&format!("  {}\n", server.address));
            }
            out.push_str(&format!("{line}\n"));
            if view.all || needs_attention(server) {
                out.push_str(&super::super::layout::wrap(
                    &format!("      {}", reason(server)),
                    width,
                ));
            }
        }
    }

    fn row(server: &Server, view: &View<'_>) -> Columns<8> {
        let address =
            Some(&server.address).filter(|address| address.chars().count() <= MAX_ADDRESS);
        let weight = if server.weight == server.effective_weight {
            server.weight.to_string()
        } else {
            format!("{}/{}", server.effective_weight, server.weight)
        };
        let since = time::parse(&server.since).zip(view.now);
        let since = since.map_or_else(
            || server.since.chars().skip(5).take(5).collect(),
            |(since, now)| format_age(now.saturating_sub(since).as_secs()),
        );
        [
            address.cloned().unwrap_or_default(),
            state(server).to_owned(),
            weight,
            format_short(server.active_connections),
            format_short(server.inactive_connections),
            format_short(server.totals.connections),
            since,
            probes(server, MAX_PROBES),
        ]
    }

    /// Adds colors: Select Graphic Rendition of ECMA-48.
    fn add_color(cell: String) -> String {
        let text = cell.trim_end();
        let color = match text {
            "up" => "32",
            "down" => "31",
            "drain" | "maint" | "starting" | "removed" | "full" => "33",
            _ => return cell,
        };
        format!("\x1b[{color}m{text}\x1b[0m{}", &cell[text.len()..])
    }
}
