//! Runs the programs of virtual routers, and reads their tracked files.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use weir_model::{Notify, TrackObject, TrackScript, VirtualRouter};
use weir_sys::untrusted_file::{self, Owner};

use crate::message::{NotifyState, TrackedOutcome};

/// Maximum size of a tracked file, in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// Starts a program with an empty environment except for `PATH`.
fn spawn(
    program_and_arguments: &[String],
    more_arguments: &[&str],
    user: Option<&str>,
) -> Result<Child, String> {
    let (program, arguments) = program_and_arguments.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(more_arguments)
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    if let Some(name) = user {
        let (user, group) =
            weir_sys::account(name).ok_or_else(|| format!("the user {name} does not exist"))?;
        command.uid(user).gid(group);
    }
    command
        .spawn()
        .map_err(|error| format!("{program}: {error}"))
}

/// Starts the notification programs for a state, without waiting for them to exit.
pub(crate) fn notify(router: &VirtualRouter, state: NotifyState, priority: u8) {
    let Notify {
        all,
        active,
        backup,
        fault,
        stop,
        ..
    } = &router.notify;
    let for_state = match state {
        NotifyState::Master => active,
        NotifyState::Backup => backup,
        NotifyState::Fault => fault,
        NotifyState::Stop => stop,
    };
    let priority = priority.to_string();
    let arguments = ["INSTANCE", &router.name, state.as_str(), &priority];
    start(router, for_state, &[]);
    start(router, all, &arguments);
}

/// Starts the notification program of the group, without waiting for it to exit.
pub(crate) fn notify_group(router: &VirtualRouter, state: NotifyState) {
    let group = router.group.as_deref().unwrap_or_default();
    let arguments = ["GROUP", group, state.as_str(), "0"];
    start(router, &router.notify.group, &arguments);
}

fn start(router: &VirtualRouter, words: &[String], more_arguments: &[&str]) {
    if words.is_empty() {
        return;
    }
    let user = &router.notify.user;
    let user = (user != "root").then_some(user.as_str());
    match spawn(words, more_arguments, user) {
        Ok(mut child) => drop(tokio::spawn(async move { child.wait().await })),
        Err(error) => tracing::warn!(
            router = router.name,
            error,
            "failed to run a notification program"
        ),
    }
}

/// Returns the line that reports a state change to a FIFO, in keepalived's format.
pub(crate) fn line(router: &VirtualRouter, state: NotifyState, priority: u8) -> String {
    format!(
        "INSTANCE \"{}\" {} {priority}\n",
        router.name,
        state.as_str()
    )
}

/// Returns the line that reports a state change of a virtual router's group to a FIFO.
pub(crate) fn group_line(router: &VirtualRouter, state: NotifyState) -> String {
    let group = router.group.as_deref().unwrap_or_default();
    format!("GROUP \"{group}\" {} 0\n", state.as_str())
}

/// Returns the state of a tracked program or file. As in keepalived, a file that cannot be read counts as 0.
///
/// # Errors
/// Returns a message for other kinds of objects, and for a file whose number is too large. The last state then applies.
pub(crate) async fn track(object: &TrackObject) -> Result<TrackedOutcome, String> {
    match object {
        TrackObject::Script(script) => Ok(run(script).await),
        TrackObject::File(path) => {
            let text = untrusted_file::read(Path::new(path), Owner::Any, MAX_FILE_BYTES);
            let number = leading_number(&text.unwrap_or_default());
            let too_large = || format!("{path}: the number does not fit in 32 bits");
            number.map(TrackedOutcome::Number).ok_or_else(too_large)
        }
        TrackObject::Interface(_)
        | TrackObject::Process(_)
        | TrackObject::Service(_)
        | TrackObject::Pool(_)
        | TrackObject::DataPlane => Err("the helper does not check this object".to_owned()),
    }
}

/// Returns the number at the beginning of a text, as keepalived reads it (strtol(3) with base 0): 0 if there is none;
/// `None` if the number does not fit in 32 bits.
fn leading_number(text: &str) -> Option<i32> {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let hexadecimal =
        hexadecimal.filter(|it| it.starts_with(|first: char| first.is_ascii_hexdigit()));
    let (radix, digits) = match hexadecimal {
        Some(digits) => (16, digits),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let end = digits.find(|it: char| !it.is_digit(radix));
    let digits = digits.get(..end.unwrap_or(digits.len()))?;
    if digits.is_empty() {
        return Some(0);
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    i32::try_from(sign * number).ok()
}

async fn run(script: &TrackScript) -> TrackedOutcome {
    let mut child = match spawn(&script.command, &[], Some(&script.user)) {
        Ok(child) => child,
        Err(error) => {
            tracing::warn!(error, "failed to run a tracked program");
            return TrackedOutcome::Down;
        }
    };
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    match timeout(script.timeout, child.wait()).await {
        Ok(Ok(status)) if status.success() => TrackedOutcome::Up,
        Ok(_) => TrackedOutcome::Down,
        Err(_) => {
            if let Some(pid) = pid {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            let _ = child.wait().await;
            TrackedOutcome::Down
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_as_in_keepalived() {
        for (text, expected) in [
            ("", Some(0)),
            ("7\n", Some(7)),
            (" -12 and more", Some(-12)),
            ("+3", Some(3)),
            ("0x1F", Some(31)),
            ("-0x10", Some(-16)),
            ("0x", Some(0)),
            ("010", Some(8)),
            ("08", Some(0)),
            ("up", Some(0)),
            ("- 5", Some(0)),
            ("2147483647", Some(i32::MAX)),
            ("-2147483648", Some(i32::MIN)),
            ("2147483648", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(leading_number(text), expected, "{text:?}");
        }
    }
}
