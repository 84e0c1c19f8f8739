//! All virtual routers of a director. Members of a group move together, as in keepalived's `vrrp_sync_group`: they
//! become active and backup together, and a fault of one is a fault of all. They become active when every member is
//! ready, so that a group whose peer is active on one of two links does not become active and backup in turn. The
//! weight of a tracked object changes the priorities of all members.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::hmac::{Covered, Hmac};
use crate::instance::{Instance, Output, State};
use crate::packet::{Arrival, Ignored, append, decode};
use crate::settings::{Config, TrackedState};

/// Packets of a virtual router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accepted.
    pub received: u64,
    /// Sent.
    pub sent: u64,
    /// Ignored, by reason.
    pub ignored: BTreeMap<Ignored, u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Router {
    instances: Vec<(Instance, Counters)>,
    /// Sequence numbers of authentication trailers, for each instance.
    hmacs: Vec<Option<Hmac>>,
    outputs: VecDeque<(usize, Output)>,
}

impl Router {
    /// Virtual routers that are not started.
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

    /// The virtual routers, in the order of the configuration.
    pub fn instances(&self) -> impl Iterator<Item = (&Instance, &Counters)> {
        self.instances
            .iter()
            .map(|(instance, counters)| (instance, counters))
    }

    /// A virtual router.
    pub fn instance(&self, index: usize) -> Option<&Instance> {
        self.instances.get(index).map(|(instance, _)| instance)
    }

    /// The packets of an advertisement with `priority`, from `source` to each of `receivers`. `unix` is the time since
    /// 1970, for the authentication trailer.
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
            .map(|to| (*to, advertisement.encode(source, *to, instance.checksum())))
            .collect();
        if let (Some(Some(hmac)), Some((_, message))) = (self.hmacs.get_mut(index), packets.first())
        {
            let covered = Covered {
                version: advertisement.version,
                vrid: advertisement.vrid,
                source,
            };
            let trailer = hmac.trailer(message, covered, unix);
            for (receiver, bytes) in &mut packets {
                append(bytes, &trailer, source, *receiver);
            }
        }
        packets
    }

    /// Handles a packet for one of them. `unix` is the time since 1970.
    ///
    /// # Errors
    /// Why it is ignored; it is counted.
    pub fn handle_packet(
        &mut self,
        index: usize,
        arrival: &Arrival<'_>,
        peers: &[IpAddr],
        (now, unix): (Duration, Duration),
    ) -> Result<(), Ignored> {
        let Some((instance, counters)) = self.instances.get_mut(index) else {
            return Err(Ignored::RouterId);
        };
        let hmac = self.hmacs.get_mut(index).and_then(Option::as_mut);
        let handled = decode(arrival).and_then(|received| {
            if received.advertisement.vrid != instance.config().vrid {
                return Err(Ignored::RouterId);
            }
            let is_multicast = arrival.destination.is_multicast();
            if is_multicast != peers.is_empty()
                || !(is_multicast || peers.contains(&arrival.source))
            {
                return Err(Ignored::Peer);
            }
            if !is_multicast && arrival.hop_limit < instance.config().unicast_min_ttl {
                return Err(Ignored::HopLimit);
            }
            let (message, trailer) = arrival.bytes.split_at(received.length);
            match hmac {
                Some(hmac) => {
                    let covered = Covered {
                        version: received.advertisement.version,
                        vrid: received.advertisement.vrid,
                        source: arrival.source,
                    };
                    hmac.verify(message, trailer, covered, unix)?;
                }
                None if !trailer.is_empty() => return Err(Ignored::Length),
                None => {}
            }
            instance.handle_packet(&received, arrival.source, now)
        });
        match handled {
            Ok(()) => counters.received += 1,
            // A packet of another virtual router on the same link is not a defect.
            Err(Ignored::RouterId) => {}
            Err(reason) => *counters.ignored.entry(reason).or_default() += 1,
        }
        if instance.take_asserted() {
            let group = instance.config().group.clone();
            self.assert_group(index, group.as_deref(), now);
        }
        self.settle(now);
        handled
    }

    /// Announces the addresses of the other members: the peer of them was active as well, and becomes backup with its
    /// first member, without another packet.
    fn assert_group(&mut self, leader: usize, group: Option<&str>, now: Duration) {
        let Some(group) = group else {
            return;
        };
        for (at, (instance, _)) in self.instances.iter_mut().enumerate() {
            if at != leader && instance.config().group.as_deref() == Some(group) {
                instance.assert_addresses(now);
            }
        }
    }

    /// See [`Instance::continue_from`].
    pub fn continue_from(&mut self, index: usize, last_sent: Duration) {
        if let Some((instance, _)) = self.instances.get_mut(index) {
            instance.continue_from(last_sent);
        }
    }

    /// See [`Instance::handle_source`].
    pub fn handle_source(&mut self, index: usize, source: Option<IpAddr>, now: Duration) {
        self.change(index, now, |instance| instance.handle_source(source, now));
    }

    /// See [`Instance::handle_tracked`].
    pub fn handle_tracked(
        &mut self,
        index: usize,
        object: usize,
        state: TrackedState,
        now: Duration,
    ) {
        self.change(index, now, |instance| {
            instance.handle_tracked(object, state, now)
        });
    }

    /// See [`Instance::handle_blocked`].
    pub fn handle_blocked(&mut self, index: usize, blocked: Option<&'static str>, now: Duration) {
        self.change(index, now, |instance| instance.handle_blocked(blocked, now));
    }

    /// Handles the timers that have ended.
    pub fn handle_timeout(&mut self, now: Duration) {
        for (instance, _) in &mut self.instances {
            instance.handle_timeout(now);
        }
        self.settle(now);
    }

    /// Stops one of them.
    pub fn stop(&mut self, index: usize, now: Duration) {
        if let Some((instance, _)) = self.instances.get_mut(index) {
            instance.stop(now);
        }
        self.collect();
    }

    /// The virtual routers that do not continue with `configs`; the driver stops them before [`Self::handle_configs`].
    pub fn departing(&self, configs: &[Config]) -> Vec<usize> {
        let instances = self.instances.iter().enumerate();
        let departs = |(_, (instance, _)): &(usize, &(Instance, Counters))| {
            !configs
                .iter()
                .any(|config| continues(instance.config(), config))
        };
        instances.filter(departs).map(|(index, _)| index).collect()
    }

    /// Replaces the configuration. A virtual router that remains, by name, version, ID and addresses, continues;
    /// others stop or begin. Returns, for each new one, whether it continues.
    pub fn handle_configs(&mut self, configs: Vec<Config>, now: Duration) -> Vec<bool> {
        let mut former = std::mem::take(&mut self.instances);
        let mut hmacs = std::mem::take(&mut self.hmacs);
        let mut kept = Vec::new();
        for config in configs {
            let same = |(instance, _): &(Instance, Counters)| continues(instance.config(), &config);
            let found = former.iter().position(same);
            let hmac = found.and_then(|at| hmacs.swap_remove(at));
            let found = found.map(|at| former.swap_remove(at));
            self.hmacs.push(match (hmac, config.hmac.clone()) {
                (Some(mut hmac), Some(config)) => {
                    hmac.configure(config);
                    Some(hmac)
                }
                (_, config) => config.map(Hmac::new),
            });
            kept.push(found.is_some());
            self.instances.push(match found {
                Some((mut instance, counters)) => {
                    instance.handle_config(config, now);
                    (instance, counters)
                }
                None => (Instance::new(config, now), Counters::default()),
            });
        }
        self.share_weights();
        self.settle(now);
        kept
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        let deadlines = self.instances.iter();
        deadlines
            .filter_map(|(instance, _)| instance.next_deadline())
            .min()
    }

    /// The next request to the driver, and the virtual router it is for.
    pub fn poll_output(&mut self) -> Option<(usize, Output)> {
        self.outputs.pop_front()
    }

    fn change(&mut self, index: usize, now: Duration, work: impl FnOnce(&mut Instance)) {
        if let Some((instance, _)) = self.instances.get_mut(index) {
            work(instance);
        }
        self.share_weights();
        self.settle(now);
    }

    /// Moves the outputs of the instances to the queue; returns the state changes among them.
    fn collect(&mut self) -> Vec<(usize, State, State)> {
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

    /// Applies state changes to the other members of the groups, until nothing changes.
    fn settle(&mut self, now: Duration) {
        loop {
            self.spread_faults(now);
            self.activate_groups(now);
            let changes = self.collect();
            if changes.is_empty() {
                return;
            }
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
                for (at, (instance, _)) in self.instances.iter_mut().enumerate() {
                    if at != index && instance.config().group == group {
                        instance.follow_backup(&name, now);
                    }
                }
            }
        }
    }

    /// Makes the members of the groups active whose members are all ready.
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

    /// Adds the weights of a member's tracked objects to the priorities of the members that do not track them.
    fn share_weights(&mut self) {
        let mut groups: BTreeMap<String, BTreeMap<String, i32>> = BTreeMap::new();
        for (instance, _) in &self.instances {
            let Some(group) = &instance.config().group else {
                continue;
            };
            let weights = groups.entry(group.clone()).or_default();
            for (tracked, state) in instance.tracked() {
                let weight = tracked.effect.weight(state);
                let known = weights.entry(tracked.identity.clone()).or_insert(weight);
                *known = weight.min(*known);
            }
        }
        for (instance, _) in &mut self.instances {
            let group = instance.config().group.as_ref();
            let weights = group.and_then(|group| groups.get(group));
            let others = weights.into_iter().flatten().filter(|(identity, _)| {
                !instance
                    .tracked()
                    .any(|(own, _)| own.identity == **identity)
            });
            let weight = others.fold(0, |all: i32, (_, weight)| all.saturating_add(*weight));
            instance.set_group_weight(weight);
        }
    }

    /// A fault of a member is a fault of its group.
    fn spread_faults(&mut self, now: Duration) {
        let mut faults: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
        for (index, (instance, _)) in self.instances.iter().enumerate() {
            if let Some(group) = &instance.config().group
                && instance.own_fault()
            {
                let name = instance.config().name.clone();
                faults.entry(group.clone()).or_default().push((index, name));
            }
        }
        for (index, (instance, _)) in self.instances.iter_mut().enumerate() {
            let Some(group) = &instance.config().group else {
                continue;
            };
            let members = faults.get(group).into_iter().flatten();
            let other = members
                .filter(|(at, _)| *at != index)
                .map(|(_, name)| name)
                .next();
            let fault = other.map(|name| format!("{name} of the same group is in fault"));
            instance.handle_group_fault(fault, now);
        }
    }
}

/// Whether a virtual router is the same one on the wire.
fn continues(old: &Config, new: &Config) -> bool {
    (&old.name, old.version, old.vrid, &old.addresses)
        == (&new.name, new.version, new.vrid, &new.addresses)
}

#[cfg(test)]
mod tests;
