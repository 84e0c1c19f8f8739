//! Lowers a pool's `scheduler`, which can have the names that HAProxy and nginx use.

use std::ops::Range;

use weir_model::{HashKey, Scheduler, SchedulerFlags, SchedulerKind};

use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Entry, Item, Value};
use crate::view::{Sink, View, keyword, wrong_type};

/// Another program's name for a scheduler.
pub(crate) struct Alias {
    pub(crate) name: &'static str,
    kind: SchedulerKind,
    fallback: bool,
    /// Whether the scheduler hashes networks instead of addresses.
    networks: bool,
    /// Whether the first of several equally suitable servers is selected instead of the last.
    file_order: bool,
}

impl Alias {
    const fn new(name: &'static str, kind: SchedulerKind) -> Self {
        Self {
            name,
            kind,
            fallback: false,
            networks: false,
            file_order: false,
        }
    }

    const fn scheduler(&self) -> Scheduler {
        let flags = SchedulerFlags {
            port: false,
            fallback: self.fallback,
            networks: self.networks,
            file_order: self.file_order,
        };
        Scheduler {
            flags,
            ..Scheduler::new(self.kind)
        }
    }
}

/// Every accepted alias.
pub(crate) static ALIASES: [Alias; 9] = [
    Alias::new("roundrobin", SchedulerKind::Wrr),
    Alias::new("static-rr", SchedulerKind::Wrr),
    Alias::new("round_robin", SchedulerKind::Wrr),
    Alias::new("leastconn", SchedulerKind::Wlc),
    Alias::new("least_conn", SchedulerKind::Wlc),
    Alias {
        fallback: true,
        ..Alias::new("source", SchedulerKind::Sh)
    },
    Alias {
        fallback: true,
        networks: true,
        ..Alias::new("ip_hash", SchedulerKind::Sh)
    },
    Alias::new("random", SchedulerKind::P2c),
    Alias {
        file_order: true,
        ..Alias::new("first", SchedulerKind::Fo)
    },
];

pub(super) fn scheduler(sink: &mut Sink<'_>, entry: &Entry<'_>, kind: &Kind) -> Option<Scheduler> {
    match &entry.item.value {
        Value::Text(_) => scheduler_by_name(sink, &entry.item, kind),
        Value::Table(table) => {
            let view = View::open(sink, &catalog::SCHEDULER, table, &entry.key_span);
            scheduler_with_flags(sink, &view)
        }
        _ => {
            sink.push(wrong_type(&entry.item, kind));
            None
        }
    }
}

/// Lowers the hash key of the `hash` scheduler.
pub(super) fn key(sink: &mut Sink<'_>, entry: &Entry<'_>) -> HashKey {
    let Value::Table(table) = &entry.item.value else {
        return HashKey::default();
    };
    let entry_named = |name: &str| table.entries.iter().find(|entry| entry.key == name);
    let Some(key) = entry_named("key") else {
        return HashKey::default();
    };
    let Value::Text(text) = &key.item.value else {
        sink.push(wrong_type(&key.item, &Kind::Text));
        return HashKey::default();
    };
    let is_hash = entry_named("name")
        .is_some_and(|name| matches!(&name.item.value, Value::Text(name) if name == SchedulerKind::Hash.as_str()));
    if !is_hash {
        sink.push(
            Diagnostic::new(
                Code::Contradiction,
                &key.key_span,
                "`key` is only valid with `hash`",
            )
            .fix("remove it, or write name = \"hash\""),
        );
    }
    hash_key(sink, text, &key.item.span)
}

/// Parses the `key` of the `hash` scheduler or of `limits`.
pub(super) fn hash_key(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> HashKey {
    HashKey::from_text(text).unwrap_or_else(|| {
        let message = format!("unknown hash key `{}`", text.escape_debug());
        sink.push(Diagnostic::new(Code::UnknownValue, span, message).fix(
            "use \"source\", \"uri\", \"path\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"",
        ));
        HashKey::default()
    })
}

fn scheduler_by_name(sink: &mut Sink<'_>, item: &Item<'_>, kind: &Kind) -> Option<Scheduler> {
    let keyword = keyword(sink, item, kind)?;
    if let Ok(kind) = keyword.parse::<SchedulerKind>() {
        return Some(Scheduler::new(kind));
    }
    let scheduler = ALIASES
        .iter()
        .find(|alias| alias.name == keyword)?
        .scheduler();
    let message = format!("\"{keyword}\" is an alias of \"{scheduler}\"");
    sink.push(Diagnostic::new(Code::Alias, &item.span, message));
    Some(scheduler)
}

fn scheduler_with_flags(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Scheduler> {
    let (name, kind) = view.get("name")?;
    let scheduler = scheduler_by_name(sink, &name.item, kind);
    let scheduler = with_max_load(sink, view, scheduler);
    let mut flags = scheduler
        .map(|scheduler| scheduler.flags)
        .unwrap_or_default();
    let item_kind = match view.get("flags") {
        Some((_, Kind::List(kind))) => *kind,
        _ => return scheduler,
    };
    for item in view.list(sink, "flags")? {
        let Some(flag) = keyword(sink, item, item_kind) else {
            continue;
        };
        let Some((scheduler_name, option)) = flag.split_once('-') else {
            continue;
        };
        if let Some(scheduler) =
            scheduler.filter(|scheduler| scheduler.kind.as_str() != scheduler_name)
        {
            sink.push(
                Diagnostic::new(
                    Code::Contradiction,
                    &item.span,
                    format!("`{flag}` is not valid for scheduler `{}`", scheduler.kind),
                )
                .related(&name.item.span, "the scheduler")
                .fix(format!("remove it, or write name = \"{scheduler_name}\"")),
            );
        }
        match option {
            "port" => flags.port = true,
            "fallback" => flags.fallback = true,
            _ => unreachable!("flags of the catalog are NAME-port and NAME-fallback"),
        }
    }
    scheduler.map(|scheduler| Scheduler { flags, ..scheduler })
}

/// Applies `max_load`, which only hash schedulers support; the other schedulers always consider the load.
fn with_max_load(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    scheduler: Option<Scheduler>,
) -> Option<Scheduler> {
    let Some(percent) = view.factor(sink, "max_load") else {
        return scheduler;
    };
    let scheduler = scheduler?;
    if !scheduler.kind.hashes() {
        if let Some((entry, _)) = view.get("max_load") {
            let hashing: Vec<String> = SchedulerKind::hashing_schedulers()
                .map(|kind| format!("\"{kind}\""))
                .collect();
            let names = hashing[..hashing.len() - 1].join(", ");
            let last = &hashing[hashing.len() - 1];
            sink.push(
                Diagnostic::new(
                    Code::Contradiction,
                    &entry.item.span,
                    format!("scheduler `{}` does not support `max_load`", scheduler.kind),
                )
                .fix(format!("remove it, or use one of {names} and {last}")),
            );
        }
        return Some(scheduler);
    }
    Some(Scheduler {
        max_load_percent: Some(percent),
        ..scheduler
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_differ_from_scheduler_names() {
        for alias in &ALIASES {
            assert!(
                alias.name.parse::<SchedulerKind>().is_err(),
                "{}",
                alias.name
            );
        }
    }
}
