/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Parses IP headers of an skb at any offset: of the packet, of a tunnel's inner packet, or of an ICMP error's quote.
 *
 * Uses bpf_skb_load_bytes instead of pointers: after GRO, the inner headers can be outside the linear part, and later
 * modifications would invalidate pointers.
 */
#ifndef WEIR_REAL_SERVER_PARSE_H
#define WEIR_REAL_SERVER_PARSE_H

#include "lib/packet.h"
#include "lib/real_server_maps.h"

#define RS_EXTENSION_HEADERS 4
#define RS_HEADER_END        1024 /* maximum offset of a header */

enum rs_parse {
	RS_PARSE_OK = 0,
	RS_PARSE_SHORT,   /* truncated, or not an IP packet */
	RS_PARSE_HEADERS, /* too many extension headers, or too long ones */
};

enum rs_fragment {
	RS_WHOLE = 0,
	RS_FRAGMENT_FIRST,
	RS_FRAGMENT_LATER, /* no ports */
};

struct rs_packet {
	struct weir_addr src;
	struct weir_addr dst;
	__u32 l3;
	__u32 l4;
	__u32 frag_id;
	__be16 sport;
	__be16 dport;
	__u8 family;
	__u8 proto;
	__u8 traffic_class; /* DSCP and ECN, the same bits in both families */
	__u8 fragment;
};

static __always_inline int rs_parse_ipv4(struct __sk_buff *skb, struct rs_packet *p)
{
	struct ipv4_header ip;
	__u16 frag;

	if (bpf_skb_load_bytes(skb, p->l3, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return RS_PARSE_SHORT;
	frag = bpf_ntohs(ip.frag);
	p->src = addr_from_v4(ip.src);
	p->dst = addr_from_v4(ip.dst);
	p->traffic_class = ip.tos;
	p->proto = ip.proto;
	p->l4 = p->l3 + ip.ihl * 4;
	p->frag_id = ip.id;
	if (frag & (IPV4_MF | IPV4_OFFS))
		p->fragment = frag & IPV4_OFFS ? RS_FRAGMENT_LATER : RS_FRAGMENT_FIRST;
	return RS_PARSE_OK;
}

/* Skips extension headers (RFC 8200 section 4). Any other header is the packet's protocol and ends the loop. */
static __always_inline int rs_parse_extensions(struct __sk_buff *skb, struct rs_packet *p)
{
	for (int i = 0; i < RS_EXTENSION_HEADERS; i++) {
		__u8 header[8];

		if (p->proto != PROTO_HOPOPTS && p->proto != PROTO_ROUTING && p->proto != PROTO_DSTOPTS &&
		    p->proto != PROTO_FRAGMENT)
			return RS_PARSE_OK;
		if (p->l4 > RS_HEADER_END)
			return RS_PARSE_HEADERS;
		if (bpf_skb_load_bytes(skb, p->l4, header, sizeof(header)))
			return RS_PARSE_SHORT;
		if (p->proto == PROTO_FRAGMENT) {
			__u16 frag = header[2] << 8 | header[3];

			/* An atomic fragment (RFC 6946) is handled as a whole packet. */
			if (frag & ~0x6)
				p->fragment = frag & ~0x7 ? RS_FRAGMENT_LATER : RS_FRAGMENT_FIRST;
			__builtin_memcpy(&p->frag_id, header + 4, sizeof(p->frag_id));
			p->l4 += 8;
		} else {
			p->l4 += (header[1] + 1) * 8;
		}
		p->proto = header[0];
		if (p->fragment == RS_FRAGMENT_LATER)
			return RS_PARSE_OK;
	}
	return RS_PARSE_HEADERS;
}

static __always_inline int rs_parse_ipv6(struct __sk_buff *skb, struct rs_packet *p)
{
	struct ipv6_header ip;

	if (bpf_skb_load_bytes(skb, p->l3, &ip, sizeof(ip)) || bpf_ntohl(ip.flow) >> 28 != 6)
		return RS_PARSE_SHORT;
	p->src = addr_from_v6(ip.src);
	p->dst = addr_from_v6(ip.dst);
	p->traffic_class = bpf_ntohl(ip.flow) >> 20;
	p->proto = ip.next;
	p->l4 = p->l3 + IPV6_LEN;
	return rs_parse_extensions(skb, p);
}

/* Parses the IP packet at `l3`. Ports are 0 in later fragments and in protocols other than TCP and UDP. */
static __noinline int rs_parse(struct __sk_buff *skb, __u32 l3, __u32 family, struct rs_packet *p)
{
	__be16 ports[2];
	int verdict;

	if (!p)
		return RS_PARSE_SHORT;
	*p = (struct rs_packet){ .l3 = l3, .family = family };
	verdict = family == 4 ? rs_parse_ipv4(skb, p) : rs_parse_ipv6(skb, p);
	if (verdict != RS_PARSE_OK || p->fragment == RS_FRAGMENT_LATER)
		return verdict;
	if (p->proto != PROTO_TCP && p->proto != PROTO_UDP)
		return RS_PARSE_OK;
	if (bpf_skb_load_bytes(skb, p->l4, ports, sizeof(ports)))
		return RS_PARSE_SHORT;
	p->sport = ports[0];
	p->dport = ports[1];
	return RS_PARSE_OK;
}

static __always_inline int rs_has_ports(const struct rs_packet *p)
{
	return (p->proto == PROTO_TCP || p->proto == PROTO_UDP) && p->fragment != RS_FRAGMENT_LATER;
}

/* Returns whether this is an ICMP error; the quote starts after eight bytes (RFC 792, RFC 4443 section 3). */
static __always_inline int rs_is_icmp_error(struct __sk_buff *skb, const struct rs_packet *p)
{
	__u8 type;

	if (p->fragment != RS_WHOLE || p->proto != (p->family == 4 ? PROTO_ICMP : PROTO_ICMPV6))
		return 0;
	if (bpf_skb_load_bytes(skb, p->l4, &type, sizeof(type)))
		return 0;
	return p->family == 4 ? type == 3 || type == 11 || type == 12 : type >= 1 && type <= 4;
}

/*
 * Returns whether the address is one of this host's. If a bridge floods a frame for another host, the packet has a
 * different destination address, so the MAC address need not be compared.
 */
static __always_inline int rs_is_host_address(const struct weir_addr *addr)
{
	return bpf_map_lookup_elem(&weir_rs_own, addr) != NULL;
}

#endif
