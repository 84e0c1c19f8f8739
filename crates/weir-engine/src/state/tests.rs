//! Tests the state file with files of version 0.1.0, and with damaged files.

#[allow(
    clippy::duplicate_mod,
    reason = "each test module uses only a part of it"
)]
#[path = "../../../weir-state/tests/previous/mod.rs"]
mod previous;

use serde_json::Value;
use weir_model::{Pool, Server};
use weir_state::{Override, PoolState, ServerStates};

use super::*;

/// Creates a directory with state files of Weir 0.1.0 (see weir-state's `tests/formats.rs`), and returns its path.
fn write_fixtures(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    for (file, text) in [
        (
            STATE_FILE,
            include_str!("../../../weir-state/tests/fixtures/v0.1.0/state.json"),
        ),
        (
            JOURNAL_FILE,
            include_str!("../../../weir-state/tests/fixtures/v0.1.0/state.journal"),
        ),
    ] {
        fs::write(directory.join(file), text).unwrap();
    }
    directory
}

/// Returns whether `new` has all fields of `old`, with values of the same types.
fn covers(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .all(|(key, old)| new.get(key).is_some_and(|new| covers(old, new))),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| covers(old, new))
        }
        (old, new) => std::mem::discriminant(old) == std::mem::discriminant(new),
    }
}

#[test]
fn state_file_of_0_1_0_is_read_with_its_journal() {
    let directory = write_fixtures("state-read");
    let (_, saved) = read(&directory.join(STATE_FILE)).unwrap().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let StoredState { engine, servers } = saved;
    assert_eq!(engine.revision, 1);
    let dests = &engine.allocation.services["web"].dests;
    assert_eq!(
        (dests.len(), dests[0].down, dests[0].effective),
        (3, true, 0)
    );
    assert_eq!(engine.undo.neighbours.len(), 3);
    assert!(!servers.is_copy);
    let overrides: Vec<_> = servers.overrides.iter().collect();
    let expected = [
        ("app", "127.0.0.1:7002", Override::Maint),
        ("web", "10.9.0.5", Override::Drain),
        ("web", "10.9.0.6", Override::Weight(7)),
    ];
    assert_eq!(overrides, expected);
    assert_eq!(servers.health_states.servers["web"].len(), 3);
}

/// Within the hysteresis band, the usable weight alone does not determine the pool's state.
#[test]
fn pool_keeps_its_quorum_state_after_a_crash() {
    let mut pool = Pool::new("web");
    pool.servers = vec![Server::new("10.9.0.5", [10, 9, 0, 5].into(), None)];
    (pool.health.quorum, pool.health.quorum_hysteresis) = (10, 5);
    let mut restored_state = |weights: &[u32]| {
        let directory = write_fixtures("state-quorum");
        let (_, saved) = read(&directory.join(STATE_FILE)).unwrap().unwrap();
        let mut file = StateFile::new(&directory);
        file.write(&saved.engine, &SavedServers::default()).unwrap();
        let mut states = ServerStates::default();
        for weight in weights {
            pool.servers[0].weight = *weight;
            states.update_pool(&pool);
            file.record_below_quorum(states.below_quorum());
        }
        let (_, saved) = read(&directory.join(STATE_FILE)).unwrap().unwrap();
        let (text, journal) = (
            fs::read(directory.join(STATE_FILE)).unwrap(),
            fs::read(directory.join(JOURNAL_FILE)).unwrap(),
        );
        fs::remove_dir_all(&directory).unwrap();
        let old_state: previous::StateFile = serde_json::from_slice(&text).unwrap();
        let lines = previous::journal(&journal, old_state.number).len();
        let mut next = ServerStates::default();
        next.adopt(saved.servers, true);
        next.update_pool(&pool);
        (next.exceptional_state("web"), lines)
    };
    assert_eq!(restored_state(&[10]), (None, 0));
    let below = Some(PoolState::BelowQuorum);
    assert_eq!(restored_state(&[10, 4, 10]), (below, 1));
    assert_eq!(restored_state(&[4, 15, 10]), (None, 2));
}

#[test]
fn state_file_is_readable_by_0_1_0_and_marked_as_copy() {
    let directory = write_fixtures("state-written");
    let (_, saved) = read(&directory.join(STATE_FILE)).unwrap().unwrap();
    let mut states = ServerStates::default();
    states.adopt(saved.servers.clone(), false);
    let mut file = StateFile::new(&directory);
    file.write(&saved.engine, &states.saved_servers()).unwrap();
    let override_record = (
        "web".to_owned(),
        "10.9.0.7".to_owned(),
        Some(Override::Maint),
    );
    let record = Record {
        overrides: vec![override_record],
        ..Record::default()
    };
    file.append(&record).unwrap();
    let text = fs::read(directory.join(STATE_FILE)).unwrap();
    let journal = fs::read(directory.join(JOURNAL_FILE)).unwrap();
    let reread = read(&directory.join(STATE_FILE)).unwrap().unwrap().1;
    fs::remove_dir_all(&directory).unwrap();
    let overrides = previous::layer_4(&text, &journal);
    assert_eq!(
        overrides["web"]["10.9.0.6"],
        previous::OldOverride::Weight(7)
    );
    assert_eq!(overrides["web"]["10.9.0.7"], previous::OldOverride::Maint);
    let old_state: previous::StateFile = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (old_state.version, old_state.standings.servers.len()),
        (2, 2)
    );
    let old = include_str!("../../../weir-state/tests/fixtures/v0.1.0/state.json");
    let (old, new): (Value, Value) = (
        serde_json::from_str(old).unwrap(),
        serde_json::from_slice(&text).unwrap(),
    );
    for key in [
        "version",
        "boot",
        "number",
        "revision",
        "fingerprint",
        "allocation",
        "origin",
    ] {
        assert!(covers(&old[key], &new[key]), "{key}");
    }
    assert_eq!(reread.engine, saved.engine);
    assert!(reread.servers.is_copy);
}

#[test]
fn newer_damaged_and_missing_files_are_distinguished() {
    let path = std::env::temp_dir().join(format!("weir-state-limit-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    let newer = path.join("newer.json");
    fs::write(&newer, br#"{"version":3,"boot":""}"#).unwrap();
    assert!(matches!(read(&newer), Err(Unreadable::Newer(3))));
    fs::write(&newer, b"{").unwrap();
    assert!(matches!(read(&newer), Err(Unreadable::Content(_))));
    assert!(read(&path.join("none.json")).unwrap().is_none());
    fs::remove_dir_all(&path).unwrap();
}
