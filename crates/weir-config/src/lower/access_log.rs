//! `access_log` of a proxy service.

use std::ops::Range;

use weir_model::{AccessLog, LogFormat};

use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::suggest::nearest;
use crate::tree::Value;
use crate::view::{Sink, View, wrong_type};

pub(super) fn access_log(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<AccessLog> {
    let (entry, kind) = view.get("access_log")?;
    match &entry.item.value {
        Value::Text(file) => Some(AccessLog {
            path: path(sink, file, &entry.item.span)?,
            format: LogFormat::Combined,
        }),
        Value::Table(table) => {
            let view = View::open(sink, &catalog::ACCESS_LOG, table, &entry.key_span);
            let format = view
                .text(sink, "format")
                .map(|(text, span)| format(sink, text, span));
            let (file, span) = view.text(sink, "path")?;
            Some(AccessLog {
                path: path(sink, file, span)?,
                format: format.unwrap_or_default(),
            })
        }
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            None
        }
    }
}

fn path(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    if text == "-" || (text.starts_with('/') && !text.contains('\0')) {
        return Some(text.to_owned());
    }
    sink.push(
        Diagnostic::new(Code::BadText, span, "the log path must be absolute")
            .cause("the daemon's working directory is not defined")
            .fix("write \"/var/log/weir/access.log\", or \"-\" for standard output"),
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
        if !LogFormat::NAMES.contains(&name) {
            let message = format!("unknown log variable `{}`", name.escape_debug());
            let fix = nearest(name, LogFormat::NAMES).map_or_else(
                || format!("use one of {}", LogFormat::NAMES.join(" ")),
                |near| format!("did you mean `{near}`?"),
            );
            sink.push(Diagnostic::new(Code::UnknownValue, span, message).fix(fix));
        }
        rest = after;
    }
    LogFormat::Template(text.to_owned())
}
