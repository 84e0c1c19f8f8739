/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Decides whether a frame is addressed to this host. A bridge or hub that floods also delivers frames for other hosts,
 * and the stack drops them (PACKET_OTHERHOST, net/ipv4/ip_input.c). Two directors that forwarded them would send each
 * frame back and forth.
 *
 * At tc, the kernel has already compared the destination MAC address with the device's own; XDP runs before this
 * comparison. Both need weir_macs for the MAC addresses of upper devices, such as the VRRP virtual router MAC address
 * of a macvlan.
 */
#ifndef WEIR_FRAME_ADDRESS_H
#define WEIR_FRAME_ADDRESS_H

#include "lib/hop.h"
#include "lib/maps.h"

static __always_inline int mac_is_listed(__u64 word)
{
	struct weir_mac_row *row = WEIR_LOOKUP(weir_macs, (word * 0x9e3779b97f4a7c15ULL) >> (64 - WEIR_MAC_ROWS_LOG2));

	if (!row)
		return 0;
#pragma unroll
	for (int i = 0; i < WEIR_MAC_ROW_WORDS; i++)
		if (row->words[i] == word)
			return 1;
	return row->words[WEIR_MAC_ROW_WORDS - 1] == WEIR_MAC_ANY;
}

/*
 * Returns whether this is a VRRP virtual router MAC address (RFC 9568 section 7.3): 00:00:5e:00:01:xx (IPv4) or
 * 00:00:5e:00:02:xx (IPv6).
 */
static __always_inline int mac_is_virtual(__u64 mac)
{
	__u8 family = mac >> 32;

	return (__u32)mac == bpf_htonl(0x00005e00) && (family == 1 || family == 2);
}

/*
 * Returns whether the packet's destination is a local address. If IP forwarding is disabled, bpf_fib_lookup() fails
 * before the route lookup, and the result is 0.
 */
static __always_inline int destination_is_local(struct weir_context *ctx, const struct packet *p)
{
	struct bpf_fib_lookup fib = {};

	fib.ifindex = context_ifindex(ctx);
	if (p->family == 4) {
		fib.family = AF_INET;
		fib.ipv4_dst = addr_to_v4(&p->dst);
	} else {
		fib.family = AF_INET6;
		addr_to_v6(&p->dst, fib.ipv6_dst);
	}
	return bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* The slow path of frame_is_for_host(), for MAC addresses that the row WEIR_MAC_ROW_SINGLE does not contain. */
__noinline int frame_is_for_host_slow(struct weir_context *ctx, struct packet *p, __u64 mac)
{
	__u64 device = (__u64)context_ifindex(ctx) << 48;

	if (!p)
		return 0;
	if (mac_is_listed(mac | device))
		return 1;
#ifndef WEIR_ON_SKB
	/* On a device without listed addresses, such as a bond port, every frame is accepted. */
	if (!mac_is_listed(WEIR_MAC_LISTED | device))
		return 1;
#endif
	/*
	 * A virtual router may have become active while the daemon was not running, so its address is not listed. If
	 * the packet were passed to the stack, the stack would receive it on the router's device and reset the
	 * connection.
	 */
	return mac_is_virtual(mac) && destination_is_local(ctx, p);
}

static __always_inline int frame_is_for_host(struct weir_context *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct weir_mac_row *single = WEIR_LOOKUP(weir_macs, WEIR_MAC_ROW_SINGLE);
	struct eth_header *eth = data;
	__u64 mac;

#ifdef WEIR_ON_SKB
	if (ctx->pkt_type == SKB_TO_HOST)
		return 1;
#endif
	if ((void *)(eth + 1) > data_end || !single)
		return 0;
	mac = *(__u32 *)eth->dst | (__u64)*(__u16 *)(eth->dst + 4) << 32;
	if (single->words[0] == (mac | WEIR_MAC_SINGLE) || single->words[1] == (mac | WEIR_MAC_SINGLE))
		return 1;
	return frame_is_for_host_slow(ctx, p, mac);
}

#endif
