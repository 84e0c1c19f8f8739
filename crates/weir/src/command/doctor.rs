//! Implements `weir doctor`, `weir doctor --router` and `weir real-server doctor`.

use std::path::Path;
use std::process::ExitCode;

use weir_control::client::{self, Client};
use weir_control::configuration::{self, Rejected, Secrets};
use weir_control::{daemon, runtime_dir};
use weir_doctor::{Daemon, Diagnosis};
use weir_model::Desired;
use weir_real_server::Options;

use super::{Outcome, STATUS_TIMEOUT, block_on, namespace};
use crate::arguments::{DirectorDoctor, Doctor, GlobalOptions};
use crate::failure::{Failure, is_root};
use crate::terminal;

/// Examines this machine as a director, or as a router, which needs no configuration.
pub(super) fn doctor(global: &GlobalOptions, arguments: &DirectorDoctor) -> Outcome {
    let Some(vips) = &arguments.router else {
        return director(global, &arguments.common);
    };
    let findings = block_on(weir_doctor::router(vips, arguments.speaker.as_deref()))?;
    print_findings(&findings.map_err(Failure::failed)?, &arguments.common)
}

fn director(global: &GlobalOptions, arguments: &Doctor) -> Outcome {
    namespace::check_same(global, "doctor")?;
    // Use the daemon's configuration unless a file is specified.
    let last = daemon::last_configuration(&global.runtime_dir);
    let file = global.config.as_deref().or(last.as_deref());
    let file = file.unwrap_or(global.config());
    let (loaded, rejection) = match configuration::load(file, terminal::color()) {
        Ok(loaded) => (loaded.desired, None),
        Err(mut rejected)
            if !file.exists() && weir_real_server::is_recorded(&global.runtime_dir) =>
        {
            rejected.diagnostics +=
                "this machine is configured as a real server: use `weir real-server doctor`\n";
            return Err(Failure::Findings {
                findings: rejected.diagnostics,
            });
        }
        Err(rejected) => {
            terminal::eprint(&rejected.diagnostics);
            let (desired, examined) = last_active(global);
            (desired, Some(invalid_file(&rejected, file, examined)))
        }
    };
    let desired = weir_engine::with_ipvsadm_services(&global.runtime_dir, loaded);
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    if !is_root() {
        terminal::eprint(
            "weir: without root privileges, findings about ipvsadm's services, firewall rules and ARP replies may be \
             missing: run as root to see everything\n",
        );
    }
    let mut findings: Vec<Diagnosis> = rejection.into_iter().collect();
    let mut status = None;
    let found = block_on(async {
        let daemon = match client.status().await {
            Ok(report) => {
                let examined = report.doctor_report(&desired);
                status = Some(report);
                Daemon::Running(examined)
            }
            Err(client::Error::NoDaemon { .. }) if runtime_dir::is_locked(&global.runtime_dir) => {
                Daemon::Starting
            }
            Err(client::Error::NoDaemon { .. }) => Daemon::NotRunning,
            Err(client::Error::Denied { path }) => Daemon::NoAccess(path),
            Err(error) => Daemon::Failed(error.to_string()),
        };
        weir_doctor::director(&desired, &daemon, &configuration::floating_ips(&desired)).await
    })?
    .map_err(Failure::failed)?;
    findings.extend(found.findings);
    if let Some(report) = status {
        findings.extend(report.pool_findings(&desired));
        findings.extend(report.director_findings(&desired, &found.disconnected));
        findings.extend(report.sync_findings(&found.disconnected));
        findings.extend(report.group_findings());
    }
    if arguments.fix {
        terminal::eprint(
            "weir: --fix has no effect on a director: the daemon maintains its own settings\n",
        );
    }
    print_findings(&findings, arguments)
}

/// Returns the last active configuration, or an empty one if there is none, and text that describes the findings based
/// on it.
fn last_active(global: &GlobalOptions) -> (Desired, &'static str) {
    let text = daemon::active_config_file(&global.runtime_dir);
    let loaded = text.and_then(|text| configuration::load_with(&text, false, Secrets::Unread).ok());
    match loaded {
        Some(loaded) => (
            loaded.desired,
            "the other findings are those of the last active configuration",
        ),
        None => (
            Desired::default(),
            "services were not examined; the other findings do not depend on the file",
        ),
    }
}

/// Returns the finding for a configuration file that cannot be loaded.
fn invalid_file(rejected: &Rejected, file: &Path, examined: &str) -> Diagnosis {
    let consequence = format!(
        "Weir cannot start or reload with this file, and a running daemon ignores it; {examined}"
    );
    let finding = Diagnosis::new(&rejected.summary, consequence);
    if file.exists() {
        finding.fix(format!("weir check -c {}", file.display()))
    } else {
        finding
    }
}

pub(super) fn server(options: &Options, arguments: &Doctor) -> Outcome {
    let findings =
        block_on(weir_real_server::doctor(options, arguments.fix))?.map_err(Failure::failed)?;
    print_findings(&findings, arguments)
}

/// Prints the problems, then the notes. Exit code: 0 = there are no problems, or all of them have been fixed; 1 = there
/// are problems.
fn print_findings(findings: &[Diagnosis], arguments: &Doctor) -> Outcome {
    let (notes, problems): (Vec<_>, Vec<_>) = findings.iter().partition(|finding| finding.is_note);
    let ordered: Vec<&Diagnosis> = problems.iter().chain(&notes).copied().collect();
    let text = if arguments.json {
        serde_json::to_string_pretty(&ordered).map_err(Failure::failed)? + "\n"
    } else {
        let none = problems
            .is_empty()
            .then(|| "no problems found\n".to_owned());
        let texts = ordered.iter().map(ToString::to_string);
        texts.chain(none).collect::<Vec<_>>().join("\n")
    };
    terminal::print(&text)?;
    let all_fixed = problems.iter().all(|finding| finding.fixed);
    Ok(ExitCode::from(u8::from(!all_fixed)))
}
