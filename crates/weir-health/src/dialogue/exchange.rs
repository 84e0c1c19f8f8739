//! Runs a configured dialogue: strings to send, and strings and regular expressions that the responses must contain.

use weir_model::ExchangeStep;

use super::{Dialogue, Reply, quote_first_line};
use crate::outcome::Outcome;

/// Maximum number of bytes received after a string was sent.
const MAX_RECEIVED_BYTES: usize = 64 << 10;

/// The state of a configured dialogue.
#[derive(Debug)]
pub(super) struct Exchange {
    steps: Vec<ExchangeStep>,
    /// Index of the next step with an expectation to evaluate.
    step_index: usize,
    /// Bytes received since the last string was sent.
    received: Vec<u8>,
}

impl Exchange {
    pub(super) fn new(steps: &[ExchangeStep]) -> Self {
        Self {
            steps: steps.to_vec(),
            step_index: 0,
            received: Vec::new(),
        }
    }

    /// Advances to the next step with an expectation. Returns the bytes to send for the steps up to and including this
    /// one.
    fn next_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(step) = self.steps.get(self.step_index) {
            bytes.extend_from_slice(step.send.as_bytes());
            if step.expects_data() {
                break;
            }
            self.step_index += 1;
        }
        bytes
    }

    fn is_met(&self, step: &ExchangeStep) -> bool {
        let text = step.expect.as_bytes();
        let has_text = text.is_empty()
            || self
                .received
                .windows(text.len())
                .any(|window| window == text);
        let mut regex = step.regex.iter();
        let matches_regex = regex.all(|regex| regex.matches(&self.received));
        has_text && matches_regex
    }
}

impl Dialogue for Exchange {
    fn open(&mut self) -> Vec<u8> {
        self.next_bytes()
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        self.received.extend_from_slice(bytes);
        while self
            .steps
            .get(self.step_index)
            .is_some_and(|step| self.is_met(step))
        {
            self.step_index += 1;
            let to_send = self.next_bytes();
            if !to_send.is_empty() {
                self.received.clear();
                return Reply::Send(to_send);
            }
        }
        if self.step_index == self.steps.len() {
            return Reply::Finished(Outcome::passed("tcp exchange completed"));
        }
        if self.received.len() > MAX_RECEIVED_BYTES {
            return Reply::Finished(Outcome::failed("response too long"));
        }
        Reply::More
    }

    fn end(&mut self) -> Outcome {
        let step = self.step_index + 1;
        let received = quote_first_line(self.received.trim_ascii_start());
        Outcome::failed(format!("connection closed in step {step} after {received}"))
    }
}

#[cfg(test)]
mod tests {
    use weir_model::Pattern;

    use super::super::tests::outcome_of;
    use super::*;

    fn step(send: &str, expect: &str) -> ExchangeStep {
        ExchangeStep {
            send: send.to_owned(),
            expect: expect.to_owned(),
            regex: None,
        }
    }

    /// Returns a Redis server with this role.
    fn redis(role: &'static [u8]) -> impl Fn(&[u8]) -> &'static [u8] {
        move |sent| match sent {
            b"PING\r\n" => b"+PONG\r\n",
            b"INFO\r\n" => role,
            _ => b"",
        }
    }

    #[test]
    fn steps_are_executed_in_order() {
        let role = ExchangeStep {
            regex: Some(Pattern::new("role:(master|active)").expect("compile the pattern")),
            ..step("INFO\r\n", "")
        };
        let steps = [step("PING\r\n", "+PONG"), role];
        let outcome = |role| outcome_of(|| Exchange::new(&steps), redis(role));
        assert_eq!(
            outcome(b"# x\r\nrole:master\r\n"),
            "Passed: tcp exchange completed"
        );
        assert_eq!(
            outcome(b"role:slave\r\n"),
            "Failed: connection closed in step 2 after \"role:slave\""
        );
        let greeting = [step("", "220"), step("QUIT\r\n", "221")];
        let server = |sent: &[u8]| -> &'static [u8] {
            match sent {
                b"" => b"220 ready\r\n",
                b"QUIT\r\n" => b"221 bye\r\n",
                _ => b"",
            }
        };
        let outcome = outcome_of(|| Exchange::new(&greeting), server);
        assert_eq!(outcome, "Passed: tcp exchange completed");
    }

    #[test]
    fn strings_without_expectations_are_sent_with_the_next_one() {
        let steps = [
            step("AUTH secret\r\n", ""),
            step("PING\r\n", "+PONG"),
            step("SELECT 1\r\n", ""),
            step("CLIENT NO-EVICT on\r\n", ""),
            step("INFO\r\n", "role:master"),
        ];
        let mut exchange = Exchange::new(&steps);
        assert_eq!(exchange.open(), b"AUTH secret\r\nPING\r\n");
        let sent = b"SELECT 1\r\nCLIENT NO-EVICT on\r\nINFO\r\n";
        assert_eq!(exchange.receive(b"+PONG\r\n"), Reply::Send(sent.to_vec()));
        let end = exchange.end().note;
        assert_eq!(end, "connection closed in step 5 after \"\"");
        let completed = Outcome::passed("tcp exchange completed");
        assert_eq!(exchange.receive(b"role:master"), Reply::Finished(completed));
    }

    #[test]
    fn only_data_received_after_the_last_string_was_sent_is_compared() {
        let mut exchange = Exchange::new(&[step("a", "x"), step("b", "x"), step("", "y")]);
        exchange.open();
        assert_eq!(exchange.receive(b"xy"), Reply::Send(b"b".to_vec()));
        assert_eq!(exchange.receive(b"z"), Reply::More);
        let completed = Outcome::passed("tcp exchange completed");
        let reply = exchange.receive(b"yx");
        assert_eq!(reply, Reply::Finished(completed), "nothing was sent");
    }

    #[test]
    fn response_length_is_limited() {
        let mut exchange = Exchange::new(&[step("a", "x")]);
        exchange.open();
        assert_eq!(exchange.receive(&[b'.'; 64 << 10]), Reply::More);
        let failed = Outcome::failed("response too long");
        assert_eq!(exchange.receive(b"."), Reply::Finished(failed));
    }
}
