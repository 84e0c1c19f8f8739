/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The front: flows whose packet of this tick was seen already, in a small table before the large one. Places of the flow table
 * lie scattered over as many pages as there are buckets, and a processor that forwards thousands of flows spends more time on
 * finding those pages than on anything else. A flow's further packets of the same tick change nothing in its entry, so that
 * they need not go there: only where the flow is established or UDP's, and for packets that are no more than an ACK or a
 * datagram; and not under snat, whose source stands in the table. Whatever else happens to a flow, a packet of its or user space must still take effect at
 * once: such packets take the flow out of the front, and the server's row is asked each time. Under nat, see lib/front_reply.h.
 *
 * A set is one cache line. What is not of this tick is free; a set that is full keeps what it has, and the rest goes by the
 * flow table as ever. Within its set each flow begins with a place of its own, where it mostly is: looking through all of them in
 * the same order would be a branch that nobody can predict.
 */
#ifndef WEIR_FRONT_H
#define WEIR_FRONT_H

#include "lib/context.h"
#include "lib/flow.h"

#define FRONT_SLOTS_LOG2 15
#define FRONT_SLOT_LOG2  4 /* octets */
#define FRONT_WAYS       4

struct front_slot {
	__u64 id;   /* as in the flow table: tag:44 | dest:20 */
	__u64 tick; /* and one above, so that zero is no tick's */
};
_Static_assert(sizeof(struct front_slot) == 1 << FRONT_SLOT_LOG2, "front_slot_of() counts octets");

/* Each generation of the programs begins with an empty one. */
static volatile struct front_slot weir_front[1 << FRONT_SLOTS_LOG2] __attribute__((aligned(64)));

/* The places of a flow's set in the order of this flow: `way` counts from its own. Octets, so that a look costs two instructions. */
static __always_inline volatile struct front_slot *front_slot_of(__u64 hash, int way)
{
	__u64 at = hash >> (64 - FRONT_SLOTS_LOG2) << FRONT_SLOT_LOG2;

	return (volatile void *)weir_front + (at ^ way << FRONT_SLOT_LOG2);
}

/* A packet that moves an established flow to no other state. */
static __always_inline int front_suits(const struct packet *p)
{
	return p->proto == PROTO_UDP || tcp_event(p->tcp_flags) == TCP_EVENT_ACK;
}

/* Fills `flow` and answers 1 if the flow's entry needs neither be looked at nor changed. */
static __always_inline int front_knows(const struct packet *p, struct flow *flow, __u64 hash, __u32 now,
				       const struct weir_settings *settings)
{
	__u32 state = p->proto == PROTO_UDP ? WEIR_STATE_UDP : WEIR_STATE_ESTABLISHED;
	volatile struct front_slot *slot;
	struct weir_dest *dest;
	__u64 id;

	/* A timeout below zero makes every entry overdue at once. */
	if (!WEIR_FRONT || !front_suits(p) || (__s32)settings->timeouts[state] < 0)
		return 0;
#pragma unroll
	for (int i = 0; i < FRONT_WAYS; i++) {
		slot = front_slot_of(hash, i);
		id = slot->id;
		if (id >> TAG_SHIFT == (hash & TAG_MASK) && slot->tick == (__u64)now + 1)
			goto found;
	}
	return 0;
found:
	flow->place = WEIR_NO_PLACE;
	flow->dest = id & (WEIR_DESTS_MAX - 1);
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	return dest && (dest->flags & (WEIR_DEST_LIVE | WEIR_DEST_RESET | WEIR_DEST_RESCHEDULE)) == WEIR_DEST_LIVE;
}

static __always_inline void front_learn(const struct flow *flow, __u64 hash, __u32 now)
{
	volatile struct front_slot *slot;
	__u64 tick = (__u64)now + 1;

	if (!WEIR_FRONT)
		return;
#pragma unroll
	for (int i = 0; i < FRONT_WAYS; i++) {
		slot = front_slot_of(hash, i);
		if (slot->tick == tick)
			continue;
		/* Readers on other CPUs meet the old flow of a past tick, or none, until the tick is written. */
		slot->id = (hash & TAG_MASK) << TAG_SHIFT | flow->dest;
		__sync_lock_test_and_set((__u64 *)&slot->tick, tick);
		return;
	}
}

static __always_inline void front_forget(__u64 hash)
{
	volatile struct front_slot *slot;

	if (!WEIR_FRONT)
		return;
#pragma unroll
	for (int i = 0; i < FRONT_WAYS; i++) {
		slot = front_slot_of(hash, i);
		if (slot->id >> TAG_SHIFT == (hash & TAG_MASK))
			slot->tick = 0;
	}
}

/* Whether the front says enough of a flow to forward it. */
static __always_inline int front_holds(const struct flow *flow)
{
	struct weir_dest *dest;

	if (META_FLAGS(flow->meta) & WEIR_FLOW_ONESIDED)
		return 1;
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	return dest && !(dest->flags & WEIR_DEST_SNAT);
}

/* After a packet that met its entry and left it in `state`. */
static __always_inline void front_note(const struct packet *p, const struct flow *flow, __u32 state, __u64 hash, __u32 now)
{
	if (!front_suits(p))
		front_forget(hash);
	else if ((state == WEIR_STATE_ESTABLISHED || state == WEIR_STATE_UDP) && front_holds(flow))
		front_learn(flow, hash, now);
}

#endif
