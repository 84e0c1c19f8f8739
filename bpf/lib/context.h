/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a program is given of a packet. The director's path is compiled twice: for XDP, which has the frame, and with
 * WEIR_ON_SKB for tc, which has a socket buffer: checksums may be unfinished there, and one packet may stand for many
 * segments. Stages speak of `struct weir_context` and end in XDP's verdicts; the tc program translates them at its end.
 */
#ifndef WEIR_CONTEXT_H
#define WEIR_CONTEXT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "lib/maps.h"
#include "lib/packet.h"

/* What a packet is on the wire: what counts, and what is counted by. */
struct wire {
	__u32 packets;
	__u32 bytes; /* from the IP header on */
};

#ifdef WEIR_ON_SKB

/* The verifier knows a program's argument by the name of its type. */
#define weir_context __sk_buff

/* The front saves a look at the flow table, which is little of what a socket buffer costs. */
#define WEIR_FRONT 0

static __always_inline long context_load(struct weir_context *ctx, __u32 at, void *to, __u32 len)
{
	return bpf_skb_load_bytes(ctx, at, to, len);
}

static __always_inline long context_store(struct weir_context *ctx, __u32 at, const void *from, __u32 len)
{
	return bpf_skb_store_bytes(ctx, at, from, len, BPF_F_RECOMPUTE_CSUM);
}

static __always_inline __u32 context_length(struct weir_context *ctx)
{
	return ctx->len;
}

static __always_inline __u32 context_ifindex(struct weir_context *ctx)
{
	return ctx->ifindex;
}

/* The transport header's length in a packet of several segments, which each repeat it. */
static __always_inline __u32 segment_header(struct weir_context *ctx, const struct packet *p)
{
	__u8 offset = 0;

	if (p->proto != PROTO_TCP)
		return UDP_LEN;
	if (bpf_skb_load_bytes(ctx, p->l4 + 12, &offset, sizeof(offset)))
		return TCP_MIN_LEN;
	return (offset >> 4) * 4;
}

/* The length of the longest IP packet that this one is on the wire. */
static __always_inline __u32 wire_length(struct weir_context *ctx, const struct packet *p)
{
	__u32 size = ctx->gso_size;

	return size ? p->l4 - p->l3 + segment_header(ctx, p) + size : p->ip_len;
}

/* Each segment has headers of its own. Also counts what went by this way of the two. */
static __always_inline struct wire wire_of(struct weir_context *ctx, const struct packet *p)
{
	__u32 size = ctx->gso_size, headers, reason = WEIR_COUNT_TC;
	__u64 *counter = bpf_map_lookup_elem(&weir_reasons, &reason);
	struct wire wire = { 1, p->ip_len };

	if (size) {
		headers = p->l4 - p->l3 + segment_header(ctx, p);
		/* The kernel's own number is 0 where a guest or a tun device made the packet. */
		wire.packets = (p->ip_len - headers + size - 1) / size;
		wire.bytes += (wire.packets - 1) * headers;
	}
	if (counter)
		*counter += wire.packets;
	return wire;
}

#else

#define weir_context xdp_md
#define WEIR_FRONT 1

static __always_inline long context_load(struct weir_context *ctx, __u32 at, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, at, to, len);
}

static __always_inline long context_store(struct weir_context *ctx, __u32 at, const void *from, __u32 len)
{
	return bpf_xdp_store_bytes(ctx, at, (void *)from, len);
}

static __always_inline __u32 context_length(struct weir_context *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

static __always_inline __u32 context_ifindex(struct weir_context *ctx)
{
	return ctx->ingress_ifindex;
}

static __always_inline __u32 wire_length(struct weir_context *ctx, const struct packet *p)
{
	return p->ip_len;
}

static __always_inline struct wire wire_of(struct weir_context *ctx, const struct packet *p)
{
	struct wire wire = { 1, p->ip_len };

	return wire;
}

#endif

#endif
