//! Lists directives of HAProxy and nginx that have a different form in weir.toml, with their equivalents.
//!
//! A directive that differs only in its name is listed in the `known_as` of its key.

/// Directives and their equivalents in a route.
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

/// Returns the equivalent, in a route, of another program's directive.
pub(crate) fn equivalent(directive: &str) -> Option<&'static str> {
    let mut texts = ROUTE_TEXTS.iter();
    let entry = texts.find(|(directives, _)| directives.contains(&directive));
    entry.map(|(_, text)| *text)
}
