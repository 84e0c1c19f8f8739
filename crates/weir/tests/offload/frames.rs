//! Captures the director's frames on an adjacent host, and verifies every checksum in them.
//!
//! Checksums inside a tunnel are included. This detects partial checksums that the director leaves to nonexistent
//! hardware and that a receiver's stack would accept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_sys::FrameSocket;

use super::world::{Family, World};

const ETHERNET_HEADER: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// Weir's default GUE port.
const GUE_PORT: usize = 6080;

/// Numbers of received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameCounts {
    pub(crate) frames: u64,
    pub(crate) wrong_checksums: u64,
    /// UDP datagrams over IPv4 without a checksum.
    pub(crate) without_checksum: u64,
}

/// The checksums of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksums {
    Correct,
    Wrong,
    /// A UDP datagram over IPv4 without a checksum (RFC 768).
    Absent,
}

/// A running capture.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<FrameCounts>,
}

impl Capture {
    /// Starts capturing the frames that a host receives from the director. Returns when no frame can be missed.
    pub(crate) fn start(world: &World, host: &str, family: Family) -> Self {
        let (ifindex, _) = link(world, host);
        // The director may send from several devices, so a frame is the director's if neither other host sent it.
        let other_macs = ["client", "server0"].map(|host| link(world, host).1);
        let ethertype = match family {
            Family::V4 => 0x0800,
            Family::V6 => 0x86dd,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, is_ready) = channel();
        let thread = world.spawn_on(host, move || {
            let socket = FrameSocket::open_listener(ifindex, ethertype)
                .expect("open a packet socket as root");
            ready.send(()).expect("the test waits for the socket");
            let (mut counts, mut frame) = (FrameCounts::default(), vec![0; 1 << 16]);
            loop {
                let received = socket.receive_within(&mut frame, Duration::from_millis(50));
                let Ok(Some(length @ 1..)) = received else {
                    // The queue is empty.
                    if stopped.load(Ordering::Relaxed) {
                        return counts;
                    }
                    continue;
                };
                if other_macs.iter().all(|mac| frame[6..12] != *mac) {
                    counts.frames += 1;
                    let found = checksums(&frame[ETHERNET_HEADER..length]);
                    counts.wrong_checksums += u64::from(found == Checksums::Wrong);
                    counts.without_checksum += u64::from(found == Checksums::Absent);
                }
            }
        });
        is_ready.recv().expect("capture thread panicked");
        Self { stop, thread }
    }

    /// Stops the capture when no frame has arrived for 50 ms.
    pub(crate) fn stop(self) -> FrameCounts {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("capture thread panicked")
    }
}

/// Returns the index and MAC address of a host's interface.
fn link(world: &World, host: &str) -> (u32, [u8; 6]) {
    let output = world.output(host, "ip -j link show eth0");
    let links: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("output is valid JSON");
    let index = links[0]["ifindex"].as_u64().expect("value is a number");
    let address = links[0]["address"].as_str().expect("address is a string");
    let mut bytes = address
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("parse a hexadecimal byte"));
    let address = std::array::from_fn(|_| bytes.next().expect("address has six bytes"));
    (
        u32::try_from(index).expect("number fits in 32 bits"),
        address,
    )
}

/// Returns the RFC 1071 sum over the parts. Only the last part may have odd length. The sum is all ones if the parts
/// include a correct checksum.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
    let mut total: u64 = words.map(word).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Verifies all checksums of known kinds in an IP packet.
fn checksums(packet: &[u8]) -> Checksums {
    let field =
        |offset: usize| usize::from(u16::from_be_bytes([packet[offset], packet[offset + 1]]));
    let is_ipv4 = packet[0] >> 4 == 4;
    let (addresses, protocol, payload) = if is_ipv4 {
        let header = usize::from(packet[0] & 15) * 4;
        if sum(&[&packet[..header]]) != 0xffff {
            return Checksums::Wrong;
        }
        if field(6) & 0x3fff != 0 {
            return Checksums::Correct;
        }
        (&packet[12..20], packet[9], &packet[header..field(2)])
    } else {
        (&packet[8..40], packet[6], &packet[40..40 + field(4)])
    };
    match protocol {
        // The outer checksum of a tunnel may be absent, even over IPv6 (RFC 6935 section 5).
        UDP if usize::from(u16::from_be_bytes([payload[2], payload[3]])) == GUE_PORT => {
            if payload[6..8] != [0, 0] && !is_complete(addresses, protocol, payload) {
                return Checksums::Wrong;
            }
            let optional_words = usize::from(payload[8] & 31);
            checksums(&payload[12 + optional_words * 4..])
        }
        GRE => {
            let has_checksum = payload[0] & 0x80 != 0;
            if has_checksum && sum(&[payload]) != 0xffff {
                return Checksums::Wrong;
            }
            checksums(&payload[if has_checksum { 8 } else { 4 }..])
        }
        UDP if payload[6..8] == [0, 0] => {
            // IPv6 requires a checksum (RFC 8200 section 8.1).
            if is_ipv4 {
                Checksums::Absent
            } else {
                Checksums::Wrong
            }
        }
        TCP | UDP if !is_complete(addresses, protocol, payload) => Checksums::Wrong,
        IP_IN_IP | IPV6_IN_IP => checksums(payload),
        _ => Checksums::Correct,
    }
}

/// Returns whether the checksum over the pseudo header and the payload is complete and correct.
fn is_complete(addresses: &[u8], protocol: u8, payload: &[u8]) -> bool {
    let length = (payload.len() as u32).to_be_bytes();
    sum(&[addresses, &length, &[0, protocol], payload]) == 0xffff
}

#[test]
fn partial_checksum_is_invalid() {
    let mut packet = vec![
        0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    packet.extend([
        0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0,
    ]);
    let header = !sum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    let pseudo_header_sum = sum(&[&packet[12..20], &[0, 0, 0, 20], &[0, TCP]]);
    packet[36..38].copy_from_slice(&pseudo_header_sum.to_be_bytes());
    assert_eq!(
        checksums(&packet),
        Checksums::Wrong,
        "a checksum field with only the pseudo header's sum must be invalid"
    );
    packet[36..38].fill(0);
    let checksum = !sum(&[&packet[12..20], &[0, 0, 0, 20], &[0, TCP], &packet[20..]]);
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(checksums(&packet), Checksums::Correct);
}

#[test]
fn datagrams_are_verified() {
    let header = [0, 53, 4, 0, 0, 10, 0, 0, 7, 9];
    let ipv4 = |checksum: u16| {
        let mut packet = vec![
            0x45, 0, 0, 30, 0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let sum = !sum(&[&packet]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(header);
        packet[26..28].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    let pseudo_header = [10, 0, 0, 1, 10, 0, 0, 2, 0, UDP, 0, 10];
    let correct = !sum(&[&pseudo_header, &header]);
    assert_eq!(checksums(&ipv4(correct)), Checksums::Correct);
    assert_eq!(checksums(&ipv4(sum(&[&pseudo_header]))), Checksums::Wrong);
    assert_eq!(checksums(&ipv4(0)), Checksums::Absent);
    let mut ipv6 = vec![0x60, 0, 0, 0, 0, 10, UDP, 64];
    ipv6.extend([0; 32]);
    ipv6.extend(header);
    assert_eq!(checksums(&ipv6), Checksums::Wrong, "no checksum over IPv6");
}

/// Wrong checksums inside a tunnel are found, and a tunnel needs no checksum of its own.
#[test]
fn packets_in_tunnels_are_verified() {
    let inner = |checksum: u16| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, UDP, 64];
        packet.extend([0; 32]);
        packet.extend([0, 53, 4, 0, 0, 8]);
        packet.extend(checksum.to_be_bytes());
        packet
    };
    let outer = |protocol: u8, headers: &[u8], inner: &[u8]| {
        let length = 20 + headers.len() + inner.len();
        let mut packet = vec![0x45, 0, 0, length as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !sum(&[&packet]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(headers);
        packet.extend(inner);
        packet
    };
    let correct = !sum(&[&[0, 0, 0, 8, 0, UDP], &[0, 53, 4, 0, 0, 8]]);
    let gue = |checksum: u8| [0xc0, 0, 0x17, 0xc0, 0, 60, 0, checksum, 0, IPV6_IN_IP, 0, 0];
    let (gre, gre_with_checksum) = ([0, 0, 0x86, 0xdd], [0x80, 0, 0x86, 0xdd, 0, 1, 0, 0]);
    for (checksum, expected) in [
        (correct, Checksums::Correct),
        (correct ^ 1, Checksums::Wrong),
    ] {
        let inner = inner(checksum);
        for (protocol, headers) in [(IPV6_IN_IP, &[][..]), (UDP, &gue(0)), (GRE, &gre)] {
            let packet = outer(protocol, headers, &inner);
            assert_eq!(checksums(&packet), expected, "{protocol} {checksum:x}");
        }
    }
    for (protocol, headers) in [(UDP, &gue(1)[..]), (GRE, &gre_with_checksum)] {
        let packet = outer(protocol, headers, &inner(correct));
        assert_eq!(checksums(&packet), Checksums::Wrong, "wrong outer checksum");
    }
}
