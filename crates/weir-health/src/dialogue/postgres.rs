//! Implements the PostgreSQL check with the start-up of protocol 3.0 ("Message Formats").
//!
//! The check passes if the server requests authentication, accepts the login, or rejects the account or the database.

use super::{Dialogue, Reply, quote_first_line};
use crate::outcome::Outcome;

const PROTOCOL_VERSION: u32 = 196_608;

/// Maximum length of a message, in bytes.
const MESSAGE_MAX_BYTES: usize = 64 << 10;

/// The state of a PostgreSQL start-up.
#[derive(Debug)]
pub(super) struct Startup {
    message: Vec<u8>,
    bytes: Vec<u8>,
}

impl Startup {
    pub(super) fn new(user: &str) -> Self {
        let mut body = PROTOCOL_VERSION.to_be_bytes().to_vec();
        body.extend(b"user\0");
        body.extend(user.as_bytes());
        body.extend([0, 0]);
        let length = u32::try_from(body.len() + 4).unwrap_or(0);
        let mut message = length.to_be_bytes().to_vec();
        message.extend(body);
        Self {
            message,
            bytes: Vec::new(),
        }
    }
}

/// Evaluates an ErrorResponse by its SQLSTATE code. The outcome's note is the error message.
fn evaluate_error(fields: &[u8]) -> Outcome {
    let (mut code, mut text) = ("", &b""[..]);
    for field in fields.split(|byte| *byte == 0) {
        match field {
            [b'C', value @ ..] => code = std::str::from_utf8(value).unwrap_or_default(),
            [b'M', value @ ..] => text = value,
            _ => {}
        }
    }
    let note = format!("postgres {}", quote_first_line(text));
    // Class 28 (invalid_authorization_specification) reports a problem with the account, and 3D000 a problem with the
    // database: the server itself works.
    if code.starts_with("28") || code == "3D000" {
        Outcome::passed(note)
    } else {
        Outcome::failed(note)
    }
}

impl Dialogue for Startup {
    fn open(&mut self) -> Vec<u8> {
        self.message.clone()
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        self.bytes.extend_from_slice(bytes);
        let Some([kind, length @ ..]) = self.bytes.first_chunk::<5>() else {
            return Reply::More;
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if !matches!(kind, b'R' | b'E') || !(4..=MESSAGE_MAX_BYTES).contains(&length) {
            let text = format!("not PostgreSQL: {}", quote_first_line(&self.bytes[..5]));
            return Reply::Finished(Outcome::failed(text));
        }
        if self.bytes.len() < 1 + length {
            return Reply::More;
        }
        Reply::Finished(if *kind == b'R' {
            Outcome::passed("postgres responded")
        } else {
            evaluate_error(&self.bytes[5..=length])
        })
    }

    fn end(&mut self) -> Outcome {
        Outcome::failed("connection closed without a response")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome_of;
    use super::*;

    #[test]
    fn authentication_requests_and_account_errors_pass() {
        let startup = || Startup::new("probe");
        assert_eq!(startup().message, b"\0\0\0\x14\0\x03\0\0user\0probe\0\0");
        let outcome_of = |response: &'static [u8]| outcome_of(startup, move |_| response);
        assert_eq!(
            outcome_of(b"R\0\0\0\x08\0\0\0\x0a"),
            "Passed: postgres responded"
        );
        assert_eq!(
            outcome_of(b"E\0\0\0\x14C57P03\0Mstarting\0"),
            "Failed: postgres \"starting\""
        );
        assert_eq!(
            outcome_of(b"E\0\0\0\x13C28000\0Mno role\0"),
            "Passed: postgres \"no role\""
        );
        assert_eq!(
            outcome_of(b"E\0\0\0\x18C3D000\0Mno database\0"),
            "Passed: postgres \"no database\""
        );
        assert_eq!(
            outcome_of(b"R\0\0\0\x08\0\0"),
            "Failed: connection closed without a response"
        );
        assert!(outcome_of(b"SSH-2.0-x\r\n").starts_with("Failed: not PostgreSQL"));
        assert!(outcome_of(b"E\xff\xff\xff\xff").starts_with("Failed: not PostgreSQL"));
    }

    #[test]
    fn length_of_a_message_is_limited() {
        let receive = |bytes| match Startup::new("probe").receive(bytes) {
            Reply::Finished(outcome) => outcome.note,
            reply => format!("{reply:?}"),
        };
        assert_eq!(receive(b"R\0\0\0\x04"), "postgres responded");
        assert_eq!(
            receive(b"R\0\0\0\x03"),
            "not PostgreSQL: \"R\\0\\0\\0\\u{3}\""
        );
        assert_eq!(receive(b"E\0\x01\0\0C57P03\0"), "More");
        assert!(receive(b"E\0\x01\0\x01C57P03\0").starts_with("not PostgreSQL"));
    }
}
