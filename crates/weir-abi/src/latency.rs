//! Defines the latency estimator's data: sampled flows, rings of samples, and the costs that `least-time` compares.

use crate::mirror::{constants, structs};

constants! {
    /// [`LatencyFlow::phase`]: the row is unused.
    LATENCY_FREE: u8 = 0;
    /// [`LatencyFlow::phase`]: the SYN was seen.
    LATENCY_SYN: u8 = 1;
    /// [`LatencyFlow::phase`]: the handshake was seen.
    LATENCY_OPEN: u8 = 2;
    /// [`LatencyFlow::phase`]: the rest of the flow is not measured.
    LATENCY_IGNORED: u8 = 3;
    /// [`LatencyFlow::flags`]: the packets contain TCP timestamps.
    LATENCY_TIMESTAMPS: u8 = 1;
    /// [`LatencyFlow::flags`]: a request has not been answered yet.
    LATENCY_PENDING: u8 = 2;
    /// [`LatencyFlow::flags`]: a packet of the pending request may have been lost or retransmitted.
    LATENCY_LOSSY: u8 = 4;
    /// [`LatencyFlow::flags`]: another request followed the pending request before the response.
    LATENCY_OVERLAP: u8 = 8;
    /// [`LatencyFlow::flags`]: the pending request is a TLS ClientHello.
    LATENCY_HELLO: u8 = 16;
    /// [`LatencyFlow::flags`]: the next or the pending request contains the client's last message of the TLS handshake.
    LATENCY_FINISHED: u8 = 32;
    /// [`LatencyFlow::flags`]: the client has sent payload.
    LATENCY_DATA: u8 = 64;
    /// [`LatencyFlow::flags`]: during the pending request, payload that had already been received arrived again.
    LATENCY_PROBE: u8 = 128;
    /// [`LatencyFlow::protocol`]: unknown, or a protocol in which servers send only responses.
    LATENCY_OTHER: u8 = 0;
    /// [`LatencyFlow::protocol`]: TLS.
    LATENCY_TLS: u8 = 1;
    /// [`LatencyFlow::protocol`]: HTTP/2 without TLS.
    LATENCY_HTTP2: u8 = 2;
    /// Binary logarithm of the number of sampled flows.
    LATENCY_SLOTS_LOG2: u32 = 13;
    /// Number of rings.
    LATENCY_RINGS: u32 = 64;
    /// Number of samples in a ring.
    LATENCY_RING_SLOTS: u32 = 512;
    /// [`LatencySample::method`]: TCP timestamps.
    LATENCY_METHOD_TIMESTAMPS: u32 = 0;
    /// [`LatencySample::method`]: times between packets.
    LATENCY_METHOD_GAPS: u32 = 1;
    /// [`LatencySample::method`]: the handshake time of a local client's connection.
    LATENCY_METHOD_CONNECT: u32 = 2;
    /// Age of the costs, in nanoseconds, at or above which `least-time` behaves like `lc`.
    COST_STALE_NS: u64 = 1_000_000_000;
    /// [`Cost::share`] of the best server.
    COST_SHARE_MAX: u32 = 65_535;
    /// One in this many new flows is assigned by weight alone.
    COST_EXPLORE: u32 = 32;
    /// Number of entries in `weir_latency_counts`.
    LATENCY_REASON_COUNT: u32 = 32;
}

structs! {
    /// `weir_latency_flows`: a sampled flow; the index is the top bits of its hash. Times are in nanoseconds of the
    /// monotonic clock.
    LatencyFlow = "weir_latency_flow", 128 {
        /// Hash of the flow.
        hash: u64,
        /// Arrival time of the SYN.
        syn_ns: u64,
        /// Arrival time of the last payload.
        request_ns: u64,
        /// Arrival time of the last packet.
        seen_ns: u64,
        /// Held sample in nanoseconds, which is emitted unless a later response replaces it.
        held_ns: i64,
        /// Spin lock; a packet makes only one attempt to take it.
        lock: u32,
        /// Server row.
        dest: u32,
        /// TCP timestamp of the server's SYN-ACK.
        server_ts: u32,
        /// Time from the SYN to the client's ACK, in nanoseconds.
        loop_ns: u32,
        /// Highest acknowledgement number.
        ack: u32,
        /// Sequence number after the last byte of the client's payload.
        seq: u32,
        /// Number of bytes acknowledged in the window.
        acked: u32,
        /// Maximum number of bytes from the server that can precede its first response; 0 = none.
        window: u32,
        /// Number of payload bytes of the pending request.
        sent: u32,
        /// Length of the last payload in bytes.
        length: u16,
        /// Phase: `LATENCY_FREE` to `LATENCY_IGNORED`.
        phase: u8,
        /// Flags: `LATENCY_TIMESTAMPS` to `LATENCY_PROBE`.
        flags: u8,
        /// Whether `held_ns` contains a sample.
        held: u8,
        /// Number of acknowledgements in the window, at most 3.
        acks: u8,
        /// Whether the client acknowledged the held sample's response without delay.
        certain: u8,
        /// Protocol: `LATENCY_OTHER` to `LATENCY_HTTP2`.
        protocol: u8,
        /// Zero.
        pad: [u8; 4],
        /// Zero.
        pad2: [u64; 5],
    }

    /// A sample in a [`LatencyRing`].
    LatencySample = "weir_latency_sample", 32 {
        /// The latency in nanoseconds, which can be negative within the resolution of the server's clock.
        ns: i64,
        /// Server row.
        dest: u32,
        /// `LATENCY_METHOD_*`.
        method: u32,
        /// 1 + the position in the ring, written last.
        sequence: u64,
        /// Zero.
        pad: u64,
    }

    /// `weir_latency_rings`: samples from all CPUs whose numbers are equal modulo `LATENCY_RINGS`.
    LatencyRing = "weir_latency_ring", 16448 {
        /// Position of the next sample.
        head: u64,
        /// Zero.
        pad: [u64; 7],
        /// Samples; the index is the position modulo the number of slots.
        samples: [LatencySample; LATENCY_RING_SLOTS as usize],
    }

    /// `weir_costs`, by server row; row 0 is the time of the last update.
    Cost = "weir_cost", 8 {
        /// Weight divided by latency^1.5, scaled so that the best server has `COST_SHARE_MAX`; 0 = unknown.
        share: u32,
        /// The latency that `share` was computed from, in microseconds.
        latency_us: u32,
    }
}

impl LatencyFlow {
    /// Returns whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_is_set_if_any_of_its_bits_is() {
        for (flags, flag, expected) in [
            (0b0110, 0b0010, true),
            (0b0110, 0b1000, false),
            (0b0110, 0b1010, true),
            (0, 1, false),
        ] {
            let flow = LatencyFlow {
                flags,
                ..LatencyFlow::ZERO
            };
            assert_eq!(flow.has(flag), expected, "{flags:#b} {flag:#b}");
        }
    }
}
