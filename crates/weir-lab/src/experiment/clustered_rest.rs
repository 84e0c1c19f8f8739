//! Experiment 4: a service on two servers that ldirectord manages, compared with only one server; with and without
//! keep-alive.
//!
//! ldirectord is the packaged version with the report's configuration file; its `ipvsadm` is Weir. Responses of some
//! kilobytes over limited links replace the report's machines, because on one machine two servers have no more CPU time
//! than one.

use super::trial::{Balancer, Method, Site, Trial, Work};
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
    let work = |(name, keep_alive): (&str, bool)| Work {
        name: Some(name.into()),
        keep_alive,
        ..Work::for_page(
            options,
            nginx::REST,
            (REQUESTS, CONCURRENCY),
            nginx::REST_BYTES as u64,
        )
    };
    let works: Vec<Work> = [("close", false), ("keep-alive", true)].map(work).into();
    let trial = |(name, balancer): (&str, Balancer)| Trial {
        method: Method::new(name, balancer, &scheduler),
        plan: balancer.plan(SERVERS, Some(options.rate.unwrap_or(Rate::PAGES))),
        site: Site::Pages,
        local: false,
        works: works.clone(),
    };
    Ok(METHODS.into_iter().map(trial).collect())
}
