//! Defines the idle timeouts of flows by state. The defaults are those of IPVS; three of them are configurable.

use core::time::Duration;

use weir_abi::{State, ticks_from};

/// The three timeouts that `ipvsadm --set` and `[timeouts]` set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Established TCP; 15 minutes by default.
    pub tcp: Duration,
    /// TCP after the first FIN; 2 minutes by default.
    pub tcp_fin: Duration,
    /// UDP; 5 minutes by default.
    pub udp: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp: Duration::from_secs(900),
            tcp_fin: Duration::from_secs(120),
            udp: Duration::from_secs(300),
        }
    }
}

impl Timeouts {
    /// Returns the idle timeout of a flow in `state`.
    #[must_use]
    pub const fn for_state(&self, state: State) -> Duration {
        match state {
            State::None => Duration::from_secs(2),
            State::Established => self.tcp,
            State::FinWait => self.tcp_fin,
            State::SynRecv | State::CloseWait => Duration::from_secs(60),
            State::Close => Duration::from_secs(10),
            State::LastAck => Duration::from_secs(30),
            State::SynSent | State::TimeWait | State::Listen | State::Synack => {
                Duration::from_secs(120)
            }
            State::Udp => self.udp,
        }
    }

    /// Returns the timeouts for the row of `weir_settings`, in ticks and indexed by state number. Numbers without a
    /// state get the timeout of established flows.
    #[must_use]
    pub fn ticks(&self) -> [u32; 16] {
        let mut ticks = [ticks_from(self.tcp); 16];
        for state in State::ALL {
            if let Some(slot) = ticks.get_mut(*state as usize) {
                *slot = ticks_from(self.for_state(*state));
            }
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_equal_ipvs() {
        let seconds: Vec<u64> = State::ALL
            .iter()
            .map(|state| Timeouts::default().for_state(*state).as_secs())
            .collect();
        assert_eq!(
            seconds,
            [2, 900, 120, 60, 120, 120, 10, 60, 30, 120, 120, 300]
        );
    }

    #[test]
    fn changed_timeout_affects_only_its_state() {
        let changed = Timeouts {
            tcp_fin: Duration::from_secs(7),
            ..Timeouts::default()
        };
        let (before, after) = (Timeouts::default().ticks(), changed.ticks());
        let changed_indexes: Vec<usize> = (0..16)
            .filter(|index| before[*index] != after[*index])
            .collect();
        assert_eq!(changed_indexes, [State::FinWait as usize]);
        assert_eq!(after[State::FinWait as usize], 7);
    }
}
