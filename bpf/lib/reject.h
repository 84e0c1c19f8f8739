/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Errors that the director sends: ICMP errors for "no server", "packet too big" and "TTL exceeded" (RFC 792, RFC 4443,
 * RFC 1191), and for packets of a removed server a TCP reset (RFC 9293) or, with UDP, an ICMP error. Their source is
 * the destination of the rejected packet, so that the director's addresses and routes are not disclosed. RFC 1122
 * section 3.2.2 and RFC 4443 section 2.4 list the packets that must not cause an error to be sent. A budget limits the
 * rate.
 */
#ifndef WEIR_REJECT_H
#define WEIR_REJECT_H

#include "lib/encap.h"
#include "lib/firewall_mark.h"
#include "lib/transmit.h"

#define ICMP_LEN 8
#define REPLY_TTL 64
#define ICMP_TOS 0xc0 /* internetwork control: RFC 1812 section 4.3.2.5 */

/* RFC 1812 section 4.3.2.3: at most 576 bytes. RFC 4443 section 2.4: at most the minimum MTU. */
#define QUOTE_MAX_V4 (576 - IPV4_MIN_LEN - ICMP_LEN)
#define QUOTE_MAX_V6 (IPV6_MTU_MIN - IPV6_LEN - ICMP_LEN)
#define IPV4_MTU_MIN 68
#define IPV6_MTU_MIN 1280

#define ICMP_UNREACHABLE     3 /* type */
#define ICMP_PORT            3 /* code */
#define ICMP_FRAG_NEEDED     4 /* code */
#define ICMP_TIME_EXCEEDED   11
#define ICMP_PARAMETER       12
#define ICMP6_UNREACHABLE    1
#define ICMP6_PORT           4
#define ICMP6_TOO_BIG        2
#define ICMP6_TIME_EXCEEDED  3
#define ICMP6_PARAMETER      4

/* Fields of an ICMP error: type, code and the word after the checksum in host order. */
struct icmp_fields {
	__u8 type;
	__u8 code;
	__u16 pad;
	__u32 rest;
};

static __always_inline struct icmp_fields icmp_too_big(__u8 family, __u32 mtu)
{
	struct icmp_fields fields = { .type = ICMP_UNREACHABLE, .code = ICMP_FRAG_NEEDED, .rest = mtu & 0xffff };

	if (family == 4)
		return fields;
	fields.type = ICMP6_TOO_BIG;
	fields.code = 0;
	/* An IPv6 sender ignores an MTU below the minimum. */
	fields.rest = mtu < IPV6_MTU_MIN ? IPV6_MTU_MIN : mtu;
	return fields;
}

static __always_inline struct icmp_fields reject_fields(__u8 family, __u32 reason, __u32 mtu)
{
	struct icmp_fields fields = {};

	if (reason == WEIR_DROP_TOO_BIG)
		return icmp_too_big(family, mtu);
	if (reason == WEIR_DROP_TTL) {
		fields.type = family == 4 ? ICMP_TIME_EXCEEDED : ICMP6_TIME_EXCEEDED;
	} else {
		fields.type = family == 4 ? ICMP_UNREACHABLE : ICMP6_UNREACHABLE;
		fields.code = family == 4 ? ICMP_PORT : ICMP6_PORT;
	}
	return fields;
}

/* Writes an IP header for `len` bytes of payload, from the packet's destination to its source. */
static __always_inline int reply_ip_write(struct weir_context *ctx, const struct packet *p, __u8 proto, __u8 tos,
					  __u32 len)
{
	if (p->family == 4) {
		struct ipv4_header ip = {
			.version = 4,
			.ihl = IPV4_MIN_LEN / 4,
			.tos = tos,
			.total_len = bpf_htons(IPV4_MIN_LEN + len),
			.frag = bpf_htons(IPV4_DF), /* at most 576 bytes: never fragmented, needs no identification */
			.ttl = REPLY_TTL,
			.proto = proto,
			.src = addr_to_v4(&p->dst),
			.dst = addr_to_v4(&p->src),
		};

		ip.csum = csum_ipv4_header(&ip);
		return context_store(ctx, p->l3, &ip, sizeof(ip));
	} else {
		struct ipv6_header ip = {
			.flow = bpf_htonl(6u << 28 | (__u32)tos << 20),
			.payload_len = bpf_htons(len),
			.next = proto,
			.hops = REPLY_TTL,
		};

		addr_to_v6(&p->dst, ip.src);
		addr_to_v6(&p->src, ip.dst);
		return context_store(ctx, p->l3, &ip, sizeof(ip));
	}
}

static __always_inline int icmp_message_write(struct weir_context *ctx, const struct packet *p,
					      struct icmp_fields *fields, __u32 quote)
{
	__u32 offset = p->l3 + (p->family == 4 ? IPV4_MIN_LEN : IPV6_LEN);
	struct icmp_header icmp = { .type = fields->type, .code = fields->code, .rest = bpf_htonl(fields->rest) };
	__u64 pseudo = p->family == 4 ? 0 : csum_pseudo(&p->dst, &p->src, PROTO_ICMPV6, ICMP_LEN + quote);
	__s64 sum;

	if (context_store(ctx, offset, &icmp, sizeof(icmp)))
		return -1;
	sum = packet_sum(ctx, offset, ICMP_LEN + quote);
	if (sum < 0)
		return -1;
	icmp.csum = ~csum_fold(sum + pseudo);
	return context_store(ctx, offset, &icmp, sizeof(icmp));
}

/*
 * Converts the IP packet at p->l3, of p->ip_len bytes, to an ICMP error that quotes it, from its destination to its
 * source. The Ethernet header does not change. Returns PARSE_OK or the drop reason; the packet is then unusable.
 */
__noinline int icmp_error_build(struct weir_context *ctx, struct packet *p, struct icmp_fields *fields)
{
	__u32 quote, header, max, l3;
	__u8 frame[FRAME_HEADER_MAX], proto;

	if (!p || !fields)
		return WEIR_DROP_INTERNAL;
	l3 = p->l3;
	proto = p->family == 4 ? PROTO_ICMP : PROTO_ICMPV6;
	header = ICMP_LEN + (p->family == 4 ? IPV4_MIN_LEN : IPV6_LEN);
	max = p->family == 4 ? QUOTE_MAX_V4 : QUOTE_MAX_V6;
	quote = (p->ip_len < max ? p->ip_len : max) & ~3u; /* whole words */
	VERIFIER_FORGET(l3);
	if (l3 < ETH_HEADER_LEN || l3 > FRAME_HEADER_MAX || context_load(ctx, 0, frame, l3))
		return WEIR_DROP_INTERNAL;
	if (length_set(ctx, p, l3 + quote))
		return WEIR_DROP_INTERNAL;
	if (room_make(ctx, frame, l3, header))
		return WEIR_DROP_NO_HEADROOM;
	if (reply_ip_write(ctx, p, proto, ICMP_TOS, ICMP_LEN + quote) ||
	    icmp_message_write(ctx, p, fields, quote))
		return WEIR_DROP_INTERNAL;
	return PARSE_OK;
}

/* Sets sequence numbers that make the sender accept the reset (RFC 9293 section 3.10.7.1). */
static __always_inline void reset_set_sequence(const struct packet *p, const struct tcp_header *tcp,
					       struct tcp_header *reset)
{
	__u32 data = p->ip_len - (p->l4 - p->l3) - tcp->offset * 4;

	if (tcp->flags & TCP_ACK) {
		reset->seq = tcp->ack;
		reset->flags = TCP_RST;
		return;
	}
	data += (tcp->flags & TCP_SYN ? 1 : 0) + (tcp->flags & TCP_FIN ? 1 : 0);
	reset->ack = bpf_htonl(bpf_ntohl(tcp->seq) + data);
	reset->flags = TCP_RST | TCP_ACK;
}

static __always_inline __u16 reset_csum(const struct packet *p, const struct tcp_header *reset)
{
	const __u16 *word = (const __u16 *)reset;
	__u64 sum = csum_pseudo(&p->dst, &p->src, PROTO_TCP, TCP_MIN_LEN);

#pragma unroll
	for (int i = 0; i < TCP_MIN_LEN / 2; i++)
		sum += word[i];
	return ~csum_fold(sum);
}

/*
 * Converts the TCP packet at p->l3 to a reset from its destination to its source. Returns the same values as
 * icmp_error_build().
 */
__noinline int reset_build(struct weir_context *ctx, struct packet *p)
{
	struct tcp_header tcp, reset = { .offset = TCP_MIN_LEN / 4 };
	__u32 offset;

	if (!p || context_load(ctx, p->l4, &tcp, sizeof(tcp)))
		return WEIR_DROP_INTERNAL;
	reset.src = p->dport;
	reset.dst = p->sport;
	reset_set_sequence(p, &tcp, &reset);
	reset.csum = reset_csum(p, &reset);
	offset = p->l3 + (p->family == 4 ? IPV4_MIN_LEN : IPV6_LEN);
	/* The reset is never longer than the rejected packet, which has both headers. */
	if (length_set(ctx, p, offset + TCP_MIN_LEN) ||
	    reply_ip_write(ctx, p, PROTO_TCP, 0, TCP_MIN_LEN) || context_store(ctx, offset, &reset, sizeof(reset)))
		return WEIR_DROP_INTERNAL;
	return PARSE_OK;
}

/* Sends the packet back to the frame's sender, through the ingress device. */
static __always_inline int send_back(struct weir_context *ctx)
{
	struct weir_device *device = WEIR_LOOKUP(weir_devices, context_ifindex(ctx));
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct eth_header *eth = data, copy;

	/* The sender of a frame with a firewall mark can be reached only through the stack. */
	if (!device_sends(device) || has_fwmark(ctx))
		return send_via_stack(ctx, original_ifindex(ctx), 0);
	if ((void *)(eth + 1) > data_end)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	copy = *eth;
	__builtin_memcpy(eth->dst, copy.src, sizeof(eth->dst));
	__builtin_memcpy(eth->src, copy.dst, sizeof(eth->src));
	return transmit_back(ctx, device);
}

/*
 * Returns whether the source is a unicast host address: not multicast, not unspecified and, in IPv4, not broadcast,
 * loopback or "this network".
 */
static __always_inline int source_is_unicast(const struct packet *p)
{
	__u32 v4;

	if (p->family == 6)
		return (__u8)p->src.hi != 0xff && (p->src.hi | p->src.lo) != 0;
	v4 = bpf_ntohl(addr_to_v4(&p->src));
	return v4 >> 24 != 0 && v4 >> 24 != 127 && v4 >> 28 < 0xe;
}

/* Returns whether the director may reply to the frame: not to multicast and broadcast frames. */
static __always_inline int frame_is_unicast(struct weir_context *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct eth_header *eth = data;

	return (void *)(eth + 1) <= data_end && !(eth->dst[0] & 1);
}

static __always_inline int reject_budget_take(__u32 now)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_budget *budget = WEIR_LOOKUP(weir_budgets, 0);

	if (!settings || !budget)
		return 0;
	if (budget->reject_window != now) {
		budget->reject_window = now;
		budget->reject_used = 0;
	}
	if (budget->reject_used >= settings->reject_budget)
		return 0;
	budget->reject_used++;
	return 1;
}

/* Returns the reason to count if no error is sent. */
static __always_inline __u32 drop_reason_of(__u32 reason)
{
	switch (reason) {
	case WEIR_REJECT_NO_SERVER:
		return WEIR_DROP_NO_SERVER;
	case WEIR_REJECT_REMOVED:
		return WEIR_DROP_REMOVED;
	default:
		return reason;
	}
}

static __always_inline int may_send_error(struct weir_context *ctx, const struct packet *p, int reset)
{
	if (p->slow_path == PACKET_ICMP || p->slow_path == PACKET_FRAGMENT_LATER || !source_is_unicast(p) ||
	    !frame_is_unicast(ctx))
		return 0;
	/* No reset is sent in reply to a reset. */
	return !(reset && p->tcp_flags & TCP_RST) && reject_budget_take(weir_tick());
}

static __always_inline int reject(struct weir_context *ctx, struct packet *p, __u32 reason, __u32 mtu)
{
	struct icmp_fields fields = reject_fields(p->family, reason, mtu);
	int reset = reason == WEIR_REJECT_REMOVED && p->proto == PROTO_TCP, built;

	if (!may_send_error(ctx, p, reset))
		return weir_verdict(drop_reason_of(reason), XDP_DROP);
	built = reset ? reset_build(ctx, p) : icmp_error_build(ctx, p, &fields);
	if (built != PARSE_OK)
		return weir_verdict(built, XDP_DROP);
	weir_count(reason);
	return send_back(ctx);
}

#endif
