/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Later fragments of a datagram: they have no ports and follow the note that their first fragment left. Nothing is
 * reassembled or held back, so one that overtakes its first fragment is lost.
 */
#ifndef WEIR_FRAGMENT_H
#define WEIR_FRAGMENT_H

#include "lib/balance.h"

/* The fragment at hand; per CPU for the same reason as struct bind_scratch. */
WEIR_PERCPU(weir_fragment_scratch, struct packet, 1);

/* The first fragment went up the stack: the others follow it there. A note that names a server is left as it is. */
__noinline int fragment_remember_pass(struct packet *p)
{
	struct weir_fragment note = {};
	__u32 now = weir_tick();

	if (!p || fragment_recall(p, now, &note))
		return 0;
	note.tick = now;
	return fragment_remember(p, &note);
}

/* Only what was certainly for a service is dropped: other traffic of these addresses is the stack's. */
static __always_inline int fragment_without_note(struct packet *p)
{
	struct weir_vip *vip = bpf_map_lookup_elem(&weir_vips, &p->dst);

	if (!vip || !(vip->flags & WEIR_VIP_ECHO))
		return weir_verdict(WEIR_PASS_NOT_OURS, XDP_PASS);
	if (p->proto != PROTO_TCP && p->proto != PROTO_UDP)
		return weir_verdict(WEIR_PASS_PROTOCOL, XDP_PASS);
	return weir_verdict(WEIR_DROP_FRAGMENT_EARLY, XDP_DROP);
}

static __always_inline int fragment_hop(struct weir_context *ctx, struct weir_fragment *note, struct weir_dest *dest, __u32 now,
					struct hop *hop)
{
	if (note->reverse)
		return client_way(ctx, &note->new_dst, note->hash, now, hop);
	return hop_to_server(ctx, note->dest, dest, note->hash, now, hop);
}

static __always_inline void fragment_rewrite(struct weir_context *ctx, struct packet *p, const struct weir_fragment *note)
{
	struct rewrite to = {};

	to.src = addr_is_set(&note->new_src) ? note->new_src : p->src;
	to.dst = addr_is_set(&note->new_dst) ? note->new_dst : p->dst;
	packet_rewrite(ctx, p, &to);
}

/* As forward_to_server and forward_to_client do, but for what needs ports. Never answered with an ICMP error. */
static __always_inline int fragment_forward(struct weir_context *ctx, struct packet *p, struct weir_fragment *note,
					    struct weir_dest *dest, __u32 now)
{
	int tunnel = !note->reverse && dest->forward == WEIR_FORWARD_TUNNEL;
	int direct = !note->reverse && dest->forward == WEIR_FORWARD_DIRECT;
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct hop hop;
	__u32 room;

	if (ttl_used_up(data, data_end, p))
		return weir_verdict(WEIR_DROP_TTL, XDP_DROP);
	if (!fragment_hop(ctx, note, dest, now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	room = WEIR_HOP_MTU(hop.link);
	if (tunnel)
		room -= room ? encap_overhead(dest) : 0;
	if (room && p->ip_len > room)
		return weir_verdict(WEIR_DROP_TOO_BIG, XDP_DROP);
	if (note->reverse)
		traffic_out(ctx, p, note->dest);
	else
		traffic_in(ctx, p, note->dest);
	ttl_decrement(ctx, p);
	if (tunnel)
		return forward_tunnel(ctx, p, dest, &hop, note->hash);
	if (!note->reverse && dest->forward == WEIR_FORWARD_L3DSR && dest->dscp)
		dscp_set(ctx, p, dest->dscp);
	fragment_rewrite(ctx, p, note);
	return transmit(ctx, &hop, direct ? &dest->addr : 0, packet_tagged(p));
}

static __always_inline int fragment_later(struct weir_context *ctx, struct packet *p)
{
	struct weir_fragment note = {};
	struct weir_dest *dest;
	__u32 now = weir_tick();

	if (!p)
		return XDP_DROP;
	if (!fragment_recall(p, now, &note))
		return fragment_without_note(p);
	if (note.dest == 0)
		return weir_verdict(WEIR_PASS_NO_SERVICE, XDP_PASS);
	dest = WEIR_LOOKUP(weir_dests, note.dest);
	if (!dest || !(dest->flags & WEIR_DEST_LIVE))
		return weir_verdict(WEIR_DROP_SERVER_GONE, XDP_DROP);
	if (!note.reverse && dest->flags & WEIR_DEST_LOCAL) {
		traffic_in(ctx, p, note.dest);
		fragment_rewrite(ctx, p, &note);
		return weir_verdict(WEIR_PASS_LOCAL_SERVER, XDP_PASS);
	}
	return fragment_forward(ctx, p, &note, dest, now);
}

#endif
