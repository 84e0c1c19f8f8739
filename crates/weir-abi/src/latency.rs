//! The latency estimator: sampled flows, rings of samples, and the costs that `least-time` compares.

use crate::mirror::{constants, structs};

constants! {
    /// [`LatencyFlow::phase`]: unused.
    LATENCY_FREE: u8 = 0;
    /// [`LatencyFlow::phase`]: the SYN was seen.
    LATENCY_SYN: u8 = 1;
    /// [`LatencyFlow::phase`]: the handshake was seen.
    LATENCY_OPEN: u8 = 2;
    /// [`LatencyFlow::phase`]: the rest of the flow yields no samples.
    LATENCY_IGNORED: u8 = 3;
    /// [`LatencyFlow::flags`]: packets carry TCP timestamps.
    LATENCY_TIMESTAMPS: u8 = 1;
    /// [`LatencyFlow::flags`]: a request waits for its answer.
    LATENCY_PENDING: u8 = 2;
    /// [`LatencyFlow::flags`], of the pending request: something was retransmitted.
    LATENCY_LOSSY: u8 = 4;
    /// [`LatencyFlow::flags`], of the pending request: another one followed before the answer.
    LATENCY_OVERLAP: u8 = 8;
    /// [`LatencyFlow::flags`]: the pending request is a TLS ClientHello.
    LATENCY_HELLO: u8 = 16;
    /// [`LatencyFlow::flags`]: the next or the pending request contains the client's end of the TLS handshake.
    LATENCY_FINISHED: u8 = 32;
    /// [`LatencyFlow::flags`]: the client has sent payload.
    LATENCY_DATA: u8 = 64;
    /// [`LatencyFlow::flags`], of the pending request: payload that was here before came again.
    LATENCY_PROBE: u8 = 128;
    /// [`LatencyFlow::protocol`]: unknown, or one without messages that are not answers.
    LATENCY_OTHER: u8 = 0;
    /// [`LatencyFlow::protocol`]: TLS.
    LATENCY_TLS: u8 = 1;
    /// [`LatencyFlow::protocol`]: HTTP/2 without TLS.
    LATENCY_HTTP2: u8 = 2;
    /// log2 of the number of sampled flows.
    LATENCY_SLOTS_LOG2: u32 = 13;
    /// Number of rings.
    LATENCY_RINGS: u32 = 64;
    /// Samples in a ring.
    LATENCY_RING_SLOTS: u32 = 512;
    /// [`LatencySample::method`]: TCP timestamps.
    LATENCY_METHOD_TIMESTAMPS: u32 = 0;
    /// [`LatencySample::method`]: times between packets.
    LATENCY_METHOD_GAPS: u32 = 1;
    /// [`LatencySample::method`]: the time of a local client's `connect()`.
    LATENCY_METHOD_CONNECT: u32 = 2;
    /// Age of costs, in nanoseconds, from which `least-time` behaves as `lc`.
    COST_STALE_NS: u64 = 1_000_000_000;
    /// [`Cost::share`] of the best server.
    COST_SHARE_MAX: u32 = 65_535;
    /// One of so many new flows is assigned by weight alone.
    COST_EXPLORE: u32 = 32;
    /// Entries of `weir_latency_counts`.
    LATENCY_REASON_COUNT: u32 = 32;
}

structs! {
    /// `weir_latency_flows`: a sampled flow, at the top bits of its hash. Times in ns of the monotonic clock.
    LatencyFlow = "weir_latency_flow", 128 {
        /// Hash of the flow.
        hash: u64,
        /// Arrival of the SYN.
        syn_ns: u64,
        /// Arrival of the last payload.
        request_ns: u64,
        /// Arrival of the last packet.
        seen_ns: u64,
        /// Sample to be emitted unless a later answer replaces it.
        held_ns: i64,
        /// Spin lock; one attempt.
        lock: u32,
        /// Server row.
        dest: u32,
        /// The server's clock when it answered the SYN.
        server_ts: u32,
        /// From the SYN to the client's ACK.
        loop_ns: u32,
        /// Highest acknowledgement.
        ack: u32,
        /// End of the client's payload.
        seq: u32,
        /// Bytes acknowledged in the window.
        acked: u32,
        /// Maximum number of bytes from the server that may precede its first answer; 0 = none.
        window: u32,
        /// Payload bytes of the pending request.
        sent: u32,
        /// Bytes of the last payload.
        length: u16,
        /// `LATENCY_FREE` to `LATENCY_IGNORED`.
        phase: u8,
        /// `LATENCY_TIMESTAMPS` to `LATENCY_PROBE`.
        flags: u8,
        /// Whether a sample is held.
        held: u8,
        /// Acknowledgements in the window, 3 at most.
        acks: u8,
        /// Whether the held sample's answer was acknowledged as soon as it was sent.
        certain: u8,
        /// `LATENCY_OTHER` to `LATENCY_HTTP2`.
        protocol: u8,
        /// Zero.
        pad: [u8; 4],
        /// Zero.
        pad2: [u64; 5],
    }

    /// A sample in a [`LatencyRing`].
    LatencySample = "weir_latency_sample", 32 {
        /// The latency; negative within the resolution of the server's clock.
        ns: i64,
        /// Server row.
        dest: u32,
        /// `LATENCY_METHOD_*`.
        method: u32,
        /// 1 + position, written last.
        sequence: u64,
        /// Zero.
        pad: u64,
    }

    /// `weir_latency_rings`: samples of some CPUs.
    LatencyRing = "weir_latency_ring", 16448 {
        /// Next position.
        head: u64,
        /// Zero.
        pad: [u64; 7],
        /// By position modulo their number.
        samples: [LatencySample; LATENCY_RING_SLOTS as usize],
    }

    /// `weir_costs`, by server row; row 0 is the time of the last update.
    Cost = "weir_cost", 8 {
        /// Weight per latency, relative to the best server's `COST_SHARE_MAX`; 0 = unknown.
        share: u32,
        /// The estimate behind it.
        latency_us: u32,
    }
}

impl LatencyFlow {
    /// Whether a flag is set.
    #[must_use]
    pub const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
