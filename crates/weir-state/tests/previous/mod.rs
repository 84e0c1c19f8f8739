//! Defines the types with which 0.1.0 reads and writes server state.
//!
//! They must not change while downgrades to 0.1.0 are supported.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test uses only some of them"
)]

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// An override, in all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OldOverride {
    Drain,
    Maint,
    Weight(u32),
}

pub type OldOverrides = BTreeMap<String, BTreeMap<String, OldOverride>>;

/// `proxy.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyFile {
    pub revision: u64,
    pub fingerprint: u64,
    pub words: OldOverrides,
}

/// The server state in `state.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFile {
    pub version: u32,
    #[serde(default)]
    pub number: u64,
    pub overrides: OldOverrides,
    #[serde(default)]
    pub standings: OldHealthStates,
}

/// The server state in a line of `state.journal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<(String, String, Option<OldOverride>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standings: Vec<(String, String, Option<OldHealth>)>,
}

/// The first line of `state.journal`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
    pub continues: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldHealthStates {
    #[serde(default)]
    pub servers: BTreeMap<String, BTreeMap<String, OldHealth>>,
    #[serde(default)]
    pub below_quorum: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldHealth {
    pub state: State,
    pub since_ms: u64,
    pub reason: String,
    pub remove: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, OldHealth>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    Up,
    Down,
}

/// The server state in `proxy-left.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OldHandover {
    pub standings: OldHealthStates,
    pub since: BTreeMap<String, BTreeMap<String, SystemTime>>,
}

/// Reads the journal as 0.1.0 does.
pub fn journal(text: &[u8], continues: u64) -> Vec<Record> {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let head = lines.next().map(serde_json::from_slice::<Head>);
    if !matches!(head, Some(Ok(head)) if head.continues == continues) {
        return Vec::new();
    }
    lines
        .take_while(|line| line.ends_with(b"\n"))
        .map_while(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// Returns the overrides of the layer 4 plane, as 0.1.0 reads them.
pub fn layer_4(state: &[u8], text: &[u8]) -> OldOverrides {
    let StateFile {
        number,
        mut overrides,
        ..
    } = serde_json::from_slice(state).expect("parse the state file with 0.1.0's types");
    for (pool, server, new_override) in journal(text, number)
        .into_iter()
        .flat_map(|it| it.overrides)
    {
        let pool_overrides = overrides.entry(pool).or_default();
        match new_override {
            Some(new_override) => drop(pool_overrides.insert(server, new_override)),
            None => drop(pool_overrides.remove(&server)),
        }
    }
    overrides.retain(|_, pool_overrides| !pool_overrides.is_empty());
    overrides
}
