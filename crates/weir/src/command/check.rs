//! Implements `weir check`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use weir_control::client::{self, Client};
use weir_control::configuration::{self, AttachedInterfaces, Finding, Loaded, Problem, Secrets};
use weir_control::daemon;
use weir_control::status::Report;
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
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    let reply = block_on(client.status())?;
    let active = reply
        .as_ref()
        .ok()
        .and_then(|_| active_configuration(global));
    problems.extend(occupied_listeners(global, &loaded, &reply, active.as_ref()));
    let has_fatal_problem = problems.iter().any(|problem| problem.fatal);
    let added = added_vips(&global.runtime_dir);
    let problems = configuration::findings(&loaded.desired, &problems, file);
    let host_findings = block_on(configuration::host_findings(
        &configuration::with_listed_servers(&loaded.desired, &global.runtime_dir),
        &added,
        &attached_interfaces(&reply, active.as_ref()),
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
/// exit before Weir uses the file. Returns none while a daemon is running whose listeners are unknown. `reply` is the
/// daemon's status, and `active` is its configuration.
fn occupied_listeners(
    global: &GlobalOptions,
    loaded: &Loaded,
    reply: &Result<Report, client::Error>,
    active: Option<&Loaded>,
) -> Vec<Problem> {
    let (own_listeners, command) = if matches!(reply, Err(client::Error::NoDaemon { .. })) {
        (BTreeSet::new(), "run")
    } else {
        note_other_file(global);
        let Some(active) = active else {
            return Vec::new();
        };
        (configuration::own_listeners(&active.desired), "reload")
    };
    let file = global.config();
    let mut problems = configuration::occupied_listeners(&loaded.desired, &own_listeners);
    for problem in &mut problems {
        problem.fatal = false;
        problem.cause = format!("`weir {command}` would reject {} now", file.display());
    }
    problems
}

/// Returns the interfaces of the running daemon, with their modes.
fn attached_interfaces(
    reply: &Result<Report, client::Error>,
    active: Option<&Loaded>,
) -> AttachedInterfaces {
    let (Ok(report), Some(active)) = (reply, active) else {
        return AttachedInterfaces::default();
    };
    let interfaces = report.xdp.iter();
    let modes = interfaces.map(|it| (it.interface.as_str(), it.mode.as_str()));
    AttachedInterfaces::new(active.desired.node.attach, modes)
}

/// Returns the running daemon's configuration; `None` = there is none, or this user cannot read it.
fn active_configuration(global: &GlobalOptions) -> Option<Loaded> {
    let text = daemon::active_config_file(&global.runtime_dir)?;
    configuration::load_with(&text, false, Secrets::Unread).ok()
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
