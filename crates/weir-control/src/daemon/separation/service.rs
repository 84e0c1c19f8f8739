//! Confines a daemon that a service manager has started under an unprivileged account, with a separate helper service.

use std::path::{Path, PathBuf};

use weir_engine_host::EngineClient;
use weir_helper::DaemonClient;
use weir_sys::Channel;
use weir_sys::privileged::set_helper;

use super::restriction::restrict;
use crate::daemon::{Error, Options, group, hide_memory};
use crate::keeper::{KeeperState, RootInfo};

/// The variable that the service manager sets to the unit's credentials directory (see systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Drops capabilities, restricts file access and system calls like a daemon that drops root privileges itself, and
/// connects to the helper and to the engine process. Must be called before the process has other threads.
///
/// # Errors
/// Fails if the kernel rejects a step. The process must then exit.
pub(super) fn confine(
    options: &Options,
    keeper_state: &mut KeeperState,
    root_info: RootInfo,
    (channel, engine): (Channel, Channel),
) -> Result<(), Error> {
    let mut roots = root_info.readable;
    roots.extend(std::env::var_os(CREDENTIALS).map(PathBuf::from));
    let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
    keeper_state.pinned = root_info.pinned;
    // Try to raise the hard limit, too, although only root can do this.
    let _ = weir_sys::raise_nofile();
    weir_sys::drop_capabilities()?;
    hide_memory();
    // The service manager has created the directory if the unit specifies it.
    let state = group::state_directory(&options.runtime_dir).filter(|directory| directory.is_dir());
    restrict(&options.runtime_dir, state.as_deref(), &roots)?;
    set_helper(Box::new(DaemonClient::new(channel)));
    keeper_state.engine = Some(EngineClient::new(engine));
    tracing::info!(
        "the daemon runs without capabilities; the helper service executes privileged operations"
    );
    Ok(())
}
