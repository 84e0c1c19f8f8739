//! Finds the TCP sockets that accept client connections to the VIPs, and reports ports without such a socket.
//!
//! The protocol of a VIP's port is not configured: a port on which only a UDP socket receives is taken for a UDP
//! service.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};

use weir_doctor::Diagnosis;
use weir_netlink::{TcpState, tcp_sockets};

use crate::desired::DesiredState;

/// Returns the local addresses of all listening TCP sockets, or `None` if the sockets cannot be read.
pub(crate) fn listeners() -> Option<Vec<SocketAddr>> {
    let sockets = tcp_sockets(&[TcpState::Listen]).ok()?;
    Some(sockets.iter().map(|socket| socket.local).collect())
}

/// Returns the ports of all UDP sockets; empty if they cannot be read.
pub(crate) fn udp_ports() -> BTreeSet<u16> {
    let files = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let texts = files.map(|file| fs::read_to_string(file).unwrap_or_default());
    texts
        .iter()
        .flat_map(|text| parse_udp_ports(text))
        .collect()
}

/// Returns the local ports in a table of sockets (proc_pid_net(5)). The first line names the columns.
fn parse_udp_ports(table: &str) -> impl Iterator<Item = u16> {
    table.lines().skip(1).filter_map(|line| {
        let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    })
}

/// Returns the VIPs without those whose only port has UDP sockets and no TCP listener.
pub(crate) fn without_udp_services(
    desired: &DesiredState,
    listeners: &[SocketAddr],
    udp_ports: &BTreeSet<u16>,
) -> DesiredState {
    let mut with_tcp = desired.clone();
    with_tcp.entries.retain(|entry| {
        let (first, last) = entry.ports_or_all();
        let has_listener = || listeners.iter().any(|local| local.port() == first);
        first != last || !udp_ports.contains(&first) || has_listener()
    });
    with_tcp
}

/// Reports each VIP with a single port on which no TCP socket accepts connections to it, for roles that need the VIP on
/// `lo`.
pub(crate) fn missing_listeners(
    desired: &DesiredState,
    listeners: &[SocketAddr],
) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    let ports = desired.entries.iter().filter_map(|entry| {
        let (first, last) = entry.ports?;
        (first == last && entry.role.needs_loopback_vip()).then_some((entry.vip, first))
    });
    for (vip, port) in ports.collect::<BTreeSet<_>>() {
        let on_port = || listeners.iter().filter(|local| local.port() == port);
        if on_port().any(|local| accepts(*local, vip)) {
            continue;
        }
        let observation = match on_port().next() {
            Some(other) => {
                format!("a socket listens on {other}, but none on port {port} of the VIP {vip}")
            }
            None => format!("no socket listens on port {port}"),
        };
        findings.push(
            Diagnosis::new(observation, "client connections to the VIP are rejected").fix(format!(
                "start the server program, and configure it to listen on {} or on all addresses",
                SocketAddr::new(vip, port)
            )),
        );
    }
    findings
}

/// Returns whether a socket that listens on `local` accepts connections to the VIP.
pub(crate) fn accepts(local: SocketAddr, vip: IpAddr) -> bool {
    let is_wildcard = local.ip().is_unspecified();
    local.ip() == vip || is_wildcard && (local.is_ipv6() || vip.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Role};

    const UDP_TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  312: 00000000:0202 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 17 2 0000000000000000 0
";

    #[test]
    fn port_of_a_udp_service_needs_no_tcp_listener() {
        let udp_ports: BTreeSet<u16> = parse_udp_ports(UDP_TABLE).collect();
        assert_eq!(udp_ports, [514].into());
        let vip = IpAddr::from([192, 0, 2, 10]);
        let entry = |port: u16| Entry {
            vip,
            ports: Some((port, port)),
            role: Role::Direct,
        };
        let desired = DesiredState {
            entries: [entry(80), entry(514)].into(),
            ..DesiredState::default()
        };
        let observations = |listeners: &[SocketAddr]| {
            let with_tcp = without_udp_services(&desired, listeners, &udp_ports);
            let found = missing_listeners(&with_tcp, listeners).into_iter();
            found.map(|it| it.observation).collect::<Vec<_>>()
        };
        assert_eq!(observations(&[]), ["no socket listens on port 80"]);
        let on_other = [SocketAddr::from(([10, 0, 0, 5], 514))];
        assert_eq!(
            observations(&on_other).len(),
            2,
            "the service has a TCP listener too"
        );
    }
}
