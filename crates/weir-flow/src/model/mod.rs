//! The reference model: one packet in, its fate out.
//!
//! [`Model::packet`] is the packet's way in the order of the data plane's stages: parse, does it concern Weir, find the flow,
//! bind a new one, forward. Files: `config` (what it is told), `flows` (what it remembers), `bind` (choosing a server),
//! `forward` (towards servers and clients),
//! `refuse` (errors by ICMP). Messages of ICMP that arrive and fragments have stages of their own, which the model does not
//! cover: their fate is [`Verdict::Unmodelled`].

mod bind;
mod config;
mod flood;
mod flows;
mod forward;
mod mark;
mod refuse;
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

use crate::key::{FlowKey, Tuple};
use crate::parse::{Cold, Layout, parse};
use crate::state::{self, View};
use flood::Budget;
use flows::Flows;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Up the stack.
    Pass,
    /// Gone.
    Drop,
    /// Out of the device that it came by.
    Tx,
    /// Out of another device.
    Redirect(u32),
    /// Up to the tc program, which finds the neighbour and sends.
    ToTc(PacketMeta),
    /// A stage decides that the model does not cover.
    Unmodelled,
}

/// What the tc program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// The device to send by.
    pub ifindex: u32,
    /// The next hop, where it is not the packet's own destination.
    pub next_hop: Option<Addr>,
}

/// Where a packet went and what was counted on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// What becomes of it.
    pub verdict: Verdict,
    /// Reasons counted, in order. The last one is the packet's own where it did not go on to a server or a client.
    pub counted: Vec<Reason>,
    /// The frame as it leaves; unchanged where it is dropped.
    pub frame: Vec<u8>,
}

/// What schedulers read of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Load {
    /// Active flows.
    pub active: u64,
    /// Inactive flows.
    pub inactive: u64,
    /// The server is at its upper threshold.
    pub overloaded: bool,
}

/// What a scheduler is told of a new flow.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The packet's tuple.
    pub tuple: &'a Tuple,
    /// Its keyed hash.
    pub hash: u64,
    /// The tick.
    pub now: u32,
}

/// Chooses servers: handed in by whoever knows the schedulers.
pub trait Scheduler {
    /// The server for a new flow of a service, or none. `load` reads the counts of a `weir_live` row.
    fn choose(
        &mut self,
        service: u32,
        arrival: &Arrival<'_>,
        load: &dyn Fn(u32) -> Load,
    ) -> Option<u32>;
}

/// The data plane in plain words.
#[derive(Clone, Debug)]
pub struct Model<S> {
    config: Config,
    scheduler: S,
    key: FlowKey,
    flows: Flows,
    live: HashMap<u32, Live>,
    traffic: HashMap<u32, Traffic>,
    reasons: HashMap<Reason, u64>,
    /// By protocol and top bits of the hash: the tick until which flows may exist there without an entry.
    untracked: HashMap<(bool, u64), u32>,
    /// Replies' ways by slot of `weir_clients`.
    clients: HashMap<u32, (Addr, HopParts)>,
    syn_budget: Budget,
    reject_budget: Budget,
    /// Reasons of the packet under way.
    counted: Vec<Reason>,
}

/// A packet under way.
struct Job {
    layout: Layout,
    frame: Vec<u8>,
    hash: u64,
    now: u32,
}

impl<S: Scheduler> Model<S> {
    /// A data plane without flows.
    pub fn new(config: Config, scheduler: S) -> Self {
        Self {
            key: FlowKey::new(config.secret),
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

    /// What it was told.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes what it was told, as user space changes rows; flows stay.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// The table has another size now. Which places its flows have there is not the data plane's: it moves them in an order of
    /// its own.
    pub fn resize(&mut self, buckets: u32) {
        self.config.buckets = buckets;
        self.flows.resize(buckets, |tuple| self.key.hash(tuple));
    }

    /// The schedulers.
    pub fn scheduler_mut(&mut self) -> &mut S {
        &mut self.scheduler
    }

    /// Every flow's forward and reverse directions, in no order.
    pub fn flows(&self) -> impl Iterator<Item = (&Tuple, &Flow)> {
        self.flows.iter()
    }

    /// Counts of a row.
    pub fn live(&self, row: u32) -> Live {
        self.live.get(&row).copied().unwrap_or_default()
    }

    /// Changes a row as something beside packets would.
    pub fn live_mut(&mut self, row: u32) -> &mut Live {
        self.live.entry(row).or_default()
    }

    /// Packets and bytes of a server.
    pub fn traffic(&self, dest: u32) -> Traffic {
        self.traffic.get(&dest).copied().unwrap_or_default()
    }

    /// How often a reason was counted.
    pub fn count(&self, reason: Reason) -> u64 {
        self.reasons.get(&reason).copied().unwrap_or(0)
    }

    /// Removes what is overdue, as the sweep does sooner or later. Answers how many flows and templates went.
    pub fn sweep(&mut self, now: u32) -> usize {
        let overdue: Vec<Tuple> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.kind != Kind::Reverse && self.overdue(flow, now))
            .map(|(tuple, _)| *tuple)
            .collect();
        let mut gone = 0;
        for tuple in &overdue {
            match self.flows.get(tuple).map(|flow| flow.kind) {
                Some(Kind::Template) => self.expire_template(tuple, now),
                _ => self.release(tuple),
            }
            gone += usize::from(!self.flows.contains(tuple));
        }
        gone
    }

    /// The fate of a frame that arrives at tick `now`.
    pub fn packet(&mut self, frame: &[u8], now: u32) -> Fate {
        self.counted.clear();
        let mut job = None;
        let verdict = match parse(frame) {
            Ok(layout)
                if !self.concerns(Some((layout.src, layout.dst))) && !self.is_marked(frame) =>
            {
                self.not_ours(&layout, frame)
            }
            Ok(layout) if layout.l3 + layout.ip_len > frame.len() => {
                self.drop(Reason::DropBadLength)
            }
            Ok(layout) => {
                let hash = self.key.hash(&layout.tuple());
                let frame = frame.to_vec();
                self.dispatch(job.insert(Job {
                    layout,
                    frame,
                    hash,
                    now,
                }))
            }
            Err(stopped) if stopped.reason == Reason::PassNotIp => self.pass(Reason::PassNotIp),
            Err(stopped) if !self.concerns(stopped.addresses) && !self.is_marked(frame) => {
                self.pass(Reason::PassNotOurs)
            }
            Err(stopped) if stopped.reason == Reason::PassHeaders => self.pass(Reason::PassHeaders),
            Err(stopped) => self.drop(stopped.reason),
        };
        Fate {
            verdict,
            counted: core::mem::take(&mut self.counted),
            frame: job.map_or_else(|| frame.to_vec(), |job| job.frame),
        }
    }

    /// A router's error names a flow of ours only inside, so whole ICMP messages are looked into whoever they are for.
    fn not_ours(&mut self, layout: &Layout, frame: &[u8]) -> Verdict {
        if layout.cold == Cold::Icmp && layout.l3 + layout.ip_len <= frame.len() {
            return Verdict::Unmodelled;
        }
        self.pass(Reason::PassNotOurs)
    }

    /// Whether the address filter lets a packet through. A packet whose addresses could not be read has none.
    fn concerns(&self, addresses: Option<(Addr, Addr)>) -> bool {
        let (src, dst) = addresses.unwrap_or_default();
        self.config.filter.may_be_to(dst) || self.config.filter.may_be_from(src)
    }

    fn dispatch(&mut self, job: &mut Job) -> Verdict {
        match job.layout.cold {
            Cold::Plain => self.balance(job),
            Cold::Icmp | Cold::FragmentFirst | Cold::FragmentLater => Verdict::Unmodelled,
            Cold::OtherProtocol => self.pass(Reason::PassProtocol),
        }
    }

    fn balance(&mut self, job: &mut Job) -> Verdict {
        if self.goes_unseen(job) {
            return self.begin(job, false, false);
        }
        let tuple = job.layout.tuple();
        let found = self.flows.get(&tuple).copied();
        if let Some(flow) = found.filter(|flow| flow.kind == Kind::Reverse) {
            return self.reply(job, &flow);
        }
        let untracked = found.is_none() && self.is_untracked(job);
        let mut anew = false;
        if let Some(flow) = found {
            match self.may_go_on(job, &flow) {
                Standing::GoesOn => {
                    let next = self.next_state(job, &flow);
                    self.advance(&tuple, next, job.now);
                    if job.layout.tcp_flags.contains(TcpFlags::SYN) {
                        self.count_syn(flow.dest, next);
                    }
                    return self.send_to_server(job, flow.dest, Some(tuple));
                }
                Standing::Ended(reason) => {
                    self.release(&tuple);
                    return self.drop(reason);
                }
                Standing::Reset => {
                    self.close(&tuple, &flow, job.now);
                    return self.refuse(job, Reason::RejectRemoved, 0);
                }
                Standing::Waits(reason) => return self.drop(reason),
                Standing::BeginsAnew { any_packet } => {
                    self.release(&tuple);
                    anew = any_packet;
                }
            }
        }
        self.begin(job, untracked, anew)
    }

    fn may_go_on(&self, job: &Job, flow: &Flow) -> Standing {
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
        let is_syn = job.layout.tcp_flags.contains(TcpFlags::SYN) && job.layout.protocol.0 == 6;
        let goes_elsewhere = (flow.state == State::SynRecv || policy & POLICY_DOWN != 0)
            && flags & (DEST_LIVE | DEST_USABLE | DEST_STRICT | DEST_RESET) == DEST_LIVE
            && !(flow.by_template && policy & POLICY_PERSISTENT != 0);
        let rebinds = is_syn && (self.begins_anew(flow) || goes_elsewhere);
        if self.overdue(flow, job.now) || rebinds {
            return Standing::BeginsAnew { any_packet: false };
        }
        if flags & DEST_RESCHEDULE != 0 {
            Standing::BeginsAnew {
                any_packet: policy & POLICY_EXPIRE == 0,
            }
        } else if flags & DEST_RESET != 0 && policy & POLICY_SILENT != 0 {
            Standing::Waits(Reason::DropServerGone)
        } else if flags & DEST_RESET != 0 {
            Standing::Reset
        } else if flags & DEST_LIVE == 0 {
            Standing::Ended(Reason::DropServerGone)
        } else {
            Standing::GoesOn
        }
    }

    /// The entry stays until its time is up, so that every packet is answered. A UDP flow's is not renewed: a client that
    /// goes on sending gets another server then.
    fn close(&mut self, tuple: &Tuple, flow: &Flow, now: u32) {
        if tuple.protocol == IpProtocol::TCP.0 || flow.state != State::Close {
            self.advance(tuple, State::Close, now);
        }
    }

    /// Whether a SYN begins another connection (ip_vs_core.c, `ip_vs_in_hook` and `is_new_conn_expected`).
    fn begins_anew(&self, flow: &Flow) -> bool {
        let settings = self.config.settings.flags;
        if settings & SETTINGS_REUSE == 0 || flow.by_template {
            return false;
        }
        let usable = self
            .config
            .dests
            .get(&flow.dest)
            .is_none_or(|dest| dest.flags & DEST_USABLE != 0);
        let quiesced = settings & SETTINGS_EXPIRE_NODEST != 0 && !usable;
        let finished = flow.state == State::FinWait
            && flow.one_sided
            && settings & SETTINGS_REUSE_FIN_WAIT != 0;
        quiesced || finished || state::may_begin_anew(flow.state)
    }

    fn next_state(&self, job: &Job, flow: &Flow) -> State {
        // Also one that was closed because its server was removed, when the server is back.
        if job.layout.protocol.0 != 6 {
            return State::Udp;
        }
        let view = if flow.one_sided {
            View::OneSided
        } else {
            View::Input
        };
        match job.layout.protocol {
            IpProtocol::TCP => state::next(flow.state, view, job.layout.tcp_flags),
            // Also of a flow that was closed because its server was away for a while.
            _ => State::Udp,
        }
    }

    fn overdue(&self, flow: &Flow, now: u32) -> bool {
        let by_state = self.config.settings.timeouts.get(flow.state as usize);
        let timeout = match flow.kind {
            Kind::Template => flow.ticks,
            _ => by_state.copied().unwrap_or(0),
        };
        now.wrapping_sub(flow.seen).cast_signed() > timeout.cast_signed()
    }

    fn note(&mut self, reason: Reason) {
        *self.reasons.entry(reason).or_default() += 1;
        self.counted.push(reason);
    }

    fn pass(&mut self, reason: Reason) -> Verdict {
        self.note(reason);
        Verdict::Pass
    }

    fn drop(&mut self, reason: Reason) -> Verdict {
        self.note(reason);
        Verdict::Drop
    }
}

/// What a packet of a known flow may do.
enum Standing {
    GoesOn,
    Ended(Reason),
    /// The server was removed, and the client is told with each packet.
    Reset,
    /// The packet goes no further, the entry stays.
    Waits(Reason),
    /// Like a packet without a flow; `any_packet`: it need not be a SYN.
    BeginsAnew {
        any_packet: bool,
    },
}

#[cfg(test)]
mod tests;
