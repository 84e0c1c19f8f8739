//! Tests the keys of `[ipvs]`, and the upper threshold of a server.

use weir_abi::{
    DEST_LIVE, DEST_RESCHEDULE, DEST_RESET, POLICY_EXPIRE, POLICY_SILENT, Reason,
    SETTINGS_EXPIRE_NODEST, SETTINGS_REUSE, SETTINGS_REUSE_FIN_WAIT, SETTINGS_SLOPPY_TCP, State,
};
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, Xdp};
use crate::support::two_cpus;
use crate::wire::{ACK, CLIENT, FIN, RST, SYN, Shape, VIP, at, client_tcp};

#[test]
fn sloppy_tcp_allows_any_packet_except_reset_to_start_a_flow() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::direct(1), NewServer::direct(2)],
    );
    assert_eq!(
        bench.send(&client_tcp(1000, ACK)).counted,
        [Reason::PassNoFlow]
    );
    bench.change_settings(|settings| settings.flags |= SETTINGS_SLOPPY_TCP);
    let first = bench.send_to_server(&client_tcp(1000, ACK));
    assert_ne!(bench.send_to_server(&client_tcp(1001, FIN)), first);
    assert_eq!(
        bench.send(&client_tcp(1002, RST)).counted,
        [Reason::PassNoFlow]
    );
    assert_eq!(
        bench
            .send(&client_tcp(1002, weir_wire::TcpFlags(0x06)))
            .counted,
        [Reason::PassNoFlow]
    );
    bench.assert_same_state();
}

/// Returns whether a second SYN starts a flow to a different server, after packets with `later_flags` to the first
/// server. If `weight` is 0, the first server gets this weight before the second SYN.
fn starts_new_flow(settings: u32, later_flags: &[weir_wire::TcpFlags], weight: u32) -> bool {
    let Some(mut bench) = Bench::open() else {
        return false;
    };
    let (service, _) = bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::direct(1), NewServer::direct(2)],
    );
    bench.change_settings(|row| row.flags = settings);
    let first = bench.send_to_server(&client_tcp(1000, SYN));
    for flags in later_flags {
        bench.send_to_server(&client_tcp(1000, *flags));
    }
    if weight == 0 {
        bench.set_weight(service, first, 0);
    }
    let second = bench.send_to_server(&client_tcp(1000, SYN));
    bench.assert_same_state();
    second != first
}

#[test]
fn conn_reuse_mode_determines_when_a_syn_starts_a_new_flow() {
    if Bench::open().is_none() {
        return;
    }
    let fin_wait = SETTINGS_REUSE | SETTINGS_REUSE_FIN_WAIT;
    let nodest = SETTINGS_REUSE | SETTINGS_EXPIRE_NODEST;
    // Settings, the packets after the SYN, the server's weight after these packets, and whether a different server is
    // selected.
    let cases: [(u32, &[weir_wire::TcpFlags], u32, bool); 11] = [
        (SETTINGS_REUSE, &[ACK], 1, false),
        (SETTINGS_REUSE, &[ACK, RST], 1, true),
        (0, &[ACK, RST], 1, false),
        (SETTINGS_REUSE, &[ACK, FIN], 1, false),
        (fin_wait, &[ACK, FIN], 1, true),
        (fin_wait, &[ACK], 1, false),
        (SETTINGS_REUSE, &[ACK], 0, false),
        (nodest, &[ACK], 0, true),
        (nodest, &[ACK], 1, false),
        (SETTINGS_EXPIRE_NODEST, &[ACK], 0, false),
        (SETTINGS_REUSE, &[FIN], 1, true),
    ];
    for (settings, later_flags, weight, expected) in cases {
        assert_eq!(
            starts_new_flow(settings, later_flags, weight),
            expected,
            "{settings:x} {later_flags:?} weight {weight}"
        );
    }
}

#[test]
fn expire_nodest_conn_ends_flows_unless_a_packet_starts_a_new_one() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, dests) = bench.serve(Kind::Rr, (VIP, 80), &[NewServer::direct(1)]);
    for port in 1000..1003 {
        bench.send_to_server(&client_tcp(port, SYN));
    }
    bench.remove(service, dests[0], DEST_LIVE | DEST_RESCHEDULE);
    bench.change_dest_row(dests[0], |row| row.policy = POLICY_EXPIRE);
    let next = bench.add(service, NewServer::direct(2));
    assert_eq!(
        bench.send(&client_tcp(1000, ACK)).counted,
        [Reason::PassNoFlow]
    );
    assert_eq!(bench.send_to_server(&client_tcp(1001, SYN)), next);
    bench.change_settings(|settings| settings.flags |= SETTINGS_SLOPPY_TCP);
    assert_eq!(bench.send_to_server(&client_tcp(1002, ACK)), next);
    bench.assert_same_state();
}

#[test]
fn packets_to_a_removed_server_are_dropped_until_it_is_added_again() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, dests) = bench.serve(Kind::Rr, (VIP, 80), &[NewServer::direct(1)]);
    bench.send_to_server(&client_tcp(1000, SYN));
    let before = bench.plane.maps().dests.get(dests[0]).unwrap();
    bench.remove(service, dests[0], DEST_LIVE | DEST_RESET);
    bench.change_dest_row(dests[0], |row| row.policy = POLICY_SILENT);
    for _ in 0..3 {
        let outcome = bench.send(&client_tcp(1000, ACK));
        assert_eq!(
            (outcome.verdict, outcome.counted),
            (Xdp::Drop, vec![Reason::DropServerGone])
        );
    }
    bench.change_dest_row(dests[0], |row| *row = before);
    assert_eq!(bench.send_to_server(&client_tcp(1000, ACK)), dests[0]);
    bench.assert_same_state();
}

#[test]
fn server_is_full_at_upper_and_open_below_lower_threshold() {
    // Upper threshold, lower threshold, and the number of flows below which the server accepts flows again: the lower
    // threshold, or three quarters of the upper threshold.
    for (upper, lower, opens_below) in [(3, 0, 3), (4, 0, 3), (8, 0, 6), (4, 2, 2), (4, 4, 4)] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        let (_, dests) = bench.serve(Kind::Sh, (VIP, 80), &[NewServer::direct(1)]);
        bench.set_thresholds(dests[0], upper, lower);
        let overloaded = |bench: &Bench| bench.plane.maps().live(dests[0]).unwrap().overloaded;
        for port in 1..=upper as u16 {
            assert_eq!(overloaded(&bench), 0, "{port} of {upper}");
            bench.send_to_server(&client_tcp(port, SYN));
        }
        assert_eq!(overloaded(&bench), 1, "at {upper}");
        bench.change_settings(|settings| settings.timeouts[State::Close as usize] = u32::MAX);
        for remaining in (0..upper).rev() {
            // A FIN before the ACK closes the flow, and a closed flow ends with the next packet.
            let port = (remaining + 1) as u16;
            bench.send_to_server(&client_tcp(port, FIN));
            bench
                .change_settings(|settings| settings.timeouts[State::TimeWait as usize] = u32::MAX);
            assert_eq!(
                bench.send(&client_tcp(port, ACK)).counted,
                [Reason::PassNoFlow]
            );
            assert_eq!(
                overloaded(&bench),
                u32::from(remaining >= opens_below),
                "{remaining} of {upper}, lower {lower}"
            );
        }
        bench.assert_same_state();
    }
}

#[test]
fn full_server_is_skipped_in_every_service_of_its_pool() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    // Both services share one row of counts, after the rows of the servers.
    let shared = bench.plane.sizes().dests;
    let of_pool = |last: u8, row: u32| NewServer::direct(last).row(|dest| dest.live = row);
    let pool = [of_pool(1, shared), of_pool(2, shared + 1)];
    let (_, rr_dests) = bench.serve(Kind::Rr, (VIP, 80), &pool);
    let (_, wlc_dests) = bench.serve(Kind::Wlc, ("192.0.2.11", 80), &pool);
    rr_dests
        .iter()
        .for_each(|dest| bench.set_thresholds(*dest, 2, 0));
    let other = |port| Shape::tcp(SYN).arriving(at(CLIENT, port), at("192.0.2.11", 80));
    let first = [
        bench.send_to_server(&client_tcp(1, SYN)),
        bench.send_to_server(&client_tcp(2, SYN)),
    ];
    assert_eq!(first.iter().filter(|dest| **dest == rr_dests[0]).count(), 1);
    let second = [
        bench.send_to_server(&other(1)),
        bench.send_to_server(&other(2)),
    ];
    assert_eq!(
        second.iter().filter(|dest| **dest == wlc_dests[0]).count(),
        1
    );
    for frame in [client_tcp(3, SYN), other(3)] {
        assert_eq!(bench.send(&frame).counted, [Reason::RejectNoServer]);
    }
    assert_eq!(
        bench.send_to_server(&client_tcp(1, ACK)),
        first[0],
        "the flow moved to a different server"
    );
    bench.assert_same_state();
}

#[test]
fn two_cpus_exceed_a_threshold_by_at_most_one() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    if !two_cpus() {
        return;
    }
    const UPPER: u32 = 500;
    let (_, dests) = bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::direct(1), NewServer::direct(2)],
    );
    for dest in &dests {
        bench.set_thresholds(*dest, UPPER, 0);
    }
    let plane = &bench.plane;
    let barrier = std::sync::Barrier::new(2);
    let stream = |cpu: usize| {
        weir_sys::pin_thread(cpu).unwrap();
        barrier.wait();
        for port in 0..1000u16 {
            let frame = client_tcp(2 * port + cpu as u16, SYN);
            let input = weir_dataplane::TestInput::xdp(&frame);
            plane.test_run("weir_xdp", &input).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| stream(0));
        scope.spawn(|| stream(1));
    });
    crate::consistency::assert_invariants(plane);
    for dest in dests {
        let live = plane.maps().live(dest).unwrap();
        let flows = live.active + live.inactive;
        let max = u64::from(UPPER) + 1;
        assert!((u64::from(UPPER)..=max).contains(&flows), "{flows}");
        assert_eq!(live.overloaded, 1);
    }
}
