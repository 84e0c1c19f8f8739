use std::path::PathBuf;

use weir_model::RequiredServices;

use super::*;

fn settings() -> Announce {
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

fn routes(routes: &[(&str, Quality)]) -> Routes {
    let routes = routes.iter();
    routes
        .map(|(vip, quality)| (vip.parse().unwrap(), *quality))
        .collect()
}

/// Runs `test` with a change from two VIPs to three: one is withdrawn, one is drained, and two are new.
fn with_change<R>(test: impl FnOnce(&Change<'_>) -> R) -> R {
    let before = routes(&[
        ("192.0.2.9", Quality::Normal),
        ("192.0.2.10", Quality::Normal),
    ]);
    let now = routes(&[
        ("192.0.2.10", Quality::LastResort),
        ("192.0.2.11", Quality::Normal),
        ("2001:db8::1", Quality::Normal),
    ]);
    test(&Change {
        settings: &settings(),
        before: &before,
        resend: false,
        routes: &now,
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
fn last_line_of_bird_reply_has_a_space_after_the_code() {
    assert!(bird::reply("0002-Reading configuration from /etc/bird/bird.conf").is_none());
    assert!(bird::reply(" more").is_none());
    assert!(bird::reply("").is_none());
    assert!(bird::reply("0001 BIRD 2.0.12 ready.").unwrap().is_ok());
    assert!(bird::reply("0003 Reconfigured").unwrap().is_ok());
    assert!(
        bird::reply("0004 Reconfiguration in progress")
            .unwrap()
            .is_ok()
    );
    let error = bird::reply("8002 /etc/bird/bird.conf:3:1 syntax error").unwrap();
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
    let calls = with_change(command::gobgp_commands);
    let calls: Vec<String> = calls.iter().map(|words| words.join(" ")).collect();
    assert_eq!(
        calls,
        [
            "global rib -a ipv4 del 192.0.2.9/32",
            "global rib -a ipv4 add 192.0.2.10/32 origin igp nexthop 0.0.0.0 community 65001:100,65535:0",
            "global rib -a ipv4 add 192.0.2.11/32 origin igp nexthop 0.0.0.0 community 65001:100",
            "global rib -a ipv6 add 2001:db8::1/128 origin igp nexthop :: community 65001:100",
        ]
    );
}

#[test]
fn frr_uses_one_call_for_a_change() {
    let arguments = with_change(|change| command::frr_arguments(65001, change));
    let lines: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|it| *it != "-c")
        .collect();
    let at = |line: &str| {
        let found = lines.iter().position(|it| *it == line);
        found.unwrap_or_else(|| panic!("{line} in {lines:#?}"))
    };
    let order = [
        "set community 65001:100",
        "set community 65001:100 65535:0",
        "ip route 192.0.2.11/32 blackhole",
        "ipv6 route 2001:db8::1/128 blackhole",
        "router bgp 65001",
        "no network 192.0.2.9/32",
        "network 192.0.2.10/32 route-map WEIR-DRAIN",
        "network 192.0.2.11/32 route-map WEIR",
        "network 2001:db8::1/128 route-map WEIR",
        "no ip route 192.0.2.9/32 blackhole",
    ];
    let positions: Vec<usize> = order.into_iter().map(at).collect();
    assert!(positions.is_sorted(), "{lines:#?}");
}

/// All routes are sent to a speaker that may have lost them.
#[test]
fn uncertain_state_sends_all_routes() {
    let before = routes(&[
        ("192.0.2.9", Quality::Normal),
        ("192.0.2.10", Quality::Normal),
    ]);
    let now = routes(&[("192.0.2.10", Quality::Normal)]);
    for (resend, count) in [(false, 0), (true, 1)] {
        let change = Change {
            settings: &settings(),
            before: &before,
            resend,
            routes: &now,
        };
        assert_eq!(change.added().count(), count);
        assert_eq!(change.removed().count(), 1);
    }
}

/// Routes that a failed command may have announced are withdrawn later.
#[tokio::test]
async fn routes_of_a_failed_command_are_withdrawn() {
    let settings = Announce {
        speaker: Speaker::Gobgp {
            command: vec!["/nonexistent".to_owned()],
        },
        ..settings()
    };
    let mut driver = Driver::new(&["192.0.2.9".parse().unwrap()]);
    let now = routes(&[("192.0.2.10", Quality::Normal)]);
    let error = driver.apply(&settings, &now).await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
    assert_eq!(driver.announced().count(), 2);
    let settings = Announce {
        speaker: Speaker::Gobgp {
            command: vec!["true".to_owned()],
        },
        ..settings
    };
    driver.apply(&settings, &Routes::new()).await.unwrap();
    assert_eq!(driver.announced().count(), 0);
}

#[test]
fn pipe_in_place_of_the_bird_file_does_not_block() {
    let directory = std::env::temp_dir().join(format!("weir-bird-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let include = directory.join("weir.conf");
    let _ = std::fs::remove_file(&include);
    let made = std::process::Command::new("mkfifo").arg(&include).status();
    assert!(made.unwrap().success());
    let (sender, applied) = std::sync::mpsc::channel();
    let path = include.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        with_change(|change| runtime.block_on(bird::apply(&path.join("none"), &path, change))).ok();
        sender.send(()).unwrap();
    });
    applied.recv_timeout(Duration::from_secs(10)).unwrap();
    let text = std::fs::read_to_string(&include).unwrap();
    assert_eq!(text, with_change(bird::render));
    std::fs::remove_dir_all(&directory).unwrap();
}
