// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The director's tc programs, for the cases that XDP cannot handle:
 *
 *   ingress   packet that XDP passed on unmodified because its checksum is partial → the whole path on the skb
 *             rewritten packet with an unresolved neighbor, or for a device that XDP cannot send to → sent through the
 *             stack's neighbor table, which queues it until the address is resolved
 *   egress    reply from a nat server on the director itself, which never goes through XDP → source becomes the VIP;
 *             packet with a firewall mark, routed to Weir's device → mark stored in the frame, for XDP at the peer
 *   both      the director's own health probes that use a service's forwarding method
 *
 * All other packets pass to the next program and to the stack.
 */
#define WEIR_ON_SKB
#include "lib/firewall_mark.h"
#include "lib/local_reply.h"
#include "lib/probe.h"
#include "lib/stage.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define TC_NEXT     (-1)
#define TC_ACT_SHOT 2

static __always_inline int probes_enabled(void)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);

	return settings && settings->flags & WEIR_SETTINGS_PROBES;
}

SEC("classifier")
int weir_tc_ingress(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	struct weir_meta *meta = (void *)(long)skb->data_meta;
	struct bpf_redir_neigh neigh = {};
	__u32 ifindex, family;

	if ((void *)(meta + 1) <= data && meta->magic == WEIR_META_UNFINISHED) {
		meta->magic = 0;
		/* After the rewrite, the reply to a probe matches no flow, so the balance stage passes it to the stack. */
		if (probes_enabled() && probe_ingress(skb) == PROBE_DROP)
			return PROBE_DROP;
		bpf_tail_call(skb, &WEIR_STAGES, WEIR_STAGE_BALANCE);
		return TC_ACT_SHOT;
	}
	if ((void *)(meta + 1) > data || meta->magic != WEIR_META_MAGIC)
		return probes_enabled() ? probe_ingress(skb) : TC_NEXT;
	/* Clear the magic, because the same metadata can arrive again on a veth. */
	meta->magic = 0;
	ifindex = meta->ifindex;
	family = meta->family;
	__builtin_memcpy(neigh.ipv6_nh, meta->next_hop, sizeof(neigh.ipv6_nh));
	/* A VLAN device adds its own tag on transmit. */
#pragma unroll
	for (int i = 0; i < 2; i++)
		if (skb->vlan_present)
			bpf_skb_vlan_pop(skb);
	if (family == 0)
		return bpf_redirect_neigh(ifindex, 0, 0, 0);
	neigh.nh_family = family == 4 ? AF_INET : AF_INET6;
	return bpf_redirect_neigh(ifindex, &neigh, sizeof(neigh), 0);
}

SEC("classifier")
int weir_tc_egress(struct __sk_buff *skb)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);

	if (!settings)
		return TC_NEXT;
	if (settings->mark_entry == skb->ifindex)
		return fwmark_store(skb) ? TC_ACT_SHOT : TC_NEXT;
	if (settings->flags & WEIR_SETTINGS_PROBES && probe_egress(skb) == PROBE_DROP)
		return PROBE_DROP;
	if (!(settings->flags & WEIR_SETTINGS_LOCAL_NAT))
		return TC_NEXT;
	return local_reply(skb, settings) ? local_reply_route(skb) : TC_NEXT;
}
