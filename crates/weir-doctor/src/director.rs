//! The findings of a director.
//!
//! Reads the configuration, the kernel's settings, the daemon's status and the neighbours on the wire. Changes nothing:
//! the daemon repairs its own settings, and the others belong to the operator.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weir_model::{Desired, Forward};
use weir_netlink::{Link, NetState, Netlink, Sysctl, resolve};

use crate::manager::{self, Held};
use crate::{Diagnosis, ServerReport, ServiceReport, claimant, duplicate, reach, stack};

/// Time limit for resolving link addresses. The kernel asks once a second, and one request or answer may be lost.
const RESOLVING: Duration = Duration::from_millis(2_500);
const RESOLVING_POLL: Duration = Duration::from_millis(50);

/// The discard port (RFC 863); the datagrams are empty.
const DISCARD: u16 = 9;

/// The daemon, as far as this process can see it.
#[derive(Clone, Debug)]
pub enum Daemon {
    /// It runs and reports these services.
    Answers(Vec<ServiceReport>),
    /// No daemon runs.
    Absent,
    /// It runs and its answer is an error.
    Fails(String),
    /// This process may not use its socket.
    Closed,
}

/// What is wrong here, by the services of the configuration, with those of ipvsadm, and by what the daemon reports.
/// `moving` = VIPs that keepalived or Pacemaker adds, which a standby does not have.
///
/// # Errors
/// The network cannot be read.
pub async fn director(
    desired: &Desired,
    daemon: &Daemon,
    moving: &BTreeSet<IpAddr>,
) -> Result<Vec<Diagnosis>, weir_netlink::Error> {
    let netlink = Netlink::open()?;
    let reported = match daemon {
        Daemon::Answers(services) => services.as_slice(),
        _ => &[],
    };
    let servers: BTreeSet<IpAddr> = desired
        .pools
        .iter()
        .flat_map(|pool| pool.servers.iter().chain(&pool.sorry))
        .map(|server| server.address)
        .collect();
    let state = resolved(&netlink, &servers).await?;
    let mut found = Vec::new();
    match daemon {
        Daemon::Absent => found.push(
            Diagnosis::new(
                "no daemon runs",
                "packets are still forwarded, but checks do not run and nothing is repaired",
            )
            .fix("weir run"),
        ),
        Daemon::Fails(how) => found.push(Diagnosis::new(
            how,
            "packets are still forwarded; findings from the daemon's status are missing",
        )),
        Daemon::Answers(_) | Daemon::Closed => {}
    }
    let runs = !matches!(daemon, Daemon::Absent);
    found.extend(vips(desired, &state, runs, moving));
    found.extend(duplicate::unusable(
        &addresses(desired),
        &state.addresses,
        |index| state.links.get(&index).map(|link| link.name.clone()),
    ));
    found.extend(manager::removed_vips(&held(desired, &state)));
    found.extend(unresolved(&servers, &state));
    found.extend(nat(desired, &netlink, &state));
    found.extend(sizes(desired, &state));
    found.extend(claimant::claimants(desired, &state, moving));
    found.extend(stack::obstacles(desired));
    found.extend(reach::unreachable_vips(desired, &state, &down(reported)));
    found.extend(by_status(reported, desired, &state));
    Ok(found)
}

/// The network, once the kernel has looked for the servers' neighbours: it forgets those that were not used for a
/// while.
async fn resolved(
    netlink: &Netlink,
    servers: &BTreeSet<IpAddr>,
) -> Result<NetState, weir_netlink::Error> {
    let mut state = netlink.state(servers.iter().copied()).await?;
    for server in servers.iter().filter(|it| is_unresolved(**it, &state)) {
        prompt(*server);
    }
    let deadline = Instant::now() + RESOLVING;
    while servers.iter().any(|it| is_unresolved(*it, &state)) && Instant::now() < deadline {
        tokio::time::sleep(RESOLVING_POLL).await;
        let neighbours = netlink.neighbours().await?.into_iter();
        state.neighbours = neighbours.map(|it| ((it.ifindex, it.ip), it)).collect();
    }
    Ok(state)
}

/// Whether packets for a server would wait for a link address.
fn is_unresolved(server: IpAddr, state: &NetState) -> bool {
    let ways = resolve(server, state);
    !ways.is_empty() && ways.iter().all(|way| !way.local && way.mac.is_none())
}

/// Makes the kernel resolve a server's link address, or its router's, by sending an empty datagram there. If it cannot
/// be sent the address remains unknown.
fn prompt(server: IpAddr) {
    let any: IpAddr = match server {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    if let Ok(socket) = UdpSocket::bind((any, 0)) {
        let _ = socket.send_to(&[], (server, DISCARD));
    }
}

/// The VIPs of all services.
fn addresses(desired: &Desired) -> BTreeSet<IpAddr> {
    let mut all = claimant::listeners(desired);
    all.extend(desired.proxied_addresses());
    all
}

/// VIPs on devices that Weir did not add and does not restore.
fn held(desired: &Desired, state: &NetState) -> Vec<Held> {
    if desired.node.vip_interface.is_some() {
        return Vec::new();
    }
    let vips = addresses(desired);
    let addresses = state.addresses.iter().filter(|it| vips.contains(&it.ip));
    let held = addresses.filter_map(|address| {
        let link = state.links.get(&address.ifindex)?;
        Some(Held {
            vip: address.ip,
            prefix: address.prefix,
            ifindex: link.index,
            device: link.name.clone(),
        })
    });
    held.collect()
}

/// Servers that are down by their checks.
fn down(reported: &[ServiceReport]) -> Vec<String> {
    let servers = reported.iter().flat_map(|service| &service.servers);
    let down = servers.filter(|server| server.state == "down");
    down.map(|server| server.address.clone()).collect()
}

/// VIPs that this machine lacks. Those that Weir adds are missing while no daemon `runs`, which is reported on its own;
/// those that are `moving` are missing on a standby.
fn vips(
    desired: &Desired,
    state: &NetState,
    runs: bool,
    moving: &BTreeSet<IpAddr>,
) -> Vec<Diagnosis> {
    let added_to = desired.node.vip_interface.as_deref();
    if added_to.is_some() && !runs {
        return Vec::new();
    }
    let here: BTreeSet<IpAddr> = state.addresses.iter().map(|address| address.ip).collect();
    let device = state.links.values().find(|link| !link.loopback && link.up);
    let device = device.map_or("INTERFACE", |link| link.name.as_str());
    let device = added_to.unwrap_or(device);
    let layer_4 = claimant::listeners(desired);
    let why = |vip: &IpAddr| match (added_to, layer_4.contains(vip)) {
        (Some(_), _) => "the daemon could not add it to `vip_interface`; its log has the reason",
        (None, true) => {
            "no machine answers ARP for it: unless a router sends its packets here, no client reaches it"
        }
        (None, false) => "without it, no connection reaches the proxy service",
    };
    addresses(desired)
        .difference(&here)
        .filter(|vip| !moving.contains(vip))
        .map(|vip| {
            let length = if vip.is_ipv4() { 32 } else { 128 };
            let what = format!("the VIP {vip} is on no interface of this machine");
            Diagnosis::new(what, why(vip)).fix(format!("ip addr add {vip}/{length} dev {device}"))
        })
        .collect()
}

/// Servers without a route or without a resolved neighbour.
fn unresolved(servers: &BTreeSet<IpAddr>, state: &NetState) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for server in servers {
        if resolve(*server, state).is_empty() {
            found.push(Diagnosis::new(
                format!("no route leads to server {server}"),
                "packets for it are dropped",
            ));
        } else if is_unresolved(*server, state) {
            let asked = if server.is_ipv4() {
                "ARP"
            } else {
                "neighbour discovery"
            };
            found.push(Diagnosis::new(
                format!("server {server}, or the router to it, does not answer {asked}"),
                "it is off, or its address, VLAN or cabling is wrong",
            ));
        }
    }
    found
}

/// Under nat without source rewriting replies must pass this machine, and must not be redirected past it.
fn nat(desired: &Desired, netlink: &Netlink, state: &NetState) -> Vec<Diagnosis> {
    let translated = desired.services.iter().filter(|service| {
        let pool = desired.pool(&service.pool);
        let mut servers = pool.into_iter().flat_map(|pool| &pool.servers);
        service.snat.is_none() && servers.any(|it| it.forward_in(service) == Forward::Nat)
    });
    if translated.count() == 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    for device in state
        .links
        .values()
        .filter(|link| link.up && !link.loopback)
    {
        let reads = |name: &str, key: &str| {
            let sysctl = Sysctl::of_device(false, name, key).ok()?;
            netlink.sysctl(&sysctl).ok()?.parse::<i64>().ok()
        };
        let redirects = reads(&device.name, "send_redirects").max(reads("all", "send_redirects"));
        let forwards = reads(&device.name, "forwarding") == Some(1);
        if forwards && redirects == Some(1) {
            found.push(
                Diagnosis::new(
                    format!("{} sends ICMP redirects", device.name),
                    "redirects make servers on the clients' segment answer clients directly, bypassing the director",
                )
                .fix(format!(
                    "sysctl -w net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.{}.send_redirects=0",
                    device.name
                )),
            );
        }
    }
    found
}

/// Tunnels whose outer packets exceed the MTU.
fn sizes(desired: &Desired, state: &NetState) -> Vec<Diagnosis> {
    const ETHERNET: u32 = 1500;
    let mut devices = BTreeSet::new();
    for service in &desired.services {
        let pool = desired.pool(&service.pool);
        for server in pool.into_iter().flat_map(|pool| &pool.servers) {
            if server.forward_in(service) == Forward::Tunnel {
                let ways = resolve(server.address, state);
                devices.extend(ways.iter().map(|way| way.device));
            }
        }
    }
    let narrow = devices.iter().filter_map(|device| state.links.get(device));
    narrow
        .filter(|link: &&Link| link.mtu <= ETHERNET)
        .map(|link| {
            Diagnosis::new(
                format!("tunnels leave by {}, whose MTU is {}", link.name, link.mtu),
                "full-sized packets of clients do not fit with another header: each client gets an ICMP error once, \
                 and a client whose network drops ICMP hangs",
            )
            .fix(format!(
                "ip link set {} mtu 1600, where the network carries it; or an MSS clamp on the servers: ip route \
                 change default … advmss 1400",
                link.name
            ))
        })
        .collect()
}

/// Findings from the daemon's status.
fn by_status(reported: &[ServiceReport], desired: &Desired, state: &NetState) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for service in reported {
        let name = &service.name;
        let usable = service.servers.iter().any(|it| it.effective_weight > 0);
        if !usable && !service.servers.is_empty() {
            found.push(Diagnosis::new(
                format!("service {name} has no usable server"),
                "every client is refused",
            ));
        }
        // Removed servers only keep their flows.
        let servers = service.servers.iter().filter(|server| !server.removed);
        for server in servers.clone() {
            found.extend(ejected(name, server, (desired, state)));
            found.extend(silent(name, server, (desired, state)));
            if server.state == "down" {
                found.push(Diagnosis::new(
                    format!(
                        "server {} of {name} is down: {}",
                        server.address, server.reason
                    ),
                    "it gets no clients",
                ));
            }
        }
        let finishes = |it: &ServerReport| it.handshakes.is_some_and(|it| it.finished > 0);
        if servers.clone().any(finishes) {
            found.extend(servers.filter_map(|it| fruitless(name, it, (desired, state))));
        } else {
            found.extend(unfinished(service));
        }
    }
    found
}

/// Clients' handshakes with it do not finish. Under nat without a check the path of its replies may be the reason.
fn ejected(
    service: &str,
    server: &ServerReport,
    context: (&Desired, &NetState),
) -> Option<Diagnosis> {
    let ejected = server.ejected.as_ref()?;
    let seen = format!(
        "server {} of {service} is ejected: {}",
        server.address, ejected
    );
    let why = "clients' handshakes with it do not finish: it drops or resets SYNs, or a device on the path does";
    if !returns_here(service, server, context.0) {
        return Some(Diagnosis::new(seen, why));
    }
    let why = format!(
        "{why}; or its replies do not come back through this machine, which must be its default gateway. A check \
         shows which of these it is, and keeps it in use in the latter case"
    );
    let way_back = way_back(service, server, context);
    Some(Diagnosis::new(seen, why).fix(format!("a check in the pool; then {way_back}")))
}

/// Whether a server's replies must come through this machine: under nat without source rewriting.
fn returns_here(service: &str, server: &ServerReport, desired: &Desired) -> bool {
    let service = desired.service(service);
    server.forward == "nat" && service.is_none_or(|service| service.snat.is_none())
}

/// Under nat replies must pass this machine; this server's do not.
fn silent(
    service: &str,
    server: &ServerReport,
    context: (&Desired, &NetState),
) -> Option<Diagnosis> {
    let warning = server.warning.as_ref()?;
    let diagnosis = Diagnosis::new(
        format!("server {} of {service}: {}", server.address, warning),
        "its clients time out: replies do not arrive, or arrive from the server's own address and match no connection",
    );
    Some(diagnosis.fix(way_back(service, server, context)))
}

/// The fix that routes a server's replies through this machine.
fn way_back(
    service: &str,
    server: &ServerReport,
    (desired, state): (&Desired, &NetState),
) -> String {
    let address = host_of(&server.address);
    let own = address.and_then(|server| address_towards(server, desired, state));
    let own = own.map(|own| own.to_string());
    let own = own.unwrap_or_else(|| "DIRECTOR".to_owned());
    let family = match address {
        Some(IpAddr::V6(_)) => "-6 ",
        _ => "",
    };
    format!(
        "on the server: ip {family}route replace default via {own}; for clients on its own segment a route to them \
         via {own}; or `snat = true` in {}",
        weir_config::header(&["service", service])
    )
}

/// The address of a server as it is written in the file, with or without a port.
fn host_of(written: &str) -> Option<IpAddr> {
    let with_port = written.parse::<SocketAddr>().map(|it| it.ip());
    written.parse().or(with_port).ok()
}

/// This machine's address in a server's network.
fn address_towards(server: IpAddr, desired: &Desired, state: &NetState) -> Option<IpAddr> {
    let vips = claimant::listeners(desired);
    let mut own = state.addresses.iter();
    let found = own.find(|it| !vips.contains(&it.ip) && is_in(server, it.ip, it.prefix));
    found.map(|address| address.ip)
}

/// Whether an address is in the network of another.
fn is_in(address: IpAddr, of: IpAddr, prefix: u8) -> bool {
    let (differs, width) = match (address, of) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits() ^ b.to_bits()) << 96, 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), 128),
        _ => return false,
    };
    differs.leading_zeros() >= u32::from(prefix.min(width))
}

/// Number of SYNs without an established connection that is reported.
const MIN_SYNS: u64 = 10;

/// No handshake with this server finishes, although those with others do.
fn fruitless(
    service: &str,
    server: &ServerReport,
    context: (&Desired, &NetState),
) -> Option<Diagnosis> {
    let syns = server
        .handshakes
        .as_ref()
        .filter(|it| it.finished == 0)?
        .syns;
    let is_named = server.warning.is_some() || server.ejected.is_some() || server.state == "down";
    if syns < MIN_SYNS || is_named {
        return None;
    }
    let seen = format!(
        "{syns} SYNs went to server {} of {service}, and no client ever finished",
        server.address
    );
    Some(if returns_here(service, server, context.0) {
        let why = "it does not answer, or its replies do not come back through this machine, which must be its \
         default gateway";
        Diagnosis::new(seen, why).fix(way_back(service, server, context))
    } else {
        let why = "handshakes with other servers do finish: it does not have the VIP, its firewall drops them, or \
         its answers are lost";
        Diagnosis::new(seen, why).fix("on that server: weir real-server doctor")
    })
}

/// No handshake with any server finishes: packets from the VIP are lost on their path.
fn unfinished(service: &ServiceReport) -> Option<Diagnosis> {
    let servers = service.servers.iter().filter(|server| !server.removed);
    let syns: u64 = servers
        .filter_map(|it| it.handshakes.map(|it| it.syns))
        .sum();
    let is_named = service.servers.iter().any(|it| it.warning.is_some());
    if syns < MIN_SYNS || is_named {
        return None;
    }
    if service.forward == "nat" {
        return Some(Diagnosis::new(
            format!(
                "{syns} SYNs went to the servers of {}, and no client ever finished",
                service.name
            ),
            "the servers do not answer, or, without `snat`, their replies do not come back through this machine: its \
             address in their network must be their default gateway. A check shows which of the two it is",
        ));
    }
    Some(
        Diagnosis::new(
            format!(
                "{syns} SYNs reached the servers of {}, and no client ever finished",
                service.name
            ),
            "the servers' answers come from the VIP: a router, switch or firewall upstream drops packets whose source \
             does not belong there (reverse path filter, port security, source guard), a stateful firewall on the path \
             sees one direction only and drops packets as invalid, or no server has the VIP",
        )
        .fix("a check with via = \"both\" shows which; then let packets from the VIP pass upstream"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handshakes;

    /// A removed server keeps its flows, and the method of the service that it had.
    #[test]
    fn removed_servers_are_not_reported() {
        let found = |removed: bool| {
            let server = ServerReport {
                address: "10.0.0.5".to_owned(),
                forward: "nat".to_owned(),
                state: "down".to_owned(),
                removed,
                handshakes: Some(Handshakes {
                    syns: 16,
                    finished: 0,
                }),
                ..ServerReport::default()
            };
            let service = ServiceReport {
                name: "web".to_owned(),
                forward: "tunnel".to_owned(),
                servers: vec![server],
            };
            by_status(&[service], &Desired::default(), &NetState::default())
        };
        let about = |found: &[Diagnosis]| {
            found
                .iter()
                .filter(|it| it.to_string().contains("10.0.0.5"))
                .count()
        };
        assert_eq!(about(&found(false)), 1);
        assert_eq!(about(&found(true)), 0, "{:?}", found(true));
    }

    #[test]
    fn network_membership() {
        let is_in = |address: &str, of: &str, prefix| {
            is_in(address.parse().unwrap(), of.parse().unwrap(), prefix)
        };
        assert!(is_in("10.0.0.5", "10.0.0.1", 24));
        assert!(!is_in("10.0.1.5", "10.0.0.1", 24));
        assert!(!is_in("10.0.0.5", "10.0.0.4", 32));
        assert!(is_in("10.0.0.5", "10.0.0.5", 32));
        assert!(is_in("fd71::14", "fd71::3", 64));
        assert!(!is_in("fd71::14", "10.0.0.1", 0));
    }
}
