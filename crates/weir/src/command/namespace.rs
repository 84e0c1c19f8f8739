//! Detects directories of a director that ran in another network namespace.
//!
//! The records in these directories contain names of interfaces, and the same name identifies a different interface in
//! another namespace. `weir run` and `weir clean` therefore do not use such directories.

use weir_control::runtime_dir::{OtherNamespace, other_namespace};
use weir_engine::Paths;

use crate::arguments::GlobalOptions;
use crate::failure::Failure;

/// Fails if a director in another network namespace left a data plane or addresses behind. If that namespace no longer
/// exists, removes the record of the addresses.
pub(super) fn check_start(global: &GlobalOptions, paths: &Paths) -> Result<(), Failure> {
    // An unprivileged user can neither read the record nor own a data plane.
    let other = other_namespace(&global.runtime_dir).ok().flatten();
    let Some(other) = other.filter(|_| weir_engine::has_changes(paths)) else {
        return Ok(());
    };
    if other.exists() {
        let advice = clean_advice(global, &other);
        return Err(Failure::Failed {
            message: format!(
                "the director with these directories ran in a different network namespace, {other}, and its data \
                 plane or its addresses are still there: start it there; or, to remove them, {advice}; or use other \
                 directories with --runtime-dir and --pin-dir"
            ),
        });
    }
    let discarded = weir_engine::discard_changes(paths).map_err(Failure::failed)?;
    tracing::warn!(
        addresses = discarded.len(),
        "the network namespace of the previous director no longer exists: discarded the record of its addresses"
    );
    Ok(())
}

/// Fails if the director with these directories runs or ran in another network namespace: `command` would examine the
/// wrong interfaces.
pub(super) fn check_same(global: &GlobalOptions, command: &str) -> Result<(), Failure> {
    let other = other_namespace(&global.runtime_dir).ok().flatten();
    let Some(other) = other.filter(OtherNamespace::exists) else {
        return Ok(());
    };
    let advice = advice(global, &other, command);
    Err(Failure::Failed {
        message: format!("the daemon runs in a different network namespace, {other}: {advice}"),
    })
}

/// Returns instructions for running `weir clean` for the director in `other`.
pub(super) fn clean_advice(global: &GlobalOptions, other: &OtherNamespace) -> String {
    let advice = advice(global, other, "clean");
    match other.path() {
        Some(_) => advice,
        None => format!("{advice}, or here with --force if that namespace no longer exists"),
    }
}

/// Returns instructions for running a command in the namespace `other`.
fn advice(global: &GlobalOptions, other: &OtherNamespace, command: &str) -> String {
    let options = global.directory_options();
    match other.path() {
        Some(path) => format!(
            "run `nsenter --net={} weir {command}{options}`",
            path.display()
        ),
        None => format!("run `weir {command}{options}` there"),
    }
}
