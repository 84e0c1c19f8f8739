//! Implements the model's schedulers with weir-sched's reference implementations.
//!
//! They receive every change to a service's servers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use weir_flow::{Arrival, Family, Load, Scheduler};
use weir_sched::choice::{self, Service};
use weir_sched::locality::Cache;
use weir_sched::{Counts, Flags, Kind, Member, Mode, hash, mh, reference};

/// A server, as a scheduler uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) dest: u32,
    pub(crate) seq: u32,
    pub(crate) weight: u32,
    /// The last weight above 0, which `mh` uses.
    pub(crate) last_weight: u32,
    pub(crate) live: u32,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn member(&self) -> Member {
        Member {
            seq: self.seq,
            dest: self.dest,
            weight: self.weight,
            slot: self.live,
            usable: true,
        }
    }

    pub(crate) fn entry(&self) -> mh::Entry {
        mh::Entry {
            dest: self.dest,
            last_weight: self.last_weight,
            fold: hash::fold(self.address),
            port: self.port,
        }
    }
}

/// A service's scheduler, and its servers, newest first.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    pub(crate) port: bool,
    pub(crate) networks: bool,
    pub(crate) servers: Vec<Server>,
    /// Maximum load, in percent.
    pub(crate) max_load: Option<u32>,
    /// Whether the list has no tree, whatever its length, because too many services share the counts of the pool.
    pub(crate) treeless: bool,
    /// The last published spread table.
    pub(crate) spread: Vec<u32>,
    /// Number of random numbers drawn so far.
    draws: u32,
    cache: Cache,
    walk: Option<reference::Service>,
    /// Server numbers in the walk, by dest.
    numbers: HashMap<u32, u32>,
}

impl Schedule {
    pub(crate) fn new(kind: Kind, mode: Mode, port: bool) -> Self {
        // A maglev service has only this mode.
        let mode = if kind == Kind::Maglev {
            Mode::Fallback
        } else {
            mode
        };
        let walk = match kind {
            Kind::Rr => Some(reference::Walk::Rr),
            Kind::Wrr => Some(reference::Walk::Wrr),
            _ => None,
        };
        Self {
            kind,
            mode,
            port,
            networks: false,
            servers: Vec::new(),
            spread: Vec::new(),
            max_load: None,
            treeless: false,
            draws: 0,
            cache: Cache::new(kind, u32::MAX),
            walk: walk.map(reference::Service::new),
            numbers: HashMap::new(),
        }
    }

    /// Returns the configured scheduler.
    pub(crate) fn scheduler(&self) -> weir_model::Scheduler {
        let mut scheduler = weir_model::Scheduler::new(self.kind);
        scheduler.flags.port = self.port;
        scheduler.flags.networks = self.networks;
        scheduler.flags.fallback = self.mode == Mode::Fallback;
        scheduler.max_load_percent = self.max_load;
        scheduler
    }

    fn members(&self) -> Vec<Member> {
        self.servers.iter().map(Server::member).collect()
    }

    pub(crate) fn add(&mut self, server: Server) {
        if let Some(walk) = &mut self.walk {
            self.numbers.insert(server.dest, walk.add(server.weight));
        }
        self.servers.insert(0, server);
    }

    /// Sets a server's weight. The kernel restarts a walk even if the weight stays the same; weir-planner never writes
    /// an unchanged weight.
    pub(crate) fn edit(&mut self, dest: u32, weight: u32) {
        let is_same = |server: &Server| (server.dest, server.weight) == (dest, weight);
        if self.servers.iter().any(is_same) {
            return;
        }
        for server in self.servers.iter_mut().filter(|server| server.dest == dest) {
            server.weight = weight;
            if weight > 0 {
                server.last_weight = weight;
            }
        }
        if let (Some(walk), Some(number)) = (&mut self.walk, self.numbers.get(&dest)) {
            walk.edit(*number, weight);
        }
    }

    pub(crate) fn remove(&mut self, dest: u32) {
        self.servers.retain(|server| server.dest != dest);
        if let (Some(walk), Some(number)) = (&mut self.walk, self.numbers.remove(&dest)) {
            walk.remove(number);
        }
    }

    fn choose(
        &mut self,
        arrival: &Arrival<'_>,
        seed: u32,
        live: &dyn Fn(u32) -> Load,
    ) -> Option<u32> {
        let mut members = self.members();
        for member in &mut members {
            member.usable = !live(member.slot).overloaded;
        }
        if let Some(walk) = &mut self.walk {
            for member in &members {
                walk.set_overloaded(self.numbers[&member.dest], !member.usable);
            }
            let number = walk.pick()?;
            let found = self.numbers.iter().find(|(_, known)| **known == number);
            return found.map(|(dest, _)| *dest);
        }
        let counts = |slot: u32| {
            let load = live(slot);
            Counts {
                active: load.active as u32,
                inactive: load.inactive as u32,
            }
        };
        let choice_arrival = choice_arrival(arrival);
        if matches!(self.kind, Kind::Lblc | Kind::Lblcr) {
            let now = arrival.now;
            let picked = self
                .cache
                .pick(&members, &counts, choice_arrival.destination, now);
            return picked.map(|index| members[index].dest);
        }
        let entries: Vec<_> = self.servers.iter().map(Server::entry).collect();
        let service = Service {
            kind: self.kind,
            mode: self.mode,
            flags: Flags {
                port: self.port,
                fallback: false,
            },
            networks: self.networks,
            members: &members,
            entries: &entries,
            spread: &self.spread,
            max_load: self.max_load,
        };
        let draws = &mut self.draws;
        let mut draw = || {
            *draws += 1;
            hash::seeded_draw(seed, *draws - 1)
        };
        service.choose(&choice_arrival, &counts, &mut draw)
    }
}

fn choice_arrival(arrival: &Arrival<'_>) -> choice::Arrival {
    let tuple = arrival.tuple;
    let address = |addr: weir_abi::Addr| match tuple.family {
        Family::V4 => addr.to_ip(),
        Family::V6 => Ipv6Addr::from(addr.octets()).into(),
    };
    choice::Arrival {
        source: address(tuple.src),
        source_port: tuple.sport,
        destination: address(tuple.dst),
        hash: arrival.hash,
    }
}

/// The schedulers of all services.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    pub(crate) schedules: HashMap<u32, Schedule>,
    /// `Settings::draw_seed`.
    pub(crate) seed: u32,
}

impl Scheduler for Reference {
    fn choose(
        &mut self,
        service: u32,
        arrival: &Arrival<'_>,
        load: &dyn Fn(u32) -> Load,
    ) -> Option<u32> {
        let seed = self.seed;
        self.schedules
            .get_mut(&service)?
            .choose(arrival, seed, load)
    }
}
