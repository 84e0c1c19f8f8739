//! Defines the error for a configured listener that conflicts with a service created with ipvsadm.

use weir_model::Source;

/// A configured listener that conflicts with a service created with ipvsadm; the configuration is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}:{}: service {service}: {listener} is already used by a service created with ipvsadm; \
     remove that service with `weir ipvsadm {command}`, or all \
     services created with ipvsadm with `weir ipvsadm -C`",
    .position.line, .position.column
)]
pub struct ListenerConflict {
    /// Name of the service in the file.
    pub service: String,
    /// The service's listener or mark, as written.
    pub listener: String,
    /// Position of the service in the file.
    pub position: Source,
    /// The ipvsadm arguments that remove the conflicting service.
    pub command: String,
}
