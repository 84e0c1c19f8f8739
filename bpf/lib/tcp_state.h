/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * IPVS's TCP state transitions (net/netfilter/ipvs/ip_vs_proto_tcp.c), for each direction that is seen.
 * crates/weir-flow has the same table for the reference model; a test compares the two by sending packets.
 */
#ifndef WEIR_TCP_STATE_H
#define WEIR_TCP_STATE_H

#include "lib/packet.h"

enum tcp_view {
	TCP_VIEW_INPUT = 0,    /* client to server, replies are seen too */
	TCP_VIEW_OUTPUT = 1,   /* server to client */
	TCP_VIEW_ONESIDED = 2, /* client to server, replies are not seen */
};

enum tcp_event {
	TCP_EVENT_SYN = 0,
	TCP_EVENT_FIN = 1,
	TCP_EVENT_ACK = 2,
	TCP_EVENT_RST = 3,
	TCP_EVENT_NONE = 4,
};

#define sNO WEIR_STATE_NONE
#define sES WEIR_STATE_ESTABLISHED
#define sSS WEIR_STATE_SYN_SENT
#define sSR WEIR_STATE_SYN_RECV
#define sFW WEIR_STATE_FIN_WAIT
#define sTW WEIR_STATE_TIME_WAIT
#define sCL WEIR_STATE_CLOSE
#define sCW WEIR_STATE_CLOSE_WAIT
#define sLA WEIR_STATE_LAST_ACK
#define sLI WEIR_STATE_LISTEN
#define sSA WEIR_STATE_SYNACK

/* One 64-bit word per view and event, four bits per state: a shift instead of a table load. */
#define PACK(no, es, ss, sr, fw, tw, cl, cw, la, li, sa)                                                               \
	((__u64)(no) | (__u64)(es) << 4 | (__u64)(ss) << 8 | (__u64)(sr) << 12 | (__u64)(fw) << 16 |                   \
	 (__u64)(tw) << 20 | (__u64)(cl) << 24 | (__u64)(cw) << 28 | (__u64)(la) << 32 | (__u64)(li) << 36 |           \
	 (__u64)(sa) << 40)

static __always_inline __u64 tcp_next_states(__u32 view, __u32 event)
{
	switch (view * 4 + event) {
	/*                            sNO  sES  sSS  sSR  sFW  sTW  sCL  sCW  sLA  sLI  sSA */
	case 0:           return PACK(sSR, sES, sES, sSR, sSR, sSR, sSR, sSR, sSR, sSR, sSR);
	case 1:           return PACK(sCL, sCW, sSS, sTW, sTW, sTW, sCL, sCW, sLA, sLI, sTW);
	case 2:           return PACK(sES, sES, sSS, sES, sFW, sTW, sCL, sCW, sCL, sLI, sES);
	case 3:           return PACK(sCL, sCL, sCL, sSR, sCL, sCL, sCL, sCL, sLA, sLI, sSR);
	case 4:           return PACK(sSS, sES, sSS, sSR, sSS, sSS, sSS, sSS, sSS, sLI, sSR);
	case 5:           return PACK(sTW, sFW, sSS, sTW, sFW, sTW, sCL, sTW, sLA, sLI, sTW);
	case 6:           return PACK(sES, sES, sSS, sES, sFW, sTW, sCL, sCW, sLA, sES, sES);
	case 7:           return PACK(sCL, sCL, sSS, sCL, sCL, sTW, sCL, sCL, sCL, sCL, sCL);
	case 8:           return PACK(sSR, sES, sES, sSR, sSR, sSR, sSR, sSR, sSR, sSR, sSR);
	case 9:           return PACK(sCL, sFW, sSS, sTW, sFW, sTW, sCL, sCW, sLA, sLI, sTW);
	case 10:          return PACK(sES, sES, sSS, sES, sFW, sTW, sCL, sCW, sCL, sLI, sES);
	default:          return PACK(sCL, sCL, sCL, sSR, sCL, sCL, sCL, sCL, sLA, sLI, sCL);
	}
}

/* Returns the event of a packet; the priority is RST, SYN, FIN, ACK. */
static __always_inline __u32 tcp_event(__u8 flags)
{
	if (flags & TCP_RST)
		return TCP_EVENT_RST;
	if (flags & TCP_SYN)
		return TCP_EVENT_SYN;
	if (flags & TCP_FIN)
		return TCP_EVENT_FIN;
	if (flags & TCP_ACK)
		return TCP_EVENT_ACK;
	return TCP_EVENT_NONE;
}

static __always_inline __u32 tcp_next_state(__u32 state, __u32 view, __u8 flags)
{
	__u32 event = tcp_event(flags);

	if (event == TCP_EVENT_NONE)
		return state;
	/* The common case: an ACK of an established connection. */
	if (event == TCP_EVENT_ACK && state == WEIR_STATE_ESTABLISHED)
		return state;
	return tcp_next_states(view, event) >> (state * 4) & 0xf;
}

#define ACTIVE_STATES (1u << sES | 1u << sSS | 1u << sSR | 1u << sSA)

static __always_inline int state_is_active(__u32 state)
{
	return ACTIVE_STATES >> state & 1;
}

/* Returns whether a client can use the tuple again (ip_vs_core.c, is_new_conn_expected). */
static __always_inline int state_allows_reuse(__u32 state)
{
	return state == WEIR_STATE_TIME_WAIT || state == WEIR_STATE_CLOSE;
}

#endif
