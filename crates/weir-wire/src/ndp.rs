//! Parses and builds neighbor discovery messages (RFC 4861): solicitation and advertisement.
//!
//! The link-layer address options are supported. Other options are skipped. Router messages and redirects are not
//! parsed. The hop limit, which must be 255, is a field of the IPv6 header and is not checked here.

use std::net::Ipv6Addr;

use crate::address::MacAddr;
use crate::bytes::{array_at, require, tail, u8_at};
use crate::checksum::Sum;
use crate::error::{Layer, LengthField, ParseError};
use crate::icmp6::Icmpv6Message;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
const FIXED_LEN: usize = 24;

/// A neighbor solicitation or advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NeighborMessage {
    /// Requests the link-layer address of the target address.
    Solicitation {
        /// The requested address.
        target: Ipv6Addr,
        /// Link-layer address of the sender; always `None` if the sender has no IP address yet.
        source_mac: Option<MacAddr>,
    },
    /// Advertises the link-layer address of the target address.
    Advertisement {
        /// The advertised address.
        target: Ipv6Addr,
        /// Link-layer address of the target; can be `None` in a reply to a unicast solicitation.
        target_mac: Option<MacAddr>,
        /// Whether the sender is a router.
        router: bool,
        /// Whether the message is a reply to a solicitation.
        solicited: bool,
        /// Whether the receiver must replace an existing cache entry.
        overrides: bool,
    },
}

impl NeighborMessage {
    /// Parses a complete ICMPv6 message. The checksum is not verified.
    ///
    /// # Errors
    /// [`ParseError::UnsupportedType`] for other messages, [`ParseError::TooShort`], and [`ParseError::BadLength`] if
    /// an option has length zero or ends past the end of the message.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let kind = u8_at(bytes, 0);
        if !matches!(kind, SOLICITATION | ADVERTISEMENT) {
            return Err(ParseError::UnsupportedType {
                layer: Layer::Ndp,
                value: kind.into(),
            });
        }
        require(Layer::Ndp, bytes, FIXED_LEN)?;
        let target = array_at::<16>(bytes, 8).into();
        let options = tail(bytes, FIXED_LEN);
        let flags = u8_at(bytes, 4);
        Ok(if kind == SOLICITATION {
            Self::Solicitation {
                target,
                source_mac: find_link_layer_address(options, SOURCE_LINK_LAYER_ADDRESS)?,
            }
        } else {
            Self::Advertisement {
                target,
                target_mac: find_link_layer_address(options, TARGET_LINK_LAYER_ADDRESS)?,
                router: flags & 0x80 != 0,
                solicited: flags & 0x40 != 0,
                overrides: flags & 0x20 != 0,
            }
        })
    }

    /// Returns the number of bytes that [`Self::emit`] appends.
    #[must_use]
    pub const fn message_len(&self) -> usize {
        match self {
            Self::Solicitation {
                source_mac: None, ..
            }
            | Self::Advertisement {
                target_mac: None, ..
            } => FIXED_LEN,
            _ => FIXED_LEN + 8,
        }
    }

    /// Appends the ICMPv6 message. `pseudo_header` must have been computed with [`Self::message_len`].
    pub fn emit(&self, pseudo_header: Sum, out: &mut Vec<u8>) {
        let (message, body) = self.to_icmp();
        message.emit(&body, pseudo_header, out);
    }

    /// Returns the first eight bytes of the message, and the bytes after them.
    pub(crate) fn to_icmp(self) -> (Icmpv6Message, Vec<u8>) {
        let (kind, flags, target, option, mac) = match self {
            Self::Solicitation { target, source_mac } => (
                SOLICITATION,
                0,
                target,
                SOURCE_LINK_LAYER_ADDRESS,
                source_mac,
            ),
            Self::Advertisement {
                target,
                target_mac,
                router,
                solicited,
                overrides,
            } => {
                let flags =
                    u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(overrides) << 5;
                (
                    ADVERTISEMENT,
                    flags,
                    target,
                    TARGET_LINK_LAYER_ADDRESS,
                    target_mac,
                )
            }
        };
        let mut body = target.octets().to_vec();
        if let Some(mac) = mac {
            body.extend([option, 1]);
            body.extend(mac.octets());
        }
        (
            Icmpv6Message::Other {
                kind,
                code: 0,
                rest: [flags, 0, 0, 0],
            },
            body,
        )
    }
}

fn find_link_layer_address(
    mut options: &[u8],
    option_kind: u8,
) -> Result<Option<MacAddr>, ParseError> {
    while !options.is_empty() {
        require(Layer::Ndp, options, 2)?;
        let len = usize::from(u8_at(options, 1)) * 8;
        if len == 0 || len > options.len() {
            return Err(ParseError::BadLength {
                layer: Layer::Ndp,
                field: LengthField::OptionLength,
                bytes: len,
                min: 8,
                max: options.len(),
            });
        }
        if u8_at(options, 0) == option_kind {
            return Ok(Some(MacAddr::new(array_at(options, 2))));
        }
        options = tail(options, len);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
    const MAC: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 9]);

    fn emit_to_vec(message: &NeighborMessage) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.emit(Sum::new(), &mut bytes);
        bytes
    }

    #[test]
    fn messages_round_trip() {
        for message in [
            NeighborMessage::Solicitation {
                target: TARGET,
                source_mac: None,
            },
            NeighborMessage::Solicitation {
                target: TARGET,
                source_mac: Some(MAC),
            },
            NeighborMessage::Advertisement {
                target: TARGET,
                target_mac: Some(MAC),
                router: false,
                solicited: true,
                overrides: true,
            },
        ] {
            let bytes = emit_to_vec(&message);
            assert_eq!(bytes.len(), message.message_len());
            assert_eq!(NeighborMessage::parse(&bytes), Ok(message));
        }
    }

    /// RFC 4861 section 4.4: R, S and O are the highest bits of byte 4.
    #[test]
    fn each_flag_has_its_bit() {
        for (bits, [router, solicited, overrides]) in [
            (0, [false; 3]),
            (0x80, [true, false, false]),
            (0x40, [false, true, false]),
            (0x20, [false, false, true]),
            (0xe0, [true; 3]),
        ] {
            let message = NeighborMessage::Advertisement {
                target: TARGET,
                target_mac: None,
                router,
                solicited,
                overrides,
            };
            let mut bytes = emit_to_vec(&message);
            assert_eq!(bytes[4], bits);
            assert_eq!(NeighborMessage::parse(&bytes), Ok(message));
            bytes[4] |= 0x1f;
            assert_eq!(NeighborMessage::parse(&bytes), Ok(message), "reserved bits");
        }
    }

    #[test]
    fn unknown_options_are_skipped_and_malformed_options_are_rejected() {
        let message = NeighborMessage::Solicitation {
            target: TARGET,
            source_mac: Some(MAC),
        };
        let mut bytes = emit_to_vec(&message);
        let link_layer_address_option = bytes.split_off(24);
        bytes.extend([14, 1, 0, 0, 0, 0, 0, 0]);
        bytes.extend(&link_layer_address_option);
        assert_eq!(NeighborMessage::parse(&bytes), Ok(message));
        for length in [0, 3] {
            bytes[25] = length;
            assert!(matches!(
                NeighborMessage::parse(&bytes),
                Err(ParseError::BadLength {
                    min: 8,
                    max: 16,
                    ..
                })
            ));
        }
    }

    #[test]
    fn other_messages_are_rejected() {
        let error = ParseError::UnsupportedType {
            layer: Layer::Ndp,
            value: 133,
        };
        assert_eq!(NeighborMessage::parse(&[133; 24]), Err(error));
    }
}
