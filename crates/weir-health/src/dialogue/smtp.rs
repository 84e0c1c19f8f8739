//! Implements the SMTP check (RFC 5321): greeting and EHLO.
//!
//! If the server rejects EHLO with 5xx, the check sends HELO, for servers that do not support EHLO.

use super::line::Lines;
use super::{Dialogue, Reply, quote_first_line};
use crate::outcome::Outcome;

#[derive(Debug)]
enum Step {
    Greeting,
    Ehlo,
    Helo,
}

/// The state of an SMTP check.
#[derive(Debug)]
pub(super) struct Session {
    helo: String,
    step: Step,
    lines: Lines,
}

impl Session {
    pub(super) fn new(helo: &str) -> Self {
        Self {
            helo: helo.to_owned(),
            step: Step::Greeting,
            lines: Lines::default(),
        }
    }

    /// Handles a reply line; `None` = more lines follow.
    fn handle_line(&mut self, line: &[u8]) -> Option<Reply> {
        let code: Option<u16> = line
            .get(..3)
            .and_then(|code| std::str::from_utf8(code).ok())
            .and_then(|code| code.parse().ok());
        let Some(code) = code else {
            let text = format!("not SMTP: {}", quote_first_line(line));
            return Some(Reply::Finished(Outcome::failed(text)));
        };
        // All lines of a reply except the last have a dash after the code.
        if line.get(3) == Some(&b'-') {
            return None;
        }
        Some(match (&self.step, code) {
            (Step::Greeting, 220) => {
                self.step = Step::Ehlo;
                Reply::Send(format!("EHLO {}\r\n", self.helo).into_bytes())
            }
            (Step::Ehlo, 500..=599) => {
                self.step = Step::Helo;
                Reply::Send(format!("HELO {}\r\n", self.helo).into_bytes())
            }
            (Step::Ehlo | Step::Helo, 250) => Reply::Finished(Outcome::passed("smtp 250")),
            _ => Reply::Finished(Outcome::failed(format!("smtp {}", quote_first_line(line)))),
        })
    }
}

impl Dialogue for Session {
    fn receive(&mut self, bytes: &[u8]) -> Reply {
        if !self.lines.push(bytes) {
            return Reply::Finished(Outcome::failed("line too long"));
        }
        while let Some(line) = self.lines.next_line() {
            if let Some(reply) = self.handle_line(&line) {
                return reply;
            }
        }
        Reply::More
    }

    fn end(&mut self) -> Outcome {
        Outcome::failed("connection closed without a response")
    }

    fn quit_message(&self) -> &'static [u8] {
        b"QUIT\r\n"
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome_of;
    use super::*;

    #[test]
    fn greeting_and_ehlo_or_helo_must_be_accepted() {
        let smtp = || Session::new("director");
        let server = |sent: &[u8]| -> &'static [u8] {
            match sent {
                b"" => b"220-mail\r\n220 ready\r\n",
                b"EHLO director\r\n" => b"250-SIZE 1\r\n250 HELP\r\n",
                _ => panic!("{sent:?}"),
            }
        };
        assert_eq!(outcome_of(smtp, server), "Passed: smtp 250");
        let old = |sent: &[u8]| -> &'static [u8] {
            match sent {
                b"" => b"220 ready\r\n",
                b"EHLO director\r\n" => b"502 what\r\n",
                _ => b"250 hello\r\n",
            }
        };
        assert_eq!(outcome_of(smtp, old), "Passed: smtp 250");
        assert_eq!(
            outcome_of(smtp, |_| b"554 no service\r\n"),
            "Failed: smtp \"554 no service\""
        );
        assert_eq!(
            outcome_of(smtp, |_| b"HTTP/1.1 400 Bad\r\n"),
            "Failed: not SMTP: \"HTTP/1.1 400 Bad\""
        );
        assert_eq!(outcome_of(smtp, |_| &[b'2'; 5000]), "Failed: line too long");
        let busy = |sent: &[u8]| -> &'static [u8] {
            match sent {
                b"" => b"220 ready\r\n",
                _ => b"421 too busy\r\n",
            }
        };
        assert_eq!(outcome_of(smtp, busy), "Failed: smtp \"421 too busy\"");
        let rejecting = |sent: &[u8]| -> &'static [u8] {
            match sent {
                b"" => b"220 ready\r\n",
                _ => b"550 go away\r\n",
            }
        };
        assert_eq!(outcome_of(smtp, rejecting), "Failed: smtp \"550 go away\"");
        assert_eq!(
            outcome_of(smtp, |_| b""),
            "Failed: connection closed without a response"
        );
    }
}
