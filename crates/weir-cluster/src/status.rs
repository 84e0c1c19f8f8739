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
    /// No configuration has been published.
    Unpublished,
    /// All members have applied the configuration.
    Complete,
    /// Members are still applying the configuration.
    Running {
        /// Name of the member whose turn it is to apply the configuration, if any.
        turn: Option<String>,
    },
    /// A member failed to apply the configuration, or the MAC of the configuration's pointer is invalid.
    Stopped {
        /// Name of the member that failed or rejected the pointer.
        member: String,
        /// Why it failed or rejected the pointer.
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

/// Prefix of the text that reports different BGP communities of two directors. Routers still balance traffic across
/// both directors' routes (ECMP), unless their policies depend on these communities.
pub const COMMUNITIES_DIFFER: &str = "BGP communities ";

/// Prefix of the text that reports different MTUs of two directors.
pub const MTU_DIFFERS: &str = "MTU ";

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
            "{MTU_DIFFERS}{}, here {}",
            format_mtu(other_record.mtu),
            format_mtu(own_record.mtu)
        ));
    }
    if let (Some(own), Some(other)) = (&own_record.communities, &other_record.communities)
        && own != other
    {
        let list = |communities: &[String]| match communities {
            [] => "none".to_owned(),
            communities => communities.join(" "),
        };
        differences.push(format!(
            "{COMMUNITIES_DIFFER}{}, here {}",
            list(other),
            list(own)
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
        for (name, (record, last_seen)) in self.known_members() {
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
                absent_since: (!is_present).then_some(*last_seen),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> MemberRecord {
        MemberRecord {
            version: 3,
            digest: "ab12".to_owned(),
            instance: 1,
            identity: 1,
            weir: "0.2.0".to_owned(),
            features: vec!["[announce]".to_owned()],
            secrets: BTreeMap::from([("key of [sync]".to_owned(), "5f".to_owned())]),
            order: "77".to_owned(),
            mtu: Some(1500),
            communities: None,
            settled: None,
            staged: None,
            mac: "m1".to_owned(),
        }
    }

    #[test]
    fn each_difference_is_reported() {
        type Change = fn(&mut MemberRecord);
        // A change to the other record, its description, and the description if this director's record is changed
        // instead.
        let cases: [(Change, &[&str], &[&str]); 11] = [
            (
                |it| it.version = 4,
                &["configuration version 4, here version 3"],
                &["configuration version 3, here version 4"],
            ),
            (
                |it| it.digest = "cd34".to_owned(),
                &["a different configuration with version 3"],
                &["a different configuration with version 3"],
            ),
            (
                |it| it.weir = "0.3.0".to_owned(),
                &["weir 0.3.0, here 0.2.0"],
                &["weir 0.2.0, here 0.3.0"],
            ),
            (
                |it| {
                    let secrets = &mut it.secrets;
                    secrets.insert("key of [sync]".to_owned(), "6f".to_owned());
                },
                &["secret key of [sync] differs"],
                &["secret key of [sync] differs"],
            ),
            (
                |it| it.secrets.clear(),
                &["secret key of [sync] is missing"],
                &["secret key of [sync] is missing here"],
            ),
            (
                |it| it.order = "78".to_owned(),
                &["different servers, or servers in a different order"],
                &["different servers, or servers in a different order"],
            ),
            (
                |it| it.mtu = Some(9000),
                &["MTU 9000, here 1500"],
                &["MTU 1500, here 9000"],
            ),
            (
                |it| it.mtu = None,
                &["MTU none, here 1500"],
                &["MTU 1500, here none"],
            ),
            (
                |it| it.features.clear(),
                &["[announce] is missing"],
                &["[announce] is missing here"],
            ),
            (
                |it| it.features.push("[sync]".to_owned()),
                &["[sync] is missing here"],
                &["[sync] is missing"],
            ),
            // These fields differ between any two directors.
            (
                |it| (it.instance, it.identity, it.settled) = (2, 2, Some(5)),
                &[],
                &[],
            ),
        ];
        assert_eq!(find_differences(&record(), &record()), [""; 0]);
        for (change, expected, expected_reversed) in cases {
            let mut changed = record();
            change(&mut changed);
            assert_eq!(find_differences(&record(), &changed), expected);
            assert_eq!(find_differences(&changed, &record()), expected_reversed);
        }
    }

    #[test]
    fn different_communities_of_announcing_directors_are_reported() {
        let with = |communities: Option<&[&str]>| MemberRecord {
            communities: communities
                .map(|communities| communities.iter().map(|it| (*it).to_owned()).collect()),
            ..record()
        };
        let own = with(Some(&["65001:100"]));
        for (other, differences) in [
            (with(Some(&["65001:100"])), vec![]),
            (with(None), vec![]),
            (
                with(Some(&["65001:100", "65001:7"])),
                vec!["BGP communities 65001:100 65001:7, here 65001:100"],
            ),
            (
                with(Some(&[])),
                vec!["BGP communities none, here 65001:100"],
            ),
        ] {
            assert_eq!(find_differences(&own, &other), differences, "{other:?}");
        }
    }
}
