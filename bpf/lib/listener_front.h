/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A per-CPU cache of exact listener lookups, for packets of a flood: the hash map lookup would cost as much as the rest
 * of their processing. An element is valid for one jiffy, so for some milliseconds after a change to the listeners,
 * packets of a flood may still use the old service. Other packets never do.
 */
#ifndef WEIR_LISTENER_FRONT_H
#define WEIR_LISTENER_FRONT_H

#include "lib/service.h"

#define LISTENER_NOTES 16

struct listener_note {
	struct weir_addr addr;
	__be16 port;
	__u8 proto;
	__u8 pad;
	__u32 service;
	__u32 generation; /* of the service row, which may have been reused since */
	__u32 jiffy;      /* as in weir_clock; 0 = empty */
};

struct listener_notes {
	struct listener_note slots[LISTENER_NOTES];
};

WEIR_PERCPU(weir_listener_notes, struct listener_notes, 1);

static __always_inline struct listener_note *listener_note_of(const struct packet *p)
{
	struct listener_notes *notes = WEIR_LOOKUP(weir_listener_notes, 0);
	__u64 mixed = (p->dst.lo ^ p->dport) * 0x9e3779b97f4a7c15ULL;

	return notes ? &notes->slots[mixed >> 60] : 0;
}

/* Returns the service that listens on exactly the packet's address and port, or 0. */
static __always_inline __u32 service_exact(const struct packet *p)
{
	struct listener_note *note = listener_note_of(p);
	__u32 jiffy = CLOCK_JIFFY(bpf_jiffies64()), *service_id;
	struct weir_listener listener = {};
	struct weir_service *service;

	if (!note)
		return 0;
	if (note->jiffy == jiffy && addr_equal(&note->addr, &p->dst) && note->port == p->dport &&
	    note->proto == p->proto) {
		service = WEIR_LOOKUP(weir_services, note->service);
		if (service && service->generation == note->generation)
			return note->service;
	}
	listener.addr = p->dst;
	listener.port = p->dport;
	listener.proto = p->proto;
	service_id = bpf_map_lookup_elem(&weir_listeners, &listener);
	service = service_id ? WEIR_LOOKUP(weir_services, *service_id) : 0;
	if (!service_id || !service)
		return 0;
	note->addr = p->dst;
	note->port = p->dport;
	note->proto = p->proto;
	note->service = *service_id;
	note->generation = service->generation;
	note->jiffy = jiffy;
	return *service_id;
}

#endif
