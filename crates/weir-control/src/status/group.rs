//! Describes the group of directors in the status document.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use weir_cluster::{Link, RolloutState};
use weir_etcd::Driver;
use weir_model::Cluster;

use super::rfc3339;

/// The state of `[cluster]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// Version of the configuration that this director has applied; 0 = none.
    pub version: u64,
    /// Version of the published configuration; 0 = none.
    pub published: u64,
    /// `unpublished`, `complete`, `running` or `stopped`.
    pub rollout: String,
    /// The director that is applying the configuration or has failed to apply it; absent if there is none, and while
    /// several directors apply the configuration at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_member: Option<String>,
    /// Why the rollout was stopped; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_reason: Option<String>,
    /// `connected`, or `away` if etcd does not respond. The group then continues with its current state.
    pub etcd: String,
    /// The etcd endpoint in use.
    pub endpoint: String,
    /// When etcd stopped responding, in RFC 3339 format; absent if etcd responds.
    #[serde(
        default,
        rename = "away_since",
        skip_serializing_if = "Option::is_none"
    )]
    pub disconnected_since: Option<String>,
    /// Why etcd does not respond, or why this director is not a member; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why this director could not save the state that it uses while etcd does not respond, such as a full disk. The
    /// previously saved state is kept. Absent if the state was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
    /// Number of changes from this director that are not in etcd yet.
    pub pending: usize,
    /// All directors, by name.
    pub members: Vec<GroupMember>,
    /// Whether secrets that the directors have in common are not compared, because `group_key` is not set. Absent if
    /// they are compared, or if there are none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secrets_not_compared: bool,
    /// Paths of this director's certificate files that differ from the published ones, which the director uses. Absent
    /// if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing_files: Vec<String>,
    /// Servers that the group considers down: `POOL/ADDRESS: REASON`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<String>,
    /// VIPs that stay announced because no other director announces them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
}

/// A director of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// The director's name.
    pub name: String,
    /// `present`, or `absent` if its lease has expired.
    pub state: String,
    /// When the director became absent, in RFC 3339 format; omitted if the director is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Version of the configuration that the director has applied; 0 = none.
    pub version: u64,
    /// Number of versions that the director is behind the published version.
    pub lag: u64,
    /// The director's version of Weir.
    pub weir: String,
    /// VIPs that the director announces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announces: Vec<String>,
    /// Number of servers that are down according to the director's own checks.
    pub down: usize,
    /// Differences from the director that created this report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
}

impl Group {
    /// Returns the status as reported by the group's state machine.
    pub(crate) fn from_driver(config: &Cluster, driver: &Driver) -> Self {
        let name = config.name.clone();
        let Some((status, endpoint)) = driver.status() else {
            return Self::failed(config, None);
        };
        let to_rfc3339 = |moment: Duration| {
            let time = SystemTime::now().checked_sub(driver.age(moment));
            rfc3339(time.unwrap_or(SystemTime::UNIX_EPOCH))
        };
        let (rollout, rollout_member, rollout_reason) = match status.rollout {
            RolloutState::Unpublished => ("unpublished", None, None),
            RolloutState::Complete => ("complete", None, None),
            RolloutState::Running { turn } => ("running", turn, None),
            RolloutState::Stopped { member, reason } => ("stopped", Some(member), Some(reason)),
        };
        let (etcd, disconnected_since, error) = match status.link {
            Link::Connected => ("connected", None, None),
            Link::Disconnected { since, error } => ("away", Some(to_rfc3339(since)), Some(error)),
        };
        let members = status.members.into_iter().map(|member| GroupMember {
            name: member.name,
            state: match member.absent_since {
                None => "present".to_owned(),
                Some(_) => "absent".to_owned(),
            },
            since: member.absent_since.map(to_rfc3339),
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
            disconnected_since,
            error: status.refused.or(error),
            record_error: None,
            pending: status.pending,
            members: members.collect(),
            secrets_not_compared: false,
            differing_files: Vec::new(),
            down: down
                .map(|(server, reason)| format!("{server}: {reason}"))
                .collect(),
            held: status.held.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the status if the state machine is not running or has not reported its status yet.
    pub(crate) fn failed(config: &Cluster, error: Option<&str>) -> Self {
        Self {
            name: config.name.clone(),
            rollout: "unpublished".to_owned(),
            etcd: "away".to_owned(),
            error: error.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Returns the text table.
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
                let _ = write!(text, ", {member} is applying it");
            }
            (None, _) => {}
        }
        let _ = writeln!(text);
        let since = self
            .disconnected_since
            .as_ref()
            .map_or(String::new(), |since| format!(" since {since}"));
        let error = self
            .error
            .as_ref()
            .map_or(String::new(), |error| format!(": {error}"));
        let _ = writeln!(text, "etcd {}: {}{since}{error}", self.endpoint, self.etcd);
        if let Some(error) = &self.record_error {
            let _ = writeln!(text, "failed to save the group's state: {error}");
        }
        if self.pending > 0 {
            let verb = if self.pending == 1 {
                "change is"
            } else {
                "changes are"
            };
            let _ = writeln!(text, "{} {verb} not in etcd yet", self.pending);
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
        self.write_notes(&mut text);
        text
    }

    /// Writes the lines below the table.
    fn write_notes(&self, text: &mut String) {
        if self.secrets_not_compared {
            text.push_str("secrets are not compared: set `group_key` in [cluster]\n");
        }
        for path in &self.differing_files {
            let _ = writeln!(
                text,
                "{path} differs from the published file, which this director uses"
            );
        }
        for server in &self.down {
            let _ = writeln!(text, "down: {server}");
        }
        for vip in &self.held {
            let _ = writeln!(
                text,
                "{vip} stays announced: no other director announces it"
            );
        }
    }
}
