//! `weir doctor` and `weir real-server doctor`.

use std::process::ExitCode;

use weir_control::client::{self, Client};
use weir_control::configuration;
use weir_control::doctor::{self, Ailment};
use weir_control::real_server::{self, Options};

use super::{Outcome, SILENCE, block_on};
use crate::arguments::{Doctor, Places};
use crate::failure::Failure;
use crate::terminal;

pub(super) fn director(places: &Places, arguments: &Doctor) -> Outcome {
    let loaded = configuration::load(places.config(), terminal::color());
    let loaded = loaded.map_err(|rejected| Failure::Findings {
        findings: rejected.diagnostics,
    })?;
    let client = Client::new(&places.runtime_dir).within(SILENCE);
    let found = block_on(async {
        // Without a daemon there is less to see.
        let status = match client.status().await {
            Ok(report) => Some(report),
            Err(client::Error::NoDaemon { .. }) => None,
            Err(error) => {
                terminal::complain(&format!(
                    "weir: {error}: the rest is looked at without it\n"
                ));
                None
            }
        };
        doctor::director(&loaded.desired, status.as_ref()).await
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
