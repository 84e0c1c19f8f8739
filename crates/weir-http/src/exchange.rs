//! Tracks one request and its response without I/O.
//!
//! It determines what may be forwarded, where each message ends, and whether the two connections persist.
//!
//! The driver does the I/O. It passes the bytes that it has read to this module, and forwards the ranges of its buffer
//! that this module returns. Bodies are not copied here, except when the chunked coding is removed for an HTTP/1.0
//! client, or when the driver encodes the content.

use std::ops::Range;

use weir_model::{Coding, RouteEdits, Underscores};

use crate::chunk::ChunkedParser;
use crate::encoding::is_compressible;
use crate::field::Field;
use crate::head::{self, Framing, HeadLimits, Request};
use crate::parse_error::ParseError;
use crate::rewrite::{HopEdit, ResponseEdit, write_response};

/// Maximum number of interim responses before the final one; more are treated as a malformed response.
const MAX_INTERIM: u8 = 16;

/// The remaining part of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    Done,
    Length(u64),
    Chunked(ChunkedParser),
    UntilClose,
}

impl Body {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(remaining) => Self::Length(remaining),
            Framing::Chunked => Self::Chunked(ChunkedParser::new()),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// Passes the content in `input` to `data`. Returns the number of bytes that belong to the body.
    fn consume(&mut self, input: &[u8], data: &mut dyn FnMut(&[u8])) -> Result<usize, ParseError> {
        let consumed = match self {
            Self::Done => 0,
            Self::UntilClose => input.len(),
            Self::Length(remaining) => {
                let consumed = usize::try_from(*remaining)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *remaining -= consumed as u64;
                if *remaining == 0 {
                    *self = Self::Done;
                }
                consumed
            }
            Self::Chunked(chunks) => {
                let consumed = chunks.scan(input, data)?;
                if chunks.is_done() {
                    *self = Self::Done;
                }
                return Ok(consumed);
            }
        };
        data(&input[..consumed]);
        Ok(consumed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The head of the final response has not been received yet.
    Waiting,
    Body,
    Tunnel,
    Done,
}

/// The output for the client: first the bytes appended to the buffer, then a range of the input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseStep {
    /// Number of input bytes that were processed.
    pub consumed: usize,
    /// Range of the input to forward unchanged.
    pub forward: Range<usize>,
    /// Offset in the buffer at which the content begins, after any heads. Callers that encode the content use it.
    pub content_start: usize,
}

/// The output for the server after bytes from the client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestStep {
    /// Number of input bytes that were processed.
    pub consumed: usize,
    /// Number of bytes, from the start of the input, to forward unchanged.
    pub forward_len: usize,
    /// Bytes to send after the forwarded bytes: trailers that were held back.
    pub trailers: Vec<u8>,
}

/// The meaning of the end of the server's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerEnd {
    /// The response is complete.
    Complete,
    /// No complete response head was received. If no byte of it was received either, the request may be retried on
    /// another server.
    Unanswered,
    /// Only interim responses were received: Weir can respond to the client, but must not retry on another server.
    Interim,
    /// The response is truncated; the client's connection must be closed so that the client detects this.
    Truncated,
}

/// The state of one request and its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    request: Body,
    response: Body,
    stage: Stage,
    interim: u8,
    status: u16,
    /// Status code that the client receives.
    client_status: u16,
    /// Number of request content bytes received so far.
    content_bytes: u64,
    to_head: bool,
    http10: bool,
    upgrade: bool,
    connect: bool,
    decode: bool,
    response_coding: Option<Coding>,
    client_persists: bool,
    server_persists: bool,
}

impl Exchange {
    /// Returns a state without a request.
    pub const fn idle() -> Self {
        Self {
            request: Body::Done,
            response: Body::Done,
            stage: Stage::Waiting,
            interim: 0,
            status: 0,
            client_status: 0,
            content_bytes: 0,
            to_head: false,
            http10: false,
            upgrade: false,
            connect: false,
            decode: false,
            response_coding: None,
            client_persists: false,
            server_persists: false,
        }
    }

    /// Returns the state after a request head; `underscores` applies to the request's trailers.
    pub fn new(request: &Request, underscores: Underscores) -> Self {
        Self {
            request: match request.framing {
                Framing::Chunked => Body::Chunked(ChunkedParser::for_request(underscores)),
                framing => Body::new(framing),
            },
            response: Body::Done,
            stage: Stage::Waiting,
            interim: 0,
            status: 0,
            client_status: 0,
            content_bytes: 0,
            to_head: request.method == head::Method::Head,
            http10: request.http10,
            upgrade: request.upgrade,
            connect: request.method == head::Method::Connect,
            decode: false,
            response_coding: None,
            client_persists: request.keep_alive,
            server_persists: false,
        }
    }

    /// Processes bytes from the client.
    ///
    /// # Errors
    /// Fails if the body is malformed: the request, which may be partly forwarded, must not be completed.
    pub fn process_client_data(&mut self, input: &[u8]) -> Result<RequestStep, ParseError> {
        let forward_all = |consumed| RequestStep {
            consumed,
            forward_len: consumed,
            trailers: Vec::new(),
        };
        if self.stage == Stage::Tunnel {
            return Ok(forward_all(input.len()));
        }
        let content_bytes = &mut self.content_bytes;
        let mut count = |data: &[u8]| *content_bytes += data.len() as u64;
        let Body::Chunked(chunks) = &mut self.request else {
            return self.request.consume(input, &mut count).map(forward_all);
        };
        let (consumed, forward_len) = chunks.scan_request(input, &mut count)?;
        let trailers = chunks.take_held_trailers();
        if chunks.is_done() {
            self.request = Body::Done;
        }
        Ok(RequestStep {
            consumed,
            forward_len,
            trailers,
        })
    }

    /// Returns the number of request content bytes received so far, without the overhead of the chunked coding.
    pub const fn request_content(&self) -> u64 {
        self.content_bytes
    }

    /// Returns whether the request is complete; never true in a tunnel.
    pub fn request_done(&self) -> bool {
        self.request == Body::Done && self.stage != Stage::Tunnel
    }

    /// Returns whether the final response's head was received.
    pub const fn is_answered(&self) -> bool {
        !matches!(self.stage, Stage::Waiting)
    }

    /// Returns whether the response is complete.
    pub const fn response_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Discards the response; the caller must not have sent any of it to the client.
    pub const fn discard_response(&mut self) {
        self.stage = Stage::Waiting;
        self.response_coding = None;
    }

    /// Returns whether the connection has switched to a different protocol.
    pub const fn is_tunnel(&self) -> bool {
        matches!(self.stage, Stage::Tunnel)
    }

    /// Returns the status code of the server's final response, or 0 if it has not been received.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Returns the status code that the client receives, or 0 if the final response has not been received.
    pub const fn client_status(&self) -> u16 {
        self.client_status
    }

    /// Returns the number of response body bytes that may be forwarded to the client without calling
    /// [`Self::process_server_data`]: the remaining bytes of a body of known length, or any number if the body ends
    /// with the connection. Returns `None` if the bytes must be processed here.
    pub const fn response_remaining(&self) -> Option<u64> {
        match (self.stage, &self.response) {
            _ if self.response_coding.is_some() => None,
            (Stage::Body, Body::Length(remaining)) => Some(*remaining),
            (Stage::Body, Body::UntilClose) => Some(u64::MAX),
            _ => None,
        }
    }

    /// Records that this many response body bytes were forwarded.
    pub fn record_forwarded_response(&mut self, bytes: u64) {
        if let Body::Length(remaining) = &mut self.response {
            *remaining = remaining.saturating_sub(bytes);
            if *remaining == 0 {
                self.response = Body::Done;
                self.stage = Stage::Done;
            }
        }
    }

    /// Returns the number of request body bytes that may be forwarded to the server without calling
    /// [`Self::process_client_data`], or `None` if the bytes must be processed here.
    pub const fn request_remaining(&self) -> Option<u64> {
        match (self.stage, &self.request) {
            (Stage::Waiting | Stage::Body, Body::Length(remaining)) => Some(*remaining),
            _ => None,
        }
    }

    /// Records that this many request body bytes were forwarded.
    pub fn record_forwarded_request(&mut self, bytes: u64) {
        if let Body::Length(remaining) = &mut self.request {
            *remaining = remaining.saturating_sub(bytes);
            if *remaining == 0 {
                self.request = Body::Done;
            }
        }
    }

    /// Returns the coding to apply to the response's content; the coding is known after the response's head. If there
    /// is one, content is appended to the buffer starting at [`ResponseStep::content_start`], and the caller encodes it
    /// as a chunked body.
    pub const fn response_coding(&self) -> Option<Coding> {
        self.response_coding
    }

    /// Returns whether the request's method is HEAD.
    pub const fn to_head(&self) -> bool {
        self.to_head
    }

    /// Returns whether the client's connection persists after the response.
    pub fn client_persists(&self) -> bool {
        self.client_persists && self.stage == Stage::Done && self.request == Body::Done
    }

    /// Returns whether the client's connection could persist after a response generated by Weir.
    pub fn client_could_persist(&self) -> bool {
        self.client_persists && self.stage == Stage::Waiting && self.request == Body::Done
    }

    /// Returns whether the client uses HTTP/1.0.
    pub const fn is_http10(&self) -> bool {
        self.http10
    }

    /// Returns whether the server's connection can be reused after the response.
    pub fn server_persists(&self) -> bool {
        self.server_persists && self.stage == Stage::Done && self.request == Body::Done
    }

    /// Processes bytes from the server. `edit` applies to the head of the final response. If `closing` is true, the
    /// client is informed that this is the last response. Output that must be sent first is appended to `out`. `fields`
    /// is scratch space.
    ///
    /// # Errors
    /// Fails if the response is malformed. If [`is_answered`](Self::is_answered) returns false, Weir can still respond
    /// to the client.
    pub fn process_server_data(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        closing: bool,
        edit: &ResponseEdit<'_>,
        fields: &mut Vec<Field>,
        out: &mut Vec<u8>,
    ) -> Result<ResponseStep, ParseError> {
        let mut offset = 0;
        while self.stage == Stage::Waiting {
            match self.process_response_head(
                &input[offset..],
                limits,
                closing,
                edit,
                fields,
                out,
            )? {
                Some(len) => offset += len,
                None => {
                    return Ok(ResponseStep {
                        consumed: offset,
                        forward: offset..offset,
                        content_start: out.len(),
                    });
                }
            }
        }
        let (rest, content_start) = (&input[offset..], out.len());
        if self.stage == Stage::Tunnel {
            return Ok(ResponseStep {
                consumed: input.len(),
                forward: offset..input.len(),
                content_start,
            });
        }
        if self.stage == Stage::Done {
            return Ok(ResponseStep {
                consumed: offset,
                forward: offset..offset,
                content_start,
            });
        }
        let decode = self.decode || self.response_coding.is_some();
        let consumed = self.response.consume(rest, &mut |data| {
            if decode {
                out.extend_from_slice(data);
            }
        })?;
        if self.response == Body::Done {
            self.stage = Stage::Done;
        }
        let forwarded = if decode { 0 } else { consumed };
        Ok(ResponseStep {
            consumed: offset + consumed,
            forward: offset..offset + forwarded,
            content_start,
        })
    }

    /// Processes one interim or final head. Returns its length, or `None` while it is incomplete.
    fn process_response_head(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        closing: bool,
        edit: &ResponseEdit<'_>,
        fields: &mut Vec<Field>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, ParseError> {
        let Some(response) = head::parse_response(input, self.to_head, limits, fields)? else {
            return Ok(None);
        };
        let opens_tunnel = self.connect && (200..300).contains(&response.status);
        let switches_protocol = response.status == 101 || opens_tunnel;
        if switches_protocol && !self.upgrade && !opens_tunnel {
            return Err(ParseError::StatusLine);
        }
        if response.status < 200 && !switches_protocol {
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(ParseError::StatusLine);
            }
            if !self.http10 {
                let hop = HopEdit::default();
                let no_edit = ResponseEdit::default();
                write_response(input, &response, fields, hop, &no_edit, out);
            }
            return Ok(Some(response.len));
        }
        self.decode = self.http10 && response.framing == Framing::Chunked && !switches_protocol;
        let rules = edit.encoding.filter(|_| !self.http10 && !switches_protocol);
        let varies =
            rules.is_some_and(|encoding| is_compressible(input, &response, fields, encoding.rules));
        let coding = rules
            .filter(|_| varies)
            .and_then(|encoding| encoding.negotiated);
        // After an incomplete request, the next request cannot be distinguished from the rest of the body.
        let closes_client = closing
            || self.request != Body::Done
            || self.decode
            || (response.framing == Framing::UntilClose && coding.is_none());
        self.client_persists &= !closes_client;
        self.server_persists = response.keep_alive;
        self.status = response.status;
        let replacement_status = edit
            .status
            .filter(|_| !switches_protocol && RouteEdits::may_replace(response.status));
        self.client_status = replacement_status.unwrap_or(response.status);
        self.response = Body::new(response.framing);
        self.stage = match self.response {
            _ if switches_protocol => Stage::Tunnel,
            Body::Done => Stage::Done,
            _ => Stage::Body,
        };
        self.response_coding =
            coding.filter(|_| self.stage == Stage::Body || self.stage == Stage::Done);
        if self.stage == Stage::Done && !self.to_head {
            // Compression does not make an empty body shorter.
            self.response_coding = None;
        }
        let hop = HopEdit {
            close: !self.client_persists,
            keep_alive_10: self.http10,
            decode: self.decode,
            tunnel: opens_tunnel,
            coding: self.response_coding,
            varies,
            status: replacement_status,
        };
        write_response(input, &response, fields, hop, edit, out);
        Ok(Some(response.len))
    }

    /// Handles the end of the server's connection.
    pub fn handle_server_end(&mut self) -> ServerEnd {
        match self.stage {
            Stage::Waiting if self.interim == 0 => ServerEnd::Unanswered,
            Stage::Done | Stage::Tunnel => ServerEnd::Complete,
            Stage::Body if self.response == Body::UntilClose => {
                self.stage = Stage::Done;
                ServerEnd::Complete
            }
            Stage::Waiting => ServerEnd::Interim,
            Stage::Body => ServerEnd::Truncated,
        }
    }
}

#[cfg(test)]
mod tests;
