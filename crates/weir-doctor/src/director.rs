//! Implements `weir doctor` on a director.
//!
//! This module reads the configuration, the kernel's settings, the daemon's status and replies from neighbors. It
//! changes nothing: the daemon repairs its own settings, and the operator is responsible for all others.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_model::{Desired, Forward, NO_REPLY_LIFETIME, Server};
use weir_netlink::{Address, NetState, Netlink, Sysctl, resolve};

use crate::boot_setting::UNIT_DIRECTORIES;
use crate::down::down_server;
use crate::handshakes::{server_without_handshakes, service_without_handshakes};
use crate::manager::{self, AssignedVip};
use crate::server_path::{is_unresolved, parse_ip, replies_must_pass_director, return_route_fix};
use crate::{
    DaemonReport, Diagnosis, Disconnected, ServerReport, ServiceReport, claimant, duplicate, reach,
    slow, source, stack, tunnel,
};

/// Time limit for resolving link-layer addresses. The kernel sends a request every second, and one request or reply may
/// be lost.
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(2_500);
const RESOLVE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The discard port (RFC 863), the destination of empty datagrams.
const DISCARD_PORT: u16 = 9;

/// The daemon's state.
#[derive(Clone, Debug)]
pub enum Daemon {
    /// The daemon is running and reports this status.
    Running(DaemonReport),
    /// No daemon is running.
    NotRunning,
    /// The daemon is running but returned an error.
    Failed(String),
    /// A daemon is starting: it does not listen on its socket yet.
    Starting,
    /// This process is not allowed to access the daemon's socket at this path.
    NoAccess(PathBuf),
}

/// The problems on a director, and notes.
#[derive(Clone, Debug, Default)]
pub struct DirectorFindings {
    /// The problems, then the notes; causes precede their consequences.
    pub findings: Vec<Diagnosis>,
    /// Interfaces without a connection. Problems that these interfaces cause are omitted.
    pub disconnected: Disconnected,
}

/// Returns the problems on this director. `desired` includes services created with ipvsadm. `failover_vips` are the
/// VIPs that keepalived or Pacemaker moves between directors: only the active director has them.
///
/// # Errors
/// Fails if the network state cannot be read.
pub async fn director(
    desired: &Desired,
    daemon: &Daemon,
    failover_vips: &BTreeSet<IpAddr>,
) -> Result<DirectorFindings, weir_netlink::Error> {
    let netlink = Netlink::open()?;
    let empty_report = DaemonReport::default();
    let report = match daemon {
        Daemon::Running(report) => report,
        _ => &empty_report,
    };
    let reported = &report.services;
    let servers: BTreeSet<IpAddr> = desired
        .pools
        .iter()
        .flat_map(|pool| pool.servers.iter().chain(&pool.sorry))
        .filter_map(Server::ip)
        .collect();
    let peers = desired.sync.iter().flat_map(|sync| &sync.peers);
    let destinations: BTreeSet<IpAddr> = servers
        .iter()
        .copied()
        .chain(peers.map(SocketAddr::ip))
        .collect();
    let state = resolve_neighbors(&netlink, &servers, &destinations).await?;
    let disconnected = Disconnected::new(desired, &destinations, &state);
    let mut findings = Vec::new();
    findings.extend(daemon_finding(daemon, Path::new("/")));
    findings.extend(disconnected.findings());
    let is_running = !matches!(daemon, Daemon::NotRunning | Daemon::Starting);
    let vips = claimant::all_vips(desired);
    let claimants = claimant::claimants(desired, &state, (failover_vips, report), &vips);
    let mut remote_vips = failover_vips.clone();
    remote_vips.extend(claimants.unlisted_vips);
    findings.extend(missing_vips(
        desired,
        (&state, &disconnected),
        is_running,
        &remote_vips,
    ));
    findings.extend(duplicate::unusable_vips(
        &vips,
        &examined_addresses(&state, &disconnected),
        |index| state.links.get(&index).map(|link| link.name.clone()),
    ));
    findings.extend(source::director_sources(desired, &state));
    findings.extend(manager::removed_vips(&unmanaged_vips(desired, &state)));
    findings.extend(unresolved_servers(&servers, &state, &disconnected));
    findings.extend(icmp_redirects(desired, &netlink, &state));
    findings.extend(claimants.findings);
    findings.extend(stack::dropped_packets(desired, &netlink, &state));
    findings.extend(reach::unreachable_vips(
        desired,
        &state,
        &down_servers(reported),
        &unreachable_servers(desired, &disconnected),
    ));
    let local: BTreeSet<IpAddr> = state.addresses.iter().map(|address| address.ip).collect();
    let absent_vips: BTreeSet<IpAddr> = remote_vips.difference(&local).copied().collect();
    let absent = (&disconnected, &absent_vips);
    for finding in status_findings(reported, (desired, &state), absent) {
        // Two checks can find a router on the path to a server.
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings.extend(tunnel::small_mtus(desired, &state));
    Ok(DirectorFindings {
        findings,
        disconnected,
    })
}

/// Reports that the daemon's status is not available. `root` is `/` except in tests.
fn daemon_finding(daemon: &Daemon, root: &Path) -> Option<Diagnosis> {
    let not_examined = "problems that only the daemon's status shows, such as servers that are down, are not reported";
    Some(match daemon {
        Daemon::Running(_) => return None,
        Daemon::NotRunning => Diagnosis::new(
            "no daemon is running",
            "checks do not run, and nothing is repaired; only packets for services of an earlier daemon are still \
             forwarded",
        )
        .fix(start_command(root)),
        Daemon::Starting => {
            Diagnosis::new("a daemon is starting and does not respond yet", not_examined)
                .fix("repeat weir doctor after the daemon's log reports that it is ready")
        }
        Daemon::Failed(message) => Diagnosis::new(
            message,
            "packets are still forwarded; problems that only the daemon's status shows are not reported",
        ),
        Daemon::NoAccess(path) => Diagnosis::new(
            format!("the daemon was not examined: {}: permission denied", path.display()),
            not_examined,
        )
        .fix("run as root, or as a member of `socket_group` in [node]"),
    })
}

/// Returns the command that starts the daemon. If the unit is installed, a daemon that is started with `weir run` would
/// prevent the unit from starting.
fn start_command(root: &Path) -> &'static str {
    let is_installed = |directory| root.join(directory).join("weir.service").is_file();
    let mut directories = UNIT_DIRECTORIES.into_iter();
    if directories.any(is_installed) {
        "systemctl start weir"
    } else {
        "weir run"
    }
}

/// Makes the kernel resolve the servers' link-layer addresses, because neighbor entries expire without traffic. Returns
/// the network state with lookups of `destinations`.
async fn resolve_neighbors(
    netlink: &Netlink,
    servers: &BTreeSet<IpAddr>,
    destinations: &BTreeSet<IpAddr>,
) -> Result<NetState, weir_netlink::Error> {
    let mut state = netlink.state(destinations.iter().copied()).await?;
    for server in servers
        .iter()
        .filter(|server| is_unresolved(**server, &state))
    {
        trigger_resolution(*server);
    }
    let deadline = Instant::now() + RESOLVE_TIMEOUT;
    while servers.iter().any(|server| is_unresolved(*server, &state)) && Instant::now() < deadline {
        tokio::time::sleep(RESOLVE_POLL_INTERVAL).await;
        let neighbors = netlink.neighbors().await?.into_iter();
        state.neighbors = neighbors
            .map(|neighbor| ((neighbor.ifindex, neighbor.ip), neighbor))
            .collect();
    }
    Ok(state)
}

/// Makes the kernel resolve the link-layer address of a server or its router, by sending an empty datagram. If sending
/// fails, the address remains unknown.
fn trigger_resolution(server: IpAddr) {
    let unspecified: IpAddr = match server {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    if let Ok(socket) = UdpSocket::bind((unspecified, 0)) {
        let _ = socket.send_to(&[], (server, DISCARD_PORT));
    }
}

/// Returns the VIPs on this machine that Weir did not add and does not restore.
fn unmanaged_vips(desired: &Desired, state: &NetState) -> Vec<AssignedVip> {
    if desired.node.vip_interface.is_some() {
        return Vec::new();
    }
    let vips = claimant::all_vips(desired);
    let addresses = state
        .addresses
        .iter()
        .filter(|address| vips.contains(&address.ip));
    let assigned = addresses.filter_map(|address| {
        let link = state.links.get(&address.ifindex)?;
        Some(AssignedVip {
            vip: address.ip,
            prefix: address.prefix,
            ifindex: link.index,
            device: link.name.clone(),
        })
    });
    assigned.collect()
}

/// Returns this machine's addresses, without those whose duplicate address detection may be waiting for a carrier.
fn examined_addresses(state: &NetState, disconnected: &Disconnected) -> Vec<Address> {
    let addresses = state.addresses.iter();
    let is_examined = |it: &&Address| it.duplicate || !disconnected.contains_index(it.ifindex);
    addresses.filter(is_examined).cloned().collect()
}

/// Returns the servers behind interfaces without a connection.
fn unreachable_servers(desired: &Desired, disconnected: &Disconnected) -> Vec<String> {
    let servers = desired.pools.iter().flat_map(|pool| &pool.servers);
    let unreachable = servers.filter(|server| {
        let address = Server::ip(server);
        address.is_some_and(|address| disconnected.is_cause_for(address))
    });
    unreachable.map(|server| server.name.clone()).collect()
}

/// Returns the servers that are down according to their checks.
fn down_servers(reported: &[ServiceReport]) -> Vec<String> {
    let servers = reported.iter().flat_map(|service| &service.servers);
    let down = servers.filter(|server| server.state == "down");
    down.map(|server| server.address.clone()).collect()
}

/// Reports VIPs that are not on this machine. Skips VIPs in `remote_vips`, and VIPs of layer 4 services that
/// `[announce]` covers, which are routed to this machine. Skips all VIPs if Weir adds them and the daemon is not
/// running or the interface has no connection, because these causes are reported separately.
fn missing_vips(
    desired: &Desired,
    (state, disconnected): (&NetState, &Disconnected),
    is_running: bool,
    remote_vips: &BTreeSet<IpAddr>,
) -> Vec<Diagnosis> {
    let vip_interface = desired.node.vip_interface.as_deref();
    if vip_interface.is_some_and(|name| !is_running || disconnected.contains(name)) {
        return Vec::new();
    }
    let present: BTreeSet<IpAddr> = state.addresses.iter().map(|address| address.ip).collect();
    let device = state.links.values().find(|link| !link.loopback && link.up);
    let device = device.map_or("INTERFACE", |link| link.name.as_str());
    let device = vip_interface.unwrap_or(device);
    let layer_4 = claimant::layer_4_vips(desired);
    let proxied: BTreeSet<IpAddr> = desired.proxy_addresses().collect();
    let routed: BTreeSet<IpAddr> = desired.announced_addresses().collect();
    let is_routed = |vip: &IpAddr| routed.contains(vip) && !proxied.contains(vip);
    let consequence = |vip: &IpAddr| match (vip_interface, layer_4.contains(vip)) {
        (Some(_), _) => {
            "the daemon could not add it to `vip_interface`; its log contains the reason"
        }
        (None, true) => {
            "this machine does not reply to ARP requests for it: unless another director has it now, or a router sends \
             packets for it here, clients cannot reach it"
        }
        (None, false) => "clients cannot connect to the proxy service",
    };
    claimant::all_vips(desired)
        .difference(&present)
        .filter(|vip| !remote_vips.contains(vip) && !is_routed(vip))
        .map(|vip| {
            // A deprecated address is not the source of the director's own packets.
            let options = match vip.is_ipv4() {
                true => format!("32 dev {device}"),
                false => format!("128 dev {device} nodad preferred_lft 0"),
            };
            let observation = format!("no interface of this machine has the VIP {vip}");
            Diagnosis::new(observation, consequence(vip))
                .fix(format!("ip addr add {vip}/{options}"))
        })
        .collect()
}

/// Reports servers without a route or without a known link-layer address.
fn unresolved_servers(
    servers: &BTreeSet<IpAddr>,
    state: &NetState,
    disconnected: &Disconnected,
) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for server in servers {
        if disconnected.is_cause_for(*server) {
            continue;
        }
        if resolve(*server, state).is_empty() {
            findings.push(
                Diagnosis::new(
                    format!("there is no route to server {server}"),
                    "packets for it are dropped",
                )
                .fix("add a route to its network, or correct its address in the configuration"),
            );
        } else if is_unresolved(*server, state) {
            let protocol = if server.is_ipv4() {
                "ARP requests"
            } else {
                "neighbor solicitations"
            };
            findings.push(
                Diagnosis::new(
                    format!("server {server}, or the router to it, does not reply to {protocol}"),
                    "it is not running, or its address, VLAN or cabling is wrong",
                )
                .fix(format!(
                    "start the server, or correct its address or its network; then: ping -c 1 {server}"
                )),
            );
        }
    }
    findings
}

/// Reports devices that send ICMP redirects, if a service uses `nat` without source rewriting: replies must pass
/// through this machine.
fn icmp_redirects(desired: &Desired, netlink: &Netlink, state: &NetState) -> Vec<Diagnosis> {
    let with_nat = desired.services.iter().filter(|service| {
        let pool = desired.pool(&service.pool);
        let mut servers = pool.into_iter().flat_map(|pool| &pool.servers);
        service.snat.is_none() && servers.any(|server| server.forward_in(service) == Forward::Nat)
    });
    if with_nat.count() == 0 {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for device in state
        .links
        .values()
        .filter(|link| link.up && !link.loopback)
    {
        let read = |name: &str, key: &str| {
            let sysctl = Sysctl::for_device(false, name, key).ok()?;
            netlink.sysctl(&sysctl).ok()?.parse::<i64>().ok()
        };
        let redirects = read(&device.name, "send_redirects").max(read("all", "send_redirects"));
        let forwards = read(&device.name, "forwarding") == Some(1);
        if forwards && redirects == Some(1) {
            findings.push(
                Diagnosis::new(
                    format!("{} sends ICMP redirects", device.name),
                    "redirects make servers on the clients' segment reply to clients directly, bypassing the director",
                )
                .fix(format!(
                    "sysctl -w net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.{}.send_redirects=0",
                    device.name
                )),
            );
        }
    }
    findings
}

/// Returns the problems that the daemon's status shows. Skips problems with servers behind interfaces without a
/// connection. `absent_vips` are the VIPs that other directors may have, and that this machine does not have.
fn status_findings(
    reported: &[ServiceReport],
    (desired, state): (&Desired, &NetState),
    (disconnected, absent_vips): (&Disconnected, &BTreeSet<IpAddr>),
) -> Vec<Diagnosis> {
    let is_unreachable = |server: &ServerReport| {
        let address = parse_ip(&server.address);
        address.is_some_and(|address| disconnected.is_cause_for(address))
    };
    let mut findings = Vec::new();
    for service in reported {
        let name = &service.name;
        let mut configured = service.servers.iter().filter(|server| !server.removed);
        let is_usable = configured.clone().any(|server| server.effective_weight > 0);
        // Pools without servers are reported separately.
        if !is_usable && !configured.all(is_unreachable) {
            let finding = service_without_usable_server(service, desired, absent_vips);
            findings.push(finding);
        }
        let mut service = service.clone();
        service.servers.retain(|server| !is_unreachable(server));
        // Removed servers only serve their existing flows.
        let servers = service.servers.iter().filter(|server| !server.removed);
        findings.extend(slow::slow_servers(&service));
        for server in servers.clone() {
            findings.extend(ejected_server(name, server, (desired, state)));
            findings.extend(server_with_warning(name, server, (desired, state)));
            if server.state == "down" {
                findings.push(down_server(name, server, (desired, state)));
            }
        }
        let has_completed_handshake = |server: &ServerReport| {
            let handshakes = server.handshakes.as_ref();
            handshakes.is_some_and(|handshakes| handshakes.completed > 0)
        };
        if servers.clone().any(has_completed_handshake) {
            findings
                .extend(servers.filter_map(|server| {
                    server_without_handshakes(name, server, (desired, state))
                }));
        } else {
            findings.extend(service_without_handshakes(&service, (desired, state)));
        }
    }
    findings
}

/// Reports a service without a usable server. The fix enables a server that an operator has disabled, if there is one.
fn service_without_usable_server(
    service: &ServiceReport,
    desired: &Desired,
    absent_vips: &BTreeSet<IpAddr>,
) -> Diagnosis {
    let name = &service.name;
    // A removed server drains too, although no operator has disabled it.
    let servers = || service.servers.iter().filter(|server| !server.removed);
    let problem = format!(
        "service {name} has no usable server: {}",
        unusable_servers(servers())
    );
    let consequence = match is_standby(name, desired, absent_vips) {
        true => {
            "no client is affected while another director has the VIP; after a takeover, this director would reject \
             every client"
        }
        false => "every client is rejected",
    };
    let pool = desired.service(name).map(|service| &service.pool);
    let pool = pool.or_else(|| desired.proxy(name).map(|proxy| &proxy.pool));
    let finding = Diagnosis::new(problem, consequence);
    let disabled = servers().find(|server| is_disabled(server));
    let disabled = disabled.and_then(|server| Some((server.pool.as_ref().or(pool)?, server)));
    match disabled {
        Some((pool, server)) => finding.fix(format!("weir server {pool}/{} ready", server.address)),
        None => finding.fix("see the findings about its servers, or: weir status --down"),
    }
}

fn is_disabled(server: &ServerReport) -> bool {
    matches!(server.state.as_str(), "drain" | "maint")
}

/// Returns how many servers are unusable for each reason, for example `2 disabled by an operator, 1 down`.
fn unusable_servers<'a>(servers: impl Iterator<Item = &'a ServerReport>) -> String {
    let (mut disabled, mut down, mut others) = (0_usize, 0_usize, 0_usize);
    for server in servers {
        match server.state.as_str() {
            _ if is_disabled(server) => disabled += 1,
            "down" => down += 1,
            _ => others += 1,
        }
    }
    let counts = [
        (disabled, "disabled by an operator"),
        (down, "down"),
        (others, "with weight 0"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = counts
        .map(|(count, reason)| format!("{count} {reason}"))
        .collect();
    texts.join(", ")
}

/// Returns whether this machine has none of a service's VIPs, because another director may have them.
fn is_standby(service: &str, desired: &Desired, absent_vips: &BTreeSet<IpAddr>) -> bool {
    let layer_4 = desired.service(service).into_iter();
    let layer_4 = layer_4.flat_map(|service| &service.listen);
    let proxied = desired.proxy(service).into_iter();
    let proxied = proxied.flat_map(|proxy| &proxy.listen);
    let vips = layer_4.map(|listener| listener.address);
    let mut vips = vips.chain(proxied.map(SocketAddr::ip)).peekable();
    vips.peek().is_some() && vips.all(|vip| absent_vips.contains(&vip))
}

/// Reports an ejected server: client handshakes with it do not complete, or proxied requests to it fail. With `nat` and
/// without a check, its reply path may be the cause.
fn ejected_server(
    service: &str,
    server: &ServerReport,
    context: (&Desired, &NetState),
) -> Option<Diagnosis> {
    let ejected = server.ejected.as_ref()?;
    let observation = format!(
        "server {} of {service} is ejected: {}",
        server.address, ejected
    );
    let consequence = match server.forward.as_str() {
        "proxy" => "requests to it fail, although other servers of its pool work",
        _ => {
            "client handshakes do not complete: the server or a device on the path drops or resets SYNs"
        }
    };
    if !replies_must_pass_director(service, server, context.0) {
        let fix = ejected_server_fix(server);
        return Some(Diagnosis::new(observation, consequence).fix(fix));
    }
    let consequence = format!(
        "{consequence}; or its replies do not return through this machine. A check shows which is the case, \
         and keeps the server in use in the second case"
    );
    let return_route_fix = return_route_fix(service, server, context);
    Some(
        Diagnosis::new(observation, consequence)
            .fix(format!("add a check to the pool; then {return_route_fix}")),
    )
}

/// Returns the fix for an ejected server whose replies need not pass through this machine.
fn ejected_server_fix(server: &ServerReport) -> String {
    let cause = match server.forward.as_str() {
        "direct" | "tunnel" | "l3dsr" => {
            "on that server: weir real-server doctor, which reports a missing VIP, dropped packets, and this director \
             as the default gateway"
        }
        _ => "correct the server's application, or the firewalls on the path to it",
    };
    format!("{cause}; Weir retries the server automatically")
}

/// Reports a `nat` server whose replies do not pass through this machine.
fn server_with_warning(
    service: &str,
    server: &ServerReport,
    context: (&Desired, &NetState),
) -> Option<Diagnosis> {
    let warning = server.warning.as_ref()?;
    let observation = format!(
        "server {} of {service}: {} (last seen {} s ago)",
        server.address, warning.reason, warning.last_seen_seconds
    );
    let consequence = format!(
        "its clients time out: replies do not arrive, or arrive from the server's address and match no connection. \
         This finding ends with the server's next reply to a client, or {} min after the last SYN without a reply",
        NO_REPLY_LIFETIME.as_secs() / 60
    );
    let diagnosis = Diagnosis::new(observation, consequence);
    Some(diagnosis.fix(return_route_fix(service, server, context)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handshakes, ServerWarning};

    #[test]
    fn ejected_server_has_a_fix() {
        for (forward, fix) in [
            ("direct", "on that server: weir real-server doctor"),
            ("proxy", "correct the server's application"),
            (
                "nat",
                "add a check to the pool; then on the server: ip route",
            ),
        ] {
            let server = ServerReport {
                address: "10.0.0.5".to_owned(),
                forward: forward.to_owned(),
                ejected: Some("5 unanswered SYNs".to_owned()),
                ..ServerReport::default()
            };
            let (desired, state) = (Desired::default(), NetState::default());
            let found = ejected_server("web", &server, (&desired, &state));
            let found = found.expect("no finding").to_string();
            assert!(found.contains(&format!("fix:  {fix}")), "{found}");
        }
    }

    #[test]
    fn finding_about_a_warning_states_its_age_and_its_end() {
        let server = ServerReport {
            address: "10.0.0.5:80".to_owned(),
            forward: "nat".to_owned(),
            warning: Some(ServerWarning {
                reason: "8 SYNs received no reply".to_owned(),
                last_seen_seconds: 12,
            }),
            ..ServerReport::default()
        };
        let (desired, state) = (Desired::default(), NetState::default());
        let found = server_with_warning("web", &server, (&desired, &state)).expect("no finding");
        let seen = "server 10.0.0.5:80 of web: 8 SYNs received no reply (last seen 12 s ago)";
        assert_eq!(found.observation, seen);
        for end in [
            "ends with the server's next reply to a client",
            "5 min after the last SYN",
        ] {
            assert!(found.consequence.contains(end), "{found}");
        }
    }

    #[test]
    fn unavailable_daemon_is_reported() {
        let text =
            |daemon| daemon_finding(&daemon, Path::new("/nowhere")).map(|found| found.to_string());
        assert_eq!(text(Daemon::Running(DaemonReport::default())), None);
        let denied = text(Daemon::NoAccess("/run/weir/weir.sock".into()));
        let denied = denied.expect("no finding");
        assert!(
            denied.contains("not examined: /run/weir/weir.sock"),
            "{denied}"
        );
        let starting = text(Daemon::Starting).expect("no finding");
        assert!(
            starting.contains("is starting") && !starting.contains("weir run"),
            "{starting}"
        );
    }

    #[test]
    fn daemon_is_started_with_its_unit() {
        let root = std::env::temp_dir().join(format!("weir-daemon-{}", std::process::id()));
        let fix = || daemon_finding(&Daemon::NotRunning, &root).and_then(|found| found.fix);
        assert_eq!(fix().as_deref(), Some("weir run"));
        let units = root.join("usr/lib/systemd/system");
        std::fs::create_dir_all(&units).unwrap();
        std::fs::write(units.join("weir.service"), "").unwrap();
        assert_eq!(fix().as_deref(), Some("systemctl start weir"));
        std::fs::remove_dir_all(&root).unwrap();
    }

    /// A removed server keeps its flows, and keeps the service's previous forwarding method.
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
                    ..Handshakes::default()
                }),
                ..ServerReport::default()
            };
            let service = ServiceReport {
                name: "web".to_owned(),
                forward: "tunnel".to_owned(),
                servers: vec![server],
            };
            let (desired, state) = (Desired::default(), NetState::default());
            let none = (&Disconnected::default(), &BTreeSet::new());
            status_findings(&[service], (&desired, &state), none)
        };
        let count = |found: &[Diagnosis]| {
            found
                .iter()
                .filter(|diagnosis| diagnosis.to_string().contains("10.0.0.5"))
                .count()
        };
        assert_eq!(count(&found(false)), 1);
        assert_eq!(count(&found(true)), 0, "{:?}", found(true));
    }

    #[test]
    fn service_with_only_removed_servers_is_not_reported_as_disabled() {
        let server = |removed| ServerReport {
            address: "10.0.0.5".to_owned(),
            state: "drain".to_owned(),
            removed,
            ..ServerReport::default()
        };
        let found = |servers: &[bool]| {
            let service = ServiceReport {
                name: "web".to_owned(),
                servers: servers.iter().map(|removed| server(*removed)).collect(),
                ..ServiceReport::default()
            };
            let (desired, state) = (Desired::default(), NetState::default());
            let none = (&Disconnected::default(), &BTreeSet::new());
            status_findings(&[service], (&desired, &state), none).len()
        };
        assert_eq!((found(&[true]), found(&[])), (0, 0));
        assert_eq!((found(&[false]), found(&[true, false])), (1, 1));
    }

    #[test]
    fn service_without_usable_server_reports_fix_for_disabled_server() {
        let server = |address: &str, state: &str| ServerReport {
            address: address.to_owned(),
            state: state.to_owned(),
            ..ServerReport::default()
        };
        let service = |state: &str| ServiceReport {
            name: "web".to_owned(),
            forward: "nat".to_owned(),
            servers: vec![
                ServerReport {
                    removed: true,
                    ..server("10.0.0.4", "drain")
                },
                server("10.0.0.5", state),
                server("10.0.0.6", "up"),
            ],
        };
        let text = "[pool.p]\nservers = [\"10.0.0.5\", \"10.0.0.6\"]\n[service.web]\nforward = \"nat\"\npool = \"p\"\n\
                    listen = [\"192.0.2.1:80\"]\n";
        let desired = weir_config::parse(text, &weir_config::Host::default());
        let desired = desired.unwrap().desired;
        let text = |state: &str, absent_vips: &[&str]| {
            let absent_vips = absent_vips.iter().map(|vip| vip.parse().unwrap());
            service_without_usable_server(&service(state), &desired, &absent_vips.collect())
                .to_string()
        };
        let found = text("maint", &["192.0.2.7"]);
        for part in [
            "no usable server: 1 disabled by an operator, 1 with weight 0\n",
            "why:  every client is rejected\n",
            "fix:  weir server p/10.0.0.5 ready\n",
        ] {
            assert!(found.contains(part), "{found}");
        }
        let found = text("down", &[]);
        assert!(
            found.contains("no usable server: 1 down, 1 with weight 0\n"),
            "{found}"
        );
        assert!(
            found.contains("fix:  see the findings about its servers"),
            "{found}"
        );
        let mut routed = service("drain");
        routed.servers[1].pool = Some("other".to_owned());
        let found = service_without_usable_server(&routed, &desired, &BTreeSet::new());
        assert_eq!(
            found.fix.as_deref(),
            Some("weir server other/10.0.0.5 ready")
        );
        // On a backup, the director that has the VIP receives the clients.
        let found = text("drain", &["192.0.2.1", "192.0.2.7"]);
        assert!(
            found.contains("why:  no client is affected while another"),
            "{found}"
        );
        assert!(
            found.contains("fix:  weir server p/10.0.0.5 ready"),
            "{found}"
        );
    }
}
