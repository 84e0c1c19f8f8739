/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Replies from nat servers: finds the flow of a reverse entry. */
#ifndef WEIR_REPLY_H
#define WEIR_REPLY_H

#include "lib/flow.h"

struct reply {
	struct weir_entry *forward;
	__u32 entry_index;                 /* index of the forward entry */
	struct weir_flow_cold *cold; /* cold record of the forward entry: client to VIP */
	__u64 meta;                  /* meta of the forward entry, which has not expired */
};

/*
 * Returns the meta of the forward entry that a reverse entry links to, or 0 if the flow has ended. While a flow is
 * moved, its new reverse entry links to the old forward entry, then to the new one. A packet can read the index before
 * this change and the generation after it. For an old entry, whose slot is not reused, the generation is therefore not
 * compared.
 */
static __always_inline __u64 linked_meta(__u32 reverse_index, const struct weir_flow_cold *reverse,
					 __u32 forward_index, __u64 meta)
{
	int moves = is_old_entry(forward_index) && META_KIND(meta) & WEIR_KIND_MOVED;

	if (moves)
		meta = meta_make(META_GENERATION(meta), WEIR_KIND_FORWARD, META_STATE(meta), META_FLAGS(meta),
				 META_SEEN(meta));
	if (META_KIND(meta) != WEIR_KIND_FORWARD)
		return 0;
	if (moves && !is_old_entry(reverse_index))
		return meta;
	return META_GENERATION(meta) == reverse->peer_generation ? meta : 0;
}

/*
 * Finds the flow of a reply. `flow` is the reverse entry with the packet's hash. Returns 0 if the entry has a different
 * tuple or the flow has ended.
 */
static __always_inline int reply_find(const struct packet *p, const struct flow *flow, __u32 now,
				      const struct weir_settings *settings, struct reply *reply)
{
	struct weir_flow_cold *cold = cold_at(flow->entry_index);
	__u32 entry_index;

	if (!cold || !cold_matches(cold, &p->src, &p->dst, p->sport, p->dport, p->proto))
		return 0;
	if (cold->peer == WEIR_NO_INDEX)
		return 0;
	entry_index = link_load(flow->entry_index, cold->peer);
	reply->forward = entry_at(entry_index);
	if (!reply->forward)
		return 0;
	reply->meta = linked_meta(flow->entry_index, cold, entry_index, READ_ONCE(reply->forward->meta));
	if (!reply->meta)
		return 0;
	if (meta_expired(reply->meta, now, settings)) {
		flow_release(entry_index, reply->meta);
		return 0;
	}
	reply->entry_index = entry_index;
	reply->cold = cold_at(entry_index);
	return reply->cold != 0;
}

/* Advances the flow's state and returns the new one. */
static __always_inline __u32 reply_advance(const struct packet *p, const struct reply *reply, __u32 dest_id, __u32 now)
{
	__u32 state = p->proto == PROTO_TCP ?
			      tcp_next_state(META_STATE(reply->meta), TCP_VIEW_OUTPUT, p->tcp_flags) :
			      WEIR_STATE_UDP;

	flow_advance(reply->forward, reply->entry_index, dest_id, reply->meta, state, now);
	return state;
}

/* The translation of a reply, and the device to use if there is no route. */
struct reply_translation {
	struct weir_addr addr; /* the reply's source: the VIP */
	__be16 port;
	__be16 client_port;
	__u32 ifindex;
	struct weir_addr *client; /* the reply's destination with SNAT; 0 = unchanged */
};

/* Fills `xlat` from the forward entry's cold record. */
static __always_inline void reply_translation_fill(struct reply_translation *xlat, const struct packet *p,
						   struct weir_flow_cold *cold)
{
	xlat->addr = cold->dst;
	xlat->port = cold->dport;
	xlat->ifindex = cold->ifindex;
	xlat->client = cold->sport == p->dport && addr_equal(&cold->src, &p->dst) ? 0 : &cold->src;
	xlat->client_port = cold->sport;
}

#endif
