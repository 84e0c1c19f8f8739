//! Lists the TCP connections to some local addresses, with sock_diag(7).

use std::collections::HashSet;
use std::net::SocketAddr;

use crate::Result;
use crate::socket::{TcpState, dump, parse_endpoint};

/// Offset of the local address in struct inet_diag_msg.
const LOCAL_OFFSETS: (usize, usize) = (4, 8);
/// Offset of the remote address in struct inet_diag_msg.
const REMOTE_OFFSETS: (usize, usize) = (6, 24);
/// States in which the client can be waiting for data.
const STATES: [TcpState; 3] = [
    TcpState::Established,
    TcpState::FinWait1,
    TcpState::CloseWait,
];

/// Returns the connections in the calling thread's network namespace for whose local address `is_selected` returns
/// true, each as its local and remote address; at most `max`. IPv4 addresses of IPv6 sockets are returned as IPv4
/// addresses.
///
/// # Errors
/// See [`crate::tcp_sockets`].
pub fn tcp_connections(
    is_selected: impl Fn(SocketAddr) -> bool,
    max: usize,
) -> Result<HashSet<(SocketAddr, SocketAddr)>> {
    let mut connections = HashSet::new();
    dump(&STATES, |message| {
        let ends = parse_endpoint(message, LOCAL_OFFSETS).filter(|local| is_selected(*local));
        let ends = ends.zip(parse_endpoint(message, REMOTE_OFFSETS));
        if connections.len() < max {
            connections.extend(ends);
        }
    })?;
    Ok(connections)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_connections_to_selected_addresses_are_listed() {
        for listen in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(listen).unwrap();
            let port = listener.local_addr().unwrap().port();
            let host = if listen.starts_with("[::1]") {
                "::1"
            } else {
                "127.0.0.1"
            };
            let client = TcpStream::connect((host, port)).unwrap();
            let (_accepted, from) = listener.accept().unwrap();
            let ends = (client.peer_addr().unwrap(), client.local_addr().unwrap());
            assert_eq!(from.port(), ends.1.port());
            let list = |max| tcp_connections(|local| local == ends.0, max).unwrap();
            assert_eq!(list(9), HashSet::from([ends]), "{listen}");
            assert_eq!(list(0), HashSet::new());
        }
    }
}
