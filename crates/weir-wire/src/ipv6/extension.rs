//! Parses and builds IPv6 extension headers (RFC 8200 section 4): hop-by-hop, routing, destination options, fragment.
//!
//! Headers may repeat and appear in any order, because hosts accept this, but their number is limited. AH and ESP end
//! the chain. Options are not interpreted.

use crate::bytes::{require, tail, u8_at, u16_at, u32_at};
use crate::error::{Layer, ParseError};
use crate::protocol::IpProtocol;

/// The fragment header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FragmentHeader {
    /// Identification, the same in all fragments of a datagram.
    pub id: u32,
    /// Offset in bytes, a multiple of eight up to 65528. Rounded down when written.
    pub offset_bytes: u16,
    /// Whether more fragments follow.
    pub more: bool,
}

impl FragmentHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 8;

    fn parse(bytes: &[u8]) -> Self {
        let field = u16_at(bytes, 2);
        Self {
            id: u32_at(bytes, 4),
            offset_bytes: field & 0xfff8,
            more: field & 1 != 0,
        }
    }

    /// Returns whether this is a fragment; false for an atomic fragment (RFC 6946).
    #[must_use]
    pub const fn is_fragment(self) -> bool {
        self.more || self.offset_bytes != 0
    }
}

/// An extension header, for writing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Extension {
    /// Hop-by-hop options: the bytes of the options, without the first two bytes of the header.
    HopByHop(Vec<u8>),
    /// Routing header: all bytes, starting with the routing type.
    Routing(Vec<u8>),
    /// Destination options, in the same form as [`Self::HopByHop`].
    DestOpts(Vec<u8>),
    /// Fragment header.
    Fragment(FragmentHeader),
}

impl Extension {
    /// Returns the header's protocol number.
    #[must_use]
    pub const fn protocol(&self) -> IpProtocol {
        match self {
            Self::HopByHop(_) => IpProtocol::HOP_BY_HOP,
            Self::Routing(_) => IpProtocol::ROUTING,
            Self::DestOpts(_) => IpProtocol::DEST_OPTS,
            Self::Fragment(_) => IpProtocol::FRAGMENT,
        }
    }

    /// Appends the header. `next` is its next header field. The header is padded with `Pad1` to a multiple of eight
    /// bytes. Its content is truncated to 2046 bytes, the limit of the length field.
    pub fn emit(&self, next: IpProtocol, out: &mut Vec<u8>) {
        match self {
            Self::HopByHop(content) | Self::Routing(content) | Self::DestOpts(content) => {
                let content = content.get(..2046).unwrap_or(content);
                let len = (2 + content.len()).next_multiple_of(8);
                out.extend([next.0, u8::try_from(len / 8 - 1).unwrap_or(u8::MAX)]);
                out.extend(content);
                out.resize(out.len() + len - 2 - content.len(), 0);
            }
            Self::Fragment(fragment) => {
                let field = fragment.offset_bytes & 0xfff8 | u16::from(fragment.more);
                out.extend([next.0, 0]);
                out.extend(field.to_be_bytes());
                out.extend(fragment.id.to_be_bytes());
            }
        }
    }
}

/// The extension headers of a packet, and the protocol after them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ipv6Chain {
    /// The protocol numbers of the headers, in order.
    pub headers: Vec<IpProtocol>,
    /// The first fragment header.
    pub fragment: Option<FragmentHeader>,
    /// The next header field of the last header: the upper-layer protocol or, in a later fragment, the header that its
    /// fragment header names.
    pub protocol: IpProtocol,
    /// Length of all headers in bytes, which is the offset of the upper-layer protocol in the payload.
    pub len: usize,
}

impl Ipv6Chain {
    /// Maximum number of headers.
    pub const MAX_HEADERS: usize = 8;

    /// Parses the extension headers in `payload`, which starts with a header of type `next`. Stops after the fragment
    /// header of a later fragment.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::TooManyExtensions`].
    pub fn parse(next: IpProtocol, payload: &[u8]) -> Result<Self, ParseError> {
        let mut chain = Self {
            headers: Vec::new(),
            fragment: None,
            protocol: next,
            len: 0,
        };
        while is_extension(chain.protocol) {
            if chain.headers.len() == Self::MAX_HEADERS {
                return Err(ParseError::TooManyExtensions {
                    limit: Self::MAX_HEADERS,
                });
            }
            let bytes = tail(payload, chain.len);
            require(Layer::Ipv6Extension, bytes, 8)?;
            let kind = chain.protocol;
            chain.headers.push(kind);
            chain.protocol = IpProtocol(u8_at(bytes, 0));
            if kind == IpProtocol::FRAGMENT {
                let fragment = FragmentHeader::parse(bytes);
                chain.len += FragmentHeader::LEN;
                chain.fragment.get_or_insert(fragment);
                if fragment.offset_bytes != 0 {
                    break;
                }
            } else {
                let len = (usize::from(u8_at(bytes, 1)) + 1) * 8;
                require(Layer::Ipv6Extension, bytes, len)?;
                chain.len += len;
            }
        }
        Ok(chain)
    }
}

fn is_extension(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::FRAGMENT | IpProtocol::DEST_OPTS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emit_to_vec(chain: &[(Extension, IpProtocol)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (extension, next) in chain {
            extension.emit(*next, &mut bytes);
        }
        bytes
    }

    #[test]
    fn extension_headers_lead_to_the_upper_protocol() {
        let fragment = FragmentHeader {
            id: 0xdead_beef,
            offset_bytes: 0,
            more: true,
        };
        let bytes = emit_to_vec(&[
            (Extension::HopByHop(vec![5, 2, 0, 0]), IpProtocol::ROUTING),
            (Extension::Routing(vec![4; 7]), IpProtocol::FRAGMENT),
            (Extension::Fragment(fragment), IpProtocol::DEST_OPTS),
            (Extension::DestOpts(vec![]), IpProtocol::UDP),
        ]);
        let chain = Ipv6Chain::parse(IpProtocol::HOP_BY_HOP, &bytes).unwrap();
        assert_eq!(chain.protocol, IpProtocol::UDP);
        assert_eq!(chain.len, 8 + 16 + 8 + 8);
        assert_eq!(chain.fragment, Some(fragment));
        assert_eq!(chain.headers.len(), 4);
    }

    #[test]
    fn later_fragment_ends_the_chain() {
        let later_fragment = FragmentHeader {
            id: 1,
            offset_bytes: 1448,
            more: false,
        };
        let bytes = emit_to_vec(&[(Extension::Fragment(later_fragment), IpProtocol::DEST_OPTS)]);
        let chain = Ipv6Chain::parse(IpProtocol::FRAGMENT, &bytes).unwrap();
        assert_eq!((chain.protocol, chain.len), (IpProtocol::DEST_OPTS, 8));
        assert_eq!(chain.fragment, Some(later_fragment));
    }

    #[test]
    fn atomic_fragment_is_a_whole_datagram() {
        assert!(
            !FragmentHeader {
                id: 1,
                offset_bytes: 0,
                more: false
            }
            .is_fragment()
        );
    }

    #[test]
    fn number_of_headers_is_limited() {
        let bytes = |count: usize| {
            let mut chain = vec![(Extension::DestOpts(vec![]), IpProtocol::DEST_OPTS); count - 1];
            chain.push((Extension::DestOpts(vec![]), IpProtocol::TCP));
            emit_to_vec(&chain)
        };
        assert!(Ipv6Chain::parse(IpProtocol::DEST_OPTS, &bytes(8)).is_ok());
        assert_eq!(
            Ipv6Chain::parse(IpProtocol::DEST_OPTS, &bytes(9)),
            Err(ParseError::TooManyExtensions { limit: 8 })
        );
    }

    #[test]
    fn header_beyond_the_packet_is_rejected() {
        let mut bytes = emit_to_vec(&[(Extension::HopByHop(vec![]), IpProtocol::TCP)]);
        bytes[1] = 1;
        assert_eq!(
            Ipv6Chain::parse(IpProtocol::HOP_BY_HOP, &bytes),
            Err(ParseError::TooShort {
                layer: Layer::Ipv6Extension,
                needed: 16,
                available: 8
            })
        );
    }
}
