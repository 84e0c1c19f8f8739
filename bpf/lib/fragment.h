/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forwards later fragments of a datagram. They have no ports, so they are forwarded according to the record of their
 * first fragment. Nothing is reassembled or queued, so a fragment that arrives before its first fragment is dropped.
 */
#ifndef WEIR_FRAGMENT_H
#define WEIR_FRAGMENT_H

#include "lib/balance.h"

/* The current fragment. There is one row per CPU for the same reason as struct bind_scratch. */
WEIR_PERCPU(weir_fragment_scratch, struct packet, 1);

/*
 * Records that the first fragment passed to the stack, so that later fragments pass too. A record with a server is not
 * replaced.
 */
__noinline int fragment_store_pass(struct packet *p)
{
	struct weir_fragment record = {};
	__u32 now = weir_tick();

	if (!p || fragment_lookup(p, now, &record))
		return 0;
	record.tick = now;
	return fragment_store(p, &record);
}

/* Drops only TCP and UDP fragments to a service's address; other fragments pass to the stack. */
static __always_inline int fragment_without_record(struct packet *p)
{
	struct weir_vip *vip = bpf_map_lookup_elem(&weir_vips, &p->dst);

	if (!vip || !(vip->flags & WEIR_VIP_ECHO))
		return weir_verdict(WEIR_PASS_NOT_OURS, XDP_PASS);
	if (p->proto != PROTO_TCP && p->proto != PROTO_UDP)
		return weir_verdict(WEIR_PASS_PROTOCOL, XDP_PASS);
	return weir_verdict(WEIR_DROP_FRAGMENT_EARLY, XDP_DROP);
}

static __always_inline int fragment_hop(struct weir_context *ctx, struct weir_fragment *record, struct weir_dest *dest,
					__u32 now, struct hop *hop)
{
	if (record->reverse)
		return hop_to_client_or_ingress(ctx, &record->new_dst, record->hash, now, hop);
	return hop_to_server(ctx, record->dest, dest, record->hash, now, hop);
}

static __always_inline void fragment_rewrite(struct weir_context *ctx, struct packet *p,
					     const struct weir_fragment *record)
{
	struct rewrite rewrite = {};

	rewrite.src = addr_is_set(&record->new_src) ? record->new_src : p->src;
	rewrite.dst = addr_is_set(&record->new_dst) ? record->new_dst : p->dst;
	packet_rewrite(ctx, p, &rewrite);
}

/* Does the same as forward_to_server and forward_to_client, but rewrites no ports and sends no ICMP errors. */
static __always_inline int fragment_forward(struct weir_context *ctx, struct packet *p, struct weir_fragment *record,
					    struct weir_dest *dest, __u32 now)
{
	int tunnel = !record->reverse && forward_encapsulates(dest->forward);
	int direct = !record->reverse && forward_keeps_addresses(dest->forward);
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct hop hop;
	__u32 room;

	if (ttl_exceeded(data, data_end, p))
		return weir_verdict(WEIR_DROP_TTL, XDP_DROP);
	if (!fragment_hop(ctx, record, dest, now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	room = WEIR_HOP_MTU(hop.link);
	if (tunnel)
		room -= room ? encap_overhead(dest) : 0;
	if (room && p->ip_len > room)
		return weir_verdict(WEIR_DROP_TOO_BIG, XDP_DROP);
	if (record->reverse)
		count_traffic_out(ctx, p, record->dest);
	else
		count_traffic_in(ctx, p, record->dest);
	ttl_decrement(ctx, p);
	if (tunnel)
		return forward_tunnel(ctx, p, dest, &hop, record->hash);
	if (!record->reverse && forward_sets_dscp(dest->forward) && dest->dscp)
		dscp_set(ctx, p, dest->dscp);
	fragment_rewrite(ctx, p, record);
	return transmit(ctx, &hop, direct ? &dest->addr : 0, packet_is_tagged(p));
}

static __always_inline int fragment_later(struct weir_context *ctx, struct packet *p)
{
	struct weir_fragment record = {};
	struct weir_dest *dest;
	__u32 now = weir_tick();

	if (!p)
		return XDP_DROP;
	if (!fragment_lookup(p, now, &record))
		return fragment_without_record(p);
	if (record.dest == 0)
		return weir_verdict(WEIR_PASS_NO_SERVICE, XDP_PASS);
	dest = WEIR_LOOKUP(weir_dests, record.dest);
	if (!dest || !(dest->flags & WEIR_DEST_LIVE))
		return weir_verdict(WEIR_DROP_SERVER_GONE, XDP_DROP);
	if (!record.reverse && dest->flags & WEIR_DEST_LOCAL) {
		count_traffic_in(ctx, p, record.dest);
		fragment_rewrite(ctx, p, &record);
		return weir_verdict(WEIR_PASS_LOCAL_SERVER, XDP_PASS);
	}
	return fragment_forward(ctx, p, &record, dest, now);
}

#endif
