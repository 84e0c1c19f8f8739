/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * least-time: draws two servers at random by their share (weight per estimated latency, see
 * crates/weir-latency/src/share.rs), and selects the one with the lower (active + 1) / share. User space publishes the
 * shares every few milliseconds; flows that are assigned between two updates are counted immediately. Among idle
 * servers the first draw is used, so that noise in the estimates does not send all flows to one server. One flow in
 * WEIR_COST_EXPLORE is assigned only by weight, because a server without flows would yield no samples.
 * crates/weir-sched/src/least_time.rs is the model.
 */
#ifndef WEIR_SCHEDULE_TIME_H
#define WEIR_SCHEDULE_TIME_H

#include "lib/schedule_load.h"

/* Returns whether user space has updated the costs recently. Without costs the caller uses lc. */
static __always_inline int costs_fresh(void)
{
	__u64 *updated = (void *)WEIR_LOOKUP(weir_costs, 0);
	__u64 now = bpf_ktime_get_coarse_ns();

	/* The coarse clock may be behind the clock that user space reads. */
	return updated && *updated && (now < *updated || now - *updated < WEIR_COST_STALE_NS);
}

struct time_search {
	const struct weir_extent *extent;
	__u64 reached;
	__u32 target[2];
	__u32 position[2];
	__u32 found;
	__u32 by_weight;
};

static __always_inline __u32 time_share(const struct weir_member *member)
{
	struct weir_cost *cost = WEIR_LOOKUP(weir_costs, member->dest);

	return cost ? READ_ONCE(cost->share) : 0;
}

static __always_inline __u32 time_share_or_weight(const struct time_search *search, const struct weir_member *member)
{
	if (live_overloaded(member->live))
		return 0;
	return search->by_weight ? member->weight : time_share(member);
}

static long time_sum_step(__u32 index, void *context)
{
	struct time_search *search = context;
	struct weir_member *member = member_at(search->extent, index);

	if (!member)
		return 1;
	search->reached += time_share_or_weight(search, member);
	return 0;
}

static long time_find_step(__u32 index, void *context)
{
	struct time_search *search = context;
	struct weir_member *member = member_at(search->extent, index);
	__u32 share = member ? time_share_or_weight(search, member) : 0;

	if (!member)
		return 1;
	if (!share)
		return 0;
	search->reached += share;
	if (!(search->found & 1) && search->reached > search->target[0]) {
		search->position[0] = index;
		search->found |= 1;
	}
	if (!(search->found & 2) && search->reached > search->target[1]) {
		search->position[1] = index;
		search->found |= 2;
	}
	return search->found == 3;
}

/* Returns the first server, unless the second costs less. */
static __always_inline __u32 time_better(const struct weir_member *first, const struct weir_member *second)
{
	struct weir_live *a = WEIR_LOOKUP(weir_live, first->live), *b = WEIR_LOOKUP(weir_live, second->live);

	if (!a || !b || (!a->active && !b->active))
		return first->dest;
	return (a->active + 1) * time_share(second) > (b->active + 1) * time_share(first) ? second->dest : first->dest;
}

/*
 * Selects a server. Returns 0 if no server has a share, for example before the first update; the caller then uses lc.
 */
__noinline __u32 schedule_by_time(__u32 service_id, struct weir_extent *extent)
{
	struct weir_cursor *cursor = WEIR_LOOKUP(weir_cursors, service_id);
	struct time_search search = {};
	struct weir_member *first, *second;
	__u32 ceiling;

	if (!extent || !cursor)
		return 0;
	search.extent = extent;
	search.by_weight = draw_below(cursor, WEIR_COST_EXPLORE) == 0;
	bpf_loop(extent->list_len, time_sum_step, &search, 0);
	if (search.reached == 0)
		return 0;
	ceiling = search.reached < 0xffffffff ? search.reached : 0xffffffff;
	search.target[0] = draw_below(cursor, ceiling);
	search.target[1] = draw_below(cursor, ceiling);
	search.reached = 0;
	bpf_loop(extent->list_len, time_find_step, &search, 0);
	/* If a server became full after the sum was computed, a target can be unreachable. */
	first = search.found & 1 ? member_at(extent, search.position[0]) : 0;
	if (!first)
		return 0;
	if (search.by_weight || !(search.found & 2))
		return first->dest;
	second = member_at(extent, search.position[1]);
	return second ? time_better(first, second) : first->dest;
}

#endif
