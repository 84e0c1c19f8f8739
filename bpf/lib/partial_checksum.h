/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Passes packets with a partial checksum (CHECKSUM_PARTIAL), which virtual devices send, to tc. The checksum field of
 * such a packet contains only the sum of the pseudo header. XDP can neither update nor forward the packet, because an
 * XDP frame does not carry this state, so the tc program gets the unmodified packet. One in 65536 complete checksums
 * matches too; tc handles these packets correctly.
 */
#ifndef WEIR_PARTIAL_CHECKSUM_H
#define WEIR_PARTIAL_CHECKSUM_H

#include "lib/encap.h"
#include "lib/front_reply.h"
#include "lib/transmit.h"

static __always_inline int has_partial_checksum(struct weir_context *ctx, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	__u16 *csum;

	if (!settings || !(settings->flags & WEIR_SETTINGS_UNFINISHED))
		return 0;
	csum = segment_csum(data, data_end, p);
	return csum && *csum == csum_fold(csum_pseudo(&p->src, &p->dst, p->proto, p->ip_len - (p->l4 - p->l3)));
}

/*
 * Passes the packet to tc, where it may change the flow's state, and removes the flow from the front caches, which only
 * XDP has.
 */
static __always_inline int pass_partial_checksum_to_tc(struct weir_context *ctx, const struct packet *p)
{
	__u64 hash = packet_hash(p);
	struct weir_meta *meta;

	front_delete(hash);
	front_delete_replies(hash);
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct weir_meta)))
		return weir_verdict(WEIR_DROP_NO_META, XDP_DROP);
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	__builtin_memset(meta, 0, sizeof(*meta));
	meta->magic = WEIR_META_UNFINISHED;
	return weir_verdict(WEIR_PASS_UNFINISHED, XDP_PASS);
}

#endif
