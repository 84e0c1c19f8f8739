//! The probes' side of conversations over a stream: what to send, what to make of what comes back.
//!
//! A dialogue knows neither sockets nor time. The driver connects, sends what [`Dialogue::open`] gives, hands over every piece
//! that arrives in whatever portions it arrives, and stops at the deadline. What a server may make a dialogue hold is
//! bounded: an endless answer ends as a failure.

mod http;

use weir_model::Probe;

use crate::outcome::Outcome;
use crate::target::Target;

/// What a dialogue wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// More of the answer.
    More,
    /// Send this, then hand over what comes.
    Send(Vec<u8>),
    /// It is over.
    Finished(Outcome),
}

/// One conversation.
pub trait Dialogue: Send {
    /// What the probe says first; empty = it waits for the server.
    fn open(&mut self) -> Vec<u8>;

    /// A piece of the answer.
    fn receive(&mut self, bytes: &[u8]) -> Reply;

    /// The server sends no more.
    fn end(&mut self) -> Outcome;
}

/// The conversation of a target's probe; `None` = a connection is all that it needs.
pub fn of(target: &Target) -> Option<Box<dyn Dialogue>> {
    match &target.probe {
        Probe::Tcp => None,
        Probe::Http(wanted) => Some(Box::new(http::Exchange::new(wanted, target))),
    }
}

/// Bytes of a foreign text for a status line: printable, and not many.
fn quoted(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST)]);
    let line = text.lines().next().unwrap_or_default();
    let shown: String = line
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    if line.chars().count() > MOST || line.len() < text.trim_end().len() {
        format!("\"{shown}…\"")
    } else {
        format!("\"{shown}\"")
    }
}
