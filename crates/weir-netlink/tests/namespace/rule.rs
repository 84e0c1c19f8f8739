//! Rules before the local table's, seen by `ip` and by lookups.

use std::process::Command;

use weir_netlink::{Change, Netlink, RouteKind, Rule};

use crate::{Pair, in_namespace, ip};

/// `ip rule` of the thread's namespace: priority and rule in each line.
fn shown(ipv6: bool) -> Vec<String> {
    let family = if ipv6 { "-6" } else { "-4" };
    let output = Command::new("ip").args([family, "rule"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

fn rules(ipv6: bool) -> [Rule; 3] {
    let device = "a".to_owned();
    [
        Rule::Resume {
            ipv6,
            device: device.clone(),
        },
        Rule::Skip { ipv6, device },
        Rule::Mark {
            ipv6,
            mark: 7,
            table: 99,
        },
    ]
}

#[test]
fn rules_come_before_the_local_tables_and_leave_nothing() {
    in_namespace(async || {
        // With the peer's namespace both devices would go.
        let Pair {
            net,
            a,
            peer: _peer,
            ..
        } = Pair::new().await;
        let lo = net.link("lo").await.unwrap().unwrap().index;
        net.bring_up(lo).await.unwrap();
        for ipv6 in [false, true] {
            let before = shown(ipv6);
            assert_eq!(net.add_rules(&rules(ipv6)).await.unwrap(), Change::Made);
            let during = shown(ipv6);
            let expected = [
                "0: from all iif a goto 1",
                "0: from all fwmark 0x7 lookup 99",
                "0: from all lookup local",
                "1: from all iif a lookup local",
            ];
            let bare = |line: &String| {
                let end = line.find(" proto ").unwrap_or(line.len());
                line[..end].to_owned()
            };
            let heads: Vec<String> = during.iter().map(bare).collect();
            assert_eq!(heads[..4], expected, "{during:?}");
            assert_eq!(net.add_rules(&rules(ipv6)).await.unwrap(), Change::None);
            assert_eq!(shown(ipv6), during);
            let more = Rule::Mark {
                ipv6,
                mark: 8,
                table: 99,
            };
            net.add_rules(std::slice::from_ref(&more)).await.unwrap();
            let heads: Vec<String> = shown(ipv6).iter().map(bare).collect();
            assert_eq!(heads[2], "0: from all fwmark 0x8 lookup 99");
            assert_eq!(heads[3], "0: from all lookup local");

            // Of an address of this machine, too.
            net.add_default_route(ipv6, 99, a).await.unwrap();
            let own = ip(if ipv6 { "::1" } else { "127.0.0.1" });
            assert_eq!(
                net.route_get(own, None, 7).await.unwrap().legs[0].ifindex,
                a
            );
            assert_eq!(
                net.route_get(own, None, 0).await.unwrap().kind,
                RouteKind::Local
            );
            for rule in rules(ipv6).iter().chain([&more]) {
                assert_eq!(net.remove_rule(rule).await.unwrap(), Change::Made);
                assert_eq!(net.remove_rule(rule).await.unwrap(), Change::None);
            }
            assert_eq!(shown(ipv6), before);
        }
    });
}

#[test]
fn other_programs_rules_in_between_are_kept() {
    in_namespace(async || {
        let net = Netlink::open().unwrap();
        let add = |words: &str| {
            let status = Command::new("ip").args(words.split(' ')).status();
            assert!(status.unwrap().success());
        };
        add("rule add pref 0 from 192.0.2.0/24 lookup 98");
        let mark = Rule::Mark {
            ipv6: false,
            mark: 7,
            table: 99,
        };
        let refused = net.add_rules(std::slice::from_ref(&mark)).await;
        assert!(refused.unwrap_err().to_string().contains("local table"));
        let left = shown(false);
        assert_eq!(left[0], "0: from all lookup local", "{left:?}");
        assert_eq!(left[1], "0: from 192.0.2.0/24 lookup 98", "{left:?}");
    });
}
