//! A virtual service of IPVS with its real servers, as keepalived and ldirectord both have it, and the tables it becomes.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weir_model::{Forward, MAX_WEIGHT, SchedulerKind, TunnelChecksum, TunnelKind};

use crate::document::{Document, Entry, Item, Table, Value};
use crate::name::NameBook;
use crate::note::{Notes, Place};
use crate::probe::Probe;
use crate::time;

/// A value and the line that says it; `None` = it follows from what it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said<T> {
    pub(crate) value: T,
    pub(crate) from: Option<Place>,
}

/// Encapsulation of `TUN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encapsulation {
    pub(crate) kind: TunnelKind,
    /// Of `gue`; 0 = the default.
    pub(crate) port: u16,
    pub(crate) checksum: TunnelChecksum,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) forward: Forward,
    pub(crate) tunnel: Option<Encapsulation>,
}

/// IPVS's `-p` and `-M`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persistent {
    pub(crate) from: Place,
    pub(crate) seconds: u64,
    /// Prefix length, of the service's family.
    pub(crate) mask: Option<(u8, Place)>,
    pub(crate) ipv6: bool,
}

/// A real server.
#[derive(Clone, Debug)]
pub(crate) struct Real {
    pub(crate) from: Place,
    pub(crate) address: IpAddr,
    /// 0 = none is written.
    pub(crate) port: u16,
    pub(crate) weight: Said<u64>,
    pub(crate) most: Option<(u64, Place)>,
    pub(crate) least: Option<(u64, Place)>,
    pub(crate) method: Option<(Method, Place)>,
    pub(crate) probes: Vec<Probe>,
}

/// A virtual service.
#[derive(Clone, Debug)]
pub(crate) struct Virtual {
    pub(crate) from: Place,
    pub(crate) name: String,
    pub(crate) listen: Vec<(String, Place)>,
    /// The one port that clients use; 0 = any, several, or that of a firewall mark.
    pub(crate) port: u16,
    pub(crate) method: Said<Method>,
    pub(crate) scheduler: Said<String>,
    pub(crate) flags: Vec<(String, Place)>,
    pub(crate) persistent: Option<Persistent>,
    pub(crate) one_packet: Option<Place>,
    pub(crate) reals: Vec<Real>,
    pub(crate) sorry: Option<Real>,
    pub(crate) quorum: Option<(u64, Place)>,
    pub(crate) hysteresis: Option<(u64, Place)>,
    /// Every line of it.
    pub(crate) lines: Vec<Place>,
}

/// Writes virtual services, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) names: NameBook,
    pub(crate) document: Document,
    checks: Vec<(String, Probe)>,
    /// The pool without servers, once a service has it.
    pub(crate) no_servers: Option<String>,
}

impl<T> Said<T> {
    pub(crate) fn at(value: T, from: Place) -> Self {
        Self {
            value,
            from: Some(from),
        }
    }

    pub(crate) const fn implied(value: T) -> Self {
        Self { value, from: None }
    }
}

impl Method {
    /// Without encapsulation of its own.
    pub(crate) const fn plain(forward: Forward) -> Self {
        Self {
            forward,
            tunnel: None,
        }
    }
}

impl Writer {
    /// Writes pool, checks and service.
    pub(crate) fn write(&mut self, mut of: Virtual, notes: &mut Notes) {
        let name = self.names.take(&of.name);
        once(&mut of, notes);
        ports_of_checks(&mut of);
        let mut pool = Table::new(&["pool", &name], of.from);
        scheduler(&mut pool, &of, notes);
        let shared = shared_probes(&of.reals);
        let mut servers = Vec::new();
        for real in &of.reals {
            let mut entries = server(real, &of, notes);
            if shared.is_none() && !real.probes.is_empty() {
                let names: Vec<Item> = real
                    .probes
                    .iter()
                    .map(|probe| Item::new(self.check(&name, probe), Some(probe.from)))
                    .collect();
                entries.push(Entry::new("check", names, real.from));
            }
            servers.push(Item::new(entries, Some(real.from)));
        }
        pool.push(Entry::implied("servers", servers));
        if let Some(sorry) = &of.sorry {
            let entries = server(sorry, &of, notes);
            pool.push(Entry::new("sorry", entries, sorry.from));
        }
        quorum(&mut pool, &of, notes);
        let from = of.from;
        self.document.push(pool);
        for probe in shared.iter().flat_map(|probes| probes.iter()) {
            let mut table = Table::new(&["pool", &name, "check"], probe.from);
            table.repeated = shared.is_some_and(|probes| probes.len() > 1);
            table.entries.clone_from(&probe.entries);
            self.document.push(table);
        }
        let mut service = service(&name, &of, from);
        service.covers = of.lines;
        self.document.push(service);
    }

    /// The name of a check that servers refer to.
    pub(crate) fn check(&mut self, pool: &str, probe: &Probe) -> String {
        if let Some((name, _)) = self.checks.iter().find(|(_, known)| known == probe) {
            return name.clone();
        }
        let name = self.names.take(&format!("{pool}-{}", probe.kind()));
        let mut table = Table::new(&["check", &name], probe.from);
        table.entries.clone_from(&probe.entries);
        self.document.push(table);
        self.checks.push((name.clone(), probe.clone()));
        name
    }
}

/// Whether IPVS has a scheduler of that name.
pub(crate) fn is_scheduler(name: &str) -> bool {
    name.parse().is_ok_and(SchedulerKind::is_ipvs)
}

/// A listener as the configuration writes it; port 0 = any.
pub(crate) fn listener(protocol: &str, address: IpAddr, port: u16) -> String {
    let protocol = if protocol == "tcp" { "" } else { "udp/" };
    match (address, port) {
        (IpAddr::V4(v4), 0) => format!("{protocol}{v4}:*"),
        (IpAddr::V6(v6), 0) => format!("{protocol}[{v6}]:*"),
        (address, port) => format!("{protocol}{}", SocketAddr::new(address, port)),
    }
}

/// The listener of a firewall mark.
pub(crate) fn mark_listener(mark: u64, ipv6: bool) -> String {
    let family = if ipv6 { "6" } else { "" };
    format!("fwmark{family}/{mark}")
}

/// A service's name after its listener.
pub(crate) fn name_of(listen: &str) -> String {
    listen.replace(":*", "-any")
}

/// The length of a dotted mask, `255.255.255.0`; `None` = it has holes, or nothing.
pub(crate) fn mask_length(text: &str) -> Option<u8> {
    let bits = text.parse::<Ipv4Addr>().ok()?.to_bits();
    let length = bits.leading_ones();
    let solid = bits.checked_shl(length).unwrap_or(0) == 0;
    u8::try_from(length)
        .ok()
        .filter(|length| solid && *length > 0)
}

/// Takes out servers that are there already: the kernel refuses them too.
fn once(of: &mut Virtual, notes: &mut Notes) {
    let mut seen = HashSet::new();
    let nat = |real: &Real, of: &Method| match real.method {
        Some((method, _)) => method.forward == Forward::Nat,
        None => of.forward == Forward::Nat,
    };
    let method = of.method.value;
    of.reals.retain(|real| {
        let port = if nat(real, &method) { real.port } else { 0 };
        let new = seen.insert((real.address, port));
        if !new {
            notes.say(real.from, "not carried over: this server is listed already");
        }
        new
    });
    if let Some(sorry) = of.sorry.take_if(|sorry| {
        let port = if nat(sorry, &method) { sorry.port } else { 0 };
        seen.contains(&(sorry.address, port))
    }) {
        notes.say(
            sorry.from,
            "not carried over: the sorry server is one of the servers",
        );
    }
}

/// Where the service gives no port to go to, or another than the server's, a check is told.
fn ports_of_checks(of: &mut Virtual) {
    let service = of.method.value;
    for real in &mut of.reals {
        let method = real.method.map_or(service, |(method, _)| method);
        // Under nat the port stands in the server's address.
        let written = method.forward == Forward::Nat && real.port != 0;
        let known = if real.port == 0 { of.port } else { real.port };
        if written || known == 0 || known == of.port {
            continue;
        }
        for probe in real.probes.iter_mut().filter(|probe| probe.wants_port()) {
            probe.push(Entry::implied("port", u64::from(known)));
        }
    }
}

/// The checks of all servers, if they are the same.
fn shared_probes(reals: &[Real]) -> Option<&Vec<Probe>> {
    let first = &reals.first()?.probes;
    let same = reals.iter().all(|real| real.probes == *first);
    same.then_some(first)
}

fn scheduler(pool: &mut Table, of: &Virtual, notes: &mut Notes) {
    let from = of.scheduler.from.unwrap_or(of.from);
    let name = &of.scheduler.value;
    let (fitting, others): (Vec<_>, Vec<_>) = of
        .flags
        .iter()
        .partition(|(flag, _)| flag.starts_with(&format!("{name}-")));
    for (flag, place) in others {
        let why = format!("not carried over: {flag} is no flag of scheduler {name}");
        notes.say(*place, why);
    }
    if fitting.is_empty() {
        pool.push(Entry::new("scheduler", name.as_str(), from));
        return;
    }
    let flags: Vec<Item> = fitting
        .iter()
        .map(|(flag, place)| Item::new(flag.as_str(), Some(*place)))
        .collect();
    let table = vec![
        Entry::new("name", name.as_str(), from).essential(),
        Entry::new("flags", flags, from),
    ];
    pool.push(Entry::new("scheduler", table, from));
}

fn server(real: &Real, of: &Virtual, notes: &mut Notes) -> Vec<Entry> {
    let method = real.method.map_or(of.method.value, |(method, _)| method);
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
    let mut entries = vec![Entry::new("address", address, real.from).essential()];
    let weight = real.weight.value.min(MAX_WEIGHT.into());
    let from = real.weight.from.unwrap_or(real.from);
    if weight != real.weight.value {
        let why = format!(
            "weight {} became {weight}, the largest there is",
            real.weight.value
        );
        notes.say(from, why);
    }
    if weight != 1 {
        entries.push(Entry::new("weight", weight, from));
    }
    let thresholds = [
        ("max_connections", real.most),
        ("min_connections", real.least),
    ];
    for (key, value) in thresholds {
        if let Some((value, place)) = value.filter(|(value, _)| *value != 0) {
            entries.push(Entry::new(key, value, place));
        }
    }
    if let Some((method, place)) = real.method {
        if method.forward != of.method.value.forward {
            entries.push(Entry::new("forward", method.forward.as_str(), place).essential());
        }
        if let Some(tunnel) = method.tunnel
            && method != of.method.value
        {
            entries.push(Entry::new("tunnel", encapsulation(tunnel), place).essential());
        }
    }
    entries
}

fn encapsulation(tunnel: Encapsulation) -> Value {
    let mut entries = vec![Entry::implied("type", tunnel.kind.as_str()).essential()];
    if tunnel.port != 0 {
        entries.push(Entry::implied("port", u64::from(tunnel.port)));
    }
    if tunnel.checksum != TunnelChecksum::None {
        entries.push(Entry::implied("checksum", tunnel.checksum.as_str()));
    }
    Value::Table(entries)
}

fn quorum(pool: &mut Table, of: &Virtual, notes: &mut Notes) {
    const MOST: u64 = 1_000_000;
    if let Some((quorum, place)) = of.quorum.filter(|(quorum, _)| *quorum > 1) {
        pool.push(Entry::new("quorum", quorum.min(MOST), place));
        if quorum > MOST {
            notes.say(
                place,
                format!("the quorum became {MOST}, the largest there is"),
            );
        }
        if of.sorry.is_none() {
            let why = "without a sorry server the quorum decides nothing: the servers that are left go on";
            notes.say(place, why);
        }
    }
    if let Some((hysteresis, place)) = of.hysteresis.filter(|(value, _)| *value > 0) {
        pool.push(Entry::new("quorum_hysteresis", hysteresis.min(MOST), place));
    }
}

fn service(name: &str, of: &Virtual, from: Place) -> Table {
    let mut service = Table::new(&["service", name], from);
    let listen: Vec<Item> = of
        .listen
        .iter()
        .map(|(listen, place)| Item::new(listen.as_str(), Some(*place)))
        .collect();
    service.push(Entry::new("listen", listen, from).essential());
    let method = of.method.value;
    let place = of.method.from.unwrap_or(from);
    service.push(Entry::new("forward", method.forward.as_str(), place).essential());
    service.push(Entry::implied("pool", name).essential());
    if let Some(tunnel) = method.tunnel {
        service.push(Entry::new("tunnel", encapsulation(tunnel), place).essential());
    }
    if let Some(persistent) = &of.persistent {
        let timeout = time::show(persistent.seconds * 1000);
        let mut entries = vec![Entry::new("timeout", timeout, persistent.from)];
        if let Some((mask, place)) = persistent.mask {
            let key = if persistent.ipv6 {
                "netmask6"
            } else {
                "netmask"
            };
            entries.push(Entry::new(key, u64::from(mask), place));
        }
        service.push(Entry::new("persistence", entries, persistent.from));
    }
    if let Some(place) = of.one_packet {
        service.push(Entry::new("one_packet", true, place));
    }
    service
}
