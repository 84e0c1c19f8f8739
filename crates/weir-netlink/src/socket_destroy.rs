//! Destroys sockets of other processes with sock_diag(7)'s SOCK_DESTROY, as `ss --kill` does.
//!
//! The owner's next call on the socket fails with ECONNABORTED. TCP sends a reset to the peer.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::{Error, Result};

/// Size of struct nlmsghdr.
const HEADER_BYTES: usize = 16;
/// Size of struct inet_diag_req_v2: family, protocol, extensions, states, then struct inet_diag_sockid.
const REQUEST_BYTES: usize = 56;
/// Size of struct inet_diag_sockid.
const ID_BYTES: usize = 48;
/// Offset of the local address in struct inet_diag_sockid. The address is 4 bytes long for IPv4, and 16 for IPv6.
const ADDRESS_OFFSET: usize = 4;
/// Offset of the cookie in struct inet_diag_sockid.
const COOKIE_OFFSET: usize = 40;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
/// Protocol number of TCP.
const TCP: u8 = 6;
/// AF_INET and AF_INET6.
const FAMILIES: [u8; 2] = [2, 10];
/// All states except TIME_WAIT and LISTEN (include/net/tcp_states.h).
const STATES: u32 = 0xfff & !(1 << 6 | 1 << 10);

/// Destroys the sockets with these cookies in the calling thread's network namespace, and removes the cookies of
/// destroyed sockets from the set. `protocol` is 6 or 17.
///
/// # Errors
/// Fails if the kernel does not support sock_diag, or cannot list or destroy sockets. A socket that was closed in the
/// meantime is not an error.
pub fn destroy_sockets(protocol: u8, cookies: &mut BTreeSet<u64>) -> Result<()> {
    for family in FAMILIES {
        if cookies.is_empty() {
            break;
        }
        let socket = open_socket()?;
        for id in find_sockets(&socket, family, protocol, |id| {
            cookies.contains(&cookie_of(id))
        })? {
            if destroy(&socket, family, protocol, &id)? {
                cookies.remove(&cookie_of(&id));
            }
        }
    }
    Ok(())
}

/// Destroys the TCP connections in the calling thread's network namespace whose local address is in `addresses`. Stops
/// after `limit`. The peers receive a reset if the addresses are still on an interface. Returns the number of destroyed
/// connections.
///
/// # Errors
/// See [`destroy_sockets`].
pub fn destroy_connections_of(addresses: &BTreeSet<IpAddr>, limit: Duration) -> Result<usize> {
    let deadline = Instant::now() + limit;
    let mut destroyed = 0;
    for family in FAMILIES {
        let socket = open_socket()?;
        let is_affected = |id: &[u8; ID_BYTES]| addresses.contains(&local_address_of(family, id));
        for id in find_sockets(&socket, family, TCP, is_affected)? {
            if Instant::now() >= deadline {
                return Ok(destroyed);
            }
            destroyed += usize::from(destroy(&socket, family, TCP, &id)?);
        }
    }
    Ok(destroyed)
}

/// Returns the IDs (struct inet_diag_sockid) of the matching sockets.
fn find_sockets(
    socket: &OwnedFd,
    family: u8,
    protocol: u8,
    is_match: impl Fn(&[u8; ID_BYTES]) -> bool,
) -> Result<Vec<[u8; ID_BYTES]>> {
    let any = [0; ID_BYTES];
    let dump = build_message(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, family, protocol, &any);
    send(socket, &dump, SendFlags::empty()).map_err(list_error)?;
    receive_dump(socket, is_match)
}

/// Destroys a socket; false = it was closed in the meantime.
fn destroy(socket: &OwnedFd, family: u8, protocol: u8, id: &[u8; ID_BYTES]) -> Result<bool> {
    let destroy = build_message(SOCK_DESTROY, NLM_F_ACK, family, protocol, id);
    send(socket, &destroy, SendFlags::empty()).map_err(destroy_error)?;
    receive_acknowledgement(socket)
}

fn open_socket() -> Result<OwnedFd> {
    let result = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    );
    result.map_err(|errno| Error::Socket {
        source: errno.into(),
    })
}

fn list_error(errno: Errno) -> Error {
    Error::request_failed("list sockets", errno.into())
}

fn destroy_error(errno: Errno) -> Error {
    Error::request_failed("destroy a socket", errno.into())
}

fn build_message(kind: u16, flags: u16, family: u8, protocol: u8, id: &[u8; ID_BYTES]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend_from_slice(&((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    // Sequence number and netlink port ID.
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[family, protocol, 0, 0]);
    bytes.extend_from_slice(&STATES.to_ne_bytes());
    bytes.extend_from_slice(id);
    bytes
}

fn read_array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

/// Splits off the first message of a datagram: its type, its body, and the remaining bytes.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(read_array(bytes, 0)?) as usize;
    let kind = u16::from_ne_bytes(read_array(bytes, 4)?);
    let body = bytes.get(HEADER_BYTES..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, rest))
}

/// Returns the error number of an error message; 0 = acknowledgement.
fn error_number(body: &[u8]) -> Option<i32> {
    read_array(body, 0).map(|bytes| i32::from_ne_bytes(bytes).wrapping_neg())
}

/// Reads a dump. Returns the IDs of the matching sockets.
fn receive_dump(
    socket: &OwnedFd,
    is_match: impl Fn(&[u8; ID_BYTES]) -> bool,
) -> Result<Vec<[u8; ID_BYTES]>> {
    let mut ids = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (length, _) =
            recv(socket, buffer.as_mut_slice(), RecvFlags::empty()).map_err(list_error)?;
        let mut bytes = buffer.get(..length).unwrap_or_default();
        while let Some((kind, body, rest)) = split_message(bytes) {
            match kind {
                NLMSG_DONE => return Ok(ids),
                NLMSG_ERROR => {
                    let errno = error_number(body).map_or(Errno::BADMSG, Errno::from_raw_os_error);
                    return Err(list_error(errno));
                }
                // The socket ID in struct inet_diag_msg.
                _ => ids.extend(read_array(body, 4).filter(&is_match)),
            }
            bytes = rest;
        }
    }
}

/// Returns the cookie in a socket ID.
fn cookie_of(id: &[u8; ID_BYTES]) -> u64 {
    let [low, high] = [COOKIE_OFFSET, COOKIE_OFFSET + 4]
        .map(|offset| read_array(id, offset).map_or(0, u32::from_ne_bytes));
    u64::from(high) << 32 | u64::from(low)
}

/// Returns the local address in a socket ID. The local address of an IPv6 socket can be IPv4-mapped.
fn local_address_of(family: u8, id: &[u8; ID_BYTES]) -> IpAddr {
    let bytes: [u8; 16] = read_array(id, ADDRESS_OFFSET).unwrap_or_default();
    match (family, bytes) {
        (2, [a, b, c, d, ..]) => Ipv4Addr::new(a, b, c, d).into(),
        _ => IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(),
    }
}

/// Reads the reply to a request to destroy a socket; false = the socket was closed in the meantime.
fn receive_acknowledgement(socket: &OwnedFd) -> Result<bool> {
    let mut buffer = vec![0; 4 << 10];
    let (length, _) =
        recv(socket, buffer.as_mut_slice(), RecvFlags::empty()).map_err(destroy_error)?;
    let reply = split_message(buffer.get(..length).unwrap_or_default());
    match reply.and_then(|(_, body, _)| error_number(body)) {
        Some(0) => Ok(true),
        Some(error_number) => match Errno::from_raw_os_error(error_number) {
            Errno::NOENT => Ok(false),
            errno => Err(destroy_error(errno)),
        },
        None => Err(destroy_error(Errno::BADMSG)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use rustix::net::sockopt::socket_cookie;

    use super::*;

    #[test]
    fn only_socket_with_matching_cookie_is_destroyed() {
        if !weir_testing::require_root() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut destroyed = TcpStream::connect(address).unwrap();
        let other = TcpStream::connect(address).unwrap();
        let mut cookies = BTreeSet::from([socket_cookie(&destroyed).unwrap(), u64::MAX]);
        destroy_sockets(6, &mut cookies).unwrap();
        assert_eq!(cookies, BTreeSet::from([u64::MAX]));
        assert!(destroyed.read(&mut [0]).is_err());
        assert!(other.take_error().unwrap().is_none());
    }

    #[test]
    fn only_connections_with_matching_local_address_are_destroyed() {
        if !weir_testing::require_root() {
            return;
        }
        // The first two listeners accept connections to any local address.
        for (listen, destroyed, kept) in [
            ("0.0.0.0:0", "127.0.66.1", "127.0.66.2"),
            ("[::]:0", "127.0.66.3", "127.0.66.4"),
            ("[::1]:0", "::1", ""),
        ] {
            let listener = TcpListener::bind(listen).unwrap();
            let port = listener.local_addr().unwrap().port();
            let connect = |address: &str| {
                let address: IpAddr = address.parse().unwrap();
                let client = TcpStream::connect((address, port)).unwrap();
                client.set_nonblocking(true).unwrap();
                (client, listener.accept().unwrap())
            };
            let (mut client, _server) = connect(destroyed);
            let other = (!kept.is_empty()).then(|| connect(kept));
            let addresses = BTreeSet::from([destroyed.parse().unwrap()]);
            let count = destroy_connections_of(&addresses, Duration::from_secs(5)).unwrap();
            // Both ends of the connection to ::1 have this address. The reset may already have closed the other end.
            assert!(
                count == 1 || kept.is_empty() && count == 2,
                "{listen}: {count}"
            );
            assert!(client.read(&mut [0]).is_err_and(|error| {
                matches!(
                    error.kind(),
                    std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::ConnectionAborted
                )
            }));
            if let Some((mut client, _)) = other {
                let error = client.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            }
        }
    }

    #[test]
    fn connected_datagram_socket_is_destroyed() {
        if !weir_testing::require_root() {
            return;
        }
        let client = UdpSocket::bind("[::1]:0").unwrap();
        client.connect("[::1]:9").unwrap();
        let mut cookies = BTreeSet::from([socket_cookie(&client).unwrap()]);
        destroy_sockets(17, &mut cookies).unwrap();
        assert!(cookies.is_empty());
        assert!(client.send(b"x").is_err());
    }

    #[test]
    fn errors_name_the_failed_request() {
        let errors = [list_error(Errno::PERM), destroy_error(Errno::PERM)];
        let [list, destroy] = errors.map(|error| error.to_string());
        assert!(list.contains("list sockets"), "{list}");
        assert!(destroy.contains("destroy a socket"), "{destroy}");
    }

    #[test]
    fn truncated_message_is_rejected() {
        let bytes = build_message(SOCK_DESTROY, 0, 2, 6, &[0; ID_BYTES]);
        assert!(split_message(&bytes).is_some());
        assert!(split_message(&bytes[..40]).is_none() && split_message(&[]).is_none());
    }
}
