/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The schedulers that compare live counts: lc wlc sed nq fo ovf over the whole list, twos and p2c between two servers drawn
 * at random. A server is a fraction, cost / share, compared by cross multiplication; the first of equals stays.
 */
#ifndef WEIR_SCHEDULE_LOAD_H
#define WEIR_SCHEDULE_LOAD_H

#include "lib/schedule_list.h"

/* ---- the least of all -------------------------------------------------------------------------------------------------- */

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
	struct candidate now;

	if (!member)
		return 1;
	candidate_read(&now, &search->rule, member);
	if (candidate_better(&now, &search->best)) {
		search->best = now;
		search->dest = member->dest;
	}
	return 0;
}

static __always_inline __u32 schedule_least(const struct weir_extent *extent, __u32 scheduler)
{
	struct least_search search = { .extent = extent, .rule = rule_unpack(rule_word(scheduler)) };
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

/* ---- two at random ------------------------------------------------------------------------------------------------------ */

/* Redraws of a number that would make some servers likelier than others; one in 2^32 / ceiling needs the first. */
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

/* The kernel's get_random_u32_below. */
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

static __always_inline __u32 better_of(const struct weir_extent *extent, __u32 first, __u32 second)
{
	struct weir_member *one = member_at(extent, first), *other = member_at(extent, second);
	struct rule rule = rule_unpack(WEIR_RULE_WLC);
	struct candidate a, b;

	if (!one || !other)
		return 0;
	candidate_read(&a, &rule, one);
	candidate_read(&b, &rule, other);
	return candidate_better(&b, &a) ? other->dest : one->dest;
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
};

static long share_step(__u32 index, void *context)
{
	struct share_search *search = context;
	__u32 left;

	if (search->node >= search->tree.width)
		return 1;
	search->node *= 2;
	left = tree_value(&search->tree, search->node);
	if (left < search->target) {
		search->target -= left;
		search->node++;
	}
	return 0;
}

/* The position at which the weights counted from the head reach `target`, over a tree of their sums. */
static __always_inline __u32 tree_share(const struct weir_extent *extent, __u32 target)
{
	/* A server without a share reaches nothing, not even 0. */
	struct share_search search = { .node = 1, .target = target ? target : 1 };
	__u32 position;

	tree_read(&search.tree, extent);
	bpf_loop(TREE_LEVELS, share_step, &search, 0);
	position = search.node - search.tree.width;
	/* Sums that are being changed lead beyond the list at worst. */
	return position < extent->list_len ? position : extent->list_len - 1;
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
	return better_of(extent, tree_share(extent, first), tree_share(extent, second));
}

/* Two draws by weight, 0 to the total inclusive; the second server only if its load per weight is strictly less. */
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
	return search.found == 3 ? better_of(extent, search.position[0], search.position[1]) : 0;
}

/* Two draws, weights aside; one that is overloaded gives way to the other, two of them to the next in the list. */
static __always_inline __u32 schedule_p2c(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	__u32 first = draw_below(cursor, extent->list_len), second = draw_below(cursor, extent->list_len);
	struct weir_member *one = member_at(extent, first), *other = member_at(extent, second);
	__u32 position;

	if (!one || !other)
		return 0;
	if (!live_overloaded(one->live) || !live_overloaded(other->live))
		return better_of(extent, first, second);
	position = list_seek(extent, first, 1);
	if (position >= extent->list_len)
		position = list_seek(extent, 0, 1);
	one = member_at(extent, position);
	return one && position < extent->list_len ? one->dest : 0;
}

#endif
