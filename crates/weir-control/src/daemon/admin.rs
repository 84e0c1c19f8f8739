//! The TCP side of the API, `[node] admin`, which a reload may move.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::Error;
use crate::api::{self, Access, Orders, Token};
use crate::keeper::{Kept, Link};

/// The kind of socket, for the keeper.
const SOCKETS: &str = "admin";

/// The listener in force.
#[derive(Debug)]
pub struct Admin {
    orders: Orders,
    token: Token,
    listening: Option<(SocketAddr, JoinHandle<()>)>,
    keeper: Link,
    /// Sockets that an earlier daemon left.
    left: Vec<(SocketAddr, OwnedFd)>,
}

/// A move that is certain to succeed.
#[derive(Debug)]
pub enum Move {
    /// The address stays.
    Stay,
    /// To another address, or to none.
    To(Option<(SocketAddr, TcpListener)>),
}

impl Admin {
    /// Listening nowhere.
    pub fn new(orders: Orders, token: Token, kept: &mut Kept) -> Self {
        Self {
            orders,
            token,
            listening: None,
            keeper: kept.link.clone(),
            left: kept.take(SOCKETS),
        }
    }

    /// Takes the new address before anything else of a configuration takes effect, since this can fail.
    ///
    /// # Errors
    /// [`Error::Admin`].
    pub async fn prepare(&mut self, address: Option<SocketAddr>) -> Result<Move, Error> {
        if self.listening.as_ref().map(|(address, _)| *address) == address {
            return Ok(Move::Stay);
        }
        let Some(address) = address else {
            return Ok(Move::To(None));
        };
        let failed = |source| Error::Admin { address, source };
        let left = self.left.iter().position(|(left, _)| *left == address);
        let listener = match left.map(|at| self.left.swap_remove(at)) {
            Some((_, socket)) => {
                let socket = std::net::TcpListener::from(socket);
                socket.set_nonblocking(true).map_err(failed)?;
                TcpListener::from_std(socket).map_err(failed)?
            }
            None => TcpListener::bind(address).await.map_err(failed)?,
        };
        Ok(Move::To(Some((address, listener))))
    }

    /// Takes no further clients; another process does, by the same socket.
    pub fn leave(self) {
        if let Some((_, task)) = self.listening {
            task.abort();
        }
    }

    /// Carries a move out.
    pub fn go(&mut self, to: Move) {
        for (address, _) in std::mem::take(&mut self.left) {
            self.keeper.forget(SOCKETS, address, 0);
        }
        let Move::To(to) = to else { return };
        if let Some((address, task)) = self.listening.take() {
            task.abort();
            self.keeper.forget(SOCKETS, address, 0);
        }
        self.listening = to.map(|(address, listener)| {
            let router = api::router(self.orders.clone(), &Access::Token(self.token.clone()));
            tracing::info!(%address, "admin listens");
            self.keeper.keep(SOCKETS, address, 0, listener.as_fd());
            (address, tokio::spawn(api::serve(listener, router)))
        });
    }
}
