//! Stores the model's flow entries and updates their counters.

use std::collections::HashMap;

use weir_abi::{NO_INDEX, State};

use super::{Model, Scheduler};
use crate::key::Tuple;
use crate::slot::SlotAllocator;
use crate::state;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Packets from the client to the VIP.
    Forward,
    /// Packets from a NAT server to the client; the forward entry holds the state and the counters.
    Reverse,
    /// The server of a persistent client.
    Template,
}

/// An entry: one direction of a flow, or a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The kind of the entry.
    pub kind: Kind,
    /// Index of the server.
    pub dest: u32,
    /// Index of the entry's slot in the table.
    pub index: u32,
    /// State of the flow; not updated in reverse entries.
    pub state: State,
    /// Whether the flow counts as active.
    pub active: bool,
    /// Whether replies bypass the director.
    pub one_sided: bool,
    /// Tick of the last packet that updated the entry.
    pub seen: u32,
    /// Tuple of the other direction, with NAT.
    pub peer: Option<Tuple>,
    /// Index of the device on which the first packet arrived.
    pub ingress: u32,
    /// Whether a template selected the server.
    pub by_template: bool,
    /// Tuple of the flow's template, while the template exists.
    pub template: Option<Tuple>,
    /// For a template: number of live flows.
    pub flow_count: u32,
    /// For a template: its timeout, in ticks.
    pub ticks: u32,
}

/// Forward and reverse entries, and templates, by tuple: two flows cannot share a tuple. Each entry has a slot, so the
/// number of entries is limited.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    entries: HashMap<Tuple, Flow>,
    slots: SlotAllocator,
}

impl Flows {
    /// Creates an empty table of `buckets` buckets.
    pub(super) fn new(buckets: u32) -> Self {
        Self {
            entries: HashMap::new(),
            slots: SlotAllocator::new(buckets),
        }
    }

    pub(super) fn get(&self, tuple: &Tuple) -> Option<&Flow> {
        self.entries.get(tuple)
    }

    pub(super) fn get_mut(&mut self, tuple: &Tuple) -> Option<&mut Flow> {
        self.entries.get_mut(tuple)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Tuple, &Flow)> {
        self.entries.iter()
    }

    /// Allocates a slot for an entry with this hash. Returns `None` if all buckets for the hash are full.
    pub(super) fn allocate(&mut self, hash: u64) -> Option<u32> {
        self.slots.allocate(hash)
    }

    /// Frees a slot that no entry uses.
    pub(super) fn free(&mut self, index: u32) {
        self.slots.free(index);
    }

    pub(super) fn insert(&mut self, tuple: Tuple, flow: Flow) {
        self.entries.insert(tuple, flow);
    }

    fn remove(&mut self, tuple: &Tuple) -> Option<Flow> {
        let flow = self.entries.remove(tuple)?;
        self.slots.free(flow.index);
        Some(flow)
    }

    pub(super) fn contains(&self, tuple: &Tuple) -> bool {
        self.entries.contains_key(tuple)
    }

    /// Allocates a slot for every entry in a table of a different size. An entry that gets no slot is kept with
    /// `NO_INDEX`.
    pub(super) fn resize(&mut self, buckets: u32, hash: impl Fn(&Tuple) -> u64) {
        self.slots = SlotAllocator::new(buckets);
        for (tuple, flow) in &mut self.entries {
            flow.index = self.slots.allocate(hash(tuple)).unwrap_or(NO_INDEX);
        }
    }
}

impl<S: Scheduler> Model<S> {
    /// Adds `delta` to the number of active or inactive flows in a server's row, and in its shared row, if it has one.
    pub(super) fn change_flow_count(&mut self, dest: u32, active: bool, delta: i64) {
        let shared = self.config.dests.get(&dest).map_or(dest, |row| row.live);
        let rows = if shared == dest {
            vec![dest]
        } else {
            vec![dest, shared]
        };
        for row in rows {
            let live = self.live.entry(row).or_default();
            let count = if active {
                &mut live.active
            } else {
                &mut live.inactive
            };
            *count = count.wrapping_add_signed(delta);
        }
    }

    /// Counts a new flow.
    pub(super) fn count_new_flow(&mut self, dest: u32, active: bool) {
        self.live.entry(dest).or_default().total += 1;
        self.change_flow_count(dest, active, 1);
        self.set_overload(dest);
    }

    /// Sets a server's overload flag if its flows have reached the upper threshold.
    pub(super) fn set_overload(&mut self, dest: u32) {
        let Some(row) = self.config.dests.get(&dest) else {
            return;
        };
        let live = self.live.entry(row.live).or_default();
        if live.upper != 0 && live.active + live.inactive >= u64::from(live.upper) {
            live.overloaded = 1;
        }
    }

    /// Counts a SYN of a flow that is not established yet.
    pub(super) fn count_syn(&mut self, dest: u32, state: State) {
        if state == State::SynRecv {
            self.live.entry(dest).or_default().syns += 1;
        }
    }

    /// Clears a server's overload flag if enough of its flows have ended (ip_vs_unbind_dest).
    fn clear_overload(&mut self, dest: u32) {
        let Some(row) = self.config.dests.get(&dest) else {
            return;
        };
        let live = self.live.entry(row.live).or_default();
        let flows = live.active + live.inactive;
        let below_lower = match live.lower {
            0 => flows * 4 < u64::from(live.upper) * 3,
            lower => flows < u64::from(lower),
        };
        if below_lower && live.upper != 0 {
            live.overloaded = 0;
        }
    }

    /// Updates a forward entry with the time of a packet and the flow's new state. UDP flows remain active or inactive.
    pub(super) fn advance(&mut self, tuple: &Tuple, next: State, now: u32) {
        let Some(flow) = self.flows.entries.get_mut(tuple) else {
            return;
        };
        let was_active = flow.active;
        if next != flow.state && next != State::Udp {
            flow.active = state::is_active(next);
        }
        let answered = (flow.state, next) == (State::SynRecv, State::Established);
        flow.state = next;
        flow.seen = now;
        let (dest, is_active) = (flow.dest, flow.active);
        self.live.entry(dest).or_default().answered += u64::from(answered);
        let template = flow.template.filter(|_| next == State::Established);
        if let Some(template) = template.and_then(|template| self.flows.entries.get_mut(&template))
        {
            template.state = State::Established;
        }
        if was_active != is_active {
            self.change_flow_count(dest, is_active, 1);
            self.change_flow_count(dest, was_active, -1);
        }
    }

    /// Removes a forward entry with its reverse entry, or a template, and updates the counters.
    pub(super) fn release(&mut self, tuple: &Tuple) {
        let Some(flow) = self.flows.remove(tuple) else {
            return;
        };
        if flow.kind == Kind::Template {
            self.live.entry(flow.dest).or_default().persistent -= 1;
            // The template's flows are no longer counted, not even by a later template of the same client.
            for other in self.flows.entries.values_mut() {
                other.template = other.template.filter(|template| template != tuple);
            }
            return;
        }
        self.change_flow_count(flow.dest, flow.active, -1);
        self.clear_overload(flow.dest);
        if let Some(template) = flow
            .template
            .and_then(|key| self.flows.entries.get_mut(&key))
        {
            template.flow_count -= 1;
        }
        if let Some(peer) = flow.peer {
            self.flows.remove(&peer);
        }
    }
}
