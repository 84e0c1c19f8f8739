/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Rewrites headers of an skb. Checksums are updated incrementally, so a wrong checksum stays wrong. The updates are
 * correct for every skb->ip_summed. A partial checksum (CHECKSUM_PARTIAL) is the sum of the pseudo header, which the
 * kernel adjusts with BPF_F_PSEUDO_HDR; for the sum over the whole packet (CHECKSUM_COMPLETE) see each function.
 */
#ifndef WEIR_REAL_SERVER_REWRITE_H
#define WEIR_REAL_SERVER_REWRITE_H

#include "lib/real_server_parse.h"

#define RS_IPV4_CSUM 10 /* offsets in their headers */
#define RS_TCP_CSUM  16
#define RS_UDP_CSUM  6
#define RS_ICMP_CSUM 2

static __always_inline __u32 rs_addr_offset(const struct rs_packet *p, int source)
{
	if (p->family == 4)
		return p->l3 + (source ? 12 : 16);
	return p->l3 + (source ? 8 : 24);
}

/* Returns the offset of the checksum that covers the pseudo header; 0 = none. */
static __always_inline __u32 rs_csum_offset(const struct rs_packet *p)
{
	if (p->fragment == RS_FRAGMENT_LATER)
		return 0;
	if (p->proto == PROTO_TCP)
		return p->l4 + RS_TCP_CSUM;
	if (p->proto == PROTO_UDP)
		return p->l4 + RS_UDP_CSUM;
	if (p->family == 6 && p->proto == PROTO_ICMPV6)
		return p->l4 + RS_ICMP_CSUM;
	return 0;
}

/*
 * Sets an IPv4 address. The header checksum compensates for the change, so the CHECKSUM_COMPLETE sum changes only by
 * the change in the transport checksum.
 */
static __always_inline int rs_rewrite_ipv4(struct __sk_buff *skb, const struct rs_packet *p, int source,
					   const struct weir_addr *to)
{
	__be32 old = addr_to_v4(source ? &p->src : &p->dst), new = addr_to_v4(to);
	__u64 flags = BPF_F_PSEUDO_HDR | sizeof(old) | (p->proto == PROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	__u32 csum = rs_csum_offset(p);

	if (csum && bpf_l4_csum_replace(skb, csum, old, new, flags))
		return -1;
	if (bpf_l3_csum_replace(skb, p->l3 + RS_IPV4_CSUM, old, new, sizeof(old)))
		return -1;
	return bpf_skb_store_bytes(skb, rs_addr_offset(p, source), &new, sizeof(new), 0);
}

/*
 * Sets an IPv6 address. In the CHECKSUM_COMPLETE sum, the changes to the address and to the transport checksum cancel
 * out. In kernels without BPF_F_IPV6, the helper always subtracts the change in the checksum, so the address is stored
 * with BPF_F_RECOMPUTE_CSUM.
 */
static __always_inline int rs_rewrite_ipv6(struct __sk_buff *skb, const struct rs_packet *p, int source,
					   const struct weir_addr *to)
{
	__be32 old[4], new[4];
	__u64 flags = BPF_F_PSEUDO_HDR | (p->proto == PROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	__u32 csum = rs_csum_offset(p);

	addr_to_v6(source ? &p->src : &p->dst, old);
	addr_to_v6(to, new);
	if (csum && bpf_l4_csum_replace(skb, csum, 0, bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0), flags))
		return -1;
	return bpf_skb_store_bytes(skb, rs_addr_offset(p, source), new, sizeof(new), BPF_F_RECOMPUTE_CSUM);
}

/* Sets the source or destination address to an address of the same family. */
static __noinline int rs_rewrite(struct __sk_buff *skb, const struct rs_packet *p, int source,
				 const struct weir_addr *to)
{
	if (!p || !to)
		return -1;
	return p->family == 4 ? rs_rewrite_ipv4(skb, p, source, to) : rs_rewrite_ipv6(skb, p, source, to);
}

/*
 * Sets the source or destination address of the packet that an ICMP error quotes. The quote's transport checksum is not
 * updated: the quote can end before it, and receivers do not verify it. In IPv4, the checksum of the quoted header
 * compensates for the change; in IPv6, the ICMP checksum is updated.
 */
static __noinline int rs_rewrite_embedded(struct __sk_buff *skb, const struct rs_packet *icmp,
					  const struct rs_packet *inner, int source, const struct weir_addr *to)
{
	__be32 old[4], new[4];

	if (!icmp || !inner || !to)
		return -1;
	if (inner->family == 4) {
		old[0] = addr_to_v4(source ? &inner->src : &inner->dst);
		new[0] = addr_to_v4(to);
		if (bpf_l3_csum_replace(skb, inner->l3 + RS_IPV4_CSUM, old[0], new[0], sizeof(new[0])))
			return -1;
		return bpf_skb_store_bytes(skb, rs_addr_offset(inner, source), new, sizeof(new[0]), 0);
	}
	addr_to_v6(source ? &inner->src : &inner->dst, old);
	addr_to_v6(to, new);
	if (bpf_l4_csum_replace(skb, icmp->l4 + RS_ICMP_CSUM, 0, bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0),
				0))
		return -1;
	return bpf_skb_store_bytes(skb, rs_addr_offset(inner, source), new, sizeof(new), 0);
}

/* Sets DSCP and ECN. */
static __noinline int rs_set_traffic_class(struct __sk_buff *skb, const struct rs_packet *p, __u32 traffic_class)
{
	__be32 flow;

	if (!p)
		return -1;
	if (p->family == 4) {
		__be16 old, new;
		__u8 tos = traffic_class;

		if (bpf_skb_load_bytes(skb, p->l3, &old, sizeof(old)))
			return -1;
		new = bpf_htons((bpf_ntohs(old) & 0xff00) | tos);
		if (bpf_l3_csum_replace(skb, p->l3 + RS_IPV4_CSUM, old, new, sizeof(new)))
			return -1;
		return bpf_skb_store_bytes(skb, p->l3 + 1, &tos, sizeof(tos), 0);
	}
	if (bpf_skb_load_bytes(skb, p->l3, &flow, sizeof(flow)))
		return -1;
	flow = bpf_htonl((bpf_ntohl(flow) & ~(0xffu << 20)) | (traffic_class & 0xff) << 20);
	return bpf_skb_store_bytes(skb, p->l3, &flow, sizeof(flow), BPF_F_RECOMPUTE_CSUM);
}

#endif
