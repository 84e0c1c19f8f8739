//! Computes the differences between layer 4 services.

use super::edit::{Edits, or_none};
use super::{Change, Edit, diff_services};
use crate::Service;

pub(super) fn diff(old: &[Service], new: &[Service], changes: &mut Vec<Change>) {
    diff_services(old, new, |service| &service.name, summary, edits, changes);
}

fn edits(old: &Service, new: &Service) -> Vec<Edit> {
    Edits::default()
        .compare(
            "listen",
            old.listener_names(),
            new.listener_names(),
            |listen| listen.join(", "),
        )
        .compare("forward", old.forward, new.forward, |forward| {
            forward.to_string()
        })
        .compare("tunnel", old.tunnel, new.tunnel, |tunnel| {
            tunnel.to_string()
        })
        .compare("snat", &old.snat, &new.snat, |snat| or_none(snat.as_ref()))
        .compare("dscp", old.dscp, new.dscp, u8::to_string)
        .compare("pool", &old.pool, &new.pool, |pool| (*pool).clone())
        .compare(
            "strict_ipvs",
            old.strict_ipvs,
            new.strict_ipvs,
            bool::to_string,
        )
        .compare(
            "persistence",
            old.persistence,
            new.persistence,
            |persistence| or_none(persistence.as_ref()),
        )
        .compare(
            "one_packet",
            old.one_packet,
            new.one_packet,
            bool::to_string,
        )
        .compare("cgroup", &old.cgroup, &new.cgroup, |cgroup| {
            or_none(cgroup.as_ref())
        })
        .compare(
            "persistence.client",
            old.persistent_client,
            new.persistent_client,
            |client| client.as_str().to_owned(),
        )
        .finish()
}

fn summary(service: &Service) -> String {
    format!(
        "{} {} to pool {}",
        service.listener_names().join(", "),
        service.forward,
        service.pool
    )
}
