//! Implements MySQL's connection phase (protocol documentation, "Connection Phase"): greeting, login, and login result.
//!
//! A MySQL server counts connections that are closed during this phase, and blocks hosts that have too many
//! (`max_connect_errors`). The dialogue therefore completes the phase. If the server rejects the account or the
//! director's address, the check passes: the server is alive.

use super::{Dialogue, Reply, quote_first_line};
use crate::outcome::Outcome;

/// Maximum length of a packet, in bytes.
const PACKET_MAX_BYTES: usize = 64 << 10;

/// Capability flags: LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x0000_0001 | 0x0000_0200 | 0x0000_8000 | 0x0008_0000;

/// Error code ER_HOST_NOT_PRIVILEGED, sent instead of a greeting: no account allows the director's address.
const HOST_NOT_PRIVILEGED: u16 = 1130;

/// Number of the collation utf8_general_ci.
const CHARACTER_SET: u8 = 33;

/// The state of a MySQL login.
#[derive(Debug)]
pub(super) struct Login {
    user: String,
    bytes: Vec<u8>,
    /// The server's version, from its greeting.
    version: Option<String>,
}

/// The next action after a packet.
enum Step {
    Send(Vec<u8>),
    End(Outcome),
}

impl Login {
    pub(super) fn new(user: &str) -> Self {
        Self {
            user: user.to_owned(),
            bytes: Vec::new(),
            version: None,
        }
    }

    /// Processes a packet; `number` is its sequence number.
    fn process_packet(&mut self, number: u8, payload: &[u8]) -> Step {
        let version = self.version.clone();
        match (version, payload) {
            (None, [10, fields @ ..]) => {
                let version = fields.split(|byte| *byte == 0).next().unwrap_or_default();
                self.version = Some(quote_first_line(version));
                Step::Send(encode_packet(
                    number.wrapping_add(1),
                    &self.login_response(),
                ))
            }
            (Some(version), [0, ..]) => Step::End(Outcome::passed(format!("mysql {version}"))),
            // SQLSTATE class 28 reports a problem with the account.
            (Some(version), [0xff, _, _, b'#', b'2', b'8', ..]) => {
                let note = format!("mysql {version}, login refused");
                Step::End(Outcome::passed(note))
            }
            (None, [0xff, low, high, text @ ..])
                if u16::from_le_bytes([*low, *high]) == HOST_NOT_PRIVILEGED =>
            {
                Step::End(Outcome::passed(format!("mysql {}", quote_first_line(text))))
            }
            (_, [0xff, _, _, b'#', _, _, _, _, _, text @ ..] | [0xff, _, _, text @ ..]) => {
                Step::End(Outcome::failed(format!("mysql {}", quote_first_line(text))))
            }
            // The server requests a different authentication method or more data: the response is empty, because there
            // is no password.
            (Some(_), [0xfe | 1, ..]) => Step::Send(encode_packet(number.wrapping_add(1), &[])),
            (_, other) => Step::End(not_mysql(other)),
        }
    }

    /// Builds a HandshakeResponse41 with an empty password.
    fn login_response(&self) -> Vec<u8> {
        let mut body = CAPABILITIES.to_le_bytes().to_vec();
        body.extend((1_u32 << 24).to_le_bytes());
        body.push(CHARACTER_SET);
        body.extend([0; 23]);
        body.extend(self.user.bytes().filter(|byte| *byte != 0));
        body.extend([0, 0]);
        body.extend(b"mysql_native_password\0");
        body
    }
}

fn encode_packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0);
    let [low, middle, high, _] = length.to_le_bytes();
    [&[low, middle, high, number], payload].concat()
}

fn not_mysql(bytes: &[u8]) -> Outcome {
    Outcome::failed(format!("not MySQL: {}", quote_first_line(bytes)))
}

impl Dialogue for Login {
    fn receive(&mut self, bytes: &[u8]) -> Reply {
        self.bytes.extend_from_slice(bytes);
        let mut to_send = Vec::new();
        while let Some([a, b, c, number]) = self.bytes.first_chunk().copied() {
            let length = usize::try_from(u32::from_le_bytes([a, b, c, 0])).unwrap_or(usize::MAX);
            let expects_greeting = self.version.is_none();
            if length == 0 || length > PACKET_MAX_BYTES || (expects_greeting && number != 0) {
                return Reply::Finished(not_mysql(&self.bytes[..4]));
            }
            if self.bytes.len() < 4 + length {
                break;
            }
            let remaining = self.bytes.split_off(4 + length);
            let packet = std::mem::replace(&mut self.bytes, remaining);
            match self.process_packet(number, &packet[4..]) {
                Step::Send(bytes) => to_send.extend(bytes),
                Step::End(outcome) => return Reply::Finished(outcome),
            }
        }
        if to_send.is_empty() {
            Reply::More
        } else {
            Reply::Send(to_send)
        }
    }

    fn end(&mut self) -> Outcome {
        Outcome::failed(match self.version {
            None => "connection closed without a response",
            Some(_) => "connection closed after the greeting",
        })
    }

    /// Returns COM_QUIT, which the server processes only if it has accepted the login.
    fn quit_message(&self) -> &'static [u8] {
        b"\x01\0\0\0\x01"
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome_of;
    use super::*;

    const GREETING: &[u8] = b"\x0c\0\0\0\x0a10.11.6\0abc";

    #[test]
    fn accepted_and_rejected_logins_pass() {
        let outcome_after_login = |response: &'static [u8]| {
            outcome_of(
                || Login::new("weir"),
                move |sent| if sent.is_empty() { GREETING } else { response },
            )
        };
        let refused = "Passed: mysql \"10.11.6\", login refused";
        assert_eq!(
            outcome_after_login(b"\x07\0\0\x02\0\0\0\x02\0\0\0"),
            "Passed: mysql \"10.11.6\""
        );
        assert_eq!(
            outcome_after_login(b"\x0b\0\0\x02\xff\x15\x04#28000no"),
            refused
        );
        assert_eq!(
            outcome_after_login(b"\x0d\0\0\x02\xff\x10\x04#08004busy"),
            "Failed: mysql \"busy\""
        );
        assert_eq!(
            outcome_after_login(b"\x03\0\0\x02abc"),
            "Failed: not MySQL: \"abc\""
        );
        assert_eq!(
            outcome_after_login(b""),
            "Failed: connection closed after the greeting"
        );
        let outcome_after_switch = outcome_of(
            || Login::new("weir"),
            |sent| match sent {
                [] => GREETING,
                [0, 0, 0, 3] => b"\x0b\0\0\x04\xff\x15\x04#28000no",
                _ => b"\x06\0\0\x02\xfeother",
            },
        );
        assert_eq!(outcome_after_switch, refused);
    }

    #[test]
    fn login_packet_contains_the_user() {
        let mut login = Login::new("probe");
        let Reply::Send(sent) = login.receive(GREETING) else {
            panic!("expected a login packet");
        };
        assert_eq!(usize::from(sent[0]), sent.len() - 4);
        assert_eq!((sent[3], &sent[36..43]), (1, b"probe\0\0".as_slice()));
    }

    #[test]
    fn unexpected_greetings_fail_except_for_rejected_hosts() {
        let outcome_of =
            |greeting: &'static [u8]| outcome_of(|| Login::new("weir"), move |_| greeting);
        assert_eq!(
            outcome_of(b"\x07\0\0\0\xff\x10\x04busy"),
            "Failed: mysql \"busy\""
        );
        assert_eq!(
            outcome_of(b"\x0d\0\0\0\xff\x10\x04#08004busy"),
            "Failed: mysql \"busy\""
        );
        assert_eq!(
            outcome_of(b"\x0a\0\0\0\xff\x6a\x04not you"),
            "Passed: mysql \"not you\""
        );
        assert!(outcome_of(b"\xff\xff\xff\0 endless").starts_with("Failed: not MySQL"));
        assert!(outcome_of(b"SSH-2.0-OpenSSH\r\n").starts_with("Failed: not MySQL"));
        assert_eq!(
            outcome_of(b""),
            "Failed: connection closed without a response"
        );
    }

    #[test]
    fn packet_header_is_checked() {
        let receive = |header: [u8; 4]| match Login::new("weir").receive(&header) {
            Reply::Finished(outcome) => outcome.note,
            reply => format!("{reply:?}"),
        };
        assert_eq!(receive([1, 0, 0, 0]), "More");
        assert_eq!(receive([0, 0, 1, 0]), "More", "64 KiB");
        for (header, reason) in [
            ([1, 0, 1, 0], "more than 64 KiB"),
            ([0, 0, 0, 0], "empty"),
            ([1, 0, 0, 1], "a greeting has number 0"),
        ] {
            assert!(receive(header).starts_with("not MySQL"), "{reason}");
        }
        let mut greeting = b"\x00\x02\0\0\x0a10.11.6\0".to_vec();
        greeting.resize(4 + 511, b'x');
        let mut login = Login::new("weir");
        assert_eq!(login.receive(&greeting), Reply::More, "incomplete");
        assert!(matches!(login.receive(b"x"), Reply::Send(_)), "512 bytes");
    }
}
