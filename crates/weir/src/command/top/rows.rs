//! Builds the rows of the live view: services, their pools and their servers, with rates, sorted and filtered.

use std::collections::HashMap;
use std::time::Duration;

use weir_control::status::{Report, Server, Service};

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Level {
    Service,
    Pool,
    Server,
}

/// The order of the servers in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// Configuration order.
    #[default]
    File,
    /// By address, as text.
    Name,
    /// States that need attention first.
    State,
    /// By current connections, descending.
    Active,
    /// By connections or requests per second, descending.
    Rate,
    /// By bytes per second, descending.
    Bytes,
    /// By the 99th percentile of the latency, descending.
    Latency,
}

impl Sort {
    const ALL: [Self; 7] = [
        Self::File,
        Self::Name,
        Self::State,
        Self::Active,
        Self::Rate,
        Self::Bytes,
        Self::Latency,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Name => "name",
            Self::State => "state",
            Self::Active => "active",
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Latency => "latency",
        }
    }

    /// Returns the next order; the first order follows the last one.
    pub(super) fn next(self) -> Self {
        let index = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        Self::ALL[(index + 1) % Self::ALL.len()]
    }
}

/// Identifies a row in successive reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) service: String,
    pub(super) pool: String,
    pub(super) server: String,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) level: Level,
    pub(super) key: Key,
    /// State of a service or server; of a pool, the number of usable servers and of all servers.
    pub(super) state: String,
    /// Weight of a server; if the effective weight differs, `EFFECTIVE/CONFIGURED`.
    pub(super) weight: String,
    /// Number of current connections.
    pub(super) active: u64,
    /// Connections per second, or requests per second of an HTTP service. `None` = not known yet.
    pub(super) rate: Option<f64>,
    /// Errors per second. `None` = not counted or not known yet.
    pub(super) errors: Option<f64>,
    /// Bytes per second, from and to clients. `None` = not known yet.
    pub(super) bytes: Option<(f64, f64)>,
    /// 99th percentile of the latency in milliseconds. `None` = not measured.
    pub(super) p99_ms: Option<f64>,
    pub(super) reason: String,
}

impl Row {
    /// Returns the text in the first column.
    pub(super) fn name(&self) -> String {
        match self.level {
            Level::Service => self.key.service.clone(),
            Level::Pool => format!(" {}", self.key.pool),
            Level::Server => format!("  {}", self.key.server),
        }
    }

    /// Returns the rank of the state: states that need attention first.
    fn rank(&self) -> usize {
        let order = [
            "down",
            "ejected",
            "full",
            "removed",
            "maint",
            "drain",
            "starting",
            "up",
            "unchecked",
        ];
        let rank = order.iter().position(|state| *state == self.state);
        rank.unwrap_or(order.len())
    }

    fn total_bytes(&self) -> f64 {
        self.bytes.map_or(0.0, |(received, sent)| received + sent)
    }

    fn matches(&self, filter: &str) -> bool {
        let contains = |text: &str| text.to_lowercase().contains(filter);
        match self.level {
            Level::Service => contains(&self.key.service),
            Level::Pool => contains(&self.key.pool),
            Level::Server => contains(&self.key.server) || contains(&self.state),
        }
    }
}

/// An earlier report, and the time between it and the current report.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlierReport<'a> {
    pub(super) report: &'a Report,
    pub(super) elapsed: Duration,
}

/// How the rows are selected and ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ViewOptions {
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    /// Substring of a name or a state; case-insensitive.
    pub(super) filter: String,
}

/// The counters from which rates are calculated.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    events: u64,
    errors: Option<u64>,
    bytes_in: u64,
    bytes_out: u64,
}

impl Totals {
    fn from_service(service: &Service) -> Self {
        let proxy = service.proxy.as_ref();
        let requests = proxy.filter(|proxy| proxy.protocol == "http");
        Self {
            events: requests.map_or(service.totals.connections, |proxy| proxy.requests),
            errors: proxy.map(|proxy| proxy.errors),
            bytes_in: service.totals.bytes_in,
            bytes_out: service.totals.bytes_out,
        }
    }

    fn from_server(server: &Server) -> Self {
        let proxy = server.proxy.as_ref();
        let requests = proxy.map_or(0, |proxy| proxy.requests);
        Self {
            events: if requests > 0 {
                requests
            } else {
                server.totals.connections
            },
            errors: proxy.map(|proxy| proxy.connect_failures + proxy.response_failures),
            bytes_in: server.totals.bytes_in,
            bytes_out: server.totals.bytes_out,
        }
    }
}

/// Calculates rates from the counters in an earlier report.
struct Rates<'a> {
    seconds: f64,
    services: HashMap<&'a str, Totals>,
    servers: HashMap<(&'a str, &'a str, &'a str), Totals>,
}

impl<'a> Rates<'a> {
    fn new(earlier: EarlierReport<'a>) -> Self {
        let services = &earlier.report.services;
        let servers = services.iter().flat_map(|service| {
            let name = |server: &'a Server| {
                let pool = server.pool.as_deref().unwrap_or(&service.pool);
                (service.name.as_str(), pool, server.address.as_str())
            };
            let servers = service.servers.iter();
            servers.map(move |server| (name(server), Totals::from_server(server)))
        });
        Self {
            seconds: earlier.elapsed.as_secs_f64(),
            servers: servers.collect(),
            services: services
                .iter()
                .map(|service| (service.name.as_str(), Totals::from_service(service)))
                .collect(),
        }
    }

    /// Sets the rates of a row.
    fn set_rates(&self, row: &mut Row, current: Totals, previous: Option<&Totals>) {
        let Some(previous) = previous.filter(|_| self.seconds > 0.0) else {
            return;
        };
        // The counters of a server that was removed and added again start at zero.
        let rate =
            |current: u64, previous: u64| current.saturating_sub(previous) as f64 / self.seconds;
        row.rate = Some(rate(current.events, previous.events));
        row.errors = current
            .errors
            .zip(previous.errors)
            .map(|(current, previous)| rate(current, previous));
        row.bytes = Some((
            rate(current.bytes_in, previous.bytes_in),
            rate(current.bytes_out, previous.bytes_out),
        ));
    }
}

/// Returns the rows of a report.
pub(super) fn rows(
    report: &Report,
    earlier: Option<EarlierReport<'_>>,
    options: &ViewOptions,
) -> Vec<Row> {
    let rates = earlier.map(Rates::new);
    let filter = options.filter.to_lowercase();
    let mut all_rows = Vec::new();
    for service in &report.services {
        let parent = service_row(service, rates.as_ref());
        let shows_all = filter.is_empty() || parent.matches(&filter);
        let mut nested = Vec::new();
        for servers in service.servers.chunk_by(|a, b| a.pool == b.pool) {
            let pool = pool_row(service, servers);
            let is_shown = shows_all || pool.matches(&filter);
            let rows = servers
                .iter()
                .map(|server| server_row(service, server, rates.as_ref()));
            let mut rows: Vec<Row> = rows
                .filter(|row| is_shown || row.matches(&filter))
                .collect();
            sort(&mut rows, options);
            if is_shown || !rows.is_empty() {
                nested.push(pool);
                nested.append(&mut rows);
            }
        }
        if shows_all || !nested.is_empty() {
            all_rows.push(parent);
            all_rows.append(&mut nested);
        }
    }
    all_rows
}

fn sort(rows: &mut [Row], options: &ViewOptions) {
    let descending = |value: fn(&Row) -> f64| move |a: &Row, b: &Row| value(b).total_cmp(&value(a));
    match options.sort {
        Sort::File => {}
        Sort::Name => rows.sort_by(|a, b| a.key.server.cmp(&b.key.server)),
        Sort::State => rows.sort_by_key(Row::rank),
        Sort::Active => rows.sort_by_key(|row| std::cmp::Reverse(row.active)),
        Sort::Rate => rows.sort_by(descending(|row| row.rate.unwrap_or(0.0))),
        Sort::Bytes => rows.sort_by(descending(Row::total_bytes)),
        Sort::Latency => rows.sort_by(descending(|row| row.p99_ms.unwrap_or(0.0))),
    }
    if options.reverse {
        rows.reverse();
    }
}

fn service_row(service: &Service, rates: Option<&Rates<'_>>) -> Row {
    let state = service.pool_state.clone().unwrap_or_default();
    let cause = service.pool_cause.iter();
    let listen = service.listen.join(" ");
    let reason = std::iter::once(&listen).chain(cause);
    let servers = service.servers.iter();
    let mut row = Row {
        level: Level::Service,
        key: Key {
            service: service.name.clone(),
            pool: String::new(),
            server: String::new(),
        },
        state,
        weight: String::new(),
        active: match &service.proxy {
            Some(proxy) => proxy.clients,
            None => servers.map(|server| server.active_connections).sum(),
        },
        rate: None,
        errors: None,
        bytes: None,
        p99_ms: None,
        reason: reason.cloned().collect::<Vec<_>>().join(", "),
    };
    if let Some(rates) = rates {
        let before = rates.services.get(service.name.as_str());
        rates.set_rates(&mut row, Totals::from_service(service), before);
    }
    row
}

fn pool_row(service: &Service, servers: &[Server]) -> Row {
    let pool = servers.first().and_then(|server| server.pool.as_ref());
    let usable = servers.iter().filter(|server| server.effective_weight > 0);
    let usable = usable.filter(|server| !server.removed).count();
    Row {
        level: Level::Pool,
        key: Key {
            service: service.name.clone(),
            pool: pool.unwrap_or(&service.pool).clone(),
            server: String::new(),
        },
        state: format!("{usable}/{}", servers.len()),
        weight: String::new(),
        active: servers.iter().map(|server| server.active_connections).sum(),
        rate: None,
        errors: None,
        bytes: None,
        p99_ms: None,
        reason: String::new(),
    }
}

fn server_row(service: &Service, server: &Server, rates: Option<&Rates<'_>>) -> Row {
    let pool = server.pool.as_ref().unwrap_or(&service.pool);
    let state = if server.removed {
        "removed"
    } else if server.ejected.is_some() {
        "ejected"
    } else if server.overloaded {
        "full"
    } else {
        &server.state
    };
    let weight = if server.weight == server.effective_weight {
        server.weight.to_string()
    } else {
        format!("{}/{}", server.effective_weight, server.weight)
    };
    let mut row = Row {
        level: Level::Server,
        key: Key {
            service: service.name.clone(),
            pool: pool.clone(),
            server: server.address.clone(),
        },
        state: state.to_owned(),
        weight,
        active: server.active_connections,
        rate: None,
        errors: None,
        bytes: None,
        p99_ms: server
            .latency
            .as_ref()
            .map(|it| it.p99_ms.0 as f64 / 1_000.0),
        reason: match &server.ejected {
            Some(ejected) => ejected.reason.clone(),
            None => server.reason.clone(),
        },
    };
    if let Some(rates) = rates {
        let name = (
            service.name.as_str(),
            pool.as_str(),
            server.address.as_str(),
        );
        rates.set_rates(
            &mut row,
            Totals::from_server(server),
            rates.servers.get(&name),
        );
    }
    row
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a report of one layer 4 service with these servers: address, state, current and total connections.
    pub(in super::super) fn report(servers: &[(&str, &str, u64, u64)]) -> Report {
        let server = |(address, state, active, total): &(&str, &str, u64, u64)| {
            serde_json::json!({
                "address": address, "forward": "nat", "weight": 1,
                "effective_weight": u32::from(*state == "up"), "state": state, "reason": "tcp connect",
                "since": "2026-11-20T19:00:00Z", "active_connections": active, "inactive_connections": 0,
                "connections": total, "stateless": 0, "packets_in": 0, "packets_out": 0, "bytes_in": 10 * total,
                "bytes_out": 0
            })
        };
        let total: u64 = servers.iter().map(|it| it.3).sum();
        let servers: Vec<_> = servers.iter().map(server).collect();
        let document = serde_json::json!({
            "revision": 7, "xdp": [], "flows": {"places": 8, "entries": 0, "expired": 0}, "reasons": [],
            "services": [{
                "name": "web", "origin": "file", "listen": ["tcp/192.0.2.10:80"], "vip": "local", "forward": "nat",
                "scheduler": "rr", "pool": "app", "connections": total, "stateless": 0, "packets_in": 0,
                "packets_out": 0, "bytes_in": 0, "bytes_out": 0, "servers": servers
            }]
        });
        serde_json::from_value(document).expect("valid status report")
    }

    fn names(rows: &[Row]) -> Vec<String> {
        rows.iter()
            .map(|row| row.name().trim().to_owned())
            .collect()
    }

    fn view_options(sort: Sort, filter: &str) -> ViewOptions {
        ViewOptions {
            sort,
            filter: filter.to_owned(),
            ..ViewOptions::default()
        }
    }

    const SERVERS: [(&str, &str, u64, u64); 3] = [
        ("10.0.0.7", "up", 1, 100),
        ("10.0.0.5", "down", 0, 10),
        ("10.0.0.6", "up", 9, 50),
    ];

    #[test]
    fn servers_are_sorted_within_their_pool() {
        let report = report(&SERVERS);
        for (sort, expected) in [
            (Sort::File, ["10.0.0.7", "10.0.0.5", "10.0.0.6"]),
            (Sort::Name, ["10.0.0.5", "10.0.0.6", "10.0.0.7"]),
            (Sort::State, ["10.0.0.5", "10.0.0.7", "10.0.0.6"]),
            (Sort::Active, ["10.0.0.6", "10.0.0.7", "10.0.0.5"]),
        ] {
            let rows = rows(&report, None, &view_options(sort, ""));
            assert_eq!(names(&rows)[..2], ["web", "app"]);
            assert_eq!(names(&rows)[2..], expected, "{sort:?}");
        }
    }

    #[test]
    fn filter_keeps_the_parents_of_matching_servers() {
        let report = report(&SERVERS);
        let shown_names = |filter| names(&rows(&report, None, &view_options(Sort::File, filter)));
        assert_eq!(shown_names("0.6"), ["web", "app", "10.0.0.6"]);
        assert_eq!(shown_names("DOWN"), ["web", "app", "10.0.0.5"]);
        assert_eq!(shown_names("web").len(), 5);
        assert_eq!(shown_names("nothing"), [""; 0]);
    }

    #[test]
    fn rates_are_calculated_from_two_reports() {
        let (previous, current) = (report(&[("a", "up", 0, 10)]), report(&[("a", "up", 0, 30)]));
        let earlier = EarlierReport {
            report: &previous,
            elapsed: Duration::from_secs(2),
        };
        let rows = rows(&current, Some(earlier), &ViewOptions::default());
        assert_eq!((rows[0].rate, rows[2].rate), (Some(10.0), Some(10.0)));
        assert_eq!(rows[2].bytes, Some((100.0, 0.0)));
        assert_eq!(rows[2].errors, None, "not counted at layer 4");
    }
}
