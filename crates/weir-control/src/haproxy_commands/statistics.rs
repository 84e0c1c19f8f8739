//! Writes the response to `show stat`: the CSV format of HAProxy 2.6 and later.
//!
//! `docs/manual/haproxy-statistics.md` lists the Weir value in each field. All other fields are empty, which is how
//! HAProxy marks fields that do not apply.
//!
//! A service is a frontend, and a pool is a backend. If several services use a pool, its numbers are summed.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::status::exchanges::{Exchanges, Time};
use crate::status::{ProxyServiceDetails, Report, Server, Service, parse_seconds};

/// The fields in HAProxy's order, because programs can access them by index.
const FIELDS: [&str; 77] = [
    "pxname",
    "svname",
    "qcur",
    "qmax",
    "scur",
    "smax",
    "slim",
    "stot",
    "bin",
    "bout",
    "dreq",
    "dresp",
    "ereq",
    "econ",
    "eresp",
    "wretr",
    "wredis",
    "status",
    "weight",
    "act",
    "bck",
    "chkfail",
    "chkdown",
    "lastchg",
    "downtime",
    "qlimit",
    "pid",
    "iid",
    "sid",
    "throttle",
    "lbtot",
    "tracked",
    "type",
    "rate",
    "rate_lim",
    "rate_max",
    "check_status",
    "check_code",
    "check_duration",
    "hrsp_1xx",
    "hrsp_2xx",
    "hrsp_3xx",
    "hrsp_4xx",
    "hrsp_5xx",
    "hrsp_other",
    "hanafail",
    "req_rate",
    "req_rate_max",
    "req_tot",
    "cli_abrt",
    "srv_abrt",
    "comp_in",
    "comp_out",
    "comp_byp",
    "comp_rsp",
    "lastsess",
    "last_chk",
    "last_agt",
    "qtime",
    "ctime",
    "rtime",
    "ttime",
    "agent_status",
    "agent_code",
    "agent_duration",
    "check_desc",
    "agent_desc",
    "check_rise",
    "check_fall",
    "check_health",
    "agent_rise",
    "agent_fall",
    "agent_health",
    "addr",
    "cookie",
    "mode",
    "algo",
];

const CLASSES: [&str; 5] = ["hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx"];

/// One line of the CSV.
#[derive(Default)]
struct Line {
    texts: HashMap<&'static str, String>,
    numbers: HashMap<&'static str, u64>,
    /// The count, and the sum in microseconds, from which the mean in milliseconds is computed.
    times: HashMap<&'static str, (u64, u64)>,
}

impl Line {
    fn new(proxy: &str, name: &str, kind: u64) -> Self {
        let mut line = Self::default();
        line.set_text("pxname", proxy);
        line.set_text("svname", name);
        line.set("type", kind);
        line.set("pid", 1);
        line
    }

    fn set_text(&mut self, field: &'static str, text: &str) {
        self.texts.insert(field, text.to_owned());
    }

    fn set(&mut self, field: &'static str, number: u64) {
        self.numbers.insert(field, number);
    }

    fn add(&mut self, field: &'static str, number: u64) {
        let current = self.numbers.entry(field).or_default();
        *current = current.saturating_add(number);
    }

    fn set_max(&mut self, field: &'static str, number: u64) {
        let current = self.numbers.entry(field).or_default();
        *current = number.max(*current);
    }

    fn add_time(&mut self, field: &'static str, time: &Time) {
        let (count, sum) = self.times.entry(field).or_default();
        *count = count.saturating_add(time.count);
        *sum = sum.saturating_add(time.sum_us);
    }

    /// Adds the results and durations of a server's or pool's exchanges.
    fn add_exchanges(&mut self, exchanges: &Exchanges) {
        for (field, count) in CLASSES.into_iter().zip(exchanges.responses) {
            self.add(field, count);
        }
        let errors = |kind: &str| exchanges.errors.get(kind).copied().unwrap_or(0);
        self.add("cli_abrt", errors("client_abort"));
        self.add("wretr", exchanges.repetitions);
        self.add("wredis", exchanges.redispatches);
        for (field, time) in [
            ("qtime", &exchanges.times.queue),
            ("ctime", &exchanges.times.connect),
            ("rtime", &exchanges.times.response),
            ("ttime", &exchanges.times.total),
        ] {
            self.add_time(field, time);
        }
    }

    fn write(&self, out: &mut String) {
        for field in FIELDS {
            if let Some(text) = self.texts.get(field) {
                quote(out, text);
            } else if let Some(number) = self.numbers.get(field) {
                let _ = write!(out, "{number}");
            } else if let Some((count, sum)) = self.times.get(field) {
                let mean_ms = sum.checked_div(*count).unwrap_or(0) / 1000;
                let _ = write!(out, "{mean_ms}");
            }
            out.push(',');
        }
        out.push('\n');
    }
}

/// Writes text, quoted if it contains a separator, a quotation mark or a line break (RFC 4180).
fn quote(out: &mut String, text: &str) {
    if !text.contains([',', '"', '\n', '\r']) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\"\""),
            // Line breaks are replaced, so that each server occupies one line.
            '\n' | '\r' => out.push(' '),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// A pool and its servers, in file order.
struct Backend {
    line: Line,
    servers: Vec<(String, Line)>,
}

/// Writes the header and a line for each service, server and pool.
pub(super) fn write_csv(out: &mut String, report: &Report, now_s: u64) {
    out.push_str("# ");
    for field in FIELDS {
        let _ = write!(out, "{field},");
    }
    out.push('\n');
    let mut number = 0;
    for service in &report.services {
        number += 1;
        frontend(service, number).write(out);
    }
    let mut names: Vec<&str> = Vec::new();
    let mut pools: HashMap<&str, Backend> = HashMap::new();
    for service in &report.services {
        for server in &service.servers {
            let pool = server.pool.as_deref().unwrap_or(&service.pool);
            let backend = pools.entry(pool).or_insert_with(|| {
                names.push(pool);
                number += 1;
                backend(pool, service, number)
            });
            backend.add(server, now_s);
        }
        for part in service.proxy.iter().flat_map(|proxy| &proxy.pools) {
            if let Some(backend) = pools.get_mut(part.name.as_str()) {
                backend.line.add_exchanges(&part.exchanges);
            }
        }
    }
    for name in names {
        if let Some(backend) = pools.get_mut(name) {
            backend.write(out);
        }
    }
}

fn frontend(service: &Service, number: u64) -> Line {
    let mut line = Line::new(&service.name, "FRONTEND", 0);
    line.set_text("status", "OPEN");
    line.set_text("mode", mode(service));
    line.set("iid", number);
    line.set("sid", 0);
    line.set("stot", service.totals.connections);
    line.set("bin", service.totals.bytes_in);
    line.set("bout", service.totals.bytes_out);
    match &service.proxy {
        Some(proxy) => set_proxy_counters(&mut line, proxy),
        None => {
            let flows = service
                .servers
                .iter()
                .map(|server| server.active_connections);
            line.set("scur", flows.sum());
        }
    }
    line
}

fn set_proxy_counters(line: &mut Line, proxy: &ProxyServiceDetails) {
    let errors = |kind: &str| proxy.exchanges.errors.get(kind).copied().unwrap_or(0);
    let detail = |name: &str| proxy.details.get(name).copied().unwrap_or(0);
    for (field, value) in [
        ("scur", proxy.clients),
        ("smax", proxy.clients_max),
        ("slim", proxy.clients_limit),
        ("ereq", errors("rejected")),
        ("rate_lim", proxy.rate_limit),
        ("rate_max", proxy.connections_per_second_max),
        ("req_rate_max", proxy.requests_per_second_max),
        ("req_tot", proxy.requests),
        ("comp_in", detail("compressed_bytes_in")),
        ("comp_out", detail("compressed_bytes_out")),
        ("comp_rsp", detail("compressed")),
    ] {
        line.set(field, value);
    }
    for (field, count) in CLASSES.into_iter().zip(proxy.responses) {
        line.set(field, count);
    }
}

fn backend(pool: &str, service: &Service, number: u64) -> Backend {
    let mut line = Line::new(pool, "BACKEND", 1);
    line.set_text("mode", mode(service));
    line.set_text("algo", &service.scheduler);
    line.set("iid", number);
    line.set("sid", 0);
    line.set("act", 0);
    line.set("bck", 0);
    // If the service has several pools, it is unknown which pool its clients are waiting for.
    if let Some(proxy) = service
        .proxy
        .as_ref()
        .filter(|proxy| proxy.pools.len() == 1)
    {
        line.set("qcur", proxy.queued);
        line.set("qmax", proxy.queued_max);
    }
    Backend {
        line,
        servers: Vec::new(),
    }
}

impl Backend {
    fn add(&mut self, server: &Server, now_s: u64) {
        let position = self
            .servers
            .iter()
            .position(|(name, _)| *name == server.address);
        let index = position.unwrap_or_else(|| {
            let mut line = server_line(server, now_s);
            let pool = self.line.texts.get("pxname").cloned().unwrap_or_default();
            line.set_text("pxname", &pool);
            line.set("iid", self.line.numbers.get("iid").copied().unwrap_or(0));
            line.set("sid", self.servers.len() as u64 + 1);
            let is_usable = server.effective_weight > 0 && !server.removed;
            let is_backup = server.proxy.as_ref().is_some_and(|proxy| proxy.backup);
            let group = if is_backup { "bck" } else { "act" };
            self.line.add(group, u64::from(is_usable));
            self.line.add("weight", u64::from(server.effective_weight));
            self.servers.push((server.address.clone(), line));
            self.servers.len() - 1
        });
        if let Some((_, line)) = self.servers.get_mut(index) {
            add_counters(line, server);
        }
        add_counters(&mut self.line, server);
    }

    fn write(&mut self, out: &mut String) {
        let has_servers = |field| {
            let count = self.line.numbers.get(field);
            count.is_some_and(|count| *count > 0)
        };
        let state = if has_servers("act") || has_servers("bck") {
            "UP"
        } else {
            "DOWN"
        };
        self.line.set_text("status", state);
        for (_, line) in &self.servers {
            line.write(out);
        }
        self.line.write(out);
    }
}

/// Returns a server's line with the values that are not summed. They come from the first service that uses the server.
fn server_line(server: &Server, now_s: u64) -> Line {
    let mut line = Line::new("", &server.address, 2);
    line.set_text("status", state(server));
    line.set_text("last_chk", &server.reason);
    line.set_text("addr", &server.address);
    line.set("weight", u64::from(server.effective_weight));
    let is_backup = server.proxy.as_ref().is_some_and(|proxy| proxy.backup);
    line.set("act", u64::from(!is_backup));
    line.set("bck", u64::from(is_backup));
    if let Some(since) = parse_seconds(&server.since) {
        line.set("lastchg", now_s.saturating_sub(since));
    }
    let sum = |count: fn(&crate::status::Check) -> u64| server.checks.iter().map(count).sum();
    if let Some(check) = server.checks.first() {
        line.set("chkfail", sum(|check| check.failures));
        line.set("chkdown", sum(|check| check.downs));
        line.set("downtime", sum(|check| check.downtime_s));
        line.set("check_duration", check.last_us / 1000);
        line.set("check_rise", check.rise.into());
        line.set("check_fall", check.fall.into());
        line.set_text("check_desc", &check.reason);
    }
    if let Some(proxy) = &server.proxy {
        if proxy.max_connections > 0 {
            line.set("slim", proxy.max_connections.into());
        }
        if let Some(unused) = proxy.unused_ms {
            line.set("lastsess", unused / 1000);
        }
    }
    line
}

/// Returns HAProxy's name for the protocol; `tcp` for layer 4 services, because they do not parse the data of
/// connections.
fn mode(service: &Service) -> &str {
    let protocol = service.proxy.as_ref().map(|proxy| proxy.protocol.as_str());
    protocol.unwrap_or("tcp")
}

/// Returns HAProxy's name for a server's state.
fn state(server: &Server) -> &'static str {
    match server.state.as_str() {
        "down" => "DOWN",
        "drain" => "DRAIN",
        "maint" => "MAINT",
        "unchecked" => "no check",
        _ if server.ejected.is_some() => "DOWN",
        _ => "UP",
    }
}

/// Adds the values that are summed over all services that use the server.
fn add_counters(line: &mut Line, server: &Server) {
    line.add("scur", server.active_connections);
    line.add("stot", server.totals.connections);
    line.add("bin", server.totals.bytes_in);
    line.add("bout", server.totals.bytes_out);
    let is_server = line.numbers.get("type") == Some(&2);
    if let Some(proxy) = &server.proxy {
        line.add("lbtot", proxy.requests);
        line.add("econ", proxy.connect_failures);
        line.add("eresp", proxy.response_failures);
        // Use the maximum, because the sum of the peaks can exceed the actual peak.
        if is_server {
            line.set_max("smax", proxy.active_max);
            line.set_max("rate_max", proxy.connections_per_second_max);
            line.add_exchanges(&proxy.exchanges);
        }
    }
}
