//! Implements `weir clean`.

use std::process::ExitCode;

use weir_control::runtime_dir::{self, RuntimeDir, other_namespace};
use weir_engine::{CleanSummary, Paths};
use weir_real_server::{DownRequest, Options, Step};

use super::{Outcome, block_on, namespace};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn clean(global: &GlobalOptions, force: bool) -> Outcome {
    // No daemon can start while this process holds the lock.
    let lock = RuntimeDir::acquire(&global.runtime_dir).map_err(|error| match error {
        runtime_dir::Error::Running { .. } => Failure::Failed {
            message: "a daemon is running: stop it first".to_owned(),
        },
        other => Failure::failed(other),
    })?;
    let options = Options {
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
    };
    let paths = Paths {
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
    };
    let other = other_namespace(&global.runtime_dir).map_err(Failure::failed)?;
    let mut text = String::new();
    if let Some(other) = &other {
        if !force {
            let advice = namespace::clean_advice(global, other);
            return Err(Failure::Failed {
                message: format!(
                    "the daemon ran in a different network namespace, {other}: {advice}"
                ),
            });
        }
        let remaining = weir_engine::discard_changes(&paths).map_err(Failure::failed)?;
        for (interface, address) in remaining {
            text.push_str(&format!(
                "{address} on {interface} in {other} was not removed\n"
            ));
        }
    }
    let in_this_namespace = other.is_none();
    let reverted = block_on(undo(&options, &paths, force, in_this_namespace))??;
    weir_protect::restore(&global.runtime_dir);
    let removed_files = lock.remove_state_files().map_err(Failure::failed)?;
    text.push_str(&reverted.to_text(global, removed_files));
    if text.is_empty() {
        text.push_str("nothing to remove\n");
    }
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The changes that `weir clean` has reverted.
struct RevertedChanges {
    /// The steps of `real-server down`.
    steps: Vec<Step>,
    cleaned: CleanSummary,
    /// A line for each reverted change of VRRP.
    vrrp: Vec<String>,
}

/// Reverts the changes to the kernel. `in_this_namespace` = the daemon ran in this network namespace.
async fn undo(
    options: &Options,
    paths: &Paths,
    force: bool,
    in_this_namespace: bool,
) -> Result<RevertedChanges, Failure> {
    // Undo this first: the pins of `real-server` are in a directory below the director's.
    let steps = match weir_real_server::down(options, &DownRequest::default()).await {
        Err(error) if force => {
            terminal::eprint(&format!(
                "weir: failed to undo changes made by `real-server`: {error}\n"
            ));
            Vec::new()
        }
        other => other.map_err(Failure::failed)?,
    };
    let cleaned = weir_engine::clean(paths).await.map_err(Failure::failed)?;
    let vrrp = if in_this_namespace {
        let reverted = weir_helper::revert_recorded(&options.runtime_dir).await;
        reverted.map_err(Failure::failed)?
    } else {
        Vec::new()
    };
    Ok(RevertedChanges {
        steps,
        cleaned,
        vrrp,
    })
}

impl RevertedChanges {
    /// Returns one line for each setting of `real-server`, for the data plane, for each address and change of
    /// VRRP, and for each count of other objects. `removed_files` = number of files removed from the runtime directory.
    fn to_text(&self, global: &GlobalOptions, removed_files: usize) -> String {
        let mut text: String = self.steps.iter().map(|step| format!("{step}\n")).collect();
        if self.cleaned.data_plane {
            let directory = global.pin_dir.display();
            text.push_str(&format!(
                "programs and maps pinned in {directory} removed\n"
            ));
        }
        for (interface, address) in &self.cleaned.addresses {
            text.push_str(&format!("{address} removed from {interface}\n"));
        }
        for change in &self.vrrp {
            text.push_str(&format!("{change}\n"));
        }
        let removed = [
            (
                self.cleaned.neighbors,
                "neighbor entry released",
                "neighbor entries released",
            ),
            (
                self.cleaned.offloads,
                "interface: offloads restored",
                "interfaces: offloads restored",
            ),
            (
                self.cleaned.mark_rules,
                "firewall mark rule removed",
                "firewall mark rules removed",
            ),
            (
                removed_files,
                "file removed from the runtime directory",
                "files removed from the runtime directory",
            ),
        ];
        for (count, singular, plural) in removed {
            match count {
                0 => {}
                1 => text.push_str(&format!("1 {singular}\n")),
                _ => text.push_str(&format!("{count} {plural}\n")),
            }
        }
        text
    }
}
