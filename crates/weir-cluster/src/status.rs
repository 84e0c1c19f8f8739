//! The status of the group, as one member sees it.

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

/// State of the rollout of the group's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutState {
    /// No configuration was published.
    Unpublished,
    /// All members have applied the configuration.
    Complete,
    /// Members are still applying the configuration.
    Running {
        /// Name of the member that has the turn to apply the configuration, if any.
        turn: Option<String>,
    },
    /// A member failed to apply the configuration.
    Stopped {
        /// Name of the member.
        member: String,
        /// Why it failed.
        reason: String,
    },
}

/// Status of a member: another director or this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Name of the member.
    pub name: String,
    /// What the member reports about itself.
    pub record: MemberRecord,
    /// When the member was last present, on the driver's clock; `None` if it is present.
    pub absent_since: Option<Duration>,
    /// Number of versions by which its configuration is behind the published one.
    pub lag: u64,
    /// The VIPs that the member announces.
    pub announces: BTreeSet<IpAddr>,
    /// Number of servers that the member's own checks report down.
    pub down: usize,
    /// How the member differs from this director.
    pub differences: Vec<String>,
}

/// Status of the group, as this member sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The connection to etcd.
    pub link: Link,
    /// Why this director is not a member of the group; `None` if it is a member.
    pub refused: Option<String>,
    /// Version of the configuration that this director has applied; 0 = none.
    pub version: u64,
    /// Digest of that configuration.
    pub digest: String,
    /// Version of the published configuration; 0 = none.
    pub published: u64,
    /// State of the rollout.
    pub rollout: RolloutState,
    /// All members, by name.
    pub members: Vec<MemberStatus>,
    /// Number of changes that must still be written to etcd.
    pub pending: usize,
    /// VIPs that stay announced because no other member announces them.
    pub held: BTreeSet<IpAddr>,
    /// Servers that the group considers down.
    pub down: Verdicts,
}

/// Returns how a member differs from this one.
pub(crate) fn differences(own: &MemberRecord, other: &MemberRecord) -> Vec<String> {
    let mut found = Vec::new();
    if (own.version, &own.digest) != (other.version, &other.digest) {
        found.push(match own.version == other.version {
            true => format!("a different configuration with version {}", own.version),
            false => format!(
                "version {} of the configuration, here version {}",
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
            Some(_) => found.push(format!("secret {name} differs")),
            None => found.push(format!("secret {name} is missing")),
        }
    }
    let missing_here = other.secrets.keys();
    let missing_here = missing_here.filter(|it| !own.secrets.contains_key(*it));
    found.extend(missing_here.map(|name| format!("secret {name} is missing here")));
    if own.order != other.order {
        found.push("different servers, or servers in a different order".to_owned());
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
        found.push(format!("{feature} is missing"));
    }
    for feature in other
        .features
        .iter()
        .filter(|it| !own.features.contains(it))
    {
        found.push(format!("{feature} is missing here"));
    }
    found
}

impl Machine {
    /// Returns the status of the group, as this member sees it.
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
