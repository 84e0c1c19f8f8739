//! Handles new flows beyond the budget: no entries are created for them, and their part of the hash space is marked.

use weir_abi::{Forward, MARKS_LOG2, SERVICE_ONE_PACKET, State};
use weir_wire::{IpProtocol, TcpFlags};

use super::bind::spread_server;
use super::config::ServiceRow;
use super::{Model, PacketContext, Scheduler};

/// A limit on events per tick.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    tick: u32,
    used: u32,
}

impl Budget {
    pub(super) fn take(&mut self, now: u32, limit: u32) -> bool {
        if self.tick != now {
            *self = Self { tick: now, used: 0 };
        }
        let available = self.used < limit;
        self.used += u32::from(available);
        available
    }

    fn is_spent(&self, now: u32, limit: u32) -> bool {
        let used = if self.tick == now { self.used } else { 0 };
        used >= limit
    }
}

/// Returns the key of a packet's untracked mark: whether it is UDP, and the top bits of the hash.
fn mark_key(ctx: &PacketContext) -> (bool, u64) {
    let udp = ctx.layout.protocol == IpProtocol::UDP;
    (udp, ctx.hash >> (64 - MARKS_LOG2))
}

impl<S: Scheduler> Model<S> {
    /// Takes one entry from the budget for new entries. Returns true if the budget is exhausted and no entry may be
    /// created; UDP flows with NAT always get an entry.
    pub(super) fn exceeds_entry_budget(
        &mut self,
        ctx: &PacketContext,
        row: &ServiceRow,
        hash: u64,
    ) -> bool {
        let limit = self.config.settings.syn_budget;
        if self.syn_budget.take(ctx.now, limit) {
            return false;
        }
        ctx.layout.protocol == IpProtocol::TCP || !self.is_spread_translated(hash, row)
    }

    /// Returns whether a packet is forwarded by its hash, without a flow lookup: it is a SYN beyond the budget, the
    /// service's scheduler uses only the hash, without persistence or `one_packet`, and its server is not a NAT server.
    pub(super) fn skips_lookup(&self, ctx: &PacketContext) -> bool {
        let layout = &ctx.layout;
        let may_start_flow = layout.protocol == IpProtocol::TCP
            && layout.tcp_flags.contains(TcpFlags::SYN)
            && !layout.tcp_flags.contains(TcpFlags::RST);
        let limit = self.config.settings.syn_budget;
        if !may_start_flow || self.is_mark_ingress() || !self.syn_budget.is_spent(ctx.now, limit) {
            return false;
        }
        let listener = (layout.tuple().dst, layout.tuple().dport, layout.protocol.0);
        let service = self.config.listeners.get(&listener);
        let row = service.and_then(|service| self.config.services.get(service));
        row.is_some_and(|row| {
            let dest = self
                .config
                .dests
                .get(&spread_server(row, row.spread_hash(ctx)));
            row.hashed
                && row.persistence.is_none()
                && row.flags & SERVICE_ONE_PACKET == 0
                && dest.is_some_and(|dest| dest.forward != Forward::Nat as u8)
        })
    }

    /// Returns whether flows to the spread table's server need an entry, because they are translated.
    pub(super) fn is_spread_translated(&self, hash: u64, row: &ServiceRow) -> bool {
        let dest = self.config.dests.get(&spread_server(row, hash));
        dest.is_some_and(|dest| dest.forward == Forward::Nat as u8)
    }

    /// Sets the untracked mark for the part of the hash space that contains the packet's flow.
    pub(super) fn mark_untracked(&mut self, ctx: &PacketContext) {
        let settings = &self.config.settings;
        let (udp, bits) = mark_key(ctx);
        let ticks = if udp {
            settings.timeouts[State::Udp as usize]
        } else {
            settings.untracked_ticks
        };
        let end_tick = ctx.now.wrapping_add(ticks) | 1;
        self.untracked.insert((udp, bits), end_tick);
    }

    /// Returns whether the untracked mark is set for the part of the hash space that contains the packet's flow.
    pub(super) fn is_untracked(&self, ctx: &PacketContext) -> bool {
        let end_tick = self.untracked.get(&mark_key(ctx));
        end_tick.is_some_and(|end_tick| end_tick.wrapping_sub(ctx.now).cast_signed() >= 0)
    }
}
