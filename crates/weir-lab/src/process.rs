//! Runs programs: short commands, and daemons that are stopped when their guard is dropped.
//!
//! Each program has a separate process group, so that Ctrl-C for the lab does not interrupt it, and a parent-death
//! signal, so that it does not outlive a killed lab. Programs write their output to files, so that they never block on
//! a full pipe.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::namespace::Namespace;

/// Directories in which Debian installs the peers. They are searched after `PATH`, because root's `PATH` after `su`
/// might not contain them.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Time limit for a daemon to exit after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a program's output in an error, in bytes.
const TAIL_BYTES: u64 = 600;

/// Finds `program` in `PATH` and the system directories.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    directories
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

fn resolve(program: &Path) -> PathBuf {
    if program.components().count() > 1 {
        return program.to_owned();
    }
    program
        .to_str()
        .and_then(find)
        .unwrap_or_else(|| program.to_owned())
}

/// Runs a short command on the host and returns its output.
///
/// # Errors
/// Returns [`LabError::Start`], or [`LabError::Failed`] with the output on stderr.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    run_with_input(program, arguments, "")
}

/// Like [`run`], but passes text to the standard input.
pub(crate) fn run_with_input(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let start_error = |source| LabError::Start {
        program: program.into(),
        source,
    };
    let mut child = Command::new(resolve(Path::new(program)))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(start_error)?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the program exits without reading its input, its status shows the error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(start_error)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Failed {
        program: format!("{program} {}", arguments.join(" ")),
        status: output.status.to_string(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Starts programs in a namespace and a cgroup, with their log files in a directory.
pub(crate) struct Launcher<'a> {
    /// The network namespace.
    pub(crate) namespace: &'a Namespace,
    /// The cgroup; `None` = the lab's cgroup.
    pub(crate) cgroup: Option<&'a Path>,
    /// Directory of the output file, `NAME.log`.
    pub(crate) directory: &'a Path,
}

impl Launcher<'_> {
    fn spawn<S: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &Path,
        arguments: &[S],
    ) -> Result<(Child, PathBuf)> {
        let log = self.directory.join(format!("{name}.log"));
        let output = File::create(&log).map_err(LabError::file(&log))?;
        let errors = output.try_clone().map_err(LabError::file(&log))?;
        let mut network = std::ffi::OsString::from("--net=");
        network.push(self.namespace.path());
        // setpriv, nsenter and sh replace themselves with the next program (exec), so the child's process ID is the
        // program's.
        let mut command = Command::new("sh");
        match self.cgroup {
            Some(cgroup) => command
                .args(["-c", "echo $$ >\"$0\" && exec setpriv \"$@\""])
                .arg(cgroup.join("cgroup.procs")),
            None => command.args(["-c", "exec setpriv \"$@\"", "sh"]),
        };
        let child = command
            .args(["--pdeathsig", "KILL", "nsenter"])
            .arg(network)
            .arg("--")
            .arg(resolve(program))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|source| LabError::Start {
                program: name.into(),
                source,
            })?;
        Ok((child, log))
    }

    /// Starts a program. Dropping the guard stops it.
    pub(crate) fn start<S: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &Path,
        arguments: &[S],
    ) -> Result<Daemon> {
        let (child, log) = self.spawn(name, program, arguments)?;
        Ok(Daemon {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Runs a program until it exits and returns its output.
    ///
    /// # Errors
    /// Returns [`LabError::Failed`] for a status other than 0, [`LabError::Deadline`] after `limit`, which also kills
    /// the program, [`LabError::Interrupted`], or another error if the program cannot be started or its output cannot
    /// be read.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &Path,
        arguments: &[S],
        limit: Duration,
    ) -> Result<String> {
        let mut daemon = self.start(name, program, arguments)?;
        let log = daemon.log.clone();
        let status = wait_for(
            &format!("{name} to exit"),
            limit,
            || daemon.exit_status(),
            || tail_detail(&log),
        )?;
        let text = std::fs::read(&log).map_err(LabError::file(&log))?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        Err(daemon.failure(status))
    }
}

/// A running program. Dropping it stops the program and its process group.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Returns the process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|source| LabError::Start {
            program: self.name.clone(),
            source,
        })
    }

    fn failure(&self, status: ExitStatus) -> LabError {
        LabError::Failed {
            program: self.name.clone(),
            status: status.to_string(),
            message: tail(&self.log),
        }
    }

    /// Waits until `ready` returns true.
    ///
    /// # Errors
    /// Returns [`LabError::Failed`] with the end of the log if the program exits, [`LabError::Deadline`] after `limit`,
    /// [`LabError::Interrupted`], or the error of `ready`.
    pub(crate) fn wait_ready(
        &mut self,
        event: &str,
        limit: Duration,
        mut ready: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let log = self.log.clone();
        let condition = || match self.exit_status()? {
            Some(status) => Err(self.failure(status)),
            None => Ok(ready()?.then_some(())),
        };
        wait_for(event, limit, condition, || tail_detail(&log))
    }

    /// Checks that the program is running.
    ///
    /// # Errors
    /// Returns [`LabError::Failed`] with the end of the log if the program has exited.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match self.exit_status()? {
            Some(status) => Err(self.failure(status)),
            None => Ok(()),
        }
    }

    fn signal_group(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // If the program has just exited, the group is empty and there is nothing to do.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Another process may already have the ID of a reaped child, so signal only a child that has not been reaped.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal_group(Signal::TERM);
            let end = Instant::now() + TERMINATION_TIMEOUT;
            // Do not reap the leader when it exits, so that the group ID remains valid.
            while Instant::now() < end && !is_zombie(self.child.id()) {
                std::thread::sleep(Duration::from_millis(10));
            }
            self.signal_group(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Returns whether the process is a zombie: field 3 of `/proc/PID/stat`, after the name in parentheses (proc(5)).
fn is_zombie(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// Returns the running child processes of `parent`, from `/proc/PID/stat` (proc(5)).
pub(crate) fn children(parent: u32) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let child = |name: &str| -> Option<Pid> {
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?;
        let parent_pid: u32 = words.next()?.parse().ok()?;
        (parent_pid == parent && state != "Z").then(|| Pid::from_raw(name.parse().ok()?))?
    };
    processes
        .flatten()
        .filter_map(|entry| child(entry.file_name().to_str()?))
        .collect()
}

fn tail_detail(log: &Path) -> String {
    match tail(log) {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}

/// Returns the end of a log file, trimmed.
pub(crate) fn tail(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // The error is reported even without the log.
    String::from_utf8_lossy(&read().unwrap_or_default())
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_command_returns_its_message() {
        let error = run("sh", &["-c", "echo broken wheel >&2; exit 7"]).expect_err("exit 7");
        let text = error.to_string();
        assert!(
            text.contains("broken wheel") && text.contains('7'),
            "{text}"
        );
    }

    #[test]
    fn input_reaches_the_command() {
        assert_eq!(
            run_with_input("cat", &[], "through").expect("cat"),
            "through"
        );
    }

    #[test]
    fn only_existing_programs_are_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }
}
