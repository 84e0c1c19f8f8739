//! Implements `weir reload`.

use std::process::ExitCode;
use std::time::Duration;

use weir_control::api::FileRequest;
use weir_control::client::Client;
use weir_control::daemon;

use super::{Outcome, with_progress};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn reload(global: &GlobalOptions, guard: Option<Duration>, json: bool) -> Outcome {
    let request = FileRequest {
        path: global.absolute_config()?,
        text: None,
        color: terminal::color(),
        guard_ms: guard.map(|guard| u64::try_from(guard.as_millis()).unwrap_or(u64::MAX)),
        group: None,
    };
    let what = guard.map_or("the reload", |_| "the guard time to end");
    let reloaded = with_progress(what, Client::new(&global.runtime_dir).reload(&request))??;
    let text = if json {
        serde_json::to_string_pretty(&reloaded).map_err(Failure::failed)? + "\n"
    } else {
        terminal::eprint(&reloaded.findings);
        let mut text = String::new();
        for change in &reloaded.changes {
            text.push_str(change);
            text.push('\n');
        }
        let file = daemon::last_configuration(&global.runtime_dir);
        let file = file.map_or_else(String::new, |file| format!(": {}", file.display()));
        format!("{text}revision {} is active{file}\n", reloaded.revision)
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
