//! Frames on their way back into the stack.
//!
//! What this host itself sent, to itself or by a veth, has a checksum that a device was to finish; a frame has no note
//! of it any more, so that it is finished here. And what the loopback carries must go out again as a packet of this
//! host, because the stack would refuse a loopback address from anywhere else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use weir_wire::IpProtocol;
use weir_wire::checksum::pseudo_header;

/// The loopback's number, in every namespace.
pub(crate) const LOOPBACK: u32 = 1;

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const TCP_CHECKSUM: usize = 16;
/// IPPROTO_RAW: the header is the sender's.
const RAW: i32 = 255;

/// Where things are in an Ethernet frame with TCP in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    source: IpAddr,
    destination: IpAddr,
    /// Of the TCP header.
    segment: usize,
    /// Of the IP packet; what is behind is the wire's padding.
    end: usize,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn place(frame: &[u8]) -> Option<Place> {
    let length = |at| array(frame, at).map(|bytes| usize::from(u16::from_be_bytes(bytes)));
    match array(frame, 12)? {
        [0x08, 0x00] => {
            let header = usize::from(frame.get(ETHERNET)? & 0xf) * 4;
            Some(Place {
                source: Ipv4Addr::from(array(frame, ETHERNET + 12)?).into(),
                destination: Ipv4Addr::from(array(frame, ETHERNET + 16)?).into(),
                segment: ETHERNET + header,
                end: ETHERNET + length(ETHERNET + 2)?,
            })
        }
        [0x86, 0xdd] => Some(Place {
            source: Ipv6Addr::from(array::<16>(frame, ETHERNET + 8)?).into(),
            destination: Ipv6Addr::from(array::<16>(frame, ETHERNET + 24)?).into(),
            segment: ETHERNET + IPV6,
            end: ETHERNET + IPV6 + length(ETHERNET + 4)?,
        }),
        _ => None,
    }
}

/// Finishes a checksum that holds the pseudo header alone (CHECKSUM_PARTIAL, include/linux/skbuff.h); any other stays,
/// right or wrong.
pub(crate) fn finish_checksum(frame: &mut [u8]) {
    let Some(place) = place(frame) else { return };
    let Some(segment) = frame.get_mut(place.segment..place.end) else {
        return;
    };
    let pseudo = pseudo_header(
        place.source,
        place.destination,
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

/// The way back for packets of the loopback.
#[derive(Debug)]
pub(crate) struct Loopback {
    ipv4: Socket,
    /// A host may have none.
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

    /// Sends the packet in a frame once more.
    ///
    /// # Errors
    /// The route is gone, or the frame holds no packet.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let place = place(frame).ok_or_else(invalid)?;
        let packet = frame.get(ETHERNET..place.end).ok_or_else(invalid)?;
        let socket = match place.destination {
            IpAddr::V4(_) => &self.ipv4,
            IpAddr::V6(_) => self.ipv6.as_ref().ok_or_else(invalid)?,
        };
        let to = SocketAddr::new(place.destination, 0);
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
        // The wire pads short frames.
        frame.extend([0xee; 6]);
        frame
    }

    #[test]
    fn only_an_unfinished_checksum_is_finished() {
        let right = syn(|_, right| right);
        let mut unfinished = syn(|pseudo, _| u16::from_be_bytes([pseudo[0], pseudo[1]]));
        assert_ne!(unfinished, right);
        finish_checksum(&mut unfinished);
        assert_eq!(unfinished, right);
        finish_checksum(&mut unfinished);
        assert_eq!(unfinished, right);
        let wrong = syn(|_, right| right ^ 0x0100);
        let mut kept = wrong.clone();
        finish_checksum(&mut kept);
        assert_eq!(kept, wrong);
    }

    #[test]
    fn no_frame_is_too_short() {
        let frame = syn(|_, right| right);
        for length in 0..frame.len() {
            finish_checksum(&mut frame[..length].to_vec());
        }
        let mut lies = frame;
        lies[ETHERNET + 2] = 0xff;
        finish_checksum(&mut lies);
        lies[ETHERNET] = 0x4f;
        lies[ETHERNET + 2..ETHERNET + 4].fill(0);
        finish_checksum(&mut lies);
    }
}
