//! Implements a director in user space.
//!
//! It receives packets for a VIP, rewrites them for a forwarding method, and sends them to the server.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use weir_sys::NetNs;

/// Rewrites a packet for the VIP into a packet for the server; `None` = the packet is dropped.
pub(crate) type Rewrite = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

pub(crate) struct Director {
    stop: Arc<AtomicBool>,
    forwarded: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Director {
    /// Starts a thread that rewrites and forwards packets whose destination is `vip`.
    pub(crate) fn start(netns: &NetNs, vip: IpAddr, server: IpAddr, rewrite: Rewrite) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let forwarded = Arc::new(AtomicU64::new(0));
        let (incoming, raw) = netns
            .run(|| (open_packet_socket(vip), open_raw_socket(server)))
            .unwrap();
        let (stopped, count) = (stop.clone(), forwarded.clone());
        let worker = thread::spawn(move || {
            let mut incoming = incoming;
            let mut buffer = vec![0; 1 << 16];
            while !stopped.load(Ordering::Relaxed) {
                let Ok(len) = incoming.read(&mut buffer) else {
                    continue;
                };
                if destination(&buffer[..len]) != Some(vip) {
                    continue;
                }
                if let Some(packet) = rewrite(&buffer[..len]) {
                    count.fetch_add(1, Ordering::Relaxed);
                    raw.send_to(&packet, &SockAddr::from(SocketAddr::new(server, 0)))
                        .unwrap();
                }
            }
        });
        Self {
            stop,
            forwarded,
            threads: vec![worker],
        }
    }

    /// Returns the number of forwarded packets.
    pub(crate) fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }
}

impl Drop for Director {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let joined = thread.join();
            assert!(
                joined.is_ok() || thread::panicking(),
                "the director's thread panicked"
            );
        }
    }
}

/// Opens a packet socket for packets of the VIP's IP version. It receives incoming packets without the Ethernet header.
fn open_packet_socket(vip: IpAddr) -> Socket {
    let ethertype: u16 = if vip.is_ipv4() { 0x0800 } else { 0x86dd };
    let protocol = Protocol::from(i32::from(ethertype.to_be()));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    socket.set_recv_buffer_size(8 << 20).unwrap();
    socket
}

/// Opens a raw socket. With protocol 255, sent packets include the IP header.
fn open_raw_socket(server: IpAddr) -> Socket {
    let domain = if server.is_ipv4() {
        Domain::IPV4
    } else {
        Domain::IPV6
    };
    Socket::new(domain, Type::RAW, Some(Protocol::from(255))).unwrap()
}

fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?)),
        6 => Some(IpAddr::from(
            <[u8; 16]>::try_from(packet.get(24..40)?).ok()?,
        )),
        _ => None,
    }
}

fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Builds an IP packet with this protocol number and payload. The kernel fills in the IPv4 checksum.
pub(crate) fn ip_packet(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    traffic_class: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = match source {
        IpAddr::V4(_) => {
            let [high, low] = (payload.len() as u16 + 20).to_be_bytes();
            vec![
                0x45,
                traffic_class,
                high,
                low,
                0,
                0,
                0x40,
                0,
                64,
                protocol,
                0,
                0,
            ]
        }
        IpAddr::V6(_) => {
            let [high, low] = (payload.len() as u16).to_be_bytes();
            vec![
                0x60 | traffic_class >> 4,
                traffic_class << 4,
                0,
                0,
                high,
                low,
                protocol,
                64,
            ]
        }
    };
    packet.extend(address_bytes(source));
    packet.extend(address_bytes(destination));
    packet.extend(payload);
    packet
}

fn ip_protocol(inner: &[u8]) -> u8 {
    if inner[0] >> 4 == 4 { 4 } else { 41 }
}

pub(crate) fn ipip(source: IpAddr, destination: IpAddr, traffic_class: u8) -> Rewrite {
    Box::new(move |inner| {
        Some(ip_packet(
            source,
            destination,
            ip_protocol(inner),
            traffic_class,
            inner,
        ))
    })
}

pub(crate) fn gre(source: IpAddr, destination: IpAddr, checksum: bool) -> Rewrite {
    Box::new(move |inner| {
        let ethertype: [u8; 2] = if inner[0] >> 4 == 4 {
            [0x08, 0x00]
        } else {
            [0x86, 0xdd]
        };
        let mut header = vec![if checksum { 0x80 } else { 0 }, 0];
        header.extend(ethertype);
        if checksum {
            let check = !fold(sum(&header) + sum(inner));
            header.extend(check.to_be_bytes());
            header.extend([0, 0]);
        }
        Some(ip_packet(
            source,
            destination,
            47,
            0,
            &[header.as_slice(), inner].concat(),
        ))
    })
}

/// The outer checksum and the variant of GUE packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GueMode {
    None,
    Full,
    /// Remote checksum offload; `true` = the outer UDP header also has a checksum.
    Remote(bool),
    /// Variant 1: the inner packet directly follows the UDP header.
    Variant1,
}

pub(crate) fn gue(source: IpAddr, destination: IpAddr, port: u16, mode: GueMode) -> Rewrite {
    Box::new(move |inner| {
        let mut inner = inner.to_vec();
        let mut header = match mode {
            GueMode::Variant1 => Vec::new(),
            GueMode::Remote(_) => vec![2, ip_protocol(&inner), 0, 1, 0x80, 0, 0, 0],
            _ => vec![0, ip_protocol(&inner), 0, 0],
        };
        if let GueMode::Remote(_) = mode {
            let (start, field) = write_partial_checksum(&mut inner);
            header.extend((start as u16).to_be_bytes());
            header.extend((field as u16).to_be_bytes());
        }
        let len = (8 + header.len() + inner.len()) as u16;
        let mut udp = [
            40_000_u16.to_be_bytes(),
            port.to_be_bytes(),
            len.to_be_bytes(),
            [0, 0],
        ]
        .concat();
        udp.extend(header);
        udp.extend(inner);
        if matches!(mode, GueMode::Full | GueMode::Remote(true)) {
            let pseudo_header = sum(&address_bytes(source))
                + sum(&address_bytes(destination))
                + 17
                + u32::from(len);
            let check = !fold(pseudo_header + sum(&udp));
            udp[6..8].copy_from_slice(&check.to_be_bytes());
        }
        Some(ip_packet(source, destination, 17, 0, &udp))
    })
}

/// Writes the sum of the pseudo header to the inner checksum field. Returns the offsets of the transport header and of
/// its checksum field.
fn write_partial_checksum(inner: &mut [u8]) -> (usize, usize) {
    let (start, protocol, addresses) = if inner[0] >> 4 == 4 {
        (20, inner[9], 12..20)
    } else {
        (40, inner[6], 8..40)
    };
    let field = start + if protocol == 6 { 16 } else { 6 };
    let pseudo_header = sum(&inner[addresses]) + u32::from(protocol) + (inner.len() - start) as u32;
    inner[field..field + 2].copy_from_slice(&fold(pseudo_header).to_be_bytes());
    (start, field)
}

/// Sets the destination to `destination` and the DSCP to `dscp`, and updates the transport checksum, if there is one.
pub(crate) fn l3dsr(destination: IpAddr, dscp: u8) -> Rewrite {
    Box::new(move |packet| {
        let mut packet = packet.to_vec();
        let field = if packet[0] >> 4 == 4 { 16..20 } else { 24..40 };
        let old = sum(&packet[field.clone()]);
        packet[field].copy_from_slice(&address_bytes(destination));
        if let Some(field) = checksum_field(&packet) {
            let check = u16::from_be_bytes([packet[field], packet[field + 1]]);
            let new_check =
                !fold(u32::from(!check) + u32::from(!fold(old)) + sum(&address_bytes(destination)));
            packet[field..field + 2].copy_from_slice(&new_check.to_be_bytes());
        }
        set_dscp(&mut packet, dscp);
        Some(packet)
    })
}

/// Returns the offset of the checksum that covers the pseudo header. Later fragments and protocols other than TCP, UDP
/// and ICMPv6 have none.
fn checksum_field(packet: &[u8]) -> Option<usize> {
    let (protocol, start, offset) = match (packet[0] >> 4, packet[6]) {
        (4, _) => (
            packet[9],
            20,
            u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff,
        ),
        (_, 44) => (
            packet[40],
            48,
            u16::from_be_bytes([packet[42], packet[43]]) & 0xfff8,
        ),
        (_, next) => (next, 40, 0),
    };
    match protocol {
        _ if offset != 0 => None,
        6 => Some(start + 16),
        17 => Some(start + 6),
        58 => Some(start + 2),
        _ => None,
    }
}

fn set_dscp(packet: &mut [u8], dscp: u8) {
    if packet[0] >> 4 == 4 {
        packet[1] = dscp << 2 | packet[1] & 3;
    } else {
        packet[0] = 0x60 | dscp >> 2;
        packet[1] = dscp << 6 | packet[1] & 0x3f;
    }
}
