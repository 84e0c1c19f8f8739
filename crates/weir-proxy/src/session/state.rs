//! Defines the phases of a session, and the data that belongs to one request or one phase.

use std::sync::Arc;

use weir_http::{Exchange, TrailerFilter};
use weir_model::Coding;
use weir_select::Selection;
use weir_select::limit::Slot;
use weir_select::route::Rejection;

use super::bulk::BulkDirections;
use super::file_transfer::Transfer;
use super::record::NORMAL_END;
use super::trace::Trace;
use crate::context::MirrorCopy;
use crate::encoder::Encoder;
use crate::plan::{ForwardAuth, Target};
use crate::queue::Queue;
use crate::static_file::Query;
use crate::times::Stage;
use crate::verdict::Verdict;

/// The event that a session waits for.
#[derive(Debug)]
pub(super) enum Phase {
    /// The client's PROXY protocol header.
    Preamble,
    /// The TLS handshake with the client.
    Handshake,
    /// The ClientHello of a TCP service's client, which contains the server name.
    PeekSni,
    /// A request head.
    Head,
    /// A request body, before a server is selected.
    Collect,
    /// A free slot on a server.
    Queue(QueueEntry),
    /// The result of a job that verifies a password, or the verdict of `forward_auth`.
    Verify(crate::job_result::Ticket, Box<AdmittedSlots>),
    /// Part of a file.
    File(Box<Transfer>),
    /// The connection to a server.
    Connect,
    /// The rest of a request, and the response.
    Exchange,
    /// Bytes in either direction.
    Tunnel(Tunnel),
    /// The client's close, after it has received the last bytes.
    Linger(Linger),
}

/// A position in a pool's queue.
#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) number: u64,
    pub(super) queue: Arc<Queue>,
}

/// The two directions of a tunnel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tunnel {
    /// From the client to the server.
    pub(super) up: DirectionState,
    /// From the server to the client.
    pub(super) down: DirectionState,
    pub(super) bulk: BulkDirections,
}

/// The state of one direction of a tunnel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum DirectionState {
    /// The sender may send more.
    #[default]
    Open,
    /// The sender has finished sending.
    Ended,
    /// The end of stream was forwarded to the receiver.
    Closed,
}

impl DirectionState {
    /// Returns the state from the two flags that another process sends: whether the sender has finished sending, and
    /// whether the end of stream was forwarded to the receiver.
    pub(super) const fn new(ended: bool, forwarded: bool) -> Self {
        match (ended, forwarded) {
            (_, true) => Self::Closed,
            (true, false) => Self::Ended,
            (false, false) => Self::Open,
        }
    }
}

/// Progress of closing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linger {
    /// The last response is being sent.
    Flush,
    /// The connection was shut down; further input from the client is discarded.
    Discard,
}

/// Whether the client's socket is in the worker's epoll set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    No,
    /// The socket is added within 50 ms, if the session is still waiting for a server.
    Soon,
    Yes,
}

/// Whether a request is admitted: the result of checking its user and the limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum UserCheck {
    /// The user is valid, or no user is required.
    #[default]
    Passed,
    /// The user name or password is missing or wrong.
    InvalidCredentials,
    /// Too many passwords are being verified.
    Busy,
    /// A limit rejects the request, so its password was not verified.
    Rejected {
        /// The response.
        rejection: Rejection,
        /// Index of the route whose limit was exceeded; `None` = the service's limit.
        route: Option<usize>,
    },
}

/// The concurrency slots of a request that the limits admitted before its password was verified.
#[derive(Debug, Default)]
pub(super) struct AdmittedSlots {
    /// See [`Request::slot`].
    pub(super) slot: Option<Slot>,
    /// See [`Request::route_slots`].
    pub(super) route_slots: Vec<Slot>,
}

/// The result of verifying a password.
#[derive(Debug)]
pub(super) struct PasswordResult {
    pub(super) is_valid: bool,
    pub(super) admitted: Box<AdmittedSlots>,
}

/// A verdict of `forward_auth` on the request at the start of a session's input, or on the session's current request.
#[derive(Debug)]
pub(super) struct AuthResult {
    /// The rules that applied when the authorization request was sent.
    pub(super) rules: Arc<ForwardAuth>,
    pub(super) verdict: Verdict,
    /// The slots of the request, until the request takes them.
    pub(super) admitted: Option<Box<AdmittedSlots>>,
}

impl AuthResult {
    /// Returns whether the verdict is valid for these rules, which may have been reloaded.
    pub(super) fn applies_to(&self, rules: &weir_model::ForwardAuth) -> bool {
        self.rules.rules == *rules
    }

    /// Returns the rules for fields that the client must not set, and the lines that replace these fields.
    pub(super) fn copied_fields(&self) -> Option<(&weir_model::ForwardAuth, &[u8])> {
        match &self.verdict {
            Verdict::Allowed(lines) => Some((&self.rules.rules, lines)),
            Verdict::Denied { .. } | Verdict::Failed => None,
        }
    }
}

/// A server that was selected for the request, but is not in the service's current list of servers.
#[derive(Debug)]
pub(super) struct UnlistedServer {
    /// Name of its pool.
    pub(super) pool: String,
    pub(super) target: Arc<Target>,
}

/// The data of one request, or of one connection to a TCP service. It is replaced as a whole, so no data remains for
/// the next request.
#[derive(Debug)]
pub(super) struct Request {
    /// Framing and persistence. After the response, it still determines whether the client's connection can be reused.
    pub(super) exchange: Exchange,
    /// Index of the pool in the service.
    pub(super) pool: usize,
    /// Index of the route.
    pub(super) route: Option<usize>,
    /// The selected server, the retries and the state of the queue.
    pub(super) selection: Selection,
    /// The selected server, if a reload has removed it or the tunnel came from another process.
    pub(super) unlisted_server: Option<Box<UnlistedServer>>,
    /// The request's slot in the client's concurrency limit.
    pub(super) slot: Option<Slot>,
    /// The request's slots in the route's concurrency limits.
    pub(super) route_slots: Vec<Slot>,
    /// Whether the request is admitted.
    pub(super) user_check: UserCheck,
    /// Whether the limits have already admitted it.
    pub(super) admitted: bool,
    /// The verdict of `forward_auth`.
    pub(super) auth_result: Option<Box<AuthResult>>,
    /// When the request was sent to the server, in nanoseconds on the monotonic clock, if the scheduler uses latencies;
    /// else 0.
    pub(super) sent_ns: u64,
    pub(super) times: Times,
    /// When the request must be finished, in milliseconds on the worker clock.
    pub(super) deadline_ms: u64,
    /// The coding in which the response may be compressed, and the encoder.
    pub(super) negotiated_coding: Option<Coding>,
    pub(super) encoder: Option<Box<Encoder>>,
    /// Values for response fields that depend on the request, in field order.
    pub(super) response_values: Vec<Vec<u8>>,
    /// The key of the request's identifier, once it is needed.
    pub(super) id_key: Option<u128>,
    /// The file query, if the request is sent to a server only if no file is found.
    pub(super) lookup: Option<Box<(Query, Transfer)>>,
    /// Which of the request's trailers the server receives; `None` = the request has no trailers.
    pub(super) trailer_filter: Option<Box<TrailerFilter>>,
    /// Request copies for mirrors, until the request is complete.
    pub(super) copies: Vec<MirrorCopy>,
    /// The trace, if the request is traced.
    pub(super) trace: Option<Box<Trace>>,
    /// Termination flags for the access log, as defined by HAProxy.
    pub(super) termination: [u8; 2],
}

/// Start times and durations of a request's stages, in microseconds on the worker clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// Time at which the head was complete; 0 = it is incomplete.
    pub(super) began_us: u64,
    /// Start of the current stage.
    stage_start_us: u64,
    pub(super) stages: [Option<u32>; Stage::ALL.len()],
}

impl Times {
    pub(super) const fn new(now_us: u64) -> Self {
        Self {
            began_us: now_us,
            stage_start_us: now_us,
            stages: [None; Stage::ALL.len()],
        }
    }

    /// Starts a stage.
    pub(super) const fn start_stage(&mut self, now_us: u64) {
        self.stage_start_us = now_us;
    }

    /// Ends a stage, and adds its duration to the duration in earlier attempts.
    pub(super) fn end(&mut self, stage: Stage, now_us: u64) {
        let us = u32::try_from(now_us - self.stage_start_us).unwrap_or(u32::MAX);
        let sum = &mut self.stages[stage as usize];
        *sum = Some(sum.unwrap_or(0).saturating_add(us));
        self.stage_start_us = now_us;
    }
}

impl Request {
    /// Creates a request that has no server yet.
    pub(super) fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            pool: 0,
            route: None,
            selection: Selection::default(),
            unlisted_server: None,
            slot: None,
            route_slots: Vec::new(),
            user_check: UserCheck::Passed,
            admitted: false,
            auth_result: None,
            sent_ns: 0,
            times: Times::default(),
            deadline_ms: u64::MAX,
            negotiated_coding: None,
            encoder: None,
            trailer_filter: None,
            response_values: Vec::new(),
            id_key: None,
            lookup: None,
            copies: Vec::new(),
            trace: None,
            termination: NORMAL_END,
        }
    }

    /// Takes the slots of the request, if the limits have already admitted it.
    pub(super) fn admit(&mut self, admitted: Option<Box<AdmittedSlots>>) {
        if let Some(admitted) = admitted {
            self.admitted = true;
            self.slot = admitted.slot;
            self.route_slots = admitted.route_slots;
        }
    }

    /// Returns the state for the next request, which keeps only the exchange.
    pub(super) fn next_request(&mut self) -> Self {
        Self::new(std::mem::replace(&mut self.exchange, Exchange::idle()))
    }
}

/// Bytes that the client or the server has not accepted yet.
#[derive(Debug, Default)]
pub(super) struct OutgoingBytes {
    /// All bytes. Sent bytes are kept while they may have to be sent again.
    pub(super) bytes: Vec<u8>,
    /// Number of bytes that were sent.
    pub(super) sent: usize,
}

impl OutgoingBytes {
    /// Returns the bytes to send.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Returns whether all bytes were sent.
    pub(super) const fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Takes the buffer. Its content is no longer needed.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.sent = 0;
        std::mem::take(&mut self.bytes)
    }

    /// Takes the bytes that were not sent.
    pub(super) fn take_unsent(&mut self) -> Vec<u8> {
        let sent = std::mem::take(&mut self.sent);
        self.bytes.split_off(sent)
    }
}

impl From<Vec<u8>> for OutgoingBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }
}
