//! Lists the TCP sockets in the namespace, with sock_diag(7).
//!
//! The dump is not a snapshot: a socket that is opened or closed during the dump can be missing or listed twice.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::{Error, Result};

/// The state of a TCP socket; only the states that Weir uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TcpState {
    /// Both ends can send.
    Established,
    /// A SYN-ACK was sent; the client's ACK has not been received.
    SynReceived,
    /// This end has sent a FIN that has not been acknowledged.
    FinWait1,
    /// The other end has sent a FIN.
    CloseWait,
    /// Both ends have sent a FIN; the FIN of this end has not been acknowledged.
    LastAck,
    /// The socket accepts connections.
    Listen,
}

impl TcpState {
    /// Every state.
    const ALL: [Self; 6] = [
        Self::Established,
        Self::SynReceived,
        Self::FinWait1,
        Self::CloseWait,
        Self::LastAck,
        Self::Listen,
    ];

    /// States in which a connection can still have data to send.
    pub const SENDING: [Self; 5] = [
        Self::Established,
        Self::SynReceived,
        Self::FinWait1,
        Self::CloseWait,
        Self::LastAck,
    ];

    /// Returns the number in include/net/tcp_states.h.
    const fn number(self) -> u8 {
        match self {
            Self::Established => 1,
            Self::SynReceived => 3,
            Self::FinWait1 => 4,
            Self::CloseWait => 8,
            Self::LastAck => 9,
            Self::Listen => 10,
        }
    }
}

/// A TCP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// The state.
    pub state: TcpState,
    /// The local address, which is unspecified for a wildcard listener.
    pub local: SocketAddr,
    /// The socket's cookie; unique until the next reboot.
    pub cookie: u64,
    /// For a listener: number of connections that have not been accepted yet.
    pub backlog: u32,
    /// For a connection in state SYN-RECEIVED: number of SYN-ACK retransmissions.
    pub retransmits: u8,
}

/// Size of struct nlmsghdr.
const HEADER_LEN: usize = 16;
/// Size of struct inet_diag_req. For each request the kernel iterates over its connection table (0.5 to 3 ms for a
/// quarter of a million buckets). This old format requests both address families at once, which is not possible with
/// inet_diag_req_v2.
const REQUEST_LEN: usize = 60;
/// Offset of the states in the request.
const STATES_OFFSET: usize = 52;
/// Size of struct inet_diag_msg.
const MESSAGE_LEN: usize = 72;
const TCPDIAG_GETSOCK: u16 = 18;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// NLM_F_REQUEST and NLM_F_DUMP.
const FLAGS: u16 = 0x1 | 0x300;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Returns all TCP sockets in the calling thread's network namespace that are in one of `states`.
///
/// # Errors
/// Fails if the kernel does not support sock_diag, or rejects the request.
pub fn tcp_sockets(states: &[TcpState]) -> Result<Vec<TcpSocket>> {
    let mut sockets = Vec::new();
    dump(states, |message| sockets.extend(parse_socket(message)))?;
    Ok(sockets)
}

/// Calls `handle` with the struct inet_diag_msg of each TCP socket in one of `states`.
pub(crate) fn dump(states: &[TcpState], mut handle: impl FnMut(&[u8])) -> Result<()> {
    let socket: OwnedFd = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )
    .map_err(|errno| Error::Socket {
        source: errno.into(),
    })?;
    send(&socket, &build_request(states), SendFlags::empty()).map_err(request_error)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (length, _) =
            recv(&socket, buffer.as_mut_slice(), RecvFlags::empty()).map_err(request_error)?;
        let reply = buffer.get(..length).unwrap_or_default();
        if parse_messages(reply, &mut handle).map_err(request_error)? {
            return Ok(());
        }
    }
}

fn request_error(errno: Errno) -> Error {
    // Without inet_diag, the kernel does not support the request; without tcp_diag, it does not support the protocol.
    let is_missing = matches!(errno, Errno::OPNOTSUPP | Errno::NOENT);
    Error::Rejected {
        request: "list TCP sockets".to_owned(),
        source: errno.into(),
        reason: is_missing.then(|| "the kernel needs CONFIG_INET_TCP_DIAG".to_owned()),
    }
}

fn build_request(states: &[TcpState]) -> Vec<u8> {
    let mask = states
        .iter()
        .fold(0u32, |mask, state| mask | 1 << state.number());
    let length = (HEADER_LEN + REQUEST_LEN) as u32;
    let mut bytes = Vec::with_capacity(HEADER_LEN + REQUEST_LEN);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&TCPDIAG_GETSOCK.to_ne_bytes());
    bytes.extend_from_slice(&FLAGS.to_ne_bytes());
    // Zero bytes match any port, address, device and cookie.
    bytes.resize(HEADER_LEN + STATES_OFFSET, 0);
    bytes.extend_from_slice(&mask.to_ne_bytes());
    bytes.resize(HEADER_LEN + REQUEST_LEN, 0);
    bytes
}

fn read_array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let part = bytes
        .get(offset..offset + N)
        .and_then(|part| part.try_into().ok());
    part.unwrap_or([0; N])
}

/// Parses a datagram of messages and passes each socket to `handle`. Returns whether it is the last datagram.
fn parse_messages(
    mut bytes: &[u8],
    handle: &mut impl FnMut(&[u8]),
) -> std::result::Result<bool, Errno> {
    while bytes.len() >= HEADER_LEN {
        let length = u32::from_ne_bytes(read_array(bytes, 0)) as usize;
        let kind = u16::from_ne_bytes(read_array(bytes, 4));
        let Some(body) = bytes.get(HEADER_LEN..length.max(HEADER_LEN)) else {
            return Err(Errno::BADMSG);
        };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let number = i32::from_ne_bytes(read_array(body, 0));
                return match number {
                    0 => Ok(true),
                    number => Err(Errno::from_raw_os_error(-number)),
                };
            }
            _ => handle(body),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Returns the port and address at these offsets in struct inet_diag_msg.
fn parse_address(body: &[u8], (port, address): (usize, usize)) -> Option<SocketAddr> {
    let ip: IpAddr = match *body.first()? {
        AF_INET => Ipv4Addr::from(read_array::<4>(body, address)).into(),
        AF_INET6 => Ipv6Addr::from(read_array::<16>(body, address)).into(),
        _ => return None,
    };
    let port = u16::from_be_bytes(read_array(body, port));
    Some(SocketAddr::new(ip, port))
}

/// Like [`parse_address`], but returns the IPv4 address of an IPv6 socket with an IPv4 peer.
pub(crate) fn parse_endpoint(body: &[u8], offsets: (usize, usize)) -> Option<SocketAddr> {
    let address = parse_address(body, offsets)?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

fn parse_socket(body: &[u8]) -> Option<TcpSocket> {
    let body: &[u8; MESSAGE_LEN] = body.get(..MESSAGE_LEN)?.try_into().ok()?;
    let state = TcpState::ALL
        .into_iter()
        .find(|state| state.number() == body[1])?;
    let local = parse_address(body, (4, 8))?;
    let cookie = [
        u32::from_ne_bytes(read_array(body, 44)),
        u32::from_ne_bytes(read_array(body, 48)),
    ];
    Some(TcpSocket {
        state,
        local,
        cookie: u64::from(cookie[1]) << 32 | u64::from(cookie[0]),
        backlog: u32::from_ne_bytes(read_array(body, 56)),
        retransmits: body[3],
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn listener_and_its_backlog_are_reported() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(local).unwrap();
            let address = listener.local_addr().unwrap();
            let find_listener = || {
                let listeners = tcp_sockets(&[TcpState::Listen]).unwrap();
                listeners.into_iter().find(|socket| socket.local == address)
            };
            let before = find_listener().unwrap();
            assert_eq!((before.state, before.backlog), (TcpState::Listen, 0));
            let client = TcpStream::connect(address).unwrap();
            let after = find_listener().unwrap();
            assert_eq!((after.backlog, after.cookie), (1, before.cookie));
            let local = client.local_addr().unwrap();
            let sockets = tcp_sockets(&TcpState::SENDING).unwrap();
            let client_socket = sockets.into_iter().find(|socket| socket.local == local);
            assert_eq!(
                client_socket.map(|socket| socket.state),
                Some(TcpState::Established)
            );
            drop(listener);
            assert_eq!(find_listener(), None);
        }
    }

    #[test]
    fn error_without_tcp_diag_names_the_kernel_setting() {
        for errno in [Errno::OPNOTSUPP, Errno::NOENT] {
            let message = request_error(errno).to_string();
            assert!(message.contains("CONFIG_INET_TCP_DIAG"), "{message}");
        }
        let message = request_error(Errno::NOMEM).to_string();
        assert!(!message.contains("CONFIG_"), "{message}");
    }

    #[test]
    fn truncated_message_is_rejected() {
        let mut message = build_request(&[TcpState::Listen]);
        message[0] = 200;
        assert_eq!(parse_messages(&message, &mut |_| {}), Err(Errno::BADMSG));
        assert_eq!(parse_messages(&[], &mut |_| {}), Ok(false));
    }
}
