/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The front of nat's replies: what lib/front.h is for requests. A slot says besides what the client takes for the sender, so
 * that a reply reads neither its own entry nor its flow's. Not under snat, where the receiver changes as well.
 *
 * A packet that is more than an ACK takes its flow out of both fronts. Where that meets a packet of the other direction on another
 * CPU, nothing is lost: what such packets make of an established flow are states that an ACK leaves as they are, in both views
 * (lib/tcp_state.h).
 */
#ifndef WEIR_FRONT_REPLY_H
#define WEIR_FRONT_REPLY_H

#include "lib/front.h"
#include "lib/reply.h"

#define FRONT_REPLY_SLOTS_LOG2 15
#define FRONT_REPLY_SLOT_LOG2  5 /* octets */
#define FRONT_REPLY_WAYS       4
#define FRONT_REPLY_CLAIMED    0xffffffffu /* being written */

struct front_reply {
	__u64 id; /* as in the flow table, of the reverse entry */
	__u32 tick; /* and one above, so that zero is no tick's */
	__u16 ifindex;
	__be16 port;
	struct weir_addr addr;
};
_Static_assert(sizeof(struct front_reply) == 1 << FRONT_REPLY_SLOT_LOG2, "front_reply_of() counts octets");

static volatile struct front_reply weir_front_replies[1 << FRONT_REPLY_SLOTS_LOG2] __attribute__((aligned(64)));

/* As front_slot_of(). A set is two cache lines, of which the first two looks meet one. */
static __always_inline volatile struct front_reply *front_reply_of(__u64 hash, int way)
{
	__u64 at = hash >> (64 - FRONT_REPLY_SLOTS_LOG2) << FRONT_REPLY_SLOT_LOG2;

	return (volatile void *)weir_front_replies + (at ^ way << FRONT_REPLY_SLOT_LOG2);
}

/* Fills `way` and the server's row in `flow` and answers 1 if the reply changes nothing in its flow. */
static __always_inline int front_knows_reply(const struct packet *p, struct flow *flow, __u64 hash, __u32 now,
					     const struct weir_settings *settings, struct reply_way *way)
{
	__u32 state = p->proto == PROTO_UDP ? WEIR_STATE_UDP : WEIR_STATE_ESTABLISHED;
	volatile struct front_reply *slot;
	struct weir_dest *dest;
	__u64 id;

	if (!WEIR_FRONT || !front_suits(p) || (__s32)settings->timeouts[state] < 0)
		return 0;
#pragma unroll
	for (int i = 0; i < FRONT_REPLY_WAYS; i++) {
		slot = front_reply_of(hash, i);
		id = slot->id;
		if (id >> TAG_SHIFT == (hash & TAG_MASK) && slot->tick == now + 1)
			goto found;
	}
	return 0;
found:
	way->addr.hi = slot->addr.hi;
	way->addr.lo = slot->addr.lo;
	way->port = slot->port;
	way->ifindex = slot->ifindex;
	way->client = 0;
	way->client_port = 0;
	/* Another CPU may have written another flow there meanwhile; it claims the slot first. */
	if (slot->tick != now + 1 || slot->id != id)
		return 0;
	flow->dest = id & (WEIR_DESTS_MAX - 1);
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	return dest && (dest->flags & (WEIR_DEST_LIVE | WEIR_DEST_RESET | WEIR_DEST_RESCHEDULE)) == WEIR_DEST_LIVE;
}

static __always_inline void front_learn_reply(__u32 dest_id, const struct reply_way *way, __u64 hash, __u32 now)
{
	volatile struct front_reply *slot;
	__u32 tick = now + 1, old;

	if (!WEIR_FRONT)
		return;
#pragma unroll
	for (int i = 0; i < FRONT_REPLY_WAYS; i++) {
		slot = front_reply_of(hash, i);
		old = slot->tick;
		if (old == tick || old == FRONT_REPLY_CLAIMED)
			continue;
		/* Several words: who writes them does so alone, and no reader takes them before they are there. */
		if (__sync_val_compare_and_swap((__u32 *)&slot->tick, old, FRONT_REPLY_CLAIMED) != old)
			return;
		slot->id = (hash & TAG_MASK) << TAG_SHIFT | dest_id;
		slot->addr.hi = way->addr.hi;
		slot->addr.lo = way->addr.lo;
		slot->port = way->port;
		slot->ifindex = way->ifindex;
		__sync_lock_test_and_set((__u32 *)&slot->tick, tick);
		return;
	}
}

static __always_inline __u64 cold_hash(const struct weir_flow_cold *cold)
{
	return flow_hash(&cold->src, &cold->dst, cold->sport, cold->dport, cold->proto, cold->family);
}

static __always_inline void front_forget_replies(__u64 hash)
{
	volatile struct front_reply *slot;

#pragma unroll
	for (int i = 0; i < FRONT_REPLY_WAYS; i++) {
		slot = front_reply_of(hash, i);
		if (slot->id >> TAG_SHIFT == (hash & TAG_MASK))
			slot->tick = 0;
	}
}

/* Takes the flow of the entry at `place`, of either direction, out of both fronts. */
__noinline int front_forget_flow(__u32 place)
{
	struct weir_flow_cold *cold = place_cold(place);
	__u64 hash;

	for (int i = 0; WEIR_FRONT && i < 2; i++) {
		if (!cold)
			return 0;
		hash = cold_hash(cold);
		front_forget(hash);
		front_forget_replies(hash);
		if (cold->peer == WEIR_NO_PLACE)
			return 0;
		cold = place_cold(place_link(place, cold->peer));
	}
	return 1;
}

/* After a reply that left its flow in `state`. */
static __always_inline void front_note_reply(const struct packet *p, const struct flow *flow, const struct reply_way *way,
					     __u32 state, __u64 hash, __u32 now)
{
	if (!front_suits(p))
		front_forget_flow(flow->place);
	else if ((state == WEIR_STATE_ESTABLISHED || state == WEIR_STATE_UDP) && !way->client && way->ifindex <= 0xffff)
		front_learn_reply(flow->dest, way, hash, now);
}

/* After a request that met its entry and left it in `state`. */
static __always_inline void front_note_request(const struct packet *p, const struct flow *flow, __u32 state, __u64 hash,
					       __u32 now)
{
	if (front_suits(p) || META_FLAGS(flow->meta) & WEIR_FLOW_ONESIDED)
		front_note(p, flow, state, hash, now);
	else
		front_forget_flow(flow->place);
}

#endif
