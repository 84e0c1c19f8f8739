//! Decides which requests are traced, and buffers the finished ones for the daemon's exporter.
//!
//! Without `[tracing]`, the cost per request is one comparison. With it, a request that is not recorded costs only the
//! handling of its trace context; a recorded one also costs a few clock reads, copies of its texts, and an uncontended
//! lock at its end. If the exporter is too slow, finished requests are dropped and counted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_http::TraceContext;
use weir_model::{ParentTrace, Tracing};

/// Maximum number of finished requests per worker that wait for the exporter.
const MAX_BUFFER: usize = 4_096;

/// A finished request that is recorded. All times are durations since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedRequest {
    /// Trace identifier.
    pub trace_id: u128,
    /// Span of the client's request to Weir.
    pub span_id: u64,
    /// The client's span; 0 = the client sent none.
    pub parent_id: u64,
    /// The client's `tracestate`.
    pub trace_state: String,
    /// When the request head was complete.
    pub began: Duration,
    /// When the response ended.
    pub ended: Duration,
    /// Service name.
    pub service: String,
    /// The route's conditions and action; empty = no route.
    pub route: String,
    /// The route's path pattern; empty = none.
    pub route_path: String,
    /// Request method.
    pub method: String,
    /// Path without the query, which may contain secrets.
    pub path: String,
    /// `Host`.
    pub host: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// `1.0`, `1.1` or `2`.
    pub version: &'static str,
    /// Whether the client uses TLS.
    pub is_secure: bool,
    /// Client address.
    pub client: Option<SocketAddr>,
    /// Status of the response that the client received; 0 = none.
    pub status: u16,
    /// Name of the error kind, if the exchange failed.
    pub error: Option<&'static str>,
    /// Number of retries on other servers.
    pub retries: u32,
    /// Time and server of each failed attempt.
    pub failed: Vec<(Duration, String)>,
    /// Time in a pool's queue, in microseconds; `None` = the request did not wait.
    pub queue_us: Option<u32>,
    /// The last attempt on a server; `None` = the request needed no server.
    pub upstream: Option<TracedUpstream>,
}

/// An attempt on a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedUpstream {
    /// Span of the request to the server, and parent of the server's span.
    pub span_id: u64,
    /// When the server was selected.
    pub began: Duration,
    /// When the request was sent over an established connection.
    pub connected: Option<Duration>,
    /// When the response began.
    pub answered: Option<Duration>,
    /// Whether an idle connection was used.
    pub is_reused: bool,
    /// Whether the connection to the server uses TLS.
    pub is_secure: bool,
    /// Pool name.
    pub pool: String,
    /// The server's address as in the configuration file.
    pub server: String,
    /// IP address and port; `None` for a Unix socket.
    pub address: Option<SocketAddr>,
}

/// Counts of traced requests since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Recorded requests.
    pub recorded: u64,
    /// Recorded requests that were dropped because the exporter was too slow.
    pub dropped: u64,
}

/// Holds the finished requests of all workers until the exporter takes them.
#[derive(Debug)]
pub struct TraceQueue {
    buffers: Box<[Mutex<Vec<TracedRequest>>]>,
    recorded: AtomicU64,
    dropped: AtomicU64,
}

impl TraceQueue {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            buffers: (0..workers).map(|_| Mutex::default()).collect(),
            recorded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    fn put(&self, worker: usize, request: TracedRequest) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        let Some(buffer) = self.buffers.get(worker) else {
            return;
        };
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < MAX_BUFFER {
            buffer.push(request);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes all finished requests.
    pub fn take(&self) -> Vec<TracedRequest> {
        let mut spans = Vec::new();
        for buffer in &self.buffers {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            let finished = std::mem::take(&mut *buffer);
            drop(buffer);
            spans.extend(finished);
        }
        spans
    }

    /// Returns the counts.
    pub fn counts(&self) -> TraceCounts {
        TraceCounts {
            recorded: self.recorded.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}

/// The decision about a request's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The client does not record the trace: its fields are forwarded unchanged.
    Forward,
    /// The request belongs to this trace. `parent_id` is the client's span, if the client started the trace.
    Trace {
        trace_id: u128,
        parent_id: Option<u64>,
        is_sampled: bool,
    },
}

/// The rules that decide which requests are recorded.
#[derive(Debug)]
pub(crate) struct Tracer {
    sample: u32,
    parent: ParentTrace,
    queue: Arc<TraceQueue>,
}

impl Tracer {
    pub(crate) fn new(tracing: &Tracing, queue: &Arc<TraceQueue>) -> Self {
        Self {
            sample: tracing.sample,
            parent: tracing.parent,
            queue: Arc::clone(queue),
        }
    }

    /// Decides how a request that was received with this context is traced. `random` is the identifier of a new trace.
    pub(crate) fn decide(&self, received: Option<TraceContext>, random: u128) -> Decision {
        let received = received.filter(|_| self.parent == ParentTrace::Continue);
        match received {
            Some(received) if !received.is_sampled => Decision::Forward,
            Some(received) => Decision::Trace {
                trace_id: received.trace_id,
                parent_id: Some(received.span_id),
                is_sampled: true,
            },
            None => Decision::Trace {
                trace_id: random.max(1),
                parent_id: None,
                is_sampled: self.is_sampled(random),
            },
        }
    }

    /// Returns whether a new trace is recorded. Compares the lower half of the identifier with a threshold, like the
    /// ratio samplers of other programs.
    const fn is_sampled(&self, trace_id: u128) -> bool {
        (trace_id as u64) <= u64::MAX / self.sample as u64
    }

    pub(crate) fn put(&self, worker: usize, request: TracedRequest) {
        self.queue.put(worker, request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{HttpReceiver, SplitMix64};

    fn tracer(sample: u32, parent: ParentTrace) -> Tracer {
        let tracing = Tracing {
            endpoint: HttpReceiver::parse("http://h").unwrap(),
            sample,
            parent,
            service_name: "weir".to_owned(),
        };
        Tracer::new(&tracing, &Arc::new(TraceQueue::new(1)))
    }

    fn received_context(is_sampled: bool) -> Option<TraceContext> {
        Some(TraceContext {
            trace_id: 7,
            span_id: 8,
            is_sampled,
        })
    }

    #[test]
    fn client_decision_is_respected_unless_ignored() {
        let continuing = tracer(1_000_000, ParentTrace::Continue);
        assert_eq!(
            continuing.decide(received_context(false), 0),
            Decision::Forward
        );
        let continued = Decision::Trace {
            trace_id: 7,
            parent_id: Some(8),
            is_sampled: true,
        };
        assert_eq!(
            continuing.decide(received_context(true), u128::MAX),
            continued
        );
        let ignoring = tracer(1_000_000, ParentTrace::Ignore);
        for sampled in [false, true] {
            let Decision::Trace {
                trace_id,
                parent_id,
                is_sampled,
            } = ignoring.decide(received_context(sampled), u128::MAX)
            else {
                panic!("forwarded");
            };
            assert_eq!((trace_id, parent_id, is_sampled), (u128::MAX, None, false));
        }
    }

    #[test]
    fn share_of_recorded_new_traces_matches_sample() {
        let mut random = SplitMix64::new(1);
        for (sample, expected) in [(1, 100_000), (10, 10_000), (1_000, 100)] {
            let tracer = tracer(sample, ParentTrace::Continue);
            let sampled = (0..100_000).filter(|_| {
                let id = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
                matches!(
                    tracer.decide(None, id),
                    Decision::Trace {
                        is_sampled: true,
                        ..
                    }
                )
            });
            let sampled = i64::try_from(sampled.count()).unwrap();
            assert!(
                (sampled - expected).abs() <= expected / 3,
                "{sample}: {sampled}"
            );
        }
    }

    #[test]
    fn requests_beyond_buffer_limit_are_dropped_and_counted() {
        let queue = TraceQueue::new(1);
        for _ in 0..MAX_BUFFER + 3 {
            queue.put(0, TracedRequest::default());
        }
        let counts = queue.counts();
        assert_eq!(
            (counts.recorded, counts.dropped),
            (MAX_BUFFER as u64 + 3, 3)
        );
        assert_eq!(queue.take().len(), MAX_BUFFER);
        assert!(queue.take().is_empty());
    }
}
