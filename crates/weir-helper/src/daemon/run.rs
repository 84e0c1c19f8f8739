//! Runs the programs of the configuration.

use std::net::IpAddr;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::sync::oneshot;

use super::message::Given;

/// The longest value of an environment variable, in bytes.
const VALUE_MAX: usize = 1024;
/// Path of the programs of checks.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Prepares the program of a check, as its account.
pub(super) fn check(
    command: &[String],
    user: &str,
    address: IpAddr,
    port: Option<u16>,
) -> Result<Command, String> {
    let (uid, gid) = weir_sys::account(user).ok_or_else(|| format!("no such user: {user}"))?;
    let mut prepared = prepare(command)?;
    prepared
        .env_clear()
        .env("PATH", PATH)
        .env("WEIR_ADDRESS", address.to_string())
        .env(
            "WEIR_PORT",
            port.map_or_else(String::new, |port| port.to_string()),
        )
        .current_dir("/")
        .stderr(Stdio::null())
        .uid(uid)
        .gid(gid);
    Ok(prepared)
}

/// Prepares a notification program. `values` come from the daemon.
pub(super) fn notify(command: &[String], values: &[(&str, &str)]) -> Result<Command, String> {
    let mut prepared = prepare(command)?;
    for (name, value) in values {
        if value.len() > VALUE_MAX || value.contains('\0') {
            return Err(format!("{name} is too long or contains NUL"));
        }
        prepared.env(name, value);
    }
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
pub(super) async fn run(mut command: Command, killed: oneshot::Receiver<()>) -> Given {
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
    let code = tokio::select! {
        ended = child.wait() => ended.ok().and_then(|status| status.code()),
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
