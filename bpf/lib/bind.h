/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Binds a packet without a flow: selects a server and creates the entry (two entries with nat), or returns the reason
 * for a failure.
 */
#ifndef WEIR_BIND_H
#define WEIR_BIND_H

#include "lib/extent.h"
#include "lib/flood.h"
#include "lib/front_reply.h"
#include "lib/schedule.h"
#include "lib/service.h"
#include "lib/template.h"

#define NAT_SERVER_TRIES 4
#define NAT_SERVER_PICKS 4 /* maximum number of lookups in the spread table to find a nat server */
#define SNAT_PORT_TRIES  16

/* The state while a packet is bound to a server. */
struct binding {
	struct flow flow;
	__u64 hash;
	/* hash for the spread table: `hash`, steer_hash() for maglev, or the hash of the template with persistence */
	__u64 spread;
	__u32 service;
	__u32 now;
	__u32 ifindex;    /* ingress device */
	__u32 reschedule; /* the server was removed with on_remove = "reschedule": any packet starts a flow */
	__u8 persistent;  /* the scratch row's `template` holds the client's key */
	__u8 in_template; /* the flow is counted in that template */
	__u8 one_packet;  /* creates no entry, and no untracked mark */
	__u32 verdict;    /* if the packet is not bound: enum weir_reason */
};

/*
 * These structs are too large for the stack. There is one row per CPU, because each CPU binds one packet at a time, in
 * a softirq.
 */
struct bind_scratch {
	struct binding binding;
	struct weir_extent extent;
	struct flow_new forward;
	struct flow_new reverse;
	struct flow_new template;
	__u64 expired_meta;
	__u32 expired; /* entry of an expired flow that still owns the reverse tuple */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bind_scratch);
} weir_bind_scratch SEC(".maps");

static __always_inline void count_total(__u32 dest_id)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest_id);

	if (live)
		__sync_fetch_and_add(&live->total, 1);
}

static __always_inline __u32 initial_state(const struct packet *p)
{
	return p->proto == PROTO_TCP ? tcp_next_state(WEIR_STATE_NONE, TCP_VIEW_ONESIDED, p->tcp_flags) :
		WEIR_STATE_UDP;
}

static __always_inline void flow_new_fill(struct flow_new *new, struct packet *p, struct binding *b, __u32 dest_id,
					  struct weir_dest *dest)
{
	__u32 state = initial_state(p);
	int active = state == WEIR_STATE_UDP ? !(dest->flags & WEIR_DEST_STRICT) : state_is_active(state);

	new->hash = b->hash;
	new->src = p->src;
	new->dst = p->dst;
	new->sport = p->sport;
	new->dport = p->dport;
	new->proto = p->proto;
	new->family = p->family;
	new->kind = WEIR_KIND_FORWARD;
	new->state = state;
	new->flags = (active ? WEIR_FLOW_ACTIVE : 0) | (forward_translates(dest->forward) ? 0 : WEIR_FLOW_ONESIDED);
	new->dest = dest_id;
	new->service = b->service;
	new->now = b->now;
	new->created = b->now;
	new->peer = WEIR_NO_INDEX;
	new->peer_generation = 0;
	new->template = WEIR_NO_INDEX;
	new->template_generation = 0;
	new->dest_generation = dest->generation;
	new->ifindex = b->ifindex;
	new->old = new_flows_in_old_table();
}

static __always_inline void count_bound(__u32 dest_id, const struct flow_new *new)
{
	count_total(dest_id);
	count(dest_id, new->flags & WEIR_FLOW_ACTIVE, 1, COUNT_FLOW);
	if (new->state == WEIR_STATE_SYN_RECV)
		count_syn(dest_id);
}

/* Links the new entry to the template that counts it. */
static __always_inline void flow_new_set_template(struct flow_new *new, const struct binding *b,
						  const struct flow_new *template)
{
	if (!b->in_template)
		return;
	new->flags |= WEIR_FLOW_TEMPLATE;
	new->template = template->entry_index;
	new->template_generation = template->generation;
}

static __always_inline void binding_set_flow(struct binding *b, const struct flow_new *new)
{
	b->flow.entry_index = new->entry_index;
	b->flow.dest = new->dest;
	b->flow.meta = meta_make(new->generation, new->kind, new->state, new->flags, new->now);
}

/* ---- nat --------------------------------------------------------------------------------------------------------- */

/*
 * Returns whether the flow that owns a reverse tuple has timed out or, with `closed`, is closed. Stores the flow in the
 * scratch row, from which bind_nat() releases it.
 */
__noinline int reverse_expired(__u64 hash, __u32 now, __u32 closed)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_flow_cold *cold;
	struct weir_entry *forward;
	struct flow found = {};
	__u64 meta;

	/* Entries in the old table are not released here: they become free once their flows have been moved. */
	if (!settings || !scratch || !table_find(hash, &found) || META_KIND(found.meta) != WEIR_KIND_REVERSE)
		return 0;
	cold = cold_at(found.entry_index);
	if (!cold || cold->peer == WEIR_NO_INDEX)
		return 0;
	forward = entry_at(cold->peer);
	if (!forward)
		return 0;
	meta = READ_ONCE(forward->meta);
	if (META_KIND(meta) != WEIR_KIND_FORWARD)
		return 0;
	if (!meta_expired(meta, now, settings) && !(closed && state_allows_reuse(META_STATE(meta))))
		return 0;
	scratch->expired = cold->peer;
	scratch->expired_meta = meta;
	return 1;
}

/* Results of the reverse insertion, in addition to enum flow_insert. */
#define FLOW_SNAT_EXHAUSTED 4
#define FLOW_EXPIRED	    5 /* the scratch row has the expired or closed flow to release first */

static __always_inline int reverse_insert_once(struct flow_new *reverse, struct packet *p, __u32 closed)
{
	int result;

	flow_new_hash(reverse, p->family);
	result = flow_begin(reverse);
	if (result == FLOW_EXISTS && reverse_expired(reverse->hash, reverse->now, closed))
		return FLOW_EXPIRED;
	return result;
}

/*
 * Inserts the reverse entry. With SNAT, tries source addresses and ports, starting at a pair that the hash selects.
 * Without SNAT, a client that reuses the port of a closed connection to another VIP takes over the tuple. As in IPVS,
 * replies are assigned to the newest connection.
 */
__noinline int reverse_insert(struct packet *p, __u64 hash, __u32 service_id, __u32 snat)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, service_id);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct flow_new *reverse;
	__u32 span, step;
	int result;

	if (!p || !scratch)
		return FLOW_FULL;
	reverse = &scratch->reverse;
	if (!snat) {
		reverse->dst = p->src;
		reverse->dport = p->sport;
		return reverse_insert_once(reverse, p, 1);
	}
	if (!service || service->snat_len == 0 || service->snat_port_last < service->snat_port_first)
		return FLOW_FULL;
	for (step = 0; step < SNAT_PORT_TRIES; step++) {
		/* Prevents the compiler from spilling values derived from the hash. */
		VERIFIER_FORGET(hash);
		__u32 point = (__u32)(hash >> 8) + step * 0x9e3779b1u;
		struct weir_addr *address = WEIR_LOOKUP(weir_tables, service->snat_at +
							(point >> 16) % service->snat_len);

		if (!address)
			return FLOW_FULL;
		span = service->snat_port_last - service->snat_port_first + 1;
		reverse->dst = *address;
		reverse->dport = bpf_htons(service->snat_port_first +
					   (__u32)((__u64)(point * 0x85ebca6bu) * span >> 32));
		result = reverse_insert_once(reverse, p, 0);
		if (result != FLOW_EXISTS)
			return result;
	}
	return FLOW_SNAT_EXHAUSTED;
}

/* Fills both entries of a nat flow. Returns whether SNAT translates the client's address too, or -1. */
__noinline int bind_nat_fill(struct packet *p, struct binding *b, __u32 dest_id)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	struct flow_new *new;

	if (!p || !b || !dest || !scratch)
		return -1;
	new = &scratch->forward;
	flow_new_fill(new, p, b, dest_id, dest);
	scratch->reverse = *new;
	flow_new_set_template(new, b, &scratch->template);
	scratch->reverse.kind = WEIR_KIND_REVERSE;
	scratch->reverse.src = dest->addr;
	scratch->reverse.sport = dest->port ? dest->port : p->dport;
	return !!(dest->flags & WEIR_DEST_SNAT);
}

/* Inserts the forward entry of a flow whose reverse entry was inserted. */
__noinline int bind_nat_forward(struct binding *b)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct flow_new *new;
	int result;

	if (!b || !scratch)
		return FLOW_FULL;
	new = &scratch->forward;
	new->peer = scratch->reverse.entry_index;
	new->peer_generation = scratch->reverse.generation;
	result = flow_begin(new);
	if (result != FLOW_INSERTED) {
		entry_undo(&scratch->reverse);
		return result;
	}
	count_bound(new->dest, new);
	binding_set_flow(b, new);
	return FLOW_INSERTED;
}

/*
 * Inserts the reverse entry first, because a visible forward entry must always have its reverse entry. The steps are
 * separate functions because the caller's frame is part of the deepest call chain.
 */
static __always_inline int bind_nat(struct packet *p, struct binding *b, __u32 dest_id)
{
	struct bind_scratch *scratch;
	int snat, result;

	snat = bind_nat_fill(p, b, dest_id);
	if (snat < 0)
		return FLOW_FULL;
	result = reverse_insert(p, b->hash, b->service, snat);
	/* The expired flow is released here because a release in reverse_expired() would exceed the stack limit. */
	if (result == FLOW_EXPIRED) {
		scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
		if (!scratch)
			return FLOW_FULL;
		front_delete_flow(scratch->expired);
		flow_release(scratch->expired, scratch->expired_meta);
		result = reverse_insert(p, b->hash, b->service, snat);
	}
	if (result == FLOW_EXPIRED)
		return FLOW_EXISTS;
	if (result != FLOW_INSERTED)
		return result;
	return bind_nat_forward(b);
}

static __always_inline int forward_entry_insert(struct packet *p, struct binding *b, __u32 dest_id,
						struct weir_dest *dest, struct bind_scratch *scratch)
{
	struct flow_new *new = &scratch->forward;
	int result;

	flow_new_fill(new, p, b, dest_id, dest);
	flow_new_set_template(new, b, &scratch->template);
	result = flow_begin(new);
	if (result != FLOW_INSERTED)
		return result;
	count_bound(dest_id, new);
	binding_set_flow(b, new);
	return FLOW_INSERTED;
}

/* Uses the server in the entry that another CPU inserted between the lookup and the insertion. */
static __always_inline int bind_to_existing(struct packet *p, struct binding *b)
{
	struct weir_flow_cold *cold;

	if (!flow_find(b->hash, &b->flow))
		return 0;
	cold = cold_at(b->flow.entry_index);
	if (cold && cold_matches(cold, &p->src, &p->dst, p->sport, p->dport, p->proto))
		return 1;
	weir_count(WEIR_COUNT_TAG_COLLISION);
	return 0;
}

/* ---- the decision ------------------------------------------------------------------------------------------------ */

static __always_inline int bind_fail(struct binding *b, enum weir_reason reason)
{
	b->verdict = reason;
	return 0;
}

/*
 * Binds a packet without an entry, to the server in the client's template or in the spread table. This is not possible
 * with nat, because replies could not be translated back.
 */
__noinline int bind_stateless(struct packet *p, struct binding *b, struct weir_extent *extent, __u32 nat_reason,
			      __u32 mark)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_dest *dest;
	__u32 dest_id;

	if (!p || !b || !extent || !settings || !scratch)
		return 0;
	if (b->persistent && template_find(&scratch->template, b->now))
		dest_id = scratch->template.dest;
	else
		dest_id = schedule_spread(extent, b->spread);
	dest = WEIR_LOOKUP(weir_dests, dest_id);
	if (!dest_id || !dest)
		return bind_fail(b, WEIR_DROP_NO_SERVER);
	if (forward_translates(dest->forward))
		return bind_fail(b, nat_reason);
	/*
	 * A SYN is always sent to the server of the current table. Fragments are excluded, because later fragments
	 * would not follow the first fragment.
	 */
	if (p->proto == PROTO_TCP && !(p->tcp_flags & TCP_SYN) && p->slow_path == PACKET_PLAIN)
		p->alternative = schedule_former(extent, b->spread, dest_id);
	if (mark)
		untracked_mark_set(p->proto, b->hash, b->now, settings);
	count_stateless(dest_id, mark);
	b->flow.entry_index = WEIR_NO_INDEX;
	b->flow.dest = dest_id;
	b->flow.meta = 0;
	return 1;
}

/* Returns whether the spread table's server uses nat and therefore needs an entry. */
static __always_inline int spread_uses_nat(const struct weir_extent *extent, __u64 hash)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, schedule_spread(extent, hash));

	return dest && forward_translates(dest->forward);
}

/* Returns whether packets to this server are translated. A local server that owns the VIP gets them unchanged. */
static __always_inline int dest_uses_nat(const struct weir_dest *dest, const struct packet *p)
{
	return forward_translates(dest->forward) && !(dest->flags & WEIR_DEST_LOCAL &&
						      addr_equal(&dest->addr, &p->dst));
}

/*
 * Returns another nat server from the spread table, or 0 if none was found: the table also contains servers with other
 * forwarding methods.
 */
__noinline __u32 nat_alternative(struct packet *p, struct weir_extent *extent, __u64 hash, __u32 attempt)
{
	struct weir_dest *dest;
	__u32 dest_id;

	if (!p || !extent)
		return 0;
	for (__u32 pick = 0; pick < NAT_SERVER_PICKS; pick++) {
		dest_id = schedule_spread(extent, hash + (attempt * NAT_SERVER_PICKS + pick) * 0x9e3779b97f4a7c15ULL);
		dest = WEIR_LOOKUP(weir_dests, dest_id);
		if (dest_id && dest && dest_uses_nat(dest, p))
			return dest_id;
	}
	return 0;
}

/*
 * Binds with nat: tries the scheduler's server, then other servers from the spread table, until the reverse tuple is
 * free.
 */
__noinline int bind_nat_retry(struct packet *p, struct binding *b)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	int result = FLOW_EXISTS;
	__u32 dest_id;

	if (!p || !b || !scratch)
		return 0;
	dest_id = b->flow.dest;
	/*
	 * 64 bits: if the compiler stores a 32-bit counter next to another variable, the verifier does not track its
	 * value, and reports an infinite loop.
	 */
	for (__u64 i = 0; i < NAT_SERVER_TRIES; i++) {
		result = bind_nat(p, b, dest_id);
		if (result != FLOW_EXISTS)
			break;
		if (bind_to_existing(p, b))
			return 1;
		dest_id = nat_alternative(p, &scratch->extent, b->hash, i + 1);
		if (!dest_id)
			break;
	}
	if (result == FLOW_INSERTED)
		return 1;
	if (result == FLOW_EXISTS)
		return bind_fail(b, WEIR_DROP_NAT_CONFLICT);
	if (result == FLOW_SNAT_EXHAUSTED)
		return bind_fail(b, WEIR_DROP_SNAT_EXHAUSTED);
	return bind_fail(b, WEIR_DROP_NO_PLACE);
}

/* Returns whether a packet can start a flow (ip_vs_proto_tcp.c, tcp_conn_schedule). */
static __always_inline int can_start_flow(const struct packet *p, const struct weir_settings *settings)
{
	if (p->proto != PROTO_TCP)
		return 1;
	if (settings->flags & WEIR_SETTINGS_SLOPPY_TCP)
		return !(p->tcp_flags & TCP_RST);
	return (p->tcp_flags & (TCP_SYN | TCP_RST)) == TCP_SYN;
}

/*
 * Returns whether the SYN budget forbids an entry for the flow. A nat datagram gets an entry anyway, because it cannot
 * be forwarded without one.
 */
__noinline int syn_budget_exceeded(struct packet *p, struct binding *b)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);

	if (!p || !b || !settings || !scratch || b->one_packet || syn_budget_take(b->now, settings))
		return 0;
	return p->proto == PROTO_TCP || !spread_uses_nat(&scratch->extent, b->spread);
}

/*
 * Returns the server that the scheduler selects. If datagrams were recently forwarded without an entry, returns the
 * spread table's server instead, so such a flow does not change servers when it gets its entry.
 */
static __always_inline __u32 bind_schedule(struct packet *p, struct binding *b, struct weir_extent *extent)
{
	int missed = 0;
	__u32 dest_id;

	if (p->proto == PROTO_UDP && !b->one_packet && untracked_mark_active(PROTO_UDP, b->hash, b->now) &&
	    !spread_uses_nat(extent, b->spread))
		return schedule_spread(extent, b->spread);
	dest_id = schedule(p, b->service, extent, b->persistent ? b->hash : b->spread, &missed);
	if (!missed)
		return dest_id;
	weir_count(WEIR_COUNT_LOCK_MISSED);
	return schedule_spread(extent, b->spread);
}

/* Sets up the binding from the service's settings. This is a separate function to save stack space in the caller. */
__noinline int bind_prepare(struct packet *p, struct binding *b)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_service *service;

	if (!p || !b || !scratch)
		return 0;
	b->spread = scratch->extent.scheduler == WEIR_SCHED_MAGLEV ? steer_hash(p) : b->hash;
	service = WEIR_LOOKUP(weir_services, b->service);
	if (!service)
		return 0;
	b->one_packet = service->flags & WEIR_SERVICE_ONE_PACKET && p->proto == PROTO_UDP;
	if (!service->template_ticks || !template_key(p, b->service, &scratch->template))
		return 0;
	b->persistent = 1;
	b->spread = scratch->template.hash;
	return 1;
}

/* Returns the server in a persistent client's template, or 0 if there is no template. */
__noinline __u32 bind_from_template(struct binding *b)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);

	if (!b || !scratch || !b->persistent || !template_find(&scratch->template, b->now))
		return 0;
	b->in_template = template_use(&scratch->template, b->now, !b->one_packet) && !b->one_packet;
	return scratch->template.dest;
}

/*
 * Stores the chosen server in the client's template and returns the server. If another CPU stored its choice first,
 * returns that choice.
 */
__noinline __u32 bind_store_template(struct binding *b, struct weir_extent *extent, __u32 dest_id)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct flow_new *template;

	if (!b || !extent || !scratch || !dest_id || !b->persistent)
		return dest_id;
	template = &scratch->template;
	dest_id = template_insert(template, dest_id, b->now);
	/* Without a template, the hash still sends all flows of the client to one server. */
	if (!dest_id)
		return schedule_spread(extent, b->spread);
	b->in_template = template_use(template, b->now, !b->one_packet) && !b->one_packet;
	return dest_id;
}

/* Binds a UDP packet of a one-packet service, which is forwarded and translated without an entry. */
__noinline int bind_one_packet(struct binding *b, __u32 dest_id)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);

	if (!b || !dest)
		return 0;
	if (dest->flags & WEIR_DEST_SNAT)
		return bind_fail(b, WEIR_DROP_NO_PLACE);
	count_total(dest_id);
	b->flow.entry_index = WEIR_NO_INDEX;
	b->flow.dest = dest_id;
	b->flow.meta = 0;
	return 1;
}

/* Creates the entry of a flow to b->flow.dest, which does not use nat. If that fails, binds without an entry. */
__noinline int bind_entry(struct packet *p, struct binding *b)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_dest *dest;
	int result;

	if (!p || !b || !scratch)
		return 0;
	dest = WEIR_LOOKUP(weir_dests, b->flow.dest);
	if (!dest)
		return bind_fail(b, WEIR_DROP_NO_SERVER);
	result = forward_entry_insert(p, b, b->flow.dest, dest, scratch);
	if (result == FLOW_INSERTED)
		return 1;
	if (result == FLOW_EXISTS && bind_to_existing(p, b))
		return 1;
	weir_count(result == FLOW_FULL ? WEIR_COUNT_TABLE_FULL : WEIR_COUNT_LOCK_MISSED);
	return bind_stateless(p, b, &scratch->extent, WEIR_DROP_NO_PLACE, 1);
}

/* Decrements the template's count for a flow that got no entry: no entry will expire and decrement it later. */
__noinline int bind_release_template(struct binding *b, __u32 bound)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);

	if (!b || !scratch || !b->in_template)
		return 0;
	if (bound && META_FLAGS(b->flow.meta) & WEIR_FLOW_TEMPLATE &&
	    b->flow.entry_index == scratch->forward.entry_index)
		return 0;
	return template_put(scratch->template.entry_index, scratch->template.generation);
}

#define BIND_RESULT_NAT   2
#define BIND_RESULT_ENTRY 3

/*
 * Returns 1 and fills b->flow, or returns 0 with the reason in b->verdict. On BIND_RESULT_ENTRY the caller calls
 * bind_entry() for the server in b->flow.dest, and on BIND_RESULT_NAT it calls bind_nat_retry(); calling them here
 * would exceed the stack limit.
 */
__noinline int bind(struct packet *p, struct binding *b, __u32 untracked)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_extent *extent;
	struct weir_service *service;
	struct weir_dest *dest;
	__u32 dest_id;
	int can_start;

	if (!p || !b || !settings || !scratch)
		return 0;
	extent = &scratch->extent;
	service = WEIR_LOOKUP(weir_services, b->service);
	if (!service)
		return bind_fail(b, WEIR_DROP_INTERNAL);
	can_start = b->reschedule || can_start_flow(p, settings);
	/* Like IPVS, search for a server only if the packet can start a flow. */
	if (!service->extent || !extent_copy(extent, service->extent))
		return bind_fail(b, can_start ? WEIR_DROP_NO_SERVER : WEIR_PASS_NO_FLOW);
	bind_prepare(p, b);
	if (!can_start) {
		/*
		 * With maglev, the packet may be for a connection of another director whose VIP this director took
		 * over.
		 */
		if (!untracked && (extent->scheduler != WEIR_SCHED_MAGLEV || b->persistent))
			return bind_fail(b, WEIR_PASS_NO_FLOW);
		return bind_stateless(p, b, extent, WEIR_PASS_NO_FLOW, 0);
	}
	if (syn_budget_exceeded(p, b)) {
		weir_count(WEIR_COUNT_SYN_BUDGET);
		return bind_stateless(p, b, extent, WEIR_DROP_SYN_BUDGET, 1);
	}
	dest_id = bind_from_template(b);
	if (!dest_id)
		dest_id = bind_store_template(b, extent, bind_schedule(p, b, extent));
	dest = WEIR_LOOKUP(weir_dests, dest_id);
	if (b->one_packet && dest_id && dest)
		return bind_one_packet(b, dest_id);
	if (!dest_id || !dest)
		return bind_fail(b, WEIR_DROP_NO_SERVER);
	b->flow.dest = dest_id;
	return dest_uses_nat(dest, p) ? BIND_RESULT_NAT : BIND_RESULT_ENTRY;
}

#endif
