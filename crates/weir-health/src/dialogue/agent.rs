//! Implements HAProxy's agent-check: the server sends one line with its weight or state.
//!
//! The words are `up`, `ready`, `down`, `fail`, `failed`, `stopped`, `drain`, `maint` and `NN%`, separated by spaces,
//! tabs or commas; `#` starts a comment. `maxconn:N` is accepted and ignored. An unknown word or an empty line is a
//! failure.

use super::line::Lines;
use super::{Dialogue, Reply, quote_first_line};
use crate::outcome::{Outcome, ReportedWeight};

/// The state of an agent check.
#[derive(Debug)]
pub(super) struct Agent {
    send: String,
    lines: Lines,
}

impl Agent {
    pub(super) fn new(send: Option<&str>) -> Self {
        Self {
            send: send.unwrap_or_default().to_owned(),
            lines: Lines::default(),
        }
    }
}

/// Evaluates the words of a line. The last state and the first percentage apply; `drain` and `maint` override
/// percentages. An agent that reports `down` reports no weight.
fn evaluate_line(line: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(line);
    let words = text.split('#').next().unwrap_or_default();
    let words = words
        .split([' ', '\t', ','])
        .filter(|word| !word.is_empty());
    let note = format!("agent {}", quote_first_line(line));
    let (mut is_down, mut weight, mut has_words) = (false, None, false);
    for word in words {
        has_words = true;
        match word.to_ascii_lowercase().as_str() {
            "up" | "ready" => is_down = false,
            "down" | "failed" | "fail" | "stopped" => is_down = true,
            "drain" | "maint" => weight = Some(ReportedWeight::Drain),
            word => match word.strip_suffix('%').map(str::parse::<u32>) {
                Some(Ok(percent)) => weight = weight.or(Some(ReportedWeight::Percent(percent))),
                _ if word.starts_with("maxconn:") => {}
                _ => return Outcome::failed(note),
            },
        }
    }
    match weight {
        _ if is_down || !has_words => Outcome::failed(note),
        Some(weight) => Outcome::passed(note).with_weight(weight),
        None => Outcome::passed(note),
    }
}

impl Dialogue for Agent {
    fn open(&mut self) -> Vec<u8> {
        self.send.clone().into_bytes()
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        if !self.lines.push(bytes) {
            return Reply::Finished(Outcome::failed("line too long"));
        }
        match self.lines.next_line() {
            Some(line) => Reply::Finished(evaluate_line(&line)),
            None => Reply::More,
        }
    }

    fn end(&mut self) -> Outcome {
        evaluate_line(&self.lines.take_remaining())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialogue::tests::outcome_of;
    use crate::outcome::Verdict;

    #[test]
    fn only_first_line_is_evaluated_and_may_end_with_the_connection() {
        let outcome = |send: Option<&'static str>, response: &'static [u8]| {
            outcome_of(
                move || Agent::new(send),
                move |sent| {
                    assert_eq!(sent, send.unwrap_or_default().as_bytes());
                    response
                },
            )
        };
        assert_eq!(outcome(None, b"up\r\ndown\n"), "Passed: agent \"up\"");
        assert_eq!(outcome(Some("who\n"), b"down"), "Failed: agent \"down\"");
        assert_eq!(outcome(None, b""), "Failed: agent \"\"");
        assert_eq!(outcome(None, &[b'u'; 5000]), "Failed: line too long");
    }

    #[test]
    fn agent_words_set_state_and_weight() {
        for (line, verdict, weight) in [
            ("75%", Verdict::Passed, Some(ReportedWeight::Percent(75))),
            (
                "up 50% # busy",
                Verdict::Passed,
                Some(ReportedWeight::Percent(50)),
            ),
            ("ready", Verdict::Passed, None),
            ("drain", Verdict::Passed, Some(ReportedWeight::Drain)),
            ("maint 90%", Verdict::Passed, Some(ReportedWeight::Drain)),
            ("down # disk full", Verdict::Failed, None),
            ("failed", Verdict::Failed, None),
            ("fail", Verdict::Failed, None),
            ("down up", Verdict::Passed, None),
            ("UP,\tdown", Verdict::Failed, None),
            (
                "50% 60%",
                Verdict::Passed,
                Some(ReportedWeight::Percent(50)),
            ),
            ("50% drain", Verdict::Passed, Some(ReportedWeight::Drain)),
            ("# up", Verdict::Failed, None),
            ("stopped", Verdict::Failed, None),
            ("up maxconn:30", Verdict::Passed, None),
            ("", Verdict::Failed, None),
            ("hello", Verdict::Failed, None),
            ("99999999999%", Verdict::Failed, None),
        ] {
            let outcome = evaluate_line(line.as_bytes());
            assert_eq!(
                (outcome.verdict, outcome.weight),
                (verdict, weight),
                "{line}"
            );
        }
    }
}
