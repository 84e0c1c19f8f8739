/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The list of a service's usable servers, newest first, and rr and wrr, the schedulers that keep a cursor in the list.
 */
#ifndef WEIR_SCHEDULE_LIST_H
#define WEIR_SCHEDULE_LIST_H

#include "lib/flow.h"

#define LIST_LOG2 20

static __always_inline struct weir_member *member_at(const struct weir_extent *extent, __u32 index)
{
	return WEIR_LOOKUP(weir_tables, extent->list_at + index);
}

struct member_search {
	const struct weir_extent *extent;
	__u32 dest;
	__u32 found; /* a position */
};

static long member_step(__u32 index, void *context)
{
	struct member_search *search = context;
	struct weir_member *member = member_at(search->extent, index);

	if (!member)
		return 1;
	if (member->dest != search->dest)
		return 0;
	search->found = index;
	return 1;
}

/*
 * Returns a server's row in the list; 0 = the server takes no flows. A search is needed only while the list is being
 * changed.
 */
static __always_inline struct weir_member *member_of(const struct weir_extent *extent, __u32 dest_id)
{
	struct member_search search = { .extent = extent, .dest = dest_id, .found = extent->list_len };
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	struct weir_member *member;

	if (!dest || !dest->place || !(dest->flags & WEIR_DEST_USABLE))
		return 0;
	if (dest->place <= extent->list_len) {
		member = member_at(extent, dest->place - 1);
		if (member && member->dest == dest_id)
			return member;
	}
	bpf_loop(extent->list_len, member_step, &search, 0);
	return search.found < extent->list_len ? member_at(extent, search.found) : 0;
}

static __always_inline void tree_read(struct tree *tree, const struct weir_extent *extent)
{
	/* The rule is not needed, because no servers are compared. */
	tree->list_at = extent->list_at;
	tree->list_len = extent->list_len;
	tree->nodes_at = extent->tree_at;
	tree->width = extent->tree_width;
}

enum root {
	ROOT_NONE, /* no server takes flows */
	ROOT_WALK, /* no tree, or its root is out of date */
	ROOT_FOUND,
};

/* Reads the choice of a winner tree. */
static __always_inline enum root tree_root(const struct weir_extent *extent, struct weir_member **choice)
{
	struct tree tree = {};
	__u32 winner;

	if (!extent->tree_width)
		return ROOT_WALK;
	tree_read(&tree, extent);
	winner = tree_winner(&tree, 1);
	if (winner == TREE_NONE)
		return ROOT_NONE;
	*choice = tree_member(&tree, winner);
	/* After a server has reached its threshold, the root can still contain the server until the tree is updated. */
	return *choice && !live_overloaded((*choice)->live) ? ROOT_FOUND : ROOT_WALK;
}

/* ---- seeking ----------------------------------------------------------------------------------------------------- */

struct tree_search {
	struct tree tree;
	__u32 node;
	__u32 weight;
	__u32 found; /* a position */
};

struct list_search {
	const struct weir_extent *extent;
	__u32 start;
	__u32 weight;
	__u32 found; /* a position */
};

static long seek_step(__u32 index, void *context)
{
	struct list_search *search = context;
	__u32 position = search->start + index;
	struct weir_member *member = member_at(search->extent, position);

	if (!member)
		return 1;
	if (member->weight < search->weight || live_overloaded(member->live))
		return 0;
	search->found = position;
	return 1;
}

static long tree_seek_step(__u32 index, void *context)
{
	struct tree_search *search = context;
	struct weir_member *member = tree_member(&search->tree, tree_winner(&search->tree, search->node));
	__u32 next;

	if (member && member->weight >= search->weight && !live_overloaded(member->live)) {
		if (search->node >= search->tree.width) {
			search->found = search->node - search->tree.width;
			return 1;
		}
		search->node *= 2;
		return 0;
	}
	/* The largest subtree that starts to the right of this one. */
	next = search->node + 1;
	if ((next & (next - 1)) == 0)
		return 1;
	search->node = next / (next & -next);
	return 0;
}

/* Does the same as list_seek(), over a tree of maximum weights. */
static __always_inline __u32 tree_seek(const struct weir_extent *extent, __u32 start, __u32 weight)
{
	struct tree_search search = { .weight = weight, .found = extent->list_len };

	if (start >= extent->list_len)
		return extent->list_len;
	tree_read(&search.tree, extent);
	search.node = extent->tree_width + start;
	bpf_loop(4 * TREE_LEVELS, tree_seek_step, &search, 0);
	return search.found;
}

/*
 * Returns the first position at or after `start` with an available server whose weight is at least `weight`; the
 * list's length if there is none.
 */
static __always_inline __u32 list_seek(const struct weir_extent *extent, __u32 start, __u32 weight)
{
	struct list_search search = { .extent = extent, .start = start, .weight = weight, .found = extent->list_len };

	if (extent->tree_width)
		return tree_seek(extent, start, weight);
	if (start < extent->list_len)
		bpf_loop(extent->list_len - start, seek_step, &search, 0);
	return search.found;
}

static long heaviest_step(__u32 index, void *context)
{
	struct list_search *search = context;
	struct weir_member *member = member_at(search->extent, index);

	if (!member)
		return 1;
	if (member->weight > search->weight && !live_overloaded(member->live))
		search->weight = member->weight;
	return 0;
}

/* Returns the maximum weight of available servers, or 0 if there are none. */
static __always_inline __u32 list_heaviest(const struct weir_extent *extent)
{
	struct list_search search = { .extent = extent };
	struct weir_member *root = 0;

	switch (tree_root(extent, &root)) {
	case ROOT_NONE:
		return 0;
	case ROOT_FOUND:
		return root ? root->weight : 0;
	case ROOT_WALK:
		break;
	}
	bpf_loop(extent->list_len, heaviest_step, &search, 0);
	return search.weight;
}

/* ---- the cursor -------------------------------------------------------------------------------------------------- */

/*
 * Returns the position of the first member after `seq` in list order (descending seq); the list's length if there is
 * none.
 */
static __always_inline __u32 list_after(const struct weir_extent *extent, __u32 seq, __u32 hint)
{
	struct weir_member *member;
	__u32 low = 0, high = extent->list_len;

	if (seq == 0)
		return 0;
	member = member_at(extent, hint);
	if (hint < extent->list_len && member && member->seq == seq)
		return hint + 1;
	for (int i = 0; i < LIST_LOG2; i++) {
		__u32 middle = (low + high) / 2;

		if (low >= high)
			break;
		member = member_at(extent, middle);
		if (!member)
			break;
		if (member->seq >= seq)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static __always_inline __u32 cursor_take(struct weir_cursor *cursor, const struct weir_extent *extent, __u32 position)
{
	struct weir_member *member = member_at(extent, position);

	if (!member || position >= extent->list_len)
		return 0;
	cursor->seq = member->seq;
	cursor->hint = position;
	return member->dest;
}

/* Resets a cursor after a change to the list. User space computes its initial position by the kernel's rules. */
static __always_inline void cursor_start(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	if (cursor->generation == extent->generation)
		return;
	cursor->generation = extent->generation;
	cursor->seq = extent->start_seq;
	cursor->hint = 0;
	cursor->current_weight = extent->start_weight;
}

/* ---- rr and wrr -------------------------------------------------------------------------------------------------- */

static __always_inline __u32 schedule_rr(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	__u32 position = list_seek(extent, list_after(extent, cursor->seq, cursor->hint), 1);

	if (position >= extent->list_len)
		position = list_seek(extent, 0, 1);
	return cursor_take(cursor, extent, position);
}

/*
 * Selects by weighted round robin. A pass selects every server whose weight is at least current_weight. The next pass
 * reduces current_weight by gcd; after the lowest value it starts at max_weight again. Passes without a server are
 * skipped in one step (crates/weir-sched, table::wrr).
 */
static __always_inline __u32 schedule_wrr(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	__u32 step = extent->gcd ? extent->gcd : 1, level = cursor->current_weight, heaviest;
	__u32 position = list_seek(extent, list_after(extent, cursor->seq, cursor->hint), level);
	int mid_pass = cursor->seq != 0, wrapped = mid_pass && level <= step;

	if (extent->max_weight == 0)
		return 0;
	if (position < extent->list_len)
		return cursor_take(cursor, extent, position);
	if (wrapped)
		level = extent->max_weight;
	else if (mid_pass)
		level -= step;
	heaviest = list_heaviest(extent);
	if (heaviest == 0) {
		/* This is the state in which the kernel's loop ends without a server. */
		cursor->current_weight = wrapped ? 1 : extent->max_weight;
		if (!wrapped)
			cursor->seq = 0;
		return 0;
	}
	if (level > heaviest)
		level -= (level - heaviest + step - 1) / step * step;
	cursor->current_weight = level;
	return cursor_take(cursor, extent, list_seek(extent, 0, level));
}

#endif
