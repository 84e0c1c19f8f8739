//! Which server takes the next request or connection: weir-sched's choices over the load that workers share.
//!
//! Each worker keeps a cursor and tables of its own, built again when a weight changes; nothing here takes a lock. A
//! server that a request was tried at already is unusable to every scheduler, so that retries are spread as first
//! attempts are.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use weir_model::SchedulerKind;
use weir_sched::table::{Cursor, Start, rr, wrr};
use weir_sched::{Availability, Counts, Member, Mode, bucket, hash, load, mh, p2c};

use crate::plan::{Target, Targets};

/// Random numbers for choices that nobody gains by guessing (xorshift64*).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) const fn roll(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

/// Servers that this request was tried at; places beyond the last bit are never excluded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tried(u64);

impl Tried {
    pub(crate) const fn add(&mut self, place: usize) {
        if place < u64::BITS as usize {
            self.0 |= 1 << place;
        }
    }

    pub(crate) const fn has(self, place: usize) -> bool {
        place < u64::BITS as usize && self.0 & (1 << place) != 0
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A worker's memory of one service's choices.
#[derive(Debug)]
pub(crate) struct Balance {
    version: Option<u32>,
    /// In weir-sched's order: the newest first. `dest` is the place in file order plus one.
    members: Vec<Member>,
    /// Some of them were marked as not usable.
    marked: bool,
    /// Their greatest weight.
    heaviest: u32,
    start: Start,
    cursor: Cursor,
    table: Vec<u32>,
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            version: None,
            members: Vec::new(),
            marked: false,
            heaviest: 0,
            start: wrr::start(&[]),
            cursor: Cursor::default(),
            table: Vec::new(),
        }
    }
}

/// What a choice may depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) client: SocketAddr,
    /// Of what the scheduler `hash` hashes.
    pub(crate) hash: u64,
    /// The server that the client had before.
    pub(crate) sticks_to: Option<usize>,
    /// Servers that were tried already.
    pub(crate) tried: Tried,
    /// Milliseconds, for what ages.
    pub(crate) now_ms: u64,
}

impl Balance {
    /// For other servers: the walk goes on, the tables are made anew.
    pub(crate) fn renewed(self) -> Self {
        Self {
            version: None,
            ..self
        }
    }

    /// The place of the server for the next request, or none when no server is usable.
    pub(crate) fn pick(
        &mut self,
        targets: &Targets,
        asked: &Asked,
        dice: &mut Dice,
    ) -> Option<usize> {
        let tried = asked.tried;
        if let Some(at) = asked.sticks_to
            && !tried.has(at)
            && targets
                .list
                .get(at)
                .is_some_and(|target| target.load.takes_back())
        {
            return Some(at);
        }
        let own = self.own(targets, asked, dice);
        own.or_else(|| reserve(targets, tried, dice))
    }

    /// One of those that are no reserve.
    fn own(&mut self, targets: &Targets, asked: &Asked, dice: &mut Dice) -> Option<usize> {
        let (tried, list) = (asked.tried, targets.own());
        if let [only] = list {
            return (usable(only) && !tried.has(0)).then_some(0);
        }
        match targets.scheduler.kind {
            SchedulerKind::Hash => return rendezvous(targets, asked),
            SchedulerKind::LeastTime => return quickest(list, asked),
            SchedulerKind::Fo if targets.scheduler.flags.file_order => {
                return (0..list.len()).find(|at| !tried.has(*at) && usable(&list[*at]));
            }
            _ => {}
        }
        self.refresh(targets, tried);
        if targets.scheduler.kind == SchedulerKind::P2c {
            let drawable = Drawable {
                list,
                members: &self.members,
                heaviest: self.heaviest,
                tried,
            };
            let drawn = p2c::pick(&drawable, &mut || dice.roll())?;
            return Some(self.members[drawn].slot as usize);
        }
        let scheduled = self.scheduled(targets, asked, dice);
        // A scheduler that refuses some flows does not end a request that another server can still answer.
        scheduled.or_else(|| {
            let others = (!tried.is_empty()).then(|| Tier::new(list, 0, tried))?;
            others.pick(dice)
        })
    }

    fn refresh(&mut self, targets: &Targets, tried: Tried) {
        let draws = targets.scheduler.kind == SchedulerKind::P2c;
        let version = targets.version.load(Acquire);
        if self.version != Some(version) {
            self.version = Some(version);
            self.marked = false;
            let numbered = (1u32..).zip(targets.own());
            let member = |(number, target): (u32, &Arc<Target>)| Member {
                seq: number,
                dest: number,
                weight: target.load.weight.load(Relaxed),
                slot: number - 1,
                usable: true,
            };
            self.members = numbered.map(member).collect();
            self.members.reverse();
            self.start = wrr::changed(&self.start, self.cursor, &self.members);
            self.table = table(targets, &self.members);
            if draws {
                self.members.retain(|member| member.weight > 0);
            }
            let weights = self.members.iter().map(|member| member.weight);
            self.heaviest = weights.max().unwrap_or(0);
        }
        // Two servers that are drawn are looked at then; all others choose from the whole list.
        let limited = |target: &Arc<Target>| target.load.most.load(Relaxed) != 0;
        let mark = !tried.is_empty() || targets.own().iter().any(limited);
        if !draws && (mark || self.marked) {
            self.marked = mark;
            for member in &mut self.members {
                let at = member.slot as usize;
                member.usable = member.weight == 0 || usable(&targets.list[at]) && !tried.has(at);
            }
        }
    }

    fn scheduled(&mut self, targets: &Targets, asked: &Asked, dice: &mut Dice) -> Option<usize> {
        let (client, tried) = (asked.client, asked.tried);
        let members = &self.members;
        let counts = |slot: u32| counts(&targets.list[slot as usize]);
        let flags = targets.scheduler.flags;
        let mode = if flags.fallback {
            Mode::Fallback
        } else {
            Mode::Repair
        };
        let port = if flags.port { client.port() } else { 0 };
        let address = match client.ip() {
            IpAddr::V4(v4) if flags.networks => {
                let [a, b, c, _] = v4.octets();
                IpAddr::from([a, b, c, 0])
            }
            other => other,
        };
        let fold = hash::fold(address);
        let availability = |dest: u32| {
            let found = members.iter().find(|member| member.dest == dest);
            // A hash goes past a server that was tried as past one that is down.
            found
                .filter(|member| !tried.has(member.slot as usize))
                .map_or(Availability::Quiesced, Member::availability)
        };
        let by_load = |rule| load::pick(rule, members, &counts);
        let index = match targets.scheduler.kind {
            SchedulerKind::Rr => rr::pick(members, &self.start, &mut self.cursor),
            SchedulerKind::Wrr => wrr::pick(members, &self.start, &mut self.cursor),
            SchedulerKind::Lc => by_load(load::Rule::Lc),
            SchedulerKind::Sed => by_load(load::Rule::Sed),
            SchedulerKind::Nq => by_load(load::Rule::Nq),
            SchedulerKind::Fo => by_load(load::Rule::Fo),
            SchedulerKind::Ovf => by_load(load::Rule::Ovf),
            SchedulerKind::Twos => load::twos(members, &counts, &mut || dice.roll()),
            SchedulerKind::Sh => {
                let owners = self.table.as_slice().try_into().ok()?;
                let dest =
                    bucket::lookup(owners, bucket::sh_index(fold, port), mode, &availability)?;
                return Some(dest as usize - 1);
            }
            SchedulerKind::Mh => {
                let dest = mh::lookup(&self.table, fold, port, mode, &availability)?;
                return Some(dest as usize - 1);
            }
            _ => by_load(load::Rule::Wlc),
        }?;
        Some(members[index].slot as usize)
    }
}

fn table(targets: &Targets, members: &[Member]) -> Vec<u32> {
    match targets.scheduler.kind {
        SchedulerKind::Sh => bucket::sh_owners(members).to_vec(),
        SchedulerKind::Mh => {
            let entry = |member: &Member| {
                let target = &targets.list[member.slot as usize];
                mh::Entry {
                    dest: member.dest,
                    last_weight: member.weight,
                    fold: hash::fold(target.address),
                    port: target.port.unwrap_or(0),
                }
            };
            let entries: Vec<mh::Entry> = members.iter().map(entry).collect();
            mh::table(&entries).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Of the servers that are used when no other is usable: backups first, then the sorry server.
fn reserve(targets: &Targets, tried: Tried, dice: &mut Dice) -> Option<usize> {
    let list = &targets.list;
    let [own, backups] = targets.tiers;
    [(own, backups), (backups, list.len())]
        .into_iter()
        .find_map(|(from, to)| Tier::new(&list[from..to], from, tried).pick(dice))
}

/// What `p2c` draws from in the ordinary case: the servers that had weight when the weights last changed.
struct Drawable<'a> {
    list: &'a [Arc<Target>],
    members: &'a [Member],
    heaviest: u32,
    tried: Tried,
}

impl p2c::Servers for Drawable<'_> {
    fn count(&self) -> usize {
        self.members.len()
    }

    fn heaviest(&self) -> u32 {
        self.heaviest
    }

    fn weight(&self, position: usize) -> u32 {
        let member = &self.members[position];
        let at = member.slot as usize;
        let taken = usable(&self.list[at]) && !self.tried.has(at);
        if taken { member.weight } else { 0 }
    }

    fn counts(&self, position: usize) -> Counts {
        counts(&self.list[self.members[position].slot as usize])
    }
}

/// Servers side by side in the list of a pool, for choices that are rare.
struct Tier<'a> {
    list: &'a [Arc<Target>],
    /// Place of the first one.
    from: usize,
    heaviest: u32,
    tried: Tried,
}

impl<'a> Tier<'a> {
    fn new(list: &'a [Arc<Target>], from: usize, tried: Tried) -> Self {
        let weights = list.iter().map(|target| target.load.weight.load(Relaxed));
        Self {
            list,
            from,
            heaviest: weights.max().unwrap_or(0),
            tried,
        }
    }

    fn pick(&self, dice: &mut Dice) -> Option<usize> {
        p2c::pick(self, &mut || dice.roll()).map(|position| self.from + position)
    }
}

impl p2c::Servers for Tier<'_> {
    fn count(&self) -> usize {
        self.list.len()
    }

    fn heaviest(&self) -> u32 {
        self.heaviest
    }

    fn weight(&self, position: usize) -> u32 {
        let target = &self.list[position];
        if usable(target) && !self.tried.has(self.from + position) {
            target.load.weight.load(Relaxed)
        } else {
            0
        }
    }

    fn counts(&self, position: usize) -> Counts {
        counts(&self.list[position])
    }
}

fn counts(target: &Target) -> Counts {
    Counts {
        active: target.load.active.load(Relaxed),
        inactive: 0,
    }
}

/// Rendezvous hashing by weights, with bounded load: each server draws a time from hash and weight, the earliest wins,
/// and one that has more than its share of the load is passed over. A server that comes or goes moves its own share
/// only.
fn rendezvous(targets: &Targets, asked: &Asked) -> Option<usize> {
    let list = targets.own();
    let number = |at: usize, of: fn(&crate::plan::Load) -> u32| f64::from(of(&list[at].load));
    let weight = |load: &crate::plan::Load| load.weight.load(Relaxed);
    let active = |load: &crate::plan::Load| load.active.load(Relaxed);
    let sum =
        |of: fn(&crate::plan::Load) -> u32| (0..list.len()).map(|at| number(at, of)).sum::<f64>();
    let bound = targets.scheduler.max_load_percent.map(|percent| {
        // As if the present request were there already.
        f64::from(percent) / 100.0 * (sum(active) + 1.0) / sum(weight).max(1.0)
    });
    let draw = |at: usize| {
        let mixed = mix(asked.hash ^ list[at].seed);
        // 53 bits, as many as a double holds, and never 0.
        let unit = ((mixed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -unit.ln() / number(at, weight)
    };
    let full = |at: usize| {
        bound.is_some_and(|bound| number(at, active) + 1.0 > (bound * number(at, weight)).ceil())
    };
    let usable = |at: &usize| !asked.tried.has(*at) && usable(&list[*at]);
    let best = |among: &dyn Fn(usize) -> bool| {
        (0..list.len())
            .filter(usable)
            .filter(|at| among(*at))
            .min_by(|a, b| draw(*a).total_cmp(&draw(*b)))
    };
    best(&|at| !full(at)).or_else(|| best(&|_| true))
}

/// Each bit of the result depends on each of the input (the finalizer of SplitMix64).
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The shortest time to the first octet, times requests under way, by weight. A server of which nothing is known counts
/// as half the mean of the others, so that it gets its try.
fn quickest(list: &[Arc<Target>], asked: &Asked) -> Option<usize> {
    let known: Vec<u64> = list
        .iter()
        .map(|target| target.load.latency_us(asked.now_ms))
        .collect();
    let told = known.iter().filter(|us| **us > 0);
    let (sum, count) = told.fold((0_u64, 0), |(sum, count), us| (sum + us, count + 1));
    let mean = sum.checked_div(count).unwrap_or(1).max(1);
    let cost = |at: &usize| {
        let load = &list[*at].load;
        let us = if known[*at] == 0 {
            mean.div_ceil(2)
        } else {
            known[*at]
        };
        us as f64 * f64::from(load.active.load(Relaxed) + 1)
            / f64::from(load.weight.load(Relaxed).max(1))
    };
    (0..list.len())
        .filter(|at| !asked.tried.has(*at) && usable(&list[*at]))
        .min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

fn usable(target: &Target) -> bool {
    target.load.is_usable()
}

#[cfg(test)]
mod tests;
