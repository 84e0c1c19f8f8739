//! Rows in the form of the maps.

use std::time::Duration;

use weir_abi::{
    Be16, RULE_LC, RULE_SUM_WEIGHT, Range, SERVICE_ONE_PACKET, SERVICE_SNAT, TEMPLATE_PORT, Vip,
    ticks_from,
};
use weir_model::{NoServer, Persistence};
use weir_sched::Counts;

use super::*;
use crate::extent::number;
use crate::rows::{ServiceRow, VipRow, listener_key};

fn plan(desired: &Desired) -> crate::Result<RowSet> {
    let mut allocation = Allocation::default();
    reconcile(&mut allocation, desired, Cursor::default());
    let desired = Indexed::from(desired.clone());
    Ok(rows(&desired, &allocation, &Surroundings::default(), DEST_ROWS)?.0)
}

/// Servers 10.0.0.1 and so on, with their last byte as weight.
fn many(kind: SchedulerKind, count: u32) -> Desired {
    let names: Vec<String> = (1..=count).map(|last| format!("10.0.0.{last}")).collect();
    let servers: Vec<_> = names.iter().map(String::as_str).zip(1..).collect();
    desired(kind, &servers)
}

fn service_row(desired: &Desired) -> ServiceRow {
    plan(desired).unwrap().services.remove(&1).unwrap()
}

#[test]
fn long_list_has_tree_with_best_server_at_root() {
    let tables = service_row(&many(SchedulerKind::Lc, 17)).tables;
    let counts = |row: u32| Counts {
        active: match row {
            5 => 0,
            9 => 1,
            _ => 10,
        },
        inactive: 0,
    };
    let position = |dest: u32| {
        let found = tables.list.iter().position(|row| row.dest == dest);
        found.unwrap() as u32
    };
    let nodes = tables.tree(&counts, &|_| false);
    assert_eq!((nodes.len(), nodes[0]), (32, RULE_LC));
    assert_eq!(nodes[1], position(5));
    let nodes = tables.tree(&counts, &|row| row == 5);
    assert_eq!(nodes[1], position(9), "an overloaded server is not chosen");
    let run = tables.image(1).len() as u32;
    assert_eq!(tables.elements(), run + 32 / 4);
}

#[test]
fn tree_of_weights_has_sum_of_available_servers_at_root() {
    let tables = service_row(&many(SchedulerKind::Twos, 17)).tables;
    let nodes = |overloaded| tables.tree(&|_| Counts::default(), &|row| row == overloaded);
    let none = nodes(0);
    assert_eq!((none[0], none[1]), (RULE_SUM_WEIGHT, 17 * 18 / 2));
    assert_eq!(nodes(17)[1], 16 * 17 / 2);
}

#[test]
fn short_list_and_hash_scheduler_have_no_tree() {
    for (kind, count) in [(SchedulerKind::Lc, 16), (SchedulerKind::Sh, 17)] {
        let tables = service_row(&many(kind, count)).tables;
        let nodes = tables.tree(&|_| Counts::default(), &|_| false);
        assert!(nodes.is_empty(), "{kind} {count}");
        assert_eq!(tables.elements() as usize, tables.image(1).len());
    }
}

#[test]
fn data_plane_has_number_of_each_layer_4_scheduler() {
    for kind in SchedulerKind::ALL {
        assert_eq!(number(kind).is_some(), kind.is_built(), "{kind}");
    }
    let error = plan(&many(SchedulerKind::Hash, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "service one: scheduler hash is for proxy services only"
    );
}

#[test]
fn service_record_has_every_field_of_the_row() {
    let mut wanted = many(SchedulerKind::Rr, 1);
    wanted.pools[0].no_server = NoServer::Reject;
    let service = &mut wanted.services[0];
    service.one_packet = true;
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
        ..service_row(&wanted)
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
        template_scope: TEMPLATE_PORT,
        ..weir_abi::Service::ZERO
    };
    assert_ne!(expected.generation, 0);
    assert_eq!(row.record(100, 200), expected);
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
    assert_eq!(row.record(300), expected);
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
