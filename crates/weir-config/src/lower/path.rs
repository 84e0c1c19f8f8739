//! Lowers a proxy service's `normalize_path`, and applies it to route paths.

use std::ops::Range;

use weir_http::path::{Pattern, check_pattern};
use weir_model::{
    Conditions, EncodedSlash, ForwardedPath, NormalizePath, ProxyProtocol, TextRegex,
};

use super::route::LoweredConditions;
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
        let is_on = view.flag(sink, "normalize_path") != Some(false);
        return is_on.then_some(default);
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

/// Normalizes route paths as their service does. Reports paths that this changes, and paths and regular expressions
/// that cannot match a normalized path.
pub(super) fn adapt_to_services(
    sink: &mut Sink<'_>,
    proxies: &[LoweredProxy],
    routes: &mut [LoweredRoute],
) {
    for route in routes {
        let is_service = |proxy: &&LoweredProxy| proxy.proxy.name == route.service.0;
        let Some(proxy) = proxies.iter().find(is_service) else {
            continue;
        };
        let is_http = proxy.proxy.protocol == ProxyProtocol::Http;
        let Some(rules) = proxy.proxy.normalize_path.filter(|_| is_http) else {
            continue;
        };
        let LoweredRoute {
            route,
            when,
            not,
            rewrite,
            ..
        } = route;
        adapt_conditions(sink, &rules, &mut route.when, when, proxy);
        let edit = route.edits.path.as_ref();
        if let (Some(regex), Some(location)) = (edit.and_then(|edit| edit.regex.as_ref()), rewrite)
        {
            check_regex(sink, &rules, regex, location, proxy);
        }
        if let (Some(conditions), Some(spans)) = (&mut route.not, not) {
            adapt_conditions(sink, &rules, conditions, spans, proxy);
        }
    }
}

fn adapt_conditions(
    sink: &mut Sink<'_>,
    rules: &NormalizePath,
    conditions: &mut Conditions,
    spans: &LoweredConditions,
    proxy: &LoweredProxy,
) {
    for (path, location) in conditions.paths.iter_mut().zip(&spans.paths) {
        adapt_path(sink, rules, path, location, proxy);
    }
    for (regex, location) in conditions.path_regexes.iter().zip(&spans.path_regexes) {
        check_regex(sink, rules, regex, location, proxy);
    }
}

fn check_regex(
    sink: &mut Sink<'_>,
    rules: &NormalizePath,
    regex: &TextRegex,
    location: &Range<usize>,
    proxy: &LoweredProxy,
) {
    let Some(reason) = exclusion_reason(regex, rules) else {
        return;
    };
    let message = "this regular expression cannot match any normalized path";
    sink.push(
        Diagnostic::new(Code::PathNotNormalized, location, message)
            .related(&proxy.name, "this service compares normalized paths")
            .cause(format!("in a normalized path, {reason}"))
            .fix("rewrite it for normalized paths, or set normalize_path = false in the service"),
    );
}

fn adapt_path(
    sink: &mut Sink<'_>,
    rules: &NormalizePath,
    path: &mut String,
    location: &Range<usize>,
    proxy: &LoweredProxy,
) {
    const LABEL: &str = "this service compares normalized paths";
    match check_pattern(path, rules) {
        Pattern::Normal => {}
        Pattern::Normalized(normal) => {
            sink.push(
                Diagnostic::new(
                    Code::PathSpelling,
                    location,
                    format!("this path is compared as `{normal}`"),
                )
                .related(&proxy.name, LABEL)
                .fix(format!("write path = \"{normal}\"")),
            );
            *path = normal;
        }
        Pattern::Unmatchable(normal) => {
            let advice = normal.map_or_else(
                || "remove the route".to_owned(),
                |normal| format!("write path = \"{normal}\", remove the route"),
            );
            let merging = match rules.merge_slashes {
                true => "duplicate slashes are merged, ",
                false => "",
            };
            sink.push(
                Diagnostic::new(
                    Code::PathNotNormalized,
                    location,
                    "no normalized request path matches this path",
                )
                .related(&proxy.name, LABEL)
                .cause(format!(
                    "before routes are evaluated, dot segments are removed, {merging}and percent-encoded unreserved \
                     characters are decoded; requests with invalid percent-encoding are rejected with 400",
                ))
                .fix(format!(
                    "{advice}, or set normalize_path = false in the service"
                )),
            );
        }
    }
}

/// Returns why a regular expression cannot match any normalized path; `None` = no reason was found.
fn exclusion_reason(regex: &TextRegex, rules: &NormalizePath) -> Option<&'static str> {
    let text = regex.as_str();
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if rules.merge_slashes && has(&["//"]) {
        return Some("duplicate slashes are merged");
    }
    if has(&[r"/\.\.", r"\.\./", r"/\./", r"/\.$"]) {
        return Some("dot segments are removed");
    }
    if has(&[r"\{", r"\}", r"\|", r"\^", r"\\", "`", "\""]) {
        return Some("characters not allowed in a URI are percent-encoded");
    }
    let ignores_case = text.starts_with("(?i");
    let is_never_normalized = |escape: &[u8]| {
        let digits = escape
            .get(..2)
            .filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let has_lower_case = escape.iter().take(2).any(u8::is_ascii_lowercase);
        value.is_some_and(|value| {
            let is_unreserved = value.is_ascii_alphanumeric() || b"-._~".contains(&value);
            is_unreserved || (has_lower_case && !ignores_case)
        })
    };
    let mut escapes = text.as_bytes().split(|byte| *byte == b'%').skip(1);
    escapes.any(is_never_normalized).then_some(
        "unreserved characters are not percent-encoded, and percent-encoding uses upper-case hexadecimal digits",
    )
}
