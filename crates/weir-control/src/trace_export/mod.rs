//! Sends traced requests to an OpenTelemetry collector.
//!
//! One task sends the requests that the workers have recorded, in batches. After a transient error, the task sends the
//! batch again. Meanwhile, the workers' bounded buffers fill up; requests that do not fit are dropped and counted.
//! Errors are logged at most once per minute.

mod otlp;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use weir_model::Tracing;
use weir_probing::{PostClient, PostError};
use weir_proxy::trace::{TraceQueue, TracedRequest};

use otlp::Identity;

/// Interval between batches.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of requests in a batch; each request has up to two spans of about a kilobyte.
const MAX_BATCH: usize = 1_024;
/// Timeout for sending a batch.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Delays before successive retries of a batch.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// Minimum interval between warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Timeout for sending the last batches when the daemon stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Counters of the exporter.
#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    failed: AtomicU64,
}

/// The state of the exporter, for the status and the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceStatus {
    /// The collector's URL.
    pub endpoint: String,
    /// Number of requests that were recorded since the process started.
    pub recorded: u64,
    /// Number of requests that the collector accepted.
    pub exported: u64,
    /// Number of requests that were dropped because the exporter did not keep up.
    pub dropped: u64,
    /// Number of requests that were dropped because the collector did not accept them.
    pub failed: u64,
}

/// The exporter of the active configuration.
#[derive(Debug, Default)]
pub(crate) struct TraceExport {
    running: Option<RunningExport>,
    counts: Arc<Counts>,
    /// The workers' queue, which also counts recorded and dropped requests.
    queue: Option<Arc<TraceQueue>>,
}

#[derive(Debug)]
struct RunningExport {
    config: Tracing,
    stop: Arc<Stop>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Stop {
    is_set: AtomicBool,
    wake: Notify,
}

impl TraceExport {
    /// Starts, replaces or stops the task. Must be called inside a tokio runtime.
    pub(crate) fn configure(&mut self, tracing: Option<&Tracing>, queue: &Arc<TraceQueue>) {
        if self.running.as_ref().map(|running| &running.config) == tracing {
            return;
        }
        // The previous task sends the remaining requests, then ends.
        if let Some(running) = self.running.take() {
            running.stop.set();
        }
        self.queue = Some(Arc::clone(queue));
        self.running = tracing.map(|config| {
            let stop = Arc::new(Stop::default());
            let exporter = Exporter {
                client: PostClient::new(config.endpoint.clone()),
                identity: identity(config),
                queue: Arc::clone(queue),
                counts: Arc::clone(&self.counts),
                stop: Arc::clone(&stop),
                last_warning: None,
            };
            RunningExport {
                config: config.clone(),
                stop,
                task: tokio::spawn(exporter.run()),
            }
        });
    }

    /// Sends the remaining requests, for a limited time.
    pub(crate) async fn close(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop.set();
            if timeout(CLOSE_TIMEOUT, running.task).await.is_err() {
                tracing::warn!(
                    "failed to send the last traces: the collector did not respond in time"
                );
            }
        }
    }

    /// Returns the state of the exporter; `None` = requests are not traced.
    pub(crate) fn status(&self) -> Option<TraceStatus> {
        let running = self.running.as_ref()?;
        let queue = self.queue.as_ref()?.counts();
        Some(TraceStatus {
            endpoint: running.config.endpoint.to_string(),
            recorded: queue.recorded,
            exported: self.counts.exported.load(Ordering::Relaxed),
            dropped: queue.dropped,
            failed: self.counts.failed.load(Ordering::Relaxed),
        })
    }
}

impl Stop {
    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

fn identity(config: &Tracing) -> Identity {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    Identity {
        service_name: config.service_name.clone(),
        instance: format!("{host}-{}", std::process::id()),
        host,
    }
}

struct Exporter {
    client: PostClient,
    identity: Identity,
    queue: Arc<TraceQueue>,
    counts: Arc<Counts>,
    stop: Arc<Stop>,
    last_warning: Option<Instant>,
}

impl Exporter {
    async fn run(mut self) {
        loop {
            let is_last = self.stop.is_set();
            let requests = self.queue.take();
            for batch in requests.chunks(MAX_BATCH) {
                self.send(batch).await;
            }
            if is_last {
                return;
            }
            self.pause(INTERVAL).await;
        }
    }

    /// Waits for `duration`, or until the exporter is stopped.
    async fn pause(&self, duration: Duration) {
        tokio::select! {
            () = sleep(duration) => {}
            () = self.stop.wake.notified() => {}
        }
    }

    async fn send(&mut self, batch: &[TracedRequest]) {
        let count = batch.len() as u64;
        let body = match otlp::encode(&self.identity, batch) {
            Ok(body) => body,
            Err(error) => {
                self.counts.failed.fetch_add(count, Ordering::Relaxed);
                self.warn(&error.to_string());
                return;
            }
        };
        let mut delays = RETRY_DELAYS.into_iter();
        loop {
            let (error, is_transient) = match timeout(TIMEOUT, self.client.post(&body)).await {
                Ok(Ok(())) => {
                    self.counts.exported.fetch_add(count, Ordering::Relaxed);
                    return;
                }
                Ok(Err(error)) => (error.to_string(), PostError::is_transient(&error)),
                Err(_) => ("the collector did not respond in time".to_owned(), true),
            };
            self.warn(&error);
            match delays
                .next()
                .filter(|_| is_transient && !self.stop.is_set())
            {
                Some(pause) => self.pause(pause).await,
                None => break,
            }
        }
        self.counts.failed.fetch_add(count, Ordering::Relaxed);
    }

    fn warn(&mut self, error: &str) {
        if self
            .last_warning
            .is_none_or(|time| time.elapsed() >= WARNING_INTERVAL)
        {
            self.last_warning = Some(Instant::now());
            tracing::warn!(error, "failed to send traces");
        }
    }
}
