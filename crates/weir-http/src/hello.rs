//! Reads the server name (SNI, RFC 6066 section 3) from a TLS ClientHello without terminating TLS, to select a route.
//!
//! A missing or malformed ClientHello counts as one without a name, and the server rejects it. A message can be
//! fragmented over several records. At most [`MAX_HELLO`] bytes are buffered.

/// Maximum number of bytes that are buffered. A ClientHello with the largest key shares and tickets needs a third of
/// this.
pub const MAX_HELLO: usize = 16 << 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const MAX_RECORD: usize = 16 << 10;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// Maximum length of a host name, in bytes (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;

/// Result of parsing a client's first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SniResult {
    /// More input is needed.
    Incomplete,
    /// The requested host, in lower case, without a trailing dot.
    Name(String),
    /// The client did not send a valid server name, or does not use TLS.
    NoName,
}

/// A cursor over bytes; its methods return `None` if the input is too short.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn read_bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn read_number(&mut self, bytes: usize) -> Option<usize> {
        let bytes = self.read_bytes(bytes)?;
        let bytes = bytes.iter();
        Some(bytes.fold(0, |sum, byte| (sum << 8) + usize::from(*byte)))
    }

    /// Returns the bytes after a length field of `width` bytes.
    fn read_prefixed(&mut self, width: usize) -> Option<&'a [u8]> {
        let count = self.read_number(width)?;
        self.read_bytes(count)
    }
}

/// Reads the server name from all bytes received from a client so far.
pub fn server_name(input: &[u8]) -> SniResult {
    let mut records = Cursor(input);
    let mut message: Vec<u8> = Vec::new();
    loop {
        let is_plausible = match records.0 {
            [] => true,
            [kind] => *kind == HANDSHAKE,
            [kind, major, ..] => *kind == HANDSHAKE && *major == 3,
        };
        if !is_plausible || input.len() > MAX_HELLO {
            return SniResult::NoName;
        }
        let Some(header) = records.read_bytes(5) else {
            return SniResult::Incomplete;
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > MAX_RECORD {
            return SniResult::NoName;
        }
        let available = length.min(records.0.len());
        message.extend_from_slice(records.read_bytes(available).unwrap_or_default());
        let mut handshake = Cursor(&message);
        match handshake.read_number(1) {
            Some(kind) if kind != usize::from(CLIENT_HELLO) => return SniResult::NoName,
            _ => {}
        }
        match handshake.read_number(3) {
            Some(body_length) if body_length > MAX_HELLO => return SniResult::NoName,
            Some(body_length) if handshake.0.len() >= body_length => {
                return parse_name(&handshake.0[..body_length])
                    .map_or(SniResult::NoName, SniResult::Name);
            }
            _ => {}
        }
    }
}

/// Reads the name from the body of a ClientHello (RFC 8446 section 4.1.2).
fn parse_name(hello: &[u8]) -> Option<String> {
    let mut hello = Cursor(hello);
    let (_version, _random) = (hello.read_bytes(2)?, hello.read_bytes(32)?);
    let (_session, _suites) = (hello.read_prefixed(1)?, hello.read_prefixed(2)?);
    let _compressions = hello.read_prefixed(1)?;
    let mut extensions = Cursor(hello.read_prefixed(2)?);
    loop {
        let kind = extensions.read_number(2)?;
        let content = extensions.read_prefixed(2)?;
        if kind == usize::from(SERVER_NAME) {
            let mut names = Cursor(Cursor(content).read_prefixed(2)?);
            let kind = names.read_number(1)?;
            let name = names.read_prefixed(2)?;
            return (kind == usize::from(HOST_NAME)).then(|| parse_host(name))?;
        }
    }
}

fn parse_host(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_host_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.iter().all(is_host_byte) {
        return None;
    }
    Some(String::from_utf8_lossy(name).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_length(width: usize, content: &[u8]) -> Vec<u8> {
        let length = content.len().to_be_bytes();
        [&length[8 - width..], content].concat()
    }

    /// Returns a ClientHello with an extension before the server name, in records of `step` bytes.
    fn hello(name: Option<&[u8]>, step: usize) -> Vec<u8> {
        let mut extensions = [&[0u8, 43][..], &with_length(2, &[2, 3, 4])].concat();
        if let Some(name) = name {
            let entry = [&[HOST_NAME][..], &with_length(2, name)].concat();
            extensions.extend([0, 0]);
            extensions.extend(with_length(2, &with_length(2, &entry)));
        }
        let body = [
            &[3u8, 3][..],
            &[7; 32],
            &with_length(1, &[9; 32]),
            &with_length(2, &[0x13, 1]),
            &with_length(1, &[0]),
            &with_length(2, &extensions),
        ]
        .concat();
        let message = [&[CLIENT_HELLO][..], &with_length(3, &body)].concat();
        let records = message.chunks(step);
        records
            .flat_map(|part| [&[HANDSHAKE, 3, 1][..], &with_length(2, part)].concat())
            .collect()
    }

    #[test]
    fn name_is_found_in_one_or_many_records() {
        let expected = SniResult::Name("a.example".to_owned());
        for step in [1, 2, 3, 5, 40, 1000] {
            let bytes = hello(Some(b"A.Example."), step);
            assert_eq!(server_name(&bytes), expected, "records of {step}");
            let followed = [bytes.as_slice(), b"more"].concat();
            assert_eq!(server_name(&followed), expected);
            for end in 0..bytes.len() {
                assert_eq!(
                    server_name(&bytes[..end]),
                    SniResult::Incomplete,
                    "{end} of {step}"
                );
            }
        }
    }

    #[test]
    fn input_without_a_name_is_recognized() {
        let zero = [HANDSHAKE, 3, 1, 0, 0];
        let oversized = [HANDSHAKE, 3, 1, 0, 4, CLIENT_HELLO, 0xff, 0xff, 0xff];
        let other = [HANDSHAKE, 3, 1, 0, 4, 2, 0, 0, 9];
        for bytes in [
            &hello(None, 1000)[..],
            &hello(Some(b""), 1000),
            &hello(Some(b"a b"), 1000),
            &hello(Some(&[b'a'; 300]), 1000),
            b"GET / HTTP/1.1\r\n",
            b"\x16\x02",
            &zero,
            &oversized,
            &other,
        ] {
            assert_eq!(server_name(bytes), SniResult::NoName, "{bytes:?}");
        }
        assert_eq!(server_name(b""), SniResult::Incomplete);
    }

    #[test]
    fn records_and_names_have_a_maximum_length() {
        for (record_len, expected) in [
            (0x4000, SniResult::Incomplete),
            (0x4001, SniResult::NoName),
            (0xffff, SniResult::NoName),
        ] {
            let header = [&[HANDSHAKE, 3, 1][..], &u16::to_be_bytes(record_len)].concat();
            assert_eq!(server_name(&header), expected, "{record_len}");
        }
        let longest = "a".repeat(253);
        let found = server_name(&hello(Some(longest.as_bytes()), 1000));
        assert_eq!(found, SniResult::Name(longest));
        let found = server_name(&hello(Some(&[b'a'; 254]), 1000));
        assert_eq!(found, SniResult::NoName);
    }

    #[test]
    fn input_beyond_the_maximum_has_no_name() {
        let record = [&[HANDSHAKE, 3, 3][..], &with_length(2, &[0; 1000])].concat();
        let mut bytes = record.repeat(20);
        bytes[5..9].copy_from_slice(&[CLIENT_HELLO, 0, 0x40, 0]);
        for (len, expected) in [
            (MAX_HELLO, SniResult::Incomplete),
            (MAX_HELLO + 1, SniResult::NoName),
            (MAX_HELLO + 2, SniResult::NoName),
        ] {
            assert_eq!(server_name(&bytes[..len]), expected, "{len} bytes");
        }
    }

    proptest! {
        /// If the result for a prefix of a corrupted ClientHello is final, the whole ClientHello yields the same
        /// result.
        #[test]
        fn corrupted_hello_has_a_stable_result(
            offset in 0usize..140,
            byte: u8,
            step in 1usize..60,
            end in 0usize..400,
        ) {
            let mut bytes = hello(Some(b"a.example"), step);
            let offset = offset % bytes.len();
            bytes[offset] = byte;
            let end = end.min(bytes.len());
            let result_of_prefix = server_name(&bytes[..end]);
            if result_of_prefix != SniResult::Incomplete {
                prop_assert_eq!(result_of_prefix, server_name(&bytes));
            }
        }
    }
}
