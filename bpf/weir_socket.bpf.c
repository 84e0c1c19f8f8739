// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * forward = "socket": balances connections of clients on this machine. No packet is changed: the address in connect()
 * and sendmsg() is replaced.
 *
 *   connect4, connect6            VIP → server; no server → ECONNREFUSED or EHOSTUNREACH
 *   sendmsg4, sendmsg6            the same, for each datagram of an unconnected UDP socket
 *   recvmsg4, recvmsg6            source of a datagram: server → VIP
 *   getpeername4, getpeername6    peer: server → VIP
 *   sock_release                  the socket is closed: it is no longer counted
 *   sockops                       the connection is established: its handshake time is a sample for least-time
 *
 * An IPv6 socket can use IPv4-mapped addresses. The programs are loaded once per cgroup, with its number as a constant.
 */
#include "lib/socket.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define ALLOW  1
#define REFUSE 0

#define PROTO_MPTCP 262

static __always_inline int out_of_scope(struct bpf_sock_addr *ctx)
{
	return weir_netns && bpf_get_netns_cookie(ctx) != weir_netns;
}

static __always_inline void client_fill(struct socket_client *client, struct bpf_sock_addr *ctx)
{
	client->proto = ctx->protocol == PROTO_UDP ? PROTO_UDP : PROTO_TCP;
	client->port = (__be16)ctx->user_port;
	client->cookie = bpf_get_socket_cookie(ctx);
}

static __always_inline void client_fill4(struct socket_client *client, struct bpf_sock_addr *ctx)
{
	client_fill(client, ctx);
	client->addr = addr_from_v4(ctx->user_ip4);
	client->family = 4;
}

static __always_inline void client_fill6(struct socket_client *client, struct bpf_sock_addr *ctx)
{
	client_fill(client, ctx);
	client->addr.hi = (__u64)ctx->user_ip6[1] << 32 | ctx->user_ip6[0];
	client->addr.lo = (__u64)ctx->user_ip6[3] << 32 | ctx->user_ip6[2];
	client->family = addr_is_v4(&client->addr) ? 4 : 6;
}

static __always_inline void client_identify(struct socket_client *client)
{
	client->cgroup = bpf_get_current_cgroup_id();
	client->uid = (__u32)bpf_get_current_uid_gid();
}

static __always_inline void store4(struct bpf_sock_addr *ctx, const struct socket_client *client)
{
	ctx->user_ip4 = addr_to_v4(&client->addr);
	ctx->user_port = client->port;
}

static __always_inline void store6(struct bpf_sock_addr *ctx, const struct socket_client *client)
{
	ctx->user_ip6[0] = (__u32)client->addr.hi;
	ctx->user_ip6[1] = client->addr.hi >> 32;
	ctx->user_ip6[2] = (__u32)client->addr.lo;
	ctx->user_ip6[3] = client->addr.lo >> 32;
	ctx->user_port = client->port;
}

static __always_inline int is_balanced(struct bpf_sock_addr *ctx)
{
	return ctx->protocol == PROTO_TCP || ctx->protocol == PROTO_UDP || ctx->protocol == PROTO_MPTCP;
}

#define ASSIGN(name, family, call)                                                                                     \
	SEC("cgroup/" #name #family)                                                                                   \
	int weir_##name##family(struct bpf_sock_addr *ctx)                                                             \
	{                                                                                                              \
		struct socket_client client = {};                                                                      \
		int result;                                                                                            \
                                                                                                                       \
		if (!is_balanced(ctx) || out_of_scope(ctx))                                                              \
			return ALLOW;                                                                                  \
		client_fill##family(&client, ctx);                                                                     \
		client_identify(&client);                                                                              \
		result = call(&client);                                                                                \
		if (result == SOCKET_PASS)                                                                             \
			return ALLOW;                                                                                  \
		if (result < 0) {                                                                                      \
			bpf_set_retval(result);                                                                        \
			return REFUSE;                                                                                 \
		}                                                                                                      \
		store##family(ctx, &client);                                                                           \
		return ALLOW;                                                                                          \
	}

#define RESTORE(name, family)                                                                                          \
	SEC("cgroup/" #name #family)                                                                                   \
	int weir_##name##family(struct bpf_sock_addr *ctx)                                                             \
	{                                                                                                              \
		struct socket_client client = {};                                                                      \
                                                                                                                       \
		client_fill##family(&client, ctx);                                                                     \
		if (socket_restore(&client))                                                                           \
			store##family(ctx, &client);                                                                   \
		return ALLOW;                                                                                          \
	}

ASSIGN(connect, 4, socket_connect)
ASSIGN(connect, 6, socket_connect)
ASSIGN(sendmsg, 4, socket_send)
ASSIGN(sendmsg, 6, socket_send)
RESTORE(recvmsg, 4)
RESTORE(recvmsg, 6)
RESTORE(getpeername, 4)
RESTORE(getpeername, 6)

/*
 * The kernel measures the time from SYN to SYN-ACK, in units of 1/8 us; 0 = not measured, because the SYN was
 * retransmitted. `reply` is not set, because the kernel ignores it for this event and other programs can use it.
 */
SEC("sockops")
int weir_sock_ops(struct bpf_sock_ops *ctx)
{
	__u32 us = ctx->srtt_us >> 3;

	if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && us)
		socket_store_latency(bpf_get_socket_cookie(ctx), us * 1000LL);
	return ALLOW;
}

SEC("cgroup/sock_release")
int weir_sock_release(struct bpf_sock *ctx)
{
	socket_delete_records(bpf_get_socket_cookie(ctx));
	return ALLOW;
}
