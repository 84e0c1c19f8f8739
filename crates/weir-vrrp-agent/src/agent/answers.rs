//! The helper's answers, read by the agent's own thread: a thread that only reads them would run at normal priority,
//! so that on a busy machine the addresses were announced late.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use weir_helper::{Answered, Client};

use crate::Error;

/// Reads the helper's answers in the agent's own thread.
#[derive(Debug)]
pub(super) struct Answers {
    client: Arc<Client>,
    ready: AsyncFd<OwnedFd>,
}

impl Answers {
    /// # Errors
    /// The channel cannot be watched.
    #[expect(
        deprecated,
        reason = "the others are unsafe; the descriptor is owned for as long as it is registered"
    )]
    pub(super) fn of(client: &Arc<Client>) -> Result<Self, Error> {
        let watched = client
            .as_fd()
            .try_clone_to_owned()
            .and_then(|file| AsyncFd::with_interest(file, Interest::READABLE));
        Ok(Self {
            client: Arc::clone(client),
            ready: watched.map_err(Error::Channel)?,
        })
    }

    /// The next answer; `None` = the helper has ended. Cancel-safe.
    pub(super) async fn next(&self) -> Option<Answered> {
        loop {
            let mut guard = self.ready.readable().await.ok()?;
            match self.client.poll_receive() {
                Ok(Poll::Ready(answer)) => return answer,
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
