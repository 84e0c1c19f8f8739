//! `{name}` and `*` in texts of a route. What this build would send or compare as it is written, although the language gives it
//! a meaning, is rejected: a field with the value `{client}` reaches no server.

use std::ops::Range;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::suggest::nearest;
use crate::view::Sink;

/// Variables of the language, without those that end in a name of their own.
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

/// What stands between braces, as far as it could be a variable; braces around anything else are text, as in JSON.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|tail| {
        let (name, _) = tail.split_once('}')?;
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        (!name.is_empty() && name.bytes().all(word)).then_some(name)
    })
}

fn is_known(name: &str) -> bool {
    let named = |prefix: &str| name.len() > prefix.len() && name.starts_with(prefix);
    let group = name.len() == 1 && name.bytes().all(|digit| (b'1'..=b'9').contains(&digit));
    NAMES.contains(&name) || group || named("header.") || named("cookie.")
}

/// Whether `text` names no variable but `built`; the first other one is reported.
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
        [] => "write the value itself: this build has no variables here".to_owned(),
        built => {
            let named = built.iter().filter(|name| name.len() > 1);
            let named: Vec<String> = named.map(|name| format!("{{{name}}}")).collect();
            let groups = if built.contains(&"9") {
                ", {1} to {9}"
            } else {
                ""
            };
            format!("this build has {}{groups} here", named.join(", "))
        }
    };
    let diagnostic = if is_known(name) {
        let message = format!("`{{{name}}}` is not built yet here");
        Diagnostic::new(Code::NotBuilt, span, message)
            .cause("it would be sent as it is written")
            .fix(has)
    } else {
        let message = format!("no variable is called `{{{name}}}`");
        let known = NAMES.into_iter().chain(built.iter().copied());
        let fix = nearest(name, known).map_or(has, |near| format!("did you mean `{{{near}}}`?"));
        Diagnostic::new(Code::UnknownValue, span, message).fix(fix)
    };
    sink.push(diagnostic);
    false
}

/// Whether a condition other than `path` and `host` is without `*`, which is reported.
pub(super) fn is_exact(
    sink: &mut Sink<'_>,
    key: &'static str,
    text: &str,
    span: &Range<usize>,
) -> bool {
    if !text.contains('*') {
        return true;
    }
    let message = format!("`*` in `{key}` is not built yet");
    sink.push(
        Diagnostic::new(Code::NotBuilt, span, message)
            .cause("it would be compared as it is written, and stand for nothing else")
            .fix("write the whole value, or the name alone: any value fits it"),
    );
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_between_braces_are_variables() {
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
    fn variables_with_names_of_their_own_are_known() {
        for name in ["client", "header.X-A", "cookie.a", "9"] {
            assert!(is_known(name), "{name}");
        }
        for name in ["clinet", "header.", "cookie", "0", "10"] {
            assert!(!is_known(name), "{name}");
        }
    }
}
