//! `weir real-server doctor`: findings that keep this machine from serving its VIPs.
//!
//! Checks the settings of `up` that others have changed, and what `up` does not touch: listening sockets, ARP,
//! firewalls, settings that are lost at the next boot. Nothing is changed without `fix`, and then only what `up` itself
//! would change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use weir_netlink::{Netlink, TcpState, tcp_sockets};

use crate::apply::{Host, reconcile};
use crate::desired::Desired;
use crate::entry::{Role, host_prefix};
use crate::error::Result;
use crate::plan::{self, Actual, Memory, Step};
use crate::request::Options;
use crate::state::{self, State};
use weir_dataplane::real_server::object_id;
use weir_doctor::firewall::{self, End, INBOUND, OUTBOUND, Packet, Ruleset, Which};
use weir_doctor::manager::{self, Held};
use weir_doctor::{Diagnosis, checksum, conntrack, duplicate, persistence, source};

/// The problems found; empty = none is visible from this machine.
///
/// # Errors
/// The host cannot be read, or with `fix` a step is refused.
pub async fn doctor(options: &Options, fix: bool) -> Result<Vec<Diagnosis>> {
    let (desired, mut memory) = state::read_unlocked(options)?;
    let host = Host::open(options).await?;
    let actual = host.actual()?;
    let steps = plan::plan(&desired, &actual, &memory, object_id());
    let mut found: Vec<Diagnosis> = steps.iter().map(diagnosis).collect();
    if fix && !steps.is_empty() {
        let mut state = State::open(options)?;
        reconcile(&host, &mut state).await?;
        state.save()?;
        memory = state.memory;
        for one in &mut found {
            one.fixed = true;
        }
    }
    found.extend(checksum::wrong());
    found.extend(misplaced(&desired, &actual));
    found.extend(not_listening(&desired));
    found.extend(exposed(&desired, &actual));
    found.extend(addressed(&desired, &actual).await?);
    if !desired.entries.is_empty() {
        found.extend(forgotten(&memory, Path::new("/")));
        found.extend(conntrack::full());
        let firewall = firewall::read();
        found.extend(firewall.unseen);
        found.extend(dropped(&desired, &firewall.rules));
    }
    if desired.entries.is_empty() {
        found.push(
            Diagnosis::new(
                "this machine is prepared for no VIP",
                "under direct, tunnel and l3dsr a server must accept packets for the VIP without announcing it",
            )
            .fix("weir real-server up --forward direct --vip VIP"),
        );
    }
    Ok(found)
}

/// VIPs that are not usable here, or are used for other traffic than clients'.
async fn addressed(desired: &Desired, actual: &Actual) -> Result<Vec<Diagnosis>> {
    let netlink = Netlink::open()?;
    let addresses = netlink.addresses().await?;
    let vips = desired.held_vips();
    let interface = |index: u32| actual.interfaces.iter().find(|it| it.index == index);
    let name = |index| interface(index).map(|it| it.name.clone());
    let loopback = |index| interface(index).is_some_and(|it| it.loopback);
    let mut found = duplicate::unusable(&vips, &addresses, name);
    let held: Vec<Held> = addresses
        .iter()
        .filter(|address| vips.contains(&address.ip))
        .filter_map(|address| {
            Some(Held {
                vip: address.ip,
                prefix: address.prefix,
                ifindex: address.ifindex,
                device: name(address.ifindex)?,
            })
        })
        .collect();
    found.extend(manager::removed_vips(&held));
    found.extend(source::vip_sources(&vips, &addresses, loopback, &netlink).await?);
    Ok(found)
}

/// A step that `up` would take is a setting that others have changed.
fn diagnosis(step: &Step) -> Diagnosis {
    let why = match step {
        Step::SetSysctl { name, .. } if name.ends_with("arp_ignore") => {
            "this machine answers ARP for the VIP: clients and routers bypass the director"
        }
        Step::SetSysctl { name, .. } if name.ends_with("arp_announce") => {
            "ARP requests of this machine carry the VIP as sender: neighbours learn the VIP here"
        }
        Step::SetSysctl { .. } => {
            "packets of clients arrive on an interface that the route back does not use, and strict rp_filter drops \
             them"
        }
        Step::Programs { .. } => {
            "marked or encapsulated packets are not rewritten to the VIP, or replies not from it"
        }
        Step::AddAddress { .. } => "packets for the VIP are not this machine's own: it drops them",
        Step::RemovePrograms
        | Step::RemoveAddress { .. }
        | Step::RestoreSysctl { .. }
        | Step::ForgetSysctl { .. }
        | Step::ForgetAddress { .. } => "it is left over from settings that `down` has undone",
    };
    Diagnosis::new(
        format!("changed since it was set up: Weir would {step}"),
        why,
    )
    .fix("weir real-server doctor --fix")
}

/// VIPs on the wrong interface, or with the segment's prefix length.
fn misplaced(desired: &Desired, actual: &Actual) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for vip in desired.held_vips() {
        for interface in &actual.interfaces {
            let here = interface.addresses.iter().find(|(ip, _)| *ip == vip);
            let Some((_, length)) = here else { continue };
            let name = &interface.name;
            let full = host_prefix(vip);
            if !interface.loopback {
                found.push(
                    Diagnosis::new(
                        format!("the VIP {vip} is on {name}"),
                        "the kernel answers ARP for an address of the receiving interface whatever arp_ignore is, \
                         1 included",
                    )
                    .fix(format!("ip addr del {vip}/{length} dev {name}")),
                );
            } else if *length != full {
                found.push(
                    Diagnosis::new(
                        format!("the VIP {vip} has a prefix of {length} bits on {name}"),
                        "the machine accepts, and answers ARP for, every address of that prefix",
                    )
                    .fix(format!(
                        "ip addr del {vip}/{length} dev {name} && ip addr add {vip}/{full} dev {name}"
                    )),
                );
            }
        }
    }
    found
}

/// TCP ports of VIPs without a listening socket. Nothing is reported if sockets cannot be read.
fn not_listening(desired: &Desired) -> Vec<Diagnosis> {
    let Ok(sockets) = tcp_sockets(&[TcpState::Listen]) else {
        return Vec::new();
    };
    let listeners: Vec<SocketAddr> = sockets.iter().map(|socket| socket.local).collect();
    let mut found = Vec::new();
    let ports = desired.entries.iter().filter_map(|entry| {
        let (first, last) = entry.ports?;
        (first == last && entry.role.holds_vip()).then_some((entry.vip, first))
    });
    for (vip, port) in ports.collect::<BTreeSet<_>>() {
        let at_port = || listeners.iter().filter(|local| local.port() == port);
        if at_port().any(|local| accepts(*local, vip)) {
            continue;
        }
        let seen = match at_port().next() {
            Some(other) => format!("only {other} listens on port {port}, not the VIP {vip}"),
            None => format!("no socket listens on port {port}"),
        };
        found.push(
            Diagnosis::new(seen, "clients' connections to the VIP are refused").fix(format!(
                "let the server program listen on {}",
                SocketAddr::new(vip, port)
            )),
        );
    }
    found
}

/// Settings of `up` that are lost at the next boot, unless something calls it then.
fn forgotten(memory: &Memory, root: &Path) -> Vec<Diagnosis> {
    let set = memory.sysctls.iter();
    let set: BTreeMap<String, String> = set
        .map(|(name, changed)| (name.clone(), changed.set.clone()))
        .collect();
    if set.is_empty() || persistence::prepared_at_boot(root) {
        return Vec::new();
    }
    persistence::lost(
        &set,
        root,
        "after a boot with the VIP and without these settings, clients bypass the director or are dropped; systemctl \
         enable weir-real-server@VIP, or another unit that runs weir real-server up, also fixes it",
    )
}

/// Firewall rules that drop clients' packets or the answers to them.
fn dropped(desired: &Desired, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for entry in &desired.entries {
        let held = entry.role.holds_vip();
        // Without a mark packets are addressed to this machine.
        let port = entry
            .ports
            .and_then(|(first, last)| (first == last).then_some(first));
        let (mut syn, mut answer) = (
            Packet::syn(entry.vip, port),
            Packet::answer(entry.vip, port),
        );
        if !held {
            (syn.destination, answer.source) = (None, None);
        }
        let which = |end| Which::all(entry.vip.is_ipv4(), end, port).of(held.then_some(entry.vip));
        let why = "clients that the director sends here get no answer";
        if let Some(drop) = rules.drops(syn, INBOUND) {
            found.push(firewall::diagnosis(
                &drop,
                &format!("clients' packets for {entry}"),
                why,
                &which(End::Destination),
            ));
        } else {
            found.extend(conntrack::unknown(rules, syn));
        }
        if let Some(drop) = rules.drops(answer, OUTBOUND) {
            found.push(firewall::diagnosis(
                &drop,
                &format!("answers of {entry}"),
                why,
                &which(End::Source),
            ));
        }
    }
    found
}

fn accepts(local: SocketAddr, vip: IpAddr) -> bool {
    let any = local.ip().is_unspecified();
    local.ip() == vip || any && (local.is_ipv6() || vip.is_ipv4())
}

/// Forwarding on a server without the VIP: it sends packets for the VIP back to the director.
fn exposed(desired: &Desired, actual: &Actual) -> Vec<Diagnosis> {
    let direct = desired.entries.iter().any(|it| it.role == Role::Direct);
    let vips = desired.held_vips();
    let missing = |vip: &&IpAddr| {
        let mut interfaces = actual.interfaces.iter();
        !interfaces.any(|interface| interface.addresses.iter().any(|(ip, _)| ip == *vip))
    };
    let forwards = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")
        .is_ok_and(|value| value.trim() == "1");
    let gone: Vec<String> = vips
        .iter()
        .filter(missing)
        .map(ToString::to_string)
        .collect();
    if !(direct && forwards) || gone.is_empty() {
        return Vec::new();
    }
    vec![
        Diagnosis::new(
            format!(
                "IP forwarding is on, and this machine does not have {}",
                gone.join(", ")
            ),
            "it forwards clients' packets back to the director until their TTL expires",
        )
        .fix("weir real-server doctor --fix"),
    ]
}
