//! Runs the announcer's main loop: handles requests and timers, and updates the speaker's routes.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::process::{geteuid, getppid};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use weir_model::Announce;
use weir_sys::{Clock, now_ns, read_owned_file};

use crate::decision::{Decisions, WITHDRAWN};
use crate::error::{Error, Result};
use crate::message::{Report, Request};
use crate::policy::Policy;
use crate::speaker::Driver;

pub(crate) const SOCKET: &str = "announce.sock";
/// File that stores the VIPs that the speaker may be announcing, for the next announcer.
const RECORD: &str = "announced.json";
/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 128;
/// Maximum number of concurrent connections; further connections are closed.
const CLIENTS_MAX: usize = 64;
/// Maximum size of a request, enough for ten thousand VIPs.
const REQUEST_MAX_BYTES: u64 = 4 << 20;
/// Time limit for the previous announcer to exit.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay before a failed command is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Interval of [`Driver::refresh`].
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);
/// Time without a report after which routes from an earlier announcer are withdrawn. The limit is long because the
/// daemon may still be starting.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time that the loop sleeps.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// State of the announcer.
struct Announcer {
    /// The file that stores [`Self::recorded`].
    record: PathBuf,
    settings: Option<Announce>,
    decisions: Decisions,
    driver: Driver,
    /// The VIPs in the file `record`.
    recorded: Vec<IpAddr>,
    /// The speaker's error, until a command succeeds.
    error: Option<String>,
    /// Why the last request was rejected. The same reason is not logged again.
    rejected: Option<String>,
    retry_at: Option<Instant>,
    refresh_at: Instant,
}

/// A client's request that has not been answered yet.
struct PendingRequest {
    request: Request,
    /// Whether the client runs as root or as the same user as this process.
    is_trusted: bool,
    reply: oneshot::Sender<Report>,
}

/// Runs the announcer until SIGTERM, when all routes are withdrawn, or until another announcer takes over.
/// `configuration` is root's file, which limits the announcements of an unprivileged daemon. Must be called inside a
/// tokio runtime.
///
/// # Errors
/// Returns an error if the signal handler or the socket cannot be created.
pub async fn run(runtime_dir: &Path, configuration: &Path) -> Result<()> {
    let terminate = signal(SignalKind::terminate());
    let mut terminate = terminate.map_err(Error::Signals)?;
    let listener = bind(runtime_dir).await?;
    let (sender, mut requests) = mpsc::channel(16);
    tokio::spawn(accept(listener, sender));
    let mut announcer = Announcer::new(runtime_dir);
    let mut policy = Policy::new(configuration, runtime_dir);
    let keeper = getppid();
    loop {
        tokio::select! {
            Some(PendingRequest { request, is_trusted, reply }) = requests.recv() => match request {
                Request::DaemonReport(daemon_report) => {
                    if !is_trusted && let Err(reason) = policy.check(&daemon_report) {
                        let _ = reply.send(announcer.reject(reason));
                        continue;
                    }
                    announcer.rejected = None;
                    if announcer.settings.as_ref() != Some(&daemon_report.settings) {
                        announcer.driver.resend_all();
                        announcer.settings = Some(daemon_report.settings.clone());
                    }
                    announcer.decisions.handle_daemon_report(&daemon_report, current_times());
                    announcer.apply().await;
                    let _ = reply.send(announcer.report());
                }
                // Do not exit: the routes would remain, and no process would withdraw them.
                Request::HandOver if !is_trusted => {
                    let reason = "an unprivileged daemon cannot take over".to_owned();
                    let _ = reply.send(announcer.reject(reason));
                }
                Request::HandOver => {
                    let _ = reply.send(announcer.report());
                    // Yield to the task that writes the reply.
                    sleep(Duration::from_millis(10)).await;
                    return Ok(());
                }
            },
            _ = terminate.recv() => {
                announcer.withdraw_all().await;
                return Ok(());
            }
            () = sleep(announcer.pause()) => {
                announcer.decisions.handle_timeout(current_times());
                announcer.refresh();
                announcer.apply().await;
                if getppid() != keeper && announcer.is_done() {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the time since boot, and Unix time.
fn current_times() -> (Duration, Duration) {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_boot = Duration::from_nanos(now_ns(Clock::Boottime));
    (since_boot, unix.unwrap_or_default())
}

impl Announcer {
    fn new(runtime_dir: &Path) -> Self {
        let record = runtime_dir.join(RECORD);
        // Read the file only if this process's user owns it, because an unprivileged daemon may be able to write to the
        // directory.
        let content = read_owned_file(&record).unwrap_or_default();
        let inherited: Vec<IpAddr> = serde_json::from_slice(&content).unwrap_or_default();
        Self {
            record,
            settings: None,
            decisions: Decisions::new(inherited.iter().copied(), START_TIMEOUT, current_times()),
            driver: Driver::new(&inherited),
            recorded: inherited,
            error: None,
            rejected: None,
            retry_at: None,
            refresh_at: Instant::now() + REFRESH_INTERVAL,
        }
    }

    /// Returns whether the daemon has sent no report for `withdraw_after` and all routes are withdrawn.
    fn is_done(&self) -> bool {
        self.decisions.is_daemon_silent() && self.error.is_none()
    }

    /// Returns the time until the next deadline, at most [`PAUSE_MAX`].
    fn pause(&self) -> Duration {
        let (now, _) = current_times();
        let until_decision = self
            .decisions
            .next_deadline()
            .map_or(PAUSE_MAX, |deadline| deadline.saturating_sub(now))
            .min(PAUSE_MAX);
        let until_retry = self
            .retry_at
            .map(|time| time.duration_since(Instant::now()));
        let until_refresh = self.refresh_at.duration_since(Instant::now());
        until_decision
            .min(until_retry.unwrap_or(PAUSE_MAX))
            .min(until_refresh)
    }

    /// Calls [`Driver::refresh`] if its interval has passed.
    fn refresh(&mut self) {
        if let Some(settings) = &self.settings
            && Instant::now() >= self.refresh_at
        {
            self.driver.refresh(settings);
            self.refresh_at = Instant::now() + REFRESH_INTERVAL;
        }
    }

    /// Passes the routes to the speaker. A failed command is retried after [`RETRY_DELAY`].
    async fn apply(&mut self) {
        let Some(settings) = self.settings.clone() else {
            return;
        };
        if self.retry_at.is_some_and(|time| time > Instant::now()) {
            return;
        }
        let routes = self.decisions.routes();
        let previous: Vec<IpAddr> = self.driver.announced_vips().collect();
        // Record the VIPs before the command, because routes that are not recorded would never be withdrawn.
        self.record_announced(previous.into_iter().chain(routes.keys().copied()));
        match self.driver.apply(&settings, &routes).await {
            Ok(()) => {
                if self.error.take().is_some() {
                    tracing::info!(
                        speaker = settings.speaker.as_str(),
                        "the speaker has recovered"
                    );
                }
                self.retry_at = None;
                self.record_announced(routes.keys().copied());
            }
            Err(error) => {
                let error = error.to_string();
                if self.error.as_ref() != Some(&error) {
                    tracing::error!(%error, "failed to announce VIPs");
                }
                self.error = Some(error);
                self.retry_at = Some(Instant::now() + RETRY_DELAY);
            }
        }
    }

    /// Withdraws all routes. Errors are only logged.
    async fn withdraw_all(&mut self) {
        self.decisions = Decisions::default();
        self.retry_at = None;
        self.apply().await;
    }

    /// Records the VIPs that the speaker may be announcing.
    fn record_announced(&mut self, vips: impl Iterator<Item = IpAddr>) {
        let mut vips: Vec<IpAddr> = vips.collect();
        vips.sort_unstable();
        vips.dedup();
        if vips == self.recorded {
            return;
        }
        let encoded = serde_json::to_vec(&vips).map_err(Into::into);
        match encoded.and_then(|text| weir_sys::replace_file(&self.record, &text)) {
            Ok(()) => self.recorded = vips,
            Err(error) => tracing::warn!(%error, "failed to record the announced VIPs"),
        }
    }

    /// Returns a report that rejects a request from an unprivileged daemon.
    fn reject(&mut self, reason: String) -> Report {
        let report = Report {
            error: Some(reason.clone()),
            ..self.report()
        };
        if self.rejected.as_ref() != Some(&reason) {
            tracing::error!(reason, "refused a request from the daemon");
            self.rejected = Some(reason);
        }
        report
    }

    /// Returns the states of the VIPs. A VIP that the speaker has not accepted is reported as withdrawn.
    fn report(&self) -> Report {
        let mut routes = self.decisions.report();
        if let Some(error) = &self.error {
            let announced = routes.iter_mut().filter(|it| it.state != WITHDRAWN);
            for route in announced.filter(|it| !self.driver.has_accepted(it.vip)) {
                route.state = WITHDRAWN.to_owned();
                route.reason = format!("the speaker has not accepted the route: {error}");
            }
        }
        Report {
            routes,
            error: self.error.clone(),
        }
    }
}

/// Makes an earlier announcer exit, and creates the socket. Only the socket's owner and the daemon's account can
/// connect to the socket.
async fn bind(runtime_dir: &Path) -> Result<UnixListener> {
    let path = runtime_dir.join(SOCKET);
    let failed = |source| Error::File {
        path: path.clone(),
        source,
    };
    if let Ok(mut stream) = UnixStream::connect(&path).await {
        let hand_over = async {
            let mut line = serde_json::to_vec(&Request::HandOver)?;
            line.push(b'\n');
            stream.write_all(&line).await?;
            // The previous announcer closes the connection when it exits.
            stream.read_to_end(&mut Vec::new()).await
        };
        let _ = timeout(HAND_OVER_TIMEOUT, hand_over).await;
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = weir_sys::create_private_listener(&path, BACKLOG).map_err(failed)?;
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    weir_runtime_dir::chown_socket(runtime_dir, &path).map_err(failed)?;
    Ok(listener)
}

/// Accepts connections, and starts a task for each.
async fn accept(listener: UnixListener, requests: mpsc::Sender<PendingRequest>) {
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(permit) = Arc::clone(&clients).try_acquire_owned() else {
                    continue;
                };
                let serving = serve(stream, requests.clone());
                tokio::spawn(async move {
                    serving.await;
                    drop(permit);
                });
            }
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

/// Serves a client, which sends one request per line. Returns when the connection ends or a request is invalid.
async fn serve(stream: UnixStream, requests: mpsc::Sender<PendingRequest>) {
    let Ok(peer) = stream.peer_cred() else {
        return;
    };
    let is_trusted = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        match (&mut reader)
            .take(REQUEST_MAX_BYTES)
            .read_line(&mut line)
            .await
        {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Ok(request) = serde_json::from_str(&line) else {
            tracing::warn!("ignored an invalid request, and closed the connection");
            return;
        };
        let (reply, receiver) = oneshot::channel();
        let pending = PendingRequest {
            request,
            is_trusted,
            reply,
        };
        if requests.send(pending).await.is_err() {
            return;
        }
        let Ok(report) = receiver.await else {
            return;
        };
        let Ok(mut text) = serde_json::to_vec(&report) else {
            return;
        };
        text.push(b'\n');
        if writer.write_all(&text).await.is_err() {
            return;
        }
    }
}
