//! A conflict between the configuration file and ipvsadm.

use weir_model::Source;

/// A listener of the file that ipvsadm already uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}:{}: service {service} listens on {listener}, which ipvsadm already uses (`ipvsadm {command}` removes it)",
    .at.line, .at.column
)]
pub struct ListenerConflict {
    /// Service of the file.
    pub service: String,
    /// Its listener or mark, as it is written.
    pub listener: String,
    /// Where the file names it.
    pub at: Source,
    /// Arguments of ipvsadm that remove its service.
    pub command: String,
}
