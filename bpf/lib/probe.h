/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forwards the director's health probes that use a service's forwarding method. A probe's socket is connected to the
 * server's address. Its packets are forwarded like those of a client, with the VIP as destination, and replies from the
 * VIP are translated back to the server's address. The director's stack therefore never receives a packet from an
 * address that could be its own.
 *
 * Checksums of local packets can be partial or complete. Only differences are applied, and the sum of a segment is
 * derived from its pseudo header, which is correct in both cases.
 */
#ifndef WEIR_PROBE_H
#define WEIR_PROBE_H

#include "lib/forward_method.h"
#include "lib/local_reply.h"
#include "lib/packet_sum.h"

#define PROBE_GRE_LEN	   4
#define PROBE_GRE_CSUM_LEN 8
#define PROBE_GUE_LEN	   4
#define PROBE_GRE_CSUM	   0x8000
#define PROBE_SOURCE_PORT  0xc357 /* GUE source port; any value is suitable for a single connection */

#define ICMP_UNREACHABLE   3
#define ICMPV6_UNREACHABLE 1

#define PROBE_NEXT (-1) /* TC_ACT_UNSPEC: not a probe's packet, or translated */
#define PROBE_DROP  2	 /* TC_ACT_SHOT */

static __always_inline struct weir_probe *probe_find(const struct weir_addr *local, __be16 port, __u8 proto)
{
	struct weir_probe_key key = { .local = *local, .port = port, .proto = proto };

	return bpf_map_lookup_elem(&weir_probes, &key);
}

/* Returns the length of the headers between the outer and the inner IP header. */
static __always_inline __u32 probe_shim_len(const struct weir_probe *probe)
{
	if (probe->tunnel == WEIR_TUNNEL_GUE)
		return UDP_LEN + PROBE_GUE_LEN;
	if (probe->tunnel == WEIR_TUNNEL_GRE)
		return probe->tunnel_flags & WEIR_TUNNEL_CSUM ? PROBE_GRE_CSUM_LEN : PROBE_GRE_LEN;
	return 0;
}

/* ---- egress ------------------------------------------------------------------------------------------------------ */

/*
 * Returns the sum over the inner packet as the server sees it. The sum of an IPv4 header is zero. In IPv6, the sum of
 * the header is added to the sum of the segment, which is the complement of its pseudo header.
 */
static __always_inline __u64 probe_inner_sum(struct __sk_buff *skb, const struct packet *p,
					     const struct weir_probe *probe)
{
	__u64 pseudo = csum_pseudo(&p->src, &probe->vip, p->proto, p->ip_len - (p->l4 - p->l3));
	__u64 segment = (__u16)~csum_fold(pseudo);
	__u32 words[IPV6_LEN / 4];

	if (p->family == 4)
		return segment;
	if (bpf_skb_load_bytes(skb, p->l3, words, sizeof(words)))
		return segment;
	return segment + (__u32)bpf_csum_diff(0, 0, words, sizeof(words), 0);
}

struct probe_shim {
	__be32 word[3]; /* UDP and GUE, or GRE */
};

static __always_inline void probe_shim_fill(struct probe_shim *shim, const struct packet *p,
					    const struct weir_probe *probe, __u64 inner_sum)
{
	__u8 inner = p->family == 4 ? PROTO_IPIP : PROTO_IPV6;
	__u16 len = p->ip_len + UDP_LEN + PROBE_GUE_LEN, csum;
	__u64 sum;

	if (probe->tunnel == WEIR_TUNNEL_GUE) {
		shim->word[0] = bpf_htonl((__u32)PROBE_SOURCE_PORT << 16 | bpf_ntohs(probe->tunnel_port));
		shim->word[2] = bpf_htonl((__u32)inner << 16);
		shim->word[1] = bpf_htonl((__u32)len << 16);
		sum = inner_sum + csum_pseudo(&p->src, &probe->server, PROTO_UDP, len) + shim->word[0] + shim->word[1] +
		      shim->word[2];
		csum = ~csum_fold(sum);
		*((__u16 *)&shim->word[1] + 1) = csum ? csum : 0xffff;
		return;
	}
	shim->word[0] = bpf_htonl(p->family == 4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	if (!(probe->tunnel_flags & WEIR_TUNNEL_CSUM))
		return;
	shim->word[0] |= bpf_htonl((__u32)PROBE_GRE_CSUM << 16);
	shim->word[1] = 0;
	*(__u16 *)&shim->word[1] = ~csum_fold(inner_sum + shim->word[0]);
}

static __always_inline __u8 probe_outer_proto(const struct packet *p, const struct weir_probe *probe)
{
	if (probe->tunnel == WEIR_TUNNEL_GUE)
		return PROTO_UDP;
	if (probe->tunnel == WEIR_TUNNEL_GRE)
		return PROTO_GRE;
	return p->family == 4 ? PROTO_IPIP : PROTO_IPV6;
}

static __always_inline int probe_outer4(struct __sk_buff *skb, const struct packet *p, const struct weir_probe *probe,
					__u32 shim)
{
	struct ipv4_header ip = {
		.version = 4,
		.ihl = IPV4_MIN_LEN / 4,
		.total_len = bpf_htons(p->ip_len + IPV4_MIN_LEN + shim),
		.frag = bpf_htons(IPV4_DF),
		.ttl = 64,
		.proto = probe_outer_proto(p, probe),
		.src = addr_to_v4(&p->src),
		.dst = addr_to_v4(&probe->server),
	};

	ip.csum = csum_ipv4_header(&ip);
	return bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip), 0);
}

static __always_inline int probe_outer6(struct __sk_buff *skb, const struct packet *p, const struct weir_probe *probe,
					__u32 shim)
{
	struct ipv6_header ip = {
		.flow = bpf_htonl(6u << 28),
		.payload_len = bpf_htons(p->ip_len + shim),
		.next = probe_outer_proto(p, probe),
		.hops = 64,
	};

	addr_to_v6(&p->src, ip.src);
	addr_to_v6(&probe->server, ip.dst);
	return bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip), 0);
}

static __noinline int probe_encapsulate(struct __sk_buff *skb, const struct packet *p, const struct weir_probe *probe)
{
	__u64 flags = p->family == 4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	__u32 outer = p->family == 4 ? IPV4_MIN_LEN : IPV6_LEN, shim_len = probe_shim_len(probe);
	struct probe_shim shim = {};

	probe_shim_fill(&shim, p, probe, probe_inner_sum(skb, p, probe));
	if (probe->tunnel == WEIR_TUNNEL_GUE)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (probe->tunnel == WEIR_TUNNEL_GRE)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_GRE;
	if (bpf_skb_adjust_room(skb, outer + shim_len, BPF_ADJ_ROOM_MAC, flags))
		return -1;
	if (p->family == 4 ? probe_outer4(skb, p, probe, shim_len) : probe_outer6(skb, p, probe, shim_len))
		return -1;
	if (shim_len == PROBE_GRE_LEN)
		return bpf_skb_store_bytes(skb, p->l3 + outer, &shim, PROBE_GRE_LEN, 0);
	if (shim_len == PROBE_GRE_CSUM_LEN)
		return bpf_skb_store_bytes(skb, p->l3 + outer, &shim, PROBE_GRE_CSUM_LEN, 0);
	if (shim_len)
		return bpf_skb_store_bytes(skb, p->l3 + outer, &shim, sizeof(shim), 0);
	return 0;
}

/* Sets the L3DSR DSCP, in the second byte of an IPv4 header or across the first two of an IPv6 header. */
static __noinline int probe_set_dscp(struct __sk_buff *skb, const struct packet *p, __u8 dscp)
{
	__be16 old, new;

	if (bpf_skb_load_bytes(skb, p->l3, &old, sizeof(old)))
		return -1;
	if (p->family == 4) {
		new = bpf_htons((bpf_ntohs(old) & 0xff03) | (__u16)dscp << 2);
		if (bpf_l3_csum_replace(skb, p->l3 + IPV4_CSUM_OFFSET, old, new, sizeof(new)))
			return -1;
	} else {
		new = bpf_htons((bpf_ntohs(old) & 0xf03f) | (__u16)dscp << 6);
	}
	return bpf_skb_store_bytes(skb, p->l3, &new, sizeof(new), 0);
}

static __always_inline int probe_egress(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct weir_probe *probe;
	struct packet p = {};

	if (parse_packet(data, data_end, &p) != PARSE_OK || p.slow_path != PACKET_PLAIN)
		return PROBE_NEXT;
	probe = probe_find(&p.src, p.sport, p.proto);
	if (!probe || !addr_equal(&probe->server, &p.dst))
		return PROBE_NEXT;
	if (bpf_skb_load_bytes(skb, 0, probe->to_mac, sizeof(probe->to_mac)) ||
	    bpf_skb_load_bytes(skb, sizeof(probe->to_mac), probe->from_mac, sizeof(probe->from_mac)))
		return PROBE_DROP;
	probe->ifindex = skb->ifindex;
	if (forward_sets_dscp(probe->forward)) {
		if (probe_set_dscp(skb, &p, probe->dscp))
			return PROBE_DROP;
	} else if (skb_set_address(skb, &p, 0, &probe->vip)) {
		return PROBE_DROP;
	}
	if (forward_encapsulates(probe->forward) && probe_encapsulate(skb, &p, probe))
		return PROBE_DROP;
	__sync_fetch_and_add(&probe->sent, 1);
	return PROBE_NEXT;
}

/* ---- ingress ----------------------------------------------------------------------------------------------------- */

static __always_inline int probe_from_other_mac(struct __sk_buff *skb, const struct weir_probe *probe)
{
	__u8 source[6] = {};

	if (bpf_skb_load_bytes(skb, 6, source, sizeof(source)))
		return 0;
	for (int i = 0; i < 6; i++)
		if (source[i] != probe->to_mac[i])
			return 1;
	return 0;
}

/* Records an ICMP unreachable error in the probe whose packet it quotes; the packet may be encapsulated. */
static __noinline int probe_record_error(struct __sk_buff *skb, const struct packet *p)
{
	__u32 quote = p->l4 + 8, skip = p->family == 4 ? IPV4_MIN_LEN : IPV6_LEN;
	struct weir_addr local;
	struct weir_probe *probe;
	__u8 icmp[2], proto;
	__be16 port;

	if (bpf_skb_load_bytes(skb, p->l4, icmp, sizeof(icmp)) ||
	    icmp[0] != (p->family == 4 ? ICMP_UNREACHABLE : ICMPV6_UNREACHABLE))
		return 0;
	if (bpf_skb_load_bytes(skb, quote + (p->family == 4 ? 9 : 6), &proto, sizeof(proto)))
		return 0;
	if (proto == PROTO_IPIP || proto == PROTO_IPV6) {
		quote += skip;
	} else if (proto == PROTO_GRE) {
		__u8 flags;

		if (bpf_skb_load_bytes(skb, quote + skip, &flags, sizeof(flags)))
			return 0;
		quote += skip + (flags & PROBE_GRE_CSUM >> 8 ? PROBE_GRE_CSUM_LEN : PROBE_GRE_LEN);
	} else if (proto == PROTO_UDP) {
		if (bpf_skb_load_bytes(skb, quote + skip, &port, sizeof(port)))
			return 0;
		if (port == bpf_htons(PROBE_SOURCE_PORT))
			quote += skip + UDP_LEN + PROBE_GUE_LEN;
	}
	if (bpf_skb_load_bytes(skb, quote + (p->family == 4 ? 9 : 6), &proto, sizeof(proto)) ||
	    bpf_skb_load_bytes(skb, quote + skip, &port, sizeof(port)))
		return 0;
	local = p->dst;
	probe = probe_find(&local, port, proto);
	if (probe) {
		probe->error_type = icmp[0];
		probe->error_code = icmp[1];
	}
	return 0;
}

static __always_inline int probe_ingress(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct weir_probe *probe;
	struct packet p = {};

	if (parse_packet(data, data_end, &p) != PARSE_OK)
		return PROBE_NEXT;
	if (p.slow_path == PACKET_ICMP) {
		probe_record_error(skb, &p);
		return PROBE_NEXT;
	}
	if (p.slow_path != PACKET_PLAIN)
		return PROBE_NEXT;
	probe = probe_find(&p.dst, p.dport, p.proto);
	if (!probe)
		return PROBE_NEXT;
	if (!addr_equal(&probe->vip, &p.src)) {
		if (!forward_sets_dscp(probe->forward) || !addr_equal(&probe->server, &p.src))
			return PROBE_NEXT;
		__sync_fetch_and_add(&probe->unturned, 1);
		return PROBE_DROP;
	}
	if (forward_keeps_addresses(probe->forward) && probe_from_other_mac(skb, probe)) {
		__sync_fetch_and_add(&probe->stray, 1);
		return PROBE_DROP;
	}
	if (skb_set_address(skb, &p, 1, &probe->server))
		return PROBE_DROP;
	__sync_fetch_and_add(&probe->answered, 1);
	return PROBE_NEXT;
}

#endif
