//! The daemon's connection to the announcer: sends facts, and keeps the latest report.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::message::{Facts, Report, Request};
use crate::process::SOCKET;

/// Interval at which unchanged facts are sent again.
const RESEND_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit for a reply of the announcer, which may have to wait two seconds for a speaker.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before the next attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);

/// The daemon's connection to the announcer.
#[derive(Debug)]
pub struct Client {
    facts: watch::Sender<Option<Facts>>,
    report: Arc<Mutex<Option<Report>>>,
}

impl Client {
    /// Creates a client, which connects to the announcer of a runtime directory while there are facts to send. Must be
    /// called inside a tokio runtime.
    pub fn new(runtime_dir: &Path) -> Self {
        let (facts, receiver) = watch::channel(None);
        let report = Arc::new(Mutex::new(None));
        let path = runtime_dir.join(SOCKET);
        tokio::spawn(send_facts(path, receiver, Arc::clone(&report)));
        Self { facts, report }
    }

    /// Sends facts; `None` = the client disconnects, because the configuration announces nothing.
    pub fn send(&self, facts: Option<Facts>) {
        self.facts.send_if_modified(|current| {
            let is_new = *current != facts;
            *current = facts;
            is_new
        });
    }

    /// Returns the announcer's latest report; `None` = the announcer does not reply.
    pub fn report(&self) -> Option<Report> {
        let report = self.report.lock();
        report.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sends facts and stores the replies, until the client is dropped.
async fn send_facts(
    path: PathBuf,
    mut facts: watch::Receiver<Option<Facts>>,
    report: Arc<Mutex<Option<Report>>>,
) {
    let set_report =
        |new_report| *report.lock().unwrap_or_else(PoisonError::into_inner) = new_report;
    loop {
        if facts.borrow_and_update().is_none() {
            set_report(None);
            if facts.changed().await.is_err() {
                return;
            }
            continue;
        }
        if let Ok(stream) = UnixStream::connect(&path).await {
            let (reader, mut writer) = stream.into_split();
            let mut lines = BufReader::new(reader).lines();
            loop {
                let Some(current_facts) = facts.borrow_and_update().clone() else {
                    break;
                };
                let Ok(mut text) = serde_json::to_vec(&Request::Facts(current_facts)) else {
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
                    changed = facts.changed() => if changed.is_err() { return },
                    () = sleep(RESEND_INTERVAL) => {}
                }
            }
        }
        set_report(None);
        tokio::select! {
            changed = facts.changed() => if changed.is_err() { return },
            () = sleep(RECONNECT_DELAY) => {}
        }
    }
}
