//! Clients on the director: every host balances its own outgoing connections, and service discovery changes the servers
//! continuously (experiment 2). `socket` is compared with HAProxy on loopback, which is reloaded for
//! each change, and with a direct connection to one server.

use super::disturbance::{Disturbance, Subject};
use super::trial::{Balancer, Method, Site, Trial, Work};
use super::{RunOptions, scheduler};
use crate::error::Result;
use crate::peer::weir::Forward;

const SERVERS: u8 = 3;
const REQUESTS: u32 = 100_000;
const CONCURRENCY: u32 = 10;

pub(super) fn trials(options: &RunOptions) -> Result<Vec<Trial>> {
    let scheduler = scheduler(options, "rr")?;
    let works = Work::undisturbed_and_disturbed(options, (REQUESTS, CONCURRENCY));
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
    let changed = |subject| Balancer::Disturbed(subject, Disturbance::Membership);
    Ok([
        ("one-server", Balancer::OneServer),
        ("haproxy", changed(Subject::HaproxyMaster)),
        ("socket", changed(Subject::Weir(Forward::Socket))),
    ]
    .map(trial)
    .into())
}
