/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Stages of the packet path that run as tail calls. A program array holds programs of one type, so each program type
 * has its own array.
 */
#ifndef WEIR_STAGE_H
#define WEIR_STAGE_H

#include "lib/context.h"

#ifdef WEIR_ON_SKB
#define WEIR_STAGES weir_skb_stages
#else
#define WEIR_STAGES weir_stages
#endif

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u32);
} WEIR_STAGES SEC(".maps");

enum weir_stage {
	WEIR_STAGE_ICMP = 0,
	WEIR_STAGE_FRAGMENT = 1,
	WEIR_STAGE_REJECT = 2,
	WEIR_STAGE_BALANCE = 3, /* the whole path, tc only: packets that XDP passes on */
};

#endif
