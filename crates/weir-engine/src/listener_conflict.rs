//! Defines the error for a listener in the configuration file that an ipvsadm service already uses.

use weir_model::Source;

/// A listener in the file that ipvsadm already uses; the configuration is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}:{}: service {service} listens on {listener}, which ipvsadm already uses (`ipvsadm {command}` removes it)",
    .position.line, .position.column
)]
pub struct ListenerConflict {
    /// Name of the service in the file.
    pub service: String,
    /// The service's listener or mark, as it is written.
    pub listener: String,
    /// Position of the service in the file.
    pub position: Source,
    /// Arguments with which ipvsadm removes its service.
    pub command: String,
}
