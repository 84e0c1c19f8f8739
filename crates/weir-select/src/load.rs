//! Tracks the load and weight of one server for all services and workers.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Time after which the measured latency of an idle server is halved, so that a previously slow server gets requests
/// again.
const HALF_LIFE_MS: u64 = 5_000;

/// The state of a server that schedulers use.
///
/// Relaxed loads are sufficient for scheduling, which is based on estimates anyway. Only `Load::try_acquire` enforces
/// the limit.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Load {
    /// Number of requests in progress, or of connections for a TCP service.
    pub active: AtomicU32,
    /// Highest value of `active` so far.
    pub peak: AtomicU32,
    /// Effective weight; 0 = no new requests.
    pub weight: AtomicU32,
    /// Maximum value of `active`; 0 = no limit.
    pub limit: AtomicU32,
    /// Whether the server still serves the clients whose cookies identify it when its weight is 0.
    pub sticky_while_quiesced: AtomicBool,
    /// Whether connections to the server are closed because it was removed from a pool with `on_remove = "reset"`.
    pub close_connections: AtomicBool,
    /// Time to the first byte: microseconds in the low half, time of the measurement in milliseconds in the high half.
    latency: AtomicU64,
}

impl Load {
    /// Returns the state of an idle server. A `limit` of 0 means no limit.
    pub fn new(weight: u32, limit: u32) -> Self {
        Self {
            weight: weight.into(),
            limit: limit.into(),
            ..Self::default()
        }
    }

    /// Returns whether the server accepts new requests.
    pub fn is_usable(&self) -> bool {
        self.weight() > 0 && !self.is_full()
    }

    /// Returns whether the server accepts a request from a client that it has served before.
    pub(crate) fn accepts_sticky(&self) -> bool {
        !self.is_withdrawn() && !self.is_full()
    }

    /// Returns whether the server accepts no clients. Idle connections to it are then useless.
    pub fn is_withdrawn(&self) -> bool {
        self.weight() == 0 && !self.sticky_while_quiesced.load(Ordering::Relaxed)
    }

    /// Returns whether connections to the server must be closed.
    pub fn closes_connections(&self) -> bool {
        self.close_connections.load(Ordering::Relaxed)
    }

    /// Returns whether the server has reached its limit.
    pub fn is_full(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit != 0 && self.active() >= limit
    }

    /// Returns the effective weight.
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Returns the number of requests in progress.
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// Acquires a slot. Returns false if the server is full. No more slots than the limit are acquired even if several
    /// threads call this at the same time.
    pub(crate) fn try_acquire(&self) -> bool {
        let before = self.active.fetch_add(1, Ordering::AcqRel);
        let limit = self.limit.load(Ordering::Relaxed);
        let is_acquired = limit == 0 || before < limit;
        if !is_acquired {
            self.active.fetch_sub(1, Ordering::AcqRel);
        } else if before >= self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(before + 1, Ordering::Relaxed);
        }
        is_acquired
    }

    /// Releases a slot that `Load::try_acquire` acquired.
    pub fn release(&self) {
        self.active.fetch_sub(1, Ordering::AcqRel);
    }

    /// Records the time to a response's first byte. A longer time than the recorded one takes effect immediately; a
    /// shorter one takes effect gradually.
    pub fn record_latency(&self, us: u64, now_ms: u64) {
        let us = us.clamp(1, u64::from(u32::MAX));
        let recorded = self.latency_us(now_ms);
        let us = if us >= recorded {
            us
        } else {
            (recorded * 7 + us) / 8
        };
        self.latency
            .store((now_ms & 0xffff_ffff) << 32 | us, Ordering::Relaxed);
    }

    /// Returns the recorded latency in microseconds, halved for every five seconds without a measurement; 0 = unknown.
    pub fn latency_us(&self, now_ms: u64) -> u64 {
        let entry = self.latency.load(Ordering::Relaxed);
        let age = (now_ms & 0xffff_ffff).wrapping_sub(entry >> 32) & 0xffff_ffff;
        (entry & 0xffff_ffff) >> (age / HALF_LIFE_MS).min(31)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "test threads")]
mod tests {
    use super::*;

    fn load(weight: u32, limit: u32, active: u32) -> Load {
        Load {
            active: active.into(),
            weight: weight.into(),
            limit: limit.into(),
            ..Load::default()
        }
    }

    #[test]
    fn weight_and_limit_determine_which_clients_are_accepted() {
        for (weight, limit, active, usable, sticky) in [
            (1, 0, 1000, true, true),
            (1, 2, 1, true, true),
            (1, 2, 2, false, false),
            (1, 2, 3, false, false),
            (0, 0, 0, false, false),
        ] {
            let load = load(weight, limit, active);
            let found = (load.is_usable(), load.accepts_sticky());
            assert_eq!(found, (usable, sticky), "{load:?}");
        }
        let quiesced = load(0, 1, 0);
        quiesced
            .sticky_while_quiesced
            .store(true, Ordering::Relaxed);
        assert!(!quiesced.is_usable() && quiesced.accepts_sticky() && !quiesced.is_withdrawn());
        assert!(quiesced.try_acquire() && !quiesced.accepts_sticky());
    }

    #[test]
    fn connections_are_closed_only_if_the_removal_resets_them() {
        let load = load(0, 0, 1);
        assert!(!load.closes_connections());
        load.close_connections.store(true, Ordering::Relaxed);
        assert!(load.closes_connections());
    }

    #[test]
    fn concurrent_threads_do_not_exceed_the_limit() {
        let load = load(1, 100, 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if load.try_acquire() {
                            assert!(
                                load.active() <= 104,
                                "more than one attempt per thread above the limit"
                            );
                            load.release();
                        }
                    }
                });
            }
        });
        assert_eq!(load.active(), 0);
        assert_eq!((0..200).filter(|_| load.try_acquire()).count(), 100);
    }

    #[test]
    fn peak_is_the_highest_number_of_requests_in_progress() {
        let load = load(1, 3, 0);
        for (acquired, released, peak) in [(1, 1, 1), (1, 0, 1), (1, 2, 2), (9, 3, 3), (1, 0, 3)] {
            (0..acquired).for_each(|_| _ = load.try_acquire());
            (0..released).for_each(|_| load.release());
            assert_eq!(load.peak.load(Ordering::Relaxed), peak, "{load:?}");
        }
    }

    #[test]
    fn latency_rises_immediately_and_falls_gradually() {
        let load = Load::default();
        assert_eq!(load.latency_us(7), 0);
        load.record_latency(800, 1_000);
        assert_eq!(load.latency_us(1_000), 800);
        load.record_latency(1_600, 1_000);
        assert_eq!(load.latency_us(1_000), 1_600);
        load.record_latency(800, 1_000);
        assert_eq!(load.latency_us(1_000), 1_500);
        assert_eq!(load.latency_us(5_999), 1_500);
        assert_eq!(load.latency_us(6_000), 750);
        assert_eq!(load.latency_us(11_000), 375);
        load.record_latency(0, 11_000);
        assert!(load.latency_us(11_000) > 0, "the latency is unknown");
        // The lower half of the clock wraps.
        load.record_latency(900, 0xffff_ffff);
        assert_eq!(load.latency_us(0x1_0000_0000), 900);
    }
}
