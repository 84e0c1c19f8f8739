//! Implements the caller's side of the channel to the helper.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use weir_model::VirtualRouter;
use weir_sys::{Channel, Message};

use crate::Error;
use crate::message::{Envelope, NumberedReply, Reply, Request};

/// Time limit for the helper's reply to [`add_caller`]. Helpers of earlier versions do not reply.
const ADD_CALLER_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay between two attempts to receive that reply.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum size of a list of virtual routers, in bytes.
const MAX_POLICY_BYTES: u64 = 4 << 20;

/// A reply, with the attached virtual routers, if any.
pub type ReplyWithRouters = (NumberedReply, Option<Vec<VirtualRouter>>);

/// The VRRP agent's connection to its helper.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    next_number: std::sync::atomic::AtomicU64,
}

impl Client {
    /// Creates a client of the helper at the other end of the channel.
    pub const fn new(channel: Channel) -> Self {
        Self {
            channel,
            next_number: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Sends a request. Returns the number that the reply will have.
    ///
    /// # Errors
    /// Fails if the helper has exited.
    pub fn request(&self, request: Request) -> Result<u64, Error> {
        let number = self
            .next_number
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.channel.send(&Envelope::encode(number, request), &[])?;
        Ok(number)
    }

    /// Returns the next reply without waiting, with the attached virtual routers, if any; `None` = the helper has
    /// exited.
    ///
    /// # Errors
    /// Fails if the helper sent an invalid message, or the channel cannot be read.
    pub fn poll_receive(&self) -> Result<Poll<Option<ReplyWithRouters>>, Error> {
        match self.channel.poll_receive()? {
            Poll::Ready(message) => message.map(parse_reply).transpose().map(Poll::Ready),
            Poll::Pending => Ok(Poll::Pending),
        }
    }
}

/// The descriptor is readable when a reply has arrived or the helper has exited.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Makes the helper at the other end of `caller` also serve another caller. Returns the two ends of the other caller's
/// channel, the helper's end first, or `None` if the helper is of an earlier version or does not reply within a second.
/// Must be called inside a tokio runtime.
///
/// # Errors
/// Fails if the helper has exited, or the open-file limit is reached.
pub async fn add_caller(caller: &Channel) -> Result<Option<(Channel, Channel)>, Error> {
    let (helper_end, caller_end) = Channel::pair()?;
    let request = Envelope::encode(0, Request::AddCaller);
    caller.send(&request, &[helper_end.as_fd()])?;
    let deadline = Instant::now() + ADD_CALLER_TIMEOUT;
    while Instant::now() < deadline {
        if let Poll::Ready(reply) = caller_end.poll_receive()? {
            return Ok(reply.map(|_| (helper_end, caller_end)));
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(None)
}

fn parse_reply(message: Message) -> Result<ReplyWithRouters, Error> {
    let envelope = Envelope::<Reply>::decode(&message.bytes)?;
    let routers = match (&envelope.body, message.files.into_iter().next()) {
        (Reply::Policy, Some(file)) => Some(read_routers(file.into())?),
        _ => None,
    };
    let reply = NumberedReply {
        number: envelope.number,
        body: envelope.body,
    };
    Ok((reply, routers))
}

fn read_routers(file: File) -> Result<Vec<VirtualRouter>, Error> {
    let invalid = |reason: String| Error::Message { reason };
    let mut text = String::new();
    file.take(MAX_POLICY_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| invalid(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))
}
