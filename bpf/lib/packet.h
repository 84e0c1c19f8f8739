/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The parsed packet, and protocol headers in network layout. */
#ifndef WEIR_PACKET_H
#define WEIR_PACKET_H

#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include "abi/weir_abi.h"

#define ETH_HEADER_LEN 14
#define VLAN_TAG_LEN   4
#define IPV4_MIN_LEN   20
#define IPV6_LEN       40
#define TCP_MIN_LEN    20
#define UDP_LEN        8

#define ETHERTYPE_IPV4   0x0800
#define ETHERTYPE_IPV6   0x86dd
#define ETHERTYPE_VLAN   0x8100
#define ETHERTYPE_VLAN_S 0x88a8

#define PROTO_HOPOPTS  0
#define PROTO_ICMP     1
#define PROTO_IPIP     4
#define PROTO_TCP      6
#define PROTO_UDP      17
#define PROTO_IPV6     41
#define PROTO_ROUTING  43
#define PROTO_FRAGMENT 44
#define PROTO_GRE      47
#define PROTO_ICMPV6   58
#define PROTO_DSTOPTS  60

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* Values of __sk_buff.pkt_type, from linux/if_packet.h. */
#define SKB_TO_HOST	  0
#define SKB_TO_OTHER_HOST 3

#define IPV4_DF   0x4000
#define IPV4_MF   0x2000
#define IPV4_OFFS 0x1fff

struct eth_header {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
} __attribute__((packed));

struct ipv4_header {
	__u8 ihl : 4, version : 4;
	__u8 tos;
	__be16 total_len;
	__be16 id;
	__be16 frag;
	__u8 ttl;
	__u8 proto;
	__u16 csum;
	__be32 src;
	__be32 dst;
};

struct ipv6_header {
	__be32 flow; /* version:4 class:8 label:20 */
	__be16 payload_len;
	__u8 next;
	__u8 hops;
	__be32 src[4];
	__be32 dst[4];
};

struct tcp_header {
	__be16 src;
	__be16 dst;
	__be32 seq;
	__be32 ack;
	__u8 reserved : 4, offset : 4;
	__u8 flags;
	__be16 window;
	__u16 csum;
	__be16 urgent;
};

struct udp_header {
	__be16 src;
	__be16 dst;
	__be16 len;
	__u16 csum;
};

struct icmp_header {
	__u8 type;
	__u8 code;
	__u16 csum;
	__be32 rest;
};

/*
 * A parsed packet. Offsets are relative to the start of the frame and bounded by the parser; a stage that dereferences
 * them checks against data_end again, because the verifier does not track them across calls.
 */
struct packet {
	struct weir_addr src;
	struct weir_addr dst;
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 family; /* 4 or 6 */
	__u8 tcp_flags;
	__u8 slow_path; /* enum packet_slow_path */
	__u16 l3;
	__u16 l4;
	__u16 ip_len; /* bytes from l3 to the end of the IP packet */
	__u16 frag_offset; /* offset of the fragment header, for the fragment stage */
	__u32 frag_id;
	__u32 alternative; /* server row of the GUE second hop, 0 = none */
};

/* Masks that no parsed offset exceeds; the verifier needs the bound where the pointer is computed. */
#define L3_OFFSET_MASK 0x3f
#define L4_OFFSET_MASK 0x7ff

/* Hides a bound that the compiler knows but the verifier does not, so that the compiler emits the following check. */
#define VERIFIER_FORGET(x) asm volatile("" : "+r"(x))

static __always_inline void *packet_l3(void *data, const struct packet *p)
{
	__u64 offset = p->l3;

	VERIFIER_FORGET(offset);
	return data + (offset & L3_OFFSET_MASK);
}

static __always_inline void *packet_l4(void *data, const struct packet *p)
{
	__u64 offset = p->l4;

	VERIFIER_FORGET(offset);
	return data + (offset & L4_OFFSET_MASK);
}

/* Packets other than PACKET_PLAIN take the slow path. */
enum packet_slow_path {
	PACKET_PLAIN = 0,
	PACKET_ICMP,
	PACKET_FRAGMENT_FIRST, /* has ports */
	PACKET_FRAGMENT_LATER,
	PACKET_OTHER_PROTO,
};

#define V4_MAPPED bpf_htonl(0xffff)

static __always_inline struct weir_addr addr_from_v4(__be32 v4)
{
	struct weir_addr addr = { 0, (__u64)v4 << 32 | V4_MAPPED };

	return addr;
}

static __always_inline __be32 addr_to_v4(const struct weir_addr *addr)
{
	return addr->lo >> 32;
}

static __always_inline struct weir_addr addr_from_v6(const __be32 v6[4])
{
	struct weir_addr addr = { (__u64)v6[1] << 32 | v6[0], (__u64)v6[3] << 32 | v6[2] };

	return addr;
}

static __always_inline void addr_to_v6(const struct weir_addr *addr, __be32 v6[4])
{
	v6[0] = addr->hi;
	v6[1] = addr->hi >> 32;
	v6[2] = addr->lo;
	v6[3] = addr->lo >> 32;
}

static __always_inline int addr_equal(const struct weir_addr *a, const struct weir_addr *b)
{
	return ((a->hi ^ b->hi) | (a->lo ^ b->lo)) == 0;
}

static __always_inline int addr_is_v4(const struct weir_addr *addr)
{
	return addr->hi == 0 && (__u32)addr->lo == V4_MAPPED;
}

#endif
