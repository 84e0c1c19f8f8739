//! Tests how changes to the configuration, the weights and the network state affect rows.

use weir_abi::{
    DEST_RESCHEDULE, POLICY_DOWN, POLICY_PERSISTENT, SERVICE_DROP_NO_SERVER, SERVICE_STRICT,
    SETTINGS_DROP_ENTRY, SETTINGS_LEARN_CLIENTS, SETTINGS_LOCAL_NAT, SETTINGS_SYNC,
    SETTINGS_UNFINISHED, TUNNEL_CSUM, TUNNEL_REMCSUM,
};
use weir_model::{Family, Mark, NoServer, Tunnel, TunnelChecksum};

use super::*;
use crate::allocation::{PreviousAllocation, Removal, ServerWeight, configured_server};
use crate::mark::{self, Pair};
use crate::row_set::Changes;

/// Reconciles the service `one` at `now_ms` with these server weights.
fn set_weights(
    allocation: &mut Allocation,
    desired: &Desired,
    servers: &[ServerWeight],
    now_ms: u64,
) -> crate::Result<PreviousAllocation> {
    let weights = |_: &str, _: &Pool| PoolWeights {
        servers: servers.to_vec(),
        sorry: 0,
    };
    let allocation_input = AllocationInput {
        service_rows: 16,
        dest_rows: DEST_ROWS,
        now_ms,
        cursor: &|_| Cursor::default(),
        weights: &weights,
    };
    let desired = Indexed::from(desired.clone());
    let names = allocation.service_names(&desired);
    allocation.reconcile(
        &desired,
        names.iter().map(String::as_str),
        &allocation_input,
    )
}

const fn weight(effective: u32) -> ServerWeight {
    ServerWeight {
        effective,
        base: effective,
        removed: false,
        quiesced: false,
        down: false,
    }
}

/// Returns a configuration with the services `one` and `two`, which use the same pool.
fn two_services() -> Desired {
    let mut configuration = desired(SchedulerKind::Wlc, &[("10.0.0.1", 1), ("10.0.0.2", 1)]);
    let mut second = Service::new("two", Forward::Nat, "pool");
    second.listen.push(listener(Ports::One(81)));
    configuration.services.push(second);
    configuration
}

#[test]
fn changed_weight_keeps_row_and_last_weight() {
    let mut configuration = desired(SchedulerKind::Mh, &[("10.0.0.1", 4), ("10.0.0.2", 2)]);
    configuration.pools[0].on_remove = OnRemove::Reschedule;
    let (mut allocation, _) = plan_all(&configuration);
    let down = ServerWeight {
        removed: true,
        down: true,
        ..weight(0)
    };
    let first = |allocation: &Allocation| allocation.services["one"].dests[0].clone();
    // For each weight of the first server: expected effective and last weight, start of the state, and effect of a
    // failure on its flows.
    for (now_ms, weight_of_first, expected) in [
        (5, weight(4), (4, 4, 1, None)),
        (6, weight(8), (8, 8, 6, None)),
        (7, weight(0), (0, 8, 7, None)),
        (8, down, (0, 8, 8, Some(Removal::Reschedule))),
        (9, down, (0, 8, 8, Some(Removal::Reschedule))),
        (10, weight(3), (3, 3, 10, None)),
    ] {
        set_weights(
            &mut allocation,
            &configuration,
            &[weight_of_first, weight(2)],
            now_ms,
        )
        .unwrap();
        let dest = first(&allocation);
        let actual = (dest.effective, dest.last_weight, dest.since_ms, dest.failed);
        assert_eq!(actual, expected, "at {now_ms}");
        assert_eq!((dest.id, dest.seq, dest.weight), (1, 1, 4), "at {now_ms}");
    }
}

/// A removed server keeps its row while it has flows.
#[test]
fn server_that_is_added_again_has_its_new_settings() {
    let configuration = |name: &str, weight| {
        let mut configuration = desired(SchedulerKind::Wlc, &[("10.0.0.1", weight)]);
        configuration.pools[0].servers[0].name = name.to_owned();
        configuration.pools[0].on_remove = OnRemove::Reset;
        configuration
    };
    let mut allocation = Allocation::default();
    let old = configuration("old", 4);
    set_weights(&mut allocation, &old, &[weight(4)], 1).unwrap();
    let mut without = old;
    without.pools[0].servers.clear();
    set_weights(&mut allocation, &without, &[], 2).unwrap();
    let dest = &allocation.services["one"].dests[0];
    assert_eq!((dest.removed, dest.effective), (Some(Removal::Reset), 0));
    let new_weight = ServerWeight {
        effective: 6,
        base: 7,
        removed: true,
        quiesced: true,
        down: true,
    };
    set_weights(&mut allocation, &configuration("new", 5), &[new_weight], 3).unwrap();
    let expected = DestSlot {
        // The service has generation 1. The row does not get a new owner.
        generation: 2,
        name: "new".to_owned(),
        seq: 2,
        weight: 5,
        effective: 6,
        base: 7,
        quiesced: true,
        down: true,
        last_weight: 6,
        failed: Some(Removal::Reset),
        since_ms: 3,
        ..dest_slot()
    };
    assert_eq!(allocation.services["one"].dests, [expected]);
}

#[test]
fn server_row_shows_why_a_server_gets_no_new_flow() {
    let configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1), ("10.0.0.2", 1)]);
    let failed = |on_remove| {
        let mut configuration = configuration.clone();
        configuration.pools[0].on_remove = on_remove;
        configuration
    };
    let quiesced = ServerWeight {
        quiesced: true,
        ..weight(0)
    };
    let down = ServerWeight {
        down: true,
        ..weight(0)
    };
    let removed = ServerWeight {
        removed: true,
        ..down
    };
    for (configuration, weight_of_first, flags, policy) in [
        (
            configuration.clone(),
            weight(1),
            DEST_USABLE,
            POLICY_PERSISTENT,
        ),
        (configuration.clone(), weight(0), 0, 0),
        (configuration.clone(), quiesced, 0, POLICY_PERSISTENT),
        (configuration.clone(), down, 0, POLICY_DOWN),
        (failed(OnRemove::Keep), removed, 0, POLICY_DOWN),
        (failed(OnRemove::Reset), removed, DEST_RESET, POLICY_DOWN),
        (
            failed(OnRemove::Reschedule),
            removed,
            DEST_RESCHEDULE,
            POLICY_DOWN,
        ),
    ] {
        let mut allocation = Allocation::default();
        set_weights(
            &mut allocation,
            &configuration,
            &[weight_of_first, weight(1)],
            1,
        )
        .unwrap();
        let rows = rows_of(&configuration, &allocation, &NetworkState::default());
        let row = &rows.dests[&1];
        assert_eq!(
            (row.flags, row.policy),
            (DEST_LIVE | flags, policy),
            "{weight_of_first:?}"
        );
    }
}

#[test]
fn changed_scheduler_starts_its_walk_with_a_new_generation() {
    let servers = [("10.0.0.1", 4), ("10.0.0.2", 2)];
    let (mut allocation, _) = plan_all(&desired(SchedulerKind::Rr, &servers));
    let mut before = allocation.services["one"].start.generation;
    for kind in [SchedulerKind::Wrr, SchedulerKind::Lc, SchedulerKind::Rr] {
        reconcile(&mut allocation, &desired(kind, &servers), Cursor::default());
        let slot = &allocation.services["one"];
        assert_eq!(slot.scheduler, kind.as_str());
        assert_ne!(slot.start.generation, before, "{kind}");
        if kind == SchedulerKind::Wrr {
            // The value is as in ip_vs_wrr.c: the highest weight minus the divisor, plus one.
            assert_eq!((slot.start.max_weight, slot.start.step), (3, 2));
        }
        before = slot.start.generation;
    }
}

#[test]
fn failed_reconciliation_changes_nothing() {
    let mut configuration = two_services();
    let (mut allocation, _) = plan_all(&configuration);
    let before = allocation.clone();
    configuration.pools[0].servers.remove(0);
    configuration.services[1].pool = "other".to_owned();
    let error = set_weights(&mut allocation, &configuration, &[weight(7)], 9).unwrap_err();
    assert_eq!(
        error.to_string(),
        "service two uses pool other, which does not exist"
    );
    assert_eq!(allocation, before);

    let mut large_configuration = desired(SchedulerKind::Rr, &[]);
    for number in 0..16 {
        large_configuration
            .services
            .push(Service::new(format!("s{number}"), Forward::Nat, "pool"));
    }
    let error = set_weights(&mut Allocation::default(), &large_configuration, &[], 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "more than 15 services: raise max_services in [node]"
    );
}

#[test]
fn restore_undoes_reconcile() {
    let one_service = desired(SchedulerKind::Wlc, &[("10.0.0.1", 1), ("10.0.0.2", 1)]);
    let mut strict = two_services();
    for service in &mut strict.services {
        service.strict_ipvs = true;
    }
    // Two configurations, whether the shared counters change, and the services that change.
    let cases = [
        (&one_service, &one_service, false, &[][..]),
        (&one_service, &two_services(), true, &["one", "two"]),
        (&two_services(), &strict, true, &["one", "two"]),
        (&two_services(), &two_services(), false, &[]),
    ];
    for (old, new, sharing_changed, names) in cases {
        let (mut allocation, _) = plan_all(old);
        let before = allocation.clone();
        let previous = set_weights(&mut allocation, new, &[weight(1), weight(1)], 2).unwrap();
        assert_eq!(previous.sharing_changed(), sharing_changed);
        assert_eq!(previous.changed(&allocation).collect::<Vec<_>>(), names);
        allocation.restore(previous);
        assert_eq!(allocation, before);
    }
}

#[test]
fn shared_counter_rows_are_freed_when_no_server_uses_them() {
    let (mut allocation, _) = plan_all(&two_services());
    let shared = |allocation: &Allocation| allocation.shared.keys().cloned().collect::<Vec<_>>();
    let both = ["pool 10.0.0.1 0", "pool 10.0.0.2 0"];
    assert_eq!(shared(&allocation), both);
    // One service remains, and the shared rows count its existing flows.
    let mut one_service = two_services();
    one_service.services.pop();
    let weights = [weight(1), weight(1)];
    let previous = set_weights(&mut allocation, &one_service, &weights, 2).unwrap();
    assert!(!previous.sharing_changed());
    let totals = |_: &crate::allocation::DestSlot| Some(Totals::default());
    assert!(
        !allocation.release(&totals).sharing_changed,
        "one service still uses them"
    );
    assert_eq!(shared(&allocation), both);
    one_service.pools[0].servers.pop();
    set_weights(&mut allocation, &one_service, &weights[..1], 3).unwrap();
    let released = allocation.release(&totals);
    assert!(released.sharing_changed);
    assert_eq!(released.addresses, [ip("10.0.0.2")].into());
    assert_eq!(released.changed_services, ["one"]);
    assert_eq!(shared(&allocation), both[..1]);
    one_service.services[0].strict_ipvs = true;
    let previous = set_weights(&mut allocation, &one_service, &weights[..1], 4).unwrap();
    assert!(previous.sharing_changed());
    assert_eq!(shared(&allocation), [""; 0]);
}

#[test]
fn rows_are_found_by_address() {
    let (mut allocation, _) = plan_all(&two_services());
    let addresses = |allocation: &Allocation| allocation.addresses().collect::<Vec<_>>();
    assert_eq!(addresses(&allocation), [ip("10.0.0.1"), ip("10.0.0.2")]);
    assert_eq!(allocation.rows_at(ip("10.0.0.1")), [1, 3]);
    assert_eq!(allocation.rows_at(ip("10.0.0.3")), [0_u32; 0]);
    let mut one_service = two_services();
    one_service.pools[0].servers.remove(0);
    set_weights(&mut allocation, &one_service, &[weight(1)], 2).unwrap();
    assert_eq!(
        allocation.rows_at(ip("10.0.0.1")),
        [1, 3],
        "flows may remain"
    );
    // The flows of one row end first.
    allocation.release(&|dest| (dest.id == 1).then(Totals::default));
    assert_eq!(allocation.rows_at(ip("10.0.0.1")), [3]);
    allocation.release(&|_| Some(Totals::default()));
    assert_eq!(allocation.rows_at(ip("10.0.0.1")), [0_u32; 0]);
    assert_eq!(addresses(&allocation), [ip("10.0.0.2")]);
    // The freed rows are assigned again.
    set_weights(&mut allocation, &two_services(), &[weight(1), weight(1)], 3).unwrap();
    let mut rows = allocation.rows_at(ip("10.0.0.1")).to_vec();
    rows.sort_unstable();
    assert_eq!(rows, [1, 3]);
}

#[test]
fn service_without_servers_keeps_its_row_until_it_is_removed() {
    let one_server = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    let (mut allocation, _) = plan_all(&one_server);
    let empty_configuration = desired(SchedulerKind::Rr, &[]);
    set_weights(&mut allocation, &empty_configuration, &[], 2).unwrap();
    let ended = |_: &crate::allocation::DestSlot| Some(Totals::default());
    let released = allocation.release(&ended);
    assert_eq!(released.dests, [1]);
    assert_eq!(released.services, [0_u32; 0]);
    assert!(allocation.services["one"].dests.is_empty());
    set_weights(&mut allocation, &Desired::default(), &[], 3).unwrap();
    assert_eq!(allocation.release(&ended).services, [1]);
    assert!(allocation.services.is_empty());
}

#[test]
fn configured_weight_0_quiesces_a_server() {
    let configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 0), ("10.0.0.2", 3)]);
    let weights = PoolWeights::from_config(&configuration.pools[0]);
    let quiesced = ServerWeight {
        quiesced: true,
        ..weight(0)
    };
    assert_eq!(weights.servers, [quiesced, weight(3)]);
}

#[test]
fn shared_counter_rows_follow_the_server_rows() {
    let (allocation, rows) = plan_all(&two_services());
    for (index, row) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        assert_eq!(rows.dests[&index].live, DEST_ROWS + row, "{index}");
    }
    let shared: Vec<u32> = allocation.shared.values().copied().collect();
    assert_eq!(shared, [0, 1]);
}

/// A sorry server may have the address of a server.
#[test]
fn configured_server_has_the_address_port_and_role_of_the_row() {
    let names = ["10.0.0.1", "10.0.0.2"];
    let mut configuration = desired(SchedulerKind::Rr, &names.map(|name| (name, 1)));
    configuration.pools[0].sorry = Some(Server {
        name: "sorry".to_owned(),
        ..server("10.0.0.1", 1)
    });
    let (allocation, _) = plan_all(&configuration);
    let configured_names = |configuration: &Desired| {
        let indexed = Indexed::from(configuration.clone());
        let dests = allocation.services["one"].dests.iter();
        let servers = dests.map(|dest| {
            let server = configured_server(&indexed, &configuration.services[0], dest)?;
            Some(server.name.clone())
        });
        servers.collect::<Vec<_>>()
    };
    let actual = configured_names(&configuration);
    let actual: Vec<_> = actual.iter().map(Option::as_deref).collect();
    assert_eq!(actual, [Some(names[0]), Some(names[1]), Some("sorry")]);
    configuration.pools[0].servers[0].port = Some(8080);
    configuration.pools[0].servers.remove(1);
    configuration.pools[0].sorry = None;
    assert_eq!(configured_names(&configuration), [None, None, None]);
}

#[test]
fn marks_become_listeners_of_their_family() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    configuration.services[0].listen.clear();
    let mark = |number: u32, family| Mark {
        mark: number.try_into().unwrap(),
        family,
    };
    configuration.services[0].marks = vec![mark(7, Family::V4), mark(7, Family::V6)];
    let (allocation, rows) = plan_all(&configuration);
    assert_eq!(allocation.marks(), [(false, 7), (true, 7)].into());
    assert_eq!(
        rows.listeners,
        [((ip("::7"), 4, 0), 1), ((ip("::7"), 6, 0), 1)].into()
    );
    assert_eq!(mark::key(&mark(9, Family::V6)), (true, 9));
    let network = NetworkState {
        mark_devices: Some(Pair { entry: 5, exit: 6 }),
        ..NetworkState::default()
    };
    let settings = rows_of(&configuration, &allocation, &network).settings;
    assert_eq!((settings.mark_entry, settings.mark_exit), (5, 6));
    assert_eq!((rows.settings.mark_entry, rows.settings.mark_exit), (0, 0));
}

#[test]
fn settings_depend_on_network_state() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    configuration.ipvs.drop_entry = 1;
    let (allocation, plain) = plan_all(&configuration);
    let network = NetworkState::default;
    let cases = [
        (
            NetworkState {
                local_addresses: [ip("10.0.0.1")].into(),
                ..network()
            },
            SETTINGS_LOCAL_NAT,
        ),
        (
            NetworkState {
                learn_clients: true,
                ..network()
            },
            SETTINGS_LEARN_CLIENTS,
        ),
        (
            NetworkState {
                xdp_receives_partial_checksums: true,
                ..network()
            },
            SETTINGS_UNFINISHED,
        ),
        (
            NetworkState {
                memory_is_low: true,
                ..network()
            },
            SETTINGS_DROP_ENTRY,
        ),
    ];
    for (network, flag) in cases {
        assert_eq!(plain.settings.flags & flag, 0);
        let settings = rows_of(&configuration, &allocation, &network).settings;
        assert_eq!(settings.flags, plain.settings.flags | flag);
    }
}

/// These values are not part of the configuration.
#[test]
fn replan_keeps_the_synchronization_flag_and_the_share_of_sampled_flows() {
    let configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    let (allocation, mut rows) = plan_all(&configuration);
    let indexed = Indexed::from(configuration);
    for (flag, latency_sample) in [(0, 0), (SETTINGS_SYNC, 7), (0, 7)] {
        let mut expected = rows.settings;
        expected.flags = expected.flags & !SETTINGS_SYNC | flag;
        expected.latency_sample = latency_sample;
        rows.settings = expected;
        let network = NetworkState::default();
        rows.replan(&indexed, &allocation, &network, DEST_ROWS, ["one"])
            .unwrap();
        assert_eq!(rows.settings, expected);
    }
}

#[test]
fn service_row_has_the_flags_of_the_service() {
    let configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    let row = |change: &dyn Fn(&mut Desired)| {
        let mut configuration = configuration.clone();
        change(&mut configuration);
        let (_, mut rows) = plan_all(&configuration);
        (rows.services.remove(&1).unwrap(), rows.dests[&1])
    };
    let flags = |change: &dyn Fn(&mut Desired)| row(change).0.flags;
    assert_eq!(
        flags(&|desired| desired.pools[0].no_server = NoServer::Reject),
        0
    );
    assert_eq!(
        flags(&|desired| desired.pools[0].no_server = NoServer::Drop),
        SERVICE_DROP_NO_SERVER
    );
    let base = flags(&|_| ());
    assert_eq!(
        flags(&|desired| desired.services[0].strict_ipvs = true),
        base | SERVICE_STRICT
    );
    for (forward, dscp) in [(Forward::L3dsr, 12), (Forward::Direct, 0)] {
        let (service, dest) = row(&|desired| {
            desired.services[0].forward = forward;
            desired.services[0].dscp = 12;
        });
        assert_eq!((service.dscp, dest.dscp), (dscp, dscp), "{forward}");
    }
    for (checksum, flags) in [
        (TunnelChecksum::None, 0),
        (TunnelChecksum::Full, TUNNEL_CSUM),
        (TunnelChecksum::Remote, TUNNEL_REMCSUM),
    ] {
        let (_, dest) = row(&|desired| {
            desired.services[0].forward = Forward::Tunnel;
            desired.services[0].tunnel = Tunnel {
                checksum,
                ..Tunnel::default()
            };
        });
        assert_eq!(dest.tunnel_flags, flags, "{checksum:?}");
    }
}

#[test]
fn removed_listener_frees_its_address() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    let any = listener(Ports::Any);
    configuration.services[0].listen = vec![any];
    let (mut allocation, mut rows) = plan_all(&configuration);
    assert_eq!(rows.vips[&any.address].any_tcp, 1);
    assert!(rows.filter.may_be_destination(any.address.into()));
    configuration.services.clear();
    set_weights(&mut allocation, &configuration, &[], 2).unwrap();
    allocation.release(&|_| Some(Totals::default()));
    let indexed = Indexed::from(configuration);
    let network = NetworkState::default();
    let changes = rows
        .replan(&indexed, &allocation, &network, DEST_ROWS, ["one"])
        .unwrap();
    assert_eq!(
        (changes.services, changes.vips),
        ([1].into(), [any.address].into())
    );
    assert!(rows.vips.is_empty() && rows.dests.is_empty() && rows.services.is_empty());
    assert!(!rows.filter.may_be_destination(any.address.into()));
    assert!(!rows.filter.may_be_source(ip("10.0.0.1").into()));
}

#[test]
fn services_at_one_address_share_its_row_and_filter_bits() {
    let (mut allocation, mut rows) = plan_all(&two_services());
    let vip = ip("192.0.2.10");
    let mut configuration = two_services();
    configuration.services.pop();
    set_weights(&mut allocation, &configuration, &[weight(1), weight(1)], 2).unwrap();
    allocation.release(&|_| Some(Totals::default()));
    let indexed = Indexed::from(configuration);
    let network = NetworkState::default();
    rows.replan(&indexed, &allocation, &network, DEST_ROWS, ["two"])
        .unwrap();
    assert!(rows.filter.may_be_destination(vip.into()) && rows.vips.contains_key(&vip));
    assert!(rows.filter.may_be_source(ip("10.0.0.1").into()));
    assert_eq!(rows.listeners.keys().collect::<Vec<_>>(), [&(vip, 80, 6)]);
}

#[test]
fn row_of_an_address_has_the_default_services_and_ranges_of_all_its_services() {
    let mut configuration = two_services();
    let udp = Listener {
        protocol: Protocol::Udp,
        ..listener(Ports::Any)
    };
    let range = listener(Ports::Range(8000, 9000));
    let tcp = listener(Ports::Any);
    // Either service can have the lower row.
    for (first, second, defaults) in [
        ([tcp, range], [udp, range], (1, 2)),
        ([udp, range], [tcp, range], (2, 1)),
    ] {
        configuration.services[0].listen = first.into();
        configuration.services[1].listen = second.into();
        let (_, rows) = plan_all(&configuration);
        let vip = &rows.vips[&ip("192.0.2.10")];
        assert_eq!((vip.any_tcp, vip.any_udp), defaults);
        assert_eq!((vip.flags, vip.ranges.len()), (VIP_ECHO | VIP_RANGES, 2));
    }
}

#[test]
fn port_of_the_only_listener_applies_to_servers_without_a_port() {
    let mut configuration = desired(SchedulerKind::Mh, &[("10.0.0.1", 1)]);
    let (one, other) = (Ports::One(80), Ports::One(81));
    for (ports, expected) in [
        (&[one][..], 80),
        (&[one, other], 0),
        (&[Ports::Range(80, 81)], 0),
        (&[Ports::Any], 0),
        (&[], 0),
    ] {
        configuration.services[0].listen = ports.iter().map(|ports| listener(*ports)).collect();
        let indexed = Indexed::from(configuration.clone());
        let rule = crate::rows::rule(&indexed, &indexed.services[0], DEST_ROWS);
        assert_eq!(rule.port, expected, "{ports:?}");
    }
}

#[test]
fn snat_addresses_have_the_address_family_of_the_service() {
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1)]);
    let (v4, v6) = (ip("192.0.2.1"), ip("2001:db8::1"));
    configuration.services[0].snat = Some(Snat {
        addresses: vec![v4, v6],
        ..Snat::default()
    });
    for (vip, expected) in [("192.0.2.10", v4), ("2001:db8::10", v6)] {
        configuration.services[0].listen[0].address = ip(vip);
        let (_, rows) = plan_all(&configuration);
        assert_eq!(rows.services[&1].snat_addresses, [expected.into()]);
    }
}

/// Replies of the server's remaining flows still have one of the director's addresses as their source.
#[test]
fn removed_server_on_the_director_counts_as_local_until_its_row_is_freed() {
    let network = NetworkState {
        local_addresses: [ip("10.0.0.1")].into(),
        ..NetworkState::default()
    };
    let mut configuration = desired(SchedulerKind::Rr, &[("10.0.0.1", 1), ("10.0.0.2", 1)]);
    let (mut allocation, _) = plan_all(&configuration);
    configuration.pools[0].servers.remove(0);
    set_weights(&mut allocation, &configuration, &[weight(1)], 2).unwrap();
    let has_local_nat = |allocation: &Allocation| {
        rows_of(&configuration, allocation, &network).settings.flags & SETTINGS_LOCAL_NAT != 0
    };
    assert!(has_local_nat(&allocation));
    allocation.release(&|_| Some(Totals::default()));
    assert!(!has_local_nat(&allocation));
}

#[test]
fn extend_adds_changes_of_each_kind() {
    let mut changes = Changes::default();
    assert!(changes.is_empty());
    let parts = [
        Changes {
            services: [1].into(),
            ..Changes::default()
        },
        Changes {
            dests: [2].into(),
            ..Changes::default()
        },
        Changes {
            listeners: [(ip("192.0.2.1"), 80, 6)].into(),
            ..Changes::default()
        },
        Changes {
            vips: [ip("192.0.2.1")].into(),
            ..Changes::default()
        },
    ];
    for part in parts {
        assert!(!part.is_empty());
        changes.extend(part);
    }
    let counts = (
        changes.services.len(),
        changes.dests.len(),
        changes.listeners.len(),
        changes.vips.len(),
    );
    assert_eq!(counts, (1, 1, 1, 1));
}
