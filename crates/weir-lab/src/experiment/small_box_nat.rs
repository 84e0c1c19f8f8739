//! Measures NAT through a small director, with short requests from many concurrent clients (experiment 5).
//!
//! The peers are a single server, and the kernel's NAT with nftables and conntrack.

use super::trial::{Balancer, Method, Site, Trial, Workload};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::nginx;
use crate::peer::weir::Forward;
use crate::topology::Plan;

const SERVERS: u8 = 3;
const REQUESTS: u32 = 1000;
/// The concurrencies of the report's two runs.
const CONCURRENCIES: [u32; 2] = [1000, 100];

const METHODS: [(&str, Balancer); 3] = [
    ("one-server", Balancer::OneServer),
    ("nftables", Balancer::NftablesDnat),
    ("nat", Balancer::Weir(Forward::Nat)),
];

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let scheduler = scheduler(options, "rr")?;
    let concurrencies = options
        .concurrency
        .map_or(CONCURRENCIES.to_vec(), |concurrency| vec![concurrency]);
    let workload = |concurrency: &u32| Workload {
        name: Some(format!("c{concurrency}")),
        ..Workload::for_page(options, nginx::HELLO, (REQUESTS, *concurrency), 3)
    };
    let workloads: Vec<Workload> = concurrencies.iter().map(workload).collect();
    let trial = |(name, balancer): (&str, Balancer)| Trial {
        method: Method::new(name, balancer, &scheduler),
        plan: Plan {
            // With NAT, responses must pass through the director; a single server has no director.
            replies_through_director: balancer != Balancer::OneServer,
            ..balancer.plan(SERVERS, options.rate)
        },
        site: Site::Pages,
        local: false,
        workloads: workloads.clone(),
    };
    Ok(METHODS.into_iter().map(trial).collect())
}
