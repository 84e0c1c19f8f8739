//! Tests rules that precede the rule of the local table, with `ip` and with lookups.

use std::process::Command;

use weir_netlink::{Change, Netlink, RouteKind, Rule};

use crate::{Pair, in_namespace, ip};

/// Returns the lines of `ip rule` in the thread's network namespace.
fn ip_rules(ipv6: bool) -> Vec<String> {
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
fn rules_precede_local_rule_and_are_removed_completely() {
    in_namespace(async || {
        // Dropping the peer's namespace would remove both devices.
        let Pair {
            net,
            a,
            peer: _peer,
            ..
        } = Pair::new().await;
        let lo = net.link("lo").await.unwrap().unwrap().index;
        net.bring_up(lo).await.unwrap();
        for ipv6 in [false, true] {
            let before = ip_rules(ipv6);
            assert_eq!(net.add_rules(&rules(ipv6)).await.unwrap(), Change::Made);
            let with_weir = ip_rules(ipv6);
            let expected = [
                "0: from all iif a goto 1",
                "0: from all fwmark 0x7 lookup 99",
                "0: from all lookup local",
                "1: from all iif a lookup local",
            ];
            let without_protocol = |line: &String| {
                let end = line.find(" proto ").unwrap_or(line.len());
                line[..end].to_owned()
            };
            let without_protocols: Vec<String> = with_weir.iter().map(without_protocol).collect();
            assert_eq!(without_protocols[..4], expected, "{with_weir:?}");
            assert_eq!(net.add_rules(&rules(ipv6)).await.unwrap(), Change::None);
            assert_eq!(ip_rules(ipv6), with_weir);
            let added = Rule::Mark {
                ipv6,
                mark: 8,
                table: 99,
            };
            net.add_rules(std::slice::from_ref(&added)).await.unwrap();
            let without_protocols: Vec<String> =
                ip_rules(ipv6).iter().map(without_protocol).collect();
            assert_eq!(without_protocols[2], "0: from all fwmark 0x8 lookup 99");
            assert_eq!(without_protocols[3], "0: from all lookup local");

            // The rule also applies to an address of this machine.
            net.add_default_route(ipv6, 99, a).await.unwrap();
            let local_address = ip(if ipv6 { "::1" } else { "127.0.0.1" });
            assert_eq!(
                net.route_get(local_address, None, 7)
                    .await
                    .unwrap()
                    .next_hops[0]
                    .ifindex,
                a
            );
            assert_eq!(
                net.route_get(local_address, None, 0).await.unwrap().kind,
                RouteKind::Local
            );
            for rule in rules(ipv6).iter().chain([&added]) {
                assert_eq!(net.remove_rule(rule).await.unwrap(), Change::Made);
                assert_eq!(net.remove_rule(rule).await.unwrap(), Change::None);
            }
            assert_eq!(ip_rules(ipv6), before);
        }
    });
}

#[test]
fn adding_rule_fails_and_keeps_another_programs_rule_with_priority_0() {
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
        let result = net.add_rules(std::slice::from_ref(&mark)).await;
        assert!(result.unwrap_err().to_string().contains("local table"));
        let remaining = ip_rules(false);
        assert_eq!(remaining[0], "0: from all lookup local", "{remaining:?}");
        assert_eq!(
            remaining[1], "0: from 192.0.2.0/24 lookup 98",
            "{remaining:?}"
        );
    });
}
