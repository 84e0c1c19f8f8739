/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The flow table: find, insert, advance, release. One table for all services, both families and both directions.
 *
 * Readers take no lock. A writer locks the home bucket of the hash (and the bucket that the entry spills to, see
 * lib/bucket.h) with a bounded number of attempts, so that two CPUs that see the same new flow create one entry. Counts
 * change only after an insertion or a successful compare-and-swap of `meta`.
 */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#include "lib/bucket.h"
#include "lib/hint.h"
#include "lib/tcp_state.h"

struct flow {
	__u32 entry_index; /* WEIR_NO_INDEX = no entry */
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

/* ---- entry indexes ----------------------------------------------------------------------------------------------- */

static __always_inline int is_old_entry(__u32 entry_index)
{
	return weir_old_bucket_count && entry_index & WEIR_INDEX_OLD;
}

static __always_inline struct weir_bucket *bucket_of_entry(__u32 entry_index)
{
	if (is_old_entry(entry_index))
		return WEIR_LOOKUP(weir_flows_old, (entry_index & ~WEIR_INDEX_OLD) / WEIR_BUCKET_SLOTS);
	return WEIR_LOOKUP(weir_flows, entry_index / WEIR_BUCKET_SLOTS);
}

static __always_inline struct weir_entry *entry_at(__u32 entry_index)
{
	struct weir_bucket *bucket = bucket_of_entry(entry_index);
	__u32 slot = (is_old_entry(entry_index) ? entry_index & ~WEIR_INDEX_OLD : entry_index) % WEIR_BUCKET_SLOTS;

	VERIFIER_FORGET(slot);
	if (!bucket || slot >= WEIR_BUCKET_SLOTS)
		return 0;
	return &bucket->slots[slot];
}

static __always_inline struct weir_flow_cold *cold_at(__u32 entry_index)
{
	if (is_old_entry(entry_index))
		return WEIR_LOOKUP(weir_flows_old_cold, entry_index & ~WEIR_INDEX_OLD);
	return WEIR_LOOKUP(weir_flows_cold, entry_index);
}

/* Returns the entry index for a link stored in the entry at `entry_index`. */
static __always_inline __u32 link_load(__u32 entry_index, __u32 link)
{
	return is_old_entry(entry_index) && link != WEIR_NO_INDEX ? link | WEIR_INDEX_OLD : link;
}

/* Returns `link` in the form that the entry at `entry_index` stores. */
static __always_inline __u32 link_store(__u32 entry_index, __u32 link)
{
	return is_old_entry(entry_index) && link != WEIR_NO_INDEX ? link & ~WEIR_INDEX_OLD : link;
}

/*
 * Returns `meta` without the flag of an entry that is being moved, so that packets can use the entry before its copy
 * exists. A compare-and-swap with this value fails, so only the state change of the packet is lost.
 */
static __always_inline __u64 meta_clear_moved(__u64 meta)
{
	return meta & ~((__u64)WEIR_KIND_MOVED << WEIR_META_KIND_SHIFT);
}

static __always_inline __u32 new_flows_in_old_table(void)
{
	struct weir_settings *settings;

	if (!weir_old_bucket_count)
		return 0;
	settings = WEIR_LOOKUP(weir_settings, 0);
	return settings && settings->flags & WEIR_SETTINGS_BEGIN_IN_OLD;
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

static __always_inline void live_add(__u32 index, int active, __s64 delta)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, index);

	if (live)
		__sync_fetch_and_add(active ? &live->active : &live->inactive, delta);
}

/* Returns whether a server that was full takes new flows again (ip_vs_unbind_dest). */
static __always_inline int below_lower_threshold(const struct weir_live *live)
{
	__u64 flows = live->active + live->inactive;

	return live->lower ? flows < live->lower : flows * 4 < (__u64)live->upper * 3;
}

/*
 * Sets the overloaded flag at the upper threshold, after a flow was counted (ip_vs_bind_dest). Counts cover all
 * services of the pool. Returns whether it set the flag.
 */
static __always_inline int threshold_set(const struct weir_dest *dest)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest->live);

	if (!live || !live->upper || live->active + live->inactive < live->upper)
		return 0;
	__sync_lock_test_and_set(&live->overloaded, 1);
	/*
	 * Flows that ended before the flag was set had no flag to clear, and there may be no remaining flow to clear
	 * it.
	 */
	if (below_lower_threshold(live))
		WRITE_ONCE(live->overloaded, 0);
	return 1;
}

/* Clears the overloaded flag below the lower threshold. Returns whether it cleared the flag. */
static __always_inline int threshold_clear(const struct weir_dest *dest)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest->live);

	if (!live || !live->overloaded || !live->upper || !below_lower_threshold(live))
		return 0;
	/* A full barrier is needed here, because a tree update that finds its nodes up to date contains none. */
	__sync_lock_test_and_set(&live->overloaded, 0);
	return 1;
}

/* The kinds of changes to a server's counts. */
#define COUNT_CLASS 0 /* a flow changes between active and inactive: thresholds do not apply */
#define COUNT_FLOW  1 /* a flow starts or ends */

/*
 * Updates a server's counts, the pool's counts if they are in another row, and the trees of all services that use them.
 */
__noinline int count(__u32 dest_id, int active, int delta, int kind)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	int availability_changed = 0;

	live_add(dest_id, active, delta);
	if (!dest)
		return 0;
	if (dest->live != dest_id)
		live_add(dest->live, active, delta);
	if (kind == COUNT_FLOW)
		availability_changed = delta > 0 ? threshold_set(dest) : threshold_clear(dest);
	tree_climb(dest_id, dest, availability_changed);
	return 0;
}

/* ---- expiry ------------------------------------------------------------------------------------------------------ */

static __always_inline int meta_expired(__u64 meta, __u32 now, const struct weir_settings *settings)
{
	__u32 timeout = settings->timeouts[META_STATE(meta)];

	return (__s32)(now - META_SEEN(meta)) > (__s32)timeout;
}

__noinline __u32 cold_home_bucket(struct weir_flow_cold *cold, __u32 old)
{
	if (!cold)
		return 0;
	return home_of(flow_hash(&cold->src, &cold->dst, cold->sport, cold->dport, cold->proto,
				 cold->family), weir_old_bucket_count ? old : 0);
}

static __always_inline void slot_release(__u32 entry_index, __u64 meta)
{
	struct weir_entry *entry = entry_at(entry_index);
	struct weir_flow_cold *cold;
	struct weir_bucket *home;
	__u32 home_index, old;

	if (!entry)
		return;
	if (META_FLAGS(meta) & WEIR_FLOW_AWAY) {
		cold = cold_at(entry_index);
		if (cold) {
			old = is_old_entry(entry_index);
			home_index = cold_home_bucket(cold, old);
			home = bucket_at(home_index, old);
			if (home)
				spill_count_remove(home, home_index,
						   (old ? entry_index & ~WEIR_INDEX_OLD :
						    entry_index) / WEIR_BUCKET_SLOTS, old);
		}
	}
	__sync_lock_test_and_set(&entry->id, 0);
}

static __always_inline void count_persistent(__u32 dest_id, int delta)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest_id);

	if (live)
		__sync_fetch_and_add(&live->persistent, delta);
}

/* Returns the template at `entry_index` if it still has this generation, otherwise 0. */
static __always_inline struct weir_entry *template_entry(__u32 entry_index, __u8 generation)
{
	struct weir_entry *entry = entry_at(entry_index);
	__u64 meta;

	if (!entry)
		return 0;
	meta = READ_ONCE(entry->meta);
	return META_KIND(meta) == WEIR_KIND_TEMPLATE && META_GENERATION(meta) == generation ? entry : 0;
}

/* Decrements a template's flow count after one of its flows has ended. */
__noinline int template_put(__u32 entry_index, __u8 generation)
{
	struct weir_flow_cold *cold;

	if (!template_entry(entry_index, generation))
		return 0;
	cold = cold_at(entry_index);
	if (cold)
		__sync_fetch_and_add(&cold->created, -1);
	return 1;
}

/* Marks a template after one of its TCP flows was established: IPVS's "assured" (ip_vs_control_assure_ct). */
__noinline int template_assure(__u32 flow_index)
{
	struct weir_flow_cold *cold = cold_at(flow_index);
	struct weir_entry *entry;
	__u64 meta, assured;

	if (!cold)
		return 0;
	entry = template_entry(link_load(flow_index, cold->template), cold->template_generation);
	if (!entry)
		return 0;
	meta = READ_ONCE(entry->meta);
	assured = meta_make(META_GENERATION(meta), WEIR_KIND_TEMPLATE, WEIR_STATE_ESTABLISHED, META_FLAGS(meta),
			    META_SEEN(meta));
	if (META_KIND(meta) != WEIR_KIND_TEMPLATE || META_GENERATION(meta) != cold->template_generation)
		return 0;
	return __sync_val_compare_and_swap(&entry->meta, meta, assured) == meta;
}

/* Marks an entry as free if its meta is still `meta`. The caller that succeeds cleans up. */
static __always_inline int entry_free(struct weir_entry *entry, __u64 meta)
{
	__u64 dead = meta_make(META_GENERATION(meta), WEIR_KIND_FREE, 0, META_FLAGS(meta), 0);

	return __sync_val_compare_and_swap(&entry->meta, meta, dead) == meta;
}

/*
 * Removes the forward entry at `entry_index` and its reverse entry, if its meta is still `meta`. Only the caller whose
 * compare-and-swap succeeds decrements the counts.
 */
__noinline int flow_release(__u32 entry_index, __u64 meta)
{
	struct weir_entry *entry = entry_at(entry_index), *reverse;
	struct weir_flow_cold *cold;
	__u64 reverse_meta;
	__u32 dest_id, peer;

	if (!entry)
		return 0;
	dest_id = entry->id & (WEIR_DESTS_MAX - 1);
	if (!entry_free(entry, meta))
		return 0;
	count(dest_id, META_FLAGS(meta) & WEIR_FLOW_ACTIVE, -1, COUNT_FLOW);
	cold = cold_at(entry_index);
	if (cold && META_FLAGS(meta) & WEIR_FLOW_TEMPLATE)
		template_put(link_load(entry_index, cold->template), cold->template_generation);
	if (cold && cold->peer != WEIR_NO_INDEX) {
		peer = link_load(entry_index, cold->peer);
		reverse = entry_at(peer);
		if (reverse) {
			reverse_meta = READ_ONCE(reverse->meta);
			if (META_KIND(reverse_meta) == WEIR_KIND_REVERSE &&
			    META_GENERATION(reverse_meta) == cold->peer_generation &&
			    entry_free(reverse, reverse_meta))
				slot_release(peer, reverse_meta);
		}
	}
	slot_release(entry_index, meta);
	return 1;
}

/* ---- find -------------------------------------------------------------------------------------------------------- */

static __always_inline struct weir_entry *table_find(__u64 hash, struct flow *flow)
{
	__u32 index = bucket_home(hash), entry_index;
	struct weir_bucket *bucket = WEIR_LOOKUP(weir_flows, index);
	__u64 tag = hash & TAG_MASK, id = 0;
	int slot;

	flow->entry_index = WEIR_NO_INDEX;
	if (!bucket)
		return 0;
	slot = bucket_find(bucket, tag, &id);
	if (slot < 0) {
		if (!has_spilled(bucket))
			return 0;
		entry_index = table_spill_find(hash);
		if (entry_index == WEIR_NO_INDEX)
			return 0;
		index = entry_index / WEIR_BUCKET_SLOTS;
		bucket = WEIR_LOOKUP(weir_flows, index);
		if (!bucket)
			return 0;
		slot = entry_index % WEIR_BUCKET_SLOTS;
	}
	VERIFIER_FORGET(slot);
	if (slot < 0 || slot >= WEIR_BUCKET_SLOTS)
		return 0;
	id = READ_ONCE(bucket->slots[slot].id);
	flow->entry_index = index * WEIR_BUCKET_SLOTS + slot;
	flow->dest = id & (WEIR_DESTS_MAX - 1);
	flow->meta = READ_ONCE(bucket->slots[slot].meta);
	/* The slot may have been reused between the reads. */
	if (id >> TAG_SHIFT != tag || READ_ONCE(bucket->slots[slot].id) != id ||
	    META_KIND(flow->meta) == WEIR_KIND_FREE) {
		flow->entry_index = WEIR_NO_INDEX;
		return 0;
	}
	return &bucket->slots[slot];
}

/* Returns the entry index of a hash in the old table, without the old table's bit. */
static __always_inline __u32 old_table_index(__u64 hash)
{
	__u32 index = home_of(hash, 1), entry_index = index_find(index, hash & TAG_MASK, 1);

	return entry_index == WEIR_NO_INDEX ? old_table_spill_find(hash) : entry_index;
}

/* Does the same as table_find() in the old table. An entry that is being moved or was moved is returned as it is. */
static __always_inline int old_table_find(__u64 hash, struct flow *flow)
{
	__u32 entry_index = old_table_index(hash);
	struct weir_entry *entry;
	__u64 id;

	if (entry_index == WEIR_NO_INDEX)
		return 0;
	flow->entry_index = entry_index | WEIR_INDEX_OLD;
	entry = entry_at(flow->entry_index);
	if (!entry)
		return 0;
	id = READ_ONCE(entry->id);
	flow->dest = id & (WEIR_DESTS_MAX - 1);
	flow->meta = READ_ONCE(entry->meta);
	return id >> TAG_SHIFT == (hash & TAG_MASK) && META_KIND(flow->meta) != WEIR_KIND_FREE;
}

/*
 * Looks up a flow that was not found in the current table: first in the old table, then again in the current table if
 * the flow was moved. If it has been moved and is not in the current table, it has ended.
 */
__noinline int old_or_moved_find(__u64 hash, struct flow *flow)
{
	struct flow found;

	if (!flow)
		return 0;
	if (!old_table_find(hash, flow)) {
		flow->entry_index = WEIR_NO_INDEX;
		return 0;
	}
	if (META_KIND(flow->meta) & WEIR_KIND_MOVED) {
		if (table_find(hash, &found))
			*flow = found;
		else if (META_KIND(flow->meta) == WEIR_KIND_MOVED)
			flow->entry_index = WEIR_NO_INDEX;
		else
			/* The entry has not been copied yet: use the old entry. */
			flow->meta = meta_clear_moved(flow->meta);
	}
	return flow->entry_index != WEIR_NO_INDEX;
}

/* Returns the entry of a hash, even if it has expired; 0 if there is none. */
static __always_inline struct weir_entry *flow_find(__u64 hash, struct flow *flow)
{
	struct weir_entry *entry = table_find(hash, flow);

	if (entry || !weir_old_bucket_count || !old_or_moved_find(hash, flow))
		return entry;
	return entry_at(flow->entry_index);
}

/* ---- advance ----------------------------------------------------------------------------------------------------- */

/*
 * Counts SYNs. The ratio of established flows, which are counted below, to SYNs shows whether a server accepts
 * connections.
 */
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

/*
 * Queues a flow for the director's peers. Called only if a flow's state has changed, and never for a half-open flow, so
 * packets of established flows and SYN floods cost nothing. User space finds entries in the old table once they have
 * been moved.
 */
__noinline int sync_queue(__u32 entry_index)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_sync_ring *ring;
	__u64 position;

	if (!settings || !(settings->flags & WEIR_SETTINGS_SYNC) || is_old_entry(entry_index))
		return 0;
	ring = WEIR_LOOKUP(weir_sync_rings, bpf_get_smp_processor_id() & (WEIR_SYNC_RINGS - 1));
	if (!ring)
		return 0;
	position = __sync_fetch_and_add(&ring->head, 1);
	WRITE_ONCE(ring->slots[position & (WEIR_SYNC_RING_SLOTS - 1)], (position + 1) << 32 | entry_index);
	return 1;
}

/*
 * Handles a change of a forward entry's state from the state in `meta` to the state in `next`. Not inlined, to save
 * stack space.
 */
__noinline int flow_changed(__u32 entry_index, __u32 dest_id, __u64 meta, __u64 next)
{
	__u32 was_active = META_FLAGS(meta) & WEIR_FLOW_ACTIVE, is_active = META_FLAGS(next) & WEIR_FLOW_ACTIVE;

	if (was_active != is_active) {
		count(dest_id, is_active, 1, COUNT_CLASS);
		count(dest_id, was_active, -1, COUNT_CLASS);
	}
	if (META_STATE(next) == WEIR_STATE_ESTABLISHED && META_STATE(meta) == WEIR_STATE_SYN_RECV)
		count_answered(dest_id);
	if (META_FLAGS(next) & WEIR_FLOW_TEMPLATE && META_STATE(next) == WEIR_STATE_ESTABLISHED)
		template_assure(entry_index);
	if (META_STATE(next) != WEIR_STATE_SYN_RECV)
		sync_queue(entry_index);
	return 1;
}

/*
 * Sets the state and the time of a forward entry after a packet. If the compare-and-swap fails, another packet of the
 * flow has just updated the entry, and that update is kept.
 */
static __always_inline void flow_advance(struct weir_entry *entry, __u32 entry_index, __u32 dest_id, __u64 meta,
					 __u32 state, __u32 now)
{
	__u32 flags = META_FLAGS(meta), is_active;
	__u64 next;

	if (state == META_STATE(meta) && META_SEEN(meta) == now)
		return;
	is_active = flags & WEIR_FLOW_ACTIVE;
	if (state != META_STATE(meta) && state != WEIR_STATE_UDP)
		is_active = state_is_active(state) ? WEIR_FLOW_ACTIVE : 0;
	flags = (flags & ~WEIR_FLOW_ACTIVE) | is_active;
	next = meta_make(META_GENERATION(meta), META_KIND(meta), state, flags, now);
	if (__sync_val_compare_and_swap(&entry->meta, meta, next) != meta)
		return;
	if (state != META_STATE(meta))
		flow_changed(entry_index, dest_id, meta, next);
}

/* ---- insert ------------------------------------------------------------------------------------------------------ */

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
	__u32 old; /* insert into the old table */
	/* Results. */
	__u32 entry_index;
	__u32 generation;
};

enum flow_insert {
	FLOW_INSERTED = 0,
	FLOW_EXISTS = 1, /* the tag is present: the same flow, inserted by another CPU, or a collision */
	FLOW_FULL = 2,
	FLOW_BUSY = 3,
};

static __always_inline int cold_matches(const struct weir_flow_cold *cold, const struct weir_addr *src,
					const struct weir_addr *dst, __be16 sport, __be16 dport, __u8 proto)
{
	return addr_equal(&cold->src, src) && addr_equal(&cold->dst, dst) && cold->sport == sport &&
	       cold->dport == dport && cold->proto == proto;
}

/* Computes the hash of a new flow. This is a separate function to save stack space in the caller. */
__noinline int flow_new_hash(struct flow_new *new, __u32 family)
{
	if (!new)
		return 0;
	new->hash = flow_hash(&new->src, &new->dst, new->sport, new->dport, new->proto, family);
	return 1;
}

static __always_inline __u32 in_old_table(const struct flow_new *new)
{
	return weir_old_bucket_count ? new->old : 0;
}

/*
 * Returns whether the old table has the tuple. A forward entry that is being moved counts as an entry in the current
 * table; a reverse entry does so once its copy exists.
 */
__noinline int old_table_has(__u64 hash)
{
	struct weir_entry *entry;
	__u32 entry_index;

	if (!weir_old_bucket_count)
		return 0;
	entry_index = old_table_index(hash);
	if (entry_index == WEIR_NO_INDEX)
		return 0;
	entry = entry_at(entry_index | WEIR_INDEX_OLD);
	return entry && !(META_KIND(READ_ONCE(entry->meta)) & WEIR_KIND_MOVED);
}

/*
 * Links the reverse entry of a new flow to its forward entry. Called after the forward entry's meta is valid, because
 * replies may already use the reverse entry, and before the forward entry is visible: after that, another CPU can end
 * the flow, and the reverse entry's slot can be reused for another flow.
 */
static __always_inline void reverse_link(const struct flow_new *new)
{
	struct weir_flow_cold *reverse;

	if (new->kind != WEIR_KIND_FORWARD || new->peer == WEIR_NO_INDEX)
		return;
	reverse = cold_at(new->peer);
	if (!reverse)
		return;
	WRITE_ONCE(reverse->peer_generation, (__u8)new->generation);
	WRITE_ONCE(reverse->peer, link_store(new->peer, new->entry_index));
}

static __always_inline int bucket_insert(struct weir_bucket *bucket, __u32 index, struct flow_new *new,
					 __u32 extra_flags)
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
	new->entry_index = index * WEIR_BUCKET_SLOTS + free;
	if (in_old_table(new))
		new->entry_index |= WEIR_INDEX_OLD;
	cold = cold_at(new->entry_index);
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
	cold->peer = link_store(new->entry_index, new->peer);
	cold->template = link_store(new->entry_index, new->template);
	cold->created = new->created;
	cold->service = new->service;
	cold->dest_generation = new->dest_generation;
	cold->ifindex = new->ifindex;
	WRITE_ONCE(bucket->slots[free].meta,
		   meta_make(generation, new->kind, new->state, new->flags | extra_flags, new->now));
	reverse_link(new);
	/* A full barrier: all of the above is visible before the id publishes the entry. */
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

/* Inserts an entry whose home bucket is full in layout 2, which has only one count of spilled entries. */
static __always_inline int second_insert(struct flow_new *new, struct weir_bucket *home, __u32 home_index, __u32 old)
{
	__u32 index = bucket_second(new->hash, old);
	struct weir_bucket *second = bucket_at(index, old);
	int result;

	if (!second || index == home_index)
		return FLOW_FULL;
	if (!lock_try(&second->lock))
		return FLOW_BUSY;
	stash_count_add(home, 0, 1);
	result = bucket_insert(second, index, new, WEIR_FLOW_AWAY);
	if (result != FLOW_INSERTED)
		stash_count_add(home, 0, -1);
	lock_release(&second->lock);
	return result;
}

/* Tries to insert into one bucket other than the home bucket. */
__noinline int step_insert(struct flow_new *new, __u32 step)
{
	struct weir_bucket *home, *bucket;
	__u32 index, old;
	int result;

	if (!new)
		return FLOW_FULL;
	old = in_old_table(new);
	index = step_bucket(new->hash, home_of(new->hash, old), step, old);
	if (index == WEIR_NO_INDEX)
		return FLOW_FULL;
	bucket = bucket_at(index, old);
	if (!bucket || !bucket_has_room(bucket))
		return FLOW_FULL;
	home = bucket_at(home_of(new->hash, old), old);
	if (!home)
		return FLOW_FULL;
	if (!lock_try(&bucket->lock))
		return FLOW_BUSY;
	/* Count the entry before it is visible: a reader that misses in the home bucket must search this pair. */
	step_count_add(home, new->hash, step, 1);
	result = bucket_insert(bucket, index, new, WEIR_FLOW_AWAY);
	if (result != FLOW_INSERTED)
		step_count_add(home, new->hash, step, -1);
	lock_release(&bucket->lock);
	return result;
}

/*
 * Inserts an entry whose home bucket is full. The lock of the home bucket is held, which excludes other inserts of this
 * flow; further locks protect only the slots.
 */
static __always_inline int spill_insert(struct flow_new *new)
{
	int result, failure = FLOW_FULL;

	for (__u32 step = 0; step < STEPS; step++) {
		result = step_insert(new, step);
		if (result == FLOW_INSERTED)
			return result;
		if (result == FLOW_BUSY)
			failure = result;
	}
	return failure;
}

/* Inserts under the locks of the home bucket and of the target bucket, with at most LOCK_TRIES attempts for each. */
__noinline int flow_insert(struct flow_new *new)
{
	struct weir_bucket *home;
	__u64 id = 0, hash;
	__u32 old;
	int result;

	if (!new)
		return FLOW_FULL;
	old = in_old_table(new);
	hash = new->hash;
	home = bucket_at(home_of(hash, old), old);
	if (!home)
		return FLOW_FULL;
	if (!lock_try(&home->lock))
		return FLOW_BUSY;
	result = FLOW_EXISTS;
	if (bucket_find(home, hash & TAG_MASK, &id) >= 0)
		goto out;
	if (has_spilled(home) && (old ? old_table_spill_find(hash) : table_spill_find(hash)) != WEIR_NO_INDEX)
		goto out;
	/* Prevents the compiler from spilling values derived from the hash. */
	VERIFIER_FORGET(hash);
	if (!old)
		hint_add(home_of(hash, 0), hash & TAG_MASK);
	result = bucket_insert(home, home_of(hash, old), new, 0);
	if (result == FLOW_FULL)
		result = layout_of(old) == 2 ? second_insert(new, home, home_of(hash, old), old) : spill_insert(new);
out:
	lock_release(&home->lock);
	return result;
}

/* Removes an entry that was inserted for a flow whose other entry could not be inserted. */
static __always_inline void entry_undo(const struct flow_new *new)
{
	struct weir_entry *entry = entry_at(new->entry_index);
	__u64 meta;

	if (!entry)
		return;
	meta = READ_ONCE(entry->meta);
	if (META_GENERATION(meta) != (__u8)new->generation)
		return;
	if (__sync_val_compare_and_swap(&entry->meta, meta,
					meta_make(new->generation, WEIR_KIND_FREE, 0, META_FLAGS(meta), 0)) == meta)
		slot_release(new->entry_index, meta);
}

/* Inserts an entry of a new flow. Returns FLOW_EXISTS if one of the tables already contains the tuple. */
static __always_inline int flow_begin(struct flow_new *new)
{
	if (weir_old_bucket_count && !in_old_table(new) && old_table_has(new->hash))
		return FLOW_EXISTS;
	return flow_insert(new);
}

#endif
