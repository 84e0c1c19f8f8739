/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hash schedulers: look up an owner in a table, by an address (dh, sh and mh) or by the flow's hash (maglev).
 * Unavailable owners stay in the tables; the extent's flags determine whether the search continues past them
 * (crates/weir-sched, availability).
 */
#ifndef WEIR_SCHEDULE_HASH_H
#define WEIR_SCHEDULE_HASH_H

#include "lib/schedule_list.h"

#define BUCKETS_LOG2 8
#define MH_PROBES    4093

static __always_inline __u32 table_entry(__u32 table, __u32 index)
{
	struct weir_element *element = WEIR_LOOKUP(weir_tables, table + (index >> 2));

	return element ? element->word[index & 3] : 0;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static __always_inline __u32 fold(const struct weir_addr *addr, __u8 family)
{
	__u32 word = addr->lo >> 32;

	if (family == 6)
		word ^= (__u32)addr->lo ^ (__u32)addr->hi ^ (__u32)(addr->hi >> 32);
	return bpf_ntohl(word);
}

static __always_inline __u32 hash_input(const struct packet *p, const struct weir_extent *extent)
{
	__u32 input;

	if (extent->scheduler == WEIR_SCHED_DH)
		return fold(&p->dst, p->family);
	input = fold(&p->src, p->family);
	if (extent->flags & WEIR_EXTENT_NETWORK && p->family == 4)
		input &= 0xffffff00;
	if (extent->flags & WEIR_EXTENT_PORT)
		input += bpf_ntohs(p->sport);
	return input;
}

/* Computes hsiphash_1u32 from lib/siphash.c on 64-bit machines, with the key of ip_vs_mh.c's first hash. */
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

/* ---- probing ----------------------------------------------------------------------------------------------------- */

enum owner {
	OWNER_ACCEPT,
	OWNER_SKIP,
	OWNER_BUSY, /* at its max_load bound: used only if no other owner is accepted */
	OWNER_REJECT,
};

struct pool_sum {
	const struct weir_extent *extent;
	__u64 active;
};

static long pool_step(__u32 index, void *context)
{
	struct pool_sum *sum = context;
	struct weir_member *member = member_at(sum->extent, index);
	struct weir_live *live = member ? WEIR_LOOKUP(weir_live, member->live) : 0;

	if (!live)
		return 1;
	sum->active += live->active;
	return 0;
}

/* Returns the number of active flows of all usable servers, or 0 without max_load. */
static __always_inline __u64 pool_active(const struct weir_extent *extent)
{
	struct pool_sum sum = { .extent = extent };
	struct tree tree = {};

	if (!extent->max_load)
		return 0;
	if (extent->tree_width) {
		tree_read(&tree, extent);
		return tree_value(&tree, 1);
	}
	bpf_loop(extent->list_len, pool_step, &sum, 0);
	return sum.active;
}

/* Returns whether one more flow would exceed max_load percent of the server's share by weight, rounded up. */
static __always_inline int owner_is_busy(const struct weir_extent *extent, __u64 active, __u32 dest_id)
{
	struct weir_member *member = member_of(extent, dest_id);
	struct weir_live *live = member ? WEIR_LOOKUP(weir_live, member->live) : 0;

	return live && live->active * 100 * extent->weight >= extent->max_load * (active + 1) * member->weight;
}

static __always_inline enum owner owner_check(const struct weir_extent *extent, __u64 active, __u32 dest_id)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);

	if (!dest_id || !dest)
		return OWNER_REJECT;
	if (!(dest->flags & WEIR_DEST_USABLE))
		return extent->flags & WEIR_EXTENT_REPAIR ? OWNER_SKIP : OWNER_REJECT;
	if (live_overloaded(dest->live))
		return extent->flags & WEIR_EXTENT_FALLBACK ? OWNER_SKIP : OWNER_REJECT;
	return extent->max_load && owner_is_busy(extent, active, dest_id) ? OWNER_BUSY : OWNER_ACCEPT;
}

struct probe {
	const struct weir_extent *extent;
	__u64 active; /* active flows of all usable servers, for max_load */
	__u32 input;
	__u32 first;
	__u32 dest;
};

/*
 * Returns the table position of the probe with this index: dh and sh add the index to twice the first bucket, mh
 * rehashes the client, and maglev adds the index to the first position.
 */
static __always_inline __u32 probe_position(const struct probe *probe, __u32 index)
{
	__u32 size = probe->extent->hash_len, position = probe->first + index;

	switch (probe->extent->scheduler) {
	case WEIR_SCHED_MAGLEV:
		return position >= size ? position - size : position;
	case WEIR_SCHED_MH:
		return size ? mh_hash(probe->input + position % size) % size : 0;
	}
	return (probe->first + position) & ((1 << BUCKETS_LOG2) - 1);
}

static __always_inline __u32 probe_count(const struct weir_extent *extent)
{
	switch (extent->scheduler) {
	case WEIR_SCHED_MAGLEV:
		return extent->hash_len;
	case WEIR_SCHED_MH:
		return MH_PROBES;
	}
	return 1 << BUCKETS_LOG2;
}

static long probe_step(__u32 index, void *context)
{
	struct probe *probe = context;
	__u32 dest = table_entry(probe->extent->hash_at, probe_position(probe, index));

	switch (owner_check(probe->extent, probe->active, dest)) {
	case OWNER_ACCEPT:
		probe->dest = dest;
		return 1;
	case OWNER_BUSY:
		if (!probe->dest)
			probe->dest = dest;
		return 0;
	case OWNER_SKIP:
		return 0;
	case OWNER_REJECT:
		return 1;
	}
	return 1;
}

/*
 * Returns the table position of the first probe. For maglev the table is the spread table, indexed by the flow's hash.
 */
static __always_inline __u32 first_position(const struct packet *p, const struct weir_extent *extent, __u32 input,
					    __u64 hash)
{
	switch (extent->scheduler) {
	case WEIR_SCHED_MAGLEV:
		return (hash >> 32) * extent->hash_len >> 32;
	case WEIR_SCHED_MH:
		return extent->hash_len ? mh_hash(input) % extent->hash_len : 0;
	}
	/* hash_32 from include/linux/hash.h, to eight bits. */
	return (input * 0x61C88647u) >> (32 - BUCKETS_LOG2);
}

__noinline __u32 schedule_by_hash(struct packet *p, struct weir_extent *extent, __u64 hash)
{
	struct probe probe = {};
	__u32 dest;

	if (!p || !extent || extent->hash_len == 0)
		return 0;
	probe.extent = extent;
	probe.input = hash_input(p, extent);
	probe.first = first_position(p, extent, probe.input, hash);
	probe.active = pool_active(extent);
	dest = table_entry(extent->hash_at, probe.first);
	switch (owner_check(extent, probe.active, dest)) {
	case OWNER_ACCEPT:
		return dest;
	case OWNER_REJECT:
		return 0;
	case OWNER_BUSY:
		probe.dest = dest;
		break;
	case OWNER_SKIP:
		break;
	}
	bpf_loop(probe_count(extent), probe_step, &probe, 0);
	return probe.dest;
}

/* ---- spread table ------------------------------------------------------------------------------------------------ */

/* Returns the server of a flow without an entry. All packets of the flow have the same hash. */
static __always_inline __u32 schedule_spread(const struct weir_extent *extent, __u64 hash)
{
	if (extent->spread_len == 0)
		return 0;
	return table_entry(extent->spread_at, (hash >> 32) * extent->spread_len >> 32);
}

/*
 * Returns the server that the previous table selects; 0 = it is the current server, or is unknown. A connection that
 * started through another director before the change may have its socket on that server.
 */
static __always_inline __u32 schedule_former(const struct weir_extent *extent, __u64 hash, __u32 current_dest)
{
	__u32 dest;

	if (extent->former_len == 0)
		return 0;
	dest = table_entry(extent->former_at, (hash >> 32) * extent->former_len >> 32);
	return dest == current_dest ? 0 : dest;
}

#endif
