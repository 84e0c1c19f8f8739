//! Determines server health by agreement: a server is down if a majority of the voting directors report it down.
//!
//! A director has a vote only if at least one of its checks succeeds: if all of them fail, the cause is probably local.
//! A single voter never decides for the others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::key::{Key, Keys};
use crate::record::sanitize_line;
use crate::store::Mirror;

/// Results of a member's own checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthView {
    /// Whether at least one checked server is up, which gives the member a vote.
    pub reaches: bool,
    /// Servers that are down, as `POOL/ADDRESS`, with the reasons.
    pub down: BTreeMap<String, String>,
}

/// Servers that the group considers down, as `POOL/ADDRESS`, with the reasons.
pub type Verdicts = BTreeMap<String, String>;

/// Minimum number of voters for a decision.
const MIN_VOTERS: usize = 2;

/// Returns the servers that a majority of the voters report down.
pub(crate) fn find_verdicts(keys: &Keys, mirror: &Mirror) -> Verdicts {
    let mut voters: Vec<(String, HealthView)> = Vec::new();
    for (name, _) in mirror.iter() {
        let Some(Key::Health(member)) = keys.parse(name) else {
            continue;
        };
        let is_member = mirror
            .get(&keys.name(&Key::Member(member.clone())))
            .is_some();
        if let Some(view) = mirror.read::<HealthView>(name)
            && is_member
            && view.reaches
        {
            voters.push((member, view));
        }
    }
    if voters.len() < MIN_VOTERS {
        return Verdicts::new();
    }
    let quorum = voters.len() / 2 + 1;
    let mut reports: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (member, view) in &voters {
        for (server, reason) in &view.down {
            let reports = reports.entry(server).or_default();
            reports.push((member, reason));
        }
    }
    let agreed = reports.into_iter().filter(|(_, it)| it.len() >= quorum);
    let voter_count = voters.len();
    agreed
        .map(|(server, reports)| {
            let (member, reason) = reports[0];
            let text = format!(
                "down according to {} of {voter_count} directors: {member}: {reason}",
                reports.len()
            );
            (server.to_owned(), sanitize_line(&text))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Entry;

    /// Returns the verdicts. Each view is that of one member: whether at least one server is up, and the servers that
    /// are down. Only the first `present` members are present.
    fn verdicts(views: &[(bool, &[&str])], present: usize) -> Verdicts {
        let keys = Keys::new("edge");
        let mut mirror = Mirror::default();
        let mut entries = Vec::new();
        for (index, (reaches, down)) in views.iter().enumerate() {
            let member = format!("lb{index}");
            let view = HealthView {
                reaches: *reaches,
                down: down
                    .iter()
                    .map(|it| ((*it).to_owned(), format!("refused by {member}")))
                    .collect(),
            };
            let mut put = |key: Key, value: Vec<u8>| {
                entries.push(Entry {
                    key: keys.name(&key),
                    value,
                    revision: 1,
                });
            };
            put(
                Key::Health(member.clone()),
                serde_json::to_vec(&view).unwrap(),
            );
            if index < present {
                put(Key::Member(member), b"{}".to_vec());
            }
        }
        mirror.replace(1, entries);
        find_verdicts(&keys, &mirror)
    }

    /// Returns the servers that are down by agreement of members that are all present.
    fn agreed(views: &[(bool, &[&str])]) -> Vec<String> {
        verdicts(views, views.len()).into_keys().collect()
    }

    #[test]
    fn majority_of_directors_that_reach_a_server_decides() {
        let (a, none): (&[&str], &[&str]) = (&["web/a"], &[]);
        assert_eq!(agreed(&[(true, a), (true, none), (true, none)]), [""; 0]);
        assert_eq!(agreed(&[(true, a), (true, a), (true, none)]), ["web/a"]);
        // A director that reaches no server has no vote.
        let all: &[&str] = &["web/a", "web/b"];
        assert_eq!(agreed(&[(false, all), (true, a), (true, a)]), ["web/a"]);
        assert_eq!(agreed(&[(false, all), (false, all), (true, none)]), [""; 0]);
        // Half of the voters are not a majority, and a single voter never decides.
        assert_eq!(agreed(&[(true, a), (true, none)]), [""; 0]);
        assert_eq!(agreed(&[(true, a)]), [""; 0]);
    }

    #[test]
    fn verdict_contains_votes_and_first_reason() {
        let (a, none): (&[&str], &[&str]) = (&["web/a"], &[]);
        let found = verdicts(&[(true, none), (true, a), (true, a)], 3);
        let text = "down according to 2 of 3 directors: lb1: refused by lb1";
        assert_eq!(found.get("web/a").map(String::as_str), Some(text));
    }

    #[test]
    fn absent_members_have_no_vote() {
        let a: &[&str] = &["web/a"];
        let views = [(true, a), (true, a), (true, a)];
        assert_eq!(verdicts(&views, 1), Verdicts::new());
        assert!(verdicts(&views, 2)["web/a"].starts_with("down according to 2 of 2"));
    }
}
