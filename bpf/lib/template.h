/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Persistence: a client's choice is an entry of the flow table, as IPVS's connection template is (ip_vs_core.c,
 * ip_vs_sched_persist). It says which server the client's next flows get; its time starts again with each of them, and it
 * outlives its time by a minute as long as one of them lives (ip_vs_conn.c, ip_vs_conn_expire).
 */
#ifndef WEIR_TEMPLATE_H
#define WEIR_TEMPLATE_H

#include "lib/flow.h"

#define TEMPLATE_EXTRA_TICKS 56 /* 60 s */
#define TEMPLATE_HOLD_TRIES  4

static __always_inline __u64 prefix_mask(__u32 bits)
{
	return bits >= 64 ? ~0ULL : bits == 0 ? 0 : bpf_cpu_to_be64(~0ULL << (64 - bits));
}

/* The network of a client: `bits` of the canonical form count. */
static __always_inline struct weir_addr addr_masked(const struct weir_addr *addr, __u32 bits)
{
	struct weir_addr network = *addr;

	network.hi &= prefix_mask(bits);
	network.lo &= prefix_mask(bits > 64 ? bits - 64 : 0);
	return network;
}

/* Under which tuple the choice of a packet's client is remembered; fills what flow_insert() needs beside the server. */
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
	key->peer = WEIR_NO_PLACE;
	key->peer_generation = 0;
	key->template = WEIR_NO_PLACE;
	key->template_generation = 0;
	key->ifindex = service->template_ticks;
	key->old = flows_begin_in_old();
	key->hash = flow_hash(&key->src, &key->dst, 0, key->dport, key->proto, key->family);
	return 1;
}

static __always_inline int template_overdue(__u64 meta, const struct weir_flow_cold *cold, __u32 now)
{
	return (__s32)(now - META_SEEN(meta)) > (__s32)cold->ifindex;
}

/* Removes a template as flow_release() does a flow. No scheduler compares templates: no tree need be climbed. */
__noinline int template_release(__u32 place, __u64 meta)
{
	struct weir_entry *entry = place_entry(place);
	__u32 dest_id;

	if (!entry)
		return 0;
	dest_id = entry->id & (WEIR_DESTS_MAX - 1);
	if (!entry_end(entry, meta))
		return 0;
	count_persistent(dest_id, -1);
	release_slot(place, meta);
	return 1;
}

/*
 * When its time is up: removed, or given another minute if flows that came by it live; that minute is its time from then
 * on. Answers whether it was removed.
 */
__noinline int template_expire(__u32 place, __u64 meta, __u32 now)
{
	struct weir_flow_cold *cold = place_cold(place);
	struct weir_entry *entry = place_entry(place);
	__u64 later;

	if (!cold || !entry || !template_overdue(meta, cold, now))
		return 0;
	if (READ_ONCE(cold->created) == 0)
		return template_release(place, meta);
	later = meta_make(META_GENERATION(meta), WEIR_KIND_TEMPLATE, META_STATE(meta), META_FLAGS(meta), now);
	if (__sync_val_compare_and_swap(&entry->meta, meta, later) == meta)
		WRITE_ONCE(cold->ifindex, TEMPLATE_EXTRA_TICKS);
	return 0;
}

/*
 * The choice made before: answers 1 and the server in key->dest. One whose time is up, or whose server may not be had any
 * more (ip_vs_check_template), is removed.
 */
__noinline int template_find(struct flow_new *key, __u32 now)
{
	struct weir_flow_cold *cold;
	struct weir_dest *dest;
	struct flow found = {};

	if (!key || !flow_find(key->hash, &found) || META_KIND(found.meta) != WEIR_KIND_TEMPLATE)
		return 0;
	cold = place_cold(found.place);
	if (!cold || !cold_is(cold, &key->src, &key->dst, 0, key->dport, key->proto))
		return 0;
	dest = WEIR_LOOKUP(weir_dests, found.dest);
	if (!dest || !(dest->policy & WEIR_POLICY_PERSISTENT) || dest->generation != cold->dest_generation ||
	    (template_overdue(found.meta, cold, now) && READ_ONCE(cold->created) == 0)) {
		template_release(found.place, found.meta);
		return 0;
	}
	key->place = found.place;
	key->generation = META_GENERATION(found.meta);
	key->dest = found.dest;
	return 1;
}

/*
 * Notes that another flow comes by the template: its time starts again, and with `flow` it waits for the flow's end. First
 * counted, then looked at: a sweep that saw no flow removes it only if its time did not start again meanwhile.
 */
__noinline int template_use(struct flow_new *key, __u32 now, __u32 flow)
{
	struct weir_flow_cold *cold;
	struct weir_entry *entry;
	__u64 meta, next;

	if (!key)
		return 0;
	cold = place_cold(key->place);
	entry = place_entry(key->place);
	if (!cold || !entry)
		return 0;
	if (flow)
		__sync_fetch_and_add(&cold->created, 1);
	for (int i = 0; i < TEMPLATE_HOLD_TRIES; i++) {
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

/* Remembers a choice; when another CPU was faster, or there is no place, answers the server that the client gets. */
static __always_inline __u32 template_enter(struct flow_new *key, __u32 dest_id, __u32 now)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	int result;

	if (!key || !dest)
		return 0;
	key->dest = dest_id;
	key->now = now;
	key->dest_generation = dest->generation;
	key->place = WEIR_NO_PLACE;
	result = flow_begin(key);
	if (result == FLOW_INSERTED) {
		count_persistent(dest_id, 1);
		return dest_id;
	}
	key->place = WEIR_NO_PLACE;
	if (result == FLOW_EXISTS && template_find(key, now))
		return key->dest;
	weir_count(result == FLOW_FULL ? WEIR_COUNT_TABLE_FULL : WEIR_COUNT_LOCK_MISSED);
	return 0;
}

#endif
