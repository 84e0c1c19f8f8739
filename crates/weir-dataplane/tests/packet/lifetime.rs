//! Tests flows over time: removed servers, new extents, reused ports, expiry, and budgets.

use std::time::{Duration, Instant};

use weir_abi::{
    BUCKET_SLOTS, DEST_LIVE, DEST_RESCHEDULE, DEST_STRICT, Entry, Forward, POLICY_DOWN, Reason,
    State,
};
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, Xdp, tick};
use crate::wire::{ACK, CLIENT, FIN, RST, SYN, Shape, VIP, at, client_tcp};

#[test]
fn removed_server_keeps_flows_until_they_end() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, dests) = bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::direct(1), NewServer::direct(2)],
    );
    let servers: Vec<u32> = (1000..1006)
        .map(|port| bench.send_to_server(&client_tcp(port, SYN)))
        .collect();
    bench.remove(service, dests[0], DEST_LIVE);
    for (port, server) in (1000..).zip(&servers) {
        assert_eq!(bench.send_to_server(&client_tcp(port, ACK)), *server);
        assert_eq!(bench.send_to_server(&client_tcp(port, FIN)), *server);
    }
    assert_eq!(bench.send_to_server(&client_tcp(2000, SYN)), dests[1]);
    bench.assert_same_state();
}

#[test]
fn flows_of_removed_server_are_rescheduled() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, dests) = bench.serve(Kind::Rr, (VIP, 80), &[NewServer::direct(1)]);
    bench.send_to_server(&client_tcp(1000, SYN));
    bench.send_to_server(&client_tcp(1000, ACK));
    bench.remove(service, dests[0], DEST_LIVE | DEST_RESCHEDULE);
    let next = bench.add(service, NewServer::direct(2));
    assert_eq!(
        bench.send_to_server(&client_tcp(1000, ACK)),
        next,
        "in the middle of a connection"
    );
    assert_eq!(bench.send_to_server(&client_tcp(1000, FIN)), next);
    bench.assert_same_state();
}

#[test]
fn missing_server_row_ends_its_flows() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, dests) = bench.serve(Kind::Rr, (VIP, 80), &[NewServer::direct(1)]);
    bench.send_to_server(&client_tcp(1000, SYN));
    bench.remove(service, dests[0], 0);
    assert_eq!(
        bench.send(&client_tcp(1000, ACK)).counted,
        [Reason::DropServerGone]
    );
    bench.assert_same_state();
}

#[test]
fn flows_keep_their_servers_while_extents_change() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, _) = bench.serve(
        Kind::Mh,
        (VIP, 80),
        &[NewServer::direct(1), NewServer::direct(2)],
    );
    let mut servers = Vec::new();
    for round in 0..4u16 {
        for port in 0..8 {
            servers.push((
                1000 + round * 8 + port,
                bench.send_to_server(&client_tcp(1000 + round * 8 + port, SYN)),
            ));
        }
        bench.add(service, NewServer::direct(3 + round as u8));
        for (port, server) in &servers {
            assert_eq!(
                bench.send_to_server(&client_tcp(*port, ACK)),
                *server,
                "round {round}"
            );
        }
    }
    bench.assert_same_state();
}

#[test]
fn syn_starts_a_new_flow_only_after_the_previous_one_ended() {
    for (name, packets, is_new) in [
        ("half open", vec![SYN], false),
        ("established", vec![SYN, ACK], false),
        ("closing", vec![SYN, ACK, FIN], false),
        ("reset", vec![SYN, ACK, RST], true),
    ] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        bench.serve(
            Kind::Rr,
            (VIP, 80),
            &[NewServer::direct(1), NewServer::direct(2)],
        );
        let first = packets.iter().fold(0, |_, flags| {
            bench.send_to_server(&client_tcp(1000, *flags))
        });
        assert_eq!(
            bench.send_to_server(&client_tcp(1000, SYN)) != first,
            is_new,
            "{name}"
        );
        bench.assert_same_state();
    }
}

#[test]
fn syn_is_rescheduled_from_a_quiesced_server_if_half_open_or_down() {
    for (name, packets, strict, down, moves) in [
        ("half open", vec![SYN], false, false, true),
        (
            "half open, as the kernel does",
            vec![SYN],
            true,
            false,
            false,
        ),
        ("established", vec![SYN, ACK], false, false, false),
        ("established, down", vec![SYN, ACK], false, true, true),
        ("closing, down", vec![SYN, ACK, FIN], false, true, true),
        (
            "down, as the kernel does",
            vec![SYN, ACK],
            true,
            true,
            false,
        ),
    ] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        let (service, dests) = bench.serve(
            Kind::Rr,
            (VIP, 80),
            &[NewServer::direct(1), NewServer::direct(2)],
        );
        let first = packets.iter().fold(0, |_, flags| {
            bench.send_to_server(&client_tcp(1000, *flags))
        });
        assert!(dests.contains(&first), "{name}");
        bench.set_weight(service, first, 0);
        bench.change_dest_row(first, |row| {
            row.flags |= if strict { DEST_STRICT } else { 0 };
            row.policy = if down { POLICY_DOWN } else { row.policy };
        });
        assert_eq!(
            bench.send_to_server(&client_tcp(1000, SYN)) != first,
            moves,
            "{name}"
        );
        bench.assert_same_state();
    }
}

/// Expires all flows in a state: the data plane compares signed numbers, and this timeout is -1 ticks.
fn expire(bench: &mut Bench, state: State) {
    bench.change_settings(|settings| settings.timeouts[state as usize] = u32::MAX);
}

#[test]
fn expired_flow_is_scheduled_again() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::direct(1), NewServer::direct(2)],
    );
    let first = bench.send_to_server(&client_tcp(1000, SYN));
    let second = bench.send_to_server(&client_tcp(1001, SYN));
    expire(&mut bench, State::SynRecv);
    assert_eq!(
        bench.send(&client_tcp(1000, ACK)).counted,
        [Reason::PassNoFlow]
    );
    assert_eq!(
        bench.send_to_server(&client_tcp(1001, SYN)),
        first,
        "the flow must be scheduled again"
    );
    assert_ne!(first, second);
    bench.assert_same_state();
}

#[test]
fn expired_udp_flow_is_scheduled_again() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::direct(1), NewServer::direct(2)],
    );
    let frame = Shape::udp().arriving(at(CLIENT, 1000), at(VIP, 80));
    let first = bench.send_to_server(&frame);
    assert_eq!(bench.send_to_server(&frame), first);
    expire(&mut bench, State::Udp);
    assert_ne!(bench.send_to_server(&frame), first);
    assert_eq!(bench.plane.maps().live(first).unwrap().active, 0);
    bench.assert_same_state();
}

#[test]
fn expired_nat_flow_ends_with_its_reverse_entry() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let nat = NewServer::new(Forward::Nat, "10.0.0.9").port(8080);
    bench.serve(Kind::Rr, (VIP, 80), &[nat]);
    bench.serve(Kind::Rr, ("192.0.2.11", 80), &[nat]);
    bench.send_to_server(&client_tcp(1000, SYN));
    bench.send_to_server(&client_tcp(1001, SYN));
    expire(&mut bench, State::SynRecv);
    let reply = Shape::tcp(ACK).arriving(at("10.0.0.9", 8080), at(CLIENT, 1000));
    assert_eq!(bench.send(&reply).counted, [Reason::PassNoFlow]);
    assert_eq!(
        bench.plane.maps().flows.walk().count(),
        2,
        "the other flow's entries"
    );
    // The other entry has expired, but the sweep has not removed it: a new flow that needs the same reverse tuple
    // replaces it.
    let other = Shape::tcp(SYN).arriving(at(CLIENT, 1001), at("192.0.2.11", 80));
    assert_eq!(bench.send(&other).counted, []);
    bench.assert_same_state();
}

#[test]
fn sweep_removes_only_expired_entries() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[
            NewServer::direct(1),
            NewServer::new(Forward::Nat, "10.0.0.9"),
        ],
    );
    for port in 1000..1200 {
        bench.send_to_server(&client_tcp(port, SYN));
        if port % 2 == 0 {
            bench.send_to_server(&client_tcp(port, ACK));
        }
    }
    bench.assert_same_state();
    expire(&mut bench, State::SynRecv);
    bench
        .plane
        .test_run(
            "weir_sweep_start",
            &weir_dataplane::TestInput::xdp(&[0; 64]),
        )
        .unwrap();
    let removed = bench.model.sweep(tick());
    assert_eq!(removed, 100);
    let deadline = Instant::now() + Duration::from_secs(30);
    while bench.plane.maps().flows.walk().count() != bench.model.flows().count() {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            bench.plane.maps().sweep()
        );
        std::thread::yield_now();
    }
    assert_eq!(bench.plane.maps().sweep().unwrap().expired, 100);
    bench.assert_same_state();
    // After a pass that begins after the last expiry, only the hints of existing entries remain.
    let flows = &bench.plane.maps().flows;
    let mut hints = vec![0; flows.buckets() as usize];
    for flow in flows.walk() {
        hints[(flow.index / BUCKET_SLOTS) as usize] |= Entry::hint_bit(flow.entry.tag());
    }
    while (0..flows.buckets()).any(|bucket| flows.hint(bucket).unwrap() != hints[bucket as usize]) {
        assert!(Instant::now() < deadline, "hints of removed entries remain");
        std::thread::yield_now();
    }
}

#[test]
fn flows_above_syn_budget_use_the_spread_table() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[
            NewServer::direct(1),
            NewServer::direct(2),
            NewServer::direct(3),
        ],
    );
    bench.change_settings(|settings| settings.syn_budget = 0);
    for port in 1000..1032 {
        let outcome = bench.send(&client_tcp(port, SYN));
        assert_eq!(
            outcome.counted,
            [Reason::CountSynBudget, Reason::CountUntracked]
        );
        let server = outcome.frame[5];
        for flags in [ACK, FIN, RST] {
            let outcome = bench.send(&client_tcp(port, flags));
            assert_eq!(
                (outcome.counted, outcome.frame[5]),
                (vec![Reason::CountUntracked], server),
                "port {port}"
            );
        }
    }
    assert_eq!(bench.plane.maps().flows.walk().count(), 0);
    bench.assert_same_state();
}

#[test]
fn empty_service_above_syn_budget_rejects() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, dests) = bench.serve(Kind::Lc, (VIP, 80), &[NewServer::direct(1)]);
    bench.set_weight(service, dests[0], 0);
    // If the data plane read past the service's empty table, it would find one of these servers.
    for port in 81..85 {
        bench.serve(Kind::Wlc, (VIP, port), &[2, 3, 4, 5].map(NewServer::direct));
    }
    bench.change_settings(|settings| settings.syn_budget = 0);
    for port in 1000..1032 {
        let outcome = bench.send(&client_tcp(port, SYN));
        assert!(outcome.counted.contains(&Reason::RejectNoServer));
    }
    bench.assert_same_state();
}

#[test]
fn hashed_syn_above_syn_budget_skips_the_lookup() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let servers = [
        NewServer::direct(1),
        NewServer::direct(2),
        NewServer::direct(3),
    ];
    let (service, dests) = bench.serve(Kind::Maglev, (VIP, 80), &servers);
    let servers_with_entry: Vec<u8> = (1000..1032)
        .map(|port| bench.send(&client_tcp(port, SYN)).frame[5])
        .collect();
    bench.change_settings(|settings| settings.syn_budget = 0);
    for (port, server) in (1000..1032).zip(&servers_with_entry) {
        let outcome = bench.send(&client_tcp(port, SYN));
        assert_eq!(
            (outcome.counted, outcome.frame[5]),
            (
                vec![Reason::CountSynBudget, Reason::CountUntracked],
                *server
            ),
            "port {port}"
        );
    }
    assert_eq!(
        bench.plane.maps().flows.walk().count(),
        servers_with_entry.len()
    );
    // A flow with an entry keeps its server, whatever the table contains now.
    bench.set_weight(service, dests[0], 0);
    for (port, server) in (1000..1032).zip(&servers_with_entry) {
        let outcome = bench.send(&client_tcp(port, ACK));
        assert_eq!((outcome.counted, outcome.frame[5]), (vec![], *server));
    }
    bench.assert_same_state();
}

#[test]
fn directors_with_different_secrets_select_the_same_maglev_server() {
    let servers = [
        NewServer::direct(1),
        NewServer::direct(2),
        NewServer::direct(3),
    ];
    let mut selections = Vec::new();
    for (flags, secret) in [(SYN, [1, 2]), (ACK, [3, 4])] {
        let Some(mut bench) = Bench::with_secret(7 * 16384, secret) else {
            return;
        };
        bench.serve(Kind::Maglev, (VIP, 80), &servers);
        let servers: Vec<u8> = (1000..1064)
            .map(|port| bench.send(&client_tcp(port, flags)).frame[5])
            .collect();
        selections.push(servers);
        bench.assert_same_state();
    }
    // The first director received the start of each flow, and the second director only a later packet.
    assert_eq!(selections[0], selections[1]);
}

#[test]
fn datagrams_over_the_budget_keep_their_server_when_they_get_an_entry() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[
            NewServer::direct(1),
            NewServer::direct(2),
            NewServer::direct(3),
        ],
    );
    bench.change_settings(|settings| settings.syn_budget = 0);
    let datagram = |port| Shape::udp().arriving(at(CLIENT, port), at(VIP, 80));
    let mut servers = Vec::new();
    for port in 1000..1032 {
        let first = bench.send(&datagram(port));
        assert_eq!(
            first.counted,
            [Reason::CountSynBudget, Reason::CountUntracked]
        );
        servers.push(first.frame[5]);
    }
    assert_eq!(bench.plane.maps().flows.walk().count(), 0);
    bench.change_settings(|settings| settings.syn_budget = u32::MAX);
    for (port, server) in (1000..1032).zip(servers) {
        let outcome = bench.send(&datagram(port));
        assert_eq!((outcome.counted, outcome.frame[5]), (vec![], server));
    }
    assert_eq!(bench.plane.maps().flows.walk().count(), 32);
    bench.assert_same_state();
}

#[test]
fn existing_entries_are_found_above_the_budget() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[
            NewServer::direct(1),
            NewServer::direct(2),
            NewServer::direct(3),
        ],
    );
    let datagram = |port| Shape::udp().arriving(at(CLIENT, port), at(VIP, 80));
    let frames: Vec<Vec<u8>> = (1000..1064)
        .flat_map(|port| [client_tcp(port, SYN), datagram(port)])
        .collect();
    let first: Vec<u8> = frames
        .iter()
        .map(|frame| bench.send(frame).frame[5])
        .collect();
    bench.change_settings(|settings| settings.syn_budget = 0);
    for (frame, server) in frames.iter().zip(first) {
        let outcome = bench.send(frame);
        assert_eq!((outcome.counted, outcome.frame[5]), (vec![], server));
    }
    bench.assert_same_state();
}

#[test]
fn nat_datagrams_get_entries_even_if_the_budget_is_0() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::new(Forward::Nat, "10.0.0.9")],
    );
    bench.change_settings(|settings| settings.syn_budget = 0);
    let outcome = bench.send(&Shape::udp().arriving(at(CLIENT, 1000), at(VIP, 80)));
    assert_eq!((outcome.verdict, outcome.counted), (Xdp::Tx, vec![]));
    bench.assert_same_state();
}

#[test]
fn budget_decreases_by_one_per_packet() {
    // A new tick during the run would start a new budget, so the run is valid only if the tick did not change.
    for _ in 0..5 {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        bench.serve(Kind::Rr, (VIP, 80), &[NewServer::direct(1)]);
        bench.change_settings(|settings| settings.syn_budget = 3);
        let before = tick();
        let over_budget = (1000..1008).filter(|port| {
            bench
                .run(&client_tcp(*port, SYN))
                .counted
                .contains(&Reason::CountSynBudget)
        });
        let over_budget = over_budget.count();
        if tick() == before {
            assert_eq!(over_budget, 5);
            return;
        }
    }
    panic!("no run stayed within a tick");
}

#[test]
fn nat_flows_over_the_budget_are_dropped() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::new(Forward::Nat, "10.0.0.9")],
    );
    bench.change_settings(|settings| settings.syn_budget = 0);
    let outcome = bench.send(&client_tcp(1000, SYN));
    assert_eq!(
        (outcome.verdict, outcome.counted),
        (
            Xdp::Drop,
            vec![Reason::CountSynBudget, Reason::DropSynBudget]
        )
    );
    bench.assert_same_state();
}

#[test]
fn active_and_inactive_counts_follow_the_states() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let share_live_row = |row: &mut weir_abi::Dest| row.live = 300;
    let (_, dests) = bench.serve(
        Kind::Wlc,
        (VIP, 80),
        &[NewServer::direct(1).row(share_live_row)],
    );
    let (_, others) = bench.serve(
        Kind::Wlc,
        (VIP, 81),
        &[NewServer::direct(1).row(share_live_row)],
    );
    for (step, flags, active, inactive) in [
        ("syn", SYN, 1, 0),
        ("ack", ACK, 1, 0),
        ("fin", FIN, 0, 1),
        ("rst", RST, 0, 1),
    ] {
        bench.send_to_server(&client_tcp(1000, flags));
        for row in [dests[0], 300] {
            let live = bench.plane.maps().live(row).unwrap();
            assert_eq!(
                (live.active, live.inactive),
                (active, inactive),
                "{step}, row {row}"
            );
        }
    }
    bench.send_to_server(&Shape::udp().arriving(at(CLIENT, 1001), at(VIP, 81)));
    let live = |row: u32| bench.plane.maps().live(row).unwrap();
    assert_eq!(
        (live(others[0]).active, live(300).active, live(300).inactive),
        (1, 1, 1),
        "the pool's counts must be the sum"
    );
    bench.assert_same_state();
}

#[test]
fn strict_udp_flows_are_inactive() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::direct(1).row(|row| row.flags |= weir_abi::DEST_STRICT)],
    );
    let frame = Shape::udp().arriving(at(CLIENT, 1000), at(VIP, 80));
    bench.send_to_server(&frame);
    bench.send_to_server(&frame);
    let live = bench.plane.maps().live(1).unwrap();
    assert_eq!((live.active, live.inactive, live.total), (0, 1, 1));
    bench.assert_same_state();
}
