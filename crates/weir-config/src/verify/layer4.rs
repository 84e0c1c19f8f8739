//! Reports proxy features that layer 4 services use.

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredPool, LoweredService};
use crate::view::Sink;

pub(super) fn verify(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    if let Some(scheduler) = pool.pool.scheduler
        && !scheduler.kind.works_at_layer4()
    {
        let message = format!("scheduler \"{scheduler}\" is not built yet at layer 4");
        sink.push(
            Diagnostic::new(Code::NotImplemented, &pool.name, message)
                .related(&service.name, "used by this service")
                .fix("use \"wlc\", \"sh\" or \"maglev\", or a separate pool for this service"),
        );
    }
    for (server, location) in pool.pool.servers.iter().zip(&pool.servers) {
        if server.backup {
            sink.push(
                Diagnostic::new(
                    Code::NotImplemented,
                    location,
                    "backup servers are not built yet at layer 4",
                )
                .related(&service.name, "used by this service")
                .fix("use `sorry` instead, or a separate pool for this service"),
            );
        }
    }
}
