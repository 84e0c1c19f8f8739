//! `weir status`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_control::client::{self, Client};
use weir_control::configuration::{self, Secrets};
use weir_control::daemon;
use weir_control::status::table::{self, Earlier};
use weir_control::status::{Report, pinned};

use super::{Outcome, STATUS_TIMEOUT, block_on};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

/// Interval of `--watch`.
const PERIOD: Duration = Duration::from_secs(1);

/// Clears the screen and moves the cursor to its top left (ECMA-48: ED, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(super) fn status(global: &GlobalOptions, json: bool, watch: bool) -> Outcome {
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    block_on(async {
        if watch {
            return watch_status(&client, json).await;
        }
        match client.status().await {
            Ok(report) => {
                terminal::print(&text(&report, json)?)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error @ (client::Error::NoDaemon { .. } | client::Error::Silent { .. })) => {
                pinned(global, json, error).await
            }
            Err(error) => Err(error.into()),
        }
    })?
}

fn text(report: &Report, json: bool) -> Result<String, Failure> {
    if !json {
        return Ok(table::render(report, None));
    }
    let text = serde_json::to_string_pretty(report).map_err(Failure::failed)?;
    Ok(text + "\n")
}

/// Prints the status until interrupted or the daemon has ended.
async fn watch_status(client: &Client, json: bool) -> Outcome {
    let clear = if io::stdout().is_terminal() {
        CLEAR
    } else {
        ""
    };
    let mut before: Option<(Report, Instant)> = None;
    loop {
        let report = match client.status().await {
            // It may reply later.
            Err(error @ client::Error::Silent { .. }) => {
                terminal::eprint(&format!("weir: {error}\n"));
                continue;
            }
            other => other?,
        };
        let now = Instant::now();
        let page = if json {
            serde_json::to_string(&report).map_err(Failure::failed)? + "\n"
        } else {
            let earlier = before.as_ref().map(|(report, at)| Earlier {
                report,
                elapsed: now - *at,
            });
            format!("{clear}{}", table::render(&report, earlier))
        };
        terminal::print(&page)?;
        before = Some((report, now));
        tokio::time::sleep(PERIOD).await;
    }
}

/// Prints the state of the pinned data plane, for when no daemon replies. The exit code reports that.
async fn pinned(global: &GlobalOptions, json: bool, absent: client::Error) -> Outcome {
    let last = daemon::last_configuration(&global.runtime_dir);
    let file = global.config.as_deref().or(last.as_deref());
    let desired = configuration::load_with(file.unwrap_or(global.config()), false, Secrets::Unread)
        .map(|loaded| loaded.desired)
        .unwrap_or_default();
    let desired = weir_engine::with_ipvsadm_services(&global.runtime_dir, desired);
    let read = pinned::read(&global.runtime_dir, &global.pin_dir, &desired).await;
    let message = match read {
        Ok(report) => {
            terminal::print(&text(&report, json)?)?;
            format!("{absent}: showing the pinned data plane")
        }
        Err(error) => format!("{absent}; {error}"),
    };
    Err(Failure::NoDaemon { message })
}
