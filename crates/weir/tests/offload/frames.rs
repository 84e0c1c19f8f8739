//! Captures the director's frames on an adjacent host and verifies every checksum in them, including those inside a
//! tunnel. This detects partial checksums that the director leaves to nonexistent hardware and that a receiver's stack
//! would accept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_sys::FrameSocket;

use super::world::{Family, World};

const ETHERNET_HEADER: usize = 14;
const TCP: u8 = 6;
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;

/// The number of received frames, and of frames with a wrong checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameCounts {
    pub(crate) frames: u64,
    pub(crate) wrong_checksums: u64,
}

/// A running capture.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<FrameCounts>,
}

impl Capture {
    /// Starts capturing the frames that a host receives from the director.
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
        let thread = world.spawn_on(host, move || {
            let socket = FrameSocket::open_listener(ifindex, ethertype)
                .expect("open a packet socket as root");
            let (mut counts, mut frame) = (FrameCounts::default(), vec![0; 1 << 16]);
            while !stopped.load(Ordering::Relaxed) {
                let received = socket.receive_within(&mut frame, Duration::from_millis(50));
                let Ok(Some(length @ 1..)) = received else {
                    continue;
                };
                if other_macs.iter().all(|mac| frame[6..12] != *mac) {
                    counts.frames += 1;
                    counts.wrong_checksums +=
                        u64::from(!has_correct_checksums(&frame[ETHERNET_HEADER..length]));
                }
            }
            counts
        });
        Self { stop, thread }
    }

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
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
    let mut total: u64 = words.map(word).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Returns whether all checksums of known kinds in an IP packet are correct.
fn has_correct_checksums(packet: &[u8]) -> bool {
    let field =
        |offset: usize| usize::from(u16::from_be_bytes([packet[offset], packet[offset + 1]]));
    let (addresses, protocol, payload) = if packet[0] >> 4 == 4 {
        let header = usize::from(packet[0] & 15) * 4;
        if sum(&[&packet[..header]]) != 0xffff {
            return false;
        }
        if field(6) & 0x3fff != 0 {
            return true;
        }
        (&packet[12..20], packet[9], &packet[header..field(2)])
    } else {
        (&packet[8..40], packet[6], &packet[40..40 + field(4)])
    };
    match protocol {
        TCP => {
            let length = (payload.len() as u32).to_be_bytes();
            sum(&[addresses, &length, &[0, protocol], payload]) == 0xffff
        }
        IP_IN_IP | IPV6_IN_IP => has_correct_checksums(payload),
        _ => true,
    }
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
    assert!(
        !has_correct_checksums(&packet),
        "a checksum field with only the pseudo header's sum must be invalid"
    );
    packet[36..38].fill(0);
    let checksum = !sum(&[&packet[12..20], &[0, 0, 0, 20], &[0, TCP], &packet[20..]]);
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    assert!(has_correct_checksums(&packet));
}
