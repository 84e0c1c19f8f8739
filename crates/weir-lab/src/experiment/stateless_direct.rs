//! Compares methods in which servers respond directly to the client with nginx as a FastCGI balancer (experiment 3).
//!
//! The pages are short, slow, or of a given size. The report's author could not use least connections with direct
//! routing.

use super::trial::{Balancer, Method, Site, Trial, Workload};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::paced::Pace;
use crate::peer::weir::Forward;

const SERVERS: u8 = 2;
const REQUESTS: u32 = 10_000;
/// Number of requests for the slow page, as in the report.
const RAND_REQUESTS: u32 = 5_000;
const CONCURRENCY: u32 = 100;
/// Body lengths in the report, in bytes.
const SIZES: [u64; 8] = [512, 1440, 1460, 1480, 1500, 2048, 65_535, 655_350];
const SCHEDULERS: [&str; 2] = ["sh", "wlc"];

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let schedulers = match &options.scheduler {
        None => SCHEDULERS.map(str::to_owned).to_vec(),
        Some(_) => vec![scheduler(options, "sh")?],
    };
    let fixed = |name, balancer| Method::new(name, balancer, "");
    let mut methods = vec![
        fixed("one-server", Balancer::OneServer),
        // As in the report, nginx hashes the client's port instead of its address, because there is only one client.
        fixed("nginx-hash", Balancer::NginxFastCgi("hash $remote_port;")),
        fixed("nginx-least-conn", Balancer::NginxFastCgi("least_conn;")),
        fixed("nftables", Balancer::NftablesDirect),
    ];
    for forward in [Forward::Direct, Forward::L3dsr] {
        methods.extend(schedulers.iter().map(|scheduler| {
            let name = format!("{}-{scheduler}", forward.as_str());
            Method::new(&name, Balancer::Weir(forward), scheduler)
        }));
    }
    let workloads = workloads(options);
    let trial = |method: Method| Trial {
        plan: method.balancer.plan(SERVERS, options.rate),
        method,
        site: Site::Php,
        local: false,
        workloads: workloads.clone(),
    };
    Ok(methods.into_iter().map(trial).collect())
}

fn workloads(options: &RunOptions) -> Vec<Workload> {
    let workload = |name: String, path: String, requests: u32, response_bytes: u64| Workload {
        name: Some(name),
        path,
        requests: options.requests.unwrap_or(requests),
        concurrency: options.concurrency.unwrap_or(CONCURRENCY),
        any_length: true,
        keep_alive: false,
        response_bytes,
        timed: None,
        pace: Pace::default(),
    };
    let mut workloads = vec![
        workload("small".into(), "/small.php".into(), REQUESTS, 64),
        workload("rand".into(), "/rand.php".into(), RAND_REQUESTS, 5),
    ];
    workloads.extend(SIZES.map(|size| {
        workload(
            format!("size-{size}"),
            format!("/size.php?n={size}"),
            REQUESTS,
            size,
        )
    }));
    workloads
}
