/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sending a packet on: to its server by the server's forwarding method, or back to its client under nat. */
#ifndef WEIR_FORWARD_H
#define WEIR_FORWARD_H

#include "lib/bind.h"
#include "lib/encap.h"
#include "lib/reply.h"
#include "lib/rewrite.h"
#include "lib/transmit.h"

static __always_inline void traffic_in(struct weir_context *ctx, const struct packet *p, __u32 dest_id)
{
	struct weir_traffic *traffic = WEIR_LOOKUP(weir_traffic, dest_id);
	struct wire wire = wire_of(ctx, p);

	if (traffic) {
		traffic->packets_in += wire.packets;
		traffic->bytes_in += wire.bytes;
	}
}

static __always_inline void traffic_out(struct weir_context *ctx, const struct packet *p, __u32 dest_id)
{
	struct weir_traffic *traffic = WEIR_LOOKUP(weir_traffic, dest_id);
	struct wire wire = wire_of(ctx, p);

	if (traffic) {
		traffic->packets_out += wire.packets;
		traffic->bytes_out += wire.bytes;
	}
}

static __always_inline int packet_tagged(const struct packet *p)
{
	return p->l3 > ETH_HEADER_LEN;
}

/* The reverse entry's record of a flow under snat: its source stands there, as the tuple that replies go to. 0 = none. */
static __always_inline struct weir_flow_cold *snat_record(const struct weir_dest *dest, __u32 place)
{
	struct weir_flow_cold *cold;

	if (dest->forward != WEIR_FORWARD_NAT || !(dest->flags & WEIR_DEST_SNAT))
		return 0;
	cold = place_cold(place);
	if (!cold || cold->peer == WEIR_NO_PLACE)
		return 0;
	return place_cold(place_link(place, cold->peer));
}

/* What the server shall see under nat. */
static __always_inline void rewrite_to_server(struct packet *p, struct weir_dest *dest, __u32 place, struct rewrite *to)
{
	struct weir_flow_cold *cold = snat_record(dest, place);

	to->src = cold ? cold->dst : p->src;
	to->sport = cold ? cold->dport : p->sport;
	to->dst = dest->addr;
	to->dport = dest->port ? dest->port : p->dport;
}

/* The packet that the server shall see under nat and l3dsr. Only under snat it changes its source as well. */
static __always_inline void packet_to_server(struct weir_context *ctx, struct packet *p, struct weir_dest *dest, __u32 place)
{
	struct weir_flow_cold *cold = snat_record(dest, place);

	if (cold)
		side_rewrite(ctx, p, 1, &cold->dst, cold->dport);
	side_rewrite(ctx, p, 0, &dest->addr,
		     dest->forward == WEIR_FORWARD_NAT && dest->port ? dest->port : p->dport);
}

__noinline int forward_tunnel(struct weir_context *ctx, struct packet *p, struct weir_dest *dest, struct hop *hop,
				     __u64 hash)
{
	if (!p || !dest || !hop)
		return XDP_DROP;
	int verdict = encap_push(ctx, p, dest, hash);

	if (verdict != PARSE_OK)
		return weir_verdict(verdict, XDP_DROP);
	return transmit(ctx, hop, 0, packet_tagged(p));
}

/* One packet of a flow to its server. Everything that may refuse it comes before the first change to it. */
static __always_inline int forward_to_server(struct weir_context *ctx, struct packet *p, __u32 dest_id, struct weir_dest *dest,
					     __u32 place, __u64 hash, __u32 now)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct hop hop;
	__u32 room;

	if (dest->flags & WEIR_DEST_LOCAL) {
		traffic_in(ctx, p, dest_id);
		if (dest->forward == WEIR_FORWARD_NAT && !addr_equal(&dest->addr, &p->dst))
			packet_to_server(ctx, p, dest, place);
		return weir_verdict(WEIR_PASS_LOCAL_SERVER, XDP_PASS);
	}
	if (ttl_used_up(data, data_end, p))
		return refuse(ctx, WEIR_DROP_TTL, 0);
	if (!hop_to_server(ctx, dest_id, dest, hash, now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	room = WEIR_HOP_MTU(hop.link);
	if (dest->forward == WEIR_FORWARD_TUNNEL)
		room -= room ? encap_overhead(dest) : 0;
	if (room && wire_length(ctx, p) > room)
		return refuse(ctx, WEIR_DROP_TOO_BIG, room);
	traffic_in(ctx, p, dest_id);
	ttl_decrement(ctx, p);
	if (dest->forward == WEIR_FORWARD_DIRECT)
		return transmit(ctx, &hop, &dest->addr, packet_tagged(p));
	if (dest->forward == WEIR_FORWARD_TUNNEL)
		return forward_tunnel(ctx, p, dest, &hop, hash);
	if (dest->forward == WEIR_FORWARD_L3DSR && dest->dscp)
		dscp_set(ctx, p, dest->dscp);
	packet_to_server(ctx, p, dest, place);
	return transmit(ctx, &hop, 0, packet_tagged(p));
}

/* The way to a client; where the kernel tells none, back through `ifindex`, by which its packets came (0 = not known). */
static __always_inline int client_way(struct weir_context *ctx, struct weir_addr *client, __u32 ifindex, __u32 now,
				      struct hop *hop)
{
	if (hop_to_client(ctx, client, now, hop))
		return 1;
	hop->link = hop_link(ifindex, 0, 0);
	hop->dmac = 0;
	hop->smac = 0;
	return ifindex != 0;
}

/* A reply of a nat server. */
static __always_inline int forward_to_client(struct weir_context *ctx, struct packet *p, __u32 dest_id,
					     const struct reply_way *way, __u32 now)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct hop hop;

	if (ttl_used_up(data, data_end, p))
		return refuse(ctx, WEIR_DROP_TTL, 0);
	if (!client_way(ctx, way->client ? way->client : &p->dst, way->ifindex, now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	if (WEIR_HOP_MTU(hop.link) && wire_length(ctx, p) > WEIR_HOP_MTU(hop.link))
		return refuse(ctx, WEIR_DROP_TOO_BIG, WEIR_HOP_MTU(hop.link));
	traffic_out(ctx, p, dest_id);
	ttl_decrement(ctx, p);
	side_rewrite(ctx, p, 1, &way->addr, way->port);
	if (way->client)
		side_rewrite(ctx, p, 0, way->client, way->client_port);
	return transmit(ctx, &hop, 0, packet_tagged(p));
}

#endif
