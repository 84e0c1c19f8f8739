// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * `weir protect`, at tc ingress of every Ethernet device and of the loopback device: the SYNs of new TCP connections to
 * configured addresses are sent only to the holding process. Packets of established connections are not affected.
 *
 * A packet passes if it cannot be parsed, if it is too long for a record, or if the ring is full. All packets pass once
 * the process has failed to extend its deadline.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "lib/packet.h"

#define TC_NEXT   (-1)
#define TC_SHOT 2 /* tcx has no TC_ACT_STOLEN; at ingress there is no difference for the sender */

#define LOOPBACK_IFINDEX 1 /* in every namespace; all its packets are for this host */

#define HOLD_FRAME_MAX   2047 /* a SYN with data (RFC 7413) fits into an Ethernet MTU */
#define HOLD_ADDRESS_MAX 4096
#define HOLD_RING        (8 << 20)

struct hold_key {
	struct weir_addr addr; /* zero = any address of this host in this family */
	__be16 port;
	__u8 family; /* 4 or 6 */
	__u8 pad[5];
};

enum hold_count {
	HOLD_HELD,
	HOLD_MISSED, /* matched, but passed: too long, or the ring is full */
	HOLD_COUNTS,
};

struct hold_record {
	__u32 ifindex;
	__u32 length;
	__u8 frame[HOLD_FRAME_MAX + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HOLD_ADDRESS_MAX);
	__type(key, struct hold_key);
	__type(value, __u8);
} weir_hold_to SEC(".maps");

/* Addresses of this host, for wildcard keys. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HOLD_ADDRESS_MAX);
	__type(key, struct weir_addr);
	__type(value, __u8);
} weir_hold_own SEC(".maps");

/* Deadline, CLOCK_MONOTONIC in nanoseconds; after it no packet is held. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} weir_hold_until SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOLD_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} weir_hold_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, HOLD_RING);
} weir_hold_ring SEC(".maps");

/* A record is built here because a ring buffer reservation needs a constant size. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hold_record);
} weir_hold_scratch SEC(".maps");

/* Fills `key` with the packet's destination. Returns 1 if the packet is the SYN of a new TCP connection. */
static __always_inline int hold_parse(struct __sk_buff *skb, struct hold_key *key)
{
	struct tcp_header tcp;
	__u32 l4;

	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
		struct ipv4_header ip;

		if (bpf_skb_load_bytes(skb, ETH_HEADER_LEN, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
			return 0;
		if (ip.proto != PROTO_TCP || ip.frag & bpf_htons(IPV4_MF | IPV4_OFFS))
			return 0;
		key->addr = addr_from_v4(ip.dst);
		key->family = 4;
		l4 = ETH_HEADER_LEN + ip.ihl * 4;
	} else if (skb->protocol == bpf_htons(ETHERTYPE_IPV6)) {
		struct ipv6_header ip;

		if (bpf_skb_load_bytes(skb, ETH_HEADER_LEN, &ip, sizeof(ip)) || ip.next != PROTO_TCP)
			return 0;
		__builtin_memcpy(&key->addr, ip.dst, sizeof(key->addr));
		key->family = 6;
		l4 = ETH_HEADER_LEN + IPV6_LEN;
	} else {
		return 0;
	}
	if (bpf_skb_load_bytes(skb, l4, &tcp, sizeof(tcp)))
		return 0;
	key->port = tcp.dst;
	return (tcp.flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
}

static __always_inline int hold_matches(struct __sk_buff *skb)
{
	struct hold_key key = {};
	struct weir_addr addr;

	if (!hold_parse(skb, &key))
		return 0;
	if (bpf_map_lookup_elem(&weir_hold_to, &key))
		return 1;
	addr = key.addr;
	key.addr = (struct weir_addr){};
	if (!bpf_map_lookup_elem(&weir_hold_to, &key))
		return 0;
	return skb->ifindex == LOOPBACK_IFINDEX || bpf_map_lookup_elem(&weir_hold_own, &addr);
}

static __always_inline void hold_count(__u32 counter)
{
	__u64 *count = bpf_map_lookup_elem(&weir_hold_counts, &counter);

	if (count)
		__sync_fetch_and_add(count, 1);
}

SEC("classifier")
int weir_hold_ingress(struct __sk_buff *skb)
{
	__u32 zero = 0, length = skb->len;
	__u64 *deadline = bpf_map_lookup_elem(&weir_hold_until, &zero);
	struct hold_record *record;

	/*
	 * A tagged packet is seen again, without its tag, on the VLAN device; a packet for the address of a bridge or
	 * macvlan is seen again on that device. The stack receives no other packets to another host's MAC address.
	 */
	if (!deadline || bpf_ktime_get_ns() >= *deadline || skb->vlan_present || skb->pkt_type == SKB_TO_OTHER_HOST)
		return TC_NEXT;
	if (!hold_matches(skb))
		return TC_NEXT;
	record = bpf_map_lookup_elem(&weir_hold_scratch, &zero);
	if (!record)
		return TC_NEXT;
	/*
	 * The barrier prevents clang from testing a copy of the length: the verifier would not apply the bound of the
	 * copy to this length.
	 */
	asm volatile("" : "+r"(length));
	if (length < ETH_HEADER_LEN || length > HOLD_FRAME_MAX || bpf_skb_load_bytes(skb, 0, record->frame, length))
		goto missed;
	record->ifindex = skb->ifindex;
	record->length = length;
	if (bpf_ringbuf_output(&weir_hold_ring, record, 8 + length, 0))
		goto missed;
	hold_count(HOLD_HELD);
	return TC_SHOT;
missed:
	hold_count(HOLD_MISSED);
	return TC_NEXT;
}

/* A test run of this program injects held frames into the stack as if their device had just received them. */
SEC("xdp")
int weir_hold_release(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
