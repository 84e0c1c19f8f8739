/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The program's context. The director's packet path is compiled twice: for XDP, where the context is a frame, and with
 * WEIR_ON_SKB for tc, where it is a socket buffer. A socket buffer can have partial checksums and can consist of many
 * segments. Stages use `struct weir_context` and return XDP verdicts, which the tc program translates.
 */
#ifndef WEIR_CONTEXT_H
#define WEIR_CONTEXT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "lib/maps.h"
#include "lib/packet.h"

/* Size of a packet on the wire, for statistics. */
struct wire {
	__u32 packets;
	__u32 bytes; /* including the IP header */
};

#ifdef WEIR_ON_SKB

/* The verifier identifies the context argument by its type's name. */
#define weir_context __sk_buff

/* The front cache is off: the lookup that it saves is a small part of the cost of a socket buffer. */
#define WEIR_FRONT 0

static __always_inline long context_load(struct weir_context *ctx, __u32 offset, void *to, __u32 len)
{
	return bpf_skb_load_bytes(ctx, offset, to, len);
}

static __always_inline long context_store(struct weir_context *ctx, __u32 offset, const void *from, __u32 len)
{
	return bpf_skb_store_bytes(ctx, offset, from, len, BPF_F_RECOMPUTE_CSUM);
}

static __always_inline __u32 context_length(struct weir_context *ctx)
{
	return ctx->len;
}

static __always_inline __u32 context_ifindex(struct weir_context *ctx)
{
	return ctx->ifindex;
}

/* Returns the length of the transport header, which every segment repeats. */
static __always_inline __u32 segment_header_len(struct weir_context *ctx, const struct packet *p)
{
	__u8 offset = 0;

	if (p->proto != PROTO_TCP)
		return UDP_LEN;
	if (bpf_skb_load_bytes(ctx, p->l4 + 12, &offset, sizeof(offset)))
		return TCP_MIN_LEN;
	return (offset >> 4) * 4;
}

/* Returns the length of the largest IP packet on the wire after segmentation. */
static __always_inline __u32 wire_length(struct weir_context *ctx, const struct packet *p)
{
	__u32 size = ctx->gso_size;

	return size ? p->l4 - p->l3 + segment_header_len(ctx, p) + size : p->ip_len;
}

/* Returns the size on the wire, where each segment has its own headers. Also counts the packets processed at tc. */
static __always_inline struct wire wire_size(struct weir_context *ctx, const struct packet *p)
{
	__u32 size = ctx->gso_size, headers, reason = WEIR_COUNT_TC;
	__u64 *counter = bpf_map_lookup_elem(&weir_reasons, &reason);
	struct wire wire = { 1, p->ip_len };

	if (size) {
		headers = p->l4 - p->l3 + segment_header_len(ctx, p);
		/* gso_segs is 0 if a guest or a tun device created the packet. */
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

static __always_inline long context_load(struct weir_context *ctx, __u32 offset, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, offset, to, len);
}

static __always_inline long context_store(struct weir_context *ctx, __u32 offset, const void *from, __u32 len)
{
	return bpf_xdp_store_bytes(ctx, offset, (void *)from, len);
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

static __always_inline struct wire wire_size(struct weir_context *ctx, const struct packet *p)
{
	struct wire wire = { 1, p->ip_len };

	return wire;
}

#endif

#endif
