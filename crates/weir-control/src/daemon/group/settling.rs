//! Delays replies until the group has settled the requested change.
//!
//! Also tracks the changes that this director must settle.
//!
//! With `[sync]`, a server change moves connections, and the peers do not have the new flow table entries yet. Adding
//! or stopping a director at that moment would break these connections. A change is settled when every director has
//! sent its moved connections to its peers. Until then, the reply to the operator's request is delayed.

use std::time::Duration;

use tokio::time::Instant;
use weir_cluster::SharedKey;

use crate::api::{Reply, ServerStatus};

/// Maximum delay of a reply. A director that has not settled the change by then has failed, and its connections are
/// lost anyway.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time that this director waits for its moved flows to be sent to its peers, and the interval between checks.
const FLOW_SYNC_TIMEOUT: Duration = Duration::from_secs(2);
const FLOW_SYNC_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A delayed reply.
#[derive(Debug)]
pub(in crate::daemon) enum PendingReply {
    /// The reply to a request that changed a server's override.
    Server(Reply<ServerStatus>),
    /// The reply to a request that added, changed or removed a server.
    Member(Reply<()>),
}

/// Delayed replies, and the changes that this director must settle.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// The revision of the newest change that this director must settle, and when the oldest such change was requested.
    due_revision: Option<(i64, Instant)>,
    /// Time at which to check the flows again.
    poll_at: Option<Instant>,
    /// Delayed replies, each with its deadline.
    replies: Vec<(SharedKey, Instant, PendingReply)>,
}

impl Settling {
    /// Starts waiting until all flows that changes up to `revision` moved have been sent.
    pub(super) fn begin(&mut self, revision: i64, now: Instant) {
        let since = self.due_revision.map_or(now, |(_, since)| since);
        (self.due_revision, self.poll_at) = (Some((revision, since)), Some(now));
    }

    /// Returns the revision to acknowledge once no flows remain to be sent (`is_moving` is false) or the timeout has
    /// expired.
    pub(super) fn end(&mut self, is_moving: bool, now: Instant) -> Option<i64> {
        let (revision, since) = self.due_revision?;
        if is_moving && now < since + FLOW_SYNC_TIMEOUT {
            self.poll_at = Some(now + FLOW_SYNC_POLL_INTERVAL);
            return None;
        }
        (self.due_revision, self.poll_at) = (None, None);
        Some(revision)
    }

    /// Delays a reply until its change is settled, up to [`REPLY_TIMEOUT`].
    pub(super) fn defer_reply(&mut self, key: SharedKey, reply: PendingReply, now: Instant) {
        self.replies.push((key, now + REPLY_TIMEOUT, reply));
    }

    /// Removes and returns the replies for the change `settled`, and the replies whose timeout has expired.
    pub(super) fn take(
        &mut self,
        settled: Option<&SharedKey>,
        now: Instant,
    ) -> Vec<(SharedKey, PendingReply)> {
        let is_due = |(key, deadline, _): &mut (SharedKey, Instant, PendingReply)| {
            Some(&*key) == settled || *deadline <= now
        };
        let due = self.replies.extract_if(.., is_due);
        due.map(|(key, _, reply)| (key, reply)).collect()
    }

    /// Returns when to call [`Self::end`] and [`Self::take`] again.
    pub(super) fn next_poll(&self) -> Option<Instant> {
        let reply_deadline = self.replies.iter().map(|(_, deadline, _)| *deadline).min();
        self.poll_at.into_iter().chain(reply_deadline).min()
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
    fn reply_is_delayed_until_its_change_is_settled_or_timeout() {
        let (mut settling, now) = (Settling::default(), Instant::now());
        for server in ["a", "b"] {
            settling.defer_reply(key(server), PendingReply::Member(oneshot::channel().0), now);
        }
        assert!(settling.take(None, now).is_empty());
        let replies = settling.take(Some(&key("a")), now);
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].0, key("a"));
        assert_eq!(settling.next_poll(), Some(now + REPLY_TIMEOUT));
        assert_eq!(settling.take(None, now + REPLY_TIMEOUT).len(), 1);
        assert_eq!(settling.next_poll(), None);
    }

    #[test]
    fn change_is_acknowledged_when_its_flows_are_sent_or_after_timeout() {
        let (mut settling, now) = (Settling::default(), Instant::now());
        assert_eq!(settling.end(false, now), None);
        settling.begin(7, now);
        assert_eq!(settling.end(true, now), None);
        assert_eq!(settling.next_poll(), Some(now + FLOW_SYNC_POLL_INTERVAL));
        settling.begin(8, now + FLOW_SYNC_POLL_INTERVAL);
        assert_eq!(settling.end(false, now + FLOW_SYNC_POLL_INTERVAL), Some(8));
        assert_eq!(settling.next_poll(), None);
        settling.begin(9, now);
        assert_eq!(settling.end(true, now + FLOW_SYNC_TIMEOUT), Some(9));
    }
}
