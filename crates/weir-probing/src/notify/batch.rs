//! Implements `[notify.NAME]`: collects state changes, and sends them with a program, a web request or an email.
//!
//! Each notifier is a task with a bounded queue. The task collects changes for [`COLLECTION_TIME`], sends them in one
//! message, and then waits until the notifier's interval has passed. Errors are logged; a failed message is not sent
//! again.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use weir_model::{HttpReceiver, Mail, Notifier};
use weir_sys::privileged::{self, Program};

use super::{Change, Subject};
use crate::local::run_via_helper;
use crate::post::PostClient;

/// How long changes are collected. Changes with a common cause, such as a network failure, arrive within this time.
const COLLECTION_TIME: Duration = Duration::from_secs(1);
/// Maximum number of queued changes; further changes are counted and dropped.
const MAX_QUEUED_CHANGES: usize = 1_000;
/// Time limit for each program, request and email.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a line for the privileged helper.
const MAX_LINE_BYTES: usize = 1024;
/// Maximum total length of the lines for the privileged helper.
const MAX_MESSAGE_BYTES: usize = 24 << 10;

/// A state change, in the form that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pool: String,
    server: String,
    service: String,
    from: &'static str,
    to: &'static str,
    reason: String,
    time: SystemTime,
}

impl Entry {
    fn new(change: &Change) -> Self {
        let (server, service) = match &change.subject {
            Subject::Pool => ("", ""),
            Subject::Server(server) => (server.as_str(), ""),
            Subject::ServerInService(server, service) => (server.as_str(), service.as_str()),
            Subject::Service(service) => ("", service.as_str()),
        };
        Self {
            pool: change.pool.clone(),
            server: server.to_owned(),
            service: service.to_owned(),
            from: change.from,
            to: change.to,
            reason: change.reason.clone(),
            time: SystemTime::now(),
        }
    }

    /// Formats the change as one line. Control characters are replaced, because reasons may contain data from servers.
    fn format_line(&self) -> String {
        let mut subject = format!("pool {}", self.pool);
        for (kind, name) in [("server", &self.server), ("service", &self.service)] {
            if !name.is_empty() {
                subject.push_str(&format!(" {kind} {name}"));
            }
        }
        let line = format!("{subject}: {} -> {} ({})", self.from, self.to, self.reason);
        line.chars()
            .map(|it| if it.is_control() { ' ' } else { it })
            .collect()
    }

    fn to_json(&self) -> serde_json::Value {
        let since = self.time.duration_since(SystemTime::UNIX_EPOCH);
        serde_json::json!({
            "pool": self.pool, "server": self.server, "service": self.service, "from": self.from, "to": self.to,
            "reason": self.reason, "time": since.unwrap_or_default().as_secs(),
        })
    }
}

/// The task of one notifier.
#[derive(Debug)]
struct RunningNotifier {
    config: Notifier,
    queue: mpsc::Sender<Entry>,
    lost: Arc<AtomicU64>,
}

/// All notifiers.
#[derive(Debug, Default)]
pub(crate) struct Notifiers {
    configured: Vec<Notifier>,
    running: Vec<RunningNotifier>,
}

impl Notifiers {
    /// Replaces the notifiers. Unchanged notifiers keep their queues; removed notifiers still send the changes in their
    /// queues.
    pub(crate) fn set(&mut self, notifiers: &[Notifier]) {
        self.running
            .retain(|running| notifiers.contains(&running.config));
        self.configured = notifiers.to_vec();
    }

    /// Queues a change for the notifiers with matching filters. It starts their tasks, so it must be called in a tokio
    /// runtime.
    pub(crate) fn queue(&mut self, change: &Change) {
        for notifier in self
            .configured
            .iter()
            .filter(|it| it.matches(&change.pool, change.to))
        {
            let index = self
                .running
                .iter()
                .position(|running| running.config == *notifier);
            let index = index.unwrap_or_else(|| {
                self.running.push(RunningNotifier::start(notifier));
                self.running.len() - 1
            });
            let running = &self.running[index];
            if running.queue.try_send(Entry::new(change)).is_err() {
                running.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl RunningNotifier {
    fn start(notifier: &Notifier) -> Self {
        let (queue, entries) = mpsc::channel(MAX_QUEUED_CHANGES);
        let lost = Arc::new(AtomicU64::new(0));
        drop(tokio::spawn(deliver(
            notifier.clone(),
            entries,
            Arc::clone(&lost),
        )));
        Self {
            config: notifier.clone(),
            queue,
            lost,
        }
    }
}

/// Sends messages until the notifier is removed.
async fn deliver(notifier: Notifier, mut entries: mpsc::Receiver<Entry>, lost: Arc<AtomicU64>) {
    while let Some(first) = entries.recv().await {
        sleep(COLLECTION_TIME).await;
        let mut batch = vec![first];
        while let Ok(entry) = entries.try_recv() {
            batch.push(entry);
        }
        let next = Instant::now() + notifier.interval;
        send(&notifier, &batch, lost.swap(0, Ordering::Relaxed)).await;
        sleep_until(next).await;
    }
}

/// Sends the changes by each configured method of a notifier.
async fn send(notifier: &Notifier, batch: &[Entry], lost: u64) {
    let name = notifier.name.as_str();
    if !notifier.command.is_empty() {
        log_result(
            name,
            "command",
            timeout(TIMEOUT, run_program(notifier, batch, lost)).await,
        );
    }
    if let Some(webhook) = &notifier.webhook {
        log_result(
            name,
            "webhook",
            timeout(TIMEOUT, post(name, webhook, batch, lost)).await,
        );
    }
    if let Some(mail) = &notifier.mail {
        log_result(
            name,
            "mail",
            timeout(TIMEOUT, send_mail(mail, batch, lost)).await,
        );
    }
}

fn log_result(
    notify: &str,
    method: &str,
    result: Result<io::Result<()>, tokio::time::error::Elapsed>,
) {
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(notify, method, %error, "failed to send a notification"),
        Err(_) => tracing::warn!(notify, method, "a notification timed out"),
    }
}

/// Formats the changes as text, one per line, and the number of lost changes.
fn render_text(batch: &[Entry], lost: u64) -> String {
    let mut text: String = batch
        .iter()
        .map(|entry| entry.format_line() + "\n")
        .collect();
    if lost > 0 {
        text.push_str(&format!("{lost} more changes were omitted\n"));
    }
    text
}

/// Runs the program under its configured account, in a separate process group. When the program exits, the remaining
/// processes of the group are killed.
async fn run_program(notifier: &Notifier, batch: &[Entry], lost: u64) -> io::Result<()> {
    let Some((program, arguments)) = notifier.command.split_first() else {
        return Ok(());
    };
    if let Some(helper) = privileged::helper() {
        let code = run_via_helper(helper, &helper_request(&notifier.name, batch, lost)).await?;
        return match code {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::other(format!("{program}: exit code {code}"))),
            None => Err(io::Error::other(format!("{program}: killed by a signal"))),
        };
    }
    let Some(account) = weir_sys::account(&notifier.user) else {
        return Err(io::Error::other(format!(
            "the user {} does not exist",
            notifier.user
        )));
    };
    let mut command = crate::local::command(program, arguments, account);
    command
        .env("WEIR_NOTIFY", &notifier.name)
        .env("WEIR_CHANGES", batch.len().to_string())
        .stdin(Stdio::piped());
    let mut child = command.spawn()?;
    let _group = crate::local::ProcessGroup(child.id());
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read its input is not an error.
        let _ = input.write_all(render_text(batch, lost).as_bytes()).await;
    }
    let status = child.wait().await?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{program}: {status}")))
    }
}

/// Returns the request for the privileged helper. The channel limits the length of a message, so long lines are
/// truncated, and changes that do not fit are counted as lost.
fn helper_request(name: &str, batch: &[Entry], mut lost: u64) -> Program {
    let mut lines = Vec::new();
    let mut length = 0;
    for mut line in batch.iter().map(Entry::format_line) {
        line.truncate(line.floor_char_boundary(MAX_LINE_BYTES));
        length += line.len();
        if length > MAX_MESSAGE_BYTES {
            lost += 1;
        } else {
            lines.push(line);
        }
    }
    Program::Notifier {
        notifier: name.to_owned(),
        lines,
        lost,
    }
}

/// Sends a POST request. Any 2xx status is a success.
async fn post(name: &str, webhook: &HttpReceiver, batch: &[Entry], lost: u64) -> io::Result<()> {
    let changes: Vec<_> = batch.iter().map(Entry::to_json).collect();
    let body = serde_json::json!({ "notify": name, "lost": lost, "changes": changes }).to_string();
    let mut client = PostClient::new(webhook.clone());
    client.post(&body).await.map_err(io::Error::other)
}

/// Sends an email over SMTP (RFC 5321).
async fn send_mail(mail: &Mail, batch: &[Entry], lost: u64) -> io::Result<()> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let host: String = host
        .chars()
        .filter(|it| it.is_ascii_alphanumeric() || "-.".contains(*it))
        .collect();
    let stream = TcpStream::connect(&mail.server).await?;
    let mut smtp = Smtp(BufReader::new(stream));
    smtp.expect_code("220").await?;
    let from = if mail.from.is_empty() {
        format!("weir@{host}")
    } else {
        mail.from.clone()
    };
    smtp.command(&format!("EHLO {host}"), "250").await?;
    smtp.command(&format!("MAIL FROM:<{from}>"), "250").await?;
    for to in &mail.to {
        smtp.command(&format!("RCPT TO:<{to}>"), "25").await?;
    }
    smtp.command("DATA", "354").await?;
    smtp.command(&render_mail(&host, &from, &mail.to, batch, lost), "250")
        .await?;
    // The email was accepted, so errors no longer matter.
    let _ = smtp.command("QUIT", "221").await;
    Ok(())
}

/// Returns the email with its header and the final dot. Lines that begin with a dot get a second one (RFC 5321 section
/// 4.5.2).
fn render_mail(host: &str, from: &str, to: &[String], batch: &[Entry], lost: u64) -> String {
    let subject = match batch {
        [entry] => entry.format_line(),
        entries => format!("{} state changes", entries.len()),
    };
    // A header line must be ASCII, and must not exceed 998 characters.
    let ascii = |it: char| if it.is_ascii() { it } else { '?' };
    let subject: String = subject.chars().take(200).map(ascii).collect();
    let mut text = format!(
        "From: {from}\r\nTo: {}\r\nSubject: [weir {host}] {subject}\r\nAuto-Submitted: auto-generated\r\nMIME-Version: \
         1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n",
        to.join(", ")
    );
    for line in self::render_text(batch, lost).lines() {
        if line.starts_with('.') {
            text.push('.');
        }
        text.push_str(line);
        text.push_str("\r\n");
    }
    text + "."
}

/// An SMTP connection.
struct Smtp(BufReader<TcpStream>);

impl Smtp {
    /// Sends a command, and checks the code of the reply.
    async fn command(&mut self, line: &str, code: &str) -> io::Result<()> {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())
            .await?;
        self.expect_code(code).await
    }

    /// Reads a reply, which may have several lines. Returns an error unless its code begins with `code`.
    async fn expect_code(&mut self, code: &str) -> io::Result<()> {
        for _ in 0..100 {
            let mut line = String::new();
            (&mut self.0).take(2_000).read_line(&mut line).await?;
            if !line.starts_with(code) {
                return Err(io::Error::other(format!(
                    "the mail server responded {:?}",
                    line.trim()
                )));
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(());
            }
        }
        Err(io::Error::other("the mail server's response is too long"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(server: &str, reason: &str) -> Entry {
        Entry::new(&Change {
            pool: "web".to_owned(),
            subject: Subject::Server(server.to_owned()),
            from: "up",
            to: "down",
            reason: reason.to_owned(),
        })
    }

    #[test]
    fn control_characters_in_reason_become_spaces() {
        let line = entry("10.0.0.5", "said\r\nBcc: x").format_line();
        assert_eq!(line, "pool web server 10.0.0.5: up -> down (said  Bcc: x)");
    }

    #[test]
    fn email_has_subject_and_ends_only_at_final_dot() {
        let to = ["a@h".to_owned(), "b@h".to_owned()];
        let mail = render_mail("lb1", "weir@lb1", &to, &[entry("s", "refused")], 0);
        assert!(
            mail.starts_with(
                "From: weir@lb1\r\nTo: a@h, b@h\r\nSubject: [weir lb1] pool web server s: up"
            ),
            "{mail}"
        );
        let mail = render_mail(
            "lb1",
            "weir@lb1",
            &to,
            &[entry("s", "x"), entry("t", "y")],
            3,
        );
        assert!(
            mail.contains("Subject: [weir lb1] 2 state changes\r\n"),
            "{mail}"
        );
        assert!(mail.ends_with("3 more changes were omitted\r\n."), "{mail}");
        assert_eq!(mail.matches("\r\n.").count(), 1);
    }
}
