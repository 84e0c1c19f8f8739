//! New flows beyond the budget: they get no entry, and their part of the hash space is marked.

use weir_abi::{Forward, MARKS_LOG2, SERVICE_ONE_PACKET, State};
use weir_wire::{IpProtocol, TcpFlags};

use super::bind::spread;
use super::config::ServiceRow;
use super::{Job, Model, Scheduler};

/// A limit of events per tick.
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
        let available = self.used < most;
        self.used += u32::from(available);
        available
    }

    fn is_spent(&self, now: u32, most: u32) -> bool {
        let used = if self.tick == now { self.used } else { 0 };
        used >= most
    }
}

/// The mark of a packet's flow.
fn part(job: &Job) -> (bool, u64) {
    let udp = job.layout.protocol == IpProtocol::UDP;
    (udp, job.hash >> (64 - MARKS_LOG2))
}

impl<S: Scheduler> Model<S> {
    /// Takes from the budget of new entries. Returns whether the flow gets no entry; datagrams under nat always get
    /// one.
    pub(super) fn over_budget(&mut self, job: &Job, row: &ServiceRow, hash: u64) -> bool {
        let most = self.config.settings.syn_budget;
        if self.syn_budget.take(job.now, most) {
            return false;
        }
        job.layout.protocol == IpProtocol::TCP || !self.spread_translates(hash, row)
    }

    /// Whether a packet is forwarded by its hash without a flow lookup: a SYN beyond the budget of a service whose
    /// scheduler only uses the hash.
    pub(super) fn skips_lookup(&self, job: &Job) -> bool {
        let layout = &job.layout;
        let begins = layout.protocol == IpProtocol::TCP
            && layout.tcp_flags.contains(TcpFlags::SYN)
            && !layout.tcp_flags.contains(TcpFlags::RST);
        let most = self.config.settings.syn_budget;
        if !begins || self.is_mark_ingress() || !self.syn_budget.is_spent(job.now, most) {
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

    /// Marks that flows with this part of the hash may exist without an entry.
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

    /// Whether flows with this part of the hash may exist without an entry.
    pub(super) fn is_untracked(&self, job: &Job) -> bool {
        let until = self.untracked.get(&part(job));
        until.is_some_and(|until| until.wrapping_sub(job.now).cast_signed() >= 0)
    }
}
