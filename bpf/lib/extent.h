/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads a service's extent. */
#ifndef WEIR_EXTENT_H
#define WEIR_EXTENT_H

#include "lib/maps.h"

static __noinline int extent_copy(struct weir_extent *to, __u32 position)
{
	struct weir_element *words;

	if (!to)
		return 0;
#pragma unroll
	for (int i = 0; i < sizeof(*to) / 16; i++) {
		words = WEIR_LOOKUP(weir_tables, position + i);
		if (!words)
			return 0;
		__builtin_memcpy((void *)to + i * 16, words, 16);
	}
	return 1;
}

#endif
