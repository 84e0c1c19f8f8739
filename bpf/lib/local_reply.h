/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Replies of a nat server that is the director itself, at tc egress: translated back on the skb, with its checksums right
 * for all that skb->ip_summed can be, and for packets that hardware or the stack has yet to cut up (GSO).
 */
#ifndef WEIR_LOCAL_REPLY_H
#define WEIR_LOCAL_REPLY_H

#include "lib/fragment_table.h"
#include "lib/parse.h"
#include "lib/reply.h"

#ifndef AF_INET
#define AF_INET  2
#define AF_INET6 10
#endif

#define IPV4_CSUM_OFFSET 10 /* offsets in their headers */
#define TCP_CSUM_OFFSET  16
#define UDP_CSUM_OFFSET  6

/* ---- rewriting an skb ---------------------------------------------------------------------------------------------------- */

/* Where the checksum over the pseudo header lies, 0 = there is none in this packet. */
static __always_inline __u32 skb_csum_offset(const struct packet *p)
{
	if (p->cold == PACKET_FRAGMENT_LATER)
		return 0;
	return p->l4 + (p->proto == PROTO_TCP ? TCP_CSUM_OFFSET : UDP_CSUM_OFFSET);
}

/* A field of the pseudo header: a checksum that hardware completes holds its sum, which BPF_F_PSEUDO_HDR has adjusted. */
static __always_inline __u64 skb_csum_flags(const struct packet *p)
{
	return p->proto == PROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

static __noinline int skb_set_address(struct __sk_buff *skb, const struct packet *p, int source, const struct weir_addr *to)
{
	const struct weir_addr *from = source ? &p->src : &p->dst;
	__u64 flags = skb_csum_flags(p) | BPF_F_PSEUDO_HDR;
	__u32 csum = skb_csum_offset(p), at = p->l3;
	__be32 old[4], new[4];

	if (p->family == 4) {
		old[0] = addr_to_v4(from);
		new[0] = addr_to_v4(to);
		if (csum && bpf_l4_csum_replace(skb, csum, old[0], new[0], flags | sizeof(old[0])))
			return -1;
		if (bpf_l3_csum_replace(skb, at + IPV4_CSUM_OFFSET, old[0], new[0], sizeof(old[0])))
			return -1;
		return bpf_skb_store_bytes(skb, at + (source ? 12 : 16), new, sizeof(new[0]), 0);
	}
	addr_to_v6(from, old);
	addr_to_v6(to, new);
	if (csum && bpf_l4_csum_replace(skb, csum, 0, bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0), flags))
		return -1;
	return bpf_skb_store_bytes(skb, at + (source ? 8 : 24), new, sizeof(new), 0);
}

static __always_inline int skb_set_port(struct __sk_buff *skb, const struct packet *p, int source, __be16 to)
{
	__be16 from = source ? p->sport : p->dport;

	if (from == to)
		return 0;
	if (bpf_l4_csum_replace(skb, skb_csum_offset(p), from, to, skb_csum_flags(p) | sizeof(to)))
		return -1;
	return bpf_skb_store_bytes(skb, p->l4 + (source ? 0 : 2), &to, sizeof(to), 0);
}

/* ---- whose reply ------------------------------------------------------------------------------------------------------------ */

/* What the client shall see; ports are 0 in later fragments. */
struct translation {
	struct weir_addr src;
	struct weir_addr dst;
	__be16 sport;
	__be16 dport;
	__u32 dest;
};

static __always_inline int reply_of_fragment(struct packet *p, __u32 now, struct translation *to)
{
	struct weir_fragment note;

	if (!fragment_recall(p, now, &note) || !note.reverse)
		return 0;
	to->src = note.new_src;
	to->dst = note.new_dst;
	to->dest = note.dest;
	return 1;
}

static __always_inline int reply_of_flow(struct packet *p, __u32 now, const struct weir_settings *settings,
					 struct translation *to)
{
	struct weir_fragment note = { .tick = now, .reverse = 1 };
	struct flow flow = {};
	struct reply reply;

	if (!flow_find(packet_hash(p), &flow) || META_KIND(flow.meta) != WEIR_KIND_REVERSE ||
	    !reply_find(p, &flow, now, settings, &reply))
		return 0;
	reply_advance(p, &reply, flow.dest, now);
	to->src = reply.cold->dst;
	to->sport = reply.cold->dport;
	to->dst = reply.cold->src;
	to->dport = reply.cold->sport;
	to->dest = flow.dest;
	if (p->cold == PACKET_FRAGMENT_FIRST) {
		note.new_src = to->src;
		note.new_dst = to->dst;
		note.dest = to->dest;
		fragment_remember(p, &note);
	}
	return 1;
}

/* Counts what goes out on the wire, where each segment has headers of its own. */
static __always_inline void local_reply_count(struct __sk_buff *skb, const struct packet *p, __u32 dest_id)
{
	struct weir_traffic *traffic = WEIR_LOOKUP(weir_traffic, dest_id);
	__u32 segments = skb->gso_segs ? skb->gso_segs : 1, header = p->l4 - p->l3 + UDP_LEN;
	__u8 offset;

	if (!traffic)
		return;
	if (p->proto == PROTO_TCP && segments > 1 && !bpf_skb_load_bytes(skb, p->l4 + 12, &offset, sizeof(offset)))
		header = p->l4 - p->l3 + (offset >> 4) * 4;
	traffic->packets_out += segments;
	traffic->bytes_out += skb->len - p->l3 + (segments - 1) * header;
}

/* 1: the packet is a reply, now from the VIP, and to another destination than it was routed to. 0: leave it. */
static __always_inline int local_reply(struct __sk_buff *skb, const struct weir_settings *settings)
{
	void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct weir_filter *filter = WEIR_LOOKUP(weir_filters, 0);
	struct packet p = {};
	struct translation to = {};
	__u32 now = weir_tick();

	if (!filter || parse_packet(data, data_end, &p) != PARSE_OK || !filter_hit(filter->from, &p.src))
		return 0;
	if (p.cold == PACKET_FRAGMENT_LATER) {
		if (!reply_of_fragment(&p, now, &to))
			return 0;
	} else if (p.cold > PACKET_FRAGMENT_FIRST || p.cold == PACKET_ICMP || !reply_of_flow(&p, now, settings, &to)) {
		return 0;
	}
	local_reply_count(skb, &p, to.dest);
	if (skb_set_address(skb, &p, 1, &to.src))
		return 0;
	if (p.cold != PACKET_FRAGMENT_LATER && skb_set_port(skb, &p, 1, to.sport))
		return 0;
	if (addr_equal(&p.dst, &to.dst))
		return 0;
	if (skb_set_address(skb, &p, 0, &to.dst))
		return 0;
	if (p.cold != PACKET_FRAGMENT_LATER)
		skb_set_port(skb, &p, 0, to.dport);
	return 1;
}

/* Under snat the stack chose the way to the snat address; the client's may be another. */
static __always_inline int local_reply_route(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct bpf_fib_lookup fib = { .ifindex = skb->ifindex };
	struct packet p = {};
	long result;

	if (parse_packet(data, data_end, &p) != PARSE_OK)
		return -1;
	if (p.family == 4) {
		fib.family = AF_INET;
		fib.ipv4_src = addr_to_v4(&p.src);
		fib.ipv4_dst = addr_to_v4(&p.dst);
	} else {
		fib.family = AF_INET6;
		addr_to_v6(&p.src, fib.ipv6_src);
		addr_to_v6(&p.dst, fib.ipv6_dst);
	}
	result = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	if (result != BPF_FIB_LKUP_RET_SUCCESS && result != BPF_FIB_LKUP_RET_NO_NEIGH)
		return -1;
	return bpf_redirect_neigh(fib.ifindex, 0, 0, 0);
}

#endif
