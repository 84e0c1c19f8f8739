//! Reports settings that do not apply to `forward = "socket"`, which balances connections of clients on this machine.

use weir_model::Forward;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::{LoweredPool, LoweredService};
use crate::view::Sink;

/// Reports settings of a socket service that do not apply, and `cgroup` in other services.
pub(super) fn verify(sink: &mut Sink<'_>, lowered: &LoweredService) {
    let Some(forward) = &lowered.forward else {
        return;
    };
    let service = &lowered.service;
    if service.forward != Forward::Socket {
        if let Some(location) = &lowered.cgroup {
            let message = "`cgroup` has no effect without forward = \"socket\"";
            sink.push(
                Diagnostic::new(Code::NoEffect, location, message)
                    .related(forward, "the forwarding method")
                    .fix("remove `cgroup`"),
            );
        }
        return;
    }
    let mut reject = |location: &std::ops::Range<usize>, setting: &str, cause: &str, fix: &str| {
        let message = format!("{setting} cannot be used with forward = \"socket\"");
        sink.push(
            Diagnostic::new(Code::Contradiction, location, message)
                .related(forward, "the forwarding method")
                .cause(cause.to_owned())
                .fix(fix.to_owned()),
        );
    };
    if let Some(location) = lowered.marks.first() {
        let cause = "a server is selected before there is a packet that a firewall rule could mark";
        reject(
            location,
            "a firewall mark",
            cause,
            "listen on addresses and ports",
        );
    }
    if let Some(location) = &lowered.strict_ipvs {
        let cause = "IPVS does not balance sockets";
        reject(location, "`strict_ipvs`", cause, "remove `strict_ipvs`");
    }
    if let Some(location) = &lowered.one_packet {
        let cause = "a socket keeps its server until that server no longer accepts flows";
        reject(location, "`one_packet`", cause, "remove `one_packet`");
    }
    if let (Some(location), Some(cgroup)) = (&lowered.cgroup, &service.cgroup)
        && !cgroup.starts_with('/')
    {
        let message = format!("`{}` is not an absolute path", cgroup.escape_debug());
        sink.push(
            Diagnostic::new(Code::BadName, location, message)
                .fix("write the path of the cgroup's directory, \"/sys/fs/cgroup/…\""),
        );
    }
}

/// Reports settings of the service's pool that do not apply.
pub(super) fn verify_pool(sink: &mut Sink<'_>, lowered: &LoweredService, pool: &LoweredPool) {
    let Some(forward) = &lowered.forward else {
        return;
    };
    let is_socket = lowered.service.forward == Forward::Socket;
    let sorry = pool.pool.sorry.iter().zip(&pool.sorry);
    for (server, location) in pool.pool.servers.iter().zip(&pool.servers).chain(sorry) {
        if server
            .forward
            .is_some_and(|forward| (forward == Forward::Socket) != is_socket)
        {
            let message = "a server cannot override the forwarding method if one of the two methods is \"socket\"";
            sink.push(
                Diagnostic::new(Code::Contradiction, location, message)
                    .related(forward, "the service's forwarding method")
                    .fix("remove `forward` from the server"),
            );
        }
    }
    let scheduler = pool.pool.l4_scheduler();
    if !is_socket || scheduler.kind.works_for_sockets() || !scheduler.kind.works_at_layer4() {
        return;
    }
    let location = pool.scheduler.as_ref().unwrap_or(&pool.name);
    let message = format!("scheduler \"{scheduler}\" cannot be used with forward = \"socket\"");
    sink.push(
        Diagnostic::new(Code::Contradiction, location, message)
            .related(&lowered.name, "used by this service")
            .cause("a server is selected for a socket of this machine, before there is a packet to a destination")
            .fix(
                "use rr, wrr, lc, wlc, sed, nq, fo, sh, mh, maglev, p2c or least-time, or a separate pool for this \
                 service",
            ),
    );
}
