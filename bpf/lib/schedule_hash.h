/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The schedulers that look an owner up in a table: dh sh mh by an address, maglev by the flow's hash. Owners stay in the
 * tables while they take no flow; the extent's flags say whether they are probed past (crates/weir-sched, availability).
 */
#ifndef WEIR_SCHEDULE_HASH_H
#define WEIR_SCHEDULE_HASH_H

#include "lib/schedule_list.h"

#define BUCKETS_LOG2 8
#define MH_PROBES    4093

static __always_inline __u32 table_word(__u32 at, __u32 index)
{
	struct weir_element *element = WEIR_LOOKUP(weir_tables, at + (index >> 2));

	return element ? element->word[index & 3] : 0;
}

/* ---- keys ---------------------------------------------------------------------------------------------------------------- */

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

/* ---- probing ------------------------------------------------------------------------------------------------------------- */

enum owner {
	OWNER_TAKE,
	OWNER_SKIP,
	OWNER_REFUSE,
};

static __always_inline enum owner owner_judge(const struct weir_extent *extent, __u32 dest_id)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);

	if (!dest_id || !dest)
		return OWNER_REFUSE;
	if (!(dest->flags & WEIR_DEST_USABLE))
		return extent->flags & WEIR_EXTENT_REPAIR ? OWNER_SKIP : OWNER_REFUSE;
	if (dest_overloaded(dest_id))
		return extent->flags & WEIR_EXTENT_FALLBACK ? OWNER_SKIP : OWNER_REFUSE;
	return OWNER_TAKE;
}

struct probe {
	const struct weir_extent *extent;
	__u32 input;
	__u32 first;
	__u32 dest;
};

/* Place of probe `index` after the first: dh and sh add to twice the first bucket, mh hashes the client anew. */
static __always_inline __u32 probe_place(const struct probe *probe, __u32 index)
{
	__u32 size = probe->extent->hash_len;

	if (probe->extent->scheduler != WEIR_SCHED_MH)
		return (2 * probe->first + index) & ((1 << BUCKETS_LOG2) - 1);
	return size ? mh_hash(probe->input + (index + probe->first) % size) % size : 0;
}

static long probe_step(__u32 index, void *context)
{
	struct probe *probe = context;
	__u32 dest = table_word(probe->extent->hash_at, probe_place(probe, index));
	enum owner judged = owner_judge(probe->extent, dest);

	if (judged == OWNER_TAKE)
		probe->dest = dest;
	return judged != OWNER_SKIP;
}

static __always_inline __u32 schedule_owner(const struct packet *p, const struct weir_extent *extent)
{
	struct probe probe = { .extent = extent, .input = hash_input(p, extent) };
	int is_mh = extent->scheduler == WEIR_SCHED_MH;
	__u32 dest;

	if (extent->hash_len == 0)
		return 0;
	/* hash_32 of include/linux/hash.h to eight bits. */
	probe.first = is_mh ? mh_hash(probe.input) % extent->hash_len :
			      (probe.input * 0x61C88647u) >> (32 - BUCKETS_LOG2);
	dest = table_word(extent->hash_at, probe.first);
	switch (owner_judge(extent, dest)) {
	case OWNER_TAKE:
		return dest;
	case OWNER_REFUSE:
		return 0;
	case OWNER_SKIP:
		bpf_loop(is_mh ? MH_PROBES : 1 << BUCKETS_LOG2, probe_step, &probe, 0);
	}
	return probe.dest;
}

/* ---- over the whole tuple ------------------------------------------------------------------------------------------------ */

/* The pool's own spread over the flow hash: for maglev, and for flows without an entry, whose packets all find one server. */
static __always_inline __u32 schedule_spread(const struct weir_extent *extent, __u64 hash)
{
	if (extent->spread_len == 0)
		return 0;
	return table_word(extent->spread_at, (hash >> 32) * extent->spread_len >> 32);
}

struct spread_walk {
	const struct weir_extent *extent;
	__u32 first;
	__u32 dest;
};

static long spread_step(__u32 index, void *context)
{
	struct spread_walk *walk = context;
	__u32 place = walk->first + index, dest;

	if (place >= walk->extent->spread_len)
		place -= walk->extent->spread_len;
	dest = table_word(walk->extent->spread_at, place);
	if (!dest || dest_overloaded(dest))
		return 0;
	walk->dest = dest;
	return 1;
}

/* The owner of the flow's place, or of the next place whose owner is not overloaded. */
static __always_inline __u32 schedule_maglev(const struct weir_extent *extent, __u64 hash)
{
	struct spread_walk walk = { .extent = extent, .first = (hash >> 32) * extent->spread_len >> 32 };

	bpf_loop(extent->spread_len, spread_step, &walk, 0);
	return walk.dest;
}

#endif
