/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The way of a packet with ports: looked up in the flow table, bound to a server when it begins something, forwarded.
 * Included by the director's entry for whole packets and by its stage for first fragments; knows nothing of how they parsed.
 */
#ifndef WEIR_BALANCE_H
#define WEIR_BALANCE_H

#include "lib/firewall_mark.h"
#include "lib/forward.h"
#include "lib/fragment_table.h"
#include "lib/front_reply.h"
#include "lib/listener_front.h"

/* How a packet concerns Weir. */
#define CONCERN_NONE 0
#define CONCERN_TO   1 /* by its destination, and perhaps its source as well */
#define CONCERN_FROM 2 /* by its source alone */

/* The filter has no false negatives, and what passes it falsely is found out later. */
static __always_inline int concerns_us(const struct packet *p)
{
	struct weir_filter *filter = WEIR_LOOKUP(weir_filters, 0);

	if (!filter)
		return CONCERN_NONE;
	if (filter_hit(filter->to, &p->dst))
		return CONCERN_TO;
	return filter_hit(filter->from, &p->src) ? CONCERN_FROM : CONCERN_NONE;
}

/* ---- notes for later fragments ----------------------------------------------------------------------------------------- */

/* Functions of their own, for the sake of the caller's stack. */
__noinline int fragment_remember_request(struct packet *p, __u32 dest_id, __u32 place, __u32 hash, __u32 now)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	struct weir_fragment note = { .dest = dest_id, .tick = now, .hash = hash };
	struct rewrite to;

	if (!p || !dest)
		return 0;
	if (dest->forward == WEIR_FORWARD_NAT && !addr_equal(&dest->addr, &p->dst)) {
		rewrite_to_server(p, dest, place, &to);
		note.new_src = to.src;
		note.new_dst = to.dst;
	} else if (dest->forward == WEIR_FORWARD_L3DSR) {
		note.new_dst = dest->addr;
	}
	return fragment_remember(p, &note);
}

__noinline int fragment_remember_reply(struct packet *p, __u32 dest_id, struct weir_flow_cold *cold, __u32 now)
{
	struct weir_fragment note = { .dest = dest_id, .tick = now, .reverse = 1 };

	if (!p || !cold)
		return 0;
	note.new_src = cold->dst;
	note.new_dst = cold->src;
	note.hash = cold->ifindex;
	return fragment_remember(p, &note);
}

/* Of these flags a server has the first alone when a client that still waits for its answer is better off with another. */
#define SYN_GOES_ELSEWHERE (WEIR_DEST_LIVE | WEIR_DEST_USABLE | WEIR_DEST_STRICT | WEIR_DEST_RESET)

/* ---- the way ------------------------------------------------------------------------------------------------------------- */

/*
 * A SYN that meets an entry: the same flow again, a finished one whose port is used anew, one that its server never answered
 * and will not, one whose server died under it, or another flow's fingerprint.
 */
__noinline int syn_starts_anew(struct packet *p, struct flow *flow)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_flow_cold *cold;
	struct weir_dest *dest;
	__u32 state;

	if (!p || !flow || !settings)
		return 0;
	cold = place_cold(flow->place);
	if (!cold)
		return 0;
	if (!cold_is(cold, &p->src, &p->dst, p->sport, p->dport, p->proto)) {
		weir_count(WEIR_COUNT_TAG_COLLISION);
		return 1;
	}
	state = META_STATE(flow->meta);
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	if (!dest)
		return 1;
	if ((state == WEIR_STATE_SYN_RECV || dest->policy & WEIR_POLICY_DOWN) &&
	    (dest->flags & SYN_GOES_ELSEWHERE) == WEIR_DEST_LIVE &&
	    !(META_FLAGS(flow->meta) & WEIR_FLOW_TEMPLATE && dest->policy & WEIR_POLICY_PERSISTENT))
		return 1;
	/* ip_vs_core.c, ip_vs_in_hook and is_new_conn_expected: a persistent client's flow never does. */
	if (!(settings->flags & WEIR_SETTINGS_REUSE) || META_FLAGS(flow->meta) & WEIR_FLOW_TEMPLATE)
		return 0;
	if (settings->flags & WEIR_SETTINGS_EXPIRE_NODEST && !(dest->flags & WEIR_DEST_USABLE))
		return 1;
	if (state == WEIR_STATE_FIN_WAIT)
		return settings->flags & WEIR_SETTINGS_REUSE_FIN_WAIT && META_FLAGS(flow->meta) & WEIR_FLOW_ONESIDED;
	return state == WEIR_STATE_TIME_WAIT || state == WEIR_STATE_CLOSE;
}

/* Of a packet that met a reverse entry: 0 when it is no reply of a flow that lives. */
static __always_inline int reply_from_server(struct packet *p, struct flow *flow, __u64 hash, __u32 now,
					     struct weir_settings *settings, int remember, struct reply_way *way)
{
	struct reply reply;
	__u32 state;

	if (!reply_find(p, flow, now, settings, &reply)) {
		front_forget_flow(flow->place);
		return 0;
	}
	state = reply_advance(p, &reply, flow->dest, now);
	reply_way_read(way, p, reply.cold);
	if (remember)
		fragment_remember_reply(p, flow->dest, reply.cold, now);
	else
		front_note_reply(p, flow, way, state, hash, now);
	return 1;
}

static __always_inline __u32 next_state(const struct packet *p, __u64 meta)
{
	__u32 view = META_FLAGS(meta) & WEIR_FLOW_ONESIDED ? TCP_VIEW_ONESIDED : TCP_VIEW_INPUT;

	return p->proto == PROTO_TCP ? tcp_next_state(META_STATE(meta), view, p->tcp_flags) : WEIR_STATE_UDP;
}

/* What becomes of a packet that no server gets: a verdict, or the negative reason by which its sender is refused. */
__noinline int no_server_verdict(__u32 service_id, __u32 reason)
{
	struct weir_service *service;

	if (reason == WEIR_PASS_NO_FLOW || reason == WEIR_PASS_NO_SERVICE || reason == WEIR_PASS_NOT_OURS)
		return weir_verdict(reason, XDP_PASS);
	if (reason == WEIR_REJECT_REMOVED)
		return -WEIR_REJECT_REMOVED;
	if (reason == WEIR_DROP_NO_SERVER) {
		service = WEIR_LOOKUP(weir_services, service_id);
		if (service && !(service->flags & WEIR_SERVICE_DROP_NO_SERVER))
			return -WEIR_REJECT_NO_SERVER;
	}
	return weir_verdict(reason, XDP_DROP);
}

/*
 * Refuses from the program's own frame: a stage that a function of its own called would return there, and at tc its action
 * would be taken for a verdict.
 */
static __always_inline int no_server_gets(struct weir_context *ctx, __u32 service_id, __u32 reason)
{
	int verdict = no_server_verdict(service_id, reason);

	return verdict < 0 ? refuse(ctx, -verdict, 0) : verdict;
}

/*
 * A packet of a flow whose server was removed with on_remove = "reset". The entry stays until its time is up, so that
 * every packet is answered; a UDP flow's is not renewed, or a client that goes on sending would never get another server.
 */
static __always_inline void flow_close(const struct packet *p, struct weir_entry *entry, const struct flow *flow, __u32 now)
{
	if (p->proto == PROTO_TCP || META_STATE(flow->meta) != WEIR_STATE_CLOSE)
		flow_advance(entry, flow->place, flow->dest, flow->meta, WEIR_STATE_CLOSE, now);
}

/* What bind_new() is told of the packet beside its flow. */
#define NEW_MISSED  1 /* the table has no entry of it */
#define NEW_FLOODED 2 /* the budget of new flows is used up */
#define NEW_ANYHOW  4 /* its flow's server was removed: any packet may choose again */
#define NEW_ENDED   8 /* never asked for: the packet's way ends, by the reason that stands above */

#define NEW_REASON_SHIFT 8

/* The flow's entry when it may go on, 0 when the packet has to be bound to a server first or ends; `is` says which. */
static __always_inline struct weir_entry *established(struct packet *p, struct flow *flow, __u32 now, struct weir_entry *entry,
						      struct weir_settings *settings, __u32 *is)
{
	struct weir_dest *dest;

	if (meta_overdue(flow->meta, now, settings))
		goto give_up;
	if (p->proto == PROTO_TCP && p->tcp_flags & TCP_SYN && syn_starts_anew(p, flow))
		goto give_up;
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	if (!dest)
		goto give_up;
	if ((dest->flags & (WEIR_DEST_LIVE | WEIR_DEST_RESET | WEIR_DEST_RESCHEDULE)) == WEIR_DEST_LIVE)
		return entry;
	if (dest->flags & WEIR_DEST_RESCHEDULE) {
		if (!(dest->policy & WEIR_POLICY_EXPIRE))
			*is |= NEW_ANYHOW;
		goto give_up;
	}
	if (dest->flags & WEIR_DEST_RESET && dest->policy & WEIR_POLICY_SILENT) {
		*is |= NEW_ENDED | WEIR_DROP_SERVER_GONE << NEW_REASON_SHIFT;
		return 0;
	}
	if (dest->flags & WEIR_DEST_RESET) {
		flow_close(p, entry, flow, now);
		*is |= NEW_ENDED | WEIR_REJECT_REMOVED << NEW_REASON_SHIFT;
		return 0;
	}
	*is |= NEW_ENDED | WEIR_DROP_SERVER_GONE << NEW_REASON_SHIFT;
give_up:
	if (!(META_FLAGS(flow->meta) & WEIR_FLOW_ONESIDED))
		front_forget_flow(flow->place);
	flow_release(flow->place, flow->meta);
	return 0;
}

/* The three have their own frames, so that what lies below the last is not too deep for the stack. */
__noinline __u32 service_of(struct weir_context *ctx, struct packet *p, struct binding *b)
{
	struct weir_vip *vip = 0;

	if (!p || !b)
		return 0;
	if (came_marked(ctx)) {
		b->service = service_by_mark(ctx, p->family);
		b->verdict = WEIR_PASS_NOT_OURS;
		return b->service;
	}
	b->service = service_find(p, &vip);
	/* An address that only snat gives to packets is no VIP. */
	if (vip && (vip->flags & (WEIR_VIP_ECHO | WEIR_VIP_SNAT)) == WEIR_VIP_SNAT)
		vip = 0;
	if (!b->service)
		b->verdict = vip ? WEIR_PASS_NO_SERVICE : WEIR_PASS_NOT_OURS;
	return b->service;
}

__noinline int client_learn_of(struct weir_context *ctx, struct packet *p, struct binding *b)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_dest *dest = b ? WEIR_LOOKUP(weir_dests, b->flow.dest) : 0;

	if (!p || !b || !settings)
		return 0;
	/* Nor by the way of an error about it. */
	if (came_marked(ctx) || p->cold == PACKET_ICMP)
		return 0;
	if (settings->flags & WEIR_SETTINGS_LEARN_CLIENTS && dest && dest->forward == WEIR_FORWARD_NAT)
		client_learn(ctx, p, b->now);
	return 1;
}

/* Above the budget a flow goes without an entry, where its service lets it. */
__noinline int flooded_goes(struct packet *p, struct binding *b)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);

	if (!p || !b || !settings)
		return 0;
	b->flow.place = WEIR_NO_PLACE;
	b->flow.meta = 0;
	b->flow.dest = flood_bind(p, b->service, b->hash, b->now, settings);
	return b->flow.dest != 0;
}

/*
 * No entry: which service, which server. Answers 1 when `flow` says where the packet goes, 0 when the scratch row's binding says
 * why not. The binding is no local of the caller, whose stack counts in every chain below it and is bound to 256 bytes by tail
 * calls.
 */
__noinline int bind_new(struct weir_context *ctx, struct packet *p, struct flow *flow, __u64 hash, __u32 is)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct binding *b;
	int bound;

	if (!p || !flow || !scratch)
		return 0;
	b = &scratch->binding;
	__builtin_memset(b, 0, sizeof(*b));
	b->flow = *flow;
	b->hash = hash;
	b->now = weir_tick();
	b->ifindex = origin_of(ctx);
	b->anew = !!(is & NEW_ANYHOW);
	if (!service_of(ctx, p, b))
		return 0;
	if ((is & (NEW_FLOODED | NEW_ANYHOW)) == NEW_FLOODED && flooded_goes(p, b)) {
		*flow = b->flow;
		return 1;
	}
	bound = bind(p, b, is & NEW_MISSED && mark_holds(p->proto, b->hash, b->now));
	if (bound == BIND_TRANSLATED)
		bound = bind_nat_any(p, b);
	else if (bound == BIND_CHOSEN)
		bound = bind_entry(p, b);
	bind_settle(b, bound);
	if (!bound)
		return 0;
	*flow = b->flow;
	client_learn_of(ctx, p, b);
	return 1;
}

/* The same as bind_new() for most packets of a flood, without its calls: of a service that listens on the very port. */
static __always_inline int flood_goes(const struct packet *p, struct flow *flow, __u32 service, __u64 hash, __u32 now,
				      const struct weir_settings *settings)
{
	if (!service)
		return 0;
	flow->place = WEIR_NO_PLACE;
	flow->meta = 0;
	flow->dest = flood_bind(p, service, hash, now, settings);
	return flow->dest != 0;
}

/*
 * Whether a packet that no server gets goes on by the stack's routes (ip_vs_core.c, ip_vs_leave): a marked one, to an address
 * that is not this machine's.
 */
__noinline int bypasses(struct weir_context *ctx, struct packet *p)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bpf_fib_lookup fib = { .ifindex = context_ifindex(ctx) };
	long result;

	if (!p || !settings || !(settings->flags & WEIR_SETTINGS_CACHE_BYPASS) || !came_marked(ctx))
		return 0;
	if (p->family == 4) {
		fib.family = AF_INET;
		fib.ipv4_src = addr_to_v4(&p->src);
		fib.ipv4_dst = addr_to_v4(&p->dst);
	} else {
		fib.family = AF_INET6;
		addr_to_v6(&p->src, fib.ipv6_src);
		addr_to_v6(&p->dst, fib.ipv6_dst);
	}
	result = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	return result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH;
}

/*
 * Whether a packet to a VIP that no service takes is for a socket of this machine: the answer to a probe that came from there, a
 * client of a proxy service.
 */
__noinline int local_socket(struct weir_context *ctx, struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	__u32 size = sizeof(tuple.ipv4);
	struct bpf_sock *sk;

	if (!p)
		return 0;
	if (p->family == 4) {
		tuple.ipv4.saddr = addr_to_v4(&p->src);
		tuple.ipv4.daddr = addr_to_v4(&p->dst);
		tuple.ipv4.sport = p->sport;
		tuple.ipv4.dport = p->dport;
	} else {
		addr_to_v6(&p->src, tuple.ipv6.saddr);
		addr_to_v6(&p->dst, tuple.ipv6.daddr);
		tuple.ipv6.sport = p->sport;
		tuple.ipv6.dport = p->dport;
		size = sizeof(tuple.ipv6);
	}
	sk = p->proto == PROTO_TCP ? bpf_skc_lookup_tcp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0) :
				     bpf_sk_lookup_udp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

/* What becomes of a packet that bind_new() found no server for. */
static __always_inline int unbound(struct weir_context *ctx, struct packet *p)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);

	if (!scratch)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	if (scratch->binding.verdict == WEIR_DROP_NO_SERVER && bypasses(ctx, p))
		return weir_verdict(WEIR_PASS_BYPASS, XDP_PASS);
	if (scratch->binding.verdict == WEIR_PASS_NO_SERVICE && local_socket(ctx, p))
		return weir_verdict(WEIR_PASS_LOCAL_SOCKET, XDP_PASS);
	return no_server_gets(ctx, scratch->binding.service, scratch->binding.verdict);
}

/*
 * The way of a packet that has ports. `concern` is what concerns_us() said. `remember` is a constant: the first fragment of a
 * datagram leaves a note of its way.
 */
static __always_inline int balance(struct weir_context *ctx, struct packet *p, int concern, int remember)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	__u32 is = NEW_MISSED, flooded = 0, now;
	struct flow flow = {};
	struct weir_entry *entry;
	struct reply_way way;
	struct weir_dest *dest;
	__u64 hash;

	if (!settings)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	now = weir_tick();
	hash = packet_hash(p);
	if (!remember && concern == CONCERN_FROM && front_knows_reply(p, &flow, hash, now, settings, &way))
		goto reply;
	if (!remember && concern == CONCERN_TO && front_knows(p, &flow, hash, now, settings))
		goto known;
	if (flood_meets(p, now, settings)) {
		is |= NEW_FLOODED;
		flooded = came_marked(ctx) ? 0 : service_exact(p);
		/* Where the hash decides, a SYN with an entry goes the same way as one without: none need be looked for. */
		if (p->proto == PROTO_TCP && flood_is_hashed(flooded) && flood_goes(p, &flow, flooded, hash, now, settings))
			goto known;
	}
	entry = is & NEW_FLOODED && flood_has_no_entry(hash) ? 0 : flow_find(hash, &flow);
	if (entry)
		is &= ~NEW_MISSED;
	if (entry && META_KIND(flow.meta) != WEIR_KIND_FORWARD) {
		if (META_KIND(flow.meta) == WEIR_KIND_REVERSE) {
			if (!reply_from_server(p, &flow, hash, now, settings, remember, &way))
				return weir_verdict(WEIR_PASS_NO_FLOW, XDP_PASS);
			goto reply;
		}
		/* A template whose fingerprint happens to be this flow's. */
		entry = 0;
	}
	if (entry) {
		entry = established(p, &flow, now, entry, settings, &is);
		if (is & NEW_ENDED) {
			front_forget(hash);
			return no_server_gets(ctx, 0, is >> NEW_REASON_SHIFT);
		}
	}
	if (entry) {
		__u32 state = next_state(p, flow.meta);

		flow_advance(entry, flow.place, flow.dest, flow.meta, state, now);
		if (state == WEIR_STATE_SYN_RECV && p->tcp_flags & TCP_SYN)
			count_syn(flow.dest);
		front_note_request(p, &flow, state, hash, now);
	} else {
		int bound = !(is & NEW_ANYHOW) && flood_goes(p, &flow, flooded, hash, now, settings);

		if (!bound)
			bound = bind_new(ctx, p, &flow, hash, is);

		if (!(is & NEW_MISSED))
			front_forget(hash);
		if (!bound)
			return unbound(ctx, p);
	}
known:
	dest = WEIR_LOOKUP(weir_dests, flow.dest);
	if (!dest)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	if (remember) {
		/* No more of the hash than a note holds, so that all fragments leave by the same next hop. */
		hash = (__u32)hash;
		fragment_remember_request(p, flow.dest, flow.place, hash, now);
	}
	return forward_to_server(ctx, p, flow.dest, dest, flow.place, hash, now);
reply:
	return forward_to_client(ctx, p, flow.dest, &way, now);
}

#endif
