//! Measures transfers of a large file over slow links; responses pass through the director or bypass it (experiment 1).
//!
//! The file has 4 MB, and the links are limited to 10 Mbit/s by default. If responses pass through the director, they
//! share its link. With direct methods, the rates of the servers add up.

use super::trial::{Balancer, Method, Site, Trial, Workload};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::nginx;
use crate::peer::weir::Forward;
use crate::rate::Rate;
use crate::topology::Plan;

const SERVERS: u8 = 4;
const REQUESTS: u32 = 100;
const CONCURRENCY: u32 = 12;

/// The methods, in table order.
const METHODS: [(&str, Balancer); 7] = [
    ("one-server", Balancer::OneServer),
    ("haproxy", Balancer::Haproxy),
    ("nat", Balancer::Weir(Forward::Nat)),
    ("nftables", Balancer::NftablesDirect),
    ("direct", Balancer::Weir(Forward::Direct)),
    ("tunnel", Balancer::Weir(Forward::Tunnel)),
    ("l3dsr", Balancer::Weir(Forward::L3dsr)),
];

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let scheduler = scheduler(options, "rr")?;
    let trial = |(name, balancer): (&str, Balancer)| Trial {
        method: Method::new(name, balancer, &scheduler),
        plan: Plan {
            replies_through_director: balancer == Balancer::Weir(Forward::Nat),
            ..balancer.plan(SERVERS, Some(options.rate.unwrap_or(Rate::ORIGINAL_REPORT)))
        },
        site: Site::Pages,
        local: false,
        workloads: vec![Workload::for_page(
            options,
            nginx::IMAGE,
            (REQUESTS, CONCURRENCY),
            nginx::image_bytes(),
        )],
    };
    Ok(METHODS.into_iter().map(trial).collect())
}
