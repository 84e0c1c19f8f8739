//! Tests the tc programs: packets sent through the neighbor table, local servers' replies, and other hosts' frames.
//!
//! XDP passes a packet to tc if it cannot send it. Local servers are servers on the director. Frames to the MAC address
//! of another host are left to the stack.

#![allow(unsafe_code, reason = "packet sockets")]

mod support;
mod testbed;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use support::{run, veth};
use testbed::{
    CLIENT_PORT, PORT, SERVER_MAC, SERVER_PORT, Setup, Testbed, XDP_DROP, XDP_PASS, XDP_TX, frame,
    tcp, tcp_packet, udp_packet,
};
use weir_abi::{Device, Forward, Hop, Reason};
use weir_dataplane::{TcRole, XdpChoice};
use weir_wire::{IpProtocol, MacAddr, Packet, TcpFlags};

const TC_NEXT: u32 = u32::MAX;

// ---- egress ----

fn open_local(v6: bool, snat: bool) -> Option<Testbed> {
    let mut setup = Setup::new(v6, Forward::Nat);
    setup.dest.flags |= weir_abi::DEST_LOCAL;
    setup.settings.flags = weir_abi::SETTINGS_LOCAL_NAT;
    if snat { setup.snat() } else { setup }.open_with_tc()
}

fn reply(testbed: &Testbed, packet: &[u8]) -> testbed::PacketOutcome {
    let out = testbed.run("weir_tc_egress", &frame().ip_packet(packet));
    assert_eq!(out.verdict, TC_NEXT);
    assert!(
        out.ip().has_valid_checksums(),
        "{}",
        weir_wire::describe(&out.frame)
    );
    out
}

#[test]
fn reply_of_local_server_has_the_vip_as_source() {
    for v6 in [false, true] {
        for snat in [false, true] {
            let Some(testbed) = open_local(v6, snat) else {
                return;
            };
            let net = testbed.net;
            let requests = [
                tcp(net.client, net.vip, CLIENT_PORT, PORT, TcpFlags::SYN),
                frame().ip_packet(&udp_packet(net.client, net.vip, CLIENT_PORT, PORT, 9)),
            ];
            for request in requests {
                let outcome = testbed.send(&request);
                assert_eq!(
                    (outcome.verdict, outcome.ip().dst()),
                    (XDP_PASS, net.server)
                );
                let (source, sport) = (outcome.ip().src(), outcome.ip().ports().unwrap().0);
                let answer = match outcome.ip().protocol {
                    IpProtocol::TCP => tcp_packet(net.server, source, SERVER_PORT, sport, 333),
                    _ => udp_packet(net.server, source, SERVER_PORT, sport, 333),
                };
                let out = reply(&testbed, &answer);
                assert_eq!((out.ip().src(), out.ip().dst()), (net.vip, net.client));
                assert_eq!(out.ip().ports(), Some((PORT, CLIENT_PORT)));
                assert_eq!(
                    out.ip().ttl(),
                    64,
                    "the TTL of the director's own packets must not be decremented"
                );
            }
            let traffic = testbed.plane.maps().traffic(1).unwrap();
            let header = if v6 { 40 } else { 20 };
            assert_eq!(
                (traffic.packets_out, traffic.bytes_out),
                (2, 2 * header + 20 + 8 + 2 * 333)
            );
        }
    }
}

#[test]
fn local_reply_changes_the_state() {
    let Some(testbed) = open_local(false, false) else {
        return;
    };
    let net = testbed.net;
    testbed.send(&tcp(net.client, net.vip, CLIENT_PORT, PORT, TcpFlags::SYN));
    let state = |testbed: &Testbed| {
        let forward = testbed
            .plane
            .maps()
            .flows
            .walk()
            .find(|flow| flow.cold.dst == net.vip.into());
        forward.unwrap().entry.parts().state
    };
    assert_eq!(state(&testbed), weir_abi::State::SynRecv as u8);
    testbed.send(&tcp(net.client, net.vip, CLIENT_PORT, PORT, TcpFlags::ACK));
    assert_eq!(state(&testbed), weir_abi::State::Established as u8);
    let fin = Packet::ip(net.server, net.client)
        .tcp(SERVER_PORT, CLIENT_PORT)
        .flags(TcpFlags::FIN)
        .build();
    reply(&testbed, &fin);
    assert_eq!(state(&testbed), weir_abi::State::FinWait as u8);
}

#[test]
fn fragments_of_a_local_reply_are_translated() {
    for v6 in [false, true] {
        let Some(testbed) = open_local(v6, false) else {
            return;
        };
        let net = testbed.net;
        testbed.send(&frame().ip_packet(&udp_packet(net.client, net.vip, CLIENT_PORT, PORT, 9)));
        let answer = udp_packet(net.server, net.client, SERVER_PORT, CLIENT_PORT, 1400);
        for part in frame().fragments(&answer, 600, 3).unwrap() {
            let out = testbed.run("weir_tc_egress", &part);
            assert!(out.ip().has_valid_checksums());
            assert_eq!(
                (out.verdict, out.ip().src(), out.ip().dst()),
                (TC_NEXT, net.vip, net.client)
            );
        }
        assert_eq!(testbed.plane.maps().traffic(1).unwrap().packets_out, 3);
    }
}

#[test]
fn other_packets_are_not_changed() {
    let Some(testbed) = open_local(false, false) else {
        return;
    };
    let net = testbed.net;
    testbed.send(&tcp(net.client, net.vip, CLIENT_PORT, PORT, TcpFlags::SYN));
    for packet in [
        tcp_packet(net.server, net.client, SERVER_PORT + 1, CLIENT_PORT, 5),
        tcp_packet(net.director, net.client, SERVER_PORT, CLIENT_PORT, 5),
        udp_packet(net.server, net.client, SERVER_PORT, CLIENT_PORT, 5),
        Packet::ip(net.server, net.client)
            .echo_request(1, 1)
            .build(),
    ] {
        assert_eq!(reply(&testbed, &packet).frame, frame().ip_packet(&packet));
    }
    let mut settings = testbed.plane.maps().settings().unwrap();
    settings.flags = 0;
    testbed.plane.maps().set_settings(&settings).unwrap();
    let own = tcp_packet(net.server, net.client, SERVER_PORT, CLIENT_PORT, 5);
    assert_eq!(
        reply(&testbed, &own).frame,
        frame().ip_packet(&own),
        "a packet must not be changed unless a server is local"
    );
}

#[test]
fn zero_udp_checksum_stays_zero() {
    let Some(testbed) = open_local(false, false) else {
        return;
    };
    let net = testbed.net;
    testbed.send(&frame().ip_packet(&udp_packet(net.client, net.vip, CLIENT_PORT, PORT, 9)));
    let answer = Packet::ip(net.server, net.client)
        .udp(SERVER_PORT, CLIENT_PORT)
        .payload(b"none")
        .zero_udp_checksum()
        .build();
    let out = reply(&testbed, &answer);
    assert_eq!(out.ip().src(), net.vip);
    assert_eq!(
        out.ip().transport_checksum,
        weir_wire::ChecksumState::Absent
    );
}

// ---- ingress ----

/// A packet socket that receives the packets that arrive on a device. It waits at most two seconds for each packet.
struct PacketSocket(OwnedFd);

const ETH_P_ALL: u16 = 3;

impl PacketSocket {
    fn open(ifindex: u32) -> Self {
        // SAFETY: no pointers.
        let fd = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                ETH_P_ALL.to_be().into(),
            )
        };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: this is the only owner of the descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid value of this plain structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ETH_P_ALL.to_be();
        address.sll_ifindex = ifindex as i32;
        let length = size_of_val(&address) as u32;
        // SAFETY: the address and its length belong together.
        let result = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        let timeout = libc::timeval {
            tv_sec: 2,
            tv_usec: 0,
        };
        let length = size_of_val(&timeout) as u32;
        // SAFETY: the option's value and its length belong together.
        let result = unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const timeout).cast(),
                length,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Self(socket)
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: the buffer and its length belong together.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// Receives the next frame with a TCP packet, whether or not the packet is in a tunnel.
    fn receive_tcp(&self) -> weir_wire::ParsedFrame {
        loop {
            let mut buffer = [0u8; 2048];
            // SAFETY: the buffer and its length belong together.
            let length = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                )
            };
            assert!(
                length > 0,
                "no frame received: {}",
                io::Error::last_os_error()
            );
            let parsed = Packet::parse(&buffer[..length as usize]);
            if let Ok(parsed) = parsed
                && parsed
                    .ip()
                    .is_some_and(|ip| ip.inner().unwrap_or(ip).protocol == IpProtocol::TCP)
            {
                return parsed;
            }
        }
    }
}

/// Sends a SYN to `va`, and returns the packet that leaves through `vc`. The neighbor table contains the server's MAC
/// address, but the next-hop rows do not.
fn send_through_tc(v6: bool, forward: Forward, tagged: bool) -> Option<weir_wire::ParsedFrame> {
    let testbed = Setup::new(v6, forward).open_with_tc()?;
    let net = testbed.net;
    let (ingress, egress) = (veth("va", "vb"), veth("vc", "vd"));
    let (address, length) = (net.director, if v6 { 64 } else { 24 });
    let quick = if v6 { " nodad" } else { "" };
    run(&format!("ip addr add {address}/{length} dev vc{quick}"));
    let mac = MacAddr::new(SERVER_MAC);
    run(&format!(
        "ip neigh replace {} lladdr {mac} dev vc nud permanent",
        net.server
    ));
    let unresolved = Hop {
        link: u64::from(egress) << 32 | u64::from(weir_abi::HOP_STATIC) << 16 | 1500,
        ..Hop::default()
    };
    for slot in 0..weir_abi::HOPS_PER_DEST {
        testbed.plane.maps().set_hop(1, slot, &unresolved).unwrap();
    }
    testbed
        .plane
        .maps()
        .devices
        .set(
            &ingress,
            &Device {
                flags: weir_abi::DEVICE_SEND,
                port: ingress,
                vlan: 0,
                mtu: 1500,
            },
        )
        .unwrap();
    testbed.plane.attach(ingress, XdpChoice::Best).unwrap();
    testbed.plane.attach_tc(ingress, TcRole::Ingress).unwrap();
    let (feed, sink) = (
        PacketSocket::open(index("vb")),
        PacketSocket::open(index("vd")),
    );
    let syn = Packet::ip(net.client, net.vip)
        .tcp(CLIENT_PORT, PORT)
        .flags(TcpFlags::SYN)
        .build();
    feed.send(&if tagged {
        frame().vlan(7).ip_packet(&syn)
    } else {
        frame().ip_packet(&syn)
    });
    Some(sink.receive_tcp())
}

fn index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a NUL-terminated string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

#[test]
fn packets_that_xdp_cannot_send_use_the_neighbor_table() {
    for v6 in [false, true] {
        for forward in [
            Forward::Direct,
            Forward::Nat,
            Forward::L3dsr,
            Forward::Tunnel,
        ] {
            let Some(parsed) = send_through_tc(v6, forward, false) else {
                return;
            };
            let net = testbed::net(v6);
            assert_eq!(parsed.ethernet.dst.octets(), SERVER_MAC, "{forward:?}");
            let ip = parsed.ip().unwrap();
            assert!(ip.has_valid_checksums());
            let expected = if forward == Forward::Direct {
                net.vip
            } else {
                net.server
            };
            assert_eq!((ip.dst(), ip.ttl()), (expected, 63), "{forward:?}");
            let client = ip.inner().unwrap_or(ip);
            assert_eq!(client.src(), net.client, "{forward:?}");
        }
    }
}

#[test]
fn vlan_tag_is_removed_on_a_different_device() {
    let Some(parsed) = send_through_tc(false, Forward::Direct, true) else {
        return;
    };
    assert_eq!(parsed.ethernet.dst.octets(), SERVER_MAC);
    assert!(parsed.ethernet.tags.is_empty());
}

// ---- frames to other hosts ----

/// The loopback device, which receives the test packets, and its MAC address.
const LOOPBACK: (u32, [u8; 6]) = (1, [0; 6]);
const VIRTUAL_MAC: [u8; 6] = [0, 0, 0x5e, 0, 1, 51];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 99];
const BROADCAST: [u8; 6] = [0xff; 6];
const TC_REDIRECT: u32 = 7;

/// Returns a program's verdict on a frame with this destination, and whether the frame was counted as one for another
/// host.
fn verdict_to(testbed: &Testbed, program: &str, mac: [u8; 6], packet: &[u8]) -> (u32, bool) {
    let before = testbed.count(Reason::PassOtherHost);
    let mac = Packet::ethernet(MacAddr::new(testbed::PEER_MAC), MacAddr::new(mac));
    let out = testbed.run(program, &mac.ip_packet(packet));
    (out.verdict, testbed.count(Reason::PassOtherHost) > before)
}

fn list_macs(testbed: &Testbed, macs: &[[u8; 6]]) {
    let addresses = macs.iter().map(|mac| (LOOPBACK.0, *mac)).collect();
    testbed
        .plane
        .maps()
        .set_frame_addresses(&addresses)
        .unwrap();
}

/// Returns a client's first packet.
fn request(testbed: &Testbed) -> Vec<u8> {
    let packet = Packet::ip(testbed.net.client, testbed.net.vip).tcp(CLIENT_PORT, PORT);
    packet.flags(TcpFlags::SYN).build()
}

#[test]
fn xdp_leaves_frames_to_other_hosts_to_the_stack() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open_with_tc() else {
        return;
    };
    let request = request(&testbed);
    let verdict_for = |mac| verdict_to(&testbed, "weir_xdp", mac, &request);
    // No address of the device is listed.
    assert_eq!(verdict_for(OTHER_MAC), (XDP_TX, false));
    list_macs(&testbed, &[testbed::DIRECTOR_MAC]);
    assert_eq!(verdict_for(testbed::DIRECTOR_MAC), (XDP_TX, false));
    for foreign in [OTHER_MAC, VIRTUAL_MAC, BROADCAST, LOOPBACK.1] {
        assert_eq!(verdict_for(foreign), (XDP_PASS, true), "{foreign:02x?}");
    }
    // The address of a macvlan device while its virtual router is active.
    list_macs(&testbed, &[testbed::DIRECTOR_MAC, VIRTUAL_MAC]);
    assert_eq!(verdict_for(VIRTUAL_MAC), (XDP_TX, false));
    assert_eq!(verdict_for(OTHER_MAC), (XDP_PASS, true));
    list_macs(&testbed, &[testbed::DIRECTOR_MAC]);
    assert_eq!(verdict_for(VIRTUAL_MAC), (XDP_PASS, true));
    // Frames to all addresses are accepted even if there are more than fit in the table.
    let many: Vec<[u8; 6]> = (0..4_000u32)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            [2, 1, 0, 0, high, low]
        })
        .collect();
    list_macs(&testbed, &many);
    for mac in &many {
        assert_eq!(verdict_for(*mac), (XDP_TX, false), "{mac:02x?}");
    }
    list_macs(&testbed, &[testbed::DIRECTOR_MAC]);
    assert_eq!(verdict_for(many[0]), (XDP_PASS, true));
}

#[test]
fn tc_leaves_frames_to_other_hosts_to_the_stack() {
    let Some(testbed) = Setup::new(true, Forward::Direct).open_with_tc() else {
        return;
    };
    let request = request(&testbed);
    let verdict_for = |mac| verdict_to(&testbed, "weir_skb", mac, &request);
    // The kernel compares the destination with the device's address, whether or not the table contains it.
    assert_eq!(verdict_for(LOOPBACK.1), (TC_REDIRECT, false));
    assert_eq!(verdict_for(VIRTUAL_MAC), (TC_NEXT, true));
    list_macs(&testbed, &[VIRTUAL_MAC]);
    assert_eq!(verdict_for(LOOPBACK.1), (TC_REDIRECT, false));
    assert_eq!(verdict_for(VIRTUAL_MAC), (TC_REDIRECT, false));
    for foreign in [OTHER_MAC, BROADCAST] {
        assert_eq!(verdict_for(foreign), (TC_NEXT, true), "{foreign:02x?}");
    }
}

/// Tests frames to a MAC address that the table does not contain: the daemon is not running, or has not received the
/// kernel's event yet.
#[test]
fn frames_to_virtual_mac_are_accepted_if_the_host_has_the_vip() {
    let Some(testbed) = Setup::new(false, Forward::Direct).open_with_tc() else {
        return;
    };
    run("ip link set lo up");
    run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.lo.forwarding=1");
    run("ip route add unreachable default");
    let request = request(&testbed);
    let verdict_for = |mac| verdict_to(&testbed, "weir_xdp", mac, &request);
    list_macs(&testbed, &[testbed::DIRECTOR_MAC]);
    assert_eq!(verdict_for(VIRTUAL_MAC), (XDP_PASS, true));
    run(&format!("ip addr add {}/32 dev lo", testbed.net.vip));
    // There is no route to the server, but the director was responsible for forwarding the packet.
    assert_eq!(verdict_for(VIRTUAL_MAC), (XDP_DROP, false));
    for foreign in [OTHER_MAC, [0, 0, 0x5e, 0, 3, 51], [0, 0, 0x5f, 0, 1, 51]] {
        assert_eq!(verdict_for(foreign), (XDP_PASS, true), "{foreign:02x?}");
    }
    run("sysctl -qw net.ipv4.conf.lo.forwarding=0");
    assert_eq!(verdict_for(VIRTUAL_MAC), (XDP_PASS, true));
}

#[test]
fn icmp_error_about_a_tunnel_is_left_to_the_addressed_host() {
    let mut setup = Setup::new(false, Forward::Tunnel);
    setup.settings.flags = 0;
    let Some(testbed) = setup.open_with_tc() else {
        return;
    };
    let net = testbed.net;
    testbed.start_flow();
    let inner_packet = tcp_packet(net.client, net.vip, CLIENT_PORT, PORT, 1000);
    let tunnel = Packet::ip(net.director, net.server);
    let tunnel_packet = tunnel.encapsulate(weir_wire::Encapsulation::Ipip, &inner_packet);
    let error = Packet::ip(net.router, net.director).too_big(1400, &tunnel_packet);
    let error = error.build();
    list_macs(&testbed, &[testbed::DIRECTOR_MAC]);
    // Without a route to the client, the tc program sends a translated error.
    for (mac, translated) in [(OTHER_MAC, 0), (testbed::DIRECTOR_MAC, 1)] {
        let (verdict, _) = verdict_to(&testbed, "weir_xdp", mac, &error);
        let count = testbed.count(Reason::PassToTc);
        assert_eq!((verdict, count), (XDP_PASS, translated), "{mac:02x?}");
    }
}
