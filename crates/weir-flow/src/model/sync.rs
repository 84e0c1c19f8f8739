//! Inserts, updates or rejects flows from another director, with the same results as bpf/lib/sync.h.
//!
//! In the model, the generation of a server's row never changes: a record with a different generation is rejected, as
//! in the data plane, but no entry has a previous generation of its row. Locks are always obtained.

use weir_abi::{
    Addr, DEST_LIVE, DEST_LOCAL, DEST_SNAT, Dest, Forward, KIND_FORWARD, KIND_TEMPLATE,
    SYNC_CONFLICT, SYNC_FULL, SYNC_GONE, SYNC_INSERTED, SYNC_OLDER, SYNC_UPDATED, State, SyncFlow,
};

use super::flows::{Flow, Kind};
use super::{Model, Scheduler};
use crate::family::Family;
use crate::key::Tuple;
use crate::state;

/// A valid record, converted to a tuple and an entry.
struct ConvertedRecord {
    tuple: Tuple,
    flow: Flow,
}

impl<S: Scheduler> Model<S> {
    /// Inserts or updates a flow or template from a peer at tick `now`. Returns a `SYNC_*` result, and the flow's slot
    /// if it has one.
    pub fn synchronize(&mut self, record: &SyncFlow, now: u32) -> (u8, Option<u32>) {
        let Some(new) = self.convert_record(record, now) else {
            return (SYNC_GONE, None);
        };
        let tuple = new.tuple;
        if let Some(flow) = self.flows.get(&tuple).copied() {
            if flow.kind != new.flow.kind {
                return (SYNC_CONFLICT, None);
            }
            // The two directors' ticks do not start at the same time.
            if flow.seen.wrapping_sub(new.flow.seen).cast_signed() > 1 {
                return (SYNC_OLDER, None);
            }
            if flow.dest == new.flow.dest && has_source(&flow, record) {
                self.update_synced(&tuple, &flow, &new.flow);
                return (SYNC_UPDATED, Some(flow.index));
            }
            self.release(&tuple);
        }
        let result = self.insert_synced(record, new);
        let index = self.flows.get(&tuple).map(|flow| flow.index);
        (result, index.filter(|_| result == SYNC_INSERTED))
    }

    /// Converts a record. Returns `None` if the server's row is not in use or belongs to a different server or service,
    /// if the state is invalid, or if no director sends records of this kind.
    fn convert_record(&self, record: &SyncFlow, now: u32) -> Option<ConvertedRecord> {
        let kind = match record.kind {
            KIND_FORWARD => Kind::Forward,
            KIND_TEMPLATE => Kind::Template,
            _ => return None,
        };
        let dest = self.config.dests.get(&record.dest)?;
        if dest.flags & DEST_LIVE == 0
            || dest.generation != record.dest_generation
            || dest.service != record.service
        {
            return None;
        }
        let forward = kind == Kind::Forward;
        let state = State::from_number(record.state & 0xf)?;
        let active = match state {
            State::Udp => record.active != 0,
            _ => state::is_active(state),
        };
        let flow = Flow {
            kind,
            dest: record.dest,
            index: 0,
            state,
            active: forward && active,
            one_sided: forward && dest.forward != Forward::Nat as u8,
            seen: now.wrapping_sub(record.idle),
            peer: None,
            ingress: record.ifindex,
            template: None,
            by_template: false,
            flow_count: 0,
            ticks: record.timeout,
        };
        let tuple = Tuple {
            src: record.src,
            dst: record.dst,
            sport: record.sport.get(),
            dport: record.dport.get(),
            protocol: record.proto,
            family: if record.family == 4 {
                Family::V4
            } else {
                Family::V6
            },
        };
        Some(ConvertedRecord { tuple, flow })
    }

    fn update_synced(&mut self, tuple: &Tuple, old: &Flow, new: &Flow) {
        let is_newer = new.seen.wrapping_sub(old.seen).cast_signed() > 0;
        if let Some(flow) = self.flows.get_mut(tuple) {
            flow.state = new.state;
            flow.active = new.active;
            flow.seen = if is_newer { new.seen } else { old.seen };
            if flow.kind == Kind::Template {
                flow.ticks = new.ticks;
            }
        }
        if old.kind == Kind::Forward && old.active != new.active {
            self.change_flow_count(old.dest, new.active, 1);
            self.change_flow_count(old.dest, old.active, -1);
        }
    }

    fn insert_synced(&mut self, record: &SyncFlow, new: ConvertedRecord) -> u8 {
        let Some(dest) = self.config.dests.get(&record.dest).copied() else {
            return SYNC_GONE;
        };
        if new.flow.kind == Kind::Forward && is_translated(&dest, record) {
            return self.insert_synced_nat(record, &dest, new);
        }
        let Some(index) = self.flows.allocate(self.key.hash(&new.tuple)) else {
            return SYNC_FULL;
        };
        self.add_synced(new.tuple, Flow { index, ..new.flow });
        SYNC_INSERTED
    }

    fn insert_synced_nat(&mut self, record: &SyncFlow, dest: &Dest, new: ConvertedRecord) -> u8 {
        // The connection cannot continue without the source address that the server has received.
        if (dest.flags & DEST_SNAT != 0) != (record.snat_port.get() != 0) {
            return SYNC_GONE;
        }
        let tuple = new.tuple;
        let (dst, dport) = source_of(record);
        let reply = Tuple {
            src: dest.addr,
            sport: match dest.port.get() {
                0 => tuple.dport,
                port => port,
            },
            dst,
            dport,
            ..tuple
        };
        if self.flows.contains(&reply) {
            return SYNC_CONFLICT;
        }
        let Some(reverse) = self.flows.allocate(self.key.hash(&reply)) else {
            return SYNC_FULL;
        };
        let Some(index) = self.flows.allocate(self.key.hash(&tuple)) else {
            self.flows.free(reverse);
            return SYNC_FULL;
        };
        let flow = Flow {
            index,
            peer: Some(reply),
            ..new.flow
        };
        self.add_synced(tuple, flow);
        let reverse = Flow {
            kind: Kind::Reverse,
            index: reverse,
            peer: Some(tuple),
            ..flow
        };
        self.flows.insert(reply, reverse);
        SYNC_INSERTED
    }

    /// Adds an entry and updates the counters. A flow that began at a peer does not count as a new connection to the
    /// server.
    fn add_synced(&mut self, tuple: Tuple, flow: Flow) {
        match flow.kind {
            Kind::Template => self.live.entry(flow.dest).or_default().persistent += 1,
            Kind::Forward | Kind::Reverse => {
                self.change_flow_count(flow.dest, flow.active, 1);
                self.set_overload(flow.dest);
            }
        }
        self.flows.insert(tuple, flow);
    }
}

/// Returns the source address and port of the packets that the server receives, if they are translated.
fn source_of(record: &SyncFlow) -> (Addr, u16) {
    match record.snat_port.get() {
        0 => (record.src, record.sport.get()),
        port => (record.snat, port),
    }
}

/// Returns whether the record's source is that of `flow`. They differ if the peer has assigned a different source to a
/// new connection with the same client port.
fn has_source(flow: &Flow, record: &SyncFlow) -> bool {
    flow.peer
        .is_none_or(|reply| (reply.dst, reply.dport) == source_of(record))
}

/// Returns whether the server's replies are translated, according to this director's settings, not the peer's.
fn is_translated(dest: &Dest, record: &SyncFlow) -> bool {
    let is_local_vip = dest.flags & DEST_LOCAL != 0 && dest.addr == record.dst;
    dest.forward == Forward::Nat as u8 && !is_local_vip
}
