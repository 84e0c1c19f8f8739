//! Tests that this build can read files of 0.1.0, and that the types of 0.1.0 can read files of this build.
//!
//! A running 0.1.0 wrote the fixtures, which contain a layer 4 service, a proxy service, overrides for both, and check
//! results. weir-control's tests read the whole files; these tests read only the server state.

mod previous;

use std::collections::BTreeMap;
use std::time::Duration;

use previous::{OldOverride, OldOverrides, ProxyFile, Record, State};
use weir_health::ServerHealth;
use weir_state::{
    Override, OverrideFile, Overrides, SavedHealth, SavedServerHealth, SavedServers, ServerStates,
};

const PROXY: &[u8] = include_bytes!("fixtures/v0.1.0/proxy.json");
const HANDOVER: &[u8] = include_bytes!("fixtures/v0.1.0/proxy-left.json");
const STATE: &[u8] = include_bytes!("fixtures/v0.1.0/state.json");
const JOURNAL: &[u8] = include_bytes!("fixtures/v0.1.0/state.journal");

fn to_old_overrides(overrides: &Overrides) -> OldOverrides {
    let text = serde_json::to_vec(overrides).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Returns the server state in the layer 4 plane's files, as read by this build.
fn read_saved_servers() -> SavedServers {
    #[derive(serde::Deserialize)]
    struct StateFile {
        number: u64,
        overrides: Overrides,
        #[serde(rename = "standings")]
        health_states: SavedHealth,
    }
    #[derive(serde::Deserialize)]
    struct Line {
        #[serde(default)]
        overrides: Vec<weir_state::OverrideRecord>,
        #[serde(default, rename = "standings")]
        health_states: Vec<weir_state::HealthRecord>,
    }
    let state: StateFile = serde_json::from_slice(STATE).unwrap();
    let mut saved = SavedServers {
        overrides: state.overrides,
        health_states: state.health_states,
        is_copy: false,
    };
    let mut lines = JOURNAL.split(|byte| *byte == b'\n');
    let head: previous::Head = serde_json::from_slice(lines.next().unwrap()).unwrap();
    assert_eq!(head.continues, state.number);
    for line in lines.filter(|line| !line.is_empty()) {
        let line: Line = serde_json::from_slice(line).unwrap();
        saved.replay(line.overrides, line.health_states);
    }
    saved
}

fn expected_overrides() -> Vec<(&'static str, &'static str, Override)> {
    vec![
        ("app", "127.0.0.1:7002", Override::Maint),
        ("web", "10.9.0.5", Override::Drain),
        ("web", "10.9.0.6", Override::Weight(7)),
    ]
}

#[test]
fn files_of_0_1_0_are_read() {
    let override_file = OverrideFile::parse(PROXY).unwrap();
    assert_eq!(override_file.revision, 1);
    assert_eq!(
        override_file.overrides.iter().collect::<Vec<_>>(),
        expected_overrides()
    );
    let saved = read_saved_servers();
    assert_eq!(
        saved.overrides.iter().collect::<Vec<_>>(),
        expected_overrides()
    );
    let mut states = ServerStates::restore(
        override_file.overrides.clone(),
        SavedHealth::default(),
        BTreeMap::new(),
    );
    assert!(!states.adopt(saved, true), "the overrides are the same");
    let down = states.server_health("web", "10.9.0.5").unwrap();
    assert_eq!(down.state, weir_health::State::Down);
    assert_eq!(down.reason, "10.9.0.5:80: no answer within 100ms");
    assert_eq!(down.since, Duration::from_millis(1_795_546_775_246));
    let up = states.server_health("app", "127.0.0.1:7001").unwrap();
    assert_eq!(up.state, weir_health::State::Up);
    assert!(
        states
            .suspended_servers()
            .contains(&("app".to_owned(), "127.0.0.1:7002".to_owned()))
    );
}

#[test]
fn handover_of_0_1_0_is_read() {
    #[derive(serde::Deserialize)]
    struct Handover {
        #[serde(rename = "standings")]
        health_states: SavedHealth,
    }
    let handover: Handover = serde_json::from_slice(HANDOVER).unwrap();
    assert_eq!(handover.health_states.below_quorum, ["web"]);
    assert_eq!(handover.health_states.servers["app"].len(), 2);
    let frozen: previous::OldHandover = serde_json::from_slice(HANDOVER).unwrap();
    let text = serde_json::to_vec(&handover.health_states).unwrap();
    let reread: previous::OldHealthStates = serde_json::from_slice(&text).unwrap();
    assert_eq!(reread, frozen.standings);
}

/// An override can be in only one of the two files of 0.1.0 if ipvsadm set the weight, or if the daemon was killed
/// during the change.
#[test]
fn overrides_of_both_files_of_0_1_0_are_merged() {
    let mut state = SavedServers::default();
    let record =
        |server: &str, new_override| ("web".to_owned(), server.to_owned(), Some(new_override));
    let records = vec![
        record("a", Override::Weight(5)),
        record("b", Override::Drain),
    ];
    state.replay(records, Vec::new());
    let mut override_file = SavedServers::default();
    let records = vec![record("b", Override::Maint), record("c", Override::Drain)];
    override_file.replay(records, Vec::new());
    let restored = || {
        let overrides = override_file.overrides.clone();
        ServerStates::restore(overrides, SavedHealth::default(), BTreeMap::new())
    };
    let mut states = restored();
    assert!(states.adopt(state.clone(), true));
    let merged: Vec<_> = states.overrides().iter().collect();
    let expected = [
        ("web", "a", Override::Weight(5)),
        ("web", "b", Override::Drain),
        ("web", "c", Override::Drain),
    ];
    assert_eq!(merged, expected);
    // The copy of this build adds nothing, unless the overrides file is lost.
    state.is_copy = true;
    let mut states = restored();
    assert!(!states.adopt(state.clone(), true));
    assert_eq!(states.overrides(), &override_file.overrides);
    let mut states = ServerStates::default();
    assert!(states.adopt(state.clone(), false));
    assert_eq!(states.overrides(), &state.overrides);
}

#[test]
fn override_file_is_read_by_0_1_0() {
    let mut states = ServerStates::default();
    states.adopt(read_saved_servers(), false);
    let file = OverrideFile {
        revision: 9,
        fingerprint: 10,
        overrides: states.overrides().clone(),
    };
    let frozen: ProxyFile = serde_json::from_slice(&file.to_json().unwrap()).unwrap();
    assert_eq!((frozen.revision, frozen.fingerprint), (9, 10));
    assert_eq!(frozen.words["web"]["10.9.0.6"], OldOverride::Weight(7));
    assert_eq!(frozen.words, to_old_overrides(states.overrides()));
    // This build reads files that 0.1.0 writes.
    let text = serde_json::to_vec(&frozen).unwrap();
    assert_eq!(OverrideFile::parse(&text).unwrap(), file);
}

#[test]
fn saved_servers_and_records_are_read_by_0_1_0() {
    let mut states = ServerStates::default();
    states.adopt(read_saved_servers(), false);
    let saved = states.saved_servers();
    let text = serde_json::to_vec(&saved.health_states).unwrap();
    let frozen: previous::OldHealthStates = serde_json::from_slice(&text).unwrap();
    assert_eq!(frozen.servers["web"].len(), 3);
    assert_eq!(frozen.servers["app"]["127.0.0.1:7001"].state, State::Up);
    let mut server_health = ServerHealth::new(weir_health::State::Down, Duration::from_millis(7));
    let path = ServerHealth::new(weir_health::State::Starting, Duration::from_millis(8));
    server_health.paths = BTreeMap::from([("web".to_owned(), path)]);
    server_health.remove = true;
    let (pool, server) = ("web", "a");
    let line = serde_json::json!({
        "overrides": [(pool, server, Some(Override::Weight(3))), (pool, server, None::<Override>)],
        "standings": [(pool, server, Some(SavedServerHealth::from(&server_health)))],
    });
    let record: Record = serde_json::from_value(line).unwrap();
    assert_eq!(record.overrides[0].2, Some(OldOverride::Weight(3)));
    assert_eq!(record.overrides[1].2, None);
    let frozen = record.standings[0].2.clone().unwrap();
    assert!(frozen.remove && frozen.since_ms == 7);
    assert_eq!(frozen.paths["web"].state, State::Starting);
}
