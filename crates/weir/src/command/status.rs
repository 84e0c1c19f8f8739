//! `weir status`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_control::client::{self, Client};
use weir_control::configuration::{self, Secrets};
use weir_control::daemon;
use weir_control::engine;
use weir_control::status::table::{self, Earlier};
use weir_control::status::{Report, pinned};

use super::{Outcome, SILENCE, block_on};
use crate::arguments::Places;
use crate::failure::Failure;
use crate::terminal;

/// How often `--watch` looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Clears the screen and goes to its corner (ECMA-48: ED, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(super) fn status(places: &Places, json: bool, watch: bool) -> Outcome {
    let client = Client::new(&places.runtime_dir).within(SILENCE);
    block_on(async {
        if watch {
            return watch_on(&client, json).await;
        }
        match client.status().await {
            Ok(report) => {
                terminal::print(&text(&report, json)?)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error @ (client::Error::NoDaemon { .. } | client::Error::Silent { .. })) => {
                pinned(places, json, error).await
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

/// Until interrupted, or the daemon is gone.
async fn watch_on(client: &Client, json: bool) -> Outcome {
    let clear = if io::stdout().is_terminal() {
        CLEAR
    } else {
        ""
    };
    let mut before: Option<(Report, Instant)> = None;
    loop {
        let report = match client.status().await {
            // It may go on.
            Err(error @ client::Error::Silent { .. }) => {
                terminal::complain(&format!("weir: {error}\n"));
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

/// What still forwards without a daemon, or with one that hangs; the code says that none answers.
async fn pinned(places: &Places, json: bool, absent: client::Error) -> Outcome {
    let last = daemon::last_configuration(&places.runtime_dir);
    let file = places.config.as_deref().or(last.as_deref());
    let desired = configuration::load_with(file.unwrap_or(places.config()), false, Secrets::Unread)
        .map(|loaded| loaded.desired)
        .unwrap_or_default();
    let desired = engine::with_made(&places.runtime_dir, desired);
    let read = pinned::read(&places.runtime_dir, &places.pin_dir, &desired).await;
    let message = match read {
        Ok(report) => {
            terminal::print(&text(&report, json)?)?;
            format!("{absent}: this is what is pinned")
        }
        Err(error) => format!("{absent}; {error}"),
    };
    Err(Failure::NoDaemon { message })
}
