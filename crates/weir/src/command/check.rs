//! `weir check`.

use std::process::ExitCode;

use weir_control::client::{self, Client};
use weir_control::configuration::{self, Doubt, Finding, Loaded};
use weir_control::engine::added_vips;

use super::{Outcome, SILENCE, block_on};
use crate::arguments::Places;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn check(places: &Places, strict: bool, json: bool) -> Outcome {
    let file = places.config();
    let loaded = match configuration::load(file, terminal::color()) {
        Ok(loaded) => loaded,
        Err(rejected) if json => {
            print(&rejected.found)?;
            return Ok(ExitCode::FAILURE);
        }
        Err(rejected) => {
            return Err(Failure::Findings {
                findings: rejected.diagnostics,
            });
        }
    };
    let mut doubts = configuration::doubtful_certificates(&loaded.desired);
    doubts.extend(occupied(places, &loaded)?);
    let refused = doubts.iter().any(|doubt| doubt.fatal);
    let added = added_vips(&places.runtime_dir);
    // Where the addresses cannot be read, the file is judged alone.
    let absent = block_on(configuration::absent_vips(&loaded.desired, &added))?.unwrap_or_default();
    let failovers = configuration::failovers(&loaded.desired);
    let name = file.display().to_string();
    let absent = absent.iter().map(|vip| Finding::of_absent_vip(vip, &name));
    let failovers = failovers.iter().map(|it| Finding::of_failover(it, &name));
    let doubts = doubts.iter().map(|doubt| Finding::of_doubt(doubt, &name));
    let here = Finding::grouped(absent.chain(failovers).chain(doubts));
    let is_warning = |one: &Finding| one.severity == "warning";
    let warned = loaded.warnings > 0 || here.iter().any(is_warning);
    if json {
        let found: Vec<Finding> = loaded.found.into_iter().chain(here).collect();
        print(&found)?;
        return Ok(ExitCode::from(u8::from(refused || (strict && warned))));
    }
    terminal::complain(&loaded.findings);
    for finding in &here {
        terminal::complain(&finding.render());
    }
    if refused {
        return Err(Failure::Failed {
            message: "files that the configuration names cannot be used as they are".to_owned(),
        });
    }
    if strict && warned {
        return Err(Failure::Failed {
            message: "warnings fail under --strict".to_owned(),
        });
    }
    let extent = configuration::extent(&loaded.desired);
    terminal::print(&format!("ok: {extent}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn print(found: &[Finding]) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(found).map_err(Failure::failed)?;
    Ok(terminal::print(&(text + "\n"))?)
}

/// Addresses that another program listens on now: it may be gone when Weir starts, so that they are warnings. A running daemon's own
/// are left to `weir plan`, which asks it.
fn occupied(places: &Places, loaded: &Loaded) -> Result<Vec<Doubt>, Failure> {
    let client = Client::new(&places.runtime_dir).within(SILENCE);
    let asked = block_on(client.status())?;
    if !matches!(asked, Err(client::Error::NoDaemon { .. })) {
        return Ok(Vec::new());
    }
    let file = places.config();
    let mut doubts = configuration::occupied_listeners(&loaded.desired);
    doubts.retain_mut(|doubt| {
        doubt.fatal = false;
        doubt.cause = format!("`weir run` would refuse {} while it is so", file.display());
        true
    });
    Ok(doubts)
}
