//! Implements HTTP/1 checks (RFC 9112): sends one request, and checks the status and body of the response.
//!
//! Redirects are not followed. Interim responses (1xx except 101) are skipped.

mod body;

use std::fmt::Write as _;
use std::net::IpAddr;

use md5::Md5;
use sha2::{Digest as _, Sha256};
use weir_model::{Digest, Http};

use super::{Dialogue, Reply, quote_first_line};
use crate::outcome::{Outcome, Verdict};
use crate::target::Target;

use body::Body;

/// Maximum length of the status line and the header fields, in bytes.
const HEAD_MAX_BYTES: usize = 64 << 10;

/// Maximum number of body bytes that are examined.
const BODY_MAX_BYTES: usize = 1 << 20;

/// The state of an HTTP check.
#[derive(Debug)]
pub(super) struct Exchange {
    request: Vec<u8>,
    expected: Http,
    head: Vec<u8>,
    status: Option<u16>,
    body: Body,
    /// Whether the body contains the expected string.
    has_text: bool,
}

impl Exchange {
    pub(super) fn new(expected: &Http, target: &Target) -> Self {
        Self {
            request: build_request(expected, target),
            expected: expected.clone(),
            head: Vec::new(),
            status: None,
            body: Body::default(),
            has_text: false,
        }
    }

    /// Searches for the end of the header, beginning at offset `start`, and evaluates the header.
    fn receive_head(&mut self, start: usize) -> Reply {
        const START: &[u8] = b"HTTP/1.";
        if self.head.len() >= START.len() && !self.head.starts_with(START) {
            return finish_with(not_http(&self.head[..START.len()]));
        }
        let Some(end) = find_bytes(&self.head[start..], b"\r\n\r\n") else {
            if self.head.len() > HEAD_MAX_BYTES {
                return finish_with(Outcome::failed("header too long"));
            }
            return Reply::More;
        };
        let end = start + end;
        let body_bytes = self.head.split_off(end + 4);
        let Some(status) = parse_status(&self.head) else {
            return finish_with(not_http(&self.head));
        };
        if (100..200).contains(&status) && status != 101 {
            self.head = body_bytes;
            return self.receive_head(0);
        }
        self.status = Some(status);
        let expected = &self.expected.status;
        if !expected
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&status))
        {
            let expected = format_ranges(expected);
            let text = format!("http {status}, expected {expected}");
            return finish_with(Outcome::failed(text));
        }
        if !self.needs_body() {
            return finish_with(Outcome::passed(format!("http {status}")));
        }
        let fields = String::from_utf8_lossy(&self.head).into_owned();
        let field = |name: &str| {
            let lines = fields
                .lines()
                .skip(1)
                .filter_map(|line| line.split_once(':'));
            let mut matching = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
            matching
                .next()
                .map(|(_, value)| value.trim().to_ascii_lowercase())
        };
        self.body.chunked =
            field("transfer-encoding").is_some_and(|coding| coding.ends_with("chunked"));
        self.body.length = field("content-length").and_then(|length| length.parse().ok());
        if self.expected.method == "HEAD" || matches!(status, 204 | 304) {
            // These responses have no body, even with `Transfer-Encoding` (RFC 9112 section 6.3).
            (self.body.chunked, self.body.length) = (false, Some(0));
        }
        self.receive_body(&body_bytes)
    }

    const fn needs_body(&self) -> bool {
        let expected = &self.expected;
        expected.contains.is_some() || self.needs_complete_body()
    }

    /// Returns whether the check needs the complete body, instead of only a string in it.
    const fn needs_complete_body(&self) -> bool {
        let expected = &self.expected;
        expected.pattern.is_some() || expected.without.is_some() || expected.digest.is_some()
    }

    fn receive_body(&mut self, bytes: &[u8]) -> Reply {
        let text = self.expected.contains.as_deref().unwrap_or_default();
        let start = self.body.decoded.len().saturating_sub(text.len());
        if let Err(reason) = self.body.push(bytes) {
            return finish_with(Outcome::failed(reason));
        }
        self.has_text |= find_bytes(&self.body.decoded[start..], text.as_bytes()).is_some();
        if self.body.complete || (self.has_text && !self.needs_complete_body()) {
            finish_with(self.evaluate())
        } else if self.body.raw.len() > BODY_MAX_BYTES {
            finish_with(self.evaluate_prefix())
        } else {
            Reply::More
        }
    }

    /// Evaluates the received part of the body, which is complete unless its beginning is sufficient.
    fn evaluate(&self) -> Outcome {
        let status = self.status.unwrap_or(0);
        let expected = &self.expected;
        let text = expected.contains.as_deref().unwrap_or_default();
        let decoded = &self.body.decoded;
        if !self.has_text {
            let text = text.escape_debug();
            return Outcome::failed(format!("http {status}, body does not contain \"{text}\""));
        }
        if let Some(pattern) = expected.pattern.as_ref().filter(|it| !it.matches(decoded)) {
            return Outcome::failed(format!("http {status}, body does not match {pattern}"));
        }
        if let Some(pattern) = expected.without.as_ref().filter(|it| it.matches(decoded)) {
            return Outcome::failed(format!("http {status}, body matches {pattern}"));
        }
        match expected
            .digest
            .map(|expected| (expected, digest_of(expected, decoded)))
        {
            Some((expected, found)) if expected != found => {
                Outcome::failed(format!("http {status}, body digest is {found}"))
            }
            _ => Outcome::passed(format!("http {status}")),
        }
    }

    /// Evaluates a body that exceeds the limit. Strings and patterns are searched for only in its beginning; a digest
    /// needs the complete body.
    fn evaluate_prefix(&self) -> Outcome {
        let outcome = self.evaluate();
        if self.expected.digest.is_none() && outcome.verdict == Verdict::Passed {
            outcome
        } else {
            Outcome::failed("body too long")
        }
    }
}

impl Dialogue for Exchange {
    fn open(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.request)
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        if self.status.is_some() {
            return self.receive_body(bytes);
        }
        let from = self.head.len().saturating_sub(3);
        self.head.extend_from_slice(bytes);
        self.receive_head(from)
    }

    fn end(&mut self) -> Outcome {
        match self.status {
            None if self.head.is_empty() => Outcome::failed("connection closed without a response"),
            None => Outcome::failed("connection closed before the end of the header"),
            Some(status) if self.body.chunked || self.body.length.is_some() => Outcome::failed(
                format!("http {status}, connection closed before the end of the body"),
            ),
            Some(_) => self.evaluate(),
        }
    }
}

fn build_request(expected: &Http, target: &Target) -> Vec<u8> {
    let mut text = format!(
        "{} {} HTTP/1.{}\r\n",
        expected.method, expected.path, expected.minor_version
    );
    let has_field = |name: &str| {
        expected
            .headers
            .iter()
            .any(|(key, _)| key.eq_ignore_ascii_case(name))
    };
    if !has_field("host") {
        let host = expected
            .host
            .clone()
            .unwrap_or_else(|| default_host(target));
        let _ = write!(text, "Host: {host}\r\n");
    }
    if !has_field("user-agent") {
        text.push_str("User-Agent: weir-check\r\n");
    }
    if !has_field("connection") {
        text.push_str("Connection: close\r\n");
    }
    for (name, value) in &expected.headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if let Some(body) = &expected.body {
        let _ = write!(text, "Content-Length: {}\r\n", body.len());
    }
    text.push_str("\r\n");
    text.push_str(expected.body.as_deref().unwrap_or_default());
    text.into_bytes()
}

fn not_http(bytes: &[u8]) -> Outcome {
    Outcome::failed(format!("not HTTP: {}", quote_first_line(bytes)))
}

/// Returns the value of `Host`: the address, and the port unless it is the scheme's default. For a Unix socket, which
/// has no host name, the value is `localhost`, as in curl.
fn default_host(target: &Target) -> String {
    if target.unix.is_some() {
        return "localhost".to_owned();
    }
    let address = match target.address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let default_port = if target.tls.is_some() { 443 } else { 80 };
    match target.port {
        None => address,
        Some(port) if port == default_port => address,
        Some(port) => format!("{address}:{port}"),
    }
}

fn parse_status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = line.splitn(3, |byte| *byte == b' ');
    words
        .next()
        .filter(|version| version.starts_with(b"HTTP/1."))?;
    let code = words.next().filter(|code| code.len() == 3)?;
    std::str::from_utf8(code).ok()?.parse().ok()
}

fn format_ranges(ranges: &[(u16, u16)]) -> String {
    let format_range = |(first, last): &(u16, u16)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    ranges
        .iter()
        .map(format_range)
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns the digest of `body`, computed with the algorithm of `expected`.
fn digest_of(expected: Digest, body: &[u8]) -> Digest {
    match expected {
        Digest::Md5(_) => Digest::Md5(Md5::digest(body).into()),
        Digest::Sha256(_) => Digest::Sha256(Sha256::digest(body).into()),
    }
}

fn find_bytes(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

const fn finish_with(outcome: Outcome) -> Reply {
    Reply::Finished(outcome)
}

#[cfg(test)]
mod tests;
