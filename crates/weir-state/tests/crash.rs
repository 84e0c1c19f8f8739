//! Simulates, with files in memory, a daemon that is killed at any byte of its writes or whose writes fail.
//!
//! The files are those of weir-control: `proxy.json` is replaced by rename, `state.json` is replaced in the same way
//! when a daemon starts, and `state.journal` is appended to. Each plane (layer 4 and proxy) is modeled by the weights
//! that were last applied to it; a killed daemon loses them.

mod previous;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use weir_model::{Pool, Server};
use weir_state::{
    Driver, Override, OverrideError, OverrideFile, OverrideRecord, Overrides, SavedHealth,
    SavedServers, ServerStates,
};

const NO_OVERRIDES: &[u8] = br#"{"revision":0,"fingerprint":0,"words":{}}"#;
const OVERRIDES: &str = "proxy.json";
const STATE: &str = "state.json";
const JOURNAL: &str = "state.journal";
const SERVERS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

/// Why a write or an update of a plane failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    NoSpace,
    Rejected,
}

/// Files in memory. Each written byte, each rename and each update of a plane is a step.
#[derive(Clone, Debug, Default)]
struct Files {
    files: BTreeMap<&'static str, Vec<u8>>,
    steps: usize,
    /// The process is killed before this step.
    kill_at: Option<usize>,
    /// The write with this number fails after half of its bytes.
    fail_at: Option<usize>,
    writes: usize,
}

impl Files {
    fn step(&mut self) -> Result<(), Fault> {
        if self.kill_at.is_some_and(|kill_at| self.steps >= kill_at) {
            return Err(Fault::Killed);
        }
        self.steps += 1;
        Ok(())
    }

    fn write(&mut self, name: &'static str, bytes: &[u8]) -> Result<(), Fault> {
        let number = self.writes;
        self.writes += 1;
        for (index, byte) in bytes.iter().enumerate() {
            if self.fail_at == Some(number) && index >= bytes.len() / 2 {
                return Err(Fault::NoSpace);
            }
            self.step()?;
            self.files.entry(name).or_default().push(*byte);
        }
        Ok(())
    }

    fn replace(&mut self, name: &'static str, bytes: &[u8]) -> Result<(), Fault> {
        const NEW: &str = "new";
        self.files.remove(NEW);
        self.write(NEW, bytes)?;
        self.step()?;
        let new = self.files.remove(NEW).unwrap_or_default();
        self.files.insert(name, new);
        Ok(())
    }

    /// Appends a line. If this fails, the partial line is removed, so that the next line is not appended to it.
    fn append(&mut self, name: &'static str, line: &[u8]) -> Result<(), Fault> {
        let length = self.files.entry(name).or_default().len();
        let result = self.write(name, line);
        if result == Err(Fault::NoSpace) {
            self.files.entry(name).or_default().truncate(length);
        }
        result
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(Vec::as_slice)
    }
}

#[derive(Default, Serialize, Deserialize)]
struct StateFile {
    version: u32,
    number: u64,
    overrides: Overrides,
    #[serde(default)]
    overrides_are_copied: bool,
    #[serde(rename = "standings")]
    health_states: SavedHealth,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(default)]
    overrides: Vec<OverrideRecord>,
}

fn pool() -> Pool {
    let mut pool = Pool::new("p");
    pool.servers = SERVERS
        .map(|name| Server {
            weight: 3,
            ..Server::new(name, name.parse().unwrap(), None)
        })
        .into();
    pool
}

/// The weights of a plane.
type Weights = Vec<u32>;

fn weights(states: &ServerStates, service: Option<&str>) -> Weights {
    let weights = states.weights(&pool(), service);
    weights
        .servers
        .iter()
        .map(|server| server.effective)
        .collect()
}

/// A daemon: server states and both planes.
#[derive(Clone, Debug)]
struct Daemon {
    states: ServerStates,
    planes: Planes,
}

#[derive(Clone, Debug, Default)]
struct Planes {
    files: Files,
    layer_4: Weights,
    proxy: Weights,
    /// Whether the layer 4 plane rejects the next update.
    rejects_next_update: bool,
}

impl Driver for Planes {
    type Error = Fault;

    fn record(&mut self, overrides: &Overrides) -> Result<(), Fault> {
        let file = OverrideFile {
            overrides: overrides.clone(),
            ..OverrideFile::default()
        };
        self.files.replace(OVERRIDES, &file.to_json().unwrap())
    }

    fn apply(&mut self, _: &str, states: &mut ServerStates) -> Result<(), Fault> {
        self.files.step()?;
        self.layer_4 = weights(states, Some("s"));
        if std::mem::take(&mut self.rejects_next_update) {
            return Err(Fault::Rejected);
        }
        self.files.step()?;
        self.proxy = weights(states, None);
        Ok(())
    }

    fn copy(&mut self, record: &OverrideRecord) {
        let line = Line {
            overrides: vec![record.clone()],
        };
        let mut text = serde_json::to_vec(&line).unwrap();
        text.push(b'\n');
        let _ = self.files.append(JOURNAL, &text);
    }
}

impl Daemon {
    /// Starts a daemon with these files.
    fn start(mut files: Files) -> Result<Self, Box<Files>> {
        let override_file = files
            .get(OVERRIDES)
            .map(|text| OverrideFile::parse(text).unwrap());
        let has_override_file = override_file.is_some();
        let overrides = override_file.unwrap_or_default().overrides;
        let (health_states, since) = (SavedHealth::default(), BTreeMap::new());
        let mut states = ServerStates::restore(overrides, health_states, since);
        let mut number = 0;
        if let Some(text) = files.get(STATE) {
            let state: StateFile = serde_json::from_slice(text).unwrap();
            number = state.number;
            let mut saved = SavedServers {
                overrides: state.overrides,
                health_states: state.health_states,
                is_copy: state.overrides_are_copied,
            };
            let journal = files.get(JOURNAL).unwrap_or_default();
            for line in previous::journal(journal, number) {
                let text = serde_json::to_vec(&line).unwrap();
                let line: Line = serde_json::from_slice(&text).unwrap();
                saved.replay(line.overrides, Vec::new());
            }
            if states.adopt(saved, has_override_file) {
                let mut planes = Planes {
                    files,
                    ..Planes::default()
                };
                let result = planes.record(states.overrides());
                files = planes.files;
                if result.is_err() {
                    return Err(Box::new(files));
                }
            }
        }
        let saved = states.saved_servers();
        let state = StateFile {
            version: 2,
            number: number + 1,
            overrides: saved.overrides,
            overrides_are_copied: saved.is_copy,
            health_states: saved.health_states,
        };
        let state = serde_json::to_vec(&state).unwrap();
        let head = previous::Head {
            continues: number + 1,
        };
        let mut head = serde_json::to_vec(&head).unwrap();
        head.push(b'\n');
        let result = files.replace(STATE, &state).and_then(|()| {
            files.files.insert(JOURNAL, Vec::new());
            files.append(JOURNAL, &head)
        });
        if result.is_err() {
            return Err(Box::new(files));
        }
        let planes = Planes {
            layer_4: weights(&states, Some("s")),
            proxy: weights(&states, None),
            files,
            ..Planes::default()
        };
        Ok(Self { states, planes })
    }

    fn set_override(
        &mut self,
        server: usize,
        new_override: Option<Override>,
    ) -> Result<bool, OverrideError<Fault>> {
        let now = Duration::from_secs(1);
        self.states
            .change_override(("p", SERVERS[server]), new_override, now, &mut self.planes)
    }

    fn into_files(mut self) -> Files {
        (self.planes.files.kill_at, self.planes.files.fail_at) = (None, None);
        self.planes.files
    }
}

/// Starts a daemon that is not killed.
fn restart(mut files: Files) -> Daemon {
    (files.kill_at, files.fail_at) = (None, None);
    Daemon::start(files).expect("write files")
}

fn expected(overrides: &[Option<Override>; 2]) -> Weights {
    let weight = |active: &Option<Override>| active.map_or(3, Override::weight);
    overrides.iter().map(weight).collect()
}

/// Returns whether both planes have the weights of these overrides.
fn has_applied(daemon: &Daemon, overrides: &[Option<Override>; 2]) -> bool {
    let weights = expected(overrides);
    daemon.planes.layer_4 == weights && daemon.planes.proxy == weights
}

fn override_change() -> impl Strategy<Value = (usize, Option<Override>)> {
    let new_override = prop_oneof![
        Just(None),
        Just(Some(Override::Drain)),
        Just(Some(Override::Maint)),
        (0u32..9).prop_map(|weight| Some(Override::Weight(weight))),
    ];
    (0usize..2, new_override)
}

/// Returns the files that 0.1.0 leaves after these changes. Only `state.json` has the last change.
fn files_of_0_1_0(changes: &[(usize, Option<Override>)]) -> Files {
    let mut files = Files::default();
    let overrides = |changes: &[(usize, Option<Override>)]| {
        let mut saved = SavedServers::default();
        for (server, new_override) in changes {
            let record = ("p".to_owned(), SERVERS[*server].to_owned(), *new_override);
            saved.replay(vec![record], Vec::new());
        }
        saved.overrides
    };
    let state = serde_json::json!({
        "version": 2, "number": 5, "overrides": overrides(changes), "standings": {},
    });
    files.replace(STATE, state.to_string().as_bytes()).unwrap();
    files.append(JOURNAL, b"{\"continues\":5}\n").unwrap();
    let file = OverrideFile {
        overrides: overrides(&changes[..changes.len().saturating_sub(1)]),
        ..OverrideFile::default()
    };
    files.replace(OVERRIDES, &file.to_json().unwrap()).unwrap();
    files
}

/// Kills the daemon at every step of a change. The next daemon has applied the change to both planes or to neither.
#[test]
fn restart_after_kill_applies_old_or_new_override_to_both_planes() {
    let mut daemon = restart(Files::default());
    daemon.set_override(0, Some(Override::Weight(7))).unwrap();
    let before = [Some(Override::Weight(7)), None];
    for (server, new_override) in [
        (0, Some(Override::Drain)),
        (0, None),
        (1, Some(Override::Maint)),
    ] {
        let mut after = before;
        after[server] = new_override;
        let first_step = daemon.planes.files.steps;
        let (mut old_count, mut new_count) = (0, 0);
        for kill_at in first_step.. {
            let mut killed = daemon.clone();
            killed.planes.files.kill_at = Some(kill_at);
            let result = killed.set_override(server, new_override);
            let is_done = killed.planes.files.steps < kill_at;
            let files = killed.into_files();
            let layer_4 = previous::layer_4(
                files.get(STATE).unwrap(),
                files.get(JOURNAL).unwrap_or_default(),
            );
            let next = restart(files);
            assert!(
                has_applied(&next, &before) || has_applied(&next, &after),
                "step {kill_at}: {next:?}"
            );
            if has_applied(&next, &after) {
                new_count += 1;
            } else {
                old_count += 1;
                assert!(
                    result.is_err(),
                    "step {kill_at}: a confirmed change is lost"
                );
            }
            assert!(
                layer_4.len() <= 1,
                "step {kill_at}: 0.1.0 cannot read the files"
            );
            if is_done {
                break;
            }
        }
        assert!(old_count > 10 && new_count > 10, "{old_count} {new_count}");
    }
}

/// Starts a daemon with files of 0.1.0 and kills it at every step. No override is lost.
#[test]
fn kill_during_an_upgrade_loses_no_override() {
    let changes = [(0, Some(Override::Drain)), (1, Some(Override::Weight(5)))];
    let files = files_of_0_1_0(&changes);
    let expected = [Some(Override::Drain), Some(Override::Weight(5))];
    for kill_at in files.steps.. {
        let mut killed = files.clone();
        killed.kill_at = Some(kill_at);
        let (files, is_done) = match Daemon::start(killed) {
            Ok(daemon) => (daemon.into_files(), true),
            Err(files) => (*files, false),
        };
        let daemon = restart(files);
        assert!(has_applied(&daemon, &expected), "step {kill_at}");
        if is_done {
            assert!(kill_at > files_of_0_1_0(&changes).steps + 100);
            break;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]

    /// Makes random changes and kills the daemon at a random step.
    #[test]
    fn overrides_survive_a_kill(
        changes in proptest::collection::vec(override_change(), 1..12),
        kill_at in 0usize..4_000,
    ) {
        let mut daemon = restart(Files::default());
        daemon.planes.files.kill_at = Some(daemon.planes.files.steps + kill_at);
        let (mut before, mut after) = ([None, None], [None, None]);
        for (server, new_override) in changes {
            after[server] = new_override;
            match daemon.set_override(server, new_override) {
                Ok(_) => before = after,
                Err(_) => break,
            }
        }
        let files = daemon.into_files();
        let next = restart(files.clone());
        prop_assert!(has_applied(&next, &before) || has_applied(&next, &after));
        // A downgrade after the new daemon has started results in the same overrides in both planes.
        let files = next.into_files();
        let layer_4 = previous::layer_4(files.get(STATE).unwrap(), files.get(JOURNAL).unwrap());
        let proxy: previous::ProxyFile = serde_json::from_slice(files.get(OVERRIDES).unwrap_or(NO_OVERRIDES)).unwrap();
        prop_assert_eq!(layer_4, proxy.words);
    }

/// Makes random changes. At most one write fails, and a plane rejects at most one update. A failed change affects
    /// neither plane, unless its rollback fails too; then the next daemon applies it.
    #[test]
    fn failed_change_leaves_both_planes_consistent(
        changes in proptest::collection::vec(override_change(), 1..12),
        fail_at in 0usize..20,
        rejected_change in proptest::option::of(0usize..12),
    ) {
        let mut daemon = restart(Files::default());
        daemon.planes.files.fail_at = Some(daemon.planes.files.writes + fail_at);
        let mut active = [None, None];
        for (number, (server, new_override)) in changes.into_iter().enumerate() {
            daemon.planes.rejects_next_update = rejected_change == Some(number);
            match daemon.set_override(server, new_override) {
                Ok(_) => active[server] = new_override,
                // The change was recorded but not applied, so the next daemon applies it.
                Err(OverrideError::RollbackFailed { .. }) => {
                    prop_assert!(has_applied(&daemon, &active));
                    active[server] = new_override;
                    break;
                }
                Err(_) => {}
            }
            prop_assert!(has_applied(&daemon, &active), "{:?} {:?}", daemon.planes, active);
        }
        prop_assert!(has_applied(&restart(daemon.into_files()), &active));
    }
}
