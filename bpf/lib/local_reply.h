/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Translates replies from a nat server on the director itself, at tc egress. Checksums are correct for every
 * skb->ip_summed and for GSO packets.
 */
#ifndef WEIR_LOCAL_REPLY_H
#define WEIR_LOCAL_REPLY_H

#include "lib/context.h"
#include "lib/fragment_table.h"
#include "lib/parse.h"
#include "lib/reply.h"
#include "lib/skb_rewrite.h"

#ifndef AF_INET
#define AF_INET  2
#define AF_INET6 10
#endif

/* The reply as the client sees it; ports are 0 in later fragments. */
struct translation {
	struct weir_addr src;
	struct weir_addr dst;
	__be16 sport;
	__be16 dport;
	__u32 dest;
};

static __always_inline int reply_of_fragment(struct packet *p, __u32 now, struct translation *to)
{
	struct weir_fragment record = {}; /* before Linux 6.3, memory passed to a function must be initialized */

	if (!fragment_lookup(p, now, &record) || !record.reverse)
		return 0;
	to->src = record.new_src;
	to->dst = record.new_dst;
	to->dest = record.dest;
	return 1;
}

static __always_inline int reply_of_flow(struct packet *p, __u32 now, const struct weir_settings *settings,
					 struct translation *to)
{
	struct weir_fragment record = { .tick = now, .reverse = 1 };
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
	if (p->slow_path == PACKET_FRAGMENT_FIRST) {
		record.new_src = to->src;
		record.new_dst = to->dst;
		record.dest = to->dest;
		fragment_store(p, &record);
	}
	return 1;
}

static __always_inline void local_reply_count(struct __sk_buff *skb, const struct packet *p, __u32 dest_id)
{
	struct weir_traffic *traffic = WEIR_LOOKUP(weir_traffic, dest_id);
	struct wire wire = wire_size(skb, p);

	if (!traffic)
		return;
	traffic->packets_out += wire.packets;
	traffic->bytes_out += wire.bytes;
}

/* Translates a reply. Returns 1 if its destination changed and it must be routed again. */
static __always_inline int local_reply(struct __sk_buff *skb, const struct weir_settings *settings)
{
	void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	struct weir_filter *filter = WEIR_LOOKUP(weir_filters, 0);
	struct packet p = {};
	struct translation to = {};
	__u32 now = weir_tick();

	if (!filter || parse_packet(data, data_end, &p) != PARSE_OK || !filter_hit(filter->from, &p.src))
		return 0;
	if (p.slow_path == PACKET_FRAGMENT_LATER) {
		if (!reply_of_fragment(&p, now, &to))
			return 0;
	} else if (p.slow_path > PACKET_FRAGMENT_FIRST || p.slow_path == PACKET_ICMP ||
		   !reply_of_flow(&p, now, settings, &to)) {
		return 0;
	}
	local_reply_count(skb, &p, to.dest);
	if (skb_set_address(skb, &p, 1, &to.src))
		return 0;
	if (p.slow_path != PACKET_FRAGMENT_LATER && skb_set_port(skb, &p, 1, to.sport))
		return 0;
	if (addr_equal(&p.dst, &to.dst))
		return 0;
	if (skb_set_address(skb, &p, 0, &to.dst))
		return 0;
	if (p.slow_path != PACKET_FRAGMENT_LATER)
		skb_set_port(skb, &p, 0, to.dport);
	return 1;
}

/*
 * Routes a reply again: with SNAT, the stack routed the packet to the SNAT address, and the route to the client can
 * differ. Returns the tc action, or -1 if there is no route.
 */
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
