//! Tests flows of every kind while the size or layout of the flow table changes.
//!
//! A packet always has the same outcome as in the model.

use weir_abi::{ABI_FLOW_LAYOUT, DEST_SNAT, Forward, Reason};
use weir_sched::Kind;

use crate::bench::{Bench, DIRECTOR_MAC, NewServer, Xdp, sizes};
use crate::wire::{ACK, CLIENT, FIN, SYN, SYN_ACK, Shape, VIP, at};

const VIP6: &str = "2001:db8::10";
const CLIENT6: &str = "2001:db8:1::7";

/// Returns the client ports of the test's flows.
fn client_ports() -> std::ops::Range<u16> {
    1000..1040
}

fn add_services(bench: &mut Bench) {
    bench.learn_clients();
    let direct = [1, 2].map(|last| NewServer::new(Forward::Direct, &format!("10.0.0.{last}")));
    let nat = NewServer::new(Forward::Nat, "10.0.0.5").port(8080);
    let nat6 = NewServer::new(Forward::Nat, "fd00::5").port(8080);
    let snat_server = NewServer::new(Forward::Nat, "10.0.0.6").row(|row| row.flags |= DEST_SNAT);
    bench.serve(Kind::Rr, (VIP, 80), &direct);
    bench.serve(Kind::Rr, (VIP, 81), &[nat]);
    bench.serve(Kind::Rr, (VIP6, 81), &[nat6]);
    let (service, _) = bench.serve(Kind::Rr, (VIP, 82), &[snat_server]);
    bench.add_snat(service, &["10.9.9.9"], (20_000, 20_400));
}

fn send_from_clients(bench: &mut Bench, flags: weir_wire::TcpFlags) -> Vec<weir_wire::FiveTuple> {
    let mut translated = Vec::new();
    for port in client_ports() {
        for (client, vip) in [
            (CLIENT, at(VIP, 80)),
            (CLIENT, at(VIP, 81)),
            (CLIENT6, at(VIP6, 81)),
            (CLIENT, at(VIP, 82)),
        ] {
            let outcome = bench.send(&Shape::tcp(flags).arriving(at(client, port), vip));
            assert_eq!(outcome.verdict, Xdp::Tx, "{client} {port} to {vip}");
            let parsed = weir_wire::Packet::parse(&outcome.frame).unwrap();
            let tuple = parsed.five_tuple().unwrap();
            if tuple.dst != vip.ip() {
                translated.push(tuple);
            }
        }
    }
    translated
}

fn send_from_servers(
    bench: &mut Bench,
    flows: &[weir_wire::FiveTuple],
    flags: weir_wire::TcpFlags,
) {
    for flow in flows {
        let (src, dst) = (
            std::net::SocketAddr::new(flow.dst, flow.dport),
            std::net::SocketAddr::new(flow.src, flow.sport),
        );
        let frame = Shape::tcp(flags).build(([2, 0, 0, 0, 9, 9], DIRECTOR_MAC), src, dst);
        assert_eq!(bench.send(&frame).verdict, Xdp::Tx, "reply {flow:?}");
    }
}

/// Migrates flows from a table with this layout and size to a table with the current layout and `new_size` entries.
fn resize((old_layout, old_size): (u32, u32), new_size: u32) {
    let Some(mut bench) = Bench::with_flows(old_size) else {
        return;
    };
    add_services(&mut bench);
    bench.plane.activate().unwrap();
    if old_layout != ABI_FLOW_LAYOUT {
        bench.reopen_as(sizes(old_size), old_layout);
        bench.plane.activate().unwrap();
        bench.plane.migrate_flows().unwrap();
    }
    let translated = send_from_clients(&mut bench, SYN);
    send_from_servers(&mut bench, &translated, SYN_ACK);
    bench.reopen(sizes(new_size));
    bench.plane.activate().unwrap();
    send_from_clients(&mut bench, ACK);
    send_from_servers(&mut bench, &translated, ACK);
    // Both the client's and the server's tuples are in use, whichever table they are in.
    let vip2 = "192.0.2.11";
    let nat = NewServer::new(Forward::Nat, "10.0.0.5").port(8080);
    bench.serve(Kind::Rr, (vip2, 80), &[nat]);
    let syn = Shape::tcp(SYN).arriving(at(CLIENT, 1000), at(vip2, 80));
    assert_eq!(bench.send(&syn).counted, [Reason::DropNatConflict]);
    let migration = bench.plane.migrate_flows().unwrap();
    assert_eq!((migration.moved, migration.lost), (4 * 40, 0));
    assert_eq!(bench.send(&syn).counted, [Reason::DropNatConflict]);
    bench.assert_same_state();
    send_from_servers(&mut bench, &translated, ACK);
    assert_eq!(send_from_clients(&mut bench, ACK), translated);
    send_from_clients(&mut bench, FIN);
    send_from_servers(&mut bench, &translated, FIN);
    bench.assert_same_state();
}

#[test]
fn flows_of_every_kind_migrate_to_a_larger_table() {
    resize((ABI_FLOW_LAYOUT, 7 * 128), 7 * 4096);
}

#[test]
fn flows_of_every_kind_migrate_to_a_smaller_table() {
    resize((ABI_FLOW_LAYOUT, 7 * 4096), 7 * 128);
}

#[test]
fn flows_of_every_kind_migrate_from_the_previous_layout() {
    resize((ABI_FLOW_LAYOUT - 1, 7 * 1024), 7 * 1024);
}

#[test]
fn flows_of_every_kind_migrate_from_a_larger_table_with_the_previous_layout() {
    resize((ABI_FLOW_LAYOUT - 1, 7 * 4096), 7 * 128);
}

#[test]
fn flows_without_an_entry_keep_their_server_during_a_migration() {
    let Some(mut bench) = Bench::with_flows(7 * 64) else {
        return;
    };
    add_services(&mut bench);
    bench.plane.activate().unwrap();
    bench.change_settings(|settings| settings.syn_budget = 0);
    let send = |bench: &mut Bench, flags| -> Vec<u8> {
        client_ports()
            .map(|port| {
                let outcome = bench.run(&Shape::tcp(flags).arriving(at(CLIENT, port), at(VIP, 80)));
                assert!(
                    outcome.counted.contains(&Reason::CountUntracked),
                    "port {port}"
                );
                outcome.frame[5]
            })
            .collect()
    };
    let servers = send(&mut bench, SYN);
    bench.reopen(sizes(7 * 1024));
    bench.plane.activate().unwrap();
    assert_eq!(send(&mut bench, ACK), servers, "during the migration");
    bench.plane.migrate_flows().unwrap();
    assert_eq!(send(&mut bench, ACK), servers, "in the new table");
}
