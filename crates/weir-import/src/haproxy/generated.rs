//! Recognizes `http-after-response` rules, which change all responses, including those that haproxy generates.
//!
//! A route changes the responses of servers and its own response, but not Weir's error responses, such as 401, 429 and
//! 503.

use super::line::Line;
use crate::note::Notes;

/// Returns whether haproxy evaluates the rule after all other rules, and also for generated responses.
pub(super) fn is_after_response(line: &Line) -> bool {
    line.keyword() == "http-after-response"
}

/// Returns whether the rule changes a field that a route cannot change in its own response.
pub(super) fn is_own_field(line: &Line) -> bool {
    const FIELDS: [&str; 1] = ["location"];
    is_after_response(line) && has_name(line, &FIELDS)
}

/// Adds a note to an imported rule whose change is missing in Weir's error responses.
pub(super) fn note_errors(line: &Line, notes: &mut Notes) {
    /// Fields of Weir's error responses; removing any other field has no effect on these responses.
    const ERROR_FIELDS: [&str; 4] = ["content-type", "retry-after", "www-authenticate", "allow"];
    let changes_errors = line.word(1) != Some("del-header") || has_name(line, &ERROR_FIELDS);
    if is_after_response(line) && changes_errors {
        let reason = "Weir changes the responses of servers and routes, but not its errors (400, 401, 408, 429, 502, \
                      503, 504 and others)";
        notes.add(line.position, reason);
    }
}

fn has_name(line: &Line, names: &[&str]) -> bool {
    let name = line.word(2).unwrap_or_default();
    names.iter().any(|it| it.eq_ignore_ascii_case(name))
}
