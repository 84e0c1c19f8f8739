//! Counts the advertisements of the active router that a backup expected but did not receive.

use std::net::IpAddr;
use std::time::Duration;

/// Counter of lost advertisements. Only gaps between two advertisements of the same router count: a router that has
/// stopped sends none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossCounter {
    lost: u64,
    /// The active router's last advertisement.
    last: Option<ReceivedAdvertisement>,
    /// Number of advertisements that were missing before the last one. They count with the next advertisement, unless
    /// it is early: after a pause of this director, all packets that have waited in its socket are handled in immediate
    /// succession.
    missing: u64,
}

#[derive(Clone, Copy, Debug)]
struct ReceivedAdvertisement {
    sender: IpAddr,
    at: Duration,
    /// Time until the sender's next advertisement.
    interval: Duration,
}

impl LossCounter {
    /// Returns the number of lost advertisements. A loss is counted when two more advertisements have been received.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Handles an advertisement of the active router, which sends the next one after `interval`.
    pub(crate) fn handle_advertisement(
        &mut self,
        sender: IpAddr,
        interval: Duration,
        now: Duration,
    ) {
        let received = ReceivedAdvertisement {
            sender,
            at: now,
            interval,
        };
        let previous = self.last.replace(received);
        let Some(previous) = previous.filter(|previous| previous.sender == sender) else {
            self.missing = 0;
            return;
        };
        match previous.periods_until(now) {
            0 => self.missing = self.missing.saturating_sub(1),
            periods => self.lost += std::mem::replace(&mut self.missing, periods - 1),
        }
    }

    /// Discards the data about the active router: it has stopped, or this router is no longer its backup.
    pub(crate) const fn forget_active_router(&mut self) {
        self.last = None;
        self.missing = 0;
    }
}

impl ReceivedAdvertisement {
    /// Returns the number of intervals since this advertisement, rounded to the nearest integer.
    fn periods_until(&self, now: Duration) -> u64 {
        let elapsed = now.saturating_sub(self.at) + self.interval / 2;
        let periods = elapsed.as_nanos().checked_div(self.interval.as_nanos());
        u64::try_from(periods.unwrap_or(1)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 4));

    /// Returns the number of lost advertisements after advertisements at these times in milliseconds, with an interval
    /// of 100 ms.
    fn lost_after(times: &[u64]) -> u64 {
        let mut counter = LossCounter::default();
        for time in times {
            let now = Duration::from_millis(*time);
            counter.handle_advertisement(PEER, Duration::from_millis(100), now);
        }
        counter.lost()
    }

    #[test]
    fn missing_advertisements_are_counted_despite_jitter() {
        assert_eq!(lost_after(&[1000, 1100, 1200, 1300]), 0);
        assert_eq!(lost_after(&[1000, 1140, 1190, 1320, 1400]), 0);
        // One at 1100, and two at 1300 and 1400.
        assert_eq!(lost_after(&[1000, 1200, 1500, 1600]), 3);
        // The peer repeats an advertisement in response to another packet.
        assert_eq!(lost_after(&[1000, 1100, 1110, 1210]), 0);
    }

    #[test]
    fn packets_that_waited_during_a_pause_are_not_lost() {
        assert_eq!(lost_after(&[1000, 1500, 1500, 1500, 1500, 1500, 1600]), 0);
        assert_eq!(lost_after(&[1000, 1500, 1500, 1500, 1600, 1700]), 2);
    }

    #[test]
    fn gaps_without_an_active_router_are_not_counted() {
        let interval = Duration::from_millis(100);
        let mut counter = LossCounter::default();
        let mut receive = |sender, time| {
            counter.handle_advertisement(sender, interval, Duration::from_millis(time));
            counter.lost()
        };
        assert_eq!(receive(PEER, 1000), 0);
        assert_eq!(receive(OTHER, 5000), 0);
        assert_eq!(receive(PEER, 9000), 0);
        assert_eq!(receive(PEER, 9100), 0);
        counter.forget_active_router();
        counter.handle_advertisement(PEER, interval, Duration::from_millis(20_000));
        counter.handle_advertisement(PEER, interval, Duration::from_millis(20_100));
        counter.handle_advertisement(PEER, interval, Duration::from_millis(20_200));
        assert_eq!(counter.lost(), 0);
    }

    #[test]
    fn interval_may_change_and_may_be_zero() {
        let mut counter = LossCounter::default();
        counter.handle_advertisement(PEER, Duration::from_secs(1), Duration::from_secs(1));
        counter.handle_advertisement(PEER, Duration::from_millis(100), Duration::from_secs(2));
        counter.handle_advertisement(PEER, Duration::ZERO, Duration::from_millis(2100));
        counter.handle_advertisement(PEER, Duration::ZERO, Duration::from_secs(3));
        assert_eq!(counter.lost(), 0);
    }
}
