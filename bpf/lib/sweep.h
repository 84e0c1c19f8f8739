/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Expiry without user space: a timer in a pinned map walks the table in batches and removes expired entries. It
 * continues without the daemon; each new program generation replaces its callback.
 */
#ifndef WEIR_SWEEP_H
#define WEIR_SWEEP_H

#include "lib/template.h"

#define CLOCK_MONOTONIC_ID 1
#define SWEEP_PASS_NS    4000000000ULL
#define SWEEP_BATCH      512 /* buckets per timer run: about 5 us in softirq */
#define SWEEP_TICK_MIN_NS 1000000ULL
#define SWEEP_TICK_MAX_NS 20000000ULL

struct weir_sweep {
	struct weir_sweep_public public;
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_sweep);
} weir_sweeps SEC(".maps");

/* drop_entry visits the whole table once in this many seconds on average (ip_vs_conn.c, ip_vs_random_dropentry). */
#define DROP_ENTRY_SECONDS 32
#define DROP_ENTRY_IDLE_TICKS 56 /* 60 s */

struct sweep_state {
	__u32 position;
	__u32 now;
	__u32 expired;
	__u32 drops; /* probability that drop_entry visits a bucket in this pass, times 2^32 */
};

/*
 * Returns whether drop_entry removes an entry: half-open flows, templates that have no live flows and never had an
 * established one, and flows that have been idle for a minute after a few packets. The kernel's limit is eight packets.
 * Packets are not counted here; instead, the last packet must have arrived in the tick in which the flow started.
 */
static __always_inline int drop_entry_applies(__u32 entry_index, __u64 meta, __u32 now)
{
	struct weir_flow_cold *cold = cold_at(entry_index);
	__u32 state = META_STATE(meta);

	if (!cold)
		return 0;
	if (META_KIND(meta) == WEIR_KIND_TEMPLATE)
		return state == WEIR_STATE_NONE && READ_ONCE(cold->created) == 0;
	if (state == WEIR_STATE_SYN_RECV || state == WEIR_STATE_SYNACK)
		return 1;
	if (state != WEIR_STATE_ESTABLISHED && state != WEIR_STATE_UDP)
		return 0;
	return cold->created == META_SEEN(meta) && (__s32)(now - META_SEEN(meta)) >= DROP_ENTRY_IDLE_TICKS;
}

static __noinline int sweep_slot(__u32 entry_index, __u64 meta, __u32 now, __u32 drops)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	int ends = drops && drop_entry_applies(entry_index, meta, now);

	if (META_KIND(meta) == WEIR_KIND_TEMPLATE)
		return ends ? template_release(entry_index, meta) : template_expire(entry_index, meta, now);
	if (!settings || !(ends || meta_expired(meta, now, settings)))
		return 0;
	return flow_release(entry_index, meta);
}

/* Clears the hint bits of removed tags, unless the home bucket has spilled entries: their tags are not known here. */
static __noinline int sweep_hint(__u32 position)
{
	struct weir_bucket *bucket = WEIR_LOOKUP(weir_flows, position);
	volatile __u8 *hint = hint_of(position);
	__u8 present = 0;

	if (!bucket || !hint || !lock_try(&bucket->lock))
		return 0;
	for (int i = 0; i < WEIR_BUCKET_SLOTS; i++) {
		__u64 id = READ_ONCE(bucket->slots[i].id);

		if (id)
			present |= hint_bit(id >> TAG_SHIFT);
	}
	if (!has_spilled(bucket))
		*hint = present;
	lock_release(&bucket->lock);
	return 1;
}

static long sweep_bucket(__u32 index, void *context)
{
	struct sweep_state *state = context;
	__u32 position = (state->position + index) % table_bucket_count();
	struct weir_bucket *bucket = WEIR_LOOKUP(weir_flows, position);
	volatile __u8 *hint = hint_of(position);
	__u32 drops = state->drops && bpf_get_prandom_u32() < state->drops;
	__u8 present = 0;

	if (!bucket || !hint)
		return 1;
	for (int i = 0; i < WEIR_BUCKET_SLOTS; i++) {
		__u64 meta = READ_ONCE(bucket->slots[i].meta), id = READ_ONCE(bucket->slots[i].id);

		if (id)
			present |= hint_bit(id >> TAG_SHIFT);
		/* A reverse entry is removed with its forward entry. */
		if ((META_KIND(meta) == WEIR_KIND_FORWARD || META_KIND(meta) == WEIR_KIND_TEMPLATE) && id != 0)
			state->expired += sweep_slot(position * WEIR_BUCKET_SLOTS + i, meta, state->now, drops);
	}
	if (*hint & ~present)
		sweep_hint(position);
	return 0;
}

static __always_inline __u64 sweep_tick_ns(void)
{
	__u64 ticks = (__u64)table_bucket_count() / SWEEP_BATCH + 1;
	__u64 each = SWEEP_PASS_NS / ticks;

	if (each < SWEEP_TICK_MIN_NS)
		return SWEEP_TICK_MIN_NS;
	return each > SWEEP_TICK_MAX_NS ? SWEEP_TICK_MAX_NS : each;
}

static __always_inline __u32 sweep_drops(void)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	__u64 pass_ms = ((__u64)table_bucket_count() / SWEEP_BATCH + 1) * sweep_tick_ns() / 1000000;

	if (!settings || !(settings->flags & WEIR_SETTINGS_DROP_ENTRY))
		return 0;
	return pass_ms >= DROP_ENTRY_SECONDS * 1000 ? ~0u : (pass_ms << 32) / (DROP_ENTRY_SECONDS * 1000);
}

static int sweep_tick(void *map, __u32 *key, struct weir_sweep *sweep)
{
	struct sweep_state state = { .position = sweep->public.position, .now = weir_tick(), .drops = sweep_drops() };

	bpf_loop(SWEEP_BATCH, sweep_bucket, &state, 0);
	sweep->public.expired += state.expired;
	sweep->public.position = state.position + SWEEP_BATCH;
	if (sweep->public.position >= table_bucket_count()) {
		sweep->public.position = 0;
		sweep->public.passes++;
	}
	bpf_timer_start(&sweep->timer, sweep_tick_ns(), 0);
	return 0;
}

static __always_inline int sweep_start(void)
{
	struct weir_sweep *sweep = WEIR_LOOKUP(weir_sweeps, 0);

	if (!sweep)
		return 0;
	/* Fails if an earlier generation initialized the timer; in this case only the callback changes. */
	bpf_timer_init(&sweep->timer, &weir_sweeps, CLOCK_MONOTONIC_ID);
	bpf_timer_set_callback(&sweep->timer, sweep_tick);
	bpf_timer_start(&sweep->timer, 0, 0);
	sweep->public.running = 1;
	return 1;
}

#endif
