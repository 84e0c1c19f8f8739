//! Runs the programs of the configuration.

use std::net::IpAddr;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::oneshot;

use super::message::Given;

/// The longest value of an environment variable, in bytes.
const VALUE_MAX: usize = 1024;
/// Path of the programs of checks.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The most changes of one message, and the longest line in bytes.
const LINES_MAX: usize = 1_000;
const LINE_MAX: usize = 4096;

/// A program that may run, with its standard input.
pub(super) struct Prepared {
    command: Command,
    input: Option<String>,
}

impl From<Command> for Prepared {
    fn from(command: Command) -> Self {
        Self {
            command,
            input: None,
        }
    }
}

/// Prepares the program of a check, as its account.
pub(super) fn check(
    command: &[String],
    user: &str,
    address: IpAddr,
    port: Option<u16>,
) -> Result<Prepared, String> {
    let mut prepared = prepare_as(command, user)?;
    prepared.env("WEIR_ADDRESS", address.to_string()).env(
        "WEIR_PORT",
        port.map_or_else(String::new, |port| port.to_string()),
    );
    Ok(prepared.into())
}

/// Prepares the program of a notifier, as its account. The lines come from the daemon.
pub(super) fn notifier(
    name: &str,
    (command, user): &(Vec<String>, String),
    lines: &[String],
    lost: u64,
) -> Result<Prepared, String> {
    let is_wrong = |line: &String| line.len() > LINE_MAX || line.chars().any(char::is_control);
    if lines.len() > LINES_MAX || lines.iter().any(is_wrong) {
        return Err("a message is too long or contains control characters".to_owned());
    }
    let mut prepared = prepare_as(command, user)?;
    prepared
        .env("WEIR_NOTIFY", name)
        .env("WEIR_CHANGES", lines.len().to_string());
    let mut input: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    if lost > 0 {
        input.push_str(&format!("{lost} more changes were left out\n"));
    }
    Ok(Prepared {
        command: prepared,
        input: Some(input),
    })
}

/// Prepares a notification program. `values` come from the daemon.
pub(super) fn notify(command: &[String], values: &[(&str, &str)]) -> Result<Prepared, String> {
    let mut prepared = prepare(command)?;
    for (name, value) in values {
        if value.len() > VALUE_MAX || value.contains('\0') {
            return Err(format!("{name} is too long or contains NUL"));
        }
        prepared.env(name, value);
    }
    Ok(prepared.into())
}

/// A program that runs as an account, with an environment of its own.
fn prepare_as(command: &[String], user: &str) -> Result<Command, String> {
    let (uid, gid) = weir_sys::account(user).ok_or_else(|| format!("no such user: {user}"))?;
    let mut prepared = prepare(command)?;
    prepared
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .stderr(Stdio::null())
        .uid(uid)
        .gid(gid);
    Ok(prepared)
}

fn prepare(command: &[String]) -> Result<Command, String> {
    let (program, arguments) = command.split_first().ok_or("no program is configured")?;
    let mut prepared = Command::new(program);
    prepared
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    Ok(prepared)
}

/// Runs a program until it ends, or until `killed` says so or is dropped.
pub(super) async fn run(prepared: Prepared, killed: oneshot::Receiver<()>) -> Given {
    let Prepared { mut command, input } = prepared;
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return Given::Failed {
                errno: error.raw_os_error().unwrap_or(libc_eio()),
            };
        }
    };
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let stdin = child.stdin.take();
    let ended = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A program that does not read its input is not an error.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait().await
    };
    let code = tokio::select! {
        ended = ended => ended.ok().and_then(|status| status.code()),
        _ = killed => None,
    };
    if let Some(pid) = pid {
        // Most have ended already.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait().await;
    Given::Exit { code }
}

const fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}
