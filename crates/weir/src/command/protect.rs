//! `weir protect`.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use weir_control::protect::{self, Error, Options};

use super::{Outcome, block_on};
use crate::arguments::{Places, Protect};
use crate::failure::Failure;
use crate::terminal;

/// As env(1): the command did not run; it was found and cannot be run; it was not found.
const REFUSED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// What shells add to the number of a signal that ended a command.
const SIGNALLED: i32 = 128;

pub(super) fn protect(places: &Places, arguments: &Protect) -> Outcome {
    terminal::log("warn");
    let options = Options {
        listen: arguments.listen.clone(),
        max: arguments.max,
        runtime_dir: places.runtime_dir.clone(),
        command: arguments.command.clone(),
    };
    let status = block_on(protect::protect(&options))?.map_err(|error| Failure::Wrapper {
        code: match &error {
            Error::Command { source, .. } if source.kind() == ErrorKind::NotFound => NOT_FOUND,
            Error::Command { .. } => NOT_EXECUTABLE,
            _ => REFUSED,
        },
        message: error.to_string(),
    })?;
    Ok(code(status))
}

fn code(status: ExitStatus) -> ExitCode {
    let signalled = || status.signal().map(|signal| SIGNALLED + signal);
    let number = status.code().or_else(signalled);
    ExitCode::from(
        number
            .and_then(|number| u8::try_from(number).ok())
            .unwrap_or(REFUSED),
    )
}
