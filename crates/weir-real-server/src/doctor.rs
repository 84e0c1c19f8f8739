//! `weir real-server doctor`: what on this machine keeps it from serving its VIPs.
//!
//! Looks at what `up` set and others changed, and at what `up` does not touch: who listens, what answers ARP, which
//! firewall drops, what the next boot forgets. Nothing is changed without `fix`, and then only what `up` itself would
//! do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use weir_netlink::{Netlink, TcpState, tcp_sockets};

use crate::apply::Host;
use crate::desired::{Desired, Role};
use crate::plan::{self, Actual, Memory, Step};
use crate::state::{self, State};
use crate::{Options, Result, reconcile};
use weir_dataplane::real_server::object_id;
use weir_doctor::firewall::{self, End, INBOUND, OUTBOUND, Packet, Ruleset, Which};
use weir_doctor::manager::{self, Held};
use weir_doctor::{Diagnosis, checksum, conntrack, duplicate, persistence, source};

/// What is wrong here; empty = nothing that can be seen from this machine.
///
/// # Errors
/// The host cannot be read, or with `fix` a step is refused.
pub async fn doctor(options: &Options, fix: bool) -> Result<Vec<Diagnosis>> {
    let (desired, mut memory) = state::look(options)?;
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
    found.extend(unheard(&desired));
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
                "under direct, tunnel and l3dsr a server must take packets for the VIP and be silent about it",
            )
            .fix("weir real-server up --forward direct --vip VIP"),
        );
    }
    Ok(found)
}

/// VIPs that are not usable here, or are used for what is not a client's.
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
    found.extend(manager::takers(&held));
    found.extend(source::chosen(&vips, &addresses, loopback, &netlink).await?);
    Ok(found)
}

/// A step that `up` would take is something that others undid.
fn diagnosis(step: &Step) -> Diagnosis {
    let why = match step {
        Step::SetSysctl { name, .. } if name.ends_with("arp_ignore") => {
            "this machine answers ARP for the VIP: clients and routers come here past the director"
        }
        Step::SetSysctl { name, .. } if name.ends_with("arp_announce") => {
            "ARP requests of this machine carry the VIP as sender: neighbours learn the VIP here"
        }
        Step::SetSysctl { .. } => {
            "packets of clients come in where their way back does not lead, and strict rp_filter drops them"
        }
        Step::Programs { .. } => {
            "marked or encapsulated packets are not turned into the VIP's, or replies not into its"
        }
        Step::AddAddress { .. } => "packets for the VIP are not this machine's own: it drops them",
        Step::RemovePrograms
        | Step::RemoveAddress { .. }
        | Step::RestoreSysctl { .. }
        | Step::ForgetSysctl { .. }
        | Step::ForgetAddress { .. } => "it was left over from what `down` has taken back",
    };
    Diagnosis::new(format!("not as it was set up: Weir would {step}"), why)
        .fix("weir real-server doctor --fix")
}

/// VIPs where they do harm: on an interface of the segment, or with the segment's prefix length.
fn misplaced(desired: &Desired, actual: &Actual) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for vip in desired.held_vips() {
        for interface in &actual.interfaces {
            let here = interface.addresses.iter().find(|(ip, _)| *ip == vip);
            let Some((_, length)) = here else { continue };
            let name = &interface.name;
            let full = plan::host_prefix(vip);
            if !interface.loopback {
                found.push(
                    Diagnosis::new(
                        format!("the VIP {vip} is on {name}"),
                        "an address of the interface that the question comes in by is answered whatever arp_ignore says, \
                         1 included",
                    )
                    .fix(format!("ip addr del {vip}/{length} dev {name}")),
                );
            } else if *length != full {
                found.push(
                    Diagnosis::new(
                        format!("the VIP {vip} has a prefix of {length} bits on {name}"),
                        "the machine takes, and answers ARP for, every address of that prefix",
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

/// TCP ports of VIPs at which nobody listens. Where the kernel does not tell, nothing is said.
fn unheard(desired: &Desired) -> Vec<Diagnosis> {
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
        if at_port().any(|local| hears(*local, vip)) {
            continue;
        }
        let seen = match at_port().next() {
            Some(other) => format!("only {other} listens on port {port}, not the VIP {vip}"),
            None => format!("nobody listens on port {port}"),
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

/// Settings that `up` has made and the next boot has not, where nothing calls it then.
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
        "a boot after which the VIP is there and these are not takes clients past the director, or drops them; systemctl enable \
         weir-real-server@VIP, or another unit that runs weir real-server up, would do as well",
    )
}

/// What the firewall does to clients and to the answers that they get.
fn dropped(desired: &Desired, rules: &Ruleset) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for entry in &desired.entries {
        let held = entry.role.holds_vip();
        // Without a mark packets come for this machine's own address.
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

fn hears(local: SocketAddr, vip: IpAddr) -> bool {
    let any = local.ip().is_unspecified();
    local.ip() == vip || any && (local.is_ipv6() || vip.is_ipv4())
}

/// What others may have set besides: forwarding on a server sends packets for a VIP that is missing back to the
/// director.
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
                "this machine forwards, and does not have {}",
                gone.join(", ")
            ),
            "it sends clients' packets on, back to the director, until their TTL is used up",
        )
        .fix("weir real-server doctor --fix"),
    ]
}
