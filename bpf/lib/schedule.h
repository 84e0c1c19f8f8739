/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Schedulers: choose a server for a new flow. User space builds the hash tables (crates/weir-sched); schedulers that
 * use live counts or a cursor run here. Each scheduler returns a dest id, or 0 if there is none. The schedulers of IPVS
 * make the same choices as IPVS for the same sequence of flows (net/netfilter/ipvs/ip_vs_*.c).
 */
#ifndef WEIR_SCHEDULE_H
#define WEIR_SCHEDULE_H

#include "lib/schedule_hash.h"
#include "lib/schedule_list.h"
#include "lib/schedule_load.h"
#include "lib/schedule_locality.h"
#include "lib/schedule_time.h"

/* Runs the load-based schedulers. Not inlined, so that the verifier checks the loops of each group separately. */
__noinline __u32 schedule_by_load(__u32 service_id, struct weir_extent *extent)
{
	struct weir_cursor *cursor = WEIR_LOOKUP(weir_cursors, service_id);

	if (!extent || !cursor)
		return 0;
	if (extent->scheduler == WEIR_SCHED_TWOS)
		return schedule_twos(cursor, extent);
	return schedule_least(extent, extent->scheduler);
}

/* Runs rr and wrr. `missed`: the cursor's lock could not be acquired, and the caller uses the spread table. */
__noinline __u32 schedule_round_robin(__u32 service_id, struct weir_extent *extent, int *missed)
{
	struct weir_cursor *cursor = WEIR_LOOKUP(weir_cursors, service_id);
	__u32 dest;

	if (!extent || !missed || !cursor)
		return 0;
	if (!lock_try(&cursor->lock)) {
		*missed = 1;
		return 0;
	}
	cursor_start(cursor, extent);
	dest = extent->scheduler == WEIR_SCHED_RR ? schedule_rr(cursor, extent) : schedule_wrr(cursor, extent);
	lock_release(&cursor->lock);
	return dest;
}

__noinline __u32 schedule(struct packet *p, __u32 service_id, struct weir_extent *extent, __u64 hash, int *missed)
{
	__u32 dest;

	if (!p || !extent || !missed)
		return 0;
	*missed = 0;
	switch (extent->scheduler) {
	case WEIR_SCHED_DH:
	case WEIR_SCHED_SH:
	case WEIR_SCHED_MH:
	case WEIR_SCHED_MAGLEV:
		return schedule_by_hash(p, extent, hash);
	}
	if (extent->list_len == 0)
		return 0;
	if (extent->scheduler == WEIR_SCHED_LBLC || extent->scheduler == WEIR_SCHED_LBLCR)
		return schedule_by_locality(p, service_id, extent);
	if (extent->scheduler == WEIR_SCHED_RR || extent->scheduler == WEIR_SCHED_WRR)
		return schedule_round_robin(service_id, extent, missed);
	if (extent->scheduler == WEIR_SCHED_P2C)
		return schedule_by_p2c(service_id, extent);
	if (extent->scheduler == WEIR_SCHED_LEAST_TIME && costs_fresh()) {
		dest = schedule_by_time(service_id, extent);
		if (dest)
			return dest;
	}
	return schedule_by_load(service_id, extent);
}

#endif
