//! Tests packets to servers: direct, nat and l3dsr in both families, TCP through all states, and UDP.

use weir_abi::Forward;

use crate::bench::{Bench, NewServer, hop_macs};
use crate::route::{families, run};
use crate::wire::{Shape, at};

#[test]
fn direct_changes_only_the_frame_header() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for (family, vip, client, server) in families() {
        let row = NewServer::new(Forward::Direct, server);
        run(
            &mut bench,
            &format!("direct {family}"),
            (vip, client),
            row,
            |shape, ends| {
                shape
                    .hopped()
                    .build(hop_macs(ends.dest), ends.from, ends.to)
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
            run(
                &mut bench,
                &format!("nat {family} port {port}"),
                (vip, client),
                row,
                |shape, ends| {
                    let port = if port == 0 { ends.to.port() } else { port };
                    shape
                        .hopped()
                        .build(hop_macs(ends.dest), ends.from, at(server, port))
                },
            );
        }
    }
    bench.assert_same_state();
}

#[test]
fn l3dsr_rewrites_the_address_and_marks() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for (family, vip, client, server) in families() {
        for dscp in [0u8, 1, 63] {
            // A configured port is used only for checks: the client's port is not changed.
            let row = NewServer::new(Forward::L3dsr, server)
                .port(8080)
                .row(|row| row.dscp = dscp);
            run(
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
                        ..shape.hopped()
                    }
                    .build(
                        hop_macs(ends.dest),
                        ends.from,
                        at(server, ends.to.port()),
                    )
                },
            );
        }
    }
    bench.assert_same_state();
}
