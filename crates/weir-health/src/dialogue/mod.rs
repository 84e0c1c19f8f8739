//! Implements the client side of the probe protocols over a stream, without I/O.
//!
//! A dialogue provides the bytes to send, and evaluates received bytes.
//!
//! A dialogue uses neither sockets nor clocks. The driver connects, sends the bytes that [`Dialogue::open`] returns,
//! passes received bytes in pieces of any size, and stops at the deadline. A dialogue limits the number of bytes that
//! it buffers: an endless response is a failure.

mod agent;
mod exchange;
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

/// The next action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Receive more bytes.
    More,
    /// Send these bytes, then receive more bytes.
    Send(Vec<u8>),
    /// The probe is complete.
    Finished(Outcome),
}

/// The protocol exchange of one probe.
pub trait Dialogue: Send {
    /// Returns the first bytes to send; empty if the server sends first.
    fn open(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Processes received bytes.
    fn receive(&mut self, bytes: &[u8]) -> Reply;

    /// Returns the outcome if the server closes the connection now.
    fn end(&mut self) -> Outcome;

    /// Returns the bytes to send before closing the connection.
    fn quit_message(&self) -> &'static [u8] {
        b""
    }
}

/// Returns the dialogue of a target's probe, or `None` if the probe only connects or does not use a stream.
pub fn for_target(target: &Target) -> Option<Box<dyn Dialogue>> {
    match &target.probe {
        Probe::Smtp { helo } => Some(Box::new(smtp::Session::new(helo))),
        Probe::Redis => Some(Box::new(redis::Ping::default())),
        Probe::Mysql { user } => Some(Box::new(mysql::Login::new(user))),
        Probe::Postgres { user } => Some(Box::new(postgres::Startup::new(user))),
        Probe::Agent { send } => Some(Box::new(agent::Agent::new(send.as_deref()))),
        Probe::Exchange(steps) => Some(Box::new(exchange::Exchange::new(steps))),
        Probe::Tcp
        | Probe::Dns { .. }
        | Probe::Udp { .. }
        | Probe::Ping
        | Probe::Script(_)
        | Probe::File { .. } => None,
        Probe::Grpc { service } => Some(Box::new(grpc::Check::new(service, target))),
        Probe::Http(expected) => Some(Box::new(http::Exchange::new(expected, target))),
    }
}

/// Returns the first line of received bytes in quotes, for a message: escaped, at most 40 characters.
fn quote_first_line(bytes: &[u8]) -> String {
    const MAX_CHARS: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_CHARS)]);
    let line = text.lines().next().unwrap_or_default();
    let escaped: String = line
        .chars()
        .take(MAX_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    if line.chars().count() > MAX_CHARS || line.len() < text.trim_end().len() {
        format!("\"{escaped}…\"")
    } else {
        format!("\"{escaped}\"")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs a dialogue with a server that responds to each message, in pieces of 1 to 40 bytes. All piece sizes must
    /// produce the same outcome. An empty response closes the connection.
    pub(crate) fn outcome_of<D: Dialogue>(
        dialogue: impl Fn() -> D,
        server: impl Fn(&[u8]) -> &'static [u8],
    ) -> String {
        let mut last_text: Option<String> = None;
        for piece_size in 1..=40 {
            let outcome = converse(&mut dialogue(), &server, piece_size);
            let text = format!("{:?}: {}", outcome.verdict, outcome.note);
            if let Some(previous) = &last_text {
                assert_eq!(*previous, text, "in pieces of {piece_size} bytes");
            }
            last_text = Some(text);
        }
        last_text.unwrap_or_default()
    }

    #[test]
    fn each_stream_probe_has_a_dialogue() {
        let user = || "u".to_owned();
        let quit = b"\x01\0\0\0\x01";
        let step = weir_model::ExchangeStep {
            send: "PING\r\n".to_owned(),
            expect: "+PONG".to_owned(),
            regex: None,
        };
        for (probe, opens_with, quits_with) in [
            (Probe::Redis, &b"*1\r\n$4\r\nPING"[..], &b""[..]),
            (Probe::Smtp { helo: user() }, b"", b"QUIT\r\n"),
            (Probe::Mysql { user: user() }, b"", quit),
            (
                Probe::Postgres { user: user() },
                b"\0\0\0\x10\0\x03\0\0user\0u",
                b"",
            ),
            (Probe::Agent { send: Some(user()) }, b"u", b""),
            (Probe::Http(Box::default()), b"GET / HTTP/1.1\r\n", b""),
            (Probe::Grpc { service: user() }, b"PRI * HTTP/2.0", b""),
            (Probe::Exchange(vec![step]), b"PING", b""),
        ] {
            let server = weir_model::Server::new("s", [10, 0, 0, 1].into(), None);
            let check = weir_model::Check::new(probe);
            let target = Target::new(&check, &server, Some(80));
            let mut dialogue = for_target(&target).expect("probe has a dialogue");
            assert!(
                dialogue.open().starts_with(opens_with),
                "{:?}",
                target.probe
            );
            assert_eq!(dialogue.quit_message(), quits_with, "{:?}", target.probe);
        }
        for probe in [Probe::Tcp, Probe::Ping] {
            let server = weir_model::Server::new("s", [10, 0, 0, 1].into(), None);
            let target = Target::new(&weir_model::Check::new(probe), &server, None);
            assert!(for_target(&target).is_none());
        }
    }

    #[test]
    fn quoted_text_is_one_short_line() {
        let (exact, long) = ("x".repeat(40), "x".repeat(41));
        for (bytes, expected) in [
            (&b""[..], "\"\"".to_owned()),
            (b"a\tb\r\n", "\"a\\tb\"".to_owned()),
            (b"a\nb", "\"a…\"".to_owned()),
            (exact.as_bytes(), format!("\"{exact}\"")),
            (long.as_bytes(), format!("\"{exact}…\"")),
            (&[0xff], "\"\u{fffd}\"".to_owned()),
        ] {
            assert_eq!(quote_first_line(bytes), expected);
        }
    }

    /// Runs a dialogue with a server that sends its responses in pieces of this size.
    fn converse(
        dialogue: &mut dyn Dialogue,
        server: &impl Fn(&[u8]) -> &'static [u8],
        piece_size: usize,
    ) -> Outcome {
        let mut sent = dialogue.open();
        for _ in 0..8 {
            let mut to_send = None;
            for piece in server(&sent).chunks(piece_size) {
                match dialogue.receive(piece) {
                    Reply::More => {}
                    Reply::Send(bytes) => to_send = Some(bytes),
                    Reply::Finished(outcome) => return outcome,
                }
            }
            match to_send {
                Some(bytes) => sent = bytes,
                None => return dialogue.end(),
            }
        }
        panic!("the dialogue does not end");
    }
}
