/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The GUE second hop: a packet of a TCP connection that does not exist on this host is sent to the server that the
 * director's previous table selects. The director includes the server's address in the GUE private data, in the format
 * of GitHub's load balancer (glb-director, "GLB GUE header"). The number of the next hop is incremented, so a packet
 * takes at most one such hop.
 */
#ifndef WEIR_REAL_SERVER_HOP_H
#define WEIR_REAL_SERVER_HOP_H

#include "lib/real_server_rewrite.h"
#include "lib/socket_tuple.h"

struct rs_tunnel {
	__u32 kind;         /* RS_TUNNEL_*, 0 = not one of Weir's tunnels */
	__u32 inner;        /* offset of the inner packet */
	__u32 inner_family;
	__u32 hops;         /* offset of the GUE private data, if it has the length of one hop; 0 = none */
	__u16 csum_start;   /* remote checksum offload: both from `inner`; 0 = none */
	__u16 csum_offset;
};

#define RS_TCP_FLAGS 13
#define RS_IPV4_ADDRESSES 12
#define RS_IPV6_ADDRESSES 8

/* Returns whether the segment acknowledges a SYN cookie of this listener. */
static __always_inline int rs_is_cookie(struct __sk_buff *skb, struct bpf_sock *sk, const struct rs_packet *inner)
{
	__u8 tcp[TCP_MIN_LEN], ip[IPV6_LEN];
	__u32 len = inner->family == 4 ? IPV4_MIN_LEN : IPV6_LEN;

	if (bpf_skb_load_bytes(skb, inner->l4, tcp, sizeof(tcp)))
		return 0;
	if (inner->family == 4) {
		if (bpf_skb_load_bytes(skb, inner->l3, ip, IPV4_MIN_LEN))
			return 0;
		return bpf_tcp_check_syncookie(sk, ip, IPV4_MIN_LEN, (void *)tcp, sizeof(tcp)) == 0;
	}
	if (bpf_skb_load_bytes(skb, inner->l3, ip, IPV6_LEN))
		return 0;
	return bpf_tcp_check_syncookie(sk, ip, len, (void *)tcp, sizeof(tcp)) == 0;
}

/* Returns whether the segment belongs to a connection of this host, or acknowledges a SYN cookie of this host. */
static __noinline int rs_has_connection(struct __sk_buff *skb, const struct rs_packet *inner)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	__u32 size;
	int known;

	if (!inner)
		return 1;
	size = socket_tuple_fill(&tuple, inner->family, &inner->src, &inner->dst, inner->sport, inner->dport);
	sk = bpf_skc_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	known = sk->state != BPF_TCP_LISTEN || rs_is_cookie(skb, sk, inner);
	bpf_sk_release(sk);
	return known;
}

/* Readdresses the tunnel packet from this host to the next hop. Returns 0 or a negative error. */
static __always_inline int rs_readdress(struct __sk_buff *skb, const struct rs_packet *outer, const struct rs_tunnel *t)
{
	__be32 from[8] = {}, to[8] = {};
	__u32 words = outer->family == 4 ? 1 : 4, csum_at = outer->l4 + RS_UDP_CSUM;
	__be16 csum, hops[2];
	__s64 diff;

	if (words == 1) {
		from[0] = addr_to_v4(&outer->src);
		from[1] = addr_to_v4(&outer->dst);
		to[0] = from[1];
		if (bpf_skb_load_bytes(skb, t->hops + 4, &to[1], 4))
			return -1;
	} else {
		addr_to_v6(&outer->src, from);
		addr_to_v6(&outer->dst, from + 4);
		addr_to_v6(&outer->dst, to);
		if (bpf_skb_load_bytes(skb, t->hops + 4, &to[4], 16))
			return -1;
	}
	if (bpf_skb_load_bytes(skb, csum_at, &csum, sizeof(csum)) ||
	    bpf_skb_load_bytes(skb, t->hops, hops, sizeof(hops)))
		return -1;
	diff = bpf_csum_diff(from, sizeof(from), to, sizeof(to), 0);
	if (csum && (bpf_l4_csum_replace(skb, csum_at, 0, diff, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0) ||
		     bpf_l4_csum_replace(skb, csum_at, hops[1], hops[1] + bpf_htons(0x100),
					 BPF_F_MARK_MANGLED_0 | sizeof(hops[1]))))
		return -1;
	hops[1] += bpf_htons(0x100);
	if (bpf_skb_store_bytes(skb, t->hops, hops, sizeof(hops), 0))
		return -1;
	if (words == 4)
		return bpf_skb_store_bytes(skb, outer->l3 + RS_IPV6_ADDRESSES, to, 32, 0);
	if (bpf_l3_csum_replace(skb, outer->l3 + RS_IPV4_CSUM, 0, diff, 0))
		return -1;
	return bpf_skb_store_bytes(skb, outer->l3 + RS_IPV4_ADDRESSES, to, 8, 0);
}

/* Returns 1 if the packet was readdressed to the next hop, 0 if it is for this host. A SYN is always for this host. */
static __noinline int rs_second_hop(struct __sk_buff *skb, const struct rs_packet *outer, const struct rs_packet *inner,
				    const struct rs_tunnel *t)
{
	__u8 hops[4], flags;

	if (!outer || !inner || !t || inner->proto != PROTO_TCP || inner->fragment != RS_WHOLE)
		return 0;
	if (bpf_skb_load_bytes(skb, inner->l4 + RS_TCP_FLAGS, &flags, sizeof(flags)) || flags & TCP_SYN)
		return 0;
	/* The data must have type 0, and its only hop must not have been used yet. */
	if (bpf_skb_load_bytes(skb, t->hops, hops, sizeof(hops)) || hops[0] || hops[1] || hops[2] != 0 || hops[3] != 1)
		return 0;
	if (rs_has_connection(skb, inner))
		return 0;
	return rs_readdress(skb, outer, t) == 0;
}

#endif
