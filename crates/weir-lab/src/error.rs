//! Defines the errors of the lab.
//!
//! These are usage errors, missing requirements of the machine (root, programs), and failures of programs that the lab
//! started.

use std::path::PathBuf;

/// The result of this crate's fallible functions.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Errors of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The experiment does not exist.
    #[error("unknown experiment \"{name}\"; the experiments are: {existing}")]
    UnknownExperiment {
        /// The requested name.
        name: String,
        /// The existing names, comma-separated.
        existing: String,
    },
    /// An option is not supported, or has an invalid value.
    #[error("{option}: {reason}")]
    Usage {
        /// The option as written on the command line.
        option: &'static str,
        /// Why the option or its value is rejected, and what is expected.
        reason: String,
    },
    /// `weir lab report` found no results.
    #[error(
        "no results in {directory}; run `weir lab run NAME --report DIR` to produce them, or use --run",
        directory = .directory.display()
    )]
    NoResults {
        /// The directory of `--report`.
        directory: PathBuf,
    },
    /// The lab does not run as root, which namespaces and links require.
    #[error(
        "the lab must run as root: it creates network namespaces and links, and starts servers in them. \
         It changes nothing else on this machine. Try: sudo {command}"
    )]
    NotRoot {
        /// The command line to repeat as root.
        command: String,
    },
    /// Required programs are not installed.
    #[error("missing programs: {}. `make deps` installs them without starting services", .programs.join(", "))]
    MissingPrograms {
        /// The programs, each as `program (package NAME)`.
        programs: Vec<String>,
    },
    /// A program cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program's name.
        program: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A program exited with an error.
    #[error("{program} failed ({status}): {message}")]
    Failed {
        /// The shortened command line.
        program: String,
        /// The exit status as text.
        status: String,
        /// The end of its output.
        message: String,
    },
    /// A condition was not met in time.
    #[error("timed out after {seconds} s waiting for {event}{detail}")]
    Deadline {
        /// The awaited event.
        event: String,
        /// The time limit, in seconds.
        seconds: u64,
        /// The last observation; empty or starting with `: `.
        detail: String,
    },
    /// A file or directory of the lab cannot be used.
    #[error("{path}: {source}")]
    File {
        /// The path.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The network namespace of a host cannot be entered.
    #[error("network namespace {name}: {source}")]
    Namespace {
        /// The namespace's name.
        name: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The output of `ab` lacks a line that the lab requires.
    #[error("ab did not print a \"{field}\" line; its output ended with: {tail}")]
    AbOutput {
        /// The expected label.
        field: &'static str,
        /// The end of the output.
        tail: String,
    },
    /// A trial of `weir-lab attack` failed.
    #[error("{trial}: {source}")]
    Trial {
        /// Attack and proxy.
        trial: String,
        /// The error.
        source: Box<LabError>,
    },
    /// Ctrl-C or SIGTERM interrupted the lab.
    #[error("interrupted; all started programs were stopped and all created namespaces removed")]
    Interrupted,
}

impl LabError {
    /// Returns the exit code: 2 for a usage error, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::UnknownExperiment { .. } | LabError::Usage { .. } => 2,
            _ => 1,
        }
    }

    /// Adds the name of the trial to an error, except to an interruption.
    pub(crate) fn in_trial(self, trial: &str) -> LabError {
        match self {
            LabError::Interrupted => LabError::Interrupted,
            source => LabError::Trial {
                trial: trial.to_owned(),
                source: Box::new(source),
            },
        }
    }

    /// Adds the path to an I/O error.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { path, source }
    }
}
