//! Converts an IPVS virtual service and its real servers to tables, for the keepalived and ldirectord importers.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weir_model::{Forward, MAX_WEIGHT, SchedulerKind, TunnelChecksum, TunnelKind};

use crate::document::{Document, Entry, Item, Table, Value};
use crate::mail::Mail;
use crate::name::UniqueNames;
use crate::note::{Notes, Position};
use crate::probe::Probe;
use crate::time;

/// A value and its source line, or `None` if the value has no line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Positioned<T> {
    pub(crate) value: T,
    pub(crate) position: Option<Position>,
}

/// Encapsulation of the `TUN` method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encapsulation {
    pub(crate) kind: TunnelKind,
    /// Port of `gue`; 0 means the default.
    pub(crate) port: u16,
    pub(crate) checksum: TunnelChecksum,
}

/// Forwarding method of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) forward: Forward,
    pub(crate) tunnel: Option<Encapsulation>,
}

/// Persistence, like `-p` and `-M` of ipvsadm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persistence {
    pub(crate) position: Position,
    pub(crate) seconds: u64,
    /// Prefix length, in the service's address family.
    pub(crate) mask: Option<(u8, Position)>,
    pub(crate) ipv6: bool,
}

/// A real server of a virtual service.
#[derive(Clone, Debug)]
pub(crate) struct RealServer {
    pub(crate) position: Position,
    pub(crate) address: IpAddr,
    /// Port; 0 if not specified.
    pub(crate) port: u16,
    pub(crate) weight: Positioned<u64>,
    pub(crate) max_connections: Option<(u64, Position)>,
    pub(crate) min_connections: Option<(u64, Position)>,
    pub(crate) method: Option<(Method, Position)>,
    pub(crate) probes: Vec<Probe>,
}

/// A virtual service.
#[derive(Clone, Debug)]
pub(crate) struct VirtualService {
    pub(crate) position: Position,
    pub(crate) name: String,
    pub(crate) listen: Vec<(String, Position)>,
    /// The single port of the service; 0 for any or several ports, or a firewall mark.
    pub(crate) port: u16,
    pub(crate) method: Positioned<Method>,
    pub(crate) scheduler: Positioned<String>,
    pub(crate) flags: Vec<(String, Position)>,
    pub(crate) persistent: Option<Persistence>,
    pub(crate) one_packet: Option<Position>,
    pub(crate) real_servers: Vec<RealServer>,
    pub(crate) sorry: Option<RealServer>,
    pub(crate) quorum: Option<(u64, Position)>,
    pub(crate) hysteresis: Option<(u64, Position)>,
    /// All source lines of the service.
    pub(crate) lines: Vec<Position>,
}

/// Maximum number of listeners that become separate services.
pub(crate) const MAX_SERVICES: usize = 64;

impl VirtualService {
    /// Returns the listeners of each service in weir.toml. With persistence, each of up to [`MAX_SERVICES`] listeners
    /// becomes a service, because in IPVS each address of a group has its own persistence.
    fn services(&self) -> std::slice::Chunks<'_, (String, Position)> {
        let count = self.listen.len();
        let size = match self.persistent {
            Some(_) if count <= MAX_SERVICES => 1,
            _ => count.max(1),
        };
        self.listen.chunks(size)
    }
}

/// The document under construction, and the names and checks that its tables share.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) names: UniqueNames,
    pub(crate) document: Document,
    checks: Vec<(String, Probe)>,
    /// The pool without servers, if a service needed one.
    pub(crate) empty_pool: Option<String>,
    pub(crate) mails: Vec<Mail>,
}

impl<T> Positioned<T> {
    pub(crate) fn at(value: T, position: Position) -> Self {
        Self {
            value,
            position: Some(position),
        }
    }

    pub(crate) const fn implied(value: T) -> Self {
        Self {
            value,
            position: None,
        }
    }
}

impl Method {
    /// Returns a method without encapsulation options.
    pub(crate) const fn plain(forward: Forward) -> Self {
        Self {
            forward,
            tunnel: None,
        }
    }

    /// Returns the encapsulation; the default is `ipip`.
    fn encapsulation(self) -> Encapsulation {
        self.tunnel.unwrap_or(Encapsulation {
            kind: TunnelKind::Ipip,
            port: 0,
            checksum: TunnelChecksum::None,
        })
    }
}

impl Writer {
    /// Writes a virtual service: its pool, checks and services. Returns the pool's name.
    pub(crate) fn write(&mut self, mut spec: VirtualService, notes: &mut Notes) -> String {
        let name = self.names.claim(&spec.name);
        remove_duplicates(&mut spec, notes);
        set_check_ports(&mut spec);
        let mut pool = Table::new(&["pool", &name], spec.position);
        push_scheduler(&mut pool, &spec, notes);
        let shared = shared_probes(&spec.real_servers);
        let mut servers = Vec::new();
        for real in &spec.real_servers {
            let mut entries = server_entries(real, &spec, notes);
            if shared.is_none() && !real.probes.is_empty() {
                let names: Vec<Item> = real
                    .probes
                    .iter()
                    .map(|probe| Item::new(self.check(&name, probe), Some(probe.position)))
                    .collect();
                entries.push(Entry::new("check", names, real.position));
            }
            servers.push(Item::new(entries, Some(real.position)));
        }
        pool.push(Entry::implied("servers", servers));
        if let Some(sorry) = &spec.sorry {
            let entries = server_entries(sorry, &spec, notes);
            pool.push(Entry::new("sorry", entries, sorry.position));
        }
        push_quorum(&mut pool, &spec, notes);
        let position = spec.position;
        self.document.push(pool);
        for probe in shared.iter().flat_map(|probes| probes.iter()) {
            let mut table = Table::new(&["pool", &name, "check"], probe.position);
            table.repeated = shared.is_some_and(|probes| probes.len() > 1);
            table.entries.clone_from(&probe.entries);
            self.document.push(table);
        }
        for (index, listen) in spec.services().enumerate() {
            let service_name = match index {
                0 => name.clone(),
                _ => self.names.claim(&format!("{name}-{}", index + 1)),
            };
            let mut service = service_table((&service_name, &name), listen, &spec, position);
            service.dependent_lines.clone_from(&spec.lines);
            self.document.push(service);
        }
        name
    }

    /// Returns the name of a check with the keys of `probe`. Writes the check if it does not exist.
    pub(crate) fn check(&mut self, pool: &str, probe: &Probe) -> String {
        if let Some((name, _)) = self.checks.iter().find(|(_, other)| other == probe) {
            return name.clone();
        }
        let name = self.names.claim(&format!("{pool}-{}", probe.kind()));
        let mut table = Table::new(&["check", &name], probe.position);
        table.entries.clone_from(&probe.entries);
        self.document.push(table);
        self.checks.push((name.clone(), probe.clone()));
        name
    }
}

/// Returns whether IPVS has a scheduler with this name.
pub(crate) fn is_scheduler(name: &str) -> bool {
    name.parse().is_ok_and(SchedulerKind::is_ipvs)
}

/// Returns a listener in weir.toml syntax; port 0 means any port.
pub(crate) fn listener(protocol: &str, address: IpAddr, port: u16) -> String {
    let protocol = if protocol == "tcp" { "" } else { "udp/" };
    match (address, port) {
        (IpAddr::V4(v4), 0) => format!("{protocol}{v4}:*"),
        (IpAddr::V6(v6), 0) => format!("{protocol}[{v6}]:*"),
        (address, port) => format!("{protocol}{}", SocketAddr::new(address, port)),
    }
}

/// Returns the listener for a firewall mark.
pub(crate) fn mark_listener(mark: u64, ipv6: bool) -> String {
    let family = if ipv6 { "6" } else { "" };
    format!("fwmark{family}/{mark}")
}

/// Derives a service's name from its listener.
pub(crate) fn service_name(listen: &str) -> String {
    listen.replace(":*", "-any")
}

/// Returns the prefix length of a dotted mask such as `255.255.255.0`, or `None` if the mask is invalid, `0.0.0.0` or
/// not contiguous.
pub(crate) fn mask_length(text: &str) -> Option<u8> {
    let bits = text.parse::<Ipv4Addr>().ok()?.to_bits();
    let length = bits.leading_ones();
    let is_contiguous = bits.checked_shl(length).unwrap_or(0) == 0;
    u8::try_from(length)
        .ok()
        .filter(|length| is_contiguous && *length > 0)
}

/// Removes duplicate servers, which the kernel rejects too, and a sorry server that is one of the servers.
fn remove_duplicates(spec: &mut VirtualService, notes: &mut Notes) {
    let mut known_servers = HashSet::new();
    let is_nat = |real: &RealServer, service_method: &Method| match real.method {
        Some((method, _)) => method.forward == Forward::Nat,
        None => service_method.forward == Forward::Nat,
    };
    let method = spec.method.value;
    spec.real_servers.retain(|real| {
        let port = if is_nat(real, &method) { real.port } else { 0 };
        let is_new = known_servers.insert((real.address, port));
        if !is_new {
            notes.remark(
                real.position,
                "not imported: duplicate server, which the kernel rejects too",
            );
        }
        is_new
    });
    if let Some(sorry) = spec.sorry.take_if(|sorry| {
        let port = if is_nat(sorry, &method) {
            sorry.port
        } else {
            0
        };
        known_servers.contains(&(sorry.address, port))
    }) {
        notes.add(
            sorry.position,
            "not imported: the sorry server is one of the servers",
        );
    }
}

/// Sets the port of checks for servers whose port differs from the service's port and is not in their address.
fn set_check_ports(spec: &mut VirtualService) {
    let service_method = spec.method.value;
    for real in &mut spec.real_servers {
        let method = real.method.map_or(service_method, |(method, _)| method);
        // With nat, the port is part of the server's address.
        let has_own_port = method.forward == Forward::Nat && real.port != 0;
        let port = if real.port == 0 { spec.port } else { real.port };
        if has_own_port || port == 0 || port == spec.port {
            continue;
        }
        for probe in real
            .probes
            .iter_mut()
            .filter(|probe| probe.uses_server_port())
        {
            probe.push(Entry::implied("port", u64::from(port)));
        }
    }
}

/// Returns the checks of the servers if all servers have the same checks.
fn shared_probes(real_servers: &[RealServer]) -> Option<&Vec<Probe>> {
    let first = &real_servers.first()?.probes;
    let are_equal = real_servers.iter().all(|real| real.probes == *first);
    are_equal.then_some(first)
}

fn push_scheduler(pool: &mut Table, spec: &VirtualService, notes: &mut Notes) {
    let name_position = spec.scheduler.position.unwrap_or(spec.position);
    let name = &spec.scheduler.value;
    let (scheduler_flags, other_flags): (Vec<_>, Vec<_>) = spec
        .flags
        .iter()
        .partition(|(flag, _)| flag.starts_with(&format!("{name}-")));
    for (flag, position) in other_flags {
        let reason = format!("not imported: scheduler {name} ignores flag {flag}");
        notes.remark(*position, reason);
    }
    if scheduler_flags.is_empty() {
        pool.push(Entry::new("scheduler", name.as_str(), name_position));
        return;
    }
    let flags: Vec<Item> = scheduler_flags
        .iter()
        .map(|(flag, position)| Item::new(flag.as_str(), Some(*position)))
        .collect();
    let table = vec![
        Entry::new("name", name.as_str(), name_position).essential(),
        Entry::new("flags", flags, name_position),
    ];
    pool.push(Entry::new("scheduler", table, name_position));
}

fn server_entries(real: &RealServer, spec: &VirtualService, notes: &mut Notes) -> Vec<Entry> {
    let method = real.method.map_or(spec.method.value, |(method, _)| method);
    let port = if method.forward == Forward::Nat {
        real.port
    } else {
        0
    };
    let address = match (real.address, port) {
        (address, 0) => address.to_string(),
        (IpAddr::V4(address), port) => format!("{address}:{port}"),
        (IpAddr::V6(address), port) => format!("[{address}]:{port}"),
    };
    let mut entries = vec![Entry::new("address", address, real.position).essential()];
    let weight = real.weight.value.min(MAX_WEIGHT.into());
    let weight_position = real.weight.position.unwrap_or(real.position);
    if weight != real.weight.value {
        let reason = format!(
            "weight {} was changed to {weight}, the maximum",
            real.weight.value
        );
        notes.add(weight_position, reason);
    }
    if weight != 1 {
        entries.push(Entry::new("weight", weight, weight_position));
    }
    let thresholds = [
        ("max_connections", real.max_connections),
        ("min_connections", real.min_connections),
    ];
    for (key, value) in thresholds {
        if key == "min_connections"
            && real.max_connections.is_none_or(|(max, _)| max == 0)
            && let Some((_, position)) = value
        {
            notes.remark(
                position,
                "not imported: it has no effect without an upper threshold",
            );
            continue;
        }
        if let Some((value, position)) = value.filter(|(value, _)| *value != 0) {
            entries.push(Entry::new(key, value, position));
        }
    }
    if let Some((method, position)) = real.method {
        if method.forward != spec.method.value.forward {
            entries.push(Entry::new("forward", method.forward.as_str(), position).essential());
        }
        let tunnel = method.encapsulation();
        if method.forward == Forward::Tunnel && tunnel != spec.method.value.encapsulation() {
            entries.push(Entry::new("tunnel", tunnel_value(tunnel), position).essential());
        }
    }
    entries
}

fn tunnel_value(tunnel: Encapsulation) -> Value {
    let mut entries = vec![Entry::implied("type", tunnel.kind.as_str()).essential()];
    if tunnel.port != 0 {
        entries.push(Entry::implied("port", u64::from(tunnel.port)));
    }
    if tunnel.checksum != TunnelChecksum::None {
        entries.push(Entry::implied("checksum", tunnel.checksum.as_str()));
    }
    Value::Table(entries)
}

fn push_quorum(pool: &mut Table, spec: &VirtualService, notes: &mut Notes) {
    const MAX_QUORUM: u64 = 1_000_000;
    if let Some((quorum, position)) = spec.quorum.filter(|(quorum, _)| *quorum > 1) {
        pool.push(Entry::new("quorum", quorum.min(MAX_QUORUM), position));
        if quorum > MAX_QUORUM {
            notes.add(
                position,
                format!("quorum {quorum} was changed to {MAX_QUORUM}, the maximum"),
            );
        }
        if spec.sorry.is_none() {
            let reason = "the quorum has no effect without a sorry server: the remaining servers are still used";
            notes.remark(position, reason);
        }
    }
    if let Some((hysteresis, position)) = spec.hysteresis.filter(|(value, _)| *value > 0) {
        pool.push(Entry::new(
            "quorum_hysteresis",
            hysteresis.min(MAX_QUORUM),
            position,
        ));
    }
}

fn service_table(
    (name, pool): (&str, &str),
    listen: &[(String, Position)],
    spec: &VirtualService,
    service_position: Position,
) -> Table {
    let mut service = Table::new(&["service", name], service_position);
    let listen: Vec<Item> = listen
        .iter()
        .map(|(listen, position)| Item::new(listen.as_str(), Some(*position)))
        .collect();
    service.push(Entry::new("listen", listen, service_position).essential());
    let method = spec.method.value;
    let position = spec.method.position.unwrap_or(service_position);
    service.push(Entry::new("forward", method.forward.as_str(), position).essential());
    service.push(Entry::implied("pool", pool).essential());
    if let Some(tunnel) = method.tunnel {
        service.push(Entry::new("tunnel", tunnel_value(tunnel), position).essential());
    }
    if let Some(persistent) = &spec.persistent {
        let timeout = time::format_millis(persistent.seconds * 1000);
        let mut entries = vec![Entry::new("timeout", timeout, persistent.position)];
        if let Some((mask, position)) = persistent.mask {
            let key = if persistent.ipv6 {
                "netmask6"
            } else {
                "netmask"
            };
            entries.push(Entry::new(key, u64::from(mask), position));
        }
        service.push(Entry::new("persistence", entries, persistent.position));
    }
    if let Some(position) = spec.one_packet {
        service.push(Entry::new("one_packet", true, position));
    }
    service
}

#[cfg(test)]
mod tests;
