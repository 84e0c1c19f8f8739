//! Implements `weir schema`.

use std::process::ExitCode;

use super::Outcome;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn schema() -> Outcome {
    let schema = weir_config::schema();
    let text = serde_json::to_string_pretty(&schema).map_err(Failure::failed)?;
    terminal::print(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
