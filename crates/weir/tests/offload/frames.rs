//! Frames of the director as an adjacent host receives them: every checksum in them is correct, also inside a tunnel.
//! This detects checksums that the director leaves to missing hardware and that a receiver's stack would accept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_sys::FrameSocket;

use super::world::{Family, World};

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;

/// The received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) frames: u64,
    pub(crate) wrong: u64,
}

/// A capture that runs until it is ended.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    work: JoinHandle<Seen>,
}

impl Capture {
    /// Starts to capture the frames that a host receives from the director.
    pub(crate) fn start(world: &World, host: &str, family: Family) -> Self {
        let (ifindex, _) = link(world, host);
        // Its device may be one of several and have an address; the other ones have one.
        let others = ["client", "server0"].map(|host| link(world, host).1);
        let ethertype = match family {
            Family::V4 => 0x0800,
            Family::V6 => 0x86dd,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let work = world.inside(host, move || {
            let socket = FrameSocket::listening(ifindex, ethertype).expect("root may capture");
            let (mut seen, mut frame) = (Seen::default(), vec![0; 1 << 16]);
            while !ends.load(Ordering::Relaxed) {
                let received = socket.receive_within(&mut frame, Duration::from_millis(50));
                let Ok(Some(length @ 1..)) = received else {
                    continue;
                };
                if others.iter().all(|other| frame[6..12] != *other) {
                    seen.frames += 1;
                    seen.wrong += u64::from(!is_right(&frame[ETHERNET..length]));
                }
            }
            seen
        });
        Self { stop, work }
    }

    pub(crate) fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.work.join().expect("the capture's thread")
    }
}

/// Number and address of a host's interface.
fn link(world: &World, host: &str) -> (u32, [u8; 6]) {
    let output = world.output(host, "ip -j link show eth0");
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let index = links[0]["ifindex"].as_u64().expect("a number");
    let address = links[0]["address"].as_str().expect("an address");
    let mut bytes = address
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"));
    let address = std::array::from_fn(|_| bytes.next().expect("six bytes"));
    (u32::try_from(index).expect("a small number"), address)
}

/// The sum of RFC 1071 over parts of even length, except for the last one; all ones if it includes a correct checksum.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
    let mut total: u64 = words.map(word).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Whether the checksums of an IP packet are correct, as far as it has any of a known kind.
fn is_right(packet: &[u8]) -> bool {
    let number = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (addresses, protocol, payload) = if packet[0] >> 4 == 4 {
        let header = usize::from(packet[0] & 15) * 4;
        if sum(&[&packet[..header]]) != 0xffff {
            return false;
        }
        if number(6) & 0x3fff != 0 {
            return true;
        }
        (&packet[12..20], packet[9], &packet[header..number(2)])
    } else {
        (&packet[8..40], packet[6], &packet[40..40 + number(4)])
    };
    match protocol {
        TCP => {
            let length = (payload.len() as u32).to_be_bytes();
            sum(&[addresses, &length, &[0, protocol], payload]) == 0xffff
        }
        IP_IN_IP | IPV6_IN_IP => is_right(payload),
        _ => true,
    }
}

#[test]
fn partial_checksum_is_not_valid() {
    let mut packet = vec![
        0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    packet.extend([
        0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0,
    ]);
    let header = !sum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    let pseudo = sum(&[&packet[12..20], &[0, 0, 0, 20], &[0, TCP]]);
    packet[36..38].copy_from_slice(&pseudo.to_be_bytes());
    assert!(!is_right(&packet), "the sum of the pseudo header alone");
    packet[36..38].fill(0);
    let whole = !sum(&[&packet[12..20], &[0, 0, 0, 20], &[0, TCP], &packet[20..]]);
    packet[36..38].copy_from_slice(&whole.to_be_bytes());
    assert!(is_right(&packet));
}
