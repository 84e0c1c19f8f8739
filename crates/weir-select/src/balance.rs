//! Selects the server for a request or connection, with weir-sched's algorithms and the loads that workers share.
//!
//! Each worker has its own cursor and tables per pool, so there are no locks. The tables are rebuilt when a weight
//! changes. All schedulers treat a server that has already failed for a request as unusable, so retries are distributed
//! like first attempts.

mod draw;
mod least_time;
mod rendezvous;
mod tie;

use std::net::{IpAddr, SocketAddr};

use weir_model::{SchedulerKind, SplitMix64};
use weir_sched::load::{self, Rule};
use weir_sched::table::{Cursor, Start, rr, wrr};
use weir_sched::{Availability, Counts, HashTable, Member, Mode, bucket, hash, mh, p2c};

use self::draw::{Drawable, Tier};
use self::tie::TieBreaker;
use crate::{Load, Pool, Server, TriedServers};

/// One worker's state for one pool.
#[derive(Debug)]
pub struct Balancer {
    /// The [`Pool::version`] that the other fields were built for; `None` = they must be rebuilt.
    version: Option<u32>,
    /// The primary servers in weir-sched's order: newest first. `dest` is the index in file order, plus one.
    members: Vec<Member>,
    unusable_marks: UnusableMarks,
    /// The largest weight of the members.
    max_weight: u32,
    start: Start,
    cursor: Cursor,
    tie_breaker: TieBreaker,
    /// The hash table of `sh` or `mh`.
    table: Vec<u32>,
}

/// Whether [`Member::usable`] currently marks any members as unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnusableMarks {
    /// [`Member::usable`] is true for all members.
    None,
    /// [`Member::usable`] may be false for some members.
    Some,
}

impl Default for Balancer {
    fn default() -> Self {
        Self {
            version: None,
            members: Vec::new(),
            unusable_marks: UnusableMarks::None,
            max_weight: 0,
            start: wrr::start(&[]),
            cursor: Cursor::default(),
            tie_breaker: TieBreaker::default(),
            table: Vec::new(),
        }
    }
}

/// The inputs of a choice, apart from the pool.
#[derive(Debug, Clone, Copy)]
pub struct Criteria {
    /// The client's address.
    pub client: SocketAddr,
    /// Hash for the `hash` scheduler.
    pub hash: u64,
    /// Index of the server that the client's cookie identifies.
    pub sticky_server: Option<usize>,
    /// Servers that are excluded because they have already failed for this request.
    pub tried: TriedServers,
    /// Whether the request can wait for a full server. If so, backups and the sorry server do not replace full servers.
    pub can_wait: bool,
    /// Current time, for the age of latencies.
    pub now_ms: u64,
}

impl Balancer {
    /// Returns the state for a changed list of servers: keeps the cursor, and marks the tables to be rebuilt.
    #[must_use]
    pub fn invalidate_tables(self) -> Self {
        Self {
            version: None,
            ..self
        }
    }

    /// Returns the index of the server for the next request. Returns `None` if no server is usable, or if the request
    /// can wait for a full server.
    pub fn pick<S: Server>(
        &mut self,
        pool: &Pool<'_, S>,
        criteria: &Criteria,
        random: &mut SplitMix64,
    ) -> Option<usize> {
        let tried = criteria.tried;
        if let Some(index) = criteria.sticky_server
            && !tried.contains(index)
            && pool
                .servers
                .get(index)
                .is_some_and(|server| server.load().accepts_sticky())
        {
            return Some(index);
        }
        let primary = self.pick_primary(pool, criteria, random);
        primary.or_else(|| pick_reserve(pool, criteria, random))
    }

    fn pick_primary<S: Server>(
        &mut self,
        pool: &Pool<'_, S>,
        criteria: &Criteria,
        random: &mut SplitMix64,
    ) -> Option<usize> {
        let (tried, servers) = (criteria.tried, pool.primary());
        let is_candidate = |index: usize| is_candidate(servers, index, tried);
        if servers.len() == 1 {
            return is_candidate(0).then_some(0);
        }
        match pool.scheduler.kind {
            SchedulerKind::Hash => return rendezvous::pick(pool, criteria),
            SchedulerKind::LeastTime => return least_time::pick(servers, criteria),
            SchedulerKind::Fo if pool.scheduler.flags.file_order => {
                return (0..servers.len()).find(|index| is_candidate(*index));
            }
            SchedulerKind::P2c => {
                self.refresh(pool);
                let drawable = Drawable {
                    servers,
                    members: &self.members,
                    max_weight: self.max_weight,
                    tried,
                };
                let position = p2c::pick(&drawable, &mut || random.next_u32())?;
                return Some(self.members[position].slot as usize);
            }
            SchedulerKind::Rr
            | SchedulerKind::Wrr
            | SchedulerKind::Lc
            | SchedulerKind::Wlc
            | SchedulerKind::Sed
            | SchedulerKind::Nq
            | SchedulerKind::Fo
            | SchedulerKind::Ovf
            | SchedulerKind::Twos
            | SchedulerKind::Sh
            | SchedulerKind::Mh => {}
            // The configuration rejects these schedulers for proxy services.
            SchedulerKind::Dh
            | SchedulerKind::Lblc
            | SchedulerKind::Lblcr
            | SchedulerKind::Maglev => return None,
        }
        self.refresh(pool);
        self.update_usable(servers, tried);
        let scheduled = self.schedule(pool, criteria, random);
        // If a scheduler rejects a request, a retry must still reach any other usable server.
        scheduled.or_else(|| {
            let untried = (!tried.is_empty()).then(|| Tier::new(servers, 0, tried))?;
            untried.pick(random)
        })
    }

    /// Rebuilds the tables if a weight or the list of servers has changed.
    fn refresh<S: Server>(&mut self, pool: &Pool<'_, S>) {
        if self.version == Some(pool.version) {
            return;
        }
        self.version = Some(pool.version);
        self.unusable_marks = UnusableMarks::None;
        let numbered = (1u32..).zip(pool.primary());
        let member = |(number, server): (u32, &S)| Member {
            seq: number,
            dest: number,
            weight: server.load().weight(),
            slot: number - 1,
            usable: true,
        };
        self.members = numbered.map(member).collect();
        self.members.reverse();
        self.start = wrr::next_start(&self.start, self.cursor, &self.members);
        self.tie_breaker.handle_new_members(&self.members);
        self.table = build_table(pool, &self.members);
        if pool.scheduler.kind == SchedulerKind::P2c {
            self.members.retain(|member| member.weight > 0);
        }
        let weights = self.members.iter().map(|member| member.weight);
        self.max_weight = weights.max().unwrap_or(0);
    }

    /// Updates [`Member::usable`] if a server has a limit or has been tried, or if members are marked as unusable.
    fn update_usable<S: Server>(&mut self, servers: &[S], tried: TriedServers) {
        let is_limited = |server: &S| {
            let limit = &server.load().limit;
            limit.load(std::sync::atomic::Ordering::Relaxed) != 0
        };
        let marks = if !tried.is_empty() || servers.iter().any(is_limited) {
            UnusableMarks::Some
        } else {
            UnusableMarks::None
        };
        if marks == UnusableMarks::None && self.unusable_marks == UnusableMarks::None {
            return;
        }
        self.unusable_marks = marks;
        for member in &mut self.members {
            member.usable =
                member.weight == 0 || is_candidate(servers, member.slot as usize, tried);
        }
    }

    fn schedule<S: Server>(
        &mut self,
        pool: &Pool<'_, S>,
        criteria: &Criteria,
        random: &mut SplitMix64,
    ) -> Option<usize> {
        let tried = criteria.tried;
        let members = &self.members;
        let counts = |slot: u32| counts(pool.servers[slot as usize].load());
        let availability = |dest: u32| {
            let member = members.iter().find(|member| member.dest == dest);
            // Hashing skips a server that has been tried, as it skips a server that is down.
            member
                .filter(|member| !tried.contains(member.slot as usize))
                .map_or(Availability::Quiesced, Member::availability)
        };
        let flags = pool.scheduler.flags;
        let mode = if flags.fallback {
            Mode::Fallback
        } else {
            Mode::Repair
        };
        let (fold, port) = source_key(criteria.client, flags);
        let index = match pool.scheduler.kind {
            SchedulerKind::Rr => rr::pick(members, &self.start, &mut self.cursor),
            SchedulerKind::Wrr => wrr::pick(members, &self.start, &mut self.cursor),
            SchedulerKind::Lc => self.tie_breaker.pick(Rule::Lc, members, &counts),
            SchedulerKind::Wlc => self.tie_breaker.pick(Rule::Wlc, members, &counts),
            SchedulerKind::Sed => self.tie_breaker.pick(Rule::Sed, members, &counts),
            SchedulerKind::Nq => self.tie_breaker.pick(Rule::Nq, members, &counts),
            SchedulerKind::Fo => load::pick(Rule::Fo, members, &counts),
            SchedulerKind::Ovf => load::pick(Rule::Ovf, members, &counts),
            SchedulerKind::Twos => load::twos(members, &counts, &mut || random.next_u32()),
            SchedulerKind::Sh => {
                let owners = self.table.as_slice().try_into().ok()?;
                let index = bucket::sh_index(fold, port);
                let dest = bucket::lookup(owners, index, mode, &availability)?;
                return Some(dest as usize - 1);
            }
            SchedulerKind::Mh => {
                let dest = mh::lookup(&self.table, fold, port, mode, &availability)?;
                return Some(dest as usize - 1);
            }
            SchedulerKind::P2c
            | SchedulerKind::Hash
            | SchedulerKind::LeastTime
            | SchedulerKind::Dh
            | SchedulerKind::Lblc
            | SchedulerKind::Lblcr
            | SchedulerKind::Maglev => None,
        }?;
        Some(members[index].slot as usize)
    }
}

/// Returns the client's folded address and port. The flags of `sh` and `mh` determine which parts are included.
fn source_key(client: SocketAddr, flags: weir_model::SchedulerFlags) -> (u32, u16) {
    let address = match client.ip() {
        IpAddr::V4(v4) if flags.networks => {
            let [a, b, c, _] = v4.octets();
            IpAddr::from([a, b, c, 0])
        }
        other => other,
    };
    let port = if flags.port { client.port() } else { 0 };
    (hash::fold(address), port)
}

/// Returns the hash table of the pool's scheduler; empty if the scheduler has none.
fn build_table<S: Server>(pool: &Pool<'_, S>, members: &[Member]) -> Vec<u32> {
    let entry = |member: &Member| {
        let server = &pool.servers[member.slot as usize];
        mh::Entry {
            dest: member.dest,
            last_weight: member.weight,
            fold: hash::fold(server.address()),
            port: server.port().unwrap_or(0),
        }
    };
    let entries = || members.iter().map(entry).collect();
    HashTable::for_kind(pool.scheduler.kind)
        .and_then(|table| table.owners(members, entries).ok())
        .unwrap_or_default()
}

/// Selects a backup, or the sorry server if no backup is usable. As in HAProxy, a request that can wait for a full
/// server in one tier gets no server from the next tier.
fn pick_reserve<S: Server>(
    pool: &Pool<'_, S>,
    criteria: &Criteria,
    random: &mut SplitMix64,
) -> Option<usize> {
    let [primary, backups, sorry] = pool.ranges();
    for (preceding, range) in [(primary, &backups), (backups.clone(), &sorry)] {
        if criteria.can_wait && pool.has_full(preceding) {
            return None;
        }
        let tier = Tier::new(&pool.servers[range.clone()], range.start, criteria.tried);
        if let Some(index) = tier.pick(random) {
            return Some(index);
        }
    }
    None
}

fn is_candidate<S: Server>(servers: &[S], index: usize, tried: TriedServers) -> bool {
    !tried.contains(index) && servers[index].load().is_usable()
}

fn counts(load: &Load) -> Counts {
    Counts {
        active: load.active(),
        inactive: 0,
    }
}

#[cfg(test)]
mod tests;
