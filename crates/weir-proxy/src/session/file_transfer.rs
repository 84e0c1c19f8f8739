//! Defines the state of a static file's transfer: the awaited job, the progress and the added fields.

use std::fs::File;
use std::sync::Arc;

use weir_http::Request;

use super::edit::LocalResponseFields;
use crate::job_result::Ticket;

/// The transfer of a file to a client.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The job whose result is awaited.
    pub(super) awaited_job: Option<Ticket>,
    /// Request path and query, for a redirect.
    pub(super) target: Vec<u8>,
    /// Response status if no file is found.
    pub(super) missing_status: u16,
    /// The request that is sent to a server if no file is found.
    pub(super) fallback: Option<Box<Request>>,
    /// Whether the method is allowed for files.
    pub(super) is_allowed: bool,
    /// Fields that the configuration adds.
    pub(super) edits: Vec<Line>,
    /// Names of fields that the configuration removes.
    pub(super) removed_fields: Vec<String>,
    /// Response progress; `None` until the head has been sent.
    pub(super) progress: Option<FileProgress>,
}

/// Progress of sending a file.
#[derive(Debug)]
pub(super) struct FileProgress {
    pub(super) status: u16,
    pub(super) file: Arc<File>,
    /// Offset of the next byte to read, and number of bytes that are not read yet.
    pub(super) next_offset: u64,
    pub(super) remaining: u64,
    /// Whether the connection persists after the response.
    pub(super) persists: bool,
}

/// A field that the configuration adds to responses with these statuses.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) value: Vec<u8>,
    pub(super) statuses: Vec<(u16, u16)>,
    /// Path of the only file whose responses get the field; `None` = every response.
    pub(super) file: Option<String>,
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

/// Returns whether one of the lines replaces the fields with this name.
pub(super) fn is_replaced(name: &str, lines: &[&Line]) -> bool {
    let mut lines = lines.iter();
    lines.any(|line| line.replaces && line.name.eq_ignore_ascii_case(name))
}

impl Transfer {
    pub(super) fn expects(&self, ticket: Ticket) -> bool {
        self.awaited_job == Some(ticket)
    }

    /// Returns whether the response head has been sent.
    pub(super) const fn is_answered(&self) -> bool {
        self.progress.is_some()
    }

    /// Returns the fields that the configuration adds to a response with this status and file. Omits fields that a
    /// later line replaces.
    pub(super) fn lines(&self, status: u16, file: Option<&str>) -> Vec<&Line> {
        let applies = |line: &&Line| {
            let mut ranges = line.statuses.iter();
            let has_status = line.statuses.is_empty()
                || ranges.any(|(first, last)| (*first..=*last).contains(&status));
            has_status && (line.file.is_none() || line.file.as_deref() == file)
        };
        let all: Vec<&Line> = self.edits.iter().filter(applies).collect();
        let is_last_of_name =
            |index: usize, line: &Line| !is_replaced(&line.name, &all[index + 1..]);
        let effective = all
            .iter()
            .enumerate()
            .filter(|(index, line)| is_last_of_name(*index, line));
        effective.map(|(_, line)| *line).collect()
    }

    /// Returns the fields that the configuration adds to a response that Weir generates.
    pub(super) fn local_response_fields(&self, status: u16) -> LocalResponseFields {
        let mut fields = LocalResponseFields::default();
        for line in self.lines(status, None) {
            if line.replaces && line.name.eq_ignore_ascii_case("Content-Type") {
                fields.content_type = Some(String::from_utf8_lossy(&line.value).into_owned());
            } else {
                line.write(&mut fields.lines);
            }
        }
        fields
    }

    /// Returns the status that the client received; 0 = none.
    pub(super) fn status(&self) -> u16 {
        self.progress.as_ref().map_or(0, |sent| sent.status)
    }
}
