//! Selects the flows to send to other directors, and inserts the flows that they send.
//!
//! The data plane records flows that change state. A slow walk over the table finds the remaining flows: flows whose
//! last packet is newer, by at least a third of the timeout, than the one last reported to the peers; UDP flows; flows
//! whose recorded change was overwritten before it was read; and flows for which changed `maglev` tables select a
//! different server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use weir_abi::{
    Addr, BUCKET_SLOTS, Be16, EntryMeta, FLOW_ACTIVE, FLOW_TEMPLATE, Forward, KIND_FORWARD,
    KIND_REVERSE, KIND_TEMPLATE, NO_INDEX, PROTO_TEMPLATE, SETTINGS_LEARN_CLIENTS, SETTINGS_SYNC,
    State, SyncFlow, TEMPLATE_SERVICE, ticks_from, ticks_to_duration,
};
use weir_dataplane::Flow;
use weir_flow::{Family, Tuple, steer_hash};
use weir_sync::{Kind, Record, Source};

use super::Engine;
use super::sync_index::{PREFETCH_DISTANCE, ServiceNames, SyncCounts, SyncIndex, Synchronizer};
use crate::error::Result;
use crate::network::tick;

/// Duration of one walk over the table.
const WALK_DURATION: Duration = Duration::from_secs(4);
/// Maximum number of [`Engine::sync_changes`] calls that a walk takes to visit the whole table after `maglev` tables
/// have changed.
const MAX_RECHECK_CALLS: u32 = 16;
/// Time for which each call continues such a walk; enough to visit a table with few flows in one call.
const RECHECK_TIME: Duration = Duration::from_millis(4);
/// Number of buckets between two checks of the clock.
const RECHECK_BUCKETS: u32 = 256;
/// Number of buckets that one call to [`Source::scan`] visits.
const SCAN_BUCKETS: u32 = 256;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Why a record is not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InsertError {
    /// The record has values that no flow can have.
    InvalidValues,
    /// This director does not have the service.
    UnknownService,
    /// The service with this row does not have the server.
    UnknownServer { service: u32 },
}

impl InsertError {
    const fn counter(self, counts: &mut SyncCounts) -> &mut u64 {
        match self {
            Self::InvalidValues => &mut counts.invalid,
            Self::UnknownService => &mut counts.unknown_service,
            Self::UnknownServer { .. } => &mut counts.unknown_server,
        }
    }
}

/// Returns whether `tick` is later than `other`.
fn is_after(tick: u32, other: u32) -> bool {
    (tick.wrapping_sub(other) as i32) > 0
}

/// Returns whether a flow must be reported to the peers again: its last packet, at `seen`, is at least a third of the
/// timeout later than `sent`, the last one reported. All arguments are in ticks.
fn needs_refresh(sent: u32, seen: u32, timeout: u32) -> bool {
    let third = (timeout / 3).max(1);
    seen.wrapping_sub(sent) >= third && is_after(seen, sent)
}

fn ticks_to_ms(ticks: u32) -> u32 {
    u32::try_from(ticks_to_duration(ticks).as_millis()).unwrap_or(u32::MAX)
}

fn ms_to_ticks(milliseconds: u32) -> u32 {
    ticks_from(Duration::from_millis(milliseconds.into()))
}

/// Returns whether an entry is the forward entry of a flow that is not in a TCP handshake.
fn is_past_handshake(meta: EntryMeta) -> bool {
    meta.kind == KIND_FORWARD
        && meta.state != State::SynRecv as u8
        && meta.state != State::None as u8
}

impl Engine {
    /// Starts or stops recording changed flows. Flows that are already in the table are sent when a peer joins.
    ///
    /// # Errors
    /// Fails if a map cannot be written.
    pub fn set_sync(&mut self, enabled: bool) -> Result<()> {
        let maps = self.plane.maps();
        maps.set_sync(enabled)?;
        self.rows.settings.flags &= !SETTINGS_SYNC;
        self.rows.settings.flags |= if enabled { SETTINGS_SYNC } else { 0 };
        let counts = self.sync.counts;
        self.sync = Synchronizer {
            enabled: Some(enabled),
            counts,
            ..Synchronizer::default()
        };
        if enabled {
            self.sync.positions = Some(maps.sync_positions()?);
        }
        Ok(())
    }

    /// Returns the argument of the last call to [`Self::set_sync`]; `None` = it has not been called yet.
    pub fn is_synchronizing(&self) -> Option<bool> {
        self.sync.enabled
    }

    /// Returns the number of records from peers by result, and the number of overwritten changes.
    pub fn sync_counts(&self) -> SyncCounts {
        self.sync.counts
    }

    /// Returns whether buckets remain that the walk must visit because `maglev` tables have changed. Peers may no
    /// longer be able to compute the servers of the flows in these buckets.
    pub fn has_buckets_to_recheck(&self) -> bool {
        self.sync.enabled == Some(true) && self.sync.recheck_buckets > 0
    }

    /// Appends the entries to send: changed entries, and entries that the next part of the walk finds. `now` is the
    /// time since any fixed point.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn sync_changes(&mut self, now: Duration, entries: &mut Vec<u32>) -> Result<()> {
        self.update_index()?;
        let maps = self.plane.maps();
        let Some(positions) = &mut self.sync.positions else {
            return Ok(());
        };
        self.sync.counts.overwritten += maps.sync_changes(positions, entries)?;
        let buckets = maps.flows.buckets();
        let elapsed = now.saturating_sub(self.sync.walked_at).min(WALK_DURATION);
        let share =
            u64::from(buckets) * elapsed.as_millis() as u64 / WALK_DURATION.as_millis() as u64;
        let recheck = self
            .sync
            .recheck_buckets
            .min(buckets.div_ceil(MAX_RECHECK_CALLS));
        let share = share.max(recheck.into());
        if share == 0 {
            return Ok(());
        }
        self.sync.walked_at = now;
        self.walk(share, entries)?;
        let start = Instant::now();
        while self.sync.recheck_buckets > 0 && start.elapsed() < RECHECK_TIME {
            let buckets = self.sync.recheck_buckets.min(RECHECK_BUCKETS);
            self.walk(buckets.into(), entries)?;
        }
        Ok(())
    }

    /// Visits the next buckets.
    fn walk(&mut self, count: u64, entries: &mut Vec<u32>) -> Result<()> {
        let buckets = self.plane.maps().flows.buckets();
        for _ in 0..count {
            let bucket = self.sync.walk_bucket % buckets;
            self.sync.walk_bucket = bucket + 1;
            self.find_due_entries(bucket, entries)?;
            self.sync.recheck_buckets = self.sync.recheck_buckets.saturating_sub(1);
        }
        Ok(())
    }

    fn update_index(&mut self) -> Result<()> {
        let version = (self.state.revision, self.state.allocation.last_generation);
        let capacity = self.plane.maps().flows.capacity() as usize;
        if self.sync.sent_ticks.len() != capacity {
            self.sync.sent_ticks = vec![0; capacity];
        }
        if self.sync.index_version != Some(version) {
            self.sync.index = SyncIndex::new(&self.desired, &self.state);
            self.sync.index_version = Some(version);
        }
        self.sync.settings = self.plane.maps().settings()?;
        Ok(())
    }

    /// Appends the entries of a bucket that must be sent to the peers: they were never sent, were last sent too long
    /// ago, or the tables now select a different server for them.
    fn find_due_entries(&self, bucket: u32, entries: &mut Vec<u32>) -> Result<()> {
        let slots = self.plane.maps().flows.bucket(bucket)?.slots;
        for (slot, entry) in (0..BUCKET_SLOTS).zip(slots) {
            let meta = entry.parts();
            if entry.id == 0 || !is_past_handshake(meta) {
                continue;
            }
            let index = bucket * BUCKET_SLOTS + slot;
            if self.is_due(index, meta)
                || (self.sync.recheck_buckets > 0 && self.is_no_longer_computed(index))
            {
                entries.push(index);
            }
        }
        Ok(())
    }

    fn is_due(&self, index: u32, meta: EntryMeta) -> bool {
        let sent_tick = self
            .sync
            .sent_ticks
            .get(index as usize)
            .copied()
            .unwrap_or(0);
        if sent_tick == meta.seen {
            return false;
        }
        let timeout = self.sync.settings.timeouts.get(usize::from(meta.state));
        if sent_tick != 0 && needs_refresh(sent_tick, meta.seen, timeout.copied().unwrap_or(0)) {
            return true;
        }
        let Ok(cold) = self.plane.maps().flows.cold(index) else {
            return false;
        };
        // The tick belongs to an earlier flow in this entry, or nothing was sent.
        let is_unsent = sent_tick == 0 || is_after(cold.created, sent_tick);
        // A UDP flow is sent only after it has lasted for some time, so a flood causes no synchronization traffic.
        is_unsent && (meta.state != State::Udp as u8 || is_after(meta.seen, cold.created))
    }

    /// Returns whether a flow was not sent because the tables selected its server, but they now select a different one.
    fn is_no_longer_computed(&self, index: u32) -> bool {
        let Some(flow) = self.plane.maps().flows.at(index) else {
            return false;
        };
        let service = self.sync.index.services.get(&flow.cold.service);
        service.is_some_and(|it| it.is_computed)
            && flow.cold.peer == NO_INDEX
            && !self.is_computed(&flow)
    }

    /// Inserts records from a peer.
    ///
    /// # Errors
    /// Fails if the kernel returns an error.
    pub fn sync_insert(&mut self, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        self.update_index()?;
        let mut flows = Vec::with_capacity(records.len());
        for record in records {
            match self.sync_flow_of(record) {
                Ok(mut flow) => {
                    flow.ifindex = self.client_device(record, flow.dest).unwrap_or(0);
                    flows.push(flow);
                }
                Err(InsertError::UnknownServer { service })
                    if self.queue_unknown(service, record) => {}
                Err(error) => *error.counter(&mut self.sync.counts) += 1,
            }
        }
        self.plane.insert_flows(&mut flows)?;
        for flow in &flows {
            self.sync.counts.count(flow.result);
            if let Some(sent) = self.sync.sent_ticks.get_mut(flow.entry_index as usize) {
                *sent = flow.seen;
            }
        }
        Ok(())
    }

    /// Converts a record to a flow with this director's row numbers.
    fn sync_flow_of(&self, record: &Record) -> std::result::Result<SyncFlow, InsertError> {
        if !is_valid(record) {
            return Err(InsertError::InvalidValues);
        }
        let index = &self.sync.index;
        let service = match record.service {
            Some(id) => index.service(id),
            None => index.service_at(record.proto, record.vip.0, record.vip.1),
        };
        let service = service.ok_or(InsertError::UnknownService)?;
        let server = index.server(service, record.server.0, record.server.1);
        let (dest, dest_generation) = server.ok_or(InsertError::UnknownServer { service })?;
        let (snat, snat_port) = record.snat.unwrap_or((record.client.0, 0));
        let family = if record.client.0.is_ipv4() { 4 } else { 6 };
        let mut flow = SyncFlow {
            src: Addr::from(record.client.0),
            dst: Addr::from(record.vip.0),
            snat: Addr::from(snat),
            sport: Be16::new(record.client.1),
            dport: Be16::new(record.vip.1),
            snat_port: Be16::new(snat_port),
            proto: record.proto,
            family,
            kind: KIND_FORWARD,
            state: record.state,
            active: u8::from(record.active),
            dest,
            dest_generation,
            service,
            idle: ms_to_ticks(record.idle_ms),
            age: ms_to_ticks(record.age_s.saturating_mul(1000)).max(ms_to_ticks(record.idle_ms)),
            timeout: record.timeout_ms.map_or(0, ms_to_ticks),
            ..SyncFlow::ZERO
        };
        if record.kind == Kind::Template {
            flow.kind = KIND_TEMPLATE;
            flow.proto |= PROTO_TEMPLATE;
            if record.whole_service {
                flow.dst = whole_service_address(service, family);
            }
        }
        Ok(flow)
    }

    /// Returns the device toward the client if the server uses `nat` and the kernel does not forward packets. In this
    /// case, the data plane cannot look up routes in the kernel, and this director has not seen a packet from the
    /// client.
    fn client_device(&mut self, record: &Record, dest: u32) -> Option<u32> {
        let learns_clients = self.sync.settings.flags & SETTINGS_LEARN_CLIENTS != 0;
        if !learns_clients || record.kind == Kind::Template {
            return None;
        }
        let row = self.rows.dests.get(&dest)?;
        if row.forward != Forward::Nat as u8 {
            return None;
        }
        let source = self.sync.sources.source_toward(record.client.0, tick())?;
        self.network.device_with(source)
    }

    /// Returns the record of an entry to send; `None` = the peers do not need it.
    fn record_of(&self, flow: &Flow) -> Option<Record> {
        let meta = flow.meta();
        let index = &self.sync.index;
        let service = index.services.get(&flow.cold.service)?;
        let server = index.servers.get(&flow.dest())?;
        if server.generation != flow.cold.dest_generation {
            return None;
        }
        let now = tick();
        let (proto, vip) = (flow.cold.proto, flow.cold.dst.to_ip());
        let mut record = Record {
            kind: Kind::Flow,
            proto,
            state: meta.state,
            active: meta.flags & FLOW_ACTIVE != 0,
            client: (flow.cold.src.to_ip(), flow.cold.sport.get()),
            vip: (vip, flow.cold.dport.get()),
            server: (server.address, server.port),
            idle_ms: ticks_to_ms(now.wrapping_sub(meta.seen)),
            age_s: ticks_to_ms(now.wrapping_sub(flow.cold.created)) / 1000,
            service: None,
            snat: None,
            timeout_ms: None,
            whole_service: false,
        };
        if meta.kind == KIND_TEMPLATE {
            // A service that was removed gets no new flows, so peers do not need its templates.
            service.id?;
            self.describe_template(flow, service, &mut record);
            return Some(record);
        }
        let packet = (proto, vip, flow.cold.dport.get());
        if service.has_mark || !index.is_for(flow.cold.service, packet) {
            record.service = service.id;
        }
        if flow.cold.peer != NO_INDEX {
            let reverse = self.plane.maps().flows.at(flow.cold.peer)?;
            record.snat = snat_of(flow, &reverse)?;
        } else if service.is_computed && self.is_computed(flow) {
            return None;
        }
        Some(record)
    }

    fn describe_template(&self, flow: &Flow, service: &ServiceNames, record: &mut Record) {
        record.kind = Kind::Template;
        record.proto &= !PROTO_TEMPLATE;
        record.service = service.id;
        record.age_s = 0;
        record.timeout_ms = Some(ticks_to_ms(flow.cold.ifindex));
        record.whole_service = service.scope == TEMPLATE_SERVICE;
        if record.whole_service {
            record.vip.0 = match record.client.0 {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
        }
    }

    /// Returns the record of a template; `flow` is the flow with which it is sent.
    fn template_record(&self, template: &Flow, flow: Option<&Flow>) -> Option<Record> {
        let mut record = self.record_of(template)?;
        let timeouts = &self.sync.settings.timeouts;
        let seen = template.meta().seen;
        let end = end_of_live_flows(template, flow, timeouts, tick());
        let end = end.filter(|&end| is_after(end, seen));
        let duration = end.map_or(0, |end| end.wrapping_sub(seen));
        record.timeout_ms = Some(ticks_to_ms(template.cold.ifindex.max(duration)));
        Some(record)
    }

    /// Returns whether a peer computes the same server for this flow. In a group, peers can use a different version of
    /// the configuration: both versions must select the same server.
    fn is_computed(&self, flow: &Flow) -> bool {
        let cold = &flow.cold;
        let hash = steer_hash(&Tuple {
            src: cold.src,
            dst: cold.dst,
            sport: cold.sport.get(),
            dport: cold.dport.get(),
            protocol: cold.proto,
            family: if cold.family == 6 {
                Family::V6
            } else {
                Family::V4
            },
        });
        let Some(row) = self.rows.services.get(&cold.service) else {
            return false;
        };
        let server_in = |table: &[u32]| {
            let index = ((hash >> 32) * table.len() as u64) >> 32;
            table.get(index as usize).copied()
        };
        let dest = flow.dest();
        server_in(row.tables.spread()) == Some(dest)
            && server_in(row.tables.former()).is_none_or(|server| server == dest)
    }
}

/// Returns when the last flow of a template expires if no more packets arrive, in ticks; `None` = it has no flows.
/// On this director, live flows extend the template by a minute at a time (bpf/lib/template.h). On a peer they do not,
/// because the peer's template does not count the flows from this director, and because the peer receives a record
/// only every third of the timeout for a flow that only transfers data. Therefore the peer gets a template that lasts
/// as long as the flows.
fn end_of_live_flows(
    template: &Flow,
    flow: Option<&Flow>,
    timeouts: &[u32],
    now: u32,
) -> Option<u32> {
    let timeout = |state: usize| timeouts.get(state).copied().unwrap_or(0);
    match (template.cold.created, flow) {
        (0, _) => None,
        (1, Some(flow)) => {
            let meta = flow.meta();
            Some(meta.seen.wrapping_add(timeout(meta.state.into())))
        }
        // The other flows are not known here.
        _ => {
            let longest = timeout(State::Established as usize).max(timeout(State::Udp as usize));
            Some(now.wrapping_add(longest))
        }
    }
}

/// Returns the source address and port of a flow's packets toward the server; inner `None` = those of the client,
/// outer `None` = the flow has just ended. `reverse` is the entry in the slot of the flow's reverse entry, which
/// another flow may have reused since.
fn snat_of(flow: &Flow, reverse: &Flow) -> Option<Option<(IpAddr, u16)>> {
    let meta = reverse.meta();
    if meta.kind != KIND_REVERSE || meta.generation != flow.cold.peer_generation {
        return None;
    }
    let tuple = (reverse.cold.dst, reverse.cold.dport);
    let translated = tuple != (flow.cold.src, flow.cold.sport);
    Some(translated.then(|| (tuple.0.to_ip(), tuple.1.get())))
}

/// Returns whether a flow of this data plane can have these values.
fn is_valid(record: &Record) -> bool {
    let is_template = record.kind == Kind::Template;
    let has_valid_state = match (record.proto, is_template) {
        (0 | TCP | UDP, true) => record.state <= State::Established as u8,
        (TCP, false) => (State::Established as u8..State::Udp as u8).contains(&record.state),
        (UDP, false) => record.state == State::Udp as u8,
        _ => false,
    };
    let (client, vip) = (record.client.0, record.vip.0);
    let has_valid_snat = record
        .snat
        .is_none_or(|(address, port)| address.is_ipv4() == client.is_ipv4() && port != 0);
    has_valid_state
        && has_valid_snat
        && client.is_ipv4() == vip.is_ipv4()
        && is_template == record.timeout_ms.is_some()
}

/// Returns the destination address in a template for all listeners of a service: the service's row as an address
/// (bpf/lib/template.h).
fn whole_service_address(row: u32, family: u8) -> Addr {
    let address = Ipv4Addr::from(row);
    if family == 4 {
        return Addr::from(IpAddr::V4(address));
    }
    let [a, b, c, d] = address.octets();
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&[a, b, c, d]);
    Addr::from(IpAddr::V6(Ipv6Addr::from(bytes)))
}

impl Source for Engine {
    fn prefetch(&mut self, entry: u32) {
        let flows = &self.plane.maps().flows;
        flows.prefetch(entry);
        let slot = self.sync.prefetched_at % PREFETCH_DISTANCE;
        self.sync.prefetched_at = slot + 1;
        let prefetched = std::mem::replace(&mut self.sync.prefetched[slot], entry);
        if let Ok(cold) = flows.cold(prefetched)
            && cold.peer != NO_INDEX
        {
            flows.prefetch(cold.peer);
        }
    }

    fn export(&mut self, entry: u32, records: &mut Vec<Record>) {
        let flows = &self.plane.maps().flows;
        let Some(flow) = flows.at(entry) else {
            return;
        };
        let meta = flow.meta();
        if meta.kind != KIND_TEMPLATE && !is_past_handshake(meta) {
            return;
        }
        if meta.kind == KIND_FORWARD && meta.flags & FLOW_TEMPLATE != 0 {
            let template = flows.at(flow.cold.template);
            let current = template.filter(|it| {
                it.meta().kind == KIND_TEMPLATE
                    && it.meta().generation == flow.cold.template_generation
            });
            records
                .extend(current.and_then(|template| self.template_record(&template, Some(&flow))));
        }
        if meta.kind == KIND_TEMPLATE {
            records.extend(self.template_record(&flow, None));
        } else if let Some(record) = self.record_of(&flow) {
            records.push(record);
        }
        if let Some(sent) = self.sync.sent_ticks.get_mut(entry as usize) {
            *sent = meta.seen;
        }
    }

    fn scan(&mut self, from: u32, entries: &mut Vec<u32>) -> Option<u32> {
        let flows = &self.plane.maps().flows;
        let end = flows.buckets().min(from.saturating_add(SCAN_BUCKETS));
        for bucket in from..end {
            let Ok(found) = flows.bucket(bucket) else {
                continue;
            };
            for (slot, entry) in (0..BUCKET_SLOTS).zip(found.slots) {
                let meta = entry.parts();
                // A SYN flood creates templates too.
                let is_template =
                    meta.kind == KIND_TEMPLATE && meta.state == State::Established as u8;
                if entry.id != 0 && (is_template || is_past_handshake(meta)) {
                    entries.push(bucket * BUCKET_SLOTS + slot);
                }
            }
        }
        (end < flows.buckets()).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use weir_abi::{Entry, FlowCold};

    use super::*;

    const CLIENT: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), 4_000);
    const DIRECTOR: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20_000);

    /// Returns an entry whose packets have this source and this destination.
    fn entry(meta: EntryMeta, from: (IpAddr, u16), to: (IpAddr, u16)) -> Flow {
        Flow {
            index: 0,
            entry: Entry {
                id: 1,
                meta: meta.pack(),
            },
            cold: FlowCold {
                src: Addr::from(from.0),
                sport: Be16::new(from.1),
                dst: Addr::from(to.0),
                dport: Be16::new(to.1),
                peer_generation: 7,
                ..FlowCold::ZERO
            },
        }
    }

    #[test]
    fn flow_is_refreshed_every_third_of_its_timeout() {
        for (timeout, third) in [(900, 300), (9, 3), (8, 2), (3, 1), (2, 1), (0, 1)] {
            for sent in [1, 1_000, u32::MAX - 1, u32::MAX] {
                let refreshed = |later: u32| needs_refresh(sent, sent.wrapping_add(later), timeout);
                let context = format!("timeout {timeout}, sent at {sent}");
                assert!(!refreshed(third - 1), "{context}");
                assert!(refreshed(third) && refreshed(third + 1), "{context}");
                // A peer reported a later packet than the last one here.
                assert!(!refreshed(u32::MAX), "{context}");
            }
        }
    }

    #[test]
    fn template_is_sent_with_the_lifetime_of_its_flows() {
        let mut timeouts = [0; 16];
        timeouts[State::Established as usize] = 840;
        timeouts[State::Close as usize] = 10;
        timeouts[State::Udp as usize] = 280;
        let at = |state, seen| EntryMeta {
            state: state as u8,
            seen,
            ..EntryMeta::default()
        };
        let template = |flows| {
            let mut template = entry(at(State::Established, 900), CLIENT, CLIENT);
            template.cold.created = flows;
            template
        };
        let flow = |state| entry(at(state, 950), CLIENT, CLIENT);
        let end = |flows, flow: Option<&Flow>| {
            end_of_live_flows(&template(flows), flow, &timeouts, 1_000)
        };
        assert_eq!(end(0, None), None);
        assert_eq!(end(0, Some(&flow(State::Close))), None);
        assert_eq!(end(1, Some(&flow(State::Established))), Some(950 + 840));
        assert_eq!(end(1, Some(&flow(State::Close))), Some(960));
        // One of the other flows can be established.
        assert_eq!(end(2, Some(&flow(State::Close))), Some(1_840));
        assert_eq!(end(1, None), Some(1_840));
    }

    #[test]
    fn source_is_taken_only_from_reverse_entry_of_same_flow() {
        let meta = |kind, generation| EntryMeta {
            kind,
            generation,
            ..EntryMeta::default()
        };
        let server = (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5)), 80);
        let vip = (IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 80);
        let flow = entry(meta(KIND_FORWARD, 1), CLIENT, vip);
        let source = |meta, to| snat_of(&flow, &entry(meta, server, to));
        assert_eq!(source(meta(KIND_REVERSE, 7), CLIENT), Some(None));
        assert_eq!(
            source(meta(KIND_REVERSE, 7), DIRECTOR),
            Some(Some(DIRECTOR))
        );
        // Another flow has reused the slot.
        assert_eq!(source(meta(KIND_REVERSE, 8), DIRECTOR), None);
        assert_eq!(source(meta(KIND_FORWARD, 7), DIRECTOR), None);
    }
}
