/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The director's packet path, for XDP and tc programs: parse, match the address filter, look up the flow, bind a new
 * flow to a server, forward. Rare cases (ICMP, fragments, rejects) use tail calls.
 */
#ifndef WEIR_DIRECTOR_H
#define WEIR_DIRECTOR_H

#include "lib/balance.h"
#include "lib/fragment.h"
#include "lib/frame_address.h"
#include "lib/icmp.h"
#include "lib/reject.h"
#ifndef WEIR_ON_SKB
#include "lib/partial_checksum.h"
#endif

static __always_inline int length_fits(struct weir_context *ctx, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u64 need = (__u64)p->l3 + p->ip_len;

	/* The linear part is the whole packet, unless the packet has multiple buffers. */
	return need <= (__u64)(data_end - data) || need <= context_length(ctx);
}

static __always_inline int director(struct weir_context *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct packet p = {};
	int reason = parse_packet(data, data_end, &p), match;

	if (reason == WEIR_PASS_NOT_IP)
		return weir_verdict(WEIR_PASS_NOT_IP, XDP_PASS);
	match = address_filter_match(&p);
	if (!match && frame_may_have_fwmark(data, data_end) && has_fwmark(ctx))
		match = MATCH_DST;
	/*
	 * Only the packet that an ICMP error quotes identifies the flow: any router can send the error, to a client or
	 * to the director.
	 */
	if (!match && (reason != PARSE_OK || p.slow_path != PACKET_ICMP || !length_fits(ctx, &p)))
		return weir_verdict(WEIR_PASS_NOT_OURS, XDP_PASS);
	if (!match && frame_is_for_host(ctx, &p))
		bpf_tail_call(ctx, &WEIR_STAGES, WEIR_STAGE_ICMP);
	if (!match)
		return weir_verdict(WEIR_PASS_NOT_OURS, XDP_PASS);
	if (reason == WEIR_PASS_HEADERS)
		return weir_verdict(reason, XDP_PASS);
	if (reason != PARSE_OK)
		return weir_verdict(reason, XDP_DROP);
	if (!frame_is_for_host(ctx, &p))
		return weir_verdict(WEIR_PASS_OTHER_HOST, XDP_PASS);
	if (!length_fits(ctx, &p))
		return weir_verdict(WEIR_DROP_BAD_LENGTH, XDP_DROP);
#ifndef WEIR_ON_SKB
	if (p.slow_path == PACKET_PLAIN && has_partial_checksum(ctx, &p))
		return pass_partial_checksum_to_tc(ctx, &p);
#endif
	if (p.slow_path == PACKET_PLAIN)
		return balance(ctx, &p, match, 0);
	if (p.slow_path == PACKET_ICMP)
		bpf_tail_call(ctx, &WEIR_STAGES, WEIR_STAGE_ICMP);
	else if (p.slow_path != PACKET_OTHER_PROTO)
		bpf_tail_call(ctx, &WEIR_STAGES, WEIR_STAGE_FRAGMENT);
	return weir_verdict(p.slow_path == PACKET_ICMP ? WEIR_PASS_ICMP : WEIR_PASS_PROTOCOL, XDP_PASS);
}

static __always_inline int stage_icmp(struct weir_context *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct icmp_error *e = WEIR_LOOKUP(weir_icmp_scratch, 0);

	if (!e)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	__builtin_memset(e, 0, sizeof(*e));
	if (parse_packet(data, data_end, &e->p) != PARSE_OK)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	return icmp_stage(ctx, e);
}

static __always_inline int stage_fragment(struct weir_context *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct packet *p = WEIR_LOOKUP(weir_fragment_scratch, 0);
	int verdict;

	if (!p)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	__builtin_memset(p, 0, sizeof(*p));
	if (parse_packet(data, data_end, p) != PARSE_OK)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	if (p->slow_path == PACKET_FRAGMENT_LATER)
		return fragment_later(ctx, p);
	if (p->slow_path != PACKET_FRAGMENT_FIRST)
		return weir_verdict(WEIR_PASS_PROTOCOL, XDP_PASS);
	/* A reused identification must not match the old record. */
	fragment_delete(p);
	verdict = balance(ctx, p, MATCH_DST, 1);
	if (verdict == XDP_PASS)
		fragment_store_pass(p);
	return verdict;
}

static __always_inline int stage_reject(struct weir_context *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct scratch *scratch = WEIR_LOOKUP(weir_scratch, 0);
	struct packet p = {};

	if (!scratch || parse_packet(data, data_end, &p) != PARSE_OK)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	return reject(ctx, &p, scratch->reason, scratch->mtu);
}

#endif
