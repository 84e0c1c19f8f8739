/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The schedulers that compare live counts: lc, wlc, sed, nq, fo and ovf compare all servers in the list; twos and p2c
 * compare two servers drawn at random by weight. The fractions cost / share are compared by cross-multiplication; on a
 * tie, the first server is used.
 */
#ifndef WEIR_SCHEDULE_LOAD_H
#define WEIR_SCHEDULE_LOAD_H

#include "lib/schedule_list.h"

/* ---- least loaded ------------------------------------------------------------------------------------------------ */

struct least_search {
	const struct weir_extent *extent;
	struct candidate best;
	struct rule rule;
	__u32 dest;
};

static long least_step(__u32 index, void *context)
{
	struct least_search *search = context;
	struct weir_member *member = member_at(search->extent, index);
	struct candidate current;

	if (!member)
		return 1;
	candidate_read(&current, &search->rule, member);
	if (candidate_better(&current, &search->best)) {
		search->best = current;
		search->dest = member->dest;
	}
	return 0;
}

static __always_inline __u32 schedule_least(const struct weir_extent *extent, __u32 scheduler)
{
	struct least_search search = { .extent = extent, .rule = rule_unpack(rule_of_scheduler(scheduler)) };
	struct weir_member *root = 0;

	switch (tree_root(extent, &root)) {
	case ROOT_NONE:
		return 0;
	case ROOT_FOUND:
		return root ? root->dest : 0;
	case ROOT_WALK:
		break;
	}
	bpf_loop(extent->list_len, least_step, &search, 0);
	return search.dest;
}

/* ---- two at random ----------------------------------------------------------------------------------------------- */

/* Maximum number of retries to avoid modulo bias; a retry is needed with a probability below ceiling / 2^32. */
#define REDRAWS 8

static __always_inline __u32 draw(struct weir_cursor *cursor)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	__u64 x;

	if (!settings || !settings->draw_seed)
		return bpf_get_prandom_u32();
	x = ((__u64)settings->draw_seed << 32 | __sync_fetch_and_add(&cursor->draws, 1)) + 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return (x ^ (x >> 31)) >> 32;
}

/* Draws a number below `ceiling`, like the kernel's get_random_u32_below. */
static __always_inline __u32 draw_below(struct weir_cursor *cursor, __u32 ceiling)
{
	__u64 product = (__u64)ceiling * draw(cursor);

	for (int i = 0; i < REDRAWS && (__u32)product < ceiling; i++) {
		if ((__u32)product >= (0u - ceiling) % ceiling)
			break;
		product = (__u64)ceiling * draw(cursor);
	}
	return product >> 32;
}

static __always_inline __u32 better_dest(const struct weir_extent *extent, __u32 first, __u32 second)
{
	struct weir_member *first_member = member_at(extent, first), *second_member = member_at(extent, second);
	struct rule rule = rule_unpack(WEIR_RULE_WLC);
	struct candidate a, b;

	if (!first_member || !second_member)
		return 0;
	candidate_read(&a, &rule, first_member);
	candidate_read(&b, &rule, second_member);
	return candidate_better(&b, &a) ? second_member->dest : first_member->dest;
}

struct twos_search {
	const struct weir_extent *extent;
	__u64 reached;
	__u32 target[2];
	__u32 position[2];
	__u32 found;
};

static long sum_step(__u32 index, void *context)
{
	struct twos_search *search = context;
	struct weir_member *member = member_at(search->extent, index);

	if (!member)
		return 1;
	if (!live_overloaded(member->live))
		search->reached += member->weight;
	return 0;
}

static long twos_step(__u32 index, void *context)
{
	struct twos_search *search = context;
	struct weir_member *member = member_at(search->extent, index);

	if (!member)
		return 1;
	if (live_overloaded(member->live))
		return 0;
	search->reached += member->weight;
	if (!(search->found & 1) && search->reached >= search->target[0]) {
		search->position[0] = index;
		search->found |= 1;
	}
	if (!(search->found & 2) && search->reached >= search->target[1]) {
		search->position[1] = index;
		search->found |= 2;
	}
	return search->found == 3;
}

struct share_search {
	struct tree tree;
	__u32 node;
	__u32 target;
	__u32 leaves; /* number of leaves under the node */
	__u32 excluded; /* the leaf of an excluded server, 0 = none */
	__u32 excluded_weight;
};

static long share_step(__u32 index, void *context)
{
	struct share_search *search = context;
	__u32 left;

	if (search->node >= search->tree.width)
		return 1;
	search->node *= 2;
	search->leaves /= 2;
	left = tree_value(&search->tree, search->node);
	if (search->excluded - search->node * search->leaves < search->leaves)
		left = left > search->excluded_weight ? left - search->excluded_weight : 0;
	if (left < search->target) {
		search->target -= left;
		search->node++;
	}
	return 0;
}

/* Descends from the root to the position at which the cumulative weight reaches the target. */
static __always_inline __u32 share_position(struct share_search *search)
{
	__u32 position;

	search->node = 1;
	search->leaves = search->tree.width;
	bpf_loop(TREE_LEVELS, share_step, search, 0);
	position = search->node - search->tree.width;
	/* Sums that are being changed can at worst lead past the end of the list. */
	return position < search->tree.list_len ? position : search->tree.list_len - 1;
}

static __always_inline __u32 tree_share(const struct weir_extent *extent, __u32 target)
{
	/* A server without a share must not be found, not even with a target of 0. */
	struct share_search search = { .target = target ? target : 1 };

	tree_read(&search.tree, extent);
	return share_position(&search);
}

static __always_inline __u32 tree_twos(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	struct tree tree = {};
	__u32 total, ceiling, first, second;

	tree_read(&tree, extent);
	total = tree_value(&tree, 1);
	if (total == 0)
		return 0;
	ceiling = total < 0xffffffff ? total + 1 : 0xffffffff;
	first = draw_below(cursor, ceiling);
	second = draw_below(cursor, ceiling);
	return better_dest(extent, tree_share(extent, first), tree_share(extent, second));
}

/*
 * Draws twice by weight, from 0 to the total inclusive; the second server is used only if its load per weight is lower.
 */
static __always_inline __u32 schedule_twos(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	struct twos_search search = { .extent = extent };
	__u32 ceiling;

	if (extent->tree_width)
		return tree_twos(cursor, extent);
	bpf_loop(extent->list_len, sum_step, &search, 0);
	if (search.reached == 0)
		return 0;
	ceiling = search.reached < 0xffffffff ? search.reached + 1 : 0xffffffff;
	search.target[0] = draw_below(cursor, ceiling);
	search.target[1] = draw_below(cursor, ceiling);
	search.reached = 0;
	bpf_loop(extent->list_len, twos_step, &search, 0);
	return search.found == 3 ? better_dest(extent, search.position[0], search.position[1]) : 0;
}

/* ---- p2c --------------------------------------------------------------------------------------------------------- */

/* Maximum number of draws, for both servers together, before the whole list is searched (crates/weir-sched, p2c). */
#define P2C_TRIES 8

struct p2c_search {
	const struct weir_extent *extent;
	struct weir_cursor *cursor;
	__u32 found;
	__u32 first; /* positions */
	__u32 second;
};

/*
 * Draws one position uniformly, except the first server's, and accepts it with a probability proportional to its
 * weight.
 */
static long p2c_step(__u32 index, void *context)
{
	struct p2c_search *search = context;
	const struct weir_extent *extent = search->extent;
	__u32 position = draw_below(search->cursor, extent->list_len - search->found);
	struct weir_member *member;

	if (search->found && position >= search->first)
		position++;
	member = member_at(extent, position);
	if (!member)
		return 1;
	if (live_overloaded(member->live))
		return 0;
	if (member->weight < extent->max_weight && draw_below(search->cursor, extent->max_weight) >= member->weight)
		return 0;
	if (search->found)
		search->second = position;
	else
		search->first = position;
	search->found++;
	return search->found == 2 || extent->list_len == 1;
}

struct p2c_scan {
	const struct weir_extent *extent;
	__u64 reached;
	__u64 target;
	__u32 excluded; /* excluded position; the list's length if there is none */
	__u32 found;
};

/*
 * Returns a server's weight and records its position as the last one found. Returns 0 if the server is excluded or
 * overloaded.
 */
static __always_inline __u32 p2c_weight(struct p2c_scan *scan, __u32 index)
{
	struct weir_member *member = member_at(scan->extent, index);

	if (!member || index == scan->excluded || live_overloaded(member->live))
		return 0;
	scan->found = index;
	return member->weight;
}

/* Sums the weights. Separate from the search: the verifier would unroll a sum that is compared with a constant. */
static long p2c_sum_step(__u32 index, void *context)
{
	struct p2c_scan *scan = context;

	scan->reached += p2c_weight(scan, index);
	return 0;
}

static long p2c_find_step(__u32 index, void *context)
{
	struct p2c_scan *scan = context;
	__u32 weight = p2c_weight(scan, index);

	scan->reached += weight;
	/* If a server became full after the sum was computed, the last server found is used. */
	return weight && scan->reached >= scan->target;
}

/*
 * Draws a position by weight among the available servers except `excluded`; the list's length if there is none. The
 * functions of p2c are separate because of their loops and the stack limit.
 */
__noinline __u32 p2c_list(__u32 service_id, struct weir_extent *extent, __u32 excluded)
{
	struct weir_cursor *cursor = WEIR_LOOKUP(weir_cursors, service_id);
	struct p2c_scan scan = { .extent = extent, .excluded = excluded };

	if (!extent || !cursor)
		return ~0U;
	scan.found = extent->list_len;
	bpf_loop(extent->list_len, p2c_sum_step, &scan, 0);
	if (scan.found >= extent->list_len)
		return extent->list_len;
	scan.target = draw_below(cursor, scan.reached < 0xffffffff ? scan.reached : 0xffffffff) + 1ULL;
	scan.reached = 0;
	bpf_loop(extent->list_len, p2c_find_step, &scan, 0);
	return scan.found;
}

/*
 * Does the same as p2c_list() with a sum tree. `missed`: there is no sum tree; a daemon of an earlier version writes a
 * winner tree here.
 */
__noinline __u32 p2c_tree(__u32 service_id, struct weir_extent *extent, __u32 excluded, int *missed)
{
	struct weir_cursor *cursor = WEIR_LOOKUP(weir_cursors, service_id);
	struct share_search search = {};
	struct weir_member *member;
	__u32 *rule, total, position;

	if (!extent || !cursor || !missed)
		return ~0U;
	tree_read(&search.tree, extent);
	rule = tree_node(&search.tree, 0);
	if (!extent->tree_width || !rule || !rule_unpack(*rule).sums) {
		*missed = 1;
		return ~0U;
	}
	total = tree_value(&search.tree, 1);
	member = tree_member(&search.tree, excluded);
	if (member) {
		search.excluded = extent->tree_width + excluded;
		search.excluded_weight = live_overloaded(member->live) ? 0 : member->weight;
		total = total > search.excluded_weight ? total - search.excluded_weight : 0;
	}
	if (total == 0)
		return extent->list_len;
	search.target = draw_below(cursor, total) + 1;
	position = share_position(&search);
	return position == excluded ? extent->list_len : position;
}

/* Draws a position without rejection, after the random tries have failed. */
static __always_inline __u32 p2c_fallback(__u32 service_id, struct weir_extent *extent, __u32 excluded)
{
	int missed = 0;
	__u32 position = p2c_tree(service_id, extent, excluded, &missed);

	return missed ? p2c_list(service_id, extent, excluded) : position;
}

/*
 * Draws two positions by weight; the list's length if not found. Returns the first position in the low word and the
 * second in the high word. This is a separate function because its caller's frame would be part of the call chains
 * below p2c_tree().
 */
__noinline __u64 p2c_draw(__u32 service_id, struct weir_extent *extent)
{
	struct p2c_search search = { .cursor = WEIR_LOOKUP(weir_cursors, service_id) };

	if (!extent || !search.cursor)
		return 0;
	search.extent = extent;
	search.first = search.second = extent->list_len;
	bpf_loop(P2C_TRIES, p2c_step, &search, 0);
	return (__u64)search.second << 32 | search.first;
}

/* Draws two different servers by weight; the second is used only if its load per weight is lower. */
__noinline __u32 schedule_by_p2c(__u32 service_id, struct weir_extent *extent)
{
	__u64 drawn = p2c_draw(service_id, extent);
	__u32 first = drawn, second = drawn >> 32;
	struct weir_member *only;

	if (!extent)
		return 0;
	if (first >= extent->list_len)
		first = p2c_fallback(service_id, extent, extent->list_len);
	if (first >= extent->list_len)
		return 0;
	if (second >= extent->list_len && extent->list_len > 1)
		second = p2c_fallback(service_id, extent, first);
	if (second < extent->list_len)
		return better_dest(extent, first, second);
	only = member_at(extent, first);
	return only ? only->dest : 0;
}

#endif
