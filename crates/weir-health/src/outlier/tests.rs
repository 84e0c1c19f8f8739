//! Tests ejections and trials in virtual time.

use super::*;

/// Returns a limit for a group in which other counters have ejected no server.
fn limit(servers: usize) -> EjectionLimit<'static> {
    static NONE: BTreeSet<&str> = BTreeSet::new();
    EjectionLimit {
        servers,
        ejected_by_others: &NONE,
    }
}

/// A simulated pool whose servers receive SYNs every second.
struct Pool {
    outliers: Outliers,
    samples: Vec<(String, Sample)>,
    now: Duration,
    max_ejected: usize,
}

impl Pool {
    fn new(servers: usize, max_ejected: usize) -> Self {
        let name = |n| (format!("10.0.0.{n}"), Sample::default());
        Self {
            outliers: Outliers::default(),
            samples: (0..servers).map(name).collect(),
            now: Duration::from_secs(1),
            max_ejected,
        }
    }

    /// Advances by one second, in which each server receives `syns` SYNs and those in `dead` answer none. Returns the
    /// servers that were ejected (true) or returned on trial (false).
    fn advance_one_second(&mut self, syns: u64, dead: &[usize]) -> Vec<(usize, bool)> {
        self.now += Duration::from_secs(1);
        for (index, (_, sample)) in self.samples.iter_mut().enumerate() {
            sample.syns += syns;
            sample.answered += if dead.contains(&index) { 0 } else { syns };
        }
        let samples: Vec<(&str, Sample)> = self
            .samples
            .iter()
            .map(|(name, sample)| (name.as_str(), *sample))
            .collect();
        let changes = self
            .outliers
            .observe("web", limit(self.max_ejected), &samples, self.now);
        let index_of = |change: &EjectionChange| {
            let mut names = self.samples.iter();
            names.position(|(name, _)| *name == change.server).unwrap()
        };
        changes
            .iter()
            .map(|change| {
                assert_ne!(change.transition, Transition::Withdrawn);
                let is_ejected = matches!(change.transition, Transition::Ejected(_));
                (index_of(change), is_ejected)
            })
            .collect()
    }

    /// Advances until the given change to a server occurs. Returns the number of seconds.
    fn seconds_until(&mut self, change: (usize, bool), dead: &[usize]) -> u32 {
        for seconds in 1..1000 {
            if self.advance_one_second(2, dead).contains(&change) {
                return seconds;
            }
        }
        panic!("{change:?} did not happen within 1000 seconds");
    }
}

#[test]
fn dead_server_is_ejected_and_returns_on_trial() {
    let mut pool = Pool::new(3, 1);
    assert_eq!(pool.advance_one_second(2, &[]), []);
    assert!(pool.seconds_until((1, true), &[1]) <= 4);
    assert_eq!(pool.seconds_until((1, false), &[1]), 10);
    assert!(pool.seconds_until((1, true), &[1]) <= 4);
    assert_eq!(pool.seconds_until((1, false), &[]), 20, "twice as long");
    for _ in 0..5 {
        assert_eq!(pool.advance_one_second(2, &[]), [], "the trial passed");
    }
    assert!(pool.seconds_until((1, true), &[1]) <= 4);
    assert_eq!(
        pool.seconds_until((1, false), &[1]),
        10,
        "the backoff must be reset"
    );
}

#[test]
fn failed_check_withdraws_ejection() {
    let mut outliers = Outliers::default();
    let sample = |syns, answered| Sample { syns, answered };
    let mut changes = |second, samples: &[(&str, Sample)]| {
        outliers.observe("web", limit(1), samples, Duration::from_secs(second))
    };
    changes(1, &[("a", sample(0, 0)), ("b", sample(0, 0))]);
    changes(2, &[("a", sample(9, 9)), ("b", sample(9, 0))]);
    let ejections = changes(4, &[("a", sample(18, 18)), ("b", sample(18, 0))]);
    assert_eq!(ejections.len(), 1, "{ejections:?}");
    let withdrawals = changes(5, &[("a", sample(27, 27))]);
    let withdrawal = EjectionChange {
        server: "b".to_owned(),
        transition: Transition::Withdrawn,
    };
    assert_eq!(withdrawals, [withdrawal], "the server is not on trial");
    // SYNs sent while the check failed do not count after the check passes again.
    for (second, syns) in [(7, 36), (8, 45), (10, 54)] {
        let later_changes = changes(second, &[("a", sample(syns, syns)), ("b", sample(90, 0))]);
        assert_eq!(later_changes, [], "second {second}");
    }
}

#[test]
fn ejections_do_not_exceed_the_limit() {
    let mut pool = Pool::new(4, 2);
    pool.advance_one_second(2, &[]);
    let mut ejected_count = 0;
    for _ in 0..9 {
        let changes = pool.advance_one_second(2, &[0, 1, 2]);
        ejected_count += changes.iter().filter(|(_, ejected)| *ejected).count();
    }
    assert_eq!(ejected_count, 2);
    let mut pool = Pool::new(4, 0);
    pool.advance_one_second(2, &[]);
    for _ in 0..20 {
        assert_eq!(pool.advance_one_second(2, &[0]), []);
    }
}

#[test]
fn limit_includes_servers_ejected_by_other_counters() {
    // Returns the servers that are ejected if these servers are already ejected by other counters.
    let ejected = |others: &[&'static str]| -> Vec<String> {
        let mut outliers = Outliers::default();
        let others: BTreeSet<&str> = others.iter().copied().collect();
        let limit = EjectionLimit {
            servers: 2,
            ejected_by_others: &others,
        };
        let mut ejected = Vec::new();
        for second in 0..6 {
            let sample = |answered| Sample {
                syns: 5 * second,
                answered,
            };
            let samples = [
                ("a", sample(0)),
                ("b", sample(0)),
                ("c", sample(0)),
                ("d", sample(5 * second)),
            ];
            let changes = outliers.observe("web", limit, &samples, Duration::from_secs(second));
            ejected.extend(changes.into_iter().map(|change| change.server));
        }
        ejected
    };
    assert_eq!(ejected(&[]), ["a", "b"]);
    assert_eq!(ejected(&["c"]), ["a", "c"], "a server counts once");
    assert_eq!(ejected(&["d"]), ["a"]);
    assert_eq!(ejected(&["c", "d"]), ["c"]);
}

#[test]
fn syn_flood_ejects_no_server() {
    let mut pool = Pool::new(4, 2);
    pool.advance_one_second(2, &[]);
    for _ in 0..3 {
        pool.advance_one_second(0, &[]);
    }
    for _ in 0..20 {
        assert_eq!(pool.advance_one_second(1000, &[0, 1, 2, 3]), []);
    }
}

#[test]
fn rarely_used_server_is_ejected_after_three_syns() {
    let mut pool = Pool::new(2, 1);
    pool.advance_one_second(1, &[]);
    assert_eq!(pool.advance_one_second(1, &[0]), []);
    assert_eq!(pool.advance_one_second(1, &[0]), []);
    assert_eq!(
        pool.advance_one_second(1, &[0]),
        [(0, true)],
        "the third SYN"
    );
}

/// Returns the ejection of server `a` at `now_ms`, after it received the first of `syns` SYNs at `unanswered_ms`.
/// Server `b` last answered at `other_ms`.
fn ejection_at(
    other_ms: Option<u64>,
    unanswered_ms: u64,
    syns: u64,
    now_ms: u64,
) -> Option<Ejection> {
    let mut outliers = Outliers::default();
    let mut times = vec![0, unanswered_ms, now_ms];
    times.extend(other_ms);
    times.sort_unstable();
    let mut last_changes = Vec::new();
    for at_ms in times {
        let received = match at_ms {
            _ if at_ms == now_ms => syns,
            _ if at_ms >= unanswered_ms => 1,
            _ => 0,
        };
        let answered = u64::from(other_ms.is_some_and(|other_ms| at_ms >= other_ms));
        let sample = |syns, answered| Sample { syns, answered };
        let samples = [("a", sample(received, 0)), ("b", sample(9, answered))];
        assert_eq!(last_changes, [], "before {now_ms} ms");
        let now = Duration::from_millis(at_ms);
        last_changes = outliers.observe("web", limit(1), &samples, now);
    }
    last_changes.into_iter().find_map(|change| match change {
        EjectionChange {
            server,
            transition: Transition::Ejected(ejection),
        } if server == "a" => Some(ejection),
        _ => None,
    })
}

#[test]
fn ejection_requires_an_answer_from_another_server() {
    let is_ejected =
        |other_ms, unanswered_ms, now_ms| ejection_at(other_ms, unanswered_ms, 3, now_ms).is_some();
    assert!(is_ejected(Some(2000), 3000, 5000), "3 s ago");
    assert!(!is_ejected(Some(2000), 3000, 5001), "earlier");
    let reason = "long ago, but at the time of the first unanswered SYN";
    assert!(is_ejected(Some(3000), 3000, 10_000), "{reason}");
    assert!(!is_ejected(Some(2999), 3000, 10_000), "before it");
    assert!(!is_ejected(None, 3000, 5000), "never");
}

#[test]
fn ejection_requires_three_syns_and_1500_ms_without_an_answer() {
    let is_ejected = |syns, now_ms| ejection_at(Some(3000), 3000, syns, now_ms).is_some();
    assert!(is_ejected(3, 4500));
    assert!(!is_ejected(3, 4499), "less than 1.5 s of silence");
    assert!(!is_ejected(2, 4500));
    let ejection = Ejection {
        since: Duration::from_secs(5),
        until: Duration::from_secs(15),
        reason: "7 unanswered SYNs".to_owned(),
    };
    assert_eq!(ejection_at(Some(3000), 3000, 7, 5000), Some(ejection));
}

#[test]
fn ejections_last_at_most_five_minutes() {
    let mut pool = Pool::new(2, 1);
    pool.advance_one_second(2, &[]);
    for expected in [10, 20, 40, 80, 160].into_iter().chain([300; 40]) {
        pool.seconds_until((0, true), &[0]);
        assert_eq!(pool.seconds_until((0, false), &[0]), expected);
    }
}

/// Simulated clients that repeatedly connect to a pool of three servers, of which the second dies. They retransmit SYNs
/// as the Linux kernel does, and give up after three seconds.
struct Clients {
    outliers: Outliers,
    samples: [Sample; 3],
    /// For each client: the time of its next action, its server, and the number of SYNs that it has sent for this
    /// connection.
    clients: Vec<(u64, usize, usize)>,
    /// Times of the SYN retransmissions, relative to the first SYN of a connection.
    retransmissions_ms: &'static [u64],
    connections_started: usize,
}

impl Clients {
    const DEAD: usize = 1;
    const GIVE_UP_MS: u64 = 3000;
    const PAUSE_MS: u64 = 100;

    fn new(clients: usize, retransmissions_ms: &'static [u64]) -> Self {
        Self {
            outliers: Outliers::default(),
            samples: [Sample::default(); 3],
            clients: (0..clients).map(|n| (37 * n as u64, 0, 0)).collect(),
            retransmissions_ms,
            connections_started: 0,
        }
    }

    /// Runs the actions of all clients that are due at `now_ms`.
    fn run_due_actions(&mut self, now_ms: u64, is_dead: bool) {
        for client in &mut self.clients {
            let (due, server, syns_sent) = *client;
            if due != now_ms {
                continue;
            }
            let (server, syns_sent) = if syns_sent == 0 || syns_sent > self.retransmissions_ms.len()
            {
                self.connections_started += 1;
                (self.connections_started % 3, 0)
            } else {
                (server, syns_sent)
            };
            if syns_sent < self.retransmissions_ms.len() + 1 {
                self.samples[server].syns += 1;
            }
            let is_dead_server = is_dead && server == Self::DEAD;
            *client = if !is_dead_server {
                self.samples[server].answered += 1;
                (now_ms + Self::PAUSE_MS, server, 0)
            } else if let Some(retransmission_ms) = self.retransmissions_ms.get(syns_sent) {
                let elapsed = if syns_sent == 0 {
                    0
                } else {
                    self.retransmissions_ms[syns_sent - 1]
                };
                (now_ms + retransmission_ms - elapsed, server, syns_sent + 1)
            } else {
                let elapsed = self.retransmissions_ms.last().copied().unwrap_or(0);
                (now_ms + Self::GIVE_UP_MS - elapsed, server, syns_sent + 1)
            };
        }
    }

    /// Returns the time between the server's death and its ejection, in milliseconds, if the counters are observed
    /// every `period_ms`.
    fn ejection_delay_ms(mut self, died_ms: u64, period_ms: u64) -> Option<u64> {
        (0..died_ms + 20_000).find_map(|now_ms| {
            self.run_due_actions(now_ms, now_ms >= died_ms);
            if now_ms % period_ms != 0 {
                return None;
            }
            let names = ["a", "b", "c"];
            let samples: Vec<(&str, Sample)> = names.into_iter().zip(self.samples).collect();
            let observed_at = Duration::from_millis(now_ms);
            let changes = self
                .outliers
                .observe("web", limit(1), &samples, observed_at);
            let change = changes.first()?;
            assert!(
                now_ms >= died_ms && change.server == "b",
                "{now_ms}: {change:?}"
            );
            Some(now_ms - died_ms)
        })
    }
}

/// Times of the SYN retransmissions before a client gives up. Linux before 6.5 doubles the time between SYNs; later
/// versions first retransmit four SYNs one second apart (`tcp_syn_linear_timeouts`).
const RETRANSMISSIONS_MS: [&[u64]; 2] = [&[1000], &[1000, 2000]];

#[test]
fn dead_server_is_ejected_within_five_seconds() {
    let mut max_delay_ms = 0;
    for retransmissions_ms in RETRANSMISSIONS_MS {
        for clients in [1, 2, 6, 40] {
            for period_ms in [250, 1000] {
                for died_ms in (5000..6050).step_by(50) {
                    let simulated_clients = Clients::new(clients, retransmissions_ms);
                    let delay_ms = simulated_clients.ejection_delay_ms(died_ms, period_ms);
                    let delay_ms = delay_ms.unwrap_or(u64::MAX);
                    assert!(
                        delay_ms <= 5000,
                        "{clients} clients, observed every {period_ms} ms, dead at {died_ms} ms: {delay_ms} ms"
                    );
                    max_delay_ms = max_delay_ms.max(delay_ms);
                }
            }
        }
    }
    assert!(
        max_delay_ms > 1500,
        "ejections must wait for retransmitted SYNs"
    );
}

#[test]
fn reset_and_retain_discard_only_selected_history() {
    let sample = |syns, answered| Sample { syns, answered };
    // Returns the number of ejections in the fourth observation if `discard` is called before it.
    let ejections = |discard: &dyn Fn(&mut Outliers)| {
        let mut outliers = Outliers::default();
        let mut count = 0;
        for second in 0..5 {
            let samples = [
                ("a", sample(5 * second, 5 * second)),
                ("b", sample(5 * second, 0)),
            ];
            let now = Duration::from_secs(second);
            if second == 3 {
                discard(&mut outliers);
            }
            if second < 4 {
                count = outliers.observe("web", limit(1), &samples, now).len();
            }
        }
        count
    };
    assert_eq!(ejections(&|_| ()), 1);
    assert_eq!(ejections(&|it| it.reset("web", "b")), 0);
    assert_eq!(ejections(&|it| it.reset("web", "c")), 1);
    assert_eq!(ejections(&|it| it.reset("other", "b")), 1);
    assert_eq!(ejections(&|it| it.retain(|_| false)), 0);
    assert_eq!(ejections(&|it| it.retain(|group| group == "web")), 1);
}

/// The sums decrease when a service of the pool is removed.
#[test]
fn decreased_counters_are_not_counted_as_unanswered_syns() {
    let mut outliers = Outliers::default();
    let mut observe = |second: u64, samples: [(u64, u64); 2]| {
        let [a, b] = samples.map(|(syns, answered)| Sample { syns, answered });
        let now = Duration::from_secs(second);
        outliers.observe("web", limit(1), &[("a", a), ("b", b)], now)
    };
    observe(1, [(0, 0), (0, 0)]);
    observe(2, [(900, 900), (900, 900)]);
    for second in 3..12 {
        let changes = observe(second, [(900 + second, 900 + second), (500, 400)]);
        assert!(changes.is_empty(), "{changes:?}");
    }
}
