//! Measures how clients are affected when a balancer is constantly reloaded, upgraded or killed (experiment 2).
//!
//! Service discovery causes such reloads.
//!
//! Each method runs four times: undisturbed and disturbed, each with a new connection per request (`ab`) and with
//! persistent connections (`wrk`).

use super::disturbance::{Disturbance, Subject};
use super::trial::{Balancer, Method, Site, Trial, Workload};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::weir::Forward;

const SERVERS: u8 = 2;
/// The values of the report's unprotected run.
const REQUESTS: u32 = 200_000;
const CONCURRENCY: u32 = 10;

const METHODS: [(&str, Subject, Disturbance); 12] = [
    ("haproxy", Subject::Haproxy, Disturbance::Reload),
    (
        "haproxy-no-syns",
        Subject::Haproxy,
        Disturbance::ReloadWithoutSyns,
    ),
    (
        "haproxy-protect",
        Subject::Haproxy,
        Disturbance::ProtectedReload,
    ),
    (
        "haproxy-master",
        Subject::HaproxyMaster,
        Disturbance::Reload,
    ),
    (
        "haproxy-master-protect",
        Subject::HaproxyMaster,
        Disturbance::ProtectedReload,
    ),
    ("nginx", Subject::Nginx, Disturbance::Reload),
    ("proxy", Subject::Weir(Forward::Proxy), Disturbance::Reload),
    (
        "direct",
        Subject::Weir(Forward::Direct),
        Disturbance::Reload,
    ),
    (
        "proxy-upgrade",
        Subject::Weir(Forward::Proxy),
        Disturbance::Upgrade,
    ),
    (
        "direct-upgrade",
        Subject::Weir(Forward::Direct),
        Disturbance::Upgrade,
    ),
    (
        "proxy-kill",
        Subject::Weir(Forward::Proxy),
        Disturbance::Kill,
    ),
    (
        "direct-kill",
        Subject::Weir(Forward::Direct),
        Disturbance::Kill,
    ),
];

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let scheduler = scheduler(options, "rr")?;
    let workloads = Workload::undisturbed_and_disturbed(options, (REQUESTS, CONCURRENCY));
    let trial = |(name, subject, disturbance): (&str, Subject, Disturbance)| {
        let balancer = Balancer::Disturbed(subject, disturbance);
        Trial {
            method: Method::new(name, balancer, &scheduler),
            plan: balancer.plan(SERVERS, options.rate),
            site: Site::Pages,
            local: false,
            workloads: workloads.clone(),
        }
    };
    Ok(METHODS.into_iter().map(trial).collect())
}
