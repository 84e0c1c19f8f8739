//! Orders whose replies wait until the group has settled them, and changes that this director has to settle.
//!
//! With `[sync]`, a change of servers moves connections that the peers do not know yet. Whoever then adds or stops a
//! director would break them, so the reply to the order is held back until all directors have sent them.

use std::time::Duration;

use tokio::time::Instant;
use weir_cluster::SharedKey;

use crate::api::{Reply, ServerNow};

/// How long a reply is held back at most. A director that fails meanwhile has lost its connections anyway.
const REPLY_LIMIT: Duration = Duration::from_secs(3);
/// How long this director waits for its peers at most, and how often it looks.
const FLOWS_LIMIT: Duration = Duration::from_secs(2);
const FLOWS_PAUSE: Duration = Duration::from_millis(10);

/// A reply that waits.
#[derive(Debug)]
pub(in crate::daemon) enum Held {
    /// To a change of a server.
    Server(Reply<ServerNow>),
    /// To a server that was added, changed or removed.
    Member(Reply<()>),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// The revision of the newest change that this director has to settle, and since when.
    due: Option<(i64, Instant)>,
    /// When to look at the flows again.
    look: Option<Instant>,
    held: Vec<(SharedKey, Instant, Held)>,
}

impl Settling {
    /// The machine asks for an answer when the flows that changes up to this revision have moved are sent.
    pub(super) fn begin(&mut self, revision: i64, now: Instant) {
        let since = self.due.map_or(now, |(_, since)| since);
        (self.due, self.look) = (Some((revision, since)), Some(now));
    }

    /// The revision to acknowledge, now that it is known whether flows are still to be sent.
    pub(super) fn end(&mut self, is_moving: bool, now: Instant) -> Option<i64> {
        let (revision, since) = self.due?;
        if is_moving && now < since + FLOWS_LIMIT {
            self.look = Some(now + FLOWS_PAUSE);
            return None;
        }
        (self.due, self.look) = (None, None);
        Some(revision)
    }

    /// Holds a reply back.
    pub(super) fn hold(&mut self, key: SharedKey, held: Held, now: Instant) {
        self.held.push((key, now + REPLY_LIMIT, held));
    }

    /// Replies that were held back for a change that is settled, or for too long.
    pub(super) fn take(
        &mut self,
        settled: Option<&SharedKey>,
        now: Instant,
    ) -> Vec<(SharedKey, Held)> {
        let is_due = |it: &mut (SharedKey, Instant, Held)| Some(&it.0) == settled || it.1 <= now;
        let due = self.held.extract_if(.., is_due);
        due.map(|(key, _, held)| (key, held)).collect()
    }

    /// When [`Self::end`] and [`Self::take`] are due.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let held = self.held.iter().map(|(_, until, _)| *until).min();
        self.look.into_iter().chain(held).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use weir_cluster::Kind;

    fn key(server: &str) -> SharedKey {
        SharedKey {
            kind: Kind::Override,
            pool: "web".to_owned(),
            server: server.to_owned(),
        }
    }

    #[test]
    fn reply_waits_for_its_change_or_for_a_limit() {
        let (mut settling, now) = (Settling::default(), Instant::now());
        for server in ["a", "b"] {
            settling.hold(key(server), Held::Member(oneshot::channel().0), now);
        }
        assert!(settling.take(None, now).is_empty());
        let taken = settling.take(Some(&key("a")), now);
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].0, key("a"));
        assert_eq!(settling.next_look(), Some(now + REPLY_LIMIT));
        assert_eq!(settling.take(None, now + REPLY_LIMIT).len(), 1);
        assert_eq!(settling.next_look(), None);
    }

    #[test]
    fn change_is_acknowledged_when_its_flows_are_sent_or_after_a_limit() {
        let (mut settling, now) = (Settling::default(), Instant::now());
        assert_eq!(settling.end(false, now), None);
        settling.begin(7, now);
        assert_eq!(settling.end(true, now), None);
        assert_eq!(settling.next_look(), Some(now + FLOWS_PAUSE));
        settling.begin(8, now + FLOWS_PAUSE);
        assert_eq!(settling.end(false, now + FLOWS_PAUSE), Some(8));
        assert_eq!(settling.next_look(), None);
        settling.begin(9, now);
        assert_eq!(settling.end(true, now + FLOWS_LIMIT), Some(9));
    }
}
