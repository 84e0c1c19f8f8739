//! Implements `weir check`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::ExitCode;

use weir_control::client::{self, Client};
use weir_control::configuration::{self, Finding, Loaded, Problem, Secrets};
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
    let mut problems = configuration::certificate_problems(&loaded.desired);
    problems.extend(occupied_listeners(global, &loaded)?);
    let has_fatal_problem = problems.iter().any(|problem| problem.fatal);
    let added = added_vips(&global.runtime_dir);
    let problems = configuration::findings(&loaded.desired, &problems, file);
    let host_findings = block_on(configuration::host_findings(
        &configuration::with_listed_servers(&loaded.desired, &global.runtime_dir),
        &added,
        problems,
        &file.display().to_string(),
    ))?;
    let is_warning = |finding: &Finding| finding.severity == "warning";
    let has_warnings = loaded.warnings > 0 || host_findings.iter().any(is_warning);
    if json {
        let findings: Vec<Finding> = loaded.found.into_iter().chain(host_findings).collect();
        print(&findings)?;
        return Ok(ExitCode::from(u8::from(
            has_fatal_problem || (strict && has_warnings),
        )));
    }
    terminal::eprint(&loaded.findings);
    for finding in &host_findings {
        terminal::eprint(&finding.render());
    }
    if has_fatal_problem {
        return Err(Failure::Failed {
            message: "the configuration refers to files that cannot be used".to_owned(),
        });
    }
    if strict && has_warnings {
        return Err(Failure::Failed {
            message: "--strict: there are warnings".to_owned(),
        });
    }
    let counts = configuration::object_counts(&loaded.desired);
    terminal::print(&format!("ok: {counts}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn print(findings: &[Finding]) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(findings).map_err(Failure::failed)?;
    Ok(terminal::print(&(text + "\n"))?)
}

/// Returns warnings about addresses on which another program listens. They are not errors, because that program may
/// exit before Weir uses the file. While a daemon runs whose listeners are unknown, returns none.
fn occupied_listeners(global: &GlobalOptions, loaded: &Loaded) -> Result<Vec<Problem>, Failure> {
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    let reply = block_on(client.status())?;
    let (own_listeners, command) = if matches!(reply, Err(client::Error::NoDaemon { .. })) {
        (BTreeSet::new(), "run")
    } else {
        note_other_file(global);
        let Some(active) = active_listeners(global).filter(|_| reply.is_ok()) else {
            return Ok(Vec::new());
        };
        (active, "reload")
    };
    let file = global.config();
    let mut problems = configuration::occupied_listeners(&loaded.desired, &own_listeners);
    for problem in &mut problems {
        problem.fatal = false;
        problem.cause = format!("`weir {command}` would reject {} now", file.display());
    }
    Ok(problems)
}

/// Returns the addresses on which the running daemon listens; `None` = unknown, because this user cannot read the
/// active configuration.
fn active_listeners(global: &GlobalOptions) -> Option<BTreeSet<SocketAddr>> {
    let text = daemon::active_config_file(&global.runtime_dir)?;
    let active = configuration::load_with(&text, false, Secrets::Unread).ok()?;
    Some(configuration::own_listeners(&active.desired))
}

/// Prints a note if the running daemon uses a file other than the one being checked.
fn note_other_file(global: &GlobalOptions) {
    let checked = std::path::absolute(global.config()).ok();
    let active = daemon::last_configuration(&global.runtime_dir);
    if let (Some(checked), Some(active)) = (checked, active)
        && checked != active
    {
        terminal::eprint(&format!(
            "note: the daemon uses {}; `weir reload` reads that file; `weir reload -c {}` reads this file\n",
            active.display(),
            checked.display()
        ));
    }
}
