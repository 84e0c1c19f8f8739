//! `weir tap`.

use weir_control::client::Client;

use super::{Outcome, block_on};
use crate::arguments::{GlobalOptions, Tap};
use crate::failure::Failure;
use crate::terminal;

/// Shows exchanges until the user interrupts the program or the service is removed.
pub(super) fn tap(global: &GlobalOptions, tap: &Tap) -> Outcome {
    let client = Client::new(&global.runtime_dir);
    block_on(async {
        let show = |lines: &[u8]| -> Result<(), Failure> {
            Ok(terminal::print(&String::from_utf8_lossy(lines))?)
        };
        client.tap(&tap.service, tap.json, &tap.matches, show).await
    })??;
    Err(Failure::Failed {
        message: format!("service {} no longer exists", tap.service),
    })
}
