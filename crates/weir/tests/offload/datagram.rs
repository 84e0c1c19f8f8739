//! Tests UDP with offloads enabled: the checksums of datagrams are partial, complete or absent when they arrive.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use super::frames::{Capture, FrameCounts, sum};
use super::world::{Family, World, privileged, wait_for};
use super::{Offloads, PORT, XDP, config, set_offloads};

const TIMEOUT: Duration = Duration::from_secs(20);
/// The source port of datagrams that the test builds itself.
const RAW_PORT: u16 = 40_000;
const RAW_COUNT: u64 = 20;

fn udp_config(family: Family, node: &str, forward: &str) -> String {
    config(family, node, forward).replace("listen = [\"", "listen = [\"udp/")
}

/// Returns a host's UDP counter, summed over both IP versions (snmp_counter.rst).
fn udp_counter(world: &World, host: &str, name: &str) -> u64 {
    let text = world.output(
        host,
        "cat /proc/thread-self/net/snmp /proc/thread-self/net/snmp6",
    );
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp: "));
    let (names, values) = (lines.next(), lines.next());
    let names = names.expect("no line with counter names").split(' ');
    let values = values.expect("no line with counter values").split(' ');
    let found = names.zip(values).find(|(it, _)| *it == name);
    let v4 = found.expect("no such counter").1;
    let v6 = text.lines().find_map(|line| {
        let (it, value) = line.split_once(char::is_whitespace)?;
        (it == format!("Udp6{name}")).then_some(value)
    });
    let parse = |value: &str| value.trim().parse::<u64>().expect("parse the counter");
    parse(v4) + v6.map_or(0, parse)
}

fn assert_no_checksum_errors(world: &World, counts: &[FrameCounts], case: &str) {
    assert!(
        counts.iter().all(|counts| counts.wrong_checksums == 0),
        "{case}: {counts:?}"
    );
    for host in ["client", "server0"] {
        assert_eq!(
            udp_counter(world, host, "InCsumErrors"),
            0,
            "{case}: {host}"
        );
    }
}

/// Exchanges datagrams of even and odd sizes.
fn exchange(forward: &str, family: Family, node: &str) {
    let case = format!("{forward} {family:?} {node}");
    let mut world = World::new(1);
    set_offloads(&world, 1, Offloads::Defaults);
    if forward == "nat" {
        world.start_udp_echo(PORT, |n| family.server(n));
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
        world.start_udp_echo(PORT, |_| family.vip());
    }
    world.start_daemon(&udp_config(family, node, forward));
    let captures = ["client", "server0"].map(|host| Capture::start(&world, host, family));
    for length in [1, 2, 3, 501, 1000, 1399] {
        let payload: Vec<u8> = (0..length).map(|i| (i * 7 + length) as u8).collect();
        let to = SocketAddr::new(family.vip(), PORT);
        let reply = world.udp_exchange(to, payload.clone());
        let reply = reply.unwrap_or_else(|| panic!("{case}: no reply to {length} bytes"));
        assert_eq!(reply[1..], payload, "{case}");
    }
    let counts = captures.map(Capture::stop);
    assert_no_checksum_errors(&world, &counts, &case);
    assert!(counts[1].frames >= 6, "{case}: {counts:?}");
}

fn exchange_in_all_modes(forward: &str) {
    if !privileged() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        for node in ["", XDP] {
            exchange(forward, family, node);
        }
    }
}

#[test]
fn datagrams_with_partial_checksums_pass_with_nat() {
    exchange_in_all_modes("nat");
}

#[test]
fn datagrams_with_partial_checksums_pass_with_direct() {
    exchange_in_all_modes("direct");
}

#[test]
fn datagrams_with_partial_checksums_pass_with_tunnel() {
    exchange_in_all_modes("tunnel");
}

#[test]
fn datagrams_with_partial_checksums_pass_with_l3dsr() {
    exchange_in_all_modes("l3dsr");
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns the sum over the pseudo header and a datagram.
fn datagram_sum(family: Family, to: IpAddr, datagram: &[u8]) -> u16 {
    let length = (datagram.len() as u16).to_be_bytes();
    sum(&[
        &address_bytes(family.client()),
        &address_bytes(to),
        &[0, 17],
        &length,
        datagram,
    ])
}

/// Returns a datagram from the client to the VIP with a complete checksum. `nat` changes the checksum to zero, which
/// must be sent as 0xffff, because zero means that there is no checksum.
fn datagram_with_zero_checksum_at_server(family: Family) -> Vec<u8> {
    let mut datagram = Vec::new();
    for word in [RAW_PORT, PORT, 10, 0, 0] {
        datagram.extend(word.to_be_bytes());
    }
    let payload = !datagram_sum(family, family.server(0), &datagram);
    datagram[8..10].copy_from_slice(&payload.to_be_bytes());
    assert_eq!(datagram_sum(family, family.server(0), &datagram), 0xffff);
    let checksum = !datagram_sum(family, family.vip(), &datagram);
    assert_ne!(checksum, 0, "the VIP is not the server");
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    datagram
}

fn send_raw(world: &World, family: Family, datagram: Vec<u8>) {
    let sender = world.spawn_on("client", move || {
        let domain = match family {
            Family::V4 => AddressFamily::INET,
            Family::V6 => AddressFamily::INET6,
        };
        let socket = socket(domain, SocketType::RAW, Some(ipproto::UDP));
        let socket = socket.expect("open the socket as root");
        let to = SocketAddr::new(family.vip(), 0);
        for _ in 0..RAW_COUNT {
            let sent = sendto(&socket, &datagram, SendFlags::empty(), &to);
            assert_eq!(sent.expect("send the datagram"), datagram.len());
        }
    });
    sender.join().expect("thread panicked");
}

/// Sends datagrams through `nat` without `snat` and returns what the server received.
fn count_forwarded_frames(family: Family, node: &str, datagram: Vec<u8>) -> FrameCounts {
    let mut world = World::new(1);
    set_offloads(&world, 1, Offloads::Defaults);
    world.start_udp_echo(PORT, |n| family.server(n));
    let text = udp_config(family, node, "nat").replace("snat = true\n", "");
    world.start_daemon(&text);
    let capture = Capture::start(&world, "server0", family);
    send_raw(&world, family, datagram);
    let case = format!("{family:?} {node}");
    wait_for("the datagrams to arrive", TIMEOUT, || {
        udp_counter(&world, "server0", "InDatagrams") >= RAW_COUNT
    });
    let counts = capture.stop();
    assert_no_checksum_errors(&world, &[counts], &case);
    assert!(counts.frames >= RAW_COUNT, "{case}: {counts:?}");
    counts
}

#[test]
fn checksum_that_becomes_zero_is_not_removed() {
    if !privileged() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        for node in ["", XDP] {
            let datagram = datagram_with_zero_checksum_at_server(family);
            let counts = count_forwarded_frames(family, node, datagram);
            assert_eq!(counts.without_checksum, 0, "{family:?} {node}: {counts:?}");
        }
    }
}

#[test]
fn absent_checksum_stays_absent() {
    if !privileged() {
        return;
    }
    for node in ["", XDP] {
        let mut datagram = datagram_with_zero_checksum_at_server(Family::V4);
        datagram[6..8].fill(0);
        let counts = count_forwarded_frames(Family::V4, node, datagram);
        assert_eq!(counts.without_checksum, RAW_COUNT, "{node}: {counts:?}");
    }
}
