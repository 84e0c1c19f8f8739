//! Accesses the data plane's table of probes that use a service's forwarding path: a map in this process or in another
//! process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use weir_abi::{Probe, ProbeKey, TUNNEL_CSUM};
use weir_dataplane::ProbeTable;
use weir_flow::{abi_forward, abi_tunnel};
use weir_model::{Forward, ProbePath, Protocol, TunnelChecksum};
use weir_sys::FrameSocket;
use weir_wire::{ArpOperation, ArpPacket, MacAddr, Packet};

/// Time limit for an ARP reply. It is short, because the server has already replied to a probe on the same segment.
const ARP_TIMEOUT: Duration = Duration::from_millis(30);
const ETHERTYPE_ARP: u16 = 0x0806;

/// Identifies the packets of a probe by the director's end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPackets {
    /// Address and port of the socket.
    pub local: SocketAddr,
    /// Protocol of the socket.
    pub protocol: Protocol,
}

/// The data plane's observations of a probe's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathObservation {
    /// Number of packets sent.
    pub sent: u32,
    /// Number of replies from the VIP.
    pub answered: u32,
    /// Number of replies from the VIP, but from a MAC address other than the server's.
    pub stray: u32,
    /// Number of replies from the server's address instead of the VIP.
    pub untranslated: u32,
    /// ICMP type of the last error about the connection; 0 = none.
    pub error_type: u8,
    /// ICMP code of this error.
    pub error_code: u8,
}

/// A table in another process. All operations except `remove` can block.
pub trait RemotePaths: std::fmt::Debug + Send + Sync {
    /// Starts forwarding the packets of a probe to a server.
    ///
    /// # Errors
    /// Returns an error if the other process cannot be reached or rejects the request.
    fn add(&self, packets: PathPackets, server: IpAddr, path: &ProbePath) -> io::Result<()>;

    /// Returns the observations, or `None` if the probe is unknown.
    ///
    /// # Errors
    /// Returns an error if the other process cannot be reached.
    fn read(&self, packets: PathPackets) -> io::Result<Option<PathObservation>>;

    /// Stops forwarding the packets of a probe. Does not wait for completion.
    fn remove(&self, packets: PathPackets);

    /// Returns whether the server replies to ARP requests for the VIP. Returns false if the other process cannot be
    /// reached.
    fn claims_vip(&self, packets: PathPackets) -> bool;
}

/// The table of path probes: a map in this process, or in the privileged layer 4 process.
#[derive(Clone, Debug)]
pub enum PathTable {
    /// A map in this process.
    Local(ProbeTable),
    /// A map in another process.
    Remote(Arc<dyn RemotePaths>),
}

/// The error if another process did not respond or rejected a request: the server's state is then unknown.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnavailableError(io::Error);

impl PathTable {
    pub(crate) async fn add(
        &self,
        packets: PathPackets,
        server: IpAddr,
        path: ProbePath,
    ) -> io::Result<()> {
        match self {
            Self::Local(table) => table
                .set(&map_key(packets), &path_entry(server, &path))
                .map_err(io::Error::other),
            Self::Remote(remote) => {
                let remote = Arc::clone(remote);
                let result = spawn_blocking(move || remote.add(packets, server, &path)).await;
                let result = result.unwrap_or_else(|error| Err(io::Error::other(error)));
                result.map_err(|error| io::Error::other(UnavailableError(error)))
            }
        }
    }

    pub(crate) async fn read(&self, packets: PathPackets) -> io::Result<Option<PathObservation>> {
        match self {
            Self::Local(table) => {
                let entry = table.get(&map_key(packets)).map_err(io::Error::other)?;
                Ok(entry.map(|entry| path_observation(&entry)))
            }
            Self::Remote(remote) => {
                let remote = Arc::clone(remote);
                let result = spawn_blocking(move || remote.read(packets)).await;
                result.unwrap_or_else(|error| Err(io::Error::other(error)))
            }
        }
    }

    pub(crate) async fn claims_vip(&self, packets: PathPackets) -> bool {
        let result = match self {
            Self::Local(table) => {
                let Ok(Some(entry)) = table.get(&map_key(packets)) else {
                    return false;
                };
                spawn_blocking(move || claims_vip(&entry, packets.local.ip())).await
            }
            Self::Remote(remote) => {
                let remote = Arc::clone(remote);
                spawn_blocking(move || remote.claims_vip(packets)).await
            }
        };
        result.unwrap_or(false)
    }

    /// Removes a probe. If this fails, the map evicts the entry later.
    pub(crate) fn remove(&self, packets: PathPackets) {
        match self {
            Self::Local(table) => drop(table.remove(&map_key(packets))),
            Self::Remote(remote) => remote.remove(packets),
        }
    }
}

fn map_key(packets: PathPackets) -> ProbeKey {
    ProbeKey {
        local: packets.local.ip().into(),
        port: packets.local.port().into(),
        proto: packets.protocol.number(),
        ..ProbeKey::ZERO
    }
}

/// Returns the map entry of a probe to a server through a path.
pub fn path_entry(server: IpAddr, path: &ProbePath) -> Probe {
    let ProbePath {
        vip,
        forward,
        tunnel,
        dscp,
        ..
    } = *path;
    Probe {
        server: server.into(),
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

/// Returns the observations in a map entry.
pub const fn path_observation(entry: &Probe) -> PathObservation {
    PathObservation {
        sent: entry.sent,
        answered: entry.answered,
        stray: entry.stray,
        untranslated: entry.unturned,
        error_type: entry.error_type,
        error_code: entry.error_code,
    }
}

/// Returns whether the server of a probe with `direct` replies to ARP requests for the VIP; if so, clients could bypass
/// the director. Returns false if the request cannot be sent, for example without CAP_NET_RAW. Blocks.
pub fn claims_vip(entry: &Probe, local: IpAddr) -> bool {
    let (IpAddr::V4(vip), IpAddr::V4(local)) = (entry.vip.to_ip(), local) else {
        return false;
    };
    entry.forward == abi_forward(Forward::Direct) as u8
        && matches!(probe_arp(entry, local, vip), Ok(true))
}

/// Sends an ARP request for the VIP to the server only. Blocks until the server replies, or until the time limit.
fn probe_arp(entry: &Probe, local: Ipv4Addr, vip: Ipv4Addr) -> Result<bool, weir_sys::Error> {
    let socket = FrameSocket::open_listener(entry.ifindex, ETHERTYPE_ARP)?;
    let (source_mac, destination_mac) = (MacAddr::new(entry.from_mac), MacAddr::new(entry.to_mac));
    let request = Packet::ethernet(source_mac, destination_mac).arp(&ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: source_mac,
        sender: local,
        target_mac: MacAddr::ZERO,
        target: vip,
    });
    socket.send(entry.ifindex, &request)?;
    let (deadline, mut frame) = (Instant::now() + ARP_TIMEOUT, [0; 128]);
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match socket.receive_within(&mut frame, remaining)? {
            Some(length) if is_arp_reply_for(&frame[..length], entry, vip) => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
    }
}

/// Returns whether a frame is the server's ARP reply for the VIP.
fn is_arp_reply_for(frame: &[u8], entry: &Probe, vip: Ipv4Addr) -> bool {
    let packet = frame
        .get(14..)
        .and_then(|payload| ArpPacket::parse(payload).ok());
    packet.is_some_and(|packet| {
        packet.operation == ArpOperation::Reply
            && packet.sender == vip
            && packet.sender_mac == MacAddr::new(entry.to_mac)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 5]);
    const DIRECTOR: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 1]);

    fn is_accepted(operation: ArpOperation, sender: &str, mac: MacAddr) -> bool {
        let frame = Packet::ethernet(mac, DIRECTOR).arp(&ArpPacket {
            operation,
            sender_mac: mac,
            sender: sender.parse().unwrap(),
            target_mac: DIRECTOR,
            target: "10.0.0.1".parse().unwrap(),
        });
        let entry = Probe {
            to_mac: SERVER.octets(),
            ..Probe::ZERO
        };
        is_arp_reply_for(&frame, &entry, "192.0.2.10".parse().unwrap())
    }

    #[test]
    fn only_arp_reply_of_server_is_accepted() {
        assert!(is_accepted(ArpOperation::Reply, "192.0.2.10", SERVER));
        assert!(!is_accepted(ArpOperation::Reply, "192.0.2.11", SERVER));
        assert!(!is_accepted(ArpOperation::Reply, "192.0.2.10", DIRECTOR));
        assert!(!is_accepted(ArpOperation::Request, "192.0.2.10", SERVER));
        assert!(!is_arp_reply_for(
            &[0; 20],
            &Probe::ZERO,
            "192.0.2.10".parse().unwrap()
        ));
    }
}
