//! What clients' requests say of servers: once a second the proxy's counts are looked at, and servers of which nothing
//! good comes, while others of their pool do well, are ejected.

use std::collections::{BTreeSet, HashMap};

use weir_health::{Ejection, Outliers, Sample};
use weir_proxy::{Conduct, ServiceStatus};

use super::Traffic;
use crate::engine::Ejected;
use crate::engine::passive::{Watched, forgive, judge};

/// What the proxy's servers did so far, and who of them is away.
#[derive(Debug, Default)]
pub(super) struct Conducts {
    outliers: Outliers,
    /// By pool and server, when it last did something well, or was last on trial.
    before: HashMap<(String, String), Conduct>,
}

impl Traffic {
    /// Takes in the last second's counts and puts into force what follows.
    pub(super) fn watch_answers(&mut self) {
        let now = conducts(&self.proxy.status());
        let Conducts { outliers, before } = &mut self.conducts;
        before.retain(|name, _| now.contains_key(name));
        for (name, conduct) in &now {
            let known = before.entry(name.clone()).or_insert(*conduct);
            let away = self.standings.ejection(&name.0, &name.1, None).is_some();
            if known.well != conduct.well || away {
                *known = *conduct;
            }
        }
        let pools = self.desired.pools.iter().map(|pool| Watched {
            pool,
            service: None,
            samples: pool
                .servers
                .iter()
                .filter_map(|server| {
                    let name = (pool.name.clone(), server.name.clone());
                    Some((server.name.clone(), sample(now.get(&name)?)))
                })
                .collect(),
        });
        let explain = |pool: &str, server: &str, ejection: &mut Ejection| {
            let name = (pool.to_owned(), server.to_owned());
            if let (Some(now), Some(before)) = (now.get(&name), before.get(&name)) {
                ejection.reason = reason(now, before);
            }
        };
        let touched = judge(outliers, &mut self.standings, pools.collect(), &explain);
        touched.iter().for_each(|pool| self.reweigh(pool));
    }

    /// Has servers in use again that are ejected and are not in `then`.
    pub(super) fn forgive_answers(&mut self, then: &BTreeSet<Ejected>) {
        let touched = forgive(&mut self.conducts.outliers, &mut self.standings, then);
        touched.iter().for_each(|pool| self.reweigh(pool));
    }
}

/// Of each server over all services.
fn conducts(services: &[ServiceStatus]) -> HashMap<(String, String), Conduct> {
    let mut all: HashMap<(String, String), Conduct> = HashMap::new();
    for server in services.iter().flat_map(|service| &service.servers) {
        let sum = all
            .entry((server.pool.clone(), server.name.clone()))
            .or_default();
        let more = &server.conduct;
        sum.well = sum.well.wrapping_add(more.well);
        sum.unreached = sum.unreached.wrapping_add(more.unreached);
        sum.broken = sum.broken.wrapping_add(more.broken);
        sum.status = sum.status.wrapping_add(more.status);
    }
    all
}

/// As the judge of handshakes sees it: whoever was asked, and how often it did well.
const fn sample(conduct: &Conduct) -> Sample {
    let ill = conduct.unreached + conduct.broken + conduct.status;
    Sample {
        syns: conduct.well + ill,
        answered: conduct.well,
    }
}

/// What failed since it last did well.
fn reason(now: &Conduct, before: &Conduct) -> String {
    let kinds = [
        (now.unreached - before.unreached, "could not be made"),
        (now.broken - before.broken, "broke off or stayed unanswered"),
        (now.status - before.status, "were answered 5xx"),
    ];
    let words = |kinds: &[(u64, &str)]| -> Vec<String> {
        let some = kinds.iter().filter(|(count, _)| *count > 0);
        some.map(|(count, word)| format!("{count} {word}"))
            .collect()
    };
    format!(
        "of its last requests {}, none did well",
        words(&kinds).join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_what_failed() {
        let before = Conduct {
            well: 7,
            unreached: 1,
            broken: 2,
            status: 3,
        };
        let now = Conduct {
            unreached: 5,
            status: 4,
            ..before
        };
        assert_eq!(
            reason(&now, &before),
            "of its last requests 4 could not be made, 1 were answered 5xx, none did well"
        );
        assert_eq!(
            sample(&now),
            Sample {
                syns: 18,
                answered: 7
            }
        );
    }
}
