//! Selects a server for one request: queue, connect, retry, respond.
//!
//! The driver calls [`Selection::select`] and executes the [`Output`]. It reports the result with
//! [`handle_queue_turn`](Selection::handle_queue_turn), [`handle_queue_exit`](Selection::handle_queue_exit),
//! [`handle_connect_error`](Selection::handle_connect_error), [`handle_failure`](Selection::handle_failure) or
//! [`handle_unwanted`](Selection::handle_unwanted). [`Output::Connect`] acquires one of the server's slots. When the
//! request leaves the server, for any reason, the driver releases the slot before it selects again.

use std::net::SocketAddr;

use weir_model::{NoServer, RetryCondition, SplitMix64};

use crate::{Balancer, Budget, Criteria, Fault, Pool, RetryPolicy, Server, TriedServers};

/// Number of times that HTTP/2 connections may decline a request. If a request is declined once more, the server counts
/// as unreachable.
const MAX_DECLINED: u8 = 2;

/// State of one request's selection.
#[derive(Debug, Clone)]
pub struct Selection {
    stage: Stage,
    /// Hash for the `hash` scheduler.
    hash: u64,
    /// Index of the server that the client's cookie identifies.
    sticky_server: Option<usize>,
    /// Index of the last selected server.
    server: Option<usize>,
    tried: TriedServers,
    retries: u32,
    declined_count: u8,
    connections: Connections,
    replay: Replay,
}

/// The stage of a request's selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A server must be selected.
    Unselected,
    /// In the pool's queue.
    Queued,
    /// Connecting to the selected server, or exchanging data with it.
    Selected,
    /// A response was sent, or the connection was closed.
    Done,
}

/// Which connections to a server may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Idle connections and new ones.
    Any,
    /// Only new connections, because the server closed an idle one.
    New,
}

/// Whether a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// The request is idempotent and complete in memory, and no byte of the response has reached the client.
    Allowed,
    /// The request must not be sent twice.
    Forbidden,
}

/// The next action of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Connect to a server, whose slot is already acquired.
    Connect {
        /// Index in the pool.
        server: usize,
        /// Which connections may be used.
        connections: Connections,
    },
    /// Enter the pool's queue, or return to the previous position in it.
    Queue,
    /// Send this response.
    Respond {
        /// Status code.
        status: u16,
        /// The reason for the response, for the log.
        reason: Reason,
    },
    /// Close the connection without a response.
    Close {
        /// The reason, for the log.
        reason: Reason,
    },
}

/// Why no server responds to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The request was still in the queue.
    Queued,
    /// No server is usable, or no connection could be established.
    NoConnection,
    /// Connecting took too long.
    ConnectTimeout,
    /// The response is missing, incomplete or invalid.
    BadResponse,
    /// The response took too long.
    ResponseTimeout,
}

/// The timeout that removes a request from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueExit {
    /// The queue timeout.
    QueueTimeout,
    /// The total timeout of the request.
    TotalTimeout,
}

/// Why a connection could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// This process has no free descriptors, so no other server can be reached either.
    NoDescriptors,
    /// The server or the network rejected the connection.
    Rejected,
    /// The connection failed on this host.
    Local,
}

/// A failure of the selected server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The connection, or TLS on it, could not be established.
    Connect,
    /// Connecting took too long.
    ConnectTimeout,
    /// The total timeout expired while connecting.
    TotalTimeoutConnecting,
    /// The HTTP/2 connection had no free stream; nothing was sent.
    Declined,
    /// The connection was closed before a complete response head was received.
    Lost {
        /// Whether the connection had served other requests.
        reused: bool,
        /// Whether a part of the response head was received.
        head_started: bool,
    },
    /// The response did not start in time.
    ResponseTimeout,
    /// The total timeout expired before the response started.
    TotalTimeout,
}

/// A response that a retry on another server may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnwantedResponse {
    /// The response is malformed.
    Malformed,
    /// The response has this status.
    Status(u16),
}

/// The result of a failure. The driver records the fault, then performs `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The server's fault; `None` if the server is not at fault.
    pub fault: Option<Fault>,
    /// The next action.
    pub next: Next,
}

/// The action after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Release the server and call [`Selection::select`].
    Select {
        /// The kind of the next attempt.
        attempt: AttemptKind,
    },
    /// Release the server and send this response.
    Respond {
        /// Status code.
        status: u16,
        /// The reason for the response, for the log.
        reason: Reason,
    },
}

/// The kind of the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptKind {
    /// The attempt counts as a retry.
    Retry,
    /// The attempt does not count: the server declined the request, or had probably closed the idle connection before
    /// the request arrived.
    Repetition,
}

/// The inputs of decisions, apart from the request.
#[derive(Debug)]
pub struct SelectionContext<'a, S> {
    /// The request's pool.
    pub pool: &'a Pool<'a, S>,
    /// The service's rules for retries.
    pub policy: &'a RetryPolicy,
    /// The worker's scheduler state for the pool.
    pub balancer: &'a mut Balancer,
    /// The worker's retry budget for the service.
    pub budget: &'a Budget,
    /// Random numbers.
    pub random: &'a mut SplitMix64,
    /// The client's address.
    pub client: SocketAddr,
    /// Current time.
    pub now_ms: u64,
}

/// Maximum number of times that a selection is repeated because a slot became free in the meantime. Other workers may
/// take each of these slots.
const MAX_RESELECTIONS: u32 = 8;

impl Default for Selection {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Selection {
    /// Returns the state of a request that must not be sent twice. `hash` is the hash for the `hash` scheduler.
    pub const fn new(hash: u64) -> Self {
        Self {
            stage: Stage::Unselected,
            hash,
            sticky_server: None,
            server: None,
            tried: TriedServers(0),
            retries: 0,
            declined_count: 0,
            connections: Connections::Any,
            replay: Replay::Forbidden,
        }
    }

    /// Sets the hash for the `hash` scheduler.
    pub const fn set_hash(&mut self, hash: u64) {
        self.hash = hash;
    }

    /// Sets the server that the client's cookie identifies.
    pub const fn set_sticky_server(&mut self, server: Option<usize>) {
        self.sticky_server = server;
    }

    /// Returns the index of the server that the client's cookie identifies.
    pub const fn sticky_server(&self) -> Option<usize> {
        self.sticky_server
    }

    /// Sets whether the request may be sent again.
    pub const fn set_replay(&mut self, replay: Replay) {
        self.replay = replay;
    }

    /// Returns whether the request may be sent again.
    pub const fn replay(&self) -> Replay {
        self.replay
    }

    /// Returns the index of the last selected server.
    pub const fn server(&self) -> Option<usize> {
        self.server
    }

    /// Returns whether server selection has started. Returns false between a repetition and the next selection if there
    /// has been no retry.
    pub fn is_started(&self) -> bool {
        self.stage != Stage::Unselected || self.retries > 0
    }

    /// Returns the number of retries on other servers.
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    /// Handles a changed list of servers. `server` is the new index of the selected server, if it is still in the list.
    pub const fn handle_new_list(&mut self, server: Option<usize>) {
        self.server = server;
        self.sticky_server = None;
        self.tried = TriedServers(0);
    }

    /// Selects a server.
    pub fn select<S: Server>(&mut self, context: &mut SelectionContext<'_, S>) -> Output {
        match self.stage {
            Stage::Done => self.close(Reason::NoConnection),
            Stage::Unselected | Stage::Queued | Stage::Selected => {
                self.pick(context, PickReason::New)
            }
        }
    }

    /// Selects a server for a queued request when a slot may be free. Returns `None` if the request is not queued: the
    /// driver must then wake up the next queued request.
    pub fn handle_queue_turn<S: Server>(
        &mut self,
        context: &mut SelectionContext<'_, S>,
    ) -> Option<Output> {
        (self.stage == Stage::Queued).then(|| self.pick(context, PickReason::SlotFree))
    }

    /// Handles the removal of the request from the queue.
    pub const fn handle_queue_exit(&mut self, exit: QueueExit) -> Output {
        let status = match exit {
            QueueExit::QueueTimeout => 503,
            QueueExit::TotalTimeout => 504,
        };
        self.end_with_response(status, Reason::Queued)
    }

    /// Handles a connection to the selected server that could not be started. The driver releases the server's slot.
    pub fn handle_connect_error<S: Server>(
        &mut self,
        error: ConnectError,
        context: &mut SelectionContext<'_, S>,
    ) -> Verdict {
        match error {
            ConnectError::NoDescriptors => Verdict {
                fault: None,
                next: self.give_up(503, Reason::NoConnection),
            },
            // The next selection determines whether another server is usable.
            ConnectError::Rejected | ConnectError::Local => {
                let is_listed = context.policy.on.has(RetryCondition::Connect);
                let next = if is_listed && self.retries < context.policy.limit {
                    self.count_retry()
                } else {
                    self.give_up(502, Reason::NoConnection)
                };
                let fault = (error == ConnectError::Rejected).then_some(Fault::Unreachable);
                Verdict { fault, next }
            }
        }
    }

    /// Handles a failure of the selected server. Returns the server's fault, if any, and the next action.
    pub fn handle_failure<S: Server>(
        &mut self,
        failure: Failure,
        context: &mut SelectionContext<'_, S>,
    ) -> Verdict {
        let verdict = |fault, next| Verdict { fault, next };
        match failure {
            Failure::Connect => self.handle_unreachable(502, Reason::NoConnection, context),
            Failure::ConnectTimeout => {
                self.handle_unreachable(504, Reason::ConnectTimeout, context)
            }
            Failure::TotalTimeoutConnecting => {
                verdict(None, self.give_up(504, Reason::ConnectTimeout))
            }
            Failure::Declined if self.declined_count >= MAX_DECLINED => {
                self.handle_unreachable(503, Reason::NoConnection, context)
            }
            Failure::Declined => {
                self.declined_count += 1;
                verdict(None, self.repeat())
            }
            Failure::Lost {
                reused,
                head_started,
            } => self.handle_lost(reused, head_started, context),
            Failure::ResponseTimeout | Failure::TotalTimeout => {
                let is_listed = failure == Failure::ResponseTimeout
                    && context.policy.on.has(RetryCondition::Timeout);
                let next = if is_listed && self.try_retry(context) {
                    self.count_retry()
                } else {
                    self.give_up(504, Reason::ResponseTimeout)
                };
                verdict(Some(Fault::BadResponse), next)
            }
        }
    }

    /// Handles an unwanted response. Returns `None` if the request is not retried: the response is then forwarded or,
    /// if it is malformed, ends the request.
    pub fn handle_unwanted<S: Server>(
        &mut self,
        response: UnwantedResponse,
        context: &mut SelectionContext<'_, S>,
    ) -> Option<Verdict> {
        let (is_listed, fault) = match response {
            UnwantedResponse::Malformed => (
                context.policy.on.has(RetryCondition::Malformed),
                Fault::BadResponse,
            ),
            UnwantedResponse::Status(status) => {
                (context.policy.on.has_status(status), Fault::ErrorStatus)
            }
        };
        (is_listed && self.try_retry(context)).then(|| Verdict {
            fault: Some(fault),
            next: self.count_retry(),
        })
    }

    fn pick<S: Server>(
        &mut self,
        context: &mut SelectionContext<'_, S>,
        reason: PickReason,
    ) -> Output {
        let pool = context.pool;
        let may_queue = self.retries == 0 && pool.queue_timeout_ms > 0;
        // Requests in the queue come first.
        if may_queue && reason == PickReason::New && pool.queued > 0 && pool.has_full_server() {
            return self.enter_queue();
        }
        let criteria = Criteria {
            client: context.client,
            hash: self.hash,
            sticky_server: self.sticky_server,
            tried: self.tried,
            can_wait: may_queue,
            now_ms: context.now_ms,
        };
        let mut reselections = 0;
        loop {
            let Some(server) = context.balancer.pick(pool, &criteria, context.random) else {
                if may_queue && pool.has_full_server() {
                    return self.enter_queue();
                }
                // Another worker may have released a slot since the scheduler found all servers full.
                if may_queue && reselections < MAX_RESELECTIONS && pool.has_untried(self.tried) {
                    reselections += 1;
                    continue;
                }
                return self.handle_no_server(pool.no_server);
            };
            // Another worker may have acquired the last slot.
            if pool.servers[server].load().try_acquire() {
                self.server = Some(server);
                self.stage = Stage::Selected;
                return Output::Connect {
                    server,
                    connections: self.connections,
                };
            }
        }
    }

    const fn handle_no_server(&mut self, no_server: NoServer) -> Output {
        if self.retries > 0 {
            return self.end_with_response(502, Reason::NoConnection);
        }
        let reason = match self.stage {
            Stage::Queued => Reason::Queued,
            Stage::Unselected | Stage::Selected | Stage::Done => Reason::NoConnection,
        };
        match no_server {
            NoServer::Reject => self.end_with_response(503, reason),
            NoServer::Drop => self.close(reason),
        }
    }

    /// Handles a failure that occurred before anything was sent.
    fn handle_unreachable<S: Server>(
        &mut self,
        status: u16,
        reason: Reason,
        context: &SelectionContext<'_, S>,
    ) -> Verdict {
        let is_listed = context.policy.on.has(RetryCondition::Connect);
        let next = if is_listed && self.may_try_again(context) {
            self.count_retry()
        } else {
            self.give_up(status, reason)
        };
        let fault = Some(Fault::Unreachable);
        Verdict { fault, next }
    }

    fn handle_lost<S: Server>(
        &mut self,
        reused: bool,
        head_started: bool,
        context: &SelectionContext<'_, S>,
    ) -> Verdict {
        // The server may have closed the idle connection at the moment of its reuse, which is not a fault.
        let is_stale = reused && !head_started && self.connections == Connections::Any;
        if is_stale && self.replay == Replay::Allowed {
            self.connections = Connections::New;
            let next = self.repeat();
            return Verdict { fault: None, next };
        }
        let condition = if head_started {
            RetryCondition::Malformed
        } else {
            RetryCondition::Empty
        };
        if context.policy.on.has(condition) && self.try_retry(context) {
            let next = self.count_retry();
            let fault = Some(Fault::BadResponse);
            return Verdict { fault, next };
        }
        Verdict {
            fault: (!is_stale).then_some(Fault::BadResponse),
            next: self.give_up(502, Reason::BadResponse),
        }
    }

    /// Returns whether a request that a server may have processed can be sent again. If so, takes a retry from the
    /// budget.
    fn try_retry<S: Server>(&self, context: &SelectionContext<'_, S>) -> bool {
        self.replay == Replay::Allowed
            && self.may_try_again(context)
            && context.budget.spend(context.now_ms)
    }

    /// Returns whether the retry limit and the pool allow another attempt.
    fn may_try_again<S: Server>(&self, context: &SelectionContext<'_, S>) -> bool {
        let mut tried = self.tried;
        if let Some(server) = self.server {
            tried.add(server);
        }
        self.retries < context.policy.limit && context.pool.has_untried(tried)
    }

    const fn count_retry(&mut self) -> Next {
        if let Some(server) = self.server {
            self.tried.add(server);
        }
        self.retries += 1;
        self.stage = Stage::Unselected;
        Next::Select {
            attempt: AttemptKind::Retry,
        }
    }

    const fn repeat(&mut self) -> Next {
        self.stage = Stage::Unselected;
        Next::Select {
            attempt: AttemptKind::Repetition,
        }
    }

    const fn enter_queue(&mut self) -> Output {
        self.stage = Stage::Queued;
        Output::Queue
    }

    const fn end_with_response(&mut self, status: u16, reason: Reason) -> Output {
        self.stage = Stage::Done;
        Output::Respond { status, reason }
    }

    const fn close(&mut self, reason: Reason) -> Output {
        self.stage = Stage::Done;
        Output::Close { reason }
    }

    const fn give_up(&mut self, status: u16, reason: Reason) -> Next {
        self.stage = Stage::Done;
        Next::Respond { status, reason }
    }
}

/// Why [`Selection::pick`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PickReason {
    /// For a request that is not queued.
    New,
    /// For a queued request that may get a free slot.
    SlotFree,
}

#[cfg(test)]
mod tests;
