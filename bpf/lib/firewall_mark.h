/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets that carry a firewall mark. The stack has routed them to a device of Weir's; on its way to the device's peer the
 * mark stands in the frame, because nothing else of a socket buffer comes before XDP. There the mark names the service.
 */
#ifndef WEIR_FIREWALL_MARK_H
#define WEIR_FIREWALL_MARK_H

#include "lib/context.h"
#include "lib/maps.h"
#include "lib/packet.h"

#define MARK_OFFSET 6 /* of the source in an Ethernet header, whose place this takes: */

struct frame_mark {
	__u32 mark;
	__u16 ifindex; /* of the device that the packet came in by, 0 = above 65535 */
} __attribute__((packed));

/* Cheap, and not enough: any neighbour may send to the address. */
static __always_inline int frame_may_be_marked(void *data, void *data_end)
{
	struct eth_header *eth = data;

	return (void *)(eth + 1) <= data_end && *(__u16 *)eth->dst == (__u16)WEIR_MARK_MAC &&
	       *(__u32 *)(eth->dst + 2) == (__u32)(WEIR_MARK_MAC >> 16);
}

/* Whether the packet comes from the device that marked ones are routed to. */
static __always_inline int came_marked(struct weir_context *ctx)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);

	return settings && settings->mark_exit && settings->mark_exit == context_ifindex(ctx);
}

/* The device that a packet came in by, also that of a marked one; 0 = not known. */
static __always_inline __u32 origin_of(struct weir_context *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct frame_mark *mark = data + MARK_OFFSET;

	if (!came_marked(ctx))
		return context_ifindex(ctx);
	return (void *)(mark + 1) <= data_end ? mark->ifindex : 0;
}

/* The service of the mark that the packet carries, 0 = none has it. */
__noinline __u32 service_by_mark(struct weir_context *ctx, __u32 family)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct frame_mark *mark = data + MARK_OFFSET;
	struct weir_listener key = {};
	__u32 *service;

	if ((void *)(mark + 1) > data_end)
		return 0;
	key.addr.lo = (__u64)bpf_htonl(mark->mark) << 32;
	key.port = bpf_htons(family);
	service = bpf_map_lookup_elem(&weir_listeners, &key);
	return service ? *service : 0;
}

/* At the egress of that device: writes the mark into the frame. */
static __always_inline int mark_write(struct __sk_buff *skb)
{
	__u32 from = skb->ingress_ifindex;
	struct frame_mark mark = { .mark = skb->mark, .ifindex = from > 0xffff ? 0 : from };

	return bpf_skb_store_bytes(skb, MARK_OFFSET, &mark, sizeof(mark), 0);
}

#endif
