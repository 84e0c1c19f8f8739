//! One request and its response as a machine without I/O: what may be passed on, where each message ends, and what becomes
//! of the two connections afterwards.
//!
//! The driver reads and writes; it hands in what it read and passes on what the machine says, from its own buffer. Bodies
//! are never copied here, except where the chunked coding is taken off for a client of HTTP/1.0.

use std::ops::Range;

use weir_model::{Coding, Underscores};

use crate::chunk::Chunks;
use crate::encoding::is_compressible;
use crate::field::Field;
use crate::head::{self, Framing, HeadLimits, Request};
use crate::refusal::Refusal;
use crate::rewrite::{ResponseEdit, ResponseTouch, write_response};

/// Interim responses before a final one; more is a server that plays games.
const INTERIM_MAX: u8 = 16;

/// What is left of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    Done,
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

impl Body {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(left) => Self::Length(left),
            Framing::Chunked => Self::Chunked(Chunks::new()),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// How much of `input` belongs to it; `data` gets the content.
    fn take(&mut self, input: &[u8], data: &mut dyn FnMut(&[u8])) -> Result<usize, Refusal> {
        let taken = match self {
            Self::Done => 0,
            Self::UntilClose => input.len(),
            Self::Length(left) => {
                let taken = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                taken
            }
            Self::Chunked(chunks) => {
                let taken = chunks.scan(input, data)?;
                if chunks.is_done() {
                    *self = Self::Done;
                }
                return Ok(taken);
            }
        };
        data(&input[..taken]);
        Ok(taken)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the final response's head.
    Waiting,
    Body,
    Tunnel,
    Done,
}

/// What to pass on to the client: first what was appended to the buffer, then this part of the input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// Octets of the input that are dealt with.
    pub consumed: usize,
    /// Body, as it came.
    pub forward: Range<usize>,
    /// Where in the buffer content begins, behind heads: what a coding of its own needs.
    pub content: usize,
}

/// What of the client's bytes belongs to an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Upload {
    /// Bytes of the input that are dealt with.
    pub consumed: usize,
    /// The first of them, which go to the server as they are.
    pub forward: usize,
    /// What goes to the server behind them: trailers that were held back.
    pub trailers: Vec<u8>,
}

/// What the end of the server's stream means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerEnd {
    /// The response is complete.
    Complete,
    /// Nothing of the response has come: the request may be tried elsewhere.
    Unanswered,
    /// Interim responses came and no final one: the client can be answered in the server's place, and no other server tried.
    Interim,
    /// The response is cut off; the client must see that by the end of its own connection.
    Truncated,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    request: Body,
    response: Body,
    stage: Stage,
    interim: u8,
    status: u16,
    /// Octets of the request's content that came.
    content: u64,
    to_head: bool,
    http10: bool,
    upgrade: bool,
    connect: bool,
    decode: bool,
    recoded: Option<Coding>,
    client_stays: bool,
    server_stays: bool,
}

impl Exchange {
    /// Before any: nothing is under way.
    pub const fn idle() -> Self {
        Self {
            request: Body::Done,
            response: Body::Done,
            stage: Stage::Waiting,
            interim: 0,
            status: 0,
            content: 0,
            to_head: false,
            http10: false,
            upgrade: false,
            connect: false,
            decode: false,
            recoded: None,
            client_stays: false,
            server_stays: false,
        }
    }

    /// After the head of a request; `underscores` is for its trailers.
    pub fn new(request: &Request, underscores: Underscores) -> Self {
        Self {
            request: match request.framing {
                Framing::Chunked => Body::Chunked(Chunks::of_request(underscores)),
                framing => Body::new(framing),
            },
            response: Body::Done,
            stage: Stage::Waiting,
            interim: 0,
            status: 0,
            content: 0,
            to_head: request.method == head::Method::Head,
            http10: request.http10,
            upgrade: request.upgrade,
            connect: request.method == head::Method::Connect,
            decode: false,
            recoded: None,
            client_stays: request.keep_alive,
            server_stays: false,
        }
    }

    /// What of the client's bytes belongs to this exchange and goes to the server.
    ///
    /// # Errors
    /// The body is malformed: what was passed on before must not be completed.
    pub fn client_data(&mut self, input: &[u8]) -> Result<Upload, Refusal> {
        let whole = |consumed| Upload {
            consumed,
            forward: consumed,
            trailers: Vec::new(),
        };
        if self.stage == Stage::Tunnel {
            return Ok(whole(input.len()));
        }
        let content = &mut self.content;
        let mut count = |data: &[u8]| *content += data.len() as u64;
        let Body::Chunked(chunks) = &mut self.request else {
            return self.request.take(input, &mut count).map(whole);
        };
        let (consumed, forward) = chunks.scan_request(input, &mut count)?;
        let trailers = chunks.take_held();
        if chunks.is_done() {
            self.request = Body::Done;
        }
        Ok(Upload {
            consumed,
            forward,
            trailers,
        })
    }

    /// Octets of the request's content so far, without what the chunked coding adds.
    pub const fn request_content(&self) -> u64 {
        self.content
    }

    /// Whether the request is complete; in a tunnel it never is.
    pub fn request_done(&self) -> bool {
        self.request == Body::Done && self.stage != Stage::Tunnel
    }

    /// Whether the final response's head was read.
    pub const fn is_answered(&self) -> bool {
        !matches!(self.stage, Stage::Waiting)
    }

    /// Whether the response is complete.
    pub const fn response_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// What was read of the response is worthless, and nothing of it went to the client.
    pub const fn take_back(&mut self) {
        self.stage = Stage::Waiting;
        self.recoded = None;
    }

    /// Whether both sides now speak another protocol.
    pub const fn is_tunnel(&self) -> bool {
        matches!(self.stage, Stage::Tunnel)
    }

    /// Status of the final response; 0 before it.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Octets of the response's body that may go to the client unseen: all that is left of one with a length, any number of
    /// one that ends with the connection.
    pub const fn response_left(&self) -> Option<u64> {
        match (self.stage, &self.response) {
            _ if self.recoded.is_some() => None,
            (Stage::Body, Body::Length(left)) => Some(*left),
            (Stage::Body, Body::UntilClose) => Some(u64::MAX),
            _ => None,
        }
    }

    /// That many of them went.
    pub fn response_passed(&mut self, octets: u64) {
        if let Body::Length(left) = &mut self.response {
            *left = left.saturating_sub(octets);
            if *left == 0 {
                self.response = Body::Done;
                self.stage = Stage::Done;
            }
        }
    }

    /// Octets of the request's body that may go to the server unseen.
    pub const fn request_left(&self) -> Option<u64> {
        match (self.stage, &self.request) {
            (Stage::Waiting | Stage::Body, Body::Length(left)) => Some(*left),
            _ => None,
        }
    }

    /// That many of them went.
    pub fn request_passed(&mut self, octets: u64) {
        if let Body::Length(left) = &mut self.request {
            *left = left.saturating_sub(octets);
            if *left == 0 {
                self.request = Body::Done;
            }
        }
    }

    /// How the response's content is to be coded, once its head was read: content then comes to the buffer, behind
    /// [`Step::content`], and the caller makes a chunked body of it.
    pub const fn recoded(&self) -> Option<Coding> {
        self.recoded
    }

    /// Whether the request was made by HEAD.
    pub const fn to_head(&self) -> bool {
        self.to_head
    }

    /// After the response: whether the client may go on, and was not told otherwise.
    pub fn client_stays(&self) -> bool {
        self.client_stays && self.stage == Stage::Done && self.request == Body::Done
    }

    /// Whether the client could go on after an answer that is not the server's.
    pub fn client_could_stay(&self) -> bool {
        self.client_stays && self.stage == Stage::Waiting && self.request == Body::Done
    }

    /// Whether the client speaks HTTP/1.0.
    pub const fn is_http10(&self) -> bool {
        self.http10
    }

    /// After the response: whether the server's connection can serve another exchange.
    pub fn server_stays(&self) -> bool {
        self.server_stays && self.stage == Stage::Done && self.request == Body::Done
    }

    /// Reads what the server sent; `touch` is for the head of the final response. `closing` = the client shall be told that this is the last response. What to send first
    /// is appended to `out`; `fields` is room to work in.
    ///
    /// # Errors
    /// The response is malformed. If [`is_answered`](Self::is_answered) says no, the client can still be told.
    pub fn server_data(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        closing: bool,
        touch: &ResponseTouch<'_>,
        fields: &mut Vec<Field>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Refusal> {
        let mut at = 0;
        while self.stage == Stage::Waiting {
            match self.response_head(&input[at..], limits, closing, touch, fields, out)? {
                Some(len) => at += len,
                None => {
                    return Ok(Step {
                        consumed: at,
                        forward: at..at,
                        content: out.len(),
                    });
                }
            }
        }
        let (rest, content) = (&input[at..], out.len());
        if self.stage == Stage::Tunnel {
            return Ok(Step {
                consumed: input.len(),
                forward: at..input.len(),
                content,
            });
        }
        if self.stage == Stage::Done {
            return Ok(Step {
                consumed: at,
                forward: at..at,
                content,
            });
        }
        let decode = self.decode || self.recoded.is_some();
        let taken = self.response.take(rest, &mut |data| {
            if decode {
                out.extend_from_slice(data);
            }
        })?;
        if self.response == Body::Done {
            self.stage = Stage::Done;
        }
        let forwarded = if decode { 0 } else { taken };
        Ok(Step {
            consumed: at + taken,
            forward: at..at + forwarded,
            content,
        })
    }

    /// One head, interim or final; its length, or `None` while it is not all there.
    fn response_head(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        closing: bool,
        touch: &ResponseTouch<'_>,
        fields: &mut Vec<Field>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, Refusal> {
        let Some(response) = head::response(input, self.to_head, limits, fields)? else {
            return Ok(None);
        };
        let made = self.connect && (200..300).contains(&response.status);
        let switches = response.status == 101 || made;
        if switches && !self.upgrade && !made {
            return Err(Refusal::StatusLine);
        }
        if response.status < 200 && !switches {
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err(Refusal::StatusLine);
            }
            if !self.http10 {
                let edit = ResponseEdit::default();
                let nothing = ResponseTouch::default();
                write_response(input, &response, fields, edit, &nothing, out);
            }
            return Ok(Some(response.len));
        }
        self.decode = self.http10 && response.framing == Framing::Chunked && !switches;
        let rules = touch.encoding.filter(|_| !self.http10 && !switches);
        let varies = rules.is_some_and(|encoding| {
            is_compressible(input, &response, fields, encoding.rules, self.to_head)
        });
        let coding = rules.filter(|_| varies).and_then(|one| one.agreed);
        // What follows an unfinished request could not be told from its body.
        let ends = closing
            || self.request != Body::Done
            || self.decode
            || (response.framing == Framing::UntilClose && coding.is_none());
        self.client_stays &= !ends;
        self.server_stays = response.keep_alive;
        self.status = response.status;
        self.response = Body::new(response.framing);
        self.stage = match self.response {
            _ if switches => Stage::Tunnel,
            Body::Done => Stage::Done,
            _ => Stage::Body,
        };
        self.recoded = coding.filter(|_| self.stage == Stage::Body || self.stage == Stage::Done);
        if self.stage == Stage::Done && !self.to_head {
            // Nothing is no shorter in any coding.
            self.recoded = None;
        }
        let edit = ResponseEdit {
            close: !self.client_stays,
            keep_alive_10: self.http10,
            decode: self.decode,
            tunnel: made,
            coding: self.recoded,
            varies,
        };
        write_response(input, &response, fields, edit, touch, out);
        Ok(Some(response.len))
    }

    /// The server sends no more.
    pub fn server_end(&mut self) -> ServerEnd {
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
