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

/// Runs `test` with a change from two VIPs to three: one VIP is withdrawn, one is drained and two are added.
fn with_change<R>(test: impl FnOnce(&Change<'_>) -> R) -> R {
    let previous = routes(&[
        ("192.0.2.9", Quality::Normal),
        ("192.0.2.10", Quality::Normal),
    ]);
    let current = routes(&[
        ("192.0.2.10", Quality::LastResort),
        ("192.0.2.11", Quality::Normal),
        ("2001:db8::1", Quality::Normal),
    ]);
    test(&Change {
        settings: &settings(),
        previous: &previous,
        resends_all: false,
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
    let commands = with_change(command::gobgp_commands);
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

#[test]
fn frr_arguments_are_ordered_by_dependency() {
    let arguments = with_change(|change| command::frr_arguments(65001, change));
    let lines: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|it| *it != "-c")
        .collect();
    let position_of = |line: &str| {
        let position = lines.iter().position(|it| *it == line);
        position.unwrap_or_else(|| panic!("no line {line:?} in {lines:#?}"))
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
    let positions: Vec<usize> = order.into_iter().map(position_of).collect();
    assert!(positions.is_sorted(), "{lines:#?}");
}

#[test]
fn all_routes_are_sent_to_speaker_that_may_have_lost_them() {
    let previous = routes(&[
        ("192.0.2.9", Quality::Normal),
        ("192.0.2.10", Quality::Normal),
    ]);
    let current = routes(&[("192.0.2.10", Quality::Normal)]);
    for (resends_all, count) in [(false, 0), (true, 1)] {
        let change = Change {
            settings: &settings(),
            previous: &previous,
            resends_all,
            routes: &current,
        };
        assert_eq!(change.added_routes().count(), count);
        assert_eq!(change.removed_vips().count(), 1);
    }
}

#[tokio::test]
async fn routes_that_failed_command_may_have_announced_are_withdrawn() {
    let settings = Announce {
        speaker: Speaker::Gobgp {
            command: vec!["/nonexistent".to_owned()],
        },
        ..settings()
    };
    let mut driver = Driver::new(&["192.0.2.9".parse().unwrap()]);
    let routes_to_announce = routes(&[("192.0.2.10", Quality::Normal)]);
    let error = driver
        .apply(&settings, &routes_to_announce)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
    assert_eq!(driver.announced_vips().count(), 2);
    let settings = Announce {
        speaker: Speaker::Gobgp {
            command: vec!["true".to_owned()],
        },
        ..settings
    };
    driver.apply(&settings, &Routes::new()).await.unwrap();
    assert_eq!(driver.announced_vips().count(), 0);
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
