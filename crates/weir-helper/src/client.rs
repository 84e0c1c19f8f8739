//! The caller's side of the channel.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::Poll;

use weir_model::VirtualRouter;
use weir_sys::{Channel, Message};

use crate::Error;
use crate::message::{Answer, Envelope, Reply, Request};

/// The largest list of virtual routers, in bytes.
const POLICY_MAX: u64 = 4 << 20;

/// An answer, with the virtual routers if it contains them.
pub type Answered = (Answer, Option<Vec<VirtualRouter>>);

/// The VRRP agent's connection to its helper.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    numbers: std::sync::atomic::AtomicU64,
}

impl Client {
    /// A client of the helper at the other end of the channel.
    pub const fn new(channel: Channel) -> Self {
        Self {
            channel,
            numbers: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Sends a request; returns the number of its answer.
    ///
    /// # Errors
    /// The helper has ended.
    pub fn request(&self, request: Request) -> Result<u64, Error> {
        let number = self
            .numbers
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.channel.send(&Envelope::encode(number, request), &[])?;
        Ok(number)
    }

    /// The next answer, with the virtual routers if it contains them; `None` when the helper has ended. It does not
    /// wait.
    ///
    /// # Errors
    /// The helper sent something else, or [`Error::System`].
    pub fn poll_receive(&self) -> Result<Poll<Option<Answered>>, Error> {
        match self.channel.poll_receive()? {
            Poll::Ready(message) => message.map(answered).transpose().map(Poll::Ready),
            Poll::Pending => Ok(Poll::Pending),
        }
    }
}

/// Readable when an answer has arrived or the helper has ended.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn answered(message: Message) -> Result<Answered, Error> {
    let envelope = Envelope::<Reply>::decode(&message.bytes)?;
    let routers = match (&envelope.body, message.files.into_iter().next()) {
        (Reply::Policy, Some(file)) => Some(read(file.into())?),
        _ => None,
    };
    let answer = Answer {
        number: envelope.number,
        reply: envelope.body,
    };
    Ok((answer, routers))
}

fn read(file: File) -> Result<Vec<VirtualRouter>, Error> {
    let invalid = |reason: String| Error::Message { reason };
    let mut text = String::new();
    file.take(POLICY_MAX)
        .read_to_string(&mut text)
        .map_err(|error| invalid(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))
}
