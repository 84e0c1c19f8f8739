/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Why a packet was dropped, or passed to the stack. Numbers are never reused: they are the index into weir_reasons and a
 * metric's label. One line makes the C constant, the Rust one, the metric and the manual's table.
 *
 * X(number, NAME, "label", "what happened")
 */
#ifndef WEIR_REASONS_H
#define WEIR_REASONS_H

#define WEIR_REASONS(X)                                                                                                   \
	X(0, PASS_NOT_OURS, "pass_not_ours", "no VIP of ours and no reply of a nat server")                                \
	X(1, PASS_NOT_IP, "pass_not_ip", "neither IPv4 nor IPv6: ARP and the like")                                        \
	X(2, PASS_NO_SERVICE, "pass_no_service", "addressed to a VIP, but no service on this protocol and port")           \
	X(3, PASS_NO_FLOW, "pass_no_flow", "a TCP packet that starts nothing and belongs to no flow, as IPVS treats it")   \
	X(4, PASS_PROTOCOL, "pass_protocol", "a protocol that is not balanced, to a VIP")                                  \
	X(5, PASS_LOCAL_SERVER, "pass_local_server", "the chosen server is the director itself")                           \
	X(6, PASS_ICMP, "pass_icmp", "an ICMP message that concerns no flow of ours")                                      \
	X(7, PASS_TO_TC, "pass_to_tc", "handed to the tc program: next hop unresolved, or XDP cannot send there")          \
	X(8, DROP_TOO_SHORT, "drop_too_short", "shorter than its headers say")                                             \
	X(9, DROP_BAD_LENGTH, "drop_bad_length", "a length field contradicts the packet")                                  \
	X(10, DROP_NO_SERVER, "drop_no_server", "no usable server, no_server = \"drop\" or over the ICMP budget")          \
	X(11, REJECT_NO_SERVER, "reject_no_server", "no usable server: answered with ICMP port unreachable")               \
	X(12, DROP_FRAGMENT_EARLY, "drop_fragment_early", "a fragment that came before its first fragment")                \
	X(13, DROP_FRAGMENT_TINY, "drop_fragment_tiny", "a first fragment too short to hold the ports")                    \
	X(14, DROP_TTL, "drop_ttl", "TTL or hop limit used up: answered with ICMP time exceeded")                          \
	X(15, DROP_NO_ROUTE, "drop_no_route", "no route to the server")                                                    \
	X(16, DROP_TOO_BIG, "drop_too_big", "would not fit the way to the server: answered with ICMP too big")             \
	X(17, DROP_NAT_CONFLICT, "drop_nat_conflict", "nat: the reverse tuple is in use on every server tried")            \
	X(18, DROP_SNAT_EXHAUSTED, "drop_snat_exhausted", "snat: no free source port found")                               \
	X(19, DROP_REMOVED, "drop_removed", "on_remove = \"reset\", not answered: itself a reset, or over the budget")       \
	X(20, DROP_NO_HEADROOM, "drop_no_headroom", "no room in front of the packet for the encapsulation")                \
	X(21, DROP_NO_META, "drop_no_meta", "the driver cannot hand a packet to the tc program")                           \
	X(22, DROP_SERVER_GONE, "drop_server_gone", "the flow's server row is gone")                                       \
	X(23, DROP_INTERNAL, "drop_internal", "a lookup that cannot fail failed")                                          \
	X(24, TX_ECHO, "tx_echo", "ICMP echo to a VIP answered")                                                           \
	X(25, COUNT_SYN_BUDGET, "count_syn_budget", "new flow sent by hash: over syn_budget")                              \
	X(26, COUNT_TABLE_FULL, "count_table_full", "new flow sent by hash: no place in its buckets")                      \
	X(27, COUNT_UNTRACKED, "count_untracked", "packet of a flow without an entry, sent by hash")                       \
	X(28, COUNT_LOCK_MISSED, "count_lock_missed", "a lock was not obtained in 32 tries: went by hash")                 \
	X(29, COUNT_TAG_COLLISION, "count_tag_collision", "a SYN met another flow's fingerprint")                          \
	X(30, DROP_MALFORMED, "drop_malformed", "an IP header that no host would accept")                                  \
	X(31, PASS_HEADERS, "pass_headers", "more extension headers than are followed")                                         \
	X(32, DROP_NO_PLACE, "drop_no_place", "nat needs an entry, and its buckets are full")                              \
	X(33, DROP_SYN_BUDGET, "drop_syn_budget", "nat needs an entry, and syn_budget is used up")                       \
	X(34, REJECT_REMOVED, "reject_removed", "on_remove = \"reset\": answered with a TCP reset, UDP with port unreachable") \
	X(35, PASS_BYPASS, "pass_bypass", "cache_bypass: no usable server, so on to where the packet was sent")            \
	X(36, PASS_LOCAL_SOCKET, "pass_local_socket", "to a VIP, for a socket of this machine: a probe's answer, a proxy service") \
	X(37, PASS_UNFINISHED, "pass_unfinished", "checksum unfinished: left untouched to the tc program, which balances it") \
	X(38, COUNT_TC, "count_tc", "packet balanced by the tc program, counted as on the wire")                           \
	X(39, DROP_GSO_TUNNEL, "drop_gso_tunnel", "segments yet to be cut cannot get a tunnel's checksum each")

enum weir_reason {
#define X(number, name, label, text) WEIR_##name = number,
	WEIR_REASONS(X)
#undef X
};

#define WEIR_REASON_COUNT 64

#endif
