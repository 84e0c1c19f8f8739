/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Transmission at tc: an skb can leave through any device with its offloads; the device completes checksums and
 * segments GSO packets. If the neighbor is not resolved, the stack queues the packet.
 */
#ifndef WEIR_TRANSMIT_SKB_H
#define WEIR_TRANSMIT_SKB_H

#define TC_ACT_REDIRECT 7

/* ---- room -------------------------------------------------------------------------------------------------------- */

/* Inserts `len` bytes between link header and IP header. The kernel moves the link header. */
static __always_inline long room_make(struct weir_context *ctx, const __u8 *frame, __u32 l3, __u32 len)
{
	return bpf_skb_adjust_room(ctx, len, BPF_ADJ_ROOM_MAC, 0);
}

/* Removes `len` bytes after the link header. */
static __always_inline long room_close(struct weir_context *ctx, const __u8 *frame, __u32 l3, __u32 len)
{
	return bpf_skb_adjust_room(ctx, -(int)len, BPF_ADJ_ROOM_MAC, 0);
}

#define RESET_LEN 96 /* longer than any IPv4 header, so that the bytes at the checksum start are removed */

/*
 * Resets a partial checksum, so that the device sends the skb unmodified. There is no helper for this: removing the
 * bytes at the checksum start resets the state (skb_postpull_rcsum). The state cannot be queried, so this is always
 * done.
 */
__noinline long skb_reset_offload(struct weir_context *ctx, __u32 l3)
{
	__u8 saved[RESET_LEN];

	if (bpf_skb_load_bytes(ctx, l3, saved, sizeof(saved)))
		return -1;
	if (bpf_skb_adjust_room(ctx, -RESET_LEN, BPF_ADJ_ROOM_MAC, 0) ||
	    bpf_skb_adjust_room(ctx, RESET_LEN, BPF_ADJ_ROOM_MAC, 0))
		return -1;
	return bpf_skb_store_bytes(ctx, l3, saved, sizeof(saved), BPF_F_RECOMPUTE_CSUM);
}

/* Sets the packet's length. Its headers will be replaced, so partial checksum and GSO state are reset. */
static __always_inline long length_set(struct weir_context *ctx, const struct packet *p, __u32 len)
{
	__u32 min_len = p->l3 + RESET_LEN + IPV6_LEN;

	if (bpf_skb_change_tail(ctx, len > min_len ? len : min_len, 0) || skb_reset_offload(ctx, p->l3))
		return -1;
	return len < min_len ? bpf_skb_change_tail(ctx, len, 0) : 0;
}

/* ---- transmission ------------------------------------------------------------------------------------------------ */

static __always_inline int redirect_verdict(long action)
{
	return action == TC_ACT_REDIRECT ? XDP_REDIRECT : XDP_DROP;
}

/* Removes all tags: a VLAN device adds its own on transmit. */
static __always_inline void tags_pop(struct weir_context *ctx)
{
#pragma unroll
	for (int i = 0; i < 2; i++)
		if (ctx->vlan_present)
			bpf_skb_vlan_pop(ctx);
}

/* Sends through the stack's neighbor table. `next_hop` overrides the packet's destination (direct routing). */
__noinline int send_via_stack(struct weir_context *ctx, __u32 ifindex, struct weir_addr *next_hop)
{
	struct bpf_redir_neigh neigh = {};

	tags_pop(ctx);
	if (!next_hop)
		return redirect_verdict(bpf_redirect_neigh(ifindex, 0, 0, 0));
	if (addr_is_v4(next_hop)) {
		neigh.nh_family = AF_INET;
		neigh.ipv4_nh = addr_to_v4(next_hop);
	} else {
		neigh.nh_family = AF_INET6;
		addr_to_v6(next_hop, neigh.ipv6_nh);
	}
	return redirect_verdict(bpf_redirect_neigh(ifindex, &neigh, sizeof(neigh), 0));
}

/* Sets one tag, or none, like frame_retag() in XDP. */
__noinline long skb_retag(struct weir_context *ctx, __u32 tag)
{
	tags_pop(ctx);
	return tag ? bpf_skb_vlan_push(ctx, bpf_htons(ETHERTYPE_VLAN), tag) : 0;
}

/* Sends a packet to its next hop. This is a separate function to save stack space in the caller. */
__noinline int skb_transmit(struct weir_context *ctx, struct hop *hop, struct weir_addr *next_hop)
{
	__u32 ifindex, macs[3];
	__u8 flags;
	__u16 tag;

	if (!hop)
		return XDP_DROP;
	ifindex = WEIR_HOP_IFINDEX(hop->link);
	flags = WEIR_HOP_FLAGS(hop->link);
	tag = hop->dmac >> 48;
	if (!(flags & WEIR_HOP_READY))
		return send_via_stack(ctx, ifindex, next_hop);
	/*
	 * The row contains the lower device of a VLAN device only if XDP can send there; otherwise the VLAN device adds
	 * the tag.
	 */
	if (!(flags & WEIR_HOP_SEND) && tag != WEIR_HOP_VLAN_KEEP)
		tag = 0;
	if (tag != WEIR_HOP_VLAN_KEEP && (tag || ctx->vlan_present) && skb_retag(ctx, tag))
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	macs[0] = hop->dmac;
	macs[1] = (hop->dmac >> 32 & 0xffff) | hop->smac << 16;
	macs[2] = hop->smac >> 16;
	if (bpf_skb_store_bytes(ctx, 0, macs, sizeof(macs), 0))
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	return redirect_verdict(bpf_redirect(ifindex, 0));
}

static __always_inline int transmit(struct weir_context *ctx, struct hop *hop, struct weir_addr *next_hop, int tagged)
{
	return skb_transmit(ctx, hop, next_hop);
}

/* Sends a complete frame back through the ingress device. */
static __always_inline int transmit_back(struct weir_context *ctx, const struct weir_device *device)
{
	return redirect_verdict(bpf_redirect(context_ifindex(ctx), 0));
}

static __always_inline int device_sends(const struct weir_device *device)
{
	return 1;
}

#endif
