//! Receives the helper's responses on the agent's real-time thread.
//!
//! A separate reader thread would run at normal priority, which would delay the announcement of addresses on a busy
//! machine.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use weir_helper::{Client, ReplyWithRouters};

use crate::Error;

/// Receiver of the helper's responses.
#[derive(Debug)]
pub(super) struct ReplyReceiver {
    client: Arc<Client>,
    ready: AsyncFd<OwnedFd>,
}

impl ReplyReceiver {
    /// Starts watching the channel of `client`.
    ///
    /// # Errors
    /// Returns an error if the channel cannot be watched.
    #[expect(
        deprecated,
        reason = "the alternatives are unsafe; the descriptor is owned while it is registered"
    )]
    pub(super) fn new(client: &Arc<Client>) -> Result<Self, Error> {
        let descriptor = client
            .as_fd()
            .try_clone_to_owned()
            .and_then(|file| AsyncFd::with_interest(file, Interest::READABLE));
        Ok(Self {
            client: Arc::clone(client),
            ready: descriptor.map_err(Error::Channel)?,
        })
    }

    /// Returns the next response, or `None` if the helper has exited or the channel cannot be read. Cancel-safe.
    pub(super) async fn next(&self) -> Option<ReplyWithRouters> {
        loop {
            let mut guard = self.ready.readable().await.ok()?;
            match self.client.poll_receive() {
                Ok(Poll::Ready(reply)) => return reply,
                Ok(Poll::Pending) => guard.clear_ready(),
                Err(weir_helper::Error::System(error)) => {
                    tracing::error!(%error, "failed to read the helper's responses");
                    return None;
                }
                Err(error) => tracing::error!(%error, "invalid response from the helper"),
            }
        }
    }
}
