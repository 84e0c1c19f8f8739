/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Header rewrites: addresses, ports, TTL, DSCP, and the checksums that cover them. */
#ifndef WEIR_REWRITE_H
#define WEIR_REWRITE_H

#include "lib/context.h"
#include "lib/csum.h"
#ifdef WEIR_ON_SKB
#include "lib/skb_rewrite.h"
#endif

/* New addresses and ports of a packet. */
struct rewrite {
	struct weir_addr src;
	struct weir_addr dst;
	__be16 sport;
	__be16 dport;
};

/*
 * Updates the sum over the whole packet (CHECKSUM_COMPLETE of an skb) for a change that no other checksum compensates
 * for. In other states the helper fails, and the error is ignored.
 */
static __always_inline void complete_sum_update(struct weir_context *ctx, __u64 diff)
{
#ifdef WEIR_ON_SKB
	bpf_csum_update(ctx, csum_fold(diff));
#endif
}

static __always_inline int ttl_exceeded(void *data, void *data_end, const struct packet *p)
{
	if (p->family == 4) {
		struct ipv4_header *ip = packet_l3(data, p);

		return (void *)(ip + 1) > data_end || ip->ttl <= 1;
	} else {
		struct ipv6_header *ip = packet_l3(data, p);

		return (void *)(ip + 1) > data_end || ip->hops <= 1;
	}
}

static __always_inline void ttl_decrement(struct weir_context *ctx, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;

	if (p->family == 4) {
		struct ipv4_header *ip = packet_l3(data, p);
		__u32 csum;

		if ((void *)(ip + 1) > data_end)
			return;
		/* TTL is the high byte of its word: a decrement adds 0x0100 to the complemented sum (RFC 1141). */
		csum = ip->csum + bpf_htons(0x0100);
		ip->csum = csum + (csum >= 0xffff);
		ip->ttl--;
	} else {
		struct ipv6_header *ip = packet_l3(data, p);

		if ((void *)(ip + 1) > data_end)
			return;
		ip->hops--;
		complete_sum_update(ctx, csum_diff16(bpf_htons(ip->hops + 1), bpf_htons(ip->hops)));
	}
}

static __always_inline void dscp_set(struct weir_context *ctx, const struct packet *p, __u8 dscp)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;

	if (p->family == 4) {
		struct ipv4_header *ip = packet_l3(data, p);
		__u8 tos;

		if ((void *)(ip + 1) > data_end)
			return;
		tos = dscp << 2 | (ip->tos & 3);
		ip->csum = csum_apply(ip->csum, csum_diff16(bpf_htons(ip->tos), bpf_htons(tos)));
		ip->tos = tos;
	} else {
		struct ipv6_header *ip = packet_l3(data, p);
		__u32 flow, old;

		if ((void *)(ip + 1) > data_end)
			return;
		old = ip->flow;
		flow = bpf_ntohl(old);
		flow = (flow & ~0x0fc00000u) | (__u32)dscp << 22;
		ip->flow = bpf_htonl(flow);
		complete_sum_update(ctx, csum_diff32(old, bpf_htonl(flow)));
	}
}

/* Sets one address of the IP header and updates its checksum. Returns the difference for the pseudo header. */
static __always_inline __u64 address_set(void *data, void *data_end, const struct packet *p, int is_src,
					 const struct weir_addr *addr)
{
	__u64 diff = csum_diff_addr(is_src ? &p->src : &p->dst, addr, p->family);

	if (p->family == 4) {
		struct ipv4_header *ip = packet_l3(data, p);

		if ((void *)(ip + 1) > data_end)
			return 0;
		*(is_src ? &ip->src : &ip->dst) = addr_to_v4(addr);
		ip->csum = csum_apply(ip->csum, diff);
	} else {
		struct ipv6_header *ip = packet_l3(data, p);

		if ((void *)(ip + 1) > data_end)
			return 0;
		addr_to_v6(addr, is_src ? ip->src : ip->dst);
	}
	return diff;
}

/* Sets a packet's source or destination address and port. `is_src` is a compile-time constant. */
#ifdef WEIR_ON_SKB

static __always_inline void endpoint_rewrite(struct weir_context *ctx, const struct packet *p, int is_src,
					     const struct weir_addr *addr, __be16 port)
{
	/* Does not fail for parsed headers; if it did, the receiver would drop the packet because of its checksum. */
	if (skb_set_address(ctx, p, is_src, addr) || p->slow_path == PACKET_FRAGMENT_LATER)
		return;
	skb_set_port(ctx, p, is_src, port);
}

#else

/* Updates the TCP or UDP checksum. */
static __always_inline void l4_apply(void *data, void *data_end, const struct packet *p, __u64 diff)
{
	if (p->proto == PROTO_TCP) {
		struct tcp_header *tcp = packet_l4(data, p);

		if ((void *)(tcp + 1) <= data_end)
			tcp->csum = csum_apply(tcp->csum, diff);
	} else if (p->proto == PROTO_UDP) {
		struct udp_header *udp = packet_l4(data, p);

		if ((void *)(udp + 1) <= data_end)
			udp->csum = csum_apply_udp(udp->csum, diff);
	}
}

static __always_inline void port_set(void *data, void *data_end, const struct packet *p, int is_src, __be16 port)
{
	__be16 *ports = packet_l4(data, p);

	if ((void *)(ports + 2) <= data_end)
		ports[is_src ? 0 : 1] = port;
}

static __always_inline void endpoint_rewrite(struct weir_context *ctx, const struct packet *p, int is_src,
					     const struct weir_addr *addr, __be16 port)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u64 diff = address_set(data, data_end, p, is_src, addr);

	if (p->slow_path == PACKET_FRAGMENT_LATER)
		return;
	diff += csum_diff16(is_src ? p->sport : p->dport, port);
	l4_apply(data, data_end, p, diff);
	port_set(data, data_end, p, is_src, port);
}

#endif

static __always_inline void packet_rewrite(struct weir_context *ctx, const struct packet *p, const struct rewrite *to)
{
	endpoint_rewrite(ctx, p, 1, &to->src, to->sport);
	endpoint_rewrite(ctx, p, 0, &to->dst, to->dport);
}

#endif
