//! Provides the simulations' random numbers, event queue, addresses and seeds.
//!
//! Also measures the time during which several routers are active.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;

use weir_vrrp::GROUP_V4;

/// Maximum transmission delay of a packet.
pub(crate) const MAX_DELAY: Duration = Duration::from_millis(3);

/// The SplitMix64 generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn time(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.below(end.as_micros() as u64 + 1))
    }
}

/// A queue of events ordered by time; events at the same time stay in insertion order.
pub(crate) struct Timeline<E> {
    events: BinaryHeap<Reverse<(Duration, u64, E)>>,
    /// Number of events added so far.
    count: u64,
}

impl<E: Ord> Timeline<E> {
    pub(crate) const fn new() -> Self {
        Self {
            events: BinaryHeap::new(),
            count: 0,
        }
    }

    pub(crate) fn push(&mut self, time: Duration, event: E) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    /// Removes the next event. Returns it if it is due at `end` or earlier; a later event is discarded.
    pub(crate) fn pop(&mut self, end: Duration) -> Option<(Duration, E)> {
        let Reverse((time, _, event)) = self.events.pop()?;
        (time <= end).then_some((time, event))
    }
}

/// The longest time during which several routers were active.
#[derive(Default)]
pub(crate) struct Overlap {
    since: Option<Duration>,
    pub(crate) longest: Duration,
}

impl Overlap {
    pub(crate) fn observe(&mut self, now: Duration, active: usize) {
        if let Some(since) = self.since {
            self.longest = self.longest.max(now - since);
        }
        self.since = (active > 1).then(|| self.since.unwrap_or(now));
    }
}

pub(crate) fn address(node: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + node as u8).into()
}

pub(crate) fn multicast_group() -> IpAddr {
    GROUP_V4.into()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the number of schedules is an option of the test"
)]
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Returns whether to run the long forms of the tests.
pub(crate) fn is_soak() -> bool {
    setting("WEIR_SOAK", 0) > 0
}

/// Returns the seeds of the schedules to run.
pub(crate) fn seeds(count: u64) -> Range<u64> {
    let first = setting("WEIR_VRRP_SEED", 1);
    let count = setting("WEIR_VRRP_SCHEDULES", count);
    println!("seeds {first} to {}", first + count - 1);
    first..first + count
}
