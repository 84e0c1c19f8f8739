//! Traces of requests: workers append finished requests to bounded buffers, and the daemon's exporter takes them.
//!
//! Without `[tracing]` a worker tests one option per request. With it, a request that is not recorded costs its trace
//! context; one that is recorded costs a few clock reads, copies of its texts, and an uncontended lock at its end. If
//! the exporter does not keep up, finished requests are dropped and counted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_http::TraceContext;
use weir_model::{ParentTrace, Tracing};

/// Finished requests that wait for the exporter, per worker.
const ROOM: usize = 4_096;

/// A finished request that is recorded. Times count from 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedRequest {
    /// The trace.
    pub trace_id: u128,
    /// The span of the request from the client, as it is seen here.
    pub span_id: u64,
    /// The client's span; 0 = the client sent none.
    pub parent_id: u64,
    /// The client's `tracestate`.
    pub trace_state: String,
    /// When its head was complete, and when its response ended.
    pub began: Duration,
    /// See `began`.
    pub ended: Duration,
    /// The service.
    pub service: String,
    /// Conditions and action of its route; empty = none.
    pub route: String,
    /// The path pattern of its route; empty = none.
    pub route_path: String,
    /// Method.
    pub method: String,
    /// Path without query, which may contain secrets.
    pub path: String,
    /// `Host`.
    pub host: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// `1.0`, `1.1` or `2`.
    pub version: &'static str,
    /// Whether the client uses TLS.
    pub is_secure: bool,
    /// Client.
    pub client: Option<SocketAddr>,
    /// Of the response that the client received; 0 = none.
    pub status: u16,
    /// The kind of its error.
    pub error: Option<&'static str>,
    /// Retries at other servers.
    pub retries: u32,
    /// Failed attempts: when, and at which server.
    pub failed: Vec<(Duration, String)>,
    /// Microseconds in the queue of a pool.
    pub queue_us: Option<u32>,
    /// The last attempt at a server; `None` = the request needed no server.
    pub upstream: Option<TracedUpstream>,
}

/// A request to a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedUpstream {
    /// Its span, the parent of the server's.
    pub span_id: u64,
    /// When the server was selected.
    pub began: Duration,
    /// When the request was sent: there was a connection.
    pub connected: Option<Duration>,
    /// When the response began.
    pub answered: Option<Duration>,
    /// Whether an idle connection was used.
    pub is_reused: bool,
    /// Whether the connection to the server uses TLS.
    pub is_secure: bool,
    /// Pool.
    pub pool: String,
    /// The server as in the configuration.
    pub server: String,
    /// Its address and port.
    pub address: Option<SocketAddr>,
}

/// Numbers of traced requests since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Recorded requests.
    pub recorded: u64,
    /// Those that were dropped because the exporter did not keep up.
    pub dropped: u64,
}

/// Finished requests of all workers.
#[derive(Debug)]
pub struct TraceQueue {
    each: Box<[Mutex<Vec<TracedRequest>>]>,
    recorded: AtomicU64,
    dropped: AtomicU64,
}

impl TraceQueue {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            each: (0..workers).map(|_| Mutex::default()).collect(),
            recorded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    fn put(&self, worker: usize, request: TracedRequest) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        let Some(buffer) = self.each.get(worker) else {
            return;
        };
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < ROOM {
            buffer.push(request);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes all finished requests.
    pub fn take(&self) -> Vec<TracedRequest> {
        let mut all = Vec::new();
        for buffer in &self.each {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = std::mem::take(&mut *buffer);
            drop(buffer);
            all.extend(taken);
        }
        all
    }

    /// The counts.
    pub fn counts(&self) -> TraceCounts {
        TraceCounts {
            recorded: self.recorded.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}

/// What becomes of a request's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The client does not record: its fields are forwarded.
    Forward,
    /// A trace, and the client's span if the trace is the client's.
    Trace {
        trace_id: u128,
        parent_id: Option<u64>,
        is_sampled: bool,
    },
}

/// Which requests are recorded, and where they go.
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

    /// Decides what becomes of a request with this context; `random` is the identifier of a new trace.
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

    /// The lower half of an identifier is compared with a threshold, as the ratio samplers of other programs do.
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

    fn received(is_sampled: bool) -> Option<TraceContext> {
        Some(TraceContext {
            trace_id: 7,
            span_id: 8,
            is_sampled,
        })
    }

    #[test]
    fn decision_of_the_client_is_respected_unless_ignored() {
        let follows = tracer(1_000_000, ParentTrace::Continue);
        assert_eq!(follows.decide(received(false), 0), Decision::Forward);
        let continued = Decision::Trace {
            trace_id: 7,
            parent_id: Some(8),
            is_sampled: true,
        };
        assert_eq!(follows.decide(received(true), u128::MAX), continued);
        let ignores = tracer(1_000_000, ParentTrace::Ignore);
        for sampled in [false, true] {
            let Decision::Trace {
                trace_id,
                parent_id,
                is_sampled,
            } = ignores.decide(received(sampled), u128::MAX)
            else {
                panic!("forwarded");
            };
            assert_eq!((trace_id, parent_id, is_sampled), (u128::MAX, None, false));
        }
    }

    #[test]
    fn one_of_so_many_new_traces_is_recorded() {
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
    fn full_buffer_drops_and_counts() {
        let queue = TraceQueue::new(1);
        for _ in 0..ROOM + 3 {
            queue.put(0, TracedRequest::default());
        }
        let counts = queue.counts();
        assert_eq!((counts.recorded, counts.dropped), (ROOM as u64 + 3, 3));
        assert_eq!(queue.take().len(), ROOM);
        assert!(queue.take().is_empty());
    }
}
