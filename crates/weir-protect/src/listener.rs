//! Determines when a server can be replaced (no connection is between SYN and accept(2)) and when it has been replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use weir_netlink::{TcpSocket, TcpState, tcp_sockets};

use crate::error::Error;

/// The polling interval is this fraction of the elapsed waiting time, so that polling extends it only slightly.
const POLL_FRACTION: u32 = 8;
const MIN_POLL: Duration = Duration::from_micros(500);
const MAX_POLL: Duration = Duration::from_millis(10);

/// Time within which a SYN that arrived before holding started reaches its socket.
const SYN_ARRIVAL_TIME: Duration = Duration::from_millis(1);

/// Time within which a replaced socket is expected to close: its owner has received a signal and only needs to be
/// scheduled.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the addresses of all listening sockets.
pub(crate) fn listening_addresses() -> Result<Vec<SocketAddr>, Error> {
    let all = tcp_sockets(&[TcpState::Listen])?;
    Ok(all.iter().map(|socket| canonical(socket.local)).collect())
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Cookies of the listening sockets, by address.
type CookiesByAddress = BTreeMap<SocketAddr, BTreeSet<u64>>;

/// The sockets that the command may replace.
#[derive(Debug)]
pub(crate) struct Listeners {
    targets: Vec<SocketAddr>,
    before: CookiesByAddress,
}

impl Listeners {
    /// Records the listening sockets at the addresses `targets`, before the command is started.
    pub(crate) fn record(targets: &[SocketAddr]) -> Result<Self, Error> {
        let mut listeners = Self {
            targets: targets.to_vec(),
            before: CookiesByAddress::new(),
        };
        listeners.before = listeners.current()?;
        Ok(listeners)
    }

    /// Returns whether a socket with this local address accepts connections to one of the targets.
    fn matches(&self, local: SocketAddr) -> bool {
        let local = canonical(local);
        self.targets.iter().any(|target| {
            let is_wildcard = target.ip().is_unspecified() || local.ip().is_unspecified();
            target.port() == local.port() && (is_wildcard || target.ip() == local.ip())
        })
    }

    fn sockets(&self, states: &[TcpState]) -> Result<Vec<TcpSocket>, Error> {
        let mut all = tcp_sockets(states)?;
        all.retain(|socket| self.matches(socket.local));
        Ok(all)
    }

    fn current(&self) -> Result<CookiesByAddress, Error> {
        let mut current = CookiesByAddress::new();
        for socket in self.sockets(&[TcpState::Listen])? {
            let cookies = current.entry(canonical(socket.local)).or_default();
            cookies.insert(socket.cookie);
        }
        Ok(current)
    }

    /// Waits for at most `limit` until the server has accepted every connection that has started. Ignores clients that
    /// do not complete their handshake within one second: they may never do so.
    pub(crate) async fn wait_until_accepted(&self, limit: Duration) -> Result<(), Error> {
        sleep(SYN_ARRIVAL_TIME).await;
        let all_accepted = poll_until(limit, || self.has_no_pending_connection());
        if !all_accepted.await? {
            tracing::warn!(
                "the server has not accepted all earlier connections; starting the command anyway"
            );
        }
        Ok(())
    }

    /// Returns whether no connection is between SYN and accept(2). The order matters: a handshake that completes in the
    /// meantime moves its connection to the accept queue, so the queue is read again. Reading the handshakes is slow,
    /// because the kernel iterates over all connections of the host.
    fn has_no_pending_connection(&self) -> Result<bool, Error> {
        Ok(self.accept_queues_are_empty()?
            && self.no_handshake_is_in_progress()?
            && self.accept_queues_are_empty()?)
    }

    fn no_handshake_is_in_progress(&self) -> Result<bool, Error> {
        let handshakes = self.sockets(&[TcpState::SynReceived])?;
        Ok(handshakes.iter().all(|socket| socket.retransmits > 0))
    }

    fn accept_queues_are_empty(&self) -> Result<bool, Error> {
        let listeners = self.sockets(&[TcpState::Listen])?;
        Ok(listeners.iter().all(|socket| socket.backlog == 0))
    }

    /// Waits until there are listening sockets, if there were any before, and until replaced sockets are closed. A
    /// socket is replaced if a new socket has the same address. Other sockets may belong to a program that keeps
    /// running.
    pub(crate) async fn wait_until_replaced(&self, limit: Duration) -> Result<(), Error> {
        if self.before.is_empty() {
            return Ok(());
        }
        if !poll_until(limit, || Ok(!self.current()?.is_empty())).await? {
            tracing::warn!("no socket is listening after the command has exited");
            return Ok(());
        }
        let closed = poll_until(CLOSE_TIMEOUT.min(limit), || {
            let current = self.current()?;
            Ok(self.before.iter().all(|(address, before)| {
                current
                    .get(address)
                    .is_none_or(|cookies| cookies.is_disjoint(before) || cookies.is_subset(before))
            }))
        });
        if !closed.await? {
            tracing::warn!(
                "the old listening sockets are still open in addition to their replacements"
            );
        }
        Ok(())
    }
}

/// Polls until `condition` returns true. Returns whether it did so within `limit`.
async fn poll_until(
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool, Error>,
) -> Result<bool, Error> {
    let started = Instant::now();
    while !condition()? {
        if started.elapsed() >= limit {
            return Ok(false);
        }
        sleep((started.elapsed() / POLL_FRACTION).clamp(MIN_POLL, MAX_POLL)).await;
    }
    Ok(true)
}
