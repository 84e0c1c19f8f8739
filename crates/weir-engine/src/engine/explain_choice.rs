//! Predicts the server that a scheduler would choose now, from the counters and cursors that packets use.

use weir_abi::{LocalityKey, TICK_SHIFT};
use weir_model::{Protocol, SchedulerKind};
use weir_planner::allocation::ServiceSlot;
use weir_planner::extent::{self, Rule};
use weir_sched::choice::{self, Arrival, Service, State};
use weir_sched::locality::{Cache, Entry};
use weir_sched::{Counts, Cursor, Flags, Member, Start, table};

use super::Engine;
use crate::error::Result;
use crate::packet::Packet;

/// The result of a scheduler.
pub(super) enum Choice {
    /// The server with this row.
    Server(u32),
    /// The scheduler would draw two servers at random, and use the less loaded one.
    Random,
    /// No server accepts new flows.
    None,
}

impl From<Option<u32>> for Choice {
    fn from(chosen: Option<u32>) -> Self {
        chosen.map_or(Self::None, Self::Server)
    }
}

impl Engine {
    /// Returns the choice for a new flow that begins with `packet`.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub(super) fn explain_choice(
        &self,
        slot: &ServiceSlot,
        rule: &Rule,
        packet: &Packet,
    ) -> Result<Choice> {
        let mut members = slot.members();
        for member in &mut members {
            member.usable = self.plane.maps().live(member.dest)?.overloaded == 0;
        }
        if rule.scheduler.flags.file_order {
            members.reverse();
        }
        let kind = rule.scheduler.kind;
        match choice::state(kind) {
            Some(State::Walk) => self.choose_by_cursor(slot, &members, table::rr::pick),
            Some(State::WeightedWalk) => self.choose_by_cursor(slot, &members, table::wrr::pick),
            Some(State::Locality) => {
                let expiration = self.plane.maps().settings()?.lblc_expiration;
                let number = weir_abi::Scheduler::Lblc;
                self.choose_by_locality(slot, (kind, number, expiration), &members, packet)
            }
            Some(State::ReplicatedLocality) => {
                let expiration = self.plane.maps().settings()?.lblcr_expiration;
                let number = weir_abi::Scheduler::Lblcr;
                self.choose_by_locality(slot, (kind, number, expiration), &members, packet)
            }
            Some(State::Draws) => {
                let any = members.iter().any(Member::is_available);
                Ok(if any { Choice::Random } else { Choice::None })
            }
            None => {
                let service = Service {
                    kind,
                    mode: extent::mode(rule),
                    flags: Flags {
                        port: rule.scheduler.flags.port,
                        fallback: rule.scheduler.flags.fallback,
                    },
                    networks: rule.scheduler.flags.networks,
                    members: &members,
                    entries: &extent::mh_entries(slot, rule),
                    spread: &extent::spread_table(slot, rule).unwrap_or_default(),
                    max_load: rule.scheduler.max_load_percent,
                };
                let counts = |id| self.counts(slot, id);
                Ok(service
                    .choose(&self.arrival(packet, slot, kind), &counts, &mut || 0)
                    .into())
            }
        }
    }

    fn choose_by_cursor(
        &self,
        slot: &ServiceSlot,
        members: &[Member],
        pick: fn(&[Member], &Start, &mut Cursor) -> Option<usize>,
    ) -> Result<Choice> {
        let start: Start = slot.start.into();
        let row = self.plane.maps().cursors.get(slot.row)?;
        let mut cursor = Cursor {
            generation: row.generation,
            last_seq: row.seq,
            pass_weight: u32::try_from(row.current_weight).unwrap_or(0),
        };
        let picked = pick(members, &start, &mut cursor);
        Ok(picked.map(|index| members[index].dest).into())
    }

    fn choose_by_locality(
        &self,
        slot: &ServiceSlot,
        (kind, number, expiration): (SchedulerKind, weir_abi::Scheduler, u32),
        members: &[Member],
        packet: &Packet,
    ) -> Result<Choice> {
        let maps = self.plane.maps();
        let destination = packet.destination.ip();
        let key = LocalityKey {
            addr: destination.into(),
            service: slot.row,
            generation: slot.generation,
            scheduler: number as u32,
            ..LocalityKey::ZERO
        };
        let mut cache = Cache::new(kind, expiration);
        if let Some(cached) = maps.localities.get(&key)? {
            let dests = cached.dests.iter().take(cached.len as usize);
            let entry = Entry {
                dests: dests.copied().collect(),
                last_use: cached.last_use,
                last_change: cached.last_change,
            };
            cache.insert(destination, entry);
        }
        let now = (weir_sys::now_ns(weir_sys::Clock::MonotonicCoarse) >> TICK_SHIFT) as u32;
        let picked = cache.pick(members, &|id| self.counts(slot, id), destination, now);
        Ok(picked.map(|index| members[index].dest).into())
    }

    fn arrival(&self, packet: &Packet, slot: &ServiceSlot, kind: SchedulerKind) -> Arrival {
        let family = if packet.source.is_ipv4() {
            weir_flow::Family::V4
        } else {
            weir_flow::Family::V6
        };
        let tuple = weir_flow::Tuple {
            src: packet.source.ip().into(),
            dst: packet.destination.ip().into(),
            sport: packet.source.port(),
            dport: packet.destination.port(),
            protocol: Protocol::number(packet.protocol),
            family,
        };
        let maps = self.plane.maps();
        let persistent = maps
            .services
            .get(slot.row)
            .is_ok_and(|row| row.template_ticks != 0);
        let hash = if kind == SchedulerKind::Maglev && !persistent {
            weir_flow::steer_hash(&tuple)
        } else {
            weir_flow::FlowHashKey::new(self.plane.secret()).hash(&tuple)
        };
        Arrival {
            source: packet.source.ip(),
            source_port: packet.source.port(),
            destination: packet.destination.ip(),
            hash,
        }
    }

    fn counts(&self, slot: &ServiceSlot, id: u32) -> Counts {
        let row = slot
            .dests
            .iter()
            .find(|dest| dest.id == id)
            .map_or(id, |dest| self.count_row(dest));
        let live = self.plane.maps().live(row).unwrap_or_default();
        let saturate = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Counts {
            active: saturate(live.active),
            inactive: saturate(live.inactive),
        }
    }
}
