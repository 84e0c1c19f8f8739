//! Tests the commands and files for each speaker, and the order in which a driver sends routes.

use std::path::PathBuf;

use weir_model::RequiredServices;

use super::*;

pub(super) fn settings() -> Announce {
    Announce {
        speaker: Speaker::Exabgp {
            pipe: PathBuf::new(),
        },
        withdraw_after: Duration::from_secs(10),
        drain_delay: Duration::from_secs(5),
        services: None,
        require: RequiredServices::Any,
        communities: vec![Community(65001, 100)],
        drain_communities: vec![Announce::GRACEFUL_SHUTDOWN],
    }
}

pub(super) fn routes(routes: &[(&str, Quality)]) -> Routes {
    let routes = routes.iter();
    routes
        .map(|(vip, quality)| (vip.parse().unwrap(), *quality))
        .collect()
}

pub(super) fn vip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Runs `test` with a change from two VIPs to three: one VIP is withdrawn, one is drained and two are added.
pub(super) fn with_change<R>(test: impl FnOnce(&Change<'_>) -> R) -> R {
    let current = routes(&[
        ("192.0.2.10", Quality::LastResort),
        ("192.0.2.11", Quality::Normal),
        ("2001:db8::1", Quality::Normal),
    ]);
    test(&Change {
        settings: &settings(),
        removed: vec![vip("192.0.2.9")],
        added: current.clone().into_iter().collect(),
        routes: &current,
    })
}

#[test]
fn bird_file_lists_routes_of_both_families() {
    let text = with_change(bird::render);
    let (_, text) = text.split_once('\n').unwrap();
    assert_eq!(
        text,
        "protocol static weir4 {\n  ipv4;\n  \
         route 192.0.2.10/32 blackhole { bgp_community.add((65001,100)); bgp_community.add((65535,0)); };\n  \
         route 192.0.2.11/32 blackhole { bgp_community.add((65001,100)); };\n}\n\
         protocol static weir6 {\n  ipv6;\n  \
         route 2001:db8::1/128 blackhole { bgp_community.add((65001,100)); };\n}\n"
    );
}

#[test]
fn bird_outcome_is_parsed_from_line_with_space_after_code() {
    assert!(bird::parse_outcome("0002-Reading configuration from /etc/bird/bird.conf").is_none());
    assert!(bird::parse_outcome(" more").is_none());
    assert!(bird::parse_outcome("").is_none());
    assert!(
        bird::parse_outcome("0001 BIRD 2.0.12 ready.")
            .unwrap()
            .is_ok()
    );
    assert!(bird::parse_outcome("0003 Reconfigured").unwrap().is_ok());
    assert!(
        bird::parse_outcome("0004 Reconfiguration in progress")
            .unwrap()
            .is_ok()
    );
    let error = bird::parse_outcome("8002 /etc/bird/bird.conf:3:1 syntax error").unwrap();
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "bird: /etc/bird/bird.conf:3:1 syntax error");
}

#[test]
fn exabgp_commands_withdraw_first() {
    assert_eq!(
        with_change(exabgp::commands),
        [
            "withdraw route 192.0.2.9/32 next-hop self\n",
            "announce route 192.0.2.10/32 next-hop self origin igp community [65001:100 65535:0]\n",
            "announce route 192.0.2.11/32 next-hop self origin igp community [65001:100]\n",
            "announce route 2001:db8::1/128 next-hop self origin igp community [65001:100]\n",
        ]
    );
}

#[test]
fn gobgp_commands_contain_origin_and_next_hop() {
    let commands = with_change(|change| {
        let withdrawals = change.removed.iter().copied();
        let withdrawals = withdrawals.map(command::gobgp_withdrawal);
        let announcements = change.added.iter();
        let announcements =
            announcements.map(|(vip, quality)| command::gobgp_announcement(change, *vip, *quality));
        withdrawals.chain(announcements).collect::<Vec<_>>()
    });
    let commands: Vec<String> = commands.iter().map(|words| words.join(" ")).collect();
    assert_eq!(
        commands,
        [
            "global rib -a ipv4 del 192.0.2.9/32",
            "global rib -a ipv4 add 192.0.2.10/32 origin igp nexthop 0.0.0.0 community 65001:100,65535:0",
            "global rib -a ipv4 add 192.0.2.11/32 origin igp nexthop 0.0.0.0 community 65001:100",
            "global rib -a ipv6 add 2001:db8::1/128 origin igp nexthop :: community 65001:100",
        ]
    );
}

/// Returns settings for a GoBGP whose commands execute `script`.
fn gobgp(script: &str) -> Announce {
    let command = ["sh", "-c", script, "gobgp"].map(str::to_owned);
    Announce {
        speaker: Speaker::Gobgp {
            command: command.into(),
        },
        ..settings()
    }
}

#[tokio::test]
async fn all_routes_are_sent_to_speaker_that_may_have_lost_them() {
    let settings = gobgp("exit 0");
    let current = routes(&[("192.0.2.9", Quality::Normal)]);
    let mut driver = Driver::new([]);
    driver.apply(&settings, &current).await.unwrap();
    assert!(!driver.needs_step(&current));
    driver.refresh(&settings);
    assert!(driver.needs_step(&current));
    let change = driver.next_change(&settings, &current);
    assert_eq!(change.added, [(vip("192.0.2.9"), Quality::Normal)]);
}

#[tokio::test]
async fn step_sends_new_routes_first_and_failed_routes_last() {
    let settings = gobgp(r#"case "$6" in 192.0.2.7/32) exit 1;; esac"#);
    let mut current = routes(&[
        ("192.0.2.8", Quality::Normal),
        ("192.0.2.9", Quality::Normal),
    ]);
    let mut driver = Driver::new([]);
    let mut sent = Vec::new();
    for step in 0..7 {
        if step == 2 {
            driver.refresh(&settings);
            current.insert(vip("192.0.2.7"), Quality::Normal);
            current.insert(vip("192.0.2.10"), Quality::Normal);
        }
        let change = driver.next_change(&settings, &current);
        sent.extend(change.added.iter().map(|(vip, _)| vip.to_string()));
        let is_rejected = change.added[0].0 == vip("192.0.2.7");
        let result = driver.apply(&settings, &current).await;
        assert_eq!(result.is_err(), is_rejected, "{sent:?}");
    }
    let expected = ["8", "9", "7", "10", "8", "9", "7"].map(|it| format!("192.0.2.{it}"));
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn route_that_always_fails_does_not_block_other_failed_routes() {
    let current = routes(&[
        ("192.0.2.7", Quality::Normal),
        ("192.0.2.8", Quality::Normal),
        ("192.0.2.9", Quality::Normal),
    ]);
    let mut driver = Driver::new([]);
    let stopped_speaker = gobgp("exit 1");
    for _ in 0..3 {
        driver.apply(&stopped_speaker, &current).await.unwrap_err();
    }
    let rejecting = gobgp(r#"case "$6" in 192.0.2.7/32) exit 1;; esac"#);
    driver.apply(&rejecting, &current).await.unwrap_err();
    for _ in 0..2 {
        driver.apply(&rejecting, &current).await.unwrap();
    }
    assert!(driver.has_accepted(vip("192.0.2.8")) && driver.has_accepted(vip("192.0.2.9")));
    assert!(driver.has_failures());
}

#[tokio::test]
async fn routes_that_failed_command_may_have_announced_are_withdrawn() {
    let settings = Announce {
        speaker: Speaker::Gobgp {
            command: vec!["/nonexistent".to_owned()],
        },
        ..settings()
    };
    let mut driver = Driver::new([vip("192.0.2.9")]);
    let routes_to_announce = routes(&[("192.0.2.10", Quality::Normal)]);
    let error = driver
        .apply(&settings, &routes_to_announce)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
    assert_eq!(driver.announced_vips().count(), 2);
    for _ in 0..2 {
        let settings = gobgp("exit 0");
        driver.apply(&settings, &Routes::new()).await.unwrap();
    }
    assert_eq!(driver.announced_vips().count(), 0);
    assert!(!driver.needs_step(&Routes::new()));
}

#[tokio::test]
async fn speaker_that_is_not_running_has_no_routes() {
    let directory = std::env::temp_dir().join(format!("weir-retire-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let include = directory.join("weir.conf");
    std::fs::write(&include, "protocol static weir4 { }").unwrap();
    let bird = Speaker::Bird {
        socket: directory.join("bird.ctl"),
        include: include.clone(),
    };
    let exabgp = Speaker::Exabgp {
        pipe: directory.join("exabgp.in"),
    };
    let absent_speaker = Speaker::Gobgp {
        command: vec!["/nonexistent".to_owned()],
    };
    let refused = gobgp("echo 'dial tcp 127.0.0.1:50051: connect: connection refused'; exit 1");
    let silent_speaker = gobgp("echo 'context deadline exceeded'; exit 1");
    let script = "echo 'bgpd is not running' >&2; exit 1";
    let stopped_speaker = Speaker::Frr {
        command: ["sh", "-c", script, "vtysh"].map(str::to_owned).into(),
        asn: 65001,
        prefix_list: None,
    };
    let (refused, silent_speaker) = (refused.speaker, silent_speaker.speaker);
    for speaker in [
        bird,
        exabgp,
        absent_speaker,
        refused,
        silent_speaker,
        stopped_speaker,
    ] {
        let settings = Announce {
            speaker,
            ..settings()
        };
        let mut driver = Driver::new([vip("192.0.2.9")]);
        assert!(
            driver.retire(&settings, None).await.unwrap(),
            "{settings:?}"
        );
    }
    // BIRD would read the file when it starts.
    let text = std::fs::read_to_string(&include).unwrap();
    assert!(!text.contains("protocol"), "{text}");
    let mut driver = Driver::new([vip("192.0.2.9")]);
    driver.retire(&gobgp("exit 1"), None).await.unwrap_err();
    assert!(driver.retire(&gobgp("exit 0"), None).await.unwrap());
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn speakers_with_equal_command_or_bird_file_are_the_same() {
    let frr = |program: &str, asn| Speaker::Frr {
        command: vec![program.to_owned()],
        asn,
        prefix_list: None,
    };
    assert!(is_same(&frr("vtysh", 65001), &frr("vtysh", 65002)));
    assert!(!is_same(&frr("vtysh", 65001), &frr("/opt/vtysh", 65001)));
    let bird = |socket: &str, include: &str| Speaker::Bird {
        socket: PathBuf::from(socket),
        include: PathBuf::from(include),
    };
    let current = bird("/run/bird/bird.ctl", "/run/bird/weir.conf");
    let moved_speaker = bird("/var/run/bird/bird.ctl", "/run/bird/weir.conf");
    let other_speaker = bird("/run/bird/bird.ctl", "/run/bird/weir-a.conf");
    assert!(is_same(&current, &moved_speaker) && !is_same(&current, &other_speaker));
}

#[test]
fn pipe_at_bird_file_path_is_replaced() {
    let directory = std::env::temp_dir().join(format!("weir-bird-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let include = directory.join("weir.conf");
    let _ = std::fs::remove_file(&include);
    let status = std::process::Command::new("mkfifo").arg(&include).status();
    assert!(status.unwrap().success());
    let (sender, applied) = std::sync::mpsc::channel();
    let path = include.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        with_change(|change| runtime.block_on(bird::apply(&path.join("none"), &path, change)))
            .unwrap_err();
        sender.send(()).unwrap();
    });
    applied.recv_timeout(Duration::from_secs(10)).unwrap();
    let text = std::fs::read_to_string(&include).unwrap();
    assert_eq!(text, with_change(bird::render));
    std::fs::remove_dir_all(&directory).unwrap();
}
