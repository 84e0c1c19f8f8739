/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Encapsulation towards a server: IP in IP (RFC 2003, 2473), GRE (RFC 2784) and GUE variant 0 as the kernel's fou module
 * reads it (draft-ietf-intarea-gue). The outer TTL is the inner one, ECN follows RFC 6040, DF is always set: what does not
 * fit was answered with "too big" before.
 */
#ifndef WEIR_ENCAP_H
#define WEIR_ENCAP_H

#include "lib/csum.h"
#include "lib/maps.h"
#include "lib/parse.h"

#define GRE_LEN      4
#define GRE_CSUM_LEN 8
#define GUE_LEN      4
#define GUE_REMCSUM_LEN 12
#define GRE_FLAG_CSUM 0x8000
#define GUE_FLAG_PRIV 0x0001
#define GUE_PFLAG_REMCSUM 0x80000000

static __always_inline __u32 encap_shim_len(const struct weir_dest *dest)
{
	if (dest->tunnel == WEIR_TUNNEL_GUE)
		return UDP_LEN + (dest->tunnel_flags & WEIR_TUNNEL_REMCSUM ? GUE_REMCSUM_LEN : GUE_LEN);
	if (dest->tunnel == WEIR_TUNNEL_GRE)
		return dest->tunnel_flags & WEIR_TUNNEL_CSUM ? GRE_CSUM_LEN : GRE_LEN;
	return 0;
}

/* Bytes that the tunnel to this server adds to an IP packet. */
static __always_inline __u32 encap_overhead(const struct weir_dest *dest)
{
	return (dest->family == 4 ? IPV4_MIN_LEN : IPV6_LEN) + encap_shim_len(dest);
}

/* What the outer header takes over from the inner one. */
struct inner {
	__u16 len;
	__u8 proto; /* PROTO_IPIP or PROTO_IPV6 */
	__u8 tos;   /* DSCP and ECN are copied: RFC 6040 normal mode at the tunnel's entrance */
	__u8 ttl;
};

static __always_inline int inner_read(void *data, void *data_end, const struct packet *p, struct inner *inner)
{
	inner->len = p->ip_len;
	if (p->family == 4) {
		struct ipv4_header *ip = packet_l3(data, p);

		if ((void *)(ip + 1) > data_end)
			return 0;
		inner->proto = PROTO_IPIP;
		inner->tos = ip->tos;
		inner->ttl = ip->ttl;
	} else {
		struct ipv6_header *ip = packet_l3(data, p);

		if ((void *)(ip + 1) > data_end)
			return 0;
		inner->proto = PROTO_IPV6;
		inner->tos = bpf_ntohl(ip->flow) >> 20;
		inner->ttl = ip->hops;
	}
	return 1;
}

static __always_inline __u8 outer_proto(const struct weir_dest *dest, const struct inner *inner)
{
	if (dest->tunnel == WEIR_TUNNEL_GUE)
		return PROTO_UDP;
	return dest->tunnel == WEIR_TUNNEL_GRE ? PROTO_GRE : inner->proto;
}

static __always_inline int outer_ip_write(void *at, void *data_end, const struct weir_dest *dest,
					  const struct inner *inner, __u32 shim, __u32 label)
{
	if (dest->family == 4) {
		struct ipv4_header *ip = at;

		if ((void *)(ip + 1) > data_end)
			return 0;
		ip->version = 4;
		ip->ihl = IPV4_MIN_LEN / 4;
		ip->tos = inner->tos;
		ip->total_len = bpf_htons(inner->len + IPV4_MIN_LEN + shim);
		ip->id = 0; /* never fragmented: RFC 6864 lets it be anything */
		ip->frag = bpf_htons(IPV4_DF);
		ip->ttl = inner->ttl;
		ip->proto = outer_proto(dest, inner);
		ip->src = addr_to_v4(&dest->tunnel_source);
		ip->dst = addr_to_v4(&dest->addr);
		ip->csum = 0;
		ip->csum = csum_ipv4_header(ip);
	} else {
		struct ipv6_header *ip = at;

		if ((void *)(ip + 1) > data_end)
			return 0;
		ip->flow = bpf_htonl(6u << 28 | (__u32)inner->tos << 20 | (label & 0xfffff));
		ip->payload_len = bpf_htons(inner->len + shim);
		ip->next = outer_proto(dest, inner);
		ip->hops = inner->ttl;
		addr_to_v6(&dest->tunnel_source, ip->src);
		addr_to_v6(&dest->addr, ip->dst);
	}
	return 1;
}

static __always_inline int shim_write(void *at, void *data_end, const struct weir_dest *dest, const struct inner *inner,
				      __u64 hash)
{
	if (dest->tunnel == WEIR_TUNNEL_GUE) {
		struct udp_header *udp = at;
		__u8 *gue = at + UDP_LEN;

		if ((void *)(gue + GUE_LEN) > data_end)
			return 0;
		/* The source port spreads flows over receive queues and equal paths: RFC 7510 section 3. */
		udp->src = bpf_htons(0xc000 | (hash & 0x3fff));
		udp->dst = dest->tunnel_port;
		udp->len = bpf_htons(inner->len + UDP_LEN + GUE_LEN);
		udp->csum = 0;
		gue[0] = 0;
		gue[1] = inner->proto;
		gue[2] = 0;
		gue[3] = 0;
	} else if (dest->tunnel == WEIR_TUNNEL_GRE) {
		__be16 *gre = at;

		if ((void *)(gre + 2) > data_end)
			return 0;
		gre[0] = 0;
		gre[1] = bpf_htons(inner->proto == PROTO_IPIP ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	}
	return 1;
}

#define FRAME_HEADER_MAX (ETH_HEADER_LEN + 2 * VLAN_TAG_LEN)

/* The EtherType stands in the last two bytes of the frame's header: 14 bytes, and 4 for each tag. */
static __always_inline void frame_set_type(__u8 *frame, __u32 length, __be16 type)
{
	if (length == ETH_HEADER_LEN)
		__builtin_memcpy(frame + 12, &type, 2);
	else if (length == ETH_HEADER_LEN + VLAN_TAG_LEN)
		__builtin_memcpy(frame + 16, &type, 2);
	else
		__builtin_memcpy(frame + 20, &type, 2);
}

/* Puts the outer headers in front; tags of the frame stay. Answers PARSE_OK or the reason that ends the packet. */
static __always_inline int encap_push(struct xdp_md *ctx, struct packet *p, struct weir_dest *dest, __u64 hash)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u32 overhead = encap_overhead(dest), l3 = p->l3;
	__u8 frame[FRAME_HEADER_MAX];
	struct inner inner;
	void *outer;

	if (!inner_read(data, data_end, p, &inner))
		return WEIR_DROP_INTERNAL;
	if (data + FRAME_HEADER_MAX > data_end)
		return WEIR_DROP_TOO_SHORT;
	__builtin_memcpy(frame, data, FRAME_HEADER_MAX);
	frame_set_type(frame, l3, bpf_htons(dest->family == 4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6));
	if (bpf_xdp_adjust_head(ctx, -(int)overhead))
		return WEIR_DROP_NO_HEADROOM;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (data + FRAME_HEADER_MAX > data_end || l3 > FRAME_HEADER_MAX || l3 < ETH_HEADER_LEN)
		return WEIR_DROP_INTERNAL;
	/* A few bytes past the frame's own header are written too; the outer header overwrites them. */
	__builtin_memcpy(data, frame, FRAME_HEADER_MAX);
	outer = data + l3;
	if (!outer_ip_write(outer, data_end, dest, &inner, encap_shim_len(dest), hash >> 44))
		return WEIR_DROP_INTERNAL;
	outer += dest->family == 4 ? IPV4_MIN_LEN : IPV6_LEN;
	if (!shim_write(outer, data_end, dest, &inner, hash))
		return WEIR_DROP_INTERNAL;
	return PARSE_OK;
}

#endif
