/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Next hops. Rows are cached per server (and per client for nat replies). A packet that uses a row refreshes it from
 * the kernel's routes and neighbors, at most once per tick, so that it follows changes without the daemon. The daemon
 * updates rows at once on netlink events.
 */
#ifndef WEIR_HOP_H
#define WEIR_HOP_H

#include "lib/context.h"
#include "lib/flow.h"

#ifndef AF_INET
#define AF_INET  2
#define AF_INET6 10
#endif

static __always_inline __u64 hop_link(__u32 ifindex, __u8 flags, __u16 mtu)
{
	return (__u64)ifindex << 32 | (__u64)flags << 16 | mtu;
}

static __always_inline __u64 mac_word(const __u8 mac[6], __u16 tag)
{
	return (__u64)mac[0] | (__u64)mac[1] << 8 | (__u64)mac[2] << 16 | (__u64)mac[3] << 24 | (__u64)mac[4] << 32 |
	       (__u64)mac[5] << 40 | (__u64)tag << 48;
}

static __always_inline void hop_write(struct weir_hop *row, __u64 link, __u64 dmac, __u64 smac)
{
	if (row->link == link && row->dmac == dmac && row->smac == smac)
		return;
	/* A reader on another CPU must not combine the old device with the new address. */
	__sync_lock_test_and_set(&row->link, 0);
	WRITE_ONCE(row->dmac, dmac);
	WRITE_ONCE(row->smac, smac);
	__sync_lock_test_and_set(&row->link, link);
}

static __always_inline __u8 hop_flags(const struct weir_device *device)
{
	return (device->flags & WEIR_DEVICE_SEND ? WEIR_HOP_SEND : 0) |
	       (device->flags & WEIR_DEVICE_REDIRECT ? WEIR_HOP_REDIRECT : 0);
}

/*
 * Looks up the route to `addr` and writes the row. `spread` is used as the source address, so that each row of a server
 * keeps one path of a multipath route and different rows use different paths.
 */
__noinline int hop_renew(struct weir_context *ctx, struct weir_hop *row, struct weir_addr *addr, __u32 spread)
{
	struct bpf_fib_lookup fib = {};
	struct weir_device *device;
	__u32 flags = 0, ifindex;
	__u16 tag = 0, mtu;
	long result;

	if (!row || !addr)
		return 0;
	fib.ifindex = context_ifindex(ctx);
	if (addr_is_v4(addr)) {
		fib.family = AF_INET;
		fib.ipv4_dst = addr_to_v4(addr);
		fib.ipv4_src = bpf_htonl(spread);
	} else {
		fib.family = AF_INET6;
		addr_to_v6(addr, fib.ipv6_dst);
		/* Not the last word, because ::1 is the loopback address, which is never forwarded. */
		fib.ipv6_src[1] = bpf_htonl(spread);
	}
	fib.l4_protocol = PROTO_TCP;
#ifdef WEIR_ON_SKB
	/*
	 * With a length of 0, the kernel compares the length of the skb, which can contain many segments, with the MTU.
	 */
	fib.tot_len = 1;
#endif
	fib.sport = bpf_htons((__u16)spread);
	result = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	if (result == BPF_FIB_LKUP_RET_FWD_DISABLED || result < 0)
		return 0; /* no lookup possible: user space fills the row */
	if (result != BPF_FIB_LKUP_RET_SUCCESS && result != BPF_FIB_LKUP_RET_NO_NEIGH) {
		hop_write(row, 0, 0, 0);
		return 0;
	}
	ifindex = fib.ifindex;
	/*
	 * Without a neighbor, `mtu_result` still contains `tot_len`: an MTU of one byte would reject the packet that
	 * resolves the neighbor.
	 */
	mtu = result == BPF_FIB_LKUP_RET_SUCCESS ? fib.mtu_result : 0;
	device = WEIR_LOOKUP(weir_devices, ifindex);
	if (device) {
		flags |= hop_flags(device);
		if (mtu == 0)
			mtu = device->mtu;
		tag = device->vlan;
	}
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH) {
		hop_write(row, hop_link(ifindex, flags, mtu), 0, 0);
		return 0;
	}
	flags |= WEIR_HOP_READY;
	if (device && flags & WEIR_HOP_SEND)
		ifindex = device->port;
	/* A route through the ingress port of a tagged frame leads to the same VLAN. */
	if (tag == 0 && ifindex == context_ifindex(ctx))
		tag = WEIR_HOP_VLAN_KEEP;
	hop_write(row, hop_link(ifindex, flags, mtu), mac_word(fib.dmac, tag), mac_word(fib.smac, 0));
	return 0;
}

struct hop {
	__u64 link;
	__u64 dmac;
	__u64 smac;
};

#define HOP_READ_TRIES 8

/*
 * Reads a consistent row; returns 0 if it has no route. A writer keeps `link` zero for tens of nanoseconds, so the
 * reader retries.
 */
static __always_inline int hop_read(struct weir_hop *row, struct hop *hop)
{
	for (int i = 0; i < HOP_READ_TRIES; i++) {
		hop->link = READ_ONCE(row->link);
		hop->dmac = READ_ONCE(row->dmac);
		hop->smac = READ_ONCE(row->smac);
		if (hop->link != 0 && hop->link == READ_ONCE(row->link))
			return 1;
	}
	return 0;
}

static __always_inline void hop_refresh(struct weir_context *ctx, struct weir_hop *row, struct weir_addr *addr,
					__u32 now, __u32 spread)
{
	__u64 renewed = READ_ONCE(row->renewed);

	if (renewed == now)
		return;
	if (__sync_val_compare_and_swap(&row->renewed, renewed, (__u64)now) == renewed)
		hop_renew(ctx, row, addr, spread);
}

/* Finds the next hop to a server for a flow. Returns 0 if there is none. */
static __always_inline int hop_to_server(struct weir_context *ctx, __u32 dest_id, struct weir_dest *dest, __u64 hash,
					 __u32 now, struct hop *hop)
{
	__u32 slot = (hash >> 20) & (WEIR_HOPS_PER_DEST - 1);
	struct weir_hop *row = WEIR_LOOKUP(weir_hops, dest_id * WEIR_HOPS_PER_DEST + slot);

	if (!row)
		return 0;
	hop_refresh(ctx, row, &dest->addr, now, slot);
	return hop_read(row, hop);
}

static __always_inline struct weir_client *client_row(const struct weir_addr *addr)
{
	__u64 hash = (addr->lo ^ addr->hi) * 0x9e3779b97f4a7c15ULL;

	return WEIR_LOOKUP(weir_clients, (__u32)(hash >> 52) & (WEIR_CLIENT_SLOTS - 1));
}

static __always_inline int hop_to_client(struct weir_context *ctx, struct weir_addr *addr, __u32 now, struct hop *hop)
{
	struct weir_client *row = client_row(addr);

	if (!row)
		return 0;
	if (!addr_equal(&row->addr, addr)) {
		/* Replaces the row of another client; readers of that row see that the link changes. */
		hop_write(&row->hop, 0, 0, 0);
		row->addr = *addr;
		row->hop.renewed = 0;
	}
	hop_refresh(ctx, &row->hop, addr, now, (__u32)(addr->lo >> 32));
	return hop_read(&row->hop, hop) && addr_equal(&row->addr, addr);
}

/* Stores the reverse path of a client's packet as its next hop: without IP forwarding, bpf_fib_lookup() fails. */
static __always_inline void client_hop_store(struct weir_context *ctx, struct packet *p, __u32 now)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct weir_client *row = client_row(&p->src);
	struct eth_header *eth = data;

	struct weir_device *device = WEIR_LOOKUP(weir_devices, context_ifindex(ctx));
	__u32 flags = WEIR_HOP_READY;

	if (!row || (void *)(eth + 1) > data_end)
		return;
	if (device)
		flags |= hop_flags(device);
	if (!addr_equal(&row->addr, &p->src)) {
		hop_write(&row->hop, 0, 0, 0);
		row->addr = p->src;
	}
	row->hop.renewed = now;
	hop_write(&row->hop, hop_link(context_ifindex(ctx), flags, 0),
		  mac_word(eth->src, WEIR_HOP_VLAN_KEEP), mac_word(eth->dst, 0));
}

#endif
