//! `weir upgrade`.

use std::path::Path;
use std::process::ExitCode;

use weir_control::api::UpgradeRequest;
use weir_control::client::Client;

use super::{Outcome, patiently};
use crate::arguments::Places;
use crate::terminal;

pub(super) fn upgrade(places: &Places, path: Option<&Path>) -> Outcome {
    let program = match path {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()?,
    };
    let request = UpgradeRequest { program };
    let client = Client::new(&places.runtime_dir);
    let upgraded = patiently("the upgrade", client.upgrade(&request))??;
    terminal::print(&format!("process {} is in charge\n", upgraded.pid))?;
    Ok(ExitCode::SUCCESS)
}
