//! Programs and files of virtual routers.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use weir_model::{Notify, TrackObject, TrackScript, VirtualRouter};
use weir_sys::untrusted_file::{self, Owner};

use crate::message::{NotifyState, TrackedOutcome};

/// The largest tracked file, in bytes.
const FILE_MAX_BYTES: u64 = 4096;

fn spawn(words: &[String], extra: &[&str], user: Option<&str>) -> Result<Child, String> {
    let (program, arguments) = words.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(extra)
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
            weir_sys::account(name).ok_or_else(|| format!("there is no account {name}"))?;
        command.uid(user).gid(group);
    }
    command
        .spawn()
        .map_err(|error| format!("{program}: {error}"))
}

/// Runs the notification programs; does not wait for them.
pub(crate) fn notify(router: &VirtualRouter, state: NotifyState, priority: u8) {
    let Notify {
        all,
        active,
        backup,
        fault,
        stop,
    } = &router.notify;
    let single = match state {
        NotifyState::Master => active,
        NotifyState::Backup => backup,
        NotifyState::Fault => fault,
        NotifyState::Stop => stop,
    };
    let priority = priority.to_string();
    let arguments = ["INSTANCE", &router.name, state.as_str(), &priority];
    for (words, extra) in [(single, &[][..]), (all, &arguments[..])] {
        if words.is_empty() {
            continue;
        }
        match spawn(words, extra, None) {
            Ok(mut child) => drop(tokio::spawn(async move { child.wait().await })),
            Err(error) => tracing::warn!(
                router = router.name,
                error,
                "failed to run a notification program"
            ),
        }
    }
}

/// The state of a tracked program or file. `None`: the object is of another kind.
pub(crate) async fn track(object: &TrackObject) -> Option<TrackedOutcome> {
    match object {
        TrackObject::Script(script) => Some(run(script).await),
        TrackObject::File(path) => {
            let text = untrusted_file::read(Path::new(path), Owner::Any, FILE_MAX_BYTES);
            let number = text.ok().and_then(|text| text.trim().parse().ok());
            Some(number.map_or(TrackedOutcome::Number(0), TrackedOutcome::Number))
        }
        TrackObject::Interface(_) | TrackObject::Process(_) => None,
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
