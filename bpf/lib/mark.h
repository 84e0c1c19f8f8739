/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Marks: which parts of the hash space may hold flows without an entry. A part stays marked as long as such a flow may live
 * without a packet; meanwhile a packet that meets no entry there goes by the spread table, as its flow's others did.
 *
 * The parts are coarse and few, apart from the buckets, so that a flood of flows without entries finds its mark in the
 * cache and already set. A mark that holds too much only sends a stray packet to a server that answers it with a reset.
 */
#ifndef WEIR_MARK_H
#define WEIR_MARK_H

#include "lib/maps.h"
#include "lib/packet.h"

static __always_inline __u32 *mark_of(__u8 proto, __u64 hash)
{
	struct weir_marks *marks = WEIR_LOOKUP(weir_marks, proto == PROTO_UDP ? WEIR_MARKS_UDP : WEIR_MARKS_TCP);

	return marks ? &marks->until[hash >> (64 - WEIR_MARKS_LOG2)] : 0;
}

static __always_inline int mark_holds(__u8 proto, __u64 hash, __u32 now)
{
	__u32 *mark = mark_of(proto, hash), until;

	if (!mark)
		return 0;
	until = *(volatile __u32 *)mark;
	return until != 0 && (__s32)(until - now) >= 0;
}

static __always_inline void mark_set(__u8 proto, __u64 hash, __u32 now, const struct weir_settings *settings)
{
	__u32 ticks = proto == PROTO_UDP ? settings->timeouts[WEIR_STATE_UDP] : settings->untracked_ticks;
	__u32 *mark = mark_of(proto, hash), until = (now + ticks) | 1; /* 0 means unmarked */

	if (mark && *(volatile __u32 *)mark != until)
		*(volatile __u32 *)mark = until;
}

#endif
