//! `weir reload`.

use std::process::ExitCode;
use std::time::Duration;

use weir_control::api::FileRequest;
use weir_control::client::Client;

use super::{Outcome, patiently};
use crate::arguments::Places;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn reload(places: &Places, guard: Option<Duration>, json: bool) -> Outcome {
    let request = FileRequest {
        path: places.named_config()?,
        text: None,
        color: terminal::color(),
        guard_ms: guard.map(|guard| u64::try_from(guard.as_millis()).unwrap_or(u64::MAX)),
    };
    let what = guard.map_or("the reload", |_| "watching the new configuration");
    let reloaded = patiently(what, Client::new(&places.runtime_dir).reload(&request))??;
    let text = if json {
        serde_json::to_string_pretty(&reloaded).map_err(Failure::failed)? + "\n"
    } else {
        terminal::complain(&reloaded.findings);
        let mut text = String::new();
        for change in &reloaded.changes {
            text.push_str(change);
            text.push('\n');
        }
        format!("{text}revision {} is in force\n", reloaded.revision)
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
