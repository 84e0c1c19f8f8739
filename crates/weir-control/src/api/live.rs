//! Endpoints that watch the running daemon: `/v1/log`, `/v1/tap/SERVICE`.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use hyper::body::Frame;
use tokio::sync::mpsc;
use weir_proxy::tap::{Match, Tap, TapError};

use super::message::Refusal;
use super::{Answered, Failure, json, read};
use crate::log_filter::{self, Filter};

/// Interval at which a tap is read.
const TAP_INTERVAL: Duration = Duration::from_millis(100);

/// Parts of a tap's answer that may wait for the client.
const TAP_PARTS: usize = 4;

/// `GET /v1/log`.
pub(super) async fn log() -> Answered {
    let filter = log_filter::active().ok_or_else(|| Refusal::new("this process has no log"))?;
    Ok(json(&filter))
}

/// `POST /v1/log`.
pub(super) async fn set_log(body: Body) -> Answered {
    let filter: Filter = read(body).await?;
    log_filter::change(&filter).map_err(Refusal::new)?;
    Ok(json(&filter))
}

/// `GET /v1/tap/SERVICE?json&match=NAME=PATTERN&match=…`: lines until the client disconnects.
pub(super) async fn tap(Path(service): Path<String>, RawQuery(query): RawQuery) -> Answered {
    let (is_json, matches) = parse(query.as_deref().unwrap_or_default())?;
    let tap = Tap::open(&service, is_json, matches).map_err(|error| {
        let status = match error {
            TapError::UnknownService => StatusCode::NOT_FOUND,
            TapError::TooMany => StatusCode::SERVICE_UNAVAILABLE,
        };
        Failure::new(status, format!("{service}: {error}"))
    })?;
    let (sender, parts) = mpsc::channel(TAP_PARTS);
    tokio::spawn(copy(tap, sender));
    let kind = if is_json {
        "application/x-ndjson"
    } else {
        "text/plain; charset=utf-8"
    };
    let body = Body::new(Parts(parts));
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// Reads the parameters of a tap.
fn parse(query: &str) -> Result<(bool, Vec<Match>), Failure> {
    let (mut is_json, mut matches) = (false, Vec::new());
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            None if part == "json" => is_json = true,
            Some(("match", text)) => {
                let text = decoded(text);
                matches.push(Match::parse(&text).map_err(Refusal::new)?);
            }
            _ => return Err(Refusal::new(format!("unknown parameter `{part}`")).into()),
        }
    }
    Ok((is_json, matches))
}

/// Decodes `%NN`; other text stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        (rest, _) = match code.filter(|_| *first == b'%') {
            Some(code) => (&after[2..], bytes.push(code)),
            None => (after, bytes.push(*first)),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends the lines of a tap until the client or the service is gone.
async fn copy(mut tap: Tap, to: mpsc::Sender<Bytes>) {
    loop {
        let mut lines = Vec::new();
        let goes_on = tap.read(&mut lines);
        if !lines.is_empty() && to.send(lines.into()).await.is_err() {
            return;
        }
        if !goes_on {
            return;
        }
        tokio::select! {
            () = to.closed() => return,
            () = tokio::time::sleep(TAP_INTERVAL) => {}
        }
    }
}

/// A body of unknown length.
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
    fn parameters_of_a_tap_are_read() {
        let (is_json, matches) = parse("json&match=status%3D5*&match=target=/a%20b")
            .ok()
            .unwrap();
        assert!(is_json);
        let expected = ["status=5*", "target=/a b"].map(|text| Match::parse(text).unwrap());
        assert_eq!(matches, expected);
        assert!(parse("match=nothing").is_err() && parse("x=1").is_err());
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }
}
