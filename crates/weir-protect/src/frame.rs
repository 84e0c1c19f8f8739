//! Prepares held frames for reinjection into the network stack.
//!
//! Packets that this host sent to itself or over a veth pair have a partial checksum, which a device is expected to
//! complete. Holding a frame loses the flag that marks the checksum as partial, so this module completes it. Loopback
//! frames are sent as new packets from this host, because the stack drops packets with loopback addresses that arrive
//! on any other device.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use weir_wire::IpProtocol;
use weir_wire::checksum::pseudo_header;

/// The index of the loopback device, which is the same in every namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// Length of the Ethernet header.
const ETHERNET_LEN: usize = 14;
/// Length of the IPv6 header.
const IPV6_LEN: usize = 40;
/// Offset of the checksum in the TCP header.
const TCP_CHECKSUM_OFFSET: usize = 16;
/// A raw socket with this protocol sends packets whose IP header the caller provides.
const IPPROTO_RAW: i32 = 255;

/// Addresses and offsets of an Ethernet frame that contains a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offsets {
    source: IpAddr,
    destination: IpAddr,
    /// Offset of the TCP header.
    segment: usize,
    /// Offset of the end of the IP packet; padding may follow.
    end: usize,
}

/// Returns the `N` bytes at an offset.
fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

fn parse_offsets(frame: &[u8]) -> Option<Offsets> {
    let length = |offset| array(frame, offset).map(|bytes| usize::from(u16::from_be_bytes(bytes)));
    match array(frame, 12)? {
        [0x08, 0x00] => {
            let header = usize::from(frame.get(ETHERNET_LEN)? & 0xf) * 4;
            Some(Offsets {
                source: Ipv4Addr::from(array(frame, ETHERNET_LEN + 12)?).into(),
                destination: Ipv4Addr::from(array(frame, ETHERNET_LEN + 16)?).into(),
                segment: ETHERNET_LEN + header,
                end: ETHERNET_LEN + length(ETHERNET_LEN + 2)?,
            })
        }
        [0x86, 0xdd] => Some(Offsets {
            source: Ipv6Addr::from(array::<16>(frame, ETHERNET_LEN + 8)?).into(),
            destination: Ipv6Addr::from(array::<16>(frame, ETHERNET_LEN + 24)?).into(),
            segment: ETHERNET_LEN + IPV6_LEN,
            end: ETHERNET_LEN + IPV6_LEN + length(ETHERNET_LEN + 4)?,
        }),
        _ => None,
    }
}

/// Completes a checksum that covers only the pseudo header (CHECKSUM_PARTIAL, include/linux/skbuff.h). Leaves any other
/// checksum unchanged, whether correct or not.
pub(crate) fn complete_checksum(frame: &mut [u8]) {
    let Some(offsets) = parse_offsets(frame) else {
        return;
    };
    let Some(segment) = frame.get_mut(offsets.segment..offsets.end) else {
        return;
    };
    let pseudo = pseudo_header(
        offsets.source,
        offsets.destination,
        IpProtocol::TCP,
        segment.len(),
    );
    if array(segment, TCP_CHECKSUM_OFFSET).map(u16::from_be_bytes) != Some(pseudo.folded()) {
        return;
    }
    let Some(field) = segment.get_mut(TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2) else {
        return;
    };
    field.fill(0);
    let checksum = pseudo.bytes(segment).checksum();
    if let Some(field) = segment.get_mut(TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Raw sockets that resend packets held on the loopback device.
#[derive(Debug)]
pub(crate) struct Loopback {
    ipv4: Socket,
    /// `None` = the host does not support IPv6.
    ipv6: Option<Socket>,
}

impl Loopback {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Fails if the process lacks CAP_NET_RAW.
    pub(crate) fn open() -> io::Result<Self> {
        let raw = |domain| Socket::new(domain, Type::RAW, Some(Protocol::from(IPPROTO_RAW)));
        Ok(Self {
            ipv4: raw(Domain::IPV4)?,
            ipv6: raw(Domain::IPV6).ok(),
        })
    }

    /// Resends the packet in a frame.
    ///
    /// # Errors
    /// Fails if the route no longer exists, or the frame contains no IP packet.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let offsets = parse_offsets(frame).ok_or_else(invalid)?;
        let packet = frame.get(ETHERNET_LEN..offsets.end).ok_or_else(invalid)?;
        let socket = match offsets.destination {
            IpAddr::V4(_) => &self.ipv4,
            IpAddr::V6(_) => self.ipv6.as_ref().ok_or_else(invalid)?,
        };
        let destination = SocketAddr::new(offsets.destination, 0);
        socket.send_to(packet, &destination.into()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn(checksum: impl FnOnce(&[u8], u16) -> u16) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET_LEN + 20 + 20];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[ETHERNET_LEN] = 0x45;
        frame[ETHERNET_LEN + 3] = 40;
        frame[ETHERNET_LEN + 12..ETHERNET_LEN + 20].copy_from_slice(&[127, 0, 0, 1, 127, 0, 0, 2]);
        frame[ETHERNET_LEN + 20..ETHERNET_LEN + 24].copy_from_slice(&[1, 2, 0, 80]);
        let [source, destination] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let pseudo = pseudo_header(source, destination, IpProtocol::TCP, 20);
        let correct = pseudo.bytes(&frame[ETHERNET_LEN + 20..]).checksum();
        let value = checksum(&pseudo.folded().to_be_bytes(), correct);
        frame[ETHERNET_LEN + 36..ETHERNET_LEN + 38].copy_from_slice(&value.to_be_bytes());
        // Append Ethernet padding.
        frame.extend([0xee; 6]);
        frame
    }

    #[test]
    fn only_partial_checksums_are_completed() {
        let correct = syn(|_, correct| correct);
        let mut partial = syn(|pseudo, _| u16::from_be_bytes([pseudo[0], pseudo[1]]));
        assert_ne!(partial, correct);
        complete_checksum(&mut partial);
        assert_eq!(partial, correct);
        complete_checksum(&mut partial);
        assert_eq!(partial, correct);
        let wrong = syn(|_, correct| correct ^ 0x0100);
        let mut processed = wrong.clone();
        complete_checksum(&mut processed);
        assert_eq!(processed, wrong);
    }

    #[test]
    fn truncated_and_malformed_frames_do_not_panic() {
        let frame = syn(|_, correct| correct);
        for length in 0..frame.len() {
            complete_checksum(&mut frame[..length].to_vec());
        }
        let mut malformed = frame;
        malformed[ETHERNET_LEN + 2] = 0xff;
        complete_checksum(&mut malformed);
        malformed[ETHERNET_LEN] = 0x4f;
        malformed[ETHERNET_LEN + 2..ETHERNET_LEN + 4].fill(0);
        complete_checksum(&mut malformed);
    }
}
