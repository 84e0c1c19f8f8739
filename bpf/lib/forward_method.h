/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The effect of each forwarding method on a packet to the server. Add a new method to each predicate that is true for
 * it; the other files of the data plane do not compare methods.
 */
#ifndef WEIR_FORWARD_METHOD_H
#define WEIR_FORWARD_METHOD_H

#include "abi/weir_abi.h"

/* Returns whether the destination address and port are rewritten, and replies return through the director. */
static __always_inline int forward_translates(__u32 forward)
{
	return forward == WEIR_FORWARD_NAT;
}

/* Returns whether only the destination MAC address is set; the server has the VIP. */
static __always_inline int forward_keeps_addresses(__u32 forward)
{
	return forward == WEIR_FORWARD_DIRECT;
}

/* Returns whether the packet is encapsulated. */
static __always_inline int forward_encapsulates(__u32 forward)
{
	return forward == WEIR_FORWARD_TUNNEL;
}

/* Returns whether the destination address is rewritten, and the DSCP identifies the VIP. */
static __always_inline int forward_sets_dscp(__u32 forward)
{
	return forward == WEIR_FORWARD_L3DSR;
}

#endif
