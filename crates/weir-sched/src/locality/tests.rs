//! Tests `lblc` and `lblcr` with given counts; the data plane's tests cover sequences with real counts.

use super::*;

const FIRST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const SECOND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
const EXPIRATION: u32 = 100;

/// A service with given counts: its servers as `(weight, active)`, in the order in which they were added, numbered from
/// 1.
struct Service {
    cache: Cache,
    servers: Vec<(u32, u32)>,
    overloaded: Vec<u32>,
    removed: Vec<u32>,
}

impl Service {
    fn new(kind: Kind, servers: &[(u32, u32)]) -> Self {
        Self {
            cache: Cache::new(kind, EXPIRATION),
            servers: servers.to_vec(),
            overloaded: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// Returns the number of the server for an address; 0 = none.
    fn serve(&mut self, address: IpAddr, now: u32) -> u32 {
        let mut members: Vec<Member> = (1..)
            .zip(&self.servers)
            .filter(|(number, _)| !self.removed.contains(number))
            .map(|(number, &(weight, _))| Member {
                seq: number,
                dest: number,
                weight,
                slot: number - 1,
                usable: !self.overloaded.contains(&number),
            })
            .collect();
        members.reverse();
        let servers = &self.servers;
        let counts = |slot: u32| Counts {
            active: servers[slot as usize].1,
            inactive: 0,
        };
        let picked = self.cache.pick(&members, &counts, address, now);
        picked.map_or(0, |index| members[index].dest)
    }
}

#[test]
fn address_keeps_its_server() {
    for kind in [Kind::Lblc, Kind::Lblcr] {
        let mut service = Service::new(kind, &[(10, 0), (10, 0)]);
        assert_eq!(service.serve(FIRST, 0), 2);
        service.servers[1].1 = 5;
        assert_eq!(service.serve(SECOND, 1), 1, "{kind}: least connections");
        assert_eq!(
            service.serve(FIRST, 2),
            2,
            "{kind}: although server 1 is idle"
        );
    }
}

#[test]
fn full_server_is_replaced_only_if_another_is_below_half() {
    for kind in [Kind::Lblc, Kind::Lblcr] {
        let mut service = Service::new(kind, &[(10, 0), (10, 0)]);
        service.serve(FIRST, 0);
        service.servers = vec![(10, 5), (10, 11)];
        assert_eq!(
            service.serve(FIRST, 1),
            2,
            "{kind}: twice 5 is not below 10"
        );
        service.servers = vec![(10, 4), (10, 10)];
        assert_eq!(service.serve(FIRST, 2), 2, "{kind}: 10 is not above 10");
        service.servers = vec![(10, 4), (10, 11)];
        assert_eq!(service.serve(FIRST, 3), 1, "{kind}");
    }
}

#[test]
fn lblc_replaces_a_full_server_and_lblcr_adds_one() {
    let last_server = |kind| {
        let mut service = Service::new(kind, &[(10, 0), (10, 0)]);
        service.serve(FIRST, 0);
        service.servers = vec![(10, 4), (10, 11)];
        assert_eq!(service.serve(FIRST, 1), 1, "{kind}");
        service.servers = vec![(10, 9), (10, 0)];
        service.serve(FIRST, 2)
    };
    assert_eq!(
        last_server(Kind::Lblc),
        1,
        "`lblc` caches only the new server"
    );
    assert_eq!(
        last_server(Kind::Lblcr),
        2,
        "`lblcr` uses the less loaded server of its set"
    );
}

#[test]
fn weight_zero_and_removal_end_an_entry() {
    for kind in [Kind::Lblc, Kind::Lblcr] {
        let mut service = Service::new(kind, &[(1, 0), (1, 0), (1, 0)]);
        assert_eq!(service.serve(FIRST, 0), 3);
        service.servers[2].0 = 0;
        assert_eq!(service.serve(FIRST, 1), 2, "{kind}");
        service.removed = vec![2];
        assert_eq!(service.serve(FIRST, 2), 1, "{kind}");
        service.removed = vec![1, 2];
        assert_eq!(service.serve(FIRST, 3), 0, "{kind}");
    }
}

#[test]
fn only_lblcr_checks_the_threshold_of_cached_servers() {
    let last_server = |kind| {
        let mut service = Service::new(kind, &[(1, 0), (1, 0)]);
        service.serve(FIRST, 0);
        service.overloaded = vec![2];
        service.serve(FIRST, 1)
    };
    assert_eq!(last_server(Kind::Lblc), 2);
    assert_eq!(last_server(Kind::Lblcr), 1);
}

#[test]
fn unused_entries_expire() {
    for kind in [Kind::Lblc, Kind::Lblcr] {
        let mut service = Service::new(kind, &[(10, 0), (10, 0)]);
        service.serve(FIRST, u32::MAX - 50);
        service.servers[1].1 = 1;
        assert_eq!(service.serve(FIRST, 48), 2, "{kind}: 99 after the last use");
        assert_eq!(
            service.serve(FIRST, 148),
            1,
            "{kind}: 100 after the last use"
        );
    }
}

#[test]
fn unchanged_set_drops_its_most_loaded_server() {
    let mut service = Service::new(Kind::Lblcr, &[(10, 0), (10, 0)]);
    service.serve(FIRST, 0);
    service.servers = vec![(10, 4), (10, 11)];
    assert_eq!(
        service.serve(FIRST, 10),
        1,
        "the set now consists of servers 1 and 2"
    );
    service.servers = vec![(10, 3), (10, 2)];
    for now in [60, 110] {
        assert_eq!(service.serve(FIRST, now), 2);
        assert_eq!(service.cache.entries[&FIRST].dests, [2, 1], "at {now}");
    }
    assert_eq!(
        service.serve(FIRST, 111),
        2,
        "server 1 is the most loaded, and is removed from the set"
    );
    service.servers = vec![(10, 0), (10, 9)];
    assert_eq!(service.serve(FIRST, 112), 2);
}

/// The kernel also searches a set from the server that was added to it last.
#[test]
fn newest_of_equally_loaded_servers_of_a_set_is_used() {
    let mut service = Service::new(Kind::Lblcr, &[(10, 3), (10, 3)]);
    let entry = Entry {
        dests: vec![2, 1],
        last_use: 0,
        last_change: 0,
    };
    service.cache.insert(FIRST, entry);
    assert_eq!(service.serve(FIRST, 1), 1);
}

#[test]
fn set_of_one_server_does_not_shrink() {
    let mut service = Service::new(Kind::Lblcr, &[(10, 0), (10, 0)]);
    for now in [0, 60, 120, 180] {
        assert_eq!(service.serve(FIRST, now), 2);
        assert_eq!(service.cache.entries[&FIRST].dests, [2], "at {now}");
        service.servers[1].1 = 5;
    }
}

#[test]
fn servers_of_an_inserted_entry_are_used() {
    for kind in [Kind::Lblc, Kind::Lblcr] {
        let mut service = Service::new(kind, &[(10, 0), (10, 0)]);
        let entry = Entry {
            dests: vec![1],
            last_use: 50,
            last_change: 50,
        };
        service.cache.insert(FIRST, entry);
        assert_eq!(service.serve(SECOND, 60), 2, "{kind}");
        assert_eq!(service.serve(FIRST, 60), 1, "{kind}");
    }
}

#[test]
fn server_set_is_bounded() {
    let mut service = Service::new(Kind::Lblcr, &[(1, 0); 20]);
    for round in 0..20 {
        let served = service.serve(FIRST, round);
        assert_eq!(served, 20 - round);
        service.servers[served as usize - 1].1 = 2;
    }
    assert_eq!(service.cache.entries[&FIRST].dests.len(), MAX_SET);
}
