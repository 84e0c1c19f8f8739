//! Experiment 2: effects on clients of a balancer that is constantly reloaded, as with service discovery, upgraded or
//! killed.
//!
//! Each method runs four times: undisturbed and disturbed, each with a new connection per request (`ab`) and with kept
//! connections (`wrk`).

use super::disturbance::{By, Subject};
use super::trial::{Balancer, Method, Site, Trial, Work};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::weir::Forward;

const SERVERS: u8 = 2;
/// Values of the report's unprotected run.
const REQUESTS: u32 = 200_000;
const CONCURRENCY: u32 = 10;

const METHODS: [(&str, Subject, By); 12] = [
    ("haproxy", Subject::Haproxy, By::Reload),
    ("haproxy-no-syns", Subject::Haproxy, By::ReloadWithoutSyns),
    ("haproxy-protect", Subject::Haproxy, By::ProtectedReload),
    ("haproxy-master", Subject::HaproxyMaster, By::Reload),
    (
        "haproxy-master-protect",
        Subject::HaproxyMaster,
        By::ProtectedReload,
    ),
    ("nginx", Subject::Nginx, By::Reload),
    ("proxy", Subject::Weir(Forward::Proxy), By::Reload),
    ("direct", Subject::Weir(Forward::Direct), By::Reload),
    ("proxy-upgrade", Subject::Weir(Forward::Proxy), By::Upgrade),
    (
        "direct-upgrade",
        Subject::Weir(Forward::Direct),
        By::Upgrade,
    ),
    ("proxy-kill", Subject::Weir(Forward::Proxy), By::Kill),
    ("direct-kill", Subject::Weir(Forward::Direct), By::Kill),
];

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let scheduler = scheduler(options, "rr")?;
    let works = Work::quiet_and_disturbed(options, (REQUESTS, CONCURRENCY));
    let trial = |(name, subject, by): (&str, Subject, By)| {
        let balancer = Balancer::Disturbed(subject, by);
        Trial {
            method: Method::new(name, balancer, &scheduler),
            plan: balancer.plan(SERVERS, options.rate),
            site: Site::Pages,
            local: false,
            works: works.clone(),
        }
    };
    Ok(METHODS.into_iter().map(trial).collect())
}
