/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The layouts of a flow table that are known here: the present one, and the one before it, which a table may have that an older
 * release left. Which layout a table has is a constant, so that a table of the present one costs nothing more. The next layout
 * replaces layout 2 here, not layout 3.
 *
 * Layouts 2 and 3 have the same entries and cold records and differ in where entries lie: in layout 2 all buckets are homes, and
 * what finds its home full goes to one other bucket of the table, counted in the home (struct weir_bucket_2).
 */
#ifndef WEIR_FLOW_LAYOUT_H
#define WEIR_FLOW_LAYOUT_H

#include "lib/packet.h"

/* Of the table in force, and of the one that flows are moved out of. */
const volatile __u32 weir_flow_layout = WEIR_ABI_FLOW_LAYOUT;
const volatile __u32 weir_old_flow_layout = WEIR_ABI_FLOW_LAYOUT;

static __always_inline __u32 layout_of(__u32 old)
{
	return old ? weir_old_flow_layout : weir_flow_layout;
}

_Static_assert(__builtin_offsetof(struct weir_bucket_2, spilled) == __builtin_offsetof(struct weir_bucket, stashed),
	       "has_elsewhere() reads both");

#endif
