/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The interface between the data plane and user space: keys, values, reasons and limits.
 *
 * crates/weir-abi mirrors this file, and a test compares both with the object's BTF. Rules: padding is explicit,
 * alignment is natural, fields in network order have the type __be16 or __be32 or are documented as such, and times are
 * in ticks.
 */
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

/*
 * Increment WEIR_ABI_FLOW_LAYOUT when the meaning of weir_bucket or weir_flow_cold changes, so that flows are migrated.
 * Keep the previous struct unchanged in this header while WEIR_ABI_FLOW_LAYOUT_OLDEST includes its layout; see
 * lib/flow_layout.h.
 */
#define WEIR_ABI_VERSION            1
#define WEIR_ABI_FLOW_LAYOUT        3
#define WEIR_ABI_FLOW_LAYOUT_OLDEST 2

/* One tick is 2^30 ns (1.07 s) of CLOCK_MONOTONIC, so each packet needs a shift instead of a division. */
#define WEIR_TICK_SHIFT 30

/* An address in canonical 128-bit form, network order; IPv4 is ::ffff:a.b.c.d (RFC 4291 section 2.5.5.2). */
struct weir_addr {
	__u64 hi;
	__u64 lo;
};

/* ---- services ---------------------------------------------------------------------------------------------------- */

/*
 * weir_vips: service addresses and SNAT source addresses. An address that matches the filter but is not in this map is
 * a false positive of the filter.
 */
#define WEIR_VIP_ECHO   1 /* reply to ICMP echo; set for every VIP of an L4 service */
#define WEIR_VIP_RANGES 2 /* weir_vip.ranges_* describe port ranges */
#define WEIR_VIP_SNAT   4 /* SNAT uses the address as a source, so replies are sent to it */
#define WEIR_VIP_SILENT 8 /* leave ICMP echo to the stack: the director does not accept packets for the address */
struct weir_vip {
	__u32 flags;
	__u32 any_tcp;    /* service for every other TCP port, 0 = none */
	__u32 any_udp;
	__u32 ranges_at;  /* index in weir_tables of the first struct weir_range; sorted by (proto, first) */
	__u32 ranges_len;
	__u32 pad;
};

struct weir_range {
	__u16 first; /* host order, inclusive */
	__u16 last;
	__u8 proto;
	__u8 pad[3];
	__u32 service;
	__u32 pad2;
};

/*
 * weir_listeners: exact listeners, and firewall marks. The key of a firewall mark has proto 0, the mark in the last
 * word of addr, and the family (4 or 6) as the port.
 */
struct weir_listener {
	struct weir_addr addr;
	__be16 port;
	__u8 proto;
	__u8 pad[5];
};

/* weir_services: one row per service, index 0 unused. User space replaces `extent` with one aligned 32-bit store. */
#define WEIR_SERVICE_DROP_NO_SERVER 1 /* no_server = "drop"; else ICMP port unreachable */
#define WEIR_SERVICE_SNAT           2
/* strict_ipvs: dh/sh/mh do not skip unavailable servers, and UDP flows count as inactive */
#define WEIR_SERVICE_STRICT         4
#define WEIR_SERVICE_ONE_PACKET     8 /* each UDP packet is scheduled separately and creates no entry */

/* Values of weir_service.template_scope: the scope of a persistent client's template. */
#define WEIR_TEMPLATE_PORT    0 /* one protocol, VIP and port */
#define WEIR_TEMPLATE_VIP     1 /* one protocol and VIP, any port */
#define WEIR_TEMPLATE_SERVICE 2 /* all listeners of the service */
struct weir_service {
	__u32 flags;
	__u32 extent;   /* index of struct weir_extent in weir_tables; 0 = no servers */
	__u32 snat_at;  /* index in weir_tables of the first struct weir_addr, of the service's family */
	__u16 snat_len;
	__u16 snat_port_first; /* host order, inclusive */
	__u16 snat_port_last;
	__u8 dscp; /* L3DSR DSCP, 0 = unchanged */
	__u8 pad;
	__u32 generation; /* changes when the row is reused for another service */
	__u32 template_ticks;   /* timeout of persistence templates, 0 = no persistence */
	__u8 template_prefix4;  /* prefix length of the client's network, 1 to 32 */
	__u8 template_prefix6;  /* 1 to 128 */
	__u8 template_scope;    /* WEIR_TEMPLATE_* */
	__u8 pad2;
};

/* Schedulers. The numbers are part of the ABI and are never reused. */
enum weir_scheduler {
	WEIR_SCHED_NONE = 0,
	WEIR_SCHED_RR = 1,
	WEIR_SCHED_WRR = 2,
	WEIR_SCHED_LC = 3,
	WEIR_SCHED_WLC = 4,
	WEIR_SCHED_SED = 5,
	WEIR_SCHED_NQ = 6,
	WEIR_SCHED_FO = 7,
	WEIR_SCHED_OVF = 8,
	WEIR_SCHED_TWOS = 9,
	WEIR_SCHED_DH = 10,
	WEIR_SCHED_SH = 11,
	WEIR_SCHED_MH = 12,
	WEIR_SCHED_LBLC = 13,
	WEIR_SCHED_LBLCR = 14,
	WEIR_SCHED_MAGLEV = 15,
	WEIR_SCHED_P2C = 16,
	WEIR_SCHED_LEAST_TIME = 17,
};

#define WEIR_EXTENT_PORT     1 /* sh-port, mh-port: hash the source port too */
#define WEIR_EXTENT_FALLBACK 2 /* sh-fallback, mh-fallback: skip overloaded owners */
#define WEIR_EXTENT_REPAIR   4 /* skip quiesced and failed owners; off with strict_ipvs and no fallback flag */
#define WEIR_EXTENT_NETWORK  8 /* ip_hash: hash the first three bytes of an IPv4 source */

/*
 * weir_tables holds 16-byte elements. A service's extent starts with this header (five elements); lists and hash tables
 * can be anywhere in the map. While a service row refers to an extent, only the nodes of the extent's tree change.
 */
struct weir_extent {
	__u32 scheduler; /* enum weir_scheduler */
	__u32 flags;
	__u32 generation; /* a cursor with a different generation restarts at start_seq and start_weight */
	__u32 list_at;    /* struct weir_member for each usable server, newest first (descending seq); for fo as
			   * HAProxy's `first`, oldest first */
	__u32 list_len;
	__u32 hash_at;    /* the scheduler's hash table: __u32 dest ids, usable or not, four per element */
	__u32 hash_len;
	/* maglev table indexed by the flow hash, for maglev and for flows without an entry; __u32 dest ids as above */
	__u32 spread_at;
	__u32 spread_len; /* 0 = no usable server */
	__u32 max_weight;
	__u32 gcd;
	__u32 start_seq;    /* initial cursor: user space preserves it across changes to the list */
	__u32 start_weight;
	/* limit on a server's active flows for hash schedulers, in percent of its fair share; 0 = no limit */
	__u32 max_load;
	/* A long list has a winner tree or a sum tree. Packets update the nodes (lib/candidate.h). */
	__u32 tree_at;    /* the nodes, starting with node 0: __u32 positions in the list or sums, four per element */
	__u32 tree_width; /* number of nodes and of leaves, a power of two; 0 = no tree */
	__u64 weight;     /* sum of the weights in the list */
	/* maglev in a group: the table before the last change; dest id 0 = a removed server without a row */
	__u32 former_at;
	__u32 former_len; /* 0 = the servers do not forward to a second hop */
};

/*
 * Node 0 of a tree contains the scheduler's rule as bits: cost of an active flow:9, cost of an inactive flow:1, fixed
 * cost:1, ignore weights:1, idle servers first:1, only servers with active ≤ weight:1, sum tree:1. A sum tree sums
 * active flows if their cost is not 0, otherwise the weights of servers below their thresholds. Sums saturate at 2^32 -
 * 1.
 */
#define WEIR_RULE_WLC 768
#define WEIR_RULE_LC  2816
#define WEIR_RULE_SED 1025
#define WEIR_RULE_NQ  5121
#define WEIR_RULE_FO  1024
#define WEIR_RULE_OVF 9216
#define WEIR_RULE_SUM_WEIGHT 16384
#define WEIR_RULE_SUM_ACTIVE 16385

struct weir_member {
	__u32 seq;    /* sequence number of the addition, ascending; 0 is not used */
	__u32 dest;
	__u32 weight; /* effective weight, > 0 */
	__u32 live;   /* weir_live index of the counts for schedulers */
};

/* weir_cursors: scheduler state that packets change, one cache line per service. */
struct weir_cursor {
	__u32 lock;
	__u32 generation; /* extent generation for which `seq` and `current_weight` are valid */
	__u32 seq;        /* seq of the last chosen member, 0 = before the first */
	__u32 hint;       /* that member's position in the list, checked against seq before use */
	__s32 current_weight;
	__u32 draws; /* random numbers drawn, counted only with weir_settings.draw_seed */
	__u32 pad[10];
};

/* weir_localities (LRU hash): the servers of a destination address for lblc and lblcr. */
struct weir_locality_key {
	struct weir_addr addr;
	__u32 service;
	__u32 generation; /* generation of the service row */
	__u32 scheduler;
	__u32 pad;
};
#define WEIR_LOCALITY_SERVERS 16
struct weir_locality {
	__u32 lock;
	__u32 len;
	__u32 last_use;    /* tick */
	__u32 last_change; /* tick */
	__u32 dests[WEIR_LOCALITY_SERVERS]; /* in the order of addition; lblc has one */
};

/* ---- servers ----------------------------------------------------------------------------------------------------- */

enum weir_forward {
	WEIR_FORWARD_NONE = 0,
	WEIR_FORWARD_NAT = 1,
	WEIR_FORWARD_DIRECT = 2,
	WEIR_FORWARD_TUNNEL = 3,
	WEIR_FORWARD_L3DSR = 4,
	/* Does not forward packets: the connect() hooks select the server (weir_socket.h). */
	WEIR_FORWARD_SOCKET = 5,
};

enum weir_tunnel {
	WEIR_TUNNEL_IPIP = 0,
	WEIR_TUNNEL_GUE = 1,
	WEIR_TUNNEL_GRE = 2,
};

#define WEIR_TUNNEL_CSUM    1 /* outer UDP or GRE checksum over the whole packet */
#define WEIR_TUNNEL_REMCSUM 2 /* GUE remote checksum offload */

#define WEIR_DEST_LIVE       1   /* the row is in use */
#define WEIR_DEST_USABLE     2   /* takes new flows: up, weight > 0 */
#define WEIR_DEST_LOCAL      4   /* the address is local to the director: packets are passed to the stack */
#define WEIR_DEST_STRICT     8   /* UDP flows count as inactive */
#define WEIR_DEST_SNAT       16  /* nat with source translation */
#define WEIR_DEST_RESET      32  /* removed with on_remove = "reset" */
#define WEIR_DEST_RESCHEDULE 64  /* removed with on_remove = "reschedule" */

/* weir_dest.policy: flags needed only for new flows or after the server was removed. */
#define WEIR_POLICY_PERSISTENT 1 /* takes flows of persistent clients: up, any weight */
#define WEIR_POLICY_EXPIRE     2 /* with WEIR_DEST_RESCHEDULE: the flow ends; only a packet that can start a flow
				  * is rescheduled (expire_nodest_conn) */
#define WEIR_POLICY_SILENT     4 /* with WEIR_DEST_RESET: packets are dropped while the entry exists, as in IPVS */
#define WEIR_POLICY_DOWN       8 /* health checks failed: a SYN of an existing flow is rescheduled */

/*
 * weir_dests: one row per server in a service (IPVS's destination), index 0 unused; flow entries contain a 20-bit
 * index. A row is one cache line with everything that a packet of an established flow needs, except the next hop.
 */
struct weir_dest {
	struct weir_addr addr;
	struct weir_addr tunnel_source; /* outer source address, same family as addr */
	__u32 service;
	__u32 live;     /* weir_live index of the counts for schedulers, over all services of the pool */
	__be16 port;    /* 0 = the port that the client used */
	__u8 forward;   /* enum weir_forward */
	__u8 flags;
	__u8 tunnel;    /* enum weir_tunnel */
	__u8 tunnel_flags;
	__be16 tunnel_port;
	__u8 dscp;      /* L3DSR DSCP, from the service */
	__u8 family;    /* family of addr: 4 or 6 */
	__u8 policy;    /* WEIR_POLICY_* */
	__u8 pad;
	__u32 generation; /* changes when the row is reused for another server */
	__u32 place;      /* 1 + position in the service's list, 0 = not in it; can be out of date during a change */
	__u32 sibling;    /* next row in the ring of this server's rows in its pool's services; 0 = counts not shared */
};

#define WEIR_DEST_BITS 20
#define WEIR_DESTS_MAX (1u << WEIR_DEST_BITS)
/* Maximum number of sibling rows whose trees a count change updates. */
#define WEIR_SIBLINGS_MAX 64

/*
 * weir_live: flow counts, updated by the CPU whose update of the flow succeeds; index = dest id, one cache line per
 * server in a service. Counts that a pool shares are in rows after the dest rows (weir_dest.live).
 */
struct weir_live {
	__u64 active;
	__u64 inactive;
	__u64 total;    /* flows bound so far */
	__u64 stateless; /* new flows forwarded by the spread table without an entry */
	__u32 overloaded; /* 1 = reached its upper threshold, not scheduled; used only in row weir_dest.live */
	__u32 persistent; /* the server's templates */
	__u32 upper; /* the server gets no new flows at this number of flows, 0 = no limit; written by user space */
	__u32 lower; /* the server gets new flows again below this number; 0 = three quarters of upper */
	__u64 syns;     /* TCP SYNs of flows that were not established, including retransmissions */
	__u64 answered; /* flows that became established */
};

/* weir_traffic: per CPU, index = dest id. Bytes are counted on the client side and include the IP header. */
struct weir_traffic {
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
};

/* ---- next hops --------------------------------------------------------------------------------------------------- */

#define WEIR_HOPS_PER_DEST 4
#define WEIR_HOP_VLAN_KEEP 0xffff /* keep the frame's tags */

/*
 * weir_hops: WEIR_HOPS_PER_DEST rows per dest, selected by flow hash. Each word is written atomically; a writer clears
 * `link` first and sets it last, and a reader that sees `link` change takes the slow path.
 */
struct weir_hop {
	__u64 link;   /* ifindex:32 | flags:8 | mtu:16 (0 = unknown), see WEIR_HOP_* */
	__u64 dmac;   /* six bytes in memory order, then vlan tag to push:16 (0 = none, WEIR_HOP_VLAN_KEEP) */
	__u64 smac;   /* six bytes in memory order, then 16 spare bits */
	__u64 renewed; /* tick of the last refresh */
};
#define WEIR_HOP_READY  1 /* both MAC addresses are set */
#define WEIR_HOP_SEND   2 /* XDP can send on the device */
#define WEIR_HOP_LOCAL  4
#define WEIR_HOP_STATIC 8 /* filled by user space: bpf_fib_lookup fails without IP forwarding */
#define WEIR_HOP_REDIRECT 16 /* redirect even to the ingress device, see WEIR_DEVICE_REDIRECT */
#define WEIR_HOP_IFINDEX(link) ((__u32)((link) >> 32))
#define WEIR_HOP_FLAGS(link)   ((__u8)((link) >> 16))
#define WEIR_HOP_MTU(link)     ((__u16)(link))

/* The MAC address of the devices weir_settings.mark_entry and mark_exit: 02:57:65:69:72:00 in memory order. */
#define WEIR_MARK_MAC 0x7269655702

/* weir_clients: next hops toward clients for nat replies, direct-mapped by address. */
#define WEIR_CLIENT_SLOTS 4096
struct weir_client {
	struct weir_addr addr;
	struct weir_hop hop;
	__u64 pad[2];
};

/* weir_devices: ifindex -> XDP capabilities. The tc program sends packets for devices without a row. */
#define WEIR_DEVICE_SEND 1 /* has a working ndo_xdp_xmit, or XDP in generic mode */
/*
 * XDP_TX does not wake the receiver, but a redirect does: veth_xdp_flush requires a program on the peer, ndo_xdp_xmit
 * only GRO (drivers/net/veth.c). With XDP_TX, frames would stay in the peer's ring until other traffic arrives.
 */
#define WEIR_DEVICE_REDIRECT 2
struct weir_device {
	__u32 flags;
	__u32 port;  /* ifindex to send on: the lower device of a VLAN device, otherwise the device itself */
	__u32 vlan;  /* tag to push, 0 = none */
	__u32 mtu;
};

/*
 * weir_macs: for each ingress device, the destination MAC addresses of frames for this host. The map is a hash table of
 * 64-bit words, unordered within a row. A word contains the address in memory order, followed by the low half of the
 * ifindex; 0 = free. A device with listed addresses also has a word with WEIR_MAC_LISTED, which is not a valid address
 * of a device.
 */
#define WEIR_MAC_ROWS_LOG2 8
#define WEIR_MAC_ROW_WORDS 8
#define WEIR_MAC_LISTED    1 /* 01:00:00:00:00:00 in memory order */
/* The last word of a row that is too short for its addresses: every address that hashes to the row is accepted. */
#define WEIR_MAC_ANY       0xffffffffffffffff
/*
 * An additional row. If the addresses of only one device are listed, the row contains the first WEIR_MAC_SINGLE_WORDS
 * addresses, each with WEIR_MAC_SINGLE in place of the ifindex. A lookup in this row needs neither the ifindex nor the
 * hash.
 */
#define WEIR_MAC_ROW_SINGLE   256 /* 1 << WEIR_MAC_ROWS_LOG2 */
#define WEIR_MAC_SINGLE_WORDS 2
#define WEIR_MAC_SINGLE	      0x1000000000000 /* 1 << 48 */
struct weir_mac_row {
	__u64 words[WEIR_MAC_ROW_WORDS];
};

/* Metadata of a packet that XDP passes to the tc ingress program. */
#define WEIR_META_MAGIC      0x57656972 /* "Weir" */
#define WEIR_META_UNFINISHED 0x57656975 /* unmodified packet, which the tc program balances; no other field is used */
struct weir_meta {
	__u32 magic;
	__u32 ifindex;
	__u32 family; /* family of next_hop: 4 or 6; 0 = route by the packet's destination */
	__u8 next_hop[16]; /* IPv4 in the first four bytes */
};

/* ---- flows ------------------------------------------------------------------------------------------------------- */

/*
 * Set in the index of an entry in the old table (weir_flows_old), whose flows are moved to the current table. Programs
 * use indexes with this bit, and so do links from the current table; links within the old table are stored without it.
 */
#define WEIR_INDEX_OLD 0x80000000

/*
 * weir_flows: buckets of two cache lines. id = tag:44 | dest:20, 0 = free. meta, from the top: generation:8 kind:4
 * state:4 flags:8 seen:32 (tick) spare:8. id is published last; the CPU that sets meta to WEIR_KIND_FREE clears id.
 */
#define WEIR_BUCKET_SLOTS 7
struct weir_entry {
	__u64 id;
	__u64 meta;
};
struct weir_bucket {
	__u32 lock;
	__u32 stashed; /* counts of this bucket's entries in the stash: four bits for each of WEIR_STASH_PAIRS pairs */
	__u64 spilled; /* the same for other buckets of the page: four bits for each of WEIR_SPILL_PAIRS pairs */
	struct weir_entry slots[WEIR_BUCKET_SLOTS];
};
/* Alternatives to the home bucket, see lib/bucket.h. */
#define WEIR_SPILL_PAIRS 16 /* pairs of buckets in a page */
#define WEIR_STASH_PAIRS 8  /* pairs of stash buckets that a home bucket can use */

/* The bucket of flow layout 2, which is frozen. Entries and cold records are the same as in the current layout. */
struct weir_bucket_2 {
	__u32 lock;
	__u32 spilled; /* number of this home bucket's entries in their second bucket */
	__u32 pad[2];
	struct weir_entry slots[WEIR_BUCKET_SLOTS];
};

/*
 * weir_hints: for each bucket, a bitmap indexed by the low three bits of a tag; a bit is set while the bucket can be
 * the home bucket of an entry with such a tag.
 */
#define WEIR_HINTS 64 /* buckets per element */
struct weir_hints {
	__u8 tags[WEIR_HINTS];
};

/*
 * weir_marks: one row for TCP and one for UDP. An element, indexed by the top bits of the hash, is the tick until which
 * flows without an entry can exist; 0 = none.
 */
#define WEIR_MARKS_TCP 0
#define WEIR_MARKS_UDP 1
#define WEIR_MARKS_ROWS 2
#define WEIR_MARKS_LOG2 12
struct weir_marks {
	__u32 until[1 << WEIR_MARKS_LOG2];
};

#define WEIR_META_GENERATION_SHIFT 56
#define WEIR_META_KIND_SHIFT       52
#define WEIR_META_STATE_SHIFT      48
#define WEIR_META_FLAGS_SHIFT      40
#define WEIR_META_SEEN_SHIFT       8

#define WEIR_KIND_FREE    0
#define WEIR_KIND_FORWARD 1 /* client to VIP */
#define WEIR_KIND_REVERSE 2 /* server to client with nat; state and counts are in the forward entry */
/* Used in the old table. With another kind: the entry is being moved to the current table. Alone: it has been moved. */
#define WEIR_KIND_MOVED   8
/* persistence template; state NONE, or ESTABLISHED after one of its TCP flows was established ("assured") */
#define WEIR_KIND_TEMPLATE 3

#define WEIR_FLOW_AWAY     1 /* not in its home bucket */
#define WEIR_FLOW_ACTIVE   2 /* the flow counts as active; clear = inactive */
#define WEIR_FLOW_ONESIDED 4 /* replies bypass the director: the one-sided TCP table applies */
#define WEIR_FLOW_TEMPLATE 8 /* flow of a template */

/* Set in weir_flow_cold.proto of a template, with the protocol (0 = all), so that no packet matches the tuple. */
#define WEIR_PROTO_TEMPLATE 0x80

/*
 * weir_flows_cold: same index as the entry (bucket * 7 + slot); written before id, read for nat, ICMP, SYNs and
 * listings. In a template, src is the client's network, sport is 0, and dst and dport depend on WEIR_TEMPLATE_* (for a
 * whole service, dst is the service's row number as an address).
 */
struct weir_flow_cold {
	struct weir_addr src;
	struct weir_addr dst;
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 peer_generation;
	__u8 family;   /* 4 or 6 */
	__u8 template_generation;
	__u32 peer;     /* nat: entry index of the other direction, WEIR_NO_INDEX = none */
	__u32 template; /* entry index of the flow's template, WEIR_NO_INDEX = none */
	__u32 created;  /* tick; in a template: number of its live flows */
	__u32 service;
	__u32 dest_generation; /* generation of the dest row, which changes when the row is reused */
	__u32 ifindex; /* ingress device of the first packet, used for replies without a route; in a template: the
			* timeout in ticks */
};
#define WEIR_NO_INDEX 0xffffffff

/* IPVS's states in IPVS's order (include/net/ip_vs.h), followed by the only UDP state. */
enum weir_state {
	WEIR_STATE_NONE = 0,
	WEIR_STATE_ESTABLISHED = 1,
	WEIR_STATE_SYN_SENT = 2,
	WEIR_STATE_SYN_RECV = 3,
	WEIR_STATE_FIN_WAIT = 4,
	WEIR_STATE_TIME_WAIT = 5,
	WEIR_STATE_CLOSE = 6,
	WEIR_STATE_CLOSE_WAIT = 7,
	WEIR_STATE_LAST_ACK = 8,
	WEIR_STATE_LISTEN = 9,
	WEIR_STATE_SYNACK = 10,
	WEIR_STATE_UDP = 11,
};

/* Input and output of weir_move, in place of the packet. weir_sync_insert uses only `count`. */
struct weir_move {
	__u32 position; /* first bucket of the old table */
	__u32 count;    /* number of buckets */
	__u32 moved;    /* flows moved to the current table; both directions count as one */
	__u32 lost;     /* flows lost because no slot was free */
};

/* ---- flow synchronization ---------------------------------------------------------------------------------------- */

/*
 * weir_sync_rings: entry indexes of flows whose state has changed, for user space. CPUs whose numbers are equal modulo
 * the ring count share a ring. A slot contains the entry index in the lower half, and the low half of 1 + position in
 * the upper half, so that a reader detects a slot that has not been written yet or has been overwritten.
 */
#define WEIR_SYNC_RINGS 8
#define WEIR_SYNC_RING_SLOTS 16384
struct weir_sync_ring {
	__u64 head; /* next position */
	__u64 pad[7];
	__u64 slots[WEIR_SYNC_RING_SLOTS];
};

/* weir_sync_batch: flows from a peer, written by user space before it runs weir_sync_insert on them. */
#define WEIR_SYNC_BATCH 256
struct weir_sync_flow {
	struct weir_addr src;
	struct weir_addr dst;
	struct weir_addr snat; /* the SNAT source address of packets to the server */
	__be16 sport;
	__be16 dport;
	__be16 snat_port; /* 0 = no SNAT */
	__u8 proto;
	__u8 family;
	__u8 kind; /* WEIR_KIND_FORWARD or WEIR_KIND_TEMPLATE */
	__u8 state;
	__u8 active; /* UDP: whether the flow counts as active */
	__u8 result; /* WEIR_SYNC_*, written by the program */
	__u32 dest;
	__u32 dest_generation;
	__u32 service;
	__u32 idle;    /* ticks since the last packet */
	__u32 age;     /* ticks since the start */
	__u32 timeout; /* timeout of a template, in ticks */
	__u32 ifindex; /* device toward the client, used for replies without a route; 0 = unknown */
	__u32 entry_index; /* written by the program; WEIR_NO_INDEX = none */
	__u32 seen;        /* written by the program: tick of the entry's last packet */
	__u32 pad[2];
};
#define WEIR_SYNC_INSERTED 1
#define WEIR_SYNC_UPDATED  2
#define WEIR_SYNC_OLDER    3 /* this director's entry is more recent than the peer's record */
#define WEIR_SYNC_CONFLICT 4 /* a different live flow has the tag or the reverse tuple */
#define WEIR_SYNC_FULL     5 /* no free slot */
#define WEIR_SYNC_BUSY     6 /* a lock could not be acquired */
#define WEIR_SYNC_GONE     7 /* the server row is no longer in use, or does not match the flow */

/* weir_fragments (LRU hash): where the first fragment of a datagram was forwarded. */
struct weir_fragment_key {
	struct weir_addr src;
	struct weir_addr dst;
	__u32 id;
	__u8 proto;
	__u8 pad[3];
};
struct weir_fragment {
	struct weir_addr new_src; /* zero = unchanged */
	struct weir_addr new_dst;
	__u32 dest;
	__u32 tick;
	__u32 hash;  /* the flow's hash, which selects the next hop; with `reverse`, the ingress ifindex of requests */
	__u8 reverse;
	__u8 pad[3];
};

/* ---- settings and state ------------------------------------------------------------------------------------------ */

/* weir_settings: one row, which user space changes at run time. */
#define WEIR_SETTINGS_LOCAL_NAT     1 /* a nat server is the director itself: tc egress handles its replies */
#define WEIR_SETTINGS_LEARN_CLIENTS 2 /* bpf_fib_lookup fails (no IP forwarding): nat replies use the reverse path
				       * of the client's packets */
#define WEIR_SETTINGS_BEGIN_IN_OLD 4 /* programs that use only the old table may still run; new flows are inserted
				      * there, where old and new programs find them */
#define WEIR_SETTINGS_SLOPPY_TCP     8  /* sloppy_tcp: any TCP packet without RST starts a flow */
#define WEIR_SETTINGS_REUSE          16 /* conn_reuse_mode is not 0: a SYN on a closed flow starts a new flow */
#define WEIR_SETTINGS_REUSE_FIN_WAIT 32 /* bit 1 of conn_reuse_mode: the same for a one-sided flow in FIN_WAIT */
#define WEIR_SETTINGS_EXPIRE_NODEST  64 /* expire_nodest_conn: the same for a flow of an unusable server */
#define WEIR_SETTINGS_DROP_ENTRY     256 /* drop_entry: the sweep removes idle entries at random */
/* cache_bypass: marked packets without a server are routed to their destination */
#define WEIR_SETTINGS_CACHE_BYPASS   512
#define WEIR_SETTINGS_SCHEDULE_ICMP  1024 /* schedule_icmp: an ICMP error without a flow creates a flow */
#define WEIR_SETTINGS_UNFINISHED     2048 /* XDP can receive packets with partial checksums, and passes them to tc */
#define WEIR_SETTINGS_SYNC           4096 /* flows that change state are queued in weir_sync_rings */
#define WEIR_SETTINGS_PROBES         128 /* health probes can use a service's forwarding method: see weir_probes */
struct weir_settings {
	__u32 timeouts[16]; /* ticks, by enum weir_state */
	__u32 syn_budget;   /* new entries per CPU and second, TCP and UDP */
	__u32 reject_budget; /* ICMP errors and resets per CPU and second */
	__u32 flags;
	__u32 untracked_ticks; /* lifetime of an untracked mark after a SYN; after a datagram it is the UDP timeout */
	__u32 mark_entry; /* ifindex of the device that marked packets are routed to, 0 = none */
	__u32 mark_exit;  /* ifindex of its peer, where XDP receives them */
	__u32 latency_sample; /* flows per 65536 whose latency is estimated; 0 = off, see weir_latency_flows */
	__u32 pad;
	__u64 latency_clock; /* 0 = the kernel's clock; otherwise the estimator's time in ns, for tests */
	__u32 pad2[3];
	__u32 lblc_expiration;  /* ticks after which lblc removes an unused address */
	__u32 lblcr_expiration; /* the same for lblcr, which then also removes a server from an unchanged set */
	/* 0 = twos and p2c use the kernel's generator; otherwise draw n of a service is derived from the seed and n */
	__u32 draw_seed;
};

/* weir_budget: the SYN and reject budgets used in the current window, per CPU. */
struct weir_budget {
	__u32 syn_window;
	__u32 syn_used;
	__u32 reject_window;
	__u32 reject_used;
};

/* weir_sweeps: one row with the timer that expires flows without user space. */
struct weir_sweep_public {
	__u64 passes;
	__u64 expired;
	__u32 position;
	__u32 running;
};

/* weir_filters: Bloom filters of addresses; most other packets pass after one lookup. */
#define WEIR_FILTER_WORDS 8192 /* 64-bit words in each of the two filters; an address sets two bits of one word */
struct weir_filter {
	__u64 to[WEIR_FILTER_WORDS];   /* VIPs and SNAT addresses: tested with the destination */
	__u64 from[WEIR_FILTER_WORDS]; /* nat servers: tested with the source */
};

/* ---- latency ----------------------------------------------------------------------------------------------------- */

/* Phases of weir_latency_flow. */
#define WEIR_LATENCY_FREE    0
#define WEIR_LATENCY_SYN     1 /* the SYN was seen */
#define WEIR_LATENCY_OPEN    2 /* the handshake was seen */
#define WEIR_LATENCY_IGNORED 3 /* further packets of the flow yield no samples */

/* Flags of weir_latency_flow. */
#define WEIR_LATENCY_TIMESTAMPS 1 /* packets carry TCP timestamps */
#define WEIR_LATENCY_PENDING    2 /* a request has no response yet */
#define WEIR_LATENCY_LOSSY      4 /* a packet of the pending request may have been lost or retransmitted */
#define WEIR_LATENCY_OVERLAP    8 /* another request followed the pending request before the response */
#define WEIR_LATENCY_HELLO     16 /* the pending request is a TLS ClientHello */
#define WEIR_LATENCY_FINISHED  32 /* the next or the pending request contains the client's end of the TLS handshake */
#define WEIR_LATENCY_DATA      64 /* the client has sent payload */
#define WEIR_LATENCY_PROBE    128 /* payload that was seen before was sent again during the pending request */

/* Protocol of a flow, if detected. */
#define WEIR_LATENCY_OTHER 0
#define WEIR_LATENCY_TLS   1
#define WEIR_LATENCY_HTTP2 2 /* HTTP/2 without TLS */

/*
 * weir_latency_flows: the sampled flows, direct-mapped by flow hash. Only packets from client to server are seen; see
 * lib/latency.h. Times are in ns of CLOCK_MONOTONIC.
 */
#define WEIR_LATENCY_SLOTS_LOG2 13
struct weir_latency_flow {
	__u64 hash;       /* the flow hash */
	__u64 syn_ns;     /* arrival of the SYN */
	__u64 request_ns; /* arrival of the last payload */
	__u64 seen_ns;    /* arrival of the last packet */
	__s64 held_ns;    /* sample that is emitted unless a later response replaces it */
	__u32 lock;
	__u32 dest;
	__u32 server_ts;  /* TCP timestamp of the server's SYN-ACK */
	__u32 loop_ns;    /* time from the SYN to the client's ACK */
	__u32 ack;        /* highest acknowledgement */
	__u32 seq;        /* sequence number after the client's payload */
	__u32 acked;      /* bytes acknowledged in the window */
	__u32 window;     /* number of bytes that the server can send before its first response; 0 = none */
	__u32 sent;       /* payload bytes of the pending request */
	__u16 length;     /* length of the last payload, in bytes */
	__u8 phase;
	__u8 flags;
	__u8 held;        /* whether a sample is held */
	__u8 acks;        /* acknowledgements in the window, 3 at most */
	__u8 certain;     /* the response of the held sample was acknowledged without delay */
	__u8 protocol;    /* WEIR_LATENCY_OTHER to WEIR_LATENCY_HTTP2 */
	__u8 pad[4];
	__u64 pad2[5];
};

/* weir_latency_rings: samples for user space. CPUs whose numbers are equal modulo the ring count share a ring. */
#define WEIR_LATENCY_RINGS 64
#define WEIR_LATENCY_RING_SLOTS 512
#define WEIR_LATENCY_METHOD_TIMESTAMPS 0
#define WEIR_LATENCY_METHOD_GAPS       1
#define WEIR_LATENCY_METHOD_CONNECT    2 /* handshake time of a local client's connection */
struct weir_latency_sample {
	__s64 ns;
	__u32 dest;
	__u32 method;   /* WEIR_LATENCY_METHOD_* */
	__u64 sequence; /* 1 + position, written last */
	__u64 pad;
};
struct weir_latency_ring {
	__u64 head; /* next position */
	__u64 pad[7];
	struct weir_latency_sample samples[WEIR_LATENCY_RING_SLOTS];
};

/*
 * weir_costs: index = dest id, written by user space. Row 0 contains the time of the last update in ns of
 * CLOCK_MONOTONIC. If there was no update for WEIR_COST_STALE_NS, least-time behaves like lc.
 */
#define WEIR_COST_STALE_NS 1000000000
struct weir_cost {
	__u32 share;      /* weight / latency^1.5, relative to WEIR_COST_SHARE_MAX for the best server; 0 = unknown */
	__u32 latency_us; /* the estimate from which `share` was computed */
};
#define WEIR_COST_SHARE_MAX 65535
/* One in this many new flows is assigned by weight only, so that every server is measured. */
#define WEIR_COST_EXPLORE 32

/* ---- probes along a service's path ------------------------------------------------------------------------------- */

/*
 * weir_probes (LRU hash): connections of health probes. The packets of a probe are forwarded like a client's, with the
 * service's forwarding method and the VIP as destination. The probe's socket is connected to the server's address.
 */
struct weir_probe_key {
	struct weir_addr local;
	__be16 port; /* the socket's local port */
	__u8 proto;
	__u8 pad[5];
};
struct weir_probe {
	struct weir_addr server; /* the socket's remote address */
	struct weir_addr vip;    /* same family as server */
	__u8 forward;            /* enum weir_forward, except nat */
	__u8 tunnel;             /* enum weir_tunnel */
	__u8 tunnel_flags;
	__u8 dscp;
	__be16 tunnel_port;
	__u8 error_type; /* type of the last ICMP error about the connection; 0 = none */
	__u8 error_code;
	__u32 sent;     /* packets sent */
	__u32 answered; /* replies from the VIP */
	__u32 stray;    /* replies from the VIP with an unexpected source MAC */
	__u32 unturned; /* replies from the server's address instead of the VIP (L3DSR) */
	__u32 ifindex;  /* egress device */
	__u8 to_mac[6];
	__u8 from_mac[6];
};

#include "weir_reasons.h"
#include "weir_socket.h"
#include "weir_latency_reasons.h"

#endif
