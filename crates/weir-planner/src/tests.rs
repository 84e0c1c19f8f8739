//! Tests the allocation and rows of small configurations.

use std::net::IpAddr;

use weir_abi::{
    DEST_LIVE, DEST_LOCAL, DEST_RESET, DEST_SNAT, DEST_USABLE, EXTENT_FALLBACK, EXTENT_NETWORK,
    EXTENT_PORT, EXTENT_REPAIR, VIP_ECHO, VIP_RANGES, VIP_SNAT,
};
use weir_model::{
    Desired, Forward, Indexed, Listener, OnRemove, Pool, Ports, Protocol, Scheduler,
    SchedulerFlags, SchedulerKind, Server, Service, Snat,
};
use weir_sched::Cursor;

use crate::Totals;
use crate::allocation::{Allocation, AllocationInput, DestSlot, FreedRows, PoolWeights};
use crate::policy::RemovedFlags;
use crate::row_set::{RowSet, rows};
use crate::rows::NetworkState;

mod change;
mod group;
mod record;

const DEST_ROWS: u32 = 64;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn listener(ports: Ports) -> Listener {
    Listener {
        protocol: Protocol::Tcp,
        address: ip("192.0.2.10"),
        ports,
    }
}

fn server(name: &str, weight: u32) -> Server {
    Server {
        weight,
        ..Server::new(name, ip(name), None)
    }
}

/// Returns a configured server with weight 1.
pub(crate) fn dest_slot() -> DestSlot {
    DestSlot {
        id: 1,
        generation: 1,
        name: "10.0.0.1".to_owned(),
        address: [10, 0, 0, 1].into(),
        port: None,
        sorry: false,
        seq: 1,
        weight: 1,
        effective: 1,
        base: 1,
        quiesced: false,
        down: false,
        last_weight: 1,
        shared: None,
        removed: None,
        failed: None,
        staged: false,
        since_ms: 0,
    }
}

fn desired(kind: SchedulerKind, servers: &[(&str, u32)]) -> Desired {
    let mut pool = Pool::new("pool");
    pool.scheduler = Some(Scheduler::new(kind));
    pool.servers = servers
        .iter()
        .map(|(name, weight)| server(name, *weight))
        .collect();
    let mut service = Service::new("one", Forward::Nat, "pool");
    service.listen.push(listener(Ports::One(80)));
    Desired {
        pools: vec![pool],
        services: vec![service],
        ..Desired::default()
    }
}

fn configured_weights(_: &str, pool: &Pool) -> PoolWeights {
    PoolWeights::from_config(pool)
}

fn reconcile(allocation: &mut Allocation, desired: &Desired, cursor: Cursor) {
    let allocation_input = AllocationInput {
        service_rows: 16,
        dest_rows: DEST_ROWS,
        now_ms: 1,
        cursor: &|_| cursor,
        weights: &configured_weights,
    };
    let desired = Indexed::from(desired.clone());
    let names = allocation.service_names(&desired);
    let names = names.iter().map(String::as_str);
    allocation
        .reconcile(&desired, names, &allocation_input)
        .unwrap();
}

fn rows_of(desired: &Desired, allocation: &Allocation, network: &NetworkState) -> RowSet {
    let desired = Indexed::from(desired.clone());
    rows(&desired, allocation, network, DEST_ROWS).unwrap().0
}

fn plan_all(desired: &Desired) -> (Allocation, RowSet) {
    let mut allocation = Allocation::default();
    reconcile(&mut allocation, desired, Cursor::default());
    let rows = rows_of(desired, &allocation, &NetworkState::default());
    (allocation, rows)
}

fn ids(allocation: &Allocation) -> Vec<(&str, u32, u32, bool)> {
    allocation
        .dests()
        .map(|(_, dest)| {
            (
                dest.name.as_str(),
                dest.id,
                dest.seq,
                dest.removed.is_some(),
            )
        })
        .collect()
}

#[test]
fn rows_stay_with_their_servers() {
    let (mut allocation, _) = plan_all(&desired(
        SchedulerKind::Rr,
        &[("10.0.0.1", 1), ("10.0.0.2", 1)],
    ));
    assert_eq!(
        ids(&allocation),
        [("10.0.0.1", 1, 1, false), ("10.0.0.2", 2, 2, false)]
    );
    let changed = desired(SchedulerKind::Rr, &[("10.0.0.3", 1), ("10.0.0.2", 1)]);
    reconcile(&mut allocation, &changed, Cursor::default());
    let expected = [
        ("10.0.0.1", 1, 1, true),
        ("10.0.0.2", 2, 2, false),
        ("10.0.0.3", 3, 3, false),
    ];
    assert_eq!(
        ids(&allocation),
        expected,
        "a removed server must keep its row while it has flows"
    );

    let before = allocation.clone();
    assert_eq!(allocation.release(&|_| None), FreedRows::default());
    assert_eq!(allocation, before);
    let totals = Totals {
        connections: 7,
        ..Totals::default()
    };
    let freed = allocation.release(&|_| Some(totals));
    assert_eq!((freed.dests, freed.services), (vec![1], vec![]));
    assert_eq!(allocation.services["one"].retired.connections, 7);
    let restored_configuration = desired(
        SchedulerKind::Rr,
        &[("10.0.0.3", 1), ("10.0.0.2", 1), ("10.0.0.1", 1)],
    );
    reconcile(&mut allocation, &restored_configuration, Cursor::default());
    let new_dest = allocation
        .dests()
        .find(|(_, dest)| dest.name == "10.0.0.1")
        .unwrap()
        .1;
    assert_eq!((new_dest.id, new_dest.seq), (1, 4));
    assert!(
        new_dest.generation > before.last_generation,
        "the row must have a new generation"
    );
}

#[test]
fn server_added_again_gets_its_old_row_and_a_new_seq() {
    let both = desired(SchedulerKind::Rr, &[("10.0.0.1", 1), ("10.0.0.2", 1)]);
    let (mut allocation, _) = plan_all(&both);
    reconcile(
        &mut allocation,
        &desired(SchedulerKind::Rr, &[("10.0.0.2", 1)]),
        Cursor::default(),
    );
    reconcile(&mut allocation, &both, Cursor::default());
    assert_eq!(
        ids(&allocation),
        [("10.0.0.2", 2, 2, false), ("10.0.0.1", 1, 3, false)]
    );
}

#[test]
fn unchanged_configuration_changes_nothing() {
    let configuration = desired(SchedulerKind::Wrr, &[("10.0.0.1", 3), ("10.0.0.2", 1)]);
    let (mut allocation, _) = plan_all(&configuration);
    let before = allocation.clone();
    reconcile(
        &mut allocation,
        &configuration,
        Cursor {
            generation: 9,
            last_seq: 2,
            pass_weight: 1,
        },
    );
    assert_eq!(allocation, before);
}

#[test]
fn change_restarts_wrr_walk_but_not_rr_walk() {
    let servers = [("10.0.0.1", 4), ("10.0.0.2", 2)];
    let generations = |kind| {
        let (mut allocation, _) = plan_all(&desired(kind, &servers));
        let before = allocation.services["one"].start.generation;
        let cursor = Cursor {
            generation: before,
            last_seq: 1,
            pass_weight: 1,
        };
        reconcile(&mut allocation, &desired(kind, &servers[..1]), cursor);
        (before, allocation.services["one"].start.generation)
    };
    let (before, after) = generations(SchedulerKind::Rr);
    assert_eq!(before, after);
    let (before, after) = generations(SchedulerKind::Wrr);
    assert_ne!(before, after);
}

#[test]
fn more_servers_than_rows_is_an_error() {
    let names: Vec<String> = (1..=DEST_ROWS)
        .map(|last| format!("10.0.1.{last}"))
        .collect();
    let servers: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let allocation_input = AllocationInput {
        service_rows: 16,
        dest_rows: DEST_ROWS,
        now_ms: 1,
        cursor: &|_| Cursor::default(),
        weights: &configured_weights,
    };
    let result = Allocation::default().reconcile(
        &Indexed::from(desired(SchedulerKind::Rr, &servers)),
        ["one"],
        &allocation_input,
    );
    assert_eq!(
        result.unwrap_err().to_string(),
        "more than 63 servers: raise max_servers in [node]"
    );
}

#[test]
fn lists_contain_usable_servers_newest_first() {
    let (_, rows) = plan_all(&desired(
        SchedulerKind::Wlc,
        &[("10.0.0.1", 2), ("10.0.0.2", 0), ("10.0.0.3", 4)],
    ));
    let tables = &rows.services[&1].tables;
    let list: Vec<_> = tables
        .list
        .iter()
        .map(|row| (row.seq, row.dest, row.weight, row.live))
        .collect();
    assert_eq!(list, [(3, 3, 4, 3), (1, 1, 2, 1)]);
    assert!(tables.spread().iter().all(|dest| [1, 3].contains(dest)));
    let (header, [list_at, hash_at, spread_at]) = tables.header(100);
    assert_eq!(
        (
            header.list_at,
            header.list_len,
            header.max_weight,
            header.gcd
        ),
        (105, 2, 4, 2)
    );
    assert_eq!((list_at, hash_at, spread_at), (105, 107, 107));
    assert_eq!(
        rows.dests[&2].flags, DEST_LIVE,
        "a server with weight 0 must not be usable"
    );
    assert_eq!(rows.dests[&1].flags, DEST_LIVE | DEST_USABLE);
}

#[test]
fn hashing_skips_quiesced_owner_unless_strict() {
    for kind in [SchedulerKind::Sh, SchedulerKind::Dh, SchedulerKind::Mh] {
        let mut configuration = desired(kind, &[("10.0.0.1", 1), ("10.0.0.2", 1)]);
        let header = |configuration: &Desired| {
            let (_, rows) = plan_all(configuration);
            let tables = &rows.services[&1].tables;
            for dest in [1, 2] {
                assert!(
                    tables.hash().contains(&dest),
                    "{kind}: the owners must stay in the table"
                );
            }
            tables.header(100).0
        };
        assert_eq!(header(&configuration).flags, EXTENT_REPAIR);
        configuration.services[0].strict_ipvs = true;
        assert_eq!(header(&configuration).flags, 0);
        configuration.pools[0].scheduler = Some(Scheduler {
            flags: SchedulerFlags {
                fallback: true,
                port: true,
                networks: true,
                file_order: false,
            },
            ..Scheduler::new(kind)
        });
        assert_eq!(
            header(&configuration).flags,
            EXTENT_PORT | EXTENT_NETWORK | EXTENT_REPAIR | EXTENT_FALLBACK
        );
    }
}

#[test]
fn scheduler_first_is_fo_with_oldest_server_first() {
    let mut configuration = desired(SchedulerKind::Fo, &[("10.0.0.1", 1), ("10.0.0.2", 1)]);
    let list = |configuration: &Desired| {
        let (_, rows) = plan_all(configuration);
        let list = &rows.services[&1].tables.list;
        list.iter().map(|row| row.dest).collect::<Vec<_>>()
    };
    assert_eq!(list(&configuration), [2, 1]);
    if let Some(scheduler) = &mut configuration.pools[0].scheduler {
        scheduler.flags.file_order = true;
    }
    assert_eq!(list(&configuration), [1, 2]);
}

#[test]
fn sorry_server_is_listed_when_no_other_is_usable() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    configuration.pools[0].sorry = Some(server("10.0.0.9", 1));
    let list = |drained: bool| {
        let weights = |_: &str, pool: &Pool| {
            let mut weights = PoolWeights::from_config(pool);
            if drained {
                weights.servers[0].effective = 0;
            }
            weights
        };
        let mut allocation = Allocation::default();
        let allocation_input = AllocationInput {
            service_rows: 16,
            dest_rows: DEST_ROWS,
            now_ms: 1,
            cursor: &|_| Cursor::default(),
            weights: &weights,
        };
        allocation
            .reconcile(
                &Indexed::from(configuration.clone()),
                ["one"],
                &allocation_input,
            )
            .unwrap();
        let rows = rows_of(&configuration, &allocation, &NetworkState::default());
        rows.services[&1]
            .tables
            .list
            .iter()
            .map(|row| row.dest)
            .collect::<Vec<_>>()
    };
    assert_eq!(list(false), [1]);
    assert_eq!(list(true), [2]);
}

#[test]
fn services_of_one_pool_share_counts_unless_strict() {
    let mut configuration = desired(SchedulerKind::Wlc, &[("10.0.0.1", 1)]);
    let mut second = Service {
        name: "two".to_owned(),
        ..configuration.services[0].clone()
    };
    second.listen = vec![listener(Ports::One(81))];
    configuration.services.push(second.clone());
    let live = |configuration: &Desired| {
        plan_all(configuration)
            .1
            .dests
            .values()
            .map(|dest| dest.live)
            .collect::<Vec<_>>()
    };
    assert_eq!(live(&configuration), [DEST_ROWS, DEST_ROWS]);
    configuration.services[1].strict_ipvs = true;
    assert_eq!(live(&configuration), [1, 2]);
}

#[test]
fn listeners_become_exact_entries_ranges_or_vip_defaults() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    let udp = Listener {
        protocol: Protocol::Udp,
        ..listener(Ports::Any)
    };
    configuration.services[0].listen.extend([
        listener(Ports::Range(9000, 9999)),
        listener(Ports::Range(8000, 8999)),
        udp,
    ]);
    let (_, rows) = plan_all(&configuration);
    let vip = &rows.vips[&ip("192.0.2.10")];
    assert_eq!(
        (vip.flags, vip.any_tcp, vip.any_udp),
        (VIP_ECHO | VIP_RANGES, 0, 1)
    );
    assert_eq!(
        vip.ranges
            .iter()
            .map(|range| (range.first, range.last))
            .collect::<Vec<_>>(),
        [(8000, 8999), (9000, 9999)]
    );
    assert_eq!(
        rows.listeners.keys().collect::<Vec<_>>(),
        [&(ip("192.0.2.10"), 80, 6)]
    );
    assert!(
        rows.filter.may_be_destination(ip("192.0.2.10").into())
            && rows.filter.may_be_source(ip("10.0.0.1").into())
    );
}

#[test]
fn snat_without_addresses_uses_source_of_route_to_servers() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    configuration.services[0].snat = Some(Snat::default());
    let (allocation, _) = plan_all(&configuration);
    let network = NetworkState {
        sources: [(ip("10.0.0.1"), ip("10.0.0.254"))].into(),
        local_addresses: [ip("10.0.0.1")].into(),
        ..NetworkState::default()
    };
    let rows = rows_of(&configuration, &allocation, &network);
    assert_eq!(rows.services[&1].snat_addresses, [ip("10.0.0.254").into()]);
    assert_eq!(rows.vips[&ip("10.0.0.254")].flags, VIP_SNAT);
    assert_eq!(
        rows.dests[&1].flags,
        DEST_LIVE | DEST_USABLE | DEST_LOCAL | DEST_SNAT
    );
}

const fn removed(flags: u8) -> RemovedFlags {
    RemovedFlags { flags, policy: 0 }
}

#[test]
fn removed_server_is_flagged_by_on_remove() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1), ("10.0.0.2", 1)]);
    let (mut allocation, _) = plan_all(&configuration);
    configuration.pools[0].servers.remove(0);
    configuration.pools[0].on_remove = OnRemove::Reset;
    reconcile(&mut allocation, &configuration, Cursor::default());
    let rows = rows_of(&configuration, &allocation, &NetworkState::default());
    assert_eq!(
        rows.removed_flags,
        [(1, removed(DEST_LIVE | DEST_RESET))].into()
    );
    assert!(!rows.dests.contains_key(&1));
    assert!(
        rows.filter.may_be_source(ip("10.0.0.1").into()),
        "the server's last replies must still pass through the director"
    );
}

#[test]
fn removed_service_keeps_filter_bits_while_flows_remain() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    let (mut allocation, _) = plan_all(&configuration);
    configuration.services.clear();
    reconcile(&mut allocation, &configuration, Cursor::default());
    let plan =
        |allocation: &Allocation| rows_of(&configuration, allocation, &NetworkState::default());
    let rows = plan(&allocation);
    assert!(rows.services.is_empty() && rows.listeners.is_empty() && rows.vips.is_empty());
    assert_eq!(rows.removed_flags, [(1, removed(DEST_LIVE))].into());
    assert!(rows.filter.may_be_destination(ip("192.0.2.10").into()));
    let freed = allocation.release(&|_| Some(Totals::default()));
    assert_eq!((freed.dests, freed.services), (vec![1], vec![1]));
    assert!(
        !plan(&allocation)
            .filter
            .may_be_destination(ip("192.0.2.10").into())
    );
}

#[test]
fn rows_that_share_counts_form_a_ring() {
    let names: Vec<String> = (1..=20).map(|last| format!("10.0.0.{last}")).collect();
    let servers: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut configuration = desired(SchedulerKind::Wlc, &servers);
    let new_service = |name: &str, port| {
        let mut service = Service::new(name, Forward::Nat, "pool");
        service.listen.push(listener(Ports::One(port)));
        service
    };
    configuration.services.push(new_service("two", 81));
    configuration.services.push(new_service("three", 82));
    let (mut allocation, mut rows) = plan_all(&configuration);
    let fifth_dest =
        |allocation: &Allocation, service: &str| allocation.services[service].dests[4].id;
    let [one, two, three] = ["one", "two", "three"].map(|name| fifth_dest(&allocation, name));
    let sibling = |rows: &RowSet, id: u32| rows.dests[&id].sibling;
    let mut ring = vec![one];
    while ring.len() < 4 {
        ring.push(sibling(&rows, ring[ring.len() - 1]));
    }
    assert_eq!(ring[3], one, "{ring:?}");
    ring.truncate(3);
    ring.sort_unstable();
    let mut ids_in_order = [one, two, three];
    ids_in_order.sort_unstable();
    assert_eq!(ring, ids_in_order);
    let width = |rows: &RowSet, allocation: &Allocation, service: &str| {
        let row = allocation.services[service].row;
        rows.services[&row].tables.header(1).0.tree_width
    };
    assert_eq!(width(&rows, &allocation, "one"), 32);

    configuration.services.pop();
    reconcile(&mut allocation, &configuration, Cursor::default());
    let network = NetworkState::default();
    let indexed = Indexed::from(configuration.clone());
    let names = ["three"];
    let changes = rows
        .replan(&indexed, &allocation, &network, DEST_ROWS, names)
        .unwrap();
    assert_eq!((sibling(&rows, one), sibling(&rows, two)), (two, one));
    assert!(changes.dests.contains(&two) || changes.dests.contains(&one));
    configuration.services.pop();
    reconcile(&mut allocation, &configuration, Cursor::default());
    let indexed = Indexed::from(configuration.clone());
    rows.replan(&indexed, &allocation, &network, DEST_ROWS, ["one", "two"])
        .unwrap();
    assert_eq!(sibling(&rows, one), 0, "no other row shares the counts");
}

#[test]
fn many_services_of_one_pool_use_lists_instead_of_trees() {
    let names: Vec<String> = (1..=17).map(|last| format!("10.0.0.{last}")).collect();
    let servers: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let width = |services: u16| {
        let mut configuration = desired(SchedulerKind::Wlc, &servers);
        for number in 1..services {
            let mut service = Service::new(format!("s{number}"), Forward::Nat, "pool");
            service.listen.push(listener(Ports::One(100 + number)));
            configuration.services.push(service);
        }
        let configuration = Indexed::from(configuration);
        let mut allocation = Allocation::default();
        let allocation_input = AllocationInput {
            service_rows: 128,
            dest_rows: 2048,
            now_ms: 1,
            cursor: &|_| Cursor::default(),
            weights: &configured_weights,
        };
        let names = allocation.service_names(&configuration);
        let names = names.iter().map(String::as_str);
        allocation
            .reconcile(&configuration, names, &allocation_input)
            .unwrap();
        let (rows, _) = rows(&configuration, &allocation, &NetworkState::default(), 2048).unwrap();
        let row = allocation.services["one"].row;
        rows.services[&row].tables.header(1).0.tree_width
    };
    assert_eq!(width(64), 32);
    assert_eq!(width(65), 0);
}
