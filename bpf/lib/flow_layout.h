/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The layouts of a flow's cold record that are spoken here: the present one, and the one before it, which a table may have
 * that an older release left. Which layout a table has is a constant, so that a table of the present one costs nothing more.
 * The next layout replaces layout 1 here, not layout 2.
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

/* Layout 1 knows no IPv6 packet with an IPv4-mapped address. */
static __always_inline __u8 cold_family(const struct weir_flow_cold *cold, __u32 layout)
{
	if (layout == 1)
		return addr_is_v4(&cold->src) ? 4 : 6;
	return cold->family;
}

/* Whether an entry can name the template that it came by. */
static __always_inline int layout_has_templates(__u32 layout)
{
	return layout != 1;
}

/* What the layouts write differently. `home` is the bucket that the hash chose. */
static __always_inline void cold_set_kin(struct weir_flow_cold *cold, __u32 layout, __u8 family, __u32 template,
					 __u8 template_generation, __u32 home)
{
	struct weir_flow_cold_1 *first = (void *)cold;

	if (layout == 1) {
		first->pad = 0;
		first->home = home;
		return;
	}
	cold->family = family;
	cold->template_generation = template_generation;
	cold->template = template;
}

#endif
