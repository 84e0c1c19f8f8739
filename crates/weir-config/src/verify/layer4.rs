//! What only a proxy can do, asked of a layer 4 service.

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredPool, LoweredService};
use crate::view::Sink;

pub(super) fn verify(sink: &mut Sink<'_>, service: &LoweredService, pool: &LoweredPool) {
    if let Some(scheduler) = pool.pool.scheduler
        && !scheduler.kind.is_built()
    {
        let message = format!("scheduler \"{scheduler}\" is not built yet at layer 4");
        sink.push(
            Diagnostic::new(Code::NotBuilt, &pool.name, message)
                .also(&service.name, "this one uses the pool")
                .fix(
                    "choose \"wlc\", \"sh\" or \"maglev\", or give this service a pool of its own",
                ),
        );
    }
    for (server, place) in pool.pool.servers.iter().zip(&pool.servers) {
        if server.backup {
            sink.push(
                Diagnostic::new(
                    Code::NotBuilt,
                    place,
                    "backup servers are not built yet at layer 4",
                )
                .also(&service.name, "this one uses the pool")
                .fix("write it as `sorry`, or give this service a pool of its own"),
            );
        }
    }
}
