//! Directives of HAProxy and nginx that are written differently here, with what to write instead.
//!
//! A directive that is only named differently is in `known_as` of its key.

use crate::catalog;
use crate::key::Section;

/// Directives, and how a route expresses them.
const ROUTE_TEXTS: [(&[&str], &str); 8] = [
    (
        &["deny", "block", "reject", "http-request", "http_request"],
        "to reject requests, write `status = 403`, or `close = true` for no response",
    ),
    (
        &["acl"],
        "write the conditions themselves, for example `path = \"/api/*\"` or `source = [\"10.0.0.0/8\"]`",
    ),
    (
        &["path_beg", "path_dir"],
        "write `path = \"/api*\"`; `*` matches any text",
    ),
    (
        &["path_end"],
        "write `path = \"*.png\"`; `*` matches any text",
    ),
    (
        &["path_sub"],
        "write `path = \"*api*\"`; `*` matches any text",
    ),
    (&["path_reg"], "write `path_regex = '^/api/[0-9]+$'`"),
    (
        &["hdr", "req.hdr", "hdr_beg", "hdr_sub", "hdr_reg"],
        "write `host = \"www.example.com\"`, or `header = [\"NAME: VALUE\"]` for another field",
    ),
    (&["hdr_dom", "hdr_end"], "write `host = \"*.example.com\"`"),
];

/// Returns what to write for a directive of another program in a service or a route.
pub(crate) fn equivalent(section: &Section, directive: &str) -> Option<String> {
    let is_route = section.path == catalog::ROUTE.path;
    if !is_route && section.path != catalog::SERVICE.path {
        return None;
    }
    let mut texts = ROUTE_TEXTS.iter();
    let (_, text) = texts.find(|(directives, _)| directives.contains(&directive))?;
    Some(match is_route {
        true => (*text).to_owned(),
        false => format!("in a [[route]], {text}"),
    })
}
