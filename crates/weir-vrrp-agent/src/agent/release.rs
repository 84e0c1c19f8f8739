//! Keeps virtual routers from being active while an operator has released them or the director is drained.
//!
//! Releases are kept by name, because the agent can be replaced and a reload can re-create a virtual router. A release
//! ends with `Resume`, with the next start of `weir run`, or when a reload removes the virtual router. The daemon also
//! reports regularly whether the director is drained, which applies to virtual routers that a reload adds.

use weir_model::VirtualRouter;

use super::{Agent, Error, now};

const REASON: &str = "released by an operator";

impl Agent {
    /// Replaces the virtual routers. Releases and start delays continue. If `is_first` is true, this agent has no
    /// virtual router yet, and continues those of the previous agent.
    pub(super) fn apply_policy(
        &mut self,
        mut routers: Vec<VirtualRouter>,
        is_first: bool,
    ) -> Result<(), Error> {
        self.handover.shorten_start_delays(&mut routers, now());
        self.apply(routers)?;
        if is_first {
            for (port, settings) in self.ports.iter_mut().zip(&self.settings) {
                port.previous_state = self.handover.state_since(&settings.name);
                port.takeovers = self.handover.takeovers(&settings.name);
            }
        }
        let names = self.settings.iter().map(|it| &it.name);
        let is_released = |name: &&String| match is_first {
            true => self.handover.was_released(name),
            false => self.released.contains(*name),
        };
        self.released = names.filter(is_released).cloned().collect();
        self.apply_releases();
        Ok(())
    }

    /// Releases and resumes virtual routers according to the last requests and the daemon's last report. Returns
    /// whether any of them was released or resumed.
    pub(super) fn apply_releases(&mut self) -> bool {
        let observed = self.observed_state.as_ref();
        let is_drained = observed.is_some_and(|observed| observed.drained);
        let mut has_changed = false;
        let routers = self.ports.iter_mut().zip(&self.settings);
        for (index, (port, settings)) in routers.enumerate() {
            let is_released = is_drained || self.released.contains(&settings.name);
            if port.is_released == is_released {
                continue;
            }
            (port.is_released, has_changed) = (is_released, true);
            let reason = is_released.then_some(REASON);
            self.router.handle_block(index, reason, now());
        }
        has_changed
    }
}
