//! Tests that this build and the previous build can decode each other's datagrams.
//!
//! The fixtures have the layout of the previous build; the sealed datagram was made with another implementation of the
//! ciphers.

use std::net::IpAddr;
use std::time::Duration;

use crate::item::{Item, items};
use crate::record::{Kind, Record, ServiceId};
use crate::replay::Window;
use crate::seal::{Cipher, Header, Key, SessionId};
use crate::session::{PeerState, Session, Source};

const SECRET: &[u8] = b"0123456789abcdef";
/// Item numbers of the previous build.
const HELLO: u8 = 1;
const FLOW: u8 = 2;
const ACK: u8 = 3;
const COMPLETE: u8 = 4;

/// A translated TCP flow, a UDP flow with a firewall mark, and a template for a whole service.
const RECORDS: [&str; 3] = [
    "0106040101009c4001bb000005dc0000003cc0000209c633640a040a00000500500207040a0000014e20",
    concat!(
        "0111060b000014e90035000000100000000220010db800000000000000000000000920010db800000000000000000000",
        "000a0620010db8000500000000000000000001000001050000000706",
    ),
    concat!(
        "020604010200000000000000000000000000c0000200c633640a040a000005000004080604c633640a01bb0304000493",
        "e0",
    ),
];

/// A datagram with a hello, the records, an acknowledgement of datagrams 5 and 3, and the end of the table.
const DATAGRAM: &str = concat!(
    "57525301000102030405060708090a0b0c0d0e0f000000000000000799aabbccddeeff01e0600975c50a55704c9a6efc1a26",
    "3260b6b3e4b6750a10fe5cb5825f6aff13d36339ccb0883a98e7b29790049e85acad43ea5da347035c4da74a92e491ee1c61",
    "1c36dc64fb573802ec89706e6af8f5bf036c3c3585efb5543b88893ceaaf3535bc02998c887cf5de63f8df8e99a557fd22b1",
    "8c7320d80b3423eacf73ab9a33be12753661af989e47cd2db3c3fa5703c1bce5ba666b0694d34770fd477d430406bc5a5d44",
    "2649377b0fcae54e4de52fff0ef86d4091cf4bf58dd3053eb7fef230bcdd902ba7771295663a41f618859606844365ee4d3b",
    "50433628d17a5fa4658d65dc43f5e6ea3f3d05a75e1857f16073e8c33c608440c55afac0609d2c871f24dffae84d7f93961a",
    "3d1589e317bcc51c18b008630726ec6727",
);

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2);
    digits
        .map(|offset| u8::from_str_radix(&hex[offset..offset + 2], 16).expect("two digits"))
        .collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Returns the content of [`RECORDS`].
fn records() -> [Record; 3] {
    let flow = Record {
        kind: Kind::Flow,
        proto: 6,
        state: 1,
        active: true,
        client: (ip("192.0.2.9"), 40_000),
        vip: (ip("198.51.100.10"), 443),
        server: (ip("10.0.0.5"), 80),
        idle_ms: 1_500,
        age_s: 60,
        service: None,
        snat: Some((ip("10.0.0.1"), 20_000)),
        timeout_ms: None,
        whole_service: false,
    };
    let udp_flow = Record {
        proto: 17,
        state: 11,
        active: false,
        client: (ip("2001:db8::9"), 5_353),
        vip: (ip("2001:db8::a"), 53),
        server: (ip("2001:db8:5::1"), 0),
        idle_ms: 16,
        age_s: 2,
        service: Some(ServiceId::Mark(7, 6)),
        snat: None,
        ..flow
    };
    let template = Record {
        kind: Kind::Template,
        active: false,
        client: (ip("192.0.2.0"), 0),
        vip: (ip("198.51.100.10"), 0),
        server: (ip("10.0.0.5"), 0),
        idle_ms: 0,
        age_s: 0,
        service: Some(ServiceId::Listener(6, ip("198.51.100.10"), 443)),
        snat: None,
        timeout_ms: Some(300_000),
        whole_service: true,
        ..flow
    };
    [flow, udp_flow, template]
}

#[test]
fn records_have_the_layout_of_the_previous_build() {
    for (hex, record) in RECORDS.iter().zip(records()) {
        let bytes = bytes_of(hex);
        assert_eq!(Record::decode(&bytes), Some(record), "{hex}");
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{record:?}");
    }
}

#[test]
fn sealed_datagram_has_the_layout_of_the_previous_build() {
    let mut datagram = bytes_of(DATAGRAM);
    let header = Header::parse(&datagram).expect("a header");
    let expected = Header {
        session: std::array::from_fn(|index| index as u8),
        sequence: 7,
        challenge: 0x99aa_bbcc_ddee_ff01,
    };
    assert_eq!(header, expected);
    let cipher = Key::new(SECRET).cipher(&header.session).expect("a cipher");
    let body = cipher
        .open(&header, &mut datagram)
        .expect("the datagram is genuine");
    let found: Vec<Item> = items(body).collect();
    let is_hello = |item: &Item| matches!(item, Item::Hello { challenge, .. } if *challenge == 0x1122_3344_5566_7788);
    assert!(is_hello(&found[0]), "{found:?}");
    let mut expected: Vec<Item> = records().map(Item::Flow).into();
    expected.push(Item::ack(5, |number| number == 5 || number == 3));
    expected.push(Item::Complete);
    assert_eq!(found[1..], expected);
    let sealed = cipher.seal(&header, body);
    assert_eq!(sealed, Some(bytes_of(DATAGRAM)));
}

/// A director with the previous build. It reads and writes bytes without this build's `item` and `record` modules.
struct PreviousPeer {
    id: SessionId,
    cipher: Cipher,
    sequence: u64,
    /// The other director's challenge.
    challenge: u64,
    /// The records that it has received.
    received: Vec<Vec<u8>>,
    is_complete: bool,
    window: Window,
}

const PREVIOUS_CHALLENGE: u64 = 77;

impl PreviousPeer {
    fn new() -> Self {
        let id = [9; 16];
        Self {
            id,
            cipher: Key::new(SECRET).cipher(&id).expect("a cipher"),
            sequence: 0,
            challenge: 0,
            received: Vec::new(),
            is_complete: false,
            window: Window::default(),
        }
    }

    /// Reads a datagram as the previous build does, and asserts that the datagram contains only items that the previous
    /// build supports.
    fn receive(&mut self, mut datagram: Vec<u8>) {
        let header = Header::parse(&datagram).expect("a header");
        let cipher = Key::new(SECRET).cipher(&header.session).expect("a cipher");
        let mut body = cipher
            .open(&header, &mut datagram)
            .expect("the datagram is genuine");
        self.window.accept(header.sequence);
        while let [number, high, low, rest @ ..] = body {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let (content, next) = rest.split_at(length);
            match *number {
                HELLO => {
                    let challenge = content.first_chunk::<8>().expect("a challenge");
                    self.challenge = u64::from_be_bytes(*challenge);
                }
                FLOW => self.received.push(content.to_vec()),
                ACK => assert_eq!(content.len(), 72),
                COMPLETE => self.is_complete = true,
                unknown => panic!("item {unknown} was sent to the previous build"),
            }
            body = next;
        }
    }

    fn send(&mut self, items: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (number, content) in items {
            body.push(*number);
            body.extend_from_slice(&(content.len() as u16).to_be_bytes());
            body.extend_from_slice(content);
        }
        let header = Header {
            session: self.id,
            sequence: self.sequence,
            challenge: self.challenge,
        };
        self.sequence += 1;
        self.cipher.seal(&header, &body).expect("seal the datagram")
    }

    fn hello() -> (u8, Vec<u8>) {
        (HELLO, PREVIOUS_CHALLENGE.to_be_bytes().to_vec())
    }

    /// Returns an acknowledgement of everything that was received.
    fn ack(&self) -> (u8, Vec<u8>) {
        let highest = self.window.highest().expect("a datagram was received");
        let mut content = highest.to_be_bytes().to_vec();
        let mut bits = [0_u8; 64];
        for bit in (0..512_u64).filter(|bit| *bit <= highest && self.window.contains(highest - bit))
        {
            bits[(bit / 8) as usize] |= 1 << (bit % 8);
        }
        content.extend_from_slice(&bits);
        (ACK, content)
    }
}

/// A table with the records.
struct Table;

impl Source for Table {
    fn prefetch(&mut self, _entry: u32) {}

    fn export(&mut self, entry: u32, exported: &mut Vec<Record>) {
        exported.push(records()[entry as usize]);
    }

    fn scan(&mut self, _from: u32, entries: &mut Vec<u32>) -> Option<u32> {
        entries.extend(0..3);
        None
    }
}

#[test]
fn flows_are_exchanged_with_the_previous_build() {
    let mut now = Duration::from_secs(10);
    let mut session = Session::new(&Key::new(SECRET), [3; 32], 0, now);
    let mut peer = PreviousPeer::new();
    let mut received = Vec::new();
    peer.receive(session.poll(now, &mut Table).expect("a hello"));
    let mut datagram = peer.send(&[PreviousPeer::hello()]);
    let handled = session.handle(&mut datagram, now, &mut received);
    assert_eq!(handled, Ok(()), "the hello of the previous build");
    while let Some(datagram) = session.poll(now, &mut Table) {
        let header = Header::parse(&datagram).expect("a header");
        assert_eq!(header.challenge, PREVIOUS_CHALLENGE);
        peer.receive(datagram);
    }
    assert_eq!(peer.received, RECORDS.map(bytes_of));
    assert!(peer.is_complete);
    now += Duration::from_millis(5);
    let mut items = vec![peer.ack()];
    items.extend(RECORDS.map(|hex| (FLOW, bytes_of(hex))));
    items.push((COMPLETE, Vec::new()));
    let handled = session.handle(&mut peer.send(&items), now, &mut received);
    assert_eq!(handled, Ok(()));
    assert_eq!(received, records());
    let status = session.status(now);
    assert_eq!(status.state, PeerState::Established);
    assert_eq!(
        (status.lag, status.queued, status.counts.lost),
        (Duration::ZERO, 0, 0)
    );
    assert!(status.complete);
}
