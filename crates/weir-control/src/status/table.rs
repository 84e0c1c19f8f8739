//! The status document as text for a terminal: a line for the director, a block for each service, and packets by
//! outcome.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Counters, Report, Server, Service};

/// An earlier document and how long ago it was read; gives the rates.
#[derive(Clone, Copy, Debug)]
pub struct Earlier<'a> {
    /// The document.
    pub report: &'a Report,
    /// Time between the two; not zero.
    pub elapsed: Duration,
}

/// Draws `report`, with rates where there is an earlier one.
pub fn render(report: &Report, earlier: Option<Earlier<'_>>) -> String {
    let mut out = director(report);
    for service in &report.services {
        out.push('\n');
        let before = earlier.and_then(|earlier| {
            let same = |before: &&Service| before.name == service.name;
            let before = earlier.report.services.iter().find(same)?;
            Some((before, earlier.elapsed))
        });
        block(&mut out, service, before);
    }
    if report.services.is_empty() {
        out.push_str("\nno services\n");
    }
    if !report.vrrp.is_empty() {
        out.push('\n');
        out.push_str(&super::vrrp::table(&report.vrrp));
    }
    fates(&mut out, report);
    out
}

fn director(report: &Report) -> String {
    let mut out = format!("revision {}", report.revision);
    if let Some(how) = &report.last_death {
        let times = report.restarts;
        out.push_str(&format!(", the daemon died {times} times, last by {how}"));
    }
    for at in &report.xdp {
        let hook = if at.mode == "tc" { "" } else { "xdp " };
        let _ = write!(out, ", {hook}{} on {}", at.mode, at.interface);
    }
    if report.xdp.is_empty() {
        out.push_str(", xdp nowhere");
    }
    let _ = writeln!(
        out,
        ", {} of {} flow places in use",
        report.flows.entries, report.flows.places
    );
    ways(&mut out, report);
    for old in &report.draining {
        let (pid, version, since) = (old.pid, &old.version, &old.since);
        let clients = old.clients;
        let _ = writeln!(
            out,
            "process {pid} of version {version} drains since {since}, clients left: {clients}"
        );
    }
    for why in report.open_files.iter().flat_map(|it| &it.exceeding) {
        let _ = writeln!(out, "warning: {why}");
    }
    for source in &report.sources {
        let (pool, from, count) = (&source.pool, &source.from, source.servers);
        let _ = write!(out, "pool {pool}: {count} servers of {from}");
        let _ = match &source.problem {
            Some(problem) => writeln!(out, ", as they were before: {problem}"),
            None => writeln!(out),
        };
    }
    out
}

/// The reasons for the modes of the packet path, and packets by path.
fn ways(out: &mut String, report: &Report) {
    for at in report.xdp.iter().filter(|at| !at.reason.is_empty()) {
        let _ = writeln!(out, "{} {}: {}", at.interface, at.mode, at.reason);
    }
    let ways = &report.ways;
    let all = ways.xdp + ways.xdp_sent_by_tc + ways.tc;
    if all == 0 {
        return;
    }
    let share = |part: u64| part as f64 * 100.0 / all as f64;
    let mut shares = Vec::new();
    for (part, name) in [
        (ways.xdp, "xdp"),
        (ways.xdp_sent_by_tc, "xdp, sent by tc"),
        (ways.tc, "tc"),
    ] {
        if part > 0 {
            shares.push(format!("{:.1} % {name}", share(part)));
        }
    }
    let _ = writeln!(out, "packets by way: {}", shares.join("; "));
}

fn block(out: &mut String, service: &Service, before: Option<(&Service, Duration)>) {
    let _ = writeln!(
        out,
        "{}  {}  {} {}  pool {}  vip {}{}",
        service.name,
        service.listen.join(" "),
        service.forward,
        service.scheduler,
        service.pool,
        service.vip,
        if service.origin == "file" {
            String::new()
        } else {
            format!("  from {}", service.origin)
        }
    );
    let totals = &service.totals;
    let _ = match &service.proxy {
        None => write!(
            out,
            "  {} connections, {} packets in, {} out",
            totals.connections, totals.packets_in, totals.packets_out
        ),
        Some(proxy) => write!(
            out,
            "  {} connections, {} clients now, {} requests, {} errors, {} retries",
            totals.connections, proxy.clients, proxy.requests, proxy.errors, proxy.retries
        ),
    };
    if let Some(persistence) = &service.persistence {
        let clients: u64 = service
            .servers
            .iter()
            .map(|server| server.persistent_connections)
            .sum();
        let _ = write!(out, ", persistent {persistence}: {clients} clients");
    }
    if service.one_packet {
        out.push_str(", one packet");
    }
    if service.totals.stateless != 0 {
        let _ = write!(out, ", {} without an entry", service.totals.stateless);
    }
    if let Some((before, elapsed)) = before {
        out.push_str(&rates(&service.totals, &before.totals, elapsed));
    }
    out.push('\n');
    if let (Some(state), Some(cause)) = (&service.pool_state, &service.pool_cause) {
        let _ = writeln!(out, "  pool {}: {state}, {cause}", service.pool);
    }
    if service.servers.is_empty() {
        out.push_str("  no servers\n");
        return;
    }
    for servers in service.servers.chunk_by(|a, b| a.pool == b.pool) {
        // Pools that routes lead to.
        if let Some(pool) = servers.first().and_then(|first| first.pool.as_ref())
            && *pool != service.pool
        {
            let _ = writeln!(out, "  pool {pool}");
        }
        listing(out, servers);
    }
    for server in &service.servers {
        if let Some(warning) = &server.warning {
            let _ = writeln!(out, "  warning: {}: {}", server.address, warning.reason);
        }
    }
}

/// Servers of one pool.
fn listing(out: &mut String, servers: &[Server]) {
    let header = [
        "SERVER", "FORWARD", "STATE", "WEIGHT", "ACTIVE", "INACTIVE", "TOTAL", "SINCE", "PROBES",
        "REASON",
    ]
    .map(str::to_owned);
    let rows: Vec<[String; 10]> = std::iter::once(header)
        .chain(servers.iter().map(row))
        .collect();
    columns(out, &rows);
}

fn row(server: &Server) -> [String; 10] {
    let weight = if server.weight == server.effective_weight {
        server.weight.to_string()
    } else {
        format!("{} of {}", server.effective_weight, server.weight)
    };
    let state = if server.removed {
        "removed"
    } else if server.overloaded {
        "full"
    } else {
        &server.state
    };
    let reason = match &server.overridden {
        // The state implies these two.
        Some(word) if *word != server.state => format!("{} (override: {word})", server.reason),
        _ => server.reason.clone(),
    };
    let reason = reason + &layers(server) + &latency(server);
    let reason = match &server.ejected {
        Some(ejected) => format!("{reason} (ejected: {})", ejected.reason),
        None => reason,
    };
    [
        server.address.clone(),
        server.forward.clone(),
        state.to_owned(),
        weight,
        server.active_connections.to_string(),
        server.inactive_connections.to_string(),
        server.totals.connections.to_string(),
        server.since.clone(),
        probes(server),
        reason,
    ]
}

/// The last results of each check, the newest last.
fn probes(server: &Server) -> String {
    let results: Vec<&str> = server.checks.iter().map(|it| it.results.as_str()).collect();
    results.join(" ")
}

/// The latency of a server that has samples.
fn latency(server: &Server) -> String {
    let shown = server.latency.as_ref();
    let shown = shown.map(|it| format!(" (latency: {} ms, p99 {} ms)", it.mean_ms, it.p99_ms));
    shown.unwrap_or_default()
}

/// What changes the configured weight in addition to the override: checks and slow start.
fn layers(server: &Server) -> String {
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

/// Pads columns to their widest cell, except the last.
fn columns<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|at| width(at).unwrap_or(0));
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "  {cell:<width$}");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

fn rates(now: &Counters, before: &Counters, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    // A service that was removed and added again starts at zero.
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    format!(
        "; {:.1} connections/s, {:.0} packets/s in, {:.0} out",
        rate(now.connections, before.connections),
        rate(now.packets_in, before.packets_in),
        rate(now.packets_out, before.packets_out)
    )
}

fn fates(out: &mut String, report: &Report) {
    if report.reasons.is_empty() {
        return;
    }
    out.push_str("\npackets\n");
    let rows: Vec<[String; 3]> = report
        .reasons
        .iter()
        .map(|reason| {
            [
                reason.packets.to_string(),
                reason.reason.clone(),
                reason.description.clone(),
            ]
        })
        .collect();
    columns(out, &rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::director;

    #[test]
    fn table_of_a_director() {
        insta::assert_snapshot!(render(&Report::from(&director()), None));
    }

    #[test]
    fn table_without_services_says_so() {
        insta::assert_snapshot!(render(&Report::default(), None));
    }

    #[test]
    fn rates_are_computed_from_two_documents() {
        let before = Report::from(&director());
        let mut now = before.clone();
        now.services[0].totals.connections += 30;
        now.services[0].totals.packets_in += 4000;
        // Added again: its counters were reset.
        now.services[1].totals.connections = 0;
        let earlier = Earlier {
            report: &before,
            elapsed: Duration::from_secs(2),
        };
        let text = render(&now, Some(earlier));
        assert!(
            text.contains("15.0 connections/s, 2000 packets/s in, 0 out"),
            "{text}"
        );
        assert!(text.contains("0.0 connections/s"), "{text}");
    }
}
