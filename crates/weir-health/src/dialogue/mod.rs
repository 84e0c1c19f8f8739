//! The probes' side of conversations over a stream: what to send, what to make of what comes back.
//!
//! A dialogue knows neither sockets nor time. The driver connects, sends what [`Dialogue::open`] gives, hands over every piece
//! that arrives in whatever portions it arrives, and stops at the deadline. What a server may make a dialogue hold is
//! bounded: an endless answer ends as a failure.

mod agent;
mod grpc;
mod http;
mod line;
mod mysql;
mod postgres;
mod redis;
mod smtp;

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

    /// What the probe says before it leaves.
    fn farewell(&self) -> &'static [u8] {
        b""
    }
}

/// The conversation of a target's probe; `None` = a connection is all that it needs.
pub fn of(target: &Target) -> Option<Box<dyn Dialogue>> {
    match &target.probe {
        Probe::Smtp { helo } => Some(Box::new(smtp::Conversation::new(helo))),
        Probe::Redis => Some(Box::new(redis::Ping::default())),
        Probe::Mysql { user } => Some(Box::new(mysql::Login::new(user))),
        Probe::Postgres { user } => Some(Box::new(postgres::Startup::new(user))),
        Probe::Agent { send } => Some(Box::new(agent::Agent::new(send.as_deref()))),
        Probe::Tcp
        | Probe::Dns { .. }
        | Probe::Udp { .. }
        | Probe::Ping
        | Probe::Script(_)
        | Probe::File { .. } => None,
        Probe::Grpc { service } => Some(Box::new(grpc::Check::new(service, target))),
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A whole conversation with a server that answers each thing said, in every portion from single bytes to all at once; all
    /// must come to the same. What stays without an answer is closed.
    pub(crate) fn told<D: Dialogue>(
        dialogue: impl Fn() -> D,
        server: impl Fn(&[u8]) -> &'static [u8],
    ) -> String {
        let mut said: Option<String> = None;
        for portion in 1..=40 {
            let outcome = converse(&mut dialogue(), &server, portion);
            let text = format!("{:?}: {}", outcome.verdict, outcome.note);
            if let Some(before) = &said {
                assert_eq!(*before, text, "in portions of {portion}");
            }
            said = Some(text);
        }
        said.unwrap_or_default()
    }

    fn converse(
        dialogue: &mut dyn Dialogue,
        server: &impl Fn(&[u8]) -> &'static [u8],
        portion: usize,
    ) -> Outcome {
        let mut sent = dialogue.open();
        for _ in 0..8 {
            let mut next = None;
            for piece in server(&sent).chunks(portion) {
                match dialogue.receive(piece) {
                    Reply::More => {}
                    Reply::Send(bytes) => next = Some(bytes),
                    Reply::Finished(outcome) => return outcome,
                }
            }
            match next {
                Some(bytes) => sent = bytes,
                None => return dialogue.end(),
            }
        }
        panic!("a conversation without an end");
    }
}
