/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A per-CPU cache of exact listener lookups, for packets of a flood: the hash map lookup would cost as much as the rest
 * of their processing. An entry is valid for one jiffy (1 to 10 ms). For one jiffy after a change to the listeners,
 * packets of a flood can still use the old service; other packets never do.
 */
#ifndef WEIR_LISTENER_CACHE_H
#define WEIR_LISTENER_CACHE_H

#include "lib/service.h"

#define LISTENER_CACHE_SIZE 16

struct listener_cache_entry {
	struct weir_addr addr;
	__be16 port;
	__u8 proto;
	__u8 pad;
	__u32 service;
	__u32 generation; /* generation of the service row, which can be reused for another service */
	__u32 jiffy;      /* as in weir_clock; 0 = empty */
};

struct listener_cache {
	struct listener_cache_entry slots[LISTENER_CACHE_SIZE];
};

WEIR_PERCPU(weir_listener_notes, struct listener_cache, 1);

static __always_inline struct listener_cache_entry *listener_cache_slot(const struct packet *p)
{
	struct listener_cache *cache = WEIR_LOOKUP(weir_listener_notes, 0);
	__u64 hash = (p->dst.lo ^ p->dport) * 0x9e3779b97f4a7c15ULL;

	return cache ? &cache->slots[hash >> 60] : 0;
}

/*
 * Looks up the service by exact address, port and protocol. Returns its row, or 0; the result may be up to one jiffy
 * old.
 */
static __always_inline __u32 service_find_exact_cached(const struct packet *p)
{
	struct listener_cache_entry *entry = listener_cache_slot(p);
	__u32 jiffy = CLOCK_JIFFY(bpf_jiffies64()), *service_id;
	struct weir_listener listener = {};
	struct weir_service *service;

	if (!entry)
		return 0;
	if (entry->jiffy == jiffy && addr_equal(&entry->addr, &p->dst) && entry->port == p->dport &&
	    entry->proto == p->proto) {
		service = WEIR_LOOKUP(weir_services, entry->service);
		if (service && service->generation == entry->generation)
			return entry->service;
	}
	listener.addr = p->dst;
	listener.port = p->dport;
	listener.proto = p->proto;
	service_id = bpf_map_lookup_elem(&weir_listeners, &listener);
	service = service_id ? WEIR_LOOKUP(weir_services, *service_id) : 0;
	if (!service_id || !service)
		return 0;
	entry->addr = p->dst;
	entry->port = p->dport;
	entry->proto = p->proto;
	entry->service = *service_id;
	entry->generation = service->generation;
	entry->jiffy = jiffy;
	return *service_id;
}

#endif
