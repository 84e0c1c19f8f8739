/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* From the reverse entry that a nat server's packet meets to the flow that it answers. */
#ifndef WEIR_REPLY_H
#define WEIR_REPLY_H

#include "lib/flow.h"

struct reply {
	struct weir_entry *forward;
	__u32 place;                 /* of the forward entry */
	struct weir_flow_cold *cold; /* the forward entry's: client to VIP */
	__u64 meta;                  /* the forward entry's, not overdue */
};

/* `flow` is the reverse entry that the tuple of `p` hashed to; 0 when it is another flow's, or its own flow is over. */
static __always_inline int reply_find(const struct packet *p, const struct flow *flow, __u32 now,
				      const struct weir_settings *settings, struct reply *reply)
{
	struct weir_flow_cold *cold = place_cold(flow->place);
	__u32 place;

	if (!cold || !cold_is(cold, &p->src, &p->dst, p->sport, p->dport, p->proto))
		return 0;
	if (cold->peer == WEIR_NO_PLACE)
		return 0;
	place = place_link(flow->place, cold->peer);
	reply->forward = place_entry(place);
	if (!reply->forward)
		return 0;
	reply->meta = meta_unmoved(READ_ONCE(reply->forward->meta));
	if (META_KIND(reply->meta) != WEIR_KIND_FORWARD || META_GENERATION(reply->meta) != cold->peer_generation)
		return 0;
	if (meta_overdue(reply->meta, now, settings)) {
		flow_release(place, reply->meta);
		return 0;
	}
	reply->place = place;
	reply->cold = place_cold(place);
	return reply->cold != 0;
}

/* Answers the flow's state after it. */
static __always_inline __u32 reply_advance(const struct packet *p, const struct reply *reply, __u32 dest_id, __u32 now)
{
	__u32 state = p->proto == PROTO_TCP ?
			      tcp_next_state(META_STATE(reply->meta), TCP_VIEW_OUTPUT, p->tcp_flags) :
			      WEIR_STATE_UDP;

	flow_advance(reply->forward, reply->place, dest_id, reply->meta, state, now);
	return state;
}

/* What a reply becomes, and the device to send it by where the kernel tells no way. */
struct reply_way {
	struct weir_addr addr; /* its source: the VIP */
	__be16 port;
	__be16 client_port;
	__u32 ifindex;
	struct weir_addr *client; /* its destination under snat, 0 = the one it has */
};

/* `cold` is the forward entry's. */
static __always_inline void reply_way_read(struct reply_way *way, const struct packet *p, struct weir_flow_cold *cold)
{
	way->addr = cold->dst;
	way->port = cold->dport;
	way->ifindex = cold->ifindex;
	way->client = cold->sport == p->dport && addr_equal(&cold->src, &p->dst) ? 0 : &cold->src;
	way->client_port = cold->sport;
}

#endif
