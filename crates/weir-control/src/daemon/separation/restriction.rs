//! The files and system calls of a daemon without rights.

use std::path::Path;

/// Restricts the process and the threads that it starts. `state` is the directory of what a group agreed on.
///
/// # Errors
/// The kernel refuses.
pub(super) fn restrict(
    runtime_dir: &Path,
    state: Option<&Path>,
    roots: &[&Path],
) -> weir_sys::Result<()> {
    let writable: Vec<&Path> = std::iter::once(runtime_dir).chain(state).collect();
    match weir_sys::restrict_files(&writable, roots) {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!("the kernel has no Landlock: files are protected by their owners alone")
        }
        Err(error) => tracing::warn!(%error, "files are protected by their owners alone"),
    }
    weir_sys::restrict_to_daemon_calls()
}
