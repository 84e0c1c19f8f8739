//! `weir doctor` and `weir real-server doctor`.

use std::process::ExitCode;

use weir_control::client::{self, Client};
use weir_control::configuration;
use weir_control::daemon;
use weir_control::doctor::{self, Ailment, Daemon};
use weir_control::engine;
use weir_control::real_server::{self, Options};

use super::{Outcome, SILENCE, block_on};
use crate::arguments::{Doctor, Places};
use crate::failure::{Failure, is_root};
use crate::terminal;

pub(super) fn director(places: &Places, arguments: &Doctor) -> Outcome {
    // What the daemon runs, unless another file is meant.
    let last = daemon::last_configuration(&places.runtime_dir);
    let file = places.config.as_deref().or(last.as_deref());
    let loaded = configuration::load(file.unwrap_or(places.config()), terminal::color());
    let loaded = loaded.map_err(|rejected| Failure::Findings {
        findings: rejected.diagnostics,
    })?;
    let desired = engine::with_made(&places.runtime_dir, loaded.desired);
    let client = Client::new(&places.runtime_dir).within(SILENCE);
    if !is_root() {
        terminal::complain(
            "weir: services of ipvsadm, rules of firewalls and answers on the wire may be missing here: run as root to see \
             everything\n",
        );
    }
    let found = block_on(async {
        let daemon = match client.status().await {
            Ok(report) => Daemon::Answers(Box::new(report)),
            Err(client::Error::NoDaemon { .. }) => Daemon::Absent,
            Err(error @ client::Error::Denied { .. }) => {
                terminal::complain(&format!("weir: {error}\n"));
                Daemon::Closed
            }
            Err(error) => Daemon::Fails(error.to_string()),
        };
        doctor::director(&desired, &daemon).await
    })?
    .map_err(Failure::failed)?;
    if arguments.fix {
        terminal::complain(
            "weir: --fix changes nothing on a director: what Weir set there, its daemon keeps\n",
        );
    }
    told(&found, arguments)
}

pub(super) fn server(options: &Options, arguments: &Doctor) -> Outcome {
    let found = block_on(real_server::doctor(options, arguments.fix))?.map_err(Failure::failed)?;
    told(&found, arguments)
}

/// 0 = nothing is wrong any more, 1 = something is.
fn told(found: &[Ailment], arguments: &Doctor) -> Outcome {
    let mut text = if arguments.json {
        serde_json::to_string_pretty(found).map_err(Failure::failed)? + "\n"
    } else {
        found
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    if text.is_empty() {
        text.push_str("nothing is wrong that can be seen from here\n");
    }
    terminal::print(&text)?;
    let well = found.iter().all(|one| one.mended);
    Ok(ExitCode::from(u8::from(!well)))
}
