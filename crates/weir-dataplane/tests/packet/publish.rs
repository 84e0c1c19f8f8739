//! Extents by hand: what the control plane does when a service's servers change, in its shortest form.

use std::collections::HashMap;

use weir_abi::{
    Cursor, EXTENT_FALLBACK, EXTENT_NETWORK, EXTENT_PORT, EXTENT_REPAIR, Extent, RULE_FO, RULE_LC,
    RULE_NQ, RULE_OVF, RULE_SED, RULE_SUM_ACTIVE, RULE_SUM_WEIGHT, RULE_WLC, Scheduler,
};
use weir_dataplane::{Dataplane, Pod};
use weir_sched::load::{Counts, Rule};
use weir_sched::table::{self, Start, rr, wrr};
use weir_sched::tournament::{self, Tree};
use weir_sched::{Kind, Member, Mode, bucket, maglev, mh};

use crate::reference::{Schedule, Server};

/// What was published so far. Elements that a service had are given out again when the map has been gone through: every
/// service that changes at all has been published anew by then.
#[derive(Debug)]
pub(crate) struct Published {
    next: u32,
    /// What lies before stays.
    kept: u32,
    starts: HashMap<u32, Start>,
    /// By service: where its tree is.
    trees: HashMap<u32, u32>,
}

const SPREAD_SIZE: u32 = 251;

impl Published {
    pub(crate) fn new() -> Self {
        Self {
            next: 1,
            kept: 1,
            starts: HashMap::new(),
            trees: HashMap::new(),
        }
    }

    pub(crate) fn begin(&mut self, service: u32, schedule: &Schedule) {
        let start = match schedule.kind {
            Kind::Wrr => wrr::start(&[]),
            _ => rr::start(),
        };
        self.starts.insert(service, start);
    }

    /// Writes a service's tree anew, as a climb after a threshold would.
    pub(crate) fn renew(&self, plane: &Dataplane, service: u32, schedule: &Schedule) {
        let nodes = tree(plane, schedule);
        plane
            .maps()
            .set_elements(self.trees[&service], &nodes)
            .unwrap();
    }

    /// The nodes as packets left them.
    pub(crate) fn nodes(&self, plane: &Dataplane, service: u32, count: usize) -> Vec<u32> {
        plane
            .maps()
            .elements_as(self.trees[&service], count as u32)
            .unwrap()
    }

    /// Writes values that stay; answers the first element, 0 for no value.
    pub(crate) fn write<T: Pod>(&mut self, plane: &Dataplane, values: &[T]) -> u32 {
        let at = self.write_for_now(plane, values);
        self.kept = self.next;
        at
    }

    /// Writes values that their service's next ones replace.
    fn write_for_now<T: Pod>(&mut self, plane: &Dataplane, values: &[T]) -> u32 {
        if values.is_empty() {
            return 0;
        }
        let length = size_of_val(values).div_ceil(size_of::<weir_abi::Element>()) as u32;
        if self.next + length > plane.maps().elements.entries() {
            self.next = self.kept;
        }
        let at = self.next;
        self.next += plane.maps().set_elements(at, values).unwrap();
        at
    }

    /// Publishes a service's servers; answers the spread table.
    pub(crate) fn publish(
        &mut self,
        plane: &Dataplane,
        service: u32,
        schedule: &Schedule,
        before: &[Member],
    ) -> Vec<u32> {
        let cursor = seen(&plane.maps().cursors.get(service).unwrap());
        let after = schedule.members();
        let start = match schedule.kind {
            Kind::Wrr => wrr::changed(&self.starts[&service], cursor, &after),
            _ => rr::changed(&self.starts[&service], cursor, before),
        };
        self.starts.insert(service, start);
        let list: Vec<weir_abi::Member> = schedule
            .servers
            .iter()
            .filter(|server| server.weight > 0)
            .map(|server| weir_abi::Member {
                seq: server.seq,
                dest: server.dest,
                weight: server.weight,
                live: server.live,
            })
            .collect();
        let hash = hash_table(schedule, &after);
        let spread = spread(schedule);
        let (list_at, spread_at) = (
            self.write_for_now(plane, &list),
            self.write_for_now(plane, &spread),
        );
        let (hash_at, hash_len) = match schedule.kind {
            Kind::Maglev => (spread_at, spread.len()),
            _ => (self.write_for_now(plane, &hash), hash.len()),
        };
        for (place, row) in (1..).zip(&list) {
            let dest = weir_abi::Dest {
                place,
                ..plane.maps().dests.get(row.dest).unwrap()
            };
            plane.maps().dests.set(row.dest, &dest).unwrap();
        }
        let tree = tree(plane, schedule);
        let tree_at = self.write_for_now(plane, &tree);
        self.trees.insert(service, tree_at);
        let extent = Extent {
            scheduler: number(schedule.kind) as u32,
            flags: flags(schedule),
            generation: start.generation,
            list_at,
            list_len: list.len() as u32,
            hash_at,
            hash_len: hash_len as u32,
            spread_at,
            spread_len: spread.len() as u32,
            max_load: schedule.max_load.unwrap_or(0),
            tree_at,
            tree_width: tree.len() as u32,
            max_weight: match schedule.kind {
                Kind::Wrr => start.max_weight,
                _ => list.iter().map(|row| row.weight).max().unwrap_or(0),
            },
            gcd: start.step,
            start_seq: start.last_seq,
            start_weight: start.pass_weight,
            weight: list.iter().map(|row| u64::from(row.weight)).sum(),
            ..Extent::default()
        };
        let at = self.write_for_now(plane, &[extent]);
        plane.maps().set_extent(service, at).unwrap();
        spread
    }
}

/// The nodes of a long list's tree, with its rule in node 0.
pub(crate) fn tree(plane: &Dataplane, schedule: &Schedule) -> Vec<u32> {
    let (kind, word) = match schedule.kind {
        Kind::Lc => (Tree::Winners(Rule::Lc), RULE_LC),
        Kind::Wlc | Kind::Lblc | Kind::Lblcr => (Tree::Winners(Rule::Wlc), RULE_WLC),
        Kind::Sed => (Tree::Winners(Rule::Sed), RULE_SED),
        Kind::Nq => (Tree::Winners(Rule::Nq), RULE_NQ),
        Kind::Fo | Kind::Wrr | Kind::Rr => (Tree::Winners(Rule::Fo), RULE_FO),
        Kind::Ovf => (Tree::Winners(Rule::Ovf), RULE_OVF),
        Kind::Twos | Kind::P2c => (Tree::Weights, RULE_SUM_WEIGHT),
        _ if schedule.max_load.is_some() => (Tree::Active, RULE_SUM_ACTIVE),
        _ => return Vec::new(),
    };
    let live = |row| plane.maps().live(row).unwrap();
    let mut members = schedule.members();
    members.retain(|member| member.weight > 0);
    for member in &mut members {
        member.usable = live(member.slot).overloaded == 0;
    }
    if schedule.treeless || members.len() <= tournament::WALKED {
        return Vec::new();
    }
    let counts = |row| Counts {
        active: live(row).active as u32,
        inactive: live(row).inactive as u32,
    };
    let mut nodes = tournament::build(kind, &members, &counts);
    nodes[0] = word;
    nodes
}

fn seen(cursor: &Cursor) -> table::Cursor {
    table::Cursor {
        generation: cursor.generation,
        last_seq: cursor.seq,
        pass_weight: cursor.current_weight as u32,
    }
}

fn number(kind: Kind) -> Scheduler {
    match kind {
        Kind::Rr => Scheduler::Rr,
        Kind::Wrr => Scheduler::Wrr,
        Kind::Lc => Scheduler::Lc,
        Kind::Wlc => Scheduler::Wlc,
        Kind::Sed => Scheduler::Sed,
        Kind::Nq => Scheduler::Nq,
        Kind::Fo => Scheduler::Fo,
        Kind::Ovf => Scheduler::Ovf,
        Kind::Twos => Scheduler::Twos,
        Kind::Dh => Scheduler::Dh,
        Kind::Sh => Scheduler::Sh,
        Kind::Mh => Scheduler::Mh,
        Kind::Lblc => Scheduler::Lblc,
        Kind::Lblcr => Scheduler::Lblcr,
        Kind::Maglev => Scheduler::Maglev,
        Kind::P2c => Scheduler::P2c,
        Kind::LeastTime | Kind::Hash => unreachable!("the proxy's alone"),
    }
}

fn flags(schedule: &Schedule) -> u32 {
    let mode = match schedule.mode {
        Mode::Strict => 0,
        Mode::Repair => EXTENT_REPAIR,
        Mode::Fallback => EXTENT_REPAIR | EXTENT_FALLBACK,
    };
    mode | if schedule.port { EXTENT_PORT } else { 0 }
        | if schedule.networks { EXTENT_NETWORK } else { 0 }
}

/// Owners of the scheduler's own table.
fn hash_table(schedule: &Schedule, members: &[Member]) -> Vec<u32> {
    match schedule.kind {
        Kind::Sh => bucket::sh_owners(members).to_vec(),
        Kind::Dh => bucket::dh_owners(members).to_vec(),
        Kind::Mh => {
            let entries: Vec<_> = schedule.servers.iter().map(Server::entry).collect();
            mh::table(&entries).unwrap()
        }
        _ => Vec::new(),
    }
}

fn spread(schedule: &Schedule) -> Vec<u32> {
    let entries: Vec<maglev::Entry> = schedule
        .servers
        .iter()
        .map(|server| maglev::Entry {
            name: u64::from(server.dest),
            dest: server.dest,
            weight: server.weight,
        })
        .collect();
    if entries.iter().all(|entry| entry.weight == 0) {
        return Vec::new();
    }
    maglev::table(&entries, SPREAD_SIZE).unwrap()
}
