//! Tests `weir real-server` in namespaces with a client, a director and a prepared server.
//!
//! Sockets on the server receive packets that the director forwards with the tested method, and the client accepts
//! replies only from the VIP. Requires root, but no tunnel module.

#[path = "namespace/director.rs"]
mod director;
#[path = "namespace/topology.rs"]
mod topology;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use director::{Director, GueMode, Rewrite, gre, gue, ipip, l3dsr};
use socket2::SockRef;
use topology::*;
use weir_model::Forward;
use weir_real_server::{DownRequest, Error, Step};

/// Exchanges data with the VIP and with the server's own address over TCP and UDP. Returns the number of packets that
/// the director forwarded.
fn exchange(topology: &Topology, family: usize, rewrite: Rewrite, target: IpAddr) -> u64 {
    let vip = ip(VIP[family]);
    let director = Director::start(&topology.director, vip, target, rewrite);
    exchange_udp(&topology.client, vip);
    exchange_tcp(&topology.client, vip);
    let forwarded = director.forwarded();
    assert!(
        forwarded > VOLUME_BYTES as u64 / 1400,
        "the traffic did not pass through the director"
    );
    drop(director);
    exchange_tcp(&topology.client, ip(SERVER[family]));
    exchange_udp(&topology.client, ip(SERVER[family]));
    forwarded
}

fn serve_all(topology: &Topology) {
    for family in FAMILIES {
        serve(&topology.server, ip(VIP[family]));
        serve(&topology.server, ip(SERVER[family]));
    }
}

/// Returns all pairs of outer and inner address family.
fn family_pairs() -> impl Iterator<Item = (usize, usize)> {
    FAMILIES
        .into_iter()
        .flat_map(|outer| FAMILIES.map(|inner| (outer, inner)))
}

#[test]
fn direct_serves_the_vip_without_announcing_it() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("direct");
    write_sysctl(&topology.server, "net/ipv4/conf/s0/rp_filter", "1");
    let before = topology.server_state();
    run_ip(&topology.server, "addr add 192.0.2.10/32 dev lo");
    run_ip(&topology.director, "route replace 192.0.2.10 dev d1");
    assert!(
        resolves(&topology, ip(VIP[0])),
        "without `up`, the server must reply to ARP requests, or this test proves nothing"
    );
    run_ip(&topology.server, "addr del 192.0.2.10/32 dev lo");
    run_ip(&topology.director, "neigh flush dev d1");

    topology.up(&request(Forward::Direct, &VIP));
    serve_all(&topology);
    // The director must not resolve the VIP to the server's link-layer address.
    run_ip(
        &topology.director,
        "route replace 192.0.2.10 dev d1\n-6 route replace 2001:db8::10 dev d1",
    );
    for family in FAMILIES {
        assert!(
            !resolves(&topology, ip(VIP[family])),
            "the server announced {}",
            VIP[family]
        );
        assert!(resolves(&topology, ip(SERVER[family])));
    }
    run_ip(
        &topology.director,
        "route replace 192.0.2.10 via 10.9.2.3\n-6 route replace 2001:db8::10 via fd09:2::3",
    );
    for family in FAMILIES {
        exchange_tcp(&topology.client, ip(VIP[family]));
        exchange_udp(&topology.client, ip(VIP[family]));
        exchange_tcp(&topology.client, ip(SERVER[family]));
    }
    assert!(
        topology.show().programs.is_empty(),
        "direct requires no program"
    );
    topology.down(&[]);
    topology.assert_unchanged(&before);
}

/// Returns whether the director can resolve the link-layer address of `address`. The kernel reports a failed
/// resolution as an error of connect().
fn resolves(topology: &Topology, address: IpAddr) -> bool {
    let result = topology
        .director
        .run(|| TcpStream::connect_timeout(&(address, PORT).into(), TIMEOUT))
        .unwrap();
    match result {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => true,
        Err(error) if error.kind() == ErrorKind::HostUnreachable => false,
        Err(error) => panic!("{address}: {error}"),
    }
}

#[test]
fn ipip_is_decapsulated_for_all_families() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("ipip");
    let before = topology.server_state();
    topology.up(&request(
        Forward::Tunnel,
        &["192.0.2.10:8080", "[2001:db8::10]:8000-8999"],
    ));
    serve_all(&topology);
    let mut forwarded = 0;
    for (outer, inner) in family_pairs() {
        let target = ip(SERVER[outer]);
        forwarded += exchange(
            &topology,
            inner,
            ipip(ip(DIRECTOR[outer]), target, 0),
            target,
        );
    }
    let counts = topology.show().counts;
    assert!(
        counts["decapsulated"] > 0 && counts["drop-failed"] == 0,
        "{counts:?}"
    );
    assert!(
        counts["decapsulated"] < forwarded,
        "none of {forwarded} packets was merged: offloads were not tested"
    );
    topology.down(&[]);
    topology.assert_unchanged(&before);
}

#[test]
fn gre_is_decapsulated_with_and_without_checksum() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("gre");
    let mut up_request = request(Forward::Tunnel, &VIP);
    up_request.tunnel = Some("gre".parse().unwrap());
    topology.up(&up_request);
    serve_all(&topology);
    for (outer, inner) in family_pairs() {
        for checksum in [false, true] {
            let target = ip(SERVER[outer]);
            exchange(
                &topology,
                inner,
                gre(ip(DIRECTOR[outer]), target, checksum),
                target,
            );
        }
    }
}

#[test]
fn gue_is_decapsulated_in_every_mode() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("gue");
    let mut up_request = request(Forward::Tunnel, &VIP);
    up_request.tunnel = Some("gue:6081".parse().unwrap());
    topology.up(&up_request);
    serve_all(&topology);
    let modes = [
        GueMode::None,
        GueMode::Full,
        GueMode::Remote(true),
        GueMode::Remote(false),
        GueMode::Variant1,
    ];
    for (outer, inner) in family_pairs() {
        for mode in modes {
            let target = ip(SERVER[outer]);
            exchange(
                &topology,
                inner,
                gue(ip(DIRECTOR[outer]), target, 6081, mode),
                target,
            );
        }
    }
    assert_eq!(topology.show().counts["drop-malformed"], 0);
}

#[test]
fn l3dsr_restores_the_vip_of_marked_packets() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("l3dsr");
    let before = topology.server_state();
    let mut up_request = request(Forward::L3dsr, &["192.0.2.10:8080", "[2001:db8::10]:8080"]);
    up_request.dscp = Some(7);
    topology.up(&up_request);
    serve_all(&topology);
    for family in FAMILIES {
        let target = ip(SERVER[family]);
        exchange(&topology, family, l3dsr(target, 7), target);
    }
    let counts = topology.show().counts;
    assert!(
        counts["turned-back"] > 0 && counts["reply-rewritten"] == 0,
        "{counts:?}"
    );
    topology.down(&[]);
    topology.assert_unchanged(&before);
}

#[test]
fn l3dsr_without_mark_rewrites_replies() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("no-mark");
    let before = topology.server_state();
    let mut up_request = request(Forward::L3dsr, &["192.0.2.10:8080", "[2001:db8::10]:8080"]);
    up_request.dscp = Some(0);
    up_request.except = DIRECTOR
        .iter()
        .map(|address| address.parse().unwrap())
        .collect();
    topology.up(&up_request);
    for family in FAMILIES {
        serve(&topology.server, ip(SERVER[family]));
    }
    for family in FAMILIES {
        let (vip, target) = (ip(VIP[family]), ip(SERVER[family]));
        let director = Director::start(&topology.director, vip, target, l3dsr(target, 0));
        exchange_udp(&topology.client, vip);
        echo(&connect_udp(&topology.client, vip, PORT), &[1400, 8000]);
        exchange_tcp(&topology.client, vip);
        drop(director);
        // The director is in `except`: its health checks receive replies from the server's own address.
        exchange_tcp(&topology.director, target);
        exchange_udp(&topology.director, target);
    }
    assert!(topology.show().counts["pass-except"] > 0);
    topology.down(&[]);
    topology.assert_unchanged(&before);
}

#[test]
fn non_first_fragments_are_handled_like_the_first() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("fragments");
    topology.up(&request(
        Forward::Tunnel,
        &["192.0.2.10:8080", "[2001:db8::10]:8080"],
    ));
    topology.up(&request(
        Forward::L3dsr,
        &["192.0.2.10:8080", "[2001:db8::10]:8080"],
    ));
    serve_all(&topology);
    for family in FAMILIES {
        let (vip, target) = (ip(VIP[family]), ip(SERVER[family]));
        for rewrite in [ipip(ip(DIRECTOR[family]), target, 0), l3dsr(target, 1)] {
            let _director = Director::start(&topology.director, vip, target, rewrite);
            echo(
                &connect_udp(&topology.client, vip, PORT),
                &[1400, 4000, 8000],
            );
        }
    }
}

#[test]
fn icmp_errors_reach_their_socket() {
    if !is_root() {
        return;
    }
    for (dscp, source) in [(5, VIP), (0, SERVER)] {
        let topology = Topology::new(&format!("icmp-{dscp}"));
        let mut up_request = request(Forward::L3dsr, &["192.0.2.10:8080", "[2001:db8::10]:8080"]);
        up_request.dscp = Some(dscp);
        topology.up(&up_request);
        for family in FAMILIES {
            let (vip, target) = (ip(VIP[family]), ip(SERVER[family]));
            let _director = Director::start(&topology.director, vip, target, l3dsr(target, dscp));
            let local = SocketAddr::new(ip(source[family]), PORT);
            let socket = topology
                .server
                .run(|| UdpSocket::bind(local).unwrap())
                .unwrap();
            socket.connect((CLIENT[family], 9)).unwrap();
            assert_refused(&socket, "the server's socket");
            drop(socket);
            // Without a bound socket, the client must receive the error from the VIP.
            assert_refused(
                &connect_udp(&topology.client, vip, PORT),
                "the client's socket",
            );
        }
    }
}

/// Asserts that a datagram to a closed port causes an ICMP error that the socket receives.
fn assert_refused(socket: &UdpSocket, owner: &str) {
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.send(b"hello").unwrap();
    let error = socket.recv(&mut [0; 64]).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::ConnectionRefused,
        "{owner} {socket:?}"
    );
}

#[test]
fn congestion_marks_are_propagated_per_rfc_6040() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("ecn");
    topology.up(&request(Forward::Tunnel, &VIP));
    serve_all(&topology);
    for (outer, inner) in family_pairs() {
        let (vip, target) = (ip(VIP[inner]), ip(SERVER[outer]));
        let _director = Director::start(
            &topology.director,
            vip,
            target,
            ipip(ip(DIRECTOR[outer]), target, ECN_CE),
        );
        let before = topology.show().counts;
        let not_capable = connect_udp(&topology.client, vip, PORT);
        not_capable.send(b"not ECN-capable").unwrap();
        wait_until("the drop", || {
            topology.show().counts["drop-ecn"] > before["drop-ecn"]
        });
        let capable = connect_udp(&topology.client, vip, PORT);
        let options = SockRef::from(&capable);
        if vip.is_ipv4() {
            options.set_tos_v4(ECN_ECT0)
        } else {
            options.set_tclass_v6(ECN_ECT0)
        }
        .unwrap();
        echo(&capable, &[100]);
        assert_eq!(topology.show().counts["drop-ecn"], before["drop-ecn"] + 1);
    }
}

const ECN_ECT0: u32 = 2;
const ECN_CE: u8 = 3;

#[test]
fn tunnel_accepts_only_configured_vip_port_and_protocol() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("foreign");
    topology.up(&request(Forward::Tunnel, &["192.0.2.10:8080"]));
    // These sockets must not be reachable through the tunnel: another address, another port, another tunnel protocol.
    serve(&topology.server, ip(SERVER[0]));
    serve(&topology.server, ip(VIP[0]));
    let (source, target) = (ip(DIRECTOR[0]), ip(SERVER[0]));
    let foreign: [(Rewrite, u16, &str); 2] = [
        (ipip(source, target, 0), PORT + 1, "pass-not-vip"),
        (gre(source, target, false), PORT, "pass-not-vip"),
    ];
    for (rewrite, port, count) in foreign {
        let _director = Director::start(&topology.director, ip(VIP[0]), target, rewrite);
        let before = topology.show().counts;
        connect_udp(&topology.client, ip(VIP[0]), port)
            .send(b"not allowed")
            .unwrap();
        wait_until(count, || topology.show().counts[count] > before[count]);
        assert_eq!(
            topology.show().counts["decapsulated"],
            before["decapsulated"]
        );
    }
}

#[test]
fn up_is_idempotent_and_adds_vips() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("twice");
    let before = topology.server_state();
    let first = request(Forward::Tunnel, &["192.0.2.10:80"]);
    assert!(!topology.up(&first).is_empty());
    let once = topology.server_state();
    assert_eq!(topology.up(&first), []);
    topology.assert_unchanged(&once);

    topology.up(&request(Forward::Direct, &["2001:db8::10"]));
    assert_eq!(topology.show().vips.len(), 2);
    topology.down(&["192.0.2.10"]);
    let remaining = topology.show();
    assert_eq!(
        (
            remaining.vips.len(),
            remaining.programs.len(),
            remaining.drift.len()
        ),
        (1, 0, 0),
        "{remaining}"
    );
    topology.down(&["2001:db8::10"]);
    topology.assert_unchanged(&before);
    assert_eq!(topology.down(&[]), []);
    assert!(!topology.options().pin_dir.exists(), "pins remain");
}

#[test]
fn drift_is_shown_and_repaired_and_later_changes_are_kept() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("drift");
    let up_request = request(Forward::Tunnel, &["192.0.2.10"]);
    topology.up(&up_request);
    run_ip(
        &topology.server,
        "addr del 192.0.2.10/32 dev lo\naddr add 10.9.2.4/24 dev s0",
    );
    write_sysctl(&topology.server, "net/ipv4/conf/all/arp_ignore", "0");
    assert_eq!(topology.show().drift.len(), 3, "{}", topology.show());
    assert_eq!(topology.up(&up_request).len(), 3);
    assert!(topology.show().drift.is_empty());
    // `down` does not revert a value that another program set.
    write_sysctl(&topology.server, "net/ipv4/conf/all/arp_announce", "1");
    let steps = topology.down(&[]);
    assert!(
        steps
            .iter()
            .any(|step| matches!(step, Step::ForgetSysctl { .. })),
        "{steps:?}"
    );
    let value = topology
        .server
        .run(|| std::fs::read_to_string("/proc/sys/net/ipv4/conf/all/arp_announce").unwrap());
    assert_eq!(value.unwrap().trim(), "1");
}

/// In a different network namespace, these commands would find the settings of the wrong machine.
#[test]
fn show_doctor_and_down_are_rejected_in_a_different_namespace() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("other");
    topology.up(&request(Forward::Direct, &["192.0.2.10"]));
    let options = topology.options();
    let show = topology.in_client(|| weir_real_server::show(&options));
    let doctor = topology.in_client(|| weir_real_server::doctor(&options, false));
    let down = DownRequest { vips: Vec::new() };
    let down = topology.in_client(|| weir_real_server::down(&options, &down));
    for error in [show.err(), doctor.err(), down.err()] {
        assert!(
            matches!(error, Some(Error::OtherNamespace { .. })),
            "{error:?}"
        );
    }
    assert!(topology.show().drift.is_empty(), "{}", topology.show());
}

#[test]
fn existing_vip_on_lo_is_kept_and_announced_vip_is_rejected() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("present");
    run_ip(&topology.server, "addr add 192.0.2.10/32 dev lo");
    let before = topology.server_state();
    topology.up(&request(Forward::Direct, &["192.0.2.10"]));
    topology.down(&[]);
    topology.assert_unchanged(&before);

    run_ip(
        &topology.server,
        "addr add 192.0.2.11/32 dev s0\naddr add 192.0.3.1/24 dev lo",
    );
    let before = topology.server_state();
    let result = topology.up_with(
        &topology.options(),
        &request(Forward::Direct, &["192.0.2.11", "192.0.3.1"]),
    );
    match result {
        Err(Error::Rejected { problems }) => assert_eq!(problems.len(), 2, "{problems:?}"),
        other => panic!("expected Error::Rejected, got {other:?}"),
    }
    topology.assert_unchanged(&before);
    assert!(topology.show().vips.is_empty());
}

#[test]
fn failed_up_is_rolled_back() {
    if !is_root() {
        return;
    }
    let topology = Topology::new("half");
    topology.up(&request(Forward::Direct, &["2001:db8::10"]));
    let before = topology.server_state();
    let mut options = topology.options();
    // Directories cannot be created below /proc.
    options.pin_dir = "/proc/nonexistent/bpf/weir".into();
    let error = topology
        .up_with(&options, &request(Forward::Tunnel, &["192.0.2.10"]))
        .unwrap_err();
    assert!(matches!(error, Error::Programs(_)), "{error}");
    topology.assert_unchanged(&before);
    let remaining = topology.show();
    assert_eq!(
        (
            remaining.vips.len(),
            remaining.sysctls.len(),
            remaining.drift.len()
        ),
        (1, 0, 0),
        "{remaining}"
    );
}
