/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * New flows beyond the budget: they go by the pool's spread table, without an entry, so that a flood fills no table and
 * costs little more than an established packet. Nothing here decides otherwise than bind() would; it only gets there sooner.
 */
#ifndef WEIR_FLOOD_H
#define WEIR_FLOOD_H

#include "lib/flow.h"
#include "lib/mark.h"

static __always_inline int budget_take(__u32 now, const struct weir_settings *settings)
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

static __always_inline int budget_is_spent(__u32 now, const struct weir_settings *settings)
{
	struct weir_budget *budget = WEIR_LOOKUP(weir_budgets, 0);
	__u32 used;

	if (!budget)
		return 0;
	used = budget->syn_window == now ? budget->syn_used : 0;
	return used >= settings->syn_budget;
}

/* Whether a packet would take from a budget that is spent, if it has no entry. */
static __always_inline int flood_meets(const struct packet *p, __u32 now, const struct weir_settings *settings)
{
	if (p->proto == PROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_RST)) != TCP_SYN)
		return 0;
	return budget_is_spent(now, settings);
}

/* Hints tell of one table. */
static __always_inline int flood_has_no_entry(__u64 hash)
{
	return !weir_old_bucket_count && hint_denies(bucket_home(hash), hash & TAG_MASK);
}

static __always_inline void count_stateless(__u32 dest_id, int begins)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest_id);

	if (live && begins)
		__sync_fetch_and_add(&live->stateless, 1);
	weir_count(WEIR_COUNT_UNTRACKED);
}

/* What schedule_spread() answers for the extent at `at`, read where it lies; 0 = nothing usable. */
static __always_inline __u32 flood_spread(__u32 at, __u64 hash)
{
	struct weir_element *start = WEIR_LOOKUP(weir_tables, at + offsetof(struct weir_extent, spread_at) / 16);
	struct weir_element *length = WEIR_LOOKUP(weir_tables, at + offsetof(struct weir_extent, spread_len) / 16);
	struct weir_element *owners;
	__u32 place;

	if (!start || !length)
		return 0;
	place = (hash >> 32) * length->word[offsetof(struct weir_extent, spread_len) % 16 / 4] >> 32;
	owners = WEIR_LOOKUP(weir_tables, start->word[offsetof(struct weir_extent, spread_at) % 16 / 4] + (place >> 2));
	return owners ? owners->word[place & 3] : 0;
}

/* Whether a service's flows go where their hash says, with an entry or without. */
static __always_inline int flood_is_hashed(__u32 service_id)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, service_id);
	struct weir_element *extent;

	if (!service || !service->extent)
		return 0;
	extent = WEIR_LOOKUP(weir_tables, service->extent);
	return extent && extent->word[offsetof(struct weir_extent, scheduler) / 4] == WEIR_SCHED_MAGLEV;
}

/* The server of a new flow for which there is no budget; 0 when bind() must decide. */
static __always_inline __u32 flood_bind(const struct packet *p, __u32 service_id, __u64 hash, __u32 now,
					const struct weir_settings *settings)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, service_id);
	struct weir_dest *dest;
	__u32 dest_id;

	if (!service || !service->extent || service->template_ticks || service->flags & WEIR_SERVICE_ONE_PACKET)
		return 0;
	dest_id = flood_spread(service->extent, flood_is_hashed(service_id) ? steer_hash(p) : hash);
	dest = WEIR_LOOKUP(weir_dests, dest_id);
	if (!dest_id || !dest || dest->forward == WEIR_FORWARD_NAT)
		return 0;
	weir_count(WEIR_COUNT_SYN_BUDGET);
	mark_set(p->proto, hash, now, settings);
	count_stateless(dest_id, 1);
	return dest_id;
}

#endif
