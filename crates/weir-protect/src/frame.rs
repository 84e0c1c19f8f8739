//! Prepares held frames for their way back into the stack.
//!
//! Packets that this host sent to itself or over a veth have a partial checksum, which a device would have completed. A
//! held frame has lost that mark, so the checksum is completed here. Frames of the loopback device are sent again as
//! packets of this host, because the stack drops loopback addresses that arrive on any other device.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use weir_wire::IpProtocol;
use weir_wire::checksum::pseudo_header;

/// The loopback device's index, in every namespace.
pub(crate) const LOOPBACK: u32 = 1;

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const TCP_CHECKSUM: usize = 16;
/// IPPROTO_RAW: the sender writes the IP header.
const RAW: i32 = 255;

/// Addresses and offsets of an Ethernet frame with TCP in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offsets {
    source: IpAddr,
    destination: IpAddr,
    /// Start of the TCP header.
    segment: usize,
    /// End of the IP packet; padding follows.
    end: usize,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn offsets(frame: &[u8]) -> Option<Offsets> {
    let length = |at| array(frame, at).map(|bytes| usize::from(u16::from_be_bytes(bytes)));
    match array(frame, 12)? {
        [0x08, 0x00] => {
            let header = usize::from(frame.get(ETHERNET)? & 0xf) * 4;
            Some(Offsets {
                source: Ipv4Addr::from(array(frame, ETHERNET + 12)?).into(),
                destination: Ipv4Addr::from(array(frame, ETHERNET + 16)?).into(),
                segment: ETHERNET + header,
                end: ETHERNET + length(ETHERNET + 2)?,
            })
        }
        [0x86, 0xdd] => Some(Offsets {
            source: Ipv6Addr::from(array::<16>(frame, ETHERNET + 8)?).into(),
            destination: Ipv6Addr::from(array::<16>(frame, ETHERNET + 24)?).into(),
            segment: ETHERNET + IPV6,
            end: ETHERNET + IPV6 + length(ETHERNET + 4)?,
        }),
        _ => None,
    }
}

/// Completes a checksum that covers only the pseudo header (CHECKSUM_PARTIAL, include/linux/skbuff.h). Any other is
/// left as it is, right or wrong.
pub(crate) fn complete_checksum(frame: &mut [u8]) {
    let Some(offsets) = offsets(frame) else {
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
    if array(segment, TCP_CHECKSUM).map(u16::from_be_bytes) != Some(pseudo.folded()) {
        return;
    }
    let Some(field) = segment.get_mut(TCP_CHECKSUM..TCP_CHECKSUM + 2) else {
        return;
    };
    field.fill(0);
    let checksum = pseudo.bytes(segment).checksum();
    if let Some(field) = segment.get_mut(TCP_CHECKSUM..TCP_CHECKSUM + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Sockets that send packets of the loopback device again.
#[derive(Debug)]
pub(crate) struct Loopback {
    ipv4: Socket,
    /// `None` = the host has no IPv6.
    ipv6: Option<Socket>,
}

impl Loopback {
    /// # Errors
    /// The process lacks CAP_NET_RAW.
    pub(crate) fn open() -> io::Result<Self> {
        let raw = |domain| Socket::new(domain, Type::RAW, Some(Protocol::from(RAW)));
        Ok(Self {
            ipv4: raw(Domain::IPV4)?,
            ipv6: raw(Domain::IPV6).ok(),
        })
    }

    /// Sends the packet of a frame again.
    ///
    /// # Errors
    /// The route is gone, or the frame holds no packet.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let offsets = offsets(frame).ok_or_else(invalid)?;
        let packet = frame.get(ETHERNET..offsets.end).ok_or_else(invalid)?;
        let socket = match offsets.destination {
            IpAddr::V4(_) => &self.ipv4,
            IpAddr::V6(_) => self.ipv6.as_ref().ok_or_else(invalid)?,
        };
        let to = SocketAddr::new(offsets.destination, 0);
        socket.send_to(packet, &to.into()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn(checksum: impl FnOnce(&[u8], u16) -> u16) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET + 20 + 20];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[ETHERNET] = 0x45;
        frame[ETHERNET + 3] = 40;
        frame[ETHERNET + 12..ETHERNET + 20].copy_from_slice(&[127, 0, 0, 1, 127, 0, 0, 2]);
        frame[ETHERNET + 20..ETHERNET + 24].copy_from_slice(&[1, 2, 0, 80]);
        let [source, destination] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let pseudo = pseudo_header(source, destination, IpProtocol::TCP, 20);
        let right = pseudo.bytes(&frame[ETHERNET + 20..]).checksum();
        let value = checksum(&pseudo.folded().to_be_bytes(), right);
        frame[ETHERNET + 36..ETHERNET + 38].copy_from_slice(&value.to_be_bytes());
        // Padding of a short frame.
        frame.extend([0xee; 6]);
        frame
    }

    #[test]
    fn only_partial_checksums_are_completed() {
        let right = syn(|_, right| right);
        let mut partial = syn(|pseudo, _| u16::from_be_bytes([pseudo[0], pseudo[1]]));
        assert_ne!(partial, right);
        complete_checksum(&mut partial);
        assert_eq!(partial, right);
        complete_checksum(&mut partial);
        assert_eq!(partial, right);
        let wrong = syn(|_, right| right ^ 0x0100);
        let mut kept = wrong.clone();
        complete_checksum(&mut kept);
        assert_eq!(kept, wrong);
    }

    #[test]
    fn truncated_and_malformed_frames_are_left_alone() {
        let frame = syn(|_, right| right);
        for length in 0..frame.len() {
            complete_checksum(&mut frame[..length].to_vec());
        }
        let mut malformed = frame;
        malformed[ETHERNET + 2] = 0xff;
        complete_checksum(&mut malformed);
        malformed[ETHERNET] = 0x4f;
        malformed[ETHERNET + 2..ETHERNET + 4].fill(0);
        complete_checksum(&mut malformed);
    }
}
