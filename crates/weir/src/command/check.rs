//! `weir check`.

use std::process::ExitCode;

use weir_control::client::{self, Client};
use weir_control::configuration::{self, Finding, Loaded, Problem};
use weir_control::daemon;
use weir_engine::added_vips;

use super::{Outcome, STATUS_TIMEOUT, block_on};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn check(global: &GlobalOptions, strict: bool, json: bool) -> Outcome {
    let file = global.config();
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
    doubts.extend(occupied(global, &loaded)?);
    let rejected = doubts.iter().any(|doubt| doubt.fatal);
    let added = added_vips(&global.runtime_dir);
    // If the addresses cannot be read, only the file is checked.
    let absent = block_on(configuration::absent_vips(&loaded.desired, &added))?.unwrap_or_default();
    let failovers = configuration::failovers(&loaded.desired);
    let name = file.display().to_string();
    let names = &loaded.desired;
    let absent = absent
        .iter()
        .map(|vip| Finding::of_absent_vip(vip, names.file_name(vip.source, &name)));
    let failovers = failovers
        .iter()
        .map(|it| Finding::of_failover(it, names.file_name(it.source, &name)));
    let doubts = doubts
        .iter()
        .map(|doubt| Finding::of_doubt(doubt, names.file_name(doubt.source, &name)));
    let here = Finding::grouped(absent.chain(failovers).chain(doubts));
    let is_warning = |one: &Finding| one.severity == "warning";
    let warned = loaded.warnings > 0 || here.iter().any(is_warning);
    if json {
        let found: Vec<Finding> = loaded.found.into_iter().chain(here).collect();
        print(&found)?;
        return Ok(ExitCode::from(u8::from(rejected || (strict && warned))));
    }
    terminal::eprint(&loaded.findings);
    for finding in &here {
        terminal::eprint(&finding.render());
    }
    if rejected {
        return Err(Failure::Failed {
            message: "files named in the configuration cannot be used".to_owned(),
        });
    }
    if strict && warned {
        return Err(Failure::Failed {
            message: "--strict: there are warnings".to_owned(),
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

/// Warnings about addresses that another program listens on. They are not errors because that program may have ended
/// when Weir starts. While a daemon runs, `weir plan` reports them.
fn occupied(global: &GlobalOptions, loaded: &Loaded) -> Result<Vec<Problem>, Failure> {
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    let reply = block_on(client.status())?;
    if !matches!(reply, Err(client::Error::NoDaemon { .. })) {
        note_other_file(global);
        return Ok(Vec::new());
    }
    let file = global.config();
    let mut doubts = configuration::occupied_listeners(&loaded.desired);
    doubts.retain_mut(|doubt| {
        doubt.fatal = false;
        doubt.cause = format!("`weir run` would reject {} now", file.display());
        true
    });
    Ok(doubts)
}

/// Reports that the running daemon has another file than the one that is checked.
fn note_other_file(global: &GlobalOptions) {
    let checked = std::path::absolute(global.config()).ok();
    let active = daemon::last_configuration(&global.runtime_dir);
    if let (Some(checked), Some(active)) = (checked, active)
        && checked != active
    {
        terminal::eprint(&format!(
            "note: the daemon uses {}; `weir reload` reads that file, `weir reload -c {}` this one\n",
            active.display(),
            checked.display()
        ));
    }
}
