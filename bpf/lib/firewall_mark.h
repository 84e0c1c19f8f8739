/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Finds the service for packets with a firewall mark. The stack routes these packets to Weir's veth device. A program
 * at the egress hook of this device stores the mark in the frame, because XDP on the peer device has no access to
 * skb->mark. On the peer, the mark selects the service.
 */
#ifndef WEIR_FIREWALL_MARK_H
#define WEIR_FIREWALL_MARK_H

#include "lib/context.h"
#include "lib/maps.h"
#include "lib/packet.h"

#define FWMARK_OFFSET 6 /* offset of the source MAC address, which frame_fwmark overwrites */

struct frame_fwmark {
	__u32 mark;
	__u16 ifindex; /* original ingress device; 0 = the ifindex does not fit */
} __attribute__((packed));

/*
 * Returns whether the frame can contain a mark. This check is cheap but not sufficient, because any neighbor can send
 * frames to this address.
 */
static __always_inline int frame_may_have_fwmark(void *data, void *data_end)
{
	struct eth_header *eth = data;

	return (void *)(eth + 1) <= data_end && *(__u16 *)eth->dst == (__u16)WEIR_MARK_MAC &&
	       *(__u32 *)(eth->dst + 2) == (__u32)(WEIR_MARK_MAC >> 16);
}

/* Returns whether the packet arrived on the peer of the device that marked packets are routed to. */
static __always_inline int has_fwmark(struct weir_context *ctx)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);

	return settings && settings->mark_exit && settings->mark_exit == context_ifindex(ctx);
}

/* Returns the ingress device of a packet; for a marked packet, the original ingress device. 0 = unknown. */
static __always_inline __u32 original_ifindex(struct weir_context *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct frame_fwmark *mark = data + FWMARK_OFFSET;

	if (!has_fwmark(ctx))
		return context_ifindex(ctx);
	return (void *)(mark + 1) <= data_end ? mark->ifindex : 0;
}

/* Returns the service for the packet's mark, or 0. */
__noinline __u32 service_by_fwmark(struct weir_context *ctx, __u32 family)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct frame_fwmark *mark = data + FWMARK_OFFSET;
	struct weir_listener key = {};
	__u32 *service;

	if ((void *)(mark + 1) > data_end)
		return 0;
	key.addr.lo = (__u64)bpf_htonl(mark->mark) << 32;
	key.port = bpf_htons(family);
	service = bpf_map_lookup_elem(&weir_listeners, &key);
	return service ? *service : 0;
}

/* Stores the mark in the frame, at the egress hook of the mark device. */
static __always_inline int fwmark_store(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ingress_ifindex;
	struct frame_fwmark mark = { .mark = skb->mark, .ifindex = ifindex > 0xffff ? 0 : ifindex };

	return bpf_skb_store_bytes(skb, FWMARK_OFFSET, &mark, sizeof(mark), 0);
}

#endif
