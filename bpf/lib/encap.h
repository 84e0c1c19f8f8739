/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Encapsulation toward a server: IP in IP (RFC 2003, 2473), GRE (RFC 2784) and GUE variant 0 as implemented by the
 * kernel's fou module (draft-ietf-intarea-gue). The outer TTL is copied from the inner header, ECN follows RFC 6040,
 * and DF is always set, because packets that do not fit have already been rejected with "too big".
 *
 * GUE can carry the address of a second hop as private data, in the format of GitHub's load balancer (glb-director,
 * "GLB GUE header"): the server forwards packets of unknown connections to this hop.
 */
#ifndef WEIR_ENCAP_H
#define WEIR_ENCAP_H

#include "lib/context.h"
#include "lib/forward_method.h"
#include "lib/maps.h"
#include "lib/packet_sum.h"
#include "lib/parse.h"

#define GRE_LEN      4
#define GRE_CSUM_LEN 8
#define GUE_LEN      4
#define GUE_REMCSUM_LEN 12
#define GUE_HOPS_LEN 4 /* private data: type 0, number of the next hop, number of hops; addresses follow */
#define GUE_HOPS_ONE 1
#define GRE_FLAG_CSUM 0x8000
#define GUE_FLAG_PRIV 0x0001
#define GUE_PFLAG_REMCSUM 0x80000000

/*
 * Returns the maximum length of the headers between the outer and the inner IP header. The headers are shorter if there
 * is no checksum to defer.
 */
static __always_inline __u32 encap_shim_len(const struct weir_dest *dest)
{
	if (dest->tunnel == WEIR_TUNNEL_GUE)
		return UDP_LEN + (dest->tunnel_flags & WEIR_TUNNEL_REMCSUM ? GUE_REMCSUM_LEN : GUE_LEN);
	if (dest->tunnel == WEIR_TUNNEL_GRE)
		return dest->tunnel_flags & WEIR_TUNNEL_CSUM ? GRE_CSUM_LEN : GRE_LEN;
	return 0;
}

/* Returns the second hop if both servers use GUE with the same family and port, otherwise 0. */
static __always_inline const struct weir_dest *encap_alternative(const struct packet *p, const struct weir_dest *dest)
{
	const struct weir_dest *other;

	if (!p->alternative || dest->tunnel != WEIR_TUNNEL_GUE)
		return 0;
	other = WEIR_LOOKUP(weir_dests, p->alternative);
	if (!other || !forward_encapsulates(other->forward) || other->tunnel != WEIR_TUNNEL_GUE ||
	    other->family != dest->family || other->tunnel_port != dest->tunnel_port)
		return 0;
	return other;
}

static __always_inline __u32 encap_hops_len(const struct weir_dest *dest)
{
	return GUE_HOPS_LEN + (dest->family == 4 ? 4 : 16);
}

/* Returns the number of bytes that a second hop adds to this packet. */
static __always_inline __u32 encap_extra(const struct packet *p, const struct weir_dest *dest)
{
	return encap_alternative(p, dest) ? encap_hops_len(dest) : 0;
}

/* Returns the maximum number of bytes that the tunnel to this server adds to an IP packet, without a second hop. */
static __always_inline __u32 encap_overhead(const struct weir_dest *dest)
{
	return (dest->family == 4 ? IPV4_MIN_LEN : IPV6_LEN) + encap_shim_len(dest);
}

/* Inner header fields used for the outer header. */
struct inner {
	__u16 len;
	__u8 proto; /* PROTO_IPIP or PROTO_IPV6 */
	__u8 tos;   /* DSCP and ECN are copied: RFC 6040 normal mode, tunnel ingress */
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

static __always_inline int outer_ip_write(void *header, void *data_end, const struct weir_dest *dest,
					  const struct inner *inner, __u32 shim, __u32 label)
{
	if (dest->family == 4) {
		struct ipv4_header *ip = header;

		if ((void *)(ip + 1) > data_end)
			return 0;
		ip->version = 4;
		ip->ihl = IPV4_MIN_LEN / 4;
		ip->tos = inner->tos;
		ip->total_len = bpf_htons(inner->len + IPV4_MIN_LEN + shim);
		ip->id = 0; /* never fragmented: any value is allowed (RFC 6864) */
		ip->frag = bpf_htons(IPV4_DF);
		ip->ttl = inner->ttl;
		ip->proto = outer_proto(dest, inner);
		ip->src = addr_to_v4(&dest->tunnel_source);
		ip->dst = addr_to_v4(&dest->addr);
		ip->csum = 0;
		ip->csum = csum_ipv4_header(ip);
	} else {
		struct ipv6_header *ip = header;

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

/* ---- checksums of the inner packet ------------------------------------------------------------------------------- */

/* The tunnel header of a packet, which follows the outer IP header. */
struct shim {
	__u64 inner_sum; /* sum over the final inner packet, if `csum` is set */
	const struct weir_dest *hop; /* the GUE second hop; 0 = none */
	__u16 start;     /* remote checksum: offset of the inner transport header from the inner IP header; 0 = none */
	__u16 field;     /* remote checksum: offset of the checksum field from the inner IP header */
	__u16 len;
	__u8 csum;       /* whether there is an outer UDP or GRE checksum */
};

/*
 * Returns the checksum field of a complete TCP or UDP segment, otherwise 0. The sum of such a segment is the complement
 * of its pseudo header, so its data need not be summed.
 */
static __always_inline __u16 *segment_csum(void *data, void *data_end, const struct packet *p)
{
	if (p->slow_path != PACKET_PLAIN)
		return 0;
	if (p->proto == PROTO_TCP) {
		struct tcp_header *tcp = packet_l4(data, p);

		return (void *)(tcp + 1) > data_end ? 0 : &tcp->csum;
	} else {
		struct udp_header *udp = packet_l4(data, p);

		if ((void *)(udp + 1) > data_end || udp->csum == 0 ||
		    bpf_ntohs(udp->len) != (__u16)(p->ip_len - (p->l4 - p->l3)))
			return 0;
		return &udp->csum;
	}
}

/* Returns the sum of the inner IP header if it has neither options nor extension headers, otherwise -1. */
static __always_inline __s64 ip_header_sum(void *data, void *data_end, const struct packet *p)
{
	__u32 *word = packet_l3(data, p);
	__u64 sum = 0;

	if (p->l4 - p->l3 != (p->family == 4 ? IPV4_MIN_LEN : IPV6_LEN) || (void *)(word + 5) > data_end)
		return -1;
#pragma unroll
	for (int i = 0; i < 5; i++)
		sum += word[i];
	if (p->family == 4)
		return sum;
	if ((void *)(word + 10) > data_end)
		return -1;
#pragma unroll
	for (int i = 5; i < 10; i++)
		sum += word[i];
	return sum;
}

/*
 * Returns the tunnel flags that apply to this packet. On an skb the inner checksum can be partial and is completed only
 * at transmission, so remote checksum offload is not used. A GSO packet cannot carry an outer checksum per segment;
 * over UDP it is sent without one, which is allowed (RFC 768, RFC 6935).
 */
static __always_inline __u8 shim_flags(struct weir_context *ctx, const struct weir_dest *dest)
{
#ifdef WEIR_ON_SKB
	if (ctx->gso_size && dest->tunnel == WEIR_TUNNEL_GUE)
		return 0;
	return dest->tunnel_flags & WEIR_TUNNEL_REMCSUM ? WEIR_TUNNEL_CSUM : dest->tunnel_flags;
#else
	return dest->tunnel_flags;
#endif
}

/*
 * Fills in the shim and sums the inner packet. If the server must complete the inner checksum, the checksum field gets
 * the sum of the pseudo header, and the sum of the segment is the complement of the previous checksum. Returns 0 if the
 * packet cannot be summed.
 */
static __always_inline int shim_plan(struct weir_context *ctx, const struct packet *p, const struct weir_dest *dest,
				     struct shim *shim)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u8 flags = shim_flags(ctx, dest);
	__u64 pseudo, segment;
	__s64 sum;
	__u16 *csum;

	__builtin_memset(shim, 0, sizeof(*shim));
	if (dest->tunnel == WEIR_TUNNEL_IPIP)
		return 1;
	shim->len = dest->tunnel == WEIR_TUNNEL_GUE ? UDP_LEN + GUE_LEN : GRE_LEN;
	shim->hop = encap_alternative(p, dest);
	if (shim->hop)
		shim->len += encap_hops_len(dest);
	if (!(flags & (WEIR_TUNNEL_CSUM | WEIR_TUNNEL_REMCSUM)))
		return 1;
	/*
	 * Set `csum` even if the inner checksum is deferred: without an outer checksum, completing the inner checksum
	 * would make a corrupted packet valid.
	 */
	shim->csum = 1;
	if (dest->tunnel == WEIR_TUNNEL_GRE)
		shim->len = GRE_CSUM_LEN;
	csum = segment_csum(data, data_end, p);
	if (csum) {
		pseudo = csum_pseudo(&p->src, &p->dst, p->proto, p->ip_len - (p->l4 - p->l3));
		segment = (__u16)~csum_fold(pseudo);
		if (dest->tunnel == WEIR_TUNNEL_GUE && flags & WEIR_TUNNEL_REMCSUM) {
			shim->start = p->l4 - p->l3;
			shim->field = shim->start + (p->proto == PROTO_TCP ? 16 : 6);
			shim->len += GUE_REMCSUM_LEN - GUE_LEN;
			segment = (__u16)~*csum;
			*csum = csum_fold(pseudo);
		}
		sum = ip_header_sum(data, data_end, p);
		shim->inner_sum = sum + segment;
		if (sum >= 0)
			return 1;
	}
	sum = packet_sum(ctx, p->l3, p->ip_len);
	shim->inner_sum = sum;
	return sum >= 0;
}

/* ---- GUE and GRE ------------------------------------------------------------------------------------------------- */

/* Writes the private data: one hop, the server `hop`. Adds its sum to `sum`. */
static __always_inline int gue_hops_write(__be32 *hops, void *data_end, const struct weir_dest *hop, __u64 *sum)
{
	__be32 addr[4];
	__u32 words = 1;

	if ((void *)(hops + 2) > data_end)
		return 0;
	hops[0] = bpf_htonl(GUE_HOPS_ONE);
	*sum += hops[0];
	if (hop->family == 4) {
		addr[0] = addr_to_v4(&hop->addr);
	} else {
		if ((void *)(hops + 5) > data_end)
			return 0;
		addr_to_v6(&hop->addr, addr);
		words = 4;
	}
	hops[1] = addr[0];
	*sum += addr[0];
	if (words == 1)
		return 1;
	hops[2] = addr[1];
	hops[3] = addr[2];
	hops[4] = addr[3];
	*sum += (__u64)addr[1] + addr[2] + addr[3];
	return 1;
}

static __always_inline int gue_write(void *header, void *data_end, const struct weir_dest *dest,
				     const struct inner *inner, const struct shim *shim, __u64 hash)
{
	struct udp_header *udp = header;
	__be32 *gue = header + UDP_LEN;
	__u16 len = inner->len + shim->len;
	__u64 sum = shim->inner_sum;
	__u32 word = (__u32)inner->proto << 16;

	if ((void *)(gue + 1) > data_end)
		return 0;
	if (shim->start) {
		if ((void *)(gue + 3) > data_end)
			return 0;
		word |= (GUE_REMCSUM_LEN - GUE_LEN) / 4 << 24 | GUE_FLAG_PRIV;
		gue[1] = bpf_htonl(GUE_PFLAG_REMCSUM);
		gue[2] = bpf_htonl((__u32)shim->start << 16 | shim->field);
		sum += (__u64)gue[1] + gue[2];
	}
	if (shim->hop) {
		word += encap_hops_len(dest) / 4 << 24;
		if (!gue_hops_write(shim->start ? gue + 3 : gue + 1, data_end, shim->hop, &sum))
			return 0;
	}
	gue[0] = bpf_htonl(word);
	/* The source port spreads flows over receive queues and equal paths: RFC 7510 section 3. */
	udp->src = bpf_htons(0xc000 | (hash & 0x3fff));
	udp->dst = dest->tunnel_port;
	udp->len = bpf_htons(len);
	udp->csum = 0;
	if (!shim->csum)
		return 1;
	sum += csum_pseudo(&dest->tunnel_source, &dest->addr, PROTO_UDP, len) + gue[0] + udp->src + udp->dst + udp->len;
	len = ~csum_fold(sum);
	udp->csum = len ? len : 0xffff;
	return 1;
}

static __always_inline int gre_write(void *header, void *data_end, const struct inner *inner, const struct shim *shim)
{
	__be16 *gre = header;

	if ((void *)(gre + 2) > data_end)
		return 0;
	gre[0] = shim->csum ? bpf_htons(GRE_FLAG_CSUM) : 0;
	gre[1] = bpf_htons(inner->proto == PROTO_IPIP ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	if (!shim->csum)
		return 1;
	if ((void *)(gre + 4) > data_end)
		return 0;
	gre[2] = ~csum_fold(shim->inner_sum + gre[0] + gre[1]);
	gre[3] = 0;
	return 1;
}

static __always_inline int shim_write(void *header, void *data_end, const struct weir_dest *dest,
				      const struct inner *inner, const struct shim *shim, __u64 hash)
{
	if (dest->tunnel == WEIR_TUNNEL_GUE)
		return gue_write(header, data_end, dest, inner, shim, hash);
	if (dest->tunnel == WEIR_TUNNEL_GRE)
		return gre_write(header, data_end, inner, shim);
	return 1;
}

/* ---- frame ------------------------------------------------------------------------------------------------------- */

#define FRAME_HEADER_MAX (ETH_HEADER_LEN + 2 * VLAN_TAG_LEN)

/* Sets the EtherType, the last two bytes of the link-layer header, which has 14 bytes plus 4 per tag. */
static __always_inline void frame_set_type(__u8 *frame, __u32 length, __be16 type)
{
	if (length == ETH_HEADER_LEN)
		__builtin_memcpy(frame + 12, &type, 2);
	else if (length == ETH_HEADER_LEN + VLAN_TAG_LEN)
		__builtin_memcpy(frame + 16, &type, 2);
	else
		__builtin_memcpy(frame + 20, &type, 2);
}

/* Writes the outer headers into the space between the link-layer header and the packet. */
static __always_inline int outer_write(void *data, void *data_end, const struct packet *p, const struct weir_dest *dest,
				       const struct inner *inner, const struct shim *shim, __u64 hash)
{
	void *outer = packet_l3(data, p);

	if (!outer_ip_write(outer, data_end, dest, inner, shim->len, hash >> 44))
		return WEIR_DROP_INTERNAL;
	outer += dest->family == 4 ? IPV4_MIN_LEN : IPV6_LEN;
	if (!shim_write(outer, data_end, dest, inner, shim, hash))
		return WEIR_DROP_INTERNAL;
	return PARSE_OK;
}

#ifdef WEIR_ON_SKB

/* Describes the new headers to the kernel, for GSO segmentation and inner checksums. */
static __always_inline __u64 room_flags(const struct weir_dest *dest)
{
	/* The segment size has already been checked against the MTU. */
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;

	flags |= dest->family == 4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	if (dest->tunnel == WEIR_TUNNEL_GUE)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (dest->tunnel == WEIR_TUNNEL_GRE)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_GRE;
	return flags;
}

/* Prepends the outer headers. Returns PARSE_OK or the drop reason. */
static __always_inline int encap_push(struct weir_context *ctx, struct packet *p, struct weir_dest *dest, __u64 hash)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__be16 type = bpf_htons(dest->family == 4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	__u32 overhead, headers;
	struct inner inner;
	struct shim shim;

	if (!inner_read(data, data_end, p, &inner) || !shim_plan(ctx, p, dest, &shim))
		return WEIR_DROP_INTERNAL;
	if (shim.csum && ctx->gso_size)
		return WEIR_DROP_GSO_TUNNEL;
	overhead = (dest->family == 4 ? IPV4_MIN_LEN : IPV6_LEN) + shim.len;
	if (inner.len + overhead > 0xffff)
		return WEIR_DROP_BAD_LENGTH;
	if (bpf_skb_adjust_room(ctx, overhead, BPF_ADJ_ROOM_MAC, room_flags(dest)))
		return WEIR_DROP_NO_HEADROOM;
	if (bpf_skb_store_bytes(ctx, p->l3 - sizeof(type), &type, sizeof(type), 0))
		return WEIR_DROP_INTERNAL;
	headers = p->l3 + overhead;
	if (bpf_skb_pull_data(ctx, headers))
		return WEIR_DROP_INTERNAL;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	return outer_write(data, data_end, p, dest, &inner, &shim, hash);
}

#else

/* Prepends the outer headers and keeps the frame's tags. Returns PARSE_OK or the drop reason. */
static __always_inline int encap_push(struct weir_context *ctx, struct packet *p, struct weir_dest *dest, __u64 hash)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u32 overhead, l3 = p->l3;
	__u8 frame[FRAME_HEADER_MAX];
	struct inner inner;
	struct shim shim;

	if (!inner_read(data, data_end, p, &inner) || !shim_plan(ctx, p, dest, &shim))
		return WEIR_DROP_INTERNAL;
	overhead = (dest->family == 4 ? IPV4_MIN_LEN : IPV6_LEN) + shim.len;
	if (inner.len + overhead > 0xffff)
		return WEIR_DROP_BAD_LENGTH;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
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
	/* Also copies a few bytes after the link-layer header; the outer header overwrites them. */
	__builtin_memcpy(data, frame, FRAME_HEADER_MAX);
	return outer_write(data, data_end, p, dest, &inner, &shim, hash);
}

#endif

#endif
