//! `weir clean`.

use std::process::ExitCode;

use weir_control::daemon::{self, RuntimeDir};
use weir_control::engine::{self, Paths};
use weir_control::protect;
use weir_control::real_server::{self, DownRequest, Options};

use super::{Outcome, block_on};
use crate::arguments::Places;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn clean(places: &Places, force: bool) -> Outcome {
    // As long as it is held no daemon can start.
    let held = RuntimeDir::take(&places.runtime_dir).map_err(|error| match error {
        daemon::Error::Running { .. } => Failure::Failed {
            message: "a daemon is running: stop it first".to_owned(),
        },
        other => Failure::failed(other),
    })?;
    let options = Options {
        runtime_dir: places.runtime_dir.clone(),
        pin_dir: places.pin_dir.clone(),
    };
    let paths = Paths {
        runtime_dir: places.runtime_dir.clone(),
        pin_dir: places.pin_dir.clone(),
    };
    let (steps, cleaned) = block_on(async {
        // What this machine is as a server is pinned below what it is as a director.
        let steps = match real_server::down(&options, &DownRequest::default()).await {
            Err(error) if force => {
                terminal::complain(&format!("weir: left as it is: {error}\n"));
                Vec::new()
            }
            other => other.map_err(Failure::failed)?,
        };
        let cleaned = engine::clean(&paths).await.map_err(Failure::failed)?;
        Ok::<_, Failure>((steps, cleaned))
    })??;
    protect::restore(&places.runtime_dir);
    let forgotten = held.forget().map_err(Failure::failed)?;
    let mut text: String = steps.iter().map(|step| format!("{step}\n")).collect();
    if cleaned.data_plane {
        text.push_str("programs and maps removed\n");
    }
    for (count, what) in [
        (cleaned.addresses, "addresses removed"),
        (cleaned.neighbours, "neighbours released"),
        (cleaned.offloads, "interfaces with their offloads as before"),
        (cleaned.marks, "rules for firewall marks removed"),
        (forgotten, "files of the runtime directory removed"),
    ] {
        if count > 0 {
            text.push_str(&format!("{count} {what}\n"));
        }
    }
    if text.is_empty() {
        text.push_str("nothing to remove\n");
    }
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
