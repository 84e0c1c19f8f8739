//! Builds the generator's frames.
//!
//! The generator sets the client's address and port of each packet, and completes the checksums from the frame's
//! partial sums.
//!
//! The frames are untagged Ethernet with IPv4 or IPv6 and TCP or UDP. This module parses nothing and does not depend on
//! Weir.

use std::net::IpAddr;

/// TCP flags: the control bits of the header (RFC 9293).
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;
const PSH: u8 = 8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The director's MAC address: the kernel's network stack accepts only frames sent to it.
pub(crate) const DIRECTOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The MAC address of the gateway, which is the source of all frames.
pub(crate) const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

const ETHERNET_LENGTH: usize = 14;

/// The sender of a flow's packets. The generator sets the client's address and port later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The client sends to this address and port.
    Client(IpAddr, u16),
    /// A server with this address and port sends to the client.
    Server(IpAddr, u16),
}

/// A frame whose variable fields are zero, and the offsets of these fields.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    addr_at: u16,
    port_at: u16,
    ip_sum_at: u16,
    l4_sum_at: u16,
    ip_sum: u32,
    l4_sum: u32,
}

impl Frame {
    /// Returns the smallest length of a TCP frame that is a multiple of eight and at least 64.
    pub(crate) fn length(address: IpAddr) -> usize {
        if address.is_ipv4() { 64 } else { 80 }
    }

    /// Returns a TCP segment. Its sequence numbers are those during or directly after a handshake, so a stateful peer
    /// accepts it.
    pub(crate) fn tcp(sender: Sender, flags: u8) -> Self {
        let client = matches!(sender, Sender::Client(..));
        let (sequence, acknowledgment): (u32, u32) = match (client, flags & SYN != 0) {
            (true, true) => (1000, 0),
            (false, true) => (5000, 1001),
            (true, false) => (1001, 5001),
            (false, false) => (5001, 1001),
        };
        let mut segment = ports(sender);
        segment.extend(sequence.to_be_bytes());
        segment.extend(acknowledgment.to_be_bytes());
        let push = if flags == ACK { PSH } else { 0 };
        segment.extend([0x50, flags | push, 0x20, 0, 0, 0, 0, 0]);
        Self::new(sender, TCP, segment, 16)
    }

    /// Returns a UDP datagram.
    pub(crate) fn udp(sender: Sender) -> Self {
        let mut segment = ports(sender);
        let address = match sender {
            Sender::Client(address, _) | Sender::Server(address, _) => address,
        };
        let length = (Self::length(address) - ETHERNET_LENGTH - ip_length(address)) as u16;
        segment.extend(length.to_be_bytes());
        segment.extend([0, 0]);
        Self::new(sender, UDP, segment, 6)
    }

    fn new(sender: Sender, protocol: u8, mut segment: Vec<u8>, checksum_at: usize) -> Self {
        let (address, client) = match sender {
            Sender::Client(address, _) => (address, true),
            Sender::Server(address, _) => (address, false),
        };
        let header = ip_length(address);
        segment.resize(Self::length(address) - ETHERNET_LENGTH - header, 0);
        let mut bytes = Vec::from(DIRECTOR_MAC);
        bytes.extend(GATEWAY_MAC);
        let (source_at, destination_at) = match address {
            IpAddr::V4(v4) => {
                bytes.extend([8, 0, 0x45, 0]);
                bytes.extend(((header + segment.len()) as u16).to_be_bytes());
                bytes.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
                let (source, destination) = source_and_destination(client, v4.octets(), [0; 4]);
                bytes.extend(source);
                bytes.extend(destination);
                (26, 30)
            }
            IpAddr::V6(v6) => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                bytes.extend((segment.len() as u16).to_be_bytes());
                bytes.extend([protocol, 64]);
                let (source, destination) = source_and_destination(client, v6.octets(), CLIENTS_V6);
                bytes.extend(source);
                bytes.extend(destination);
                // Only the low 32 bits vary.
                (34, 50)
            }
        };
        let l4 = ETHERNET_LENGTH + header;
        let addresses = if address.is_ipv4() { 26..34 } else { 22..54 };
        let l4_sum = sum(&bytes[addresses])
            + network_order(segment.len() as u16)
            + network_order(u16::from(protocol))
            + sum(&segment);
        let (ip_sum_at, ip_sum) = match address {
            IpAddr::V4(_) => (24, sum(&bytes[ETHERNET_LENGTH..l4])),
            IpAddr::V6(_) => (0, 0),
        };
        bytes.extend(segment);
        Self {
            bytes,
            addr_at: if client { source_at } else { destination_at },
            port_at: (l4 + if client { 0 } else { 2 }) as u16,
            ip_sum_at,
            l4_sum_at: (l4 + checksum_at) as u16,
            ip_sum,
            l4_sum,
        }
    }

    /// Encodes the frame as `struct frame` of bpf/bench/feed.bpf.c.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.bytes.clone();
        out.extend(self.ip_sum.to_ne_bytes());
        out.extend(self.l4_sum.to_ne_bytes());
        for offset in [self.addr_at, self.port_at, self.ip_sum_at, self.l4_sum_at] {
            out.extend(offset.to_ne_bytes());
        }
        out
    }
}

/// The network of IPv6 clients.
pub(crate) const CLIENTS_V6: [u8; 16] = [
    0x20, 0x01, 0x0d, 0xb8, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

fn ip_length(address: IpAddr) -> usize {
    if address.is_ipv4() { 20 } else { 40 }
}

fn source_and_destination<const N: usize>(
    client: bool,
    address: [u8; N],
    clients: [u8; N],
) -> ([u8; N], [u8; N]) {
    if client {
        (clients, address)
    } else {
        (address, clients)
    }
}

fn ports(sender: Sender) -> Vec<u8> {
    let (source, destination) = match sender {
        Sender::Client(_, port) => (0, port),
        Sender::Server(_, port) => (port, 0),
    };
    let mut out = Vec::from(u16::to_be_bytes(source));
    out.extend(destination.to_be_bytes());
    out
}

/// Returns the sum of words in memory order: a one's complement sum does not depend on the byte order (RFC 1071 section
/// 2).
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
        .map(u32::from)
        .sum()
}

fn network_order(value: u16) -> u32 {
    u32::from(value.to_be())
}
