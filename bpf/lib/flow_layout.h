/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The supported layouts of a flow table: the current layout, and the previous layout, which a table from an older
 * release can have. The layout is a load-time constant, so supporting both costs nothing. The next layout will replace
 * layout 2 here.
 *
 * Layouts 2 and 3 have the same entries and cold records but different buckets for spilled entries: in layout 2 every
 * bucket is a home bucket, and an entry whose home bucket is full is stored in one alternative bucket and counted in
 * the home bucket (struct weir_bucket_2).
 */
#ifndef WEIR_FLOW_LAYOUT_H
#define WEIR_FLOW_LAYOUT_H

#include "lib/packet.h"

/* Layouts of the current table and of the old table, whose flows are moved to the current table. */
const volatile __u32 weir_flow_layout = WEIR_ABI_FLOW_LAYOUT;
const volatile __u32 weir_old_flow_layout = WEIR_ABI_FLOW_LAYOUT;

static __always_inline __u32 layout_of(__u32 old)
{
	return old ? weir_old_flow_layout : weir_flow_layout;
}

_Static_assert(__builtin_offsetof(struct weir_bucket_2, spilled) == __builtin_offsetof(struct weir_bucket, stashed),
	       "has_spilled() reads both");

#endif
