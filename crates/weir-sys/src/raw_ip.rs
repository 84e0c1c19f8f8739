//! Sends and receives packets of one IP protocol, such as VRRP, on one interface.
//!
//! Each received packet includes its addresses and its TTL or hop limit, which the protocol must verify.

#![allow(
    unsafe_code,
    reason = "recvmsg(2) with IPV6_PKTINFO and IPV6_HOPLIMIT has no safe wrapper"
)]

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockAddr, Socket, Type};

use crate::{Error, Result};

/// Maximum length of a received packet, in bytes. Longer packets are truncated, so the protocol's length check rejects
/// them.
const MAX_PACKET_BYTES: usize = 4096;
const IPV4_HEADER_BYTES: usize = 20;
/// Class selector 6, network control (RFC 2474).
const TRAFFIC_CLASS: u8 = 0xc0;

/// A raw IP socket.
#[derive(Debug)]
pub struct RawIpSocket {
    socket: Socket,
    protocol: u8,
    source: IpAddr,
    ifindex: u32,
    unicast_ttl: u8,
}

/// A received packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPacket {
    /// The payload of the IP packet.
    pub bytes: Vec<u8>,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

impl RawIpSocket {
    /// Opens a socket that sends from `source` and receives on one interface, in the calling thread's network
    /// namespace. Joins the multicast group `group`, if there is one. The socket never blocks.
    ///
    /// # Errors
    /// Fails if the interface or the address does not exist, or the process lacks `CAP_NET_RAW`.
    pub fn open(
        protocol: u8,
        interface: &str,
        ifindex: u32,
        source: IpAddr,
        group: Option<IpAddr>,
    ) -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let domain = if source.is_ipv4() {
                Domain::IPV4
            } else {
                Domain::IPV6
            };
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(protocol))))?;
            socket.set_nonblocking(true)?;
            socket.bind_device(Some(interface.as_bytes()))?;
            match source {
                IpAddr::V4(_) => {
                    socket.set_header_included_v4(true)?;
                    socket.set_multicast_loop_v4(false)?;
                }
                IpAddr::V6(source) => {
                    socket.set_multicast_loop_v6(false)?;
                    socket.set_multicast_if_v6(ifindex)?;
                    socket.set_multicast_hops_v6(255)?;
                    socket.set_unicast_hops_v6(255)?;
                    socket.set_tclass_v6(u32::from(TRAFFIC_CLASS))?;
                    socket.set_recv_hoplimit_v6(true)?;
                    enable_destination(&socket)?;
                    socket
                        .bind(&SocketAddr::from(SocketAddrV6::new(source, 0, 0, ifindex)).into())?;
                }
            }
            match group {
                Some(IpAddr::V4(group)) => {
                    socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(ifindex))?;
                }
                Some(IpAddr::V6(group)) => socket.join_multicast_v6(&group, ifindex)?,
                None => {}
            }
            Ok(socket)
        };
        let socket = open().map_err(|source| Error::call("raw socket", interface, source))?;
        Ok(Self {
            socket,
            protocol,
            source,
            ifindex,
            unicast_ttl: 255,
        })
    }

    /// Sets the TTL or hop limit of packets to unicast addresses; the default is 255.
    ///
    /// # Errors
    /// Fails if the system call fails.
    pub fn set_unicast_ttl(&mut self, ttl: u8) -> Result<()> {
        self.unicast_ttl = ttl;
        if self.source.is_ipv6() {
            let result = self.socket.set_unicast_hops_v6(u32::from(ttl));
            result.map_err(|source| Error::call("setsockopt", "IPV6_UNICAST_HOPS", source))?;
        }
        Ok(())
    }

    /// Sends a packet. To a multicast group, the TTL or hop limit is 255.
    ///
    /// # Errors
    /// Fails if the families differ, the interface is down, there is no route, or the buffer is full.
    pub fn send(&self, payload: &[u8], destination: IpAddr) -> Result<()> {
        let result = match (self.source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let ttl = match destination.is_multicast() {
                    true => 255,
                    false => self.unicast_ttl,
                };
                let mut packet = packet_v4(self.protocol, source, destination, payload);
                packet[8] = ttl;
                let address = SocketAddr::from(SocketAddrV4::new(destination, 0));
                self.socket.send_to(&packet, &SockAddr::from(address))
            }
            (IpAddr::V6(_), IpAddr::V6(destination)) => {
                let address = SocketAddrV6::new(destination, 0, 0, self.ifindex);
                self.socket
                    .send_to(payload, &SockAddr::from(SocketAddr::from(address)))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        result
            .map(drop)
            .map_err(|source| Error::call("sendto", destination.to_string(), source))
    }

    /// Returns the next packet; `None` = there is none.
    ///
    /// # Errors
    /// Fails if the interface no longer exists, or is down.
    pub fn receive(&self) -> Result<Option<RawPacket>> {
        let mut bytes = [0_u8; MAX_PACKET_BYTES];
        let received = match self.source {
            IpAddr::V4(_) => self.receive_v4(&mut bytes),
            IpAddr::V6(_) => self.receive_v6(&mut bytes),
        };
        match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Error::call("recvmsg", "raw socket", error)),
            Ok(packet) => Ok(Some(packet)),
        }
    }

    fn receive_v4(&self, bytes: &mut [u8]) -> io::Result<RawPacket> {
        loop {
            let (length, _) =
                rustix::net::recv(&self.socket, &mut *bytes, rustix::net::RecvFlags::empty())?;
            if let Some(packet) = parse_v4(&bytes[..length]) {
                return Ok(packet);
            }
        }
    }

    fn receive_v6(&self, bytes: &mut [u8]) -> io::Result<RawPacket> {
        let mut control = [0_u64; 16];
        let mut name = MaybeUninit::<libc::sockaddr_in6>::zeroed();
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        // glibc and musl declare the length with different types.
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: every pointer in the message is to a live buffer of the stated length.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        let Ok(length) = usize::try_from(length) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the address was zeroed, and the kernel wrote at most its length.
        let name = unsafe { name.assume_init() };
        let mut packet = RawPacket {
            bytes: bytes[..length].to_vec(),
            source: Ipv6Addr::from(name.sin6_addr.s6_addr).into(),
            destination: Ipv6Addr::UNSPECIFIED.into(),
            hop_limit: 0,
        };
        // SAFETY: the kernel filled the control buffer; the macros stay within msg_controllen, and each type is read,
        // unaligned, only where the kernel has announced it.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while !header.is_null() {
                let data = libc::CMSG_DATA(header);
                match ((*header).cmsg_level, (*header).cmsg_type) {
                    (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                        let limit = data.cast::<libc::c_int>().read_unaligned();
                        packet.hop_limit = u8::try_from(limit).unwrap_or(0);
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        packet.destination = Ipv6Addr::from(info.ipi6_addr.s6_addr).into();
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        Ok(packet)
    }
}

/// Sets IPV6_RECVPKTINFO; socket2 has no function for it.
fn enable_destination(socket: &Socket) -> io::Result<()> {
    let enabled: libc::c_int = 1;
    // SAFETY: the option's value is live for the call, and the length is its own.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_RECVPKTINFO,
            (&raw const enabled).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl AsFd for RawIpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for RawIpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Returns a packet with its IPv4 header. The kernel fills in checksum, total length and identification (raw(7)).
fn packet_v4(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IPV4_HEADER_BYTES];
    packet[0] = 0x45;
    packet[1] = TRAFFIC_CLASS;
    packet[8] = 255;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    packet.extend_from_slice(payload);
    packet
}

fn parse_v4(bytes: &[u8]) -> Option<RawPacket> {
    let header = bytes.first_chunk::<IPV4_HEADER_BYTES>()?;
    let start = usize::from(header[0] & 0x0f) * 4;
    let address = |offset: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| header[offset + index]);
        Ipv4Addr::new(a, b, c, d)
    };
    Some(RawPacket {
        bytes: bytes.get(start.max(IPV4_HEADER_BYTES)..)?.to_vec(),
        source: address(12).into(),
        destination: address(16).into(),
        hop_limit: header[8],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_header_round_trips() {
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(224, 0, 0, 18));
        let packet = packet_v4(112, source, destination, b"abc");
        let parsed = parse_v4(&packet).unwrap();
        assert_eq!(
            (parsed.source, parsed.destination),
            (source.into(), destination.into())
        );
        assert_eq!(
            (parsed.hop_limit, parsed.bytes.as_slice()),
            (255, &b"abc"[..])
        );
        for length in 0..IPV4_HEADER_BYTES {
            assert_eq!(parse_v4(&packet[..length]), None);
        }
        let mut options = packet;
        options[0] = 0x4f;
        assert_eq!(parse_v4(&options), None);
    }

    #[test]
    fn packets_arrive_with_their_addresses() {
        if !weir_testing::require_root() {
            return;
        }
        let netns = crate::NetNs::create().unwrap();
        netns
            .run(|| {
                let up = std::process::Command::new("ip")
                    .args(["link", "set", "lo", "up"])
                    .status();
                assert!(up.unwrap().success());
                for address in ["127.0.0.1", "::1"] {
                    let address: IpAddr = address.parse().unwrap();
                    let socket = RawIpSocket::open(112, "lo", 1, address, None).unwrap();
                    assert_eq!(socket.receive().unwrap(), None);
                    socket.send(b"hello", address).unwrap();
                    let packet = socket.receive().unwrap().unwrap();
                    assert_eq!((packet.source, packet.destination), (address, address));
                    assert_eq!(
                        (packet.hop_limit, packet.bytes.as_slice()),
                        (255, &b"hello"[..])
                    );
                }
            })
            .unwrap();
    }
}
