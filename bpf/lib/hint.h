/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hints: one byte per home bucket, a bitmap of the low three bits of its flows' tags. If a tag's bit is clear, the
 * table has no flow with this tag and this home bucket, and the bucket is not read, so that a flood of new flows causes
 * few cache misses. If the bit is set, the bucket is searched. The hints of a table for a million flows fit in an L2
 * cache.
 *
 * A bit is set under the home bucket's lock before the entry is visible, and cleared under the lock by the sweep.
 */
#ifndef WEIR_HINT_H
#define WEIR_HINT_H

#include "lib/maps.h"

static __always_inline __u8 hint_bit(__u64 tag)
{
	return 1 << (tag & 7);
}

static __always_inline volatile __u8 *hint_of(__u32 bucket)
{
	struct weir_hints *hints = WEIR_LOOKUP(weir_hints, bucket / WEIR_HINTS);

	return hints ? &hints->tags[bucket % WEIR_HINTS] : 0;
}

/* Returns true if no entry with this tag can have this bucket as its home. */
static __always_inline int hint_excludes(__u32 bucket, __u64 tag)
{
	volatile __u8 *hint = hint_of(bucket);

	return hint && !(*hint & hint_bit(tag));
}

/* Adds a tag to a bucket's hint. The caller holds the bucket's lock. */
static __always_inline void hint_add(__u32 bucket, __u64 tag)
{
	volatile __u8 *hint = hint_of(bucket);

	if (hint)
		*hint |= hint_bit(tag);
}

#endif
