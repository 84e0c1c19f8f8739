/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the service for a packet: exact port, then port range, then any port. */
#ifndef WEIR_SERVICE_H
#define WEIR_SERVICE_H

#include "lib/maps.h"
#include "lib/packet.h"

#define RANGES_MAX_LOG2 13

static __noinline __u32 service_by_range(struct weir_vip *vip, __u8 proto, __u16 port)
{
	__u32 low = 0, high;

	if (!vip)
		return 0;
	high = vip->ranges_len;
	/* Sorted by (proto, first) and disjoint per proto: find the last range that starts at or before the port. */
	for (int i = 0; i < RANGES_MAX_LOG2; i++) {
		__u32 middle = (low + high) / 2;
		struct weir_range *range;

		if (low >= high)
			break;
		range = WEIR_LOOKUP(weir_tables, vip->ranges_at + middle);
		if (!range)
			return 0;
		if (range->proto < proto || (range->proto == proto && range->first <= port))
			low = middle + 1;
		else
			high = middle;
	}
	if (low > 0) {
		struct weir_range *range = WEIR_LOOKUP(weir_tables, vip->ranges_at + low - 1);

		if (range && range->proto == proto && range->first <= port && port <= range->last)
			return range->service;
	}
	return proto == PROTO_TCP ? vip->any_tcp : vip->any_udp;
}

/* Returns the service, or 0. `vip` is set if the address is a VIP and no exact listener matched. */
static __always_inline __u32 service_find(struct packet *p, struct weir_vip **vip)
{
	struct weir_listener listener = { p->dst, p->dport, p->proto, {} };
	__u32 *service = bpf_map_lookup_elem(&weir_listeners, &listener);

	*vip = 0;
	if (service)
		return *service;
	/* Uses the copy: before Linux 6.2, a key must not be in the memory of a function argument. */
	*vip = bpf_map_lookup_elem(&weir_vips, &listener.addr);
	if (!*vip)
		return 0;
	return service_by_range(*vip, p->proto, bpf_ntohs(p->dport));
}

#endif
