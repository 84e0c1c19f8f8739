//! Implements `weir check`.

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
    let mut problems = configuration::certificate_problems(&loaded.desired);
    problems.extend(occupied_listeners(global, &loaded)?);
    let has_fatal_problem = problems.iter().any(|problem| problem.fatal);
    let added = added_vips(&global.runtime_dir);
    // If the host's addresses cannot be read, check only the file.
    let absent = block_on(configuration::absent_vips(&loaded.desired, &added))?.unwrap_or_default();
    let failovers = configuration::failover_findings(&loaded.desired);
    let file_name = file.display().to_string();
    let desired = &loaded.desired;
    let absent = absent
        .iter()
        .map(|vip| Finding::from_absent_vip(vip, desired.file_name(vip.source, &file_name)));
    let failovers = failovers
        .iter()
        .map(|it| Finding::from_failover(it, desired.file_name(it.source, &file_name)));
    let problems = problems.iter().map(|problem| {
        Finding::from_problem(problem, desired.file_name(problem.source, &file_name))
    });
    let host_findings = Finding::merge_similar(absent.chain(failovers).chain(problems));
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
/// exit before Weir starts. While a daemon runs, returns none: `weir plan` reports them.
fn occupied_listeners(global: &GlobalOptions, loaded: &Loaded) -> Result<Vec<Problem>, Failure> {
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    let reply = block_on(client.status())?;
    if !matches!(reply, Err(client::Error::NoDaemon { .. })) {
        note_other_file(global);
        return Ok(Vec::new());
    }
    let file = global.config();
    let mut problems = configuration::occupied_listeners(&loaded.desired);
    problems.retain_mut(|problem| {
        problem.fatal = false;
        problem.cause = format!("`weir run` would reject {} now", file.display());
        true
    });
    Ok(problems)
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
