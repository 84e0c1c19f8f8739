use super::*;

/// A pool in which each server receives `syns` SYNs per second; servers in `dead` do not answer.
struct Pool {
    outliers: Outliers,
    samples: Vec<(String, Sample)>,
    now: Duration,
    share: u32,
}

impl Pool {
    fn new(servers: usize, share: u32) -> Self {
        let name = |n| (format!("10.0.0.{n}"), Sample::default());
        Self {
            outliers: Outliers::default(),
            samples: (0..servers).map(name).collect(),
            now: Duration::from_secs(1),
            share,
        }
    }

    /// Advances by one second. Returns the servers that were ejected (true) or returned (false).
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
        let changes = self.outliers.observe("web", self.share, &samples, self.now);
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

    /// Returns the number of seconds until the given change to a server.
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
    let mut pool = Pool::new(3, 50);
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
        "the backoff is reset"
    );
}

#[test]
fn server_down_by_its_check_is_not_ejected() {
    let mut outliers = Outliers::default();
    let sample = |syns, answered| Sample { syns, answered };
    let mut changes = |second, samples: &[(&str, Sample)]| {
        outliers.observe("web", 50, samples, Duration::from_secs(second))
    };
    changes(1, &[("a", sample(0, 0)), ("b", sample(0, 0))]);
    changes(2, &[("a", sample(9, 9)), ("b", sample(9, 0))]);
    let ejections = changes(4, &[("a", sample(18, 18)), ("b", sample(18, 0))]);
    assert_eq!(ejections.len(), 1, "{ejections:?}");
    let ends = changes(5, &[("a", sample(27, 27))]);
    let end = EjectionChange {
        server: "b".to_owned(),
        transition: Transition::Withdrawn,
    };
    assert_eq!(ends, [end], "the server is not on trial");
    // SYNs that were in flight when the check failed do not count after the check passes again.
    for (second, syns) in [(7, 36), (8, 45), (10, 54)] {
        let later_changes = changes(second, &[("a", sample(syns, syns)), ("b", sample(90, 0))]);
        assert_eq!(later_changes, [], "second {second}");
    }
}

#[test]
fn ejections_stay_within_the_share() {
    let mut pool = Pool::new(4, 50);
    pool.advance_one_second(2, &[]);
    let mut ejected_count = 0;
    for _ in 0..9 {
        let changes = pool.advance_one_second(2, &[0, 1, 2]);
        ejected_count += changes.iter().filter(|(_, ejected)| *ejected).count();
    }
    assert_eq!(ejected_count, 2);
    for share in [0, 24] {
        let mut pool = Pool::new(4, share);
        pool.advance_one_second(2, &[]);
        for _ in 0..20 {
            assert_eq!(pool.advance_one_second(2, &[0]), [], "{share} %");
        }
    }
}

#[test]
fn syn_flood_ejects_no_server() {
    let mut pool = Pool::new(4, 50);
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
    let mut pool = Pool::new(2, 50);
    pool.advance_one_second(1, &[]);
    assert_eq!(pool.advance_one_second(1, &[0]), []);
    assert_eq!(pool.advance_one_second(1, &[0]), []);
    assert_eq!(
        pool.advance_one_second(1, &[0]),
        [(0, true)],
        "the third SYN"
    );
}

/// Clients that connect repeatedly, in virtual time, to a pool with a second server that dies. They retransmit SYNs as
/// a kernel does, and give up after three seconds.
struct Clients {
    outliers: Outliers,
    samples: [Sample; 3],
    /// For each client: the time of its next action, its server, and the number of SYNs that it has sent for this
    /// connection.
    clients: Vec<(u64, usize, usize)>,
    /// Times between the start of a connection and the retransmissions of its SYN.
    retransmissions_ms: &'static [u64],
    turn: usize,
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
            turn: 0,
        }
    }

    /// Advances the clients by one millisecond.
    fn advance_one_ms(&mut self, now_ms: u64, is_dead: bool) {
        for client in &mut self.clients {
            let (due, server, syns_sent) = *client;
            if due != now_ms {
                continue;
            }
            let (server, syns_sent) = if syns_sent == 0 || syns_sent > self.retransmissions_ms.len()
            {
                self.turn += 1;
                (self.turn % 3, 0)
            } else {
                (server, syns_sent)
            };
            if syns_sent < self.retransmissions_ms.len() + 1 {
                self.samples[server].syns += 1;
            }
            let dead = is_dead && server == Self::DEAD;
            *client = if !dead {
                self.samples[server].answered += 1;
                (now_ms + Self::PAUSE_MS, server, 0)
            } else if let Some(due_after) = self.retransmissions_ms.get(syns_sent) {
                let elapsed = if syns_sent == 0 {
                    0
                } else {
                    self.retransmissions_ms[syns_sent - 1]
                };
                (now_ms + due_after - elapsed, server, syns_sent + 1)
            } else {
                let elapsed = self.retransmissions_ms.last().copied().unwrap_or(0);
                (now_ms + Self::GIVE_UP_MS - elapsed, server, syns_sent + 1)
            };
        }
    }

    /// Returns the time between the server's death and its ejection, in milliseconds, with one observation every
    /// `period_ms`.
    fn ejected_after(mut self, died_ms: u64, period_ms: u64) -> Option<u64> {
        (0..died_ms + 20_000).find_map(|now_ms| {
            self.advance_one_ms(now_ms, now_ms >= died_ms);
            if now_ms % period_ms != 0 {
                return None;
            }
            let names = ["a", "b", "c"];
            let samples: Vec<(&str, Sample)> = names.into_iter().zip(self.samples).collect();
            let observed_at = Duration::from_millis(now_ms);
            let changes = self.outliers.observe("web", 50, &samples, observed_at);
            let change = changes.first()?;
            assert!(
                now_ms >= died_ms && change.server == "b",
                "{now_ms}: {change:?}"
            );
            Some(now_ms - died_ms)
        })
    }
}

/// Kernels before 6.5 double the time between SYNs; later kernels first send four of them one second apart.
const RETRANSMISSIONS_MS: [&[u64]; 2] = [&[1000], &[1000, 2000]];

#[test]
fn dead_server_is_ejected_within_five_seconds() {
    let mut slowest_ms = 0;
    for retransmissions_ms in RETRANSMISSIONS_MS {
        for clients in [1, 2, 6, 40] {
            for period_ms in [250, 1000] {
                for died_ms in (5000..6050).step_by(50) {
                    let simulated_clients = Clients::new(clients, retransmissions_ms);
                    let ejected_after_ms = simulated_clients.ejected_after(died_ms, period_ms);
                    let ejected_after_ms = ejected_after_ms.unwrap_or(u64::MAX);
                    assert!(
                        ejected_after_ms <= 5000,
                        "{clients} clients, observed every {period_ms}, dead at {died_ms}: {ejected_after_ms}"
                    );
                    slowest_ms = slowest_ms.max(ejected_after_ms);
                }
            }
        }
    }
    assert!(
        slowest_ms > 1500,
        "ejections must wait for retransmitted SYNs"
    );
}

#[test]
fn reset_discards_history_of_one_server_in_one_group() {
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
                count = outliers.observe("web", 50, &samples, now).len();
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
