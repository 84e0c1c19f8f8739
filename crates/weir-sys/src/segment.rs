//! Sends IP packets that the caller has built, from one local address. Nothing is received.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{Error, Result};

/// IPPROTO_RAW: the socket receives nothing, and packets contain their IP header (raw(7), ipv6(7)).
const RAW: i32 = 255;

/// A raw socket for packets from one address.
#[derive(Debug)]
pub struct SegmentSocket {
    socket: Socket,
    source: IpAddr,
}

impl SegmentSocket {
    /// Opens a socket in the calling thread's network namespace. Routes are selected for packets from `source`. The
    /// socket never blocks.
    ///
    /// # Errors
    /// Fails if the process lacks `CAP_NET_RAW`, or no interface has the address.
    pub fn open(source: IpAddr) -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let domain = match source {
                IpAddr::V4(_) => Domain::IPV4,
                IpAddr::V6(_) => Domain::IPV6,
            };
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(RAW)))?;
            socket.set_nonblocking(true)?;
            socket.bind(&SocketAddr::new(source, 0).into())?;
            Ok(socket)
        };
        match open() {
            Ok(socket) => Ok(Self { socket, source }),
            Err(error) => Err(Error::call("raw socket", source.to_string(), error)),
        }
    }

    /// Sends a packet with its IP header. Over IPv4, the kernel sets the header's checksum and length.
    ///
    /// # Errors
    /// Fails if the families differ, there is no route, or the buffer is full.
    pub fn send(&self, packet: &[u8], destination: IpAddr) -> Result<()> {
        let result = match self.source.is_ipv4() == destination.is_ipv4() {
            true => self
                .socket
                .send_to(packet, &SocketAddr::new(destination, 0).into()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        };
        result
            .map(drop)
            .map_err(|error| Error::call("sendto", destination.to_string(), error))
    }
}
