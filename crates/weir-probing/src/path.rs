//! Probes through a service's forward: registers a probe's packets with the tc programs and reads what they observed.
//!
//! With `direct`, `tunnel` and `l3dsr` the socket uses the server's address. The tc programs rewrite outgoing packets
//! to those of a client, with the VIP as destination, and rewrite replies from the VIP to the server's address. With
//! `nat` the packets are already addressed to the server: the socket is bound to the VIP, so that the server's replies
//! must return through the director.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use socket2::Socket;
use tokio::task::spawn_blocking;
use weir_abi::{Probe, ProbeKey, TUNNEL_CSUM};
use weir_dataplane::ProbeTable;
use weir_flow::{abi_forward, abi_tunnel};
use weir_health::{Outcome, Target, Verdict};
use weir_model::{Forward, ProbePath, Protocol, TunnelChecksum};
use weir_sys::FrameSocket;
use weir_wire::{ArpOperation, ArpPacket, MacAddr, Packet};

use crate::context::Context;
use crate::source::source;

/// Time limit for an ARP reply on the server's segment. The server has already replied to other packets there.
const ARP_TIMEOUT: Duration = Duration::from_millis(30);
const ETHERTYPE_ARP: u16 = 0x0806;

/// A maximum segment size that fits into any tunnel with an MTU of 1500.
const TUNNEL_MSS: u32 = 1200;

/// A probe through a service's forward. Dropping it removes its map entry.
#[derive(Debug)]
pub(crate) struct PathProbe {
    table: ProbeTable,
    way: ProbePath,
    server: IpAddr,
    /// Addresses that must not be the probe's source.
    vips: Arc<HashSet<IpAddr>>,
    key: OnceLock<ProbeKey>,
}

impl PathProbe {
    /// Creates the probe of a target with a forward other than `nat`; `None` for other targets.
    ///
    /// # Errors
    /// There is no data plane; the error is the outcome of the probe.
    pub(crate) fn for_target(target: &Target, context: &Context) -> Result<Option<Self>, Outcome> {
        match (target.way, context.probe_table()) {
            (None, _) => Ok(None),
            (Some(way), _) if way.forward == Forward::Nat => Ok(None),
            (Some(_), None) => Err(Outcome::unknown("no data plane to probe through")),
            (Some(way), Some(table)) => Ok(Some(Self {
                table,
                way,
                server: target.address,
                vips: context.vips(),
                key: OnceLock::new(),
            })),
        }
    }

    /// Binds a socket and registers its packets with the data plane.
    pub(crate) fn register(
        &self,
        socket: &Socket,
        target: &Target,
        protocol: Protocol,
    ) -> io::Result<()> {
        let source = source(target, &self.vips)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
        if self.way.forward == Forward::Tunnel && protocol == Protocol::Tcp {
            socket.set_tcp_mss(TUNNEL_MSS)?;
        }
        let local = socket.local_addr()?.as_socket();
        let port = local.map_or(0, |local| local.port());
        let key = ProbeKey {
            local: source.into(),
            port: port.into(),
            proto: protocol.number(),
            ..ProbeKey::ZERO
        };
        self.table
            .set(&key, &self.entry())
            .map_err(io::Error::other)?;
        let _ = self.key.set(key);
        Ok(())
    }

    fn entry(&self) -> Probe {
        let ProbePath {
            vip,
            forward,
            tunnel,
            dscp,
            ..
        } = self.way;
        Probe {
            server: self.server.into(),
            vip: vip.into(),
            forward: abi_forward(forward) as u8,
            tunnel: abi_tunnel(tunnel.kind) as u8,
            // Probes do not use remote checksum offload: every tunnel endpoint accepts a complete checksum.
            tunnel_flags: if tunnel.checksum == TunnelChecksum::None {
                0
            } else {
                TUNNEL_CSUM
            },
            dscp,
            tunnel_port: tunnel.port.into(),
            ..Probe::ZERO
        }
    }

    /// Refines an outcome with the data plane's observations of the packets.
    pub(crate) async fn refine(&self, outcome: Outcome) -> Outcome {
        let key = self.key.get();
        let Some(observed) = key.and_then(|key| self.table.get(key).ok().flatten()) else {
            return outcome;
        };
        match outcome.verdict {
            Verdict::Unknown => outcome,
            // The reply cannot have come from the VIP.
            Verdict::Passed if observed.sent == 0 || observed.answered == 0 => Outcome::unknown(
                "the probe was sent through an interface that Weir is not attached to",
            ),
            Verdict::Passed if self.server_claims_vip(&observed).await => Outcome::failed(format!(
                "the server answers ARP for the VIP {}",
                self.way.vip
            )),
            Verdict::Passed => outcome,
            // The packet was not sent, because no neighbour was found.
            Verdict::Failed if observed.sent == 0 => outcome,
            Verdict::Failed => Outcome::failed(self.failure_reason(&observed, &outcome.note)),
        }
    }

    /// Returns whether the server answers ARP for the VIP, so that clients would bypass the director.
    async fn server_claims_vip(&self, observed: &Probe) -> bool {
        let (IpAddr::V4(vip), Forward::Direct) = (self.way.vip, self.way.forward) else {
            return false;
        };
        let Some(key) = self.key.get() else {
            return false;
        };
        let (IpAddr::V4(local), observed) = (key.local.to_ip(), *observed) else {
            return false;
        };
        let claimed = spawn_blocking(move || probe_arp(&observed, local, vip)).await;
        // Without the capability to send ARP, the VIP counts as not claimed.
        matches!(claimed, Ok(Ok(true)))
    }

    fn failure_reason(&self, observed: &Probe, note: &str) -> String {
        let ProbePath { vip, port, .. } = self.way;
        if observed.answered > 0 {
            return format!("{note} at {}", SocketAddr::new(vip, port));
        }
        if observed.stray > 0 {
            return format!("another machine answers for the VIP {vip} ({note})");
        }
        if observed.unturned > 0 {
            return format!("the server does not restore the VIP {vip} in marked packets");
        }
        let tunnel = self.way.tunnel.kind.as_str();
        match (self.way.forward, observed.error_type, observed.error_code) {
            // Protocol and port unreachable: RFC 792, RFC 4443.
            (Forward::Tunnel, 3, 2 | 3) | (Forward::Tunnel, 1, 4) => {
                format!("no decapsulation: the server rejects {tunnel}")
            }
            (_, 0, _) if self.way.forward == Forward::Tunnel => {
                format!("VIP {vip} not on lo, or no decapsulation of {tunnel} ({note})")
            }
            (_, 0, _) => format!("VIP {vip} not on lo ({note})"),
            (_, kind, code) => format!("VIP {vip} unreachable: ICMP type {kind} code {code}"),
        }
    }
}

impl Drop for PathProbe {
    fn drop(&mut self) {
        if let Some(key) = self.key.get() {
            // If this fails, the map evicts the entry later.
            let _ = self.table.remove(key);
        }
    }
}

/// Sends an ARP request for the VIP to the server only, and waits for its reply. Blocks.
fn probe_arp(observed: &Probe, local: Ipv4Addr, vip: Ipv4Addr) -> Result<bool, weir_sys::Error> {
    let socket = FrameSocket::listening(observed.ifindex, ETHERTYPE_ARP)?;
    let (from, to) = (
        MacAddr::new(observed.from_mac),
        MacAddr::new(observed.to_mac),
    );
    let request = Packet::ethernet(from, to).arp(&ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: from,
        sender: local,
        target_mac: MacAddr::ZERO,
        target: vip,
    });
    socket.send(observed.ifindex, &request)?;
    let (deadline, mut frame) = (Instant::now() + ARP_TIMEOUT, [0; 128]);
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match socket.receive_within(&mut frame, remaining)? {
            Some(length) if is_arp_reply_for(&frame[..length], observed, vip) => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
    }
}

/// Returns whether a frame is the server's ARP reply for the VIP.
fn is_arp_reply_for(frame: &[u8], observed: &Probe, vip: Ipv4Addr) -> bool {
    let packet = frame
        .get(14..)
        .and_then(|payload| ArpPacket::parse(payload).ok());
    packet.is_some_and(|packet| {
        packet.operation == ArpOperation::Reply
            && packet.sender == vip
            && packet.sender_mac == MacAddr::new(observed.to_mac)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 5]);
    const DIRECTOR: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 1]);

    fn accepts(operation: ArpOperation, sender: &str, mac: MacAddr) -> bool {
        let frame = Packet::ethernet(mac, DIRECTOR).arp(&ArpPacket {
            operation,
            sender_mac: mac,
            sender: sender.parse().unwrap(),
            target_mac: DIRECTOR,
            target: "10.0.0.1".parse().unwrap(),
        });
        let observed = Probe {
            to_mac: SERVER.octets(),
            ..Probe::ZERO
        };
        is_arp_reply_for(&frame, &observed, "192.0.2.10".parse().unwrap())
    }

    #[test]
    fn only_arp_reply_of_server_is_accepted() {
        assert!(accepts(ArpOperation::Reply, "192.0.2.10", SERVER));
        assert!(!accepts(ArpOperation::Reply, "192.0.2.11", SERVER));
        assert!(!accepts(ArpOperation::Reply, "192.0.2.10", DIRECTOR));
        assert!(!accepts(ArpOperation::Request, "192.0.2.10", SERVER));
        assert!(!is_arp_reply_for(
            &[0; 20],
            &Probe::ZERO,
            "192.0.2.10".parse().unwrap()
        ));
    }
}
