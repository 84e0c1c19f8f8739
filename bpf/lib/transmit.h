/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The last step: frame addresses and the device, or up to the tc program where XDP cannot send. */
#ifndef WEIR_TRANSMIT_H
#define WEIR_TRANSMIT_H

#include "lib/hop.h"

/* What one stage tells the next across a tail call; per CPU, because softirq runs one packet at a time there. */
struct scratch {
	__u32 reason; /* enum weir_reason that ends the packet */
	__u32 mtu;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} weir_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u32);
} weir_stages SEC(".maps");

enum weir_stage {
	WEIR_STAGE_ICMP = 0,
	WEIR_STAGE_FRAGMENT = 1,
	WEIR_STAGE_REJECT = 2,
};

/* Ends the packet with an ICMP error to its sender; without the stage loaded it is a plain drop with the same reason. */
static __always_inline int refuse(struct xdp_md *ctx, enum weir_reason reason, __u32 mtu)
{
	struct scratch *scratch = WEIR_LOOKUP(weir_scratch, 0);

	if (scratch) {
		scratch->reason = reason;
		scratch->mtu = mtu;
		bpf_tail_call(ctx, &weir_stages, WEIR_STAGE_REJECT);
	}
	return weir_verdict(reason, XDP_DROP);
}

/*
 * The tc ingress program sends by bpf_redirect_neigh, which resolves the neighbour and holds the packet meanwhile.
 * `next_hop` overrules the packet's own destination (direct routing); the packet itself is finished.
 */
__noinline int to_tc(struct xdp_md *ctx, __u32 ifindex, struct weir_addr *next_hop)
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

/* Gives the frame exactly one tag, or none. Rare: only where packets change VLAN on a port. */
__noinline int frame_retag(struct xdp_md *ctx, __u16 tag)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct eth_header *eth = data, copy;
	__u32 tags = 0, want = tag ? 1 : 0;
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
	if (tags != want && bpf_xdp_adjust_head(ctx, ((int)tags - (int)want) * VLAN_TAG_LEN))
		return -1;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	eth = data;
	words = data + ETH_HEADER_LEN;
	if ((void *)(words + 2) > data_end)
		return -1;
	*eth = copy;
	eth->type = type;
	if (want) {
		eth->type = bpf_htons(ETHERTYPE_VLAN);
		words[0] = bpf_htons(tag);
		words[1] = type;
	}
	return 0;
}

static __always_inline int transmit(struct xdp_md *ctx, struct hop *hop, struct weir_addr *next_hop, int tagged)
{
	__u32 ifindex = WEIR_HOP_IFINDEX(hop->link);
	__u8 flags = WEIR_HOP_FLAGS(hop->link);
	__u16 tag = hop->dmac >> 48;
	void *data, *data_end;
	struct eth_header *eth;

	if ((flags & (WEIR_HOP_READY | WEIR_HOP_SEND)) != (WEIR_HOP_READY | WEIR_HOP_SEND))
		return to_tc(ctx, ifindex, next_hop);
	if (tag != WEIR_HOP_VLAN_KEEP && (tag || tagged) && frame_retag(ctx, tag))
		return weir_verdict(WEIR_DROP_NO_HEADROOM, XDP_DROP);
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	eth = data;
	if ((void *)(eth + 1) > data_end)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	mac_write(eth->dst, hop->dmac);
	mac_write(eth->src, hop->smac);
	if (ifindex == ctx->ingress_ifindex && !(flags & WEIR_HOP_REDIRECT))
		return XDP_TX;
	return bpf_redirect(ifindex, 0);
}

#endif
