/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Rewrites addresses and ports of an skb, with correct checksums for every skb->ip_summed and for GSO packets.
 */
#ifndef WEIR_SKB_REWRITE_H
#define WEIR_SKB_REWRITE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "lib/packet.h"

#define IPV4_CSUM_OFFSET 10 /* offsets in their headers */
#define TCP_CSUM_OFFSET  16
#define UDP_CSUM_OFFSET  6

/* Returns the offset of the checksum that covers the pseudo header; 0 = none in this packet. */
static __always_inline __u32 skb_csum_offset(const struct packet *p)
{
	if (p->slow_path == PACKET_FRAGMENT_LATER)
		return 0;
	return p->l4 + (p->proto == PROTO_TCP ? TCP_CSUM_OFFSET : UDP_CSUM_OFFSET);
}

/*
 * Returns the flags for a port. For an address, add BPF_F_PSEUDO_HDR to make the kernel adjust the sum in a partial
 * checksum.
 */
static __always_inline __u64 skb_csum_flags(const struct packet *p)
{
	return p->proto == PROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

static __noinline int skb_set_address(struct __sk_buff *skb, const struct packet *p, int source,
				      const struct weir_addr *to)
{
	const struct weir_addr *from = source ? &p->src : &p->dst;
	__u64 flags = skb_csum_flags(p) | BPF_F_PSEUDO_HDR;
	__u32 csum = skb_csum_offset(p), l3 = p->l3;
	__be32 old[4], new[4];

	if (p->family == 4) {
		old[0] = addr_to_v4(from);
		new[0] = addr_to_v4(to);
		if (csum && bpf_l4_csum_replace(skb, csum, old[0], new[0], flags | sizeof(old[0])))
			return -1;
		if (bpf_l3_csum_replace(skb, l3 + IPV4_CSUM_OFFSET, old[0], new[0], sizeof(old[0])))
			return -1;
		return bpf_skb_store_bytes(skb, l3 + (source ? 12 : 16), new, sizeof(new[0]), 0);
	}
	addr_to_v6(from, old);
	addr_to_v6(to, new);
	if (csum && bpf_l4_csum_replace(skb, csum, 0, bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0), flags))
		return -1;
	/*
	 * In a sum over the whole packet (CHECKSUM_COMPLETE), the changes to the address and to the checksum cancel out. In
	 * kernels without BPF_F_IPV6, the helper subtracts the change in the checksum, so the change to the address must be
	 * added. In a later fragment, nothing cancels out the change to the address.
	 */
	return bpf_skb_store_bytes(skb, l3 + (source ? 8 : 24), new, sizeof(new), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int skb_set_port(struct __sk_buff *skb, const struct packet *p, int source, __be16 to)
{
	__be16 from = source ? p->sport : p->dport;

	if (from == to)
		return 0;
	if (bpf_l4_csum_replace(skb, skb_csum_offset(p), from, to, skb_csum_flags(p) | sizeof(to)))
		return -1;
	return bpf_skb_store_bytes(skb, p->l4 + (source ? 0 : 2), &to, sizeof(to), 0);
}

#endif
