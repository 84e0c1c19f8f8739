//! Drives ExaBGP: writes commands to the named pipe of its API (`NAME.in`), and reads its replies from the pipe next to
//! it (`NAME.out`).
//!
//! ExaBGP replies to each command with one line, in order, unless `exabgp.api.ack` is false. A reply that no process
//! reads delays the following commands by 50 ms for each KiB (`application/control.py`, 4.2). Replies do not indicate
//! which command they answer, and replies to an earlier process or to `exabgpcli` can come first. Therefore,
//! [`Replies`] records whether all earlier replies are known to have been read.

use std::fs::OpenOptions;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::{Instant, timeout_at};

use super::{COMMAND_TIMEOUT, Change, Outcome, prefix};
use crate::{Error, Quality};

/// Time without a reply after which all earlier replies have been read. It exceeds the delay of an unread reply.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// Time limit for the first reply of an ExaBGP that has not replied to any command. After that, it is not expected to
/// reply until the next [`Replies::expect_earlier`].
const FIRST_REPLY_TIMEOUT: Duration = Duration::from_millis(300);

/// The state of the replies of an ExaBGP.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// Inode and creation time of the command pipe. ExaBGP's unit creates the pipe at each start.
    pipe: (u64, Option<SystemTime>),
    /// Whether ExaBGP has replied to a command.
    is_replying: bool,
    /// Whether all replies to earlier commands have been read, or ExaBGP is not expected to reply.
    is_settled: bool,
}

impl Replies {
    /// Makes the next step look for replies to earlier commands, and determine again whether ExaBGP replies.
    pub(super) const fn expect_earlier(&mut self) {
        self.is_settled = false;
    }
}

/// Writes the commands for a change, and waits for the replies. If ExaBGP does not reply or has no reply pipe, each
/// command that was written counts as accepted.
pub(super) async fn apply(pipe: &Path, change: &Change<'_>, replies: &mut Replies) -> Outcome {
    let commands = commands(change);
    let mut outcome = Outcome::default();
    let results = exchange(pipe, &commands, replies).await;
    let results = results.unwrap_or_else(|source| {
        let path = pipe.to_owned();
        outcome.add_error(Error::File { path, source });
        Vec::new()
    });
    if results.len() < commands.len() {
        outcome.add_error(Error::Timeout { speaker: "exabgp" });
    }
    let withdrawals = change.removed.iter().map(|vip| (*vip, true));
    let announcements = change.added.iter().map(|(vip, _)| (*vip, false));
    let vips = withdrawals.chain(announcements);
    for (((vip, is_withdrawal), command), result) in vips.zip(&commands).zip(results) {
        match result {
            Ok(()) if is_withdrawal => outcome.withdrawn.push(vip),
            Ok(()) => outcome.announced.push(vip),
            Err(reason) => outcome.add_error(rejection(command, &reason)),
        }
    }
    outcome
}

/// Writes commands and reads the replies until [`COMMAND_TIMEOUT`]. Returns the results of the first commands.
///
/// # Errors
/// Returns an error if the command pipe cannot be used.
async fn exchange(
    pipe: &Path,
    commands: &[String],
    replies: &mut Replies,
) -> io::Result<Vec<Reply>> {
    let deadline = Instant::now() + COMMAND_TIMEOUT;
    // Open the reply pipe first, because ExaBGP delays replies that no process can read.
    let receiver = open_reply_pipe(pipe);
    let mut sender = open_command_pipe(pipe, replies).inspect_err(|_| {
        // ExaBGP may be started with different settings.
        *replies = Replies::default();
    })?;
    // If this function is canceled, some replies remain unread.
    let was_settled = std::mem::take(&mut replies.is_settled);
    let written_count = write(&mut sender, commands, deadline).await?;
    let results = match receiver {
        Some(mut receiver) if written_count > 0 && (replies.is_replying || !was_settled) => {
            read_results(&mut receiver, written_count, was_settled, replies, deadline).await
        }
        _ => {
            replies.is_settled = was_settled;
            None
        }
    };
    // Without replies, all written commands count as accepted.
    Ok(results.unwrap_or_else(|| vec![Ok(()); written_count]))
}

/// Opens the pipe for commands. Resets `replies` if the pipe is new, because a different ExaBGP process created it.
fn open_command_pipe(pipe: &Path, replies: &mut Replies) -> io::Result<Sender> {
    // This fails if no process reads the pipe, for example because ExaBGP is not running.
    let file = options().write(true).open(pipe)?;
    let metadata = file.metadata()?;
    let identity = (metadata.ino(), metadata.created().ok());
    if replies.pipe != identity {
        *replies = Replies {
            pipe: identity,
            ..Replies::default()
        };
    }
    Sender::from_file(file)
}

/// Opens the pipe for replies; `None` = ExaBGP has no such pipe, or this process cannot open it.
fn open_reply_pipe(pipe: &Path) -> Option<Receiver> {
    let path = pipe
        .extension()
        .filter(|it| *it == "in")
        .map(|_| pipe.with_extension("out"))?;
    // ExaBGP closes the pipe after each reply. The additional writer keeps reads from returning the end of the file.
    let file = options().read(true).write(true).open(path).ok()?;
    Receiver::from_file(file).ok()
}

fn options() -> OpenOptions {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.custom_flags(flags.bits().cast_signed());
    options
}

/// Writes commands until the deadline. Returns how many were written.
async fn write(sender: &mut Sender, commands: &[String], deadline: Instant) -> io::Result<usize> {
    let mut written_count = 0;
    let write_all = async {
        for command in commands {
            sender.write_all(command.as_bytes()).await?;
            written_count += 1;
        }
        Ok::<_, io::Error>(())
    };
    timeout_at(deadline, write_all).await.unwrap_or(Ok(()))?;
    Ok(written_count)
}

/// ExaBGP's reply to a command, with the reason for an error.
type Reply = std::result::Result<(), String>;

/// Reads the replies to the last `commands` commands. Returns fewer replies if ExaBGP does not reply before the
/// deadline, and `None` if it is not expected to reply. If `is_settled` is false, replies to earlier commands may come
/// first.
async fn read_results(
    receiver: &mut Receiver,
    commands: usize,
    is_settled: bool,
    replies: &mut Replies,
    deadline: Instant,
) -> Option<Vec<Reply>> {
    let (mut text, mut results) = (Vec::new(), Vec::new());
    let mut read_at = Instant::now();
    let is_quiet = loop {
        let is_complete = results.len() >= commands;
        if is_complete && is_settled {
            break false;
        }
        let pause = match (is_settled, is_complete, results.is_empty()) {
            (false, true, _) => Some(QUIET_TIME),
            (false, _, true) if !replies.is_replying => Some(FIRST_REPLY_TIMEOUT),
            _ => None,
        };
        let quiet_at = pause.map_or(deadline, |pause| read_at + pause);
        match timeout_at(quiet_at.min(deadline), receiver.read_buf(&mut text)).await {
            Err(_) => break pause.is_some() && quiet_at <= deadline,
            Ok(Err(_) | Ok(0)) => break false,
            Ok(Ok(_)) => {}
        }
        read_at = Instant::now();
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            results.extend(parse_reply(&String::from_utf8_lossy(&line)));
        }
    };
    replies.is_settled = is_quiet || (is_settled && results.len() == commands);
    if is_quiet && results.is_empty() {
        return None;
    }
    replies.is_replying |= !results.is_empty();
    match results.len().checked_sub(commands) {
        // The last replies are for these commands.
        Some(earlier) => Some(results.split_off(earlier)),
        None if is_settled => Some(results),
        // Some of the replies may be for earlier commands.
        None => Some(Vec::new()),
    }
}

/// Returns the reply in a line; `None` = the line is part of the output of a different command.
fn parse_reply(line: &str) -> Option<Reply> {
    #[derive(Deserialize)]
    struct Answer {
        answer: String,
        #[serde(default)]
        message: String,
    }
    let line = line.trim();
    let (answer, message) = match line.starts_with('{') {
        // ExaBGP 5 can reply in JSON.
        true => {
            let answer: Answer = serde_json::from_str(line).ok()?;
            (answer.answer, answer.message)
        }
        false => (line.to_owned(), String::new()),
    };
    match answer.as_str() {
        "done" => Some(Ok(())),
        "error" => Some(Err(message)),
        _ => None,
    }
}

fn rejection(command: &str, reason: &str) -> Error {
    let command = command.trim_end();
    let reason = match reason {
        "" => "ExaBGP's log contains the reason",
        reason => reason,
    };
    Error::Rejected {
        speaker: "exabgp",
        reply: format!("rejected `{command}`: {reason}"),
    }
}

/// Returns the commands for a change, one per line. Lines are shorter than `PIPE_BUF`, so each write is atomic.
pub(super) fn commands(change: &Change<'_>) -> Vec<String> {
    let removed = change.removed.iter();
    let removed = removed.map(|vip| format!("withdraw route {}\n", route(*vip)));
    let added = change.added.iter();
    let added = added.map(|(vip, quality)| announce_command(change, *vip, *quality));
    removed.chain(added).collect()
}

fn announce_command(change: &Change<'_>, vip: IpAddr, quality: Quality) -> String {
    let communities: Vec<String> = change
        .communities(quality)
        .map(|it| it.to_string())
        .collect();
    let communities = match communities.as_slice() {
        [] => String::new(),
        communities => format!(" community [{}]", communities.join(" ")),
    };
    format!("announce route {} origin igp{communities}\n", route(vip))
}

fn route(vip: IpAddr) -> String {
    format!("{} next-hop self", prefix(vip))
}

#[cfg(test)]
mod tests;
