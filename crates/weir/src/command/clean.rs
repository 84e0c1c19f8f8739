//! `weir clean`.

use std::process::ExitCode;

use weir_control::runtime_dir::{self, RuntimeDir};
use weir_engine::Paths;
use weir_real_server::{DownRequest, Options};

use super::{Outcome, block_on};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn clean(global: &GlobalOptions, force: bool) -> Outcome {
    // While the lock is held no daemon can start.
    let held = RuntimeDir::take(&global.runtime_dir).map_err(|error| match error {
        runtime_dir::Error::Running { .. } => Failure::Failed {
            message: "a daemon is running: stop it first".to_owned(),
        },
        other => Failure::failed(other),
    })?;
    let options = Options {
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
    };
    let paths = Paths {
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
    };
    let (steps, cleaned, virtual_addresses) = block_on(async {
        // The real server's pins are in a directory below the director's.
        let steps = match weir_real_server::down(&options, &DownRequest::default()).await {
            Err(error) if force => {
                terminal::eprint(&format!("weir: not undone: {error}\n"));
                Vec::new()
            }
            other => other.map_err(Failure::failed)?,
        };
        let cleaned = weir_engine::clean(&paths).await.map_err(Failure::failed)?;
        let virtual_addresses = weir_helper::remove_recorded(&global.runtime_dir)
            .await
            .map_err(Failure::failed)?;
        Ok::<_, Failure>((steps, cleaned, virtual_addresses))
    })??;
    weir_protect::restore(&global.runtime_dir);
    let forgotten = held.forget().map_err(Failure::failed)?;
    let mut text: String = steps.iter().map(|step| format!("{step}\n")).collect();
    if cleaned.data_plane {
        text.push_str("programs and maps removed\n");
    }
    for (count, what) in [
        (cleaned.addresses, "addresses removed"),
        (virtual_addresses, "virtual addresses removed"),
        (cleaned.neighbours, "neighbour entries released"),
        (cleaned.offloads, "interfaces with offloads restored"),
        (cleaned.marks, "rules of firewall marks removed"),
        (forgotten, "files removed from the runtime directory"),
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
