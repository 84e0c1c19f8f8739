//! Checks whether an OCSP response from a file (RFC 6960) can be stapled. A client that gets a useless response rejects
//! the connection, so no response is better than a bad one.
//!
//! The signature is not verified here; clients do that.

use super::x509::{Elements, INTEGER, OID, SEQUENCE, time};

const BYTE_STRING: u8 = 0x04;
const ENUMERATED: u8 = 0x0a;
const GENERALIZED_TIME: u8 = 0x18;
const EXPLICIT_0: u8 = 0xa0;

/// Why a response is not stapled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OcspFault {
    /// It cannot be parsed.
    #[error("not an OCSP response")]
    Malformed,
    /// `tryLater`, `unauthorized` and the like.
    #[error("the OCSP responder returned an error")]
    Refusal,
    /// Perhaps for the previous certificate.
    #[error("the OCSP response is for another certificate")]
    Other,
    /// `nextUpdate` has passed.
    #[error("the OCSP response has expired")]
    Over,
}

/// Checks a response for the certificate with this serial number at `now`, in seconds since 1970.
///
/// # Errors
/// It cannot be used.
pub(crate) fn check(response: &[u8], serial: &[u8], now: i64) -> Result<(), OcspFault> {
    let mut outer = whole(response).ok_or(OcspFault::Malformed)?;
    match outer.element(ENUMERATED) {
        Some([0]) => {}
        Some(_) => return Err(OcspFault::Refusal),
        None => return Err(OcspFault::Malformed),
    }
    let responses = responses(outer).ok_or(OcspFault::Malformed)?;
    let mut found = Err(OcspFault::Other);
    for (_, answer) in responses {
        let (of, until) = single(answer).ok_or(OcspFault::Malformed)?;
        if of == serial {
            let over = until.is_some_and(|until| until <= now);
            found = if over { Err(OcspFault::Over) } else { Ok(()) };
        }
    }
    found
}

/// One element and nothing behind it.
fn whole(response: &[u8]) -> Option<Elements<'_>> {
    let mut all = Elements(response);
    let content = all.element(SEQUENCE)?;
    all.0.is_empty().then_some(Elements(content))
}

/// What is said of certificates, behind the response's status.
fn responses(mut outer: Elements<'_>) -> Option<Elements<'_>> {
    let mut bytes = Elements(Elements(outer.element(EXPLICIT_0)?).element(SEQUENCE)?);
    bytes.element(OID)?;
    let mut basic = Elements(Elements(bytes.element(BYTE_STRING)?).element(SEQUENCE)?);
    let data = Elements(basic.element(SEQUENCE)?);
    // Version and responder come before, in forms that do not matter here.
    let mut after = data.skip_while(|(tag, _)| *tag != GENERALIZED_TIME);
    after.next()?;
    let (tag, content) = after.next()?;
    (tag == SEQUENCE).then_some(Elements(content))
}

/// Serial number and `nextUpdate` of one answer.
fn single(answer: &[u8]) -> Option<(&[u8], Option<i64>)> {
    let mut parts = Elements(answer);
    let mut of = Elements(parts.element(SEQUENCE)?);
    let (_algorithm, _name, _key) = (of.next()?, of.next()?, of.next()?);
    let serial = of.element(INTEGER)?;
    let (_status, _since) = (parts.next()?, parts.element(GENERALIZED_TIME)?);
    let until = match parts.next() {
        Some((EXPLICIT_0, content)) => Some(time(Elements(content).next()?)?),
        _ => None,
    };
    Some((serial, until))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn around(tag: u8, content: &[&[u8]]) -> Vec<u8> {
        let content = content.concat();
        let length = u8::try_from(content.len()).expect("short");
        [&[tag, 0x81, length], &content[..]].concat()
    }

    /// A response for serial number 7, good until then.
    fn response(until: Option<&str>) -> Vec<u8> {
        let of = around(
            SEQUENCE,
            &[
                &around(SEQUENCE, &[]),
                &around(BYTE_STRING, &[b"name"]),
                &around(BYTE_STRING, &[b"key"]),
                &around(INTEGER, &[&[7]]),
            ],
        );
        let moment = |text: &str| around(GENERALIZED_TIME, &[text.as_bytes()]);
        let until = until.map(|text| around(EXPLICIT_0, &[&moment(text)]));
        let good = around(0x80, &[]);
        let single = around(
            SEQUENCE,
            &[
                &of,
                &good,
                &moment("20200101000000Z"),
                &until.unwrap_or_default(),
            ],
        );
        let data = around(
            SEQUENCE,
            &[
                &around(0xa2, &[b"responder"]),
                &moment("20200101000000Z"),
                &around(SEQUENCE, &[&single]),
            ],
        );
        let basic = around(SEQUENCE, &[&data]);
        let bytes = around(
            SEQUENCE,
            &[&around(OID, &[b"x"]), &around(BYTE_STRING, &[&basic])],
        );
        around(
            SEQUENCE,
            &[&around(ENUMERATED, &[&[0]]), &around(EXPLICIT_0, &[&bytes])],
        )
    }

    #[test]
    fn response_is_valid_for_one_certificate_until_its_next_update() {
        // 2030-01-01.
        const THEN: i64 = 1_893_456_000;
        let dated = response(Some("20300101000000Z"));
        assert_eq!(check(&dated, &[7], THEN - 1), Ok(()));
        assert_eq!(check(&dated, &[7], THEN), Err(OcspFault::Over));
        assert_eq!(check(&dated, &[8], 0), Err(OcspFault::Other));
        assert_eq!(check(&response(None), &[7], i64::MAX), Ok(()));
        for short in 0..dated.len() {
            let checked = check(&dated[..short], &[7], 0);
            assert_eq!(checked, Err(OcspFault::Malformed), "{short}");
        }
        let refusal = check(b"\x30\x03\x0a\x01\x06", &[7], 0);
        assert_eq!(refusal, Err(OcspFault::Refusal));
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(input in vec(any::<u8>(), 0..120), at in 0usize..100, byte: u8) {
            let _ = check(&input, &[7], 0);
            let mut response = response(Some("20300101000000Z"));
            if let Some(target) = response.get_mut(at) {
                *target = byte;
            }
            let _ = check(&response, &[7], 0);
        }
    }
}
