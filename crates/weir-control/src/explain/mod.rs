//! Implements the result of `weir explain`.
//!
//! For a packet, the engine computes the result from the same map rows that the data plane uses.

mod failover;
mod request;

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_engine::Explanation;
pub use weir_engine::{Packet, PacketError};

pub(crate) use failover::describe_failover;
pub use request::{Request, RequestError};

/// The response to `POST /v1/explain`: how a packet or request would be handled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainResponse {
    /// The packet or request.
    pub packet: String,
    /// The service that handles the packet or request; absent = none.
    pub service: Option<String>,
    /// Where the service is defined: `FILE:LINE`.
    pub at: Option<String>,
    /// The server's pool.
    pub pool: Option<String>,
    /// The server that would receive the packet or request, by its address in the file.
    pub server: Option<String>,
    /// The steps of the decision, one per line.
    pub steps: Vec<String>,
    /// A description of the outcome, if the service and the server do not imply it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// A server of a layer 4 service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerInService<'a> {
    /// The service name.
    pub service: &'a str,
    /// The pool name.
    pub pool: &'a str,
    /// The server's address, as in the file.
    pub server: &'a str,
}

impl ExplainResponse {
    /// Adds the last check results of candidates that are down, and the effect of a failover, to the engine's
    /// explanation.
    pub(crate) fn new(
        mut explanation: Explanation,
        last_result: &dyn Fn(&ServerInService<'_>) -> Option<String>,
        failover: Option<String>,
    ) -> Self {
        if let (Some(service), Some(pool)) = (&explanation.service, &explanation.pool) {
            for (step, server) in &explanation.down {
                let candidate = ServerInService {
                    service,
                    pool,
                    server,
                };
                let result = last_result(&candidate).filter(|result| !result.is_empty());
                if let (Some(step), Some(result)) = (explanation.steps.get_mut(*step), result) {
                    step.push_str(&format!(": {result}"));
                }
            }
        }
        // The first step is the listener.
        let position = explanation.steps.len().min(1);
        explanation.steps.splice(position..position, failover);
        Self {
            packet: explanation.packet,
            service: explanation.service,
            pool: explanation.pool,
            server: explanation.server,
            steps: explanation.steps,
            outcome: explanation.outcome,
            ..Self::default()
        }
    }
}

impl fmt::Display for ExplainResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.packet)?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        if let (Some(service), Some(at)) = (&self.service, &self.at) {
            writeln!(f, "  service {service} is defined at {at}")?;
        }
        if let Some(outcome) = &self.outcome {
            return writeln!(f, "{outcome}");
        }
        match (&self.service, &self.server) {
            (None, _) => writeln!(f, "no service matches: the packet passes unchanged"),
            (Some(service), None) => writeln!(f, "service {service} has no server for it"),
            (Some(service), Some(server)) => writeln!(f, "service {service} sends it to {server}"),
        }
    }
}
