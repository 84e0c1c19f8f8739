//! Runs the programs of virtual routers, and reads their tracked files.

use std::path::Path;
use std::process::Stdio;

use rustix::fs::{FileType, Mode, OFlags};
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
            weir_sys::account(name).ok_or_else(|| format!("no such user: {name}"))?;
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
    write_fifo(router, "INSTANCE", &router.name, state, priority);
    let priority = priority.to_string();
    let arguments = ["INSTANCE", &router.name, state.as_str(), &priority];
    start(router, for_state, &[]);
    start(router, all, &arguments);
}

/// Starts the notification program of the group, without waiting for it to exit.
pub(crate) fn notify_group(router: &VirtualRouter, state: NotifyState) {
    let group = router.group.as_deref().unwrap_or_default();
    write_fifo(router, "GROUP", group, state, 0);
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

/// Writes a line in keepalived's format to the FIFO, if a process reads it.
fn write_fifo(router: &VirtualRouter, kind: &str, name: &str, state: NotifyState, priority: u8) {
    let Some(path) = &router.notify.fifo else {
        return;
    };
    let line = format!("{kind} \"{name}\" {} {priority}\n", state.as_str());
    // Do not write to other kinds of files.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let written = rustix::fs::open(path.as_str(), flags, Mode::empty()).and_then(|file| {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if kind != FileType::Fifo {
            return Err(rustix::io::Errno::INVAL);
        }
        rustix::io::write(&file, line.as_bytes())
    });
    if let Err(error) = written {
        tracing::debug!(path, %error, "failed to write a state change to the FIFO");
    }
}

/// Returns the state of a tracked program or file; `None` for other kinds of objects.
pub(crate) async fn track(object: &TrackObject) -> Option<TrackedOutcome> {
    match object {
        TrackObject::Script(script) => Some(run(script).await),
        TrackObject::File(path) => {
            let text = untrusted_file::read(Path::new(path), Owner::Any, MAX_FILE_BYTES);
            let number = text.ok().and_then(|text| text.trim().parse().ok());
            Some(number.map_or(TrackedOutcome::Number(0), TrackedOutcome::Number))
        }
        TrackObject::Interface(_)
        | TrackObject::Process(_)
        | TrackObject::Service(_)
        | TrackObject::Pool(_)
        | TrackObject::DataPlane => None,
    }
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
