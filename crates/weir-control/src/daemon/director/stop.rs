//! Waits for connections when the daemon stops, and describes the effects of the stop for the log.

use super::Director;
use crate::plane::Plane;
use crate::traffic::needs_engine;

impl<P: Plane> Director<P> {
    /// Waits until the proxy connections have ended, up to `drain_timeout`.
    pub async fn drain(&mut self) {
        self.plane.close(self.desired.node.drain_timeout).await;
    }

    /// Describes, for the log, what happens to packets and addresses after this process exits.
    pub(crate) fn effects_of_stop(&self) -> String {
        let mut effects = match (needs_engine(&self.desired), self.pins_are_temporary) {
            (false, _) => String::new(),
            (true, true) => "; forwarding ends with this mount namespace".to_owned(),
            (true, false) => "; the kernel continues to forward".to_owned(),
        };
        if !self.configured.vrrp.is_empty() {
            effects += "; virtual routers release their addresses";
        }
        if self.configured.announce.is_some() {
            effects += "; announced routes are withdrawn";
        }
        effects
    }
}
