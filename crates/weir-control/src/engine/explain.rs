//! What would become of a packet, from the same rows that it would meet, without touching a cursor.

use weir_abi::{Addr, FlowCold};
use weir_model::{Listener, Scheduler, SchedulerKind, Service};
use weir_sched::load::Rule as LoadRule;
use weir_sched::{Availability, Counts, Cursor, Start, bucket, hash, load, mh, table};

use super::allocation::{DestSlot, ServiceSlot};
use super::extent::{self, Rule};
use super::rows::rule;
use super::{Engine, Result};
use crate::explain::{Answer, Packet};

impl Engine {
    /// Which service, pool and server a packet would get, and why.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn explain_packet(&self, packet: &Packet) -> Result<Answer> {
        let mut answer = Answer {
            packet: packet.to_string(),
            ..Answer::default()
        };
        let Some((service, listener)) = self.service_of(packet) else {
            answer.steps.push(format!(
                "no service listens at {}/{}",
                packet.protocol, packet.destination
            ));
            return Ok(answer);
        };
        answer.service = Some(service.name.clone());
        answer.pool = Some(service.pool.clone());
        answer.steps.push(format!(
            "listener {listener} of service {}, pool {}",
            service.name, service.pool
        ));
        let Some(slot) = self.memory.allocation.services.get(&service.name) else {
            return Ok(answer);
        };
        if let Some(dest) = self.flow_of(packet, slot) {
            answer.steps.push(format!(
                "it belongs to a tracked flow, which is bound to {}",
                dest.name
            ));
            answer.server = Some(dest.name.clone());
            return Ok(answer);
        }
        let rule = rule(&self.desired, service, self.plane.sizes().dests);
        self.candidates(slot, &mut answer)?;
        let chosen = self.choice(slot, &rule, packet)?;
        answer.server = chosen
            .and_then(|id| slot.dests.iter().find(|dest| dest.id == id))
            .map(|dest| dest.name.clone());
        let scheduler = rule.scheduler;
        answer.steps.push(match &answer.server {
            Some(server) => format!(
                "a new flow: {scheduler} chooses {server} ({})",
                why(scheduler)
            ),
            None => format!("a new flow: {scheduler} finds no usable server"),
        });
        Ok(answer)
    }

    fn service_of(&self, packet: &Packet) -> Option<(&Service, &Listener)> {
        let port = packet.destination.port();
        let all = self
            .desired
            .services
            .iter()
            .flat_map(|service| service.listen.iter().map(move |at| (service, at)));
        all.filter(|(_, at)| {
            at.protocol == packet.protocol
                && at.address == packet.destination.ip()
                && at.ports.contains(port)
        })
        .max_by_key(|(_, at)| at.ports.specificity())
    }

    /// The server that a tracked flow of the packet's tuple is bound to.
    fn flow_of<'a>(&self, packet: &Packet, slot: &'a ServiceSlot) -> Option<&'a DestSlot> {
        let (src, dst): (Addr, Addr) = (packet.source.ip().into(), packet.destination.ip().into());
        let same = |cold: &FlowCold| {
            (cold.src, cold.dst, cold.proto) == (src, dst, packet.protocol.number())
                && (cold.sport.get(), cold.dport.get())
                    == (packet.source.port(), packet.destination.port())
        };
        let flow = self
            .plane
            .maps()
            .flows
            .walk()
            .find(|flow| same(&flow.cold))?;
        slot.dests.iter().find(|dest| dest.id == flow.dest())
    }

    fn candidates(&self, slot: &ServiceSlot, answer: &mut Answer) -> Result<()> {
        for member in slot.members() {
            let Some(dest) = slot.dests.iter().find(|dest| dest.id == member.dest) else {
                continue;
            };
            let live = self.plane.maps().live(self.counts_of(dest))?;
            let (weight, active, inactive) = (dest.effective, live.active, live.inactive);
            let out = if weight == 0 {
                ", takes no new flow"
            } else {
                ""
            };
            answer.steps.push(format!(
                "candidate {}: weight {weight}, {active} active, {inactive} inactive{out}",
                dest.name
            ));
        }
        Ok(())
    }

    fn counts_of(&self, dest: &DestSlot) -> u32 {
        dest.shared
            .map_or(dest.id, |row| self.plane.sizes().dests + row)
    }

    fn choice(&self, slot: &ServiceSlot, rule: &Rule, packet: &Packet) -> Result<Option<u32>> {
        let members = slot.members();
        let start: Start = slot.start.into();
        let fold = hash::fold(packet.source.ip());
        let port = if rule.scheduler.flags.port {
            packet.source.port()
        } else {
            0
        };
        let picked = |index: Option<usize>| {
            index
                .and_then(|index| members.get(index))
                .map(|member| member.dest)
        };
        let cursor = || -> Result<Cursor> {
            let row = self.plane.maps().cursors.get(slot.row)?;
            let pass_weight = u32::try_from(row.current_weight).unwrap_or(0);
            Ok(Cursor {
                generation: row.generation,
                last_seq: row.seq,
                pass_weight,
            })
        };
        Ok(match rule.scheduler.kind {
            SchedulerKind::Rr => picked(table::rr::pick(&members, &start, &mut cursor()?)),
            SchedulerKind::Wrr => picked(table::wrr::pick(&members, &start, &mut cursor()?)),
            SchedulerKind::Sh => Some(
                bucket::sh_table(&members, extent::mode(rule))
                    [usize::from(bucket::sh_index(fold, port))],
            )
            .filter(|dest| *dest != 0),
            SchedulerKind::Mh => {
                let owners = mh::table(&extent::mh_entries(slot, rule)).unwrap_or_default();
                let state = |dest| match members.iter().find(|member| member.dest == dest) {
                    Some(member) => member.availability(),
                    None => Availability::Quiesced,
                };
                mh::lookup(&owners, fold, port, extent::mode(rule), &state)
            }
            kind => {
                let by = if kind == SchedulerKind::Lc {
                    LoadRule::Lc
                } else {
                    LoadRule::Wlc
                };
                picked(load::pick(by, &members, &|id| self.counts(slot, id)))
            }
        })
    }

    fn counts(&self, slot: &ServiceSlot, id: u32) -> Counts {
        let row = slot
            .dests
            .iter()
            .find(|dest| dest.id == id)
            .map_or(id, |dest| self.counts_of(dest));
        let live = self.plane.maps().live(row).unwrap_or_default();
        let clipped = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Counts {
            active: clipped(live.active),
            inactive: clipped(live.inactive),
        }
    }
}

fn why(scheduler: Scheduler) -> &'static str {
    match scheduler.kind {
        SchedulerKind::Rr => "the next after the one chosen last",
        SchedulerKind::Wrr => "the next whose weight reaches this pass",
        SchedulerKind::Lc => "the fewest connections",
        SchedulerKind::Sh | SchedulerKind::Mh => "the hash of the client",
        _ => "the fewest connections for its weight",
    }
}
