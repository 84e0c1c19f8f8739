/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The real server's maps. The programs write only fragments and counters. */
#ifndef WEIR_REAL_SERVER_MAPS_H
#define WEIR_REAL_SERVER_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "lib/real_server_abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RS_HOST_ADDRESSES_MAX);
	__type(key, struct weir_addr);
	__type(value, __u8);
} weir_rs_own SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RS_VIPS_MAX);
	__type(key, struct weir_addr);
	__type(value, struct rs_vip);
} weir_rs_vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * 64);
	__type(key, struct rs_mark_key);
	__type(value, struct rs_mark);
} weir_rs_marks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, RS_EXCEPT_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct rs_prefix);
	__type(value, __u8);
} weir_rs_except SEC(".maps");

/* GUE destination ports, network order. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RS_GUE_MAX);
	__type(key, __be16);
	__type(value, __u8);
} weir_rs_gue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, RS_FRAGS_MAX);
	__type(key, struct rs_frag_key);
	__type(value, struct weir_addr);
} weir_rs_frags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RS_COUNT_MAX);
	__type(key, __u32);
	__type(value, __u64);
} weir_rs_counts SEC(".maps");

static __always_inline void rs_count(__u32 counter)
{
	__u64 *count = bpf_map_lookup_elem(&weir_rs_counts, &counter);

	if (count)
		(*count)++;
}

#endif
