/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the stages have in common at a packet's end; the last step itself is transmit_xdp.h's and transmit_skb.h's. */
#ifndef WEIR_TRANSMIT_H
#define WEIR_TRANSMIT_H

#include "lib/hop.h"
#include "lib/stage.h"

/* What one stage tells the next across a tail call; per CPU, because softirq runs one packet at a time there. */
struct scratch {
	__u32 reason; /* enum weir_reason that ends the packet */
	__u32 mtu;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} weir_scratch SEC(".maps");


/* Ends the packet with an ICMP error to its sender; without the stage loaded it is a plain drop with the same reason. */
static __always_inline int refuse(struct weir_context *ctx, enum weir_reason reason, __u32 mtu)
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
