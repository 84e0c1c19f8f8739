/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Records where the first fragment of a datagram was forwarded, for its later fragments. An LRU map bounds the number
 * of records. Records older than Linux's reassembly timeout of 30 s are ignored (15 s in RFC 791 section 3.2, 60 s in
 * RFC 8200 section 4.5).
 */
#ifndef WEIR_FRAGMENT_TABLE_H
#define WEIR_FRAGMENT_TABLE_H

#include "lib/maps.h"
#include "lib/packet.h"

#define FRAGMENT_AGE_TICKS 30 /* 32 s */

/*
 * Fills the key. In IPv6 the key does not contain the protocol, because only the first fragment is guaranteed to
 * contain it (RFC 8200 section 4.5).
 */
static __always_inline void fragment_key(const struct packet *p, struct weir_fragment_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->src = p->src;
	key->dst = p->dst;
	key->id = p->frag_id;
	key->proto = p->family == 4 ? p->proto : 0;
}

__noinline int fragment_store(struct packet *p, struct weir_fragment *value)
{
	struct weir_fragment_key key;
	struct weir_fragment record;

	if (!p || !value)
		return 0;
	fragment_key(p, &key);
	record = *value; /* before Linux 6.2, the value must not be in the memory of a function argument */
	return bpf_map_update_elem(&weir_fragments, &key, &record, BPF_ANY);
}

__noinline int fragment_delete(struct packet *p)
{
	struct weir_fragment_key key;

	if (!p)
		return 0;
	fragment_key(p, &key);
	return bpf_map_delete_elem(&weir_fragments, &key);
}

/* Returns whether there is a record of the first fragment, and copies it to `value`. */
__noinline int fragment_lookup(struct packet *p, __u32 now, struct weir_fragment *value)
{
	struct weir_fragment_key key;
	struct weir_fragment *found;

	if (!p || !value)
		return 0;
	fragment_key(p, &key);
	found = bpf_map_lookup_elem(&weir_fragments, &key);
	if (!found || now - found->tick > FRAGMENT_AGE_TICKS)
		return 0;
	*value = *found;
	return 1;
}

static __always_inline int addr_is_set(const struct weir_addr *addr)
{
	return (addr->hi | addr->lo) != 0;
}

#endif
