// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The server side of `tunnel` and `l3dsr`, at tc ingress and egress (tcx, or clsact before 6.6):
 *
 *   ingress   tunnel packet to this host, inner destination a VIP  → decapsulated, or sent to its second hop
 *             packet to this host with an L3DSR DSCP               → destination becomes its VIP
 *             ICMP error about a reply                             → the quoted packet is translated accordingly
 *   egress    reply from a VIP's port, without a DSCP              → source becomes the VIP
 *
 * All other packets are unchanged. The verdict is "next" or "drop", so that later programs see the same packets as the
 * stack.
 */
#include "lib/real_server_tunnel.h"
#include "lib/real_server_l3dsr.h"

#define TC_NEXT (-1)
#define TC_SHOT 2

static __always_inline int rs_verdict(int outcome)
{
	if (outcome < 0)
		return TC_NEXT;
	rs_count(outcome);
	return outcome >= RS_DROP_MALFORMED && outcome <= RS_DROP_FAILED ? TC_SHOT : TC_NEXT;
}

/* Tagged packets are skipped: the programs on the VLAN device process them without the tag. */
static __always_inline int rs_parse_frame(struct __sk_buff *skb, struct rs_packet *p)
{
	__u32 family = skb->protocol == bpf_htons(ETHERTYPE_IPV4) ? 4 : 6;

	if (skb->protocol != bpf_htons(ETHERTYPE_IPV4) && skb->protocol != bpf_htons(ETHERTYPE_IPV6))
		return RS_PARSE_SHORT;
	if (skb->vlan_present)
		return RS_PARSE_SHORT;
	return rs_parse(skb, ETH_HEADER_LEN, family, p);
}

SEC("classifier")
int weir_rs_ingress(struct __sk_buff *skb)
{
	struct rs_packet p;
	int outcome;

	if (rs_parse_frame(skb, &p) != RS_PARSE_OK)
		return TC_NEXT;
	outcome = rs_decapsulate(skb, &p);
	if (outcome == RS_SECOND_HOP) {
		rs_count(outcome);
		return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
	}
	if (outcome < 0)
		outcome = rs_restore_vip(skb, &p);
	return rs_verdict(outcome);
}

SEC("classifier")
int weir_rs_egress(struct __sk_buff *skb)
{
	struct rs_packet p;

	if (rs_parse_frame(skb, &p) != RS_PARSE_OK)
		return TC_NEXT;
	return rs_verdict(rs_rewrite_reply(skb, &p));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
