//! Restricts the files and system calls of an unprivileged daemon.

use std::path::Path;

/// Restricts this process and the threads that it starts later. They may write only to the runtime directory and to
/// `state`, the state directory of a group member, and may read files below `roots`. If the kernel does not support
/// Landlock or rejects these rules, a warning is logged, and only system calls are restricted.
///
/// # Errors
/// Fails if the kernel rejects the system call filter.
pub(super) fn restrict(
    runtime_dir: &Path,
    state: Option<&Path>,
    roots: &[&Path],
) -> weir_sys::Result<()> {
    let writable: Vec<&Path> = std::iter::once(runtime_dir).chain(state).collect();
    match weir_sys::restrict_files(&writable, roots) {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(
                "the kernel does not support Landlock: only file ownership protects files"
            )
        }
        Err(error) => {
            tracing::warn!(%error, "failed to restrict file access with Landlock: only file ownership protects files")
        }
    }
    weir_sys::restrict_to_daemon_calls()
}
