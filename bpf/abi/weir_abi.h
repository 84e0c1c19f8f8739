/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Everything that the data plane shares with user space: keys, values, verdict reasons and limits.
 *
 * crates/weir-abi mirrors this file; a test compares both with the object's BTF, so a change here without one there fails.
 * Rules: explicit padding only, natural alignment, fields in network order are __be16/__be32 or say so, times are ticks.
 */
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

/*
 * Bump WEIR_ABI_FLOW_LAYOUT when weir_bucket or weir_flow_cold changes meaning: flows then migrate, they are not adopted. What
 * the struct was before stays in this header, frozen, for as long as WEIR_ABI_FLOW_LAYOUT_OLDEST says, and lib/flow_layout.h
 * tells the two apart.
 */
#define WEIR_ABI_VERSION            1
#define WEIR_ABI_FLOW_LAYOUT        3
#define WEIR_ABI_FLOW_LAYOUT_OLDEST 2

/* One tick is 2^30 ns (1.07 s) of CLOCK_MONOTONIC: a shift instead of a division on every packet. */
#define WEIR_TICK_SHIFT 30

/* An address in canonical 128-bit form, network order; IPv4 is ::ffff:a.b.c.d (RFC 4291 section 2.5.5.2). */
struct weir_addr {
	__u64 hi;
	__u64 lo;
};

/* ---- services -------------------------------------------------------------------------------------------------------- */

/* weir_vips: what a destination address is to Weir. Also answers "not ours" for a false positive of the address filter. */
#define WEIR_VIP_ECHO   1 /* answer ICMP echo: every VIP of an L4 service */
#define WEIR_VIP_RANGES 2 /* weir_vip.ranges_* describe port ranges */
#define WEIR_VIP_SNAT   4 /* the address is a source of snat: replies arrive here */
struct weir_vip {
	__u32 flags;
	__u32 any_tcp;    /* service for every other TCP port, 0 = none */
	__u32 any_udp;
	__u32 ranges_at;  /* first element of weir_tables: struct weir_range, sorted by (proto, first) */
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

/* weir_listeners: exact listeners; and firewall marks, under proto 0: the mark is the last word of addr, the packet's family (4 or
 * 6) the port. */
struct weir_listener {
	struct weir_addr addr;
	__be16 port;
	__u8 proto;
	__u8 pad[5];
};

/* weir_services: one row a service, index 0 unused. `extent` is replaced by one aligned 32-bit store. */
#define WEIR_SERVICE_DROP_NO_SERVER 1 /* no_server = "drop"; else ICMP port unreachable */
#define WEIR_SERVICE_SNAT           2
#define WEIR_SERVICE_STRICT         4 /* strict_ipvs: no repairs of dh/sh/mh, UDP flows are inactive */
#define WEIR_SERVICE_ONE_PACKET     8 /* every UDP packet is scheduled, none makes an entry */

/* What a persistent client's choice holds for: weir_service.template_scope. */
#define WEIR_TEMPLATE_PORT    0 /* one protocol, VIP and port */
#define WEIR_TEMPLATE_VIP     1 /* one protocol and VIP, any port */
#define WEIR_TEMPLATE_SERVICE 2 /* all that the service listens on */
struct weir_service {
	__u32 flags;
	__u32 extent;   /* first element of weir_tables: struct weir_extent; 0 = no server at all */
	__u32 snat_at;  /* first element of weir_tables: struct weir_addr each, same family as the service */
	__u16 snat_len;
	__u16 snat_port_first; /* host order, inclusive */
	__u16 snat_port_last;
	__u8 dscp; /* l3dsr mark, 0 = leave DSCP alone */
	__u8 pad;
	__u32 generation; /* changes when the row is given to another service */
	__u32 template_ticks;   /* persistence: how long a choice is remembered, 0 = none is */
	__u8 template_prefix4;  /* bits of the client's address that count, 1 to 32 */
	__u8 template_prefix6;  /* 1 to 128 */
	__u8 template_scope;    /* WEIR_TEMPLATE_* */
	__u8 pad2;
};

/* Schedulers: the numbers are the ABI, never reuse one. */
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
};

#define WEIR_EXTENT_PORT     1 /* sh-port, mh-port: the source port counts */
#define WEIR_EXTENT_FALLBACK 2 /* sh-fallback, mh-fallback: an overloaded owner is probed past */
#define WEIR_EXTENT_REPAIR   4 /* a quiesced or dead owner is probed past; off under strict_ipvs without a fallback flag */
#define WEIR_EXTENT_NETWORK  8 /* ip_hash: of an IPv4 source the first three octets count */

/*
 * weir_tables holds 16-byte elements. A service's extent starts with this header (five elements); lists and hash tables
 * lie anywhere in the map. An extent never changes after a service row names it, the nodes of its tree aside.
 */
struct weir_extent {
	__u32 scheduler; /* enum weir_scheduler */
	__u32 flags;
	__u32 generation; /* a cursor of another generation starts at start_seq and start_weight */
	__u32 list_at;    /* struct weir_member each, usable servers only, newest added first (descending seq); "first" of fo
			   * is the list the other way round */
	__u32 list_len;
	__u32 hash_at;    /* owners of the scheduler's hash table, usable or not: __u32 dest ids, four an element */
	__u32 hash_len;
	__u32 spread_at;  /* maglev table over the flow hash, for maglev and flows that get no entry; __u32 dest ids as above */
	__u32 spread_len; /* 0 = no usable server */
	__u32 max_weight;
	__u32 gcd;
	__u32 start_seq;    /* what a cursor of another generation becomes: user space carries it over a change of the list */
	__u32 start_weight;
	__u32 max_load; /* percent of a fair share of active flows that a hash may give a server, 0 = no bound */
	/* A list that is too long to be walked has a tree of winners or sums, of which packets change the nodes (lib/candidate.h): */
	__u32 tree_at;    /* nodes from 0 on, __u32 positions in the list or sums, four an element */
	__u32 tree_width; /* number of nodes and of leaves, a power of two; 0 = no tree */
	__u64 weight;     /* of the whole list together */
	__u32 pad[2];
};

/* Node 0 of a tree: what its scheduler compares. Cost of an active flow:9, of an inactive one:1, of none:1, weights aside:1, an
 * idle server first:1, only servers with active ≤ weight:1; or that nodes are sums:1, of active flows where these cost
 * something, else of the weights of servers below their thresholds. A sum that does not fit is 2^32 - 1. */
#define WEIR_RULE_WLC 768
#define WEIR_RULE_LC  2816
#define WEIR_RULE_SED 1025
#define WEIR_RULE_NQ  5121
#define WEIR_RULE_FO  1024
#define WEIR_RULE_OVF 9216
#define WEIR_RULE_SUM_WEIGHT 16384
#define WEIR_RULE_SUM_ACTIVE 16385

struct weir_member {
	__u32 seq;    /* order of adding, ascending; 0 is never used */
	__u32 dest;
	__u32 weight; /* effective, > 0 */
	__u32 live;   /* index into weir_live of the counts that lc and wlc read */
};

/* weir_cursors: scheduler state that packets change, one cache line a service. */
struct weir_cursor {
	__u32 lock;
	__u32 generation; /* extent generation that `seq` and `current_weight` belong to */
	__u32 seq;        /* of the member chosen last, 0 = before the first */
	__u32 hint;       /* its position in the list, verified against seq before use */
	__s32 current_weight;
	__u32 draws; /* random numbers taken so far, counted only under weir_settings.draw_seed */
	__u32 pad[10];
};

/* weir_localities (LRU hash): which servers lblc and lblcr gave an address to. */
struct weir_locality_key {
	struct weir_addr addr;
	__u32 service;
	__u32 generation; /* of the service's row */
	__u32 scheduler;
	__u32 pad;
};
#define WEIR_LOCALITY_SERVERS 16
struct weir_locality {
	__u32 lock;
	__u32 len;
	__u32 last_use;    /* tick */
	__u32 last_change; /* tick */
	__u32 dests[WEIR_LOCALITY_SERVERS]; /* in the order of joining; lblc has one */
};

/* ---- servers --------------------------------------------------------------------------------------------------------- */

enum weir_forward {
	WEIR_FORWARD_NONE = 0,
	WEIR_FORWARD_NAT = 1,
	WEIR_FORWARD_DIRECT = 2,
	WEIR_FORWARD_TUNNEL = 3,
	WEIR_FORWARD_L3DSR = 4,
};

enum weir_tunnel {
	WEIR_TUNNEL_IPIP = 0,
	WEIR_TUNNEL_GUE = 1,
	WEIR_TUNNEL_GRE = 2,
};

#define WEIR_TUNNEL_CSUM    1 /* outer UDP or GRE checksum over everything */
#define WEIR_TUNNEL_REMCSUM 2 /* GUE remote checksum offload */

#define WEIR_DEST_LIVE       1   /* the row is in use */
#define WEIR_DEST_USABLE     2   /* new flows may come: up, weight > 0 */
#define WEIR_DEST_LOCAL      4   /* the address is the director's own: packets go up the stack */
#define WEIR_DEST_STRICT     8   /* UDP flows count as inactive */
#define WEIR_DEST_SNAT       16  /* nat with source translation */
#define WEIR_DEST_RESET      32  /* removed with on_remove = "reset" */
#define WEIR_DEST_RESCHEDULE 64  /* removed with on_remove = "reschedule" */

/* weir_dest.policy: what is asked only where a flow begins or its server is gone. */
#define WEIR_POLICY_PERSISTENT 1 /* persistent clients may still come: up, weight 0 included */
#define WEIR_POLICY_EXPIRE     2 /* with WEIR_DEST_RESCHEDULE: the flow ends, and what may begin one chooses anew
				  * (expire_nodest_conn) */
#define WEIR_POLICY_SILENT     4 /* with WEIR_DEST_RESET: packets are dropped while the entry lives, as IPVS does */
#define WEIR_POLICY_DOWN       8 /* its checks say that it is down: whoever begins anew is better off with another */

/*
 * weir_dests: one row for a server in a service (IPVS's destination), index 0 unused; flow entries name it by 20 bits.
 * One cache line: all that an established packet needs besides its next hop.
 */
struct weir_dest {
	struct weir_addr addr;
	struct weir_addr tunnel_source; /* outer source, family of addr */
	__u32 service;
	__u32 live;     /* weir_live index whose counts the schedulers read, over all services of the pool */
	__be16 port;    /* 0 = the port that the client used */
	__u8 forward;   /* enum weir_forward */
	__u8 flags;
	__u8 tunnel;    /* enum weir_tunnel */
	__u8 tunnel_flags;
	__be16 tunnel_port;
	__u8 dscp;      /* l3dsr mark of the service */
	__u8 family;    /* 4 or 6: of addr */
	__u8 policy;    /* WEIR_POLICY_* */
	__u8 pad;
	__u32 generation; /* changes when the row is given to another server */
	__u32 place;      /* 1 + its position in its service's list, 0 = not there; true but for the moment of a change */
	__u32 sibling;    /* the same server in another service of its pool, round in a ring; 0 = its counts are its own */
};

#define WEIR_DEST_BITS 20
#define WEIR_DESTS_MAX (1u << WEIR_DEST_BITS)
/* Rows of one ring of siblings whose trees a change of counts brings up to date. */
#define WEIR_SIBLINGS_MAX 64

/* weir_live: counts that change with a flow's class, by the CPU whose update of the flow won; index = dest id, so that each
 * server of each service has its own line. Shared pool counts live in rows above the dest rows (weir_dest.live). */
struct weir_live {
	__u64 active;
	__u64 inactive;
	__u64 total;    /* flows ever bound */
	__u64 stateless; /* new flows sent by the spread table without an entry */
	__u32 overloaded; /* 1 while at its upper threshold: no scheduler chooses it; in the row that weir_dest.live names */
	__u32 persistent; /* templates that lead to the dest */
	__u32 upper; /* at this many flows it gets no new ones, 0 = no limit; written by user space, where `overloaded` is */
	__u32 lower; /* and again below this many; 0 = three quarters of upper */
	__u64 syns;     /* TCP SYNs of flows that were not established, repeated ones too */
	__u64 answered; /* flows that became established: their server answered */
};

/* weir_traffic: per CPU, index = dest id. Bytes are of the IP packet as the client's side sees it. */
struct weir_traffic {
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
};

/* ---- next hops ------------------------------------------------------------------------------------------------------- */

#define WEIR_HOPS_PER_DEST 4
#define WEIR_HOP_VLAN_KEEP 0xffff /* leave the frame's tags as they came */

/*
 * weir_hops: WEIR_HOPS_PER_DEST rows a dest, chosen by flow hash. Three words, each written whole; a writer clears `link`
 * first and sets it last, a reader that sees `link` change in between takes the slow way.
 */
struct weir_hop {
	__u64 link;   /* ifindex:32 | flags:8 | mtu:16 (0 = unknown), see WEIR_HOP_* */
	__u64 dmac;   /* six bytes in memory order, then vlan tag to push:16 (0 = none, WEIR_HOP_VLAN_KEEP) */
	__u64 smac;   /* six bytes in memory order, then 16 spare bits */
	__u64 renewed; /* tick of the last renewal */
};
#define WEIR_HOP_READY  1 /* both MACs are known */
#define WEIR_HOP_SEND   2 /* XDP may send on the device */
#define WEIR_HOP_LOCAL  4
#define WEIR_HOP_STATIC 8 /* filled by user space because the kernel refuses bpf_fib_lookup here (forwarding is off) */
#define WEIR_HOP_REDIRECT 16 /* the device is left by a redirect even when the packet came from it, see WEIR_DEVICE_REDIRECT */
#define WEIR_HOP_IFINDEX(link) ((__u32)((link) >> 32))
#define WEIR_HOP_FLAGS(link)   ((__u8)((link) >> 16))
#define WEIR_HOP_MTU(link)     ((__u16)(link))

/* The address of weir_settings.mark_entry and mark_exit: 02:57:65:69:72:00 in memory order. */
#define WEIR_MARK_MAC 0x7269655702

/* weir_clients: next hops towards clients for replies under nat, direct-mapped by address. */
#define WEIR_CLIENT_SLOTS 4096
struct weir_client {
	struct weir_addr addr;
	struct weir_hop hop;
	__u64 pad[2];
};

/* weir_devices: ifindex -> what XDP may do there. Unknown devices are reached through the tc program. */
#define WEIR_DEVICE_SEND 1 /* has ndo_xdp_xmit that works now, or XDP runs in generic mode there */
/* XDP_TX does not wake the receiver there, a redirect does: veth, whose veth_xdp_flush looks for a program at the peer while
 * its ndo_xdp_xmit is content with GRO (drivers/net/veth.c). Frames would lie in the peer's ring until something else comes. */
#define WEIR_DEVICE_REDIRECT 2
struct weir_device {
	__u32 flags;
	__u32 port;  /* ifindex to send on: the lower device of a VLAN device, else itself */
	__u32 vlan;  /* tag to push, 0 = none */
	__u32 mtu;
};

/* Metadata in front of a packet that XDP hands to the tc ingress program. */
#define WEIR_META_MAGIC      0x57656972 /* "Weir" */
#define WEIR_META_UNFINISHED 0x57656975 /* untouched, and nothing else is said: the tc program balances the packet */
struct weir_meta {
	__u32 magic;
	__u32 ifindex;
	__u32 family; /* of next_hop: 4, 6, or 0 = route by the packet's destination */
	__u8 next_hop[16]; /* IPv4 in the first four bytes */
};

/* ---- flows ----------------------------------------------------------------------------------------------------------- */

/*
 * A place in the table that flows are being moved out of (weir_flows_old) has this bit wherever the two tables are told
 * apart: in programs, and in links out of the table in force. Links within the old table are written without it.
 */
#define WEIR_PLACE_OLD 0x80000000

/*
 * weir_flows: buckets of two cache lines. id = tag:44 | dest:20, 0 = free. meta, from the top: generation:8 kind:4 state:4
 * flags:8 seen:32 (tick) spare:8. id is published last and cleared first by whoever moved meta to WEIR_KIND_FREE.
 */
#define WEIR_BUCKET_SLOTS 7
struct weir_entry {
	__u64 id;
	__u64 meta;
};
struct weir_bucket {
	__u32 lock;
	__u32 stashed; /* entries at home here that lie in the stash: four bits for each of WEIR_STASH_PAIRS pairs */
	__u64 spilled; /* those that lie in another bucket of the page: four bits for each of WEIR_SPILL_PAIRS pairs */
	struct weir_entry slots[WEIR_BUCKET_SLOTS];
};
/* Where an entry may lie other than in its home bucket, see lib/bucket.h. */
#define WEIR_SPILL_PAIRS 16 /* pairs of buckets in a page */
#define WEIR_STASH_PAIRS 8  /* pairs of buckets of the stash that a home may use */

/* The same in flow layout 2, frozen. Entries and cold records were as they are. */
struct weir_bucket_2 {
	__u32 lock;
	__u32 spilled; /* entries of flows at home here that lie in their second bucket */
	__u32 pad[2];
	struct weir_entry slots[WEIR_BUCKET_SLOTS];
};

/* weir_hints: for each bucket a bit for every value of the low three bits of a tag, set while a flow with such a tag may be at
 * home there. */
#define WEIR_HINTS 64 /* buckets an element */
struct weir_hints {
	__u8 tags[WEIR_HINTS];
};

/* weir_marks: one row for TCP and one for UDP; tick until which flows may exist without an entry, 0 = none, by the top bits of
 * their hash. */
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
#define WEIR_KIND_REVERSE 2 /* server to client under nat; state and counts live in the forward entry */
#define WEIR_KIND_MOVED   8 /* with one of the others, in the old table: the entry is on its way to the table in force, or there */
#define WEIR_KIND_TEMPLATE 3 /* a persistent client's choice; state NONE, ESTABLISHED once a TCP flow by it was ("assured") */

#define WEIR_FLOW_AWAY     1 /* lies in another bucket than its home */
#define WEIR_FLOW_ACTIVE   2 /* counted as active, else as inactive */
#define WEIR_FLOW_ONESIDED 4 /* replies do not pass here: the one-sided TCP table applies */
#define WEIR_FLOW_TEMPLATE 8 /* came by a template */

/* weir_flows_cold.proto of a template is its protocol, or 0 for all, with this bit: no packet has such a tuple. */
#define WEIR_PROTO_TEMPLATE 0x80

/*
 * weir_flows_cold: same index (bucket * 7 + slot); written before id, read when flows are listed, by nat, ICMP, on a SYN.
 * Of a template: src is the client's network, sport 0, dst and dport what WEIR_TEMPLATE_* says (for a whole service its row
 * as an address).
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
	__u32 peer;     /* nat: place of the other direction, WEIR_NO_PLACE = none */
	__u32 template; /* place of the template that the flow came by, WEIR_NO_PLACE = none */
	__u32 created;  /* tick; of a template: number of flows that came by it and live */
	__u32 service;
	__u32 dest_generation; /* tells a listing that the dest row was given away meanwhile */
	__u32 ifindex; /* where its first packet came in: the way back when the kernel tells no route; of a template: its
			* timeout in ticks */
};
#define WEIR_NO_PLACE 0xffffffff

/* IPVS's states, in IPVS's order (include/net/ip_vs.h), then UDP's only one. */
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

/* What weir_move is told in place of a packet, and what it answers there. */
struct weir_move {
	__u32 position; /* first bucket of the old table */
	__u32 count;    /* how many */
	__u32 moved;    /* flows that are in the table in force now, both directions as one */
	__u32 lost;     /* flows that found no place there */
};

/* weir_fragments (LRU hash): where the first fragment of a datagram went. */
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
	__u32 hash;  /* of the flow: the same next hop for every fragment; from a server: ifindex that the client came by */
	__u8 reverse;
	__u8 pad[3];
};

/* ---- settings and state ---------------------------------------------------------------------------------------------- */

/* weir_settings: one row, changed by user space at run time. */
#define WEIR_SETTINGS_LOCAL_NAT     1 /* some nat server is the director itself: tc egress looks at replies */
#define WEIR_SETTINGS_LEARN_CLIENTS 2 /* the kernel refuses bpf_fib_lookup (forwarding is off): replies under nat go back
				       * the way their client's packets came */
#define WEIR_SETTINGS_BEGIN_IN_OLD 4 /* programs that know only the old table may still run: flows begin there, where both see
				      * them */
#define WEIR_SETTINGS_SLOPPY_TCP     8  /* sloppy_tcp: any TCP packet without RST begins a flow */
#define WEIR_SETTINGS_REUSE          16 /* conn_reuse_mode is not 0: a SYN on a flow that is over begins another */
#define WEIR_SETTINGS_REUSE_FIN_WAIT 32 /* bit 1 of conn_reuse_mode: on one in FIN_WAIT whose replies are not seen too */
#define WEIR_SETTINGS_EXPIRE_NODEST  64 /* expire_nodest_conn: on one whose server takes no new flows too */
#define WEIR_SETTINGS_DROP_ENTRY     256 /* drop_entry: the sweep defends the table */
#define WEIR_SETTINGS_CACHE_BYPASS   512 /* cache_bypass: marked packets that no server gets go on to where they were sent */
#define WEIR_SETTINGS_SCHEDULE_ICMP  1024 /* schedule_icmp: an ICMP error of no flow makes one */
#define WEIR_SETTINGS_UNFINISHED     2048 /* XDP runs where packets with unfinished checksums come: it leaves them to tc */
#define WEIR_SETTINGS_PROBES         128 /* the director's own probes may go through a service's forward: see weir_probes */
struct weir_settings {
	__u32 timeouts[16]; /* ticks, by enum weir_state */
	__u32 syn_budget;   /* new entries a CPU and second, TCP and UDP together */
	__u32 reject_budget; /* ICMP errors of our own making a CPU and second */
	__u32 flags;
	__u32 untracked_ticks; /* how long a mark holds after an untracked SYN; after a datagram: the timeout of UDP */
	__u32 mark_entry; /* ifindex of the device that marked packets are routed to, 0 = none */
	__u32 mark_exit;  /* of its peer, where XDP balances them */
	__u32 pad[7];
	__u32 lblc_expiration;  /* ticks after which lblc forgets an address that nobody used */
	__u32 lblcr_expiration; /* the same for lblcr, which then also takes a server out of a set that did not change */
	__u32 draw_seed; /* 0 = twos and p2c draw from the kernel's generator; else draw n of a service is a function of both */
};

/* weir_budget: per CPU. */
struct weir_budget {
	__u32 syn_window;
	__u32 syn_used;
	__u32 reject_window;
	__u32 reject_used;
};

/* weir_sweep: one row, holds the timer that expires flows without user space. */
struct weir_sweep_public {
	__u64 passes;
	__u64 expired;
	__u32 position;
	__u32 running;
};

/* weir_filter: bits over addresses, one lookup says "not ours" for most packets; no false negatives. */
#define WEIR_FILTER_WORDS 8192 /* of 64 bits, for each of the two filters; an address sets two bits of one word */
struct weir_filter {
	__u64 to[WEIR_FILTER_WORDS];   /* VIPs and snat addresses: tested with the destination */
	__u64 from[WEIR_FILTER_WORDS]; /* nat servers: tested with the source */
};

/* ---- probes through the path ----------------------------------------------------------------------------------------- */

/*
 * weir_probes (LRU hash): a conversation of the director's own with a server, which leaves as the service's forward would send a
 * client's, with the VIP as destination. Its socket knows the server's address only.
 */
struct weir_probe_key {
	struct weir_addr local;
	__be16 port; /* of the socket */
	__u8 proto;
	__u8 pad[5];
};
struct weir_probe {
	struct weir_addr server; /* whom the socket talks to */
	struct weir_addr vip;    /* same family */
	__u8 forward;            /* enum weir_forward, without nat */
	__u8 tunnel;             /* enum weir_tunnel */
	__u8 tunnel_flags;
	__u8 dscp;
	__be16 tunnel_port;
	__u8 error_type; /* of the last ICMP error that named the conversation; 0 = none came */
	__u8 error_code;
	__u32 sent;     /* packets that left so */
	__u32 answered; /* that came back from the VIP */
	__u32 stray;    /* from the VIP, but from another machine than they went to */
	__u32 unturned; /* from the server's own address, which should have turned them back to the VIP (l3dsr) */
	__u32 ifindex;  /* where they leave */
	__u8 to_mac[6];
	__u8 from_mac[6];
};

#include "weir_reasons.h"

#endif
