//! Rejects settings that would make the directors of a group select different servers for the same connection.
//!
//! Without flow synchronization, all directors must select the same server. The `maglev` table depends only on data
//! that all directors share, so settings that make a director compute its own weights are rejected.

use std::collections::HashMap;
use std::ops::Range;

use weir_model::{Forward, SchedulerKind};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredConfig, LoweredPool, LoweredService};
use crate::view::Sink;

pub(super) fn verify(
    sink: &mut Sink<'_>,
    lowered: &LoweredConfig,
    pools: &HashMap<&str, &LoweredPool>,
) {
    if lowered.cluster.is_none() {
        return;
    }
    // A local connection never fails over to another director.
    let shared_services = lowered
        .services
        .iter()
        .filter(|it| it.service.forward != Forward::Socket);
    let mut verified_pools: Vec<&str> = Vec::new();
    for service in shared_services {
        let has_sync = lowered.sync.is_some();
        if !has_sync {
            verify_service(sink, service);
        }
        let Some(pool) = pools.get(service.service.pool.as_str()) else {
            continue;
        };
        if !verified_pools.contains(&pool.pool.name.as_str()) {
            verified_pools.push(&pool.pool.name);
            verify_weights(sink, service, pool);
            if !has_sync {
                verify_pool(sink, service, pool);
            }
        }
    }
}

fn reject_without_sync(
    sink: &mut Sink<'_>,
    span: &Range<usize>,
    setting: &str,
    reason: &str,
    fix: &str,
    service: &Range<usize>,
) {
    let message = format!("{setting} needs [sync] in a group of directors");
    let cause = format!("{reason}, and a connection may fail over to another director");
    sink.push(
        Diagnostic::new(Code::Contradiction, span, message)
            .related(service, "used by this service")
            .cause(cause)
            .fix(fix.to_owned()),
    );
}

fn verify_service(sink: &mut Sink<'_>, service: &LoweredService) {
    if service.service.persistence.is_some() {
        let span = service.persistence.as_ref().unwrap_or(&service.name);
        let fix = "remove it and use `scheduler = \"maglev\"`, or add [sync]";
        let reason = "each director stores only the servers of its own clients";
        reject_without_sync(sink, span, "`persistence`", reason, fix, &service.name);
    }
    if let Some(span) = &service.strict_ipvs {
        let fix = "remove it and use `scheduler = \"maglev\"`, or add [sync]";
        let reason = "the kernel's tables depend on the order of changes";
        reject_without_sync(sink, span, "`strict_ipvs`", reason, fix, &service.name);
    }
}

fn verify_pool(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    verify_scheduler(sink, service, pool);
    for (key, span) in [
        ("`servers_dns`", &pool.servers_dns),
        ("`servers_file`", &pool.servers_file),
    ] {
        let Some(span) = span else { continue };
        let reason = "each director reads the list on its own, so the directors can temporarily use different servers";
        let fix = "list the servers in `servers`, or add them through the API, which changes them on all directors; \
                   or add [sync]";
        reject_without_sync(sink, span, key, reason, fix, &service.name);
    }
    if let Some((span, server)) = &pool.max_connections {
        let setting = format!("`max_connections` of server {server}");
        let reason = "each director counts only its own connections";
        let fix = "remove it from the servers of this pool, or add [sync]";
        reject_without_sync(sink, span, &setting, reason, fix, &service.name);
    }
}

fn verify_scheduler(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    let scheduler = pool.pool.l4_scheduler();
    let span = pool.scheduler.as_ref().unwrap_or(&pool.name);
    if scheduler.max_load_percent.is_some() {
        let reason = "each director counts only its own connections";
        let fix = "remove it, or add [sync]";
        reject_without_sync(sink, span, "`max_load`", reason, fix, &service.name);
        return;
    }
    if scheduler.kind != SchedulerKind::Maglev {
        let setting = format!("scheduler \"{}\"", scheduler.kind.as_str());
        let reason = match scheduler.kind.hashes() {
            true => "its table depends on the order of changes",
            false => "its choice depends on each director's own counters",
        };
        let fix = "write `scheduler = \"maglev\"` in the pool, or add [sync]";
        reject_without_sync(sink, span, &setting, reason, fix, &service.name);
    }
}

/// Rejects settings that make each director compute its own weights.
fn verify_weights(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    if pool.pool.l4_scheduler().kind != SchedulerKind::Maglev {
        return;
    }
    for (key, span) in [("slow_start", &pool.slow_start), ("adapt", &pool.adapt)] {
        let Some(span) = span else { continue };
        let message = format!("`{key}` has no effect on `maglev` in a group of directors");
        sink.push(
            Diagnostic::new(Code::Contradiction, span, message)
                .related(&service.name, "used by this service")
                .cause("all directors need the same table, and each would compute its own weights")
                .fix("remove it".to_owned()),
        );
    }
}
