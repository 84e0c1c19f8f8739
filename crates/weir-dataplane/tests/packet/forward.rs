//! Tests packets to servers: direct, nat and l3dsr in both families, TCP through all states, and UDP.

use weir_abi::Forward;

use crate::bench::{Bench, NewServer, next_hop_macs};
use crate::route::{families, run_flow};
use crate::wire::{SYN, Shape, at};

#[test]
fn direct_changes_only_the_frame_header() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for (family, vip, client, server) in families() {
        let row = NewServer::new(Forward::Direct, server);
        run_flow(
            &mut bench,
            &format!("direct {family}"),
            (vip, client),
            row,
            |shape, ends| {
                shape
                    .forwarded()
                    .build(next_hop_macs(ends.dest), ends.src, ends.dst)
            },
        );
    }
    bench.assert_same_state();
}

#[test]
fn nat_rewrites_the_destination() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for (family, vip, client, server) in families() {
        for port in [0, 8080] {
            let row = NewServer::new(Forward::Nat, server).port(port);
            run_flow(
                &mut bench,
                &format!("nat {family} port {port}"),
                (vip, client),
                row,
                |shape, ends| {
                    let port = if port == 0 { ends.dst.port() } else { port };
                    shape
                        .forwarded()
                        .build(next_hop_macs(ends.dest), ends.src, at(server, port))
                },
            );
        }
    }
    bench.assert_same_state();
}

#[test]
fn l3dsr_rewrites_the_address_and_the_dscp() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for (family, vip, client, server) in families() {
        for dscp in [0u8, 1, 63] {
            // A configured port is used only for health checks: the client's port is not changed.
            let row = NewServer::new(Forward::L3dsr, server)
                .port(8080)
                .row(|row| row.dscp = dscp);
            run_flow(
                &mut bench,
                &format!("l3dsr {family} dscp {dscp}"),
                (vip, client),
                row,
                |shape, ends| {
                    let tos = if dscp == 0 {
                        shape.tos
                    } else {
                        dscp << 2 | shape.tos & 3
                    };
                    Shape {
                        tos,
                        ..shape.forwarded()
                    }
                    .build(
                        next_hop_macs(ends.dest),
                        ends.src,
                        at(server, ends.dst.port()),
                    )
                },
            );
        }
    }
    bench.assert_same_state();
}

/// If the data plane had no action for a method, it would forward the method's packets like those of a different
/// method.
#[test]
fn data_plane_matches_the_model_for_each_forwarding_method() {
    let methods = weir_model::Forward::ALL.into_iter();
    for method in methods.filter(|it| it.handles_packets()) {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        let (_, vip, client, server) = families()[0];
        let row = NewServer::new(weir_flow::abi_forward(method), server).row(|row| {
            row.dscp = 5;
            row.tunnel_source = std::net::IpAddr::from([10, 9, 9, 1]).into();
        });
        let (port, _) = bench.serve_next(weir_sched::Kind::Rr, vip, &[row]);
        bench.send(&Shape::tcp(SYN).arriving(at(client, 2000), at(vip, port)));
        bench.assert_same_state();
    }
}
