//! Runs the configured programs: checks, notification programs and notifiers.

use std::net::IpAddr;
use std::process::Stdio;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::oneshot;

use super::message::HelperReply;

/// Maximum length of an environment variable value, in bytes.
const MAX_VALUE_BYTES: usize = 1024;

/// Maximum number of changes in a notifier's input.
const MAX_LINES: usize = 1_000;
/// Maximum length of a change's line, in bytes.
const MAX_LINE_BYTES: usize = 4096;

/// A program to run, with its standard input.
pub(super) struct PreparedProgram {
    command: Command,
    input: Option<String>,
}

impl From<Command> for PreparedProgram {
    fn from(command: Command) -> Self {
        Self {
            command,
            input: None,
        }
    }
}

/// Prepares a check program, to run under the account `user`.
pub(super) fn prepare_check(
    command: &[String],
    user: &str,
    address: IpAddr,
    port: Option<u16>,
) -> Result<PreparedProgram, String> {
    let mut prepared = prepare_as(command, user)?;
    prepared.env("WEIR_ADDRESS", address.to_string()).env(
        "WEIR_PORT",
        port.map_or_else(String::new, |port| port.to_string()),
    );
    Ok(prepared.into())
}

/// Prepares a notifier's program, to run under its account. The lines are untrusted: they come from the daemon.
pub(super) fn prepare_notifier(
    name: &str,
    (command, user): &(Vec<String>, String),
    lines: &[String],
    lost: u64,
) -> Result<PreparedProgram, String> {
    let is_invalid =
        |line: &String| line.len() > MAX_LINE_BYTES || line.chars().any(char::is_control);
    if lines.len() > MAX_LINES || lines.iter().any(is_invalid) {
        return Err(
            "there are too many lines, or a line is too long or contains control characters"
                .to_owned(),
        );
    }
    let mut prepared = prepare_as(command, user)?;
    prepared
        .env("WEIR_NOTIFY", name)
        .env("WEIR_CHANGES", lines.len().to_string());
    let mut input: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    if lost > 0 {
        input.push_str(&format!("{lost} more changes were omitted\n"));
    }
    Ok(PreparedProgram {
        command: prepared,
        input: Some(input),
    })
}

/// Prepares a notification program. `values` are untrusted: they come from the daemon.
pub(super) fn prepare_notification(
    command: &[String],
    values: &[(&str, &str)],
) -> Result<PreparedProgram, String> {
    let mut prepared = prepare(command)?;
    for (name, value) in values {
        if value.len() > MAX_VALUE_BYTES || value.contains('\0') {
            return Err(format!("{name} is too long or contains NUL"));
        }
        prepared.env(name, value);
    }
    Ok(prepared.into())
}

/// Prepares a program that runs under an account, with an empty environment except for `PATH`.
fn prepare_as(command: &[String], user: &str) -> Result<Command, String> {
    let account =
        weir_sys::account(user).ok_or_else(|| format!("the user {user} does not exist"))?;
    let (program, arguments) = split_command(command)?;
    let mut prepared = Command::from(weir_sys::command_as(program, arguments, account));
    prepared.kill_on_drop(true);
    Ok(prepared)
}

fn prepare(command: &[String]) -> Result<Command, String> {
    let (program, arguments) = split_command(command)?;
    let mut prepared = Command::new(program);
    prepared
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    Ok(prepared)
}

/// Splits a command into the program and its arguments.
fn split_command(command: &[String]) -> Result<(&String, &[String]), String> {
    let parts = command.split_first();
    Ok(parts.ok_or("no program is configured")?)
}

/// Runs a program until it exits, and then kills the processes that it started. Kills the program when the sender of
/// `killed` sends or is dropped.
pub(super) async fn run(prepared: PreparedProgram, killed: oneshot::Receiver<()>) -> HelperReply {
    let PreparedProgram { mut command, input } = prepared;
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return HelperReply::Failed {
                errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            };
        }
    };
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let stdin = child.stdin.take();
    let exit = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A program that does not read its input is not an error.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait().await
    };
    let code = tokio::select! {
        status = exit => status.ok().and_then(|status| status.code()),
        _ = killed => None,
    };
    if let Some(pid) = pid {
        // The program's process group includes the processes that it started.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait().await;
    HelperReply::Exit { code }
}
