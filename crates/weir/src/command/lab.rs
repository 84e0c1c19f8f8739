//! Runs `weir lab`, which the crate weir-lab implements.

use std::process::ExitCode;

use weir_lab::LabCommand;

pub(super) fn lab(command: &LabCommand) -> ExitCode {
    weir_lab::execute(command)
}
