//! `[vrrp.NAME]`: validated by type and range; not part of the model.

use std::ops::Range;

use crate::address;
use crate::catalog::{VRRP, VRRP_TRACK};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::{Kind, Section};
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, text, wrong_type};

/// Reports errors in the table, or a warning that it has no effect.
pub(super) fn vrrp(sink: &mut Sink<'_>, entry: &Entry<'_>, table: &Table<'_>) {
    let before = sink.errors();
    validate(sink, &VRRP, table, entry);
    if sink.errors() == before {
        let message = format!("virtual router `{}` has no effect", entry.key);
        sink.push(
            Diagnostic::new(Code::Kept, &entry.key_span, message)
                .cause("VRRP is not implemented yet")
                .fix("use keepalived to move the addresses"),
        );
    }
}

fn validate(sink: &mut Sink<'_>, section: &'static Section, table: &Table<'_>, entry: &Entry<'_>) {
    let view = View::open(sink, section, table, &entry.key_span);
    for key in section.built() {
        match key.kind {
            Kind::Integer { .. } => {
                view.integer(sink, key.name);
            }
            Kind::Duration { .. } => {
                view.duration(sink, key.name);
            }
            Kind::Flag => {
                view.flag(sink, key.name);
            }
            Kind::List(of) => {
                for item in view.list(sink, key.name).unwrap_or_default() {
                    value(sink, item, of, entry);
                }
            }
            ref kind => {
                if let Some((entry, _)) = view.get(key.name) {
                    value(sink, &entry.item, kind, entry);
                }
            }
        }
    }
}

/// Validates a value, or an element of a list.
fn value(sink: &mut Sink<'_>, item: &Item<'_>, kind: &'static Kind, entry: &Entry<'_>) {
    if let (Kind::Table(_), Value::Table(table)) = (kind, &item.value) {
        return tracked(sink, item, table, entry);
    }
    if matches!(kind, Kind::Table(_)) {
        return sink.push(wrong_type(item, kind));
    }
    let Some((text, span)) = text(sink, item, kind) else {
        return;
    };
    match kind {
        Kind::Interface => {
            super::node::interface(sink, text, span);
        }
        Kind::Network => {
            if let Err(refusal) = address::network(text) {
                super::refuse(sink, span, refusal);
            }
        }
        Kind::Address => match address::server(text) {
            Ok((_, None)) => {}
            Ok((address, Some(_))) => {
                let message = format!("a port is not allowed in `{text}`");
                let fix = format!("write \"{address}\"");
                sink.push(Diagnostic::new(Code::BadAddress, span, message).fix(fix));
            }
            Err(refusal) => super::refuse(sink, span, refusal),
        },
        _ => line(sink, text, span),
    }
}

fn line(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) {
    if text.is_empty() || text.chars().any(char::is_control) {
        let message = "this string is empty or contains a control character";
        sink.push(Diagnostic::new(Code::BadText, span, message).fix("write it on one line"));
    }
}

fn tracked(sink: &mut Sink<'_>, item: &Item<'_>, table: &Table<'_>, entry: &Entry<'_>) {
    validate(sink, &VRRP_TRACK, table, entry);
    let named = ["interface", "script", "process", "file"];
    let count = table
        .entries
        .iter()
        .filter(|entry| named.contains(&entry.key.as_ref()))
        .count();
    if count != 1 {
        let message = "each entry of `track` must have exactly one object";
        let fix = "use one of `interface`, `script`, `process` and `file`";
        sink.push(Diagnostic::new(Code::Contradiction, &item.span, message).fix(fix));
    }
}
