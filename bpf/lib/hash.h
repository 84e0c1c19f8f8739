/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The keyed hash of a flow: SipHash-1-3 (Aumasson and Bernstein) over the canonical tuple. It is keyed because an
 * attacker who can produce tag collisions could redirect packets of other clients. The input has a fixed length per
 * family, so a domain constant replaces the length byte in the last word.
 */
#ifndef WEIR_HASH_H
#define WEIR_HASH_H

#include "lib/maps.h"
#include "lib/packet.h"

#define ROTL64(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIPROUND                                                                                                       \
	do {                                                                                                           \
		v0 += v1; v1 = ROTL64(v1, 13); v1 ^= v0; v0 = ROTL64(v0, 32);                                          \
		v2 += v3; v3 = ROTL64(v3, 16); v3 ^= v2;                                                               \
		v0 += v3; v3 = ROTL64(v3, 21); v3 ^= v0;                                                               \
		v2 += v1; v1 = ROTL64(v1, 17); v1 ^= v2; v2 = ROTL64(v2, 32);                                          \
	} while (0)
#define SIPWORD(m)                                                                                                     \
	do {                                                                                                           \
		v3 ^= (m);                                                                                             \
		SIPROUND;                                                                                              \
		v0 ^= (m);                                                                                             \
	} while (0)

#define HASH_DOMAIN_V4 0x04ULL
#define HASH_DOMAIN_V6 0x06ULL

static __always_inline __u64 flow_hash(const struct weir_addr *src, const struct weir_addr *dst, __be16 sport,
				       __be16 dport, __u8 proto, __u8 family)
{
	__u64 v0 = weir_secret0 ^ 0x736f6d6570736575ULL;
	__u64 v1 = weir_secret1 ^ 0x646f72616e646f6dULL;
	__u64 v2 = weir_secret0 ^ 0x6c7967656e657261ULL;
	__u64 v3 = weir_secret1 ^ 0x7465646279746573ULL;
	__u64 tail = (__u64)sport | (__u64)dport << 16 | (__u64)proto << 32;

	if (family == 4) {
		SIPWORD((src->lo >> 32) | (dst->lo & 0xffffffff00000000ULL));
		SIPWORD(tail | HASH_DOMAIN_V4 << 56);
	} else {
		SIPWORD(src->hi);
		SIPWORD(src->lo);
		SIPWORD(dst->hi);
		SIPWORD(dst->lo);
		SIPWORD(tail | HASH_DOMAIN_V6 << 56);
	}
	v2 ^= 0xff;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

static __always_inline __u64 packet_hash(const struct packet *p)
{
	return flow_hash(&p->src, &p->dst, p->sport, p->dport, p->proto, p->family);
}

/*
 * Returns the hash for maglev. It is unkeyed, so that directors with the same servers choose the same server, and a
 * connection survives a move to another director. The drawback, as with sh and mh, is that a client can choose its
 * server by its address.
 */
static __always_inline __u64 steer_hash(const struct packet *p)
{
	__u64 hash = p->src.lo ^ ROTL64(p->src.hi, 29);

	hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
	hash ^= p->dst.lo ^ ROTL64(p->dst.hi, 29);
	hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9ULL;
	hash ^= (__u64)p->sport | (__u64)p->dport << 16 | (__u64)p->proto << 32;
	hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
	hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ULL;
	return hash ^ hash >> 32;
}

/* Returns whether a filter may contain an address. Unkeyed: a false positive costs only a lookup. */
static __always_inline int filter_hit(const __u64 words[WEIR_FILTER_WORDS], const struct weir_addr *addr)
{
	/*
	 * The bytes that vary most are at the top of `lo`. A multiplication propagates bits only upward, so they are
	 * folded down first.
	 */
	__u64 hash = (addr->lo ^ addr->lo >> 32 ^ ROTL64(addr->hi, 29)) * 0x9e3779b97f4a7c15ULL;
	__u64 bits = 1ULL << (hash >> 45 & 63) | 1ULL << (hash >> 39 & 63);

	/* 2^13 = WEIR_FILTER_WORDS */
	return (words[hash >> 51] & bits) == bits;
}

#endif
