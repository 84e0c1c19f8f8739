//! MySQL's connection phase (protocol documentation, "Connection Phase"): greeting, answer with an account, and the word on it.
//!
//! A server counts connections that end within this phase, and locks whoever makes too many of them out
//! (`max_connect_errors`); so the phase is led to its end, and that the account is refused passes: it is the server's own word.

use super::{Dialogue, Reply, quoted};
use crate::outcome::Outcome;

const MOST_PACKET: usize = 64 << 10;

/// LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x0000_0001 | 0x0000_0200 | 0x0000_8000 | 0x0008_0000;

/// ER_HOST_NOT_PRIVILEGED: it has no account for anybody at the director's address, and says so in place of a greeting.
const HOST_NOT_PRIVILEGED: u16 = 1130;

/// utf8_general_ci.
const CHARACTERS: u8 = 33;

/// See the module.
#[derive(Debug)]
pub(super) struct Login {
    user: String,
    bytes: Vec<u8>,
    /// Of the server, once it has greeted.
    version: Option<String>,
}

/// What a packet makes the probe do.
enum Step {
    Answer(Vec<u8>),
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

    /// `number` counts the packets of both sides.
    fn packet(&mut self, number: u8, payload: &[u8]) -> Step {
        let known = self.version.clone();
        match (known, payload) {
            (None, [10, rest @ ..]) => {
                let version = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                self.version = Some(quoted(version));
                Step::Answer(packet(number.wrapping_add(1), &self.response()))
            }
            (Some(version), [0, ..]) => Step::End(Outcome::passed(format!("mysql {version}"))),
            // Class 28 is about who asks.
            (Some(version), [0xff, _, _, b'#', b'2', b'8', ..]) => {
                let note = format!("mysql {version}, the account is refused");
                Step::End(Outcome::passed(note))
            }
            (None, [0xff, low, high, text @ ..])
                if u16::from_le_bytes([*low, *high]) == HOST_NOT_PRIVILEGED =>
            {
                Step::End(Outcome::passed(format!("mysql {}", quoted(text))))
            }
            (_, [0xff, _, _, b'#', _, _, _, _, _, text @ ..] | [0xff, _, _, text @ ..]) => {
                Step::End(Outcome::failed(format!("mysql {}", quoted(text))))
            }
            // Another way of proving oneself, or more of it: there is no password.
            (Some(_), [0xfe | 1, ..]) => Step::Answer(packet(number.wrapping_add(1), &[])),
            (_, other) => Step::End(foreign(other)),
        }
    }

    /// HandshakeResponse41 with an empty password.
    fn response(&self) -> Vec<u8> {
        let mut body = CAPABILITIES.to_le_bytes().to_vec();
        body.extend((1_u32 << 24).to_le_bytes());
        body.push(CHARACTERS);
        body.extend([0; 23]);
        body.extend(self.user.bytes().filter(|byte| *byte != 0));
        body.extend([0, 0]);
        body.extend(b"mysql_native_password\0");
        body
    }
}

fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0);
    let [low, middle, high, _] = length.to_le_bytes();
    [&[low, middle, high, number], payload].concat()
}

fn foreign(bytes: &[u8]) -> Outcome {
    Outcome::failed(format!("no MySQL: {}", quoted(bytes)))
}

impl Dialogue for Login {
    fn open(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        self.bytes.extend_from_slice(bytes);
        let mut answer = Vec::new();
        while let Some([a, b, c, number]) = self.bytes.first_chunk().copied() {
            let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
            let greets = self.version.is_none();
            if length == 0 || length > MOST_PACKET || (greets && number != 0) {
                return Reply::Finished(foreign(&self.bytes[..4]));
            }
            if self.bytes.len() < 4 + length {
                break;
            }
            let rest = self.bytes.split_off(4 + length);
            let whole = std::mem::replace(&mut self.bytes, rest);
            match self.packet(number, &whole[4..]) {
                Step::Answer(bytes) => answer.extend(bytes),
                Step::End(outcome) => return Reply::Finished(outcome),
            }
        }
        if answer.is_empty() {
            Reply::More
        } else {
            Reply::Send(answer)
        }
    }

    fn end(&mut self) -> Outcome {
        Outcome::failed(match self.version {
            None => "closed without an answer",
            Some(_) => "closed after the greeting",
        })
    }

    /// COM_QUIT, heard only by who let the account in.
    fn farewell(&self) -> &'static [u8] {
        b"\x01\0\0\0\x01"
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::*;

    const GREETING: &[u8] = b"\x0c\0\0\0\x0a10.11.6\0abc";

    #[test]
    fn logins_and_refusals() {
        let after = |answer: &'static [u8]| {
            told(
                || Login::new("weir"),
                move |said| if said.is_empty() { GREETING } else { answer },
            )
        };
        let refused = "Passed: mysql \"10.11.6\", the account is refused";
        assert_eq!(
            after(b"\x07\0\0\x02\0\0\0\x02\0\0\0"),
            "Passed: mysql \"10.11.6\""
        );
        assert_eq!(after(b"\x0b\0\0\x02\xff\x15\x04#28000no"), refused);
        assert_eq!(
            after(b"\x0d\0\0\x02\xff\x10\x04#08004busy"),
            "Failed: mysql \"busy\""
        );
        assert_eq!(after(b""), "Failed: closed after the greeting");
        let switches = told(
            || Login::new("weir"),
            |said| match said {
                [] => GREETING,
                [0, 0, 0, 3] => b"\x0b\0\0\x04\xff\x15\x04#28000no",
                _ => b"\x06\0\0\x02\xfeother",
            },
        );
        assert_eq!(switches, refused);
    }

    #[test]
    fn the_account_is_named_in_a_packet_of_its_own() {
        let mut login = Login::new("probe");
        let Reply::Send(said) = login.receive(GREETING) else {
            panic!("it must answer");
        };
        assert_eq!(usize::from(said[0]), said.len() - 4);
        assert_eq!((said[3], &said[36..43]), (1, b"probe\0\0".as_slice()));
    }

    #[test]
    fn what_greets_otherwise() {
        let told = |answer: &'static [u8]| told(|| Login::new("weir"), move |_| answer);
        assert_eq!(
            told(b"\x07\0\0\0\xff\x10\x04busy"),
            "Failed: mysql \"busy\""
        );
        assert_eq!(
            told(b"\x0d\0\0\0\xff\x10\x04#08004busy"),
            "Failed: mysql \"busy\""
        );
        assert_eq!(
            told(b"\x0a\0\0\0\xff\x6a\x04not you"),
            "Passed: mysql \"not you\""
        );
        assert!(told(b"\xff\xff\xff\0 endless").starts_with("Failed: no MySQL"));
        assert!(told(b"SSH-2.0-OpenSSH\r\n").starts_with("Failed: no MySQL"));
        assert_eq!(told(b""), "Failed: closed without an answer");
    }
}
