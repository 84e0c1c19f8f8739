//! Lowers a route's `files`.

use std::ops::Range;

use weir_model::StaticFiles;

use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::Value;
use crate::view::{Sink, View, text};

const TEXT: Kind = Kind::Text;

pub(super) fn files(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    status: Option<u32>,
) -> Option<StaticFiles> {
    let (entry, _) = view.get("files")?;
    let mut files = match &entry.item.value {
        Value::Table(table) => {
            let view = View::open(sink, &catalog::FILES, table, &entry.key_span);
            lower_table(sink, &view)?
        }
        _ => {
            let (root, span) = view.text(sink, "files")?;
            StaticFiles::new(absolute_directory(sink, root, span)?)
        }
    };
    if let Some(status) = status {
        if !(400..=599).contains(&status) {
            let span = view
                .get("status")
                .map_or(0..0, |(entry, _)| entry.item.span.clone());
            sink.push(
                Diagnostic::new(
                    Code::OutOfRange,
                    &span,
                    "the status for missing files is not an error status",
                )
                .fix("use a status from 400 to 599, or remove `status` for 404"),
            );
            return None;
        }
        files.missing_status = u16::try_from(status).unwrap_or(404);
        if files.pool.is_some()
            && let Some((entry, _)) = view.get("status")
        {
            let message =
                "`status` has no effect: requests for which no file is found are sent to a pool";
            sink.push(
                Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                    .fix("remove `status`, or `files.pool`"),
            );
        }
    }
    Some(files)
}

/// Returns whether requests for which no file is found are sent to a pool.
pub(super) fn has_pool(view: &View<'_, '_>) -> bool {
    view.get("files")
        .is_some_and(|(entry, _)| match &entry.item.value {
            Value::Table(table) => table.entries.iter().any(|entry| entry.key == "pool"),
            _ => false,
        })
}

fn lower_table(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<StaticFiles> {
    let (root, span) = view.text(sink, "root")?;
    let mut files = StaticFiles::new(absolute_directory(sink, root, span)?);
    if let Some((strip, span)) = view.text(sink, "strip") {
        if !strip.starts_with('/') {
            let message = "`strip` must begin with `/`";
            sink.push(Diagnostic::new(Code::BadText, span, message).fix("write \"/static\""));
            return None;
        }
        files.strip = strip.trim_end_matches('/').to_owned();
    }
    if let Some(names) = texts(sink, view, "index") {
        let expected = "a file name that contains no `/` and does not begin with `.`";
        files.index = check_texts(sink, &names, expected, |name| {
            !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.')
        })?;
    }
    if let Some(paths) = texts(sink, view, "try") {
        let expected = "a path such as \"{path}.html\" or \"/index.html\", without `..`; `{path}` is the only variable";
        files.attempts = check_texts(sink, &paths, expected, is_valid_attempt)?;
    }
    files.pool = view.text(sink, "pool").map(|(pool, _)| pool.to_owned());
    Some(files)
}

fn is_valid_attempt(path: &str) -> bool {
    let has_base = path.starts_with('/') || path.starts_with(StaticFiles::PATH);
    let fixed_part = path.replace(StaticFiles::PATH, "");
    has_base
        && !fixed_part.contains(['{', '}', '\0'])
        && !fixed_part.split('/').any(|part| part == "..")
}

fn texts<'a>(
    sink: &mut Sink<'_>,
    view: &View<'a, '_>,
    key: &'static str,
) -> Option<Vec<(&'a str, &'a Range<usize>)>> {
    let items = view.list(sink, key)?;
    Some(
        items
            .iter()
            .filter_map(|item| text(sink, item, &TEXT))
            .collect(),
    )
}

fn check_texts(
    sink: &mut Sink<'_>,
    texts: &[(&str, &Range<usize>)],
    expected: &str,
    is_valid: impl Fn(&str) -> bool,
) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for (text, span) in texts {
        if !is_valid(text) {
            let message = format!("invalid entry `{}`", text.escape_debug());
            sink.push(
                Diagnostic::new(Code::BadText, span, message).fix(format!("write {expected}")),
            );
            return None;
        }
        all.push((*text).to_owned());
    }
    Some(all)
}

fn absolute_directory(sink: &mut Sink<'_>, path: &str, span: &Range<usize>) -> Option<String> {
    if path.starts_with('/') && !path.contains('\0') {
        return Some(path.to_owned());
    }
    sink.push(
        Diagnostic::new(
            Code::BadText,
            span,
            "the directory must be an absolute path",
        )
        .cause("the daemon's working directory is not defined")
        .fix("write an absolute path, as in \"/srv/www\""),
    );
    None
}
