//! Lowers a proxy service's `access_log`.

use std::ops::Range;
use std::sync::Arc;

use weir_model::{AccessLog, LogFormat, LogTarget, SyslogFormat, ValueMap, Variable};

use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::suggest::nearest;
use crate::tree::Value;
use crate::view::{Sink, View, wrong_type};

pub(super) fn access_log(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<AccessLog> {
    let (entry, kind) = view.get("access_log")?;
    match &entry.item.value {
        Value::Text(file) => {
            let path = path(sink, file, &entry.item.span)?;
            Some(AccessLog::new(&path, LogFormat::Combined))
        }
        Value::Table(table) => {
            let view = View::open(sink, &catalog::ACCESS_LOG, table, &entry.key_span);
            let format = view
                .text(sink, "format")
                .map(|(text, span)| format(sink, text, span));
            let sample = view.integer(sink, "sample").unwrap_or(1);
            let all = &SyslogFormat::ALL;
            let syslog = view.choice(sink, "syslog_format", all, SyslogFormat::as_str);
            let (file, span) = view.text(sink, "path")?;
            Some(AccessLog {
                path: path(sink, file, span)?,
                format: format.unwrap_or_default(),
                sample,
                syslog: syslog.unwrap_or_default(),
            })
        }
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            None
        }
    }
}

fn path(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    let log = AccessLog::new(text, LogFormat::Combined);
    let is_valid = match log.target() {
        LogTarget::Stdout => true,
        LogTarget::File(path) | LogTarget::Syslog(path) | LogTarget::Journal(path) => {
            path.starts_with('/') && !path.contains('\0')
        }
    };
    if is_valid {
        return Some(text.to_owned());
    }
    sink.push(
        Diagnostic::new(Code::BadText, span, "the log path must be absolute")
            .cause("the daemon's working directory is not defined")
            .fix("write \"/var/log/weir/access.log\", \"-\" for standard output, \"syslog\" or \"journald\""),
    );
    None
}

fn format(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> LogFormat {
    match text {
        "combined" => return LogFormat::Combined,
        "json" => return LogFormat::Json,
        _ => {}
    }
    let mut rest = text;
    if !text.contains('{') {
        sink.push(
            Diagnostic::new(Code::BadText, span, "the log format contains no variables")
                .fix("write \"combined\", \"json\", or a template with {names} such as {client}"),
        );
    }
    while let Some((_, tail)) = rest.split_once('{') {
        let Some((name, after)) = tail.split_once('}') else {
            sink.push(
                Diagnostic::new(Code::BadText, span, "`{` without matching `}`").fix("add `}`"),
            );
            break;
        };
        let is_map = |map: &str| name.strip_prefix("map.") == Some(map);
        let is_known = LogFormat::allows_name(name) || sink.maps.iter().any(|(map, _)| is_map(map));
        if !is_known {
            let message = format!("unknown log variable `{}`", name.escape_debug());
            let variables = Variable::TABLE.iter().map(|(name, _)| *name);
            let candidates = LogFormat::NAMES.into_iter().chain(variables);
            let maps = sink.maps.iter().map(|(map, _)| format!("map.{map}"));
            let maps: Vec<String> = maps.collect();
            let candidates = candidates.chain(maps.iter().map(String::as_str));
            let fix = nearest(name, candidates).map_or_else(
                || {
                    let names: Vec<&str> = LogFormat::NAMES.to_vec();
                    format!("use one of {}", names.join(" "))
                },
                |near| format!("did you mean `{near}`?"),
            );
            sink.push(Diagnostic::new(Code::UnknownValue, span, message).fix(fix));
        }
        rest = after;
    }
    LogFormat::Template(text.to_owned())
}

/// Returns the maps that a log format uses.
pub(super) fn maps(sink: &Sink<'_>, log: Option<&AccessLog>) -> Vec<Arc<ValueMap>> {
    let names = log.map_or_else(Vec::new, |log| log.format.variables());
    let names = names.iter().filter_map(|name| name.strip_prefix("map."));
    let find_map = |name: &str| {
        let (_, map) = sink.maps.iter().find(|(map, _)| map == name)?;
        map.clone()
    };
    names.filter_map(find_map).collect()
}

/// Returns the name of the header field for request IDs.
pub(super) fn request_id(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<String> {
    field_name(sink, view, "request_id", "X-Request-Id")
}

/// Returns the lowercase name of the header field in which trusted proxies send the client's address.
pub(super) fn client_ip_header(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<String> {
    let name = field_name(sink, view, "client_ip_header", "X-Forwarded-For")?;
    if view.get("trusted").is_none()
        && let Some((entry, _)) = view.get("client_ip_header")
    {
        sink.push(
            Diagnostic::new(
                Code::MissingKey,
                &entry.key_span,
                "`client_ip_header` requires `trusted`",
            )
            .cause("otherwise, any client could forge its address")
            .fix("add the networks of the proxies in front of Weir: trusted = [\"10.0.0.0/8\"]"),
        );
        return None;
    }
    Some(name.to_ascii_lowercase())
}

/// Returns whether the addresses of trusted proxies in `client_ip_header` are skipped.
pub(super) fn client_ip_recursive(sink: &mut Sink<'_>, view: &View<'_, '_>) -> bool {
    let is_recursive = view.flag(sink, "client_ip_recursive").unwrap_or(true);
    if view.get("client_ip_header").is_none()
        && let Some((entry, _)) = view.get("client_ip_recursive")
    {
        sink.push(
            Diagnostic::new(
                Code::NoEffect,
                &entry.key_span,
                "`client_ip_recursive` has no effect without `client_ip_header`",
            )
            .fix("add `client_ip_header`, or remove this key"),
        );
    }
    is_recursive
}

/// Returns the name of a header field. `example` is a valid name.
fn field_name(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &'static str,
    example: &str,
) -> Option<String> {
    let (name, span) = view.text(sink, key)?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_token) {
        return Some(name.to_owned());
    }
    let message = format!("`{}` is not a header field name", name.escape_debug());
    sink.push(Diagnostic::new(Code::BadText, span, message).fix(format!("write \"{example}\"")));
    None
}
