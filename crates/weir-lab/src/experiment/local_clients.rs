//! Clients on the director: every host balances its own outgoing connections, and service discovery changes the servers
//! continuously (experiment 2). `socket` is compared with HAProxy on loopback, which is reloaded for
//! each change, and with a direct connection to one server.

use std::time::Duration;

use super::disturbance::{By, Subject};
use super::trial::{Balancer, Method, Site, Timed, Trial, Work};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::nginx;
use crate::peer::paced::Pace;
use crate::peer::weir::Forward;

const SERVERS: u8 = 3;
const REQUESTS: u32 = 100_000;
const CONCURRENCY: u32 = 10;
/// wrk runs for a time, not a number of requests: one second per this number of requests of `ab`.
const REQUESTS_PER_SECOND_OF_WRK: u32 = 20_000;

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let scheduler = scheduler(options, "rr")?;
    let requests = options.requests.unwrap_or(REQUESTS);
    let wrk = Duration::from_secs((requests / REQUESTS_PER_SECOND_OF_WRK).max(2).into());
    let work = |(name, disturbed, wrk): (&str, bool, Option<Duration>)| Work {
        name: Some(name.into()),
        path: format!("/{}", nginx::HELLO),
        requests,
        concurrency: options.concurrency.unwrap_or(CONCURRENCY),
        any_length: false,
        keep_alive: wrk.is_some(),
        answer_bytes: 3,
        timed: Some(Timed { disturbed, wrk }),
        pace: Pace::default(),
    };
    let works: Vec<Work> = [
        ("quiet", false, None),
        ("disturbed", true, None),
        ("kept-quiet", false, Some(wrk)),
        ("kept-disturbed", true, Some(wrk)),
    ]
    .map(work)
    .into();
    let is_disturbed = |work: &Work| work.timed.is_some_and(|timed| timed.disturbed);
    let trial = |(name, balancer): (&str, Balancer)| Trial {
        method: Method::new(name, balancer, &scheduler),
        plan: balancer.plan(SERVERS, options.rate),
        site: Site::Pages,
        local: true,
        works: match balancer {
            Balancer::OneServer => works
                .iter()
                .filter(|work| !is_disturbed(work))
                .cloned()
                .collect(),
            _ => works.clone(),
        },
    };
    let changed = |subject| Balancer::Disturbed(subject, By::Membership);
    Ok([
        ("one-server", Balancer::OneServer),
        ("haproxy", changed(Subject::HaproxyMaster)),
        ("socket", changed(Subject::Weir(Forward::Socket))),
    ]
    .map(trial)
    .into())
}
