/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Moves flows from a table with a different size or layout to the current table. The daemon runs this while packets are
 * processed. A packet always finds its flow in one of the tables.
 *
 * A forward entry is claimed first and does not change after that. Packets use it until its copy exists. With nat the
 * reverse entry is copied first and linked to the old forward entry, because a visible forward entry must always have
 * its reverse entry: once the copy of the forward entry is visible, a packet can end the flow and free both copies. An
 * old entry whose copy exists is marked as moved. It remains for packets that searched the current table before the
 * move; if a packet finds a moved entry but no copy, the flow has ended.
 */
#ifndef WEIR_MOVE_H
#define WEIR_MOVE_H

#include "lib/flow.h"
#include "lib/mark.h"

#define MOVE_TRIES 32

/* This is a separate scratch row because on older kernels a packet can interrupt a test run. */
struct move_scratch {
	struct flow_new forward;
	struct flow_new reverse;
};

WEIR_PERCPU(weir_move_scratch, struct move_scratch, 1);

struct move_progress {
	__u32 position;
	__u32 moved;
	__u32 lost;
};

#define META_MOVED ((__u64)WEIR_KIND_MOVED << WEIR_META_KIND_SHIFT)

/* Claims an entry. Returns the previous meta, or 0 if the flow has ended or the entry kept changing. */
static __always_inline __u64 move_claim(struct weir_entry *entry)
{
	for (int i = 0; i < MOVE_TRIES; i++) {
		__u64 meta = READ_ONCE(entry->meta);

		if (META_KIND(meta) != WEIR_KIND_FORWARD && META_KIND(meta) != WEIR_KIND_TEMPLATE)
			return 0;
		if (__sync_val_compare_and_swap(&entry->meta, meta, meta | META_MOVED) == meta)
			return meta;
	}
	return 0;
}

/*
 * Fills in the new entry. It is no longer linked to a template: the template's lifetime depends only on flows that
 * start later.
 */
static __always_inline void move_fill(struct flow_new *new, const struct weir_flow_cold *cold, __u32 dest_id,
				      __u64 meta)
{
	new->src = cold->src;
	new->dst = cold->dst;
	new->sport = cold->sport;
	new->dport = cold->dport;
	new->proto = cold->proto;
	new->kind = META_KIND(meta);
	new->state = META_STATE(meta);
	new->flags = META_FLAGS(meta) & ~(WEIR_FLOW_AWAY | WEIR_FLOW_TEMPLATE);
	new->dest = dest_id;
	new->service = cold->service;
	new->now = META_SEEN(meta);
	new->created = new->kind == WEIR_KIND_TEMPLATE ? 0 : cold->created;
	new->family = cold->family;
	new->template = WEIR_NO_INDEX;
	new->template_generation = 0;
	new->dest_generation = cold->dest_generation;
	new->ifindex = cold->ifindex;
	new->old = 0;
	flow_new_hash(new, new->family);
}

static __always_inline int move_insert(struct flow_new *new)
{
	int result = FLOW_BUSY;

	for (int i = 0; i < MOVE_TRIES && result == FLOW_BUSY; i++)
		result = flow_insert(new);
	return result;
}

/*
 * Marks an old entry as moved. The entry is claimed, or is the reverse entry of a claimed entry, so nothing else
 * changes it.
 */
static __always_inline void move_finish(struct weir_entry *entry)
{
	__u64 meta = READ_ONCE(entry->meta);

	__sync_lock_test_and_set(&entry->meta, meta_make(META_GENERATION(meta), WEIR_KIND_MOVED, META_STATE(meta),
							 META_FLAGS(meta), META_SEEN(meta)));
}

/*
 * Inserts a copy of the reverse entry at `entry_index`, linked to the old forward entry at `forward_index`, and links
 * the forward entry in the scratch row to it.
 */
__noinline int move_reverse(__u32 entry_index, __u32 forward_index)
{
	struct move_scratch *scratch = WEIR_LOOKUP(weir_move_scratch, 0);
	struct weir_flow_cold *cold = cold_at(entry_index);
	struct weir_entry *entry = entry_at(entry_index), *forward = entry_at(forward_index);
	struct flow_new *new;
	int result;

	if (!scratch || !cold || !entry || !forward)
		return 0;
	new = &scratch->reverse;
	move_fill(new, cold, scratch->forward.dest, READ_ONCE(entry->meta));
	if (new->kind != WEIR_KIND_REVERSE)
		return 0;
	new->peer = forward_index;
	new->peer_generation = META_GENERATION(forward->meta);
	result = move_insert(new);
	/* Do this before the copy of the forward entry exists: after that, the next flow with this tuple can begin. */
	move_finish(entry);
	if (result != FLOW_INSERTED)
		return 0;
	scratch->forward.peer = new->entry_index;
	scratch->forward.peer_generation = new->generation;
	return 1;
}

/*
 * Inserts a copy of the forward entry, which is in the scratch row, and of the reverse entry, if the flow has one.
 * Returns whether it succeeded.
 */
__noinline int move_copy(__u32 entry_index, __u32 peer)
{
	struct move_scratch *scratch = WEIR_LOOKUP(weir_move_scratch, 0);

	if (!scratch)
		return 0;
	if (peer == WEIR_NO_INDEX)
		return move_insert(&scratch->forward) == FLOW_INSERTED;
	if (!move_reverse(peer, entry_index))
		return 0;
	if (move_insert(&scratch->forward) == FLOW_INSERTED)
		return 1;
	/* nat requires both entries. */
	entry_undo(&scratch->reverse);
	return 0;
}

/* Drops a flow for which no slot is free. Its packets can still be sent to the same server by hash. */
__noinline int move_drop(struct flow_new *new)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);

	if (!new)
		return 0;
	if (new->kind == WEIR_KIND_TEMPLATE) {
		count_persistent(new->dest, -1);
		return 0;
	}
	if (settings)
		untracked_mark_set(new->proto, new->hash, weir_tick(), settings);
	return count(new->dest, new->flags & WEIR_FLOW_ACTIVE, -1, COUNT_FLOW);
}

/*
 * Moves the flow whose forward entry is at `entry_index`. Returns 1 if it was moved, 0 if there is none, -1 if it was
 * lost.
 */
__noinline int move_flow(__u32 entry_index)
{
	struct move_scratch *scratch = WEIR_LOOKUP(weir_move_scratch, 0);
	struct weir_flow_cold *cold = cold_at(entry_index);
	struct weir_entry *entry = entry_at(entry_index);
	struct flow_new *new;
	__u64 meta;
	int copied;

	if (!scratch || !cold || !entry)
		return 0;
	new = &scratch->forward;
	meta = move_claim(entry);
	if (!meta)
		return 0;
	move_fill(new, cold, entry->id & (WEIR_DESTS_MAX - 1), meta);
	new->peer = WEIR_NO_INDEX;
	new->peer_generation = 0;
	copied = move_copy(entry_index, link_load(entry_index, cold->peer));
	if (!copied)
		move_drop(new);
	move_finish(entry);
	return copied ? 1 : -1;
}

static long move_bucket(__u32 index, void *context)
{
	struct move_progress *progress = context;
	__u32 position = progress->position + index;
	struct weir_bucket *bucket = WEIR_LOOKUP(weir_flows_old, position);

	if (!bucket)
		return 1;
	for (int i = 0; i < WEIR_BUCKET_SLOTS; i++) {
		__u32 kind;
		int moved;

		kind = META_KIND(READ_ONCE(bucket->slots[i].meta));
		if (READ_ONCE(bucket->slots[i].id) == 0 || (kind != WEIR_KIND_FORWARD && kind != WEIR_KIND_TEMPLATE))
			continue;
		moved = move_flow((position * WEIR_BUCKET_SLOTS + i) | WEIR_INDEX_OLD);
		progress->moved += moved > 0;
		progress->lost += moved < 0;
	}
	return 0;
}

static __always_inline int move(struct xdp_md *ctx)
{
	struct weir_move *request = (void *)(long)ctx->data;
	struct move_progress progress = {};

	if (!weir_old_bucket_count || (void *)(request + 1) > (void *)(long)ctx->data_end)
		return 0;
	progress.position = request->position;
	bpf_loop(request->count, move_bucket, &progress, 0);
	request = (void *)(long)ctx->data;
	if ((void *)(request + 1) > (void *)(long)ctx->data_end)
		return 0;
	request->moved = progress.moved;
	request->lost = progress.lost;
	return 1;
}

#endif
