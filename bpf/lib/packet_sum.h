/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Checksum over a variable-length range of a packet, across its buffers. */
#ifndef WEIR_PACKET_SUM_H
#define WEIR_PACKET_SUM_H

#include "lib/context.h"
#include "lib/csum.h"
#include "lib/maps.h"

#define SUM_CHUNK  32  /* bytes on the stack */
#define SUM_CHUNKS 320 /* 10 KiB: no jumbo frame is longer */

/*
 * Returns the one's complement sum of `len` bytes at `offset`, unfolded, or -1 if the range is too long or not entirely
 * in the packet. The range must start at an even offset of the checksummed data.
 */
__noinline __s64 packet_sum(struct weir_context *ctx, __u32 offset, __u32 len)
{
	__u32 chunk[SUM_CHUNK / 4];
	__u32 rest = len % SUM_CHUNK;
	__s64 sum = 0;

	for (int i = 0; i < SUM_CHUNKS; i++) {
		if (len < SUM_CHUNK)
			break;
		if (context_load(ctx, offset, chunk, SUM_CHUNK))
			return -1;
		sum = (__u32)bpf_csum_diff(0, 0, chunk, SUM_CHUNK, (__u32)sum);
		offset += SUM_CHUNK;
		len -= SUM_CHUNK;
	}
	if (len != rest)
		return -1;
	if (rest == 0)
		return sum;
	__builtin_memset(chunk, 0, sizeof(chunk));
	/*
	 * The verifier of kernel 6.1 derives no bound from "!= 0": the mask and "+ 1" bound the length on both sides.
	 */
	rest--;
	VERIFIER_FORGET(rest);
	if (context_load(ctx, offset, chunk, (rest & (SUM_CHUNK - 1)) + 1))
		return -1;
	return (__u32)bpf_csum_diff(0, 0, chunk, SUM_CHUNK, (__u32)sum);
}

/*
 * Sums the 32-bit words of an address. In canonical form an IPv4 address adds 0xffff, which is zero in this arithmetic.
 */
static __always_inline __u64 csum_addr(const struct weir_addr *addr)
{
	return (addr->hi >> 32) + (__u32)addr->hi + (addr->lo >> 32) + (__u32)addr->lo;
}

/* Sums the pseudo header of both families: RFC 9293 section 3.1, RFC 8200 section 8.1. */
static __always_inline __u64 csum_pseudo(const struct weir_addr *src, const struct weir_addr *dst, __u8 proto,
					 __u16 len)
{
	return csum_addr(src) + csum_addr(dst) + bpf_htons(proto) + bpf_htons(len);
}

#endif
