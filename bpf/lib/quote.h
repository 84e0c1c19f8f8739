/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads and changes the packet that an ICMP error quotes. It is accessed by offsets, because it can be truncated and
 * can start anywhere in the outer packet. Eight bytes of its transport header are enough (RFC 792); a truncated
 * checksum need not be updated.
 */
#ifndef WEIR_QUOTE_H
#define WEIR_QUOTE_H

#include "lib/context.h"
#include "lib/csum.h"
#include "lib/maps.h"
#include "lib/parse.h"
#include "lib/rewrite.h"

#define PORTS_LEN 8 /* ports, and the rest of the eight bytes required by RFC 792 */
#define IPV4_CSUM_AT 10
#define IPV4_ADDRS_AT 12
#define IPV6_ADDRS_AT 8
#define TCP_CSUM_AT  16
#define UDP_CSUM_AT  6

static __always_inline int quote_has_ports(const struct packet *q)
{
	return q->slow_path == PACKET_PLAIN;
}

static __always_inline int quote_parse_ipv4(struct weir_context *ctx, __u32 offset, struct packet *q)
{
	struct ipv4_header ip;

	if (context_load(ctx, offset, &ip, sizeof(ip)) || ip.ihl < IPV4_MIN_LEN / 4)
		return 0;
	q->family = 4;
	q->src = addr_from_v4(ip.src);
	q->dst = addr_from_v4(ip.dst);
	q->proto = ip.proto;
	q->l4 = offset + ip.ihl * 4;
	q->slow_path = bpf_ntohs(ip.frag) & IPV4_OFFS ? PACKET_FRAGMENT_LATER : PACKET_PLAIN;
	return 1;
}

static __always_inline int quote_parse_ipv6(struct weir_context *ctx, __u32 offset, struct packet *q)
{
	struct ipv6_header ip;

	if (context_load(ctx, offset, &ip, sizeof(ip)))
		return 0;
	q->family = 6;
	q->src = addr_from_v6(ip.src);
	q->dst = addr_from_v6(ip.dst);
	q->proto = ip.next;
	q->l4 = offset + IPV6_LEN;
	q->slow_path = PACKET_PLAIN;
	for (int i = 0; i < PARSE_IPV6_HEADERS; i++) {
		__u8 header[8];

		if (q->proto != PROTO_HOPOPTS && q->proto != PROTO_ROUTING && q->proto != PROTO_DSTOPTS &&
		    q->proto != PROTO_FRAGMENT)
			return 1;
		if (context_load(ctx, q->l4, header, sizeof(header)))
			return 0;
		if (q->proto == PROTO_FRAGMENT && (header[2] | (header[3] & ~7)))
			q->slow_path = PACKET_FRAGMENT_LATER;
		q->l4 += q->proto == PROTO_FRAGMENT ? 8 : (header[1] + 1) * 8;
		q->proto = header[0];
	}
	return 1;
}

/*
 * Parses the packet at `offset`, which ends at `end`. Sets `q->slow_path` to PACKET_PLAIN if it has ports. Returns 0 if
 * it is not an IP packet or its headers are truncated.
 */
__noinline int quote_parse(struct weir_context *ctx, __u32 offset, __u32 end, struct packet *q)
{
	__be16 ports[2];
	__u8 first;

	if (!q || context_load(ctx, offset, &first, sizeof(first)))
		return 0;
	if (first >> 4 == 4) {
		if (!quote_parse_ipv4(ctx, offset, q))
			return 0;
	} else if (first >> 4 != 6 || !quote_parse_ipv6(ctx, offset, q)) {
		return 0;
	}
	q->l3 = offset;
	q->ip_len = end - offset;
	if (q->l4 > end)
		return 0;
	if (q->slow_path != PACKET_PLAIN)
		return 1;
	if (q->proto != PROTO_TCP && q->proto != PROTO_UDP) {
		q->slow_path = PACKET_OTHER_PROTO;
		return 1;
	}
	if (q->l4 + PORTS_LEN > end || context_load(ctx, q->l4, ports, sizeof(ports)))
		return 0;
	q->sport = ports[0];
	q->dport = ports[1];
	return 1;
}

/* Adds `diff` to the checksum at `offset`. Returns the difference for an outer checksum that covers this field. */
static __always_inline __u64 quote_csum(struct weir_context *ctx, __u32 offset, __u64 diff, int udp)
{
	__u16 old, new;

	if (context_load(ctx, offset, &old, sizeof(old)))
		return 0;
	new = udp ? csum_apply_udp(old, diff) : csum_apply(old, diff);
	context_store(ctx, offset, &new, sizeof(new));
	return csum_diff16(old, new);
}

static __always_inline void quote_addresses_store(struct weir_context *ctx, const struct packet *q,
						  const struct rewrite *to)
{
	if (q->family == 4) {
		__be32 pair[2] = { addr_to_v4(&to->src), addr_to_v4(&to->dst) };

		context_store(ctx, q->l3 + IPV4_ADDRS_AT, pair, sizeof(pair));
	} else {
		__be32 pair[8];

		addr_to_v6(&to->src, pair);
		addr_to_v6(&to->dst, pair + 4);
		context_store(ctx, q->l3 + IPV6_ADDRS_AT, pair, sizeof(pair));
	}
}

/* Rewrites the addresses and ports of the quoted packet. Returns the difference for the ICMP checksum. */
__noinline __u64 quote_rewrite(struct weir_context *ctx, struct packet *q, struct rewrite *to)
{
	__u64 addresses, ports, diff;
	__be16 pair[2];
	__u32 end;

	if (!q || !to)
		return 0;
	end = q->l3 + q->ip_len;
	addresses = csum_diff_addr(&q->src, &to->src, q->family) + csum_diff_addr(&q->dst, &to->dst, q->family);
	ports = csum_diff16(q->sport, to->sport) + csum_diff16(q->dport, to->dport);
	diff = addresses + ports;
	quote_addresses_store(ctx, q, to);
	if (q->family == 4)
		diff += quote_csum(ctx, q->l3 + IPV4_CSUM_AT, addresses, 0);
	pair[0] = to->sport;
	pair[1] = to->dport;
	context_store(ctx, q->l4, pair, sizeof(pair));
	if (q->proto == PROTO_UDP)
		diff += quote_csum(ctx, q->l4 + UDP_CSUM_AT, addresses + ports, 1);
	else if (q->l4 + TCP_CSUM_AT + 2 <= end)
		diff += quote_csum(ctx, q->l4 + TCP_CSUM_AT, addresses + ports, 0);
	return diff;
}

/* Returns whether a packet that was parsed as ICMP is a fragment, or (IPv6) has a fragment header. */
static __always_inline int packet_is_fragment(struct weir_context *ctx, const struct packet *p)
{
	__be16 frag;

	if (p->family == 6)
		return p->frag_offset != 0;
	return context_load(ctx, p->l3 + 6, &frag, sizeof(frag)) || frag & bpf_htons(IPV4_MF | IPV4_OFFS);
}

#endif
