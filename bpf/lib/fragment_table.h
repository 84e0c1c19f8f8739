/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where the first fragment of a datagram went, for those that follow without ports. An LRU map bounds it; what is older
 * than any reassembly (RFC 791 section 3.2 thinks of 15 s, RFC 8200 section 4.5 of 60 s, Linux waits 30 s) is not believed.
 */
#ifndef WEIR_FRAGMENT_TABLE_H
#define WEIR_FRAGMENT_TABLE_H

#include "lib/maps.h"
#include "lib/packet.h"

#define FRAGMENT_AGE_TICKS 30

/* IPv6 names a datagram without its protocol, which only the first fragment tells for sure (RFC 8200 section 4.5). */
static __always_inline void fragment_key(const struct packet *p, struct weir_fragment_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->src = p->src;
	key->dst = p->dst;
	key->id = p->frag_id;
	key->proto = p->family == 4 ? p->proto : 0;
}

__noinline int fragment_remember(struct packet *p, struct weir_fragment *value)
{
	struct weir_fragment_key key;
	struct weir_fragment note;

	if (!p || !value)
		return 0;
	fragment_key(p, &key);
	note = *value; /* a value in an argument's memory is refused before Linux 6.2 */
	return bpf_map_update_elem(&weir_fragments, &key, &note, BPF_ANY);
}

__noinline int fragment_forget(struct packet *p)
{
	struct weir_fragment_key key;

	if (!p)
		return 0;
	fragment_key(p, &key);
	return bpf_map_delete_elem(&weir_fragments, &key);
}

/* Answers whether the first fragment is remembered, and what became of it. */
__noinline int fragment_recall(struct packet *p, __u32 now, struct weir_fragment *value)
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
