//! Tests findings for rulesets in the format of nft, without sockets.

use super::*;
use crate::request::UpRequest;
use weir_model::Forward;

const VIP: &str = "10.0.0.10";

fn desired(vip: &str) -> DesiredState {
    let request = UpRequest {
        forward: Forward::Direct,
        vips: vec![vip.parse().unwrap()],
        tunnel: None,
        dscp: None,
        except: Vec::new(),
        interfaces: Vec::new(),
    };
    DesiredState::default().with(&request).unwrap()
}

/// Returns a ruleset with a chain at `hook` and rules that compare the port and set the verdict.
fn ruleset(hook: &str, policy: &str, rules: &[(u16, &str)]) -> Ruleset {
    let chain = format!(
        r#"{{"chain": {{"family": "inet", "table": "fw", "name": "{hook}", "hook": "{hook}", "prio": 0,
           "policy": "{policy}"}}}}"#
    );
    let field = if hook == "input" { "dport" } else { "sport" };
    let rule = |(port, verdict): &(u16, &str)| {
        format!(
            r#"{{"rule": {{"family": "inet", "table": "fw", "chain": "{hook}", "expr": [{{"match": {{"op": "==",
               "left": {{"payload": {{"protocol": "tcp", "field": "{field}"}}}}, "right": {port}}}}},
               {{"{verdict}": null}}]}}}}"#
        )
    };
    let objects: Vec<String> = [chain].into_iter().chain(rules.iter().map(rule)).collect();
    let text = format!(r#"{{"nftables": [{}]}}"#, objects.join(","));
    Ruleset::parse(&text).expect("valid JSON")
}

/// Returns the observations and fixes for a VIP with these listening sockets.
fn found(vip: &str, rules: &Ruleset, listeners: &[&str]) -> Vec<(String, String)> {
    let listeners = listeners.iter().map(|local| local.parse().unwrap());
    let listeners: Vec<SocketAddr> = listeners.collect();
    let findings = dropped_packets(&desired(vip), rules, &listeners).into_iter();
    findings
        .map(|finding| (finding.observation, finding.fix.expect("has a fix")))
        .collect()
}

fn observations(vip: &str, rules: &Ruleset, listeners: &[&str]) -> Vec<String> {
    let found = found(vip, rules, listeners).into_iter();
    found.map(|(observation, _)| observation).collect()
}

#[test]
fn policy_that_drops_all_listening_ports_except_ssh_is_one_finding() {
    let rules = ruleset("input", "drop", &[(22, "accept")]);
    let listeners = ["0.0.0.0:22", "0.0.0.0:80", "[::]:80", "127.0.0.1:5432"];
    assert_eq!(
        found(VIP, &rules, &listeners),
        [(
            "the chain `inet fw input` of nftables drops client packets for 10.0.0.10:80 direct because of its policy"
                .to_owned(),
            "if clients must reach this port: nft insert rule inet fw input ip daddr 10.0.0.10 tcp dport 80 accept"
                .to_owned()
        )]
    );
    let found = found(VIP, &rules, &["0.0.0.0:80", "0.0.0.0:111", "10.0.0.5:443"]);
    assert_eq!(found.len(), 1, "{found:?}");
    let (observation, fix) = &found[0];
    assert!(
        observation.contains("10.0.0.10 direct (ports 80, 111) because"),
        "{observation}"
    );
    assert!(
        fix.starts_with("omit the ports that clients must not reach: nft insert")
            && fix.ends_with("tcp dport '{ 80, 111 }' accept"),
        "{fix}"
    );
}

#[test]
fn deliberately_dropped_ports_are_not_reported() {
    let none: &[String] = &[];
    let open = ruleset("input", "drop", &[(80, "accept")]);
    let wildcard = ["0.0.0.0:22", "0.0.0.0:80", "0.0.0.0:111"];
    assert_eq!(observations(VIP, &open, &wildcard), none);
    // Only SSH's port is dropped, or no program listens on the VIP.
    let restrictive_rules = ruleset("input", "drop", &[(80, "accept")]);
    assert_eq!(observations(VIP, &restrictive_rules, &["0.0.0.0:22"]), none);
    assert_eq!(
        observations(VIP, &restrictive_rules, &["127.0.0.1:81"]),
        none
    );
    assert_eq!(observations(VIP, &Ruleset::default(), &wildcard), none);
}

#[test]
fn dropped_port_of_a_socket_on_the_vip_or_in_the_vips_range_is_reported() {
    let rules = ruleset("input", "accept", &[(443, "drop")]);
    let listeners = ["10.0.0.10:80", "10.0.0.10:443", "0.0.0.0:8000"];
    let expected = "the chain `inet fw input` of nftables drops client packets for 10.0.0.10:443 direct because of \
                    its rule `tcp dport 443 drop`";
    assert_eq!(observations(VIP, &rules, &listeners), [expected]);
    let listeners = ["0.0.0.0:440", "0.0.0.0:443", "0.0.0.0:8000"];
    assert_eq!(
        observations("10.0.0.10:440-443", &rules, &listeners),
        [expected]
    );
    assert!(observations("10.0.0.10:444-450", &rules, &listeners).is_empty());
}

/// Clients do not necessarily use every port in a large range, if the program on the port listens on all addresses.
#[test]
fn ports_of_a_large_range_are_reported_like_those_of_a_vip_without_ports() {
    let ssh = ruleset("input", "accept", &[(22, "drop")]);
    let listeners = ["0.0.0.0:22", "0.0.0.0:80", "0.0.0.0:9100"];
    for vip in ["10.0.0.10:1-65535", "10.0.0.10:20-84", VIP] {
        assert!(observations(vip, &ssh, &listeners).is_empty(), "{vip}");
    }
    assert_eq!(observations("10.0.0.10:20-83", &ssh, &listeners).len(), 1);
    assert_eq!(
        observations("10.0.0.10:1-65535", &ssh, &["10.0.0.10:22"]).len(),
        1
    );
    let restrictive_rules = ruleset("input", "drop", &[(22, "accept")]);
    let found = found("10.0.0.10:1-65535", &restrictive_rules, &listeners);
    let [(_, fix)] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        fix.starts_with("omit the ports that clients must not reach: "),
        "{fix}"
    );
}

#[test]
fn policy_that_drops_every_packet_is_one_finding_without_ports() {
    let rules = ruleset("input", "drop", &[]);
    let observations = observations(VIP, &rules, &["10.0.0.10:80", "0.0.0.0:443"]);
    assert_eq!(
        observations,
        [
            "the chain `inet fw input` of nftables drops client packets for 10.0.0.10 direct because of its policy"
        ]
    );
}

#[test]
fn dropped_replies_of_a_port_are_reported() {
    let rules = ruleset("output", "accept", &[(80, "drop")]);
    let found = found(VIP, &rules, &["0.0.0.0:80"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .0
            .contains("drops replies from 10.0.0.10:80 direct"),
        "{found:?}"
    );
    assert!(
        found[0]
            .1
            .ends_with("ip saddr 10.0.0.10 tcp sport 80 accept"),
        "{found:?}"
    );
}

#[test]
fn number_of_examined_ports_is_limited() {
    let entry = desired(VIP).entries.into_iter().next().unwrap();
    let mut listeners: Vec<SocketAddr> =
        (1..=200).map(|port| ([0, 0, 0, 0], port).into()).collect();
    listeners.push(([10, 0, 0, 10], 9000).into());
    let ports = listening_ports(&entry, &listeners);
    assert_eq!(ports[0], (9000, true), "sockets on the VIP must be first");
    let wildcard = &listeners[..200];
    let restrictive_rules = ruleset("input", "drop", &[(22, "accept"), (9000, "accept")]);
    let findings = dropped_packets(&desired(VIP), &restrictive_rules, wildcard);
    assert!(
        findings[0].observation.contains("62, 63, 64)"),
        "{findings:?}"
    );
    // A port above the limit is open.
    let open = ruleset("input", "drop", &[(200, "accept")]);
    assert_eq!(dropped_packets(&desired(VIP), &open, wildcard), []);
}

/// The service may be stopped, so it is not certain that clients use the only other port.
#[test]
fn port_that_clients_might_not_use_is_reported_as_uncertain() {
    let rules = ruleset("input", "drop", &[(22, "accept"), (80, "accept")]);
    let listeners = ["0.0.0.0:22", "0.0.0.0:9100"].map(|local| local.parse().unwrap());
    let findings = dropped_packets(&desired(VIP), &rules, &listeners);
    let [finding] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert!(
        finding
            .consequence
            .ends_with("on other ports of the VIP, no program listens"),
        "{finding:?}"
    );
    let fix = finding.fix.as_deref().unwrap();
    assert!(
        fix.starts_with("if clients must reach this port: nft"),
        "{fix}"
    );
}
