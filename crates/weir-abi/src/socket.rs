//! Defines the map entries of the cgroup programs that balance connections of clients on this machine.
//!
//! The entries are listeners, the servers of sockets, and the servers of persistent clients.

use crate::mirror::{constants, structs};
use crate::{Addr, Be16};

constants! {
    /// Scope of the director's own connections.
    SOCKET_SCOPE_LOCAL: u32 = 0;
    /// Prefix length of a listener on any port: scope, address and protocol.
    SOCKET_PREFIX_ANY: u32 = 176;
    /// Prefix length of a listener on one port.
    SOCKET_PREFIX_PORT: u32 = 192;
    /// Maximum number of records per socket.
    SOCKET_SLOTS: u32 = 8;
    /// `Socket::state`: the socket is counted as an active flow of the dest.
    SOCKET_COUNTED: u32 = 1;
    /// `Socket::state`: the socket is connected.
    SOCKET_CONNECTED: u32 = 2;
    /// `Service::template_scope` of a socket service: persistence by cgroup.
    SOCKET_CLIENT_CGROUP: u8 = 0;
    /// `Service::template_scope` of a socket service: persistence by user.
    SOCKET_CLIENT_UID: u8 = 3;
}

structs! {
    /// Key of `weir_socket_listeners`, for a longest-prefix match; the value is the service row.
    SocketListener = "weir_socket_listener", 32 {
        /// Number of significant bits after this field.
        prefix: u32,
        /// Number assigned to the cgroup.
        scope: u32,
        /// The VIP.
        addr: Addr,
        /// IP protocol number.
        proto: u8,
        /// Zero.
        pad: u8,
        /// Port, or the first port of a block.
        port: Be16,
        /// Zero.
        pad2: u32,
    }

    /// Key of `weir_sockets`: a socket, and the number of one of its records.
    SocketKey = "weir_socket_key", 16 {
        /// The kernel's cookie of the socket.
        cookie: u64,
        /// Number of the record: the records of a socket are numbered from 0 without gaps.
        index: u32,
        /// Zero.
        pad: u32,
    }

    /// Value of `weir_sockets`: a server of a socket.
    Socket = "weir_socket", 56 {
        /// Address that the client used.
        vip: Addr,
        /// Address of the server.
        server: Addr,
        /// Port that the client used.
        vip_port: Be16,
        /// Port of the server.
        server_port: Be16,
        /// `SOCKET_*`.
        state: u32,
        /// Server row.
        dest: u32,
        /// Generation of that row.
        dest_generation: u32,
        /// Service row.
        service: u32,
        /// IP protocol number.
        proto: u8,
        /// Number assigned to the cgroup.
        scope: u8,
        /// Zero.
        pad: [u8; 2],
    }

    /// Key of `weir_socket_clients`: a persistent client.
    SocketClientKey = "weir_socket_client_key", 16 {
        /// Id of the cgroup or of the user.
        client: u64,
        /// Service row.
        service: u32,
        /// Generation of that row.
        generation: u32,
    }

    /// Value of `weir_socket_clients`: the server of the client.
    SocketClient = "weir_socket_client", 16 {
        /// Server row.
        dest: u32,
        /// Generation of that row.
        dest_generation: u32,
        /// Tick of the last connection.
        seen: u32,
        /// Zero.
        pad: u32,
    }
}
