// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The director's packet path under XDP; lib/director.h lists its stages. A packet of an established flow reads one
 * bucket of the flow table, one server row and one next-hop row.
 */
#include "lib/director.h"
#include "lib/move.h"
#include "lib/sweep.h"
#include "lib/sync.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("xdp.frags")
int weir_xdp(struct xdp_md *ctx)
{
	return director(ctx);
}

SEC("xdp.frags")
int weir_stage_icmp(struct xdp_md *ctx)
{
	return stage_icmp(ctx);
}

SEC("xdp.frags")
int weir_stage_fragment(struct xdp_md *ctx)
{
	return stage_fragment(ctx);
}

SEC("xdp.frags")
int weir_stage_reject(struct xdp_md *ctx)
{
	return stage_reject(ctx);
}

/* User space runs this program while it migrates flows to a table with a different size or layout. */
SEC("xdp")
int weir_move(struct xdp_md *ctx)
{
	return move(ctx) ? XDP_PASS : XDP_ABORTED;
}

/*
 * The loader runs this program once: it starts the sweep, or replaces the callback of the sweep with this generation's.
 */
SEC("xdp")
int weir_sweep_start(struct xdp_md *ctx)
{
	return sweep_start() ? XDP_PASS : XDP_ABORTED;
}

/* User space runs this program to insert flows that a peer has sent. */
SEC("xdp")
int weir_sync_insert(struct xdp_md *ctx)
{
	return sync_insert(ctx) ? XDP_PASS : XDP_ABORTED;
}
