//! The name in a TLS client's first message (SNI, RFC 6066 section 3), read without TLS: for choosing a server that will.
//!
//! What is no ClientHello, or a broken one, has no name; judging it is the server's. Fragments are followed over records,
//! and up to [`HELLO_MAX`] octets are waited for.

/// Longest beginning that is waited for; a ClientHello with the largest key shares and tickets has a third of it.
pub const HELLO_MAX: usize = 16 << 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_MAX: usize = 16 << 10;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// RFC 1035 section 2.3.4.
const NAME_MAX: usize = 253;

/// What a client's first octets say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// Not enough.
    More,
    /// The host that is asked for, in lower case, without the root's dot.
    Name(String),
    /// TLS without a name, or something else.
    Nameless,
}

/// Octets that are taken from the front; `None` = they are not there.
struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    fn octets(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, octets: usize) -> Option<usize> {
        let octets = self.octets(octets)?;
        Some(
            octets
                .iter()
                .fold(0, |sum, octet| sum << 8 | usize::from(*octet)),
        )
    }

    /// Octets behind their number, which takes `width` octets.
    fn counted(&mut self, width: usize) -> Option<&'a [u8]> {
        let count = self.number(width)?;
        self.octets(count)
    }
}

/// Reads the name from all that a client sent so far.
pub fn server_name(input: &[u8]) -> Hello {
    let mut records = Take(input);
    let mut message: Vec<u8> = Vec::new();
    loop {
        let looks = match records.0 {
            [] => true,
            [kind] => *kind == HANDSHAKE,
            [kind, major, ..] => *kind == HANDSHAKE && *major == 3,
        };
        if !looks || input.len() > HELLO_MAX {
            return Hello::Nameless;
        }
        let Some(header) = records.octets(5) else {
            return Hello::More;
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > RECORD_MAX {
            return Hello::Nameless;
        }
        let there = length.min(records.0.len());
        message.extend_from_slice(records.octets(there).unwrap_or_default());
        let mut whole = Take(&message);
        match whole.number(1) {
            Some(kind) if kind != usize::from(CLIENT_HELLO) => return Hello::Nameless,
            _ => {}
        }
        match whole.number(3) {
            Some(wanted) if wanted > HELLO_MAX => return Hello::Nameless,
            Some(wanted) if whole.0.len() >= wanted => {
                return name(&whole.0[..wanted]).map_or(Hello::Nameless, Hello::Name);
            }
            _ => {}
        }
        if there < length {
            return Hello::More;
        }
    }
}

/// From the body of a ClientHello (RFC 8446 section 4.1.2).
fn name(hello: &[u8]) -> Option<String> {
    let mut hello = Take(hello);
    let (_version, _random) = (hello.octets(2)?, hello.octets(32)?);
    let (_session, _suites) = (hello.counted(1)?, hello.counted(2)?);
    let _compressions = hello.counted(1)?;
    let mut extensions = Take(hello.counted(2)?);
    loop {
        let kind = extensions.number(2)?;
        let content = extensions.counted(2)?;
        if kind == usize::from(SERVER_NAME) {
            let mut names = Take(Take(content).counted(2)?);
            let kind = names.number(1)?;
            let name = names.counted(2)?;
            return (kind == usize::from(HOST_NAME)).then(|| host(name))?;
        }
    }
}

fn host(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let fits = |octet: &u8| octet.is_ascii_alphanumeric() || b"-_.".contains(octet);
    if name.is_empty() || name.len() > NAME_MAX || !name.iter().all(fits) {
        return None;
    }
    Some(String::from_utf8_lossy(name).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(width: usize, content: &[u8]) -> Vec<u8> {
        let length = content.len().to_be_bytes();
        [&length[8 - width..], content].concat()
    }

    /// A ClientHello with an extension before the name, in records of `step` octets.
    fn hello(name: Option<&[u8]>, step: usize) -> Vec<u8> {
        let mut extensions = [&[0u8, 43][..], &counted(2, &[2, 3, 4])].concat();
        if let Some(name) = name {
            let entry = [&[HOST_NAME][..], &counted(2, name)].concat();
            extensions.extend([0, 0]);
            extensions.extend(counted(2, &counted(2, &entry)));
        }
        let body = [
            &[3u8, 3][..],
            &[7; 32],
            &counted(1, &[9; 32]),
            &counted(2, &[0x13, 1]),
            &counted(1, &[0]),
            &counted(2, &extensions),
        ]
        .concat();
        let message = [&[CLIENT_HELLO][..], &counted(3, &body)].concat();
        let records = message.chunks(step);
        records
            .flat_map(|part| [&[HANDSHAKE, 3, 1][..], &counted(2, part)].concat())
            .collect()
    }

    #[test]
    fn the_name_is_found_in_one_record_and_in_many() {
        let named = Hello::Name("a.example".to_owned());
        for step in [1, 2, 3, 5, 40, 1000] {
            let octets = hello(Some(b"A.Example."), step);
            assert_eq!(server_name(&octets), named, "records of {step}");
            let followed = [octets.as_slice(), b"more"].concat();
            assert_eq!(server_name(&followed), named);
            for end in 0..octets.len() {
                assert_eq!(server_name(&octets[..end]), Hello::More, "{end} of {step}");
            }
        }
    }

    #[test]
    fn what_has_no_name_is_not_waited_for() {
        let zero = [HANDSHAKE, 3, 1, 0, 0];
        let endless = [HANDSHAKE, 3, 1, 0, 4, CLIENT_HELLO, 0xff, 0xff, 0xff];
        let other = [HANDSHAKE, 3, 1, 0, 4, 2, 0, 0, 9];
        for octets in [
            &hello(None, 1000)[..],
            &hello(Some(b""), 1000),
            &hello(Some(b"a b"), 1000),
            &hello(Some(&[b'a'; 300]), 1000),
            b"GET / HTTP/1.1\r\n",
            b"\x16\x02",
            &zero,
            &endless,
            &other,
        ] {
            assert_eq!(server_name(octets), Hello::Nameless, "{octets:?}");
        }
        assert_eq!(server_name(b""), Hello::More);
    }

    proptest! {
        /// Whatever is changed in it, the answer comes, and comes the same however often the beginning was looked at.
        #[test]
        fn garbage_is_answered(at in 0usize..140, octet: u8, step in 1usize..60, end in 0usize..400) {
            let mut octets = hello(Some(b"a.example"), step);
            let at = at % octets.len();
            octets[at] = octet;
            let end = end.min(octets.len());
            let early = server_name(&octets[..end]);
            if early != Hello::More {
                prop_assert_eq!(early, server_name(&octets));
            }
        }
    }
}
