//! Encodes and decodes the items in a datagram: type number, two-byte length, content.
//!
//! Decoding skips items with unknown type numbers, and bytes after the content that this version defines.

use crate::connection::{self, Connection};
use crate::record::{Reader, Record};

const HELLO: u8 = 1;
const FLOW: u8 = 2;
const ACK: u8 = 3;
const COMPLETE: u8 = 4;
const CONNECTION: u8 = 5;

/// Feature bit in a hello: the sender handles [`Item::Connection`].
pub(crate) const FEATURE_CONNECTIONS: u8 = 1;

/// Length of an item without content, in bytes: the type number and the length.
pub(crate) const EMPTY_ITEM_BYTES: usize = 3;

/// Number of sequence numbers that an acknowledgement covers, counted down from the highest.
pub(crate) const ACK_BITS: u64 = 512;
const ACK_BYTES: usize = (ACK_BITS / 8) as usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The sender's challenge for the receiver, and the sender's features. The first version had no features.
    Hello { challenge: u64, features: u8 },
    /// A flow or template.
    Flow(Record),
    /// Acknowledges datagrams: bit n of `received` is set if datagram `highest` - n was received.
    Ack {
        highest: u64,
        received: [u8; ACK_BYTES],
    },
    /// The sender has sent its whole table.
    Complete,
    /// A slot of the sender's list of proxied connections; `None` = the slot is free.
    Connection(u32, Option<Connection>),
}

impl Item {
    pub(crate) fn ack(highest: u64, contains: impl Fn(u64) -> bool) -> Self {
        let mut received = [0; ACK_BYTES];
        for bit in 0..ACK_BITS.min(highest + 1) {
            if contains(highest - bit) {
                received[(bit / 8) as usize] |= 1 << (bit % 8);
            }
        }
        Self::Ack { highest, received }
    }

    /// Appends the encoded item.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; EMPTY_ITEM_BYTES]);
        let number = match self {
            Self::Hello {
                challenge,
                features,
            } => {
                bytes.extend_from_slice(&challenge.to_be_bytes());
                bytes.push(*features);
                HELLO
            }
            Self::Flow(record) => {
                record.encode(bytes);
                FLOW
            }
            Self::Ack { highest, received } => {
                bytes.extend_from_slice(&highest.to_be_bytes());
                bytes.extend_from_slice(received);
                ACK
            }
            Self::Complete => COMPLETE,
            Self::Connection(slot, content) => {
                connection::encode(*slot, *content, bytes);
                CONNECTION
            }
        };
        let length = (bytes.len() - start - EMPTY_ITEM_BYTES) as u16;
        bytes[start] = number;
        bytes[start + 1..start + 3].copy_from_slice(&length.to_be_bytes());
    }

    fn decode(number: u8, content: &[u8]) -> Option<Self> {
        let mut reader = Reader(content);
        match number {
            HELLO => Some(Self::Hello {
                challenge: reader.u64()?,
                features: reader.u8().unwrap_or(0),
            }),
            FLOW => Record::decode(content).map(Self::Flow),
            ACK => Some(Self::Ack {
                highest: reader.u64()?,
                received: reader.array()?,
            }),
            COMPLETE => Some(Self::Complete),
            CONNECTION => {
                connection::decode(content).map(|(slot, content)| Self::Connection(slot, content))
            }
            _ => None,
        }
    }
}

/// Returns the known items in a body, up to the first truncated item.
pub(crate) fn items(body: &[u8]) -> impl Iterator<Item = Item> {
    let mut reader = Reader(body);
    std::iter::from_fn(move || {
        loop {
            let number = reader.u8()?;
            let length = reader.u16()?;
            let content = reader.take(length.into())?;
            if let Some(item) = Item::decode(number, content) {
                return Some(item);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unknown_items_and_trailing_bytes_are_skipped() {
        let mut body = vec![99, 0, 2, 1, 1];
        let ack = Item::ack(700, |number| number % 2 == 0);
        ack.encode(&mut body);
        let start = body.len();
        let hello = Item::Hello {
            challenge: 5,
            features: FEATURE_CONNECTIONS,
        };
        hello.encode(&mut body);
        body[start + 2] += 3;
        body.extend_from_slice(&[9, 9, 9]);
        Item::Complete.encode(&mut body);
        let decoded: Vec<Item> = items(&body).collect();
        assert_eq!(decoded, [ack, hello, Item::Complete]);
    }

    #[test]
    fn ack_covers_all_numbers_down_to_zero() {
        for (highest, first_bytes) in [
            (0, [0b1, 0]),
            (3, [0b1111, 0]),
            (8, [0xff, 0b1]),
            (900, [0xff, 0xff]),
        ] {
            let Item::Ack { received, .. } = Item::ack(highest, |_| true) else {
                panic!("not an acknowledgement");
            };
            assert_eq!(received[..2], first_bytes, "{highest}");
        }
    }

    #[test]
    fn hello_of_the_first_version_has_no_features() {
        let body = [HELLO, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5];
        let hello = Item::Hello {
            challenge: 5,
            features: 0,
        };
        // The first version reads eight bytes and ignores the others.
        let mut encoded = Vec::new();
        hello.encode(&mut encoded);
        assert_eq!(encoded[3..11], body[3..]);
        assert_eq!(items(&body).collect::<Vec<_>>(), [hello]);
    }

    proptest! {
        #[test]
        fn any_body_decodes_without_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = items(&body).count();
        }
    }
}
