//! Connects the daemon to the announcer: sends the daemon's reports, and keeps the announcer's latest report.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::message::{DaemonReport, Report, Request};
use crate::process::SOCKET;

/// Interval at which an unchanged report is sent again.
const RESEND_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit for a reply from the announcer, which may wait several seconds for a speaker.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before the next attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);

/// The daemon's connection to the announcer.
#[derive(Debug)]
pub struct Client {
    daemon_report: watch::Sender<Option<DaemonReport>>,
    report: Arc<Mutex<Option<Report>>>,
}

impl Client {
    /// Creates a client that connects to the announcer of a runtime directory while there is a report to send. Must be
    /// called inside a tokio runtime.
    pub fn new(runtime_dir: &Path) -> Self {
        let (daemon_report, receiver) = watch::channel(None);
        let report = Arc::new(Mutex::new(None));
        let path = runtime_dir.join(SOCKET);
        tokio::spawn(send_reports(path, receiver, Arc::clone(&report)));
        Self {
            daemon_report,
            report,
        }
    }

    /// Sends the report; `None` = disconnect, because the configuration announces nothing.
    pub fn send(&self, daemon_report: Option<DaemonReport>) {
        self.daemon_report.send_if_modified(|current| {
            let is_new = *current != daemon_report;
            *current = daemon_report;
            is_new
        });
    }

    /// Returns the announcer's latest report; `None` = the announcer is not responding, or nothing is announced.
    pub fn report(&self) -> Option<Report> {
        let report = self.report.lock();
        report.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sends reports and stores the replies, until the [`Client`] is dropped.
async fn send_reports(
    path: PathBuf,
    mut daemon_report: watch::Receiver<Option<DaemonReport>>,
    report: Arc<Mutex<Option<Report>>>,
) {
    let set_report =
        |new_report| *report.lock().unwrap_or_else(PoisonError::into_inner) = new_report;
    loop {
        if daemon_report.borrow_and_update().is_none() {
            set_report(None);
            if daemon_report.changed().await.is_err() {
                return;
            }
            continue;
        }
        if let Ok(stream) = UnixStream::connect(&path).await {
            let (reader, mut writer) = stream.into_split();
            let mut lines = BufReader::new(reader).lines();
            loop {
                let Some(current) = daemon_report.borrow_and_update().clone() else {
                    break;
                };
                let Ok(mut text) = serde_json::to_vec(&Request::DaemonReport(current)) else {
                    break;
                };
                text.push(b'\n');
                if writer.write_all(&text).await.is_err() {
                    break;
                }
                let Ok(Ok(Some(line))) = timeout(REPLY_TIMEOUT, lines.next_line()).await else {
                    break;
                };
                let Ok(new_report) = serde_json::from_str(&line) else {
                    break;
                };
                set_report(Some(new_report));
                tokio::select! {
                    changed = daemon_report.changed() => if changed.is_err() { return },
                    () = sleep(RESEND_INTERVAL) => {}
                }
            }
        }
        set_report(None);
        tokio::select! {
            changed = daemon_report.changed() => if changed.is_err() { return },
            () = sleep(RECONNECT_DELAY) => {}
        }
    }
}
