/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which service listens on the very address and port of a packet, for packets of a flood: a look into a hash map costs as much
 * as everything else that such a packet meets. Each CPU notes what it found, for as long as the jiffy lasts: some milliseconds
 * after a change of the listeners a flood may still go the former way, and other packets never do.
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
	__u32 generation; /* of the service's row, which may have been given away meanwhile */
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

/* The service that listens on the packet's own address and port, or 0. */
static __always_inline __u32 service_exact(const struct packet *p)
{
	struct listener_note *note = listener_note_of(p);
	__u32 jiffy = CLOCK_JIFFY(bpf_jiffies64()), *known;
	struct weir_listener listener = {};
	struct weir_service *service;

	if (!note)
		return 0;
	if (note->jiffy == jiffy && addr_equal(&note->addr, &p->dst) && note->port == p->dport && note->proto == p->proto) {
		service = WEIR_LOOKUP(weir_services, note->service);
		if (service && service->generation == note->generation)
			return note->service;
	}
	listener.addr = p->dst;
	listener.port = p->dport;
	listener.proto = p->proto;
	known = bpf_map_lookup_elem(&weir_listeners, &listener);
	service = known ? WEIR_LOOKUP(weir_services, *known) : 0;
	if (!known || !service)
		return 0;
	note->addr = p->dst;
	note->port = p->dport;
	note->proto = p->proto;
	note->service = *known;
	note->generation = service->generation;
	note->jiffy = jiffy;
	return *known;
}

#endif
