//! What a certificate says of itself, as far as an operator must know before clients do: how long it holds, and for
//! whom.
//!
//! Reading is by position (RFC 5280 section 4.1) and refuses nothing that it does not need; whether a certificate is
//! sound is judged by those who verify it.

/// A certificate's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateInfo {
    /// Seconds since 1970.
    pub(crate) not_before: i64,
    /// Seconds since 1970.
    pub(crate) not_after: i64,
    /// Host names in lower case, `*.` included; without any, the subject's common name.
    pub(crate) names: Vec<String>,
    /// The bytes of the serial number.
    pub(crate) serial: Vec<u8>,
}

const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
/// 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// 2.5.29.19.
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
/// 2.5.29.37.
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// 2.5.29.37.0.
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
/// 1.3.6.1.5.5.7.3.1.
const SERVER_USAGE: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// Elements one behind the other.
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Elements<'a> {
    /// Tag and content.
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            short @ 0..=0x7f => (usize::from(short), rest),
            long @ 0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                let length = bytes
                    .iter()
                    .fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

impl<'a> Elements<'a> {
    pub(super) fn element(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(found, _)| *found == tag)
            .map(|it| it.1)
    }
}

/// Reads a certificate; `None` = it is none.
pub(crate) fn read(certificate: &[u8]) -> Option<CertificateInfo> {
    let mut body = Elements(Elements(Elements(certificate).element(SEQUENCE)?).element(SEQUENCE)?);
    let (tag, content) = body.next()?;
    let serial = match tag {
        VERSION => body.element(INTEGER)?,
        _ => content,
    };
    let (_algorithm, _issuer) = (body.element(SEQUENCE)?, body.element(SEQUENCE)?);
    let mut validity = Elements(body.element(SEQUENCE)?);
    let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
    let subject = body.element(SEQUENCE)?;
    let mut names = Vec::new();
    for (tag, content) in body {
        if tag == EXTENSIONS {
            alternative_names(content, &mut names)?;
        }
    }
    if names.is_empty() {
        names.extend(common_name(subject));
    }
    Some(CertificateInfo {
        not_before,
        not_after,
        names,
        serial: serial.to_vec(),
    })
}

/// The value of an extension; `None` = the certificate does not have it.
fn extension<'a>(certificate: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let body = Elements(Elements(Elements(certificate).element(SEQUENCE)?).element(SEQUENCE)?);
    let (_, all) = body.into_iter().find(|(tag, _)| *tag == EXTENSIONS)?;
    for (_, extension) in Elements(Elements(all).element(SEQUENCE)?) {
        let mut parts = Elements(extension);
        if parts.element(OID)? == wanted {
            return parts.last().map(|(_, value)| value);
        }
    }
    None
}

/// Whether a certificate says of itself that it is no authority's (RFC 5280 section 4.2.1.9).
pub(super) fn is_end_entity(certificate: &[u8]) -> bool {
    extension(certificate, BASIC_CONSTRAINTS).is_some_and(|value| {
        let constraints = Elements(value).element(SEQUENCE).unwrap_or_default();
        !matches!(Elements(constraints).next(), Some((BOOLEAN, [authority])) if *authority != 0)
    })
}

/// Whether a certificate may be a server's: it restricts its use in no way, or to this one among others.
pub(super) fn is_for_servers(certificate: &[u8]) -> bool {
    extension(certificate, EXTENDED_KEY_USAGE).is_none_or(|value| {
        let usages = Elements(value).element(SEQUENCE).unwrap_or_default();
        Elements(usages).any(|(_, usage)| usage == SERVER_USAGE || usage == ANY_USAGE)
    })
}

fn alternative_names(extensions: &[u8], names: &mut Vec<String>) -> Option<()> {
    for (_, extension) in Elements(Elements(extensions).element(SEQUENCE)?) {
        let mut parts = Elements(extension);
        if parts.element(OID)? != SUBJECT_ALT_NAME {
            continue;
        }
        // Whether it is critical may stand in between.
        let (_, value) = parts.last()?;
        for (tag, name) in Elements(Elements(value).element(SEQUENCE)?) {
            if tag == DNS_NAME {
                names.push(String::from_utf8_lossy(name).to_ascii_lowercase());
            }
        }
    }
    Some(())
}

fn common_name(subject: &[u8]) -> Option<String> {
    let sets = Elements(subject).filter(|(tag, _)| *tag == SET);
    let pairs = sets.flat_map(|(_, set)| Elements(set));
    let mut values = pairs.filter_map(|(_, pair)| {
        let mut parts = Elements(pair);
        (parts.element(OID)? == COMMON_NAME).then(|| parts.next())?
    });
    let (_, text) = values.next()?;
    Some(String::from_utf8_lossy(text).to_ascii_lowercase())
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
pub(super) fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let text = text.strip_suffix(b"Z")?;
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    };
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year = number(year);
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year), rest)
        }
        _ => return None,
    };
    let [mo1, mo2, d1, d2, h1, h2, mi1, mi2, s1, s2] = *rest else {
        return None;
    };
    let days = days(year, number(&[mo1, mo2]), number(&[d1, d2]));
    Some(days * 86_400 + number(&[h1, h2]) * 3_600 + number(&[mi1, mi2]) * 60 + number(&[s1, s2]))
}

/// Days from 1970-01-01 in the Gregorian calendar.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the day that is not always there is the last.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// Tags and lengths that stand somewhere in certificates, and any others.
    fn der_like() -> impl Strategy<Value = Vec<u8>> {
        let known = b"\x30\x02\x06\x17\x18\x31\xa0\xa3\x82\x00\x01\x05\x7f\x81\x84\xff";
        vec(prop_oneof![select(known.to_vec()), any::<u8>()], 0..120)
    }

    /// An element around a content.
    fn around(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("short");
        [&[tag, 0x82], &length.to_be_bytes()[..], content].concat()
    }

    proptest! {
        #[test]
        fn nothing_that_a_file_holds_panics(input in der_like(), times in vec(any::<u8>(), 0..20)) {
            let _ = read(&input);
            let body = around(SEQUENCE, &around(SEQUENCE, &input));
            let _ = read(&body);
            let _ = (is_end_entity(&body), is_for_servers(&body));
            let _ = time((UTC_TIME, &times));
            let _ = time((GENERALIZED_TIME, &times));
        }

        #[test]
        fn a_date_is_a_number_of_seconds(text in "[0-9]{12}Z|[0-9]{14}Z") {
            let _ = time((UTC_TIME, text.as_bytes()));
            let _ = time((GENERALIZED_TIME, text.as_bytes()));
        }
    }

    #[test]
    fn times_are_seconds() {
        let utc = |text: &str| time((UTC_TIME, text.as_bytes()));
        assert_eq!(utc("700101000000Z"), Some(0));
        assert_eq!(utc("000229120000Z"), Some(951_825_600));
        assert_eq!(utc("261121174624Z"), Some(1_795_283_184));
        let general = |text: &str| time((GENERALIZED_TIME, text.as_bytes()));
        assert_eq!(general("20500101000000Z"), Some(2_524_608_000));
        assert_eq!(general("99991231235959Z"), Some(253_402_300_799));
        for bad in ["", "Z", "2050Z", "20500101000000", "2050010100000xZ"] {
            assert_eq!(general(bad), None, "{bad}");
        }
    }

    #[test]
    fn garbage_is_no_certificate() {
        for bad in [
            &b""[..],
            b"\x30",
            b"\x30\x80",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x02\x30\x00",
            b"\x30\x04\x30\x02\x02\x00",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
