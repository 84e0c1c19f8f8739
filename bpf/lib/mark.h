/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Untracked marks: they mark parts of the hash space that can contain flows without an entry. A part stays marked for
 * as long as such a flow can be idle. While it is marked, a packet in this part without an entry is forwarded by the
 * spread table, like the other packets of its flow.
 *
 * The parts are few and coarse, separate from the buckets, so that under a flood the mark is cached and already set. A
 * false mark only causes a stray packet to be sent to a server, which replies with a reset.
 */
#ifndef WEIR_MARK_H
#define WEIR_MARK_H

#include "lib/maps.h"
#include "lib/packet.h"

static __always_inline __u32 *untracked_mark(__u8 proto, __u64 hash)
{
	struct weir_marks *marks = WEIR_LOOKUP(weir_marks, proto == PROTO_UDP ? WEIR_MARKS_UDP : WEIR_MARKS_TCP);

	return marks ? &marks->until[hash >> (64 - WEIR_MARKS_LOG2)] : 0;
}

static __always_inline int untracked_mark_active(__u8 proto, __u64 hash, __u32 now)
{
	__u32 *mark = untracked_mark(proto, hash), until;

	if (!mark)
		return 0;
	until = *(volatile __u32 *)mark;
	return until != 0 && (__s32)(until - now) >= 0;
}

static __always_inline void untracked_mark_set(__u8 proto, __u64 hash, __u32 now, const struct weir_settings *settings)
{
	__u32 ticks = proto == PROTO_UDP ? settings->timeouts[WEIR_STATE_UDP] : settings->untracked_ticks;
	__u32 *mark = untracked_mark(proto, hash), until = (now + ticks) | 1; /* 0 = not marked */

	if (mark && *(volatile __u32 *)mark != until)
		*(volatile __u32 *)mark = until;
}

#endif
