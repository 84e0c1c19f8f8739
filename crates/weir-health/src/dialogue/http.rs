//! HTTP/1 (RFC 9112): one request, and the answer's status, fields and body as far as they are asked about.
//!
//! Redirects are answers like others and are not followed. Interim answers (1xx) are read over.

mod body;

use std::fmt::Write as _;
use std::net::IpAddr;

use md5::Md5;
use sha2::{Digest as _, Sha256};
use weir_model::{Digest, Http};

use super::{Dialogue, Reply, quoted};
use crate::outcome::{Outcome, Verdict};
use crate::target::Target;

use body::Body;

/// Most bytes of status line and fields.
const MOST_HEAD: usize = 64 << 10;

/// Most bytes of a body that is looked into.
const MOST_BODY: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    request: Vec<u8>,
    wanted: Http,
    head: Vec<u8>,
    status: Option<u16>,
    body: Body,
    /// Whether the body holds what is wanted of it.
    found: bool,
}

impl Exchange {
    pub(super) fn new(wanted: &Http, target: &Target) -> Self {
        Self {
            request: request(wanted, target),
            wanted: wanted.clone(),
            head: Vec::new(),
            status: None,
            body: Body::default(),
            found: false,
        }
    }

    /// Looks for the end of the header, which may begin at `from` at the earliest.
    fn head(&mut self, from: usize) -> Reply {
        const BEGINNING: &[u8] = b"HTTP/1.";
        if self.head.len() >= BEGINNING.len() && !self.head.starts_with(BEGINNING) {
            return finished(foreign(&self.head[..BEGINNING.len()]));
        }
        let Some(end) = find(&self.head[from..], b"\r\n\r\n") else {
            if self.head.len() > MOST_HEAD {
                return finished(Outcome::failed("header without an end"));
            }
            return Reply::More;
        };
        let end = from + end;
        let rest = self.head.split_off(end + 4);
        let Some(status) = status(&self.head) else {
            return finished(foreign(&self.head));
        };
        if (100..200).contains(&status) && status != 101 {
            self.head = rest;
            return self.head(0);
        }
        self.status = Some(status);
        let wanted = &self.wanted.status;
        if !wanted
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&status))
        {
            let expected = ranges(wanted);
            let text = format!("http {status}, expected {expected}");
            return finished(Outcome::failed(text));
        }
        if !self.asks_for_body() {
            return finished(Outcome::passed(format!("http {status}")));
        }
        let fields = String::from_utf8_lossy(&self.head).into_owned();
        let field = |name: &str| {
            let lines = fields
                .lines()
                .skip(1)
                .filter_map(|line| line.split_once(':'));
            let mut named = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
            named
                .next()
                .map(|(_, value)| value.trim().to_ascii_lowercase())
        };
        self.body.chunked =
            field("transfer-encoding").is_some_and(|coding| coding.ends_with("chunked"));
        self.body.length = field("content-length").and_then(|length| length.parse().ok());
        if self.wanted.method == "HEAD" || matches!(status, 204 | 304) {
            self.body.length = Some(0);
        }
        self.more_body(&rest)
    }

    const fn asks_for_body(&self) -> bool {
        let wanted = &self.wanted;
        wanted.contains.is_some() || self.asks_for_whole()
    }

    /// Whether more than a text is asked of the body.
    const fn asks_for_whole(&self) -> bool {
        let wanted = &self.wanted;
        wanted.pattern.is_some() || wanted.without.is_some() || wanted.digest.is_some()
    }

    fn more_body(&mut self, bytes: &[u8]) -> Reply {
        let text = self.wanted.contains.as_deref().unwrap_or_default();
        let from = self.body.plain.len().saturating_sub(text.len());
        if let Err(why) = self.body.push(bytes) {
            return finished(Outcome::failed(why));
        }
        self.found |= find(&self.body.plain[from..], text.as_bytes()).is_some();
        if self.body.complete || (self.found && !self.asks_for_whole()) {
            finished(self.judge())
        } else if self.body.raw.len() > MOST_BODY {
            finished(self.judge_beginning())
        } else {
            Reply::More
        }
    }

    /// Of a body that is there as a whole.
    fn judge(&self) -> Outcome {
        let status = self.status.unwrap_or(0);
        let wanted = &self.wanted;
        let text = wanted.contains.as_deref().unwrap_or_default();
        let plain = &self.body.plain;
        if !self.found {
            let text = text.escape_debug();
            return Outcome::failed(format!("http {status}, body without \"{text}\""));
        }
        if let Some(pattern) = wanted.pattern.as_ref().filter(|it| !it.is_in(plain)) {
            return Outcome::failed(format!("http {status}, body does not match {pattern}"));
        }
        if let Some(pattern) = wanted.without.as_ref().filter(|it| it.is_in(plain)) {
            return Outcome::failed(format!("http {status}, body matches {pattern}"));
        }
        match wanted.digest.map(|wanted| (wanted, digest(wanted, plain))) {
            Some((wanted, found)) if wanted != found => {
                Outcome::failed(format!("http {status}, the body's digest is {found}"))
            }
            _ => Outcome::passed(format!("http {status}")),
        }
    }

    /// Of a body that goes on: what was found in its beginning holds, and a digest is of the whole.
    fn judge_beginning(&self) -> Outcome {
        let judged = self.judge();
        if self.wanted.digest.is_none() && judged.verdict == Verdict::Passed {
            judged
        } else {
            Outcome::failed("body without an end")
        }
    }
}

impl Dialogue for Exchange {
    fn open(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.request)
    }

    fn receive(&mut self, bytes: &[u8]) -> Reply {
        if self.status.is_some() {
            return self.more_body(bytes);
        }
        let from = self.head.len().saturating_sub(3);
        self.head.extend_from_slice(bytes);
        self.head(from)
    }

    fn end(&mut self) -> Outcome {
        match self.status {
            None if self.head.is_empty() => Outcome::failed("closed without an answer"),
            None => Outcome::failed("closed within the header"),
            Some(status) if self.body.chunked || self.body.length.is_some() => {
                Outcome::failed(format!("http {status}, closed within the body"))
            }
            Some(_) => self.judge(),
        }
    }
}

fn request(wanted: &Http, target: &Target) -> Vec<u8> {
    let mut text = format!(
        "{} {} HTTP/1.{}\r\n",
        wanted.method, wanted.path, wanted.minor_version
    );
    let has = |name: &str| {
        wanted
            .headers
            .iter()
            .any(|(key, _)| key.eq_ignore_ascii_case(name))
    };
    if !has("host") {
        let host = wanted.host.clone().unwrap_or_else(|| host(target));
        let _ = write!(text, "Host: {host}\r\n");
    }
    if !has("user-agent") {
        text.push_str("User-Agent: weir-check\r\n");
    }
    if !has("connection") {
        text.push_str("Connection: close\r\n");
    }
    for (name, value) in &wanted.headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if let Some(body) = &wanted.body {
        let _ = write!(text, "Content-Length: {}\r\n", body.len());
    }
    text.push_str("\r\n");
    text.push_str(wanted.body.as_deref().unwrap_or_default());
    text.into_bytes()
}

fn foreign(bytes: &[u8]) -> Outcome {
    Outcome::failed(format!("no HTTP: {}", quoted(bytes)))
}

/// Address, and the port unless it is the scheme's own.
fn host(target: &Target) -> String {
    let address = match target.address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let own = if target.tls.is_some() { 443 } else { 80 };
    match target.port {
        None => address,
        Some(port) if port == own => address,
        Some(port) => format!("{address}:{port}"),
    }
}

fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = line.splitn(3, |byte| *byte == b' ');
    words
        .next()
        .filter(|version| version.starts_with(b"HTTP/1."))?;
    let code = words.next().filter(|code| code.len() == 3)?;
    std::str::from_utf8(code).ok()?.parse().ok()
}

fn ranges(ranges: &[(u16, u16)]) -> String {
    let one = |(from, to): &(u16, u16)| {
        if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        }
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The digest of `body` that is of the same kind as `wanted`.
fn digest(wanted: Digest, body: &[u8]) -> Digest {
    match wanted {
        Digest::Md5(_) => Digest::Md5(Md5::digest(body).into()),
        Digest::Sha256(_) => Digest::Sha256(Sha256::digest(body).into()),
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

const fn finished(outcome: Outcome) -> Reply {
    Reply::Finished(outcome)
}

#[cfg(test)]
mod tests;
