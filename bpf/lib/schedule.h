/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Choosing a server for a new flow. Tables come ready from user space (crates/weir-sched); the rules that need live counts
 * or a cursor run here. Every scheduler answers a dest id, or 0 for none, and chooses what the kernel's IPVS would for the
 * same arrivals one after the other (net/netfilter/ipvs/ip_vs_*.c).
 */
#ifndef WEIR_SCHEDULE_H
#define WEIR_SCHEDULE_H

#include "lib/flow.h"

#define MEMBERS_MAX       WEIR_DESTS_MAX
#define LIST_LOG2         20
#define MH_PROBES         4093

static __always_inline struct weir_member *member_at(const struct weir_extent *extent, __u32 index)
{
	return WEIR_LOOKUP(weir_tables, extent->list_at + index);
}

static __always_inline __u32 table_word(__u32 at, __u32 index)
{
	struct weir_element *element = WEIR_LOOKUP(weir_tables, at + (index >> 2));

	return element ? element->word[index & 3] : 0;
}

/* ---- the cursor of rr and wrr ------------------------------------------------------------------------------------------ */

/* Position of the first member after `seq` in list order (descending seq); the list's length when there is none. */
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

	if (!member)
		return 0;
	cursor->seq = member->seq;
	cursor->hint = position;
	return member->dest;
}

static __always_inline __u32 schedule_rr(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	__u32 position = list_after(extent, cursor->seq, cursor->hint);

	return cursor_take(cursor, extent, position < extent->list_len ? position : 0);
}

/* User space follows the kernel's rules for added, edited and removed servers; here its answer is only taken over. */
static __always_inline void cursor_start(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	if (cursor->generation == extent->generation)
		return;
	cursor->generation = extent->generation;
	cursor->seq = extent->start_seq;
	cursor->hint = 0;
	cursor->current_weight = extent->start_weight;
}

struct wrr_search {
	const struct weir_extent *extent;
	__u32 position;
	__s32 level;
	__u32 found;
};

static long wrr_step(__u32 index, void *context)
{
	struct wrr_search *search = context;
	struct weir_member *member;

	if (search->position >= search->extent->list_len) {
		search->position = 0;
		search->level -= search->extent->gcd;
		if (search->level <= 0)
			search->level = search->extent->max_weight;
	}
	member = member_at(search->extent, search->position);
	if (!member)
		return 1;
	if ((__s64)member->weight >= search->level) {
		search->found = 1;
		return 1;
	}
	search->position++;
	return 0;
}

static __always_inline __u32 schedule_wrr(struct weir_cursor *cursor, const struct weir_extent *extent)
{
	struct wrr_search search = { .extent = extent };

	search.level = cursor->current_weight;
	search.position = list_after(extent, cursor->seq, cursor->hint);
	/* A pass that starts at the top of the levels finds a server: two passes and a rest are enough. */
	bpf_loop(extent->list_len * 3 + 1, wrr_step, &search, 0);
	if (!search.found)
		return 0;
	cursor->current_weight = search.level;
	return cursor_take(cursor, extent, search.position);
}

/* ---- rules over live counts ------------------------------------------------------------------------------------------ */

struct least_search {
	const struct weir_extent *extent;
	__u64 load;
	__u32 weight;
	__u32 dest;
};

/* load / weight by cross multiplication; only a strictly smaller one replaces, so the first of equals stays. */
static long least_step(__u32 index, void *context)
{
	struct least_search *search = context;
	struct weir_member *member = member_at(search->extent, index);
	struct weir_live *live;
	__u64 load;
	__u32 weight;

	if (!member)
		return 1;
	live = WEIR_LOOKUP(weir_live, member->live);
	if (!live)
		return 1;
	load = (live->active << 8) + live->inactive;
	weight = search->extent->scheduler == WEIR_SCHED_WLC ? member->weight : 1;
	if (search->dest == 0 || search->load * weight > load * search->weight) {
		search->load = load;
		search->weight = weight;
		search->dest = member->dest;
	}
	return 0;
}

static __always_inline __u32 schedule_least(const struct weir_extent *extent)
{
	struct least_search search = { .extent = extent };

	bpf_loop(extent->list_len, least_step, &search, 0);
	return search.dest;
}

/* ---- hash tables ------------------------------------------------------------------------------------------------------ */

static __always_inline __u32 fold_source(const struct packet *p)
{
	__u32 fold = p->src.lo >> 32;

	if (p->family == 6)
		fold ^= (__u32)p->src.lo ^ (__u32)p->src.hi ^ (__u32)(p->src.hi >> 32);
	return bpf_ntohl(fold);
}

static __always_inline __u32 hash_input(const struct packet *p, const struct weir_extent *extent)
{
	__u32 input = fold_source(p);

	if (extent->flags & WEIR_EXTENT_PORT)
		input += bpf_ntohs(p->sport);
	return input;
}

/* hash_32 of include/linux/hash.h to eight bits. */
static __always_inline __u32 schedule_sh(const struct packet *p, const struct weir_extent *extent)
{
	__u32 bucket = (hash_input(p, extent) * 0x61C88647u) >> 24;

	return table_word(extent->hash_at, bucket);
}

/* hsiphash_1u32 of lib/siphash.c on 64-bit machines, with the key of ip_vs_mh.c's first hash. */
static __always_inline __u32 mh_hash(__u32 word)
{
	__u64 key0 = 2654435761ULL, key1 = 2654435761ULL;
	__u64 v0 = key0 ^ 0x736f6d6570736575ULL, v1 = key1 ^ 0x646f72616e646f6dULL;
	__u64 v2 = key0 ^ 0x6c7967656e657261ULL, v3 = key1 ^ 0x7465646279746573ULL;
	__u64 b = 4ULL << 56 | word;

	SIPWORD(b);
	v2 ^= 0xff;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

static __always_inline int dest_usable(__u32 dest_id)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);

	return dest && dest->flags & WEIR_DEST_USABLE;
}

struct mh_search {
	const struct weir_extent *extent;
	__u32 input;
	__u32 first;
	__u32 dest;
};

static long mh_step(__u32 index, void *context)
{
	struct mh_search *search = context;
	__u32 size = search->extent->hash_len, dest;

	if (size == 0)
		return 1;
	dest = table_word(search->extent->hash_at, mh_hash(search->input + (index + search->first) % size) % size);
	if (!dest || !dest_usable(dest))
		return 0;
	search->dest = dest;
	return 1;
}

static __always_inline __u32 schedule_mh(const struct packet *p, const struct weir_extent *extent)
{
	struct mh_search search = { .extent = extent, .input = hash_input(p, extent) };
	__u32 size = extent->hash_len, dest;

	if (size == 0)
		return 0;
	search.first = mh_hash(search.input) % size;
	dest = table_word(extent->hash_at, search.first);
	if (dest && dest_usable(dest))
		return dest;
	if (!(extent->flags & WEIR_EXTENT_FALLBACK))
		return 0;
	bpf_loop(MH_PROBES, mh_step, &search, 0);
	return search.dest;
}

/* The pool's own spread over the flow hash: for flows that get no entry, so each of their packets finds the same server. */
static __always_inline __u32 schedule_spread(const struct weir_extent *extent, __u64 hash)
{
	if (extent->spread_len == 0)
		return 0;
	return table_word(extent->spread_at, (hash >> 32) * extent->spread_len >> 32);
}

/* ---- one entrance ----------------------------------------------------------------------------------------------------- */

/* `missed` tells that the cursor's lock was not obtained: the caller goes by the spread table. */
__noinline __u32 schedule(struct packet *p, __u32 service_id, struct weir_extent *extent, int *missed)
{
	struct weir_cursor *cursor;
	__u32 dest = 0;

	if (!p || !extent || !missed)
		return 0;
	*missed = 0;
	if (extent->scheduler == WEIR_SCHED_SH)
		return schedule_sh(p, extent);
	if (extent->scheduler == WEIR_SCHED_MH)
		return schedule_mh(p, extent);
	if (extent->list_len == 0)
		return 0;
	if (extent->scheduler == WEIR_SCHED_LC || extent->scheduler == WEIR_SCHED_WLC)
		return schedule_least(extent);
	cursor = WEIR_LOOKUP(weir_cursors, service_id);
	if (!cursor)
		return 0;
	if (!lock_try(&cursor->lock)) {
		*missed = 1;
		return 0;
	}
	cursor_start(cursor, extent);
	if (extent->scheduler == WEIR_SCHED_RR)
		dest = schedule_rr(cursor, extent);
	else if (extent->scheduler == WEIR_SCHED_WRR)
		dest = schedule_wrr(cursor, extent);
	lock_release(&cursor->lock);
	return dest;
}

#endif
