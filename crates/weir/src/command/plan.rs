//! Implements `weir plan`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use weir_control::api::FileRequest;
use weir_control::client::{self, Client};
use weir_control::configuration::{self, AttachedInterfaces, Finding, ListeningProcess, Secrets};
use weir_control::plan::{self, Plan};
use weir_control::{daemon, runtime_dir};
use weir_engine::Paths;
use weir_model::Desired;

use super::{Outcome, REPLY_TIMEOUT, block_on, with_progress};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn plan(global: &GlobalOptions, json: bool) -> Outcome {
    let request = FileRequest {
        path: global.absolute_config()?,
        text: None,
        color: terminal::color(),
        guard_ms: None,
        group: None,
    };
    let client = Client::new(&global.runtime_dir).within(REPLY_TIMEOUT);
    let plan = match with_progress("the plan", client.plan(&request))? {
        Err(error @ client::Error::NoDaemon { .. }) => {
            let (old, description) = last_active(global);
            terminal::eprint(&format!("weir: {error}; comparing with {description}\n"));
            plan_without_daemon(global, &old)?
        }
        other => other?,
    };
    let text = if json {
        serde_json::to_string_pretty(&plan).map_err(Failure::failed)? + "\n"
    } else {
        plan.to_string()
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the pinned data plane's configuration, which is active without a daemon, and a description of it. Returns an
/// empty configuration if no data plane is pinned.
fn last_active(global: &GlobalOptions) -> (Desired, &'static str) {
    let paths = Paths {
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
    };
    daemon::active_config_file(&global.runtime_dir)
        .filter(|_| weir_engine::is_pinned(&paths))
        .and_then(|text| configuration::load_with(&text, false, Secrets::Unread).ok())
        .map_or_else(
            || (Desired::default(), "an empty configuration"),
            |loaded| {
                (
                    loaded.desired,
                    "the last active configuration, which is pinned",
                )
            },
        )
}

fn plan_without_daemon(global: &GlobalOptions, old: &Desired) -> Result<Plan, Failure> {
    let file = global.config();
    let loaded = configuration::load(file, terminal::color())
        .and_then(|loaded| configuration::with_usable_files(loaded, file))
        // A daemon that is starting may have these listeners.
        .and_then(|loaded| match runtime_dir::is_locked(&global.runtime_dir) {
            true => Ok(loaded),
            false => configuration::with_free_listeners(loaded, ListeningProcess::NextDaemon, file),
        })
        .map_err(|rejected| Failure::Findings {
            findings: rejected.diagnostics,
        })?;
    let no_flows = |_: &str, _: Option<&str>| 0;
    let new = &loaded.desired;
    let mut plan = plan::plan(old, new, &no_flows, &[]);
    let file_name = file.display().to_string();
    let found = block_on(configuration::host_warnings(
        &configuration::with_listed_servers(new, &global.runtime_dir),
        &BTreeSet::new(),
        &AttachedInterfaces::default(),
        &file_name,
    ))?;
    let found = found.iter().chain(loaded.found_on_host());
    plan.warnings.extend(Finding::warning_lines(found));
    Ok(plan)
}
