/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The director's maps, except scratch rows and program arrays, and the constants that the loader writes into .rodata.
 * The sizes are placeholders: the loader sets max_entries from the configuration. Array maps are mmapable: their
 * elements start at a page boundary and therefore at a cache line, and user space accesses them without system calls.
 */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi/weir_abi.h"

/*
 * The verifier treats the sizes as constants, so the programs need not load them. The secret is part of the layout
 * record, because the flow table's tags depend on it.
 */
const volatile __u64 weir_secret0 = 0;
const volatile __u64 weir_secret1 = 0;
/* Home buckets, and the stash buckets after them. */
const volatile __u32 weir_bucket_count = 1;
const volatile __u32 weir_stash_count = 0;
const volatile __u32 weir_dest_count = 1;
const volatile __u32 weir_service_count = 1;
const volatile __u32 weir_table_count = 1;
const volatile __u32 weir_live_count = 1;
/* The same for the old table, whose flows are moved. 0 = no old table; the verifier then removes the code for it. */
const volatile __u32 weir_old_bucket_count = 0;
const volatile __u32 weir_old_stash_count = 0;

#define WEIR_ARRAY(name, value_type, entries)                                                                          \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, entries);                                                                          \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                     \
		__type(key, __u32);                                                                                    \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")

#define WEIR_PERCPU(name, value_type, entries)                                                                         \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                                               \
		__uint(max_entries, entries);                                                                          \
		__type(key, __u32);                                                                                    \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")

#define WEIR_HASH(name, map_type, key_type, value_type, entries, flags)                                                \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__uint(max_entries, entries);                                                                          \
		__uint(map_flags, flags);                                                                              \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")

struct weir_element {
	__u32 word[4];
};

WEIR_HASH(weir_vips, BPF_MAP_TYPE_HASH, struct weir_addr, struct weir_vip, 16384, BPF_F_NO_PREALLOC);
WEIR_HASH(weir_listeners, BPF_MAP_TYPE_HASH, struct weir_listener, __u32, 65536, BPF_F_NO_PREALLOC);
WEIR_HASH(weir_devices, BPF_MAP_TYPE_HASH, __u32, struct weir_device, 1024, BPF_F_NO_PREALLOC);
WEIR_HASH(weir_fragments, BPF_MAP_TYPE_LRU_HASH, struct weir_fragment_key, struct weir_fragment, 8192, 0);
WEIR_HASH(weir_probes, BPF_MAP_TYPE_LRU_HASH, struct weir_probe_key, struct weir_probe, 1024, 0);
WEIR_HASH(weir_localities, BPF_MAP_TYPE_LRU_HASH, struct weir_locality_key, struct weir_locality, 1024, 0);
WEIR_ARRAY(weir_services, struct weir_service, 1);
WEIR_ARRAY(weir_tables, struct weir_element, 1);
WEIR_ARRAY(weir_cursors, struct weir_cursor, 1);
WEIR_ARRAY(weir_dests, struct weir_dest, 1);
WEIR_ARRAY(weir_live, struct weir_live, 1);
WEIR_ARRAY(weir_hops, struct weir_hop, 1);
WEIR_ARRAY(weir_clients, struct weir_client, WEIR_CLIENT_SLOTS);
WEIR_ARRAY(weir_flows, struct weir_bucket, 1);
WEIR_ARRAY(weir_flows_cold, struct weir_flow_cold, 1);
WEIR_ARRAY(weir_hints, struct weir_hints, 1);
WEIR_ARRAY(weir_marks, struct weir_marks, WEIR_MARKS_ROWS);
WEIR_ARRAY(weir_flows_old, struct weir_bucket, 1);
WEIR_ARRAY(weir_flows_old_cold, struct weir_flow_cold, 1);
WEIR_ARRAY(weir_settings, struct weir_settings, 1);
WEIR_ARRAY(weir_filters, struct weir_filter, 1);
WEIR_ARRAY(weir_macs, struct weir_mac_row, WEIR_MAC_ROW_SINGLE + 1);
WEIR_PERCPU(weir_traffic, struct weir_traffic, 1);
WEIR_PERCPU(weir_reasons, __u64, WEIR_REASON_COUNT);
WEIR_PERCPU(weir_budgets, struct weir_budget, 1);
WEIR_ARRAY(weir_costs, struct weir_cost, 1);
WEIR_ARRAY(weir_latency_flows, struct weir_latency_flow, 1 << WEIR_LATENCY_SLOTS_LOG2);
WEIR_ARRAY(weir_latency_rings, struct weir_latency_ring, WEIR_LATENCY_RINGS);
WEIR_ARRAY(weir_sync_rings, struct weir_sync_ring, WEIR_SYNC_RINGS);
WEIR_ARRAY(weir_sync_batch, struct weir_sync_flow, WEIR_SYNC_BATCH);
WEIR_PERCPU(weir_latency_counts, __u64, WEIR_LATENCY_REASON_COUNT);

#define WEIR_LOOKUP(map, index)                                                                                        \
	({                                                                                                             \
		__u32 index_ = (index);                                                                                \
		bpf_map_lookup_elem(&(map), &index_);                                                                  \
	})

/* Upper half: low 32 bits of jiffies with the top bit set, so that zero is never valid. Lower half: the tick. */
static volatile __u64 weir_clock;

#define CLOCK_JIFFY(jiffies) ((__u32)(jiffies) | 1u << 31)

/*
 * Returns the current tick. The coarse clock advances with jiffies. Reading jiffies is one load, but reading the clock
 * is a call, which would be the largest cost of an established packet. The clock is therefore read once per jiffy. CPUs
 * that read it at the same time write the same word.
 */
static __always_inline __u32 weir_tick(void)
{
	__u32 jiffy = CLOCK_JIFFY(bpf_jiffies64()), tick;
	__u64 clock = weir_clock;

	if (clock >> 32 == jiffy)
		return (__u32)clock;
	tick = (__u32)(bpf_ktime_get_coarse_ns() >> WEIR_TICK_SHIFT);
	weir_clock = (__u64)jiffy << 32 | tick;
	return tick;
}

/* Counts a packet. WEIR_WITHOUT_METRICS is a build that measures the cost of the counters; see tools/bench.py. */
static __always_inline void weir_count(enum weir_reason reason)
{
#ifndef WEIR_WITHOUT_METRICS
	__u64 *counter = WEIR_LOOKUP(weir_reasons, reason);

	if (counter)
		(*counter)++;
#endif
}

static __always_inline int weir_verdict(enum weir_reason reason, int verdict)
{
	weir_count(reason);
	return verdict;
}

#endif
