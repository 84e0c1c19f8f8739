//! `weir upgrade`.

use std::path::Path;
use std::process::ExitCode;

use weir_control::api::UpgradeRequest;
use weir_control::client::Client;

use super::{Outcome, with_progress};
use crate::arguments::GlobalOptions;
use crate::terminal;

pub(super) fn upgrade(global: &GlobalOptions, path: Option<&Path>) -> Outcome {
    let program = match path {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()?,
    };
    let request = UpgradeRequest { program };
    let client = Client::new(&global.runtime_dir);
    let upgraded = with_progress("the upgrade", client.upgrade(&request))??;
    terminal::print(&format!("process {} has taken over\n", upgraded.pid))?;
    Ok(ExitCode::SUCCESS)
}
