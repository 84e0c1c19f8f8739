/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Internet checksums: incremental updates for changed fields (RFC 1624), and sums over new headers (RFC 1071). */
#ifndef WEIR_CSUM_H
#define WEIR_CSUM_H

#include "lib/packet.h"

static __always_inline __u16 csum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Returns the difference that a change from `old` to `new` adds to a sum. Differences can be added. */
static __always_inline __u64 csum_diff32(__u32 old, __u32 new)
{
	return (__u64)(__u32)~old + new;
}

static __always_inline __u64 csum_diff16(__u16 old, __u16 new)
{
	return (__u64)(__u16)~old + new;
}

static __always_inline __u64 csum_diff_addr(const struct weir_addr *old, const struct weir_addr *new, __u8 family)
{
	__u64 diff = csum_diff32(old->lo >> 32, new->lo >> 32);

	if (family == 6)
		diff += csum_diff32(old->lo, new->lo) + csum_diff32(old->hi >> 32, new->hi >> 32) +
			csum_diff32(old->hi, new->hi);
	return diff;
}

static __always_inline __u16 csum_apply(__u16 csum, __u64 diff)
{
	return ~csum_fold((__u64)(__u16)~csum + diff);
}

/* Updates a UDP checksum: zero means "no checksum", and a computed zero is sent as all ones (RFC 768). */
static __always_inline __u16 csum_apply_udp(__u16 csum, __u64 diff)
{
	__u16 next;

	if (csum == 0)
		return 0;
	next = csum_apply(csum, diff);
	return next ? next : 0xffff;
}

static __always_inline __u16 csum_ipv4_header(const struct ipv4_header *ip)
{
	const __u16 *word = (const __u16 *)ip;
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < IPV4_MIN_LEN / 2; i++)
		sum += word[i];
	return ~csum_fold(sum);
}

#endif
