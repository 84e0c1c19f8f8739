/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * New flows over the SYN budget are forwarded by the pool's spread table, without an entry, so that a flood does not
 * fill the flow table, and its packets are hardly more expensive than those of established flows. This path selects
 * the same server as bind(), only faster.
 */
#ifndef WEIR_FLOOD_H
#define WEIR_FLOOD_H

#include "lib/flow.h"
#include "lib/forward_method.h"
#include "lib/mark.h"

static __always_inline int syn_budget_take(__u32 now, const struct weir_settings *settings)
{
	struct weir_budget *budget = WEIR_LOOKUP(weir_budgets, 0);

	if (!budget)
		return 1;
	if (budget->syn_window != now) {
		budget->syn_window = now;
		budget->syn_used = 0;
	}
	return budget->syn_used++ < settings->syn_budget;
}

static __always_inline int syn_budget_exhausted(__u32 now, const struct weir_settings *settings)
{
	struct weir_budget *budget = WEIR_LOOKUP(weir_budgets, 0);
	__u32 used;

	if (!budget)
		return 0;
	used = budget->syn_window == now ? budget->syn_used : 0;
	return used >= settings->syn_budget;
}

/* Returns whether the packet is over the SYN budget if its flow has no entry. */
static __always_inline int flood_applies(const struct packet *p, __u32 now, const struct weir_settings *settings)
{
	if (p->proto == PROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_RST)) != TCP_SYN)
		return 0;
	return syn_budget_exhausted(now, settings);
}

/*
 * Returns true if the flow is known to have no entry, so that the lookup can be skipped. Hints exist only for the
 * current table.
 */
static __always_inline int flood_skips_lookup(__u64 hash)
{
	return !weir_old_bucket_count && hint_excludes(bucket_home(hash), hash & TAG_MASK);
}

static __always_inline void count_stateless(__u32 dest_id, int is_new)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest_id);

	if (live && is_new)
		__sync_fetch_and_add(&live->stateless, 1);
	weir_count(WEIR_COUNT_UNTRACKED);
}

/* Does the same as schedule_spread() for the extent at `at`, without copying it; returns 0 if no server is usable. */
static __always_inline __u32 extent_spread_lookup(__u32 at, __u64 hash)
{
	struct weir_element *start = WEIR_LOOKUP(weir_tables, at + offsetof(struct weir_extent, spread_at) / 16);
	struct weir_element *length = WEIR_LOOKUP(weir_tables, at + offsetof(struct weir_extent, spread_len) / 16);
	struct weir_element *owners;
	__u32 entries, position;

	if (!start || !length)
		return 0;
	entries = length->word[offsetof(struct weir_extent, spread_len) % 16 / 4];
	/* The elements after an empty table are those of a different service. */
	if (entries == 0)
		return 0;
	position = (hash >> 32) * entries >> 32;
	owners = WEIR_LOOKUP(weir_tables, start->word[offsetof(struct weir_extent, spread_at) % 16 / 4] +
			     (position >> 2));
	return owners ? owners->word[position & 3] : 0;
}

/* Returns whether the service uses maglev: its flows are sent to the same server with and without an entry. */
static __always_inline int service_is_maglev(__u32 service_id)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, service_id);
	struct weir_element *extent;

	if (!service || !service->extent)
		return 0;
	extent = WEIR_LOOKUP(weir_tables, service->extent);
	return extent && extent->word[offsetof(struct weir_extent, scheduler) / 4] == WEIR_SCHED_MAGLEV;
}

/* Returns the server of a new flow over the budget, or 0 if bind() must select it. */
static __always_inline __u32 flood_server(const struct packet *p, __u32 service_id, __u64 hash, __u32 now,
					  const struct weir_settings *settings)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, service_id);
	struct weir_dest *dest;
	__u32 dest_id;

	if (!service || !service->extent || service->template_ticks || service->flags & WEIR_SERVICE_ONE_PACKET)
		return 0;
	dest_id = extent_spread_lookup(service->extent, service_is_maglev(service_id) ? steer_hash(p) : hash);
	dest = WEIR_LOOKUP(weir_dests, dest_id);
	if (!dest_id || !dest || forward_translates(dest->forward))
		return 0;
	weir_count(WEIR_COUNT_SYN_BUDGET);
	untracked_mark_set(p->proto, hash, now, settings);
	count_stateless(dest_id, 1);
	return dest_id;
}

#endif
