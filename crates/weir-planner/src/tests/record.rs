//! Tests the conversion of rows to their form in the maps.

use std::time::Duration;

use weir_abi::{
    Addr, Be16, Extent, RULE_FO, RULE_LC, RULE_SUM_ACTIVE, RULE_SUM_WEIGHT, Range,
    SERVICE_ONE_PACKET, SERVICE_SNAT, TEMPLATE_VIP, Vip, ticks_from,
};
use weir_model::{
    FlowSync, NoServer, Persistence, Secret, SecretSource, Tunnel, TunnelChecksum, TunnelKind,
};
use weir_sched::Counts;

use super::*;
use crate::rows::{ServiceRow, VipRow, listener_key};
use crate::scheduler::number;

fn plan(desired: &Desired) -> crate::Result<RowSet> {
    let mut allocation = Allocation::default();
    reconcile(&mut allocation, desired, Cursor::default());
    let desired = Indexed::from(desired.clone());
    Ok(rows(&desired, &allocation, &NetworkState::default(), DEST_ROWS)?.0)
}

/// Returns a configuration with servers from 10.0.0.1 upwards. Each server's weight is the last byte of its address.
fn desired_with(kind: SchedulerKind, count: u32) -> Desired {
    let names: Vec<String> = (1..=count).map(|last| format!("10.0.0.{last}")).collect();
    let servers: Vec<_> = names.iter().map(String::as_str).zip(1..).collect();
    desired(kind, &servers)
}

fn service_row(desired: &Desired) -> ServiceRow {
    plan(desired).unwrap().services.remove(&1).unwrap()
}

#[test]
fn long_list_has_tree_with_best_server_at_root() {
    let tables = service_row(&desired_with(SchedulerKind::Lc, 17)).tables;
    let counts = |row: u32| Counts {
        active: match row {
            5 => 0,
            9 => 1,
            _ => 10,
        },
        inactive: 0,
    };
    let position = |dest: u32| {
        let index = tables.list.iter().position(|row| row.dest == dest);
        index.unwrap() as u32
    };
    let nodes = tables.tree(&counts, &|_| false);
    assert_eq!((nodes.len(), nodes[0]), (32, RULE_LC));
    assert_eq!(nodes[1], position(5));
    let nodes = tables.tree(&counts, &|row| row == 5);
    assert_eq!(nodes[1], position(9), "an overloaded server is not chosen");
    let image_len = tables.image(1).len() as u32;
    assert_eq!(tables.elements(), image_len + 32 / 4);
}

#[test]
fn tree_of_weights_has_sum_of_available_servers_at_root() {
    let tables = service_row(&desired_with(SchedulerKind::Twos, 17)).tables;
    let nodes = |overloaded| tables.tree(&|_| Counts::default(), &|row| row == overloaded);
    let nodes_without_overload = nodes(0);
    assert_eq!(
        (nodes_without_overload[0], nodes_without_overload[1]),
        (RULE_SUM_WEIGHT, 17 * 18 / 2)
    );
    assert_eq!(nodes(17)[1], 16 * 17 / 2);
}

#[test]
fn short_list_and_hash_scheduler_have_no_tree() {
    for (kind, count) in [(SchedulerKind::Lc, 16), (SchedulerKind::Sh, 17)] {
        let tables = service_row(&desired_with(kind, count)).tables;
        let nodes = tables.tree(&|_| Counts::default(), &|_| false);
        assert!(nodes.is_empty(), "{kind} {count}");
        assert_eq!(tables.elements() as usize, tables.image(1).len());
    }
}

#[test]
fn bounded_hash_scheduler_has_tree_of_active_flows() {
    let mut configuration = desired_with(SchedulerKind::Sh, 17);
    if let Some(scheduler) = &mut configuration.pools[0].scheduler {
        scheduler.max_load_percent = Some(125);
    }
    let tables = service_row(&configuration).tables;
    let counts = |row: u32| Counts {
        active: row,
        inactive: 1000,
    };
    let nodes = tables.tree(&counts, &|_| false);
    assert_eq!((nodes[0], nodes[1]), (RULE_SUM_ACTIVE, 17 * 18 / 2));
    // Schedulers that walk the list in order search for the first server below its threshold.
    let walk = service_row(&desired_with(SchedulerKind::Rr, 17)).tables;
    assert_eq!(walk.tree(&counts, &|_| false)[0], RULE_FO);
}

#[test]
fn server_rows_have_positions_if_the_scheduler_needs_them() {
    use SchedulerKind::{Lblc, Lblcr, Lc, Maglev, Rr, Sh};
    for (kind, count, max_load, has_positions) in [
        (Lc, 16, None, false),
        // With a tree.
        (Lc, 17, None, true),
        (Rr, 17, None, true),
        (Sh, 17, None, false),
        (Maglev, 17, None, false),
        // With a load bound.
        (Sh, 2, Some(125), true),
        (Lblc, 2, None, true),
        (Lblcr, 2, None, true),
    ] {
        let mut configuration = desired_with(kind, count);
        if let Some(scheduler) = &mut configuration.pools[0].scheduler {
            scheduler.max_load_percent = max_load;
        }
        let rows = plan(&configuration).unwrap();
        let places: Vec<u32> = rows.dests.values().map(|dest| dest.place).collect();
        // The newest server is first in the list.
        let expected = (1..=count)
            .rev()
            .map(|place| if has_positions { place } else { 0 });
        assert_eq!(
            places,
            expected.collect::<Vec<_>>(),
            "{kind} {count} {max_load:?}"
        );
    }
}

#[test]
fn each_layer_4_scheduler_has_a_data_plane_number() {
    for kind in SchedulerKind::ALL {
        assert_eq!(number(kind).is_some(), kind.works_at_layer4(), "{kind}");
    }
    let error = plan(&desired_with(SchedulerKind::Hash, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "service one: scheduler hash is for proxy services only"
    );
}

#[test]
fn service_record_has_every_field_of_the_row() {
    let mut configuration = desired_with(SchedulerKind::Rr, 1);
    configuration.pools[0].no_server = NoServer::Reject;
    let service = &mut configuration.services[0];
    service.one_packet = true;
    // FTP: persistence applies to the address.
    service.listen[0].ports = Ports::One(21);
    service.snat = Some(Snat {
        addresses: vec![ip("192.0.2.1"), ip("192.0.2.2")],
        ports: (2000, 3000),
    });
    service.persistence = Some(Persistence {
        timeout: Duration::from_secs(60),
        netmask: 24,
        netmask6: 64,
    });
    let row = ServiceRow {
        dscp: 7,
        ..service_row(&configuration)
    };
    let expected = weir_abi::Service {
        flags: SERVICE_ONE_PACKET | SERVICE_SNAT,
        extent: 100,
        snat_at: 200,
        snat_len: 2,
        snat_port_first: 2000,
        snat_port_last: 3000,
        dscp: 7,
        generation: row.generation,
        template_ticks: ticks_from(Duration::from_secs(60)),
        template_prefix4: 24,
        template_prefix6: 64,
        template_scope: TEMPLATE_VIP,
        ..weir_abi::Service::ZERO
    };
    assert_ne!(expected.generation, 0);
    assert_eq!(row.to_record(100, 200), expected);
}

#[test]
fn directors_with_sync_have_different_source_ports() {
    let mut configuration = desired_with(SchedulerKind::Rr, 1);
    configuration.services[0].snat = Some(Snat {
        addresses: vec![ip("192.0.2.1")],
        ports: (2000, 2999),
    });
    assert_eq!(service_row(&configuration).snat_ports, (2000, 2999));
    let address = |last: u8| std::net::SocketAddr::from(([10, 0, 0, last], 8482));
    let mut ports = |last: u8, peer: u8| {
        configuration.sync = Some(FlowSync {
            listen: address(last),
            peers: vec![address(peer)],
            key: Secret::new(SecretSource::Text, Vec::new()),
        });
        service_row(&configuration).snat_ports
    };
    assert_eq!((ports(1, 2), ports(2, 1)), ((2000, 2499), (2500, 2999)));
}

#[test]
fn server_row_has_every_field() {
    let mut configuration = desired_with(SchedulerKind::Rr, 1);
    configuration.pools[0].servers[0].port = Some(8080);
    let service = &mut configuration.services[0];
    service.dscp = 9;
    service.tunnel = Tunnel {
        kind: TunnelKind::Gue,
        port: 5555,
        checksum: TunnelChecksum::Full,
    };
    let network = NetworkState {
        sources: [(ip("10.0.0.1"), ip("10.0.0.254"))].into(),
        ..NetworkState::default()
    };
    let row = |forward: Forward| {
        let mut configuration = configuration.clone();
        configuration.services[0].forward = forward;
        let mut allocation = Allocation::default();
        reconcile(&mut allocation, &configuration, Cursor::default());
        rows_of(&configuration, &allocation, &network).dests[&1]
    };
    for (forward, number, port, tunnel_source, dscp) in [
        (Forward::Nat, weir_abi::Forward::Nat, 8080, Addr::ZERO, 0),
        (Forward::Direct, weir_abi::Forward::Direct, 0, Addr::ZERO, 0),
        (
            Forward::Tunnel,
            weir_abi::Forward::Tunnel,
            0,
            ip("10.0.0.254").into(),
            0,
        ),
        (Forward::L3dsr, weir_abi::Forward::L3dsr, 0, Addr::ZERO, 9),
    ] {
        let actual = row(forward);
        let expected = weir_abi::Dest {
            addr: ip("10.0.0.1").into(),
            tunnel_source,
            service: 1,
            live: 1,
            port: Be16::new(port),
            forward: number as u8,
            flags: DEST_LIVE | DEST_USABLE,
            tunnel: weir_abi::Tunnel::Gue as u8,
            tunnel_flags: weir_abi::TUNNEL_CSUM,
            tunnel_port: Be16::new(5555),
            dscp,
            family: 4,
            generation: actual.generation,
            policy: weir_abi::POLICY_PERSISTENT,
            ..weir_abi::Dest::ZERO
        };
        assert_ne!(actual.generation, 0);
        assert_eq!(actual, expected, "{forward}");
    }
}

#[test]
fn header_has_every_field_of_the_tables() {
    for (kind, count, max_load, max_weight, gcd) in [
        (SchedulerKind::Lc, 17, None, 17, 1),
        (SchedulerKind::Wlc, 2, Some(125), 2, 1),
        (SchedulerKind::Maglev, 3, None, 3, 1),
        (SchedulerKind::Sh, 3, Some(150), 3, 1),
    ] {
        let mut configuration = desired_with(kind, count);
        if let Some(scheduler) = &mut configuration.pools[0].scheduler {
            scheduler.max_load_percent = max_load;
        }
        let (allocation, rows) = plan_all(&configuration);
        let start = allocation.services["one"].start;
        let tables = &rows.services[&1].tables;
        let (header, [list_at, hash_at, spread_at]) = tables.header(100);
        let (hash, spread) = (tables.hash().len() as u32, tables.spread().len() as u32);
        let is_maglev = kind == SchedulerKind::Maglev;
        let is_long = count > 16;
        let expected = Extent {
            scheduler: number(kind).unwrap() as u32,
            flags: header.flags,
            generation: start.generation,
            list_at,
            list_len: count,
            hash_at: if is_maglev { spread_at } else { hash_at },
            hash_len: if is_maglev { spread } else { hash },
            spread_at,
            spread_len: spread,
            max_weight,
            gcd,
            start_seq: start.last_seq,
            start_weight: start.pass_weight,
            max_load: max_load.unwrap_or(0),
            tree_at: if is_long {
                100 + tables.image(100).len() as u32
            } else {
                0
            },
            tree_width: if is_long { 32 } else { 0 },
            weight: u64::from(count * (count + 1) / 2),
            ..Extent::ZERO
        };
        assert!(spread > 0 && (hash > 0) == (kind == SchedulerKind::Sh));
        assert_eq!(header, expected, "{kind}");
    }
}

#[test]
fn walk_of_wrr_starts_at_the_stored_position() {
    let configuration = desired(SchedulerKind::Wrr, &[("10.0.0.1", 4), ("10.0.0.2", 2)]);
    let (mut allocation, _) = plan_all(&configuration);
    let slot = allocation.services.get_mut("one").unwrap();
    slot.start.generation = 77;
    slot.start.last_seq = 2;
    slot.start.pass_weight = 3;
    let rows = rows_of(&configuration, &allocation, &NetworkState::default());
    let (header, _) = rows.services[&1].tables.header(1);
    let stored_start = (header.generation, header.start_seq, header.start_weight);
    assert_eq!(stored_start, (77, 2, 3));
    assert_eq!((header.max_weight, header.gcd), (3, 2));
}

#[test]
fn range_row_has_protocol_and_service() {
    let mut configuration = desired_with(SchedulerKind::Rr, 1);
    let range = |protocol| Listener {
        protocol,
        ..listener(Ports::Range(8000, 9000))
    };
    configuration.services[0].listen = vec![range(Protocol::Udp), range(Protocol::Tcp)];
    let row = &plan(&configuration).unwrap().vips[&ip("192.0.2.10")];
    let expected = |proto| Range {
        first: 8000,
        last: 9000,
        proto,
        service: 1,
        ..Range::ZERO
    };
    assert_eq!(row.ranges, [expected(6), expected(17)]);
}

#[test]
fn settings_have_every_configured_value() {
    let mut configuration = desired_with(SchedulerKind::Rr, 1);
    let seconds = Duration::from_secs;
    configuration.timeouts.tcp = seconds(1000);
    configuration.timeouts.tcp_fin = seconds(200);
    configuration.timeouts.udp = seconds(30);
    configuration.node.syn_budget = 77;
    configuration.ipvs.lblc_expiration = seconds(4000);
    configuration.ipvs.lblcr_expiration = seconds(5000);
    let settings = crate::rows::settings(&Indexed::from(configuration));
    let timeouts = weir_flow::timeout::Timeouts {
        tcp: seconds(1000),
        tcp_fin: seconds(200),
        udp: seconds(30),
    };
    let expected = weir_abi::Settings {
        timeouts: timeouts.ticks(),
        syn_budget: 77,
        reject_budget: 1_000,
        flags: weir_abi::SETTINGS_REUSE,
        untracked_ticks: ticks_from(seconds(1000)),
        lblc_expiration: ticks_from(seconds(4000)),
        lblcr_expiration: ticks_from(seconds(5000)),
        ..weir_abi::Settings::ZERO
    };
    assert_eq!(settings, expected);
}

#[test]
fn vip_record_has_every_field_of_the_row() {
    let range = Range {
        first: 1,
        last: 2,
        proto: 6,
        service: 3,
        ..Range::ZERO
    };
    let row = VipRow {
        flags: VIP_ECHO | VIP_RANGES,
        any_tcp: 4,
        any_udp: 5,
        ranges: vec![range; 3],
    };
    let expected = Vip {
        flags: VIP_ECHO | VIP_RANGES,
        any_tcp: 4,
        any_udp: 5,
        ranges_at: 300,
        ranges_len: 3,
        ..Vip::ZERO
    };
    assert_eq!(row.to_record(300), expected);
}

#[test]
fn listener_key_has_address_port_and_protocol() {
    for address in [ip("192.0.2.10"), ip("2001:db8::10")] {
        let expected = weir_abi::Listener {
            addr: address.into(),
            port: Be16::new(443),
            proto: 17,
            ..weir_abi::Listener::ZERO
        };
        assert_eq!(listener_key((address, 443, 17)), expected);
    }
}
