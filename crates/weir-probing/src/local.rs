//! Runs checks on the director itself: a program's exit code, or a weight in a file.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::Signal;
use tokio::process::Command;
use weir_health::{Outcome, ReportedWeight, Target};
use weir_model::{MAX_WEIGHT, Script};
use weir_sys::privileged::{self, PrivilegedHelper, Program};
use weir_sys::untrusted_file::Owner;

/// Runs a program, and kills it if the probe is aborted. `WEIR_ADDRESS` and `WEIR_PORT` identify the server.
pub(crate) async fn run_script(script: &Script, target: &Target) -> Outcome {
    let Some((program, arguments)) = script.command.split_first() else {
        return Outcome::unknown("no program is configured");
    };
    if let Some(helper) = privileged::helper() {
        return match run_script_via_helper(helper, script, target).await {
            Ok(code) => evaluate_exit(code, script.dynamic),
            Err(error) => start_failure(program, &error),
        };
    }
    let Some(account) = weir_sys::account(&script.user) else {
        return Outcome::unknown(format!("the user {} does not exist", script.user));
    };
    let mut command = command(program, arguments, account);
    let port = target
        .port
        .map_or_else(String::new, |port| port.to_string());
    command
        .env("WEIR_ADDRESS", target.address.to_string())
        .env("WEIR_PORT", port);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return start_failure(program, &error),
    };
    let _group = ProcessGroup(child.id());
    match child.wait().await {
        Ok(status) => evaluate_exit(status.code(), script.dynamic),
        Err(error) => Outcome::unknown(format!("{program}: {error}")),
    }
}

/// Runs a program through the privileged helper, because this process is not allowed to start programs.
async fn run_script_via_helper(
    helper: &'static dyn PrivilegedHelper,
    script: &Script,
    target: &Target,
) -> io::Result<Option<i32>> {
    let program = Program::Check {
        command: script.command.clone(),
        user: script.user.clone(),
        address: target.address,
        port: target.port,
    };
    run_via_helper(helper, &program).await
}

/// Runs a program through the privileged helper, which kills the program when the future is dropped.
pub(crate) async fn run_via_helper(
    helper: &'static dyn PrivilegedHelper,
    program: &Program,
) -> io::Result<Option<i32>> {
    struct RunningProgram(&'static dyn PrivilegedHelper, u64);
    impl Drop for RunningProgram {
        fn drop(&mut self) {
            self.0.kill(self.1);
        }
    }
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let on_exit = Box::new(move |result| drop(sender.send(result)));
    let _running = RunningProgram(helper, helper.run(program, on_exit)?);
    receiver
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the privileged helper has exited")))
}

/// Prepares a program to run under an account. It is killed when its handle is dropped.
pub(crate) fn command(program: &str, arguments: &[String], account: (u32, u32)) -> Command {
    let mut command = weir_sys::command_as(program, arguments, account);
    weir_sys::restore_nofile(&mut command);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

/// The process group of a program. Dropping this kills the processes.
pub(crate) struct ProcessGroup(pub(crate) Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // The processes may already have exited.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Returns the outcome of a program that could not be started: failed if the program itself is the cause, otherwise
/// unknown, for example if the process table is full or the helper is being restarted.
fn start_failure(program: &str, error: &io::Error) -> Outcome {
    const PROGRAM_ERRORS: [Errno; 7] = [
        Errno::ACCESS,
        Errno::LIBBAD,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::NOENT,
        Errno::NOEXEC,
        Errno::NOTDIR,
    ];
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or_default();
    let note = format!("{program}: {reason}");
    match Errno::from_io_error(error) {
        Some(errno) if PROGRAM_ERRORS.contains(&errno) => Outcome::failed(note),
        _ => Outcome::unknown(note),
    }
}

/// Returns the outcome for an exit code; `None` = killed by a signal. With `dynamic`, a code of 2 or above is a weight
/// plus 2.
fn evaluate_exit(code: Option<i32>, dynamic: bool) -> Outcome {
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

/// Maximum size of a file with a weight, in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// Reads the weight from a file. Another program writes the file, so a symbolic link out of the file's directory is not
/// followed, and no content except the weight is reported.
pub(crate) async fn read_weight(path: &str) -> Outcome {
    let (path, name) = (PathBuf::from(path), path.to_owned());
    let read = move || privileged::read_untrusted(&path, Owner::Any, MAX_FILE_BYTES);
    let text = match tokio::task::spawn_blocking(read).await {
        Ok(Ok(text)) => text,
        Ok(Err(problem)) => return Outcome::failed(format!("{name}: {problem}")),
        Err(_) => return Outcome::unknown("reading the file was aborted"),
    };
    match text.trim().parse::<u32>() {
        Ok(weight) if weight <= MAX_WEIGHT => Outcome::passed(format!("file contains {weight}"))
            .with_weight(ReportedWeight::Weight(weight)),
        _ => Outcome::failed(format!("{name} does not contain a weight")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_health::Verdict;

    #[test]
    fn exit_code_determines_verdict_and_weight() {
        let evaluate = |code, dynamic| {
            let outcome = evaluate_exit(code, dynamic);
            (outcome.verdict, outcome.weight)
        };
        assert_eq!(evaluate(Some(0), true), (Verdict::Passed, None));
        assert_eq!(evaluate(Some(1), true), (Verdict::Failed, None));
        assert_eq!(
            evaluate(Some(12), true),
            (Verdict::Passed, Some(ReportedWeight::Weight(10)))
        );
        assert_eq!(evaluate(Some(2), false), (Verdict::Failed, None));
        assert_eq!(evaluate(None, true), (Verdict::Failed, None));
    }

    #[test]
    fn only_errors_of_the_program_itself_fail_the_probe() {
        let start = |errno: Errno| start_failure("/opt/check", &errno.into());
        assert_eq!(
            start(Errno::NOENT),
            Outcome::failed("/opt/check: No such file or directory")
        );
        for errno in [Errno::ACCESS, Errno::NOEXEC, Errno::NOTDIR, Errno::LOOP] {
            assert_eq!(start(errno).verdict, Verdict::Failed, "{errno}");
        }
        for errno in [
            Errno::AGAIN,
            Errno::NOMEM,
            Errno::MFILE,
            Errno::TXTBSY,
            Errno::PERM,
        ] {
            assert_eq!(start(errno).verdict, Verdict::Unknown, "{errno}");
        }
        let refused = io::Error::new(io::ErrorKind::PermissionDenied, "refused by the helper");
        for error in [
            refused,
            io::Error::other("the privileged helper has exited"),
        ] {
            assert_eq!(
                start_failure("/opt/check", &error).verdict,
                Verdict::Unknown,
                "{error}"
            );
        }
    }
}
