//! Parses and writes PROXY protocol headers, versions 1 and 2 (HAProxy's `doc/proxy-protocol.txt`).
//!
//! A header before the first byte of a proxied connection contains the connection's addresses. TLVs of version 2 are
//! skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_model::ProxyHeader;

use crate::parse_error::ParseError;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum length of a version 1 header in bytes, including CRLF.
const MAX_LINE: usize = 107;
/// Maximum accepted length of a version 2 header, in bytes.
const MAX_HEADER: usize = 4096;

/// A parsed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preamble {
    /// A connection from the proxy itself, or of a protocol other than TCP.
    Local {
        /// Header length in bytes.
        len: usize,
    },
    /// A connection from a client.
    Client {
        /// Header length in bytes.
        len: usize,
        /// The client's address.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
}

impl Preamble {
    /// Returns the header length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> usize {
        match self {
            Self::Local { len } | Self::Client { len, .. } => *len,
        }
    }

    const fn canonical(self) -> Self {
        match self {
            Self::Local { .. } => self,
            Self::Client {
                len,
                source,
                destination,
            } => Self::Client {
                len,
                source: SocketAddr::new(source.ip().to_canonical(), source.port()),
                destination: SocketAddr::new(destination.ip().to_canonical(), destination.port()),
            },
        }
    }
}

/// Parses a header. Returns `None` while the header is incomplete. IPv4-mapped IPv6 addresses become IPv4 addresses, so
/// rules for IPv4 networks apply to them.
///
/// # Errors
/// Fails if the input is not a PROXY protocol header, or if the header exceeds the maximum length.
pub fn read(input: &[u8]) -> Result<Option<Preamble>, ParseError> {
    Ok(parse(input)?.map(Preamble::canonical))
}

fn parse(input: &[u8]) -> Result<Option<Preamble>, ParseError> {
    let signature_len = input.len().min(SIGNATURE.len());
    if input[..signature_len] == SIGNATURE[..signature_len] {
        return if signature_len == SIGNATURE.len() {
            parse_v2(input)
        } else {
            Ok(None)
        };
    }
    let keyword_len = input.len().min(b"PROXY ".len());
    if input[..keyword_len] != b"PROXY "[..keyword_len] {
        return Err(ParseError::Preamble);
    }
    let end = input.iter().take(MAX_LINE).position(|byte| *byte == b'\n');
    match end {
        Some(end) => {
            let text = input[..end].strip_suffix(b"\r");
            parse_v1(text.ok_or(ParseError::Preamble)?, end + 1).map(Some)
        }
        None if input.len() >= MAX_LINE => Err(ParseError::Preamble),
        None => Ok(None),
    }
}

fn parse_v1(text: &[u8], len: usize) -> Result<Preamble, ParseError> {
    let text = std::str::from_utf8(text).map_err(|_| ParseError::Preamble)?;
    let mut words = text.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(Preamble::Local { len });
    }
    let mut next = || words.next().ok_or(ParseError::Preamble);
    let (source, destination, source_port, destination_port) = (next()?, next()?, next()?, next()?);
    let address = |text: &str| match family {
        Some("TCP4") => text
            .parse::<Ipv4Addr>()
            .map(IpAddr::V4)
            .map_err(|_| ParseError::Preamble),
        Some("TCP6") => text
            .parse::<Ipv6Addr>()
            .map(IpAddr::V6)
            .map_err(|_| ParseError::Preamble),
        _ => Err(ParseError::Preamble),
    };
    let port = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        text.parse::<u16>()
            .ok()
            .filter(|_| is_plain)
            .ok_or(ParseError::Preamble)
    };
    let client = Preamble::Client {
        len,
        source: SocketAddr::new(address(source)?, port(source_port)?),
        destination: SocketAddr::new(address(destination)?, port(destination_port)?),
    };
    if words.next().is_some() {
        Err(ParseError::Preamble)
    } else {
        Ok(client)
    }
}

fn parse_v2(input: &[u8]) -> Result<Option<Preamble>, ParseError> {
    let Some(&[command, family, high, low]) = input.get(12..16) else {
        return Ok(None);
    };
    let len = 16 + usize::from(u16::from_be_bytes([high, low]));
    if command >> 4 != 2 || len > MAX_HEADER {
        return Err(ParseError::Preamble);
    }
    let Some(rest) = input.get(16..len) else {
        return Ok(None);
    };
    match (command & 0xf, family) {
        (0, _) => Ok(Some(Preamble::Local { len })),
        (1, 0x11) => {
            let block: &[u8; 12] = rest.first_chunk().ok_or(ParseError::Preamble)?;
            let [a, b, c, d, e, f, g, h, p, q, r, s] = *block;
            Ok(Some(Preamble::Client {
                len,
                source: (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p, q])).into(),
                destination: (Ipv4Addr::new(e, f, g, h), u16::from_be_bytes([r, s])).into(),
            }))
        }
        (1, 0x21) => {
            let (source, rest) = rest.split_first_chunk::<16>().ok_or(ParseError::Preamble)?;
            let (destination, rest) = rest.split_first_chunk::<16>().ok_or(ParseError::Preamble)?;
            let [p, q, r, s] = *rest.first_chunk().ok_or(ParseError::Preamble)?;
            Ok(Some(Preamble::Client {
                len,
                source: (Ipv6Addr::from(*source), u16::from_be_bytes([p, q])).into(),
                destination: (Ipv6Addr::from(*destination), u16::from_be_bytes([r, s])).into(),
            }))
        }
        // Other families have no TCP addresses.
        (1, _) => Ok(Some(Preamble::Local { len })),
        _ => Err(ParseError::Preamble),
    }
}

/// Appends a header for a client that connected to `destination`.
pub fn write(version: ProxyHeader, source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    let (source, destination) = same_family(source, destination);
    match version {
        ProxyHeader::V1 => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let text = format!(
                "PROXY {family} {} {} {} {}\r\n",
                source.ip(),
                destination.ip(),
                source.port(),
                destination.port()
            );
            out.extend_from_slice(text.as_bytes());
        }
        ProxyHeader::V2 => {
            out.extend_from_slice(SIGNATURE);
            out.push(0x21);
            match (source.ip(), destination.ip()) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    out.extend_from_slice(&[0x11, 0, 12]);
                    out.extend_from_slice(&source.octets());
                    out.extend_from_slice(&destination.octets());
                }
                (source, destination) => {
                    out.extend_from_slice(&[0x21, 0, 36]);
                    out.extend_from_slice(&to_ipv6(source).octets());
                    out.extend_from_slice(&to_ipv6(destination).octets());
                }
            }
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
    }
}

const fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Converts both addresses to one family, because a header has only one family.
fn same_family(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    if source.is_ipv4() == destination.is_ipv4() {
        return (source, destination);
    }
    let widen =
        |address: SocketAddr| SocketAddr::new(IpAddr::V6(to_ipv6(address.ip())), address.port());
    (widen(source), widen(destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Writes a header of each version with two addresses, and asserts that parsing the headers yields the expected
    /// source and destination.
    fn assert_read(
        addresses: (SocketAddr, SocketAddr),
        (source, destination): (SocketAddr, SocketAddr),
    ) {
        for version in ProxyHeader::ALL {
            let mut text = Vec::new();
            write(version, addresses.0, addresses.1, &mut text);
            let expected = Preamble::Client {
                len: text.len(),
                source,
                destination,
            };
            assert_eq!(read(&text), Ok(Some(expected)), "{version:?}");
        }
    }

    #[test]
    fn written_headers_are_parsed() {
        for (source, destination) in [
            ("192.0.2.1:1", "198.51.100.2:65535"),
            ("[2001:db8::1]:80", "[::1]:443"),
            ("192.0.2.1:0", "198.51.100.2:80"),
        ] {
            for version in ProxyHeader::ALL {
                let (source, destination) = (address(source), address(destination));
                let mut text = Vec::new();
                write(version, source, destination, &mut text);
                let len = text.len();
                text.extend_from_slice(b"GET / HTTP/1.1\r\n");
                assert_eq!(
                    read(&text),
                    Ok(Some(Preamble::Client {
                        len,
                        source,
                        destination
                    }))
                );
                for short in 0..len {
                    assert_eq!(read(&text[..short]), Ok(None), "{version:?} {short}");
                }
            }
        }
    }

    #[test]
    fn addresses_of_two_families_are_mapped_to_ipv6() {
        for (source, destination) in [
            ("192.0.2.1:1", "[2001:db8::1]:2"),
            ("[2001:db8::1]:2", "192.0.2.1:1"),
        ] {
            let (source, destination) = (address(source), address(destination));
            let mut text = Vec::new();
            write(ProxyHeader::V1, source, destination, &mut text);
            let lossy_text = String::from_utf8_lossy(&text);
            assert!(
                lossy_text.starts_with("PROXY TCP6 ") && lossy_text.contains(" ::ffff:192.0.2.1 "),
                "{lossy_text}"
            );
            assert_read((source, destination), (source, destination));
        }
    }

    #[test]
    fn mapped_addresses_become_ipv4_addresses() {
        let mapped = |text: &str| match address(text) {
            SocketAddr::V4(v4) => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
            SocketAddr::V6(_) => panic!("{text}"),
        };
        let (source, destination) = ("192.0.2.5:1000", "127.0.0.1:80");
        assert_read(
            (mapped(source), mapped(destination)),
            (address(source), address(destination)),
        );
    }

    #[test]
    fn other_families_are_local_and_unknown_commands_are_rejected() {
        let header = |command: u8, family: u8| {
            let mut text = SIGNATURE.to_vec();
            text.extend_from_slice(&[command, family, 0, 3, 1, 2, 3]);
            read(&text)
        };
        for family in [0x00, 0x31, 0x12] {
            assert_eq!(header(0x21, family), Ok(Some(Preamble::Local { len: 19 })));
        }
        assert_eq!(
            header(0x22, 0x11),
            Err(ParseError::Preamble),
            "unknown command"
        );
        for family in [0x11, 0x21] {
            assert_eq!(header(0x21, family), Err(ParseError::Preamble), "too short");
        }
    }

    #[test]
    fn version_2_header_has_a_maximum_length() {
        for (block_len, expected) in [
            (4080, Ok(Some(Preamble::Local { len: 4096 }))),
            (4081, Err(ParseError::Preamble)),
            (5000, Err(ParseError::Preamble)),
        ] {
            let mut text = [&SIGNATURE[..], &[0x20, 0]].concat();
            text.extend_from_slice(&u16::to_be_bytes(block_len));
            text.resize(16 + usize::from(block_len), 0);
            assert_eq!(read(&text), expected, "{block_len}");
        }
    }

    #[test]
    fn local_and_unknown_headers_are_skipped() {
        assert_eq!(
            read(b"PROXY UNKNOWN\r\n"),
            Ok(Some(Preamble::Local { len: 15 }))
        );
        assert_eq!(
            read(b"PROXY UNKNOWN ::1 ::1 1 2\r\n"),
            Ok(Some(Preamble::Local { len: 27 }))
        );
        let mut local = SIGNATURE.to_vec();
        local.extend_from_slice(&[0x20, 0, 0, 3, 1, 2, 3]);
        assert_eq!(read(&local), Ok(Some(Preamble::Local { len: 19 })));
    }

    #[test]
    fn malformed_headers_are_rejected() {
        for malformed in [
            b"GET / HTTP/1.1\r\n".as_slice(),
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 25\n",
            b"PROXY UNKNOWN \n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 00\r\n",
            b"PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
            &[b'P'; 200],
        ] {
            assert_eq!(read(malformed), Err(ParseError::Preamble), "{malformed:?}");
        }
        let mut long_header = b"PROXY ".to_vec();
        long_header.resize(MAX_LINE, b'x');
        assert_eq!(read(&long_header), Err(ParseError::Preamble));
        let mut version = SIGNATURE.to_vec();
        version.extend_from_slice(&[0x11, 0x11, 0, 12]);
        assert_eq!(read(&version), Err(ParseError::Preamble));
    }
}
