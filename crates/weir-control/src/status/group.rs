//! The group of directors in the status document.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use weir_cluster::{Link, RolloutState};
use weir_etcd::Driver;
use weir_model::Cluster;

use super::rfc3339;

/// `[cluster]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Version of the configuration that this director has applied; 0 = none.
    pub version: u64,
    /// The published version; 0 = none.
    pub published: u64,
    /// `unpublished`, `complete`, `running` or `stopped`.
    pub rollout: String,
    /// The director that applies it now, or that failed; absent otherwise, and while several apply it together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_member: Option<String>,
    /// Why the rollout was stopped; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_reason: Option<String>,
    /// `connected` or `away`: the group continues with what it has.
    pub etcd: String,
    /// The member of etcd in use.
    pub endpoint: String,
    /// Since when etcd does not answer; absent if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_since: Option<String>,
    /// Why etcd does not answer, or why this director is not a member; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Changes of this director that are not in etcd yet.
    pub pending: usize,
    /// All directors, by name.
    pub members: Vec<GroupMember>,
    /// Servers that are down for the group, `POOL/ADDRESS`, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<String>,
    /// VIPs that stay announced because no other director announces them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
}

/// A director.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// Its name.
    pub name: String,
    /// `present`, or `absent`: its lease has ended.
    pub state: String,
    /// Since when it is absent; absent if it is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The version of the configuration that it has applied; 0 = none.
    pub version: u64,
    /// Versions that it is behind the published one.
    pub lag: u64,
    /// Version of its program.
    pub weir: String,
    /// VIPs that it announces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announces: Vec<String>,
    /// The number of servers that its own checks report down.
    pub down: usize,
    /// How it differs from the director that reports this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
}

impl Group {
    /// What the machine of the group knows.
    pub(crate) fn of(config: &Cluster, driver: &Driver) -> Self {
        let name = config.name.clone();
        let Some((status, endpoint)) = driver.status() else {
            return Self::failed(config, None);
        };
        let ago = |moment: Duration| {
            let then = SystemTime::now().checked_sub(driver.age(moment));
            rfc3339(then.unwrap_or(SystemTime::UNIX_EPOCH))
        };
        let (rollout, rollout_member, rollout_reason) = match status.rollout {
            RolloutState::Unpublished => ("unpublished", None, None),
            RolloutState::Complete => ("complete", None, None),
            RolloutState::Running { turn } => ("running", turn, None),
            RolloutState::Stopped { member, reason } => ("stopped", Some(member), Some(reason)),
        };
        let (etcd, away_since, error) = match status.link {
            Link::Connected => ("connected", None, None),
            Link::Away { since, error } => ("away", Some(ago(since)), Some(error)),
        };
        let members = status.members.into_iter().map(|member| GroupMember {
            name: member.name,
            state: match member.absent_since {
                None => "present".to_owned(),
                Some(_) => "absent".to_owned(),
            },
            since: member.absent_since.map(ago),
            version: member.record.version,
            lag: member.lag,
            weir: member.record.weir,
            announces: member.announces.iter().map(ToString::to_string).collect(),
            down: member.down,
            differences: member.differences,
        });
        let down = status.down.into_iter();
        Self {
            name,
            version: status.version,
            published: status.published,
            rollout: rollout.to_owned(),
            rollout_member,
            rollout_reason,
            etcd: etcd.to_owned(),
            endpoint,
            away_since,
            error: status.refused.or(error),
            pending: status.pending,
            members: members.collect(),
            down: down
                .map(|(server, why)| format!("{server}: {why}"))
                .collect(),
            held: status.held.iter().map(ToString::to_string).collect(),
        }
    }

    /// Without a machine.
    pub(crate) fn failed(config: &Cluster, error: Option<&str>) -> Self {
        Self {
            name: config.name.clone(),
            rollout: "unpublished".to_owned(),
            etcd: "away".to_owned(),
            error: error.map(str::to_owned),
            ..Self::default()
        }
    }

    /// The text table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _ = write!(text, "group {}: version {}", self.name, self.version);
        if self.published != self.version {
            let _ = write!(text, " here, {} published", self.published);
        }
        let _ = write!(text, ", rollout {}", self.rollout);
        match (&self.rollout_member, &self.rollout_reason) {
            (Some(member), Some(reason)) => {
                let _ = write!(text, " by {member}: {reason}");
            }
            (Some(member), None) => {
                let _ = write!(text, ", {member} applies it");
            }
            (None, _) => {}
        }
        let _ = writeln!(text);
        let since = self
            .away_since
            .as_ref()
            .map_or(String::new(), |at| format!(" since {at}"));
        let error = self
            .error
            .as_ref()
            .map_or(String::new(), |it| format!(": {it}"));
        let _ = writeln!(text, "etcd {}: {}{since}{error}", self.endpoint, self.etcd);
        if self.pending > 0 {
            let _ = writeln!(text, "{} changes are not in etcd yet", self.pending);
        }
        let _ = writeln!(
            text,
            "{:<20}{:<10}{:>9}{:>6}{:>6}  {:<10}ANNOUNCES",
            "DIRECTOR", "STATE", "VERSION", "LAG", "DOWN", "WEIR"
        );
        for member in &self.members {
            let _ = writeln!(
                text,
                "{:<20}{:<10}{:>9}{:>6}{:>6}  {:<10}{}",
                member.name,
                member.state,
                member.version,
                member.lag,
                member.down,
                member.weir,
                member.announces.join(" ")
            );
            for difference in &member.differences {
                let _ = writeln!(text, "  differs: {difference}");
            }
        }
        for server in &self.down {
            let _ = writeln!(text, "{server}");
        }
        for vip in &self.held {
            let _ = writeln!(
                text,
                "{vip} stays announced: no other director announces it"
            );
        }
        text
    }
}
