//! Runs the announcer's main loop: handles requests and timers.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{geteuid, getppid};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::announcer::Announcer;
use crate::error::{Error, Result};
use crate::message::{Report, Request};
use crate::policy::Policy;

pub(crate) const SOCKET: &str = "announce.sock";
/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 128;
/// Maximum number of concurrent connections; further connections are closed.
const MAX_CLIENTS: usize = 64;
/// Maximum size of a request, enough for ten thousand VIPs.
const MAX_REQUEST_BYTES: u64 = 4 << 20;
/// Time limit for the previous announcer to exit.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time between SIGTERM and the end of [`run`]. Routes that the speaker has not withdrawn by then remain.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before the next attempt after a connection could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A client's request that has not been answered yet.
struct PendingRequest {
    request: Request,
    /// Whether the client runs as root or as the same user as this process.
    is_trusted: bool,
    reply: oneshot::Sender<Report>,
}

/// Runs the announcer until SIGTERM, until another announcer takes over, or until the keeper has exited and all routes
/// are withdrawn. After SIGTERM, withdraws all routes within [`STOP_TIMEOUT`]. `configuration` is root's configuration
/// file, which limits the announcements of an unprivileged daemon. Must be called inside a tokio runtime.
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
    let is_stopped = tokio::select! {
        biased;
        // This interrupts a running command to the speaker. The command's routes are withdrawn too, because they are
        // recorded.
        _ = terminate.recv() => true,
        () = handle_requests(&mut announcer, &mut policy, &mut requests) => false,
    };
    if is_stopped
        && timeout(STOP_TIMEOUT, announcer.withdraw_all())
            .await
            .is_err()
    {
        let routes = announcer.announced_vip_count();
        tracing::error!(
            routes,
            "the speaker did not withdraw some routes in time; these routes remain"
        );
    }
    Ok(())
}

/// Handles requests and timers until another announcer takes over, or the keeper has exited and all routes are
/// withdrawn.
async fn handle_requests(
    announcer: &mut Announcer,
    policy: &mut Policy,
    requests: &mut mpsc::Receiver<PendingRequest>,
) {
    let keeper = getppid();
    loop {
        tokio::select! {
            // Requests come before the timer: a report that arrived while a command was running shows that the daemon
            // is not silent, and a withdrawal must not wait for the remaining steps of a change.
            biased;
            Some(PendingRequest { request, is_trusted, reply }) = requests.recv() => match request {
                Request::DaemonReport(daemon_report) => {
                    let permitted = if is_trusted { Ok(()) } else { policy.check(&daemon_report) };
                    let _ = reply.send(match permitted {
                        Ok(()) => announcer.handle_daemon_report(&daemon_report).await,
                        Err(reason) => announcer.reject(reason),
                    });
                }
                // Do not exit: the routes would remain, and no process would withdraw them.
                Request::HandOver if !is_trusted => {
                    let reason = "an unprivileged daemon cannot take over".to_owned();
                    let _ = reply.send(announcer.reject(reason));
                }
                Request::HandOver => {
                    let _ = reply.send(announcer.report());
                    // Give the task that writes the reply time to do so.
                    sleep(Duration::from_millis(10)).await;
                    return;
                }
            },
            () = sleep(announcer.pause()) => {
                announcer.handle_timeout().await;
                if getppid() != keeper && announcer.is_done() {
                    return;
                }
            }
        }
    }
}

/// Asks the previous announcer to exit, waits for at most [`HANDOVER_TIMEOUT`], and replaces the socket. Only the
/// socket's owner and the daemon's account can connect to the new socket.
async fn bind(runtime_dir: &Path) -> Result<UnixListener> {
    let path = runtime_dir.join(SOCKET);
    let failed = |source| Error::File {
        path: path.clone(),
        source,
    };
    if let Ok(mut stream) = UnixStream::connect(&path).await {
        let handover = async {
            let mut line = serde_json::to_vec(&Request::HandOver)?;
            line.push(b'\n');
            stream.write_all(&line).await?;
            // The previous announcer closes the connection when it exits.
            stream.read_to_end(&mut Vec::new()).await
        };
        let _ = timeout(HANDOVER_TIMEOUT, handover).await;
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
    let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
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
            Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
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
            .take(MAX_REQUEST_BYTES)
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
