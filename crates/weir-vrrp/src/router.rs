//! Runs all virtual routers of a director, and keeps the members of each group in the same state.
//!
//! As in keepalived's `vrrp_sync_group`, the members become active and backup together, and a fault of one member is a
//! fault of all. They become active only when every member is ready. Otherwise a group would flap if its peer is active
//! on one of two links. The weight of an object that one member tracks changes the priorities of all members.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::hmac::{Hmac, PseudoHeader};
use crate::instance::{Instance, PreviousProcess};
use crate::packet::{IgnoreReason, ReceivedPacket, append_trailer, decode};
use crate::settings::{Config, TrackedState};
use crate::state::{Output, State};

/// Packet counters of a virtual router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accepted packets.
    pub received: u64,
    /// Advertisements sent; an advertisement to several unicast peers counts once.
    pub sent: u64,
    /// Ignored packets, by reason.
    pub ignored: BTreeMap<IgnoreReason, IgnoredCount>,
}

/// Ignored packets with the same reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredCount {
    /// Number of packets.
    pub packets: u64,
    /// When the last packet arrived.
    pub last: Duration,
}

/// The virtual routers of a director; see the module documentation.
#[derive(Debug, Default)]
pub struct Router {
    instances: Vec<(Instance, Counters)>,
    /// Authentication trailer state, for each instance.
    hmacs: Vec<Option<Hmac>>,
    outputs: VecDeque<(usize, Output)>,
}

impl Router {
    /// Creates virtual routers in state `Init`.
    pub fn new(configs: Vec<Config>, now: Duration) -> Self {
        let hmacs = configs.iter().map(|it| it.hmac.clone().map(Hmac::new));
        let hmacs = hmacs.collect();
        let instances = configs.into_iter();
        let instances = instances.map(|it| (Instance::new(it, now), Counters::default()));
        Self {
            instances: instances.collect(),
            hmacs,
            outputs: VecDeque::new(),
        }
    }

    /// Returns the virtual routers and their counters, in the order of the configuration.
    pub fn instances(&self) -> impl Iterator<Item = (&Instance, &Counters)> {
        self.instances
            .iter()
            .map(|(instance, counters)| (instance, counters))
    }

    /// Returns a virtual router.
    pub fn instance(&self, index: usize) -> Option<&Instance> {
        self.instances.get(index).map(|(instance, _)| instance)
    }

    /// Returns whether a virtual router is in its first election ([`Instance::is_first_election`]) and every other
    /// member of its group is in its first election or active. The group becomes active only if no member receives
    /// advertisements.
    pub fn is_first_election(&self, index: usize) -> bool {
        let Some(instance) = self.instance(index) else {
            return false;
        };
        let group = instance.config().group.as_ref();
        let is_member =
            |other: &Instance| group.is_some() && other.config().group.as_ref() == group;
        let mut members = self.instances().map(|(other, _)| other);
        instance.is_first_election()
            && members.all(|other| {
                !is_member(other) || other.is_first_election() || other.state() == State::Active
            })
    }

    /// Builds an advertisement with `priority` from `source`, one packet for each of `receivers`. `unix` is the time
    /// since 1970, for the authentication trailer.
    pub fn packets(
        &mut self,
        index: usize,
        priority: u8,
        source: IpAddr,
        receivers: &[IpAddr],
        unix: Duration,
    ) -> Vec<(IpAddr, Vec<u8>)> {
        let Some((instance, _)) = self.instances.get(index) else {
            return Vec::new();
        };
        let advertisement = instance.advertisement(priority);
        let mut packets: Vec<_> = receivers
            .iter()
            .map(|receiver| {
                (
                    *receiver,
                    advertisement.encode(source, *receiver, instance.checksum()),
                )
            })
            .collect();
        if let (Some(Some(hmac)), Some((_, message))) = (self.hmacs.get_mut(index), packets.first())
        {
            let pseudo_header = PseudoHeader {
                version: advertisement.version,
                vrid: advertisement.vrid,
                source,
            };
            let trailer = hmac.trailer(message, pseudo_header, unix);
            for (receiver, bytes) in &mut packets {
                append_trailer(bytes, &trailer, source, *receiver);
            }
        }
        packets
    }

    /// Handles a packet for a virtual router. `peers` are its unicast peers; empty = multicast. `unix` is the time
    /// since 1970.
    ///
    /// # Errors
    /// Returns the reason why the packet is ignored. The counters include it, except [`IgnoreReason::RouterId`].
    pub fn handle_packet(
        &mut self,
        index: usize,
        arrival: &ReceivedPacket<'_>,
        peers: &[IpAddr],
        (now, unix): (Duration, Duration),
    ) -> Result<(), IgnoreReason> {
        let Some((instance, counters)) = self.instances.get_mut(index) else {
            return Err(IgnoreReason::RouterId);
        };
        let hmac = self.hmacs.get_mut(index).and_then(Option::as_mut);
        let result = decode(arrival).and_then(|received| {
            if received.advertisement.vrid != instance.config().vrid {
                instance.handle_other_id(&received.advertisement, arrival.source, now);
                return Err(IgnoreReason::RouterId);
            }
            let is_multicast = arrival.destination.is_multicast();
            if is_multicast != peers.is_empty()
                || !(is_multicast || peers.contains(&arrival.source))
            {
                return Err(IgnoreReason::Peer);
            }
            if !is_multicast && arrival.hop_limit < instance.config().unicast_min_ttl {
                return Err(IgnoreReason::HopLimit);
            }
            let (message, trailer) = arrival.bytes.split_at(received.length);
            match hmac {
                Some(hmac) => {
                    let pseudo_header = PseudoHeader {
                        version: received.advertisement.version,
                        vrid: received.advertisement.vrid,
                        source: arrival.source,
                    };
                    hmac.verify(message, trailer, pseudo_header, unix)?;
                }
                None if !trailer.is_empty() => return Err(IgnoreReason::Length),
                None => {}
            }
            instance.handle_packet(&received, arrival.source, now)
        });
        match result {
            Ok(()) => counters.received += 1,
            // A packet from another virtual router on the same link is not an error.
            Err(IgnoreReason::RouterId) => {}
            Err(reason) => {
                let ignored = counters.ignored.entry(reason).or_default();
                ignored.packets += 1;
                ignored.last = now;
            }
        }
        if instance.take_received_lower_priority() {
            let group = instance.config().group.clone();
            self.assert_group(index, group.as_deref(), now);
        }
        self.propagate_changes(now);
        result
    }

    /// Announces the addresses of the other members of the group. Their peers were also active, and become backup with
    /// the peer of `leader` without sending another packet.
    fn assert_group(&mut self, leader: usize, group: Option<&str>, now: Duration) {
        let Some(group) = group else {
            return;
        };
        for (index, (instance, _)) in self.instances.iter_mut().enumerate() {
            if index != leader && instance.config().group.as_deref() == Some(group) {
                instance.assert_addresses(now);
            }
        }
    }

    /// See [`Instance::continue_from`].
    pub fn continue_from(&mut self, index: usize, previous: PreviousProcess) {
        if let Some((instance, _)) = self.instances.get_mut(index) {
            instance.continue_from(previous);
        }
        self.share_weights();
    }

    /// See [`Instance::handle_source`].
    pub fn handle_source(&mut self, index: usize, source: Option<IpAddr>, now: Duration) {
        self.update(index, now, |instance| instance.handle_source(source, now));
    }

    /// See [`Instance::handle_tracked`].
    pub fn handle_tracked(
        &mut self,
        index: usize,
        object: usize,
        state: TrackedState,
        now: Duration,
    ) {
        self.update(index, now, |instance| {
            instance.handle_tracked(object, state, now)
        });
    }

    /// See [`Instance::handle_block`].
    pub fn handle_block(&mut self, index: usize, reason: Option<&'static str>, now: Duration) {
        self.update(index, now, |instance| instance.handle_block(reason, now));
    }

    /// Handles expired timers.
    pub fn handle_timeout(&mut self, now: Duration) {
        for (instance, _) in &mut self.instances {
            instance.handle_timeout(now);
        }
        self.propagate_changes(now);
    }

    /// Stops a virtual router; see [`Instance::stop`].
    pub fn stop(&mut self, index: usize, now: Duration) {
        if let Some((instance, _)) = self.instances.get_mut(index) {
            instance.stop(now);
        }
        self.collect_outputs();
    }

    /// Returns the indices of virtual routers that `configs` does not contain. The driver must stop them before it
    /// calls [`Self::handle_configs`].
    pub fn removed_by(&self, configs: &[Config]) -> Vec<usize> {
        let instances = self.instances.iter().enumerate();
        let is_removed = |(_, (instance, _)): &(usize, &(Instance, Counters))| {
            !configs
                .iter()
                .any(|config| is_same_router(instance.config(), config))
        };
        instances
            .filter(is_removed)
            .map(|(index, _)| index)
            .collect()
    }

    /// Replaces the configuration. Virtual routers with the same name, version, ID and addresses continue; others are
    /// removed or created. Returns whether each virtual router in `configs` continues.
    pub fn handle_configs(&mut self, configs: Vec<Config>, now: Duration) -> Vec<bool> {
        let mut previous = std::mem::take(&mut self.instances);
        let mut hmacs = std::mem::take(&mut self.hmacs);
        let mut continuing = Vec::new();
        for config in configs {
            let is_same =
                |(instance, _): &(Instance, Counters)| is_same_router(instance.config(), &config);
            let position = previous.iter().position(is_same);
            let hmac = position.and_then(|index| hmacs.swap_remove(index));
            let existing = position.map(|index| previous.swap_remove(index));
            self.hmacs.push(match (hmac, config.hmac.clone()) {
                (Some(mut hmac), Some(config)) => {
                    hmac.configure(config);
                    Some(hmac)
                }
                (_, config) => config.map(Hmac::new),
            });
            continuing.push(existing.is_some());
            self.instances.push(match existing {
                Some((mut instance, counters)) => {
                    instance.handle_config(config, now);
                    (instance, counters)
                }
                None => (Instance::new(config, now), Counters::default()),
            });
        }
        self.share_weights();
        self.propagate_changes(now);
        continuing
    }

    /// Returns when to call [`Self::handle_timeout`] next; `None` if no timer is set.
    pub fn next_deadline(&self) -> Option<Duration> {
        let deadlines = self.instances.iter();
        deadlines
            .filter_map(|(instance, _)| instance.next_deadline())
            .min()
    }

    /// Returns the next request to the driver, and the index of its virtual router.
    pub fn poll_output(&mut self) -> Option<(usize, Output)> {
        self.outputs.pop_front()
    }

    fn update(&mut self, index: usize, now: Duration, update: impl FnOnce(&mut Instance)) {
        if let Some((instance, _)) = self.instances.get_mut(index) {
            update(instance);
        }
        self.share_weights();
        self.propagate_changes(now);
    }

    /// Moves the outputs of the instances to the queue and returns the state changes among them.
    fn collect_outputs(&mut self) -> Vec<(usize, State, State)> {
        let mut changes = Vec::new();
        for (index, (instance, counters)) in self.instances.iter_mut().enumerate() {
            while let Some(output) = instance.poll_output() {
                match output {
                    Output::Changed { from, to } => changes.push((index, from, to)),
                    Output::Send { .. } => counters.sent += 1,
                    Output::Announce { .. } | Output::AnnounceSource => {}
                }
                self.outputs.push_back((index, output));
            }
        }
        changes
    }

    /// Applies state changes to the other members of the groups until no member changes its state.
    fn propagate_changes(&mut self, now: Duration) {
        loop {
            self.spread_faults(now);
            self.activate_groups(now);
            let changes = self.collect_outputs();
            if changes.is_empty() {
                return;
            }
            self.share_weights();
            for (index, from, to) in changes {
                let Some((leader, _)) = self.instances.get(index) else {
                    continue;
                };
                let (group, name) = (leader.config().group.clone(), leader.config().name.clone());
                if group.is_none()
                    || leader.state() != to
                    || (from, to) != (State::Active, State::Backup)
                {
                    continue;
                }
                for (member, (instance, _)) in self.instances.iter_mut().enumerate() {
                    if member != index && instance.config().group == group {
                        instance.follow_backup(&name, now);
                    }
                }
            }
        }
    }

    /// Makes groups active if all their members are ready.
    fn activate_groups(&mut self, now: Duration) {
        let mut ready: BTreeMap<String, bool> = BTreeMap::new();
        for (instance, _) in &self.instances {
            if let Some(group) = &instance.config().group {
                *ready.entry(group.clone()).or_insert(true) &= instance.is_ready();
            }
        }
        for (instance, _) in &mut self.instances {
            let group = instance.config().group.as_ref();
            if group.and_then(|group| ready.get(group)) == Some(&true) {
                instance.follow_active(now);
            }
        }
    }

    /// Applies the weights of objects that only some members of a group track to the priorities of the other members.
    fn share_weights(&mut self) {
        let mut groups: BTreeMap<String, BTreeMap<String, i32>> = BTreeMap::new();
        for (instance, _) in &self.instances {
            let Some(group) = &instance.config().group else {
                continue;
            };
            let weights = groups.entry(group.clone()).or_default();
            for (tracked, state) in instance.tracked() {
                let weight = tracked.effect.weight(state, instance.counts_as_active());
                let lowest = weights.entry(tracked.identity.clone()).or_insert(weight);
                *lowest = weight.min(*lowest);
            }
        }
        for (instance, _) in &mut self.instances {
            let group = instance.config().group.as_ref();
            let weights = group.and_then(|group| groups.get(group));
            let untracked = weights.into_iter().flatten().filter(|(identity, _)| {
                !instance
                    .tracked()
                    .any(|(tracked, _)| tracked.identity == **identity)
            });
            let weight = untracked.fold(0, |sum: i32, (_, weight)| sum.saturating_add(*weight));
            instance.set_group_weight(weight);
        }
    }

    /// Applies the fault of a member to the other members of its group.
    fn spread_faults(&mut self, now: Duration) {
        let mut faults: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
        for (index, (instance, _)) in self.instances.iter().enumerate() {
            if let Some(group) = &instance.config().group
                && instance.has_own_fault()
            {
                let name = instance.config().name.clone();
                faults.entry(group.clone()).or_default().push((index, name));
            }
        }
        for (index, (instance, _)) in self.instances.iter_mut().enumerate() {
            // A router that has left its group no longer has the fault of the group.
            let group = instance.config().group.as_ref();
            let members = group.and_then(|group| faults.get(group));
            let other_member = members
                .into_iter()
                .flatten()
                .filter(|(member, _)| *member != index)
                .map(|(_, name)| name)
                .next();
            let fault =
                other_member.map(|name| format!("{name} of the same group is in the fault state"));
            instance.handle_group_fault(fault, now);
        }
    }
}

/// Returns whether both configurations describe the same virtual router, which then continues after a reload.
fn is_same_router(old: &Config, new: &Config) -> bool {
    (&old.name, old.version, old.vrid, &old.addresses)
        == (&new.name, new.version, new.vrid, &new.addresses)
}

#[cfg(test)]
mod tests;
