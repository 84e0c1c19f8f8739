//! The flows that the model remembers, and the counts that follow them.

use std::collections::HashMap;

use weir_abi::State;

use super::{Model, Scheduler};
use crate::key::Tuple;
use crate::state;

/// Direction of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Client to VIP.
    Forward,
    /// Server to client under nat; state and counts are the forward entry's.
    Reverse,
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Direction.
    pub kind: Kind,
    /// Index of the server.
    pub dest: u32,
    /// State; a reverse entry's stays that of the beginning.
    pub state: State,
    /// Whether it counts as active.
    pub active: bool,
    /// Whether replies do not pass here.
    pub one_sided: bool,
    /// Tick of the last packet that changed it.
    pub seen: u32,
    /// The other direction under nat.
    pub peer: Option<Tuple>,
    /// The device that its first packet came by.
    pub ingress: u32,
}

/// Entries by tuple, forward and reverse alike: two flows cannot share one.
#[derive(Debug, Default)]
pub(super) struct Flows(HashMap<Tuple, Flow>);

impl Flows {
    pub(super) fn get(&self, tuple: &Tuple) -> Option<&Flow> {
        self.0.get(tuple)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Tuple, &Flow)> {
        self.0.iter()
    }

    pub(super) fn insert(&mut self, tuple: Tuple, flow: Flow) {
        self.0.insert(tuple, flow);
    }

    pub(super) fn contains(&self, tuple: &Tuple) -> bool {
        self.0.contains_key(tuple)
    }
}

impl<S: Scheduler> Model<S> {
    /// Adds `by` to a server's count of one class, and to its pool's where that is another row.
    fn count_class(&mut self, dest: u32, active: bool, by: i64) {
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
            *count = count.wrapping_add_signed(by);
        }
    }

    /// Counts a new flow.
    pub(super) fn count_bound(&mut self, dest: u32, active: bool) {
        self.live.entry(dest).or_default().total += 1;
        self.count_class(dest, active, 1);
    }

    /// Notes a packet of a forward entry and the state it brings about. UDP keeps the class that it began with.
    pub(super) fn advance(&mut self, tuple: &Tuple, next: State, now: u32) {
        let Some(flow) = self.flows.0.get_mut(tuple) else {
            return;
        };
        let was = flow.active;
        if next != flow.state && next != State::Udp {
            flow.active = state::is_active(next);
        }
        flow.state = next;
        flow.seen = now;
        let (dest, is) = (flow.dest, flow.active);
        if was != is {
            self.count_class(dest, is, 1);
            self.count_class(dest, was, -1);
        }
    }

    /// Removes a forward entry with its reverse entry and takes the counts down.
    pub(super) fn release(&mut self, tuple: &Tuple) {
        let Some(flow) = self.flows.0.remove(tuple) else {
            return;
        };
        self.count_class(flow.dest, flow.active, -1);
        if let Some(peer) = flow.peer {
            self.flows.0.remove(&peer);
        }
    }
}
