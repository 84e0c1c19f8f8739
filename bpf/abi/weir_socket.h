/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Maps of the cgroup programs that balance connections of local clients (weir_socket.bpf.c). The maps exist only while
 * a service needs them. Services, extents, servers and counts are in the maps in weir_abi.h.
 */
#ifndef WEIR_SOCKET_H
#define WEIR_SOCKET_H

/*
 * weir_socket_listeners (LPM trie): the service of a listener for the clients of one cgroup. The prefix of a port range
 * or of a listener on any port does not include the whole port, so the lookup finds the most specific listener.
 */
#define WEIR_SOCKET_SCOPE_LOCAL 0   /* scope of the director's own connections (balance_own) */
#define WEIR_SOCKET_PREFIX_ANY  176 /* bits of scope, address and protocol */
#define WEIR_SOCKET_PREFIX_PORT 192
struct weir_socket_listener {
	__u32 prefix;
	__u32 scope; /* the cgroup's number */
	struct weir_addr addr;
	__u8 proto;
	__u8 pad;
	__be16 port;
	__u32 pad2;
};

/*
 * weir_sockets (hash): the servers that a socket is connected to. A connected socket has only index 0; an unconnected
 * UDP socket has one index per VIP and server. Indexes are assigned in ascending order without gaps.
 */
#define WEIR_SOCKET_SLOTS 8
struct weir_socket_key {
	__u64 cookie;
	__u32 index;
	__u32 pad;
};

#define WEIR_SOCKET_COUNTED   1 /* counted as an active flow of the dest */
#define WEIR_SOCKET_CONNECTED 2
struct weir_socket {
	struct weir_addr vip;
	struct weir_addr server;
	__be16 vip_port;
	__be16 server_port;
	__u32 state; /* WEIR_SOCKET_* */
	__u32 dest;
	__u32 dest_generation;
	__u32 service;
	__u8 proto;
	__u8 scope;
	__u8 pad[2];
};

/*
 * weir_socket_clients (LRU hash): persistence by the client's cgroup or user. The constants are values of
 * weir_service.template_scope. Here the values WEIR_TEMPLATE_* select persistence by cgroup too.
 */
#define WEIR_SOCKET_CLIENT_CGROUP 0
#define WEIR_SOCKET_CLIENT_UID    3
struct weir_socket_client_key {
	__u64 client;
	__u32 service;
	__u32 generation; /* generation of the service row */
};
struct weir_socket_client {
	__u32 dest;
	__u32 dest_generation;
	__u32 seen; /* tick */
	__u32 pad;
};

#endif
