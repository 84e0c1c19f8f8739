//! Tests the announcer's state with shell commands in place of speakers.

use std::fs;
use std::path::PathBuf;

use weir_model::{RequiredServices, Speaker};

use super::*;
use crate::message::VipState;

/// Returns a directory that does not exist yet.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

fn log(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns a report with the VIPs 192.0.2.1 and 192.0.2.2. The speaker is a `gobgp` that writes to `log`.
fn daemon_report(directory: &Path) -> DaemonReport {
    let script = format!("echo \"$5 $6\" >>{}/log", directory.display());
    let command = ["sh", "-c", &script, "gobgp"].map(str::to_owned);
    DaemonReport {
        settings: Announce {
            speaker: Speaker::Gobgp {
                command: command.into(),
            },
            withdraw_after: Duration::from_secs(2),
            drain_delay: Duration::from_secs(5),
            services: None,
            require: RequiredServices::Any,
            communities: Vec::new(),
            drain_communities: Vec::new(),
        },
        vips: ["192.0.2.1", "192.0.2.2"]
            .map(|vip| VipState {
                vip: vip.parse().unwrap(),
                serves: true,
                reason: String::new(),
                settling: false,
            })
            .into(),
        is_draining: false,
    }
}

/// Runs an announcer until it has announced the VIPs, and then drops it without withdrawing them.
async fn announce(directory: &Path) {
    fs::create_dir(directory).unwrap();
    let mut announcer = Announcer::new(directory);
    announcer
        .handle_daemon_report(&daemon_report(directory))
        .await;
    while announcer.needs_step() {
        announcer.handle_timeout().await;
    }
    assert_eq!(log(directory), ["add 192.0.2.1/32", "add 192.0.2.2/32"]);
    fs::remove_file(directory.join("log")).unwrap();
}

/// Returns the script of the `gobgp` in the settings that an earlier announcer recorded.
fn recorded_script(announcer: &mut Announcer) -> &mut String {
    match &mut announcer.settings {
        Some(Announce {
            speaker: Speaker::Gobgp { command },
            ..
        }) => &mut command[2],
        settings => panic!("no settings of GoBGP: {settings:?}"),
    }
}

#[tokio::test]
async fn announcer_that_is_stopped_before_first_report_withdraws_recorded_routes() {
    let directory = directory("announcer-stop");
    announce(&directory).await;
    let mut announcer = Announcer::new(&directory);
    // The recorded routes may no longer be correct, so they are not sent again.
    announcer.handle_timeout().await;
    assert_eq!(log(&directory), [""; 0]);
    announcer.withdraw_all().await;
    assert_eq!(log(&directory), ["del 192.0.2.1/32", "del 192.0.2.2/32"]);
    assert!(Record::read(&directory).vips().is_empty());
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn route_that_cannot_be_withdrawn_does_not_block_others_when_announcer_is_stopped() {
    let directory = directory("announcer-stuck");
    announce(&directory).await;
    let mut announcer = Announcer::new(&directory);
    recorded_script(&mut announcer).push_str("; [ $6 != 192.0.2.1/32 ]");
    announcer.withdraw_all().await;
    let log = log(&directory);
    assert!(log.contains(&"del 192.0.2.2/32".to_owned()), "{log:#?}");
    let record = Record::read(&directory);
    assert_eq!(record.vips().iter().next(), Some(&[192, 0, 2, 1].into()));
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn route_is_reported_as_announced_only_after_speaker_has_accepted_it() {
    let directory = directory("announcer-report");
    fs::create_dir(&directory).unwrap();
    let mut announcer = Announcer::new(&directory);
    let report = announcer
        .handle_daemon_report(&daemon_report(&directory))
        .await;
    let states = |report: Report| report.routes.into_iter().map(|it| it.state);
    assert!(states(report).eq(["announced", WITHDRAWN]));
    announcer.handle_timeout().await;
    assert!(states(announcer.report()).eq(["announced", "announced"]));
    fs::remove_dir_all(&directory).unwrap();
}

/// An announcer without settings cannot do anything before it receives the first report.
#[tokio::test]
async fn announcer_without_record_sleeps_until_first_report() {
    let directory = directory("announcer-idle");
    fs::create_dir(&directory).unwrap();
    let mut announcer = Announcer::new(&directory);
    announcer.refresh_at = Instant::now();
    announcer.handle_timeout().await;
    assert!(!announcer.pause().is_zero());
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn routes_of_previous_speaker_are_withdrawn_by_the_next_announcer() {
    let directory = directory("announcer-previous");
    announce(&directory).await;
    let flag = directory.join("running");
    let mut new_report = daemon_report(&directory);
    new_report.settings.speaker = Speaker::Bird {
        socket: directory.join("bird.ctl"),
        include: directory.join("bird.conf"),
    };
    // The previous speaker rejects all commands of the second announcer.
    let mut announcer = Announcer::new(&directory);
    let script = recorded_script(&mut announcer);
    script.insert_str(0, &format!("[ -e {} ] || exit 1; ", flag.display()));
    let report = announcer.handle_daemon_report(&new_report).await;
    let error = report.error.unwrap();
    assert!(error.contains("bird.ctl"), "{error}");
    assert_eq!(log(&directory), [""; 0]);
    drop(announcer);
    fs::write(&flag, "").unwrap();
    let mut announcer = Announcer::new(&directory);
    announcer.handle_timeout().await;
    announcer.handle_timeout().await;
    assert_eq!(log(&directory), ["del 192.0.2.1/32", "del 192.0.2.2/32"]);
    assert!(Record::read(&directory).speakers().previous.is_empty());
    fs::remove_dir_all(&directory).unwrap();
}

/// A command of a GoBGP whose routes are files in the directory `rib`. It writes a line `NAME ACTION PREFIX` to `log`
/// for each change. It fails while a file `NAME-fails` exists.
fn gobgp_with_routes(directory: &Path, name: &str, rib: &str) -> Speaker {
    let directory = directory.display();
    let script = format!(
        r#"cd {directory} || exit 1
        [ ! -e {name}-fails ] || exit 1
        mkdir -p {rib}
        case "$6" in
            -j) cat "{rib}/${{5%/*}}" || {{ echo "Network not in table"; exit 1; }}; exit ;;
        esac
        echo "{name} $5 $6" >>log
        case "$5" in
            add) echo "$6 $(date +%s%N)" >"{rib}/${{6%/*}}" ;;
            del) rm -f "{rib}/${{6%/*}}" ;;
        esac"#
    );
    Speaker::Gobgp {
        command: ["sh", "-c", &script, "gobgp"].map(str::to_owned).into(),
    }
}

/// Announces the VIPs through the command `old`, and then through the command `new`, while `old` fails. Then makes
/// `old` withdraw its routes. Returns the commands since then.
async fn log_of_late_withdrawal(directory: &Path, old_rib: &str, new_rib: &str) -> Vec<String> {
    fs::create_dir(directory).unwrap();
    let mut report = daemon_report(directory);
    let mut announcer = Announcer::new(directory);
    for (name, rib) in [("old", old_rib), ("new", new_rib)] {
        report.settings.speaker = gobgp_with_routes(directory, name, rib);
        announcer.handle_daemon_report(&report).await;
        while announcer.needs_step() {
            announcer.handle_timeout().await;
        }
        fs::write(directory.join("old-fails"), "").unwrap();
    }
    fs::remove_file(directory.join("old-fails")).unwrap();
    fs::remove_file(directory.join("log")).unwrap();
    announcer.previous[0].retry_at = Some(Instant::now());
    while !announcer.previous.is_empty() || announcer.needs_step() {
        announcer.handle_timeout().await;
    }
    log(directory)
}

#[tokio::test]
async fn late_withdrawal_keeps_routes_that_the_same_gobgp_announces() {
    let directory = directory("announcer-same");
    let log = log_of_late_withdrawal(&directory, "rib", "rib").await;
    assert!(!log.iter().any(|it| it.contains(" del ")), "{log:#?}");
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn each_late_withdrawal_is_followed_by_announcement() {
    let directory = directory("announcer-late");
    let log = log_of_late_withdrawal(&directory, "old-rib", "new-rib").await;
    for commands in log[..4].chunks(2) {
        assert!(commands[0].starts_with("old del "), "{log:#?}");
        assert_eq!(commands[1], commands[0].replace("old del", "new add"));
    }
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn changed_command_for_the_same_gobgp_withdraws_no_route() {
    let directory = directory("announcer-option");
    fs::create_dir(&directory).unwrap();
    let mut report = daemon_report(&directory);
    let mut announcer = Announcer::new(&directory);
    for name in ["old", "new"] {
        report.settings.speaker = gobgp_with_routes(&directory, name, "rib");
        announcer.handle_daemon_report(&report).await;
        while announcer.needs_step() || !announcer.previous.is_empty() {
            announcer.handle_timeout().await;
        }
    }
    let log = log(&directory);
    assert!(!log.iter().any(|it| it.contains(" del ")), "{log:#?}");
    // The new command withdraws the routes that it has taken over.
    announcer.withdraw_all().await;
    assert!(
        fs::read_dir(directory.join("rib"))
            .unwrap()
            .next()
            .is_none()
    );
    assert_eq!(announcer.announced_vip_count(), 0);
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn stop_does_not_try_every_route_of_speaker_that_is_not_running() {
    let directory = directory("announcer-stopped");
    fs::create_dir(&directory).unwrap();
    let mut report = daemon_report(&directory);
    report.vips = (1..=5)
        .map(|number| VipState {
            vip: [192, 0, 2, number].into(),
            ..report.vips[0].clone()
        })
        .collect();
    let mut announcer = Announcer::new(&directory);
    announcer.handle_daemon_report(&report).await;
    while announcer.needs_step() {
        announcer.handle_timeout().await;
    }
    fs::remove_file(directory.join("log")).unwrap();
    recorded_script(&mut announcer).push_str("; echo connection refused; exit 1");
    announcer.withdraw_all().await;
    assert_eq!(log(&directory).len(), MAX_NOT_RUNNING);
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn interrupted_withdrawal_can_be_continued() {
    let directory = directory("announcer-interrupted");
    announce(&directory).await;
    let mut announcer = Announcer::new(&directory);
    let script = recorded_script(&mut announcer).clone();
    recorded_script(&mut announcer).insert_str(0, "exec sleep 60; ");
    let limit = Duration::from_millis(50);
    let result = tokio::time::timeout(limit, announcer.withdraw_all()).await;
    assert!(result.is_err());
    assert_eq!(announcer.announced_vip_count(), 2);
    *recorded_script(&mut announcer) = script;
    announcer.withdraw_all().await;
    assert_eq!(announcer.announced_vip_count(), 0);
    assert!(Record::read(&directory).vips().is_empty());
    fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn next_announcer_reports_when_vips_were_announced() {
    let directory = directory("announcer-since");
    announce(&directory).await;
    let mut record = Record::read(&directory);
    let mut speakers = record.speakers().clone();
    assert_eq!(speakers.since.len(), 2);
    speakers.since.values_mut().for_each(|since| *since = 1000);
    record.write_speakers(speakers);
    let mut announcer = Announcer::new(&directory);
    announcer
        .handle_daemon_report(&daemon_report(&directory))
        .await;
    while announcer.needs_step() {
        announcer.handle_timeout().await;
    }
    let since = announcer.report().routes.into_iter();
    assert!(since.map(|it| it.since_ms).eq([1000, 1000]));
    fs::remove_dir_all(&directory).unwrap();
}
