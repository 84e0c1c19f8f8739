/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The front cache: a small table of flows that had a packet in the current tick. Flow table entries are scattered over
 * all pages of the table, and with thousands of flows TLB misses dominate. Further packets of a flow in the same tick
 * do not change its entry and need not read it. The cache is used for plain ACKs of established TCP flows and for UDP
 * datagrams. It is not used for SNAT, because the SNAT source address is in the flow table. All other packets remove
 * their flow from the cache, and the server row is read for every packet, so that changes take effect at once. For nat
 * replies see lib/front_reply.h.
 *
 * The cache is 4-way set associative; a set is one cache line. Slots of an earlier tick are free. A full set is not
 * changed, and further flows use the flow table. The search starts at a slot that depends on the flow and usually
 * contains it: if all flows had the same order, the branches would be unpredictable.
 */
#ifndef WEIR_FRONT_H
#define WEIR_FRONT_H

#include "lib/context.h"
#include "lib/flow.h"

#define FRONT_SLOTS_LOG2 15
#define FRONT_SLOT_LOG2  4 /* log2 of the size in bytes */
#define FRONT_WAYS       4

struct front_slot {
	__u64 id;   /* as in the flow table: tag:44 | dest:20 */
	__u64 tick; /* plus one, so that zero is never valid */
};
_Static_assert(sizeof(struct front_slot) == 1 << FRONT_SLOT_LOG2, "front_slot_of() counts bytes");

/* Each program generation starts with an empty cache. */
static volatile struct front_slot weir_front[1 << FRONT_SLOTS_LOG2] __attribute__((aligned(64)));

/*
 * Returns a slot of a flow's set; `way` is the position in the flow's search order. The offset is computed in bytes, in
 * two instructions.
 */
static __always_inline volatile struct front_slot *front_slot_of(__u64 hash, int way)
{
	__u64 offset = hash >> (64 - FRONT_SLOTS_LOG2) << FRONT_SLOT_LOG2;

	return (volatile void *)weir_front + (offset ^ way << FRONT_SLOT_LOG2);
}

/* Returns whether a packet does not change the state of an established flow. */
static __always_inline int front_eligible(const struct packet *p)
{
	return p->proto == PROTO_UDP || tcp_event(p->tcp_flags) == TCP_EVENT_ACK;
}

/* Fills `flow` and returns 1 if the flow's entry need be neither read nor changed. */
static __always_inline int front_lookup(const struct packet *p, struct flow *flow, __u64 hash, __u32 now,
					const struct weir_settings *settings)
{
	__u32 state = p->proto == PROTO_UDP ? WEIR_STATE_UDP : WEIR_STATE_ESTABLISHED;
	volatile struct front_slot *slot;
	struct weir_dest *dest;
	__u64 id;

	/* With a negative timeout, every entry has expired. */
	if (!WEIR_FRONT || !front_eligible(p) || (__s32)settings->timeouts[state] < 0)
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
	flow->entry_index = WEIR_NO_INDEX;
	flow->dest = id & (WEIR_DESTS_MAX - 1);
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	return dest && (dest->flags & (WEIR_DEST_LIVE | WEIR_DEST_RESET | WEIR_DEST_RESCHEDULE)) == WEIR_DEST_LIVE;
}

static __always_inline void front_insert(const struct flow *flow, __u64 hash, __u32 now)
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
		/* Until the tick is written, the slot has a past tick, so readers on other CPUs do not use it. */
		slot->id = (hash & TAG_MASK) << TAG_SHIFT | flow->dest;
		__sync_lock_test_and_set((__u64 *)&slot->tick, tick);
		return;
	}
}

static __always_inline void front_delete(__u64 hash)
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

/* Returns whether the cache can hold everything that is needed to forward the flow. */
static __always_inline int front_can_hold(const struct flow *flow)
{
	struct weir_dest *dest;

	if (META_FLAGS(flow->meta) & WEIR_FLOW_ONESIDED)
		return 1;
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	return dest && !(dest->flags & WEIR_DEST_SNAT);
}

/* Updates the cache after a packet whose flow has an entry. `state` is the flow's new state. */
static __always_inline void front_update(const struct packet *p, const struct flow *flow, __u32 state, __u64 hash,
					 __u32 now)
{
	if (!front_eligible(p))
		front_delete(hash);
	else if ((state == WEIR_STATE_ESTABLISHED || state == WEIR_STATE_UDP) && front_can_hold(flow))
		front_insert(flow, hash, now);
}

#endif
