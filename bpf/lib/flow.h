/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flow table: find, insert, advance, release. One table for all services, both families and both directions.
 *
 * Readers take no lock. A writer locks the home bucket of the hash (and the one that the entry spills to, if it does) by a
 * bounded try, so that two CPUs which meet the same new flow make one entry. Which buckets those are: lib/bucket.h. Counts change only where an update of `meta` wins.
 */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#include "lib/bucket.h"
#include "lib/hint.h"
#include "lib/tcp_state.h"

struct flow {
	__u32 place; /* WEIR_NO_PLACE = no entry */
	__u32 dest;
	__u64 meta;
};

#define META_KIND(meta)       ((__u32)((meta) >> WEIR_META_KIND_SHIFT) & 0xf)
#define META_STATE(meta)      ((__u32)((meta) >> WEIR_META_STATE_SHIFT) & 0xf)
#define META_FLAGS(meta)      ((__u32)((meta) >> WEIR_META_FLAGS_SHIFT) & 0xff)
#define META_SEEN(meta)       ((__u32)((meta) >> WEIR_META_SEEN_SHIFT))
#define META_GENERATION(meta) ((__u8)((meta) >> WEIR_META_GENERATION_SHIFT))

static __always_inline __u64 meta_make(__u8 generation, __u32 kind, __u32 state, __u32 flags, __u32 seen)
{
	return (__u64)generation << WEIR_META_GENERATION_SHIFT | (__u64)kind << WEIR_META_KIND_SHIFT |
	       (__u64)state << WEIR_META_STATE_SHIFT | (__u64)flags << WEIR_META_FLAGS_SHIFT |
	       (__u64)seen << WEIR_META_SEEN_SHIFT;
}

/* ---- places ---------------------------------------------------------------------------------------------------------- */

static __always_inline int place_is_old(__u32 place)
{
	return weir_old_bucket_count && place & WEIR_PLACE_OLD;
}

static __always_inline struct weir_bucket *place_bucket(__u32 place)
{
	if (place_is_old(place))
		return WEIR_LOOKUP(weir_flows_old, (place & ~WEIR_PLACE_OLD) / WEIR_BUCKET_SLOTS);
	return WEIR_LOOKUP(weir_flows, place / WEIR_BUCKET_SLOTS);
}

static __always_inline struct weir_entry *place_entry(__u32 place)
{
	struct weir_bucket *bucket = place_bucket(place);
	__u32 slot = (place_is_old(place) ? place & ~WEIR_PLACE_OLD : place) % WEIR_BUCKET_SLOTS;

	VERIFIER_FORGET(slot);
	if (!bucket || slot >= WEIR_BUCKET_SLOTS)
		return 0;
	return &bucket->slots[slot];
}

static __always_inline struct weir_flow_cold *place_cold(__u32 place)
{
	if (place_is_old(place))
		return WEIR_LOOKUP(weir_flows_old_cold, place & ~WEIR_PLACE_OLD);
	return WEIR_LOOKUP(weir_flows_cold, place);
}

/* The place that the entry at `place` names as `link`. */
static __always_inline __u32 place_link(__u32 place, __u32 link)
{
	return place_is_old(place) && link != WEIR_NO_PLACE ? link | WEIR_PLACE_OLD : link;
}

/* How the entry at `place` writes down a place. */
static __always_inline __u32 place_stored(__u32 place, __u32 link)
{
	return place_is_old(place) && link != WEIR_NO_PLACE ? link & ~WEIR_PLACE_OLD : link;
}

/* Where an entry on its way to another table is used before it is there, the exchange of its meta fails: nothing is lost but
 * the state that this one packet brings about. */
static __always_inline __u64 meta_unmoved(__u64 meta)
{
	return weir_old_bucket_count ? meta & ~((__u64)WEIR_KIND_MOVED << WEIR_META_KIND_SHIFT) : meta;
}

static __always_inline __u32 flows_begin_in_old(void)
{
	struct weir_settings *settings;

	if (!weir_old_bucket_count)
		return 0;
	settings = WEIR_LOOKUP(weir_settings, 0);
	return settings && settings->flags & WEIR_SETTINGS_BEGIN_IN_OLD;
}

/* ---- counts ---------------------------------------------------------------------------------------------------------- */

static __always_inline void live_add(__u32 index, int active, __s64 by)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, index);

	if (live)
		__sync_fetch_and_add(active ? &live->active : &live->inactive, by);
}

/* ip_vs_unbind_dest: whether a server that was full takes new flows again. */
static __always_inline int threshold_eased(const struct weir_live *live)
{
	__u64 flows = live->active + live->inactive;

	return live->lower ? flows < live->lower : flows * 4 < (__u64)live->upper * 3;
}

/* ip_vs_bind_dest: after a flow was counted. Counts are those of all services of the pool. Answers whether the flag was set. */
static __always_inline int threshold_bound(const struct weir_dest *dest)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest->live);

	if (!live || !live->upper || live->active + live->inactive < live->upper)
		return 0;
	__sync_lock_test_and_set(&live->overloaded, 1);
	/* Flows that ended between count and flag found nothing to clear, and none may be left to end. */
	if (threshold_eased(live))
		WRITE_ONCE(live->overloaded, 0);
	return 1;
}

/* Answers whether the flag was cleared. */
static __always_inline int threshold_unbound(const struct weir_dest *dest)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest->live);

	if (!live || !live->overloaded || !live->upper || !threshold_eased(live))
		return 0;
	/* A full barrier, as a climb that finds its nodes right already has none. */
	__sync_lock_test_and_set(&live->overloaded, 0);
	return 1;
}

/* What a change of a server's counts is of. */
#define COUNT_CLASS 0 /* a flow that stays goes from one count to the other: no threshold is asked */
#define COUNT_FLOW  1 /* one begins or ends */

/*
 * A server's own counts, and those its pool's schedulers read, when they are not the same row; and the trees that compare
 * them: its service's, and those of the other services that share the row.
 */
__noinline int count(__u32 dest_id, int active, int by, int of)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	int turned = 0;

	live_add(dest_id, active, by);
	if (!dest)
		return 0;
	if (dest->live != dest_id)
		live_add(dest->live, active, by);
	if (of == COUNT_FLOW)
		turned = by > 0 ? threshold_bound(dest) : threshold_unbound(dest);
	tree_climb(dest_id, dest, turned);
	return 0;
}

/* ---- expiry ---------------------------------------------------------------------------------------------------------- */

static __always_inline int meta_overdue(__u64 meta, __u32 now, const struct weir_settings *settings)
{
	__u32 timeout = settings->timeouts[META_STATE(meta)];

	return (__s32)(now - META_SEEN(meta)) > (__s32)timeout;
}

__noinline __u32 cold_home(struct weir_flow_cold *cold, __u32 old)
{
	if (!cold)
		return 0;
	return home_of(flow_hash(&cold->src, &cold->dst, cold->sport, cold->dport, cold->proto,
				 cold->family), weir_old_bucket_count ? old : 0);
}

static __always_inline void release_slot(__u32 place, __u64 meta)
{
	struct weir_entry *entry = place_entry(place);
	struct weir_flow_cold *cold;
	struct weir_bucket *home;
	__u32 home_index, old;

	if (!entry)
		return;
	if (META_FLAGS(meta) & WEIR_FLOW_AWAY) {
		cold = place_cold(place);
		if (cold) {
			old = place_is_old(place);
			home_index = cold_home(cold, old);
			home = bucket_at(home_index, old);
			if (home)
				mark_clear(home, home_index, (old ? place & ~WEIR_PLACE_OLD : place) / WEIR_BUCKET_SLOTS, old);
		}
	}
	__sync_lock_test_and_set(&entry->id, 0);
}

static __always_inline void count_persistent(__u32 dest_id, int by)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest_id);

	if (live)
		__sync_fetch_and_add(&live->persistent, by);
}

/* The template at `place`, if it is still the one of that generation. */
static __always_inline struct weir_entry *template_entry(__u32 place, __u8 generation)
{
	struct weir_entry *entry = place_entry(place);
	__u64 meta;

	if (!entry)
		return 0;
	meta = READ_ONCE(entry->meta);
	return META_KIND(meta) == WEIR_KIND_TEMPLATE && META_GENERATION(meta) == generation ? entry : 0;
}

/* A flow that came by a template is over. */
__noinline int template_leave(__u32 place, __u8 generation)
{
	struct weir_flow_cold *cold;

	if (!template_entry(place, generation))
		return 0;
	cold = place_cold(place);
	if (cold)
		__sync_fetch_and_add(&cold->created, -1);
	return 1;
}

/* A TCP flow that came by a template is established: IPVS's "assured" (ip_vs_control_assure_ct). */
__noinline int template_assure(__u32 flow_place)
{
	struct weir_flow_cold *cold = place_cold(flow_place);
	struct weir_entry *entry;
	__u64 meta, assured;

	if (!cold)
		return 0;
	entry = template_entry(place_link(flow_place, cold->template), cold->template_generation);
	if (!entry)
		return 0;
	meta = READ_ONCE(entry->meta);
	assured = meta_make(META_GENERATION(meta), WEIR_KIND_TEMPLATE, WEIR_STATE_ESTABLISHED, META_FLAGS(meta),
			    META_SEEN(meta));
	if (META_KIND(meta) != WEIR_KIND_TEMPLATE || META_GENERATION(meta) != cold->template_generation)
		return 0;
	return __sync_val_compare_and_swap(&entry->meta, meta, assured) == meta;
}

/* Makes an entry one that is no more if its meta is still `meta`; the one who succeeds clears up after it. */
static __always_inline int entry_end(struct weir_entry *entry, __u64 meta)
{
	__u64 dead = meta_make(META_GENERATION(meta), WEIR_KIND_FREE, 0, META_FLAGS(meta), 0);

	return __sync_val_compare_and_swap(&entry->meta, meta, dead) == meta;
}

/*
 * Removes the forward entry at `place` if its meta is still `meta`, and its reverse entry. The one whose exchange of meta
 * succeeds takes the counts down; anyone else does nothing.
 */
__noinline int flow_release(__u32 place, __u64 meta)
{
	struct weir_entry *entry = place_entry(place), *reverse;
	struct weir_flow_cold *cold;
	__u64 reverse_meta;
	__u32 dest_id, peer;

	if (!entry)
		return 0;
	dest_id = entry->id & (WEIR_DESTS_MAX - 1);
	if (!entry_end(entry, meta))
		return 0;
	count(dest_id, META_FLAGS(meta) & WEIR_FLOW_ACTIVE, -1, COUNT_FLOW);
	cold = place_cold(place);
	if (cold && META_FLAGS(meta) & WEIR_FLOW_TEMPLATE)
		template_leave(place_link(place, cold->template), cold->template_generation);
	if (cold && cold->peer != WEIR_NO_PLACE) {
		peer = place_link(place, cold->peer);
		reverse = place_entry(peer);
		if (reverse) {
			reverse_meta = READ_ONCE(reverse->meta);
			if (META_KIND(reverse_meta) == WEIR_KIND_REVERSE &&
			    META_GENERATION(reverse_meta) == cold->peer_generation &&
			    entry_end(reverse, reverse_meta))
				release_slot(peer, reverse_meta);
		}
	}
	release_slot(place, meta);
	return 1;
}

/* ---- find ------------------------------------------------------------------------------------------------------------ */

static __always_inline struct weir_entry *table_find(__u64 hash, struct flow *flow)
{
	__u32 index = bucket_home(hash), place;
	struct weir_bucket *bucket = WEIR_LOOKUP(weir_flows, index);
	__u64 tag = hash & TAG_MASK, id = 0;
	int slot;

	flow->place = WEIR_NO_PLACE;
	if (!bucket)
		return 0;
	slot = bucket_find(bucket, tag, &id);
	if (slot < 0) {
		if (!has_elsewhere(bucket))
			return 0;
		place = table_elsewhere(hash);
		if (place == WEIR_NO_PLACE)
			return 0;
		index = place / WEIR_BUCKET_SLOTS;
		bucket = WEIR_LOOKUP(weir_flows, index);
		if (!bucket)
			return 0;
		slot = place % WEIR_BUCKET_SLOTS;
	}
	VERIFIER_FORGET(slot);
	if (slot < 0 || slot >= WEIR_BUCKET_SLOTS)
		return 0;
	id = READ_ONCE(bucket->slots[slot].id);
	flow->place = index * WEIR_BUCKET_SLOTS + slot;
	flow->dest = id & (WEIR_DESTS_MAX - 1);
	flow->meta = READ_ONCE(bucket->slots[slot].meta);
	/* The slot may have been given away between the reads. */
	if (id >> TAG_SHIFT != tag || READ_ONCE(bucket->slots[slot].id) != id || META_KIND(flow->meta) == WEIR_KIND_FREE) {
		flow->place = WEIR_NO_PLACE;
		return 0;
	}
	return &bucket->slots[slot];
}

/* The place of a tag in the table that flows are moved out of. */
static __always_inline __u32 old_place(__u64 hash)
{
	__u32 index = home_of(hash, 1), place = index_find(index, hash & TAG_MASK, 1);

	return place == WEIR_NO_PLACE ? old_elsewhere(hash) : place;
}

/* The same in the table that flows are moved out of. An entry on its way is answered as it is. */
static __always_inline int old_find(__u64 hash, struct flow *flow)
{
	__u32 place = old_place(hash);
	struct weir_entry *entry;
	__u64 id;

	if (place == WEIR_NO_PLACE)
		return 0;
	flow->place = place | WEIR_PLACE_OLD;
	entry = place_entry(flow->place);
	if (!entry)
		return 0;
	id = READ_ONCE(entry->id);
	flow->dest = id & (WEIR_DESTS_MAX - 1);
	flow->meta = READ_ONCE(entry->meta);
	return id >> TAG_SHIFT == (hash & TAG_MASK) && META_KIND(flow->meta) != WEIR_KIND_FREE;
}

/* What the table in force does not have, or did not have a moment ago. */
__noinline int old_or_moved_find(__u64 hash, struct flow *flow)
{
	struct flow found;

	if (!flow)
		return 0;
	if (!old_find(hash, flow)) {
		flow->place = WEIR_NO_PLACE;
		return 0;
	}
	if (META_KIND(flow->meta) & WEIR_KIND_MOVED) {
		flow->meta = meta_unmoved(flow->meta);
		/* Not yet? Then it serves where it is. */
		if (table_find(hash, &found))
			*flow = found;
	}
	return 1;
}

/* The entry of a hash, overdue ones included. */
static __always_inline struct weir_entry *flow_find(__u64 hash, struct flow *flow)
{
	struct weir_entry *entry = table_find(hash, flow);

	if (entry || !weir_old_bucket_count || !old_or_moved_find(hash, flow))
		return entry;
	return place_entry(flow->place);
}

/* ---- advance --------------------------------------------------------------------------------------------------------- */

/*
 * Moves a forward entry to the state that a packet brings about and notes the time. A lost race is another packet's
 * update of the same flow a moment ago: that one stands.
 */
/* What tells a server that takes connections from one that does not, seen from the client's side alone. */
static __always_inline void count_syn(__u32 dest_id)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest_id);

	if (live)
		__sync_fetch_and_add(&live->syns, 1);
}

static __always_inline void count_answered(__u32 dest_id)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest_id);

	if (live)
		__sync_fetch_and_add(&live->answered, 1);
}

static __always_inline void flow_advance(struct weir_entry *entry, __u32 place, __u32 dest_id, __u64 meta, __u32 state,
					 __u32 now)
{
	__u32 flags = META_FLAGS(meta);
	__u32 was_active = flags & WEIR_FLOW_ACTIVE, is_active;
	__u64 next;

	if (state == META_STATE(meta) && META_SEEN(meta) == now)
		return;
	is_active = was_active;
	if (state != META_STATE(meta))
		is_active = state == WEIR_STATE_UDP ? was_active : (state_is_active(state) ? WEIR_FLOW_ACTIVE : 0);
	flags = (flags & ~WEIR_FLOW_ACTIVE) | is_active;
	next = meta_make(META_GENERATION(meta), META_KIND(meta), state, flags, now);
	if (__sync_val_compare_and_swap(&entry->meta, meta, next) != meta)
		return;
	if (was_active != is_active) {
		count(dest_id, is_active, 1, COUNT_CLASS);
		count(dest_id, was_active, -1, COUNT_CLASS);
	}
	if (state == WEIR_STATE_ESTABLISHED && META_STATE(meta) == WEIR_STATE_SYN_RECV)
		count_answered(dest_id);
	if (flags & WEIR_FLOW_TEMPLATE && state == WEIR_STATE_ESTABLISHED && state != META_STATE(meta))
		template_assure(place);
}

/* ---- insert ---------------------------------------------------------------------------------------------------------- */

struct flow_new {
	__u64 hash;
	struct weir_addr src;
	struct weir_addr dst;
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 family;
	__u8 kind;
	__u8 state;
	__u8 flags;
	__u32 dest;
	__u32 service;
	__u32 now;
	__u32 created;
	__u32 peer;
	__u32 peer_generation;
	__u32 template;
	__u32 template_generation;
	__u32 dest_generation;
	__u32 ifindex;
	__u32 old; /* goes to the old table */
	/* Answers. */
	__u32 place;
	__u32 generation;
};

enum flow_insert {
	FLOW_INSERTED = 0,
	FLOW_EXISTS = 1, /* the tag is there already: the same flow, by another CPU, or a collision */
	FLOW_FULL = 2,
	FLOW_BUSY = 3,
};

static __always_inline int cold_is(const struct weir_flow_cold *cold, const struct weir_addr *src,
				   const struct weir_addr *dst, __be16 sport, __be16 dport, __u8 proto)
{
	return addr_equal(&cold->src, src) && addr_equal(&cold->dst, dst) && cold->sport == sport &&
	       cold->dport == dport && cold->proto == proto;
}

/* A function of its own, for the sake of the caller's stack. */
__noinline int flow_new_hash(struct flow_new *new, __u32 family)
{
	if (!new)
		return 0;
	new->hash = flow_hash(&new->src, &new->dst, new->sport, new->dport, new->proto, family);
	return 1;
}

static __always_inline __u32 goes_to_old(const struct flow_new *new)
{
	return weir_old_bucket_count ? new->old : 0;
}

/* Whether the table that flows are moved out of has the tuple. What is on its way out of it is looked for in the other. */
__noinline int old_has(__u64 hash)
{
	struct weir_entry *entry;
	__u32 place;

	if (!weir_old_bucket_count)
		return 0;
	place = old_place(hash);
	if (place == WEIR_NO_PLACE)
		return 0;
	entry = place_entry(place | WEIR_PLACE_OLD);
	return entry && !(META_KIND(READ_ONCE(entry->meta)) & WEIR_KIND_MOVED);
}

static __always_inline int bucket_take(struct weir_bucket *bucket, __u32 index, struct flow_new *new, __u32 extra_flags)
{
	__u64 id = (new->hash & TAG_MASK) << TAG_SHIFT | new->dest;
	struct weir_flow_cold *cold;
	int free = -1;
	__u8 generation;

#pragma unroll
	for (int i = WEIR_BUCKET_SLOTS - 1; i >= 0; i--)
		if (READ_ONCE(bucket->slots[i].id) == 0)
			free = i;
	VERIFIER_FORGET(free);
	if (free < 0 || free >= WEIR_BUCKET_SLOTS)
		return FLOW_FULL;
	new->place = index * WEIR_BUCKET_SLOTS + free;
	if (goes_to_old(new))
		new->place |= WEIR_PLACE_OLD;
	cold = place_cold(new->place);
	if (!cold)
		return FLOW_FULL;
	generation = META_GENERATION(bucket->slots[free].meta) + 1;
	new->generation = generation;
	cold->src = new->src;
	cold->dst = new->dst;
	cold->sport = new->sport;
	cold->dport = new->dport;
	cold->proto = new->proto;
	cold->peer_generation = new->peer_generation;
	cold->family = new->family;
	cold->template_generation = new->template_generation;
	cold->peer = place_stored(new->place, new->peer);
	cold->template = place_stored(new->place, new->template);
	cold->created = new->created;
	cold->service = new->service;
	cold->dest_generation = new->dest_generation;
	cold->ifindex = new->ifindex;
	WRITE_ONCE(bucket->slots[free].meta,
		   meta_make(generation, new->kind, new->state, new->flags | extra_flags, new->now));
	/* The exchange orders everything above before the id that makes the entry visible. */
	__sync_lock_test_and_set(&bucket->slots[free].id, id);
	return FLOW_INSERTED;
}

static __always_inline int bucket_has_room(const struct weir_bucket *bucket)
{
#pragma unroll
	for (int i = 0; i < WEIR_BUCKET_SLOTS; i++)
		if (READ_ONCE(bucket->slots[i].id) == 0)
			return 1;
	return 0;
}

/* Layout 2: its mark is a count. */
static __always_inline int second_insert(struct flow_new *new, struct weir_bucket *home, __u32 home_index, __u32 old)
{
	__u32 index = bucket_second(new->hash, old);
	struct weir_bucket *second = bucket_at(index, old);
	int result;

	if (!second || index == home_index)
		return FLOW_FULL;
	if (!lock_try(&second->lock))
		return FLOW_BUSY;
	mark_stashed(home, 0, 1);
	result = bucket_take(second, index, new, WEIR_FLOW_AWAY);
	if (result != FLOW_INSERTED)
		mark_stashed(home, 0, -1);
	lock_release(&second->lock);
	return result;
}

/* Tries one bucket other than the home. */
__noinline int step_insert(struct flow_new *new, __u32 step)
{
	struct weir_bucket *home, *bucket;
	__u32 index, old;
	int result;

	if (!new)
		return FLOW_FULL;
	old = goes_to_old(new);
	index = step_bucket(new->hash, home_of(new->hash, old), step, old);
	if (index == WEIR_NO_PLACE)
		return FLOW_FULL;
	bucket = bucket_at(index, old);
	if (!bucket || !bucket_has_room(bucket))
		return FLOW_FULL;
	home = bucket_at(home_of(new->hash, old), old);
	if (!home)
		return FLOW_FULL;
	if (!lock_try(&bucket->lock))
		return FLOW_BUSY;
	/* Marked before the entry can be seen: a reader that misses at home must look here. */
	step_mark(home, new->hash, step, 1);
	result = bucket_take(bucket, index, new, WEIR_FLOW_AWAY);
	if (result != FLOW_INSERTED)
		step_mark(home, new->hash, step, -1);
	lock_release(&bucket->lock);
	return result;
}

/* Its home is full, and its lock is held: whoever else brings this flow waits there, so further locks guard only the slots. */
static __always_inline int insert_elsewhere(struct flow_new *new)
{
	int result, missed = FLOW_FULL;

	for (__u32 step = 0; step < STEPS; step++) {
		result = step_insert(new, step);
		if (result == FLOW_INSERTED)
			return result;
		if (result == FLOW_BUSY)
			missed = result;
	}
	return missed;
}

/* Inserts under the locks of the home and the bucket that it goes to; never waits for more than LOCK_TRIES attempts each. */
__noinline int flow_insert(struct flow_new *new)
{
	struct weir_bucket *home;
	__u64 id = 0, hash;
	__u32 old;
	int result;

	if (!new)
		return FLOW_FULL;
	old = goes_to_old(new);
	hash = new->hash;
	home = bucket_at(home_of(hash, old), old);
	if (!home)
		return FLOW_FULL;
	if (!lock_try(&home->lock))
		return FLOW_BUSY;
	result = FLOW_EXISTS;
	if (bucket_find(home, hash & TAG_MASK, &id) >= 0)
		goto out;
	if (has_elsewhere(home) && (old ? old_elsewhere(hash) : table_elsewhere(hash)) != WEIR_NO_PLACE)
		goto out;
	/* Or the compiler would keep on the stack what follows from it. */
	VERIFIER_FORGET(hash);
	if (!old)
		hint_add(home_of(hash, 0), hash & TAG_MASK);
	result = bucket_take(home, home_of(hash, old), new, 0);
	if (result == FLOW_FULL)
		result = layout_of(old) == 2 ? second_insert(new, home, home_of(hash, old), old) : insert_elsewhere(new);
out:
	lock_release(&home->lock);
	return result;
}

/* The same for a flow that begins, which neither table may have. */
static __always_inline int flow_begin(struct flow_new *new)
{
	if (weir_old_bucket_count && !goes_to_old(new) && old_has(new->hash))
		return FLOW_EXISTS;
	return flow_insert(new);
}

#endif
