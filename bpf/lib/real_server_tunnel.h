/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Decapsulation for `forward = "tunnel"`: IP in IP, GUE (variants 0 and 1) and GRE, in all combinations of address
 * families.
 *
 * This runs at tc, not XDP, so that all interfaces of the server keep their driver mode and offloads: GRO merges IP in
 * IP and GRE before this program runs, and one decapsulation handles up to 64 KiB. The outer checksum of GUE and GRE is
 * not verified: the stack verifies the inner checksum. Fragments of tunnel packets are left to the stack.
 */
#ifndef WEIR_REAL_SERVER_TUNNEL_H
#define WEIR_REAL_SERVER_TUNNEL_H

#include "lib/real_server_hop.h"

#define GRE_LEN      4
#define GRE_CSUM     0x8000
#define GRE_UNKNOWN  0x7fff /* key, sequence, routing, version: not used by a director */
#define GUE_LEN      4
#define GUE_CONTROL  0x20
#define GUE_PRIVATE  0x0001
#define GUE_REMCSUM  0x80000000
#define GUE_OPTIONS  8 /* private flags and the remote checksum option */
#define GUE_HOPS_LEN 4

#define ECN_MASK   3
#define ECN_NONE   0
#define ECN_ECT1   1
#define ECN_CE     3

#define RS_SUM_CHUNK  128
#define RS_SUM_CHUNKS 80 /* 10 KiB: no jumbo frame is longer */

/*
 * Adds the one's complement sum of a range of the packet to `sum`. Returns the result, or -1 if the range is too long
 * or not entirely in the packet. The range starts at an even offset of the checksummed data. This is a global function,
 * which is verified once: if the loop were verified per call, it would exceed the limits of kernel 6.1.
 */
__noinline __s64 rs_sum(struct __sk_buff *skb, __u32 offset, __u32 len, __u32 sum)
{
	__u32 chunk[RS_SUM_CHUNK / 4];
	__u32 rest = len % RS_SUM_CHUNK;

	for (int i = 0; i < RS_SUM_CHUNKS; i++) {
		if (len < RS_SUM_CHUNK)
			break;
		if (bpf_skb_load_bytes(skb, offset, chunk, RS_SUM_CHUNK))
			return -1;
		sum = bpf_csum_diff(NULL, 0, chunk, RS_SUM_CHUNK, sum);
		offset += RS_SUM_CHUNK;
		len -= RS_SUM_CHUNK;
	}
	if (len != rest)
		return -1;
	if (rest == 0)
		return sum;
	__builtin_memset(chunk, 0, sizeof(chunk));
	/*
	 * The verifier of kernel 6.1 derives no bound from "!= 0": the mask and "+ 1" bound the length on both sides.
	 */
	rest--;
	VERIFIER_FORGET(rest);
	if (bpf_skb_load_bytes(skb, offset, chunk, (rest & (RS_SUM_CHUNK - 1)) + 1))
		return -1;
	return (__u32)bpf_csum_diff(NULL, 0, chunk, sizeof(chunk), sum);
}

static __always_inline __u16 rs_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return sum + (sum >> 16);
}

/* Parses GRE (RFC 2784), without the fields of RFC 2890. Returns enum rs_count, or -1 to continue. */
static __always_inline int rs_parse_gre(struct __sk_buff *skb, const struct rs_packet *outer, struct rs_tunnel *t)
{
	__be16 gre[2];

	if (bpf_skb_load_bytes(skb, outer->l4, gre, sizeof(gre)))
		return RS_DROP_MALFORMED;
	if (gre[0] & bpf_htons(GRE_UNKNOWN))
		return RS_PASS_HEADERS;
	if (gre[1] != bpf_htons(ETHERTYPE_IPV4) && gre[1] != bpf_htons(ETHERTYPE_IPV6))
		return RS_PASS_HEADERS;
	t->kind = RS_TUNNEL_GRE;
	t->inner = outer->l4 + GRE_LEN + (gre[0] & bpf_htons(GRE_CSUM) ? 4 : 0);
	t->inner_family = gre[1] == bpf_htons(ETHERTYPE_IPV4) ? 4 : 6;
	return -1;
}

/*
 * Parses GUE (draft-ietf-intarea-gue): a two-bit variant and, in variant 0, a control bit, the length of the options in
 * words, and the protocol. Returns enum rs_count, or -1 to continue.
 */
static __always_inline int rs_parse_gue(struct __sk_buff *skb, const struct rs_packet *outer, struct rs_tunnel *t)
{
	__u32 header = outer->l4 + UDP_LEN, length, hops = GUE_HOPS_LEN + (outer->family == 4 ? 4 : 16);
	__be32 options[2];
	__u8 gue[GUE_LEN];

	if (bpf_skb_load_bytes(skb, header, gue, sizeof(gue)))
		return RS_DROP_MALFORMED;
	t->kind = RS_TUNNEL_GUE;
	t->inner = header;
	t->inner_family = gue[0] >> 4;
	if (gue[0] >> 6 == 1) /* variant 1: the version field of the IP header itself */
		return -1;
	if (gue[0] >> 6 || gue[0] & GUE_CONTROL || (gue[1] != PROTO_IPIP && gue[1] != PROTO_IPV6))
		return RS_PASS_HEADERS;
	t->inner_family = gue[1] == PROTO_IPIP ? 4 : 6;
	length = (gue[0] & 0x1f) * 4;
	t->inner = header + GUE_LEN + length;
	if (gue[2] == 0 && gue[3] == 0) {
		t->hops = length == hops ? header + GUE_LEN : 0;
		return -1;
	}
	if (gue[2] || gue[3] != GUE_PRIVATE || (length != GUE_OPTIONS && length != GUE_OPTIONS + hops))
		return RS_PASS_HEADERS;
	t->hops = length == GUE_OPTIONS ? 0 : header + GUE_LEN + GUE_OPTIONS;
	if (bpf_skb_load_bytes(skb, header + GUE_LEN, options, sizeof(options)))
		return RS_DROP_MALFORMED;
	if (options[0] != bpf_htonl(GUE_REMCSUM))
		return RS_PASS_HEADERS;
	t->csum_start = bpf_ntohl(options[1]) >> 16;
	t->csum_offset = bpf_ntohl(options[1]);
	return t->csum_start ? -1 : RS_DROP_MALFORMED;
}

/*
 * Parses the tunnel header; `kind` stays 0 for all but tunnel packets to this host. Returns enum rs_count, or -1 to
 * continue.
 */
static __always_inline int rs_parse_tunnel(struct __sk_buff *skb, const struct rs_packet *outer, struct rs_tunnel *t)
{
	switch (outer->proto) {
	case PROTO_UDP:
		/* A later fragment has no port and is skipped; the director does not send any. */
		if (!bpf_map_lookup_elem(&weir_rs_gue, &outer->dport))
			return -1;
		break;
	case PROTO_IPIP:
	case PROTO_IPV6:
	case PROTO_GRE:
		break;
	default:
		return -1;
	}
	if (!rs_is_host_address(&outer->dst))
		return -1;
	if (outer->fragment != RS_WHOLE)
		return RS_PASS_FRAGMENT;
	if (outer->proto == PROTO_UDP)
		return rs_parse_gue(skb, outer, t);
	if (outer->proto == PROTO_GRE)
		return rs_parse_gre(skb, outer, t);
	t->kind = RS_TUNNEL_IPIP;
	t->inner = outer->l4;
	t->inner_family = outer->proto == PROTO_IPIP ? 4 : 6;
	return -1;
}

/*
 * Returns whether a VIP accepts the inner packet through this kind of tunnel. Packets without ports (fragments, ICMP)
 * match on the VIP only.
 */
static __always_inline int rs_tunnel_vip_matches(const struct rs_packet *inner, __u32 kind)
{
	const struct rs_vip *vip = bpf_map_lookup_elem(&weir_rs_vips, &inner->dst);
	__u16 port = bpf_ntohs(inner->dport);

	if (!vip || !(vip->tunnels & kind))
		return 0;
	if (!rs_has_ports(inner))
		return 1;
	for (__u32 i = 0; i < RS_RANGES_MAX; i++) {
		if (i >= vip->len)
			break;
		if (port >= vip->ports[i].first && port <= vip->ports[i].last)
			return 1;
	}
	return 0;
}

/*
 * Completes the inner checksum of GUE remote checksum offload. The sender has stored the sum of the pseudo header in
 * the checksum field. With an outer UDP checksum, the sum of the whole datagram is zero, so the inner checksum equals
 * the sum of the bytes before `csum_start`: the data need not be summed, and corruption is still detected. Without an
 * outer checksum, the data is summed.
 */
static __noinline int rs_remote_checksum(struct __sk_buff *skb, const struct rs_packet *outer,
					 const struct rs_packet *inner, const struct rs_tunnel *t)
{
	__u32 start, field;
	struct udp_header udp;
	__s64 sum;
	__u16 csum;

	if (!outer || !inner || !t)
		return -1;
	start = t->inner + t->csum_start;
	field = t->inner + t->csum_offset;
	if (start != inner->l4 || field != rs_csum_offset(inner))
		return -1;
	if (bpf_skb_load_bytes(skb, outer->l4, &udp, sizeof(udp)) || bpf_ntohs(udp.len) < start - outer->l4)
		return -1;
	if (udp.csum) {
		/* In canonical form an IPv4 address adds 0xffff, which is zero in this arithmetic. */
		__u32 pseudo = (__u32)udp.len + bpf_htons(PROTO_UDP);

		pseudo = bpf_csum_diff(NULL, 0, (void *)&outer->src, sizeof(outer->src), pseudo);
		pseudo = bpf_csum_diff(NULL, 0, (void *)&outer->dst, sizeof(outer->dst), pseudo);
		sum = rs_sum(skb, outer->l4, start - outer->l4, pseudo);
		csum = rs_fold(sum);
	} else {
		sum = rs_sum(skb, start, bpf_ntohs(udp.len) - (start - outer->l4), 0);
		csum = ~rs_fold(sum);
	}
	if (sum < 0)
		return -1;
	if (csum == 0 && inner->proto == PROTO_UDP)
		csum = 0xffff;
	return bpf_skb_store_bytes(skb, field, &csum, sizeof(csum), BPF_F_RECOMPUTE_CSUM);
}

/* Returns the ECN field of the decapsulated packet (RFC 6040 section 4.2), or -1 if it must be dropped. */
static __always_inline int rs_ecn(__u8 outer, __u8 inner)
{
	outer &= ECN_MASK;
	inner &= ECN_MASK;
	if (inner == ECN_NONE)
		return outer == ECN_CE ? -1 : ECN_NONE;
	if (outer == ECN_CE || inner == ECN_CE)
		return ECN_CE;
	return outer == ECN_ECT1 ? ECN_ECT1 : inner;
}

/*
 * Removes everything between the Ethernet header and the inner packet. If the families differ, bpf_skb_change_proto
 * sets the skb's protocol (the DECAP_L3 flags of bpf_skb_adjust_room were added after 6.1). This helper also adds or
 * removes 20 bytes, the difference between the two headers, so the length is corrected by 20. bpf_skb_adjust_room
 * resets the checksum state, which applied to the outer checksum, so the stack verifies the inner checksum.
 */
static __always_inline int rs_strip(struct __sk_buff *skb, const struct rs_packet *outer, const struct rs_tunnel *t)
{
	__s32 len = t->inner - outer->l3;
	__be16 type = bpf_htons(t->inner_family == 4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);

	if (t->inner_family != outer->family) {
		if (bpf_skb_change_proto(skb, type, 0))
			return -1;
		len += t->inner_family == 6 ? IPV6_LEN - IPV4_MIN_LEN : IPV4_MIN_LEN - IPV6_LEN;
		if (bpf_skb_store_bytes(skb, outer->l3 - sizeof(type), &type, sizeof(type), 0))
			return -1;
	}
	return bpf_skb_adjust_room(skb, -len, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
}

/* Returns enum rs_count, or -1 if this is not a tunnel packet to this host. */
static __always_inline int rs_decapsulate(struct __sk_buff *skb, const struct rs_packet *outer)
{
	struct rs_packet inner;
	struct rs_tunnel tunnel = {};
	int verdict = rs_parse_tunnel(skb, outer, &tunnel);
	int ecn;

	if (verdict >= 0 || !tunnel.kind)
		return verdict;
	verdict = rs_parse(skb, tunnel.inner, tunnel.inner_family, &inner);
	if (verdict != RS_PARSE_OK)
		return verdict == RS_PARSE_SHORT ? RS_DROP_MALFORMED : RS_PASS_HEADERS;
	if (!rs_tunnel_vip_matches(&inner, tunnel.kind))
		return RS_PASS_NOT_VIP;
	if (tunnel.hops && rs_second_hop(skb, outer, &inner, &tunnel) > 0)
		return RS_SECOND_HOP;
	if (tunnel.csum_start && rs_remote_checksum(skb, outer, &inner, &tunnel))
		return RS_DROP_MALFORMED;
	ecn = rs_ecn(outer->traffic_class, inner.traffic_class);
	if (ecn < 0)
		return RS_DROP_ECN;
	if (ecn != (inner.traffic_class & ECN_MASK) &&
	    rs_set_traffic_class(skb, &inner, (inner.traffic_class & ~ECN_MASK) | ecn))
		return RS_DROP_FAILED;
	return rs_strip(skb, outer, &tunnel) ? RS_DROP_FAILED : RS_DECAPSULATED;
}

#endif
