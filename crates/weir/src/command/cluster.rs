//! Implements `weir cluster`.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use weir_control::api::PublishRequest;
use weir_control::client::{Client, Error};
use weir_control::status::Group;

use super::{Outcome, REPLY_TIMEOUT, with_progress};
use crate::arguments::{Cluster, GlobalOptions};
use crate::failure::Failure;
use crate::terminal;

/// Interval at which `weir cluster` reads the state of the rollout.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn cluster(global: &GlobalOptions, command: &Cluster) -> Outcome {
    match command {
        Cluster::Status { json } => status(global, *json),
        Cluster::Publish {
            file,
            guard,
            local_files,
            no_wait,
            json,
        } => {
            let published = publish(global, file, *guard, *local_files)?;
            match no_wait {
                true => report(
                    published,
                    *json,
                    &format!("published version {published}\n"),
                ),
                false => wait_for_rollout(global, published, *json),
            }
        }
    }
}

fn status(global: &GlobalOptions, json: bool) -> Outcome {
    let client = Client::new(&global.runtime_dir).within(REPLY_TIMEOUT);
    let group = with_progress("the status", client.cluster())??;
    let text = match json {
        true => serde_json::to_string_pretty(&group).map_err(Failure::failed)? + "\n",
        false => group.table(),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn publish(
    global: &GlobalOptions,
    file: &Path,
    guard: Duration,
    local_files: bool,
) -> Result<u64, Failure> {
    let with_file_name = |error: io::Error| Failure::Failed {
        message: format!("{}: {error}", file.display()),
    };
    let text = if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(file)
    };
    let request = PublishRequest {
        text: text.map_err(with_file_name)?,
        guard_ms: u64::try_from(guard.as_millis()).unwrap_or(u64::MAX),
        local_files,
        color: terminal::color(),
    };
    let client = Client::new(&global.runtime_dir);
    let published = with_progress("the publication", client.publish(&request))??;
    terminal::eprint(&published.findings);
    Ok(published.version)
}

/// Waits until the rollout ends, and shows its steps on stderr.
fn wait_for_rollout(global: &GlobalOptions, version: u64, json: bool) -> Outcome {
    let client = Client::new(&global.runtime_dir).within(REPLY_TIMEOUT);
    let mut shown = String::new();
    let wait = async {
        loop {
            match client.cluster().await {
                Ok(group) => {
                    let line = progress_line(&group);
                    if line != shown && !json {
                        terminal::eprint(&format!("{line}\n"));
                        shown = line;
                    }
                    // A director that has not yet read the publication from etcd still reports the previous one.
                    let is_over = group.published == version && group.rollout != "running";
                    if is_over || group.published > version {
                        return Ok(group);
                    }
                }
                // The daemon is being replaced, or is applying a large configuration.
                Err(Error::NoDaemon { .. } | Error::Silent { stopped: None, .. }) => {}
                Err(error) => return Err(Failure::from(error)),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let group = with_progress("the rollout", wait)??;
    if group.published > version {
        return Err(Failure::Failed {
            message: format!("version {} was published in the meantime", group.published),
        });
    }
    if group.rollout == "stopped" {
        let member = group.rollout_member.unwrap_or_default();
        let reason = group.rollout_reason.unwrap_or_default();
        return Err(Failure::Failed {
            message: format!("the rollout of version {version} was stopped by {member}: {reason}"),
        });
    }
    report(
        version,
        json,
        &format!("all directors have version {version}\n"),
    )
}

/// Returns a line about the progress of the rollout.
fn progress_line(group: &Group) -> String {
    let present = group.members.iter().filter(|it| it.state == "present");
    let (all, done) = (
        present.clone().count(),
        present.filter(|it| it.lag == 0).count(),
    );
    let applying = group.rollout_member.as_ref();
    let applying = applying.map_or(String::new(), |member| format!(", {member} is applying it"));
    format!(
        "version {}: applied by {done} of {all} directors{applying}",
        group.published
    )
}

fn report(version: u64, json: bool, text: &str) -> Outcome {
    let json_text = serde_json::json!({ "version": version }).to_string() + "\n";
    terminal::print(if json { &json_text } else { text })?;
    Ok(ExitCode::SUCCESS)
}
