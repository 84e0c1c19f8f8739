//! Tests the keys and tables of hashing schedulers, and the descriptions of all schedulers.

use weir_model::SchedulerFlags;

use super::*;

fn service(port: bool, networks: bool) -> Service<'static> {
    Service {
        kind: Kind::Sh,
        mode: Mode::Repair,
        flags: Flags {
            fallback: false,
            port,
        },
        networks,
        members: &[],
        entries: &[],
        spread: &[],
        max_load: None,
    }
}

#[test]
fn key_has_the_network_of_ipv4_sources_and_the_port_if_configured() {
    let arrival = |source: &str| Arrival {
        source: source.parse().unwrap(),
        source_port: 4711,
        destination: "192.0.2.1".parse().unwrap(),
        hash: 0,
    };
    let (v4, v6) = (arrival("198.51.100.7"), arrival("2001:db8::7"));
    for (port, networks, arrival, expected) in [
        (false, false, &v4, (0xc633_6407, 0)),
        (true, false, &v4, (0xc633_6407, 4711)),
        (false, true, &v4, (0xc633_6400, 0)),
        (true, true, &v4, (0xc633_6400, 4711)),
        (false, true, &v6, (0x2001_0dbf, 0)),
        (false, false, &v6, (0x2001_0dbf, 0)),
    ] {
        let key = service(port, networks).key(arrival);
        assert_eq!(key, expected, "port {port}, networks {networks}");
    }
}

#[test]
fn server_above_the_load_bound_is_busy() {
    let members = [(2, 1), (1, 1), (3, 0)].map(|(dest, weight)| Member {
        seq: dest,
        dest,
        weight,
        slot: dest,
        usable: true,
    });
    let service = Service {
        members: &members,
        ..service(false, false)
    };
    let counts = |slot: u32| Counts {
        active: if slot == 1 { 10 } else { 0 },
        inactive: 0,
    };
    let bound = Bound::new(100, &members, &counts);
    for (dest, bound, expected) in [
        (1, Some(&bound), Availability::Busy),
        (2, Some(&bound), Availability::Ready),
        (3, Some(&bound), Availability::Quiesced),
        (4, Some(&bound), Availability::Quiesced),
        (1, None, Availability::Ready),
    ] {
        let actual = service.availability(dest, bound, &counts);
        assert_eq!(actual, expected, "{dest}");
    }
}

#[test]
fn scheduler_kind_determines_the_state() {
    for (kind, expected) in [
        (Kind::Rr, Some(State::Walk)),
        (Kind::Wrr, Some(State::WeightedWalk)),
        (Kind::Lblc, Some(State::Locality)),
        (Kind::Lblcr, Some(State::ReplicatedLocality)),
        (Kind::P2c, Some(State::Draws)),
        (Kind::Wlc, None),
        (Kind::Maglev, None),
    ] {
        assert_eq!(state(kind), expected, "{kind}");
    }
}

#[test]
fn owners_come_from_the_schedulers_table() {
    let members = [(2, 3), (1, 1)].map(|(seq, weight)| Member {
        seq,
        dest: seq,
        weight,
        slot: seq,
        usable: true,
    });
    let entries = || {
        let entry = |dest| mh::Entry {
            dest,
            last_weight: 1,
            fold: dest,
            port: 80,
        };
        vec![entry(2), entry(1)]
    };
    let owners = |table: HashTable| table.owners(&members, entries).unwrap();
    assert_eq!(owners(HashTable::Source)[..5], [2, 2, 2, 1, 2]);
    assert_eq!(owners(HashTable::Destination)[..5], [2, 1, 2, 1, 2]);
    assert_eq!(Ok(owners(HashTable::Maglev)), mh::table(&entries()));
}

#[test]
fn criterion_depends_on_the_scheduler_and_its_key() {
    let criterion_of = |kind, networks| {
        criterion(Scheduler {
            flags: SchedulerFlags {
                networks,
                ..SchedulerFlags::default()
            },
            ..Scheduler::new(kind)
        })
    };
    for kind in [Kind::Sh, Kind::Mh] {
        assert_eq!(criterion_of(kind, false), "the hash of the client");
        assert_eq!(criterion_of(kind, true), "the hash of the client's network");
    }
    assert_eq!(
        criterion_of(Kind::Rr, false),
        "the server after the last one chosen"
    );
}
