//! Lowers the conditions of `[[route]]` and of its `not`.

use std::ops::Range;
use std::sync::Arc;

use weir_model::{
    Conditions, HostPattern, HostSet, NamedCondition, Network, NetworkSet, Scheme, TextRegex,
    TlsVersion, ValuePattern,
};

use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::lower::{list_file, report_error};
use crate::tree::{Item, Value};
use crate::view::{Sink, View, keyword, text};

const TEXT: Kind = Kind::Text;

/// Conditions, and the positions of the path conditions, which are adapted to the service.
#[derive(Default)]
pub(crate) struct LoweredConditions {
    pub(crate) conditions: Conditions,
    pub(crate) paths: Vec<Range<usize>>,
    pub(crate) path_regexes: Vec<Range<usize>>,
}

pub(super) fn conditions(sink: &mut Sink<'_>, view: &View<'_, '_>) -> LoweredConditions {
    let (paths, path_spans) = texts(sink, view, "path", path);
    let (path_regexes, regex_spans) = texts(sink, view, "path_regex", regex);
    let (hosts, host_set) = hosts(sink, view);
    let conditions = Conditions {
        methods: texts(sink, view, "method", method).0,
        schemes: choices(sink, view, "scheme", &Scheme::ALL, Scheme::as_str),
        hosts,
        host_set,
        paths,
        path_regexes,
        headers: texts(sink, view, "header", header).0,
        queries: texts(sink, view, "query", |sink, text, span| {
            pair(sink, "query", text, span)
        })
        .0,
        cookies: texts(sink, view, "cookie", |sink, text, span| {
            pair(sink, "cookie", text, span)
        })
        .0,
        sources: sources(sink, view),
        tls_versions: choices(
            sink,
            view,
            "tls_version",
            &TlsVersion::ALL,
            TlsVersion::as_str,
        ),
        tls_snis: texts(sink, view, "tls_sni", host).0,
        client_cert_subjects: texts(sink, view, "client_cert_subject", value).0,
    };
    LoweredConditions {
        conditions,
        paths: path_spans,
        path_regexes: regex_spans,
    }
}

/// Returns the alternatives of a key: one value or a list. An empty list is an error, because it would match no
/// request.
fn items<'a, 't>(sink: &mut Sink<'_>, view: &View<'a, 't>, key: &'static str) -> &'a [Item<'t>] {
    let Some((entry, _)) = view.get(key) else {
        return &[];
    };
    match &entry.item.value {
        Value::List(items) if items.is_empty() => {
            sink.push(
                Diagnostic::new(
                    Code::EmptyList,
                    &entry.item.span,
                    format!("`{key}` is empty"),
                )
                .cause("an empty list matches no request")
                .fix(format!("remove `{key}`, or list a value")),
            );
            items
        }
        Value::List(items) => items,
        _ => std::slice::from_ref(&entry.item),
    }
}

/// Returns the valid strings of a key, and their positions.
fn texts<'a, T>(
    sink: &mut Sink<'_>,
    view: &View<'a, '_>,
    key: &'static str,
    parse: impl Fn(&mut Sink<'_>, &str, &Range<usize>) -> Option<T>,
) -> (Vec<T>, Vec<Range<usize>>) {
    let mut found = (Vec::new(), Vec::new());
    for item in items(sink, view, key) {
        if let Some((text, span)) = text(sink, item, &TEXT)
            && let Some(value) = parse(sink, text, span)
        {
            found.0.push(value);
            found.1.push(span.clone());
        }
    }
    found
}

fn host(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<HostPattern> {
    if let Some(expression) = text.strip_prefix('~') {
        let compiled = TextRegex::ignoring_case(expression);
        return compiled
            .map(HostPattern::Regex)
            .map_err(|error| report_regex(sink, span, &error))
            .ok();
    }
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_*".contains(&byte))
    };
    let is_address = text.parse::<std::net::IpAddr>().is_ok()
        || (text.starts_with('[')
            && text
                .trim_matches(['[', ']'])
                .parse::<std::net::Ipv6Addr>()
                .is_ok());
    if !is_address && !name.split('.').all(is_label) {
        sink.push(
            Diagnostic::new(
                Code::BadName,
                span,
                format!("invalid host `{}`", text.escape_debug()),
            )
            .fix("use a host name, \"*.\" and a host name, or an address, without a port"),
        );
        return None;
    }
    let lower_case = name.to_ascii_lowercase();
    Some(match (text.starts_with("*."), name.contains('*')) {
        (true, false) => HostPattern::Suffix(format!(".{lower_case}")),
        (_, true) => HostPattern::Wildcard(text.to_ascii_lowercase()),
        (false, false) => HostPattern::Exact(lower_case),
    })
}

fn path(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    let is_path_byte = |byte: u8| byte > b' ' && byte < 0x7f && !b"?#".contains(&byte);
    if !text.starts_with(['/', '*']) || !text.bytes().all(is_path_byte) {
        let diagnostic = Diagnostic::new(
            Code::BadName,
            span,
            format!("invalid path `{}`", text.escape_debug()),
        )
        .cause("a path starts with `/`, contains no query, and is compared percent-encoded");
        sink.push(match text.starts_with(['~', '^']) {
            true => diagnostic.fix("write regular expressions in `path_regex`"),
            false => diagnostic
                .fix("write \"/img/*\" or \"/exact\", and percent-encode other characters"),
        });
        return None;
    }
    Some(text.to_owned())
}

pub(super) fn regex(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<TextRegex> {
    TextRegex::new(text)
        .map_err(|error| report_regex(sink, span, &error))
        .ok()
}

fn report_regex(sink: &mut Sink<'_>, span: &Range<usize>, error: &weir_model::PatternError) {
    sink.push(
        Diagnostic::new(
            Code::BadText,
            span,
            format!("invalid regular expression: {error}"),
        )
        .fix("use the syntax of the Rust crate `regex`, in single quotes: '^/img/[0-9]+$'"),
    );
}

fn method(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
    if text.is_empty() || !text.bytes().all(is_allowed) {
        sink.push(
            Diagnostic::new(
                Code::BadName,
                span,
                format!("invalid method `{}`", text.escape_debug()),
            )
            .cause("methods are case-sensitive")
            .fix("write it in upper case: \"GET\""),
        );
        return None;
    }
    Some(text.to_owned())
}

/// Parses `"Name"` or `"Name: value"`.
fn header(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<NamedCondition> {
    let (name, pattern) = text
        .split_once(':')
        .map_or((text, None), |(name, value)| (name, Some(value.trim())));
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.contains('*') || !name.bytes().all(is_token) {
        sink.push(
            Diagnostic::new(
                Code::BadName,
                span,
                format!("invalid header field name `{}`", name.escape_debug()),
            )
            .fix("write \"Name\", or \"Name: value\""),
        );
        return None;
    }
    named_condition(sink, name.to_ascii_lowercase(), pattern, span)
}

/// Parses `"name"` or `"name=value"`.
fn pair(sink: &mut Sink<'_>, key: &str, text: &str, span: &Range<usize>) -> Option<NamedCondition> {
    let (name, pattern) = text
        .split_once('=')
        .map_or((text, None), |(name, value)| (name, Some(value)));
    let is_graphic = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_expression = pattern.is_some_and(|pattern| pattern.starts_with('~'));
    if name.is_empty()
        || name.contains('*')
        || !is_graphic(name)
        || !(is_expression || is_graphic(text))
    {
        sink.push(
            Diagnostic::new(Code::BadName, span, format!("invalid {key} condition"))
                .cause("names and values consist of printable ASCII characters without spaces, because they are \
                        compared without decoding")
                .fix("write \"name\" or \"name=value\""),
        );
        return None;
    }
    named_condition(sink, name.to_owned(), pattern, span)
}

fn named_condition(
    sink: &mut Sink<'_>,
    name: String,
    pattern: Option<&str>,
    span: &Range<usize>,
) -> Option<NamedCondition> {
    let value = match pattern {
        None => None,
        Some(text) => Some(value(sink, text, span)?),
    };
    Some(NamedCondition { name, value })
}

fn value(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<ValuePattern> {
    if let Some(expression) = text.strip_prefix('~') {
        return regex(sink, expression, span).map(ValuePattern::Regex);
    }
    Some(match text.contains('*') {
        true => ValuePattern::Wildcard(text.to_owned()),
        false => ValuePattern::Exact(text.to_owned()),
    })
}

/// Returns the values of a key with a fixed set of values.
fn choices<T: Copy>(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &'static str,
    all: &[T],
    as_str: impl Fn(T) -> &'static str,
) -> Vec<T> {
    let Some((_, kind)) = view.get(key) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for item in items(sink, view, key) {
        let keyword = keyword(sink, item, kind);
        let mut all = all.iter().copied();
        found.extend(all.find(|it| Some(as_str(*it)) == keyword));
    }
    found
}

/// Returns the listed hosts, and the hosts in files.
fn hosts(sink: &mut Sink<'_>, view: &View<'_, '_>) -> (Vec<HostPattern>, Option<Arc<HostSet>>) {
    let (mut listed, mut files) = (Vec::new(), Vec::new());
    for item in items(sink, view, "host") {
        if let Value::Table(table) = &item.value {
            let view = View::open(sink, &catalog::HOST_FILE, table, &item.span);
            if let Some((path, span)) = view.text(sink, "file") {
                files.extend(host_file(sink, path, span).map(|hosts| (path.to_owned(), hosts)));
            }
        } else if let Some((text, span)) = text(sink, item, &TEXT) {
            listed.extend(host(sink, text, span));
        }
    }
    let set = (!files.is_empty()).then(|| Arc::new(HostSet::new(files)));
    (listed, set)
}

fn host_file(sink: &mut Sink<'_>, path: &str, span: &Range<usize>) -> Option<Vec<HostPattern>> {
    let content = list_file::read(sink, path, span, "hosts")?;
    // The line is not shown, because the user may not be allowed to read the file.
    let mut discarded = Sink::new("");
    let mut hosts = Vec::new();
    for (number, line) in list_file::lines(&content) {
        match host(&mut discarded, line, &(0..0)) {
            Some(found) => hosts.push(found),
            None => {
                sink.push(
                    Diagnostic::new(Code::BadListFile, span, format!("{path}:{number}: not a valid host"))
                        .fix("write one host per line, as in `host`; lines that begin with `#` are comments"),
                );
                return None;
            }
        }
    }
    Some(hosts)
}

/// Returns the listed networks and the networks in files; `None` without `source`. A file that cannot be read is an
/// error, because its route would match the wrong clients.
fn sources(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<NetworkSet> {
    view.get("source")?;
    let (mut listed, mut files) = (Vec::new(), Vec::new());
    for item in items(sink, view, "source") {
        if let Value::Table(table) = &item.value {
            let view = View::open(sink, &catalog::ADDRESS_FILE, table, &item.span);
            if let Some((path, span)) = view.text(sink, "file") {
                files.extend(
                    network_file(sink, path, span).map(|networks| (path.to_owned(), networks)),
                );
            }
        } else if let Some((text, span)) = text(sink, item, &Kind::Network) {
            match address::parse_network(text) {
                Ok(network) => listed.push(network),
                Err(error) => report_error(sink, span, error),
            }
        }
    }
    Some(NetworkSet::new(listed, files))
}

fn network_file(sink: &mut Sink<'_>, path: &str, span: &Range<usize>) -> Option<Vec<Network>> {
    let content = list_file::read(sink, path, span, "addresses")?;
    let mut networks = Vec::new();
    for (number, line) in (1..).zip(content.lines()) {
        let line = line.split_once('#').map_or(line, |(text, _)| text).trim();
        if line.is_empty() {
            continue;
        }
        match address::parse_network(line) {
            Ok(network) => networks.push(network),
            Err(_) => {
                // The line is not shown, because the user may not be allowed to read the file.
                sink.push(
                    Diagnostic::new(Code::BadListFile, span, format!("{path}:{number}: not a valid network or address"))
                        .fix("write one network or address per line, such as 10.0.0.0/8; `#` begins a comment"),
                );
                return None;
            }
        }
    }
    Some(networks)
}
