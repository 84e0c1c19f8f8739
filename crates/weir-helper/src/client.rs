//! The caller's side of the channel.

use std::fs::File;
use std::io::Read;

use weir_model::VirtualRouter;
use weir_sys::Channel;

use crate::message::{Answer, Envelope, Reply, Request};
use crate::{Error, message};

/// The largest list of virtual routers, in bytes.
const POLICY_MAX: u64 = 4 << 20;

/// An answer, with the virtual routers if it contains them.
pub type Answered = (Answer, Option<Vec<VirtualRouter>>);

/// See the module.
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

    /// Waits for the next answer, with the virtual routers if it contains them. `None` when the helper has ended.
    ///
    /// # Errors
    /// The helper sent something else.
    pub fn receive(&self) -> Result<Option<Answered>, Error> {
        let Some(received) = self.channel.receive()? else {
            return Ok(None);
        };
        let envelope = Envelope::<Reply>::decode(&received.bytes)?;
        let routers = match (&envelope.body, received.files.into_iter().next()) {
            (Reply::Policy, Some(file)) => Some(read(file.into())?),
            _ => None,
        };
        let answer = message::Answer {
            number: envelope.number,
            reply: envelope.body,
        };
        Ok(Some((answer, routers)))
    }
}

fn read(file: File) -> Result<Vec<VirtualRouter>, Error> {
    let invalid = |reason: String| Error::Message { reason };
    let mut text = String::new();
    file.take(POLICY_MAX)
        .read_to_string(&mut text)
        .map_err(|error| invalid(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))
}
