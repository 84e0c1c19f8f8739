//! Tests the evaluation of rulesets in the format of nft.

use super::*;

/// Returns the ruleset that nft 1.0.6 prints for a chain `inet filter input` with these rules.
fn input_ruleset(policy: &str, rules: &[&str]) -> Ruleset {
    let base = format!(
        r#"{{"chain": {{"family": "inet", "table": "filter", "name": "input", "handle": 1, "type": "filter",
           "hook": "input", "prio": 0, "policy": "{policy}"}}}}"#
    );
    let sub_chain_and_set = r#"{"chain": {"family": "inet", "table": "filter", "name": "sub", "handle": 2}},
        {"set": {"family": "inet", "name": "ok", "table": "filter", "type": "inet_service", "handle": 3,
                 "elem": [443, {"range": [7000, 7010]}]}},
        {"rule": {"family": "inet", "table": "filter", "chain": "sub", "handle": 9,
                  "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 81}},
                           {"drop": null}]}}"#;
    let mut objects = vec![base, sub_chain_and_set.to_owned()];
    objects.extend(rules.iter().map(|expr| {
        format!(r#"{{"rule": {{"family": "inet", "table": "filter", "chain": "input", "handle": 5, "expr": [{expr}]}}}}"#)
    }));
    let text = format!(
        r#"{{"nftables": [{{"metainfo": {{}}}}, {}]}}"#,
        objects.join(",")
    );
    Ruleset::parse(&text).expect("parse ruleset")
}

const DROP: &str = r#"{"drop": null}"#;
const ACCEPT: &str = r#"{"accept": null}"#;

fn port(right: &str) -> String {
    format!(
        r#"{{"match": {{"op": "==", "left": {{"payload": {{"protocol": "tcp", "field": "dport"}}}}, "right": {right}}}}}"#
    )
}

fn state(right: &str) -> String {
    format!(
        r#"{{"match": {{"op": "in", "left": {{"ct": {{"key": "state"}}}}, "right": {right}}}}}"#
    )
}

fn address(side: &str, right: &str) -> String {
    format!(
        r#"{{"match": {{"op": "==", "left": {{"payload": {{"protocol": "ip", "field": "{side}"}}}}, "right": {right}}}}}"#
    )
}

fn syn() -> Packet {
    Packet::syn("192.0.2.10".parse().expect("parse address"), Some(80))
}

/// Returns the rule that drops a packet, or an empty string if the policy drops it.
fn dropping_rule(policy: &str, rules: &[String], packet: Packet) -> Option<String> {
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let drop = input_ruleset(policy, &rules).find_drop(packet, INBOUND)?;
    assert_eq!((&*drop.table, &*drop.chain), ("inet filter", "input"));
    Some(drop.rule.unwrap_or_default())
}

fn rule(parts: &[&str]) -> String {
    parts.join(",")
}

#[test]
fn rules_are_evaluated_before_the_policy() {
    assert_eq!(dropping_rule("accept", &[], syn()), None);
    assert_eq!(dropping_rule("drop", &[], syn()).as_deref(), Some(""));
    for (right, passes) in [
        ("80", true),
        ("81", false),
        (r#"{"set": [22, 80]}"#, true),
        (r#"{"set": [22, {"range": [70, 90]}]}"#, true),
        (r#"{"set": [{"elem": {"val": 80, "timeout": 3}}]}"#, true),
        (r#""@ok""#, false),
    ] {
        let found = dropping_rule("drop", &[rule(&[&port(right), ACCEPT])], syn());
        assert_eq!(found.is_none(), passes, "{right}");
    }
    let in_range_of_set = Packet::syn("192.0.2.10".parse().expect("parse address"), Some(7003));
    assert_eq!(
        dropping_rule(
            "drop",
            &[rule(&[&port(r#""@ok""#), ACCEPT])],
            in_range_of_set
        ),
        None
    );
}

#[test]
fn rules_with_unknown_result_are_not_reported() {
    let some_client = address("saddr", r#"{"prefix": {"addr": "10.0.0.0", "len": 8}}"#);
    assert_eq!(
        dropping_rule("accept", &[rule(&[&some_client, DROP])], syn()),
        None
    );
    assert_eq!(
        dropping_rule("drop", &[rule(&[&some_client, ACCEPT])], syn()),
        None
    );
    let unsupported = r#"{"xt": {"type": "match", "name": "recent"}}"#;
    assert_eq!(
        dropping_rule("accept", &[rule(&[unsupported, DROP])], syn()),
        None
    );
    assert_eq!(
        dropping_rule("drop", &[rule(&[unsupported, ACCEPT])], syn()),
        None
    );
    let limited = r#"{"limit": {"rate": 10, "burst": 5, "per": "second"}}"#;
    assert_eq!(
        dropping_rule("drop", &[rule(&[limited, ACCEPT])], syn()),
        None
    );
    // The first rule may drop some packets; the second drops all others.
    let all = [rule(&[&some_client, DROP]), rule(&[&port("80"), DROP])];
    assert_eq!(
        dropping_rule("accept", &all, syn()).as_deref(),
        Some("tcp dport 80 drop")
    );
    let redirected = [rule(&[r#"{"redirect": {"port": 8080}}"#]), DROP.to_owned()];
    assert_eq!(dropping_rule("accept", &redirected, syn()), None);
}

#[test]
fn addresses_families_and_flags_are_compared() {
    let drop_rule =
        |right: &str| dropping_rule("accept", &[rule(&[&address("daddr", right), DROP])], syn());
    assert!(drop_rule(r#""192.0.2.10""#).is_some() && drop_rule(r#""192.0.2.11""#).is_none());
    let prefix =
        |text: &str, length: u8| format!(r#"{{"prefix": {{"addr": "{text}", "len": {length}}}}}"#);
    assert!(
        drop_rule(&prefix("192.0.2.8", 29)).is_some()
            && drop_rule(&prefix("192.0.2.0", 29)).is_none()
    );
    assert!(drop_rule(r#"{"range": ["192.0.2.1", "192.0.2.20"]}"#).is_some());
    let ipv6 = Packet::syn("2001:db8::10".parse().expect("parse address"), Some(80));
    let rules = [rule(&[&address("daddr", r#""192.0.2.10""#), ACCEPT])];
    assert_eq!(
        dropping_rule("drop", &rules, ipv6).as_deref(),
        Some(""),
        "the rule is for IPv4 only"
    );
    let flags = r#"{"match": {"op": "==", "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}},
        ["syn", "ack"]]}, "right": "syn"}}"#;
    assert!(dropping_rule("accept", &[rule(&[flags, DROP])], syn()).is_some());
    let ack = syn().ack(Tracking::Established);
    assert!(dropping_rule("accept", &[rule(&[flags, DROP])], ack).is_none());
}

#[test]
fn replies_have_ephemeral_destination_port() {
    let reply = Packet::reply("10.0.0.5".parse().expect("parse address"), Some(80));
    let drop_rule = |right: &str| dropping_rule("drop", &[rule(&[&port(right), ACCEPT])], reply);
    assert!(
        drop_rule("80").is_some() && drop_rule(r#"{"set": [22, {"range": [80, 90]}]}"#).is_some()
    );
    assert!(drop_rule("8080").is_none() && drop_rule(r#"{"range": [1000, 60000]}"#).is_none());
}

#[test]
fn jumps_verdict_maps_and_tracking_are_evaluated() {
    let jump = r#"{"jump": {"target": "sub"}}"#.to_owned();
    let syn_to = |port| Packet::syn("192.0.2.10".parse().expect("parse address"), Some(port));
    assert!(dropping_rule("accept", std::slice::from_ref(&jump), syn_to(81)).is_some());
    assert!(dropping_rule("accept", &[jump], syn_to(80)).is_none());
    let map = r#"{"vmap": {"key": {"ct": {"key": "state"}},
        "data": {"set": [["invalid", {"drop": null}], ["established", {"accept": null}]]}}}"#;
    let drop_rule = |tracking| dropping_rule("drop", &[map.to_owned()], syn().ack(tracking));
    assert_eq!(
        drop_rule(Tracking::Invalid).as_deref(),
        Some("ct state vmap")
    );
    assert_eq!(drop_rule(Tracking::Established), None);
    assert_eq!(drop_rule(Tracking::New).as_deref(), Some(""));
    let rules = [rule(&[&state(r#"["established", "related"]"#), ACCEPT])];
    assert!(dropping_rule("drop", &rules, syn().ack(Tracking::Established)).is_none());
    assert!(dropping_rule("drop", &rules, syn()).is_some());
}

#[test]
fn malformed_input_is_rejected() {
    for text in ["", "[]", "{}", r#"{"nftables": 3}"#] {
        assert!(Ruleset::parse(text).is_none(), "{text}");
    }
    let malformed_objects = r#"{"nftables": [{"rule": {}}, {"chain": {"hook": "input"}}, 7, {"rule": {"chain": 1, "expr": [3, {}]}}]}"#;
    let rules = Ruleset::parse(malformed_objects).expect("parse ruleset");
    assert_eq!(rules.find_drop(syn(), INBOUND), None);
}
