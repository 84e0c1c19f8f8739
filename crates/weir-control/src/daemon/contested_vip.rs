//! Warns at daemon startup if another machine replies to ARP or NDP requests for one of this machine's VIPs.

use weir_model::Desired;

use crate::configuration;

/// Queries the network segments on a separate thread, because waiting for replies must not delay startup. Reports
/// nothing if the process lacks the capability to send frames.
pub(super) fn warn_in_background(desired: Desired) {
    // The thread has its own runtime, so that a stopping daemon need not wait for the thread.
    let spawned = std::thread::Builder::new()
        .name("contested-vips".to_owned())
        .spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            match builder.enable_all().build() {
                Ok(runtime) => runtime.block_on(warn(&desired)),
                Err(error) => tracing::debug!(%error, "failed to create a runtime"),
            }
        });
    if let Err(error) = spawned {
        tracing::warn!(%error, "failed to search for other machines that have the VIPs");
    }
}

async fn warn(desired: &Desired) {
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
