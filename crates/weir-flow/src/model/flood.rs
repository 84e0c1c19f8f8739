//! New flows beyond the budget: no entry is made for them, and the part of the hash space that they lie in is marked.

use weir_abi::{Forward, MARKS_LOG2, SERVICE_ONE_PACKET, State};
use weir_wire::{IpProtocol, TcpFlags};

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

    fn is_spent(&self, now: u32, most: u32) -> bool {
        let used = if self.tick == now { self.used } else { 0 };
        used >= most
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

    /// Whether a packet goes by its hash without a look for its flow: a SYN for which there is no budget, where the hash decides
    /// in any case.
    pub(super) fn goes_unseen(&self, job: &Job) -> bool {
        let layout = &job.layout;
        let begins = layout.protocol == IpProtocol::TCP
            && layout.tcp_flags.contains(TcpFlags::SYN)
            && !layout.tcp_flags.contains(TcpFlags::RST);
        let most = self.config.settings.syn_budget;
        if !begins || self.comes_marked() || !self.syn_budget.is_spent(job.now, most) {
            return false;
        }
        let listener = (layout.tuple().dst, layout.tuple().dport, layout.protocol.0);
        let service = self.config.listeners.get(&listener);
        let row = service.and_then(|service| self.config.services.get(service));
        row.is_some_and(|row| {
            let dest = self.config.dests.get(&spread(row, row.spread_hash(job)));
            row.hashed
                && row.persistence.is_none()
                && row.flags & SERVICE_ONE_PACKET == 0
                && dest.is_some_and(|dest| dest.forward != Forward::Nat as u8)
        })
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
