//! What can go wrong in the lab, split by whose move is next: the caller's (usage), the machine's (root, missing
//! programs), or a program's that the lab started.

use std::path::PathBuf;

/// Shorthand for results of this crate.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Errors of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The name is not an experiment's.
    #[error("there is no experiment \"{name}\"; there are: {known}")]
    UnknownExperiment {
        /// What was asked for.
        name: String,
        /// The existing names, comma-separated.
        known: String,
    },
    /// An option has a value that the experiment cannot use.
    #[error("{option}: {reason}")]
    Usage {
        /// The option as written on the command line.
        option: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// Namespaces and links need root.
    #[error(
        "the lab needs root: it makes network namespaces and links, and starts servers inside them. \
         It changes nothing else on this machine. Try: sudo {command}"
    )]
    NotRoot {
        /// The command line to repeat.
        command: String,
    },
    /// Programs that the experiment compares or uses are not installed.
    #[error("missing: {}. `make deps` installs what is missing and starts no service", .programs.join(", "))]
    MissingPrograms {
        /// `program (package NAME)`, one each.
        programs: Vec<String>,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program's name.
        program: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A program ended with a failure.
    #[error("{program} failed ({status}): {message}")]
    Failed {
        /// The command line, shortened to what matters.
        program: String,
        /// Exit status in words.
        status: String,
        /// The end of what it printed.
        message: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s{detail}")]
    Deadline {
        /// The awaited condition.
        what: String,
        /// The time that was given, in seconds.
        seconds: u64,
        /// What was seen instead; empty or starting with `: `.
        detail: String,
    },
    /// A file or directory of the lab could not be used.
    #[error("{path}: {source}")]
    File {
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The network namespace of a host could not be entered.
    #[error("network namespace {name}: {source}")]
    Namespace {
        /// The namespace's name.
        name: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The output of `ab` lacks a line that the lab reads.
    #[error("ab printed no \"{field}\" line; its output ended with: {tail}")]
    AbOutput {
        /// The label that was looked for.
        field: &'static str,
        /// The end of the output.
        tail: String,
    },
    /// A trial of `weir-lab attack` could not be carried out.
    #[error("{trial}: {source}")]
    Trial {
        /// Attack and proxy.
        trial: String,
        /// What went wrong.
        source: Box<LabError>,
    },
    /// Ctrl-C or SIGTERM.
    #[error("interrupted; everything that was started has been removed")]
    Interrupted,
}

impl LabError {
    /// The exit code of the program: 2 for wrong usage, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::UnknownExperiment { .. } | LabError::Usage { .. } => 2,
            _ => 1,
        }
    }

    /// Names the trial; an interruption is not one's fault.
    pub(crate) fn in_trial(self, trial: &str) -> LabError {
        match self {
            LabError::Interrupted => LabError::Interrupted,
            source => LabError::Trial {
                trial: trial.to_owned(),
                source: Box::new(source),
            },
        }
    }

    /// Attaches a path to an I/O error.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { path, source }
    }
}
