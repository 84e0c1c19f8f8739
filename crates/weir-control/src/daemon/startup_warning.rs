//! Warns at daemon startup about missing or contested VIPs, `direct` servers behind routers, and GRE tunnels whose
//! packets would be dropped.
//!
//! A VIP is missing if no interface has it, and contested if another machine replies to ARP or NDP requests for it.

use std::net::IpAddr;
use std::path::PathBuf;

use weir_model::Desired;

use crate::configuration::{self, AttachedInterfaces, Location};

/// Queries the kernel and the network segments on a separate thread, because waiting for replies must not delay
/// startup. Reports no other machines if the process lacks the capability to send frames. `added` contains the VIPs
/// that Weir has added, with their interfaces; `attached` contains the interfaces of the packet path.
pub(super) fn warn_in_background(
    desired: Desired,
    added: Vec<(String, IpAddr)>,
    attached: AttachedInterfaces,
    file: PathBuf,
) {
    // The thread has its own runtime, so that a stopping daemon need not wait for the thread.
    let spawned = std::thread::Builder::new()
        .name("startup-warnings".to_owned())
        .spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            match builder.enable_all().build() {
                Ok(runtime) => runtime.block_on(async {
                    warn_about_host(&desired, added, &attached, &file.display().to_string()).await;
                    warn_about_other_machines(&desired).await;
                }),
                Err(error) => tracing::debug!(%error, "failed to create a runtime"),
            }
        });
    if let Err(error) = spawned {
        tracing::warn!(%error, "failed to start the thread that checks this machine for problems");
    }
}

/// Warns about VIPs that are on no interface, `direct` servers behind a router, and GRE tunnels whose packets would be
/// dropped.
async fn warn_about_host(
    desired: &Desired,
    added: Vec<(String, IpAddr)>,
    attached: &AttachedInterfaces,
    file: &str,
) {
    let added = added.into_iter().collect();
    for finding in configuration::host_warnings(desired, &added, attached, file).await {
        let Location { file, line, .. } = &finding.location;
        let at = format!("{file}:{}", line.unwrap_or_default());
        let help = finding.fix.as_deref().unwrap_or_default();
        tracing::warn!(at, help, "{}", finding.one_line());
    }
}

/// Warns about other machines that have one of this machine's VIPs.
async fn warn_about_other_machines(desired: &Desired) {
    let floating = configuration::floating_ips(desired);
    match weir_doctor::contested_vips(desired, &floating).await {
        Ok(findings) => {
            for finding in findings {
                let help = finding.fix.unwrap_or_default();
                tracing::warn!(
                    found = finding.observation,
                    help,
                    "another machine has a VIP of this director"
                );
            }
        }
        Err(error) => {
            tracing::debug!(%error, "failed to search for other machines that have the VIPs");
        }
    }
}
