/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A packet that belongs to no flow: choose a server, make the entry (two under nat), or say why not. */
#ifndef WEIR_BIND_H
#define WEIR_BIND_H

#include "lib/flood.h"
#include "lib/front_reply.h"
#include "lib/schedule.h"
#include "lib/service.h"
#include "lib/template.h"

#define NAT_SERVER_TRIES 4
#define NAT_SERVER_PICKS 4 /* of the spread table, to come by one that translates */
#define SNAT_PORT_TRIES  16

/* What is known of a packet that a server shall get. */
struct binding {
	struct flow flow;
	__u64 hash;
	__u64 spread; /* chooses the server when there is no entry: `hash`, steer_hash() for maglev, or one for all flows of a client */
	__u32 service;
	__u32 now;
	__u32 ifindex; /* where the packet came in */
	__u32 anew;   /* the flow's server was removed with on_remove = "reschedule": any packet may choose again */
	__u8 persistent; /* the scratch row's `template` holds the client's key */
	__u8 held;       /* the flow is counted in that template */
	__u8 one_packet; /* makes no entry and leaves none to be missed */
	__u32 verdict; /* when bind() answers 0: enum weir_reason that ends the packet */
};

/* Too large for the stack of a call chain; per CPU, because a softirq binds one packet at a time there. */
struct bind_scratch {
	struct binding binding;
	struct weir_extent extent;
	struct flow_new forward;
	struct flow_new reverse;
	struct flow_new template;
	__u64 overdue_meta;
	__u32 overdue; /* place of a flow that holds a reverse tuple and only waits for the sweep */
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


static __always_inline __u32 first_state(const struct packet *p)
{
	return p->proto == PROTO_TCP ? tcp_next_state(WEIR_STATE_NONE, TCP_VIEW_ONESIDED, p->tcp_flags) : WEIR_STATE_UDP;
}

static __always_inline void flow_new_fill(struct flow_new *new, struct packet *p, struct binding *b, __u32 dest_id,
					  struct weir_dest *dest)
{
	__u32 state = first_state(p);
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
	new->flags = (active ? WEIR_FLOW_ACTIVE : 0) | (dest->forward == WEIR_FORWARD_NAT ? 0 : WEIR_FLOW_ONESIDED);
	new->dest = dest_id;
	new->service = b->service;
	new->now = b->now;
	new->created = b->now;
	new->peer = WEIR_NO_PLACE;
	new->peer_generation = 0;
	new->template = WEIR_NO_PLACE;
	new->template_generation = 0;
	new->dest_generation = dest->generation;
	new->ifindex = b->ifindex;
	new->old = flows_begin_in_old();
}

static __always_inline void count_bound(__u32 dest_id, const struct flow_new *new)
{
	count_total(dest_id);
	count(dest_id, new->flags & WEIR_FLOW_ACTIVE, 1, COUNT_FLOW);
	if (new->state == WEIR_STATE_SYN_RECV)
		count_syn(dest_id);
}

/* Binds the new entry to the template that it is counted in. */
static __always_inline void flow_new_under(struct flow_new *new, const struct binding *b, const struct flow_new *template)
{
	if (!b->held)
		return;
	new->flags |= WEIR_FLOW_TEMPLATE;
	new->template = template->place;
	new->template_generation = template->generation;
}

static __always_inline void binding_take(struct binding *b, const struct flow_new *new)
{
	b->flow.place = new->place;
	b->flow.dest = new->dest;
	b->flow.meta = meta_make(new->generation, new->kind, new->state, new->flags, new->now);
}

/* ---- nat --------------------------------------------------------------------------------------------------------------- */

/* Whether a reverse tuple's flow is overdue and only waits for the sweep. It is told, not released: see bind_nat(). */
__noinline int reverse_overdue(__u64 hash, __u32 now)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_flow_cold *cold;
	struct weir_entry *forward;
	struct flow found = {};
	__u64 meta;

	/* Not in a table that flows are moved out of: there a place is free again when they have moved. */
	if (!settings || !scratch || !table_find(hash, &found) || META_KIND(found.meta) != WEIR_KIND_REVERSE)
		return 0;
	cold = place_cold(found.place);
	if (!cold || cold->peer == WEIR_NO_PLACE)
		return 0;
	forward = place_entry(cold->peer);
	if (!forward)
		return 0;
	meta = READ_ONCE(forward->meta);
	if (META_KIND(meta) != WEIR_KIND_FORWARD || !meta_overdue(meta, now, settings))
		return 0;
	scratch->overdue = cold->peer;
	scratch->overdue_meta = meta;
	return 1;
}

/* Answers of the reverse insertion beside enum flow_insert. */
#define FLOW_SNAT_EXHAUSTED 4
#define FLOW_OVERDUE	    5 /* the scratch row names the flow that must go first */

static __always_inline int reverse_try(struct flow_new *reverse, struct packet *p)
{
	int result;

	flow_new_hash(reverse, p->family);
	result = flow_begin(reverse);
	if (result == FLOW_EXISTS && reverse_overdue(reverse->hash, reverse->now))
		return FLOW_OVERDUE;
	return result;
}

/* Inserts the reverse entry; under snat walks over source addresses and ports from a point that the hash picks. */
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
		return reverse_try(reverse, p);
	}
	if (!service || service->snat_len == 0 || service->snat_port_last < service->snat_port_first)
		return FLOW_FULL;
	for (step = 0; step < SNAT_PORT_TRIES; step++) {
		/* Or the compiler would keep on the stack what follows from it. */
		VERIFIER_FORGET(hash);
		__u32 point = (__u32)(hash >> 8) + step * 0x9e3779b1u;
		struct weir_addr *address = WEIR_LOOKUP(weir_tables, service->snat_at + (point >> 16) % service->snat_len);

		if (!address)
			return FLOW_FULL;
		span = service->snat_port_last - service->snat_port_first + 1;
		reverse->dst = *address;
		reverse->dport = bpf_htons(service->snat_port_first + (__u32)((__u64)(point * 0x85ebca6bu) * span >> 32));
		result = reverse_try(reverse, p);
		if (result != FLOW_EXISTS)
			return result;
	}
	return FLOW_SNAT_EXHAUSTED;
}

static __always_inline void slot_undo(const struct flow_new *new)
{
	struct weir_entry *entry = place_entry(new->place);
	__u64 meta;

	if (!entry)
		return;
	meta = READ_ONCE(entry->meta);
	if (META_GENERATION(meta) != (__u8)new->generation)
		return;
	if (__sync_val_compare_and_swap(&entry->meta, meta,
					meta_make(new->generation, WEIR_KIND_FREE, 0, META_FLAGS(meta), 0)) == meta)
		release_slot(new->place, meta);
}

/* Reverse entry first: a forward entry that can be seen always has its way back. */
static __always_inline int bind_nat(struct packet *p, struct binding *b, __u32 dest_id)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	struct weir_flow_cold *cold;
	struct flow_new *new;
	int result;

	if (!dest || !scratch)
		return FLOW_FULL;
	new = &scratch->forward;
	flow_new_fill(new, p, b, dest_id, dest);
	scratch->reverse = *new;
	flow_new_under(new, b, &scratch->template);
	scratch->reverse.kind = WEIR_KIND_REVERSE;
	scratch->reverse.src = dest->addr;
	scratch->reverse.sport = dest->port ? dest->port : p->dport;
	result = reverse_insert(p, b->hash, b->service, dest->flags & WEIR_DEST_SNAT);
	/* Here and not where it was met: a release's calls, down to the climb through a tree, do not fit below those. */
	if (result == FLOW_OVERDUE) {
		front_forget_flow(scratch->overdue);
		flow_release(scratch->overdue, scratch->overdue_meta);
		result = reverse_insert(p, b->hash, b->service, dest->flags & WEIR_DEST_SNAT);
	}
	if (result == FLOW_OVERDUE)
		return FLOW_EXISTS;
	if (result != FLOW_INSERTED)
		return result;
	new->peer = scratch->reverse.place;
	new->peer_generation = scratch->reverse.generation;
	result = flow_begin(new);
	if (result != FLOW_INSERTED) {
		slot_undo(&scratch->reverse);
		return result;
	}
	cold = place_cold(scratch->reverse.place);
	if (cold) {
		cold->peer_generation = new->generation;
		WRITE_ONCE(cold->peer, place_stored(scratch->reverse.place, new->place));
	}
	count_bound(dest_id, new);
	binding_take(b, new);
	return FLOW_INSERTED;
}

static __always_inline int bind_one(struct packet *p, struct binding *b, __u32 dest_id, struct weir_dest *dest,
				    struct bind_scratch *scratch)
{
	struct flow_new *new = &scratch->forward;
	int result;

	flow_new_fill(new, p, b, dest_id, dest);
	flow_new_under(new, b, &scratch->template);
	result = flow_begin(new);
	if (result != FLOW_INSERTED)
		return result;
	count_bound(dest_id, new);
	binding_take(b, new);
	return FLOW_INSERTED;
}

/* Another CPU made this flow's entry between our look and our insertion: its choice counts. */
static __always_inline int bind_to_existing(struct packet *p, struct binding *b)
{
	struct weir_flow_cold *cold;

	if (!flow_find(b->hash, &b->flow))
		return 0;
	cold = place_cold(b->flow.place);
	if (cold && cold_is(cold, &p->src, &p->dst, p->sport, p->dport, p->proto))
		return 1;
	weir_count(WEIR_COUNT_TAG_COLLISION);
	return 0;
}

/* ---- the decision ------------------------------------------------------------------------------------------------------ */

static __always_inline int bind_refused(struct binding *b, enum weir_reason reason)
{
	b->verdict = reason;
	return 0;
}

/* By the spread table, without an entry. nat cannot: its replies would not find their way. */
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
		return bind_refused(b, WEIR_DROP_NO_SERVER);
	if (dest->forward == WEIR_FORWARD_NAT)
		return bind_refused(b, nat_reason);
	if (mark)
		mark_set(p->proto, b->hash, b->now, settings);
	count_stateless(dest_id, mark);
	b->flow.place = WEIR_NO_PLACE;
	b->flow.dest = dest_id;
	b->flow.meta = 0;
	return 1;
}

/* Whether the spread table's server needs an entry. */
static __always_inline int spread_translates(const struct weir_extent *extent, __u64 hash)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, schedule_spread(extent, hash));

	return dest && dest->forward == WEIR_FORWARD_NAT;
}

static __noinline int extent_copy(struct weir_extent *to, __u32 at)
{
	struct weir_element *words;

	if (!to)
		return 0;
#pragma unroll
	for (int i = 0; i < sizeof(*to) / 16; i++) {
		words = WEIR_LOOKUP(weir_tables, at + i);
		if (!words)
			return 0;
		__builtin_memcpy((void *)to + i * 16, words, 16);
	}
	return 1;
}

/* Whether a server's flows are translated. One that has the VIP itself gets its packets as they are. */
static __always_inline int dest_translates(const struct weir_dest *dest, const struct packet *p)
{
	return dest->forward == WEIR_FORWARD_NAT && !(dest->flags & WEIR_DEST_LOCAL && addr_equal(&dest->addr, &p->dst));
}

/* Another server that translates, 0 = none found: where a service's servers differ in forward, the table holds all. */
__noinline __u32 nat_other(struct packet *p, struct weir_extent *extent, __u64 hash, __u32 attempt)
{
	struct weir_dest *dest;
	__u32 dest_id;

	if (!p || !extent)
		return 0;
	for (__u32 pick = 0; pick < NAT_SERVER_PICKS; pick++) {
		dest_id = schedule_spread(extent, hash + (attempt * NAT_SERVER_PICKS + pick) * 0x9e3779b97f4a7c15ULL);
		dest = WEIR_LOOKUP(weir_dests, dest_id);
		if (dest_id && dest && dest_translates(dest, p))
			return dest_id;
	}
	return 0;
}

/* A server that the reverse tuple does not meet: the scheduler's own, then others of the spread table. */
__noinline int bind_nat_any(struct packet *p, struct binding *b)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	int result = FLOW_EXISTS;
	__u32 dest_id;

	if (!p || !b || !scratch)
		return 0;
	dest_id = b->flow.dest;
	for (int i = 0; i < NAT_SERVER_TRIES; i++) {
		result = bind_nat(p, b, dest_id);
		if (result != FLOW_EXISTS)
			break;
		if (bind_to_existing(p, b))
			return 1;
		dest_id = nat_other(p, &scratch->extent, b->hash, i + 1);
		if (!dest_id)
			break;
	}
	if (result == FLOW_INSERTED)
		return 1;
	if (result == FLOW_EXISTS)
		return bind_refused(b, WEIR_DROP_NAT_CONFLICT);
	if (result == FLOW_SNAT_EXHAUSTED)
		return bind_refused(b, WEIR_DROP_SNAT_EXHAUSTED);
	return bind_refused(b, WEIR_DROP_NO_PLACE);
}

/* What may begin a flow (ip_vs_proto_tcp.c, tcp_conn_schedule). */
static __always_inline int begins_flow(const struct packet *p, const struct weir_settings *settings)
{
	if (p->proto != PROTO_TCP)
		return 1;
	if (settings->flags & WEIR_SETTINGS_SLOPPY_TCP)
		return !(p->tcp_flags & TCP_RST);
	return (p->tcp_flags & (TCP_SYN | TCP_RST)) == TCP_SYN;
}

/*
 * Whether a flow must do without an entry. A datagram's under nat makes one all the same: it could not be sent otherwise, and
 * no handshake follows that would be refused in its place.
 */
__noinline int over_budget(struct packet *p, struct binding *b)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);

	if (!p || !b || !settings || !scratch || b->one_packet || budget_take(b->now, settings))
		return 0;
	return p->proto == PROTO_TCP || !spread_translates(&scratch->extent, b->spread);
}

/*
 * The scheduler's server. Where datagrams went without an entry it is the spread table's, or a flow among them would change
 * servers when it gets its entry.
 */
static __always_inline __u32 bind_schedule(struct packet *p, struct binding *b, struct weir_extent *extent)
{
	int missed = 0;
	__u32 dest_id;

	if (p->proto == PROTO_UDP && !b->one_packet && mark_holds(PROTO_UDP, b->hash, b->now) && !spread_translates(extent, b->spread))
		return schedule_spread(extent, b->spread);
	dest_id = schedule(p, b->service, extent, b->persistent ? b->hash : b->spread, &missed);
	if (!missed)
		return dest_id;
	weir_count(WEIR_COUNT_LOCK_MISSED);
	return schedule_spread(extent, b->spread);
}

/* What a service's rules make of the packet. A function of its own, for the sake of the caller's stack. */
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

/* The server that a persistent client's last flow got, 0 = none is remembered. */
__noinline __u32 bind_recall(struct binding *b)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);

	if (!b || !scratch || !b->persistent || !template_find(&scratch->template, b->now))
		return 0;
	b->held = template_use(&scratch->template, b->now, !b->one_packet) && !b->one_packet;
	return scratch->template.dest;
}

/* The server of a persistent client's flow: what was chosen is remembered, and another CPU's choice before it counts. */
__noinline __u32 bind_remember(struct binding *b, struct weir_extent *extent, __u32 dest_id)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct flow_new *template;

	if (!b || !extent || !scratch || !dest_id || !b->persistent)
		return dest_id;
	template = &scratch->template;
	dest_id = template_enter(template, dest_id, b->now);
	/* Nothing is remembered: all flows of the client go the same way all the same. */
	if (!dest_id)
		return schedule_spread(extent, b->spread);
	b->held = template_use(template, b->now, !b->one_packet) && !b->one_packet;
	return dest_id;
}

/* A UDP packet of a one-packet service: no entry, and translated without one. */
__noinline int bind_one_packet(struct binding *b, __u32 dest_id)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);

	if (!b || !dest)
		return 0;
	if (dest->flags & WEIR_DEST_SNAT)
		return bind_refused(b, WEIR_DROP_NO_PLACE);
	count_total(dest_id);
	b->flow.place = WEIR_NO_PLACE;
	b->flow.dest = dest_id;
	b->flow.meta = 0;
	return 1;
}

/* The entry of a flow whose server is chosen, b->flow.dest, and does not translate. */
__noinline int bind_entry(struct packet *p, struct binding *b)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_dest *dest;
	int result;

	if (!p || !b || !scratch)
		return 0;
	dest = WEIR_LOOKUP(weir_dests, b->flow.dest);
	if (!dest)
		return bind_refused(b, WEIR_DROP_NO_SERVER);
	result = bind_one(p, b, b->flow.dest, dest, scratch);
	if (result == FLOW_INSERTED)
		return 1;
	if (result == FLOW_EXISTS && bind_to_existing(p, b))
		return 1;
	weir_count(result == FLOW_FULL ? WEIR_COUNT_TABLE_FULL : WEIR_COUNT_LOCK_MISSED);
	return bind_stateless(p, b, &scratch->extent, WEIR_DROP_NO_PLACE, 1);
}

/* A flow that was to come by a template and has no entry of its own there: nothing else would take it out of the count. */
__noinline int bind_settle(struct binding *b, __u32 bound)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);

	if (!b || !scratch || !b->held)
		return 0;
	if (bound && META_FLAGS(b->flow.meta) & WEIR_FLOW_TEMPLATE && b->flow.place == scratch->forward.place)
		return 0;
	return template_leave(scratch->template.place, scratch->template.generation);
}

#define BIND_TRANSLATED 2
#define BIND_CHOSEN     3

/*
 * Fills b->flow and answers 1, or names the reason that ends the packet and answers 0. BIND_CHOSEN: the caller goes on with
 * bind_entry for the server in b->flow.dest; BIND_TRANSLATED: it translates, and the caller goes on with bind_nat_any. Called
 * from here, they would be too deep for the stack.
 */
__noinline int bind(struct packet *p, struct binding *b, __u32 untracked)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_extent *extent;
	struct weir_service *service;
	struct weir_dest *dest;
	__u32 dest_id;
	int begins;

	if (!p || !b || !settings || !scratch)
		return 0;
	extent = &scratch->extent;
	service = WEIR_LOOKUP(weir_services, b->service);
	if (!service)
		return bind_refused(b, WEIR_DROP_INTERNAL);
	begins = b->anew || begins_flow(p, settings);
	/* What begins nothing is no flow's, with servers or without: IPVS asks for a server only after it has looked. */
	if (!service->extent || !extent_copy(extent, service->extent))
		return bind_refused(b, begins ? WEIR_DROP_NO_SERVER : WEIR_PASS_NO_FLOW);
	bind_prepare(p, b);
	if (!begins) {
		/* maglev: another director's connection, which this one has taken over with the VIP. */
		if (!untracked && (extent->scheduler != WEIR_SCHED_MAGLEV || b->persistent))
			return bind_refused(b, WEIR_PASS_NO_FLOW);
		return bind_stateless(p, b, extent, WEIR_PASS_NO_FLOW, 0);
	}
	if (over_budget(p, b)) {
		weir_count(WEIR_COUNT_SYN_BUDGET);
		return bind_stateless(p, b, extent, WEIR_DROP_SYN_BUDGET, 1);
	}
	dest_id = bind_recall(b);
	if (!dest_id)
		dest_id = bind_remember(b, extent, bind_schedule(p, b, extent));
	dest = WEIR_LOOKUP(weir_dests, dest_id);
	if (b->one_packet && dest_id && dest)
		return bind_one_packet(b, dest_id);
	if (!dest_id || !dest)
		return bind_refused(b, WEIR_DROP_NO_SERVER);
	b->flow.dest = dest_id;
	return dest_translates(dest, p) ? BIND_TRANSLATED : BIND_CHOSEN;
}

#endif
