//! Implements `weir reload`.

use std::process::ExitCode;
use std::time::Duration;

use weir_control::api::FileRequest;
use weir_control::client::Client;
use weir_control::daemon;
use weir_control::status::vrrp::handover_warning;

use super::{Outcome, STATUS_TIMEOUT, with_progress};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

/// Interval between attempts to find virtual routers with changes that are pending until the guard ends. The daemon
/// normally applies a configuration in less time, so the first attempt finds them.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of attempts: the status of a large director is expensive.
const STATUS_ATTEMPTS: u32 = 5;

pub(super) fn reload(global: &GlobalOptions, guard: Option<Duration>, json: bool) -> Outcome {
    let request = FileRequest {
        path: global.absolute_config()?,
        text: None,
        color: terminal::color(),
        guard_ms: guard.map(|guard| u64::try_from(guard.as_millis()).unwrap_or(u64::MAX)),
        group: None,
    };
    let waiting_for = guard.map_or("the reload", |_| "the guard time to end");
    let client = Client::new(&global.runtime_dir);
    let reload = async {
        let mut reload = std::pin::pin!(client.reload(&request));
        if let Some(guard) = guard {
            tokio::select! {
                result = &mut reload => return result,
                waiting = describe_pending_routers(global, guard) => terminal::eprint(&waiting),
            }
        }
        reload.await
    };
    let reloaded = with_progress(waiting_for, reload)??;
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

/// Waits until the status contains changes to virtual routers that are pending until the guard ends. Returns a text
/// about them, with a warning if VIPs would be removed earlier, or an empty text after [`STATUS_ATTEMPTS`] attempts.
async fn describe_pending_routers(global: &GlobalOptions, guard: Duration) -> String {
    for _ in 0..STATUS_ATTEMPTS {
        tokio::time::sleep(STATUS_INTERVAL).await;
        let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
        let Ok(report) = client.status().await else {
            continue;
        };
        let mut text = String::new();
        for status in &report.vrrp {
            if let Some(pending) = &status.pending {
                text += &format!(
                    "weir: the virtual router {} {pending}\n",
                    status.router.name
                );
            }
        }
        if let Some(warning) = handover_warning(&report.vrrp, guard) {
            text += &format!("weir: {warning}\n");
        }
        if !text.is_empty() {
            return text;
        }
    }
    String::new()
}
