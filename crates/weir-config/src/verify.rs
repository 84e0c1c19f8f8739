//! Verifies combinations of settings, such as overlapping listeners and references to missing objects.
//!
//! Address families and suspicious combinations are verified too. All lowered objects are checked, so one run reports
//! all problems. Each diagnostic shows the positions of all settings involved.

mod check;
mod cluster;
mod earlier_route;
mod latency;
mod layer4;
mod listener;
mod mark;
mod proxy;
mod server;
mod socket;
mod unix_server;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

use weir_model::{Family, FlowSync, Node, Protocol, SecretSource};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredConfig, LoweredPool, LoweredService};
use crate::spelling::header;
use crate::suggest::nearest;
use crate::view::Sink;

/// The machine that will run the configuration. It is queried only if the result matters, because a query takes longer
/// than parsing a typical file. `None` = unknown; warnings that depend on the value are omitted.
pub trait Machine {
    /// Returns `net.ipv4.ip_local_port_range`: the first and the last local port.
    fn local_ports(&self) -> Option<(u16, u16)>;
    /// Returns whether any interface forwards packets of an address family.
    fn forwards(&self, family: Family) -> Option<bool>;
    /// Returns whether a user group with this name exists.
    fn has_group(&self, _name: &str) -> Option<bool> {
        None
    }
    /// Returns whether a network interface with this name exists.
    fn has_interface(&self, _name: &str) -> Option<bool> {
        None
    }
    /// Returns whether a socket can be bound to this address, ignoring its port.
    fn has_address(&self, _address: SocketAddr) -> Option<bool> {
        None
    }
    /// Returns whether an executable file with this absolute path exists.
    fn has_program(&self, _path: &str) -> Option<bool> {
        None
    }
    /// Reads a secret from its source, or returns the reason why it cannot be read; `None` = secrets are not read. The
    /// configuration already contains the value of [`SecretSource::Text`], so only the mode of the configuration file
    /// is checked.
    fn secret(&self, _source: &SecretSource) -> Option<Result<SecretValue, String>> {
        None
    }
    /// Reads an environment variable in an address, or returns the reason why it cannot be read. `None` = variables are
    /// not read: placeholders replace them, and the configuration is only checked, not applied.
    fn variable(&self, name: &str) -> Option<Result<SecretValue, String>> {
        self.secret(&SecretSource::Env(name.to_owned()))
    }
    /// Reads a file with one entry per line, of at most [`MAX_LIST_BYTES`] bytes, or returns the reason why it cannot
    /// be read. `None` = files are not read: their lists are empty, and the configuration is only checked, not applied.
    fn list_file(&self, _path: &str) -> Option<Result<String, String>> {
        None
    }
}

/// Maximum size of a file with one entry per line, in bytes.
pub const MAX_LIST_BYTES: usize = 64 << 20;

/// The content of a secret's source.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue {
    /// Raw content, including a trailing line feed.
    pub bytes: Vec<u8>,
    /// The mode of the file, if every user can read it.
    pub exposed: Option<u32>,
}

/// Formats the secret without its value.
impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretValue").finish_non_exhaustive()
    }
}

/// A machine with known properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Host {
    /// `net.ipv4.ip_local_port_range`: first and last local port.
    pub local_ports: Option<(u16, u16)>,
    /// Whether any interface forwards IPv4, and IPv6.
    pub forwards: Option<(bool, bool)>,
}

impl Machine for Host {
    fn local_ports(&self) -> Option<(u16, u16)> {
        self.local_ports
    }

    fn forwards(&self, family: Family) -> Option<bool> {
        self.forwards.map(|(v4, v6)| match family {
            Family::V4 => v4,
            Family::V6 => v6,
        })
    }
}

/// Verifies the whole configuration.
pub(crate) fn verify(sink: &mut Sink<'_>, lowered: &LoweredConfig, host: &dyn Machine) {
    let pools: HashMap<&str, &LoweredPool> = lowered
        .pools
        .iter()
        .map(|pool| (pool.pool.name.as_str(), pool))
        .collect();
    listener::verify(sink, lowered);
    mark::verify(sink, lowered, host);
    verify_limits(sink, lowered);
    for service in &lowered.services {
        verify_snat(sink, service, host);
        report_divided_ports(sink, service, lowered.sync.as_ref());
        verify_one_packet(sink, service);
        socket::verify(sink, service);
        let Some(location) = &service.pool else {
            continue;
        };
        match pools.get(service.service.pool.as_str()) {
            Some(pool) => {
                server::verify(sink, service, pool);
                unix_server::report_in_layer_4(sink, service, pool);
                layer4::verify(sink, service, pool);
                socket::verify_pool(sink, service, pool);
                server::report_keys_without_effect(sink, service, pool);
            }
            None => report_missing_pool(
                sink,
                lowered,
                &pools,
                &service.service.pool,
                location,
                (&service.name, USED_BY_SERVICE),
            ),
        }
    }
    for pool in &lowered.pools {
        unix_server::verify_settings(sink, pool);
    }
    proxy::verify(sink, lowered, &pools);
    report_missing_services(sink, lowered);
    cluster::verify(sink, lowered, &pools);
    latency::verify(sink, lowered, &pools);
    check::verify(sink, lowered);
    listener::report_shadowed_admin(sink, lowered);
    report_missing_group(sink, lowered, host);
    report_missing_interfaces(sink, lowered, host);
    report_unused_pools(sink, lowered);
    report_quiesced_pools(sink, lowered);
}

/// Reports a user group that does not exist.
fn report_missing_group(sink: &mut Sink<'_>, lowered: &LoweredConfig, host: &dyn Machine) {
    let (Some(group), Some(location)) = (&lowered.node.socket_group, &lowered.socket_group) else {
        return;
    };
    if host.has_group(group) == Some(false) {
        let message = format!(
            "group `{}` does not exist on this machine",
            group.escape_debug()
        );
        sink.push(
            Diagnostic::new(Code::BadName, location, message).fix(format!(
                "create it with `groupadd --system {}`, or use another group",
                group.escape_debug()
            )),
        );
    }
}

/// Reports interfaces that do not exist.
fn report_missing_interfaces(sink: &mut Sink<'_>, lowered: &LoweredConfig, host: &dyn Machine) {
    for (name, location) in &lowered.interfaces {
        if host.has_interface(name) == Some(false) {
            let message = format!("interface `{}` does not exist", name.escape_debug());
            sink.push(
                Diagnostic::new(Code::NoInterface, location, message)
                    .label("not found in this network namespace")
                    .fix("`ip -brief link` lists the interfaces; create the interface before starting Weir, or use \
                          another one"),
            );
        }
    }
}

/// Reports services in `[announce]` that do not exist.
fn report_missing_services(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    let layer_4 = lowered.services.iter().map(|it| it.service.name.as_str());
    let proxies = lowered.proxies.iter().map(|it| it.proxy.name.as_str());
    let names: Vec<&str> = layer_4.chain(proxies).collect();
    for (name, span) in &lowered.announced {
        if names.contains(&name.as_str()) {
            continue;
        }
        let message = format!("service `{name}` does not exist");
        let diagnostic = Diagnostic::new(Code::DanglingPool, span, message);
        sink.push(match nearest(name, names.iter().copied()) {
            Some(near) => diagnostic.fix(format!("did you mean `{near}`?")),
            None => diagnostic.fix(format!("add {}", header(&["service", name]))),
        });
    }
}

/// Labels of the table that refers to a missing pool.
const USED_BY_SERVICE: &str = "used by this service";
const USED_BY_ROUTE: &str = "used by this route";

/// Reports a pool that does not exist. `user` is the position of the table that refers to the pool, and its label.
fn report_missing_pool(
    sink: &mut Sink<'_>,
    lowered: &LoweredConfig,
    pools: &HashMap<&str, &LoweredPool>,
    name: &str,
    location: &Range<usize>,
    user: (&Range<usize>, &str),
) {
    let message = format!("pool `{name}` does not exist");
    let diagnostic = Diagnostic::new(Code::DanglingPool, location, message).related(user.0, user.1);
    let near = nearest(
        name,
        lowered.pools.iter().map(|pool| pool.pool.name.as_str()),
    );
    sink.push(match near.and_then(|near| pools.get(near)) {
        Some(near) => diagnostic
            .related(&near.name, "similar name")
            .fix(format!("did you mean `{}`?", near.pool.name)),
        None => diagnostic.fix(format!("add {}", header(&["pool", name]))),
    });
}

fn verify_limits(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    let node = &lowered.node;
    let servers: Vec<_> = lowered
        .pools
        .iter()
        .flat_map(|pool| pool.servers.iter().chain(&pool.sorry))
        .collect();
    let services: Vec<_> = lowered.services.iter().map(|it| &it.name).collect();
    let needed = needed_servers(lowered);
    let limits = [
        (
            ("max_servers", node.max_servers, Node::MAX_SERVERS_RANGE.1),
            (needed, &lowered.max_servers),
            servers.as_slice(),
        ),
        (
            (
                "max_services",
                node.max_services,
                Node::MAX_SERVICES_RANGE.1,
            ),
            (services.len(), &lowered.max_services),
            services.as_slice(),
        ),
    ];
    for ((key, allowed, max), (count, location), objects) in limits {
        let limit = usize::try_from(allowed).unwrap_or(usize::MAX);
        let Some(excess) = objects
            .get(limit)
            .or(objects.last())
            .filter(|_| count > limit)
        else {
            continue;
        };
        let noun = key.trim_start_matches("max_");
        let message = if count > objects.len() {
            format!(
                "{count} {noun} exceed `{key}` = {allowed}; a server counts once for each layer 4 service that uses it"
            )
        } else {
            format!("{count} {noun} exceed `{key}` = {allowed}")
        };
        let mut fix = format!("raise `{key}` in [node] to {count} or more");
        let doubled = 2 * count;
        if u32::try_from(doubled).is_ok_and(|doubled| doubled <= max) {
            fix += &format!("; with {doubled} or more, a reload can replace all of them at once");
        }
        let mut diagnostic = Diagnostic::new(Code::OverLimit, excess, message).fix(fix);
        if objects.len() > limit {
            diagnostic = diagnostic.label("the first one above the limit");
        }
        if let Some(location) = location {
            diagnostic = diagnostic.related(location, "the limit");
        }
        sink.push(diagnostic);
    }
}

/// Returns the number of servers that counts toward `max_servers`, including sorry servers: in the pools or in the
/// layer 4 services, whichever is larger.
fn needed_servers(lowered: &LoweredConfig) -> usize {
    let pools = lowered.pools.iter();
    let sizes: HashMap<&str, usize> = pools
        .map(|pool| {
            let sorry = usize::from(pool.sorry.is_some());
            (pool.pool.name.as_str(), pool.servers.len() + sorry)
        })
        .collect();
    let used_sizes = lowered.services.iter();
    let used_sizes = used_sizes.filter_map(|it| sizes.get(it.service.pool.as_str()));
    used_sizes.sum::<usize>().max(sizes.values().sum())
}

fn verify_snat(sink: &mut Sink<'_>, service: &LoweredService, host: &dyn Machine) {
    let (Some(snat), Some(location)) = (&service.service.snat, &service.snat) else {
        return;
    };
    if let Some((first, last)) = host.local_ports()
        && snat.ports.0 <= last
        && first <= snat.ports.1
    {
        let (first_source, last_source) = snat.ports;
        let message = format!(
            "the source ports {first_source}-{last_source} overlap the director's local ports, {first}-{last}"
        );
        sink.push(
            Diagnostic::new(Code::LocalPorts, location, message)
                .cause("a local connection may already use such a port")
                .fix("use other ports, or change net.ipv4.ip_local_port_range"),
        );
    }
    for (listener, listen) in service.service.listen.iter().zip(&service.listen) {
        let family = listener.family();
        if !snat.addresses.is_empty()
            && !snat
                .addresses
                .iter()
                .any(|address| Family::of(*address) == family)
        {
            sink.push(
                Diagnostic::new(
                    Code::FamilyMismatch,
                    location,
                    format!("`snat` has no {family} address"),
                )
                .related(listen, format!("this listener is {family}"))
                .fix(format!(
                    "add an {family} address, or remove `addresses` to use the director's own"
                )),
            );
            return;
        }
    }
}

/// Reports which source ports this director assigns. Also reports fewer ports than directors, and addresses that do not
/// fail over with the VIP.
fn report_divided_ports(sink: &mut Sink<'_>, service: &LoweredService, sync: Option<&FlowSync>) {
    let (Some(snat), Some(location), Some(sync)) = (&service.service.snat, &service.snat, sync)
    else {
        return;
    };
    let ((first_port, last_port), directors) = (snat.ports, sync.directors());
    let Some((first, last)) = sync.own_ports(snat.ports) else {
        let message = format!(
            "there are fewer source ports ({first_port}-{last_port}) than directors in [sync] ({directors})"
        );
        sink.push(
            Diagnostic::new(Code::Contradiction, location, message)
                .cause("each director assigns its own ports")
                .fix("use more ports"),
        );
        return;
    };
    let message = format!(
        "this director assigns the source ports {first}-{last}: {directors} directors share \
         {first_port}-{last_port}"
    );
    sink.push(Diagnostic::new(Code::DividedPorts, location, message));
    if snat.addresses.is_empty() {
        let message =
            "`snat` uses the director's own address, which does not fail over with the VIP";
        sink.push(
            Diagnostic::new(Code::FixedSnatAddress, location, message)
                .fix("set `addresses` to addresses that fail over with the VIP"),
        );
    }
}

/// Reports `one_packet` in a service that only listens on TCP, or with `snat`, which needs flow entries.
fn verify_one_packet(sink: &mut Sink<'_>, service: &LoweredService) {
    let Some(location) = &service.one_packet else {
        return;
    };
    let listeners = service.service.listen.iter().zip(&service.listen);
    let mut tcp = listeners.filter(|(listener, _)| listener.protocol == Protocol::Tcp);
    if let Some((_, listen)) = tcp.next()
        && tcp.count() + 1 == service.service.listen.len()
        && service.service.marks.is_empty()
    {
        sink.push(
            Diagnostic::new(
                Code::Contradiction,
                location,
                "`one_packet` requires UDP, but this service only listens on TCP",
            )
            .related(listen, "this listener is TCP")
            .fix("remove `one_packet`, or listen on udp/"),
        );
    }
    if let Some(snat) = &service.snat {
        sink.push(
            Diagnostic::new(
                Code::Contradiction,
                location,
                "`one_packet` and `snat` are mutually exclusive",
            )
            .related(snat, "SNAT is enabled here")
            .cause("SNAT needs flow entries, which `one_packet` does not create")
            .fix("remove one of them"),
        );
    }
}

fn report_unused_pools(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    let used_names: HashSet<&str> = lowered
        .services
        .iter()
        .map(|service| service.service.pool.as_str())
        .chain(
            lowered
                .proxies
                .iter()
                .map(|proxy| proxy.proxy.pool.as_str()),
        )
        .chain(lowered.routes.iter().flat_map(|route| route.route.pools()))
        .collect();
    let existing: HashSet<&str> = lowered
        .pools
        .iter()
        .map(|pool| pool.pool.name.as_str())
        .collect();
    // A service with an unknown pool probably means one of the pools that seem unused.
    if !used_names.is_subset(&existing) {
        return;
    }
    for pool in lowered
        .pools
        .iter()
        .filter(|pool| !used_names.contains(pool.pool.name.as_str()))
    {
        sink.push(
            Diagnostic::new(
                Code::UnusedPool,
                &pool.name,
                format!("no service uses pool `{}`", pool.pool.name),
            )
            .fix("use it as a service's `pool`, or remove it"),
        );
    }
}

fn report_quiesced_pools(sink: &mut Sink<'_>, lowered: &LoweredConfig) {
    for pool in &lowered.pools {
        let servers = &pool.pool.servers;
        if pool.complete && !servers.is_empty() && servers.iter().all(|server| server.weight == 0) {
            let message = format!("every server of pool `{}` has weight 0", pool.pool.name);
            sink.push(
                Diagnostic::new(Code::AllQuiesced, &pool.name, message)
                    .cause("servers with weight 0 do not receive new clients")
                    .fix("set a weight above 0"),
            );
        }
    }
}
