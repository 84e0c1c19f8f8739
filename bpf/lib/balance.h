/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Balances a packet with ports: looks up its flow, binds a new flow to a server, and forwards the packet. The main
 * program uses this code for whole packets, and the fragment stage for first fragments.
 */
#ifndef WEIR_BALANCE_H
#define WEIR_BALANCE_H

#include "lib/firewall_mark.h"
#include "lib/forward.h"
#include "lib/fragment_table.h"
#include "lib/front_reply.h"
#include "lib/latency.h"
#include "lib/listener_cache.h"
#include "lib/socket_tuple.h"

/* The packet addresses that the address filter contains. */
#define MATCH_NONE 0
#define MATCH_DST  1 /* the destination, possibly the source too */
#define MATCH_SRC  2 /* the source only */

/* Returns which address matches. The filter has no false negatives; the lookups that follow detect false positives. */
static __always_inline int address_filter_match(const struct packet *p)
{
	struct weir_filter *filter = WEIR_LOOKUP(weir_filters, 0);

	if (!filter)
		return MATCH_NONE;
	if (filter_hit(filter->to, &p->dst))
		return MATCH_DST;
	return filter_hit(filter->from, &p->src) ? MATCH_SRC : MATCH_NONE;
}

/* ---- records for later fragments --------------------------------------------------------------------------------- */

/* These are separate functions because their variables would not fit into the caller's stack frame. */
__noinline int fragment_store_request(struct packet *p, __u32 dest_id, __u32 entry_index, __u32 hash, __u32 now)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	struct weir_fragment record = { .dest = dest_id, .tick = now, .hash = hash };
	struct rewrite rewrite;

	if (!p || !dest)
		return 0;
	if (forward_translates(dest->forward) && !addr_equal(&dest->addr, &p->dst)) {
		rewrite_to_server(p, dest, entry_index, &rewrite);
		record.new_src = rewrite.src;
		record.new_dst = rewrite.dst;
	} else if (forward_sets_dscp(dest->forward)) {
		record.new_dst = dest->addr;
	}
	return fragment_store(p, &record);
}

__noinline int fragment_store_reply(struct packet *p, __u32 dest_id, struct weir_flow_cold *cold, __u32 now)
{
	struct weir_fragment record = { .dest = dest_id, .tick = now, .reverse = 1 };

	if (!p || !cold)
		return 0;
	record.new_src = cold->dst;
	record.new_dst = cold->src;
	record.hash = cold->ifindex;
	return fragment_store(p, &record);
}

/*
 * If WEIR_DEST_LIVE is the only one of these flags that is set, the server accepts no new flows, and a client that is
 * still connecting gets a different server.
 */
#define SYN_RESCHEDULE_MASK (WEIR_DEST_LIVE | WEIR_DEST_USABLE | WEIR_DEST_STRICT | WEIR_DEST_RESET)

/* ---- the path ---------------------------------------------------------------------------------------------------- */

/*
 * Returns whether a SYN that matches an entry starts a new flow. The entry may be that of the same flow (a
 * retransmission), a finished flow whose port is reused, a flow whose server never replied or has failed, or a
 * different flow with the same tag.
 */
__noinline int syn_starts_new_flow(struct packet *p, struct flow *flow)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_flow_cold *cold;
	struct weir_dest *dest;
	__u32 state;

	if (!p || !flow || !settings)
		return 0;
	cold = cold_at(flow->entry_index);
	if (!cold)
		return 0;
	if (!cold_matches(cold, &p->src, &p->dst, p->sport, p->dport, p->proto)) {
		weir_count(WEIR_COUNT_TAG_COLLISION);
		return 1;
	}
	state = META_STATE(flow->meta);
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	if (!dest)
		return 1;
	if ((state == WEIR_STATE_SYN_RECV || dest->policy & WEIR_POLICY_DOWN) &&
	    (dest->flags & SYN_RESCHEDULE_MASK) == WEIR_DEST_LIVE &&
	    !(META_FLAGS(flow->meta) & WEIR_FLOW_TEMPLATE && dest->policy & WEIR_POLICY_PERSISTENT))
		return 1;
	/* A SYN never replaces a flow of a persistent client (ip_vs_core.c, ip_vs_in_hook and is_new_conn_expected). */
	if (!(settings->flags & WEIR_SETTINGS_REUSE) || META_FLAGS(flow->meta) & WEIR_FLOW_TEMPLATE)
		return 0;
	if (settings->flags & WEIR_SETTINGS_EXPIRE_NODEST && !(dest->flags & WEIR_DEST_USABLE))
		return 1;
	if (state == WEIR_STATE_FIN_WAIT)
		return settings->flags & WEIR_SETTINGS_REUSE_FIN_WAIT && META_FLAGS(flow->meta) & WEIR_FLOW_ONESIDED;
	return state_allows_reuse(state);
}

/* Handles a packet that matched a reverse entry. Returns 0 if it is not a reply in a live flow. */
static __always_inline int reply_from_server(struct packet *p, struct flow *flow, __u64 hash, __u32 now,
					     struct weir_settings *settings, int is_first_fragment,
					     struct reply_translation *xlat)
{
	struct reply reply;
	__u32 state;

	if (!reply_find(p, flow, now, settings, &reply)) {
		front_delete_flow(flow->entry_index);
		return 0;
	}
	state = reply_advance(p, &reply, flow->dest, now);
	reply_translation_fill(xlat, p, reply.cold);
	if (is_first_fragment)
		fragment_store_reply(p, flow->dest, reply.cold, now);
	else
		front_update_reply(p, flow, xlat, state, hash, now);
	return 1;
}

static __always_inline __u32 next_state(const struct packet *p, __u64 meta)
{
	__u32 view = META_FLAGS(meta) & WEIR_FLOW_ONESIDED ? TCP_VIEW_ONESIDED : TCP_VIEW_INPUT;

	return p->proto == PROTO_TCP ? tcp_next_state(META_STATE(meta), view, p->tcp_flags) : WEIR_STATE_UDP;
}

/* Returns the verdict for a packet without a server, or the negated reason if the packet must be rejected. */
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
 * Inlined so that the program itself makes the tail call. If a subprogram made it, the stage would return to the
 * subprogram's caller, which at tc would interpret the action as a verdict.
 */
static __always_inline int drop_or_reject(struct weir_context *ctx, __u32 service_id, __u32 reason)
{
	int verdict = no_server_verdict(service_id, reason);

	return verdict < 0 ? reject_packet(ctx, -verdict, 0) : verdict;
}

/*
 * Handles a packet of a flow whose server was removed with on_remove = "reset". The entry stays until it times out, so
 * that every packet is rejected. A UDP flow's entry is not refreshed, because a client that keeps sending would then
 * never get a different server.
 */
static __always_inline void flow_close(const struct packet *p, struct weir_entry *entry, const struct flow *flow,
				       __u32 now)
{
	if (p->proto == PROTO_TCP || META_STATE(flow->meta) != WEIR_STATE_CLOSE)
		flow_advance(entry, flow->entry_index, flow->dest, flow->meta, WEIR_STATE_CLOSE, now);
}

/* Flags of bind_new(), which describe the packet. */
#define BIND_NO_ENTRY    1 /* the flow has no entry */
#define BIND_OVER_BUDGET 2 /* the SYN budget is exhausted */
#define BIND_RESCHEDULE  4 /* the flow's server was removed: any packet can be scheduled again */
#define BIND_ENDED       8 /* not for bind_new(): the packet is not forwarded; the high bits contain the reason */

#define BIND_REASON_SHIFT 8

/*
 * Returns the entry if the flow continues. Returns 0 if the packet must be bound to a server first or is not forwarded;
 * `bind_flags` indicates which.
 */
static __always_inline struct weir_entry *established_entry(struct packet *p, struct flow *flow, __u32 now,
							    struct weir_entry *entry, struct weir_settings *settings,
							    __u32 *bind_flags)
{
	struct weir_dest *dest;

	if (meta_expired(flow->meta, now, settings))
		goto give_up;
	if (p->proto == PROTO_TCP && p->tcp_flags & TCP_SYN && syn_starts_new_flow(p, flow))
		goto give_up;
	dest = WEIR_LOOKUP(weir_dests, flow->dest);
	if (!dest)
		goto give_up;
	if ((dest->flags & (WEIR_DEST_LIVE | WEIR_DEST_RESET | WEIR_DEST_RESCHEDULE)) == WEIR_DEST_LIVE)
		return entry;
	if (dest->flags & WEIR_DEST_RESCHEDULE) {
		if (!(dest->policy & WEIR_POLICY_EXPIRE))
			*bind_flags |= BIND_RESCHEDULE;
		goto give_up;
	}
	if (dest->flags & WEIR_DEST_RESET && dest->policy & WEIR_POLICY_SILENT) {
		*bind_flags |= BIND_ENDED | WEIR_DROP_SERVER_GONE << BIND_REASON_SHIFT;
		return 0;
	}
	if (dest->flags & WEIR_DEST_RESET) {
		flow_close(p, entry, flow, now);
		*bind_flags |= BIND_ENDED | WEIR_REJECT_REMOVED << BIND_REASON_SHIFT;
		return 0;
	}
	*bind_flags |= BIND_ENDED | WEIR_DROP_SERVER_GONE << BIND_REASON_SHIFT;
give_up:
	if (!(META_FLAGS(flow->meta) & WEIR_FLOW_ONESIDED))
		front_delete_flow(flow->entry_index);
	flow_release(flow->entry_index, flow->meta);
	return 0;
}

/* These are three separate functions to keep the call chain below the last one within the stack limit. */
__noinline __u32 binding_find_service(struct weir_context *ctx, struct packet *p, struct binding *b)
{
	struct weir_vip *vip = 0;

	if (!p || !b)
		return 0;
	if (has_fwmark(ctx)) {
		b->service = service_by_fwmark(ctx, p->family);
		b->verdict = WEIR_PASS_NOT_OURS;
		return b->service;
	}
	b->service = service_find(p, &vip);
	/* An address that is only a SNAT source address is not a VIP. */
	if (vip && (vip->flags & (WEIR_VIP_ECHO | WEIR_VIP_SNAT)) == WEIR_VIP_SNAT)
		vip = 0;
	if (!b->service)
		b->verdict = vip ? WEIR_PASS_NO_SERVICE : WEIR_PASS_NOT_OURS;
	return b->service;
}

__noinline int binding_learn_client(struct weir_context *ctx, struct packet *p, struct binding *b)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_dest *dest = b ? WEIR_LOOKUP(weir_dests, b->flow.dest) : 0;

	if (!p || !b || !settings)
		return 0;
	/* An ICMP error arrives from a router, not from the client. */
	if (has_fwmark(ctx) || p->slow_path == PACKET_ICMP)
		return 0;
	if (settings->flags & WEIR_SETTINGS_LEARN_CLIENTS && dest && forward_translates(dest->forward))
		client_hop_store(ctx, p, b->now);
	return 1;
}

/* Forwards a packet over the SYN budget without an entry, if the service permits it. */
__noinline int flood_bind_service(struct packet *p, struct binding *b)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);

	if (!p || !b || !settings)
		return 0;
	b->flow.entry_index = WEIR_NO_INDEX;
	b->flow.meta = 0;
	b->flow.dest = flood_server(p, b->service, b->hash, b->now, settings);
	return b->flow.dest != 0;
}

/*
 * Binds a packet without an entry: finds its service and its server. Returns 1 and fills `flow`, or returns 0 and
 * stores the reason in the scratch row's binding. The binding is not a local variable, because the caller's frame is
 * part of every call chain below it, and tail calls limit the frame to 256 bytes.
 */
__noinline int bind_new(struct weir_context *ctx, struct packet *p, struct flow *flow, __u64 hash, __u32 bind_flags)
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
	b->ifindex = original_ifindex(ctx);
	b->reschedule = !!(bind_flags & BIND_RESCHEDULE);
	if (!binding_find_service(ctx, p, b))
		return 0;
	if ((bind_flags & (BIND_OVER_BUDGET | BIND_RESCHEDULE)) == BIND_OVER_BUDGET && flood_bind_service(p, b)) {
		*flow = b->flow;
		return 1;
	}
	bound = bind(p, b, bind_flags & BIND_NO_ENTRY && untracked_mark_active(p->proto, b->hash, b->now));
	if (bound == BIND_RESULT_NAT)
		bound = bind_nat_retry(p, b);
	else if (bound == BIND_RESULT_ENTRY)
		bound = bind_entry(p, b);
	bind_release_template(b, bound);
	if (!bound)
		return 0;
	*flow = b->flow;
	binding_learn_client(ctx, p, b);
	return 1;
}

/*
 * Binds a packet over the SYN budget as bind_new() does, but without its calls. This covers most packets of a flood:
 * those whose service listens on exactly this port.
 */
static __always_inline int flood_bind(const struct packet *p, struct flow *flow, __u32 service, __u64 hash, __u32 now,
				      const struct weir_settings *settings)
{
	if (!service)
		return 0;
	flow->entry_index = WEIR_NO_INDEX;
	flow->meta = 0;
	flow->dest = flood_server(p, service, hash, now, settings);
	return flow->dest != 0;
}

/*
 * Returns whether the stack routes a packet without a server (ip_vs_core.c, ip_vs_leave): the packet has a firewall
 * mark, and its destination is not local.
 */
__noinline int cache_bypass_applies(struct weir_context *ctx, struct packet *p)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bpf_fib_lookup fib = { .ifindex = context_ifindex(ctx) };
	long result;

	if (!p || !settings || !(settings->flags & WEIR_SETTINGS_CACHE_BYPASS) || !has_fwmark(ctx))
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
 * Returns whether a packet to a VIP without a matching service is for a local socket: a reply to a probe, or a packet
 * to a proxy service.
 */
__noinline int has_local_socket(struct weir_context *ctx, struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	__u32 size;

	if (!p)
		return 0;
	size = socket_tuple_fill(&tuple, p->family, &p->src, &p->dst, p->sport, p->dport);
	sk = p->proto == PROTO_TCP ? bpf_skc_lookup_tcp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0) :
				     bpf_sk_lookup_udp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

/* Returns the verdict for a packet without a server from bind_new(). */
static __always_inline int unbound_verdict(struct weir_context *ctx, struct packet *p)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);

	if (!scratch)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	if (scratch->binding.verdict == WEIR_DROP_NO_SERVER && cache_bypass_applies(ctx, p))
		return weir_verdict(WEIR_PASS_BYPASS, XDP_PASS);
	if (scratch->binding.verdict == WEIR_PASS_NO_SERVICE && has_local_socket(ctx, p))
		return weir_verdict(WEIR_PASS_LOCAL_SOCKET, XDP_PASS);
	return drop_or_reject(ctx, scratch->binding.service, scratch->binding.verdict);
}

/*
 * Forwards a packet that has ports. `match` is the result of address_filter_match(). `is_first_fragment` is a
 * compile-time constant. It is 1 for the first fragment of a datagram; the function then records where to send later
 * fragments.
 */
static __always_inline int balance(struct weir_context *ctx, struct packet *p, int match, int is_first_fragment)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	__u32 bind_flags = BIND_NO_ENTRY, flooded = 0, now;
	struct flow flow = {};
	struct weir_entry *entry;
	struct reply_translation xlat;
	struct weir_dest *dest;
	__u64 hash;

	if (!settings)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	now = weir_tick();
	hash = packet_hash(p);
	if (!is_first_fragment && match == MATCH_SRC && front_lookup_reply(p, &flow, hash, now, settings, &xlat))
		goto reply;
	if (!is_first_fragment && match == MATCH_DST && front_lookup(p, &flow, hash, now, settings))
		goto forward;
	if (flood_applies(p, now, settings)) {
		bind_flags |= BIND_OVER_BUDGET;
		flooded = has_fwmark(ctx) ? 0 : service_find_exact_cached(p);
		/* With maglev, a SYN is sent to the same server with or without an entry, so skip the lookup. */
		if (p->proto == PROTO_TCP && service_is_maglev(flooded) &&
		    flood_bind(p, &flow, flooded, hash, now, settings))
			goto forward;
	}
	entry = bind_flags & BIND_OVER_BUDGET && flood_skips_lookup(hash) ? 0 : flow_find(hash, &flow);
	if (entry)
		bind_flags &= ~BIND_NO_ENTRY;
	if (entry && META_KIND(flow.meta) != WEIR_KIND_FORWARD) {
		if (META_KIND(flow.meta) == WEIR_KIND_REVERSE) {
			if (!reply_from_server(p, &flow, hash, now, settings, is_first_fragment, &xlat))
				return weir_verdict(WEIR_PASS_NO_FLOW, XDP_PASS);
			goto reply;
		}
		/* The entry is a template with the same tag as this flow. */
		entry = 0;
	}
	if (entry) {
		entry = established_entry(p, &flow, now, entry, settings, &bind_flags);
		if (bind_flags & BIND_ENDED) {
			front_delete(hash);
			return drop_or_reject(ctx, 0, bind_flags >> BIND_REASON_SHIFT);
		}
	}
	if (entry) {
		__u32 state = next_state(p, flow.meta);

		flow_advance(entry, flow.entry_index, flow.dest, flow.meta, state, now);
		if (state == WEIR_STATE_SYN_RECV && p->tcp_flags & TCP_SYN)
			count_syn(flow.dest);
		front_update_request(p, &flow, state, hash, now);
	} else {
		int bound = !(bind_flags & BIND_RESCHEDULE) && flood_bind(p, &flow, flooded, hash, now, settings);

		if (!bound)
			bound = bind_new(ctx, p, &flow, hash, bind_flags);

		if (!(bind_flags & BIND_NO_ENTRY))
			front_delete(hash);
		if (!bound)
			return unbound_verdict(ctx, p);
	}
forward:
	dest = WEIR_LOOKUP(weir_dests, flow.dest);
	if (!dest)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	if (is_first_fragment) {
		/* Use only the bits that the record contains, so all fragments use the same next hop. */
		hash = (__u32)hash;
		fragment_store_request(p, flow.dest, flow.entry_index, hash, now);
	} else if (p->proto == PROTO_TCP && latency_is_sampled(hash)) {
		latency_observe(ctx, p, hash, flow.dest);
	}
	return forward_to_server(ctx, p, flow.dest, dest, flow.entry_index, hash, now);
reply:
	return forward_to_client(ctx, p, flow.dest, &xlat, now);
}

#endif
