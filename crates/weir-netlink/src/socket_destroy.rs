//! Destroys sockets of other processes, with SOCK_DESTROY of sock_diag(7) (`ss --kill`).
//!
//! The next call on the socket in the program that owns it fails with ECONNABORTED. TCP sends a reset to the peer.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

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
/// Offset of the cookie in struct inet_diag_sockid.
const COOKIE_OFFSET: usize = 40;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const FAMILIES: [u8; 2] = [2, 10];
/// All states except TIME_WAIT and LISTEN (include/net/tcp_states.h).
const STATES: u32 = 0xfff & !(1 << 6 | 1 << 10);

/// Destroys the sockets with these cookies in the calling thread's namespace, and removes the cookies of destroyed
/// sockets from the set. `protocol` is 6 or 17.
///
/// # Errors
/// Fails if the kernel has no sock_diag, or cannot list sockets. A socket that was closed in the meantime is not an
/// error.
pub fn destroy_sockets(protocol: u8, cookies: &mut BTreeSet<u64>) -> Result<()> {
    for family in FAMILIES {
        if cookies.is_empty() {
            break;
        }
        let socket = open_socket()?;
        let dump = build_message(
            SOCK_DIAG_BY_FAMILY,
            NLM_F_DUMP,
            family,
            protocol,
            &[0; ID_BYTES],
        );
        send(&socket, &dump, SendFlags::empty()).map_err(request_failed)?;
        let found = receive_dump(&socket, cookies)?;
        for (cookie, id) in found {
            let destroy = build_message(SOCK_DESTROY, NLM_F_ACK, family, protocol, &id);
            send(&socket, &destroy, SendFlags::empty()).map_err(request_failed)?;
            if receive_acknowledgement(&socket)? {
                cookies.remove(&cookie);
            }
        }
    }
    Ok(())
}

fn open_socket() -> Result<OwnedFd> {
    let opened = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    );
    opened.map_err(|errno| Error::Socket {
        source: errno.into(),
    })
}

fn request_failed(errno: Errno) -> Error {
    Error::request_failed("end sockets", errno.into())
}

fn build_message(kind: u16, flags: u16, family: u8, protocol: u8, id: &[u8; ID_BYTES]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend_from_slice(&((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    // Sequence number and port.
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

/// Reads a dump. Returns the identities of the sockets with these cookies.
fn receive_dump(socket: &OwnedFd, cookies: &BTreeSet<u64>) -> Result<Vec<(u64, [u8; ID_BYTES])>> {
    let mut found = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (length, _) =
            recv(socket, buffer.as_mut_slice(), RecvFlags::empty()).map_err(request_failed)?;
        let mut bytes = buffer.get(..length).unwrap_or_default();
        while let Some((kind, body, rest)) = split_message(bytes) {
            match kind {
                NLMSG_DONE => return Ok(found),
                NLMSG_ERROR => {
                    let errno = error_number(body).map_or(Errno::BADMSG, Errno::from_raw_os_error);
                    return Err(request_failed(errno));
                }
                _ => found
                    .extend(parse_identity(body).filter(|(cookie, _)| cookies.contains(cookie))),
            }
            bytes = rest;
        }
    }
}

/// Returns the cookie and identity of a socket in struct inet_diag_msg.
fn parse_identity(body: &[u8]) -> Option<(u64, [u8; ID_BYTES])> {
    let id: [u8; ID_BYTES] = read_array(body, 4)?;
    let low = u32::from_ne_bytes(read_array(&id, COOKIE_OFFSET)?);
    let high = u32::from_ne_bytes(read_array(&id, COOKIE_OFFSET + 4)?);
    Some((u64::from(high) << 32 | u64::from(low), id))
}

/// Reads the reply to a request to destroy a socket; false = the socket was closed in the meantime.
fn receive_acknowledgement(socket: &OwnedFd) -> Result<bool> {
    let mut buffer = vec![0; 4 << 10];
    let (length, _) =
        recv(socket, buffer.as_mut_slice(), RecvFlags::empty()).map_err(request_failed)?;
    let reply = split_message(buffer.get(..length).unwrap_or_default());
    match reply.and_then(|(_, body, _)| error_number(body)) {
        Some(0) => Ok(true),
        Some(error_number) => match Errno::from_raw_os_error(error_number) {
            Errno::NOENT => Ok(false),
            errno => Err(request_failed(errno)),
        },
        None => Err(request_failed(Errno::BADMSG)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use rustix::net::sockopt::socket_cookie;

    use super::*;

    #[test]
    fn only_socket_with_the_cookie_is_destroyed() {
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
    fn truncated_message_is_rejected() {
        let bytes = build_message(SOCK_DESTROY, 0, 2, 6, &[0; ID_BYTES]);
        assert!(split_message(&bytes).is_some());
        assert!(split_message(&bytes[..40]).is_none() && split_message(&[]).is_none());
    }
}
