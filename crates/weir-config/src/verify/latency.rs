//! Reports settings that depend on the estimated latency of layer 4 servers but have no effect.

use std::collections::HashMap;

use weir_model::{Adapt, SchedulerKind};

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredConfig, LoweredPool};
use crate::view::Sink;

pub(super) fn verify(
    sink: &mut Sink<'_>,
    lowered: &LoweredConfig,
    pools: &HashMap<&str, &LoweredPool>,
) {
    let mut pool_names: Vec<&str> = lowered
        .services
        .iter()
        .filter(|service| service.forward.is_some())
        .map(|service| service.service.pool.as_str())
        .collect();
    pool_names.sort_unstable();
    pool_names.dedup();
    for pool in pool_names.iter().filter_map(|name| pools.get(name)) {
        let is_least_time = pool.pool.l4_scheduler().kind == SchedulerKind::LeastTime;
        let adapt = pool.adapt.as_ref();
        let adapt = adapt.filter(|_| pool.pool.adapt != Adapt::None);
        if let (true, Some(location)) = (is_least_time, adapt) {
            sink.push(
                Diagnostic::new(
                    Code::NoEffect,
                    location,
                    "`adapt` has no effect with `least-time`",
                )
                .cause("this scheduler considers the latency for each flow")
                .fix("remove `adapt`"),
            );
        }
        if lowered.node.latency {
            continue;
        }
        let scheduler = pool.scheduler.as_ref().filter(|_| is_least_time);
        let warnings = [
            (scheduler, "scheduler \"least-time\" behaves like \"lc\""),
            (adapt, "`adapt` has no effect"),
        ];
        for (location, effect) in warnings {
            let Some(location) = location else { continue };
            let message = format!("{effect}: the latency of layer 4 servers is not estimated");
            sink.push(
                Diagnostic::new(Code::NoEffect, location, message)
                    .fix("remove `latency = false` from [node]"),
            );
        }
    }
}
