//! Implements the reference model, which processes one packet and returns its outcome.
//!
//! [`Model::process`] has the stages of the data plane: parse the packet, apply the address filter, look up the flow,
//! bind a new flow, forward. Modules: `config` (configuration), `flows` (entries), `bind` (choice of a server), `flood`
//! (new flows beyond the budget), `template` (persistence), `mark` (firewall marks), `forward` (to servers and
//! clients), `reject` (ICMP errors and resets), `sync` (flows of other directors). The stages for received ICMP
//! messages and fragments are not modeled: their verdict is [`Verdict::Unmodeled`].

mod bind;
mod config;
mod flood;
mod flows;
mod forward;
mod mark;
mod reject;
mod sync;
mod template;

use std::collections::HashMap;

use weir_abi::{
    Addr, DEST_LIVE, DEST_RESCHEDULE, DEST_RESET, DEST_STRICT, DEST_USABLE, HopParts, Live,
    POLICY_DOWN, POLICY_EXPIRE, POLICY_PERSISTENT, POLICY_SILENT, Reason, SETTINGS_EXPIRE_NODEST,
    SETTINGS_REUSE, SETTINGS_REUSE_FIN_WAIT, State, Traffic,
};
use weir_wire::{IpProtocol, TcpFlags};

pub use config::{Config, Persistence, PortRange, ServiceRow, VipRow};
pub use flows::{Flow, Kind};

use crate::key::{FlowHashKey, Tuple};
use crate::parse::{Layout, PacketClass, parse};
use crate::state::{self, View};
use flood::Budget;
use flows::Flows;

/// The data plane's verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passed to the network stack.
    Pass,
    /// Dropped.
    Drop,
    /// Sent through the device on which it arrived.
    Tx,
    /// Sent through this device, usually not the one on which the packet arrived.
    Redirect(u32),
    /// Passed to the tc program, which resolves the neighbor and sends the packet.
    ToTc(PacketMeta),
    /// Handled by a stage that is not modeled.
    Unmodeled,
}

/// Metadata for the tc program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// Index of the outgoing device.
    pub ifindex: u32,
    /// The next hop; `None` = the packet's destination.
    pub next_hop: Option<Addr>,
}

/// The outcome of a packet: the verdict, the counted reasons, and the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// Counted reasons, in order. The last one is the packet's final reason if it was not forwarded.
    pub counted: Vec<Reason>,
    /// The frame as sent; unchanged if dropped.
    pub frame: Vec<u8>,
}

/// The counters in one row of `weir_live`, as schedulers read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Load {
    /// Active flows.
    pub active: u64,
    /// Inactive flows.
    pub inactive: u64,
    /// Whether the server is at its upper threshold.
    pub overloaded: bool,
}

/// A new flow, as passed to a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The packet's tuple.
    pub tuple: &'a Tuple,
    /// Hash of the tuple: [`crate::steer_hash`] if the choice depends only on the packet, otherwise the keyed hash.
    pub hash: u64,
    /// Current tick.
    pub now: u32,
}

/// Chooses servers. Implemented by the caller.
pub trait Scheduler {
    /// Returns the server for a new flow of a service, or `None` if no server is usable. `load` returns the counters in
    /// a row of `weir_live`.
    fn choose(
        &mut self,
        service: u32,
        arrival: &Arrival<'_>,
        load: &dyn Fn(u32) -> Load,
    ) -> Option<u32>;
}

/// The reference model of the data plane.
#[derive(Clone, Debug)]
pub struct Model<S> {
    config: Config,
    scheduler: S,
    key: FlowHashKey,
    flows: Flows,
    live: HashMap<u32, Live>,
    traffic: HashMap<u32, Traffic>,
    reasons: HashMap<Reason, u64>,
    /// Untracked marks: by protocol and top bits of the hash, the tick until which flows can exist without an entry.
    untracked: HashMap<(bool, u64), u32>,
    /// Next hops of clients, by slot of `weir_clients`.
    clients: HashMap<u32, (Addr, HopParts)>,
    syn_budget: Budget,
    reject_budget: Budget,
    /// Reasons counted for the current packet.
    counted: Vec<Reason>,
}

/// The current packet.
struct PacketContext {
    layout: Layout,
    frame: Vec<u8>,
    hash: u64,
    now: u32,
}

impl<S: Scheduler> Model<S> {
    /// Creates a model without flows.
    pub fn new(config: Config, scheduler: S) -> Self {
        Self {
            key: FlowHashKey::new(config.secret),
            flows: Flows::new(config.buckets),
            config,
            scheduler,
            live: HashMap::new(),
            traffic: HashMap::new(),
            reasons: HashMap::new(),
            untracked: HashMap::new(),
            clients: HashMap::new(),
            syn_budget: Budget::default(),
            reject_budget: Budget::default(),
            counted: Vec::new(),
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the configuration, which the caller may change as user space changes rows. Flows are kept.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Changes the size of the flow table. The slots of flows then differ from those in the data plane, which moves
    /// flows in a different order.
    pub fn resize(&mut self, buckets: u32) {
        self.config.buckets = buckets;
        self.flows.resize(buckets, |tuple| self.key.hash(tuple));
    }

    /// Returns the scheduler.
    pub fn scheduler_mut(&mut self) -> &mut S {
        &mut self.scheduler
    }

    /// Returns all entries, in arbitrary order.
    pub fn flows(&self) -> impl Iterator<Item = (&Tuple, &Flow)> {
        self.flows.iter()
    }

    /// Returns the counters in a row of `weir_live`.
    pub fn live(&self, row: u32) -> Live {
        self.live.get(&row).copied().unwrap_or_default()
    }

    /// Returns the counters in a row of `weir_live`, which the caller may change independently of packets.
    pub fn live_mut(&mut self, row: u32) -> &mut Live {
        self.live.entry(row).or_default()
    }

    /// Returns a server's packet and byte counters.
    pub fn traffic(&self, dest: u32) -> Traffic {
        self.traffic.get(&dest).copied().unwrap_or_default()
    }

    /// Returns how many times a reason was counted.
    pub fn count(&self, reason: Reason) -> u64 {
        self.reasons.get(&reason).copied().unwrap_or(0)
    }

    /// Removes expired flows and templates, like the sweep. Returns the number of removed entries.
    pub fn sweep(&mut self, now: u32) -> usize {
        let expired: Vec<Tuple> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.kind != Kind::Reverse && self.is_expired(flow, now))
            .map(|(tuple, _)| *tuple)
            .collect();
        let mut removed = 0;
        for tuple in &expired {
            match self.flows.get(tuple).map(|flow| flow.kind) {
                Some(Kind::Template) => self.expire_template(tuple, now),
                _ => self.release(tuple),
            }
            removed += usize::from(!self.flows.contains(tuple));
        }
        removed
    }

    /// Processes a frame that arrives at tick `now`, and returns its outcome.
    pub fn process(&mut self, frame: &[u8], now: u32) -> Outcome {
        self.counted.clear();
        let mut ctx = None;
        let verdict = match parse(frame) {
            Ok(layout)
                if !self.is_accepted(Some((layout.src, layout.dst))) && !self.is_marked(frame) =>
            {
                self.handle_unaccepted(&layout, frame)
            }
            Ok(layout) if layout.l3 + layout.ip_len > frame.len() => {
                self.drop(Reason::DropBadLength)
            }
            Ok(layout) => {
                let hash = self.key.hash(&layout.tuple());
                let frame = frame.to_vec();
                self.dispatch(ctx.insert(PacketContext {
                    layout,
                    frame,
                    hash,
                    now,
                }))
            }
            Err(error) if error.reason == Reason::PassNotIp => self.pass(Reason::PassNotIp),
            Err(error) if !self.is_accepted(error.addresses) && !self.is_marked(frame) => {
                self.pass(Reason::PassNotOurs)
            }
            Err(error) if error.reason == Reason::PassHeaders => self.pass(Reason::PassHeaders),
            Err(error) => self.drop(error.reason),
        };
        Outcome {
            verdict,
            counted: core::mem::take(&mut self.counted),
            frame: ctx.map_or_else(|| frame.to_vec(), |ctx| ctx.frame),
        }
    }

    /// Handles a packet that the address filter does not accept. An ICMP error contains the flow's tuple only in the
    /// packet that it quotes, so complete ICMP messages to any address are examined.
    fn handle_unaccepted(&mut self, layout: &Layout, frame: &[u8]) -> Verdict {
        if layout.class == PacketClass::Icmp && layout.l3 + layout.ip_len <= frame.len() {
            return Verdict::Unmodeled;
        }
        self.pass(Reason::PassNotOurs)
    }

    /// Returns whether the address filter accepts a packet. Addresses that were not parsed count as zero.
    fn is_accepted(&self, addresses: Option<(Addr, Addr)>) -> bool {
        let (src, dst) = addresses.unwrap_or_default();
        self.config.filter.may_be_destination(dst) || self.config.filter.may_be_source(src)
    }

    fn dispatch(&mut self, ctx: &mut PacketContext) -> Verdict {
        match ctx.layout.class {
            PacketClass::Plain => self.balance(ctx),
            PacketClass::Icmp | PacketClass::FragmentFirst | PacketClass::FragmentLater => {
                Verdict::Unmodeled
            }
            PacketClass::OtherProtocol => self.pass(Reason::PassProtocol),
        }
    }

    fn balance(&mut self, ctx: &mut PacketContext) -> Verdict {
        if self.skips_lookup(ctx) {
            return self.bind_and_send(ctx, false, false);
        }
        let tuple = ctx.layout.tuple();
        let found = self.flows.get(&tuple).copied();
        if let Some(flow) = found.filter(|flow| flow.kind == Kind::Reverse) {
            return self.forward_reply(ctx, &flow);
        }
        let untracked = found.is_none() && self.is_untracked(ctx);
        let mut any_packet_binds = false;
        if let Some(flow) = found {
            match self.flow_action(ctx, &flow) {
                FlowAction::Continue => {
                    let next = self.next_state(ctx, &flow);
                    self.advance(&tuple, next, ctx.now);
                    if ctx.layout.tcp_flags.contains(TcpFlags::SYN) {
                        self.count_syn(flow.dest, next);
                    }
                    return self.send_to_server(ctx, flow.dest, Some(tuple));
                }
                FlowAction::End(reason) => {
                    self.release(&tuple);
                    return self.drop(reason);
                }
                FlowAction::Reset => {
                    self.close(&tuple, &flow, ctx.now);
                    return self.reject(ctx, Reason::RejectRemoved, 0);
                }
                FlowAction::Discard(reason) => return self.drop(reason),
                FlowAction::Rebind { any_packet } => {
                    self.release(&tuple);
                    any_packet_binds = any_packet;
                }
            }
        }
        self.bind_and_send(ctx, untracked, any_packet_binds)
    }

    fn flow_action(&self, ctx: &PacketContext, flow: &Flow) -> FlowAction {
        let flags = self
            .config
            .dests
            .get(&flow.dest)
            .map_or(0, |dest| dest.flags);
        let policy = self
            .config
            .dests
            .get(&flow.dest)
            .map_or(0, |dest| dest.policy);
        let is_syn = ctx.layout.tcp_flags.contains(TcpFlags::SYN) && ctx.layout.protocol.0 == 6;
        let has_unusable_server = (flow.state == State::SynRecv || policy & POLICY_DOWN != 0)
            && flags & (DEST_LIVE | DEST_USABLE | DEST_STRICT | DEST_RESET) == DEST_LIVE
            && !(flow.by_template && policy & POLICY_PERSISTENT != 0);
        let rebinds = is_syn && (self.is_new_connection(flow) || has_unusable_server);
        if self.is_expired(flow, ctx.now) || rebinds {
            return FlowAction::Rebind { any_packet: false };
        }
        if flags & DEST_RESCHEDULE != 0 {
            FlowAction::Rebind {
                any_packet: policy & POLICY_EXPIRE == 0,
            }
        } else if flags & DEST_RESET != 0 && policy & POLICY_SILENT != 0 {
            FlowAction::Discard(Reason::DropServerGone)
        } else if flags & DEST_RESET != 0 {
            FlowAction::Reset
        } else if flags & DEST_LIVE == 0 {
            FlowAction::End(Reason::DropServerGone)
        } else {
            FlowAction::Continue
        }
    }

    /// Closes a flow. The entry is kept until it expires, so every packet is rejected with a response. The timeout of a
    /// UDP entry is not restarted, so a client that continues to send eventually gets a different server.
    fn close(&mut self, tuple: &Tuple, flow: &Flow, now: u32) {
        if tuple.protocol == IpProtocol::TCP.0 || flow.state != State::Close {
            self.advance(tuple, State::Close, now);
        }
    }

    /// Returns whether a SYN begins a new connection (ip_vs_core.c, `ip_vs_in_hook` and `is_new_conn_expected`).
    fn is_new_connection(&self, flow: &Flow) -> bool {
        let settings = self.config.settings.flags;
        if settings & SETTINGS_REUSE == 0 || flow.by_template {
            return false;
        }
        let is_usable = self
            .config
            .dests
            .get(&flow.dest)
            .is_none_or(|dest| dest.flags & DEST_USABLE != 0);
        let is_quiesced = settings & SETTINGS_EXPIRE_NODEST != 0 && !is_usable;
        let is_finished = flow.state == State::FinWait
            && flow.one_sided
            && settings & SETTINGS_REUSE_FIN_WAIT != 0;
        is_quiesced || is_finished || state::allows_reuse(flow.state)
    }

    fn next_state(&self, ctx: &PacketContext, flow: &Flow) -> State {
        // A UDP flow that was closed because its server was removed is reopened if the server is available again.
        if ctx.layout.protocol.0 != 6 {
            return State::Udp;
        }
        let view = if flow.one_sided {
            View::OneSided
        } else {
            View::Input
        };
        state::next(flow.state, view, ctx.layout.tcp_flags)
    }

    fn is_expired(&self, flow: &Flow, now: u32) -> bool {
        let by_state = self.config.settings.timeouts.get(flow.state as usize);
        let timeout = match flow.kind {
            Kind::Template => flow.ticks,
            _ => by_state.copied().unwrap_or(0),
        };
        now.wrapping_sub(flow.seen).cast_signed() > timeout.cast_signed()
    }

    fn count_reason(&mut self, reason: Reason) {
        *self.reasons.entry(reason).or_default() += 1;
        self.counted.push(reason);
    }

    fn pass(&mut self, reason: Reason) -> Verdict {
        self.count_reason(reason);
        Verdict::Pass
    }

    fn drop(&mut self, reason: Reason) -> Verdict {
        self.count_reason(reason);
        Verdict::Drop
    }
}

/// What to do with a packet of an existing flow.
enum FlowAction {
    Continue,
    /// Remove the entry and drop the packet.
    End(Reason),
    /// Reject the packet, because the server was removed.
    Reset,
    /// Drop the packet and keep the entry.
    Discard(Reason),
    /// Handle the packet like one without a flow. `any_packet`: even if it is not a SYN.
    Rebind {
        any_packet: bool,
    },
}

#[cfg(test)]
mod tests;
