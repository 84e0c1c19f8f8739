//! Certificates that a configuration names: unreadable, mismatched, expired, or soon to be.

use std::path::Path;
use std::time::SystemTime;

use weir_config::Desired;
use weir_proxy::Doubt;

use super::Finding;

/// What is wrong with the certificates of `desired` now.
pub fn doubtful_certificates(desired: &Desired) -> Vec<Doubt> {
    weir_proxy::inspect(desired, SystemTime::now())
}

/// The finding as those about the file look; `name` is the file's.
pub fn render_doubt(doubt: &Doubt, name: &Path) -> String {
    let finding = Finding::of_doubt(doubt, &name.display().to_string());
    let (line, column) = (doubt.source.line, doubt.source.column);
    format!(
        "{}: {}\n --> {}:{line}:{column}\n  = note: {}\n  = help: {}\n\n",
        finding.severity, finding.message, finding.place.file, doubt.cause, doubt.fix
    )
}
