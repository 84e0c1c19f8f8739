//! Tests the announcer with fake speakers: shell commands that record their arguments.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use weir_announce::{Client, DaemonReport, VipState};
use weir_model::{Announce, RequiredServices, Speaker};

/// Limit for every condition that a test waits for.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An announcer with a daemon that reports to it, in a temporary directory.
struct Fixture {
    directory: PathBuf,
    announcer: JoinHandle<()>,
    client: Client,
    settings: Announce,
    /// Whether each VIP can serve.
    vips: BTreeMap<String, bool>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.announcer.abort();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn start_announcer(directory: &Path) -> JoinHandle<()> {
    let directory = directory.to_owned();
    tokio::spawn(async move {
        let configuration = directory.join("weir.toml");
        weir_announce::run(&directory, &configuration)
            .await
            .expect("run the announcer");
    })
}

impl Fixture {
    /// Starts an announcer in the directory of a test. The daemon does not report to it yet.
    fn start(test: &str, speaker: impl FnOnce(&Path) -> Speaker) -> Self {
        let name = format!("weir-announcer-{test}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("create a directory");
        Self {
            announcer: start_announcer(&directory),
            client: Client::new(&directory),
            settings: Announce {
                speaker: speaker(&directory),
                withdraw_after: Duration::from_secs(2),
                drain_delay: Duration::from_secs(5),
                services: None,
                require: RequiredServices::Any,
                communities: Vec::new(),
                drain_communities: Vec::new(),
            },
            vips: BTreeMap::new(),
            directory,
        }
    }

    /// Changes whether VIPs can serve, and makes the daemon report it.
    fn report(&mut self, vips: &[(&str, bool)]) {
        for (vip, serves) in vips {
            self.vips.insert((*vip).to_owned(), *serves);
        }
        let vips = self.vips.iter().map(|(vip, serves)| VipState {
            vip: vip.parse().expect("parse the address"),
            serves: *serves,
            reason: String::new(),
            settling: false,
        });
        self.client.send(Some(DaemonReport {
            settings: self.settings.clone(),
            vips: vips.collect(),
            is_draining: false,
        }));
    }

    /// Kills the announcer and the daemon.
    async fn kill(&mut self) {
        self.client = Client::new(&self.directory);
        self.announcer.abort();
        let _ = (&mut self.announcer).await;
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }

    /// Returns the lines that the speakers have logged.
    fn log(&self) -> Vec<String> {
        self.text("log").lines().map(str::to_owned).collect()
    }

    fn has_logged(&self, line: &str) -> bool {
        self.log().iter().any(|it| it == line)
    }

    async fn wait_for(&self, event: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !condition() {
            let (log, report) = (self.log(), self.client.report());
            assert!(
                Instant::now() < deadline,
                "no {event}: {log:#?}, {report:#?}"
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn wait_for_log(&self, line: &str) {
        self.wait_for(line, || self.has_logged(line)).await;
    }

    /// Waits until the announcer reports all VIPs that can serve as announced, and no error.
    async fn wait_for_success(&self) {
        let is_announced = || {
            let report = self.client.report().filter(|it| it.error.is_none());
            report.is_some_and(|report| {
                let announced = report.routes.iter().filter(|it| it.state == "announced");
                let serving = self.vips.values().filter(|serves| **serves);
                announced.count() == serving.count()
            })
        };
        self.wait_for("success", is_announced).await;
    }
}

/// A `gobgp` that writes a line `NAME ACTION PREFIX` to `log`, and then executes `script`, in which `$5` is the action
/// and `$6` is the prefix. It has no routes to show.
fn gobgp(directory: &Path, name: &str, script: &str) -> Speaker {
    let log = directory.join("log");
    let script = format!(
        "[ \"$6\" != -j ] || exit 1\necho \"{name} $5 $6\" >>{}\n{script}",
        log.display()
    );
    Speaker::Gobgp {
        command: ["sh", "-c", &script, "gobgp"].map(str::to_owned).into(),
    }
}

/// `vtysh` of an FRR whose `network` statements and static routes are files.
const VTYSH: &str = r#"
for line in "$@"; do
    address=${line##*network }
    address=${address##*route }
    address=${address%%/*}
    case $line in
        "no network "*)
            [ -e "network-$address" ] || { echo "% Can't find static route specified"; exit 1; }
            rm "network-$address" ;;
        "network "*) : >"network-$address" ;;
        "no ip route "*)
            [ -e "route-$address" ] || echo "% Refusing to remove a non-existent route"
            rm -f "route-$address" ;;
        "ip route "*) : >"route-$address" ;;
    esac
done
"#;

fn frr(directory: &Path) -> Speaker {
    let script = format!("cd {} || exit 1\n{VTYSH}", directory.display());
    Speaker::Frr {
        command: ["sh", "-c", &script, "vtysh"].map(str::to_owned).into(),
        asn: 65001,
        prefix_list: None,
    }
}

#[tokio::test]
async fn route_that_frr_lost_is_withdrawn_and_others_are_announced() {
    let mut fixture = Fixture::start("frr", frr);
    let (a, b) = ("192.0.2.1", "192.0.2.2");
    let path = |kind: &str, vip: &str| format!("{kind}-{vip}");
    let file =
        |fixture: &Fixture, kind: &str, vip: &str| fixture.directory.join(path(kind, vip)).exists();
    fixture.report(&[(a, true), (b, true)]);
    fixture.wait_for_success().await;
    assert!(file(&fixture, "network", a) && file(&fixture, "route", b));
    // FRR is restarted, and has lost its configuration.
    for (kind, vip) in [("network", a), ("network", b), ("route", a), ("route", b)] {
        fs::remove_file(fixture.directory.join(path(kind, vip))).expect("remove the file");
    }
    fixture.report(&[(a, false)]);
    fixture
        .wait_for("route to the other VIP", || file(&fixture, "network", b))
        .await;
    fixture.wait_for_success().await;
    assert!(file(&fixture, "route", b));
    assert!(!file(&fixture, "network", a) && !file(&fixture, "route", a));
    // Only some of the routes are missing.
    fs::remove_file(fixture.directory.join(path("network", b))).expect("remove the file");
    fixture.report(&[(b, false)]);
    fixture
        .wait_for("withdrawal", || !file(&fixture, "route", b))
        .await;
    fixture.wait_for_success().await;
}

#[tokio::test]
async fn route_that_cannot_be_withdrawn_does_not_block_others() {
    let script = r#"case "$5 $6" in "del 192.0.2.1/32") exit 1;; esac"#;
    let mut fixture = Fixture::start("stuck", |directory| gobgp(directory, "speaker", script));
    fixture.report(&[("192.0.2.1", true), ("192.0.2.2", true)]);
    fixture.wait_for_success().await;
    fixture.report(&[
        ("192.0.2.1", false),
        ("192.0.2.2", false),
        ("192.0.2.3", true),
    ]);
    fixture.wait_for_log("speaker del 192.0.2.2/32").await;
    fixture.wait_for_log("speaker add 192.0.2.3/32").await;
    let has_error = || {
        let report = fixture.client.report();
        report.is_some_and(|it| it.error.is_some())
    };
    fixture.wait_for("error", has_error).await;
}

/// Returns 60 VIPs. A speaker that takes 50 ms per VIP needs longer than `withdraw_after` for all of them.
fn many_vips() -> Vec<String> {
    (1..=60).map(|number| format!("192.0.2.{number}")).collect()
}

#[tokio::test]
async fn daemon_is_not_silent_while_speaker_is_slow() {
    let mut fixture = Fixture::start("slow", |directory| gobgp(directory, "slow", "sleep 0.05"));
    let vips = many_vips();
    let vips: Vec<(&str, bool)> = vips.iter().map(|vip| (vip.as_str(), true)).collect();
    fixture.report(&vips);
    // All routes are sent again after some time.
    let is_refreshed = || {
        let log = fixture.log();
        log.iter()
            .filter(|it| *it == "slow add 192.0.2.60/32")
            .count()
            >= 2
    };
    fixture.wait_for("second announcement", is_refreshed).await;
    fixture.wait_for_success().await;
    let log = fixture.log();
    assert!(!log.iter().any(|it| it.contains(" del ")), "{log:#?}");
}

#[tokio::test]
async fn withdrawal_does_not_wait_for_all_announcements() {
    let mut fixture = Fixture::start("order", |directory| gobgp(directory, "slow", "sleep 0.05"));
    let vips = many_vips();
    let vips: Vec<(&str, bool)> = vips.iter().map(|vip| (vip.as_str(), true)).collect();
    fixture.report(&vips);
    fixture.wait_for_log("slow add 192.0.2.1/32").await;
    fixture.report(&[("192.0.2.1", false)]);
    fixture.wait_for_log("slow del 192.0.2.1/32").await;
    fixture.wait_for_success().await;
    let log = fixture.log();
    let position = |line: &str| log.iter().position(|it| it == line);
    assert!(
        position("slow del 192.0.2.1/32") < position("slow add 192.0.2.60/32"),
        "{log:#?}"
    );
}

#[tokio::test]
async fn previous_speaker_withdraws_routes_before_new_speaker_announces_them() {
    let mut fixture = Fixture::start("change", |directory| gobgp(directory, "old", ""));
    fixture.report(&[("192.0.2.1", true), ("192.0.2.2", true)]);
    fixture.wait_for_success().await;
    fixture.settings.speaker = gobgp(&fixture.directory, "new", "");
    fixture.report(&[]);
    fixture.wait_for_log("new add 192.0.2.2/32").await;
    fixture.wait_for_success().await;
    let mut log = fixture.log();
    log.truncate(6);
    assert_eq!(
        log,
        [
            "old add 192.0.2.1/32",
            "old add 192.0.2.2/32",
            "old del 192.0.2.1/32",
            "old del 192.0.2.2/32",
            "new add 192.0.2.1/32",
            "new add 192.0.2.2/32",
        ]
    );
}

#[tokio::test]
async fn new_speaker_does_not_wait_for_previous_speaker_that_fails() {
    let mut fixture = Fixture::start("retry", |directory| {
        let flag = directory.join("fails");
        gobgp(directory, "old", &format!("! [ -e {} ]", flag.display()))
    });
    let flag = fixture.directory.join("fails");
    fixture.report(&[("192.0.2.1", true)]);
    fixture.wait_for_success().await;
    fs::write(&flag, "").expect("write the file");
    fixture.settings.speaker = gobgp(&fixture.directory, "new", "");
    fixture.report(&[]);
    fixture.wait_for_log("new add 192.0.2.1/32").await;
    let has_error = || {
        let error = fixture.client.report().and_then(|it| it.error);
        error.is_some_and(|it| it.contains("previous speaker"))
    };
    fixture.wait_for("error", has_error).await;
    fs::remove_file(&flag).expect("remove the file");
    fixture.wait_for_success().await;
    let last = |line: &str| fixture.log().iter().rposition(|it| it == line);
    // Both commands may reach the same speaker, so the routes are sent again after the late withdrawal.
    let is_sent_again = || last("new add 192.0.2.1/32") > last("old del 192.0.2.1/32");
    fixture.wait_for("announcement", is_sent_again).await;
}

/// Starts a fake BIRD that includes `weir*.conf`, and rejects a configuration that defines a protocol twice.
fn start_bird(directory: &Path) {
    let listener = UnixListener::bind(directory.join("bird.ctl")).expect("create the socket");
    let directory = directory.to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (reader, mut writer) = stream.into_split();
            let _ = writer.write_all(b"0001 BIRD 2.0.12 ready.\n").await;
            let mut line = String::new();
            let _ = BufReader::new(reader).read_line(&mut line).await;
            let files = ["weir.conf", "weir-a.conf"];
            let text: String = files
                .into_iter()
                .filter_map(|name| fs::read_to_string(directory.join(name)).ok())
                .collect();
            let reply = match text.matches("protocol static weir4 ").count() {
                0 | 1 => "0003 Reconfigured\n",
                _ => "8002 weir4 is already defined\n",
            };
            let _ = writer.write_all(reply.as_bytes()).await;
        }
    });
}

#[tokio::test]
async fn unused_include_file_of_bird_defines_no_protocol() {
    let bird = |directory: &Path, file: &str| Speaker::Bird {
        socket: directory.join("bird.ctl"),
        include: directory.join(file),
    };
    let mut fixture = Fixture::start("bird", |directory| bird(directory, "weir.conf"));
    start_bird(&fixture.directory);
    fixture.report(&[("192.0.2.1", true)]);
    fixture.wait_for_success().await;
    fixture.settings.speaker = bird(&fixture.directory, "weir-a.conf");
    fixture.report(&[]);
    let has_new_file = || fixture.text("weir-a.conf").contains("192.0.2.1/32");
    fixture.wait_for("new file", has_new_file).await;
    fixture.wait_for_success().await;
    let old = fixture.text("weir.conf");
    assert!(
        old.starts_with('#') && !old.contains("protocol"),
        "the old file must remain, without protocols: {old}"
    );
}

#[tokio::test]
async fn restarted_announcer_withdraws_routes_of_silent_daemon() {
    let mut fixture = Fixture::start("restart", |directory| gobgp(directory, "speaker", ""));
    fixture.report(&[("192.0.2.1", true), ("192.0.2.2", true)]);
    fixture.wait_for_success().await;
    // An earlier build can read the record.
    let vips: Vec<std::net::IpAddr> =
        serde_json::from_str(&fixture.text("announced.json")).expect("parse the record");
    assert_eq!(vips.len(), 2);
    fixture.kill().await;
    fixture.announcer = start_announcer(&fixture.directory);
    fixture.wait_for_log("speaker del 192.0.2.1/32").await;
    fixture.wait_for_log("speaker del 192.0.2.2/32").await;
}

#[tokio::test]
async fn record_without_settings_is_read() {
    let mut fixture = Fixture::start("record", |directory| gobgp(directory, "speaker", ""));
    fixture.kill().await;
    fs::write(fixture.directory.join("announced.json"), r#"["192.0.2.1"]"#).expect("write a file");
    fixture.announcer = start_announcer(&fixture.directory);
    fixture.report(&[("192.0.2.2", true)]);
    fixture.wait_for_log("speaker del 192.0.2.1/32").await;
    fixture.wait_for_success().await;
}
