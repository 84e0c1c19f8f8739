//! Tests service lookup, services without usable servers, and servers with weight 0.

use weir_abi::{Reason, SERVICE_DROP_NO_SERVER};
use weir_flow::model::{PortRange, VipRow};
use weir_sched::Kind;

use crate::bench::{Bench, NewServer, Xdp, next_hop_macs};
use crate::wire::{ACK, CLIENT, Case, SYN, Shape, VIP, at, check_all};

#[test]
fn exact_port_takes_precedence_over_range_and_wildcard() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let services: Vec<u32> = (1..=5)
        .map(|last| {
            let service = bench.add_service(Kind::Rr);
            bench.add(service, NewServer::direct(last));
            service
        })
        .collect();
    let range = |first, last, protocol, index: usize| PortRange {
        first,
        last,
        protocol,
        service: services[index],
    };
    bench.add_vip(
        VIP,
        VipRow {
            any_tcp: services[3],
            any_udp: services[4],
            ranges: vec![
                range(8000, 8999, 6, 1),
                range(9000, 9000, 6, 2),
                range(8000, 8010, 17, 2),
            ],
            ..VipRow::default()
        },
    );
    bench.listen(services[0], VIP, 8080);
    let cases = [
        (false, 8080, 1),
        (true, 8080, 1),
        (false, 8000, 2),
        (false, 8999, 2),
        (false, 8081, 2),
        (false, 9000, 3),
        (false, 9001, 4),
        (false, 7999, 4),
        (false, 0, 4),
        (false, 65535, 4),
        (true, 8000, 3),
        (true, 8010, 3),
        (true, 8011, 5),
        (true, 1, 5),
    ];
    for (is_udp, port, dest) in cases {
        let (protocol, shape) = match is_udp {
            true => ("UDP", Shape::udp()),
            false => ("TCP", Shape::tcp(SYN)),
        };
        let (client, vip) = (at(CLIENT, 1000), at(VIP, port));
        let out = shape.forwarded().build(next_hop_macs(dest), client, vip);
        Case::new(
            format!("{protocol} port {port}"),
            shape.arriving(client, vip),
        )
        .sends(out)
        .check(&mut bench);
    }
    bench.assert_same_state();
}

#[test]
fn service_without_usable_servers_rejects_or_drops_packets() {
    for drop in [false, true] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        let empty_service = bench.add_service(Kind::Rr);
        bench.listen(empty_service, VIP, 80);
        let (emptied_service, dests) = bench.serve(Kind::Rr, (VIP, 81), &[NewServer::direct(1)]);
        bench.remove(emptied_service, dests[0], 0);
        let (weight_zero_service, dests) = bench.serve(
            Kind::Wlc,
            (VIP, 82),
            &[NewServer::direct(2), NewServer::direct(3)],
        );
        dests
            .iter()
            .for_each(|dest| bench.set_weight(weight_zero_service, *dest, 0));
        if drop {
            for service in [empty_service, emptied_service, weight_zero_service] {
                bench.change_service_row(service, |row| row.flags |= SERVICE_DROP_NO_SERVER);
            }
        }
        for port in 80..=82 {
            for (protocol, shape) in [("TCP", Shape::tcp(SYN)), ("UDP", Shape::udp())] {
                let outcome = bench.send(&shape.arriving(at(CLIENT, 1000), at(VIP, port)));
                let (verdict, reason) = match drop {
                    true => (Xdp::Drop, Reason::DropNoServer),
                    false => (Xdp::Tx, Reason::RejectNoServer),
                };
                assert_eq!(
                    (outcome.verdict, outcome.counted),
                    (verdict, vec![reason]),
                    "{protocol} port {port}"
                );
            }
        }
        bench.assert_same_state();
    }
}

#[test]
fn reject_responses_are_rate_limited() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let service = bench.add_service(Kind::Rr);
    bench.listen(service, VIP, 80);
    bench.change_settings(|settings| settings.reject_budget = 0);
    let frame = Shape::tcp(SYN).arriving(at(CLIENT, 1000), at(VIP, 80));
    check_all(
        &mut bench,
        &[Case::new("reject budget is 0", frame).drops(Reason::DropNoServer)],
    );
}

#[test]
fn no_reject_response_is_sent_to_invalid_sources() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let service = bench.add_service(Kind::Rr);
    bench.listen(service, VIP, 80);
    for source in [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        let frame = Shape::tcp(SYN).arriving(at(source, 1000), at(VIP, 80));
        Case::new(source, frame)
            .drops(Reason::DropNoServer)
            .check(&mut bench);
    }
    let mut frame = Shape::tcp(SYN).arriving(at(CLIENT, 1000), at(VIP, 80));
    frame[0] |= 1;
    Case::new("multicast destination MAC address", frame)
        .drops(Reason::DropNoServer)
        .check(&mut bench);
}

#[test]
fn server_with_weight_zero_keeps_flows_and_gets_no_new_ones() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let (service, dests) = bench.serve(
        Kind::Rr,
        (VIP, 80),
        &[NewServer::direct(1), NewServer::direct(2)],
    );
    let frame = |port, flags| Shape::tcp(flags).arriving(at(CLIENT, port), at(VIP, 80));
    let selected_server =
        |bench: &mut Bench, port, flags| u32::from(bench.send(&frame(port, flags)).frame[5]);
    let servers: Vec<u32> = (1000..1004)
        .map(|port| selected_server(&mut bench, port, SYN))
        .collect();
    bench.set_weight(service, dests[0], 0);
    for (port, server) in (1000..).zip(&servers) {
        assert_eq!(
            selected_server(&mut bench, port, ACK),
            *server,
            "flow from client port {port}"
        );
    }
    for port in 2000..2004 {
        assert_eq!(selected_server(&mut bench, port, SYN), dests[1]);
    }
    bench.set_weight(service, dests[0], 1);
    let servers_after_restore: std::collections::BTreeSet<u32> = (3000..3004)
        .map(|port| selected_server(&mut bench, port, SYN))
        .collect();
    assert_eq!(
        servers_after_restore.len(),
        2,
        "both servers receive new flows again"
    );
    bench.assert_same_state();
}
