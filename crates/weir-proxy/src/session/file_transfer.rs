//! The state of a file that is sent to the client.

use std::fs::File;
use std::sync::Arc;

use weir_http::Request;

use super::edit::AnswerFields;
use crate::job_result::Ticket;

/// A file on its way to the client.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The job that is awaited.
    pub(super) awaited: Option<Ticket>,
    /// Path and query, for a redirect.
    pub(super) target: Vec<u8>,
    pub(super) missing: u16,
    /// The request that is sent to a server if there is no file.
    pub(super) fallback: Option<Box<Request>>,
    /// Whether the method is one that files have.
    pub(super) is_allowed: bool,
    /// Fields that the configuration adds.
    pub(super) edits: Vec<Line>,
    pub(super) removed: Vec<String>,
    /// Once the head was sent.
    pub(super) sent: Option<Sent>,
}

/// What was sent of a file, and what follows.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) status: u16,
    pub(super) file: Arc<File>,
    pub(super) next: u64,
    pub(super) left: u64,
    /// Whether the connection persists.
    pub(super) stays: bool,
}

/// A field that the configuration adds to responses with some statuses.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) value: Vec<u8>,
    pub(super) statuses: Vec<(u16, u16)>,
    pub(super) replaces: bool,
}

impl Line {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(&self.value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether one of these lines replaces the fields of that name.
pub(super) fn is_replaced(name: &str, lines: &[&Line]) -> bool {
    let mut lines = lines.iter();
    lines.any(|line| line.replaces && line.name.eq_ignore_ascii_case(name))
}

impl Transfer {
    pub(super) fn expects(&self, ticket: Ticket) -> bool {
        self.awaited == Some(ticket)
    }

    /// Whether the client received the beginning of the response.
    pub(super) const fn is_answered(&self) -> bool {
        self.sent.is_some()
    }

    /// The fields that the configuration adds to a response with this status.
    pub(super) fn lines(&self, status: u16) -> Vec<&Line> {
        let is_of = |line: &&Line| {
            let mut ranges = line.statuses.iter();
            line.statuses.is_empty() || ranges.any(|(from, to)| (*from..=*to).contains(&status))
        };
        let all: Vec<&Line> = self.edits.iter().filter(is_of).collect();
        let stays = |at: usize, line: &Line| !is_replaced(&line.name, &all[at + 1..]);
        let kept = all.iter().enumerate().filter(|(at, line)| stays(*at, line));
        kept.map(|(_, line)| *line).collect()
    }

    /// The same for a response that has no file.
    pub(super) fn answer_fields(&self, status: u16) -> AnswerFields {
        let mut fields = AnswerFields::default();
        for line in self.lines(status) {
            if line.replaces && line.name.eq_ignore_ascii_case("Content-Type") {
                fields.kind = Some(String::from_utf8_lossy(&line.value).into_owned());
            } else {
                line.write(&mut fields.lines);
            }
        }
        fields
    }

    /// The status that the client received; 0 = none.
    pub(super) fn status(&self) -> u16 {
        self.sent.as_ref().map_or(0, |sent| sent.status)
    }
}
