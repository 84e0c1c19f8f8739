//! Checks that run on the director itself: a program's exit code, a number in a file.

use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;
use tokio::process::Command;
use weir_health::{Outcome, ReportedWeight, Target};
use weir_model::{MAX_WEIGHT, Script};
use weir_sys::untrusted_file::{self, Owner};

/// Runs a program; it is killed when the probe ends. `WEIR_ADDRESS` and `WEIR_PORT` name the server.
pub(crate) async fn run(script: &Script, target: &Target) -> Outcome {
    let Some((program, arguments)) = script.command.split_first() else {
        return Outcome::unknown("no program");
    };
    let Some((user, group)) = account(&script.user) else {
        return Outcome::unknown(format!("there is no account {}", script.user));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("WEIR_ADDRESS", target.address.to_string())
        .env(
            "WEIR_PORT",
            target
                .port
                .map_or_else(String::new, |port| port.to_string()),
        )
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    if rustix::process::geteuid().is_root() {
        command.uid(user).gid(group);
    }
    weir_sys::restore_nofile(command.as_std_mut());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Outcome::unknown(format!("{program}: {error}")),
    };
    let _group = Group(child.id());
    match child.wait().await {
        Ok(status) => judge(status.code(), script.dynamic),
        Err(error) => Outcome::unknown(format!("{program}: {error}")),
    }
}

/// The process group of a program; killed with the probe.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // It may have ended already.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

fn judge(code: Option<i32>, dynamic: bool) -> Outcome {
    let Some(code) = code else {
        return Outcome::failed("killed by a signal");
    };
    let note = format!("exit code {code}");
    match u32::try_from(code) {
        Ok(0) => Outcome::passed(note),
        Ok(code) if dynamic && code >= 2 => {
            Outcome::passed(note).with_weight(ReportedWeight::Weight(code - 2))
        }
        _ => Outcome::failed(note),
    }
}

/// User and group of an account, by `/etc/passwd`.
fn account(name: &str) -> Option<(u32, u32)> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2).map(str::parse);
    Some((fields.next()?.ok()?, fields.next()?.ok()?))
}

/// The largest file that is read for a number, in bytes.
const FILE_MAX_BYTES: u64 = 4096;

/// Reads the weight from a file. Another program writes it, so a link out of its directory is not followed, and nothing
/// but a weight is ever shown of it.
pub(crate) async fn read(path: &str) -> Outcome {
    let (path, shown) = (PathBuf::from(path), path.to_owned());
    let read = move || untrusted_file::read(&path, Owner::Any, FILE_MAX_BYTES);
    let text = match tokio::task::spawn_blocking(read).await {
        Ok(Ok(text)) => text,
        Ok(Err(problem)) => return Outcome::failed(format!("{shown}: {problem}")),
        Err(_) => return Outcome::unknown("the file was not read"),
    };
    match text.trim().parse::<u32>() {
        Ok(weight) if weight <= MAX_WEIGHT => Outcome::passed(format!("file says {weight}"))
            .with_weight(ReportedWeight::Weight(weight)),
        _ => Outcome::failed(format!("{shown} does not contain a weight")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_health::Verdict;

    #[test]
    fn exit_codes() {
        let result = |code, dynamic| {
            let outcome = judge(code, dynamic);
            (outcome.verdict, outcome.weight)
        };
        assert_eq!(result(Some(0), true), (Verdict::Passed, None));
        assert_eq!(result(Some(1), true), (Verdict::Failed, None));
        assert_eq!(
            result(Some(12), true),
            (Verdict::Passed, Some(ReportedWeight::Weight(10)))
        );
        assert_eq!(result(Some(2), false), (Verdict::Failed, None));
        assert_eq!(result(None, true), (Verdict::Failed, None));
    }

    #[test]
    fn accounts() {
        assert_eq!(account("root"), Some((0, 0)));
        assert_eq!(account("no such account"), None);
    }
}
