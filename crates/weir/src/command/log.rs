//! Implements `weir log`.

use std::process::ExitCode;

use weir_control::client::Client;
use weir_control::log_filter::{self, Filter};

use super::{Outcome, REPLY_TIMEOUT, block_on};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

/// Shows or changes the daemon's log filter.
pub(super) fn log(global: &GlobalOptions, filter: Option<&str>, json: bool) -> Outcome {
    if let Some(filter) = filter {
        log_filter::check(filter).map_err(|message| Failure::Usage { message })?;
    }
    let client = Client::new(&global.runtime_dir).within(REPLY_TIMEOUT);
    let active = block_on(async {
        match filter {
            None => client.log_filter().await,
            Some(filter) => {
                let filter = filter.to_owned();
                client.set_log_filter(&Filter { filter }).await
            }
        }
    })??;
    if json {
        let text = serde_json::to_string(&active).map_err(Failure::failed)?;
        terminal::print(&(text + "\n"))?;
    } else {
        terminal::print(&(active.filter + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
