//! `normalize_path` of a proxy service, and what it makes of its routes' paths.

use std::ops::Range;

use weir_http::path::{Pattern, pattern};
use weir_model::{EncodedSlash, ForwardedPath, NormalizePath, PathRegex, ProxyProtocol};

use super::{LoweredProxy, LoweredRoute};
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::tree::Value;
use crate::view::{Sink, View};

pub(super) fn normalize_path(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<NormalizePath> {
    let default = NormalizePath::default();
    let Some((entry, _)) = view.get("normalize_path") else {
        return Some(default);
    };
    let Value::Table(table) = &entry.item.value else {
        let on = view.flag(sink, "normalize_path") != Some(false);
        return on.then_some(default);
    };
    let view = View::open(sink, &catalog::NORMALIZE_PATH, table, &entry.key_span);
    let encoded_slash = view.choice(
        sink,
        "encoded_slash",
        &EncodedSlash::ALL,
        EncodedSlash::as_str,
    );
    let forward = view.choice(sink, "forward", &ForwardedPath::ALL, ForwardedPath::as_str);
    Some(NormalizePath {
        merge_slashes: view
            .flag(sink, "merge_slashes")
            .unwrap_or(default.merge_slashes),
        encoded_slash: encoded_slash.unwrap_or(default.encoded_slash),
        forward: forward.unwrap_or(default.forward),
    })
}

/// Brings the paths of routes into the form in which their service compares them, and reports those that were written for
/// paths as they are received.
pub(super) fn adapt(sink: &mut Sink<'_>, proxies: &[LoweredProxy], routes: &mut [LoweredRoute]) {
    for route in routes {
        let of = |proxy: &&LoweredProxy| proxy.proxy.name == route.service.0;
        let Some(proxy) = proxies.iter().find(of) else {
            continue;
        };
        let http = proxy.proxy.protocol == ProxyProtocol::Http;
        let Some(rules) = proxy.proxy.normalize_path.filter(|_| http) else {
            continue;
        };
        if let (Some(path), Some(place)) = (&mut route.route.path, &route.path) {
            adapt_path(sink, &rules, path, place, proxy);
        }
        if let (Some(regex), Some(place)) = (&route.route.path_regex, &route.path_regex)
            && let Some(why) = excluded_by(regex, &rules)
        {
            let message = "this expression looks for what no normalized path contains";
            sink.push(
                Diagnostic::new(Code::PathNotNormal, place, message)
                    .also(&proxy.name, "this service compares normalized paths")
                    .cause(format!("in a normalized path {why}"))
                    .fix("write it for normalized paths, or normalize_path = false in the service"),
            );
        }
    }
}

fn adapt_path(
    sink: &mut Sink<'_>,
    rules: &NormalizePath,
    path: &mut String,
    place: &Range<usize>,
    proxy: &LoweredProxy,
) {
    const LABEL: &str = "this service compares normalized paths";
    match pattern(path, rules) {
        Pattern::Normal => {}
        Pattern::Respelled(normal) => {
            sink.push(
                Diagnostic::new(
                    Code::PathSpelling,
                    place,
                    format!("this path is compared as `{normal}`"),
                )
                .also(&proxy.name, LABEL)
                .fix(format!("write path = \"{normal}\"")),
            );
            *path = normal;
        }
        Pattern::Never(normal) => {
            let instead = normal.map_or_else(
                || "leave the route out".to_owned(),
                |normal| format!("write path = \"{normal}\", leave the route out"),
            );
            sink.push(
                Diagnostic::new(
                    Code::PathNotNormal,
                    place,
                    "no request has such a path after normalization",
                )
                .also(&proxy.name, LABEL)
                .cause(
                    "dot segments are removed, duplicate slashes merged and unreserved characters decoded before routes look at a \
                     path; malformed escapes are answered 400",
                )
                .fix(format!(
                    "{instead}, or write normalize_path = false in the service"
                )),
            );
        }
    }
}

/// What the expression asks for, by its text, that no normalized path has.
fn excluded_by(regex: &PathRegex, rules: &NormalizePath) -> Option<&'static str> {
    let text = regex.as_str();
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if rules.merge_slashes && has(&["//"]) {
        return Some("no slash follows another one");
    }
    if has(&[r"/\.\.", r"\.\./", r"/\./", r"/\.$"]) {
        return Some("there are no dot segments");
    }
    if has(&[r"\{", r"\}", r"\|", r"\^", r"\\", "`", "\""]) {
        return Some("characters that a URI may not contain are escaped");
    }
    let blind = text.starts_with("(?i");
    let odd = |escape: &[u8]| {
        let digits = escape
            .get(..2)
            .filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let lower = escape.iter().take(2).any(u8::is_ascii_lowercase);
        value.is_some_and(|value| {
            let unreserved = value.is_ascii_alphanumeric() || b"-._~".contains(&value);
            unreserved || (lower && !blind)
        })
    };
    let mut escapes = text.as_bytes().split(|byte| *byte == b'%').skip(1);
    escapes
        .any(odd)
        .then_some("unreserved characters are not escaped, and escapes are in upper case")
}
