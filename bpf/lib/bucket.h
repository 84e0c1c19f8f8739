/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The buckets that can contain the entry of a hash, and the search through them.
 *
 * A hash selects its home bucket. Buckets are grouped in pages of 32 (4 KiB, one TLB entry). The last few percent of
 * the table are the stash, which contains no home buckets. If the home bucket is full, the entry is stored in another
 * bucket of the page, or in the stash. Entries never move within a table, so a nearly full table has full home buckets
 * next to free slots. Each home bucket therefore counts its spilled entries per pair of buckets, and a lookup that
 * misses in the home bucket searches only pairs with a nonzero count.
 *
 * Different hashes start at different pairs, which spreads the load: most entries are in the first pair searched.
 */
#ifndef WEIR_BUCKET_H
#define WEIR_BUCKET_H

#include "lib/candidate.h"
#include "lib/flow_layout.h"
#include "lib/hash.h"

#define TAG_SHIFT  WEIR_DEST_BITS
#define TAG_MASK   ((1ULL << 44) - 1)
#define LOCK_TRIES 32

#define HASH_PAIR_SHIFT 8  /* the hash bits from here on select the pair to search first */
#define HASH_SIDE_SHIFT 12 /* this hash bit selects the bucket of a pair to search first */
#define SPILL_COUNT_BITS       4  /* a pair holds 14 entries, plus one being inserted */
#define STEPS           (2 * (WEIR_SPILL_PAIRS + WEIR_STASH_PAIRS))

static __always_inline int lock_try(__u32 *lock)
{
#pragma unroll
	for (int i = 0; i < LOCK_TRIES; i++)
		if (__sync_val_compare_and_swap(lock, 0, 1) == 0)
			return 1;
	return 0;
}

static __always_inline void lock_release(__u32 *lock)
{
	/* An exchange is a full barrier: writes under the lock are visible before its release. */
	__sync_lock_test_and_set(lock, 0);
}

/* ---- geometry ---------------------------------------------------------------------------------------------------- */

static __always_inline __u32 bucket_scaled(__u64 hash, __u32 count)
{
	return (hash >> 32) * count >> 32;
}

static __always_inline __u32 home_bucket_count(__u32 old)
{
	return old ? weir_old_bucket_count : weir_bucket_count;
}

static __always_inline __u32 stash_bucket_count(__u32 old)
{
	return old ? weir_old_stash_count : weir_stash_count;
}

static __always_inline __u32 table_bucket_count(void)
{
	return weir_bucket_count + weir_stash_count;
}

static __always_inline __u32 home_of(__u64 hash, __u32 old)
{
	return bucket_scaled(hash, home_bucket_count(old));
}

static __always_inline __u32 bucket_home(__u64 hash)
{
	return home_of(hash, 0);
}

static __always_inline struct weir_bucket *bucket_at(__u32 index, __u32 old)
{
	return old ? WEIR_LOOKUP(weir_flows_old, index) : WEIR_LOOKUP(weir_flows, index);
}

/* Returns the only alternative bucket of a hash in layout 2. */
static __always_inline __u32 bucket_second(__u64 hash, __u32 old)
{
	return home_of(hash * 0x9e3779b97f4a7c15ULL, old);
}

static __always_inline __u32 hash_pair(__u64 hash)
{
	return hash >> HASH_PAIR_SHIFT & (WEIR_SPILL_PAIRS - 1);
}

static __always_inline __u32 hash_side(__u64 hash)
{
	return hash >> HASH_SIDE_SHIFT & 1;
}

static __always_inline __u32 stash_pairs(__u32 old)
{
	return (stash_bucket_count(old) + 1) / 2;
}

/* Returns the first stash pair of a home bucket. */
static __always_inline __u32 stash_first(__u32 home, __u32 old)
{
	return bucket_scaled(home * 0x9e3779b97f4a7c15ULL, stash_pairs(old));
}

/*
 * Returns the pair that a search step visits: a pair of the page, relative to the home bucket's pair, or a pair of the
 * stash.
 */
static __always_inline __u32 step_pair(__u64 hash, __u32 step)
{
	__u32 pair = step / 2;

	return pair < WEIR_SPILL_PAIRS ? (hash_pair(hash) + pair) & (WEIR_SPILL_PAIRS - 1) : pair - WEIR_SPILL_PAIRS;
}

static __always_inline int step_is_stash(__u32 step)
{
	return step >= 2 * WEIR_SPILL_PAIRS;
}

/* Returns the bucket of a step, or WEIR_NO_INDEX. In a table with a stash the number of home buckets is even. */
static __always_inline __u32 step_bucket(__u64 hash, __u32 home, __u32 step, __u32 old)
{
	__u32 pair = step_pair(hash, step), side = hash_side(hash) ^ (step & 1), homes = home_bucket_count(old), index;
	__u32 pairs = stash_pairs(old);

	if (!step_is_stash(step)) {
		index = ((home ^ pair << 1) & ~1u) | side;
		return index < homes && index != home ? index : WEIR_NO_INDEX;
	}
	if (pair >= pairs)
		return WEIR_NO_INDEX;
	index = homes + ((stash_first(home, old) + pair) % pairs << 1 | side);
	return index < homes + stash_bucket_count(old) ? index : WEIR_NO_INDEX;
}

/* ---- spill counts ------------------------------------------------------------------------------------------------ */

/*
 * Returns whether entries of a home bucket are in other buckets. Also valid for layout 2, whose only count has the
 * offset of `stashed`.
 */
static __always_inline int has_spilled(const struct weir_bucket *home)
{
	return READ_ONCE(home->spilled) != 0 || READ_ONCE(home->stashed) != 0;
}

static __always_inline void spill_count_add(struct weir_bucket *home, __u32 pair, __s64 delta)
{
	__sync_fetch_and_add(&home->spilled, (__u64)delta << pair * SPILL_COUNT_BITS);
}

static __always_inline void stash_count_add(struct weir_bucket *home, __u32 pair, __s32 delta)
{
	__sync_fetch_and_add(&home->stashed, (__u32)delta << pair * SPILL_COUNT_BITS);
}

static __always_inline void step_count_add(struct weir_bucket *home, __u64 hash, __u32 step, int delta)
{
	__u32 pair = step_pair(hash, step);

	if (step_is_stash(step))
		stash_count_add(home, pair & (WEIR_STASH_PAIRS - 1), delta);
	else
		spill_count_add(home, pair, delta);
}

/* Decrements the home bucket's count for an entry in the bucket `index`. */
static __always_inline void spill_count_remove(struct weir_bucket *home, __u32 home_index, __u32 index, __u32 old)
{
	__u32 homes = home_bucket_count(old), pairs = stash_pairs(old), pair;

	if (layout_of(old) == 2) {
		stash_count_add(home, 0, -1);
	} else if (index < homes) {
		spill_count_add(home, (index ^ home_index) >> 1 & (WEIR_SPILL_PAIRS - 1), -1);
	} else if (pairs) {
		pair = ((index - homes) / 2 + pairs - stash_first(home_index, old)) % pairs;
		stash_count_add(home, pair & (WEIR_STASH_PAIRS - 1), -1);
	}
}

/* ---- find -------------------------------------------------------------------------------------------------------- */

static __always_inline int bucket_find(struct weir_bucket *bucket, __u64 tag, __u64 *id)
{
#pragma unroll
	for (int i = 0; i < WEIR_BUCKET_SLOTS; i++) {
		__u64 candidate = READ_ONCE(bucket->slots[i].id);

		if (candidate >> TAG_SHIFT == tag && candidate != 0) {
			*id = candidate;
			return i;
		}
	}
	return -1;
}

static __always_inline __u32 index_find(__u32 index, __u64 tag, __u32 old)
{
	struct weir_bucket *bucket = bucket_at(index, old);
	__u64 id = 0;
	int slot;

	if (!bucket)
		return WEIR_NO_INDEX;
	slot = bucket_find(bucket, tag, &id);
	return slot < 0 ? WEIR_NO_INDEX : index * WEIR_BUCKET_SLOTS + slot;
}

/*
 * Returns the spill counts of the home bucket, for the page or for the stash, in the order of the hash's search steps.
 */
static __always_inline __u64 step_counts(__u64 hash, __u32 stash, __u32 old)
{
	struct weir_bucket *home = bucket_at(home_of(hash, old), old);
	__u32 shift = hash_pair(hash) * SPILL_COUNT_BITS;
	__u64 spilled;

	if (!home)
		return 0;
	if (stash)
		return READ_ONCE(home->stashed);
	spilled = READ_ONCE(home->spilled);
	return spilled >> shift | spilled << (-shift & 63);
}

/*
 * Returns the entry index of a tag outside its home bucket, without the old table's bit, or WEIR_NO_INDEX. Keeps little
 * state between steps to save stack space.
 */
static __always_inline __u32 spill_find(__u64 hash, __u32 old)
{
	__u64 counts = step_counts(hash, 0, old);
	__u32 index, entry_index;

	if (layout_of(old) == 2)
		return index_find(bucket_second(hash, old), hash & TAG_MASK, old);
	for (__u32 step = 0; step < STEPS; step++) {
		/* Prevents the compiler from spilling values derived from the hash. */
		VERIFIER_FORGET(hash);
		if (step == 2 * WEIR_SPILL_PAIRS)
			counts = step_counts(hash, 1, old);
		else if (step && !(step & 1))
			counts >>= SPILL_COUNT_BITS;
		if (!(counts & ((1 << SPILL_COUNT_BITS) - 1)))
			continue;
		index = step_bucket(hash, home_of(hash, old), step, old);
		if (index == WEIR_NO_INDEX)
			continue;
		entry_index = index_find(index, hash & TAG_MASK, old);
		if (entry_index != WEIR_NO_INDEX)
			return entry_index;
	}
	return WEIR_NO_INDEX;
}

/* These are separate functions because few packets need them and the verifier then checks them only once. */
__noinline __u32 table_spill_find(__u64 hash)
{
	return spill_find(hash, 0);
}

__noinline __u32 old_table_spill_find(__u64 hash)
{
	return weir_old_bucket_count ? spill_find(hash, 1) : WEIR_NO_INDEX;
}

#endif
