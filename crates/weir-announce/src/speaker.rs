//! Drives a BGP speaker: makes it announce a set of routes.

mod bird;
mod command;
mod exabgp;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use weir_model::{Announce, Community, Speaker};

use crate::Quality;
use crate::error::Result;

/// Time limit for a command to a speaker.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// The routes to announce.
pub(crate) type Routes = BTreeMap<IpAddr, Quality>;

/// The driver of a speaker.
#[derive(Debug)]
pub(crate) struct Driver {
    /// All routes that the speaker may be announcing.
    announced: Routes,
    /// The VIPs of the routes that the speaker accepted last.
    accepted: BTreeSet<IpAddr>,
    /// Whether the speaker is known to announce exactly `announced`.
    is_in_sync: bool,
}

impl Driver {
    /// Creates the driver of a speaker that may still be announcing the `inherited` VIPs of an earlier process.
    pub(crate) fn new(inherited: &[IpAddr]) -> Self {
        Self {
            announced: inherited
                .iter()
                .map(|vip| (*vip, Quality::Normal))
                .collect(),
            accepted: inherited.iter().copied().collect(),
            is_in_sync: false,
        }
    }

    /// Returns whether the speaker has accepted a route to the VIP.
    pub(crate) fn has_accepted(&self, vip: IpAddr) -> bool {
        self.accepted.contains(&vip)
    }

    /// Returns the VIPs that the speaker may be announcing.
    pub(crate) fn announced_vips(&self) -> impl Iterator<Item = IpAddr> {
        self.announced.keys().copied()
    }

    /// Makes the speaker announce exactly `routes`. Does nothing if the speaker is known to announce them already.
    ///
    /// # Errors
    /// Returns an error if the speaker cannot be reached or rejects a route. The next call sends all routes again.
    pub(crate) async fn apply(&mut self, settings: &Announce, routes: &Routes) -> Result<()> {
        if self.is_in_sync && self.announced == *routes {
            return Ok(());
        }
        let previous = self.announced.clone();
        let change = Change {
            settings,
            previous: &previous,
            resends_all: !self.is_in_sync,
            routes,
        };
        // If the change fails, part of it may still have taken effect.
        self.is_in_sync = false;
        self.announced.extend(routes);
        match &settings.speaker {
            Speaker::Bird { socket, include } => bird::apply(socket, include, &change).await?,
            Speaker::Exabgp { pipe } => exabgp::apply(pipe, &change)?,
            Speaker::Gobgp { command } => command::apply_gobgp(command, &change).await?,
            Speaker::Frr { command, asn } => command::apply_frr(command, *asn, &change).await?,
        }
        self.announced.clone_from(routes);
        self.accepted = routes.keys().copied().collect();
        self.is_in_sync = true;
        Ok(())
    }

    /// Makes the next [`Self::apply`] send all routes, unless the speaker keeps its routes across a restart. Called
    /// regularly, because the speaker may have been restarted.
    pub(crate) fn refresh(&mut self, settings: &Announce) {
        self.is_in_sync &= match &settings.speaker {
            Speaker::Bird { include, .. } => include.exists(),
            Speaker::Exabgp { .. } | Speaker::Gobgp { .. } | Speaker::Frr { .. } => false,
        };
    }

    /// Makes the next [`Self::apply`] send all routes, because the settings have changed.
    pub(crate) fn resend_all(&mut self) {
        self.is_in_sync = false;
    }
}

/// A change to the announced routes.
struct Change<'a> {
    settings: &'a Announce,
    previous: &'a Routes,
    /// Whether to resend routes that are already announced.
    resends_all: bool,
    routes: &'a Routes,
}

impl Change<'_> {
    /// Returns the routes to add or replace.
    fn added_routes(&self) -> impl Iterator<Item = (&IpAddr, Quality)> {
        let is_new = |(vip, quality): &(&IpAddr, &Quality)| {
            self.resends_all || self.previous.get(*vip) != Some(*quality)
        };
        let routes = self.routes.iter().filter(is_new);
        routes.map(|(vip, quality)| (vip, *quality))
    }

    /// Returns the VIPs of the routes to withdraw.
    fn removed_vips(&self) -> impl Iterator<Item = &IpAddr> {
        let previous = self.previous.keys();
        previous.filter(|vip| !self.routes.contains_key(*vip))
    }

    /// Returns the communities of a route.
    fn communities(&self, quality: Quality) -> impl Iterator<Item = Community> {
        let drain_communities: &[Community] = match quality {
            Quality::Normal => &[],
            Quality::LastResort => &self.settings.drain_communities,
        };
        let communities = self.settings.communities.iter().chain(drain_communities);
        communities.copied()
    }
}

/// Returns a VIP as a prefix: `192.0.2.10/32`.
fn prefix(vip: IpAddr) -> String {
    format!("{vip}/{}", if vip.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests;
