/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Transmission in XDP: sets the MAC addresses and sends the packet, or passes it to the tc program if XDP cannot send
 * it.
 */
#ifndef WEIR_TRANSMIT_XDP_H
#define WEIR_TRANSMIT_XDP_H

/* ---- room -------------------------------------------------------------------------------------------------------- */

/* Inserts `len` bytes between the link header and the IP header; `frame` contains the `l3` bytes of the link header. */
static __always_inline long room_make(struct weir_context *ctx, const __u8 *frame, __u32 l3, __u32 len)
{
	return bpf_xdp_adjust_head(ctx, -(int)len) || context_store(ctx, 0, frame, l3);
}

/* Removes `len` bytes after the link header. */
static __always_inline long room_close(struct weir_context *ctx, const __u8 *frame, __u32 l3, __u32 len)
{
	return bpf_xdp_adjust_head(ctx, (int)len) || context_store(ctx, 0, frame, l3);
}

/* Sets the packet's length. */
static __always_inline long length_set(struct weir_context *ctx, const struct packet *p, __u32 len)
{
	return bpf_xdp_adjust_tail(ctx, (int)len - (int)context_length(ctx));
}

/* ---- transmission ------------------------------------------------------------------------------------------------ */

/*
 * Passes a rewritten packet to the tc ingress program, which sends it with bpf_redirect_neigh; the kernel resolves the
 * neighbor and queues the packet until then. `next_hop` overrides the packet's destination (direct routing).
 */
__noinline int send_via_stack(struct weir_context *ctx, __u32 ifindex, struct weir_addr *next_hop)
{
	struct weir_meta *meta;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct weir_meta)))
		return weir_verdict(WEIR_DROP_NO_META, XDP_DROP);
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	meta->magic = WEIR_META_MAGIC;
	meta->ifindex = ifindex;
	__builtin_memset(meta->next_hop, 0, sizeof(meta->next_hop));
	if (!next_hop) {
		meta->family = 0;
	} else if (addr_is_v4(next_hop)) {
		__be32 v4 = addr_to_v4(next_hop);

		meta->family = 4;
		__builtin_memcpy(meta->next_hop, &v4, 4);
	} else {
		meta->family = 6;
		__builtin_memcpy(meta->next_hop, next_hop, 16);
	}
	return weir_verdict(WEIR_PASS_TO_TC, XDP_PASS);
}

static __always_inline void mac_write(void *to, __u64 word)
{
	*(__u32 *)to = word;
	*(__u16 *)(to + 4) = word >> 32;
}

/* Sets one tag on the frame, or none. This is rare: only packets that change VLANs on a port need it. */
__noinline int frame_retag(struct weir_context *ctx, __u16 tag)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct eth_header *eth = data, copy;
	__u32 tags = 0, wanted = tag ? 1 : 0;
	__be16 type;
	__be16 *words;

	if ((void *)(eth + 1) > data_end)
		return -1;
	copy = *eth;
	type = eth->type;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (type != bpf_htons(ETHERTYPE_VLAN) && type != bpf_htons(ETHERTYPE_VLAN_S))
			break;
		words = data + ETH_HEADER_LEN + tags * VLAN_TAG_LEN;
		if ((void *)(words + 2) > data_end)
			return -1;
		type = words[1];
		tags++;
	}
	if (tags != wanted && bpf_xdp_adjust_head(ctx, ((int)tags - (int)wanted) * VLAN_TAG_LEN))
		return -1;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	eth = data;
	words = data + ETH_HEADER_LEN;
	if ((void *)(words + 2) > data_end)
		return -1;
	*eth = copy;
	eth->type = type;
	if (wanted) {
		eth->type = bpf_htons(ETHERTYPE_VLAN);
		words[0] = bpf_htons(tag);
		words[1] = type;
	}
	return 0;
}

static __always_inline int transmit(struct weir_context *ctx, struct hop *hop, struct weir_addr *next_hop, int tagged)
{
	__u32 ifindex = WEIR_HOP_IFINDEX(hop->link);
	__u8 flags = WEIR_HOP_FLAGS(hop->link);
	__u16 tag = hop->dmac >> 48;
	void *data, *data_end;
	struct eth_header *eth;

	if ((flags & (WEIR_HOP_READY | WEIR_HOP_SEND)) != (WEIR_HOP_READY | WEIR_HOP_SEND))
		return send_via_stack(ctx, ifindex, next_hop);
	if (tag != WEIR_HOP_VLAN_KEEP && (tag || tagged) && frame_retag(ctx, tag))
		return weir_verdict(WEIR_DROP_NO_HEADROOM, XDP_DROP);
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	eth = data;
	if ((void *)(eth + 1) > data_end)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	mac_write(eth->dst, hop->dmac);
	mac_write(eth->src, hop->smac);
	if (ifindex == context_ifindex(ctx) && !(flags & WEIR_HOP_REDIRECT))
		return XDP_TX;
	return bpf_redirect(ifindex, 0);
}

/* Sends a complete frame back through the ingress device. */
static __always_inline int transmit_back(struct weir_context *ctx, const struct weir_device *device)
{
	if (device->flags & WEIR_DEVICE_REDIRECT)
		return bpf_redirect(context_ifindex(ctx), 0);
	return XDP_TX;
}

static __always_inline int device_sends(const struct weir_device *device)
{
	return device && device->flags & WEIR_DEVICE_SEND;
}

#endif
