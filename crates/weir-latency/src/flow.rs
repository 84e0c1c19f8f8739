//! Models the estimator: computes samples from the packets of sampled flows.
//!
//! A client's acknowledgement of a response passes through the director. With TCP timestamps (RFC 7323), it contains
//! the value of the server's clock when the response was sent (`TSecr`). The handshake relates this clock to the
//! director's clock: the SYN-ACK was sent shortly after the SYN arrived. A sample is the mapped send time of the first
//! new payload that the client acknowledges, minus the arrival time of the request's last payload. It includes neither
//! the round-trip time to the client nor the delay of its acknowledgement. Without timestamps, a sample is the time
//! from the request's last payload to the acknowledgement, minus the time from the SYN to the ACK in the handshake.
//!
//! bpf/lib/latency.h implements the same computation with the same integers; a test of weir-dataplane sends random
//! packets through both. Unreliable samples are discarded and counted by [`LatencyReason`](weir_abi::LatencyReason).
//! Samples within the resolution of the server's clock can be negative; they are kept, because the mean would be too
//! high without them.

use std::collections::BTreeMap;

use weir_abi::{
    LATENCY_DATA, LATENCY_FINISHED, LATENCY_FREE, LATENCY_HELLO, LATENCY_HTTP2, LATENCY_IGNORED,
    LATENCY_LOSSY, LATENCY_OPEN, LATENCY_OVERLAP, LATENCY_PENDING, LATENCY_PROBE, LATENCY_REASONS,
    LATENCY_SLOTS_LOG2, LATENCY_SYN, LATENCY_TIMESTAMPS, LATENCY_TLS, LatencyFlow,
    LatencyReason as Reason,
};

use crate::Method;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// Idle time in nanoseconds after which a different flow may use a slot.
pub const SLOT_IDLE_NS: u64 = 1_000 * MS;
/// Maximum duration of a handshake: less than the initial retransmission timeout of 1 s (RFC 6298 section 2.1). A
/// retransmitted SYN-ACK contains a clock value that is later than the arrival of the SYN.
pub const HANDSHAKE_NS: u64 = 900 * MS;
/// Maximum age of a handshake that relates the clocks: at this age, clocks that differ by 100 ppm have diverged by 1
/// ms.
pub const ANCHOR_NS: u64 = 10_000 * MS;
/// Payload that arrives later than this after the last payload of a request belongs to a new request, unless the
/// segments are full.
pub const OVERLAP_NS: u64 = 250 * US;
/// A request of at least this length is an upload, which a program writes in parts; the last segment of a part is not
/// full.
const UPLOAD_BYTES: u32 = 16_384;
/// Tolerance for the order of request and response, in addition to the tolerance for clock drift.
const SLACK_NS: i64 = 64 * US as i64;
/// Minimum payload in bytes of a segment that is considered full.
const FULL_SEGMENT: u16 = 536;
/// Maximum number of bytes from the server that can precede the first response after a TLS handshake: session tickets,
/// and HTTP/2 SETTINGS.
const TLS_WINDOW: u32 = 1_200;
/// Two session tickets are at most this long: if more bytes were acknowledged, they include the response.
const TICKET_BYTES: u32 = 640;
/// Like [`TLS_WINDOW`], for the SETTINGS in HTTP/2 without TLS.
const HTTP2_WINDOW: u32 = 128;
/// If no packet has arrived for this time, the client has acknowledged all session tickets that were sent.
const TICKETS_NS: u64 = 5 * MS;
/// A TLS Finished message is at most this long; a Finished message together with a request is longer.
const FINISHED_BYTES: u32 = 100;
/// If an acknowledgement took at most this much longer than the handshake, the client did not delay it.
const PROMPT_NS: u64 = MS;
/// A lost response is not sent again earlier than this: Linux's minimum retransmission timeout is 200 ms
/// (`TCP_RTO_MIN`), as is the minimum timeout of its tail loss probe for a single segment (RFC 8985 section 7.2).
const RESENT_NS: i64 = 190 * MS as i64;
/// Length of `HTTP/1.1 100 Continue` with its empty line, as plain text and as a TLS 1.3 record.
const INTERIM_BYTES: i32 = 25;
const TLS_INTERIM_BYTES: i32 = 47;
/// Lengths of a TLS alert without and with the FIN.
const TLS_CLOSE_BYTES: [i32; 2] = [24, 25];
/// Lengths of HTTP/2 frames that request nothing: SETTINGS acknowledgement, WINDOW_UPDATE, PING and GOAWAY.
const HTTP2_CONTROL_BYTES: [u16; 3] = [9, 13, 17];
/// Lengths of an alert, which announces the end of the connection, and of the same frames as TLS 1.3 records.
const TLS_CONTROL_BYTES: [u16; 4] = [TLS_ALERT_BYTES, 31, 35, 39];
const TLS_ALERT_BYTES: u16 = 24;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// The kind of a client's first payload. It identifies protocols in which the server's first messages are not responses
/// to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstPayload {
    /// Anything else.
    #[default]
    Other,
    /// A TLS handshake record.
    Tls,
    /// The HTTP/2 connection preface.
    Preface,
}

impl FirstPayload {
    /// Determines the kind of a payload from its first bytes.
    #[must_use]
    pub fn from_bytes(payload: &[u8]) -> Self {
        match payload {
            [0x16, 3, _, ..] => Self::Tls,
            [b'P', b'R', b'I', ..] => Self::Preface,
            _ => Self::Other,
        }
    }
}

/// A packet from a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Flow hash.
    pub hash: u64,
    /// Server row.
    pub dest: u32,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// The echoed TCP timestamp, `None` without the option.
    pub ts_ecr: Option<u32>,
    /// Payload length in bytes.
    pub length: u16,
    /// TCP flags.
    pub flags: u8,
    /// Kind of the payload, if it is the client's first one.
    pub first: FirstPayload,
}

/// The latency of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Server row.
    pub dest: u32,
    /// Latency in nanoseconds.
    pub ns: i64,
    /// The measurement method.
    pub method: Method,
}

/// The sampled flows, the counters, and the samples that [`Self::take_samples`] has not returned yet.
#[derive(Clone, Debug, Default)]
pub struct Table {
    flows: BTreeMap<u64, LatencyFlow>,
    counts: [u64; LATENCY_REASONS.len()],
    samples: Vec<Sample>,
}

impl Table {
    /// Returns how many times a reason was counted.
    #[must_use]
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize]
    }

    /// Returns the counts of all reasons, indexed by reason number.
    #[must_use]
    pub const fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the samples that were added since the last call.
    pub fn take_samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }

    /// Processes a packet that arrived at `now_ns`.
    pub fn process_packet(&mut self, packet: &Packet, now_ns: u64) {
        let slot = packet.hash >> (64 - LATENCY_SLOTS_LOG2);
        let mut flow = self.flows.get(&slot).copied().unwrap_or_default();
        // The data plane skips the packets of other flows before it counts packets.
        if flow.hash != packet.hash && packet.flags & SYN == 0 {
            return;
        }
        let mut step = Step {
            flow: &mut flow,
            packet,
            now_ns,
            counts: &mut self.counts,
            samples: &mut self.samples,
        };
        step.run();
        self.flows.insert(slot, flow);
    }
}

/// The state while a packet of a flow is processed.
struct Step<'a> {
    flow: &'a mut LatencyFlow,
    packet: &'a Packet,
    now_ns: u64,
    counts: &'a mut [u64; LATENCY_REASONS.len()],
    samples: &'a mut Vec<Sample>,
}

impl Step<'_> {
    fn run(&mut self) {
        let packet = self.packet;
        self.count(Reason::Packets);
        if packet.flags & SYN != 0 {
            return self.process_syn();
        }
        if self.flow.phase == LATENCY_FREE {
            return;
        }
        let idle_ns = self.now_ns.wrapping_sub(self.flow.seen_ns);
        self.flow.seen_ns = self.now_ns;
        if packet.flags & RST != 0 {
            if self.flow.held > 0 {
                self.flush();
            }
            self.flow.phase = LATENCY_FREE;
            return;
        }
        if self.flow.phase == LATENCY_IGNORED {
            if packet.flags & FIN != 0 {
                self.flow.phase = LATENCY_FREE;
            }
            return;
        }
        if self.flow.dest != packet.dest {
            return self.ignore(Reason::Rescheduled);
        }
        if self.flow.phase == LATENCY_SYN {
            if !self.process_handshake() {
                return;
            }
        } else if self.flow.has(LATENCY_TIMESTAMPS) && packet.ts_ecr.is_none() {
            return self.ignore(Reason::Options);
        }
        // More than a FIN was lost on the way to the director. If a request was lost, the first acknowledgement of the
        // previous response was lost with it, and the server sends that response again.
        if packet.seq.wrapping_sub(self.flow.seq) as i32 > 1 && self.flow.has(LATENCY_PENDING) {
            self.flow.flags |= LATENCY_LOSSY;
        }
        let bytes = self.process_acknowledgement();
        if packet.length > 0 && self.flow.phase == LATENCY_OPEN {
            let has_acknowledged_tickets =
                bytes == 0 && idle_ns > TICKETS_NS && self.flow.acked > 0;
            self.process_payload(has_acknowledged_tickets);
        }
        if packet.flags & FIN != 0 {
            if self.flow.held > 0 {
                self.flush();
            }
            if !self.flow.has(LATENCY_PENDING) {
                self.flow.phase = LATENCY_FREE;
            }
        }
    }

    fn count(&mut self, reason: Reason) {
        self.counts[reason as usize] += 1;
    }

    fn ignore(&mut self, reason: Reason) {
        self.flow.phase = LATENCY_IGNORED;
        self.count(reason);
    }

    /// Ends the pending exchange without a sample.
    fn discard(&mut self, reason: Reason) {
        self.flow.flags &= !(LATENCY_PENDING
            | LATENCY_LOSSY
            | LATENCY_OVERLAP
            | LATENCY_HELLO
            | LATENCY_FINISHED
            | LATENCY_PROBE);
        self.flow.held = 0;
        self.count(reason);
    }

    /// Ends the pending exchange with a sample, unless the response may have been sent twice.
    fn emit(&mut self, ns: i64) {
        if self.flow.has(LATENCY_PROBE) && ns >= RESENT_NS {
            return self.discard(Reason::Retransmitted);
        }
        self.discard(Reason::Samples);
        self.samples.push(Sample {
            dest: self.flow.dest,
            ns,
            method: if self.flow.has(LATENCY_TIMESTAMPS) {
                Method::Timestamps
            } else {
                Method::Gaps
            },
        });
    }

    /// Ends the exchange in the window: emits the held sample if it belongs to a response.
    fn flush(&mut self) {
        if self.flow.has(LATENCY_FINISHED) && self.flow.sent <= FINISHED_BYTES {
            // Only a Finished message was sent, so the acknowledged bytes are session tickets. More tickets may arrive
            // before the first response.
            return self.discard(Reason::Handshake);
        }
        let max_other_bytes = match self.flow.protocol {
            LATENCY_TLS => TICKET_BYTES,
            _ => HTTP2_WINDOW,
        };
        let is_certain = self.flow.certain > 0 && self.flow.acked > max_other_bytes;
        self.flow.window = 0;
        if is_certain || self.follows_other_acknowledgements() {
            self.emit(self.flow.held_ns);
        } else {
            self.discard(Reason::Handshake);
        }
    }

    /// Returns whether the last acknowledgement in the window is for a response, because other acknowledgements
    /// preceded it: two for session tickets, or one for SETTINGS.
    const fn follows_other_acknowledgements(&self) -> bool {
        match self.flow.protocol {
            LATENCY_TLS => self.flow.acks >= 3,
            _ => self.flow.acks >= 2,
        }
    }

    /// Processes a SYN. If a SYN is retransmitted, it is unknown which of the two the server responded to, so the flow
    /// is ignored.
    fn process_syn(&mut self) {
        let (packet, now_ns) = (self.packet, self.now_ns);
        let is_used = self.flow.phase != LATENCY_FREE;
        let is_same_flow = self.flow.hash == packet.hash;
        let seq = packet.seq.wrapping_add(1);
        if is_used && is_same_flow && self.flow.seq == seq {
            self.ignore(Reason::SynAgain);
            self.flow.seen_ns = now_ns;
            return;
        }
        if is_used && !is_same_flow && now_ns.wrapping_sub(self.flow.seen_ns) < SLOT_IDLE_NS {
            return self.count(Reason::TableFull);
        }
        *self.flow = LatencyFlow {
            hash: packet.hash,
            syn_ns: now_ns,
            seen_ns: now_ns,
            dest: packet.dest,
            seq,
            phase: LATENCY_SYN,
            ..LatencyFlow::ZERO
        };
    }

    /// Processes the first packet after the SYN. Returns whether the flow can be measured.
    fn process_handshake(&mut self) -> bool {
        let loop_ns = self.now_ns.wrapping_sub(self.flow.syn_ns);
        if loop_ns > HANDSHAKE_NS {
            self.ignore(Reason::HandshakeLate);
            return false;
        }
        self.flow.loop_ns = loop_ns as u32;
        self.flow.server_ts = self.packet.ts_ecr.unwrap_or(0);
        if self.packet.ts_ecr.is_some() {
            self.flow.flags |= LATENCY_TIMESTAMPS;
        }
        self.flow.ack = self.packet.ack;
        self.flow.phase = LATENCY_OPEN;
        true
    }

    /// Processes an acknowledgement. Returns the number of newly acknowledged bytes, which is negative for an old
    /// acknowledgement.
    fn process_acknowledgement(&mut self) -> i32 {
        let packet = self.packet;
        let bytes = packet.ack.wrapping_sub(self.flow.ack) as i32;
        if bytes > 0 {
            self.flow.ack = packet.ack;
            if self.flow.has(LATENCY_PENDING) {
                self.process_response(bytes);
            } else if self.flow.window > 0 {
                self.count_in_window(bytes);
            }
        } else if bytes == 0
            && packet.length == 0
            && packet.flags & FIN == 0
            && self.flow.has(LATENCY_PENDING)
        {
            // A duplicate acknowledgement: the client has received something out of order.
            self.flow.flags |= LATENCY_LOSSY;
        }
        bytes
    }

    fn count_in_window(&mut self, bytes: i32) {
        self.flow.acked = self.flow.acked.wrapping_add(bytes as u32);
        self.flow.acks = (self.flow.acks + 1).min(3);
    }

    /// Processes an acknowledgement of `bytes` of new payload while a request is pending.
    fn process_response(&mut self, bytes: i32) {
        if self.flow.has(LATENCY_HELLO) {
            self.discard(Reason::Handshake);
            self.flow.flags |= LATENCY_FINISHED;
            return;
        }
        // The server's FIN counts as one byte.
        let is_tls = self.flow.protocol == LATENCY_TLS;
        if bytes == 1 || is_tls && TLS_CLOSE_BYTES.contains(&bytes) {
            if self.flow.held == 0 {
                self.discard(Reason::Closed);
            }
            return;
        }
        let is_after_window = self.flow.window > 0 && self.flow.acked >= self.flow.window;
        if self.flow.window > 0 && !is_after_window {
            self.count_in_window(bytes);
        }
        if self.flow.has(LATENCY_LOSSY | LATENCY_OVERLAP) {
            let is_lossy = self.flow.has(LATENCY_LOSSY);
            return self.discard(if is_lossy {
                Reason::Retransmitted
            } else {
                Reason::Pipelined
            });
        }
        if bytes
            == if is_tls {
                TLS_INTERIM_BYTES
            } else {
                INTERIM_BYTES
            }
        {
            return self.discard(Reason::Interim);
        }
        // The last acknowledgement in the window contains the send time of the first byte that it acknowledges, which
        // may belong to a ticket. This acknowledgement is for the same response.
        if is_after_window && self.follows_other_acknowledgements() {
            return self.flush();
        }
        if is_after_window {
            self.flow.window = 0;
        }
        let Some(sample) = self.measure() else {
            return;
        };
        if self.flow.window == 0 {
            return self.emit(sample);
        }
        self.flow.held_ns = sample;
        self.flow.held = 1;
    }

    fn measure(&mut self) -> Option<i64> {
        if self.flow.has(LATENCY_TIMESTAMPS) {
            self.measure_by_clock()
        } else {
            self.measure_by_gap()
        }
    }

    /// Processes an acknowledgement of payload that was sent before the request and is therefore not a response. In the
    /// window, the payload is a ticket, and the response follows.
    fn discard_early(&mut self) {
        if self.flow.window == 0 {
            self.discard(Reason::Early);
        }
    }

    fn measure_by_gap(&mut self) -> Option<i64> {
        let loop_ns = i64::from(self.flow.loop_ns);
        let elapsed = self.now_ns.wrapping_sub(self.flow.request_ns) as i64;
        let sample = elapsed.wrapping_sub(loop_ns);
        if sample >= -(loop_ns / 2) - MS as i64 {
            self.flow.certain = 1;
            return Some(sample);
        }
        self.discard_early();
        None
    }

    fn measure_by_clock(&mut self) -> Option<i64> {
        let age = self.now_ns.wrapping_sub(self.flow.syn_ns);
        let echo = self.packet.ts_ecr.unwrap_or(0);
        let clock = echo.wrapping_sub(self.flow.server_ts) as i32;
        if clock < 0 {
            self.discard(Reason::ClockBackward);
            return None;
        }
        if age > ANCHOR_NS {
            self.discard(Reason::AnchorOld);
            return None;
        }
        let loop_ns = u64::from(self.flow.loop_ns);
        let request_offset = self.flow.request_ns.wrapping_sub(self.flow.syn_ns);
        let unit = clock_unit(clock as u64, age, loop_ns, request_offset);
        let sent = clock as u64 * unit;
        // The acknowledgement takes as long from the server through the client to the director as in the handshake. The
        // timestamp of a SYN cookie is too low by up to 63 ticks (net/ipv4/syncookies.c), so later times are too high.
        if sent + loop_ns > age + unit + 2 * MS {
            self.discard(Reason::ClockShifted);
            self.flow.phase = LATENCY_IGNORED;
            return None;
        }
        self.flow.certain = u8::from(age <= sent + loop_ns + unit + PROMPT_NS);
        let sample =
            (self.flow.syn_ns.wrapping_add(sent) as i64).wrapping_sub(self.flow.request_ns as i64);
        if sample >= -(unit as i64) - (age >> 13) as i64 - SLACK_NS {
            return Some(sample);
        }
        self.discard_early();
        None
    }

    /// Processes payload from the client. `has_acknowledged_tickets`: the client has acknowledged all session tickets
    /// that were sent.
    fn process_payload(&mut self, has_acknowledged_tickets: bool) {
        let packet = self.packet;
        let length = u32::from(packet.length);
        let offset = packet.seq.wrapping_sub(self.flow.seq) as i32;
        if offset < 0 {
            // If all of the payload had already been received, this is a probe for a lost acknowledgement (RFC 8985
            // section 7) or a retransmission.
            let is_repeated = offset.wrapping_add(length as i32) <= 0;
            self.flow.flags |= if is_repeated {
                LATENCY_PROBE
            } else {
                LATENCY_LOSSY
            };
            return;
        }
        if offset == 0 && self.is_control() {
            if packet.length == TLS_ALERT_BYTES && self.flow.held > 0 {
                self.flush();
            }
            self.flow.seq = packet.seq.wrapping_add(length);
            return;
        }
        if self.flow.has(LATENCY_PENDING) && self.flow.held > 0 {
            self.flush();
        }
        if !self.flow.has(LATENCY_PENDING) {
            self.begin_exchange(has_acknowledged_tickets);
        } else if self.flow.length < FULL_SEGMENT
            && self.now_ns.wrapping_sub(self.flow.request_ns) > OVERLAP_NS
            && self.flow.window == 0
            && self.flow.sent < UPLOAD_BYTES
        {
            self.flow.flags |= LATENCY_OVERLAP;
        }
        if offset > 0 {
            self.flow.flags |= LATENCY_LOSSY;
        }
        self.flow.sent = self.flow.sent.wrapping_add(length);
        self.flow.request_ns = self.now_ns;
        self.flow.length = packet.length;
        self.flow.seq = packet.seq.wrapping_add(length);
    }

    /// Returns whether the payload requests nothing.
    fn is_control(&self) -> bool {
        match self.flow.protocol {
            LATENCY_TLS => TLS_CONTROL_BYTES.contains(&self.packet.length),
            LATENCY_HTTP2 => HTTP2_CONTROL_BYTES.contains(&self.packet.length),
            _ => false,
        }
    }

    /// Begins an exchange of a request and its response.
    fn begin_exchange(&mut self, has_acknowledged_tickets: bool) {
        let flow = &mut *self.flow;
        let is_first = !flow.has(LATENCY_DATA);
        flow.flags &= !(LATENCY_LOSSY | LATENCY_OVERLAP | LATENCY_PROBE);
        flow.flags |= LATENCY_PENDING | LATENCY_DATA;
        flow.sent = 0;
        if flow.has(LATENCY_FINISHED) {
            flow.window = TLS_WINDOW;
            flow.acked = 0;
            flow.acks = 0;
        } else if has_acknowledged_tickets || flow.acked >= flow.window {
            flow.window = 0;
        }
        if !is_first {
            return;
        }
        match self.packet.first {
            FirstPayload::Tls => {
                flow.protocol = LATENCY_TLS;
                flow.flags |= LATENCY_HELLO;
            }
            FirstPayload::Preface => {
                flow.protocol = LATENCY_HTTP2;
                flow.window = HTTP2_WINDOW;
            }
            FirstPayload::Other => {}
        }
    }
}

/// Returns the unit of a server's clock in nanoseconds: 1 ms, or 1 µs (Linux with `features tcp_usec_ts`). The unit is
/// 1 µs if 1 ms would make the clock exceed twice the age of the flow plus the error of a SYN cookie (64 ms), or if
/// 1 ms would make it exceed the age by more than 4 ms, and 1 µs is plausible. The request arrived `request_offset`
/// nanoseconds after the SYN.
fn clock_unit(clock: u64, age: u64, loop_ns: u64, request_offset: u64) -> u64 {
    let exceeds_age = clock * MS > 2 * age + 64 * MS;
    let fits_microseconds = clock * MS > age + 4 * MS
        && clock * US + loop_ns <= age
        && clock * US + SLACK_NS as u64 >= request_offset;
    if exceeds_age || fits_microseconds {
        US
    } else {
        MS
    }
}

#[cfg(test)]
mod tests;
