/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Persistence: the server of a client is stored as an entry in the flow table, like IPVS's connection template
 * (ip_vs_core.c, ip_vs_sched_persist). Each new flow of the client gets that server and restarts the template's
 * timeout. While the template has live flows, it is extended by a minute at a time (ip_vs_conn.c, ip_vs_conn_expire).
 */
#ifndef WEIR_TEMPLATE_H
#define WEIR_TEMPLATE_H

#include "lib/flow.h"

#define TEMPLATE_EXTRA_TICKS 56 /* 60 s */
#define TEMPLATE_USE_TRIES  4

static __always_inline __u64 prefix_mask(__u32 bits)
{
	return bits >= 64 ? ~0ULL : bits == 0 ? 0 : bpf_cpu_to_be64(~0ULL << (64 - bits));
}

/* Returns the client's network: the first `bits` of the canonical form. */
static __always_inline struct weir_addr addr_masked(const struct weir_addr *addr, __u32 bits)
{
	struct weir_addr network = *addr;

	network.hi &= prefix_mask(bits);
	network.lo &= prefix_mask(bits > 64 ? bits - 64 : 0);
	return network;
}

/* Builds the template's tuple for a packet's client; fills everything that flow_insert() needs except the server. */
__noinline int template_key(struct packet *p, __u32 service_id, struct flow_new *key)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, service_id);

	if (!p || !key || !service)
		return 0;
	key->src = addr_masked(&p->src, p->family == 4 ? 96 + service->template_prefix4 : service->template_prefix6);
	key->dst = p->dst;
	key->sport = 0;
	key->dport = service->template_scope == WEIR_TEMPLATE_PORT ? p->dport : 0;
	key->proto = p->proto | WEIR_PROTO_TEMPLATE;
	key->family = p->family;
	if (service->template_scope == WEIR_TEMPLATE_SERVICE) {
		key->dst = addr_from_v4(bpf_htonl(service_id));
		if (p->family == 6)
			key->dst.lo &= ~(__u64)V4_MAPPED;
		key->proto = WEIR_PROTO_TEMPLATE;
	}
	key->kind = WEIR_KIND_TEMPLATE;
	key->state = WEIR_STATE_NONE;
	key->flags = 0;
	key->service = service_id;
	key->created = 0;
	key->peer = WEIR_NO_INDEX;
	key->peer_generation = 0;
	key->template = WEIR_NO_INDEX;
	key->template_generation = 0;
	key->ifindex = service->template_ticks;
	key->old = new_flows_in_old_table();
	key->hash = flow_hash(&key->src, &key->dst, 0, key->dport, key->proto, key->family);
	return 1;
}

static __always_inline int template_timed_out(__u64 meta, const struct weir_flow_cold *cold, __u32 now)
{
	return (__s32)(now - META_SEEN(meta)) > (__s32)cold->ifindex;
}

/* Does the same as flow_release() for a template. Schedulers do not count templates, so no tree is updated. */
__noinline int template_release(__u32 entry_index, __u64 meta)
{
	struct weir_entry *entry = entry_at(entry_index);
	__u32 dest_id;

	if (!entry)
		return 0;
	dest_id = entry->id & (WEIR_DESTS_MAX - 1);
	if (!entry_free(entry, meta))
		return 0;
	count_persistent(dest_id, -1);
	slot_release(entry_index, meta);
	return 1;
}

/*
 * Removes an expired template, or extends it by a minute if it has live flows; the minute becomes its timeout. Returns
 * whether the template was removed.
 */
__noinline int template_expire(__u32 entry_index, __u64 meta, __u32 now)
{
	struct weir_flow_cold *cold = cold_at(entry_index);
	struct weir_entry *entry = entry_at(entry_index);
	__u64 extended;

	if (!cold || !entry || !template_timed_out(meta, cold, now))
		return 0;
	if (READ_ONCE(cold->created) == 0)
		return template_release(entry_index, meta);
	extended = meta_make(META_GENERATION(meta), WEIR_KIND_TEMPLATE, META_STATE(meta), META_FLAGS(meta), now);
	if (__sync_val_compare_and_swap(&entry->meta, meta, extended) == meta)
		WRITE_ONCE(cold->ifindex, TEMPLATE_EXTRA_TICKS);
	return 0;
}

/*
 * Finds the client's template: returns 1 and the server in key->dest. A template that has expired and has no live
 * flows, or whose server is no longer available (ip_vs_check_template), is removed.
 */
__noinline int template_find(struct flow_new *key, __u32 now)
{
	struct weir_flow_cold *cold;
	struct weir_dest *dest;
	struct flow found = {};

	if (!key || !flow_find(key->hash, &found) || META_KIND(found.meta) != WEIR_KIND_TEMPLATE)
		return 0;
	cold = cold_at(found.entry_index);
	if (!cold || !cold_matches(cold, &key->src, &key->dst, 0, key->dport, key->proto))
		return 0;
	dest = WEIR_LOOKUP(weir_dests, found.dest);
	if (!dest || !(dest->policy & WEIR_POLICY_PERSISTENT) || dest->generation != cold->dest_generation ||
	    (template_timed_out(found.meta, cold, now) && READ_ONCE(cold->created) == 0)) {
		template_release(found.entry_index, found.meta);
		return 0;
	}
	key->entry_index = found.entry_index;
	key->generation = META_GENERATION(found.meta);
	key->dest = found.dest;
	return 1;
}

/*
 * Uses the template for a new flow: restarts its timeout and, if `flow` is set, counts the flow. The flow is counted
 * before the timeout restarts: a sweep that saw no flow removes the template only if its timeout has not been restarted
 * since.
 */
__noinline int template_use(struct flow_new *key, __u32 now, __u32 flow)
{
	struct weir_flow_cold *cold;
	struct weir_entry *entry;
	__u64 meta, next;

	if (!key)
		return 0;
	cold = cold_at(key->entry_index);
	entry = entry_at(key->entry_index);
	if (!cold || !entry)
		return 0;
	if (flow)
		__sync_fetch_and_add(&cold->created, 1);
	for (int i = 0; i < TEMPLATE_USE_TRIES; i++) {
		meta = READ_ONCE(entry->meta);
		if (META_KIND(meta) != WEIR_KIND_TEMPLATE || META_GENERATION(meta) != (__u8)key->generation)
			break;
		next = meta_make(META_GENERATION(meta), WEIR_KIND_TEMPLATE, META_STATE(meta), META_FLAGS(meta), now);
		if (next == meta || __sync_val_compare_and_swap(&entry->meta, meta, next) == meta)
			return 1;
	}
	if (flow)
		__sync_fetch_and_add(&cold->created, -1);
	return 0;
}

/*
 * Stores a template and returns its server. If another CPU stored the template first, returns that CPU's server. 0 =
 * the template could not be stored.
 */
static __always_inline __u32 template_insert(struct flow_new *key, __u32 dest_id, __u32 now)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	int result;

	if (!key || !dest)
		return 0;
	key->dest = dest_id;
	key->now = now;
	key->dest_generation = dest->generation;
	key->entry_index = WEIR_NO_INDEX;
	result = flow_begin(key);
	if (result == FLOW_INSERTED) {
		count_persistent(dest_id, 1);
		return dest_id;
	}
	key->entry_index = WEIR_NO_INDEX;
	if (result == FLOW_EXISTS && template_find(key, now))
		return key->dest;
	weir_count(result == FLOW_FULL ? WEIR_COUNT_TABLE_FULL : WEIR_COUNT_LOCK_MISSED);
	return 0;
}

#endif
