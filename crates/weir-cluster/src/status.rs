//! The status of the group from the view of one member.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::agreement::Verdicts;
use crate::chunk;
use crate::key::Key;
use crate::link::Link;
use crate::machine::Machine;
use crate::record::{MemberRecord, Stopped, Turn, line};

/// The rollout of the group's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutState {
    /// Nothing was published.
    Unpublished,
    /// All members have it.
    Complete,
    /// Members still apply it; this one now.
    Running {
        /// The member that has the turn.
        turn: Option<String>,
    },
    /// A director failed.
    Stopped {
        /// Its name.
        member: String,
        /// Why.
        reason: String,
    },
}

/// Another director, or this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// What it reports about itself.
    pub record: MemberRecord,
    /// Since when its lease has ended, on the driver's clock; `None` = it is present.
    pub absent_since: Option<Duration>,
    /// Versions that it is behind the published one.
    pub lag: u64,
    /// The VIPs that it announces.
    pub announces: BTreeSet<IpAddr>,
    /// The number of servers that its own checks report down.
    pub down: usize,
    /// How it differs from this director.
    pub differences: Vec<String>,
}

/// The group, as far as this member knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The connection to etcd.
    pub link: Link,
    /// Why this director is not a member; `None` = it is.
    pub refused: Option<String>,
    /// The version that this director has applied; 0 = none.
    pub version: u64,
    /// Digest of that configuration.
    pub digest: String,
    /// The published version; 0 = none.
    pub published: u64,
    /// The rollout.
    pub rollout: RolloutState,
    /// All members, by name.
    pub members: Vec<MemberStatus>,
    /// Changes that must still be written to etcd.
    pub pending: usize,
    /// VIPs that stay announced because no other member announces them.
    pub held: BTreeSet<IpAddr>,
    /// Servers that are down for the group.
    pub down: Verdicts,
}

/// How a member differs from this one.
pub(crate) fn differences(own: &MemberRecord, other: &MemberRecord) -> Vec<String> {
    let mut found = Vec::new();
    if (own.version, &own.digest) != (other.version, &other.digest) {
        found.push(match own.version == other.version {
            true => format!("another configuration with version {}", own.version),
            false => format!(
                "version {} of the configuration, here {}",
                other.version, own.version
            ),
        });
    }
    if own.weir != other.weir {
        found.push(format!("weir {}, here {}", other.weir, own.weir));
    }
    for (name, fingerprint) in &own.secrets {
        match other.secrets.get(name) {
            Some(same) if same == fingerprint => {}
            Some(_) => found.push(format!("another secret: {name}")),
            None => found.push(format!("no secret: {name}")),
        }
    }
    let only_there = other.secrets.keys();
    let only_there = only_there.filter(|it| !own.secrets.contains_key(*it));
    found.extend(only_there.map(|name| format!("a secret that is missing here: {name}")));
    if own.order != other.order {
        found.push("other servers, or another order of them".to_owned());
    }
    if own.mtu != other.mtu {
        let shown = |mtu: Option<u32>| mtu.map_or("none".to_owned(), |it| it.to_string());
        found.push(format!("MTU {}, here {}", shown(other.mtu), shown(own.mtu)));
    }
    for feature in own
        .features
        .iter()
        .filter(|it| !other.features.contains(it))
    {
        found.push(format!("without {feature}"));
    }
    for feature in other
        .features
        .iter()
        .filter(|it| !own.features.contains(it))
    {
        found.push(format!("{feature}, not here"));
    }
    found
}

impl Machine {
    /// The group, as far as this member knows.
    pub fn status(&self, now: Duration) -> Status {
        let context = self.context(now);
        let (keys, mirror) = (context.keys, context.mirror);
        let current: Option<crate::Pointer> = mirror.read(&keys.name(&Key::Current));
        let published = current.as_ref().map_or(0, |it| it.version);
        let stopped: Option<Stopped> = mirror.read(&keys.name(&Key::Stopped));
        let turn: Option<Turn> = mirror.read(&keys.name(&Key::Turn));
        let complete: Option<crate::Pointer> = mirror.read(&keys.name(&Key::Complete));
        let rollout = match (&current, stopped) {
            (None, _) => RolloutState::Unpublished,
            (Some(current), Some(stopped)) if stopped.version == current.version => {
                RolloutState::Stopped {
                    member: line(&stopped.member),
                    reason: line(&stopped.reason),
                }
            }
            (Some(current), _) if !current.is_authentic(keys, context.key) => {
                RolloutState::Stopped {
                    member: context.me.to_owned(),
                    reason: chunk::NOT_AUTHENTIC.to_owned(),
                }
            }
            (Some(_), _) if complete == current => RolloutState::Complete,
            (Some(_), _) => RolloutState::Running {
                turn: turn.map(|it| line(&it.member)),
            },
        };
        let own = self.own_record();
        let present: BTreeMap<String, MemberRecord> = context.members().into_iter().collect();
        let mut members: Vec<MemberStatus> = Vec::new();
        for (name, (record, seen)) in self.seen() {
            let is_present = present.contains_key(name);
            let serving = mirror.read(&keys.name(&Key::Serving(name.clone())));
            let health: Option<crate::HealthView> =
                mirror.read(&keys.name(&Key::Health(name.clone())));
            members.push(MemberStatus {
                name: name.clone(),
                record: MemberRecord {
                    weir: line(&record.weir),
                    ..record.clone()
                },
                absent_since: (!is_present).then_some(*seen),
                lag: published.saturating_sub(record.version),
                announces: serving.unwrap_or_default(),
                down: health.map_or(0, |it| it.down.len()),
                differences: differences(&own, record)
                    .iter()
                    .map(|it| line(it))
                    .collect(),
            });
        }
        Status {
            link: self.link(),
            refused: self.refused().map(str::to_owned),
            version: own.version,
            digest: own.digest,
            published,
            rollout,
            members,
            pending: self.pending(),
            held: self.held(),
            down: self.verdicts().clone(),
        }
    }
}
