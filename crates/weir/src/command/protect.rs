//! Implements `weir protect`.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use weir_protect::{Error, Options};

use super::{Outcome, block_on};
use crate::arguments::{GlobalOptions, Protect};
use crate::failure::{Failure, with_advice};
use crate::terminal;

/// Exit codes, as in env(1), if the command was not started, is not executable, or was not found.
const NOT_STARTED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Base of the exit code after a signal: shells add the number of the signal that terminated the command.
const SIGNAL_BASE: i32 = 128;

pub(super) fn protect(global: &GlobalOptions, arguments: &Protect) -> Outcome {
    terminal::start_log("warn");
    let options = Options {
        listen: arguments.listen.clone(),
        max: arguments.max,
        runtime_dir: global.runtime_dir.clone(),
        command: arguments.command.clone(),
    };
    let status = block_on(weir_protect::protect(&options))?.map_err(|error| Failure::Wrapper {
        code: match &error {
            Error::Command { source, .. } if source.kind() == ErrorKind::NotFound => NOT_FOUND,
            Error::Command { .. } => NOT_EXECUTABLE,
            Error::Interrupted { signal } => signal_code(signal.as_raw()),
            _ => NOT_STARTED,
        },
        message: with_advice(&error),
    })?;
    Ok(exit_code(status))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let by_signal = || status.signal().map(signal_code);
    ExitCode::from(code.or_else(by_signal).unwrap_or(NOT_STARTED))
}

fn signal_code(signal: i32) -> u8 {
    u8::try_from(SIGNAL_BASE + signal).unwrap_or(NOT_STARTED)
}
