//! Tests that the tables of a group's directors depend only on values that all of them share.

use weir_model::{Cluster, Desired, FlowSync, Secret, SecretSource, TunnelKind};

use super::*;
use crate::allocation::{DestSlot, Removal, ServerWeight, staged_server};

fn desired_in_group(servers: &[(&str, u32)]) -> Desired {
    Desired {
        cluster: Some(Cluster::new("edge")),
        ..desired(SchedulerKind::Maglev, servers)
    }
}

fn set_down(allocation: &mut Allocation, desired: &Desired, down: &[&str]) {
    let weights = |_: &str, pool: &Pool| {
        let mut weights = PoolWeights::from_config(pool);
        for (server, weight) in pool.servers.iter().zip(&mut weights.servers) {
            if down.contains(&server.name.as_str()) {
                *weight = ServerWeight {
                    effective: 0,
                    removed: true,
                    down: true,
                    ..*weight
                };
            }
        }
        weights
    };
    let allocation_input = AllocationInput {
        service_rows: 16,
        dest_rows: DEST_ROWS,
        now_ms: 1,
        cursor: &|_| Cursor::default(),
        weights: &weights,
    };
    let desired = Indexed::from(desired.clone());
    allocation
        .reconcile(&desired, ["one"], &allocation_input)
        .unwrap();
}

/// Returns the address of each table entry.
fn table(allocation: &Allocation, desired: &Desired) -> Vec<IpAddr> {
    let rows = rows_of(desired, allocation, &NetworkState::default());
    let slot = &allocation.services["one"];
    let address = |id: &u32| {
        let mut dests = slot.dests.iter();
        dests.find(|dest| dest.id == *id).unwrap().address
    };
    let tables = &rows.services[&slot.row].tables;
    tables.spread().iter().map(address).collect()
}

const SERVERS: [(&str, u32); 4] = [
    ("10.0.0.1", 1),
    ("10.0.0.2", 2),
    ("10.0.0.3", 1),
    ("10.0.0.4", 3),
];

#[test]
fn table_does_not_depend_on_history_or_order() {
    let desired = desired_in_group(&SERVERS);
    let (first, _) = plan_all(&desired);
    let mut second = Allocation::default();
    for servers in [
        &[("10.0.0.9", 1), ("10.0.0.4", 7)][..],
        &[("10.0.0.4", 1), ("10.0.0.2", 1)],
    ] {
        reconcile(&mut second, &desired_in_group(servers), Cursor::default());
    }
    let mut reversed = SERVERS;
    reversed.reverse();
    let desired_reversed = desired_in_group(&reversed);
    set_down(&mut second, &desired_reversed, &["10.0.0.2"]);
    set_down(&mut second, &desired_reversed, &[]);
    assert_eq!(table(&first, &desired), table(&second, &desired_reversed));
}

#[test]
fn locally_down_server_is_skipped_entry_by_entry() {
    let desired = desired_in_group(&SERVERS);
    let (mut allocation, _) = plan_all(&desired);
    let shared_table = table(&allocation, &desired);
    set_down(&mut allocation, &desired, &["10.0.0.2"]);
    let local_table = table(&allocation, &desired);
    let down = ip("10.0.0.2");
    assert!(shared_table.contains(&down) && !local_table.contains(&down));
    for (shared, local) in shared_table.iter().zip(&local_table) {
        assert!(
            shared == local || *shared == down,
            "{shared} became {local}"
        );
    }
    // Outside a group, the remaining servers share the table by weight, so other entries change too.
    let ungrouped = Desired {
        cluster: None,
        ..desired.clone()
    };
    let rebuilt_table = table(&allocation, &ungrouped);
    let pairs = shared_table.iter().zip(&rebuilt_table);
    assert!(pairs.filter(|(a, b)| a != b && **a != down).count() > 0);
}

#[test]
fn sorry_server_is_used_when_all_servers_are_down() {
    let mut desired = desired_in_group(&SERVERS[..2]);
    desired.pools[0].sorry = Some(server("10.0.0.9", 1));
    let (mut allocation, _) = plan_all(&desired);
    set_down(&mut allocation, &desired, &["10.0.0.1", "10.0.0.2"]);
    let local = table(&allocation, &desired);
    assert!(!local.is_empty() && local.iter().all(|address| *address == ip("10.0.0.9")));
}

fn with_gue(servers: &[(&str, u32)]) -> Desired {
    let mut desired = desired_in_group(servers);
    let service = &mut desired.services[0];
    service.forward = Forward::Tunnel;
    service.tunnel.kind = TunnelKind::Gue;
    desired
}

/// Returns the addresses in the second hop's table; `None` = no row.
fn former(allocation: &Allocation, desired: &Desired) -> Vec<Option<IpAddr>> {
    let rows = rows_of(desired, allocation, &NetworkState::default());
    let slot = &allocation.services["one"];
    let address = |id: &u32| {
        let mut dests = slot.dests.iter();
        dests.find(|dest| dest.id == *id).map(|dest| dest.address)
    };
    let tables = &rows.services[&slot.row].tables;
    tables.former().iter().map(address).collect()
}

#[test]
fn second_hop_uses_the_table_before_the_last_change() {
    let (three, four) = (with_gue(&SERVERS[..3]), with_gue(&SERVERS));
    let (mut allocation, _) = plan_all(&three);
    assert_eq!(former(&allocation, &three), []);
    let before: Vec<_> = table(&allocation, &three).into_iter().map(Some).collect();
    reconcile(&mut allocation, &four, Cursor::default());
    assert_eq!(former(&allocation, &four), before);
    // Check results do not create a new version.
    set_down(&mut allocation, &four, &["10.0.0.1"]);
    set_down(&mut allocation, &four, &[]);
    assert_eq!(former(&allocation, &four), before);

    // A removed server keeps its row as long as the previous table contains it.
    let before_removal: Vec<_> = table(&allocation, &four).into_iter().map(Some).collect();
    reconcile(&mut allocation, &three, Cursor::default());
    let final_totals = |_: &DestSlot| Some(Totals::default());
    assert_eq!(allocation.release(&final_totals), FreedRows::default());
    assert_eq!(former(&allocation, &three), before_removal);
    let two = with_gue(&SERVERS[..2]);
    reconcile(&mut allocation, &two, Cursor::default());
    assert_eq!(allocation.release(&final_totals).dests, [4]);
    assert_eq!(former(&allocation, &two), before);

    // Without GUE there is no second hop.
    let plain = desired_in_group(&SERVERS);
    reconcile(&mut allocation, &plain, Cursor::default());
    assert_eq!(former(&allocation, &plain), []);
    assert_eq!(allocation.release(&final_totals).dests.len(), 0);
}

/// Returns the configuration with the servers of a different version.
fn with_other(desired: &Desired, servers: &[(&str, u32)], replaces: bool) -> Desired {
    let mut desired = desired.clone();
    assert!(desired.set_other_version(&with_gue(servers), replaces));
    desired
}

fn addresses(table: Vec<IpAddr>) -> Vec<Option<IpAddr>> {
    table.into_iter().map(Some).collect()
}

/// While another director uses the next version, a director that waits sends packets of unknown connections to the
/// server of the next version.
#[test]
fn second_hop_uses_the_table_of_the_staged_version() {
    let (three, four) = (with_gue(&SERVERS[..3]), with_gue(&SERVERS));
    let (mut allocation, _) = plan_all(&three);
    let (next_allocation, _) = plan_all(&four);
    let next = addresses(table(&next_allocation, &four));
    let before = addresses(table(&allocation, &three));
    let staged = with_other(&three, &SERVERS, true);
    reconcile(&mut allocation, &staged, Cursor::default());
    assert_eq!(former(&allocation, &staged), next);
    assert_eq!(addresses(table(&allocation, &staged)), before);
    let rows = rows_of(&staged, &allocation, &NetworkState::default());
    assert_eq!(rows.dests[&4].tunnel, rows.dests[&1].tunnel);
    assert_eq!(rows.dests[&4].flags & DEST_USABLE, 0);
    assert_eq!(rows.removed_flags, [].into());
    let final_totals = |_: &DestSlot| Some(Totals::default());
    assert_eq!(allocation.release(&final_totals), FreedRows::default());
    // Check results change nothing.
    set_down(&mut allocation, &staged, &["10.0.0.1"]);
    set_down(&mut allocation, &staged, &[]);
    assert_eq!(former(&allocation, &staged), next);

    // The row of the new server stays the same when this director activates the version.
    reconcile(&mut allocation, &four, Cursor::default());
    assert_eq!(former(&allocation, &four), before);
    assert_eq!(addresses(table(&allocation, &four)), next);
    let rows = rows_of(&four, &allocation, &NetworkState::default());
    assert_eq!(rows.dests[&4].flags & DEST_USABLE, DEST_USABLE);
    assert!(
        !allocation.services["one"]
            .dests
            .iter()
            .any(|dest| dest.staged)
    );
}

#[test]
fn table_of_a_stopped_version_remains_until_the_next_version() {
    let three = with_gue(&SERVERS[..3]);
    let (mut allocation, _) = plan_all(&three);
    let staged = with_other(&three, &SERVERS, true);
    reconcile(&mut allocation, &staged, Cursor::default());
    let next = former(&allocation, &staged);
    reconcile(&mut allocation, &three, Cursor::default());
    let final_totals = |_: &DestSlot| Some(Totals::default());
    assert_eq!(allocation.release(&final_totals), FreedRows::default());
    assert_eq!(former(&allocation, &three), next);

    let staged = with_other(&three, &SERVERS[..2], true);
    reconcile(&mut allocation, &staged, Cursor::default());
    assert_eq!(allocation.release(&final_totals).dests, [4]);
    assert!(former(&allocation, &staged).iter().all(Option::is_some));
}

/// An operator drains a server after the previous version, or one whose rollout was stopped, was staged. Connections of
/// the drained server that move to this director need the table before the override.
#[test]
fn second_hop_uses_the_table_before_an_override_that_follows_staging() {
    let three = with_gue(&SERVERS[..3]);
    for other in [&SERVERS[..2], &SERVERS[..]] {
        let (mut allocation, _) = plan_all(&three);
        let before = addresses(table(&allocation, &three));
        let staged = with_other(&three, other, true);
        reconcile(&mut allocation, &staged, Cursor::default());
        assert_ne!(former(&allocation, &staged), before);
        // The override applies to both versions.
        let drain = |desired: &Desired| {
            let mut desired = desired.clone();
            for server in &mut desired.pools[0].servers {
                if server.name == "10.0.0.1" {
                    server.weight = 0;
                }
            }
            desired
        };
        let drained = drain(&staged);
        for _ in 0..2 {
            reconcile(&mut allocation, &drained, Cursor::default());
            assert_eq!(former(&allocation, &drained), before);
            let final_totals = |_: &DestSlot| Some(Totals::default());
            assert_eq!(allocation.release(&final_totals), FreedRows::default());
        }
    }
}

/// A director that has just started does not have the table from before the last change.
#[test]
fn previous_version_is_used_if_the_table_before_the_last_change_is_unknown() {
    let (three, four) = (with_gue(&SERVERS[..3]), with_gue(&SERVERS));
    let (previous, _) = plan_all(&three);
    let before = addresses(table(&previous, &three));
    let (mut allocation, _) = plan_all(&four);
    assert_eq!(former(&allocation, &four), []);
    let staged = with_other(&four, &SERVERS[..3], false);
    reconcile(&mut allocation, &staged, Cursor::default());
    assert_eq!(former(&allocation, &staged), before);

    let staged = with_other(&four, &SERVERS[..2], false);
    reconcile(&mut allocation, &staged, Cursor::default());
    assert_eq!(former(&allocation, &staged), before);
}

#[test]
fn staged_servers_without_free_rows_have_no_second_hop() {
    let three = with_gue(&SERVERS[..3]);
    let (mut allocation, _) = plan_all(&three);
    let many: Vec<String> = (0..DEST_ROWS).map(|n| format!("10.0.1.{n}")).collect();
    let many: Vec<(&str, u32)> = many.iter().map(|name| (name.as_str(), 1)).collect();
    let staged = with_other(&three, &many, true);
    reconcile(&mut allocation, &staged, Cursor::default());
    let second_hops = former(&allocation, &staged);
    assert!(second_hops.iter().any(Option::is_some) && second_hops.contains(&None));
}

/// Returns the servers of the only service.
fn dests(allocation: &Allocation) -> &[DestSlot] {
    &allocation.services["one"].dests
}

#[test]
fn staged_server_has_a_row_without_weight_after_the_rows_of_the_servers() {
    let three = with_gue(&SERVERS[..3]);
    let (mut allocation, _) = plan_all(&three);
    // A server of weight 0 has no entry in the table of the other version.
    let other_servers = [&SERVERS[..], &[("10.0.0.5", 0)]].concat();
    let staged = with_other(&three, &other_servers, true);
    reconcile(&mut allocation, &staged, Cursor::default());
    let [.., third, fourth] = dests(&allocation) else {
        panic!("{:?}", dests(&allocation));
    };
    assert_eq!((third.address, third.seq), (ip("10.0.0.3"), 3));
    let expected = DestSlot {
        id: 4,
        generation: fourth.generation,
        name: "10.0.0.4".to_owned(),
        address: ip("10.0.0.4"),
        seq: 4,
        weight: 3,
        effective: 0,
        base: 0,
        last_weight: 3,
        removed: Some(Removal::Keep),
        staged: true,
        since_ms: 1,
        ..dest_slot()
    };
    assert_eq!(*fourth, expected);
    assert!(fourth.generation > third.generation);
    let indexed = Indexed::from(staged.clone());
    let staged_names = dests(&allocation).iter().map(|dest| {
        let server = staged_server(&indexed, &staged.services[0], dest)?;
        Some(server.name.as_str())
    });
    let staged_names: Vec<_> = staged_names.collect();
    assert_eq!(staged_names, [None, None, None, Some("10.0.0.4")]);
    assert_eq!(allocation.services["one"].last_seq, 4);
}

/// The weights depend on overrides, which apply to the servers of both versions. The sorry server has no entries in the
/// table of the other version.
#[test]
fn weights_of_the_other_version_are_those_of_a_pool_with_only_its_servers() {
    let mut three = with_gue(&SERVERS[..3]);
    three.pools[0].sorry = Some(server("10.0.0.9", 1));
    let staged = with_other(&three, &SERVERS, true);
    let requested = std::cell::RefCell::new(Vec::new());
    let weights = |_: &str, pool: &Pool| {
        requested.borrow_mut().push(pool.clone());
        PoolWeights::from_config(pool)
    };
    let allocation_input = AllocationInput {
        service_rows: 16,
        dest_rows: DEST_ROWS,
        now_ms: 1,
        cursor: &|_| Cursor::default(),
        weights: &weights,
    };
    Allocation::default()
        .reconcile(&Indexed::from(staged.clone()), ["one"], &allocation_input)
        .unwrap();
    let other_pool = Pool {
        servers: SERVERS.map(|(name, weight)| server(name, weight)).to_vec(),
        other_version: None,
        sorry: None,
        ..staged.pools[0].clone()
    };
    assert_eq!(*requested.borrow(), [staged.pools[0].clone(), other_pool]);
}

/// Flows for which two versions select different servers are sent to the other directors, which insert them. The data
/// plane does not need the other table.
#[test]
fn synchronized_service_has_the_rows_and_table_of_the_staged_version() {
    let with_sync = |servers: &[(&str, u32)]| Desired {
        sync: Some(FlowSync {
            listen: "10.0.0.1:8482".parse().unwrap(),
            peers: Vec::new(),
            key: Secret::new(SecretSource::Text, Vec::new()),
        }),
        ..desired_in_group(servers)
    };
    let (three, four) = (with_sync(&SERVERS[..3]), with_sync(&SERVERS));
    let (mut allocation, _) = plan_all(&three);
    let (next_allocation, _) = plan_all(&four);
    let next = addresses(table(&next_allocation, &four));
    let mut staged = three.clone();
    assert!(staged.set_other_version(&four, true));
    reconcile(&mut allocation, &staged, Cursor::default());
    assert_eq!(former(&allocation, &staged), next);
    let rows = rows_of(&staged, &allocation, &NetworkState::default());
    assert_eq!(rows.dests[&4].addr.to_ip(), ip("10.0.0.4"));
    assert_eq!(rows.dests[&4].flags & DEST_USABLE, 0);
    let tables = &rows.services[&1].tables;
    let (header, _) = tables.header(100);
    assert_eq!((header.former_at, header.former_len), (0, 0));
    assert_eq!(tables.image(100).len(), tables.elements() as usize);
    let final_totals = |_: &DestSlot| Some(Totals::default());
    assert_eq!(allocation.release(&final_totals), FreedRows::default());
}

#[test]
fn header_refers_to_the_former_table() {
    let (mut allocation, _) = plan_all(&with_gue(&SERVERS[..3]));
    let desired = with_gue(&SERVERS);
    reconcile(&mut allocation, &desired, Cursor::default());
    let rows = rows_of(&desired, &allocation, &NetworkState::default());
    let tables = &rows.services[&1].tables;
    let (header, [.., spread_at]) = tables.header(100);
    let (spread, former) = (tables.spread().len() as u32, tables.former().len() as u32);
    assert_eq!((spread, former), (509, 509));
    assert_eq!(header.former_at, spread_at + spread.div_ceil(4));
    assert_eq!(header.former_len, former);
    let end = header.former_at + former.div_ceil(4);
    let image = tables.image(100);
    assert_eq!((end - 100) as usize, image.len());
    assert_eq!(tables.elements(), image.len() as u32);
    let first = image[(header.former_at - 100) as usize].word;
    assert_eq!(first, tables.former()[..4]);
}
