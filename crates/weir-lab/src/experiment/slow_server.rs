//! Compares `least-time` with other schedulers and balancers while one of four servers is slower.
//!
//! With direct routing, the director must detect the slow server although it never receives the replies. The third
//! field report does not measure this case.

use std::time::Duration;

use super::RunOptions;
use super::trial::{Balancer, Method, Site, TimedRun, Trial, Workload};
use crate::error::Result;
use crate::peer::paced::Pace;
use crate::peer::weir::Forward;
use crate::topology::Plan;

const SERVERS: u8 = 4;
/// Number of requests per run. A run takes several seconds.
const REQUESTS: u32 = 10_000;
const CONCURRENCY: u32 = 16;

const PHASES: [(&str, Pace); 6] = [
    ("healthy", Pace::Normal),
    ("1ms", Pace::Slower(Duration::from_millis(1))),
    ("5ms", Pace::Slower(Duration::from_millis(5))),
    ("20ms", Pace::Slower(Duration::from_millis(20))),
    ("starved", Pace::Starved),
    ("recovered", Pace::Normal),
];

const METHODS: [(&str, Balancer, &str); 9] = [
    ("direct-mh", Balancer::Weir(Forward::Direct), "mh"),
    ("direct-lc", Balancer::Weir(Forward::Direct), "lc"),
    (
        "direct-least-time",
        Balancer::Weir(Forward::Direct),
        "least-time",
    ),
    ("nat-least-time", Balancer::Weir(Forward::Nat), "least-time"),
    (
        "tunnel-least-time",
        Balancer::Weir(Forward::Tunnel),
        "least-time",
    ),
    (
        "l3dsr-least-time",
        Balancer::Weir(Forward::L3dsr),
        "least-time",
    ),
    ("nginx-least-conn", Balancer::NginxProxy("least_conn;"), ""),
    ("haproxy-leastconn", Balancer::Haproxy, "lc"),
    (
        "proxy-least-time",
        Balancer::Weir(Forward::Proxy),
        "least-time",
    ),
];

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let workload = |(name, pace): (&str, Pace)| Workload {
        name: Some(name.into()),
        path: "/".into(),
        requests: options.requests.unwrap_or(REQUESTS),
        concurrency: options.concurrency.unwrap_or(CONCURRENCY),
        any_length: false,
        keep_alive: false,
        response_bytes: 3,
        timed: Some(TimedRun {
            disturbed: false,
            wrk: None,
        }),
        pace,
    };
    let workloads: Vec<Workload> = PHASES.map(workload).into();
    let trial = |(name, balancer, scheduler): (&str, Balancer, &str)| Trial {
        method: Method::new(name, balancer, scheduler),
        plan: Plan {
            replies_through_director: balancer == Balancer::Weir(Forward::Nat),
            ..balancer.plan(SERVERS, options.rate)
        },
        site: Site::Paced,
        local: false,
        workloads: workloads.clone(),
    };
    Ok(METHODS.into_iter().map(trial).collect())
}
