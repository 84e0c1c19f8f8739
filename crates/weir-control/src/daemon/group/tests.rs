//! Tests the daemon's part of a group. Nothing responds at the address of etcd.

use std::fs;
use std::path::PathBuf;

use weir_config::{Host, parse};

use super::*;

const CLUSTER: &str =
    "[cluster]\nname = \"edge\"\nmember = \"lb1\"\netcd = [\"http://127.0.0.1:1\"]\n";

fn desired(text: &str) -> Desired {
    parse(text, &Host::default()).unwrap().desired
}

fn vip() -> IpAddr {
    [192, 0, 2, 10].into()
}

struct Fixture {
    directory: PathBuf,
    group: Group,
    desired: Desired,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("weir-group-{name}-{process}"));
        fs::create_dir_all(&directory).unwrap();
        Self {
            group: Group::new(&directory),
            desired: desired(&format!("{CLUSTER}[pool.web]\nservers = [\"10.0.0.5\"]\n")),
            directory,
        }
    }

    fn report(&mut self, serves: bool) {
        let vips = BTreeMap::from([(vip(), serves)]);
        self.group.report(&self.desired, vips, Some(1500));
    }

    fn decide(&mut self, held: &[IpAddr], withdrawn: &[IpAddr]) {
        let [held, withdrawn] = [held, withdrawn].map(|vips| vips.iter().copied().collect());
        self.group.set_decision(&held, &withdrawn);
        self.group.record_held_vips(held);
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn event(state: State) -> HealthEvent {
    HealthEvent {
        pool: "web".to_owned(),
        server: "10.0.0.5".to_owned(),
        server_health: Some(ServerHealth::new(state, Duration::ZERO)),
    }
}

#[test]
fn change_to_the_cluster_section_ends_verdicts() {
    let changed_section = CLUSTER.replace("[cluster]\n", "[cluster]\nagreement = false\n");
    for next in [None, desired(&changed_section).cluster] {
        let mut fixture = Fixture::new(&format!("verdicts-{}", next.is_some()));
        let group = &mut fixture.group;
        assert_eq!(group.configure(fixture.desired.cluster.as_ref()), []);
        group.apply_verdicts(vec![event(State::Up)]);
        let verdicts = [("web/10.0.0.5".to_owned(), "down for 2 of 3".to_owned())];
        let down = group.set_verdicts(verdicts.into());
        assert_eq!(
            down[0].server_health.as_ref().map(|health| health.state),
            Some(State::Down)
        );
        assert_eq!(group.configure(next.as_ref()), [event(State::Up)]);
    }
}

/// A `[cluster]` section that is added later uses the results of earlier checks.
#[test]
fn results_are_recorded_without_a_group() {
    let mut fixture = Fixture::new("results");
    fixture.group.apply_verdicts(vec![event(State::Up)]);
    fixture.group.configure(fixture.desired.cluster.as_ref());
    fixture.report(true);
    assert!(fixture.group.local_state.health.reaches);
}

#[test]
fn vip_stays_announced_until_decision() {
    let mut fixture = Fixture::new("decision");
    fixture.group.configure(fixture.desired.cluster.as_ref());
    fixture.report(true);
    fixture.report(false);
    assert!(fixture.group.must_announce(vip()));
    // This decision is older than the report.
    fixture.decide(&[], &[]);
    assert!(fixture.group.must_announce(vip()));
    fixture.decide(&[], &[vip()]);
    assert!(!fixture.group.must_announce(vip()));
}

#[test]
fn held_vip_stays_announced_after_reload_and_crash() {
    let mut fixture = Fixture::new("held");
    fixture.group.configure(fixture.desired.cluster.as_ref());
    fixture.report(true);
    fixture.report(false);
    fixture.decide(&[vip()], &[]);

    let changed_section = CLUSTER.replace("[cluster]\n", "[cluster]\nlease = \"20s\"\n");
    fixture
        .group
        .configure(desired(&changed_section).cluster.as_ref());
    assert!(fixture.group.must_announce(vip()));

    fixture.group = Group::new(&fixture.directory);
    fixture.group.configure(fixture.desired.cluster.as_ref());
    fixture.report(false);
    assert!(fixture.group.must_announce(vip()));

    fixture.group = Group::new(&fixture.directory);
    fixture.group.configure(None);
    fixture.report(false);
    assert!(!fixture.group.must_announce(vip()));

    // When Weir stops, the announcer withdraws all routes.
    fixture.group.configure(fixture.desired.cluster.as_ref());
    fixture.group.leave();
    fixture.group = Group::new(&fixture.directory);
    fixture.group.configure(fixture.desired.cluster.as_ref());
    assert!(!fixture.group.must_announce(vip()));
}

/// Only the first state machine of a process, and the first configuration, have a previous version to stage.
#[test]
fn previous_version_is_missing_until_it_is_staged() {
    let mut fixture = Fixture::new("previous");
    assert!(!fixture.group.lacks_previous_version());
    fixture.group.configure(fixture.desired.cluster.as_ref());
    assert!(fixture.group.lacks_previous_version());
    fixture.group.finish_staging_previous();
    assert!(!fixture.group.lacks_previous_version());
    let changed_section = CLUSTER.replace("[cluster]\n", "[cluster]\nlease = \"20s\"\n");
    fixture
        .group
        .configure(desired(&changed_section).cluster.as_ref());
    assert!(!fixture.group.lacks_previous_version());
    let (candidate, _) = fixture.group.apply(1, "", 0).unwrap();
    assert!(fixture.group.lacks_previous_version());
    fixture.group.finish_staging_previous();
    fixture.group.set_active(Some(candidate));
    fixture.group.apply(2, "", 0).unwrap();
    assert!(!fixture.group.lacks_previous_version());
}

#[test]
fn director_that_cannot_join_its_group_withdraws_vips() {
    let mut fixture = Fixture::new("cannot-join");
    let text = CLUSTER.replace("http://", "https://") + "ca = \"/nonexistent\"\n";
    fixture.group.configure(desired(&text).cluster.as_ref());
    assert!(fixture.group.error.is_some());
    fixture.report(true);
    fixture.report(false);
    assert!(!fixture.group.must_announce(vip()));
}

/// Without `group_key`, the status reports that secrets are not compared, if there are any.
#[test]
fn secrets_are_compared_only_with_group_key() {
    const SYNC: &str = "[sync]\nlisten = \"10.0.0.1:8482\"\npeers = [\"10.0.0.2:8482\"]\nkey = \"0123456789abcdef\"\n";
    let with_key = CLUSTER.replace(
        "[cluster]\n",
        "[cluster]\ngroup_key = \"sixteen bytes or more\"\n",
    );
    for (name, text, is_reported, compared) in [
        ("no-secrets", CLUSTER.to_owned(), false, 0),
        ("no-key", format!("{CLUSTER}{SYNC}"), true, 0),
        ("key", format!("{with_key}{SYNC}"), false, 1),
    ] {
        let mut fixture = Fixture::new(&format!("secrets-{name}"));
        fixture.desired = desired(&text);
        fixture.group.configure(fixture.desired.cluster.as_ref());
        fixture.report(true);
        let status = fixture.group.status().unwrap();
        assert_eq!(status.secrets_not_compared, is_reported, "{name}");
        let line = "secrets are not compared: set `group_key` in [cluster]";
        assert_eq!(status.table().contains(line), is_reported, "{name}");
        let record = &fixture.group.local_state.record;
        assert_eq!(record.secrets.len(), compared, "{name}");
        assert_eq!(record.mtu, Some(1500), "{name}");
    }
}
