/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Structs shared by the real server's programs and user space. crates/weir-dataplane/src/real_server/ mirrors this file
 * and does not load an object whose maps have different sizes.
 */
#ifndef WEIR_REAL_SERVER_ABI_H
#define WEIR_REAL_SERVER_ABI_H

#include <linux/types.h>
#include "abi/weir_abi.h"

#define RS_HOST_ADDRESSES_MAX    512 /* addresses of this host */
#define RS_VIPS_MAX   1024
#define RS_RANGES_MAX 16 /* port ranges of one VIP, or of one mark */
#define RS_EXCEPT_MAX 256
#define RS_GUE_MAX    16
#define RS_FRAGS_MAX  4096

/* weir_rs_vips: VIP -> the tunnels that may carry its packets, and its ports. */
#define RS_TUNNEL_IPIP 1
#define RS_TUNNEL_GUE  2
#define RS_TUNNEL_GRE  4
struct rs_ports {
	__u16 first; /* host order, inclusive */
	__u16 last;
};
struct rs_vip {
	__u32 tunnels;
	__u32 len;
	struct rs_ports ports[RS_RANGES_MAX];
};

/*
 * weir_rs_marks: DSCP -> VIPs to restore as the destination. The row of DSCP 0 contains the VIPs whose replies are
 * rewritten.
 */
struct rs_mark_key {
	__u8 family; /* 4 or 6 */
	__u8 dscp;
	__u8 pad[2];
};
struct rs_mark_entry {
	struct weir_addr vip;
	struct rs_ports ports;
	__u32 pad;
};
struct rs_mark {
	__u32 len;
	__u32 pad;
	struct rs_mark_entry entries[RS_RANGES_MAX];
};

/*
 * weir_rs_except: clients that receive replies without rewriting, by the longest prefix of the canonical 128-bit form.
 */
struct rs_prefix {
	__u32 prefix_len;
	__u8 addr[16];
};

/* weir_rs_frags: the VIP of a datagram's first fragment; later fragments have no ports. */
struct rs_frag_key {
	struct weir_addr src;
	struct weir_addr dst;
	__u32 id;
	__u8 proto;
	__u8 egress;
	__u8 pad[2];
};

/* weir_rs_counts: the packet counters; the values are indexes into a per-CPU array. Numbers are never reused. */
enum rs_count {
	RS_DECAPSULATED = 0,
	RS_TURNED_BACK = 1,       /* marked packets, destination set to the VIP */
	RS_REPLY_REWRITTEN = 2,   /* replies, source set to the VIP */
	RS_ERROR_TRANSLATED = 3,  /* ICMP errors, either direction */
	RS_PASS_NOT_VIP = 4,      /* tunnel packet whose inner destination is not a VIP of that tunnel */
	RS_PASS_FRAGMENT = 5,     /* fragment of a tunnel packet, or later fragment without a known first fragment */
	RS_PASS_HEADERS = 6,      /* unsupported tunnel options or extension headers */
	RS_PASS_EXCEPT = 7,       /* reply to a client listed with --except */
	RS_DROP_MALFORMED = 8,    /* tunnel packet too short, or without an inner IP packet */
	RS_DROP_ECN = 9,          /* outer CE, but the inner packet is not ECN-capable (RFC 6040 section 4.2) */
	RS_DROP_FAILED = 10,      /* the kernel failed to modify the packet */
	RS_SECOND_HOP = 11,       /* packet of an unknown connection, sent to the second hop */
	RS_COUNT_MAX = 12,
};

#endif
