//! Finds the TCP sockets that accept client connections to the VIPs, and reports ports without such a socket.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weir_doctor::Diagnosis;
use weir_netlink::{TcpState, tcp_sockets};

use crate::desired::DesiredState;

/// Returns the local addresses of all listening TCP sockets, or `None` if the sockets cannot be read.
pub(crate) fn listeners() -> Option<Vec<SocketAddr>> {
    let sockets = tcp_sockets(&[TcpState::Listen]).ok()?;
    Some(sockets.iter().map(|socket| socket.local).collect())
}

/// Reports TCP ports of VIPs without a listening socket.
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
                "configure the server program to listen on {}",
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
