//! Runs the announcer's loop: handles facts from the daemon and timers, and sends commands to the speaker.

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
use weir_sys::{Clock, now_ns, read_own};

use crate::decision::{Decisions, WITHDRAWN};
use crate::error::{Error, Result};
use crate::message::{Report, Request};
use crate::policy::Policy;
use crate::speaker::Driver;

pub(crate) const SOCKET: &str = "announce.sock";
/// File with the VIPs that the speaker may announce, for the next announcer.
const RECORD: &str = "announced.json";
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Maximum number of connections that are served at the same time; further ones are closed.
const CLIENTS_MAX: usize = 64;
/// Maximum size of a request, in bytes: some ten thousand VIPs.
const REQUEST_MAX: u64 = 4 << 20;
/// Time limit for the exit of the previous announcer.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay before a failed command is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Interval of [`Driver::refresh`].
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);
/// Time without facts after which routes of an earlier announcer are withdrawn: the daemon may still be starting.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum pause of the loop.
const MAX_PAUSE: Duration = Duration::from_secs(60);

struct Announcer {
    record: PathBuf,
    settings: Option<Announce>,
    decisions: Decisions,
    driver: Driver,
    recorded: Vec<IpAddr>,
    error: Option<String>,
    /// Why the last request was rejected; not logged again.
    rejected: Option<String>,
    retry_at: Option<Instant>,
    refresh_at: Instant,
}

/// A request of a client.
struct Pending {
    request: Request,
    /// Whether the client is root or has the user of this process.
    is_trusted: bool,
    reply: oneshot::Sender<Report>,
}

/// Runs the announcer until SIGTERM, which withdraws all routes, or until another announcer takes over. `configuration`
/// is root's file, which limits what an unprivileged daemon may have announced. Must be called inside a tokio runtime.
///
/// # Errors
/// The socket cannot be created.
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
            Some(Pending { request, is_trusted, reply }) = requests.recv() => match request {
                Request::Facts(facts) => {
                    if !is_trusted && let Err(reason) = policy.check(&facts) {
                        let _ = reply.send(announcer.reject(reason));
                        continue;
                    }
                    announcer.rejected = None;
                    if announcer.settings.as_ref() != Some(&facts.settings) {
                        announcer.driver.resend_all();
                        announcer.settings = Some(facts.settings.clone());
                    }
                    announcer.decisions.handle_facts(&facts, clocks());
                    announcer.apply().await;
                    let _ = reply.send(announcer.report());
                }
                // The routes would remain, and nothing would withdraw them.
                Request::HandOver if !is_trusted => {
                    let reason = "an unprivileged daemon cannot take over".to_owned();
                    let _ = reply.send(announcer.reject(reason));
                }
                Request::HandOver => {
                    let _ = reply.send(announcer.report());
                    // Another task writes the reply.
                    sleep(Duration::from_millis(10)).await;
                    return Ok(());
                }
            },
            _ = terminate.recv() => {
                announcer.withdraw_all().await;
                return Ok(());
            }
            () = sleep(announcer.pause()) => {
                announcer.decisions.handle_timeout(clocks());
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
fn clocks() -> (Duration, Duration) {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_boot = Duration::from_nanos(now_ns(Clock::Boottime));
    (since_boot, unix.unwrap_or_default())
}

impl Announcer {
    fn new(runtime_dir: &Path) -> Self {
        let record = runtime_dir.join(RECORD);
        // An unprivileged daemon may write to the directory.
        let left = read_own(&record).unwrap_or_default();
        let left: Vec<IpAddr> = serde_json::from_slice(&left).unwrap_or_default();
        Self {
            record,
            settings: None,
            decisions: Decisions::new(left.iter().copied(), START_TIMEOUT, clocks()),
            driver: Driver::new(&left),
            recorded: left,
            error: None,
            rejected: None,
            retry_at: None,
            refresh_at: Instant::now() + REFRESH_INTERVAL,
        }
    }

    /// Returns whether the daemon is gone and all routes are withdrawn.
    fn is_done(&self) -> bool {
        self.decisions.is_lost() && self.error.is_none()
    }

    /// Returns the time until something is due, at most [`MAX_PAUSE`].
    fn pause(&self) -> Duration {
        let (now, _) = clocks();
        let next = self.decisions.next_deadline();
        let next = next
            .map_or(MAX_PAUSE, |at| at.saturating_sub(now))
            .min(MAX_PAUSE);
        let retry = self.retry_at.map(|at| at.duration_since(Instant::now()));
        let refresh = self.refresh_at.duration_since(Instant::now());
        next.min(retry.unwrap_or(MAX_PAUSE)).min(refresh)
    }

    fn refresh(&mut self) {
        if let Some(settings) = &self.settings
            && Instant::now() >= self.refresh_at
        {
            self.driver.refresh(settings);
            self.refresh_at = Instant::now() + REFRESH_INTERVAL;
        }
    }

    /// Passes the routes to the speaker. A failed command is tried again after [`RETRY_DELAY`].
    async fn apply(&mut self) {
        let Some(settings) = self.settings.clone() else {
            return;
        };
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        let routes = self.decisions.routes();
        let before: Vec<IpAddr> = self.driver.announced().collect();
        // Recorded before the command, because a route that is not recorded would never be withdrawn.
        self.record_announced(before.into_iter().chain(routes.keys().copied()));
        match self.driver.apply(&settings, &routes).await {
            Ok(()) => {
                if self.error.take().is_some() {
                    tracing::info!(
                        speaker = settings.speaker.as_str(),
                        "the speaker works again"
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

    async fn withdraw_all(&mut self) {
        self.decisions = Decisions::default();
        self.retry_at = None;
        self.apply().await;
    }

    /// Records the VIPs that the speaker may announce.
    fn record_announced(&mut self, vips: impl Iterator<Item = IpAddr>) {
        let mut vips: Vec<IpAddr> = vips.collect();
        vips.sort_unstable();
        vips.dedup();
        if vips == self.recorded {
            return;
        }
        let written = serde_json::to_vec(&vips).map_err(Into::into);
        match written.and_then(|text| weir_sys::replace_file(&self.record, &text)) {
            Ok(()) => self.recorded = vips,
            Err(error) => tracing::warn!(%error, "failed to record the announced VIPs"),
        }
    }

    /// Returns a report that rejects a request of an unprivileged daemon.
    fn reject(&mut self, reason: String) -> Report {
        let report = Report {
            error: Some(reason.clone()),
            ..self.report()
        };
        if self.rejected.as_ref() != Some(&reason) {
            tracing::error!(reason, "refused a request of the daemon");
            self.rejected = Some(reason);
        }
        report
    }

    /// Returns the states of the VIPs. A VIP that the speaker has not accepted is reported as withdrawn.
    fn report(&self) -> Report {
        let mut routes = self.decisions.report();
        if let Some(error) = &self.error {
            let wanted = routes.iter_mut().filter(|it| it.state != WITHDRAWN);
            for route in wanted.filter(|it| !self.driver.has_accepted(it.vip)) {
                route.state = WITHDRAWN.to_owned();
                route.reason = format!("the speaker has not accepted it: {error}");
            }
        }
        Report {
            routes,
            error: self.error.clone(),
        }
    }
}

/// Creates the socket, after an earlier announcer has exited. Only its owner or the daemon's account can use it.
async fn bind(runtime_dir: &Path) -> Result<UnixListener> {
    let path = runtime_dir.join(SOCKET);
    let failed = |source| Error::File {
        path: path.clone(),
        source,
    };
    if let Ok(mut stream) = UnixStream::connect(&path).await {
        let handed_over = async {
            let mut line = serde_json::to_vec(&Request::HandOver)?;
            line.push(b'\n');
            stream.write_all(&line).await?;
            // Until the previous announcer exits, which closes the connection.
            stream.read_to_end(&mut Vec::new()).await
        };
        let _ = timeout(HAND_OVER_TIMEOUT, handed_over).await;
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

async fn accept(listener: UnixListener, requests: mpsc::Sender<Pending>) {
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(permit) = Arc::clone(&clients).try_acquire_owned() else {
                    continue;
                };
                let served = serve(stream, requests.clone());
                tokio::spawn(async move {
                    served.await;
                    drop(permit);
                });
            }
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

/// Serves a client: each line is a request.
async fn serve(stream: UnixStream, requests: mpsc::Sender<Pending>) {
    let Ok(peer) = stream.peer_cred() else {
        return;
    };
    let is_trusted = peer.uid() == 0 || peer.uid() == geteuid().as_raw();
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        match (&mut reader).take(REQUEST_MAX).read_line(&mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Ok(request) = serde_json::from_str(&line) else {
            tracing::warn!("ignored an invalid request, and closed the connection");
            return;
        };
        let (reply, receiver) = oneshot::channel();
        let pending = Pending {
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
