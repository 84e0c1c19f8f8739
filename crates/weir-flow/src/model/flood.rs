//! New flows beyond the budget: no entry is made for them, and the part of the hash space that they lie in is marked.

use weir_abi::{Forward, MARKS_LOG2, State};
use weir_wire::IpProtocol;

use super::bind::spread;
use super::config::ServiceRow;
use super::{Job, Model, Scheduler};

/// What may happen only so often a tick.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    tick: u32,
    used: u32,
}

impl Budget {
    pub(super) fn take(&mut self, now: u32, most: u32) -> bool {
        if self.tick != now {
            *self = Self { tick: now, used: 0 };
        }
        let left = self.used < most;
        self.used += u32::from(left);
        left
    }
}

/// The part of the marks that a packet's flow belongs to.
fn part(job: &Job) -> (bool, u64) {
    let udp = job.layout.protocol == IpProtocol::UDP;
    (udp, job.hash >> (64 - MARKS_LOG2))
}

impl<S: Scheduler> Model<S> {
    /// Takes from the budget of new entries; whether the flow must do without one. A datagram's under nat need not.
    pub(super) fn over_budget(&mut self, job: &Job, row: &ServiceRow, hash: u64) -> bool {
        let most = self.config.settings.syn_budget;
        if self.syn_budget.take(job.now, most) {
            return false;
        }
        job.layout.protocol == IpProtocol::TCP || !self.spread_translates(hash, row)
    }

    /// Whether the spread table's server needs an entry.
    pub(super) fn spread_translates(&self, hash: u64, row: &ServiceRow) -> bool {
        let dest = self.config.dests.get(&spread(row, hash));
        dest.is_some_and(|dest| dest.forward == Forward::Nat as u8)
    }

    /// Notes that flows like this packet's may live without an entry.
    pub(super) fn mark_untracked(&mut self, job: &Job) {
        let settings = &self.config.settings;
        let (udp, bits) = part(job);
        let ticks = if udp {
            settings.timeouts[State::Udp as usize]
        } else {
            settings.untracked_ticks
        };
        let until = job.now.wrapping_add(ticks) | 1;
        self.untracked.insert((udp, bits), until);
    }

    /// Whether a flow like this packet's may live without an entry.
    pub(super) fn is_untracked(&self, job: &Job) -> bool {
        let until = self.untracked.get(&part(job));
        until.is_some_and(|until| until.wrapping_sub(job.now).cast_signed() >= 0)
    }
}
