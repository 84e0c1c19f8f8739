// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The director's packet path. A packet is parsed, tested against the addresses that concern Weir, looked up in the flow
 * table, bound to a server when it begins something, and forwarded. Established packets touch one bucket of the table, one
 * row of the server and one of its next hops. What is rare (ICMP, fragments, refusals) leaves by a tail call.
 */
#include "lib/forward.h"
#include "lib/sweep.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* A SYN that meets an entry: the same flow again, a finished one whose port is used anew, or another flow's fingerprint. */
__noinline int syn_starts_anew(struct packet *p, struct flow *flow)
{
	struct weir_flow_cold *cold;
	__u32 state;

	if (!p || !flow)
		return 0;
	cold = WEIR_LOOKUP(weir_flows_cold, flow->place);
	if (!cold)
		return 0;
	if (!cold_is(cold, &p->src, &p->dst, p->sport, p->dport, p->proto)) {
		weir_count(WEIR_COUNT_TAG_COLLISION);
		return 1;
	}
	/* conn_reuse_mode = 1 (ip_vs_core.c, is_new_conn_expected). */
	state = META_STATE(flow->meta);
	return state == WEIR_STATE_TIME_WAIT || state == WEIR_STATE_CLOSE;
}

static __always_inline int reply_from_server(struct xdp_md *ctx, struct packet *p, struct flow *flow, __u32 now,
					     struct weir_settings *settings)
{
	struct weir_flow_cold *cold = WEIR_LOOKUP(weir_flows_cold, flow->place);
	struct weir_entry *forward;
	__u32 place;
	__u64 meta;

	if (!cold || !cold_is(cold, &p->src, &p->dst, p->sport, p->dport, p->proto))
		return weir_verdict(WEIR_PASS_NO_FLOW, XDP_PASS);
	place = cold->peer;
	if (place == WEIR_NO_PLACE)
		return weir_verdict(WEIR_PASS_NO_FLOW, XDP_PASS);
	forward = place_entry(place);
	if (!forward)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	meta = READ_ONCE(forward->meta);
	if (META_KIND(meta) != WEIR_KIND_FORWARD || META_GENERATION(meta) != cold->peer_generation)
		return weir_verdict(WEIR_PASS_NO_FLOW, XDP_PASS);
	if (meta_overdue(meta, now, settings)) {
		flow_release(place, meta);
		return weir_verdict(WEIR_PASS_NO_FLOW, XDP_PASS);
	}
	cold = WEIR_LOOKUP(weir_flows_cold, place);
	if (!cold)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	if (p->proto == PROTO_TCP)
		flow_advance(forward, flow->dest, meta,
			     tcp_next_state(META_STATE(meta), TCP_VIEW_OUTPUT, p->tcp_flags), now);
	else
		flow_advance(forward, flow->dest, meta, WEIR_STATE_UDP, now);
	return forward_to_client(ctx, p, flow->dest, cold, now);
}

static __always_inline __u32 next_state(const struct packet *p, __u64 meta)
{
	__u32 view = META_FLAGS(meta) & WEIR_FLOW_ONESIDED ? TCP_VIEW_ONESIDED : TCP_VIEW_INPUT;

	return p->proto == PROTO_TCP ? tcp_next_state(META_STATE(meta), view, p->tcp_flags) : WEIR_STATE_UDP;
}

__noinline int no_binding(struct xdp_md *ctx, __u32 service_id, __u32 reason)
{
	struct weir_service *service;

	if (reason == WEIR_PASS_NO_FLOW)
		return weir_verdict(WEIR_PASS_NO_FLOW, XDP_PASS);
	if (reason == WEIR_DROP_NO_SERVER) {
		service = WEIR_LOOKUP(weir_services, service_id);
		if (service && !(service->flags & WEIR_SERVICE_DROP_NO_SERVER))
			return refuse(ctx, WEIR_REJECT_NO_SERVER, 0);
	}
	return weir_verdict(reason, XDP_DROP);
}

/*
 * The flow's entry when it may go on, 0 when the packet has to be bound to a server first. `ended` is set instead when the
 * packet's way ends here.
 */
static __always_inline struct weir_entry *established(struct packet *p, struct binding *b, struct weir_entry *entry,
						      struct weir_settings *settings, int *ended)
{
	struct weir_dest *dest;

	if (meta_overdue(b->flow.meta, b->now, settings))
		goto give_up;
	if (p->proto == PROTO_TCP && p->tcp_flags & TCP_SYN && syn_starts_anew(p, &b->flow))
		goto give_up;
	dest = WEIR_LOOKUP(weir_dests, b->flow.dest);
	if (!dest)
		goto give_up;
	if ((dest->flags & (WEIR_DEST_LIVE | WEIR_DEST_RESET | WEIR_DEST_RESCHEDULE)) == WEIR_DEST_LIVE)
		return entry;
	if (dest->flags & WEIR_DEST_RESCHEDULE) {
		b->anew = 1;
		goto give_up;
	}
	*ended = dest->flags & WEIR_DEST_RESET ? WEIR_DROP_REMOVED : WEIR_DROP_SERVER_GONE;
give_up:
	flow_release(b->flow.place, b->flow.meta);
	return 0;
}

/* No entry: which service, which server. Answers a verdict, or -1 when b->flow says where the packet goes. */
static __always_inline int bind_new(struct xdp_md *ctx, struct packet *p, struct binding *b, int untracked,
				    struct weir_settings *settings)
{
	struct weir_dest *dest;
	struct weir_vip *vip = 0;

	b->ifindex = ctx->ingress_ifindex;
	b->service = service_find(p, &vip);
	if (!b->service)
		return weir_verdict(vip ? WEIR_PASS_NO_SERVICE : WEIR_PASS_NOT_OURS, XDP_PASS);
	if (!bind(p, b, untracked))
		return no_binding(ctx, b->service, b->verdict);
	dest = WEIR_LOOKUP(weir_dests, b->flow.dest);
	if (dest && settings->flags & WEIR_SETTINGS_LEARN_CLIENTS && dest->forward == WEIR_FORWARD_NAT)
		client_learn(ctx, p, b->now);
	return -1;
}

static __always_inline int balance(struct xdp_md *ctx, struct packet *p)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct binding b = {};
	struct weir_entry *entry;
	struct weir_dest *dest;
	int untracked, ended = -1;

	if (!settings)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	b.now = weir_tick();
	b.hash = packet_hash(p);
	entry = flow_find(b.hash, b.now, &b.flow, &untracked);
	if (entry) {
		if (META_KIND(b.flow.meta) == WEIR_KIND_REVERSE)
			return reply_from_server(ctx, p, &b.flow, b.now, settings);
		entry = established(p, &b, entry, settings, &ended);
		if (ended >= 0)
			return weir_verdict(ended, XDP_DROP);
	}
	if (entry) {
		flow_advance(entry, b.flow.dest, b.flow.meta, next_state(p, b.flow.meta), b.now);
	} else {
		int verdict = bind_new(ctx, p, &b, untracked, settings);

		if (verdict >= 0)
			return verdict;
	}
	dest = WEIR_LOOKUP(weir_dests, b.flow.dest);
	if (!dest)
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	return forward_to_server(ctx, p, b.flow.dest, dest, b.flow.place, b.hash, b.now);
}

/* Does the packet concern Weir? The filter has no false negatives, and what passes it falsely is found out later. */
static __always_inline int concerns_us(const struct packet *p)
{
	struct weir_filter *filter = WEIR_LOOKUP(weir_filters, 0);

	return filter && (filter_hit(filter->to, &p->dst) || filter_hit(filter->from, &p->src));
}

static __always_inline int length_fits(struct xdp_md *ctx, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	__u64 need = (__u64)p->l3 + p->ip_len;

	/* The linear part is all of it, but for packets of several buffers. */
	return need <= (__u64)(data_end - data) || need <= bpf_xdp_get_buff_len(ctx);
}

SEC("xdp.frags")
int weir_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct packet p = {};
	int reason = parse_packet(data, data_end, &p);

	if (reason == WEIR_PASS_NOT_IP)
		return weir_verdict(WEIR_PASS_NOT_IP, XDP_PASS);
	if (!concerns_us(&p))
		return weir_verdict(WEIR_PASS_NOT_OURS, XDP_PASS);
	if (reason == WEIR_PASS_HEADERS)
		return weir_verdict(reason, XDP_PASS);
	if (reason != PARSE_OK)
		return weir_verdict(reason, XDP_DROP);
	if (!length_fits(ctx, &p))
		return weir_verdict(WEIR_DROP_BAD_LENGTH, XDP_DROP);
	if (p.cold == PACKET_PLAIN)
		return balance(ctx, &p);
	if (p.cold == PACKET_ICMP)
		bpf_tail_call(ctx, &weir_stages, WEIR_STAGE_ICMP);
	else if (p.cold != PACKET_OTHER_PROTO)
		bpf_tail_call(ctx, &weir_stages, WEIR_STAGE_FRAGMENT);
	return weir_verdict(p.cold == PACKET_ICMP ? WEIR_PASS_ICMP : WEIR_PASS_PROTOCOL, XDP_PASS);
}

/* Run once by the loader: starts the sweep, or hands it to this generation. */
SEC("xdp")
int weir_sweep_start(struct xdp_md *ctx)
{
	return sweep_start() ? XDP_PASS : XDP_ABORTED;
}
