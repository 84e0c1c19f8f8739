//! Defines ticks, the data plane's unit of time: 2^30 ns of CLOCK_MONOTONIC; 32 bits cover 146 years.

use core::time::Duration;

use crate::setting::TICK_SHIFT;

/// Converts a duration to ticks. Rounds up, so that a timeout never ends early, and saturates.
pub const fn ticks_from(duration: Duration) -> u32 {
    let ticks = duration.as_nanos().div_ceil(1 << TICK_SHIFT);
    if ticks > u32::MAX as u128 {
        u32::MAX
    } else {
        ticks as u32
    }
}

/// Converts ticks to a duration.
pub const fn ticks_to_duration(ticks: u32) -> Duration {
    Duration::from_nanos((ticks as u64) << TICK_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_rounded_up() {
        assert_eq!(ticks_from(Duration::ZERO), 0);
        assert_eq!(ticks_from(Duration::from_nanos(1)), 1);
        assert_eq!(ticks_from(Duration::from_nanos(1 << 30)), 1);
        assert_eq!(ticks_from(Duration::from_nanos((1 << 30) + 1)), 2);
        assert_eq!(ticks_from(Duration::from_secs(900)), 839);
    }

    #[test]
    fn maximum_duration_saturates() {
        assert_eq!(ticks_from(Duration::MAX), u32::MAX);
    }

    #[test]
    fn ticks_round_trip() {
        for ticks in [0, 1, 839, u32::MAX] {
            assert_eq!(ticks_from(ticks_to_duration(ticks)), ticks);
        }
    }
}
