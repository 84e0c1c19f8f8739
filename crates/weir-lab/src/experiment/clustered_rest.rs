//! Compares two servers managed by ldirectord with a single server, with and without keep-alive (experiment 4).
//!
//! ldirectord is the packaged version with the report's configuration file; its `ipvsadm` is Weir. On one machine, two
//! servers have no more CPU time than one. The lab therefore limits the links, and sends responses of several
//! kilobytes, instead of using the report's machines.

use super::trial::{Balancer, Method, Site, Trial, Workload};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::nginx;
use crate::rate::Rate;

const SERVERS: u8 = 2;
const REQUESTS: u32 = 10_000;
const CONCURRENCY: u32 = 1000;

const METHODS: [(&str, Balancer); 2] = [
    ("one-server", Balancer::OneServer),
    ("ldirectord", Balancer::Ldirectord),
];

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let scheduler = scheduler(options, "lc")?;
    let workload = |(name, keep_alive): (&str, bool)| Workload {
        name: Some(name.into()),
        keep_alive,
        ..Workload::for_page(
            options,
            nginx::REST,
            (REQUESTS, CONCURRENCY),
            nginx::REST_BYTES as u64,
        )
    };
    let workloads: Vec<Workload> = [("close", false), ("keep-alive", true)]
        .map(workload)
        .into();
    let trial = |(name, balancer): (&str, Balancer)| Trial {
        method: Method::new(name, balancer, &scheduler),
        plan: balancer.plan(SERVERS, Some(options.rate.unwrap_or(Rate::PAGES))),
        site: Site::Pages,
        local: false,
        workloads: workloads.clone(),
    };
    Ok(METHODS.into_iter().map(trial).collect())
}
