//! MySQL's greeting, version 10 (protocol documentation, "Connection Phase"): a server that takes connections sends it first.

use super::{Dialogue, Reply, quoted};
use crate::outcome::Outcome;

const MOST_PACKET: usize = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    bytes: Vec<u8>,
}

fn judge(payload: &[u8]) -> Outcome {
    match payload {
        [10, rest @ ..] => {
            let version = rest.split(|byte| *byte == 0).next().unwrap_or_default();
            Outcome::passed(format!("mysql {}", quoted(version)))
        }
        [0xff, _, _, b'#', _, _, _, _, _, text @ ..] | [0xff, _, _, text @ ..] => {
            Outcome::failed(format!("mysql {}", quoted(text)))
        }
        other => foreign(other),
    }
}

fn foreign(bytes: &[u8]) -> Outcome {
    Outcome::failed(format!("no MySQL: {}", quoted(bytes)))
}

impl Dialogue for Greeting {
    fn open(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        self.bytes.extend_from_slice(bytes);
        let Some([a, b, c, number]) = self.bytes.first_chunk() else {
            return Reply::More;
        };
        let length = usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16;
        if length == 0 || length > MOST_PACKET || *number != 0 {
            return Reply::Finished(foreign(&self.bytes[..4]));
        }
        match self.bytes.get(4..4 + length) {
            Some(payload) => Reply::Finished(judge(payload)),
            None => Reply::More,
        }
    }

    fn end(&mut self) -> Outcome {
        Outcome::failed("closed without an answer")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::*;

    #[test]
    fn greetings_and_refusals() {
        let told = |answer: &'static [u8]| told(Greeting::default, move |_| answer);
        assert_eq!(
            told(b"\x0c\0\0\0\x0a10.11.6\0abc"),
            "Passed: mysql \"10.11.6\""
        );
        assert_eq!(
            told(b"\x07\0\0\0\xff\x10\x04busy"),
            "Failed: mysql \"busy\""
        );
        assert_eq!(
            told(b"\x0d\0\0\0\xff\x10\x04#08004busy"),
            "Failed: mysql \"busy\""
        );
        assert!(told(b"\xff\xff\xff\0 endless").starts_with("Failed: no MySQL"));
        assert!(told(b"SSH-2.0-OpenSSH\r\n").starts_with("Failed: no MySQL"));
        assert_eq!(told(b""), "Failed: closed without an answer");
    }
}
