/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ICMP. The director replies to echo requests to a VIP. An error is forwarded with the flow of the packet that it
 * quotes, and the quote is translated like the packets of the flow (RFC 5508 section 4). An error about a tunnel packet
 * is converted to an error about the inner packet. Other messages pass to the stack. No errors are sent about errors:
 * an error that cannot be forwarded is dropped.
 */
#ifndef WEIR_ICMP_H
#define WEIR_ICMP_H

#include "lib/balance.h"
#include "lib/quote.h"
#include "lib/reject.h"

#define ICMP_ECHO        8
#define ICMP_ECHO_REPLY  0
#define ICMP6_ECHO       128
#define ICMP6_ECHO_REPLY 129

#define GUE_VARIANT_MASK 0xe0 /* variant and control bit */
#define GUE_WORDS_MASK   0x1f

/* The current message; per CPU for the same reason as struct bind_scratch. */
struct icmp_error {
	struct packet p; /* the message itself */
	struct packet q; /* the packet that it quotes */
	struct packet t; /* the tuple to look up: `q` reversed, or the inner packet of a tunnel */
	__u64 hash;      /* hash of `t` */
	__u32 dest;
	__u32 entry_index;
	__u32 now;
	__u32 mtu;       /* the MTU in a too-big message */
};

WEIR_PERCPU(weir_icmp_scratch, struct icmp_error, 1);

static __always_inline int icmp_pass(const struct packet *p)
{
	return weir_verdict(address_filter_match(p) ? WEIR_PASS_ICMP : WEIR_PASS_NOT_OURS, XDP_PASS);
}

/* ---- echo -------------------------------------------------------------------------------------------------------- */

/*
 * Returns whether the director may reply to a request: it is not a fragment, its addresses are unicast, and it has
 * neither options nor extension headers, which may require special handling.
 */
static __always_inline int echo_is_plain(struct weir_context *ctx, const struct packet *p)
{
	if (p->l4 - p->l3 != (p->family == 4 ? IPV4_MIN_LEN : IPV6_LEN))
		return 0;
	return !packet_is_fragment(ctx, p) && source_is_unicast(p) && frame_is_unicast(ctx);
}

static __always_inline int echo_reply_write(void *data, void *data_end, const struct packet *p)
{
	struct icmp_header *icmp = packet_l4(data, p);

	if (p->family == 4) {
		struct ipv4_header *ip = packet_l3(data, p);

		if ((void *)(ip + 1) > data_end)
			return 0;
		ip->src = addr_to_v4(&p->dst);
		ip->dst = addr_to_v4(&p->src);
		ip->csum = csum_apply(ip->csum, csum_diff16(bpf_htons(ip->ttl << 8), bpf_htons(REPLY_TTL << 8)));
		ip->ttl = REPLY_TTL;
	} else {
		struct ipv6_header *ip = packet_l3(data, p);

		if ((void *)(ip + 1) > data_end)
			return 0;
		addr_to_v6(&p->dst, ip->src);
		addr_to_v6(&p->src, ip->dst);
		ip->hops = REPLY_TTL;
	}
	if ((void *)(icmp + 1) > data_end)
		return 0;
	if (p->family == 4) {
		icmp->csum = csum_apply(icmp->csum, csum_diff16(bpf_htons(ICMP_ECHO << 8), ICMP_ECHO_REPLY));
		icmp->type = ICMP_ECHO_REPLY;
	} else {
		icmp->csum =
			csum_apply(icmp->csum, csum_diff16(bpf_htons(ICMP6_ECHO << 8),
							   bpf_htons(ICMP6_ECHO_REPLY << 8)));
		icmp->type = ICMP6_ECHO_REPLY;
	}
	return 1;
}

__noinline int icmp_echo(struct weir_context *ctx, struct packet *p)
{
	void *data, *data_end;
	struct weir_addr addr;
	struct weir_vip *vip;

	if (!p)
		return XDP_DROP;
	addr = p->dst; /* before Linux 6.2, a key must not be in the memory of a function argument */
	vip = bpf_map_lookup_elem(&weir_vips, &addr);
	if (!vip || (vip->flags & (WEIR_VIP_ECHO | WEIR_VIP_SILENT)) != WEIR_VIP_ECHO || !echo_is_plain(ctx, p))
		return icmp_pass(p);
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (!echo_reply_write(data, data_end, p))
		return weir_verdict(WEIR_DROP_TOO_SHORT, XDP_DROP);
	weir_count(WEIR_TX_ECHO);
	return send_back(ctx);
}

/* ---- translation ------------------------------------------------------------------------------------------------- */

/* Sets the addresses of the message and, with `quoted`, addresses and ports of the quote; updates the ICMP checksum. */
static __always_inline void icmp_rewrite(struct weir_context *ctx, struct icmp_error *e, struct rewrite *message,
					 struct rewrite *quoted)
{
	__u64 diff = quoted ? quote_rewrite(ctx, &e->q, quoted) : 0, outer;
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct icmp_header *icmp;

	outer = address_set(data, data_end, &e->p, 1, &message->src) +
		address_set(data, data_end, &e->p, 0, &message->dst);
	if (e->p.family == 6)
		diff += outer;
	icmp = packet_l4(data, &e->p);
	if ((void *)(icmp + 1) <= data_end)
		icmp->csum = csum_apply(icmp->csum, diff);
}

/* Rewrites a message for a `nat` or `l3dsr` server. */
static __always_inline void icmp_rewrite_to_server(struct weir_context *ctx, struct icmp_error *e,
						   struct weir_dest *dest)
{
	struct rewrite message = { .src = e->p.src, .dst = dest->addr }, request, quoted;

	if (!forward_translates(dest->forward)) {
		icmp_rewrite(ctx, e, &message, 0);
		return;
	}
	rewrite_to_server(&e->t, dest, e->entry_index, &request);
	quoted.src = request.dst;
	quoted.sport = request.dport;
	quoted.dst = request.src;
	quoted.dport = request.sport;
	icmp_rewrite(ctx, e, &message, &quoted);
}

/* ---- forwarding -------------------------------------------------------------------------------------------------- */

/* Forwards an error about a server's reply to this server. The error was sent to the VIP. */
__noinline int icmp_to_server(struct weir_context *ctx, struct icmp_error *e)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct weir_dest *dest;
	struct hop hop;
	__u32 room;

	if (!e)
		return XDP_DROP;
	dest = WEIR_LOOKUP(weir_dests, e->dest);
	if (!dest || !(dest->flags & WEIR_DEST_LIVE))
		return weir_verdict(WEIR_DROP_SERVER_GONE, XDP_DROP);
	if (dest->flags & WEIR_DEST_LOCAL) {
		if (forward_translates(dest->forward) && !addr_equal(&dest->addr, &e->p.dst))
			icmp_rewrite_to_server(ctx, e, dest);
		return weir_verdict(WEIR_PASS_LOCAL_SERVER, XDP_PASS);
	}
	if (ttl_exceeded(data, data_end, &e->p))
		return weir_verdict(WEIR_DROP_TTL, XDP_DROP);
	if (!hop_to_server(ctx, e->dest, dest, e->hash, e->now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	room = WEIR_HOP_MTU(hop.link);
	if (forward_encapsulates(dest->forward))
		room -= room ? encap_overhead(dest) : 0;
	if (room && e->p.ip_len > room)
		return weir_verdict(WEIR_DROP_TOO_BIG, XDP_DROP);
	count_traffic_in(ctx, &e->p, e->dest);
	ttl_decrement(ctx, &e->p);
	if (forward_keeps_addresses(dest->forward))
		return transmit(ctx, &hop, &dest->addr, packet_is_tagged(&e->p));
	if (forward_encapsulates(dest->forward))
		return forward_tunnel(ctx, &e->p, dest, &hop, e->hash);
	if (forward_sets_dscp(dest->forward) && dest->dscp)
		dscp_set(ctx, &e->p, dest->dscp);
	icmp_rewrite_to_server(ctx, e, dest);
	return transmit(ctx, &hop, 0, packet_is_tagged(&e->p));
}

/*
 * Forwards an error about a request to a nat server to the client. Rewrites the quote to the request as the client
 * sent it. The source address is kept if it is that of a router.
 */
static __always_inline int icmp_to_client(struct weir_context *ctx, struct icmp_error *e, struct weir_flow_cold *cold)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct rewrite message = { .src = e->p.src, .dst = cold->src }, quoted;
	struct hop hop;

	quoted.src = cold->src;
	quoted.sport = cold->sport;
	quoted.dst = cold->dst;
	quoted.dport = cold->dport;
	if (addr_equal(&e->p.src, &e->q.dst))
		message.src = cold->dst;
	if (ttl_exceeded(data, data_end, &e->p))
		return weir_verdict(WEIR_DROP_TTL, XDP_DROP);
	if (!hop_to_client_or_ingress(ctx, &message.dst, cold->ifindex, e->now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	if (WEIR_HOP_MTU(hop.link) && e->p.ip_len > WEIR_HOP_MTU(hop.link))
		return weir_verdict(WEIR_DROP_TOO_BIG, XDP_DROP);
	count_traffic_out(ctx, &e->p, e->dest);
	ttl_decrement(ctx, &e->p);
	icmp_rewrite(ctx, e, &message, &quoted);
	return transmit(ctx, &hop, 0, packet_is_tagged(&e->p));
}

__noinline int icmp_handle_request_error(struct weir_context *ctx, struct icmp_error *e)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct flow flow = {};
	struct reply reply;

	if (!e || !settings)
		return XDP_DROP;
	flow.entry_index = e->entry_index;
	flow.dest = e->dest;
	if (!reply_find(&e->t, &flow, e->now, settings, &reply))
		return icmp_pass(&e->p);
	return icmp_to_client(ctx, e, reply.cold);
}

/* ---- flow lookup ------------------------------------------------------------------------------------------------- */

/*
 * Returns the server of a flow without an entry, according to the table that its packets used; 0 = none. `marked`: such
 * flows can exist.
 */
__noinline int untracked_dest(struct packet *t, __u64 hash, __u32 marked)
{
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct weir_service *service;
	struct weir_vip *vip;
	struct packet tuple;
	__u32 id;

	if (!t || !scratch)
		return 0;
	tuple = *t; /* as in icmp_echo: its address is used as a key */
	id = service_find(&tuple, &vip);
	service = id ? WEIR_LOOKUP(weir_services, id) : 0;
	if (!service || !service->extent || !extent_copy(&scratch->extent, service->extent))
		return 0;
	if (scratch->extent.scheduler == WEIR_SCHED_MAGLEV && !service->template_ticks)
		return schedule_spread(&scratch->extent, steer_hash(&tuple));
	return marked ? schedule_spread(&scratch->extent, hash) : 0;
}

/*
 * Looks up e->t and fills in hash, dest and entry_index. Returns the kind of the entry, WEIR_KIND_FORWARD for a flow
 * without an entry, or WEIR_KIND_FREE if there is no flow.
 */
__noinline int icmp_find(struct icmp_error *e)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_flow_cold *cold;
	struct flow flow = {};

	if (!e || !settings)
		return WEIR_KIND_FREE;
	e->hash = packet_hash(&e->t);
	if (!flow_find(e->hash, &flow)) {
		e->entry_index = WEIR_NO_INDEX;
		e->dest = untracked_dest(&e->t, e->hash, untracked_mark_active(e->t.proto, e->hash, e->now));
		return e->dest ? WEIR_KIND_FORWARD : WEIR_KIND_FREE;
	}
	e->entry_index = flow.entry_index;
	e->dest = flow.dest;
	if (META_KIND(flow.meta) != WEIR_KIND_FORWARD)
		return META_KIND(flow.meta);
	cold = cold_at(flow.entry_index);
	if (!cold || !cold_matches(cold, &e->t.src, &e->t.dst, e->t.sport, e->t.dport, e->t.proto) ||
	    meta_expired(flow.meta, e->now, settings))
		return WEIR_KIND_FREE;
	return WEIR_KIND_FORWARD;
}

/*
 * Creates a flow for an error without a flow, as for a packet from the client (ip_vs_core.c, ip_vs_in_icmp with
 * schedule_icmp). Returns 1 if the flow was bound to a server, -1 if the service has no server, otherwise 0.
 */
__noinline int icmp_schedule(struct weir_context *ctx, struct icmp_error *e)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct bind_scratch *scratch = WEIR_LOOKUP(weir_bind_scratch, 0);
	struct flow flow = { .entry_index = WEIR_NO_INDEX };

	if (!e || !settings || !scratch || !(settings->flags & WEIR_SETTINGS_SCHEDULE_ICMP))
		return 0;
	e->t.tcp_flags = 0;
	e->t.slow_path = PACKET_ICMP;
	if (!bind_new(ctx, &e->t, &flow, e->hash, BIND_NO_ENTRY | BIND_RESCHEDULE))
		return scratch->binding.verdict == WEIR_DROP_NO_SERVER ? -1 : 0;
	e->dest = flow.dest;
	e->entry_index = flow.entry_index;
	return 1;
}

/* ---- too big, from a tunnel's path ------------------------------------------------------------------------------- */

/* Returns the offset of the inner packet in the quoted tunnel packet; 0 = not one of Weir's tunnels. */
static __always_inline __u32 tunnel_inner(struct weir_context *ctx, const struct packet *q)
{
	__be16 gre = 0;
	__u8 gue = 0;

	switch (q->proto) {
	case PROTO_IPIP:
	case PROTO_IPV6:
		return q->l4;
	case PROTO_GRE:
		if (context_load(ctx, q->l4, &gre, sizeof(gre)))
			return 0;
		return q->l4 + (gre & bpf_htons(GRE_FLAG_CSUM) ? GRE_CSUM_LEN : GRE_LEN);
	case PROTO_UDP:
		if (context_load(ctx, q->l4 + UDP_LEN, &gue, sizeof(gue)) || gue & GUE_VARIANT_MASK)
			return 0;
		return q->l4 + UDP_LEN + GUE_LEN + (gue & GUE_WORDS_MASK) * 4;
	default:
		return 0;
	}
}

/* Removes all bytes between the link-layer header and the packet at `inner`, which then starts at e->p.l3. */
static __always_inline int tunnel_strip(struct weir_context *ctx, const struct icmp_error *e, __u32 inner)
{
	__u32 l3 = e->p.l3;
	__be16 type = bpf_htons(e->t.family == 4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	__u8 frame[FRAME_HEADER_MAX];

	VERIFIER_FORGET(l3);
	if (l3 < ETH_HEADER_LEN || l3 > FRAME_HEADER_MAX || context_load(ctx, 0, frame, l3))
		return 0;
	if (room_close(ctx, frame, l3, inner - l3))
		return 0;
	return !context_store(ctx, l3 - sizeof(type), &type, sizeof(type));
}

/* Reports the tunnel's MTU to the client, from the VIP. */
__noinline int icmp_report_tunnel_mtu(struct weir_context *ctx, struct icmp_error *e)
{
	struct weir_flow_cold *cold;
	struct icmp_fields fields;
	struct weir_dest *dest;
	__u32 inner, end, room;
	struct hop hop;
	int built;

	if (!e)
		return XDP_DROP;
	end = e->p.l3 + e->p.ip_len;
	inner = tunnel_inner(ctx, &e->q);
	if (!inner || !quote_parse(ctx, inner, end, &e->t) || !quote_has_ports(&e->t) ||
	    icmp_find(e) != WEIR_KIND_FORWARD)
		return icmp_pass(&e->p);
	dest = WEIR_LOOKUP(weir_dests, e->dest);
	if (!dest || !forward_encapsulates(dest->forward) || !addr_equal(&dest->addr, &e->q.dst) ||
	    !addr_equal(&dest->tunnel_source, &e->q.src))
		return icmp_pass(&e->p);
	room = encap_overhead(dest);
	if (e->mtu < room + IPV4_MTU_MIN)
		return icmp_pass(&e->p);
	fields = icmp_too_big(e->t.family, e->mtu - room);
	cold = e->entry_index == WEIR_NO_INDEX ? 0 : cold_at(e->entry_index);
	if (!hop_to_client_or_ingress(ctx, &e->t.src, cold ? cold->ifindex : 0, e->now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	if (!tunnel_strip(ctx, e, inner))
		return weir_verdict(WEIR_DROP_INTERNAL, XDP_DROP);
	e->t.l3 = e->p.l3;
	e->t.ip_len = end - inner;
	built = icmp_error_build(ctx, &e->t, &fields);
	if (built != PARSE_OK)
		return weir_verdict(built, XDP_DROP);
	return transmit(ctx, &hop, 0, packet_is_tagged(&e->p));
}

/* ---- the stage --------------------------------------------------------------------------------------------------- */

static __always_inline int icmp_is_error(__u8 family, __u8 type)
{
	if (family == 4)
		return type == ICMP_UNREACHABLE || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER;
	return type >= ICMP6_UNREACHABLE && type <= ICMP6_PARAMETER;
}

static __always_inline __u32 icmp_mtu(__u8 family, const struct icmp_header *icmp)
{
	if (family == 4 && icmp->type == ICMP_UNREACHABLE && icmp->code == ICMP_FRAG_NEEDED)
		return bpf_ntohl(icmp->rest) & 0xffff;
	return family == 6 && icmp->type == ICMP6_TOO_BIG ? bpf_ntohl(icmp->rest) : 0;
}

/*
 * Returns the verdict for an error with an unreadable quote: drop if it was sent to a service's address, where the
 * stack could not use it either.
 */
static __always_inline int unreadable_quote_verdict(const struct packet *p)
{
	struct weir_vip *vip = bpf_map_lookup_elem(&weir_vips, &p->dst);

	if (vip && vip->flags & WEIR_VIP_ECHO)
		return weir_verdict(WEIR_DROP_TOO_SHORT, XDP_DROP);
	return icmp_pass(p);
}

static __always_inline void tuple_from_quote(struct icmp_error *e)
{
	e->t.src = e->q.dst;
	e->t.dst = e->q.src;
	e->t.sport = e->q.dport;
	e->t.dport = e->q.sport;
	e->t.proto = e->q.proto;
	e->t.family = e->q.family;
}

static __always_inline int icmp_stage(struct weir_context *ctx, struct icmp_error *e)
{
	struct icmp_header icmp;
	int kind = WEIR_KIND_FREE, scheduled = 0;

	if (e->p.l4 - e->p.l3 + ICMP_LEN > e->p.ip_len || context_load(ctx, e->p.l4, &icmp, sizeof(icmp)))
		return icmp_pass(&e->p);
	if (icmp.type == (e->p.family == 4 ? ICMP_ECHO : ICMP6_ECHO))
		return icmp_echo(ctx, &e->p);
	if (!icmp_is_error(e->p.family, icmp.type) || packet_is_fragment(ctx, &e->p))
		return icmp_pass(&e->p);
	if (!quote_parse(ctx, e->p.l4 + ICMP_LEN, e->p.l3 + e->p.ip_len, &e->q) || e->q.family != e->p.family)
		return unreadable_quote_verdict(&e->p);
	/* The destination of an error is the source of its quote. */
	if (!addr_equal(&e->q.src, &e->p.dst))
		return icmp_pass(&e->p);
	e->now = weir_tick();
	e->mtu = icmp_mtu(e->p.family, &icmp);
	if (quote_has_ports(&e->q)) {
		tuple_from_quote(e);
		kind = icmp_find(e);
		scheduled = kind == WEIR_KIND_FREE ? icmp_schedule(ctx, e) : 0;
	}
	if (scheduled < 0)
		return weir_verdict(WEIR_DROP_NO_SERVER, XDP_DROP);
	if (kind == WEIR_KIND_FORWARD || scheduled)
		return icmp_to_server(ctx, e);
	if (kind == WEIR_KIND_REVERSE)
		return icmp_handle_request_error(ctx, e);
	return e->mtu ? icmp_report_tunnel_mtu(ctx, e) : icmp_pass(&e->p);
}

#endif
