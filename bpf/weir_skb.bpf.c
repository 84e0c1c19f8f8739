// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The director's packet path at tc ingress: the stages of lib/director.h on an skb, for devices whose packets can have
 * partial checksums or consist of many segments (veth, bridge, tun). weir_tc_ingress also tail-calls it for packets
 * that XDP passes on.
 */
#define WEIR_ON_SKB
#include "lib/director.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define TC_NEXT     (-1)
#define TC_ACT_SHOT 2

/* Headers that are accessed directly: Ethernet, a VLAN tag, an IP header with some extension headers, TCP. */
#define LINEAR_LEN 192

static __always_inline int tc_action(int verdict)
{
	switch (verdict) {
	case XDP_PASS:
		return TC_NEXT;
	case XDP_REDIRECT:
		return TC_ACT_REDIRECT;
	default:
		return TC_ACT_SHOT;
	}
}

SEC("classifier")
int weir_skb(struct __sk_buff *skb)
{
	__u32 linear = skb->data_end - skb->data;

	if (linear < LINEAR_LEN && linear < skb->len)
		bpf_skb_pull_data(skb, skb->len < LINEAR_LEN ? skb->len : LINEAR_LEN);
	return tc_action(director(skb));
}

SEC("classifier")
int weir_skb_icmp(struct __sk_buff *skb)
{
	return tc_action(stage_icmp(skb));
}

SEC("classifier")
int weir_skb_fragment(struct __sk_buff *skb)
{
	return tc_action(stage_fragment(skb));
}

SEC("classifier")
int weir_skb_reject(struct __sk_buff *skb)
{
	return tc_action(stage_reject(skb));
}
