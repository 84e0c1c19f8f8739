/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The packet generator of `make bench`, and baselines for comparison. The generator writes a new packet for each run
 * and tail-calls the program under test, which can be any XDP program.
 *
 * A repeated test run does not restore the packet, so each run first restores the frame's length and contents. The
 * benchmark compiles this file for one frame length at a time; it is not part of Weir.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#ifndef FRAME_LENGTH
#error "FRAME_LENGTH is the frame's length in bytes, a multiple of 8"
#endif

/* All programs in a program array are loaded with "xdp.frags", or all without it: define SECTION like the target's. */
#ifndef SECTION
#define SECTION "xdp.frags"
#endif

#define CLIENTS_LOG2 6 /* log2 of the number of client addresses; flows are distributed over them */
#define FIRST_PORT   1024

/* A frame and the offsets of its variable parts, the client's address and port. The sums exclude both. */
struct frame {
	__u8 bytes[FRAME_LENGTH];
	__u32 ip_sum; /* sum of the IPv4 header without the low 32 bits of the client's address */
	__u32 l4_sum; /* sum of the pseudo header and the segment without the address bits and the port */
	__u16 addr_at;
	__u16 port_at;
	__u16 ip_sum_at; /* 0 = none: IPv6 */
	__u16 l4_sum_at;
};

struct plan {
	struct frame frames[2];
	__u32 alternate;      /* every second packet is frames[1], in the same flow as the previous packet */
	__u32 flow_mask;      /* number of flows - 1; the number of flows is a power of two */
	__u32 client;         /* the first client's address (its low 32 bits), host order */
	__u32 random;         /* use random addresses and ports instead */
	__u32 ifindex;        /* device that `generate` sends to */
	__s32 overhead_bytes; /* bytes that `null_tx` prepends */
};

const volatile struct plan plan;

struct {
	__u64 next;
	__u64 random;
} position = { 0, 0x9e3779b97f4a7c15ULL };

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

struct tally {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

#define PUT(type, at, value)                                                                                           \
	do {                                                                                                           \
		void *field = data + ((at) & 0x7f);                                                                    \
		if (field + sizeof(type) > data_end)                                                                   \
			return -1;                                                                                     \
		*(type *)field = (value);                                                                              \
	} while (0)

static __always_inline int put_frame(void *data, void *data_end, const volatile struct frame *frame, __u32 client,
				     __u16 port)
{
	__be32 addr = bpf_htonl(client);
	__be16 sport = bpf_htons(port);
	__u64 varied = (__u64)(addr & 0xffff) + (addr >> 16);

	if (data + FRAME_LENGTH > data_end)
		return -1;
#pragma unroll
	for (int i = 0; i < FRAME_LENGTH / 8; i++)
		((__u64 *)data)[i] = ((const volatile __u64 *)frame->bytes)[i];
	PUT(__be32, frame->addr_at, addr);
	PUT(__be16, frame->port_at, sport);
	if (frame->ip_sum_at)
		PUT(__u16, frame->ip_sum_at, fold(frame->ip_sum + varied));
	PUT(__u16, frame->l4_sum_at, fold(frame->l4_sum + varied + sport));
	return 0;
}

static __always_inline int next_packet(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	long excess = data_end - data - FRAME_LENGTH;
	__u64 index, draw;
	__u32 client;
	__u16 port;

	if (excess) {
		if (bpf_xdp_adjust_head(ctx, (int)excess))
			return -1;
		data = (void *)(long)ctx->data;
		data_end = (void *)(long)ctx->data_end;
	}
	index = position.next++;
	if (plan.random) {
		draw = position.random;
		draw ^= draw << 13;
		draw ^= draw >> 7;
		draw ^= draw << 17;
		position.random = draw;
		client = plan.client + ((__u32)draw & 0xffffff);
		port = (draw >> 32) | 1;
	} else {
		draw = (plan.alternate ? index >> 1 : index) & plan.flow_mask;
		client = plan.client + (draw & ((1 << CLIENTS_LOG2) - 1));
		port = FIRST_PORT + (draw >> CLIENTS_LOG2);
	}
	if (plan.alternate && index & 1)
		return put_frame(data, data_end, &plan.frames[1], client, port);
	return put_frame(data, data_end, &plan.frames[0], client, port);
}

/* For test runs: passes the next packet to the program under test. */
SEC(SECTION)
int feed(struct xdp_md *ctx)
{
	if (next_packet(ctx))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &target, 0);
	return XDP_ABORTED;
}

/* For live frames: sends the next packet. */
SEC(SECTION)
int generate(struct xdp_md *ctx)
{
	if (next_packet(ctx))
		return XDP_ABORTED;
	return bpf_redirect(plan.ifindex, 0);
}

/* The baseline: adds as many bytes as the program that it is compared with, and transmits the packet. */
SEC(SECTION)
int null_tx(struct xdp_md *ctx)
{
	if (plan.overhead_bytes && bpf_xdp_adjust_head(ctx, -plan.overhead_bytes))
		return XDP_ABORTED;
	return XDP_TX;
}

/* Receives and counts the frames. */
SEC(SECTION)
int sink(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct tally *tally = bpf_map_lookup_elem(&tallies, &key);

	if (tally) {
		tally->packets++;
		tally->bytes += (long)ctx->data_end - (long)ctx->data;
	}
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
