//! Finds servers whose replies bypass the director, although `nat` without `snat` requires them to pass through it.
//!
//! Such a server passes its check, because the probe comes from the director itself, but every client times out: the
//! server's default gateway is another machine, or the server is on the clients' segment. The counters distinguish such
//! a server from a healthy one: the director forwards SYNs to it, and no packet comes back. The result is a warning;
//! the server is not ejected. [`Outliers`](crate::Outliers) finds servers that accept no connections while others in
//! the pool do, and skips servers for which [`Silence::is_alive`] returns true.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use weir_model::NO_REPLY_LIFETIME;

/// Minimum number of unanswered SYNs for a warning.
const MIN_SYNS: u64 = 5;
/// Minimum number of clients that sent these SYNs, for a warning; of connections if the server never replied.
const MIN_CLIENTS: usize = 3;

/// Minimum number of unanswered SYNs for a warning about a server that never replied, although its check would have
/// reported a failure in the meantime: a SYN and its retransmissions, or several connections.
const MIN_FIRST_SYNS: u64 = 3;

/// Minimum time without a reply: longer than any handshake, including one whose first packet was lost.
const MIN_SILENCE: Duration = Duration::from_millis(1500);

/// Minimum time between two searches for the clients of a server that already has a warning. A search reads the whole
/// flow table.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of client addresses stored per server.
const MAX_ADDRESSES: usize = 256;
/// Maximum number of ports stored per client address. More ports do not change the result. The limit keeps many clients
/// behind one NAT gateway from filling the storage.
const MAX_PORTS: usize = MIN_CLIENTS;

/// The period in which a server has sent no reply through the director.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The server never sent a reply.
    NeverReplied,
    /// The server has sent no reply since the first unanswered SYN, which was observed at this time.
    Since(Duration),
}

impl Silence {
    /// Returns whether the server is alive although it sends no replies through the director: it never sent one but its
    /// check passes, or a probe passed after the first unanswered SYN. `last_pass` is the time at which a probe last
    /// passed.
    pub fn is_alive(self, last_pass: Option<Duration>) -> bool {
        match self {
            Self::NeverReplied => true,
            Self::Since(since) => last_pass.is_some_and(|last_pass| last_pass > since),
        }
    }
}

/// Counters of a server in one service since its map rows were created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyCounters {
    /// SYNs sent to the server, including retransmissions.
    pub syns: u64,
    /// Flows that became established.
    pub answered: u64,
    /// Packets that the server sent back; `None` = not read, which is allowed if [`ReplyWatch::needs_replies`] returned
    /// false.
    pub replies: Option<u64>,
    /// Maximum time until the server's check reports that the server does not respond; only used for a server that
    /// never replied.
    pub detection_time: Duration,
}

/// Identifies a server in a service; the caller chooses the number.
pub type Key = u64;

/// A client's address and port.
pub type Client = (IpAddr, u16);

/// A warning that clients of a server receive no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoReplyWarning {
    /// SYNs since the last reply.
    pub syns: u64,
    /// Number of known client addresses that sent these SYNs. Clients whose flows were removed before the flow table
    /// was searched are unknown.
    pub clients: usize,
    /// Number of these addresses that are on the server's own segment.
    pub neighbors: usize,
    /// One of the addresses on the server's own segment, if there is one.
    pub neighbor: Option<IpAddr>,
    /// When the warning was raised, on the driver's clock.
    pub since: Duration,
    /// When the last of these SYNs was observed, on the driver's clock.
    pub last_syn: Duration,
}

/// Result of [`ReplyWatch::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing changed.
    Unchanged,
    /// Enough SYNs went unanswered for long enough: pass their clients to [`ReplyWatch::add_clients`].
    Suspect,
    /// The server replied after a warning.
    Replied,
    /// No client has sent a SYN to the server for [`NO_REPLY_LIFETIME`]: the warning has ended.
    Expired,
}

#[derive(Clone, Debug, Default)]
struct Watch {
    /// Counters at the last reply.
    syns: u64,
    answered: u64,
    replies: u64,
    /// When the first SYN after the last reply was observed.
    silent_since: Option<Duration>,
    /// When the last SYN after the last reply was observed, and the number of these SYNs.
    last_syn: Option<(Duration, u64)>,
    /// When the number of such SYNs reached [`MIN_SYNS`].
    suspect_since: Option<Duration>,
    /// Whether the server never replied to at least [`MIN_FIRST_SYNS`] SYNs, and its check would have reported a
    /// failure since the first of them.
    is_definite: bool,
    /// Clients that wait for a reply: ports by address.
    clients: BTreeMap<IpAddr, BTreeSet<u16>>,
    /// When the flow table was last searched for these clients, and the number of SYNs at that time.
    searched: Option<(Duration, u64)>,
    warning: Option<NoReplyWarning>,
}

impl Watch {
    /// Returns the state of a server without unanswered SYNs.
    fn new(counters: ReplyCounters, replies: u64) -> Self {
        Self {
            syns: counters.syns,
            answered: counters.answered,
            replies,
            ..Self::default()
        }
    }

    /// Updates the warning, if there is one. `syns` is the number of unanswered SYNs. Returns whether to search for
    /// more clients.
    fn update_warning(&mut self, syns: u64, now: Duration) -> bool {
        let (Some(warning), Some((last_syn, _))) = (&mut self.warning, self.last_syn) else {
            return false;
        };
        warning.syns = syns;
        warning.last_syn = last_syn;
        let is_outdated = self.searched.is_none_or(|(searched_at, known_syns)| {
            syns > known_syns && now.saturating_sub(searched_at) >= SEARCH_INTERVAL
        });
        is_outdated && self.clients.len() < MIN_CLIENTS
    }

    /// Returns whether there is a warning, and its last SYN is older than [`NO_REPLY_LIFETIME`].
    fn has_expired(&self, now: Duration) -> bool {
        let is_old = |(last_syn, _)| now.saturating_sub(last_syn) >= NO_REPLY_LIFETIME;
        self.warning.is_some() && self.last_syn.is_some_and(is_old)
    }

    const fn has_never_replied(&self) -> bool {
        self.replies == 0 && self.answered == 0
    }

    /// Stores a client, within the limits for addresses and for ports per address.
    fn add_client(&mut self, (address, port): Client) {
        let is_full = self.clients.len() >= MAX_ADDRESSES;
        if is_full && !self.clients.contains_key(&address) {
            return;
        }
        let ports = self.clients.entry(address).or_default();
        if ports.len() < MAX_PORTS {
            ports.insert(port);
        }
    }
}

/// State of the servers of every service.
#[derive(Clone, Debug, Default)]
pub struct ReplyWatch {
    watches: BTreeMap<Key, Watch>,
    /// Whether the first round has ended. In the first round, earlier SYNs to servers that never replied are included,
    /// because such servers may have been silent for a long time.
    first_round_done: bool,
}

impl ReplyWatch {
    /// Returns whether the counter of a server's replies must be read: there is a warning, or SYNs were sent to the
    /// server since its last reply and no flow became established.
    pub fn needs_replies(&self, key: Key, counters: ReplyCounters) -> bool {
        self.watches.get(&key).is_some_and(|watch| {
            watch.warning.is_some()
                || (counters.answered == watch.answered && counters.syns != watch.syns)
        })
    }

    /// Returns the period in which a server has sent no reply, or `None` if no client is waiting for a reply.
    pub fn silence(&self, key: Key) -> Option<Silence> {
        let watch = self.watches.get(&key)?;
        let since = watch.silent_since?;
        Some(if watch.has_never_replied() {
            Silence::NeverReplied
        } else {
            Silence::Since(since)
        })
    }

    /// Applies the counters of a server that is up according to its check.
    pub fn observe(&mut self, key: Key, counters: ReplyCounters, now: Duration) -> Finding {
        let has_never_replied = counters.answered == 0 && counters.replies.unwrap_or(0) == 0;
        let counts_from_zero = has_never_replied && !self.first_round_done;
        let watch = self.watches.entry(key).or_insert_with(|| Watch {
            syns: if counts_from_zero { 0 } else { counters.syns },
            answered: counters.answered,
            replies: counters.replies.unwrap_or(0),
            ..Watch::default()
        });
        let replies = counters.replies.unwrap_or(watch.replies);
        let has_replied = (replies, counters.answered) != (watch.replies, watch.answered);
        if has_replied || counters.syns < watch.syns {
            let had_warning = watch.warning.is_some();
            *watch = Watch::new(counters, replies);
            return if had_warning {
                Finding::Replied
            } else {
                Finding::Unchanged
            };
        }
        let syns = counters.syns - watch.syns;
        if syns > watch.last_syn.map_or(0, |(_, count)| count) {
            watch.silent_since.get_or_insert(now);
            watch.last_syn = Some((now, syns));
        }
        if watch.has_expired(now) {
            *watch = Watch::new(counters, replies);
            return Finding::Expired;
        }
        let is_detectable =
            |since: Duration| now.saturating_sub(since) >= counters.detection_time.max(MIN_SILENCE);
        watch.is_definite = syns >= MIN_FIRST_SYNS
            && watch.has_never_replied()
            && watch.silent_since.is_some_and(is_detectable);
        if watch.warning.is_some() {
            if watch.update_warning(syns, now) {
                return Finding::Suspect;
            }
        } else if watch.is_definite {
            return Finding::Suspect;
        } else if syns >= MIN_SYNS {
            let since = *watch.suspect_since.get_or_insert(now);
            if now.saturating_sub(since) >= MIN_SILENCE {
                return Finding::Suspect;
            }
        }
        Finding::Unchanged
    }

    /// Adds clients that are waiting for a reply from a suspect server; `is_neighbor` returns whether a client is on
    /// the server's own segment. Returns the resulting warning if it is new.
    pub fn add_clients(
        &mut self,
        key: Key,
        syns: u64,
        clients: impl IntoIterator<Item = Client>,
        is_neighbor: impl Fn(IpAddr) -> bool,
        now: Duration,
    ) -> Option<&NoReplyWarning> {
        let watch = self.watches.get_mut(&key)?;
        for client in clients {
            watch.add_client(client);
        }
        let unanswered = syns.saturating_sub(watch.syns);
        watch.searched = Some((now, unanswered));
        // If the server never replied to any client, several connections from one client are sufficient.
        let clients = if watch.has_never_replied() {
            watch.clients.values().map(BTreeSet::len).sum()
        } else {
            watch.clients.len()
        };
        let required = if watch.is_definite { 1 } else { MIN_CLIENTS };
        if clients < required {
            return None;
        }
        let neighbors = watch.clients.keys().filter(|client| is_neighbor(**client));
        let (neighbors, neighbor) = (neighbors.clone().count(), neighbors.min().copied());
        let existing = watch.warning.take();
        let is_new = existing.is_none();
        let warning = watch.warning.insert(NoReplyWarning {
            syns: unanswered,
            clients: watch.clients.len(),
            neighbors,
            neighbor,
            since: existing.map_or(now, |it| it.since),
            last_syn: watch.last_syn.map_or(now, |(last_syn, _)| last_syn),
        });
        is_new.then_some(&*warning)
    }

    /// Ends a round: removes the state and warnings of servers for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(Key) -> bool) {
        self.first_round_done = true;
        self.watches.retain(|key, _| keep(*key));
    }

    /// Returns the warning about a server as of the last observation, if any.
    pub fn warning(&self, key: Key) -> Option<&NoReplyWarning> {
        self.watches.get(&key)?.warning.as_ref()
    }

    /// Returns the warning about a server with these counters, which may be newer than the last observation: `None` if
    /// the server has replied since then.
    pub fn warning_at(&self, key: Key, counters: ReplyCounters) -> Option<&NoReplyWarning> {
        let watch = self.watches.get(&key)?;
        let has_replied = counters.answered != watch.answered
            || counters
                .replies
                .is_some_and(|replies| replies != watch.replies);
        watch.warning.as_ref().filter(|_| !has_replied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = 7;
    const START: Duration = Duration::from_secs(60);

    fn after_ms(millis: u64) -> Duration {
        START + Duration::from_millis(millis)
    }

    fn counters(syns: u64, answered: u64, replies: u64) -> ReplyCounters {
        ReplyCounters {
            syns,
            answered,
            replies: Some(replies),
            detection_time: Duration::from_secs(600),
        }
    }

    fn client_list(count: u8) -> Vec<Client> {
        (1..=count)
            .map(|n| (IpAddr::from([198, 51, 100, n]), 4000))
            .collect()
    }

    /// Returns the state for a server that was observed earlier. The server has replied, unless `replies` is 0.
    fn watch(replies: u64) -> ReplyWatch {
        let mut watch = ReplyWatch::default();
        watch.retain(|_| true);
        watch.observe(KEY, counters(0, replies, replies), START);
        watch
    }

    #[test]
    fn five_unanswered_syns_from_three_clients_raise_a_warning() {
        let mut watch = watch(9);
        let observe = |watch: &mut ReplyWatch, syns, millis| {
            watch.observe(KEY, counters(syns, 9, 9), after_ms(millis))
        };
        assert_eq!(observe(&mut watch, 4, 0), Finding::Unchanged);
        assert_eq!(
            observe(&mut watch, 5, 9_000),
            Finding::Unchanged,
            "too early"
        );
        assert_eq!(observe(&mut watch, 5, 10_500), Finding::Suspect);
        assert_eq!(
            watch.add_clients(KEY, 5, client_list(2), |_| false, after_ms(10_500)),
            None
        );
        let warning = watch
            .add_clients(KEY, 6, client_list(3), |_| false, after_ms(11_000))
            .cloned();
        let expected = NoReplyWarning {
            syns: 6,
            clients: 3,
            neighbors: 0,
            neighbor: None,
            since: after_ms(11_000),
            last_syn: after_ms(9_000),
        };
        assert_eq!(warning, Some(expected));
        observe(&mut watch, 8, 12_000);
        assert_eq!(watch.warning(KEY).map(|it| it.syns), Some(8));
    }

    #[test]
    fn server_has_replied_if_a_counter_is_not_zero() {
        for (answered, replies, expected) in [
            (0, 0, Silence::NeverReplied),
            (5, 0, Silence::Since(START)),
            (0, 5, Silence::Since(START)),
        ] {
            let mut watch = ReplyWatch::default();
            watch.retain(|_| true);
            watch.observe(KEY, counters(0, answered, replies), START);
            assert_eq!(watch.silence(KEY), None);
            watch.observe(KEY, counters(1, answered, replies), START);
            let silence = watch.silence(KEY);
            assert_eq!(silence, Some(expected), "{answered} {replies}");
        }
    }

    /// Returns a watch with a warning about five SYNs from one client to a server that never replied.
    fn watch_with_warning() -> ReplyWatch {
        let mut watch = watch(0);
        let observe = |watch: &mut ReplyWatch, millis| {
            let counters = ReplyCounters {
                detection_time: Duration::ZERO,
                ..counters(5, 0, 0)
            };
            watch.observe(KEY, counters, after_ms(millis))
        };
        observe(&mut watch, 0);
        assert_eq!(observe(&mut watch, 2_000), Finding::Suspect);
        let clients = client_list(1);
        let warning = watch.add_clients(KEY, 5, clients, |_| false, after_ms(2_000));
        assert!(warning.is_some());
        watch
    }

    /// The flow table is not searched in every round.
    #[test]
    fn clients_after_the_warning_are_counted() {
        let mut watch = watch_with_warning();
        for (syns, millis, expected) in [
            (5, 60_000, Finding::Unchanged),
            (6, 11_900, Finding::Unchanged),
            (6, 12_000, Finding::Suspect),
        ] {
            let found = watch
                .clone()
                .observe(KEY, counters(syns, 0, 0), after_ms(millis));
            assert_eq!(found, expected, "{syns} SYNs at {millis}");
        }
        watch.observe(KEY, counters(6, 0, 0), after_ms(12_000));
        let clients = client_list(3);
        let new = watch.add_clients(KEY, 6, clients, |_| true, after_ms(12_000));
        assert_eq!(new, None, "the warning must not be returned again");
        let warning = watch.warning(KEY).cloned().unwrap();
        assert_eq!((warning.clients, warning.neighbors), (3, 3));
        let times = (warning.since, warning.last_syn);
        assert_eq!(times, (after_ms(2_000), after_ms(12_000)));
        // Three clients are sufficient for a warning about any server.
        let found = watch.observe(KEY, counters(9, 0, 0), after_ms(60_000));
        assert_eq!(found, Finding::Unchanged);
    }

    #[test]
    fn warning_expires_without_new_syns() {
        let lifetime = u64::try_from(NO_REPLY_LIFETIME.as_millis()).unwrap();
        let mut watch = watch_with_warning();
        watch.observe(KEY, counters(6, 0, 0), after_ms(5_000));
        let observe = |watch: &mut ReplyWatch, syns, millis| {
            watch.observe(KEY, counters(syns, 0, 0), after_ms(millis))
        };
        let end = 5_000 + lifetime;
        assert_ne!(observe(&mut watch, 6, end - 1), Finding::Expired);
        assert!(watch.warning(KEY).is_some());
        assert_eq!(observe(&mut watch, 6, end), Finding::Expired);
        assert_eq!((watch.warning(KEY), watch.silence(KEY)), (None, None));
        // The expired SYNs do not count.
        for millis in [end + 1_000, end + 9_000] {
            assert_eq!(observe(&mut watch, 10, millis), Finding::Unchanged);
        }
        assert_eq!(watch.silence(KEY), Some(Silence::NeverReplied));
    }

    #[test]
    fn reply_after_the_last_observation_ends_the_warning() {
        let watch = watch_with_warning();
        assert!(watch.warning_at(KEY, counters(7, 0, 0)).is_some());
        assert_eq!(watch.warning_at(KEY, counters(7, 0, 1)), None);
        assert_eq!(watch.warning_at(KEY, counters(7, 1, 0)), None);
    }

    #[test]
    fn clients_on_the_servers_segment_are_counted() {
        let mut watch = watch(9);
        watch.observe(KEY, counters(6, 9, 9), after_ms(0));
        watch.observe(KEY, counters(6, 9, 9), after_ms(2_000));
        let (clients, second) = (client_list(4), client_list(2)[1].0);
        let is_neighbor = |client| client >= second;
        let warning = watch.add_clients(KEY, 6, clients, is_neighbor, after_ms(2_000));
        let counts = warning.map(|it| (it.clients, it.neighbors, it.neighbor));
        assert_eq!(counts, Some((4, 3, Some(second))));
    }

    #[test]
    fn reply_clears_the_warning_and_resets_counters() {
        let mut watch = watch(9);
        watch.observe(KEY, counters(5, 9, 9), after_ms(0));
        watch.observe(KEY, counters(5, 9, 9), after_ms(2_000));
        assert!(
            watch
                .add_clients(KEY, 5, client_list(3), |_| false, after_ms(2_000))
                .is_some()
        );
        let replied = watch.observe(KEY, counters(5, 9, 10), after_ms(3_000));
        assert_eq!(replied, Finding::Replied);
        assert_eq!(watch.warning(KEY), None);
        for millis in [60_000, 62_000] {
            let finding = watch.observe(KEY, counters(9, 9, 10), after_ms(millis));
            assert_eq!(finding, Finding::Unchanged, "four SYNs since the reply");
        }
        for (millis, expected) in [(70_000, Finding::Unchanged), (72_000, Finding::Suspect)] {
            let finding = watch.observe(KEY, counters(10, 9, 10), after_ms(millis));
            assert_eq!(
                finding, expected,
                "five SYNs since the reply, at {millis} ms"
            );
        }
    }

    #[test]
    fn one_client_is_sufficient_if_the_server_never_replied() {
        let ports_of_one_client =
            |ports: u16| (0..ports).map(|port| (IpAddr::from([198, 51, 100, 1]), port));
        for (replies, expected) in [(0, true), (9, false)] {
            let mut watch = watch(replies);
            watch.observe(KEY, counters(5, replies, replies), after_ms(0));
            let has_warning = watch
                .add_clients(KEY, 5, ports_of_one_client(3), |_| false, after_ms(2_000))
                .is_some();
            assert_eq!(has_warning, expected, "{replies} replies before");
        }
    }

    #[test]
    fn connections_through_one_gateway_do_not_hide_other_clients() {
        let gateway = (0..2_000).map(|port| (IpAddr::from([198, 51, 100, 200]), port));
        for is_one_search in [true, false] {
            let mut watch = watch(9);
            watch.observe(KEY, counters(2_002, 9, 9), after_ms(0));
            let mut add = |clients: Vec<Client>| {
                let warning = watch.add_clients(KEY, 2_002, clients, |_| false, after_ms(2_000));
                warning.map(|it| it.clients)
            };
            let found = if is_one_search {
                add(gateway.clone().chain(client_list(2)).collect())
            } else {
                assert_eq!(add(gateway.clone().collect()), None, "one address");
                add(client_list(2))
            };
            assert_eq!(found, Some(3), "{is_one_search}");
        }
    }

    #[test]
    fn stored_addresses_and_ports_are_limited() {
        let mut watch = watch(9);
        watch.observe(KEY, counters(5, 9, 9), after_ms(0));
        let addresses = (0..1_000_u16).map(|n| {
            let [high, low] = n.to_be_bytes();
            (IpAddr::from([198, 51, high, low]), 4000)
        });
        let warning = watch.add_clients(KEY, 5, addresses, |_| false, after_ms(2_000));
        assert_eq!(warning.map(|it| it.clients), Some(MAX_ADDRESSES));
        let first = IpAddr::from([198, 51, 0, 0]);
        let ports = (4000..5000).map(|port| (first, port));
        watch.add_clients(KEY, 5, ports, |_| false, after_ms(2_000));
        let stored = watch.watches[&KEY].clients[&first].iter().copied();
        assert_eq!(stored.collect::<Vec<_>>(), [4000, 4001, 4002]);
    }

    #[test]
    fn one_connection_is_sufficient_after_the_detection_time_of_the_check() {
        let find = |replies: u64, syns: u64, millis: u64| {
            let mut watch = watch(replies);
            let counted = |syns| ReplyCounters {
                detection_time: Duration::from_secs(9),
                ..counters(syns, replies, replies)
            };
            watch.observe(KEY, counted(1), after_ms(0));
            let finding = watch.observe(KEY, counted(syns), after_ms(millis));
            let clients = client_list(1);
            let warning = watch.add_clients(KEY, syns, clients, |_| true, after_ms(millis));
            (finding, warning.and_then(|it| it.neighbor))
        };
        let client = Some(client_list(1)[0].0);
        assert_eq!(find(0, 3, 9_000), (Finding::Suspect, client));
        assert_eq!(find(0, 3, 8_900), (Finding::Unchanged, None), "too early");
        assert_eq!(find(0, 2, 9_000), (Finding::Unchanged, None), "too few");
        assert_eq!(find(9, 4, 9_000), (Finding::Unchanged, None), "has replied");
    }

    #[test]
    fn earlier_counts_are_used_if_the_server_never_replied() {
        let finding_after_two_rounds = |first| {
            let mut watch = ReplyWatch::default();
            watch.observe(KEY, first, after_ms(0));
            watch.observe(KEY, first, after_ms(2_000))
        };
        assert_eq!(
            finding_after_two_rounds(counters(7, 0, 0)),
            Finding::Suspect
        );
        assert_eq!(
            finding_after_two_rounds(counters(7, 0, 1)),
            Finding::Unchanged
        );
    }

    #[test]
    fn silent_server_is_alive_if_it_never_replied_or_a_later_probe_passed() {
        let is_alive = |watch: &ReplyWatch, last_pass: Option<Duration>| {
            let silence = watch.silence(KEY);
            silence.is_some_and(|silence| silence.is_alive(last_pass))
        };
        let mut never_replied = watch(0);
        assert!(
            !is_alive(&never_replied, Some(after_ms(0))),
            "no client is waiting"
        );
        never_replied.observe(KEY, counters(1, 0, 0), after_ms(500));
        assert!(is_alive(&never_replied, None));

        let mut replied_once = watch(9);
        replied_once.observe(KEY, counters(1, 9, 9), after_ms(500));
        assert!(!is_alive(&replied_once, None));
        assert!(
            !is_alive(&replied_once, Some(after_ms(400))),
            "the probe passed before the first unanswered SYN"
        );
        assert!(is_alive(&replied_once, Some(after_ms(600))));
        // A reset is a reply: the server itself rejects the connection.
        replied_once.observe(KEY, counters(2, 9, 10), after_ms(700));
        assert!(!is_alive(&replied_once, Some(after_ms(800))));
    }

    #[test]
    fn replies_are_read_after_the_first_unanswered_syn() {
        let watch = watch(9);
        assert!(!watch.needs_replies(KEY, counters(0, 9, 9)));
        assert!(watch.needs_replies(KEY, counters(1, 9, 9)));
        assert!(!watch.needs_replies(KEY, counters(1, 10, 9)));
    }

    #[test]
    fn state_is_reset_after_a_server_was_down() {
        let mut watch = watch(0);
        watch.observe(KEY, counters(9, 0, 0), after_ms(0));
        watch.retain(|_| false);
        let finding = watch.observe(KEY, counters(20, 0, 0), after_ms(60_000));
        assert_eq!(
            finding,
            Finding::Unchanged,
            "earlier SYNs went to a dead server"
        );
        assert_eq!(
            watch.observe(KEY, counters(24, 0, 0), after_ms(70_000)),
            Finding::Unchanged
        );
    }
}
