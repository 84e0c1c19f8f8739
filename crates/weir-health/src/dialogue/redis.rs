//! Implements the Redis check: PING and PONG. The check also passes if the server requires a password.

use super::line::Lines;
use super::{Dialogue, Reply, quote_first_line};
use crate::outcome::Outcome;

/// The state of a Redis PING.
#[derive(Debug, Default)]
pub(super) struct Ping(Lines);

impl Dialogue for Ping {
    fn open(&mut self) -> Vec<u8> {
        b"*1\r\n$4\r\nPING\r\n".to_vec()
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        if !self.0.push(bytes) {
            return Reply::Finished(Outcome::failed("line too long"));
        }
        let Some(line) = self.0.next_line() else {
            return Reply::More;
        };
        Reply::Finished(if line == b"+PONG" {
            Outcome::passed("redis PONG")
        } else if line.starts_with(b"-NOAUTH") {
            Outcome::passed("redis requires a password")
        } else {
            Outcome::failed(format!("redis {}", quote_first_line(&line)))
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
    fn pong_and_required_password_pass() {
        let outcome_of = |response: &'static [u8]| outcome_of(Ping::default, move |_| response);
        assert_eq!(outcome_of(b"+PONG\r\n"), "Passed: redis PONG");
        assert_eq!(
            outcome_of(b"-NOAUTH Authentication required.\r\n"),
            "Passed: redis requires a password"
        );
        assert_eq!(
            outcome_of(b"-LOADING wait\r\n"),
            "Failed: redis \"-LOADING wait\""
        );
        assert_eq!(
            outcome_of(b"+PO"),
            "Failed: connection closed without a response"
        );
        assert_eq!(outcome_of(&[b'+'; 5000]), "Failed: line too long");
    }
}
