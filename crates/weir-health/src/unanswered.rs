//! Servers whose replies do not come back through the director, although under `nat` without source translation they must.
//!
//! Such a server passes its check, whose probe comes from the director itself, and every client times out: its default gateway
//! is another machine, or it is on the clients' own segment. What is counted tells it from a healthy one: SYNs go to it, and not
//! one packet comes back. That is a warning and takes no server out. Whether one takes no connections while others of
//! its pool do is for [`Outliers`](crate::Outliers) to find, which does not judge servers that [`Silence::is_alive`] speaks for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// SYNs without a reply that it takes, and how many clients they must be from.
const SYNS: u64 = 5;
const CLIENTS: usize = 3;

/// How long no reply may have come: longer than any handshake, and than one whose first packet was lost and sent again.
const AT_LEAST: Duration = Duration::from_millis(1500);

/// Clients that are remembered of one server.
const REMEMBERED: usize = 256;

/// What was counted of a server of one service since its rows began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// SYNs that went to it, repeated ones too.
    pub syns: u64,
    /// Flows that became established.
    pub answered: u64,
    /// Packets that it sent back; `None` = not counted this time, which [`Silence::needs_replies`] allows.
    pub replies: Option<u64>,
}

/// A server in a service, by whatever number the caller has for it.
pub type Key = u64;

/// A client's address and port.
pub type Client = (IpAddr, u16);

/// Clients of a server get no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// SYNs since the last reply.
    pub syns: u64,
    /// Clients that they came from.
    pub clients: usize,
    /// When that was found out, on the driver's clock.
    pub since: Duration,
}

/// What a look at a server comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing new.
    Same,
    /// So many SYNs went unanswered for so long that who sent them matters: [`Silence::meet`].
    Suspect,
    /// It has replied, after there was a warning.
    Replied,
}

#[derive(Clone, Debug, Default)]
struct Watch {
    /// As at the last reply.
    syns: u64,
    answered: u64,
    replies: u64,
    /// When the first SYN after it was noticed.
    silent: Option<Duration>,
    /// When there were enough of them.
    waiting: Option<Duration>,
    clients: BTreeSet<Client>,
    warning: Option<Unanswered>,
}

/// The servers of every service.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    watches: BTreeMap<Key, Watch>,
    /// Servers of the first look may have been silent for long: what they counted before counts.
    has_looked: bool,
}

impl Silence {
    /// Whether a server's replies must be counted: SYNs went to it since its last one, and no flow of it became established.
    pub fn needs_replies(&self, key: Key, counted: Counted) -> bool {
        self.watches.get(&key).is_some_and(|watch| {
            watch.warning.is_some()
                || (counted.answered == watch.answered && counted.syns != watch.syns)
        })
    }

    /// Whether a server that sends no reply through the director is alive all the same: it never sent one, although its check
    /// passes, or a probe passed (the last one at `passed`) after its clients began to wait.
    pub fn is_alive(&self, key: Key, passed: impl FnOnce() -> Option<Duration>) -> bool {
        self.watches.get(&key).is_some_and(|watch| {
            let never = watch.replies == 0 && watch.answered == 0;
            let waits = watch.silent;
            waits.is_some_and(|since| never || passed().is_some_and(|passed| passed > since))
        })
    }

    /// Takes in what was counted of a server that its check says is up.
    pub fn look(&mut self, key: Key, counted: Counted, now: Duration) -> Finding {
        let never = counted.answered == 0 && counted.replies.unwrap_or(0) == 0;
        let goes_on = never && !self.has_looked;
        let watch = self.watches.entry(key).or_insert_with(|| Watch {
            syns: if goes_on { 0 } else { counted.syns },
            answered: counted.answered,
            replies: counted.replies.unwrap_or(0),
            ..Watch::default()
        });
        let replies = counted.replies.unwrap_or(watch.replies);
        let replied = (replies, counted.answered) != (watch.replies, watch.answered);
        if replied || counted.syns < watch.syns {
            let warned = watch.warning.is_some();
            *watch = Watch {
                syns: counted.syns,
                answered: counted.answered,
                replies,
                ..Watch::default()
            };
            return if warned {
                Finding::Replied
            } else {
                Finding::Same
            };
        }
        let syns = counted.syns - watch.syns;
        if syns > 0 {
            watch.silent.get_or_insert(now);
        }
        if let Some(warning) = &mut watch.warning {
            warning.syns = syns;
        } else if syns >= SYNS {
            let since = *watch.waiting.get_or_insert(now);
            if now.saturating_sub(since) >= AT_LEAST {
                return Finding::Suspect;
            }
        }
        Finding::Same
    }

    /// Takes in which clients wait for a suspect now; answers the warning that follows.
    pub fn meet(
        &mut self,
        key: Key,
        syns: u64,
        clients: impl IntoIterator<Item = Client>,
        now: Duration,
    ) -> Option<&Unanswered> {
        let watch = self.watches.get_mut(&key)?;
        let room = REMEMBERED.saturating_sub(watch.clients.len());
        watch.clients.extend(clients.into_iter().take(room));
        let addresses: BTreeSet<IpAddr> = watch.clients.iter().map(|client| client.0).collect();
        // As long as it never replied to any client, several connections of one are enough.
        let clients = if watch.replies == 0 && watch.answered == 0 {
            watch.clients.len()
        } else {
            addresses.len()
        };
        if clients < CLIENTS {
            return None;
        }
        watch.warning = Some(Unanswered {
            syns: syns.saturating_sub(watch.syns),
            clients: addresses.len(),
            since: now,
        });
        watch.warning.as_ref()
    }

    /// A look is over: servers that are not in question any more are forgotten, their warnings with them.
    pub fn keep(&mut self, stays: impl Fn(Key) -> bool) {
        self.has_looked = true;
        self.watches.retain(|key, _| stays(*key));
    }

    /// The warning of a server.
    pub fn warning(&self, key: Key) -> Option<&Unanswered> {
        self.watches.get(&key)?.warning.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = 7;
    const LONG: Duration = Duration::from_secs(60);

    fn at(millis: u64) -> Duration {
        LONG + Duration::from_millis(millis)
    }

    fn counted(syns: u64, answered: u64, replies: u64) -> Counted {
        Counted {
            syns,
            answered,
            replies: Some(replies),
        }
    }

    fn clients(count: u8) -> Vec<Client> {
        (1..=count)
            .map(|n| (IpAddr::from([198, 51, 100, n]), 4000))
            .collect()
    }

    /// One that has been looked at, and that replied before unless `replies` is 0.
    fn silence(replies: u64) -> Silence {
        let mut silence = Silence::default();
        silence.keep(|_| true);
        silence.look(KEY, counted(0, replies, replies), LONG);
        silence
    }

    #[test]
    fn five_syns_of_three_clients_without_a_reply_are_a_warning() {
        let mut silence = silence(9);
        let look = |silence: &mut Silence, syns, millis| {
            silence.look(KEY, counted(syns, 9, 9), at(millis))
        };
        assert_eq!(look(&mut silence, 4, 0), Finding::Same);
        assert_eq!(look(&mut silence, 5, 9_000), Finding::Same, "just now");
        assert_eq!(look(&mut silence, 5, 10_500), Finding::Suspect);
        assert_eq!(silence.meet(KEY, 5, clients(2), at(10_500)), None);
        let warning = silence.meet(KEY, 6, clients(3), at(11_000)).cloned();
        let expected = Unanswered {
            syns: 6,
            clients: 3,
            since: at(11_000),
        };
        assert_eq!(warning, Some(expected));
        look(&mut silence, 8, 12_000);
        assert_eq!(silence.warning(KEY).map(|it| it.syns), Some(8));
    }

    #[test]
    fn a_reply_ends_it_and_counts_begin_again() {
        let mut silence = silence(9);
        silence.look(KEY, counted(5, 9, 9), at(0));
        silence.look(KEY, counted(5, 9, 9), at(2_000));
        assert!(silence.meet(KEY, 5, clients(3), at(2_000)).is_some());
        let replied = silence.look(KEY, counted(5, 9, 10), at(3_000));
        assert_eq!(replied, Finding::Replied);
        assert_eq!(silence.warning(KEY), None);
        let later = silence.look(KEY, counted(9, 9, 10), at(60_000));
        assert_eq!(later, Finding::Same, "four since then");
    }

    #[test]
    fn several_connections_of_one_client_are_enough_where_there_was_never_a_reply() {
        let one = |ports: u16| (0..ports).map(|port| (IpAddr::from([198, 51, 100, 1]), port));
        for (replies, warns) in [(0, true), (9, false)] {
            let mut silence = silence(replies);
            silence.look(KEY, counted(5, replies, replies), at(0));
            let met = silence.meet(KEY, 5, one(3), at(2_000)).is_some();
            assert_eq!(met, warns, "{replies} replies before");
        }
    }

    #[test]
    fn what_was_counted_before_the_first_look_counts_where_there_was_never_a_reply() {
        let find = |first| {
            let mut silence = Silence::default();
            silence.look(KEY, first, at(0));
            silence.look(KEY, first, at(2_000))
        };
        assert_eq!(find(counted(7, 0, 0)), Finding::Suspect);
        assert_eq!(find(counted(7, 0, 1)), Finding::Same);
    }

    #[test]
    fn a_server_that_never_replied_is_alive_and_one_that_did_when_a_probe_passes_later() {
        let mut never = silence(0);
        assert!(!never.is_alive(KEY, || Some(at(0))), "no client waits");
        never.look(KEY, counted(1, 0, 0), at(500));
        assert!(never.is_alive(KEY, || None));

        let mut once = silence(9);
        once.look(KEY, counted(1, 9, 9), at(500));
        assert!(!once.is_alive(KEY, || None));
        assert!(
            !once.is_alive(KEY, || Some(at(400))),
            "before it was silent"
        );
        assert!(once.is_alive(KEY, || Some(at(600))));
        // A reset is a reply: it is the server that refuses.
        once.look(KEY, counted(2, 9, 10), at(700));
        assert!(!once.is_alive(KEY, || Some(at(800))));
    }

    #[test]
    fn replies_are_counted_from_the_first_syn_without_an_answer_on() {
        let silence = silence(9);
        assert!(!silence.needs_replies(KEY, counted(0, 9, 9)));
        assert!(silence.needs_replies(KEY, counted(1, 9, 9)));
        assert!(!silence.needs_replies(KEY, counted(1, 10, 9)));
    }

    #[test]
    fn a_server_that_goes_down_and_comes_back_begins_again() {
        let mut silence = silence(0);
        silence.look(KEY, counted(9, 0, 0), at(0));
        silence.keep(|_| false);
        let back = silence.look(KEY, counted(20, 0, 0), at(60_000));
        assert_eq!(back, Finding::Same, "those went to a dead server");
        assert_eq!(
            silence.look(KEY, counted(24, 0, 0), at(70_000)),
            Finding::Same
        );
    }
}
