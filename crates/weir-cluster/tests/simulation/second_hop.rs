//! Tests that no connection of a service with GUE breaks if a director dies during a rollout with a guard.
//!
//! The test uses the planner's tables: every other director selects the connection's server, or specifies it as the
//! second hop.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use super::Random;
use super::order::{DIRECTORS, Group, StagedVersion};
use super::store::TTL;
use weir_cluster::{Output, RolloutState};
use weir_model::{
    Cluster, Desired, Forward, Indexed, Listener, Pool, Ports, Protocol, Scheduler, SchedulerKind,
    Server, Service, TunnelKind,
};
use weir_planner::allocation::{Allocation, AllocationInput, PoolWeights};
use weir_planner::extent::{spread_table, tables};
use weir_planner::rows::rule;
use weir_sched::Cursor;

const DEST_ROWS: u32 = 64;
const MAX_SERVERS: u64 = 12;
const FLOWS: u64 = 2000;
const SCHEDULES: u64 = 30;
const GUARD_MS: u64 = 5000;

/// Returns the configuration with this text: the last bytes of the servers' addresses.
fn desired(text: &str) -> Desired {
    let mut pool = Pool::new("web");
    pool.scheduler = Some(Scheduler::new(SchedulerKind::Maglev));
    let servers = text.split_whitespace().map(|last| {
        let name = format!("10.0.0.{last}");
        Server::new(&name, name.parse().expect("parse address"), None)
    });
    pool.servers = servers.collect();
    let mut service = Service::new("web", Forward::Tunnel, "web");
    service.tunnel.kind = TunnelKind::Gue;
    service.listen.push(Listener {
        protocol: Protocol::Tcp,
        address: [192, 0, 2, 10].into(),
        ports: Ports::One(80),
    });
    Desired {
        cluster: Some(Cluster::new("edge")),
        pools: vec![pool],
        services: vec![service],
        ..Desired::default()
    }
}

/// The tables of a director.
#[derive(Clone, Default)]
struct Tables {
    allocation: Allocation,
    desired: Desired,
    present: Vec<IpAddr>,
    second_hop: Vec<Option<IpAddr>>,
}

impl Tables {
    fn apply(&mut self, text: &str) {
        self.desired = desired(text);
        self.update();
    }

    fn stage(&mut self, text: &str, replaces: bool) {
        if self.desired.set_other_version(&desired(text), replaces) {
            self.update();
        }
    }

    fn update(&mut self) {
        let desired = Indexed::from(self.desired.clone());
        let input = AllocationInput {
            service_rows: 4,
            dest_rows: DEST_ROWS,
            now_ms: 1,
            cursor: &|_| Cursor::default(),
            weights: &|_, pool| PoolWeights::from_config(pool),
        };
        let reconciled = self.allocation.reconcile(&desired, ["web"], &input);
        reconciled.expect("too few rows");
        let slot = &self.allocation.services["web"];
        let service = desired.service("web").expect("no service");
        let rule = rule(&desired, service, DEST_ROWS);
        let address = |id: &u32| {
            let mut dests = slot.dests.iter();
            dests.find(|dest| dest.id == *id).map(|dest| dest.address)
        };
        let present = spread_table(slot, &rule).expect("no table");
        self.present = present.iter().filter_map(address).collect();
        let tables = tables("web", slot, &rule).expect("no tables");
        self.second_hop = tables.former().iter().map(address).collect();
    }

    /// Returns the server of a new connection.
    fn server(&self, flow: u64) -> IpAddr {
        self.present[index(flow, self.present.len())]
    }

    /// Returns whether this director forwards packets of a connection that it does not know to the connection's server.
    fn finds(&self, flow: u64, server: IpAddr) -> bool {
        let second_hop = match self.second_hop.len() {
            0 => None,
            len => self.second_hop[index(flow, len)],
        };
        self.server(flow) == server || second_hop == Some(server)
    }
}

/// Returns the entry of a flow in a table, as `schedule_spread` in the data plane.
fn index(flow: u64, len: usize) -> usize {
    let hash = weir_model::mix_64(flow) >> 32;
    usize::try_from((hash * len as u64) >> 32).expect("index exceeds usize")
}

/// A group, the tables of its directors, and the servers of the connections.
struct Rollout {
    group: Group,
    tables: Vec<Tables>,
    /// Connections and their servers.
    connections: Vec<(u64, IpAddr)>,
    /// Number of director activations that have been carried out.
    activated: usize,
}

impl Rollout {
    /// Creates a group that has applied a configuration.
    fn new(text: &str) -> Self {
        let mut rollout = Self {
            group: Group::with_second_hop(),
            tables: vec![Tables::default(); DIRECTORS],
            connections: Vec::new(),
            activated: 0,
        };
        rollout.group.publish_text(text, 0);
        while let Some(n) = rollout.group.applying.first().copied() {
            rollout.group.finish(n, Ok(()));
        }
        rollout.group.wait(TTL);
        assert_eq!(rollout.group.rollout(), RolloutState::Complete);
        rollout.update();
        rollout.open_connections(0);
        rollout
    }

    /// Carries out the requests of the state machines, as the daemons would.
    fn update(&mut self) {
        for staged in std::mem::take(&mut self.group.staged) {
            let StagedVersion {
                director,
                text,
                replaces,
                started,
            } = staged;
            self.activate(started);
            self.tables[director].stage(&text, replaces);
        }
        self.activate(self.group.started.len());
    }

    /// Carries out the first `started` activations.
    fn activate(&mut self, started: usize) {
        for n in &self.group.started[self.activated..started] {
            let applied = self.group.applied[*n].as_ref();
            self.tables[*n].apply(&applied.expect("no configuration").text);
        }
        self.activated = started;
    }

    /// Opens a connection of each flow through a director.
    fn open_connections(&mut self, n: usize) {
        let tables = &self.tables[n];
        let connections = (0..FLOWS).map(|flow| (flow, tables.server(flow)));
        self.connections.extend(connections);
    }

    /// Returns the number of connections that break if all connections move to one of these directors, summed over the
    /// directors.
    fn broken_connections(&self, directors: impl Iterator<Item = usize>) -> usize {
        let lost = |n: usize| {
            let connections = self.connections.iter();
            connections.filter(move |(flow, server)| !self.tables[n].finds(*flow, *server))
        };
        directors.map(|n| lost(n).count()).sum()
    }
}

/// Returns the texts of two versions: servers are added, removed or both.
fn versions(random: &mut Random) -> (String, String) {
    let names: Vec<String> = (1..=MAX_SERVERS).map(|n| n.to_string()).collect();
    let first = usize::try_from(random.below(4)).expect("index exceeds usize");
    let last = first + 2 + usize::try_from(random.below(5)).expect("index exceeds usize");
    let (new_first, new_last) = match random.below(3) {
        0 => (first, last + 1),
        1 => (first, last - 1),
        _ => (first + 1, last + 1),
    };
    (
        names[first..last].join(" "),
        names[new_first..new_last].join(" "),
    )
}

fn run_schedule(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (first, second) = versions(&mut random);
    let mut rollout = Rollout::new(&first);
    rollout.group.publish_text(&second, GUARD_MS);
    let killed_turn = random.below(DIRECTORS as u64);
    for turn in 0..DIRECTORS as u64 {
        rollout.update();
        let holder = *rollout
            .group
            .applying
            .first()
            .expect("no director has the turn");
        rollout.open_connections(holder);
        let others = move || (0..DIRECTORS).filter(move |n| *n != holder);
        assert_eq!(
            rollout.broken_connections(others()),
            0,
            "turn {turn}: {first} to {second}"
        );
        if turn == killed_turn && random.chance(80) {
            rollout.group.kill(holder);
            rollout.group.wait(4 * TTL);
            rollout.update();
            let state = rollout.group.rollout_of(usize::from(holder == 0));
            assert!(matches!(state, RolloutState::Stopped { .. }), "{state:?}");
            assert_eq!(
                rollout.broken_connections(others()),
                0,
                "after the rollout stopped"
            );
            return;
        }
        rollout.group.finish(holder, Ok(()));
    }
    rollout.group.wait(TTL);
    rollout.update();
    assert_eq!(rollout.group.rollout(), RolloutState::Complete);
    assert_eq!(
        rollout.broken_connections(0..DIRECTORS),
        0,
        "after the rollout"
    );
}

#[test]
fn director_that_dies_during_a_guarded_rollout_breaks_no_connections() {
    for seed in 1..=SCHEDULES {
        let outcome = std::panic::catch_unwind(|| run_schedule(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// Returns a rollout that is complete, with connections that were opened after it, and a director that died afterwards
/// and has lost its state.
fn rollout_with_dead_director(guard_ms: u64) -> (Rollout, usize) {
    let mut rollout = Rollout::new("1 2 3");
    rollout.group.publish_text("1 2 3 4", guard_ms);
    while let Some(n) = rollout.group.applying.first().copied() {
        rollout.update();
        rollout.group.finish(n, Ok(()));
    }
    rollout.group.wait(TTL);
    rollout.update();
    rollout.open_connections(0);
    let dead = 3;
    rollout.group.kill(dead);
    rollout.group.wait(2 * TTL);
    rollout.group.applied[dead] = None;
    rollout.tables[dead] = Tables::default();
    (rollout, dead)
}

/// A director without any state joins after a rollout, and receives packets of connections that were opened before it.
#[test]
fn new_director_knows_the_previous_version() {
    let (mut rollout, new) = rollout_with_dead_director(0);
    rollout.group.start(new, 2, true);
    rollout.group.wait(Duration::from_secs(1));
    rollout.update();
    rollout.group.finish(new, Ok(()));
    rollout.group.wait(Duration::from_secs(1));
    rollout.update();
    assert_eq!(rollout.broken_connections(0..DIRECTORS), 0);
    // The garbage collection keeps the previous version.
    rollout.group.wait(Duration::from_secs(120));
    rollout.group.kill(new);
    rollout.tables[new] = Tables::default();
    rollout.group.start(new, 3, true);
    rollout.tables[new].apply("1 2 3 4");
    rollout.group.wait(Duration::from_secs(1));
    rollout.update();
    assert_eq!(rollout.broken_connections(0..DIRECTORS), 0);
}

/// A director without any state joins a group whose configuration has a guard. It may announce its VIPs before the
/// guard ends.
#[test]
fn new_director_knows_the_previous_version_before_the_guard_ends() {
    // Whether the director reports services with a second hop only after it has applied the configuration.
    for reports_later in [false, true] {
        let (mut rollout, new) = rollout_with_dead_director(GUARD_MS);
        let server = json!({"weight": 1});
        rollout.group.change_override("10.0.0.1", server);
        rollout.group.requests.clear();
        rollout.group.stages_versions = !reports_later;
        rollout.group.start(new, 2, true);
        rollout.group.wait(Duration::from_secs(1));
        if reports_later {
            assert_eq!(rollout.group.requests, [(new, "apply")]);
            rollout.group.report(new, true, true);
            rollout.group.wait(Duration::from_secs(1));
        }
        rollout.update();
        assert_eq!(rollout.broken_connections(0..DIRECTORS), 0);
        let expected = ["apply", "stage", "last changes", "previous staged"];
        assert_eq!(rollout.group.requests, expected.map(|it| (new, it)));
        rollout.group.finish(new, Ok(()));
        rollout.group.wait(Duration::from_secs(1));
        assert_eq!(rollout.group.requests, expected.map(|it| (new, it)));
    }
}

/// A director without a configuration has no previous version, so the state machine sends `PreviousStaged` at once, and
/// again after the first configuration.
#[test]
fn previous_version_is_staged_before_and_after_the_first_configuration() {
    let mut group = Group::with_second_hop();
    let first = |group: &Group| {
        let requests = group.requests.iter().filter(|(n, _)| *n == 0);
        requests.map(|(_, name)| *name).collect::<Vec<_>>()
    };
    assert_eq!(first(&group), ["previous staged"]);
    group.publish_text("1 2 3", 0);
    while let Some(n) = group.applying.first().copied() {
        group.finish(n, Ok(()));
    }
    let expected = ["previous staged", "apply", "previous staged"];
    assert_eq!(first(&group), expected);
    group.publish_text("1 2 3 4", 0);
    while let Some(n) = group.applying.first().copied() {
        group.finish(n, Ok(()));
    }
    assert_eq!(first(&group), [&expected[..], &["apply"]].concat());
}

#[test]
fn first_director_waits_until_all_directors_have_staged() {
    let mut rollout = Rollout::new("1 2 3");
    let started = rollout.group.started.len();
    rollout.group.stuck_staging.insert(5);
    rollout.group.publish_text("1 2 3 4", GUARD_MS);
    rollout.group.wait(Duration::from_secs(4));
    assert_eq!(rollout.group.started.len(), started);
    // The wait is bounded.
    rollout.group.wait(Duration::from_secs(2));
    assert_eq!(rollout.group.started.len(), started + 1);
}

#[test]
fn directors_do_not_stage_without_a_guard() {
    let mut rollout = Rollout::new("1 2 3");
    rollout.group.staged.clear();
    rollout.group.publish_text("1 2 3 4", 0);
    assert!(rollout.group.staged.is_empty() && rollout.group.applying.len() == 1);
}

/// A director without any state uses the table before the last override.
#[test]
fn new_director_knows_the_last_override() {
    let mut rollout = Rollout::new("1 2 3");
    let group = &mut rollout.group;
    group.change_override("10.0.0.1", json!({"weight": 3}));
    group.change_override("10.0.0.2", json!({"state": "drain"}));
    assert_eq!(group.last_changes, []);
    let new = 3;
    group.kill(new);
    group.wait(2 * TTL);
    group.applied[new] = None;
    group.start(new, 2, true);
    group.wait(Duration::from_secs(1));
    group.finish(new, Ok(()));
    group.wait(Duration::from_secs(1));
    let [(n, Output::LastChanges { changes, replaces })] = &group.last_changes[..] else {
        panic!("{:?}", group.last_changes)
    };
    assert_eq!((*n, *replaces, changes.len()), (new, true, 1));
    let (key, value) = &changes[0];
    assert_eq!(key.server, "10.0.0.2");
    assert_eq!(*value, json!({"state": "drain"}));
}
