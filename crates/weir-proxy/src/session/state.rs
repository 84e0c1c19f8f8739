//! The phases of a session, and the data that belongs to one request or one phase only.

use std::sync::Arc;

use weir_http::route::RequestId;
use weir_http::{Exchange, TrailerFilter};
use weir_model::Coding;
use weir_select::Selection;
use weir_select::limit::Slot;
use weir_select::route::Rejection;

use super::bulk::Bulk;
use super::file_transfer::Transfer;
use super::record::NORMAL_END;
use super::trace::Trace;
use crate::context::MirrorCopy;
use crate::encoder::Encoder;
use crate::plan::ForwardAuth;
use crate::queue::Queue;
use crate::static_file::Query;
use crate::times::Stage;
use crate::verdict::Verdict;

/// What a session waits for.
#[derive(Debug)]
pub(super) enum Phase {
    /// The PROXY protocol header of the client.
    Preamble,
    /// The client's TLS handshake.
    Handshake,
    /// The ClientHello of a TCP service's client, for its server name.
    PeekSni,
    /// A request's head.
    Head,
    /// A request's body, before a server is selected.
    Collect,
    /// A slot at a server.
    Queue(Ticket),
    /// The verification of a password, by this job, or the verdict of `forward_auth`, of an admitted request.
    Verify(crate::job_result::Ticket, Box<Admitted>),
    /// A file.
    File(Box<Transfer>),
    /// A server's connection.
    Connect,
    /// The rest of a request, and its response.
    Exchange,
    /// Bytes in both directions.
    Tunnel(Tunnel),
    /// The last bytes for the client, then its end.
    Linger(Linger),
}

/// The position in a pool's queue.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) queue: Arc<Queue>,
}

/// The two directions of a tunnel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tunnel {
    /// From the client to the server.
    pub(super) up: Direction,
    /// From the server to the client.
    pub(super) down: Direction,
    pub(super) bulk: Bulk,
}

/// State of one direction of a tunnel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Direction {
    /// The sender may send more.
    #[default]
    Open,
    /// The sender has sent its last byte.
    Ended,
    /// The end was forwarded to the receiver.
    Closed,
}

impl Direction {
    /// From the two facts that another process sends: whether the sender has ended, and whether the receiver knows.
    pub(super) const fn new(ended: bool, forwarded: bool) -> Self {
        match (ended, forwarded) {
            (_, true) => Self::Closed,
            (true, false) => Self::Ended,
            (false, false) => Self::Open,
        }
    }
}

/// How far the end of a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linger {
    /// The last response is being sent.
    Flush,
    /// The client was sent the end; what it still sends is discarded.
    Discard,
}

/// Whether the client's socket is in the worker's epoll set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    No,
    /// It is added at the worker's next tick, if the session waits for a server until then.
    Soon,
    Yes,
}

/// What is known of a request's user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Gate {
    /// The user is valid, or none is needed.
    #[default]
    Open,
    /// Name or password is missing or wrong.
    Closed,
    /// Too many passwords are being verified.
    Busy,
    /// The limits reject the request, so that no password was verified.
    Rejected {
        /// The response.
        rejection: Rejection,
        /// Index of the route whose limits these are; `None` = those of the service.
        route: Option<usize>,
    },
}

/// The slots of a request that the limits have admitted before its password is verified.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    /// As in [`Request`].
    pub(super) slot: Option<Slot>,
    /// As in [`Request`].
    pub(super) more_slots: Vec<Slot>,
}

/// The result of verifying a password.
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) is_valid: bool,
    pub(super) admitted: Box<Admitted>,
}

/// A verdict of `forward_auth` about the request at the beginning of a session's input, or about its current request.
#[derive(Debug)]
pub(super) struct AuthResult {
    /// The rules of the authorization request.
    pub(super) rules: Arc<ForwardAuth>,
    pub(super) verdict: Verdict,
    /// The slots of the request, until it takes them.
    pub(super) admitted: Option<Box<Admitted>>,
}

impl AuthResult {
    /// Whether it is about these rules, also after a reload.
    pub(super) fn is_by(&self, rules: &weir_model::ForwardAuth) -> bool {
        self.rules.rules == *rules
    }

    /// The rules about fields of the client that its server does not get, and the lines in their place.
    pub(super) fn copied(&self) -> Option<(&weir_model::ForwardAuth, &[u8])> {
        match &self.verdict {
            Verdict::Admitted(lines) => Some((&self.rules.rules, lines)),
            Verdict::Refused { .. } | Verdict::Failed => None,
        }
    }
}

/// The data of one request, or of one connection of a TCP service. It is replaced as a whole, so that no part of it
/// remains for the next request.
#[derive(Debug)]
pub(super) struct Request {
    /// Framing and persistence; after the response it still determines what the client's connection may be used for.
    pub(super) exchange: Exchange,
    /// Index of its pool in the service.
    pub(super) pool: usize,
    /// Index of its route.
    pub(super) route: Option<usize>,
    /// Its server, its retries and its place in the queue.
    pub(super) selection: Selection,
    /// Its slot among its client's requests in progress.
    pub(super) slot: Option<Slot>,
    /// Its slots among the requests of its route.
    pub(super) more_slots: Vec<Slot>,
    /// What is known of its user.
    pub(super) gate: Gate,
    /// Whether the limits have admitted it already.
    pub(super) admitted: bool,
    /// What the server of `forward_auth` has decided about it.
    pub(super) auth_result: Option<Box<AuthResult>>,
    /// When it was sent to the server, if a scheduler needs the latency; else 0.
    pub(super) sent_ns: u64,
    pub(super) times: Times,
    /// When it must be finished.
    pub(super) deadline_ms: u64,
    /// The coding that its response may have, and the encoder.
    pub(super) accepts: Option<Coding>,
    pub(super) encoder: Option<Box<Encoder>>,
    /// Values of response fields that depend on the request, in the order of the fields.
    pub(super) response_values: Vec<Vec<u8>>,
    /// Its identifier, once something needs it.
    pub(super) id: Option<RequestId>,
    /// The file that is looked for before it is sent to a server.
    pub(super) lookup: Option<Box<(Query, Transfer)>>,
    /// Which of its trailers the server gets; `None` = it has none.
    pub(super) trailer_filter: Option<Box<TrailerFilter>>,
    /// Its copies for mirrors, until the request is complete.
    pub(super) copies: Vec<MirrorCopy>,
    /// Its trace, if there is one.
    pub(super) trace: Option<Box<Trace>>,
    /// Termination flags for the log, as HAProxy has them.
    pub(super) termination: [u8; 2],
}

/// When the parts of a request began and how long they took, in microseconds of the worker's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// 0 = before a complete head.
    pub(super) began_us: u64,
    /// When the current stage began.
    stage_us: u64,
    pub(super) stages: [Option<u32>; Stage::ALL.len()],
}

impl Times {
    pub(super) const fn beginning(now_us: u64) -> Self {
        Self {
            began_us: now_us,
            stage_us: now_us,
            stages: [None; Stage::ALL.len()],
        }
    }

    /// The next stage begins.
    pub(super) const fn mark(&mut self, now_us: u64) {
        self.stage_us = now_us;
    }

    /// A stage ends, perhaps not for the first time.
    pub(super) fn end(&mut self, stage: Stage, now_us: u64) {
        let us = u32::try_from(now_us - self.stage_us).unwrap_or(u32::MAX);
        let sum = &mut self.stages[stage as usize];
        *sum = Some(sum.unwrap_or(0).saturating_add(us));
        self.stage_us = now_us;
    }
}

impl Request {
    /// A request that has no server yet.
    pub(super) fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            pool: 0,
            route: None,
            selection: Selection::default(),
            slot: None,
            more_slots: Vec::new(),
            gate: Gate::Open,
            admitted: false,
            auth_result: None,
            sent_ns: 0,
            times: Times::default(),
            deadline_ms: u64::MAX,
            accepts: None,
            encoder: None,
            trailer_filter: None,
            response_values: Vec::new(),
            id: None,
            lookup: None,
            copies: Vec::new(),
            trace: None,
            termination: NORMAL_END,
        }
    }

    /// Takes the slots of a request that the limits have admitted before, if they have.
    pub(super) fn admit(&mut self, admitted: Option<Box<Admitted>>) {
        if let Some(admitted) = admitted {
            self.admitted = true;
            self.slot = admitted.slot;
            self.more_slots = admitted.more_slots;
        }
    }

    /// What remains of it after its response.
    pub(super) fn finished(&mut self) -> Self {
        Self::new(std::mem::replace(&mut self.exchange, Exchange::idle()))
    }
}

/// Bytes that one side has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// All of them; those that were sent are kept while they may have to be sent again.
    pub(super) bytes: Vec<u8>,
    /// How many of them were sent.
    pub(super) sent: usize,
}

impl Outgoing {
    /// What is to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Whether everything was sent.
    pub(super) const fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Takes the buffer and forgets what it contains.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.sent = 0;
        std::mem::take(&mut self.bytes)
    }

    /// Takes what was not sent.
    pub(super) fn take_unsent(&mut self) -> Vec<u8> {
        let sent = std::mem::take(&mut self.sent);
        self.bytes.split_off(sent)
    }
}

impl From<Vec<u8>> for Outgoing {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }
}
