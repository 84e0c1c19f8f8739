//! Removes the addresses of virtual routers that are not active.
//!
//! If they remained, both directors would reply to ARP requests for them. There is one exception: a former owner on
//! this machine (`vip_interface`, or a virtual router with a different configuration) can hand over addresses. These
//! addresses stay during the first election of their virtual router, so that clients can still reach them if no other
//! director is active. An advertisement from another active router, or a fault, ends the election immediately.

use weir_helper::Request;
use weir_vrrp::State;

use super::{Agent, Error, Purpose};
use crate::link::Presence;

impl Agent {
    /// Requests the removal of addresses that are present while their virtual router is not active. Instead of removing
    /// addresses that were handed over, takes them over, and keeps them during the first election.
    pub(super) fn remove_inactive_addresses(&mut self) -> Result<(), Error> {
        for index in 0..self.settings.len() {
            let is_active = self
                .router
                .instance(index)
                .is_some_and(|it| it.state() == State::Active);
            if is_active || self.ports[index].has_handed_over_addresses {
                continue;
            }
            let settings = &self.settings[index];
            let attachment = self.ports[index].attachment();
            let Presence {
                is_present,
                is_handed_over,
            } = self.network.presence(settings, attachment);
            let router = settings.name.clone();
            if is_handed_over {
                self.ports[index].has_handed_over_addresses = true;
                let request = Request::TakeOver {
                    router: router.clone(),
                };
                self.request(request, Purpose::TakeOver(router))?;
            } else if is_present {
                self.request_removal(router)?;
            }
        }
        // A virtual router keeps handed-over addresses only during its first election.
        self.end_elections()
    }

    fn request_removal(&mut self, router: String) -> Result<(), Error> {
        let is_pending =
            |it: &Purpose| matches!(it, Purpose::RemoveInactive(name) if *name == router);
        if self.pending.values().any(is_pending) {
            return Ok(());
        }
        let request = Request::RemoveInactive {
            router: router.clone(),
        };
        self.request(request, Purpose::RemoveInactive(router))
    }

    /// Removes the handed-over addresses of virtual routers that did not become active in their first election.
    pub(super) fn end_elections(&mut self) -> Result<(), Error> {
        for index in 0..self.settings.len() {
            let Some(instance) = self.router.instance(index) else {
                continue;
            };
            if !self.ports[index].has_handed_over_addresses || self.router.is_first_election(index)
            {
                continue;
            }
            self.ports[index].has_handed_over_addresses = false;
            if instance.state() == State::Active {
                continue;
            }
            let router = self.settings[index].name.clone();
            tracing::info!(
                router,
                reason = instance.reason(),
                "removing addresses that were handed over, because this director did not become active"
            );
            self.remove_addresses(router)?;
        }
        Ok(())
    }

    /// Requests the removal of a virtual router's addresses. If the virtual router is no longer configured, the helper
    /// hands them over to their next owner.
    pub(super) fn remove_addresses(&mut self, router: String) -> Result<(), Error> {
        let name = router.clone();
        if self.is_reconfiguring {
            return self.request(Request::Retire { router }, Purpose::Retire(name));
        }
        self.request(Request::Remove { router }, Purpose::Remove(name))
    }

    pub(super) fn handle_take_over_failure(
        &mut self,
        router: &str,
        reason: &str,
    ) -> Result<(), Error> {
        tracing::warn!(
            router,
            reason,
            "failed to keep addresses during the election; removing them"
        );
        let index = self.settings.iter().position(|it| it.name == router);
        if let Some(index) = index.filter(|index| self.ports[*index].has_handed_over_addresses) {
            self.ports[index].has_handed_over_addresses = false;
            self.remove_addresses(router.to_owned())?;
        }
        Ok(())
    }

    /// Asks the helper to remove all addresses that it has added, except those that this agent needs. A previous agent
    /// may have requested others, and requests to remove them may have failed or been lost.
    pub(super) fn remove_stale_addresses(&mut self) -> Result<(), Error> {
        let is_needed =
            |index: &usize| self.is_active(*index) || self.ports[*index].has_handed_over_addresses;
        let needed = (0..self.settings.len()).filter(is_needed);
        let needed = needed.map(|index| self.settings[index].name.clone());
        let retained = needed.collect();
        self.request(
            Request::RemoveAllExcept { retained },
            Purpose::RemoveAllExcept,
        )
    }

    /// Repeats the removal of addresses if the last one failed.
    pub(super) fn remove_again(&mut self) -> Result<(), Error> {
        let is_same = |it: &Purpose| matches!(it, Purpose::RemoveAllExcept);
        if self.removal_failure.is_none() || self.pending.values().any(is_same) {
            return Ok(());
        }
        self.remove_stale_addresses()?;
        self.remove_inactive_addresses()
    }

    pub(super) fn handle_removal_failure(&mut self, router: Option<&str>, reason: String) {
        if self.removal_failure.as_ref() != Some(&reason) {
            tracing::error!(
                router,
                reason,
                "failed to remove addresses; trying again every second"
            );
        }
        self.removal_failure = Some(reason);
    }

    pub(super) fn handle_removal(&mut self) {
        if self.removal_failure.take().is_some() {
            tracing::info!("removed the addresses of inactive virtual routers");
        }
    }
}
