//! Tests persistent clients while the flow table is resized: templates move like flows and remain valid.
//!
//! The templates' flow counts restart at 0, so they are not compared with the model.

use weir_abi::{Forward, KIND_TEMPLATE, TEMPLATE_PORT};
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, Xdp, sizes};
use crate::consistency::assert_invariants;
use crate::wire::{ACK, SYN, Shape, at};

const VIP: &str = "192.0.2.10";
const SMALL: u32 = 7 * 64;
const LARGE: u32 = 7 * 1024;

fn server_of(bench: &mut Bench, client: u8, port: u16, flags: weir_wire::TcpFlags) -> u32 {
    let client = format!("198.51.100.{client}");
    let outcome = bench.send(&Shape::tcp(flags).arriving(at(&client, port), at(VIP, 80)));
    assert_eq!(outcome.verdict, Xdp::Tx, "{outcome:?}");
    outcome.frame[5].into()
}

fn count_templates(bench: &Bench) -> usize {
    let flows = bench.plane.maps().flows.walk();
    flows
        .filter(|flow| flow.meta().kind == KIND_TEMPLATE)
        .count()
}

fn check_templates_after_resize(old_flows: u32, new_flows: u32) {
    let Some(mut bench) = Bench::with_flows(old_flows) else {
        return;
    };
    let servers = [1, 2, 3].map(|last| NewServer::new(Forward::Direct, &format!("10.0.0.{last}")));
    let (service, _) = bench.serve(Kind::Rr, (VIP, 80), &servers);
    bench.change_service_row(service, |row| {
        (row.template_ticks, row.template_scope) = (1_000_000, TEMPLATE_PORT);
        (row.template_prefix4, row.template_prefix6) = (32, 128);
    });
    bench.plane.activate().unwrap();
    let clients = 1..=30;
    let chosen: Vec<u32> = clients
        .clone()
        .map(|client| server_of(&mut bench, client, 1000, SYN))
        .collect();
    bench.reopen(sizes(new_flows));
    bench.plane.activate().unwrap();
    // The programs search both tables for old flows, and for new flows of clients with a template.
    for (client, server) in clients.clone().zip(&chosen) {
        assert_eq!(server_of(&mut bench, client, 1000, ACK), *server);
        assert_eq!(server_of(&mut bench, client, 1001, SYN), *server);
    }
    bench.plane.migrate_flows().unwrap();
    assert_eq!(count_templates(&bench), chosen.len());
    assert_invariants(&bench.plane);
    for (client, server) in clients.clone().zip(&chosen) {
        assert_eq!(server_of(&mut bench, client, 1000, ACK), *server);
        assert_eq!(server_of(&mut bench, client, 1001, ACK), *server);
        assert_eq!(server_of(&mut bench, client, 1002, SYN), *server);
    }
    assert_eq!(
        count_templates(&bench),
        chosen.len(),
        "a client was scheduled again"
    );
    assert_invariants(&bench.plane);
}

#[test]
fn templates_migrate_to_a_larger_table() {
    check_templates_after_resize(SMALL, LARGE);
}

#[test]
fn templates_migrate_to_a_smaller_table() {
    check_templates_after_resize(LARGE, SMALL);
}
