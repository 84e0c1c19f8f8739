//! Collects the warnings about this machine for plans and reloads.

use std::net::IpAddr;
use std::path::Path;

use weir_model::Desired;

use super::return_path::return_path_warnings;
use crate::api::{Caller, FileRequest};
use crate::configuration::{self, AttachedInterfaces, Finding};
use crate::plane::Plane;

/// Returns the file name to show in findings.
pub(super) fn displayed_path<'a>(request: &FileRequest, path: &'a Path) -> &'a Path {
    match request.text {
        Some(_) => Path::new(configuration::TEXT),
        None => path,
    }
}

/// Returns the warnings about this machine for a configuration that is not active yet, with the servers of its lists.
/// `added` contains the VIPs that Weir has added, with their interfaces; `attached` is the result of
/// [`attached_interfaces`].
pub(super) async fn host_warnings(
    desired: &Desired,
    added: &[(String, IpAddr)],
    attached: &AttachedInterfaces,
    request: &FileRequest,
    path: &Path,
) -> Vec<Finding> {
    let added = added.iter().cloned().collect();
    let name = displayed_path(request, path).display().to_string();
    configuration::host_warnings(desired, &added, attached, &name).await
}

/// Adds the warnings about services whose servers' replies must begin to return through this machine. `active` is the
/// active configuration.
pub(super) fn add_return_path_warnings<P: Plane>(
    warnings: &mut Vec<Finding>,
    plane: &P,
    (active, desired): (&Desired, &Desired),
    request: &FileRequest,
    path: &Path,
) {
    let name = displayed_path(request, path).display().to_string();
    warnings.extend(return_path_warnings(plane, (active, desired), &name));
}

/// Returns the plane's interfaces for the warnings about `desired`. Returns none if they are not needed, because a
/// snapshot is expensive. `active` is the active configuration.
pub(super) fn attached_interfaces<P: Plane>(
    plane: &P,
    active: &Desired,
    desired: &Desired,
) -> AttachedInterfaces {
    if !configuration::needs_attached_interfaces(desired) {
        return AttachedInterfaces::default();
    }
    match plane.snapshot() {
        Ok(snapshot) => {
            let interfaces = snapshot.interfaces.iter();
            let modes = interfaces.map(|interface| (interface.name.as_str(), interface.mode));
            AttachedInterfaces::new(active.node.attach, modes)
        }
        Err(error) => {
            tracing::debug!(%error, "failed to read the attachment modes of the interfaces");
            AttachedInterfaces::default()
        }
    }
}

/// Returns the findings as text: only their positions if the caller is not allowed to read the file.
pub(super) fn format_findings(
    findings: &[Finding],
    request: &FileRequest,
    caller: &Caller,
) -> String {
    match caller.is_owner() || request.text.is_some() {
        true => findings.iter().map(Finding::render).collect(),
        false => configuration::locations(findings),
    }
}
