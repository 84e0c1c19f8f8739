//! Parses the parameters of `/v1/tap/SERVICE`, and creates the response body.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use percent_encoding::percent_decode_str;
use tokio::sync::mpsc;
use weir_proxy::tap::{Match, Tap};

/// Interval at which a tap is read.
const TAP_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of body parts that are queued for the client.
const MAX_TAP_PARTS: usize = 4;

/// Returns a body with a tap's lines. The body ends when the client disconnects or the service is removed.
pub(super) fn body(tap: Tap) -> Body {
    let (sender, parts) = mpsc::channel(MAX_TAP_PARTS);
    tokio::spawn(copy(tap, sender));
    Body::new(Parts(parts))
}

/// Parses the parameters of a tap: whether the lines are JSON, and the conditions.
pub(super) fn parse(query: &str) -> Result<(bool, Vec<Match>), String> {
    let (mut is_json, mut matches) = (false, Vec::new());
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            None if part == "json" => is_json = true,
            Some(("json", "" | "true")) => is_json = true,
            Some(("json", "false")) => is_json = false,
            Some(("match", text)) => {
                let text = percent_decode_str(text).decode_utf8_lossy();
                matches.push(Match::parse(&text)?);
            }
            _ => return Err(format!("invalid parameter `{part}`")),
        }
    }
    Ok((is_json, matches))
}

/// Sends a tap's lines to the body until the client disconnects or the service is removed.
async fn copy(mut tap: Tap, sender: mpsc::Sender<Bytes>) {
    loop {
        let mut lines = Vec::new();
        let service_exists = tap.read(&mut lines);
        if !lines.is_empty() && sender.send(lines.into()).await.is_err() {
            return;
        }
        if !service_exists {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(TAP_INTERVAL) => {}
        }
    }
}

/// A response body of unknown length.
struct Parts(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tap_parameters_are_parsed() {
        let (is_json, matches) = parse("json&match=status%3D5*&match=target=/a%20b")
            .ok()
            .unwrap();
        assert!(is_json);
        let expected = ["status=5*", "target=/a b"].map(|text| Match::parse(text).unwrap());
        assert_eq!(matches, expected);
        assert!(parse("match=nothing").is_err() && parse("x=1").is_err());
        let (_, matches) = parse("match=host=%zz%4%+1").ok().unwrap();
        assert_eq!(matches, [Match::parse("host=%zz%4%+1").unwrap()]);
        for (query, expected) in [("json=true", true), ("json=", true), ("json=false", false)] {
            assert_eq!(
                parse(query).ok().map(|(is_json, _)| is_json),
                Some(expected),
                "{query}"
            );
        }
        assert!(parse("json=yes").is_err());
    }
}
