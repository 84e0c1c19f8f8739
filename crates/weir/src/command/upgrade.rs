//! Implements `weir upgrade`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_control::api::UpgradeRequest;
use weir_control::client::Client;
use weir_control::keeper;

use super::{Outcome, with_progress};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn upgrade(global: &GlobalOptions, path: Option<&Path>) -> Outcome {
    let program = match path {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()?,
    };
    permit(global, &program)?;
    let request = UpgradeRequest { program };
    let client = Client::new(&global.runtime_dir);
    let upgraded = with_progress("the upgrade", client.upgrade(&request))??;
    terminal::print(&format!("process {} has taken over\n", upgraded.pid))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the helper service and the keeper to permit the program, because they start only permitted programs. Skips
/// each of them that is not listening.
fn permit(global: &GlobalOptions, program: &Path) -> Result<(), Failure> {
    let service =
        keeper::configured_socket().unwrap_or_else(|| PathBuf::from(keeper::HELPER_SOCKET));
    let keeper = global.runtime_dir.join(keeper::UPGRADE_SOCKET);
    [service, keeper].iter().try_for_each(|socket| {
        keeper::permit(socket, program).map_err(|message| Failure::Failed { message })
    })
}
