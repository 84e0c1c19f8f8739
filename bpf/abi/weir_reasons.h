/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The reasons why packets are dropped, rejected, or passed to the stack, and counters of other events. Numbers are
 * never reused, because they are the indexes of weir_reasons. Each line generates the C constant, the Rust variant, the
 * metric's label and a row of the manual's table.
 *
 * X(number, NAME, "label", "what happened")
 */
#ifndef WEIR_REASONS_H
#define WEIR_REASONS_H

#define WEIR_REASONS(X)                                                                                                \
	X(0, PASS_NOT_OURS, "pass_not_ours", "neither addressed to a VIP nor a reply from a nat server")               \
	X(1, PASS_NOT_IP, "pass_not_ip", "neither IPv4 nor IPv6, such as ARP")                                         \
	X(2, PASS_NO_SERVICE, "pass_no_service", "addressed to a VIP without a service on this protocol and port")     \
	X(3, PASS_NO_FLOW, "pass_no_flow", "a TCP packet that has no flow and cannot start one; IPVS passes it too")   \
	X(4, PASS_PROTOCOL, "pass_protocol", "addressed to a VIP, but the protocol is not load-balanced")              \
	X(5, PASS_LOCAL_SERVER, "pass_local_server", "the chosen server is the director itself")                       \
	X(6, PASS_ICMP, "pass_icmp", "an ICMP message that matches no flow")                                           \
	X(7, PASS_TO_TC, "pass_to_tc", "passed to tc: next hop unresolved, or XDP cannot send on the device")          \
	X(8, DROP_TOO_SHORT, "drop_too_short", "shorter than its headers require")                                     \
	X(9, DROP_BAD_LENGTH, "drop_bad_length", "a length field does not match the packet")                           \
	X(10, DROP_NO_SERVER, "drop_no_server", "no usable server; no_server = \"drop\", or over the ICMP budget")     \
	X(11, REJECT_NO_SERVER, "reject_no_server", "no usable server: rejected with ICMP port unreachable")           \
	X(12, DROP_FRAGMENT_EARLY, "drop_fragment_early", "a fragment that arrived before its first fragment")         \
	X(13, DROP_FRAGMENT_TINY, "drop_fragment_tiny", "a first fragment too short to hold the ports")                \
	X(14, DROP_TTL, "drop_ttl", "TTL or hop limit exceeded: rejected with ICMP time exceeded")                     \
	X(15, DROP_NO_ROUTE, "drop_no_route", "no route to the server")                                                \
	X(16, DROP_TOO_BIG, "drop_too_big", "exceeds the MTU toward the server: rejected with ICMP packet too big")    \
	X(17, DROP_NAT_CONFLICT, "drop_nat_conflict", "nat: the reverse tuple is in use on every server tried")        \
	X(18, DROP_SNAT_EXHAUSTED, "drop_snat_exhausted", "snat: no free source port found")                           \
	X(19, DROP_REMOVED, "drop_removed", "on_remove = \"reset\", but the packet is a reset or over the budget")     \
	X(20, DROP_NO_HEADROOM, "drop_no_headroom", "not enough headroom for the encapsulation")                       \
	X(21, DROP_NO_META, "drop_no_meta", "the driver lacks XDP metadata, which passing a packet to tc requires")    \
	X(22, DROP_SERVER_GONE, "drop_server_gone", "the flow's server has been removed")                              \
	X(23, DROP_INTERNAL, "drop_internal", "an internal lookup failed unexpectedly")                                \
	X(24, TX_ECHO, "tx_echo", "ICMP echo reply sent from a VIP")                                                   \
	X(25, COUNT_SYN_BUDGET, "count_syn_budget", "new flow forwarded by hash: over syn_budget")                     \
	X(26, COUNT_TABLE_FULL, "count_table_full", "new flow forwarded by hash: its buckets are full")                \
	X(27, COUNT_UNTRACKED, "count_untracked", "packet of a flow without an entry, forwarded by hash")              \
	X(28, COUNT_LOCK_MISSED, "count_lock_missed", "a lock was not obtained in 32 attempts: forwarded by hash")     \
	X(29, COUNT_TAG_COLLISION, "count_tag_collision", "a SYN matched the tag of another flow")                     \
	X(30, DROP_MALFORMED, "drop_malformed", "invalid IP header")                                                   \
	X(31, PASS_HEADERS, "pass_headers", "too many IPv6 extension headers")                                         \
	X(32, DROP_NO_PLACE, "drop_no_place", "nat needs an entry, but its buckets are full")                          \
	X(33, DROP_SYN_BUDGET, "drop_syn_budget", "nat needs an entry, but syn_budget is exhausted")                   \
	X(34, REJECT_REMOVED, "reject_removed", "on_remove = \"reset\": rejected with TCP reset or port unreachable")  \
	X(35, PASS_BYPASS, "pass_bypass", "cache_bypass: no usable server, forwarded to the original destination")     \
	X(36, PASS_LOCAL_SOCKET, "pass_local_socket", "for a local socket: probe reply, or packet to a proxy service") \
	X(37, PASS_UNFINISHED, "pass_unfinished", "partial checksum: passed to tc, which balances it")                 \
	X(38, COUNT_TC, "count_tc", "packet balanced by the tc program, counted per segment on the wire")              \
	X(39, DROP_GSO_TUNNEL, "drop_gso_tunnel", "a GSO packet cannot have a tunnel checksum per segment")            \
	X(40, PASS_OTHER_HOST, "pass_other_host", "to a VIP, but the frame's MAC address is not this host's")

enum weir_reason {
#define X(number, name, label, text) WEIR_##name = number,
	WEIR_REASONS(X)
#undef X
};

#define WEIR_REASON_COUNT 64

#endif
