//! Drives a BGP speaker: makes it announce a set of routes.
//!
//! A change is sent in steps, between which the announcer handles requests, because a slow speaker takes many seconds
//! for hundreds of routes. Each step withdraws routes first. ExaBGP, GoBGP and FRR withdraw each route separately, so a
//! route that they reject does not block the others.

mod bird;
mod command;
mod exabgp;
mod frr;
mod vty;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use weir_model::{Announce, Community, Family, Speaker};

use crate::error::Result;
use crate::{Error, Quality};

/// Time limit for a command to a speaker.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// The routes to announce.
pub(crate) type Routes = BTreeMap<IpAddr, Quality>;

/// The driver of a speaker.
#[derive(Debug)]
pub(crate) struct Driver {
    /// All routes that the speaker may be announcing.
    announced: Routes,
    /// The VIPs of `announced` for which the speaker has accepted a route.
    accepted: BTreeSet<IpAddr>,
    /// The VIPs whose routes the speaker is known to announce as in `announced`.
    confirmed: BTreeSet<IpAddr>,
    /// The VIPs whose last command failed, with the number of that step. They are sent after the others, in the order
    /// of the steps, so that a route that always fails does not block the others.
    failed: BTreeMap<IpAddr, u64>,
    /// Number of steps.
    steps: u64,
    /// The state of ExaBGP's replies.
    replies: exabgp::Replies,
    /// Whether the speaker has accepted the settings, which it must have even if there are no routes.
    is_configured: bool,
    /// The last [`Outcome::warnings`] of each address family.
    warnings: BTreeMap<Family, String>,
}

impl Driver {
    /// Creates the driver of a speaker that may still be announcing the `inherited` VIPs of an earlier process.
    pub(crate) fn new(inherited: impl IntoIterator<Item = IpAddr>) -> Self {
        let inherited = inherited.into_iter().map(|vip| (vip, Quality::Normal));
        let announced: Routes = inherited.collect();
        Self {
            accepted: announced.keys().copied().collect(),
            announced,
            confirmed: BTreeSet::new(),
            failed: BTreeMap::new(),
            steps: 0,
            replies: exabgp::Replies::default(),
            is_configured: false,
            warnings: BTreeMap::new(),
        }
    }

    /// Creates the driver of the speaker that replaces this one. The new driver also withdraws the VIPs of this
    /// speaker, because both may be the same program.
    pub(crate) fn successor(&self) -> Self {
        Self {
            accepted: BTreeSet::new(),
            ..Self::new(self.announced_vips())
        }
    }

    /// Returns whether the speaker has accepted a route to the VIP.
    pub(crate) fn has_accepted(&self, vip: IpAddr) -> bool {
        self.accepted.contains(&vip)
    }

    /// Returns why the speaker does not work as configured although it accepts the routes.
    pub(crate) fn warning(&self) -> Option<&String> {
        self.warnings.values().next()
    }

    /// Returns the VIPs that the speaker may be announcing.
    pub(crate) fn announced_vips(&self) -> impl Iterator<Item = IpAddr> {
        self.announced.keys().copied()
    }

    /// Returns whether the speaker has rejected a route that is still to be sent or withdrawn.
    pub(crate) fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Returns whether [`Self::apply`] has anything to send.
    pub(crate) fn needs_step(&self, routes: &Routes) -> bool {
        let is_known = |(vip, quality): (&IpAddr, &Quality)| {
            self.confirmed.contains(vip) && self.announced.get(vip) == Some(quality)
        };
        !self.is_configured
            || self.announced.keys().any(|vip| !routes.contains_key(vip))
            || !routes.iter().all(is_known)
    }

    /// Sends the next step of the change to `routes`, after which the speaker announces exactly `routes`.
    ///
    /// # Errors
    /// Returns an error if the speaker cannot be reached or rejects a route. A later step sends that route again.
    pub(crate) async fn apply(&mut self, settings: &Announce, routes: &Routes) -> Result<()> {
        let change = self.next_change(settings, routes);
        let vips = change.removed.iter();
        let vips = vips.chain(change.added.iter().map(|(vip, _)| vip));
        self.steps += 1;
        // If the change fails, part of it may still have taken effect.
        for vip in vips {
            self.confirmed.remove(vip);
            self.failed.insert(*vip, self.steps);
        }
        self.announced.extend(change.added.iter().copied());
        let outcome = match &settings.speaker {
            Speaker::Bird { socket, include } => {
                Outcome::from_whole(&change, bird::apply(socket, include, &change).await)
            }
            Speaker::Exabgp { pipe } => exabgp::apply(pipe, &change, &mut self.replies).await,
            Speaker::Gobgp { command } => command::apply_gobgp(command, &change).await,
            Speaker::Frr {
                command,
                asn,
                prefix_list,
            } => {
                let frr = frr::Frr {
                    command,
                    asn: *asn,
                    prefix_list: prefix_list.as_deref(),
                };
                frr.apply(&change).await
            }
        };
        for vip in &outcome.withdrawn {
            self.announced.remove(vip);
            self.accepted.remove(vip);
            self.failed.remove(vip);
        }
        for vip in &outcome.announced {
            self.confirmed.insert(*vip);
            self.accepted.insert(*vip);
            self.failed.remove(vip);
        }
        for (family, warning) in outcome.warnings {
            self.set_warning(family, warning);
        }
        match outcome.error {
            None => self.is_configured = true,
            Some(error) => return Err(error),
        }
        Ok(())
    }

    fn set_warning(&mut self, family: Family, warning: Option<String>) {
        let Some(warning) = warning else {
            self.warnings.remove(&family);
            return;
        };
        if self.warnings.get(&family) != Some(&warning) {
            tracing::warn!(warning, "the speaker does not work as configured");
            self.warnings.insert(family, warning);
        }
    }

    /// Sends the next step that withdraws all routes from a speaker that the settings no longer specify. `current` is
    /// the currently specified speaker, with its driver; a route that both drivers have announced through the same
    /// GoBGP is not withdrawn. Returns whether no routes remain to be withdrawn.
    ///
    /// # Errors
    /// Returns an error if the speaker cannot be reached or rejects the change.
    pub(crate) async fn retire(
        &mut self,
        settings: &Announce,
        current: Option<(&Announce, &Self)>,
    ) -> Result<bool> {
        match self.retire_step(settings, current).await {
            Ok(()) => Ok(self.announced.is_empty()),
            Err(error) if error.is_not_running() => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn retire_step(
        &mut self,
        settings: &Announce,
        current: Option<(&Announce, &Self)>,
    ) -> Result<()> {
        if let Some(current) = current
            && let Some(vip) = self.shared_vip(settings, current).await?
        {
            // The current driver withdraws the route when it is no longer needed.
            self.announced.remove(&vip);
            return Ok(());
        }
        match &settings.speaker {
            Speaker::Bird { socket, include } => {
                bird::clear(socket, include).await?;
                self.announced.clear();
                Ok(())
            }
            _ if self.announced.is_empty() => Ok(()),
            _ => self.apply(settings, &Routes::new()).await,
        }
    }

    /// Returns the next VIP to withdraw if the current driver has announced it through the same speaker. Two commands
    /// can control the same GoBGP, for example if only an option was added. For other speakers, returns `None`.
    async fn shared_vip(
        &self,
        settings: &Announce,
        (current_settings, current): (&Announce, &Self),
    ) -> Result<Option<IpAddr>> {
        let (Speaker::Gobgp { command }, Speaker::Gobgp { command: other }) =
            (&settings.speaker, &current_settings.speaker)
        else {
            return Ok(None);
        };
        let no_routes = Routes::new();
        let removed = self.next_change(settings, &no_routes).removed;
        let next = removed
            .first()
            .filter(|vip| current.announced.contains_key(vip));
        let Some(vip) = next else {
            return Ok(None);
        };
        let is_shared = command::is_same_gobgp_route(command, other, *vip).await?;
        Ok(is_shared.then_some(*vip))
    }

    /// Makes [`Self::apply`] send all routes, unless the speaker keeps its routes across a restart. Called regularly,
    /// because the speaker may have been restarted.
    pub(crate) fn refresh(&mut self, settings: &Announce) {
        let keeps_routes = match &settings.speaker {
            Speaker::Bird { include, .. } => include.exists(),
            Speaker::Exabgp { .. } | Speaker::Gobgp { .. } | Speaker::Frr { .. } => false,
        };
        if !keeps_routes {
            self.resend_all();
        }
    }

    /// Makes [`Self::apply`] send all routes.
    pub(crate) fn resend_all(&mut self) {
        self.is_configured = false;
        self.confirmed.clear();
        self.replies.expect_earlier();
    }

    /// Makes [`Self::apply`] send the routes of these VIPs first, because the speaker may have lost them.
    pub(crate) fn resend(&mut self, vips: impl IntoIterator<Item = IpAddr>) {
        for vip in vips {
            self.confirmed.remove(&vip);
            self.accepted.remove(&vip);
        }
    }

    /// Returns the next step of the change to `routes`. New and changed routes are sent before those that are sent
    /// again.
    fn next_change<'a>(&self, settings: &'a Announce, routes: &'a Routes) -> Change<'a> {
        let vips = self.announced_vips();
        let mut removed: Vec<IpAddr> = vips.filter(|vip| !routes.contains_key(vip)).collect();
        removed.sort_by_key(|vip| self.failed.get(vip));
        let is_unchanged =
            |(vip, quality): &(IpAddr, Quality)| self.announced.get(vip) == Some(quality);
        let routes_to_send = routes.iter().map(|(vip, quality)| (*vip, *quality));
        let mut added: Vec<(IpAddr, Quality)> = routes_to_send
            .filter(|route| !is_unchanged(route) || !self.confirmed.contains(&route.0))
            .collect();
        added.sort_by_key(|route| {
            let (vip, _) = route;
            let is_sent_again = is_unchanged(route) && self.accepted.contains(vip);
            (self.failed.get(vip), is_sent_again)
        });
        let size = step_size(&settings.speaker);
        removed.truncate(size);
        added.truncate(size);
        Change {
            settings,
            routes,
            removed,
            added,
        }
    }
}

/// Returns whether two settings specify the same speaker.
pub(crate) fn is_same(old: &Speaker, new: &Speaker) -> bool {
    match (old, new) {
        // FRR runs one BGP process without a VRF. A process with a different AS number does not have the old
        // statements.
        (Speaker::Frr { command: old, .. }, Speaker::Frr { command: new, .. }) => old == new,
        // A BIRD with a different socket that reads the same file has the correct routes.
        (Speaker::Bird { include: old, .. }, Speaker::Bird { include: new, .. }) => old == new,
        _ => old == new,
    }
}

/// Maximum number of routes to withdraw, and of routes to announce, in one step. It limits the time of a step if each
/// route requires a command. The commands of a step also fit in ExaBGP's pipe (64 KiB).
pub(crate) const fn step_size(speaker: &Speaker) -> usize {
    match speaker {
        Speaker::Bird { .. } => usize::MAX,
        Speaker::Exabgp { .. } => 64,
        Speaker::Gobgp { .. } => 1,
        Speaker::Frr { .. } => 16,
    }
}

/// A step of a change to the announced routes.
struct Change<'a> {
    settings: &'a Announce,
    /// All routes to announce after the last step.
    routes: &'a Routes,
    /// The VIPs of the routes to withdraw in this step.
    removed: Vec<IpAddr>,
    /// The routes to add or replace in this step.
    added: Vec<(IpAddr, Quality)>,
}

impl Change<'_> {
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

/// The part of a [`Change`] that a speaker has accepted.
#[derive(Debug, Default)]
struct Outcome {
    withdrawn: Vec<IpAddr>,
    announced: Vec<IpAddr>,
    /// The first error.
    error: Option<Error>,
    /// For each checked address family, why the speaker does not work as configured although it accepts the routes;
    /// `None` = it works.
    warnings: Vec<(Family, Option<String>)>,
}

impl Outcome {
    /// Returns the outcome of a change that a speaker accepts or rejects as a whole.
    fn from_whole(change: &Change<'_>, result: Result<()>) -> Self {
        match result {
            Ok(()) => Self {
                withdrawn: change.removed.clone(),
                announced: change.added.iter().map(|(vip, _)| *vip).collect(),
                ..Self::default()
            },
            Err(error) => Self {
                error: Some(error),
                ..Self::default()
            },
        }
    }

    fn add_error(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }
}

/// Returns a VIP as a prefix: `192.0.2.10/32`.
fn prefix(vip: IpAddr) -> String {
    format!("{vip}/{}", if vip.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests;
