//! `weir lab`, all of it weir-lab's.

use std::process::ExitCode;

use weir_lab::LabCommand;

pub(super) fn lab(command: &LabCommand) -> ExitCode {
    weir_lab::execute(command)
}
