//! `{name}` and `*` in texts of a route. Variables and wildcards that are not implemented are rejected, so that a field
//! with the value `{client}` is never sent to a server.

use std::ops::Range;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::suggest::nearest;
use crate::view::Sink;

/// Reserved variables, except those with a name as suffix.
const NAMES: [&str; 14] = [
    "client",
    "client_port",
    "scheme",
    "host",
    "path",
    "query",
    "method",
    "request_id",
    "server",
    "pool",
    "route",
    "tls_version",
    "tls_sni",
    "client_cert_subject",
];

/// Names between braces that could be variables; other text in braces is kept, as in JSON.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|tail| {
        let (name, _) = tail.split_once('}')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
    })
}

fn is_known(name: &str) -> bool {
    let named = |prefix: &str| name.len() > prefix.len() && name.starts_with(prefix);
    let group = name.len() == 1 && name.bytes().all(|digit| (b'1'..=b'9').contains(&digit));
    NAMES.contains(&name) || group || named("header.") || named("cookie.")
}

/// Whether `text` uses only variables in `built`; reports the first other one.
pub(super) fn are_built(
    sink: &mut Sink<'_>,
    text: &str,
    span: &Range<usize>,
    built: &[&str],
) -> bool {
    let Some(name) = variables(text).find(|name| !built.contains(name)) else {
        return true;
    };
    let has = match built {
        [] => "write a literal value: variables are not implemented here yet".to_owned(),
        built => {
            let named = built.iter().filter(|name| name.len() > 1);
            let named: Vec<String> = named.map(|name| format!("{{{name}}}")).collect();
            let groups = if built.contains(&"9") {
                ", {1} to {9}"
            } else {
                ""
            };
            format!(
                "the variables {}{groups} are supported here",
                named.join(", ")
            )
        }
    };
    let diagnostic = if is_known(name) {
        let message = format!("`{{{name}}}` is not implemented here yet");
        Diagnostic::new(Code::NotBuilt, span, message)
            .cause("it would be sent verbatim")
            .fix(has)
    } else {
        let message = format!("unknown variable `{{{name}}}`");
        let known = NAMES.into_iter().chain(built.iter().copied());
        let fix = nearest(name, known).map_or(has, |near| format!("did you mean `{{{near}}}`?"));
        Diagnostic::new(Code::UnknownValue, span, message).fix(fix)
    };
    sink.push(diagnostic);
    false
}

/// Whether a condition other than `path` and `host` contains no `*`; reports it otherwise.
pub(super) fn is_exact(
    sink: &mut Sink<'_>,
    key: &'static str,
    text: &str,
    span: &Range<usize>,
) -> bool {
    if !text.contains('*') {
        return true;
    }
    let message = format!("`*` in `{key}` is not implemented yet");
    sink.push(
        Diagnostic::new(Code::NotBuilt, span, message)
            .cause("it would be compared literally")
            .fix("write the whole value, or only the name to match any value"),
    );
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_braces_are_variables() {
        let found = |text| variables(text).collect::<Vec<&str>>();
        assert_eq!(
            found("a {client}{header.X-A} {1}"),
            ["client", "header.X-A", "1"]
        );
        for text in ["{\"a\": 1}", "{}", "{", "}{", "a{ b }", "{client"] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn named_variables_are_known() {
        for name in ["client", "header.X-A", "cookie.a", "9"] {
            assert!(is_known(name), "{name}");
        }
        for name in ["clinet", "header.", "cookie", "0", "10"] {
            assert!(!is_known(name), "{name}");
        }
    }
}
