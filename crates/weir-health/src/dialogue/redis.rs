//! Redis: PING and PONG. A server that wants a password first is alive.

use super::line::Lines;
use super::{Dialogue, Reply, quoted};
use crate::outcome::Outcome;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ping(Lines);

impl Dialogue for Ping {
    fn open(&mut self) -> Vec<u8> {
        b"*1\r\n$4\r\nPING\r\n".to_vec()
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        if !self.0.push(bytes) {
            return Reply::Finished(Outcome::failed("a line without an end"));
        }
        let Some(line) = self.0.next() else {
            return Reply::More;
        };
        Reply::Finished(if line == b"+PONG" {
            Outcome::passed("redis PONG")
        } else if line.starts_with(b"-NOAUTH") {
            Outcome::passed("redis wants a password")
        } else {
            Outcome::failed(format!("redis {}", quoted(&line)))
        })
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
    fn pongs() {
        let told = |answer: &'static [u8]| told(Ping::default, move |_| answer);
        assert_eq!(told(b"+PONG\r\n"), "Passed: redis PONG");
        assert_eq!(
            told(b"-NOAUTH Authentication required.\r\n"),
            "Passed: redis wants a password"
        );
        assert_eq!(
            told(b"-LOADING wait\r\n"),
            "Failed: redis \"-LOADING wait\""
        );
        assert_eq!(told(b"+PO"), "Failed: closed without an answer");
    }
}
