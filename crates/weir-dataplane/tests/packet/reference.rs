//! The schedulers as the model sees them: weir-sched's slow forms, fed with every change of a service's servers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use weir_flow::{Family, Load, Scheduler, Tuple};
use weir_sched::{Counts, Kind, Member, Mode, bucket, hash, load, mh, reference};

/// A server as a scheduler knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) dest: u32,
    pub(crate) seq: u32,
    pub(crate) weight: u32,
    /// The last weight above 0: what `mh` goes by.
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

/// A service's scheduler and servers, the newest first.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    pub(crate) port: bool,
    pub(crate) servers: Vec<Server>,
    walk: Option<reference::Service>,
    /// The walk's numbers by dest.
    numbers: HashMap<u32, u32>,
}

impl Schedule {
    pub(crate) fn new(kind: Kind, mode: Mode, port: bool) -> Self {
        let walk = match kind {
            Kind::Rr => Some(reference::Walk::Rr),
            Kind::Wrr => Some(reference::Walk::Wrr),
            _ => None,
        };
        Self {
            kind,
            mode,
            port,
            servers: Vec::new(),
            walk: walk.map(reference::Service::new),
            numbers: HashMap::new(),
        }
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        self.servers.iter().map(Server::member).collect()
    }

    pub(crate) fn add(&mut self, server: Server) {
        if let Some(walk) = &mut self.walk {
            self.numbers.insert(server.dest, walk.add(server.weight));
        }
        self.servers.insert(0, server);
    }

    pub(crate) fn edit(&mut self, dest: u32, weight: u32) {
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

    fn choose(&mut self, tuple: &Tuple, live: &dyn Fn(u32) -> Load) -> Option<u32> {
        let members = self.members();
        let source = match tuple.family {
            Family::V4 => tuple.src.to_ip(),
            Family::V6 => Ipv6Addr::from(tuple.src.octets()).into(),
        };
        let (fold, port) = (hash::fold(source), if self.port { tuple.sport } else { 0 });
        let availability = |dest: u32| {
            let found = members.iter().find(|member| member.dest == dest);
            found.map_or(weir_sched::Availability::Quiesced, Member::availability)
        };
        let counts = |slot: u32| {
            let load = live(slot);
            Counts {
                active: load.active as u32,
                inactive: load.inactive as u32,
            }
        };
        let least = |rule| load::pick(rule, &members, &counts).map(|index| members[index].dest);
        match self.kind {
            Kind::Rr | Kind::Wrr => {
                let number = self.walk.as_mut()?.pick()?;
                let found = self.numbers.iter().find(|(_, known)| **known == number);
                found.map(|(dest, _)| *dest)
            }
            Kind::Lc => least(load::Rule::Lc),
            Kind::Wlc => least(load::Rule::Wlc),
            Kind::Sh => {
                let owners = bucket::sh_owners(&members);
                bucket::lookup(
                    &owners,
                    bucket::sh_index(fold, port),
                    self.mode,
                    &availability,
                )
            }
            Kind::Mh => {
                let entries: Vec<_> = self.servers.iter().map(Server::entry).collect();
                mh::lookup(
                    &mh::table(&entries).ok()?,
                    fold,
                    port,
                    self.mode,
                    &availability,
                )
            }
            other => panic!("{other} is not in the data plane"),
        }
    }
}

/// All services' schedulers.
#[derive(Debug, Default)]
pub(crate) struct Reference(pub(crate) HashMap<u32, Schedule>);

impl Scheduler for Reference {
    fn choose(&mut self, service: u32, tuple: &Tuple, load: &dyn Fn(u32) -> Load) -> Option<u32> {
        self.0.get_mut(&service)?.choose(tuple, load)
    }
}
