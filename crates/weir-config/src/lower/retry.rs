//! Lowers a proxy service's `retry_on`.

use weir_model::{RetryCondition, RetryOn};

use super::check::status;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Item, Value};
use crate::view::{Sink, View, keyword};

pub(super) fn retry_on(sink: &mut Sink<'_>, view: &View<'_, '_>) -> RetryOn {
    let Some((_, Kind::List(kind))) = view.get("retry_on") else {
        return RetryOn::default();
    };
    let Some(items) = view.list(sink, "retry_on") else {
        return RetryOn::default();
    };
    let mut retry = RetryOn {
        conditions: Vec::new(),
        statuses: Vec::new(),
    };
    for item in items {
        if is_status(item) {
            retry.statuses.extend(statuses(sink, item, kind));
        } else if let Some(keyword) = keyword(sink, item, kind) {
            let mut all = RetryCondition::ALL.into_iter();
            retry
                .conditions
                .extend(all.find(|it| it.as_str() == keyword));
        }
    }
    retry.conditions.sort_unstable();
    retry.conditions.dedup();
    retry
}

/// Returns whether an item is a status or a list of statuses; other conditions do not start with a digit.
fn is_status(item: &Item<'_>) -> bool {
    match &item.value {
        Value::Text(text) => text.starts_with(|first: char| first.is_ascii_digit()),
        other => matches!(other, Value::Integer(_)),
    }
}

fn statuses(sink: &mut Sink<'_>, item: &Item<'_>, kind: &Kind) -> Vec<(u16, u16)> {
    let Some(ranges) = status(sink, item, kind) else {
        return Vec::new();
    };
    let (min, max) = RetryOn::STATUSES;
    let is_failure = |(first, last): &(u16, u16)| *first >= min && *last <= max;
    if !ranges.iter().all(is_failure) {
        sink.push(
            Diagnostic::new(
                Code::OutOfRange,
                &item.span,
                "`retry_on` contains a status that is not an error",
            )
            .cause("responses below 400 are not failures")
            .fix(format!("list statuses from {min} to {max}")),
        );
    }
    ranges
}
