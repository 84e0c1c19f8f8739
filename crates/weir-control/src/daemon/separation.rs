//! Drops root privileges before the daemon reads data from other users or hosts.
//!
//! The daemon switches to the account [`ACCOUNT`] and drops its capabilities. A privileged helper
//! (`weir_helper::serve_daemon`) executes privileged operations that the configuration file permits. Another process
//! owns the layer 4 engine (`weir_engine_host`). If the configuration needs other privileges, the daemon keeps running
//! as root.

#[cfg(debug_assertions)]
mod attempt;
mod restriction;
mod service;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Signal, geteuid};
use weir_engine_host::EngineClient;
use weir_helper::DaemonClient;
use weir_model::Desired;
use weir_runtime_dir::ACCOUNT;
use weir_sys::names;
use weir_sys::privileged::set_helper;

use super::group;
use super::{Error, Options, configuration_to_load, hide_memory};
use crate::configuration::{self, Secrets};
use crate::keeper::KeeperState;
use crate::traffic::{needs_engine, root_reason};

/// Files that record changes to this host. The daemon maintains these changes, and only root can revert them.
const RECORDS: &[&str] = &["real-server.json", "vips.json"];

/// Drops root privileges; a daemon that a service manager has started without them is only restricted. Must be called
/// before the process has other threads. Returns whether the daemon runs without root privileges.
///
/// # Errors
/// Fails if the kernel rejects a step. The process must then exit.
pub fn separate(options: &Options, keeper_state: &mut KeeperState) -> Result<bool, Error> {
    keeper_state.pins_are_temporary = pins_are_temporary(options);
    let (channel, engine) = (
        keeper_state.helper.take(),
        keeper_state.engine_channel.take(),
    );
    let (channel, engine) = match (keeper_state.root_info.clone(), channel, engine) {
        (Some(root_info), Some(channel), Some(engine)) if !geteuid().is_root() => {
            service::confine(options, keeper_state, root_info, (channel, engine))?;
            #[cfg(debug_assertions)]
            attempt::run(options, &keeper_state.link, keeper_state.engine.as_ref());
            return Ok(true);
        }
        (_, channel, engine) => (channel, engine),
    };
    if !geteuid().is_root() || !keeper_state.has_keeper() {
        return Ok(false);
    }
    let Some(channel) = channel else {
        tracing::info!("the daemon runs as root: the keeper runs an earlier version; restart Weir");
        return Ok(false);
    };
    if !weir_sys::may_change_account() {
        tracing::info!(
            "the daemon runs as root: it lacks the capabilities to become {ACCOUNT} (CHOWN, SETGID, SETPCAP, SETUID)"
        );
        return Ok(false);
    }
    let Some(account) = weir_sys::account(ACCOUNT) else {
        tracing::info!("the daemon runs as root: there is no account {ACCOUNT}");
        return Ok(false);
    };
    if !weir_helper::is_trusted(&options.config) {
        tracing::warn!(
            file = %options.config.display(),
            "the daemon runs as root: other users can write to the configuration file"
        );
        return Ok(false);
    }
    let (_, text) = configuration_to_load(options, keeper_state);
    let loaded = configuration::load_with(&text, false, Secrets::Unread).ok();
    let desired = loaded.map(|loaded| loaded.desired);
    // An unprivileged daemon may have written the recorded text. That text must not cause the next daemon to run as
    // root.
    let is_written_by_root = fs::metadata(&text).is_ok_and(|metadata| metadata.uid() == 0);
    if let Some(reason) =
        host_root_reason(options, desired.as_ref(), engine.is_some(), keeper_state)
        && is_written_by_root
        && !keeper_state.confined
    {
        tracing::info!("the daemon runs as root: {reason}");
        return_to_root(options);
        return Ok(false);
    }
    let roots = desired.as_ref().map(file_roots).unwrap_or_default();
    let roots: Vec<&Path> = roots.iter().map(Path::new).collect();
    let state = state_directory(options, desired.as_ref());
    let groups = groups(desired.as_ref());
    keeper_state.pinned = engine.is_some() && weir_engine::is_pinned(&paths(options));
    // Also raise the hard limit, which only root can do.
    let _ = weir_sys::raise_nofile();
    weir_runtime_dir::give_to_account(&options.runtime_dir, account.0);
    if let Some(state) = &state {
        weir_runtime_dir::give_to_account(state, account.0);
    }
    weir_sys::become_account(account, &groups, Signal::KILL)?;
    hide_memory();
    restriction::restrict(&options.runtime_dir, state.as_deref(), &roots)?;
    set_helper(Box::new(DaemonClient::new(channel)));
    keeper_state.engine = engine.map(EngineClient::new);
    tracing::info!("the daemon runs as {ACCOUNT} without capabilities");
    #[cfg(debug_assertions)]
    attempt::run(options, &keeper_state.link, keeper_state.engine.as_ref());
    Ok(true)
}

/// Returns whether the pins are lost when this mount namespace ends. Returns false in an unprivileged process, which
/// cannot determine this.
fn pins_are_temporary(options: &Options) -> bool {
    if !geteuid().is_root() {
        return false;
    }
    weir_sys::pins_end_with_namespace(&options.pin_dir).unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to read the mounts");
        false
    })
}

fn return_to_root(options: &Options) {
    weir_runtime_dir::return_to_root(&options.runtime_dir);
    if let Some(state) = group::state_directory(&options.runtime_dir) {
        weir_runtime_dir::return_to_root(&state);
    }
}

/// Returns the state directory if `[cluster]` is configured and the directory can be used.
fn state_directory(options: &Options, desired: Option<&Desired>) -> Option<PathBuf> {
    let is_grouped = desired.is_some_and(|desired| desired.cluster.is_some());
    let state = group::state_directory(&options.runtime_dir).filter(|_| is_grouped);
    state.filter(|directory| group::prepare_state_directory(directory))
}

/// Returns the account's supplementary groups: only the control socket's group.
fn groups(desired: Option<&Desired>) -> Vec<u32> {
    let name = desired.and_then(|desired| desired.node.socket_group.as_deref());
    name.and_then(names::group_id).into_iter().collect()
}

/// Returns the directories from which routes serve files. The account must be able to read them.
fn file_roots(desired: &Desired) -> Vec<String> {
    let routes = desired.proxies.iter().flat_map(|proxy| &proxy.routes);
    let files = routes.filter_map(weir_model::Route::files);
    files.map(|files| files.root.clone()).collect()
}

/// Returns why the daemon must run as root; `None` = it need not run as root.
fn host_root_reason(
    options: &Options,
    desired: Option<&Desired>,
    has_engine: bool,
    keeper_state: &KeeperState,
) -> Option<&'static str> {
    let is_recorded = |name: &&str| Path::new(&options.runtime_dir).join(name).exists();
    let Some(desired) = desired else {
        return Some("the configuration cannot be read");
    };
    if let Some(reason) = root_reason(desired, keeper_state.reads_file) {
        return Some(reason);
    }
    if needs_engine(desired) && !has_engine {
        return Some("the configuration has layer 4 services");
    }
    if desired.node.vip_interface.is_some() && !needs_engine(desired) {
        return Some("the configuration sets vip_interface without layer 4 services");
    }
    if weir_engine::is_pinned(&paths(options)) && !has_engine {
        return Some("a data plane is pinned");
    }
    // The engine process maintains the recorded addresses.
    let belongs_to_engine =
        |name: &&&str| **name == "vips.json" && needs_engine(desired) && has_engine;
    if RECORDS
        .iter()
        .filter(|name| !belongs_to_engine(name))
        .any(is_recorded)
    {
        return Some("the runtime directory records changes to this host");
    }
    None
}

fn paths(options: &Options) -> weir_engine::Paths {
    weir_engine::Paths {
        runtime_dir: options.runtime_dir.clone(),
        pin_dir: options.pin_dir.clone(),
    }
}
