//! Converts the tree into the model, section by section, and validates single values.
//!
//! [`crate::verify`] then checks combinations of settings; spans are kept for its messages. An object with an error is
//! omitted or keeps its default, and lowering continues.

mod access_log;
mod admin;
mod announce;
mod basic_auth;
mod check;
mod cluster;
mod discovery;
mod ipvs;
mod list_file;
mod map;
mod node;
mod notify;
mod path;
mod pool;
mod present;
mod proxy;
mod response;
mod retry;
mod route;
mod scheduler;
mod secret;
mod service;
mod sticky;
mod sync;
mod tls;
mod tracing;
mod variable;
mod vrrp;

pub(crate) use check::SharedCheck;
pub(crate) use proxy::{HTTP_LIMITS, LoweredProxy, is_key_of_service};
pub(crate) use route::LoweredRoute;
pub(crate) use scheduler::ALIASES;
pub(crate) use sticky::is_cookie_value;

use std::collections::HashMap;
use std::ops::Range;

use weir_model::{
    Announce, Cluster, FlowSync, Ipvs, Listener, Node, Notifier, Pool, Ports, Protocol, Service,
    Timeouts, Tracing, Tunnel, TunnelChecksum, TunnelKind, VirtualRouter,
};

use crate::address::AddressError;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::{Kind, Section};
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, keyword, text, wrong_type};

/// Default account for programs.
pub(in crate::lower) const SCRIPT_USER: &str = "nobody";

/// The configuration with the positions that verification needs.
pub(crate) struct LoweredConfig {
    pub(crate) node: Node,
    pub(crate) timeouts: Timeouts,
    pub(crate) ipvs: Ipvs,
    pub(crate) admin: Option<Range<usize>>,
    pub(crate) socket_group: Option<Range<usize>>,
    /// Names of the interfaces that must exist, and their positions.
    pub(crate) interfaces: Vec<(String, Range<usize>)>,
    pub(crate) max_servers: Option<Range<usize>>,
    pub(crate) max_services: Option<Range<usize>>,
    pub(crate) checks: Vec<SharedCheck>,
    pub(crate) pools: Vec<LoweredPool>,
    pub(crate) services: Vec<LoweredService>,
    pub(crate) proxies: Vec<LoweredProxy>,
    /// Routes in file order; they are assigned to their services after verification.
    pub(crate) routes: Vec<LoweredRoute>,
    pub(crate) vrrp: Vec<VirtualRouter>,
    pub(crate) announce: Option<Announce>,
    /// The services that `[announce]` lists.
    pub(crate) announced: Vec<(String, Range<usize>)>,
    pub(crate) sync: Option<FlowSync>,
    pub(crate) cluster: Option<Cluster>,
    /// Positions of the keys of `[timeouts]` and `[ipvs]`.
    pub(crate) settings: Vec<Range<usize>>,
    pub(crate) notifiers: Vec<Notifier>,
    pub(crate) tracing: Option<Tracing>,
}

/// A pool and the positions of its parts.
pub(crate) struct LoweredPool {
    pub(crate) pool: Pool,
    pub(crate) name: Range<usize>,
    /// Positions of the servers.
    pub(crate) servers: Vec<Range<usize>>,
    /// Position of the sorry server.
    pub(crate) sorry: Option<Range<usize>>,
    /// Whether all servers are known and valid.
    pub(crate) complete: bool,
    /// Position of `tls`.
    pub(crate) tls: Option<Range<usize>>,
    /// Position of `http2`.
    pub(crate) http2: Option<Range<usize>>,
    /// Positions of the checks.
    pub(crate) checks: Vec<Range<usize>>,
    /// Whether `check` contains a reported error. If so, the checks are unknown.
    pub(crate) has_invalid_check: bool,
    pub(crate) servers_dns: Option<Range<usize>>,
    pub(crate) servers_file: Option<Range<usize>>,
    /// The first `max_connections` above 0: its position, and the server's name.
    pub(crate) max_connections: Option<(Range<usize>, String)>,
    pub(crate) slow_start: Option<Range<usize>>,
    pub(crate) adapt: Option<Range<usize>>,
    pub(crate) scheduler: Option<Range<usize>>,
}

/// A service and the positions of its parts.
pub(crate) struct LoweredService {
    pub(crate) service: Service,
    pub(crate) name: Range<usize>,
    /// Positions of the listeners.
    pub(crate) listen: Vec<Range<usize>>,
    /// Positions of the marks.
    pub(crate) marks: Vec<Range<usize>>,
    /// `None` = missing or invalid, and reported.
    pub(crate) pool: Option<Range<usize>>,
    /// `None` = missing or invalid, and reported; the value in `service` is then meaningless.
    pub(crate) forward: Option<Range<usize>>,
    pub(crate) tunnel: Option<Range<usize>>,
    pub(crate) snat: Option<Range<usize>>,
    pub(crate) dscp: Option<Range<usize>>,
    pub(crate) cgroup: Option<Range<usize>>,
    pub(crate) strict_ipvs: Option<Range<usize>>,
    pub(crate) one_packet: Option<Range<usize>>,
    pub(crate) persistence: Option<Range<usize>>,
}

/// Lowers the whole tree.
pub(crate) fn lower(sink: &mut Sink<'_>, root: &Table<'_>) -> LoweredConfig {
    let view = View::open(sink, &catalog::ROOT, root, &(0..0));
    let mut lowered = LoweredConfig {
        node: Node::default(),
        timeouts: Timeouts::default(),
        ipvs: Ipvs::default(),
        admin: None,
        socket_group: None,
        interfaces: Vec::new(),
        max_servers: None,
        max_services: None,
        checks: Vec::new(),
        pools: Vec::new(),
        services: Vec::new(),
        proxies: Vec::new(),
        routes: Vec::new(),
        vrrp: Vec::new(),
        announce: None,
        announced: Vec::new(),
        sync: None,
        cluster: None,
        settings: Vec::new(),
        notifiers: Vec::new(),
        tracing: None,
    };
    if let Some((table, location)) = single_table(sink, &view, "node") {
        let view = View::open(sink, &catalog::NODE, table, location);
        lowered.node = node::node(sink, &view);
        lowered.interfaces = node::named_interfaces(&view);
        let span = |name| view.get(name).map(|(entry, _)| entry.item.span.clone());
        lowered.admin = span("admin");
        lowered.socket_group = span("socket_group");
        lowered.max_servers = span("max_servers");
        lowered.max_services = span("max_services");
    }
    lower_settings(sink, &view, &mut lowered);
    for (entry, table) in named_tables(sink, &view, "check", &catalog::CHECK) {
        lowered.checks.push(check::shared(sink, entry, table));
    }
    let maps = named_tables(sink, &view, "map", &catalog::MAP);
    let maps = maps.into_iter();
    let maps: Vec<_> = maps
        .map(|(entry, table)| (entry.key.to_string(), map::map(sink, entry, table)))
        .collect();
    sink.maps = maps;
    for (entry, table) in named_tables(sink, &view, "pool", &catalog::POOL) {
        let pool = pool::pool(sink, &lowered.checks, entry, table);
        lowered.pools.push(pool);
    }
    for (entry, table) in named_tables(sink, &view, "service", &catalog::SERVICE) {
        if proxy::is_proxy(table) {
            lowered.proxies.push(proxy::proxy(sink, entry, table));
        } else {
            lowered.services.push(service::service(sink, entry, table));
        }
    }
    lowered.routes = route::routes(sink, &view);
    path::adapt_to_services(sink, &lowered.proxies, &mut lowered.routes);
    lower_remote_settings(sink, &view, &mut lowered);
    raise_default_limits(&mut lowered);
    lowered
}

/// Lowers `[timeouts]` and `[ipvs]`.
fn lower_settings(sink: &mut Sink<'_>, view: &View<'_, '_>, lowered: &mut LoweredConfig) {
    if let Some((table, location)) = single_table(sink, view, "timeouts") {
        let view = View::open(sink, &catalog::TIMEOUTS, table, location);
        lowered.timeouts = node::timeouts(sink, &view);
        lowered
            .settings
            .extend(table.entries.iter().map(|entry| entry.key_span.clone()));
    }
    if let Some((table, location)) = single_table(sink, view, "ipvs") {
        let view = View::open(sink, &catalog::IPVS, table, location);
        lowered.ipvs = ipvs::ipvs(sink, &view);
        lowered
            .settings
            .extend(table.entries.iter().map(|entry| entry.key_span.clone()));
    }
}

/// Returns the listeners of all services.
fn listeners(lowered: &LoweredConfig) -> Vec<Listener> {
    let packets = lowered.services.iter().flat_map(|it| &it.service.listen);
    let streams = lowered.proxies.iter().flat_map(|it| &it.proxy.listen);
    let streams = streams.map(|it| Listener {
        protocol: Protocol::Tcp,
        address: it.ip(),
        ports: Ports::One(it.port()),
    });
    packets.copied().chain(streams).collect()
}

/// Lowers the tables that configure communication with other directors, routers, and receivers of notifications and
/// traces.
fn lower_remote_settings(sink: &mut Sink<'_>, view: &View<'_, '_>, lowered: &mut LoweredConfig) {
    let routers = named_tables(sink, view, "vrrp", &catalog::VRRP);
    let layer_4 = lowered.services.iter().map(|it| it.service.name.as_str());
    let proxied = lowered.proxies.iter().map(|it| it.proxy.name.as_str());
    let objects = vrrp::KnownObjects {
        has_layer_4_services: lowered
            .services
            .iter()
            .any(|it| it.service.forward.handles_packets()),
        services: layer_4.chain(proxied).collect(),
        pools: lowered
            .pools
            .iter()
            .map(|it| it.pool.name.as_str())
            .collect(),
        listeners: listeners(lowered),
    };
    let vrrp = vrrp::routers(sink, &routers, &objects);
    lowered.vrrp = vrrp;
    if let Some((table, location)) = single_table(sink, view, "announce") {
        let view = View::open(sink, &catalog::ANNOUNCE, table, location);
        (lowered.announce, lowered.announced) = announce::announce(sink, &view, location);
    }
    if let Some((table, location)) = single_table(sink, view, "sync") {
        let view = View::open(sink, &catalog::SYNC, table, location);
        lowered.sync = sync::sync(sink, &view);
        let managed = lowered
            .vrrp
            .iter()
            .flat_map(VirtualRouter::managed_addresses);
        let managed = managed.map(|network| network.address);
        sync::reject_managed_address(sink, &view, lowered.sync.as_ref(), managed);
        sync::report_absent_address(sink, &view, lowered.sync.as_ref());
    }
    if let Some((table, location)) = single_table(sink, view, "tracing") {
        let view = View::open(sink, &catalog::TRACING, table, location);
        lowered.tracing = tracing::tracing(sink, &view);
    }
    if let Some((table, location)) = single_table(sink, view, "cluster") {
        let view = View::open(sink, &catalog::CLUSTER, table, location);
        lowered.cluster = cluster::cluster(sink, &view);
    }
    let pools: Vec<&str> = lowered
        .pools
        .iter()
        .map(|pool| pool.pool.name.as_str())
        .collect();
    for (entry, table) in named_tables(sink, view, "notify", &catalog::NOTIFY) {
        lowered
            .notifiers
            .push(notify::notifier(sink, entry, table, &pools));
    }
}

/// Raises default limits to at least twice the size that the file needs, because a reload may replace all servers.
fn raise_default_limits(lowered: &mut LoweredConfig) {
    let pools = lowered.pools.iter();
    let sizes: HashMap<&str, usize> = pools
        .map(|pool| (pool.pool.name.as_str(), pool.servers.len() + 1))
        .collect();
    let services = lowered.services.iter();
    let service_sizes = services.filter_map(|it| sizes.get(it.service.pool.as_str()));
    let servers = service_sizes.sum::<usize>().max(sizes.values().sum());
    let services = lowered.services.len();
    let double = |count: usize, (_, max): (u32, u32)| {
        let count = u32::try_from(count).unwrap_or(max).min(max / 2);
        (2 * count).next_power_of_two()
    };
    let node = &mut lowered.node;
    if lowered.max_servers.is_none() {
        node.max_servers = node
            .max_servers
            .max(double(servers, Node::MAX_SERVERS_RANGE));
    }
    if lowered.max_services.is_none() {
        node.max_services = node
            .max_services
            .max(double(services, Node::MAX_SERVICES_RANGE));
    }
}

/// Returns the table of a key, and the span of the key; reports a value of a different type.
fn single_table<'a, 't>(
    sink: &mut Sink<'_>,
    view: &View<'a, 't>,
    name: &str,
) -> Option<(&'a Table<'t>, &'a Range<usize>)> {
    let (entry, kind) = view.get(name)?;
    match &entry.item.value {
        Value::Table(table) => Some((table, &entry.key_span)),
        Value::List(_) => {
            let message = format!("`{name}` must be a single table");
            sink.push(
                Diagnostic::new(Code::WrongType, &entry.key_span, message)
                    .fix(format!("write [{name}]")),
            );
            None
        }
        _ => {
            sink.push(wrong_type(&entry.item, kind).fix(format!("write [{name}]")));
            None
        }
    }
}

/// Returns the named tables in a table, such as `[pool]`.
fn named_tables<'a, 't>(
    sink: &mut Sink<'_>,
    view: &View<'a, 't>,
    name: &str,
    section: &'static Section,
) -> Vec<(&'a Entry<'t>, &'a Table<'t>)> {
    let Some((outer, kind)) = view.get(name) else {
        return Vec::new();
    };
    let Value::Table(table) = &outer.item.value else {
        let diagnostic = match &outer.item.value {
            Value::List(_) => Diagnostic::new(
                Code::WrongType,
                &outer.key_span,
                format!("every {name} must have a name"),
            ),
            _ => wrong_type(&outer.item, kind),
        };
        sink.push(diagnostic.fix(format!("write [{name}.NAME] with a name of your choice")));
        return Vec::new();
    };
    let mut tables = Vec::new();
    for entry in &table.entries {
        if sink.is_full() {
            break;
        }
        match &entry.item.value {
            Value::Table(inner) => {
                check_name(sink, name, entry);
                tables.push((entry, inner));
            }
            _ if section.key(&entry.key).is_some() => sink.push(
                Diagnostic::new(
                    Code::WrongType,
                    &entry.key_span,
                    format!("`{}` is outside any {name}", entry.key),
                )
                .cause(format!("[{name}] contains only named tables"))
                .fix(format!(
                    "write [{name}.NAME] above it, with a name of your choice"
                )),
            ),
            value => {
                let message = format!(
                    "expected a table [{name}.{}], found {}",
                    entry.key,
                    value.describe()
                );
                sink.push(Diagnostic::new(Code::WrongType, &entry.item.span, message));
            }
        }
    }
    tables
}

fn check_name(sink: &mut Sink<'_>, noun: &str, entry: &Entry<'_>) {
    const MAX_CHARACTERS: usize = 64;
    let name = &entry.key;
    let message = if name.is_empty() {
        format!("the name of this {noun} is empty")
    } else if name.len() > MAX_CHARACTERS {
        format!("the name of this {noun} is longer than {MAX_CHARACTERS} characters")
    } else if let Some(c) = name
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !"-_.".contains(*c))
    {
        format!("the name of this {noun} contains `{}`", c.escape_debug())
    } else {
        return;
    };
    sink.push(
        Diagnostic::new(Code::BadName, &entry.key_span, message)
            .cause("names are used in commands, metrics and `POOL/ADDRESS`")
            .fix("use ASCII letters, digits, `-`, `_` and `.`"),
    );
}

/// Reports a text that is not a valid address, port or listener.
fn report_error(sink: &mut Sink<'_>, span: &Range<usize>, error: AddressError) {
    sink.push(error_diagnostic(span, error));
}

/// Returns the diagnostic for a parser error.
fn error_diagnostic(span: &Range<usize>, error: AddressError) -> Diagnostic {
    let mut diagnostic = Diagnostic::new(error.code, span, error.message);
    diagnostic.fix = error.fix;
    diagnostic
}

/// Returns the texts of `listen`; reports an empty list, with `example` in the fix.
fn listen<'a>(
    sink: &mut Sink<'_>,
    view: &View<'a, '_>,
    example: &str,
) -> Vec<(&'a str, &'a Range<usize>)> {
    let Some(items) = view.list(sink, "listen") else {
        return Vec::new();
    };
    if items.is_empty() {
        let span = view
            .get("listen")
            .map_or(0..0, |(entry, _)| entry.item.span.clone());
        let fix = format!("add one, for example \"{example}\", or remove the service");
        sink.push(Diagnostic::new(Code::EmptyList, &span, "`listen` is empty").fix(fix));
    }
    let texts = items.iter();
    texts
        .filter_map(|item| text(sink, item, &Kind::Listener))
        .collect()
}

/// Lowers the `tunnel` of a service or a server.
fn tunnel(sink: &mut Sink<'_>, entry: &Entry<'_>, kind: &Kind) -> Option<Tunnel> {
    if let Value::Table(table) = &entry.item.value {
        return tunnel_table(sink, &entry.item, table, &entry.key_span);
    }
    if !matches!(entry.item.value, Value::Text(_)) {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    }
    let keyword = keyword(sink, &entry.item, kind)?;
    let kind = TunnelKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == keyword)?;
    Some(Tunnel {
        kind,
        ..Tunnel::default()
    })
}

fn tunnel_table(
    sink: &mut Sink<'_>,
    item: &Item<'_>,
    table: &Table<'_>,
    location: &Range<usize>,
) -> Option<Tunnel> {
    let view = View::open(sink, &catalog::TUNNEL, table, location);
    let kind = view.choice(sink, "type", &TunnelKind::ALL, TunnelKind::as_str);
    let port = view
        .integer(sink, "port")
        .and_then(|port| u16::try_from(port).ok());
    let checksum = view
        .choice(
            sink,
            "checksum",
            &TunnelChecksum::ALL,
            TunnelChecksum::as_str,
        )
        .unwrap_or_default();
    let kind = kind?;
    let span = |name| {
        view.get(name)
            .map_or(&item.span, |(entry, _)| &entry.item.span)
    };
    if port.is_some() && kind != TunnelKind::Gue {
        let message = format!("`port` is not valid for `{kind}`");
        sink.push(
            Diagnostic::new(Code::Contradiction, span("port"), message)
                .related(span("type"), "the encapsulation")
                .fix("remove `port`, or write type = \"gue\""),
        );
    }
    let is_supported = match kind {
        TunnelKind::Ipip => checksum == TunnelChecksum::None,
        TunnelKind::Gre => checksum != TunnelChecksum::Remote,
        TunnelKind::Gue => true,
    };
    if !is_supported {
        let message = format!(
            "`{kind}` does not support checksum \"{}\"",
            checksum.as_str()
        );
        sink.push(
            Diagnostic::new(Code::Contradiction, span("checksum"), message)
                .related(span("type"), "the encapsulation")
                .fix("gue and gre support \"full\", gue also \"remote\""),
        );
    }
    Some(Tunnel {
        kind,
        port: port.unwrap_or(Tunnel::DEFAULT_PORT),
        checksum,
    })
}
