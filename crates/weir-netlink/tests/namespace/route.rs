//! Tests addresses and routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::RouteType;
use netlink_packet_route::rule::RuleAction;
use rtnetlink::{RouteMessageBuilder, RouteNextHopBuilder};
use weir_netlink::{Change, Event, Netlink, RouteKind, resolve};

use crate::{Pair, bring_up, handle_in, in_namespace, ip, wait_for};

#[test]
fn adding_and_removing_an_address_is_idempotent() {
    in_namespace(async || {
        let net = Netlink::open().unwrap();
        let lo = net.link("lo").await.unwrap().unwrap().index;
        bring_up(&handle_in(&net), lo).await;
        for (vip, prefix) in [(ip("192.0.2.10"), 32), (ip("2001:db8::10"), 128)] {
            assert!(!net.is_local(vip).await.unwrap());
            let mut watch = net.watch().unwrap();
            assert_eq!(
                net.add_address(lo, vip, prefix).await.unwrap(),
                Change::Made
            );
            assert_eq!(
                net.add_address(lo, vip, prefix).await.unwrap(),
                Change::None
            );
            wait_for(&mut watch, |event| {
                matches!(event, Event::Route { route, removed: false }
                    if route.kind == RouteKind::Local && route.destination == vip)
            })
            .await;
            assert!(net.is_local(vip).await.unwrap());
            let addresses = net.addresses().await.unwrap();
            let found = addresses.iter().find(|address| address.ip == vip).unwrap();
            assert_eq!(
                (found.ifindex, found.prefix, found.tentative),
                (lo, prefix, false)
            );
            assert_eq!(
                net.remove_address(lo, vip, prefix).await.unwrap(),
                Change::Made
            );
            assert_eq!(
                net.remove_address(lo, vip, prefix).await.unwrap(),
                Change::None
            );
            assert!(!net.is_local(vip).await.unwrap());
        }
        let error = net.add_address(lo, ip("192.0.2.1"), 33).await.unwrap_err();
        assert!(error.to_string().contains("192.0.2.1/33"), "{error}");
        assert_eq!(
            net.remove_address(999, ip("192.0.2.1"), 32).await.unwrap(),
            Change::None
        );
    });
}

#[test]
fn destination_only_address_has_host_scope_or_is_deprecated() {
    in_namespace(async || {
        let net = Netlink::open().unwrap();
        let lo = net.link("lo").await.unwrap().unwrap().index;
        bring_up(&handle_in(&net), lo).await;
        for (vip, prefix) in [(ip("192.0.2.10"), 32), (ip("2001:db8::10"), 128)] {
            let first = net
                .add_destination_only_address(lo, vip, prefix)
                .await
                .unwrap();
            assert_eq!(first, Change::Made);
            let second = net
                .add_destination_only_address(lo, vip, prefix)
                .await
                .unwrap();
            assert_eq!(second, Change::None);
            assert!(
                net.addresses()
                    .await
                    .unwrap()
                    .iter()
                    .any(|address| address.ip == vip)
            );
        }
        let output = std::process::Command::new("ip")
            .args(["-o", "addr", "show", "dev", "lo"])
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let line = |address: &str| output.lines().find(|line| line.contains(address)).unwrap();
        assert!(line("192.0.2.10/32").contains("scope host"), "{output}");
        let deprecated = line("2001:db8::10/128");
        assert!(
            deprecated.contains("deprecated") && deprecated.contains("valid_lft forever"),
            "{output}"
        );
    });
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn single_and_batched_lookups_return_the_same_routes() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let net = &pair.net;
        let handle = handle_in(net);
        net.add_address(pair.a, ip("10.0.0.1"), 24).await.unwrap();
        let reject_routes = [
            (
                Ipv4Addr::new(10, 1, 0, 0),
                RouteType::BlackHole,
                RouteKind::Blackhole,
            ),
            (
                Ipv4Addr::new(10, 2, 0, 0),
                RouteType::Unreachable,
                RouteKind::Unreachable,
            ),
            (
                Ipv4Addr::new(10, 3, 0, 0),
                RouteType::Prohibit,
                RouteKind::Prohibit,
            ),
        ];
        for (destination, kind, expected) in reject_routes {
            let builder = RouteMessageBuilder::<Ipv4Addr>::new();
            let route = builder
                .destination_prefix(destination, 16)
                .kind(kind)
                .build();
            handle.route().add(route).execute().await.unwrap();
            let found = net.route_get(destination.into(), None, 0).await.unwrap();
            assert_eq!((found.kind, found.next_hops.len()), (expected, 0));
        }
        let none = net.route_get(ip("203.0.113.1"), None, 0).await.unwrap();
        assert_eq!(none.kind, RouteKind::None);
        // Batched lookups return the same result for each destination as single lookups, even if there are several
        // batches and some lookups fail.
        let targets = [
            "10.2.0.1",
            "203.0.113.1",
            "10.0.0.2",
            "10.3.0.1",
            "2001:db8::1",
        ]
        .map(ip);
        // A policy rule splits a range of destinations that has only one route in the routing table.
        let rule = handle.rule().add().v4();
        let rule = rule.destination_prefix(Ipv4Addr::new(10, 0, 0, 64), 26);
        let rule = rule.priority(100).action(RuleAction::Prohibit);
        rule.execute().await.unwrap();
        let prohibited = net.route_get(ip("10.0.0.64"), None, 0).await.unwrap();
        assert_eq!(prohibited.kind, RouteKind::Prohibit);
        // A few destinations are looked up individually; for many, only representatives are looked up.
        let neighbors = (1..=255).map(|last| IpAddr::from([10, 0, 0, last]));
        let many: Vec<IpAddr> = targets.iter().copied().cycle().take(203).collect();
        for many in [many.clone(), many.into_iter().chain(neighbors).collect()] {
            let batch = net.route_get_each(&many).await.unwrap();
            for (destination, found) in many.into_iter().zip(batch) {
                assert_eq!(
                    found,
                    net.route_get(destination, None, 0).await.unwrap(),
                    "{destination}"
                );
            }
        }
        assert_eq!(
            net.route_get(ip("2001:db8::1"), None, 0)
                .await
                .unwrap()
                .kind,
            RouteKind::None
        );
        let direct = net.route_get(ip("10.0.0.2"), None, 0).await.unwrap();
        assert_eq!(
            (direct.kind, direct.prefsrc),
            (RouteKind::Unicast, Some(ip("10.0.0.1")))
        );
        assert_eq!(
            (direct.next_hops[0].ifindex, direct.next_hops[0].gateway),
            (pair.a, None)
        );
        let source = Some(ip("10.0.0.1"));
        assert_eq!(
            net.route_get(ip("10.0.0.2"), source, 5).await.unwrap(),
            direct
        );
        assert!(
            net.route_get(ip("10.0.0.2"), Some(ip("10.9.9.9")), 0)
                .await
                .is_err()
        );
        assert!(
            net.route_get(ip("10.0.0.2"), Some(ip("::1")), 0)
                .await
                .is_err()
        );
        let routes = net.routes().await.unwrap();
        let blackhole = routes
            .iter()
            .find(|route| route.destination == ip("10.1.0.0"))
            .unwrap();
        assert_eq!(
            (blackhole.kind, blackhole.prefix, blackhole.table),
            (RouteKind::Blackhole, 16, 254)
        );
    });
}

#[test]
fn multipath_lookup_returns_weights() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let net = &pair.net;
        let handle = handle_in(net);
        net.add_address(pair.a, ip("10.0.0.1"), 24).await.unwrap();
        net.add_address(pair.a, ip("2001:db8::1"), 64)
            .await
            .unwrap();
        let next_hops = |gateways: [&str; 2]| {
            let mut weight = 0;
            gateways.map(|gateway| {
                weight += 1;
                let gateway = ip(gateway);
                let builder = match gateway {
                    IpAddr::V4(_) => RouteNextHopBuilder::new_ipv4(),
                    IpAddr::V6(_) => RouteNextHopBuilder::new_ipv6(),
                };
                builder
                    .interface(pair.a)
                    .via(gateway)
                    .unwrap()
                    .weight(weight - 1)
                    .build()
            })
        };
        let v4 = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(Ipv4Addr::new(198, 51, 100, 0), 24)
            .multipath(next_hops(["10.0.0.8", "10.0.0.9"]).to_vec())
            .build();
        handle.route().add(v4).execute().await.unwrap();
        let v6 = RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix("2001:db8:1::".parse().unwrap(), 48)
            .multipath(next_hops(["2001:db8::8", "2001:db8::9"]).to_vec())
            .build();
        handle.route().add(v6).execute().await.unwrap();
        for (destination, gateways) in [
            ("198.51.100.7", ["10.0.0.8", "10.0.0.9"]),
            ("2001:db8:1::7", ["2001:db8::8", "2001:db8::9"]),
        ] {
            let hops = net
                .route_get(ip(destination), None, 0)
                .await
                .unwrap()
                .next_hops;
            // With many destinations, the batched lookup first checks whether there are multipath routes.
            for count in [1, 300] {
                let batch = net
                    .route_get_each(&vec![ip(destination); count])
                    .await
                    .unwrap();
                assert!(
                    batch.iter().all(|found| found.next_hops == hops),
                    "{batch:?}"
                );
            }
            let mut weights: Vec<_> = hops.iter().map(|hop| (hop.gateway, hop.weight)).collect();
            weights.sort();
            assert_eq!(
                weights,
                [(Some(ip(gateways[0])), 1), (Some(ip(gateways[1])), 2)],
                "{destination}"
            );
        }
        let state = net.state([ip("198.51.100.7")]).await.unwrap();
        assert_eq!(resolve(ip("198.51.100.7"), &state).len(), 2);
    });
}

#[test]
fn lookup_returns_ipv6_gateway_of_ipv4_route() {
    in_namespace(async || {
        let pair = Pair::new().await;
        pair.net
            .add_address(pair.a, ip("2001:db8::1"), 64)
            .await
            .unwrap();
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(Ipv4Addr::new(198, 51, 100, 0), 24)
            .via("2001:db8::2".parse().unwrap())
            .output_interface(pair.a)
            .build();
        handle_in(&pair.net)
            .route()
            .add(route)
            .execute()
            .await
            .unwrap();
        let found = pair.net.route_get(ip("198.51.100.7"), None, 0).await;
        let hops = found.unwrap().next_hops;
        assert_eq!(hops.len(), 1);
        assert_eq!(
            (hops[0].gateway, hops[0].ifindex),
            (Some(ip("2001:db8::2")), pair.a)
        );
    });
}
