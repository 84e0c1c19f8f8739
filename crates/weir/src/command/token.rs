//! `weir token`: who may use the API over TCP.

use std::path::Path;
use std::process::ExitCode;

use weir_control::api::{Role, add_token};

use super::Outcome;
use crate::failure::Failure;
use crate::terminal;

/// The token is printed once, and nothing keeps it.
pub(super) fn add(file: &Path, name: &str, role: Role) -> Outcome {
    let token = add_token(file, name, role).map_err(Failure::failed)?;
    terminal::print(&format!("{token}\n"))?;
    terminal::complain(&format!(
        "weir: {} has the hash of this token for {name}, role {role}; `weir reload` makes it known\n",
        file.display()
    ));
    Ok(ExitCode::SUCCESS)
}
