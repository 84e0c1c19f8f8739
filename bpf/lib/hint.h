/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hints: for each bucket a byte that says which tags its flows may have, by three of their bits. What a hint denies is
 * certainly not in the table, which saves a flood of new flows the way to a bucket that is in no cache; what it allows is
 * looked up. The bytes of a million places fit into a processor's second-level cache.
 *
 * A bit is set under the home bucket's lock before its entry can be seen, and cleared under it by the sweep.
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

/* Whether no entry of this tag is at home in the bucket. */
static __always_inline int hint_denies(__u32 bucket, __u64 tag)
{
	volatile __u8 *hint = hint_of(bucket);

	return hint && !(*hint & hint_bit(tag));
}

/* Under the bucket's lock. */
static __always_inline void hint_add(__u32 bucket, __u64 tag)
{
	volatile __u8 *hint = hint_of(bucket);

	if (hint)
		*hint |= hint_bit(tag);
}

#endif
