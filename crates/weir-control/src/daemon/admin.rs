//! The TCP side of the API, `[node] admin`, which a reload may move.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::Error;
use crate::api::{self, Access, Orders, Token};

/// The listener in force.
#[derive(Debug)]
pub struct Admin {
    orders: Orders,
    token: Token,
    listening: Option<(SocketAddr, JoinHandle<()>)>,
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
    pub const fn new(orders: Orders, token: Token) -> Self {
        Self {
            orders,
            token,
            listening: None,
        }
    }

    /// Takes the new address before anything else of a configuration takes effect, since this can fail.
    ///
    /// # Errors
    /// [`Error::Admin`].
    pub async fn prepare(&self, address: Option<SocketAddr>) -> Result<Move, Error> {
        if self.listening.as_ref().map(|(address, _)| *address) == address {
            return Ok(Move::Stay);
        }
        let Some(address) = address else {
            return Ok(Move::To(None));
        };
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|source| Error::Admin { address, source })?;
        Ok(Move::To(Some((address, listener))))
    }

    /// Carries a move out.
    pub fn go(&mut self, to: Move) {
        let Move::To(to) = to else { return };
        if let Some((_, task)) = self.listening.take() {
            task.abort();
        }
        self.listening = to.map(|(address, listener)| {
            let router = api::router(self.orders.clone(), &Access::Token(self.token.clone()));
            tracing::info!(%address, "admin listens");
            (address, tokio::spawn(api::serve(listener, router)))
        });
    }
}
