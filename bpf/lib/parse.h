/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Parses a frame into struct packet: Ethernet with up to two VLAN tags, IPv4 with options, IPv6 with extension headers,
 * ports. Returns PARSE_OK or a reason. Checksums are not verified: they are updated incrementally, so a wrong checksum
 * stays wrong and the receiver detects it.
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include "lib/packet.h"

#define PARSE_OK (-1)
#define PARSE_VLAN_TAGS 2
#define PARSE_IPV6_HEADERS 4

static __always_inline int parse_ports(void *data, void *data_end, struct packet *p, __u32 room)
{
	if (p->proto == PROTO_TCP) {
		struct tcp_header *tcp = packet_l4(data, p);

		if ((void *)(tcp + 1) > data_end)
			return WEIR_DROP_TOO_SHORT;
		if (room < TCP_MIN_LEN || tcp->offset < 5 || tcp->offset * 4 > room)
			return p->slow_path == PACKET_FRAGMENT_FIRST ? WEIR_DROP_FRAGMENT_TINY : WEIR_DROP_BAD_LENGTH;
		p->sport = tcp->src;
		p->dport = tcp->dst;
		p->tcp_flags = tcp->flags;
		return PARSE_OK;
	}
	if (p->proto == PROTO_UDP) {
		struct udp_header *udp = packet_l4(data, p);

		if ((void *)(udp + 1) > data_end)
			return WEIR_DROP_TOO_SHORT;
		if (room < UDP_LEN)
			return p->slow_path == PACKET_FRAGMENT_FIRST ? WEIR_DROP_FRAGMENT_TINY : WEIR_DROP_BAD_LENGTH;
		/* A first fragment is shorter than the datagram. */
		if (p->slow_path == PACKET_PLAIN && (bpf_ntohs(udp->len) < UDP_LEN || bpf_ntohs(udp->len) > room))
			return WEIR_DROP_BAD_LENGTH;
		p->sport = udp->src;
		p->dport = udp->dst;
		return PARSE_OK;
	}
	p->slow_path = p->proto == (p->family == 4 ? PROTO_ICMP : PROTO_ICMPV6) ? PACKET_ICMP : PACKET_OTHER_PROTO;
	return PARSE_OK;
}

static __always_inline int parse_ipv4(void *data, void *data_end, struct packet *p)
{
	struct ipv4_header *ip = packet_l3(data, p);
	__u32 header_len;
	__u16 frag;

	if ((void *)(ip + 1) > data_end)
		return WEIR_DROP_TOO_SHORT;
	/*
	 * Read the addresses before any error is returned: they determine whether the director must drop a malformed
	 * packet.
	 */
	p->family = 4;
	p->src = addr_from_v4(ip->src);
	p->dst = addr_from_v4(ip->dst);
	header_len = ip->ihl * 4;
	p->ip_len = bpf_ntohs(ip->total_len);
	if (ip->version != 4 || header_len < IPV4_MIN_LEN)
		return WEIR_DROP_MALFORMED;
	if (p->ip_len < header_len)
		return WEIR_DROP_BAD_LENGTH;
	p->proto = ip->proto;
	p->l4 = p->l3 + header_len;
	frag = bpf_ntohs(ip->frag);
	if (frag & (IPV4_MF | IPV4_OFFS)) {
		p->frag_id = ip->id;
		p->slow_path = frag & IPV4_OFFS ? PACKET_FRAGMENT_LATER : PACKET_FRAGMENT_FIRST;
		if (p->slow_path == PACKET_FRAGMENT_LATER)
			return PARSE_OK;
	}
	return parse_ports(data, data_end, p, p->ip_len - header_len);
}

/*
 * Skips extension headers (RFC 8200 section 4). Authentication and encryption headers end the loop as "other protocol":
 * the data after them cannot be changed. Routing headers are skipped even if they have segments left.
 */
static __noinline int parse_ipv6_headers(void *data, void *data_end, struct packet *p)
{
	__u32 offset = p->l4;
	__u8 next = p->proto;

#pragma unroll
	for (int i = 0; i < PARSE_IPV6_HEADERS; i++) {
		__u8 *header;

		if (next != PROTO_HOPOPTS && next != PROTO_ROUTING && next != PROTO_DSTOPTS && next != PROTO_FRAGMENT)
			break;
		if (offset > 512)
			return WEIR_PASS_HEADERS;
		header = data + offset;
		if ((void *)(header + 8) > data_end)
			return WEIR_DROP_TOO_SHORT;
		if (next == PROTO_FRAGMENT) {
			__u16 frag = bpf_ntohs(*(__be16 *)(header + 2));

			p->frag_offset = offset;
			if (frag & ~0x6) { /* except an atomic fragment (RFC 6946), which is an ordinary packet */
				p->frag_id = *(__u32 *)(header + 4);
				p->slow_path = frag & ~0x7 ? PACKET_FRAGMENT_LATER : PACKET_FRAGMENT_FIRST;
			}
			offset += 8;
			next = header[0];
			if (p->slow_path == PACKET_FRAGMENT_LATER)
				break;
			continue;
		}
		next = header[0];
		offset += (header[1] + 1) * 8;
	}
	if (next == PROTO_HOPOPTS || next == PROTO_ROUTING || next == PROTO_DSTOPTS || next == PROTO_FRAGMENT)
		if (p->slow_path != PACKET_FRAGMENT_LATER)
			return WEIR_PASS_HEADERS;
	if (offset > 1024)
		return WEIR_PASS_HEADERS;
	p->proto = next;
	p->l4 = offset;
	return PARSE_OK;
}

static __always_inline int parse_ipv6(void *data, void *data_end, struct packet *p)
{
	struct ipv6_header *ip = packet_l3(data, p);
	__u32 payload;

	if ((void *)(ip + 1) > data_end)
		return WEIR_DROP_TOO_SHORT;
	p->family = 6;
	p->src = addr_from_v6(ip->src);
	p->dst = addr_from_v6(ip->dst);
	if ((bpf_ntohl(ip->flow) >> 28) != 6)
		return WEIR_DROP_MALFORMED;
	payload = bpf_ntohs(ip->payload_len);
	p->ip_len = payload + IPV6_LEN;
	p->proto = ip->next;
	p->l4 = p->l3 + IPV6_LEN;
	if (p->proto != PROTO_TCP && p->proto != PROTO_UDP && p->proto != PROTO_ICMPV6) {
		int verdict = parse_ipv6_headers(data, data_end, p);

		if (verdict != PARSE_OK)
			return verdict;
		if (p->slow_path == PACKET_FRAGMENT_LATER)
			return PARSE_OK;
	}
	if ((__u32)(p->l4 - p->l3) > p->ip_len)
		return WEIR_DROP_BAD_LENGTH;
	if (p->l4 > 1100)
		return WEIR_PASS_HEADERS;
	return parse_ports(data, data_end, p, p->ip_len - (p->l4 - p->l3));
}

static __always_inline int parse_packet(void *data, void *data_end, struct packet *p)
{
	struct eth_header *eth = data;
	__u32 offset = ETH_HEADER_LEN;
	__be16 type;

	if ((void *)(eth + 1) > data_end)
		return WEIR_DROP_TOO_SHORT;
	type = eth->type;
#pragma unroll
	for (int i = 0; i < PARSE_VLAN_TAGS; i++) {
		__be16 *tag = data + offset;

		if (type != bpf_htons(ETHERTYPE_VLAN) && type != bpf_htons(ETHERTYPE_VLAN_S))
			break;
		if ((void *)(tag + 2) > data_end)
			return WEIR_DROP_TOO_SHORT;
		type = tag[1];
		offset += VLAN_TAG_LEN;
	}
	p->l3 = offset;
	p->slow_path = PACKET_PLAIN;
	if (type == bpf_htons(ETHERTYPE_IPV4))
		return parse_ipv4(data, data_end, p);
	if (type == bpf_htons(ETHERTYPE_IPV6))
		return parse_ipv6(data, data_end, p);
	return WEIR_PASS_NOT_IP;
}

#endif
