//! Tests persistence: which of a client's flows go to the same server, and for how long.
//!
//! Also tests what happens after the server is removed.

use std::sync::Barrier;

use weir_abi::{
    DEST_LIVE, DEST_SNAT, Forward, KIND_TEMPLATE, POLICY_PERSISTENT, Reason, SERVICE_ONE_PACKET,
    State, TEMPLATE_PORT, TEMPLATE_SERVICE, TEMPLATE_VIP,
};
use weir_dataplane::TestInput;
use weir_flow::model::VipRow;
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, tick};
use crate::consistency::assert_invariants;
use crate::support::two_cpus;
use crate::wire::{ACK, FIN, SYN, Shape, VIP, at};

const OTHER_VIP: &str = "192.0.2.11";
const VIP6: &str = "2001:db8::10";
/// Lifetime in ticks of a template that does not expire within a test, and of a template that is always expired.
const LONG_TICKS: u32 = 1_000_000;
const EXPIRED_TICKS: u32 = u32::MAX;

fn server(forward: Forward, last: u8) -> NewServer {
    NewServer::new(forward, &format!("10.0.0.{last}"))
}

fn direct(last: u8) -> NewServer {
    server(Forward::Direct, last)
}

fn set_persistence(bench: &mut Bench, service: u32, ticks: u32, prefixes: (u8, u8), scope: u8) {
    bench.change_service_row(service, |row| {
        row.template_ticks = ticks;
        (row.template_prefix4, row.template_prefix6) = prefixes;
        row.template_scope = scope;
    });
}

/// Adds a service with persistence for single clients and with `rr`, which sends consecutive flows to different servers
/// if there is no persistence.
fn serve(bench: &mut Bench, ticks: u32, servers: &[NewServer]) -> (u32, Vec<u32>) {
    let (service, dests) = bench.serve(Kind::Rr, (VIP, 80), servers);
    set_persistence(bench, service, ticks, (32, 128), TEMPLATE_PORT);
    (service, dests)
}

fn tcp(client: &str, port: u16, flags: weir_wire::TcpFlags) -> Vec<u8> {
    Shape::tcp(flags).arriving(at(client, port), at(VIP, 80))
}

#[test]
fn client_keeps_its_server_and_others_are_scheduled() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for forward in [Forward::Direct, Forward::Nat] {
        let vip = if forward == Forward::Nat {
            OTHER_VIP
        } else {
            VIP
        };
        let servers = [1, 2, 3].map(|last| server(forward, last));
        let (service, _) = bench.serve(Kind::Rr, (vip, 80), &servers);
        set_persistence(&mut bench, service, LONG_TICKS, (32, 128), TEMPLATE_PORT);
        let mut chosen_servers = Vec::new();
        for client in ["198.51.100.1", "198.51.100.2", "198.51.100.3"] {
            let syn = |port| Shape::tcp(SYN).arriving(at(client, port), at(vip, 80));
            let chosen = bench.send_to_server(&syn(1000));
            for port in 1001..1006 {
                assert_eq!(bench.send_to_server(&syn(port)), chosen, "{client}:{port}");
            }
            let udp = Shape::udp().arriving(at(client, 1000), at(vip, 80));
            bench.send_to_server(&udp);
            chosen_servers.push(chosen);
        }
        chosen_servers.sort_unstable();
        chosen_servers.dedup();
        assert_eq!(chosen_servers.len(), 3, "two clients got the same server");
    }
    bench.assert_same_state();
}

#[test]
fn mask_treats_network_as_one_client() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service_v4, _) = bench.serve(Kind::Rr, (VIP, 80), &[direct(1), direct(2), direct(3)]);
    set_persistence(&mut bench, service_v4, LONG_TICKS, (26, 64), TEMPLATE_PORT);
    let mut server_of = |client: &str| bench.send_to_server(&tcp(client, 1000, SYN));
    let first = server_of("198.51.100.1");
    assert_eq!(server_of("198.51.100.63"), first);
    assert_ne!(server_of("198.51.100.64"), first);
    let servers_v6 =
        [11, 12, 13].map(|last| NewServer::new(Forward::Direct, &format!("fd00::{last}")));
    let (service, _) = bench.serve(Kind::Rr, (VIP6, 80), &servers_v6);
    set_persistence(&mut bench, service, LONG_TICKS, (32, 60), TEMPLATE_PORT);
    let mut server_of = |client: &str| {
        let frame = Shape::tcp(SYN).arriving(at(client, 1000), at(VIP6, 80));
        bench.send_to_server(&frame)
    };
    let first = server_of("2001:db8:1:10::1");
    assert_eq!(server_of("2001:db8:1:1f:ffff::9"), first);
    assert_ne!(server_of("2001:db8:1:20::1"), first);
    bench.assert_same_state();
}

#[test]
fn scope_determines_which_ports_and_addresses_share_a_template() {
    // Protocol, VIP and port of a second flow, and for each scope whether the second flow goes to the server of the
    // first flow, tcp/VIP:80.
    let seconds = [
        (false, VIP, 81, [false, true, true]),
        (true, VIP, 80, [false, false, true]),
        (false, OTHER_VIP, 80, [false, false, true]),
    ];
    for (udp, vip, port, follows) in seconds {
        for (scope, follows) in [TEMPLATE_PORT, TEMPLATE_VIP, TEMPLATE_SERVICE]
            .into_iter()
            .zip(follows)
        {
            let Some(mut bench) = Bench::open() else {
                return;
            };
            let (service, _) = bench.serve(Kind::Rr, (VIP, 80), &[direct(1), direct(2)]);
            let all_ports = VipRow {
                any_tcp: service,
                any_udp: service,
                ..VipRow::default()
            };
            bench.add_vip(VIP, all_ports.clone());
            bench.add_vip(OTHER_VIP, all_ports);
            set_persistence(&mut bench, service, LONG_TICKS, (32, 128), scope);
            let first = bench.send_to_server(&tcp("198.51.100.1", 1000, SYN));
            let shape = if udp { Shape::udp() } else { Shape::tcp(SYN) };
            let second = shape.arriving(at("198.51.100.1", 1001), at(vip, port));
            assert_eq!(
                bench.send_to_server(&second) == first,
                follows,
                "scope {scope}, {vip}:{port} udp {udp}"
            );
            bench.assert_same_state();
        }
    }
}

#[test]
fn service_wide_template_selects_server_for_ipv6() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let servers_v6 = [11, 12].map(|last| NewServer::new(Forward::Direct, &format!("fd00::{last}")));
    let (service, _) = bench.serve(Kind::Rr, (VIP6, 80), &servers_v6);
    bench.listen(service, VIP6, 443);
    set_persistence(&mut bench, service, LONG_TICKS, (32, 128), TEMPLATE_SERVICE);
    let client = "2001:db8:1::7";
    let mut server_of = |port| {
        let frame = Shape::tcp(SYN).arriving(at(client, 1000), at(VIP6, port));
        bench.send_to_server(&frame)
    };
    assert_eq!(server_of(80), server_of(443));
    bench.assert_same_state();
}

#[test]
fn template_is_kept_while_its_flows_exist() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let client = "198.51.100.1";
    serve(&mut bench, EXPIRED_TICKS, &[direct(1), direct(2)]);
    let first = bench.send_to_server(&tcp(client, 1000, SYN));
    assert_eq!(
        bench.send_to_server(&tcp(client, 1001, SYN)),
        first,
        "the template was not kept while its flow exists"
    );
    bench.change_settings(|settings| settings.timeouts[State::SynRecv as usize] = EXPIRED_TICKS);
    for port in [1000, 1001] {
        assert_eq!(
            bench.send(&tcp(client, port, ACK)).counted,
            [Reason::PassNoFlow]
        );
    }
    assert_ne!(
        bench.send_to_server(&tcp(client, 1002, SYN)),
        first,
        "the template was kept without a flow"
    );
    bench.assert_same_state();
}

#[test]
fn sweep_extends_used_template_by_a_minute_and_removes_idle_one() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    serve(&mut bench, EXPIRED_TICKS, &[direct(1), direct(2)]);
    bench.send_to_server(&tcp("198.51.100.1", 1000, SYN));
    bench.send_to_server(&tcp("198.51.100.2", 1000, SYN));
    bench.send_to_server(&tcp("198.51.100.2", 1000, ACK));
    bench.change_settings(|settings| settings.timeouts[State::SynRecv as usize] = EXPIRED_TICKS);
    assert_eq!(
        bench.send(&tcp("198.51.100.1", 1000, ACK)).counted,
        [Reason::PassNoFlow]
    );
    bench
        .plane
        .test_run("weir_sweep_start", &TestInput::xdp(&[0; 64]))
        .unwrap();
    bench.model.sweep(tick());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let swept = |bench: &Bench| {
        let templates: Vec<u32> = bench
            .plane
            .maps()
            .flows
            .walk()
            .filter(|flow| flow.meta().kind == KIND_TEMPLATE)
            .map(|flow| flow.cold.ifindex)
            .collect();
        // The timeout is now a minute: 56 ticks.
        templates == [56]
    };
    while !swept(&bench) {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    bench.assert_same_state();
}

#[test]
fn established_flow_confirms_its_template() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    serve(&mut bench, LONG_TICKS, &[direct(1)]);
    bench.send_to_server(&tcp("198.51.100.1", 1000, SYN));
    bench.assert_same_state();
    bench.send_to_server(&tcp("198.51.100.1", 1000, ACK));
    let states: Vec<u8> = assert_invariants(&bench.plane)
        .values()
        .filter(|flow| flow.meta().kind == KIND_TEMPLATE)
        .map(|flow| flow.meta().state)
        .collect();
    assert_eq!(states, [State::Established as u8]);
    bench.assert_same_state();
}

#[test]
fn server_of_weight_0_keeps_clients_only_if_its_policy_is_persistent() {
    for policy in [POLICY_PERSISTENT, 0] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        let (service, dests) = serve(&mut bench, LONG_TICKS, &[direct(1), direct(2)]);
        let client = "198.51.100.1";
        let first = bench.send_to_server(&tcp(client, 1000, SYN));
        bench.set_weight(service, first, 0);
        bench.change_dest_row(first, |row| row.policy = policy);
        let other = dests.iter().find(|dest| **dest != first).unwrap();
        let expected = if policy == 0 { *other } else { first };
        assert_eq!(bench.send_to_server(&tcp(client, 1001, SYN)), expected);
        assert_eq!(
            bench.send_to_server(&tcp("198.51.100.2", 1000, SYN)),
            *other
        );
        assert_eq!(
            bench.send_to_server(&tcp(client, 1000, ACK)),
            first,
            "the flow changed its server"
        );
        bench.assert_same_state();
    }
}

#[test]
fn clients_of_removed_server_move_once() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, _) = serve(&mut bench, LONG_TICKS, &[direct(1), direct(2), direct(3)]);
    let client = "198.51.100.1";
    let first = bench.send_to_server(&tcp(client, 1000, SYN));
    bench.remove(service, first, DEST_LIVE);
    let second = bench.send_to_server(&tcp(client, 1001, SYN));
    assert_ne!(second, first);
    for port in 1002..1006 {
        assert_eq!(bench.send_to_server(&tcp(client, port, SYN)), second);
    }
    assert_eq!(bench.send_to_server(&tcp(client, 1000, ACK)), first);
    // The first flow belongs to a removed template: when it ends, the count of the new template must not decrease.
    bench
        .change_settings(|settings| settings.timeouts[State::Established as usize] = EXPIRED_TICKS);
    assert_eq!(
        bench.send(&tcp(client, 1000, ACK)).counted,
        [Reason::PassNoFlow]
    );
    bench.assert_same_state();
}

#[test]
fn reused_row_invalidates_template() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    serve(&mut bench, LONG_TICKS, &[direct(1), direct(2)]);
    let client = "198.51.100.1";
    let first = bench.send_to_server(&tcp(client, 1000, SYN));
    let mut row = bench.plane.maps().dests.get(first).unwrap();
    row.generation += 1;
    bench.plane.maps().dests.set(first, &row).unwrap();
    let frame = tcp(client, 1001, SYN);
    assert_ne!(u32::from(bench.run(&frame).frame[5]), first);
}

#[test]
fn reused_port_of_persistent_flow_continues_its_entry() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    serve(
        &mut bench,
        LONG_TICKS,
        &[server(Forward::Nat, 1), server(Forward::Nat, 2)],
    );
    bench.learn_clients();
    let client = "198.51.100.1";
    let first = bench.send_to_server(&tcp(client, 1000, SYN));
    bench.send_to_server(&tcp(client, 1000, ACK));
    bench.send_to_server(&tcp(client, 1000, FIN));
    let total = |bench: &Bench| bench.plane.maps().live(first).unwrap().total;
    assert_eq!(bench.send_to_server(&tcp(client, 1000, SYN)), first);
    assert_eq!(total(&bench), 1, "a new entry was created");
    bench.assert_same_state();
}

#[test]
fn client_without_template_keeps_server_by_hash() {
    // Two buckets have no room for a fifteenth entry.
    let Some(mut bench) = Bench::with_flows(14) else {
        return;
    };
    serve(
        &mut bench,
        LONG_TICKS,
        &[direct(1), direct(2), direct(3), direct(4)],
    );
    for last in 1..=7 {
        bench.run(&tcp(&format!("198.51.100.{last}"), 1000, SYN));
    }
    for last in 10..40 {
        let client = format!("198.51.100.{last}");
        let servers: Vec<u8> = (1000..1004)
            .map(|port| bench.run(&tcp(&client, port, SYN)).frame[5])
            .collect();
        assert!(
            servers.iter().all(|server| *server == servers[0]),
            "{client} {servers:?}"
        );
        let later = bench.run(&tcp(&client, 1000, ACK));
        assert_eq!(
            later.frame[5], servers[0],
            "a later packet reached another server"
        );
    }
    let full = bench.plane.maps().reasons().unwrap()[Reason::CountTableFull.number() as usize];
    assert!(full >= 30, "{full}");
    assert_invariants(&bench.plane);
}

#[test]
fn one_packet_services_schedule_every_datagram() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for forward in [Forward::Direct, Forward::Nat] {
        let vip = if forward == Forward::Nat {
            OTHER_VIP
        } else {
            VIP
        };
        let servers = [1, 2, 3].map(|last| server(forward, last).port(5353));
        let (service, dests) = bench.serve(Kind::Rr, (vip, 53), &servers);
        bench.change_service_row(service, |row| row.flags |= SERVICE_ONE_PACKET);
        let frame = Shape::udp().arriving(at("198.51.100.1", 1000), at(vip, 53));
        let servers_in_turn: Vec<u32> = (0..6).map(|_| bench.send_to_server(&frame)).collect();
        assert_eq!(
            servers_in_turn[..3],
            servers_in_turn[3..],
            "the servers were not used in turn"
        );
        assert_eq!(bench.plane.maps().flows.walk().count(), 0);
        for dest in dests {
            let live = bench.plane.maps().live(dest).unwrap();
            assert_eq!((live.total, live.active, live.inactive), (2, 0, 0));
            assert_eq!(bench.plane.maps().traffic(dest).unwrap().packets_in, 2);
        }
    }
    bench.assert_same_state();
}

#[test]
fn one_packet_applies_only_to_udp_without_snat() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, _) = bench.serve(Kind::Rr, (VIP, 80), &[direct(1), direct(2)]);
    bench.change_service_row(service, |row| row.flags |= SERVICE_ONE_PACKET);
    bench.send_to_server(&tcp("198.51.100.1", 1000, SYN));
    assert_eq!(bench.plane.maps().flows.walk().count(), 1);
    let snat = server(Forward::Nat, 9).row(|row| row.flags |= DEST_SNAT);
    let (service, _) = bench.serve(Kind::Rr, (OTHER_VIP, 53), &[snat]);
    bench.change_service_row(service, |row| row.flags |= SERVICE_ONE_PACKET);
    let frame = Shape::udp().arriving(at("198.51.100.1", 1000), at(OTHER_VIP, 53));
    assert_eq!(bench.send(&frame).counted, [Reason::DropNoPlace]);
    bench.assert_same_state();
}

#[test]
fn persistent_one_packet_service_creates_only_a_template() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, _) = serve(&mut bench, LONG_TICKS, &[direct(1), direct(2)]);
    bench.change_service_row(service, |row| row.flags |= SERVICE_ONE_PACKET);
    let frame = |port| Shape::udp().arriving(at("198.51.100.1", port), at(VIP, 80));
    let first = bench.send_to_server(&frame(1000));
    for port in 1000..1005 {
        assert_eq!(bench.send_to_server(&frame(port)), first);
    }
    assert_eq!(
        bench.plane.maps().flows.walk().count(),
        1,
        "there is an entry other than the template"
    );
    bench.assert_same_state();
}

#[test]
fn two_cpus_create_one_template() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    if !two_cpus() {
        return;
    }
    serve(&mut bench, LONG_TICKS, &[direct(1), direct(2), direct(3)]);
    let plane = &bench.plane;
    let barrier = Barrier::new(2);
    let stream = |cpu: usize| {
        weir_sys::pin_thread(cpu).unwrap();
        barrier.wait();
        for client in 0..1000u16 {
            let [high, low] = client.to_be_bytes();
            let client = format!("198.51.{high}.{low}");
            for port in [1000, 1001] {
                let frame = tcp(&client, port + 2 * cpu as u16, SYN);
                plane.test_run("weir_xdp", &TestInput::xdp(&frame)).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| stream(0));
        scope.spawn(|| stream(1));
    });
    let flows = assert_invariants(plane);
    let missed =
        plane.maps().reasons().unwrap()[Reason::CountLockMissed.number() as usize] as usize;
    let templates = flows
        .values()
        .filter(|flow| flow.meta().kind == KIND_TEMPLATE)
        .count();
    assert!(
        missed <= 50 && (1000 - missed..=1000).contains(&templates),
        "{templates} templates, {missed} locks missed"
    );
    let mut misplaced = 0;
    for template in flows
        .values()
        .filter(|flow| flow.meta().kind == KIND_TEMPLATE)
    {
        let of_client = flows
            .values()
            .filter(|flow| flow.meta().kind != KIND_TEMPLATE && flow.cold.src == template.cold.src);
        misplaced += of_client
            .filter(|flow| flow.dest() != template.dest())
            .count();
    }
    assert!(
        misplaced <= missed,
        "{misplaced} flows reached another server, {missed} locks missed"
    );
}
