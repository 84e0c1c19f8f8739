/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sends and rejects packets: the part for both hooks; see transmit_xdp.h and transmit_skb.h. */
#ifndef WEIR_TRANSMIT_H
#define WEIR_TRANSMIT_H

#include "lib/hop.h"
#include "lib/stage.h"

/*
 * Arguments of a stage across a tail call. There is one row per CPU, because each CPU processes one packet at a time,
 * in a softirq.
 */
struct scratch {
	__u32 reason; /* enum weir_reason */
	__u32 mtu;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} weir_scratch SEC(".maps");

/* Rejects the packet with an ICMP error or a reset. Without the reject stage it is dropped with the same reason. */
static __always_inline int reject_packet(struct weir_context *ctx, enum weir_reason reason, __u32 mtu)
{
	struct scratch *scratch = WEIR_LOOKUP(weir_scratch, 0);

	if (scratch) {
		scratch->reason = reason;
		scratch->mtu = mtu;
		bpf_tail_call(ctx, &WEIR_STAGES, WEIR_STAGE_REJECT);
	}
	return weir_verdict(reason, XDP_DROP);
}

#ifdef WEIR_ON_SKB
#include "lib/transmit_skb.h"
#else
#include "lib/transmit_xdp.h"
#endif

#endif
