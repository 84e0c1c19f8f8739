//! Reports the status of the group as one member sees it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::agreement::Verdicts;
use crate::chunk;
use crate::key::Key;
use crate::link::Link;
use crate::machine::Machine;
use crate::record::{ApplyingMember, MemberRecord, StoppedRollout, sanitize_line};

/// State of the rollout of the group's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutState {
    /// No configuration was published.
    Unpublished,
    /// All members have applied the configuration.
    Complete,
    /// Members are still applying the configuration.
    Running {
        /// Name of the member whose turn it is to apply the configuration, if any.
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

/// Status of a member, which may be this director.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Name of the member.
    pub name: String,
    /// The member's report about itself.
    pub record: MemberRecord,
    /// When the member was last present, on the driver's clock; `None` if it is present.
    pub absent_since: Option<Duration>,
    /// Number of versions by which the member's configuration is behind the published one.
    pub lag: u64,
    /// The VIPs that the member announces.
    pub announces: BTreeSet<IpAddr>,
    /// Number of servers that the member's own checks report down.
    pub down: usize,
    /// The differences between the member and this director.
    pub differences: Vec<String>,
}

/// Status of the group as this member sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The connection to etcd.
    pub link: Link,
    /// Why this director is not a member of the group; `None` if it is a member.
    pub refused: Option<String>,
    /// Version of the configuration that this director has applied; 0 = none.
    pub version: u64,
    /// Digest of this configuration.
    pub digest: String,
    /// Version of the published configuration; 0 = none.
    pub published: u64,
    /// State of the rollout.
    pub rollout: RolloutState,
    /// All present and recently absent members, by name.
    pub members: Vec<MemberStatus>,
    /// Number of changes that must still be written to etcd.
    pub pending: usize,
    /// VIPs that stay announced because no other member announces them.
    pub held: BTreeSet<IpAddr>,
    /// Servers that the group considers down.
    pub down: Verdicts,
}

/// Returns the differences between another member and this one, for display.
pub(crate) fn find_differences(
    own_record: &MemberRecord,
    other_record: &MemberRecord,
) -> Vec<String> {
    let mut differences = Vec::new();
    if (own_record.version, &own_record.digest) != (other_record.version, &other_record.digest) {
        differences.push(match own_record.version == other_record.version {
            true => format!(
                "a different configuration with version {}",
                own_record.version
            ),
            false => format!(
                "configuration version {}, here version {}",
                other_record.version, own_record.version
            ),
        });
    }
    if own_record.weir != other_record.weir {
        differences.push(format!(
            "weir {}, here {}",
            other_record.weir, own_record.weir
        ));
    }
    for (name, fingerprint) in &own_record.secrets {
        match other_record.secrets.get(name) {
            Some(same) if same == fingerprint => {}
            Some(_) => differences.push(format!("secret {name} differs")),
            None => differences.push(format!("secret {name} is missing")),
        }
    }
    let missing_here = other_record.secrets.keys();
    let missing_here = missing_here.filter(|it| !own_record.secrets.contains_key(*it));
    differences.extend(missing_here.map(|name| format!("secret {name} is missing here")));
    if own_record.order != other_record.order {
        differences.push("different servers, or servers in a different order".to_owned());
    }
    if own_record.mtu != other_record.mtu {
        let format_mtu = |mtu: Option<u32>| mtu.map_or("none".to_owned(), |it| it.to_string());
        differences.push(format!(
            "MTU {}, here {}",
            format_mtu(other_record.mtu),
            format_mtu(own_record.mtu)
        ));
    }
    for feature in own_record
        .features
        .iter()
        .filter(|it| !other_record.features.contains(it))
    {
        differences.push(format!("{feature} is missing"));
    }
    for feature in other_record
        .features
        .iter()
        .filter(|it| !own_record.features.contains(it))
    {
        differences.push(format!("{feature} is missing here"));
    }
    differences
}

impl Machine {
    /// Returns the status of the group as this member sees it.
    pub fn status(&self, now: Duration) -> Status {
        let context = self.context(now);
        let (keys, mirror) = (context.keys, context.mirror);
        let current: Option<crate::Pointer> = mirror.read(&keys.name(&Key::Current));
        let published = current.as_ref().map_or(0, |it| it.version);
        let stopped: Option<StoppedRollout> = mirror.read(&keys.name(&Key::Stopped));
        let turn: Option<ApplyingMember> = mirror.read(&keys.name(&Key::Turn));
        let complete: Option<crate::Pointer> = mirror.read(&keys.name(&Key::Complete));
        let rollout = match (&current, stopped) {
            (None, _) => RolloutState::Unpublished,
            (Some(current), Some(stopped)) if stopped.version == current.version => {
                RolloutState::Stopped {
                    member: sanitize_line(&stopped.member),
                    reason: sanitize_line(&stopped.reason),
                }
            }
            (Some(current), _) if !current.is_authentic(keys, context.key) => {
                RolloutState::Stopped {
                    member: context.own_name.to_owned(),
                    reason: chunk::NOT_AUTHENTIC.to_owned(),
                }
            }
            (Some(_), _) if complete == current => RolloutState::Complete,
            (Some(_), _) => RolloutState::Running {
                turn: turn.map(|it| sanitize_line(&it.member)),
            },
        };
        let own_record = self.own_record();
        let present: BTreeMap<String, MemberRecord> = context.members().into_iter().collect();
        let mut members: Vec<MemberStatus> = Vec::new();
        for (name, (record, seen)) in self.known_members() {
            let is_present = present.contains_key(name);
            let serving = mirror.read(&keys.name(&Key::Serving(name.clone())));
            let health: Option<crate::HealthView> =
                mirror.read(&keys.name(&Key::Health(name.clone())));
            members.push(MemberStatus {
                name: name.clone(),
                record: MemberRecord {
                    weir: sanitize_line(&record.weir),
                    ..record.clone()
                },
                absent_since: (!is_present).then_some(*seen),
                lag: published.saturating_sub(record.version),
                announces: serving.unwrap_or_default(),
                down: health.map_or(0, |it| it.down.len()),
                differences: find_differences(&own_record, record)
                    .iter()
                    .map(|it| sanitize_line(it))
                    .collect(),
            });
        }
        Status {
            link: self.link(),
            refused: self.refused().map(str::to_owned),
            version: own_record.version,
            digest: own_record.digest,
            published,
            rollout,
            members,
            pending: self.pending(),
            held: self.held_vips(),
            down: self.verdicts().clone(),
        }
    }
}
