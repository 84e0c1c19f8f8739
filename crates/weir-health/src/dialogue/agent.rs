//! HAProxy's agent-check: one line in which the server says its weight or state.
//!
//! Words are taken in turn: `up`, `ready`, `down`, `failed`, `stopped`, `drain`, `maint`, `NN%`; what follows a `#` is a
//! remark. `maxconn:N` is understood and changes nothing here. A word that is none of these fails, and so does an empty line.

use super::line::Lines;
use super::{Dialogue, Reply, quoted};
use crate::outcome::{Outcome, Said};

/// See the module.
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

fn judge(line: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(line);
    let words = text.split('#').next().unwrap_or_default();
    let words = words
        .split([' ', '\t', ','])
        .filter(|word| !word.is_empty());
    let note = format!("agent {}", quoted(line));
    let (mut down, mut said, mut any) = (false, None, false);
    for word in words {
        any = true;
        match word.to_ascii_lowercase().as_str() {
            "up" | "ready" => down = false,
            "down" | "failed" | "fail" | "stopped" => down = true,
            "drain" | "maint" => said = Some(Said::Drain),
            word => match word.strip_suffix('%').map(str::parse::<u32>) {
                Some(Ok(percent)) => said = said.or(Some(Said::Percent(percent))),
                _ if word.starts_with("maxconn:") => {}
                _ => return Outcome::failed(note),
            },
        }
    }
    match said {
        _ if down || !any => Outcome::failed(note),
        Some(said) => Outcome::passed(note).saying(said),
        None => Outcome::passed(note),
    }
}

impl Dialogue for Agent {
    fn open(&mut self) -> Vec<u8> {
        self.send.clone().into_bytes()
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        if !self.lines.push(bytes) {
            return Reply::Finished(Outcome::failed("a line without an end"));
        }
        match self.lines.next() {
            Some(line) => Reply::Finished(judge(&line)),
            None => Reply::More,
        }
    }

    fn end(&mut self) -> Outcome {
        judge(&self.lines.rest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Verdict;

    #[test]
    fn what_agents_say() {
        for (line, verdict, said) in [
            ("75%", Verdict::Passed, Some(Said::Percent(75))),
            ("up 50% # busy", Verdict::Passed, Some(Said::Percent(50))),
            ("ready", Verdict::Passed, None),
            ("drain", Verdict::Passed, Some(Said::Drain)),
            ("maint 90%", Verdict::Passed, Some(Said::Drain)),
            ("down # disk full", Verdict::Failed, None),
            ("stopped", Verdict::Failed, None),
            ("up maxconn:30", Verdict::Passed, None),
            ("", Verdict::Failed, None),
            ("hello", Verdict::Failed, None),
            ("99999999999%", Verdict::Failed, None),
        ] {
            let outcome = judge(line.as_bytes());
            assert_eq!((outcome.verdict, outcome.said), (verdict, said), "{line}");
        }
    }
}
