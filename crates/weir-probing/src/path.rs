//! Probes through a service's forward: what the tc programs are told of a conversation, and what they saw of it.
//!
//! Under `direct`, `tunnel` and `l3dsr` the socket talks to the server's address; on the way out the packets become a
//! client's, with the VIP as destination, and the VIP's answers come back as the server's. Under `nat` a client's
//! packets are the server's already: there the socket is bound to the VIP, so that the server needs its way back
//! through the director.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use socket2::Socket;
use tokio::task::spawn_blocking;
use weir_abi::{Probe, ProbeKey, TUNNEL_CSUM};
use weir_dataplane::Table;
use weir_health::{Outcome, Target, Verdict};
use weir_model::{Forward, ProbePath, Protocol, TunnelChecksum, TunnelKind};
use weir_sys::FrameSocket;
use weir_wire::{ArpOperation, ArpPacket, MacAddr, Packet};

use crate::Shared;
use crate::source::source;

/// Where conversations are entered.
pub type Passages = Arc<Table<ProbeKey, Probe>>;

/// How long an answer to ARP may take on a server's own segment. The question follows packets that were answered there.
const ARP_ANSWER: Duration = Duration::from_millis(30);
const ETHERTYPE_ARP: u16 = 0x0806;

/// What fits any tunnel's inside over an Ethernet of 1500.
const TUNNEL_SEGMENT: u32 = 1200;

/// One probe's way through a forward; its entry goes with it.
#[derive(Debug)]
pub(crate) struct Passage {
    table: Passages,
    way: ProbePath,
    server: IpAddr,
    /// What it must not come from.
    vips: Arc<HashSet<IpAddr>>,
    entered: OnceLock<ProbeKey>,
}

impl Passage {
    /// For a target that goes through a forward which rewrites nothing by itself.
    ///
    /// # Errors
    /// Nothing is there to send it so: what that says of the server.
    pub(crate) fn of(target: &Target, shared: &Shared) -> Result<Option<Self>, Outcome> {
        match (target.way, shared.passages()) {
            (None, _) => Ok(None),
            (Some(way), _) if way.forward == Forward::Nat => Ok(None),
            (Some(_), None) => Err(Outcome::unknown("no data plane to probe through")),
            (Some(way), Some(table)) => Ok(Some(Self {
                table,
                way,
                server: target.address,
                vips: shared.vips(),
                entered: OnceLock::new(),
            })),
        }
    }

    /// Binds a socket and enters its conversation.
    pub(crate) fn enter(
        &self,
        socket: &Socket,
        target: &Target,
        protocol: Protocol,
    ) -> io::Result<()> {
        let source = source(target, &self.vips)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
        if self.way.forward == Forward::Tunnel && protocol == Protocol::Tcp {
            socket.set_tcp_mss(TUNNEL_SEGMENT)?;
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
        let _ = self.entered.set(key);
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
            forward: match forward {
                Forward::Nat => weir_abi::Forward::Nat,
                Forward::Direct => weir_abi::Forward::Direct,
                Forward::Tunnel => weir_abi::Forward::Tunnel,
                Forward::L3dsr => weir_abi::Forward::L3dsr,
            } as u8,
            tunnel: match tunnel.kind {
                TunnelKind::Ipip => weir_abi::Tunnel::Ipip,
                TunnelKind::Gue => weir_abi::Tunnel::Gue,
                TunnelKind::Gre => weir_abi::Tunnel::Gre,
            } as u8,
            // Of remote checksums a probe has nothing: the plain one is understood everywhere.
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

    /// What an outcome means, by what was seen of the packets.
    pub(crate) async fn judge(&self, outcome: Outcome) -> Outcome {
        let key = self.entered.get();
        let Some(seen) = key.and_then(|key| self.table.get(key).ok().flatten()) else {
            return outcome;
        };
        match outcome.verdict {
            Verdict::Unknown => outcome,
            // It cannot have been the VIP that answered.
            Verdict::Passed if seen.sent == 0 || seen.answered == 0 => {
                Outcome::unknown("the probe left by an interface that Weir is not attached to")
            }
            Verdict::Passed if self.is_claimed(&seen).await => Outcome::failed(format!(
                "the server answers ARP for the VIP {}",
                self.way.vip
            )),
            Verdict::Passed => outcome,
            // Not even a neighbour was found to send it to.
            Verdict::Failed if seen.sent == 0 => outcome,
            Verdict::Failed => Outcome::failed(self.words(&seen, &outcome.note)),
        }
    }

    /// Whether the server says that the VIP is its own, so that clients would come to it past the director.
    async fn is_claimed(&self, seen: &Probe) -> bool {
        let (IpAddr::V4(vip), Forward::Direct) = (self.way.vip, self.way.forward) else {
            return false;
        };
        let Some(key) = self.entered.get() else {
            return false;
        };
        let (IpAddr::V4(local), seen) = (key.local.to_ip(), *seen) else {
            return false;
        };
        let asked = spawn_blocking(move || claims_when_asked(&seen, local, vip)).await;
        // Who cannot ask finds nothing.
        matches!(asked, Ok(Ok(true)))
    }

    fn words(&self, seen: &Probe, note: &str) -> String {
        let ProbePath { vip, port, .. } = self.way;
        if seen.answered > 0 {
            return format!("{note} at {}", SocketAddr::new(vip, port));
        }
        if seen.stray > 0 {
            return format!("another machine answers for the VIP {vip} ({note})");
        }
        if seen.unturned > 0 {
            return format!("the server does not turn marked packets back to the VIP {vip}");
        }
        let tunnel = self.way.tunnel.kind.as_str();
        match (self.way.forward, seen.error_type, seen.error_code) {
            // Protocol and port unreachable: RFC 792, RFC 4443.
            (Forward::Tunnel, 3, 2 | 3) | (Forward::Tunnel, 1, 4) => {
                format!("no decapsulation: the server refuses {tunnel}")
            }
            (_, 0, _) if self.way.forward == Forward::Tunnel => {
                format!("VIP {vip} not on lo, or no decapsulation of {tunnel} ({note})")
            }
            (_, 0, _) => format!("VIP {vip} not on lo ({note})"),
            (_, kind, code) => format!("VIP {vip} unreachable: ICMP type {kind} code {code}"),
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if let Some(key) = self.entered.get() {
            // Its place is given away to another probe in time all the same.
            let _ = self.table.remove(key);
        }
    }
}

/// Asks the server alone for the VIP's owner, and waits a moment for its answer. Blocks.
fn claims_when_asked(
    seen: &Probe,
    local: Ipv4Addr,
    vip: Ipv4Addr,
) -> Result<bool, weir_sys::Error> {
    let socket = FrameSocket::listening(seen.ifindex, ETHERTYPE_ARP)?;
    let (from, to) = (MacAddr::new(seen.from_mac), MacAddr::new(seen.to_mac));
    let question = Packet::ethernet(from, to).arp(&ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: from,
        sender: local,
        target_mac: MacAddr::ZERO,
        target: vip,
    });
    socket.send(seen.ifindex, &question)?;
    let (until, mut frame) = (Instant::now() + ARP_ANSWER, [0; 128]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match socket.receive_within(&mut frame, left)? {
            Some(length) if claims(&frame[..length], seen, vip) => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
    }
}

/// Whether a frame is the server's claim on the VIP.
fn claims(frame: &[u8], seen: &Probe, vip: Ipv4Addr) -> bool {
    let packet = frame
        .get(14..)
        .and_then(|payload| ArpPacket::parse(payload).ok());
    packet.is_some_and(|packet| {
        packet.operation == ArpOperation::Reply
            && packet.sender == vip
            && packet.sender_mac == MacAddr::new(seen.to_mac)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 5]);
    const DIRECTOR: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 1]);

    fn answer(operation: ArpOperation, sender: &str, mac: MacAddr) -> bool {
        let frame = Packet::ethernet(mac, DIRECTOR).arp(&ArpPacket {
            operation,
            sender_mac: mac,
            sender: sender.parse().unwrap(),
            target_mac: DIRECTOR,
            target: "10.0.0.1".parse().unwrap(),
        });
        let seen = Probe {
            to_mac: SERVER.octets(),
            ..Probe::ZERO
        };
        claims(&frame, &seen, "192.0.2.10".parse().unwrap())
    }

    #[test]
    fn only_the_servers_own_claim_counts() {
        assert!(answer(ArpOperation::Reply, "192.0.2.10", SERVER));
        assert!(!answer(ArpOperation::Reply, "192.0.2.11", SERVER));
        assert!(!answer(ArpOperation::Reply, "192.0.2.10", DIRECTOR));
        assert!(!answer(ArpOperation::Request, "192.0.2.10", SERVER));
        assert!(!claims(
            &[0; 20],
            &Probe::ZERO,
            "192.0.2.10".parse().unwrap()
        ));
    }
}
