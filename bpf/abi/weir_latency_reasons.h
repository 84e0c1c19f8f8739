/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counters of the latency estimator: packets, samples, and why a sample was discarded. Numbers are never reused,
 * because they are the indexes of weir_latency_counts. Each line generates the C constant, the Rust variant and the
 * value of the metric's label `event`.
 *
 * X(number, NAME, "label", "what happened")
 */
#ifndef WEIR_LATENCY_REASONS_H
#define WEIR_LATENCY_REASONS_H

#define WEIR_LATENCY_REASONS(X)                                                                                        \
	X(0, PACKETS, "packets", "packets of sampled flows")                                                           \
	X(1, SAMPLES, "samples", "samples")                                                                            \
	X(2, TABLE_FULL, "table_full", "flow not sampled: its slot is in use")                                         \
	X(3, BUSY, "busy", "packet ignored: another CPU used the slot")                                                \
	X(4, SYN_AGAIN, "syn_again", "flow ignored: its SYN was retransmitted")                                        \
	X(5, HANDSHAKE_LATE, "handshake_late", "flow ignored: its SYN-ACK was probably retransmitted")                 \
	X(6, OPTIONS, "options", "flow ignored: a packet without timestamps after one with timestamps")                \
	X(7, RESCHEDULED, "rescheduled", "flow ignored: it was rescheduled")                                           \
	X(8, RETRANSMITTED, "retransmitted", "packets of the exchange were lost or reordered")                         \
	X(9, PIPELINED, "pipelined", "another request followed before the response")                                   \
	X(10, HANDSHAKE, "handshake", "part of a TLS handshake or HTTP/2 preface")                                     \
	X(11, INTERIM, "interim", "an interim response: 100 Continue")                                                 \
	X(12, CLOSED, "closed", "the server closed the connection instead of responding")                              \
	X(13, CLOCK_BACKWARD, "clock_backward", "the server's timestamp is older than the handshake")                  \
	X(14, ANCHOR_OLD, "anchor_old", "the handshake was too long ago: clocks may have drifted")                     \
	X(15, CLOCK_SHIFTED, "clock_shifted", "flow ignored: shifted timestamp of a SYN cookie")                       \
	X(16, EARLY, "early", "the acknowledged data was sent before the request, so it is not a response")

enum weir_latency_reason {
#define X(number, name, label, text) WEIR_LATENCY_##name = number,
	WEIR_LATENCY_REASONS(X)
#undef X
};

/* Number of entries in weir_latency_counts. */
#define WEIR_LATENCY_REASON_COUNT 32

#endif
