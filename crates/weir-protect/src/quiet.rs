//! When a server may be replaced: nobody stands between its SYN and its accept(2); and when it has been.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use weir_netlink::{TcpSocket, TcpState, tcp_sockets};

use crate::Error;

/// How long one looks away: a part of what has been waited already, so that little is added to it.
const LOOK_PART: u32 = 8;
const LOOK_LEAST: Duration = Duration::from_micros(500);
const LOOK_MOST: Duration = Duration::from_millis(10);

/// In this time a SYN that passed before SYNs were held has come to its place.
const ARRIVAL: Duration = Duration::from_millis(1);

/// How long a socket that a new one stands beside is expected to go: its owner has been told, and closing is all it
/// does, once it is given a CPU.
const CLOSING: Duration = Duration::from_secs(2);

/// What listens now, whatever its address.
pub(crate) fn listening() -> Result<Vec<SocketAddr>, Error> {
    let all = tcp_sockets(&[TcpState::Listen])?;
    Ok(all.iter().map(|socket| canonical(socket.local)).collect())
}

/// IPv4 by an IPv6 socket is IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What listens, by address: the kernel's numbers of the sockets (cookies).
type ByAddress = BTreeMap<SocketAddr, BTreeSet<u64>>;

/// The sockets that the command may replace.
#[derive(Debug)]
pub(crate) struct Listeners {
    to: Vec<SocketAddr>,
    before: ByAddress,
}

impl Listeners {
    /// Those at `to`, as they are before the command.
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

    /// Waits until every connection that has begun is accepted. A client that did not answer within the first second is
    /// not waited for: it may never.
    pub(crate) async fn accepted(&self, limit: Duration) -> Result<(), Error> {
        sleep(ARRIVAL).await;
        let quiet = looking(limit, || self.is_quiet());
        if !quiet.await? {
            tracing::warn!("connections that nobody accepts are not waited for any longer");
        }
        Ok(())
    }

    /// Whether nobody stands between SYN and accept(2). The order matters: a handshake that ends meanwhile moves its
    /// connection from the second place to the third, which is the first again. Only the second costs time: the kernel
    /// walks through all connections of the host for it.
    fn is_quiet(&self) -> Result<bool, Error> {
        Ok(self.is_accepted()? && self.is_answered()? && self.is_accepted()?)
    }

    /// Whether no handshake is under way.
    fn is_answered(&self) -> Result<bool, Error> {
        let begun = self.sockets(&[TcpState::SynReceived])?;
        Ok(begun.iter().all(|socket| socket.retransmits > 0))
    }

    /// Whether no connection waits for accept(2).
    fn is_accepted(&self) -> Result<bool, Error> {
        let listening = self.sockets(&[TcpState::Listen])?;
        Ok(listening.iter().all(|socket| socket.waiting == 0))
    }

    /// Waits until somebody listens, if somebody did, and until sockets that have a successor are gone; what listens at
    /// another address may be another program's, which goes on.
    pub(crate) async fn replaced(&self, limit: Duration) -> Result<(), Error> {
        if self.before.is_empty() {
            return Ok(());
        }
        if !looking(limit, || Ok(!self.now()?.is_empty())).await? {
            tracing::warn!("nobody listens after the command");
            return Ok(());
        }
        let gone = looking(CLOSING.min(limit), || {
            let now = self.now()?;
            Ok(self.before.iter().all(|(address, before)| {
                now.get(address)
                    .is_none_or(|now| now.is_disjoint(before) || now.is_subset(before))
            }))
        });
        if !gone.await? {
            tracing::warn!("sockets of before the command still stand beside new ones");
        }
        Ok(())
    }
}

/// Looks until `condition` holds; whether it did within `limit`.
async fn looking(
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool, Error>,
) -> Result<bool, Error> {
    let begun = Instant::now();
    while !condition()? {
        if begun.elapsed() >= limit {
            return Ok(false);
        }
        sleep((begun.elapsed() / LOOK_PART).clamp(LOOK_LEAST, LOOK_MOST)).await;
    }
    Ok(true)
}
