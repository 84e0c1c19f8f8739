/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The front cache for nat replies, see lib/front.h. A slot also contains the source address that the client expects, so
 * that a reply reads neither the reverse nor the forward entry. The cache is not used with SNAT, which also changes the
 * destination.
 *
 * A packet other than a plain ACK or a UDP datagram removes its flow from both caches. A concurrent packet in the other
 * direction on another CPU is harmless: an ACK does not change the states that such packets set, in either view
 * (lib/tcp_state.h).
 */
#ifndef WEIR_FRONT_REPLY_H
#define WEIR_FRONT_REPLY_H

#include "lib/front.h"
#include "lib/reply.h"

#define FRONT_REPLY_SLOTS_LOG2 15
#define FRONT_REPLY_SLOT_LOG2  5 /* log2 of the size in bytes */
#define FRONT_REPLY_WAYS       4
#define FRONT_REPLY_CLAIMED    0xffffffffu /* being written */

struct front_reply {
	__u64 id; /* id of the reverse entry, as in the flow table */
	__u32 tick; /* plus one, so that zero is never valid */
	__u16 ifindex;
	__be16 port;
	struct weir_addr addr;
};
_Static_assert(sizeof(struct front_reply) == 1 << FRONT_REPLY_SLOT_LOG2, "front_reply_of() counts bytes");

static volatile struct front_reply weir_front_replies[1 << FRONT_REPLY_SLOTS_LOG2] __attribute__((aligned(64)));

/*
 * Does the same as front_slot_of() for replies. A set is two cache lines; the first two slots that are searched are in
 * the same cache line.
 */
static __always_inline volatile struct front_reply *front_reply_of(__u64 hash, int way)
{
	__u64 offset = hash >> (64 - FRONT_REPLY_SLOTS_LOG2) << FRONT_REPLY_SLOT_LOG2;

	return (volatile void *)weir_front_replies + (offset ^ way << FRONT_REPLY_SLOT_LOG2);
}

/* Fills `xlat` and the server row in `flow` and returns 1 if the reply does not change its flow. */
static __always_inline int front_lookup_reply(const struct packet *p, struct flow *flow, __u64 hash, __u32 now,
					      const struct weir_settings *settings, struct reply_translation *xlat)
{
	__u32 state = p->proto == PROTO_UDP ? WEIR_STATE_UDP : WEIR_STATE_ESTABLISHED;
	volatile struct front_reply *slot;
	struct weir_dest *dest;
	__u64 id;

	if (!WEIR_FRONT || !front_eligible(p) || (__s32)settings->timeouts[state] < 0)
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
	xlat->addr.hi = slot->addr.hi;
	xlat->addr.lo = slot->addr.lo;
	xlat->port = slot->port;
	xlat->ifindex = slot->ifindex;
	xlat->client = 0;
	xlat->client_port = 0;
	/* Another CPU may have replaced the flow since the test above; it claims the slot before it writes. */
	if (slot->tick != now + 1 || slot->id != id)
		return 0;
	flow->dest = id & (WEIR_DESTS_MAX - 1);
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	return dest && (dest->flags & (WEIR_DEST_LIVE | WEIR_DEST_RESET | WEIR_DEST_RESCHEDULE)) == WEIR_DEST_LIVE;
}

static __always_inline void front_insert_reply(__u32 dest_id, const struct reply_translation *xlat, __u64 hash,
					       __u32 now)
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
		/*
		 * Claims the slot, so that only one CPU writes it, and no reader uses it before all words are written.
		 */
		if (__sync_val_compare_and_swap((__u32 *)&slot->tick, old, FRONT_REPLY_CLAIMED) != old)
			return;
		slot->id = (hash & TAG_MASK) << TAG_SHIFT | dest_id;
		slot->addr.hi = xlat->addr.hi;
		slot->addr.lo = xlat->addr.lo;
		slot->port = xlat->port;
		slot->ifindex = xlat->ifindex;
		__sync_lock_test_and_set((__u32 *)&slot->tick, tick);
		return;
	}
}

static __always_inline __u64 cold_hash(const struct weir_flow_cold *cold)
{
	return flow_hash(&cold->src, &cold->dst, cold->sport, cold->dport, cold->proto, cold->family);
}

static __always_inline void front_delete_replies(__u64 hash)
{
	volatile struct front_reply *slot;

#pragma unroll
	for (int i = 0; i < FRONT_REPLY_WAYS; i++) {
		slot = front_reply_of(hash, i);
		if (slot->id >> TAG_SHIFT == (hash & TAG_MASK))
			slot->tick = 0;
	}
}

/* Removes the flow of the entry at `entry_index`, of either direction, from both caches. */
__noinline int front_delete_flow(__u32 entry_index)
{
	struct weir_flow_cold *cold = cold_at(entry_index);
	__u64 hash;

	for (int i = 0; WEIR_FRONT && i < 2; i++) {
		if (!cold)
			return 0;
		hash = cold_hash(cold);
		front_delete(hash);
		front_delete_replies(hash);
		if (cold->peer == WEIR_NO_INDEX)
			return 0;
		cold = cold_at(link_load(entry_index, cold->peer));
	}
	return 1;
}

/* Updates the caches after a reply. `state` is the flow's new state. */
static __always_inline void front_update_reply(const struct packet *p, const struct flow *flow,
					       const struct reply_translation *xlat, __u32 state, __u64 hash, __u32 now)
{
	if (!front_eligible(p))
		front_delete_flow(flow->entry_index);
	else if ((state == WEIR_STATE_ESTABLISHED || state == WEIR_STATE_UDP) && !xlat->client &&
		 xlat->ifindex <= 0xffff)
		front_insert_reply(flow->dest, xlat, hash, now);
}

/* Updates the caches after a request whose flow has an entry. `state` is the flow's new state. */
static __always_inline void front_update_request(const struct packet *p, const struct flow *flow, __u32 state,
						 __u64 hash, __u32 now)
{
	if (front_eligible(p) || META_FLAGS(flow->meta) & WEIR_FLOW_ONESIDED)
		front_update(p, flow, state, hash, now);
	else
		front_delete_flow(flow->entry_index);
}

#endif
