/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The server's half of `forward = "l3dsr"`: the director has replaced the VIP with this host's address.
 *
 * With a DSCP of 1 to 63, the VIP is restored as the destination before the socket lookup. Replies therefore have the
 * VIP as their source, no state is kept, and other traffic to the host's address is not changed. With DSCP 0, sockets
 * listen on the host's address, and replies get the VIP as their source at egress, except replies to clients listed
 * with --except. ICMP errors are translated in both cases.
 */
#ifndef WEIR_REAL_SERVER_L3DSR_H
#define WEIR_REAL_SERVER_L3DSR_H

#include "lib/real_server_rewrite.h"

#define ICMP_ERROR_LEN 8 /* before the quoted packet */
#define DSCP_SHIFT     2
#define DSCP_ECN_MASK  3

static __always_inline const struct rs_mark *rs_mark_of(__u8 family, __u8 dscp)
{
	struct rs_mark_key key = { .family = family, .dscp = dscp };

	return bpf_map_lookup_elem(&weir_rs_marks, &key);
}

/* Finds the VIP for a local port. Returns whether it was found. */
static __always_inline int rs_vip_of_port(const struct rs_mark *mark, __be16 port, struct weir_addr *vip)
{
	__u16 number = bpf_ntohs(port);

	for (__u32 i = 0; i < RS_RANGES_MAX; i++) {
		if (i >= mark->len)
			break;
		if (number >= mark->entries[i].ports.first && number <= mark->entries[i].ports.last) {
			*vip = mark->entries[i].vip;
			return 1;
		}
	}
	return 0;
}

/*
 * Finds the VIP for a packet, by its local port or, for a later fragment, by the datagram's first fragment. Returns 1
 * if found, 0 if there is none, -1 if the first fragment was not seen.
 */
static __noinline int rs_find_vip(const struct rs_mark *mark, const struct rs_packet *p, int egress,
				  struct weir_addr *vip)
{
	struct rs_frag_key key;

	if (!mark || !p || !vip)
		return 0;
	if (p->fragment == RS_WHOLE)
		return rs_has_ports(p) && rs_vip_of_port(mark, egress ? p->sport : p->dport, vip);
	key = (struct rs_frag_key){ .src = p->src, .dst = p->dst, .id = p->frag_id, .proto = p->proto, .egress =
		egress };
	if (p->fragment == RS_FRAGMENT_LATER) {
		const struct weir_addr *found = bpf_map_lookup_elem(&weir_rs_frags, &key);

		if (!found)
			return -1;
		*vip = *found;
		return 1;
	}
	if (!rs_has_ports(p) || !rs_vip_of_port(mark, egress ? p->sport : p->dport, vip))
		return 0;
	bpf_map_update_elem(&weir_rs_frags, &key, vip, BPF_ANY);
	return 1;
}

/*
 * Translates an ICMP error about a packet that this host sent. With a DSCP, sockets use the VIP: the director's
 * translation of the quote is reverted, and the destination is restored as for other packets. Without a DSCP, sockets
 * use the host's address, which replaces the VIP in the quote.
 */
static __noinline int rs_error_in(struct __sk_buff *skb, const struct rs_mark *mark, const struct rs_packet *p,
				  __u32 dscp)
{
	struct rs_packet sent;
	struct weir_addr vip, own;

	if (!mark || !p)
		return -1;
	if (rs_parse(skb, p->l4 + ICMP_ERROR_LEN, p->family, &sent) != RS_PARSE_OK || !rs_has_ports(&sent))
		return -1;
	if (!rs_vip_of_port(mark, sent.sport, &vip))
		return -1;
	own = p->dst;
	if (dscp == 0) {
		if (!addr_equal(&sent.src, &vip))
			return -1;
		return rs_rewrite_embedded(skb, p, &sent, 1, &own) ? RS_DROP_FAILED : RS_ERROR_TRANSLATED;
	}
	if (addr_equal(&sent.src, &own) && rs_rewrite_embedded(skb, p, &sent, 1, &vip))
		return RS_DROP_FAILED;
	if (rs_rewrite(skb, p, 0, &vip) || rs_set_traffic_class(skb, p, p->traffic_class & DSCP_ECN_MASK))
		return RS_DROP_FAILED;
	return RS_ERROR_TRANSLATED;
}

/* Handles an ingress packet. Returns enum rs_count, or -1 for a packet without a VIP. */
static __always_inline int rs_restore_vip(struct __sk_buff *skb, const struct rs_packet *p)
{
	__u32 dscp = p->traffic_class >> DSCP_SHIFT;
	struct weir_addr vip;
	const struct rs_mark *mark;
	int error = rs_is_icmp_error(skb, p);
	int found;

	if (dscp == 0 && !error)
		return -1;
	mark = rs_mark_of(p->family, dscp);
	if (!mark && error) {
		/*
		 * Routers send errors with their own DSCP (RFC 1812 section 4.3.2.5), which a director without a DSCP
		 * keeps.
		 */
		dscp = 0;
		mark = rs_mark_of(p->family, 0);
	}
	if (!mark || !rs_is_host_address(&p->dst))
		return -1;
	if (error)
		return rs_error_in(skb, mark, p, dscp);
	found = rs_find_vip(mark, p, 0, &vip);
	if (found <= 0)
		return found < 0 ? RS_PASS_FRAGMENT : -1;
	/* Clear the DSCP: net.ipv4.tcp_reflect_tos would send it to the client. */
	if (rs_rewrite(skb, p, 0, &vip) || rs_set_traffic_class(skb, p, p->traffic_class & DSCP_ECN_MASK))
		return RS_DROP_FAILED;
	return RS_TURNED_BACK;
}

static __always_inline int rs_is_excepted(const struct weir_addr *addr)
{
	struct rs_prefix key = { .prefix_len = 128 };

	__builtin_memcpy(key.addr, addr, sizeof(key.addr));
	return bpf_map_lookup_elem(&weir_rs_except, &key) != NULL;
}

/* Translates an ICMP error from this host about a packet that was sent to the VIP. */
static __noinline int rs_error_out(struct __sk_buff *skb, const struct rs_mark *mark, const struct rs_packet *p)
{
	struct rs_packet received;
	struct weir_addr vip;

	if (!mark || !p)
		return -1;
	if (rs_parse(skb, p->l4 + ICMP_ERROR_LEN, p->family, &received) != RS_PARSE_OK || !rs_has_ports(&received))
		return -1;
	if (!addr_equal(&received.dst, &p->src) || !rs_vip_of_port(mark, received.dport, &vip))
		return -1;
	if (rs_rewrite_embedded(skb, p, &received, 0, &vip) || rs_rewrite(skb, p, 1, &vip))
		return RS_DROP_FAILED;
	return RS_ERROR_TRANSLATED;
}

/*
 * Handles an egress packet, for servers without a DSCP. Returns enum rs_count, or -1 for a packet that is not a reply
 * from a VIP's port.
 */
static __always_inline int rs_rewrite_reply(struct __sk_buff *skb, const struct rs_packet *p)
{
	const struct rs_mark *mark = rs_mark_of(p->family, 0);
	struct weir_addr vip;
	int error, found;

	if (!mark || !rs_is_host_address(&p->src))
		return -1;
	error = rs_is_icmp_error(skb, p);
	if (!error) {
		found = rs_find_vip(mark, p, 1, &vip);
		if (found <= 0)
			return found < 0 ? RS_PASS_FRAGMENT : -1;
	}
	if (rs_is_excepted(&p->dst))
		return RS_PASS_EXCEPT;
	if (error)
		return rs_error_out(skb, mark, p);
	return rs_rewrite(skb, p, 1, &vip) ? RS_DROP_FAILED : RS_REPLY_REWRITTEN;
}

#endif
