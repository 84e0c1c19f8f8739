/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The key of the socket lookup helpers. */
#ifndef WEIR_SOCKET_TUPLE_H
#define WEIR_SOCKET_TUPLE_H

#include "lib/packet.h"

/* Sets the addresses and ports of a packet. `tuple` is zeroed. Returns the size of the family's part, in bytes. */
static __always_inline __u32 socket_tuple_fill(struct bpf_sock_tuple *tuple, __u32 family, const struct weir_addr *src,
					       const struct weir_addr *dst, __be16 sport, __be16 dport)
{
	if (family == 4) {
		tuple->ipv4.saddr = addr_to_v4(src);
		tuple->ipv4.daddr = addr_to_v4(dst);
		tuple->ipv4.sport = sport;
		tuple->ipv4.dport = dport;
		return sizeof(tuple->ipv4);
	}
	addr_to_v6(src, tuple->ipv6.saddr);
	addr_to_v6(dst, tuple->ipv6.daddr);
	tuple->ipv6.sport = sport;
	tuple->ipv6.dport = dport;
	return sizeof(tuple->ipv6);
}

#endif
