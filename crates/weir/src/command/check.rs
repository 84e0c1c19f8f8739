//! `weir check`.

use std::process::ExitCode;

use weir_control::configuration;

use super::{Outcome, block_on};
use crate::arguments::Places;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn check(places: &Places, strict: bool) -> Outcome {
    let file = places.config();
    let loaded =
        configuration::load(file, terminal::color()).map_err(|rejected| Failure::Findings {
            findings: rejected.diagnostics,
        })?;
    // Where the addresses cannot be read, the file is judged alone.
    let absent = block_on(configuration::absent_vips(&loaded.desired))?.unwrap_or_default();
    terminal::complain(&loaded.findings);
    for vip in &absent {
        terminal::complain(&vip.render(file));
    }
    if strict && loaded.warnings + absent.len() > 0 {
        return Err(Failure::Failed {
            message: "warnings fail under --strict".to_owned(),
        });
    }
    let extent = configuration::extent(&loaded.desired);
    terminal::print(&format!("ok: {extent}\n"))?;
    Ok(ExitCode::SUCCESS)
}
