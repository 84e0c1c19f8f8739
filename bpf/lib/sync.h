/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Inserts flows that another director has sent, in batches. The daemon runs this while packets are processed. User
 * space has translated the service and the server to this director's rows; the hash is computed here with this table's
 * secret. Locks and counts work as for flows that start here, except that a flow from a peer is neither counted as a
 * new connection of the server nor queued for the peers again.
 *
 * A record may be late: the flow may have moved to this director in the meantime. The director with the later packet
 * takes precedence.
 */
#ifndef WEIR_SYNC_H
#define WEIR_SYNC_H

#include "lib/bind.h"

#define SYNC_TRIES 32

/* This is a separate scratch row because on older kernels a packet can interrupt a test run. */
struct sync_scratch {
	struct flow_new forward;
	struct flow_new reverse;
};

WEIR_PERCPU(weir_sync_scratch, struct sync_scratch, 1);

static __always_inline int sync_insert_entry(struct flow_new *new)
{
	int result = FLOW_BUSY;

	for (int i = 0; i < SYNC_TRIES && result == FLOW_BUSY; i++)
		result = flow_begin(new);
	return result;
}

static __always_inline __u32 sync_result(int inserted)
{
	if (inserted == FLOW_INSERTED)
		return WEIR_SYNC_INSERTED;
	if (inserted == FLOW_EXISTS)
		return WEIR_SYNC_CONFLICT;
	return inserted == FLOW_FULL ? WEIR_SYNC_FULL : WEIR_SYNC_BUSY;
}

/*
 * Returns whether the flow is translated. The settings of this director determine this, because a server can be local
 * here, and the peer can run an older version.
 */
static __always_inline int sync_uses_nat(const struct weir_dest *dest, const struct weir_sync_flow *record)
{
	return forward_translates(dest->forward) &&
	       !(dest->flags & WEIR_DEST_LOCAL && addr_equal(&dest->addr, &record->dst));
}

static __always_inline __u32 sync_state_flags(const struct weir_sync_flow *record)
{
	int active = record->state == WEIR_STATE_UDP ? record->active : state_is_active(record->state);

	return active ? WEIR_FLOW_ACTIVE : 0;
}

__noinline int sync_fill(__u32 index, __u32 now)
{
	struct weir_sync_flow *record = WEIR_LOOKUP(weir_sync_batch, index);
	struct sync_scratch *scratch = WEIR_LOOKUP(weir_sync_scratch, 0);
	struct weir_dest *dest;
	struct flow_new *new;

	if (!record || !scratch || (record->kind != WEIR_KIND_FORWARD && record->kind != WEIR_KIND_TEMPLATE))
		return 0;
	dest = WEIR_LOOKUP(weir_dests, record->dest);
	if (!dest || !(dest->flags & WEIR_DEST_LIVE) || dest->generation != record->dest_generation ||
	    dest->service != record->service)
		return 0;
	new = &scratch->forward;
	new->src = record->src;
	new->dst = record->dst;
	new->sport = record->sport;
	new->dport = record->dport;
	new->proto = record->proto;
	new->family = record->family;
	new->kind = record->kind;
	new->state = record->state & 0xf;
	new->flags = 0;
	if (record->kind == WEIR_KIND_FORWARD)
		new->flags = sync_state_flags(record) |
			     (forward_translates(dest->forward) ? 0 : WEIR_FLOW_ONESIDED);
	new->dest = record->dest;
	new->service = record->service;
	new->now = now - record->idle;
	new->created = record->kind == WEIR_KIND_TEMPLATE ? 0 : now - record->age;
	new->peer = WEIR_NO_INDEX;
	new->peer_generation = 0;
	/*
	 * As after a migration, a template's lifetime depends only on flows that start here, and on the lifetime of the
	 * peer's template.
	 */
	new->template = WEIR_NO_INDEX;
	new->template_generation = 0;
	new->dest_generation = record->dest_generation;
	new->ifindex = record->kind == WEIR_KIND_TEMPLATE ? record->timeout : record->ifindex;
	new->old = new_flows_in_old_table();
	new->entry_index = WEIR_NO_INDEX;
	flow_new_hash(new, new->family);
	return 1;
}

/* Inserts the reverse entry first, because a visible forward entry must always have its reverse entry. */
__noinline int sync_insert_nat(__u32 index)
{
	struct weir_sync_flow *record = WEIR_LOOKUP(weir_sync_batch, index);
	struct sync_scratch *scratch = WEIR_LOOKUP(weir_sync_scratch, 0);
	struct flow_new *reverse;
	struct weir_dest *dest;
	int result;

	if (!record || !scratch)
		return WEIR_SYNC_GONE;
	dest = WEIR_LOOKUP(weir_dests, scratch->forward.dest);
	/*
	 * The flow cannot continue without the source address that the server uses for it, or with a source address
	 * that this director does not use.
	 */
	if (!dest || !!(dest->flags & WEIR_DEST_SNAT) != !!record->snat_port)
		return WEIR_SYNC_GONE;
	reverse = &scratch->reverse;
	*reverse = scratch->forward;
	reverse->kind = WEIR_KIND_REVERSE;
	reverse->src = dest->addr;
	reverse->sport = dest->port ? dest->port : record->dport;
	reverse->dst = record->snat_port ? record->snat : record->src;
	reverse->dport = record->snat_port ? record->snat_port : record->sport;
	flow_new_hash(reverse, reverse->family);
	result = sync_insert_entry(reverse);
	if (result != FLOW_INSERTED)
		return sync_result(result);
	scratch->forward.peer = reverse->entry_index;
	scratch->forward.peer_generation = reverse->generation;
	result = sync_insert_entry(&scratch->forward);
	if (result != FLOW_INSERTED) {
		entry_undo(reverse);
		return sync_result(result);
	}
	return WEIR_SYNC_INSERTED;
}

/* Inserts the record as a new flow or template. */
__noinline int sync_insert_new(__u32 index)
{
	struct weir_sync_flow *record = WEIR_LOOKUP(weir_sync_batch, index);
	struct sync_scratch *scratch = WEIR_LOOKUP(weir_sync_scratch, 0);
	struct weir_dest *dest;
	int result;

	if (!record || !scratch)
		return WEIR_SYNC_GONE;
	dest = WEIR_LOOKUP(weir_dests, scratch->forward.dest);
	if (!dest)
		return WEIR_SYNC_GONE;
	if (record->kind == WEIR_KIND_FORWARD && sync_uses_nat(dest, record))
		result = sync_insert_nat(index);
	else
		result = sync_result(sync_insert_entry(&scratch->forward));
	if (result != WEIR_SYNC_INSERTED)
		return result;
	if (record->kind == WEIR_KIND_TEMPLATE)
		count_persistent(scratch->forward.dest, 1);
	else
		count(scratch->forward.dest, scratch->forward.flags & WEIR_FLOW_ACTIVE, 1, COUNT_FLOW);
	record->entry_index = scratch->forward.entry_index;
	record->seen = scratch->forward.now;
	return result;
}

/* Updates the entry of the same flow, with the same server and source. */
__noinline int sync_update(__u32 index, __u32 entry_index, __u64 meta)
{
	struct weir_sync_flow *record = WEIR_LOOKUP(weir_sync_batch, index);
	struct sync_scratch *scratch = WEIR_LOOKUP(weir_sync_scratch, 0);
	struct weir_entry *entry = entry_at(entry_index);
	struct weir_flow_cold *cold = cold_at(entry_index);
	__u32 was_active = META_FLAGS(meta) & WEIR_FLOW_ACTIVE, is_active, seen;
	struct flow_new *new;
	__u64 next;

	if (!record || !scratch || !entry || !cold)
		return WEIR_SYNC_GONE;
	new = &scratch->forward;
	is_active = new->flags & WEIR_FLOW_ACTIVE;
	seen = (__s32)(new->now - META_SEEN(meta)) > 0 ? new->now : META_SEEN(meta);
	next = meta_make(META_GENERATION(meta), META_KIND(meta), new->state,
			 (META_FLAGS(meta) & ~WEIR_FLOW_ACTIVE) | is_active, seen);
	record->entry_index = entry_index;
	record->seen = seen;
	if (next != meta && __sync_val_compare_and_swap(&entry->meta, meta, next) != meta)
		return WEIR_SYNC_OLDER;
	if (record->kind == WEIR_KIND_TEMPLATE) {
		WRITE_ONCE(cold->ifindex, record->timeout);
	} else if (was_active != is_active) {
		count(new->dest, is_active, 1, COUNT_CLASS);
		count(new->dest, was_active, -1, COUNT_CLASS);
	}
	return WEIR_SYNC_UPDATED;
}

static __always_inline int sync_release(__u32 entry_index, __u64 meta)
{
	if (META_KIND(meta) == WEIR_KIND_TEMPLATE)
		return template_release(entry_index, meta);
	front_delete_flow(entry_index);
	return flow_release(entry_index, meta);
}

/*
 * Returns whether the server receives the flow's packets from the record's source address and port. The sources differ
 * if the peer has assigned another source to a new connection with the same client port.
 */
__noinline int sync_same_source(__u32 index, __u32 entry_index)
{
	struct weir_sync_flow *record = WEIR_LOOKUP(weir_sync_batch, index);
	struct weir_flow_cold *cold = cold_at(entry_index);

	if (!record || !cold)
		return 0;
	if (cold->peer == WEIR_NO_INDEX)
		return 1;
	cold = cold_at(link_load(entry_index, cold->peer));
	if (!cold)
		return 0;
	if (record->snat_port)
		return addr_equal(&cold->dst, &record->snat) && cold->dport == record->snat_port;
	return addr_equal(&cold->dst, &record->src) && cold->dport == record->sport;
}

/*
 * Handles an entry that has the record's tag. Returns a result, or 0 after releasing the entry. Ticks of two directors
 * start at different times, so a record can appear to be one tick older than it is.
 */
__noinline int sync_existing(__u32 index, __u32 entry_index, __u64 meta, __u32 now)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct sync_scratch *scratch = WEIR_LOOKUP(weir_sync_scratch, 0);
	struct weir_entry *entry = entry_at(entry_index);
	struct weir_flow_cold *cold = cold_at(entry_index);
	struct flow_new *new;

	if (!settings || !scratch || !entry || !cold)
		return WEIR_SYNC_CONFLICT;
	new = &scratch->forward;
	if (META_KIND(meta) != new->kind ||
	    !cold_matches(cold, &new->src, &new->dst, new->sport, new->dport, new->proto)) {
		if (META_KIND(meta) != WEIR_KIND_FORWARD || !meta_expired(meta, now, settings))
			return WEIR_SYNC_CONFLICT;
		sync_release(entry_index, meta);
		return 0;
	}
	if ((__s32)(META_SEEN(meta) - new->now) > 1)
		return WEIR_SYNC_OLDER;
	if ((entry->id & (WEIR_DESTS_MAX - 1)) == new->dest && cold->dest_generation == new->dest_generation &&
	    sync_same_source(index, entry_index))
		return sync_update(index, entry_index, meta);
	sync_release(entry_index, meta);
	return 0;
}

static long sync_record(__u32 index, void *context)
{
	struct weir_sync_flow *record = WEIR_LOOKUP(weir_sync_batch, index);
	struct sync_scratch *scratch = WEIR_LOOKUP(weir_sync_scratch, 0);
	__u32 *now = context;
	struct flow found = {};
	int result = 0;

	if (!record || !scratch)
		return 1;
	record->entry_index = WEIR_NO_INDEX;
	record->result = WEIR_SYNC_GONE;
	if (!sync_fill(index, *now))
		return 0;
	if (flow_find(scratch->forward.hash, &found))
		result = sync_existing(index, found.entry_index, found.meta, *now);
	if (!result)
		result = sync_insert_new(index);
	record->result = result;
	return 0;
}

static __always_inline int sync_insert(struct xdp_md *ctx)
{
	struct weir_move *request = (void *)(long)ctx->data;
	__u32 now = weir_tick(), count;

	if ((void *)(request + 1) > (void *)(long)ctx->data_end)
		return 0;
	count = request->count;
	if (count > WEIR_SYNC_BATCH)
		return 0;
	bpf_loop(count, sync_record, &now, 0);
	return 1;
}

#endif
