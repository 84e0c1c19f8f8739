//! Lowers a route's `limits` and `max_connections`.

use weir_model::{HashKey, RouteLimits};

use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::proxy::limit_key;
use crate::tree::Value;
use crate::view::{Sink, View, wrong_type};

/// Maximum duration of a burst at its rate, in seconds: the time of a client's next request is stored in 32 bits.
const MAX_BURST_S: u64 = 32_000;

pub(super) fn limits(sink: &mut Sink<'_>, view: &View<'_, '_>) -> RouteLimits {
    let Some((entry, kind)) = view.get("limits") else {
        return RouteLimits::default();
    };
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return RouteLimits::default();
    };
    let view = View::open(sink, &catalog::ROUTE_LIMITS, table, &entry.key_span);
    let limits = RouteLimits {
        per_minute: rate(sink, &view).unwrap_or(0),
        burst: view.integer(sink, "burst").unwrap_or(0),
        concurrent: view.integer(sink, "concurrent").unwrap_or(0),
        key: limit_key(sink, &view),
    };
    check_burst(sink, &view, limits.per_minute, limits.burst());
    if limits.per_minute == 0 && limits.concurrent == 0 {
        let message = "`limits` sets no limit";
        let has_other_keys = limits.key != HashKey::default() || limits.burst > 0;
        if has_other_keys || table.entries.is_empty() {
            sink.push(
                Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                    .fix("add `rate` or `concurrent`"),
            );
        }
    }
    limits
}

/// Rejects a burst that is too large for its rate.
pub(in crate::lower) fn check_burst(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    per_minute: u32,
    burst: u32,
) {
    let duration_s = u64::from(burst) * 60 / u64::from(per_minute.max(1));
    if let Some((entry, _)) = view.get("burst")
        && per_minute > 0
        && duration_s > MAX_BURST_S
    {
        let message = "`burst` is too large for this rate";
        sink.push(
            Diagnostic::new(Code::OutOfRange, &entry.item.span, message)
                .cause(format!(
                    "it is more than the rate allows in {MAX_BURST_S} seconds"
                ))
                .fix("reduce `burst`"),
        );
    }
}

/// Returns the requests per minute; the value is an integer (requests per second), `N/s` or `N/m`.
pub(in crate::lower) fn rate(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<u32> {
    let (entry, kind) = view.get("rate")?;
    let per_minute = match &entry.item.value {
        Value::Integer(number) => {
            number.and_then(|number| u32::try_from(number).ok()?.checked_mul(60))
        }
        Value::Text(text) => {
            let parts = text.split_once('/');
            parts.and_then(|(number, unit)| {
                let number: u32 = number.trim().parse().ok()?;
                match unit.trim() {
                    "s" => number.checked_mul(60),
                    "m" => Some(number),
                    _ => None,
                }
            })
        }
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            return None;
        }
    };
    let valid_rate = per_minute.filter(|number| *number <= RouteLimits::MAX_RATE);
    if valid_rate.is_none() {
        sink.push(
            Diagnostic::new(
                Code::OutOfRange,
                &entry.item.span,
                "`rate` is not a valid rate, or is out of range",
            )
            .fix("write requests per second or minute, as in 100, \"100/s\" or \"30/m\"; at most 60000/s"),
        );
    }
    valid_rate
}
