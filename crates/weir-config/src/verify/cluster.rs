//! In a group without flow synchronization, every director must select the same server for a connection. The table of
//! `maglev` depends only on what all directors agree on, so weights that one director computes are rejected.

use std::collections::HashMap;
use std::ops::Range;

use weir_model::{Forward, SchedulerKind};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{Lowered, LoweredPool, LoweredService};
use crate::view::Sink;

pub(super) fn verify(sink: &mut Sink<'_>, lowered: &Lowered, pools: &HashMap<&str, &LoweredPool>) {
    if lowered.cluster.is_none() {
        return;
    }
    // A local connection never moves to another director.
    let shared = lowered
        .services
        .iter()
        .filter(|it| it.service.forward != Forward::Socket);
    let mut reported: Vec<&str> = Vec::new();
    for service in shared {
        let has_sync = lowered.sync.is_some();
        if !has_sync {
            of_service(sink, service);
        }
        let Some(pool) = pools.get(service.service.pool.as_str()) else {
            continue;
        };
        if !reported.contains(&pool.pool.name.as_str()) {
            reported.push(&pool.pool.name);
            of_weights(sink, service, pool);
            if !has_sync {
                of_pool(sink, service, pool);
            }
        }
    }
}

fn refuse(
    sink: &mut Sink<'_>,
    span: &Range<usize>,
    what: &str,
    why: &str,
    fix: &str,
    by: &Range<usize>,
) {
    let message = format!("{what} needs [sync] in a group of directors");
    let cause = format!("{why}, and a connection may move to another director");
    sink.push(
        Diagnostic::new(Code::Contradiction, span, message)
            .also(by, "used by this service")
            .cause(cause)
            .fix(fix.to_owned()),
    );
}

fn of_service(sink: &mut Sink<'_>, service: &LoweredService) {
    let persistence = service.service.persistence.is_some();
    if persistence {
        let span = service.persistence.as_ref().unwrap_or(&service.name);
        let fix = "remove it and use `scheduler = \"maglev\"`, or add [sync]";
        let why = "each director knows only its own clients";
        refuse(sink, span, "`persistence`", why, fix, &service.name);
    }
    if let Some(span) = &service.strict_ipvs {
        let fix = "remove it and use `scheduler = \"maglev\"`, or add [sync]";
        let why = "the kernel's tables depend on the order of changes";
        refuse(sink, span, "`strict_ipvs`", why, fix, &service.name);
    }
}

fn of_pool(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    let scheduler = pool.pool.l4_scheduler();
    let span = pool.scheduler.as_ref().unwrap_or(&pool.name);
    if scheduler.max_load_percent.is_some() {
        let why = "each director counts only its own connections";
        let fix = "remove it, or add [sync]";
        refuse(sink, span, "`max_load`", why, fix, &service.name);
        return;
    }
    if scheduler.kind != SchedulerKind::Maglev {
        let what = format!("scheduler \"{}\"", scheduler.kind.as_str());
        let why = match scheduler.kind.hashes() {
            true => "its table depends on the order of changes",
            false => "its choice depends on what this director has counted",
        };
        let fix = "write `scheduler = \"maglev\"` in the pool, or add [sync]";
        refuse(sink, span, &what, why, fix, &service.name);
    }
}

/// Weights that this director alone knows.
fn of_weights(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    if pool.pool.l4_scheduler().kind != SchedulerKind::Maglev {
        return;
    }
    for (key, span) in [("slow_start", &pool.slow_start), ("adapt", &pool.adapt)] {
        let Some(span) = span else { continue };
        let message = format!("`{key}` has no effect on `maglev` in a group of directors");
        sink.push(
            Diagnostic::new(Code::Contradiction, span, message)
                .also(&service.name, "used by this service")
                .cause(
                    "all directors need the same table, and each would compute weights of its own",
                )
                .fix("remove it".to_owned()),
        );
    }
}
