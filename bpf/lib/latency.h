/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Estimates a server's latency from client packets only: the time from the last packet of a request to the first
 * payload of the response. Replies bypass the director, but the client's acknowledgements pass through it, and with TCP
 * timestamps (RFC 7323) each of them carries the value of the server's clock at the time the acknowledged data was
 * sent.
 *
 * The handshake maps the server's clock to the director's: the SYN-ACK was sent just after the SYN arrived here. A
 * sample is the mapped send time of the first new payload that the client acknowledges, minus the arrival of the last
 * payload before it. Without timestamps, the sample is the arrival of the acknowledgement minus the arrival of that
 * payload and minus the duration of the same round trip in the handshake.
 *
 * crates/weir-latency/src/flow.rs is the model of this file, with the reasons for each rule; both must agree on every
 * packet.
 */
#ifndef WEIR_LATENCY_H
#define WEIR_LATENCY_H

#include "lib/candidate.h"
#include "lib/context.h"
#include "lib/latency_sample.h"

#define LATENCY_MS 1000000LL
#define LATENCY_US 1000LL

#define LATENCY_SLOT_IDLE_NS    (1000 * LATENCY_MS)  /* a slot idle for this long can be reused for a different flow */
#define LATENCY_HANDSHAKE_NS    (900 * LATENCY_MS)   /* below the initial retransmission timeout, RFC 6298 */
#define LATENCY_ANCHOR_NS       (10000 * LATENCY_MS) /* 1 ms of drift at 100 ppm */
#define LATENCY_OVERLAP_NS      (250 * LATENCY_US)
#define LATENCY_SLACK_NS        (64 * LATENCY_US)
#define LATENCY_FULL_SEGMENT    536
#define LATENCY_UPLOAD_BYTES    16384 /* a request of at least this length is an upload, sent in pieces */
#define LATENCY_TLS_WINDOW      1200 /* session tickets, HTTP/2 SETTINGS */
#define LATENCY_TICKET_BYTES    640  /* two session tickets are at most this long */
#define LATENCY_TICKETS_NS      (5 * LATENCY_MS) /* after such a pause, all tickets have been acknowledged */
#define LATENCY_HTTP2_WINDOW    128  /* HTTP/2 SETTINGS without TLS */
#define LATENCY_FINISHED_BYTES  100  /* a TLS Finished alone is at most this long; with a request, it is longer */
#define LATENCY_PROMPT_NS       LATENCY_MS
#define LATENCY_RESENT_NS       (190 * LATENCY_MS) /* TCP_RTO_MIN is 200 ms */
#define LATENCY_TLS_ALERT_BYTES 24

#define LATENCY_FIRST_OTHER   0
#define LATENCY_FIRST_TLS     1
#define LATENCY_FIRST_PREFACE 2

/* One packet from a client. */
struct latency_packet {
	__u64 hash;
	__u32 dest;
	__u32 seq;
	__u32 ack;
	__u32 ts_ecr;
	__u16 length; /* payload length, in bytes */
	__u8 flags;
	__u8 timestamps; /* whether the packet has timestamps */
	__u8 first;      /* LATENCY_FIRST_* of the payload */
};

static __always_inline void latency_count(enum weir_latency_reason reason)
{
	__u64 *counter = WEIR_LOOKUP(weir_latency_counts, reason);

	if (counter)
		(*counter)++;
}

static __always_inline void latency_ignore(struct weir_latency_flow *flow, enum weir_latency_reason reason)
{
	flow->phase = WEIR_LATENCY_IGNORED;
	latency_count(reason);
}

/* Ends the pending exchange and counts the reason. */
static __always_inline void latency_discard(struct weir_latency_flow *flow, enum weir_latency_reason reason)
{
	flow->flags &= ~(WEIR_LATENCY_PENDING | WEIR_LATENCY_LOSSY | WEIR_LATENCY_OVERLAP | WEIR_LATENCY_HELLO |
			 WEIR_LATENCY_FINISHED | WEIR_LATENCY_PROBE);
	flow->held = 0;
	latency_count(reason);
}

/* Ends the pending exchange with a sample, unless the response may have been sent twice. */
static __always_inline void latency_emit(struct weir_latency_flow *flow, __s64 ns)
{
	if (flow->flags & WEIR_LATENCY_PROBE && ns >= LATENCY_RESENT_NS) {
		latency_discard(flow, WEIR_LATENCY_RETRANSMITTED);
		return;
	}
	latency_discard(flow, WEIR_LATENCY_SAMPLES);
	latency_store(flow->dest, ns,
		      flow->flags & WEIR_LATENCY_TIMESTAMPS ? WEIR_LATENCY_METHOD_TIMESTAMPS : WEIR_LATENCY_METHOD_GAPS);
}

/*
 * Returns whether the last acknowledgement in the window is for a response because enough acknowledgements came before
 * it: two for session tickets, or one for SETTINGS.
 */
static __always_inline int latency_follows_other_acks(const struct weir_latency_flow *flow)
{
	return flow->acks >= (flow->protocol == WEIR_LATENCY_TLS ? 3 : 2);
}

/* Ends the exchange in the window: emits the held sample if it is from a response. */
static __always_inline void latency_flush(struct weir_latency_flow *flow)
{
	__u32 complete = flow->protocol == WEIR_LATENCY_TLS ? LATENCY_TICKET_BYTES : LATENCY_HTTP2_WINDOW;

	if (flow->flags & WEIR_LATENCY_FINISHED && flow->sent <= LATENCY_FINISHED_BYTES) {
		latency_discard(flow, WEIR_LATENCY_HANDSHAKE);
		return;
	}
	flow->window = 0;
	if ((flow->certain && flow->acked > complete) || latency_follows_other_acks(flow))
		latency_emit(flow, flow->held_ns);
	else
		latency_discard(flow, WEIR_LATENCY_HANDSHAKE);
}

/* Handles a packet with a SYN. */
static __always_inline void latency_process_syn(struct weir_latency_flow *flow, const struct latency_packet *p,
						__u64 now)
{
	if (flow->hash == p->hash && flow->phase != WEIR_LATENCY_FREE && flow->seq == p->seq + 1) {
		latency_ignore(flow, WEIR_LATENCY_SYN_AGAIN);
		flow->seen_ns = now;
		return;
	}
	if (flow->hash != p->hash && flow->phase != WEIR_LATENCY_FREE && now - flow->seen_ns < LATENCY_SLOT_IDLE_NS) {
		latency_count(WEIR_LATENCY_TABLE_FULL);
		return;
	}
	flow->hash = p->hash;
	flow->syn_ns = now;
	flow->request_ns = 0;
	flow->seen_ns = now;
	flow->held_ns = 0;
	flow->dest = p->dest;
	flow->server_ts = 0;
	flow->loop_ns = 0;
	flow->ack = 0;
	flow->seq = p->seq + 1;
	flow->acked = 0;
	flow->window = 0;
	flow->sent = 0;
	flow->length = 0;
	flow->phase = WEIR_LATENCY_SYN;
	flow->flags = 0;
	flow->held = 0;
	flow->acks = 0;
	flow->certain = 0;
	flow->protocol = WEIR_LATENCY_OTHER;
}

/* Handles the first packet after the SYN. Returns 0 if the flow yields no samples. */
static __always_inline int latency_process_handshake(struct weir_latency_flow *flow, const struct latency_packet *p,
						     __u64 now)
{
	__u64 loop = now - flow->syn_ns;

	if (loop > LATENCY_HANDSHAKE_NS) {
		latency_ignore(flow, WEIR_LATENCY_HANDSHAKE_LATE);
		return 0;
	}
	flow->loop_ns = loop;
	flow->server_ts = p->ts_ecr;
	if (p->timestamps)
		flow->flags |= WEIR_LATENCY_TIMESTAMPS;
	flow->ack = p->ack;
	flow->phase = WEIR_LATENCY_OPEN;
	return 1;
}

/*
 * Returns whether the unit of the server's clock is 1 us instead of 1 ms: the clock cannot have advanced by more than
 * the flow's age, except by the 63 units of a SYN cookie.
 */
static __always_inline int latency_unit_is_us(const struct weir_latency_flow *flow, __u64 clock, __u64 age)
{
	__u64 since = flow->request_ns - flow->syn_ns;

	if (clock * LATENCY_MS > 2 * age + 64 * LATENCY_MS)
		return 1;
	return clock * LATENCY_MS > age + 4 * LATENCY_MS && clock * LATENCY_US + flow->loop_ns <= age &&
	       clock * LATENCY_US + LATENCY_SLACK_NS >= since;
}

/*
 * Handles data that was sent before the request and is therefore not a response. In the window it is a session ticket,
 * and the response follows.
 */
static __always_inline void latency_discard_early(struct weir_latency_flow *flow)
{
	if (!flow->window)
		latency_discard(flow, WEIR_LATENCY_EARLY);
}

/* Computes a sample for the response that a packet acknowledges. Returns 0 if there is none. */
static __always_inline int latency_measure(struct weir_latency_flow *flow, const struct latency_packet *p, __u64 now,
					   __s64 *sample)
{
	__u64 age = now - flow->syn_ns, sent;
	__s64 tick = LATENCY_MS;
	__s32 clock;

	if (!(flow->flags & WEIR_LATENCY_TIMESTAMPS)) {
		*sample = (__s64)(now - flow->request_ns) - flow->loop_ns;
		if (*sample >= -(__s64)(flow->loop_ns / 2) - LATENCY_MS) {
			flow->certain = 1;
			return 1;
		}
		latency_discard_early(flow);
		return 0;
	}
	clock = p->ts_ecr - flow->server_ts;
	if (clock < 0) {
		latency_discard(flow, WEIR_LATENCY_CLOCK_BACKWARD);
		return 0;
	}
	if (age > LATENCY_ANCHOR_NS) {
		latency_discard(flow, WEIR_LATENCY_ANCHOR_OLD);
		return 0;
	}
	if (latency_unit_is_us(flow, clock, age))
		tick = LATENCY_US;
	sent = (__u64)clock * tick;
	if (sent + flow->loop_ns > age + tick + 2 * LATENCY_MS) {
		latency_discard(flow, WEIR_LATENCY_CLOCK_SHIFTED);
		flow->phase = WEIR_LATENCY_IGNORED;
		return 0;
	}
	flow->certain = age <= sent + flow->loop_ns + tick + LATENCY_PROMPT_NS;
	*sample = (__s64)(flow->syn_ns + sent) - (__s64)flow->request_ns;
	/* The sample can be negative by up to one tick and the drift of 122 ppm. */
	if (*sample >= -tick - (__s64)(age >> 13) - LATENCY_SLACK_NS)
		return 1;
	latency_discard_early(flow);
	return 0;
}

static __always_inline void latency_count_in_window(struct weir_latency_flow *flow, __u32 bytes)
{
	flow->acked += bytes;
	if (flow->acks < 3)
		flow->acks++;
}

/*
 * Returns whether the acknowledged bytes are "HTTP/1.1 100 Continue" with an empty line; as a TLS 1.3 record it is
 * 22 bytes longer.
 */
static __always_inline int latency_is_interim(const struct weir_latency_flow *flow, __u32 bytes)
{
	return bytes == (flow->protocol == WEIR_LATENCY_TLS ? 47 : 25);
}

/*
 * Returns whether the server only closes the connection: its FIN counts as one byte; with TLS, an alert comes before
 * it.
 */
static __always_inline int latency_is_close(const struct weir_latency_flow *flow, __u32 bytes)
{
	return bytes == 1 || (flow->protocol == WEIR_LATENCY_TLS && (bytes == LATENCY_TLS_ALERT_BYTES ||
								     bytes == LATENCY_TLS_ALERT_BYTES + 1));
}

/* Handles an acknowledgement of `bytes` of new payload while a request is pending. */
static __always_inline void latency_process_response(struct weir_latency_flow *flow, const struct latency_packet *p,
						     __u32 bytes, __u64 now)
{
	int beyond = flow->window && flow->acked >= flow->window;
	__s64 sample = 0;

	if (flow->flags & WEIR_LATENCY_HELLO) {
		latency_discard(flow, WEIR_LATENCY_HANDSHAKE);
		flow->flags |= WEIR_LATENCY_FINISHED;
		return;
	}
	if (latency_is_close(flow, bytes)) {
		if (!flow->held)
			latency_discard(flow, WEIR_LATENCY_CLOSED);
		return;
	}
	if (flow->window && !beyond)
		latency_count_in_window(flow, bytes);
	if (flow->flags & (WEIR_LATENCY_LOSSY | WEIR_LATENCY_OVERLAP)) {
		latency_discard(flow, flow->flags & WEIR_LATENCY_LOSSY ? WEIR_LATENCY_RETRANSMITTED :
									 WEIR_LATENCY_PIPELINED);
		return;
	}
	if (latency_is_interim(flow, bytes)) {
		latency_discard(flow, WEIR_LATENCY_INTERIM);
		return;
	}
	if (beyond && latency_follows_other_acks(flow)) {
		latency_flush(flow);
		return;
	}
	if (beyond)
		flow->window = 0;
	if (!latency_measure(flow, p, now, &sample))
		return;
	if (!flow->window) {
		latency_emit(flow, sample);
		return;
	}
	flow->held_ns = sample;
	flow->held = 1;
}

/*
 * Returns whether a payload requires no response: a TLS alert, or HTTP/2 control frames, which TLS 1.3 makes 22 bytes
 * longer.
 */
static __always_inline int latency_is_control(const struct weir_latency_flow *flow, __u32 length)
{
	if (flow->protocol == WEIR_LATENCY_TLS) {
		if (length == LATENCY_TLS_ALERT_BYTES)
			return 1;
		length -= 22;
	} else if (flow->protocol != WEIR_LATENCY_HTTP2) {
		return 0;
	}
	return length == 9 || length == 13 || length == 17;
}

/* Starts an exchange. */
static __always_inline void latency_begin_exchange(struct weir_latency_flow *flow, const struct latency_packet *p,
						   int tickets_known)
{
	int first = !(flow->flags & WEIR_LATENCY_DATA);

	flow->flags &= ~(WEIR_LATENCY_LOSSY | WEIR_LATENCY_OVERLAP | WEIR_LATENCY_PROBE);
	flow->flags |= WEIR_LATENCY_PENDING | WEIR_LATENCY_DATA;
	flow->sent = 0;
	if (flow->flags & WEIR_LATENCY_FINISHED) {
		flow->window = LATENCY_TLS_WINDOW;
		flow->acked = 0;
		flow->acks = 0;
	} else if (tickets_known || flow->acked >= flow->window) {
		flow->window = 0;
	}
	if (!first)
		return;
	if (p->first == LATENCY_FIRST_TLS) {
		flow->protocol = WEIR_LATENCY_TLS;
		flow->flags |= WEIR_LATENCY_HELLO;
	} else if (p->first == LATENCY_FIRST_PREFACE) {
		flow->protocol = WEIR_LATENCY_HTTP2;
		flow->window = LATENCY_HTTP2_WINDOW;
	}
}

/* Handles payload from the client. */
static __always_inline void latency_process_payload(struct weir_latency_flow *flow, const struct latency_packet *p,
						    __u64 now, int tickets_known)
{
	__s32 ahead = p->seq - flow->seq;

	if (ahead < 0) {
		flow->flags |= ahead + (__s32)p->length <= 0 ? WEIR_LATENCY_PROBE : WEIR_LATENCY_LOSSY;
		return;
	}
	if (ahead == 0 && latency_is_control(flow, p->length)) {
		if (p->length == LATENCY_TLS_ALERT_BYTES && flow->held)
			latency_flush(flow);
		flow->seq = p->seq + p->length;
		return;
	}
	if (flow->flags & WEIR_LATENCY_PENDING && flow->held)
		latency_flush(flow);
	if (!(flow->flags & WEIR_LATENCY_PENDING))
		latency_begin_exchange(flow, p, tickets_known);
	else if (flow->length < LATENCY_FULL_SEGMENT && now - flow->request_ns > LATENCY_OVERLAP_NS && !flow->window &&
		 flow->sent < LATENCY_UPLOAD_BYTES)
		flow->flags |= WEIR_LATENCY_OVERLAP;
	if (ahead > 0)
		flow->flags |= WEIR_LATENCY_LOSSY;
	flow->sent += p->length;
	flow->request_ns = now;
	flow->length = p->length;
	flow->seq = p->seq + p->length;
}

/* Handles one packet of a flow whose slot is locked. */
static __always_inline void latency_process_packet(struct weir_latency_flow *flow, const struct latency_packet *p,
						   __u64 now)
{
	__u64 idle;
	__s32 bytes;

	latency_count(WEIR_LATENCY_PACKETS);
	if (p->flags & TCP_SYN) {
		latency_process_syn(flow, p, now);
		return;
	}
	if (flow->hash != p->hash || flow->phase == WEIR_LATENCY_FREE)
		return;
	idle = now - flow->seen_ns;
	flow->seen_ns = now;
	if (p->flags & TCP_RST) {
		if (flow->held)
			latency_flush(flow);
		flow->phase = WEIR_LATENCY_FREE;
		return;
	}
	if (flow->phase == WEIR_LATENCY_IGNORED) {
		if (p->flags & TCP_FIN)
			flow->phase = WEIR_LATENCY_FREE;
		return;
	}
	if (flow->dest != p->dest) {
		latency_ignore(flow, WEIR_LATENCY_RESCHEDULED);
		return;
	}
	if (flow->phase == WEIR_LATENCY_SYN) {
		if (!latency_process_handshake(flow, p, now))
			return;
	} else if (flow->flags & WEIR_LATENCY_TIMESTAMPS && !p->timestamps) {
		latency_ignore(flow, WEIR_LATENCY_OPTIONS);
		return;
	}
	/* More than a FIN was lost before it reached this host. */
	if ((__s32)(p->seq - flow->seq) > 1 && flow->flags & WEIR_LATENCY_PENDING)
		flow->flags |= WEIR_LATENCY_LOSSY;
	bytes = p->ack - flow->ack;
	if (bytes > 0) {
		flow->ack = p->ack;
		if (flow->flags & WEIR_LATENCY_PENDING)
			latency_process_response(flow, p, bytes, now);
		else if (flow->window)
			latency_count_in_window(flow, bytes);
	} else if (bytes == 0 && !p->length && !(p->flags & TCP_FIN) && flow->flags & WEIR_LATENCY_PENDING) {
		flow->flags |= WEIR_LATENCY_LOSSY;
	}
	if (p->length && flow->phase == WEIR_LATENCY_OPEN)
		latency_process_payload(flow, p, now, bytes == 0 && idle > LATENCY_TICKETS_NS && flow->acked);
	if (p->flags & TCP_FIN) {
		if (flow->held)
			latency_flush(flow);
		if (!(flow->flags & WEIR_LATENCY_PENDING))
			flow->phase = WEIR_LATENCY_FREE;
	}
}

/*
 * Classifies the client's first payload, to detect protocols in which the server's first data is not a response to a
 * request.
 */
static __always_inline __u8 latency_classify_payload(struct weir_context *ctx, __u32 offset)
{
	__u8 bytes[3] = {};

	if (context_load(ctx, offset, bytes, sizeof(bytes)))
		return LATENCY_FIRST_OTHER;
	if (bytes[0] == 0x16 && bytes[1] == 3)
		return LATENCY_FIRST_TLS;
	if (bytes[0] == 'P' && bytes[1] == 'R' && bytes[2] == 'I')
		return LATENCY_FIRST_PREFACE;
	return LATENCY_FIRST_OTHER;
}

/* Looks the settings up again: passing them as an argument would enlarge the caller's stack frame. */
static __always_inline int latency_is_sampled(__u64 hash)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);

	return settings && (__u16)(hash >> 24) < settings->latency_sample;
}

/*
 * Handles a packet of a sampled flow on its way to a server. This is a separate function to save stack space in the
 * caller.
 */
__noinline int latency_observe(struct weir_context *ctx, struct packet *p, __u64 hash, __u32 dest)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_latency_flow *flow = WEIR_LOOKUP(weir_latency_flows, hash >> (64 - WEIR_LATENCY_SLOTS_LOG2));
	struct latency_packet packet = { .hash = hash, .dest = dest };
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct tcp_header *tcp;
	__u32 *options, headers;
	__u64 now;

	if (!p || !settings || !flow)
		return 0;
	tcp = packet_l4(data, p);
	if ((void *)(tcp + 1) > data_end)
		return 0;
	if (flow->hash != hash && !(tcp->flags & TCP_SYN))
		return 0;
	packet.seq = bpf_ntohl(tcp->seq);
	packet.ack = bpf_ntohl(tcp->ack);
	packet.flags = tcp->flags;
	headers = p->l4 - p->l3 + tcp->offset * 4;
	packet.length = p->ip_len > headers ? p->ip_len - headers : 0;
	options = (void *)(tcp + 1);
	/* NOP, NOP, timestamps: the position that every common stack uses (RFC 7323 appendix A). */
	if (tcp->offset >= 8 && (void *)(options + 3) <= data_end && options[0] == bpf_htonl(0x0101080a)) {
		packet.timestamps = 1;
		packet.ts_ecr = bpf_ntohl(options[2]);
	}
	if (packet.length && !(flow->flags & WEIR_LATENCY_DATA))
		packet.first = latency_classify_payload(ctx, p->l3 + headers);
	now = settings->latency_clock ? settings->latency_clock : bpf_ktime_get_ns();
	if (__sync_val_compare_and_swap(&flow->lock, 0, 1)) {
		latency_count(WEIR_LATENCY_BUSY);
		return 0;
	}
	latency_process_packet(flow, &packet, now);
	__sync_lock_test_and_set(&flow->lock, 0);
	return 1;
}

#endif
