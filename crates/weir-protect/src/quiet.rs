//! Decides when a server may be replaced (no connection is between SYN and accept(2)), and when it has been replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use weir_netlink::{TcpSocket, TcpState, tcp_sockets};

use crate::error::Error;

/// The polling interval is a fraction of the time waited so far, so that polling adds little to it.
const POLL_FRACTION: u32 = 8;
const POLL_MIN: Duration = Duration::from_micros(500);
const POLL_MAX: Duration = Duration::from_millis(10);

/// Within this time a SYN that passed before holding began has reached its socket.
const ARRIVAL: Duration = Duration::from_millis(1);

/// Within this time a replaced socket is expected to close: its owner has been signalled and only has to get a CPU.
const CLOSING: Duration = Duration::from_secs(2);

/// All listening sockets' addresses.
pub(crate) fn listening() -> Result<Vec<SocketAddr>, Error> {
    let all = tcp_sockets(&[TcpState::Listen])?;
    Ok(all.iter().map(|socket| canonical(socket.local)).collect())
}

/// An IPv4-mapped IPv6 address becomes IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Cookies of the listening sockets, by address.
type ByAddress = BTreeMap<SocketAddr, BTreeSet<u64>>;

/// The sockets that the command may replace.
#[derive(Debug)]
pub(crate) struct Listeners {
    to: Vec<SocketAddr>,
    before: ByAddress,
}

impl Listeners {
    /// Those at `to`, before the command runs.
    pub(crate) fn of(to: &[SocketAddr]) -> Result<Self, Error> {
        let mut listeners = Self {
            to: to.to_vec(),
            before: ByAddress::new(),
        };
        listeners.before = listeners.now()?;
        Ok(listeners)
    }

    fn concerns(&self, local: SocketAddr) -> bool {
        let local = canonical(local);
        self.to.iter().any(|to| {
            let any = to.ip().is_unspecified() || local.ip().is_unspecified();
            to.port() == local.port() && (any || to.ip() == local.ip())
        })
    }

    fn sockets(&self, states: &[TcpState]) -> Result<Vec<TcpSocket>, Error> {
        let mut all = tcp_sockets(states)?;
        all.retain(|socket| self.concerns(socket.local));
        Ok(all)
    }

    fn now(&self) -> Result<ByAddress, Error> {
        let mut now = ByAddress::new();
        for socket in self.sockets(&[TcpState::Listen])? {
            let there = now.entry(canonical(socket.local)).or_default();
            there.insert(socket.cookie);
        }
        Ok(now)
    }

    /// Waits until every connection that has begun is accepted. A client that has not answered within the first second
    /// is ignored: it may never answer.
    pub(crate) async fn accepted(&self, limit: Duration) -> Result<(), Error> {
        sleep(ARRIVAL).await;
        let quiet = poll_until(limit, || self.is_quiet());
        if !quiet.await? {
            tracing::warn!("connections are not accepted; continuing without waiting for them");
        }
        Ok(())
    }

    /// Whether no connection is between SYN and accept(2). The order matters: a handshake that completes meanwhile
    /// moves its connection from the handshakes to the accept queue, which is therefore read again. Reading handshakes
    /// is the slow part: the kernel walks all connections of the host.
    fn is_quiet(&self) -> Result<bool, Error> {
        Ok(self.is_accepted()? && self.is_answered()? && self.is_accepted()?)
    }

    /// Whether no handshake is in progress.
    fn is_answered(&self) -> Result<bool, Error> {
        let begun = self.sockets(&[TcpState::SynReceived])?;
        Ok(begun.iter().all(|socket| socket.retransmits > 0))
    }

    /// Whether no connection waits for accept(2).
    fn is_accepted(&self) -> Result<bool, Error> {
        let listening = self.sockets(&[TcpState::Listen])?;
        Ok(listening.iter().all(|socket| socket.waiting == 0))
    }

    /// Waits until there are listening sockets, if there were before, and until sockets that have a successor are
    /// closed. A socket at another address may be another program's, which keeps running.
    pub(crate) async fn replaced(&self, limit: Duration) -> Result<(), Error> {
        if self.before.is_empty() {
            return Ok(());
        }
        if !poll_until(limit, || Ok(!self.now()?.is_empty())).await? {
            tracing::warn!("no listening socket after the command");
            return Ok(());
        }
        let gone = poll_until(CLOSING.min(limit), || {
            let now = self.now()?;
            Ok(self.before.iter().all(|(address, before)| {
                now.get(address)
                    .is_none_or(|now| now.is_disjoint(before) || now.is_subset(before))
            }))
        });
        if !gone.await? {
            tracing::warn!("sockets from before the command are still open next to new ones");
        }
        Ok(())
    }
}

/// Polls until `condition` holds; returns whether it did within `limit`.
async fn poll_until(
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool, Error>,
) -> Result<bool, Error> {
    let begun = Instant::now();
    while !condition()? {
        if begun.elapsed() >= limit {
            return Ok(false);
        }
        sleep((begun.elapsed() / POLL_FRACTION).clamp(POLL_MIN, POLL_MAX)).await;
    }
    Ok(true)
}
