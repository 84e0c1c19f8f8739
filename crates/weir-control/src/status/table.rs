//! Renders the status document as text.
//!
//! The text has lines for the director, a block for each service, and the number of packets by outcome.
//!
//! On a terminal, the text fits the given width: numbers are shortened, the reason for a server's state has its own
//! line, and only the servers that need attention are listed if the pool is large. Without a width, everything is
//! shown.

mod layout;
mod row;
mod select;
mod view;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use weir_model::Forward;

use super::vrrp::vip_text;
use super::{Report, Server, Service, VirtualRouterStatus};
use crate::count::format_count;
use layout::{columns, truncate, wrap};
use row::{Columns, narrow, needs_attention, wide};
pub use select::{UnknownPool, select};
pub use view::{Previous, View};

/// Maximum size of a pool for which a terminal shows all servers.
const MAX_LISTED: usize = 20;

/// Renders `report`.
pub fn render(report: &Report, view: &View<'_>) -> String {
    let mut out = render_director(report);
    if !report.services.is_empty() {
        let _ = writeln!(out, "{}", summary(report));
    }
    for service in &report.services {
        out.push('\n');
        let previous = view.previous.and_then(|Previous { report, elapsed }| {
            let is_same = |previous: &&Service| previous.name == service.name;
            let previous = report.services.iter().find(is_same)?;
            Some((previous, elapsed))
        });
        write_service(&mut out, (service, &report.vrrp), previous, view);
    }
    if report.services.is_empty() {
        out.push_str(if view.down {
            "\nno server is down or ejected\n"
        } else {
            "\nno services\n"
        });
    }
    if !report.vrrp.is_empty() {
        out.push('\n');
        out.push_str(&super::vrrp::table(&report.vrrp));
    }
    let announce_problems = super::announce::problems(
        report.announce_error.as_deref(),
        report.announce_warning.as_deref(),
    );
    if !report.announce.is_empty() || !announce_problems.is_empty() {
        out.push('\n');
        out.push_str(&announce_problems);
        out.push_str(&super::announce::table(&report.announce));
    }
    if report.drained {
        out.push_str("\nthis director is drained; to end this, run `weir node ready`\n");
    }
    if let Some(sync) = &report.sync {
        out.push('\n');
        out.push_str(&sync.table());
    }
    if let Some(group) = &report.cluster {
        out.push('\n');
        out.push_str(&group.table());
    }
    write_outcomes(&mut out, report, view);
    match view.width {
        Some(width) => wrap(&out, width),
        None => out,
    }
}

/// Returns the number of services and servers in one line.
fn summary(report: &Report) -> String {
    let servers = report.services.iter().flat_map(|service| &service.servers);
    format!(
        "{}, {}: {}",
        format_count(report.services.len() as u64, "service"),
        servers_text(report),
        count_states(servers)
    )
}

/// Returns the number of servers as text. As in `weir check`, each server of a pool is counted once. If services share
/// servers, the text adds that states are counted in each service, because they can differ.
pub fn servers_text(report: &Report) -> String {
    let mut distinct = HashSet::new();
    let mut count = 0;
    for service in &report.services {
        for server in &service.servers {
            count += 1;
            let pool = server.pool.as_deref().unwrap_or(&service.pool);
            distinct.insert((pool, server.address.as_str()));
        }
    }
    let servers = format_count(distinct.len() as u64, "server");
    if count == distinct.len() {
        servers
    } else {
        format!("{servers}, counted in each service")
    }
}

/// Returns the number of servers in each state: `3 up, 1 down`.
fn count_states<'a>(servers: impl Iterator<Item = &'a Server> + Clone) -> String {
    let mut parts = Vec::new();
    for state in ["up", "down", "starting", "drain", "maint", "unchecked"] {
        let count = servers
            .clone()
            .filter(|server| !server.removed && server.state == state);
        let count = count.count();
        if count > 0 {
            parts.push(format!("{count} {state}"));
        }
    }
    for (count, name) in [
        (
            servers.clone().filter(|server| server.removed).count(),
            "removed",
        ),
        (
            servers
                .clone()
                .filter(|server| server.ejected.is_some())
                .count(),
            "ejected",
        ),
    ] {
        if count > 0 {
            parts.push(format!("{count} {name}"));
        }
    }
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

fn render_director(report: &Report) -> String {
    let mut out = format!("revision {}", report.revision);
    if let Some(cause) = &report.last_death {
        let times = format_count(report.restarts.into(), "time");
        out.push_str(&format!(
            ", the daemon died {times}, most recently with {cause}"
        ));
    }
    for interface in &report.xdp {
        let hook = if interface.mode == "tc" { "" } else { "xdp " };
        let _ = write!(out, ", {hook}{} on {}", interface.mode, interface.interface);
    }
    out.push_str(&match (report.flows.slots, report.xdp.is_empty()) {
        (0, true) => ", not attached: no layer 4 services\n".to_owned(),
        (slots, unattached) => {
            let unattached = if unattached {
                ", not attached to any interface"
            } else {
                ""
            };
            format!(
                "{unattached}, {} of {slots} flow slots in use\n",
                report.flows.entries
            )
        }
    });
    write_packet_paths(&mut out, report);
    for daemon in &report.draining {
        let (pid, version, since) = (daemon.pid, &daemon.version, &daemon.since);
        let clients = daemon.clients;
        let _ = writeln!(
            out,
            "process {pid}, version {version}: draining since {since}, remaining clients: {clients}"
        );
    }
    let admin = report.admin_certificates.iter();
    for certificate in admin.filter(|certificate| certificate.needs_attention()) {
        let _ = writeln!(out, "warning: [node] admin: {}", certificate.to_sentence());
    }
    for warning in report.open_files.iter().flat_map(|files| &files.exceeding) {
        let _ = writeln!(out, "warning: {warning}");
    }
    write_unused_files(&mut out, report);
    for source in &report.sources {
        let (pool, from) = (&source.pool, &source.from);
        let count = format_count(source.servers as u64, "server");
        let _ = write!(out, "pool {pool}: {count} from {from}");
        let _ = match &source.problem {
            Some(problem) if source.servers == 0 => writeln!(out, ": {problem}"),
            Some(problem) => writeln!(out, "; the previous servers remain in use: {problem}"),
            None => writeln!(out),
        };
    }
    out
}

/// Writes a warning for changed files that are not in use.
fn write_unused_files(out: &mut String, report: &Report) {
    for (files, error) in [
        ("certificate", &report.certificate_error),
        ("list", &report.list_error),
    ] {
        if let Some(error) = error {
            let _ = writeln!(
                out,
                "warning: failed to load changed {files} files; the previous files remain in use: {error}"
            );
        }
    }
}

/// Writes the reasons for the modes of the packet path, and the share of packets on each path.
fn write_packet_paths(out: &mut String, report: &Report) {
    for interface in report
        .xdp
        .iter()
        .filter(|interface| !interface.reason.is_empty())
    {
        let _ = writeln!(
            out,
            "{} {}: {}",
            interface.interface, interface.mode, interface.reason
        );
    }
    let ways = &report.ways;
    let total = ways.xdp + ways.xdp_sent_by_tc + ways.tc;
    if total == 0 {
        return;
    }
    let share = |part: u64| part as f64 * 100.0 / total as f64;
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
    let _ = writeln!(out, "packets by path: {}", shares.join("; "));
}

/// Returns whether clients reach a service through an address of this machine. They do not with `socket`, which
/// replaces the address before a packet is sent, or if only firewall marks select the service.
fn needs_vip(service: &Service) -> bool {
    let is_mark = |listener: &String| listener.starts_with("fwmark");
    let has_only_marks = !service.listen.is_empty() && service.listen.iter().all(is_mark);
    service.forward != Forward::Socket.as_str() && !has_only_marks
}

fn write_service(
    out: &mut String,
    (service, routers): (&Service, &[VirtualRouterStatus]),
    previous: Option<(&Service, Duration)>,
    view: &View<'_>,
) {
    let vip = match needs_vip(service) {
        true => {
            let text = vip_text(&service.vip, &service.listen, routers);
            format!("  vip {text}")
        }
        false => String::new(),
    };
    let _ = writeln!(
        out,
        "{}  {}  {} {}  pool {}{vip}{}",
        service.name,
        service.listen.join(" "),
        service.forward,
        service.scheduler,
        service.pool,
        if service.origin == "file" {
            String::new()
        } else {
            format!("  from {}", service.origin)
        }
    );
    write_traffic(out, service, previous);
    if let Some(proxy) = &service.proxy {
        super::certificate::write_lines(out, &proxy.certificates);
        if proxy.log_dropped > 0 {
            let lines = format_count(proxy.log_dropped, "access log line");
            let _ = writeln!(out, "  warning: {lines} lost (see the log for the cause)");
        }
    }
    if let (Some(state), Some(cause)) = (&service.pool_state, &service.pool_cause) {
        let _ = writeln!(out, "  pool {}: {state}, {cause}", service.pool);
    }
    if service.servers.is_empty() {
        out.push_str("  no servers\n");
        return;
    }
    for servers in service.servers.chunk_by(|a, b| a.pool == b.pool) {
        // This pool is used by a route.
        if let Some(pool) = servers.first().and_then(|first| first.pool.as_ref())
            && *pool != service.pool
        {
            let _ = writeln!(out, "  pool {pool}");
        }
        write_servers(out, servers, &service.pool, view);
    }
    for server in &service.servers {
        if let Some(warning) = &server.warning {
            let _ = writeln!(
                out,
                "  warning: {}: {} (last seen {} s ago)",
                server.address, warning.reason, warning.last_seen_seconds
            );
        }
    }
}

/// Writes the servers of a pool; `service_pool` is the service's own pool.
fn write_servers(out: &mut String, servers: &[Server], service_pool: &str, view: &View<'_>) {
    let Some(width) = view.width else {
        let rows: Vec<Columns<10>> = std::iter::once(wide::HEADER.map(str::to_owned))
            .chain(servers.iter().map(wide::row))
            .collect();
        columns(out, &rows, |_, cell| cell);
        return;
    };
    let is_large = servers.len() > MAX_LISTED && !view.all;
    let listed_servers: Vec<&Server> = servers
        .iter()
        .filter(|server| !is_large || needs_attention(server))
        .take(if view.all { usize::MAX } else { MAX_LISTED })
        .collect();
    if is_large {
        let _ = writeln!(
            out,
            "  {} servers: {}",
            servers.len(),
            count_states(servers.iter())
        );
    }
    if !listed_servers.is_empty() {
        narrow::table(out, &listed_servers, view, width);
    }
    let remaining = servers.len() - listed_servers.len();
    if let Some(first) = servers.first().filter(|_| remaining > 0) {
        let pool = first.pool.as_deref().unwrap_or(service_pool);
        let _ = writeln!(out, "  {remaining} more; `weir status {pool}` lists all");
    }
}

/// Writes a service's totals and rates.
fn write_traffic(out: &mut String, service: &Service, previous: Option<(&Service, Duration)>) {
    let totals = &service.totals;
    let _ = match &service.proxy {
        None => write!(
            out,
            "  {}, {} in, {} out",
            format_count(totals.connections, "connection"),
            format_count(totals.packets_in, "packet"),
            totals.packets_out
        ),
        Some(proxy) => write!(
            out,
            "  {}, {} now, {}, {}, {}",
            format_count(totals.connections, "connection"),
            format_count(proxy.clients, "client"),
            format_count(proxy.requests, "request"),
            format_count(proxy.errors, "error"),
            match proxy.retries {
                1 => "1 retry".to_owned(),
                count => format!("{count} retries"),
            }
        ),
    };
    if let Some(persistence) = &service.persistence {
        let clients: u64 = service
            .servers
            .iter()
            .map(|server| server.persistent_connections)
            .sum();
        let clients = format_count(clients, "client");
        let _ = write!(out, ", persistent {persistence}: {clients}");
    }
    if service.one_packet {
        out.push_str(", one packet");
    }
    if service.totals.stateless != 0 {
        let _ = write!(out, ", {} without an entry", service.totals.stateless);
    }
    if let Some((previous, elapsed)) = previous {
        out.push_str(&render_rates(service, previous, elapsed));
    }
    out.push('\n');
}

fn render_rates(now: &Service, previous: &Service, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    // If a service was removed and added again, its counters start at zero.
    let rate =
        |count: fn(&Service) -> u64| count(now).saturating_sub(count(previous)) as f64 / seconds;
    let connections = rate(|service| service.totals.connections);
    let requests = |service: &Service| service.proxy.as_ref().map_or(0, |proxy| proxy.requests);
    if now.proxy.is_some() {
        return format!(
            "; {connections:.1} connections/s, {:.1} requests/s",
            rate(requests)
        );
    }
    format!(
        "; {connections:.1} connections/s, {:.0} packets/s in, {:.0} out",
        rate(|service| service.totals.packets_in),
        rate(|service| service.totals.packets_out)
    )
}

fn write_outcomes(out: &mut String, report: &Report, view: &View<'_>) {
    if report.reasons.is_empty() {
        return;
    }
    out.push_str("\npackets\n");
    let rows: Vec<Columns<3>> = report
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
    let mut table = String::new();
    columns(&mut table, &rows, |_, cell| cell);
    for line in table.lines() {
        out.push_str(
            &view
                .width
                .map_or_else(|| line.to_owned(), |width| truncate(line, width)),
        );
        out.push('\n');
    }
}

#[cfg(test)]
mod tests;
