/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The buckets that a hash may lie in, and how the one that holds it is found.
 *
 * A hash names its home bucket. Buckets come in pages of 32 (4 KiB: one translation for the processor), and the last few
 * percent of the table, the stash, are home to no hash. An entry that finds its home full spills into another bucket of the
 * page, or goes to the stash. Entries never move, so a table that stays nearly full has holes everywhere and full homes
 * everywhere; a home therefore counts, pair of buckets by pair, where its entries lie, and a reader that misses at home looks
 * at the marked pairs only.
 *
 * Each hash tries the pairs from a different one on, which spreads the load and keeps most entries near the first mark.
 */
#ifndef WEIR_BUCKET_H
#define WEIR_BUCKET_H

#include "lib/candidate.h"
#include "lib/flow_layout.h"
#include "lib/hash.h"

#define TAG_SHIFT  WEIR_DEST_BITS
#define TAG_MASK   ((1ULL << 44) - 1)
#define LOCK_TRIES 32

#define HASH_PAIR_SHIFT 8  /* the bits of a hash that say which pair is tried first */
#define HASH_SIDE_SHIFT 12 /* and which bucket of a pair */
#define MARK_BITS       4  /* a pair holds 14 entries, and one may be on its way in */
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
	/* An exchange is a full barrier: what was written under the lock is visible before it opens. */
	__sync_lock_test_and_set(lock, 0);
}

/* ---- geometry -------------------------------------------------------------------------------------------------------- */

static __always_inline __u32 bucket_scaled(__u64 hash, __u32 count)
{
	return (hash >> 32) * count >> 32;
}

static __always_inline __u32 homes_of(__u32 old)
{
	return old ? weir_old_bucket_count : weir_bucket_count;
}

static __always_inline __u32 stash_of(__u32 old)
{
	return old ? weir_old_stash_count : weir_stash_count;
}

static __always_inline __u32 table_buckets(void)
{
	return weir_bucket_count + weir_stash_count;
}

static __always_inline __u32 home_of(__u64 hash, __u32 old)
{
	return bucket_scaled(hash, homes_of(old));
}

static __always_inline __u32 bucket_home(__u64 hash)
{
	return home_of(hash, 0);
}

static __always_inline struct weir_bucket *bucket_at(__u32 index, __u32 old)
{
	return old ? WEIR_LOOKUP(weir_flows_old, index) : WEIR_LOOKUP(weir_flows, index);
}

/* Layout 2: the only other bucket that a hash had. */
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
	return (stash_of(old) + 1) / 2;
}

/* The pair of the stash that a home begins with. */
static __always_inline __u32 stash_first(__u32 home, __u32 old)
{
	return bucket_scaled(home * 0x9e3779b97f4a7c15ULL, stash_pairs(old));
}

/* Which of a home's pairs a step looks at: of those of its page, counted from the home's own, or of those of the stash. */
static __always_inline __u32 step_pair(__u64 hash, __u32 step)
{
	__u32 pair = step / 2;

	return pair < WEIR_SPILL_PAIRS ? (hash_pair(hash) + pair) & (WEIR_SPILL_PAIRS - 1) : pair - WEIR_SPILL_PAIRS;
}

static __always_inline int step_is_stash(__u32 step)
{
	return step >= 2 * WEIR_SPILL_PAIRS;
}

/* The bucket of a step, WEIR_NO_PLACE = there is none. Where there is a stash, the number of homes is even. */
static __always_inline __u32 step_bucket(__u64 hash, __u32 home, __u32 step, __u32 old)
{
	__u32 pair = step_pair(hash, step), side = hash_side(hash) ^ (step & 1), homes = homes_of(old), index;
	__u32 pairs = stash_pairs(old);

	if (!step_is_stash(step)) {
		index = ((home ^ pair << 1) & ~1u) | side;
		return index < homes && index != home ? index : WEIR_NO_PLACE;
	}
	if (pair >= pairs)
		return WEIR_NO_PLACE;
	index = homes + ((stash_first(home, old) + pair) % pairs << 1 | side);
	return index < homes + stash_of(old) ? index : WEIR_NO_PLACE;
}

/* ---- marks ----------------------------------------------------------------------------------------------------------- */

/* Also right in layout 2, whose one count lies where `stashed` does. */
static __always_inline int has_elsewhere(const struct weir_bucket *home)
{
	return READ_ONCE(home->spilled) != 0 || READ_ONCE(home->stashed) != 0;
}

static __always_inline void mark_spilled(struct weir_bucket *home, __u32 pair, __s64 by)
{
	__sync_fetch_and_add(&home->spilled, (__u64)by << pair * MARK_BITS);
}

static __always_inline void mark_stashed(struct weir_bucket *home, __u32 pair, __s32 by)
{
	__sync_fetch_and_add(&home->stashed, (__u32)by << pair * MARK_BITS);
}

static __always_inline void step_mark(struct weir_bucket *home, __u64 hash, __u32 step, int by)
{
	__u32 pair = step_pair(hash, step);

	if (step_is_stash(step))
		mark_stashed(home, pair & (WEIR_STASH_PAIRS - 1), by);
	else
		mark_spilled(home, pair, by);
}

/* Takes back the mark of an entry that lies in the bucket `index`. */
static __always_inline void mark_clear(struct weir_bucket *home, __u32 home_index, __u32 index, __u32 old)
{
	__u32 homes = homes_of(old), pairs = stash_pairs(old), pair;

	if (layout_of(old) == 2) {
		mark_stashed(home, 0, -1);
	} else if (index < homes) {
		mark_spilled(home, (index ^ home_index) >> 1 & (WEIR_SPILL_PAIRS - 1), -1);
	} else if (pairs) {
		pair = ((index - homes) / 2 + pairs - stash_first(home_index, old)) % pairs;
		mark_stashed(home, pair & (WEIR_STASH_PAIRS - 1), -1);
	}
}

/* ---- find ------------------------------------------------------------------------------------------------------------ */

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
		return WEIR_NO_PLACE;
	slot = bucket_find(bucket, tag, &id);
	return slot < 0 ? WEIR_NO_PLACE : index * WEIR_BUCKET_SLOTS + slot;
}

/* The marks of the home in the order of a hash's steps: those of the page, or those of the stash. */
static __always_inline __u64 step_marks(__u64 hash, __u32 stash, __u32 old)
{
	struct weir_bucket *home = bucket_at(home_of(hash, old), old);
	__u32 turn = hash_pair(hash) * MARK_BITS;
	__u64 spilled;

	if (!home)
		return 0;
	if (stash)
		return READ_ONCE(home->stashed);
	spilled = READ_ONCE(home->spilled);
	return spilled >> turn | spilled << (-turn & 63);
}

/*
 * The place of a tag that is not in its home bucket; the bit of an old table is left to the caller. Little is kept from one
 * step to the next, for the sake of the stack.
 */
static __always_inline __u32 elsewhere(__u64 hash, __u32 old)
{
	__u64 marks = step_marks(hash, 0, old);
	__u32 index, place;

	if (layout_of(old) == 2)
		return index_find(bucket_second(hash, old), hash & TAG_MASK, old);
	for (__u32 step = 0; step < STEPS; step++) {
		/* Or the compiler would keep on the stack all that follows from it. */
		VERIFIER_FORGET(hash);
		if (step == 2 * WEIR_SPILL_PAIRS)
			marks = step_marks(hash, 1, old);
		else if (step && !(step & 1))
			marks >>= MARK_BITS;
		if (!(marks & ((1 << MARK_BITS) - 1)))
			continue;
		index = step_bucket(hash, home_of(hash, old), step, old);
		if (index == WEIR_NO_PLACE)
			continue;
		place = index_find(index, hash & TAG_MASK, old);
		if (place != WEIR_NO_PLACE)
			return place;
	}
	return WEIR_NO_PLACE;
}

/* Functions of their own: few packets need them, and the verifier checks them once. */
__noinline __u32 table_elsewhere(__u64 hash)
{
	return elsewhere(hash, 0);
}

__noinline __u32 old_elsewhere(__u64 hash)
{
	return weir_old_bucket_count ? elsewhere(hash, 1) : WEIR_NO_PLACE;
}

#endif
