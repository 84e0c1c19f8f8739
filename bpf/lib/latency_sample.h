/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Passes server latency samples to user space. */
#ifndef WEIR_LATENCY_SAMPLE_H
#define WEIR_LATENCY_SAMPLE_H

#include "lib/candidate.h"

/* Stores a sample; in a full ring, overwrites the oldest one. Safe against other CPUs, preemption and interrupts. */
static __always_inline void latency_store(__u32 dest, __s64 ns, __u32 method)
{
	struct weir_latency_ring *ring;
	struct weir_latency_sample *sample;
	__u64 position;

	ring = WEIR_LOOKUP(weir_latency_rings, bpf_get_smp_processor_id() % WEIR_LATENCY_RINGS);
	if (!ring)
		return;
	position = __sync_fetch_and_add(&ring->head, 1);
	sample = &ring->samples[position % WEIR_LATENCY_RING_SLOTS];
	/* A reader that sees the same sequence before and after reading has a consistent sample. */
	__sync_lock_test_and_set(&sample->sequence, 0);
	sample->ns = ns;
	sample->dest = dest;
	sample->method = method;
	__sync_lock_test_and_set(&sample->sequence, position + 1);
}

#endif
