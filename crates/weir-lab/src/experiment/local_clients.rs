//! Measures load balancing on the clients' host, with and without continuous server changes (experiment 2).
//!
//! The clients run on the director, which balances their outgoing connections. The servers change as with service
//! discovery. The experiment compares `socket` with an HAProxy on loopback that is reloaded for each change, and with
//! direct connections to one server.

use super::disturbance::{Disturbance, Subject};
use super::trial::{Balancer, Method, Site, Trial, Workload};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::weir::Forward;

const SERVERS: u8 = 3;
const REQUESTS: u32 = 100_000;
const CONCURRENCY: u32 = 10;

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let scheduler = scheduler(options, "rr")?;
    let workloads = Workload::undisturbed_and_disturbed(options, (REQUESTS, CONCURRENCY));
    let is_disturbed = |workload: &Workload| workload.timed.is_some_and(|timed| timed.disturbed);
    let trial = |(name, balancer): (&str, Balancer)| Trial {
        method: Method::new(name, balancer, &scheduler),
        plan: balancer.plan(SERVERS, options.rate),
        site: Site::Pages,
        local: true,
        workloads: match balancer {
            Balancer::OneServer => workloads
                .iter()
                .filter(|workload| !is_disturbed(workload))
                .cloned()
                .collect(),
            _ => workloads.clone(),
        },
    };
    let with_changes = |subject| Balancer::Disturbed(subject, Disturbance::Membership);
    Ok([
        ("one-server", Balancer::OneServer),
        ("haproxy", with_changes(Subject::HaproxyMaster)),
        ("socket", with_changes(Subject::Weir(Forward::Socket))),
    ]
    .map(trial)
    .into())
}
