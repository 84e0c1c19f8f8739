//! Servers that take no connections while others of their pool do, found out by clients' packets alone.
//!
//! What is seen of a server is how many SYNs went to it and how many flows became established: that holds whether its answers
//! pass the director or not, and whether it drops SYNs or resets them. A server is ejected when SYNs went unanswered for a while
//! and none was answered, when another server of the pool was answered meanwhile (else it may be the clients, or a flood), and
//! when no more than the pool's share would be ejected. It comes back on trial; if that fails too, it stays away twice as long.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// SYNs without an answer that it takes.
const NEEDED: u64 = 3;

/// And how long none may have been answered: longer than any handshake.
const AT_LEAST: Duration = Duration::from_millis(900);

/// How long an answer of another server speaks for the clients.
const ALIVE: Duration = Duration::from_secs(3);

/// The first time away, and the longest.
const AWAY: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// What was counted of a server since its rows began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// SYNs that went to it, repeated ones too.
    pub syns: u64,
    /// Flows that became established.
    pub answered: u64,
}

/// A server is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// When that began, on the driver's clock.
    pub since: Duration,
    /// When it is tried again.
    pub until: Duration,
    /// What was seen.
    pub reason: String,
}

/// What an observation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Address as in the file.
    pub server: String,
    /// `None` = it is back.
    pub ejection: Option<Ejection>,
}

#[derive(Clone, Debug, Default)]
struct Watch {
    last: Sample,
    /// SYNs since the last answer, and when the first of them was noticed.
    unanswered: u64,
    waiting: Option<Duration>,
    answered: Option<Duration>,
    ejected: Option<Duration>,
    /// Ejections in a row.
    times: u32,
}

/// Every pool's servers as their clients find them.
#[derive(Clone, Debug, Default)]
pub struct Outliers {
    pools: BTreeMap<String, BTreeMap<String, Watch>>,
}

impl Outliers {
    /// Takes in what was counted of those servers of a pool that are meant to take connections, of which at most `share`
    /// percent may be ejected. One that was meant to and is no more, because its check failed, is ejected no longer: what
    /// its check says next counts at once.
    pub fn observe(
        &mut self,
        pool: &str,
        share: u32,
        samples: &[(&str, Sample)],
        now: Duration,
    ) -> Vec<Turn> {
        let watches = self.pools.entry(pool.to_owned()).or_default();
        let mut turns = Vec::new();
        let meant: HashSet<&str> = samples.iter().map(|(name, _)| *name).collect();
        watches.retain(|server, watch| {
            let stays = meant.contains(server.as_str());
            if !stays && watch.ejected.is_some() {
                turns.push(Turn {
                    server: server.clone(),
                    ejection: None,
                });
            }
            stays
        });
        for (server, sample) in samples {
            let Some(watch) = watches.get_mut(*server) else {
                let watch = Watch {
                    last: *sample,
                    ..Watch::default()
                };
                watches.insert((*server).to_owned(), watch);
                continue;
            };
            watch.count(*sample, now);
            if watch.comes_back(now) {
                turns.push(Turn {
                    server: (*server).to_owned(),
                    ejection: None,
                });
            }
        }
        let most = samples.len() as u64 * u64::from(share) / 100;
        let away = watches.values().filter(|watch| watch.ejected.is_some());
        let mut away = away.count() as u64;
        let mut alive = watches.values().filter(|watch| watch.is_alive(now)).count();
        for (server, _) in samples {
            if away >= most {
                break;
            }
            let Some(watch) = watches.get_mut(*server) else {
                continue;
            };
            let lives = usize::from(watch.is_alive(now));
            if alive == lives {
                continue;
            }
            if let Some(ejection) = watch.eject(now) {
                away += 1;
                alive -= lives;
                turns.push(Turn {
                    server: (*server).to_owned(),
                    ejection: Some(ejection),
                });
            }
        }
        turns
    }

    /// Forgets all pools but these.
    pub fn keep(&mut self, stays: impl Fn(&str) -> bool) {
        self.pools.retain(|pool, _| stays(pool));
    }
}

impl Watch {
    fn count(&mut self, sample: Sample, now: Duration) {
        // Rows that were given back and out again begin at zero.
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let syns = grown(sample.syns, self.last.syns);
        let answered = grown(sample.answered, self.last.answered);
        self.last = sample;
        if answered > 0 {
            (self.unanswered, self.waiting, self.times) = (0, None, 0);
            self.answered = Some(now);
        } else if syns > 0 {
            self.unanswered += syns;
            self.waiting = self.waiting.or(Some(now));
        }
    }

    fn is_alive(&self, now: Duration) -> bool {
        let recent = |at: Duration| now.saturating_sub(at) <= ALIVE;
        self.ejected.is_none() && self.answered.is_some_and(recent)
    }

    /// On trial from now on, if its time is up.
    fn comes_back(&mut self, now: Duration) -> bool {
        let is_over = self.ejected.is_some_and(|until| now >= until);
        if is_over {
            (self.ejected, self.unanswered, self.waiting) = (None, 0, None);
        }
        is_over
    }

    fn eject(&mut self, now: Duration) -> Option<Ejection> {
        let waited = now.saturating_sub(self.waiting?);
        if self.ejected.is_some() || self.unanswered < NEEDED || waited < AT_LEAST {
            return None;
        }
        let away = AWAY.saturating_mul(1 << self.times.min(8)).min(LONGEST);
        self.times += 1;
        self.ejected = Some(now + away);
        Some(Ejection {
            since: now,
            until: now + away,
            reason: format!("{} SYNs without an answer", self.unanswered),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of servers that each get `syns` a second, of which those in `dead` answer none.
    struct Pool {
        outliers: Outliers,
        samples: Vec<(String, Sample)>,
        now: Duration,
        share: u32,
    }

    impl Pool {
        fn of(servers: usize, share: u32) -> Self {
            let name = |n| (format!("10.0.0.{n}"), Sample::default());
            Self {
                outliers: Outliers::default(),
                samples: (0..servers).map(name).collect(),
                now: Duration::from_secs(1),
                share,
            }
        }

        /// A second; answers who was ejected (true) or came back.
        fn second(&mut self, syns: u64, dead: &[usize]) -> Vec<(usize, bool)> {
            self.now += Duration::from_secs(1);
            for (at, (_, sample)) in self.samples.iter_mut().enumerate() {
                sample.syns += syns;
                sample.answered += if dead.contains(&at) { 0 } else { syns };
            }
            let samples: Vec<(&str, Sample)> = self
                .samples
                .iter()
                .map(|(name, sample)| (name.as_str(), *sample))
                .collect();
            let turns = self.outliers.observe("web", self.share, &samples, self.now);
            let at = |turn: &Turn| {
                let mut names = self.samples.iter();
                names.position(|(name, _)| *name == turn.server).unwrap()
            };
            turns
                .iter()
                .map(|turn| (at(turn), turn.ejection.is_some()))
                .collect()
        }

        /// When the next turn of a server comes, in seconds.
        fn until(&mut self, turn: (usize, bool), dead: &[usize]) -> u32 {
            for seconds in 1..1000 {
                if self.second(2, dead).contains(&turn) {
                    return seconds;
                }
            }
            panic!("{turn:?} never came");
        }
    }

    #[test]
    fn a_server_that_answers_nothing_goes_and_comes_back_on_trial() {
        let mut pool = Pool::of(3, 50);
        assert_eq!(pool.second(2, &[]), []);
        assert!(pool.until((1, true), &[1]) <= 4);
        assert_eq!(pool.until((1, false), &[1]), 10);
        assert!(pool.until((1, true), &[1]) <= 4);
        assert_eq!(pool.until((1, false), &[]), 20, "twice as long");
        for _ in 0..5 {
            assert_eq!(pool.second(2, &[]), [], "the trial was passed");
        }
        assert!(pool.until((1, true), &[1]) <= 4);
        assert_eq!(pool.until((1, false), &[1]), 10, "all is forgiven");
    }

    #[test]
    fn one_that_its_check_took_out_is_not_judged() {
        let mut outliers = Outliers::default();
        let sample = |syns, answered| Sample { syns, answered };
        let mut turns = |second, samples: &[(&str, Sample)]| {
            outliers.observe("web", 50, samples, Duration::from_secs(second))
        };
        turns(1, &[("a", sample(0, 0)), ("b", sample(0, 0))]);
        turns(2, &[("a", sample(9, 9)), ("b", sample(9, 0))]);
        let gone = turns(4, &[("a", sample(18, 18)), ("b", sample(18, 0))]);
        assert_eq!(gone.len(), 1, "{gone:?}");
        let back = turns(5, &[("a", sample(27, 27))]);
        assert!(back.len() == 1 && back[0].ejection.is_none(), "{back:?}");
        // SYNs on their way when the check failed are no reason when it succeeds again.
        let again = turns(7, &[("a", sample(36, 36)), ("b", sample(90, 0))]);
        assert_eq!(again, []);
    }

    #[test]
    fn never_more_than_the_share() {
        let mut pool = Pool::of(4, 50);
        pool.second(2, &[]);
        let mut gone = 0;
        for _ in 0..9 {
            let turns = pool.second(2, &[0, 1, 2]);
            gone += turns.iter().filter(|(_, ejected)| *ejected).count();
        }
        assert_eq!(gone, 2);
        for share in [0, 24] {
            let mut pool = Pool::of(4, share);
            pool.second(2, &[]);
            for _ in 0..20 {
                assert_eq!(pool.second(2, &[0]), [], "{share} %");
            }
        }
    }

    #[test]
    fn clients_that_never_finish_eject_nobody() {
        let mut pool = Pool::of(4, 50);
        pool.second(2, &[]);
        for _ in 0..3 {
            pool.second(0, &[]);
        }
        for _ in 0..20 {
            assert_eq!(pool.second(1000, &[0, 1, 2, 3]), []);
        }
    }

    #[test]
    fn a_server_that_few_ask_is_given_time() {
        let mut pool = Pool::of(2, 50);
        pool.second(1, &[]);
        assert_eq!(pool.second(1, &[0]), []);
        assert_eq!(pool.second(1, &[0]), []);
        assert_eq!(pool.second(1, &[0]), [(0, true)], "the third");
    }
}
