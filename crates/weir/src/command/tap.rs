//! Implements `weir tap`.

use weir_control::client::Client;

use super::{Outcome, STATUS_TIMEOUT, block_on};
use crate::arguments::{GlobalOptions, Tap};
use crate::failure::Failure;
use crate::terminal;

/// Shows exchanges until the user interrupts the program or the service is removed.
pub(super) fn tap(global: &GlobalOptions, tap: &Tap) -> Outcome {
    let Some(service) = &tap.service else {
        return Err(missing_service(global)?);
    };
    let client = Client::new(&global.runtime_dir);
    block_on(async {
        let show = |lines: &[u8]| -> Result<(), Failure> {
            Ok(terminal::print(&String::from_utf8_lossy(lines))?)
        };
        client.tap(service, tap.json, &tap.matches, show).await
    })??;
    Err(Failure::Failed {
        message: format!("service {service} no longer exists"),
    })
}

/// Returns the error for a missing service name. The message lists the names of the daemon's proxy services.
fn missing_service(global: &GlobalOptions) -> Result<Failure, Failure> {
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    let report = block_on(client.status())??;
    let proxies = report.services.iter().filter(|it| it.forward == "proxy");
    let names: Vec<&str> = proxies.map(|it| it.name.as_str()).collect();
    let message = if names.is_empty() {
        "no SERVICE is specified, and the daemon has no proxy services".to_owned()
    } else {
        format!(
            "no SERVICE is specified; proxy services: {}",
            names.join(", ")
        )
    };
    Ok(Failure::Usage { message })
}
