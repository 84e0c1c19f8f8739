/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * lblc and lblcr: an address keeps its server, or its set of servers, while these servers have capacity
 * (net/netfilter/ipvs/ip_vs_lblc.c and ip_vs_lblcr.c). The kernel expires entries with a timer; here an expired entry
 * is ignored, and the LRU map bounds their number. A set has at most 16 servers; further servers are used but not
 * stored.
 */
#ifndef WEIR_SCHEDULE_LOCALITY_H
#define WEIR_SCHEDULE_LOCALITY_H

#include "lib/schedule_load.h"

/* Too large for the stack. */
struct locality_scratch {
	struct weir_locality_key key;
	struct weir_locality fresh;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct locality_scratch);
} weir_locality_scratch SEC(".maps");

/* ---- capacity ---------------------------------------------------------------------------------------------------- */

struct capacity_search {
	const struct weir_extent *extent;
	__u32 found;
};

static long capacity_step(__u32 index, void *context)
{
	struct capacity_search *search = context;
	struct weir_member *member = member_at(search->extent, index);
	struct weir_live *live = member ? WEIR_LOOKUP(weir_live, member->live) : 0;

	if (!live)
		return 1;
	search->found = live->active * 2 < member->weight;
	return search->found;
}

/*
 * Returns whether the server has more active flows than its weight while another server has fewer active flows than
 * half its own weight.
 */
static __always_inline int locality_full(const struct weir_extent *extent, const struct weir_member *member)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, member->live);
	struct capacity_search search = { .extent = extent };
	struct weir_member *least = 0;

	if (!live || live->active <= member->weight)
		return 0;
	/* Usually the least loaded server has capacity. */
	if (tree_root(extent, &least) == ROOT_FOUND && least) {
		live = WEIR_LOOKUP(weir_live, least->live);
		if (live && live->active * 2 < least->weight)
			return 1;
	}
	bpf_loop(extent->list_len, capacity_step, &search, 0);
	return search.found;
}

/* ---- the set of an address --------------------------------------------------------------------------------------- */

struct set_search {
	const struct weir_extent *extent;
	struct weir_locality *set;
	struct candidate best;
	__u32 dest;
	__u32 find_most; /* search for the most loaded instead of the least loaded */
};

/* Compares one server, from the newest to the oldest; on a tie, the first one is kept. */
static long set_step(__u32 index, void *context)
{
	struct set_search *search = context;
	__u32 position = search->set->len - 1 - index, dest;
	struct weir_member *member;
	struct weir_live *live;
	struct candidate server;

	if (position >= WEIR_LOCALITY_SERVERS)
		return 1;
	dest = search->set->dests[position];
	member = member_of(search->extent, dest);
	live = member ? WEIR_LOOKUP(weir_live, member->live) : 0;
	if (!live || (!search->find_most && READ_ONCE(live->overloaded)))
		return 0;
	server.cost = live_overhead(live);
	server.share = member->weight;
	if (search->dest && (search->find_most ? search->best.cost * server.share >= server.cost * search->best.share :
					    search->best.cost * server.share <= server.cost * search->best.share))
		return 0;
	search->best = server;
	search->dest = dest;
	return 0;
}

static __always_inline __u32 set_find(const struct weir_extent *extent, struct weir_locality *set, __u32 find_most)
{
	struct set_search search = { .extent = extent, .set = set, .find_most = find_most };

	bpf_loop(WEIR_LOCALITY_SERVERS, set_step, &search, 0);
	return search.dest;
}

/* Removes a server from a set whose lock is held. */
static __always_inline void set_erase(struct weir_locality *set, __u32 dest, __u32 now)
{
	__u32 remaining = 0, len = set->len;

	for (__u32 i = 0; i < WEIR_LOCALITY_SERVERS; i++) {
		__u32 found = set->dests[i];

		if (i >= len || found == dest)
			continue;
		VERIFIER_FORGET(remaining);
		if (remaining >= WEIR_LOCALITY_SERVERS)
			break;
		set->dests[remaining] = found;
		remaining++;
	}
	set->len = remaining;
	set->last_change = now;
}

static __always_inline void set_insert(struct weir_locality *set, __u32 dest, __u32 now)
{
	__u32 len = set->len;

	for (__u32 i = 0; i < WEIR_LOCALITY_SERVERS; i++)
		if (i < len && set->dests[i] == dest)
			return;
	if (len >= WEIR_LOCALITY_SERVERS)
		return;
	set->dests[len] = dest;
	set->len = len + 1;
	set->last_change = now;
}

/* ---- lblc and lblcr ---------------------------------------------------------------------------------------------- */

static __always_inline void locality_begin(struct locality_scratch *scratch, __u32 dest, __u32 now)
{
	struct weir_locality *fresh = &scratch->fresh;

	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->len = 1;
	fresh->dests[0] = dest;
	fresh->last_use = now;
	fresh->last_change = now;
	bpf_map_update_elem(&weir_localities, &scratch->key, fresh, BPF_ANY);
}

/* Returns the set's server for the flow; 0 = a server outside the set is needed. */
static __always_inline __u32 locality_find(const struct weir_extent *extent, struct weir_locality *set, __u32 now,
					    __u32 shrink_after)
{
	int replicates = extent->scheduler == WEIR_SCHED_LBLCR;
	__u32 dest = replicates ? set_find(extent, set, 0) : set->dests[0], most;
	struct weir_member *member;

	if (replicates && set->len > 1 && now - set->last_change > shrink_after && lock_try(&set->lock)) {
		most = set_find(extent, set, 1);
		if (most)
			set_erase(set, most, now);
		lock_release(&set->lock);
	}
	member = dest ? member_of(extent, dest) : 0;
	return member && !locality_full(extent, member) ? dest : 0;
}

__noinline __u32 schedule_by_locality(struct packet *p, __u32 service_id, struct weir_extent *extent)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_service *service = WEIR_LOOKUP(weir_services, service_id);
	struct locality_scratch *scratch = WEIR_LOOKUP(weir_locality_scratch, 0);
	__u32 now = weir_tick(), expire_after, dest;
	struct weir_locality *set;

	if (!p || !extent || !settings || !service || !scratch)
		return 0;
	scratch->key.addr = p->dst;
	scratch->key.service = service_id;
	scratch->key.generation = service->generation;
	scratch->key.scheduler = extent->scheduler;
	set = bpf_map_lookup_elem(&weir_localities, &scratch->key);
	expire_after = extent->scheduler == WEIR_SCHED_LBLC ? settings->lblc_expiration : settings->lblcr_expiration;
	if (set && now - set->last_use >= expire_after)
		set = 0;
	if (set) {
		WRITE_ONCE(set->last_use, now);
		dest = locality_find(extent, set, now, settings->lblcr_expiration);
		if (dest)
			return dest;
	}
	dest = schedule_least(extent, WEIR_SCHED_WLC);
	if (!dest)
		return 0;
	if (!set) {
		locality_begin(scratch, dest, now);
	} else if (extent->scheduler == WEIR_SCHED_LBLC) {
		WRITE_ONCE(set->dests[0], dest);
	} else if (lock_try(&set->lock)) {
		set_insert(set, dest, now);
		lock_release(&set->lock);
	}
	return dest;
}

#endif
