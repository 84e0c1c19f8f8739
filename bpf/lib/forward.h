/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Forwards a packet to its server with the server's forwarding method, or a nat server's reply to its client. */
#ifndef WEIR_FORWARD_H
#define WEIR_FORWARD_H

#include "lib/bind.h"
#include "lib/encap.h"
#include "lib/reply.h"
#include "lib/rewrite.h"
#include "lib/transmit.h"

static __always_inline void count_traffic_in(struct weir_context *ctx, const struct packet *p, __u32 dest_id)
{
#ifndef WEIR_WITHOUT_METRICS
	struct weir_traffic *traffic = WEIR_LOOKUP(weir_traffic, dest_id);
	struct wire wire = wire_size(ctx, p);

	if (traffic) {
		traffic->packets_in += wire.packets;
		traffic->bytes_in += wire.bytes;
	}
#endif
}

static __always_inline void count_traffic_out(struct weir_context *ctx, const struct packet *p, __u32 dest_id)
{
#ifndef WEIR_WITHOUT_METRICS
	struct weir_traffic *traffic = WEIR_LOOKUP(weir_traffic, dest_id);
	struct wire wire = wire_size(ctx, p);

	if (traffic) {
		traffic->packets_out += wire.packets;
		traffic->bytes_out += wire.bytes;
	}
#endif
}

static __always_inline int packet_is_tagged(const struct packet *p)
{
	return p->l3 > ETH_HEADER_LEN;
}

/*
 * Returns the cold record of the reverse entry of a flow with SNAT; 0 = none. In this record, the reply's destination
 * is the SNAT source address.
 */
static __always_inline struct weir_flow_cold *snat_record(const struct weir_dest *dest, __u32 entry_index)
{
	struct weir_flow_cold *cold;

	if (!forward_translates(dest->forward) || !(dest->flags & WEIR_DEST_SNAT))
		return 0;
	cold = cold_at(entry_index);
	if (!cold || cold->peer == WEIR_NO_INDEX)
		return 0;
	return cold_at(link_load(entry_index, cold->peer));
}

/* Computes the tuple that the server sees with nat. */
static __always_inline void rewrite_to_server(struct packet *p, struct weir_dest *dest, __u32 entry_index,
					      struct rewrite *to)
{
	struct weir_flow_cold *cold = snat_record(dest, entry_index);

	to->src = cold ? cold->dst : p->src;
	to->sport = cold ? cold->dport : p->sport;
	to->dst = dest->addr;
	to->dport = dest->port ? dest->port : p->dport;
}

/* Rewrites a packet for a `nat` or `l3dsr` server. The source changes only with SNAT. */
static __always_inline void packet_to_server(struct weir_context *ctx, struct packet *p, struct weir_dest *dest,
					     __u32 entry_index)
{
	struct weir_flow_cold *cold = snat_record(dest, entry_index);

	if (cold)
		endpoint_rewrite(ctx, p, 1, &cold->dst, cold->dport);
	endpoint_rewrite(ctx, p, 0, &dest->addr,
			 forward_translates(dest->forward) && dest->port ? dest->port : p->dport);
}

__noinline int forward_tunnel(struct weir_context *ctx, struct packet *p, struct weir_dest *dest, struct hop *hop,
			      __u64 hash)
{
	if (!p || !dest || !hop)
		return XDP_DROP;
	int verdict = encap_push(ctx, p, dest, hash);

	if (verdict != PARSE_OK)
		return weir_verdict(verdict, XDP_DROP);
	return transmit(ctx, hop, 0, packet_is_tagged(p));
}

/* Forwards a packet to its server. All checks precede the first modification. */
static __always_inline int forward_to_server(struct weir_context *ctx, struct packet *p, __u32 dest_id,
					     struct weir_dest *dest, __u32 entry_index, __u64 hash, __u32 now)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct hop hop;
	__u32 room;

	if (dest->flags & WEIR_DEST_LOCAL) {
		count_traffic_in(ctx, p, dest_id);
		if (forward_translates(dest->forward) && !addr_equal(&dest->addr, &p->dst))
			packet_to_server(ctx, p, dest, entry_index);
		return weir_verdict(WEIR_PASS_LOCAL_SERVER, XDP_PASS);
	}
	if (ttl_exceeded(data, data_end, p))
		return reject_packet(ctx, WEIR_DROP_TTL, 0);
	if (!hop_to_server(ctx, dest_id, dest, hash, now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	room = WEIR_HOP_MTU(hop.link);
	if (forward_encapsulates(dest->forward))
		room -= room ? encap_overhead(dest) + encap_extra(p, dest) : 0;
	if (room && wire_length(ctx, p) > room)
		return reject_packet(ctx, WEIR_DROP_TOO_BIG, room);
	count_traffic_in(ctx, p, dest_id);
	ttl_decrement(ctx, p);
	if (forward_keeps_addresses(dest->forward))
		return transmit(ctx, &hop, &dest->addr, packet_is_tagged(p));
	if (forward_encapsulates(dest->forward))
		return forward_tunnel(ctx, p, dest, &hop, hash);
	if (forward_sets_dscp(dest->forward) && dest->dscp)
		dscp_set(ctx, p, dest->dscp);
	packet_to_server(ctx, p, dest, entry_index);
	return transmit(ctx, &hop, 0, packet_is_tagged(p));
}

/*
 * Finds the next hop to a client. If there is no route, uses `ifindex`, the ingress device of the client's packets
 * (0 = unknown). Returns 0 if neither is known.
 */
static __always_inline int hop_to_client_or_ingress(struct weir_context *ctx, struct weir_addr *client, __u32 ifindex,
						    __u32 now, struct hop *hop)
{
	if (hop_to_client(ctx, client, now, hop))
		return 1;
	hop->link = hop_link(ifindex, 0, 0);
	hop->dmac = 0;
	hop->smac = 0;
	return ifindex != 0;
}

/* Forwards a reply from a nat server to the client. */
static __always_inline int forward_to_client(struct weir_context *ctx, struct packet *p, __u32 dest_id,
					     const struct reply_translation *xlat, __u32 now)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct hop hop;

	if (ttl_exceeded(data, data_end, p))
		return reject_packet(ctx, WEIR_DROP_TTL, 0);
	if (!hop_to_client_or_ingress(ctx, xlat->client ? xlat->client : &p->dst, xlat->ifindex, now, &hop))
		return weir_verdict(WEIR_DROP_NO_ROUTE, XDP_DROP);
	if (WEIR_HOP_MTU(hop.link) && wire_length(ctx, p) > WEIR_HOP_MTU(hop.link))
		return reject_packet(ctx, WEIR_DROP_TOO_BIG, WEIR_HOP_MTU(hop.link));
	count_traffic_out(ctx, p, dest_id);
	ttl_decrement(ctx, p);
	endpoint_rewrite(ctx, p, 1, &xlat->addr, xlat->port);
	if (xlat->client)
		endpoint_rewrite(ctx, p, 0, xlat->client, xlat->client_port);
	return transmit(ctx, &hop, 0, packet_is_tagged(p));
}

#endif
