//! Lowers `[map.NAME]`.

use std::ops::Range;
use std::sync::Arc;

use weir_model::{MapEntries, MapError, MapKind, Template, ValueMap};

use super::list_file;
use super::variable::{Scope, template};
use crate::address;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Entry, Table};
use crate::view::{Sink, View, text};

/// The variables that a key may use: those of the request, but not maps.
const SCOPE: Scope<'static> = Scope {
    server: false,
    route: None,
    regex: None,
};

/// Position of an entry.
enum Origin<'a> {
    Listed(&'a Range<usize>),
    /// Line number in the file.
    File(usize),
}

pub(super) fn map(
    sink: &mut Sink<'_>,
    entry: &Entry<'_>,
    table: &Table<'_>,
) -> Option<Arc<ValueMap>> {
    let view = View::open(sink, &catalog::MAP, table, &entry.key_span);
    let kind = view.choice(sink, "kind", &MapKind::ALL, MapKind::as_str);
    let kind = match view.get("kind") {
        None => MapKind::Exact,
        Some(_) => kind?,
    };
    let ignore_case = view.flag(sink, "ignore_case").unwrap_or(false);
    let key = key(sink, &view)?;
    let (mut entries, mut origins) = (Vec::new(), Vec::new());
    for item in view.list(sink, "entries").unwrap_or_default() {
        if let Some((line, span)) = text(sink, item, &Kind::DescribedText("`KEY VALUE`")) {
            entries.push(split_entry(line.trim()));
            origins.push(Origin::Listed(span));
        }
    }
    let file = view.text(sink, "file");
    if let Some((path, span)) = file {
        let content = list_file::read(sink, path, span, "entries")?;
        for (number, line) in list_file::lines(&content) {
            entries.push(split_entry(line));
            origins.push(Origin::File(number));
        }
    } else if view.get("entries").is_none() {
        sink.push(
            Diagnostic::new(Code::MissingKey, &entry.key_span, "this map has no entries")
                .fix("add `file` or `entries`"),
        );
        return None;
    }
    let network = |text: &str| address::parse_network(text).ok();
    match MapEntries::new(kind, ignore_case, entries, network) {
        Ok(entries) => Some(Arc::new(ValueMap {
            name: entry.key.as_ref().to_owned(),
            key,
            default: view.text(sink, "default").map(|(text, _)| text.to_owned()),
            entries: Arc::new(entries),
        })),
        Err(MapError::TooLarge) => {
            sink.push(
                Diagnostic::new(
                    Code::BadText,
                    &entry.key_span,
                    "the expressions are too large in total",
                )
                .fix("use fewer or simpler expressions, or another `kind`"),
            );
            None
        }
        Err(MapError::Key(index, reason)) => {
            let kind = kind.as_str();
            let path = file.map_or("", |(path, _)| path);
            let diagnostic = match origins.get(index) {
                Some(Origin::File(number)) => {
                    let span = file.map_or(&entry.key_span, |(_, span)| span);
                    let message = format!("{path}:{number}: invalid key: {reason}");
                    Diagnostic::new(Code::BadListFile, span, message)
                }
                Some(Origin::Listed(span)) => {
                    Diagnostic::new(Code::BadText, span, format!("invalid key: {reason}"))
                }
                None => Diagnostic::new(Code::BadText, &entry.key_span, reason),
            };
            sink.push(diagnostic.fix(format!("use keys that are valid for `kind = \"{kind}\"`")));
            None
        }
    }
}

fn key(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Template> {
    match view.text(sink, "key") {
        None => Some(Template::parse(ValueMap::KEY).unwrap_or_default()),
        Some((text, span)) => template(sink, text, span, SCOPE),
    }
}

fn split_entry(line: &str) -> (String, String) {
    let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (key.to_owned(), value.trim().to_owned())
}
