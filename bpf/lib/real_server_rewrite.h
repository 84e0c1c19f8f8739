/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Changing an skb's headers in place. Every checksum moves by difference, so that what was wrong stays wrong, and so that
 * it is right for all that skb->ip_summed can be: a checksum yet to be filled in by hardware (CHECKSUM_PARTIAL) holds the
 * pseudo header's sum, which BPF_F_PSEUDO_HDR tells the kernel to adjust; a sum over the whole packet (CHECKSUM_COMPLETE)
 * is kept in step as each function says.
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

/* Where the checksum over the pseudo header lies, 0 = there is none. */
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

/* IPv4: the header's checksum takes up the address's change, so CHECKSUM_COMPLETE need only follow the transport's. */
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
 * IPv6: the address and the transport's checksum cancel out in CHECKSUM_COMPLETE. The helper takes its half off whatever
 * the family (kernels before BPF_F_IPV6), so the address is stored with its own half counted.
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

/* Gives the packet another source or destination address of its own family. */
static __noinline int rs_rewrite(struct __sk_buff *skb, const struct rs_packet *p, int source, const struct weir_addr *to)
{
	if (!p || !to)
		return -1;
	return p->family == 4 ? rs_rewrite_ipv4(skb, p, source, to) : rs_rewrite_ipv6(skb, p, source, to);
}

/*
 * The same for the packet inside an ICMP error. Its own transport checksum is left alone: it may be cut off, and nobody
 * verifies it. Inside IPv4 the inner header's checksum takes up the change and ICMP's sum stays; inside IPv6 ICMP's must.
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
	if (bpf_l4_csum_replace(skb, icmp->l4 + RS_ICMP_CSUM, 0, bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0), 0))
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
