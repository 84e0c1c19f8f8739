//! Tests the import of VRRP instances from keepalived.conf.
//!
//! The tests cover states, priorities and packet settings that are easily lost.

use weir_import::{EmptyEnvironment, keepalived};

fn import_keepalived(instance: &str, other_blocks: &str) -> String {
    let text = format!(
        "vrrp_script alive {{\n script /bin/true\n weight -20\n}}\nvrrp_instance VI {{\n interface eth0\n \
         virtual_router_id 51\n virtual_ipaddress {{\n  192.0.2.10\n }}\n{instance}\n}}\n{other_blocks}"
    );
    let toml = keepalived("keepalived.conf", &text, &EmptyEnvironment).toml;
    let parsed = weir_config::parse(&toml, &weir_config::Host::default());
    assert!(parsed.is_ok(), "{parsed:?}\n{toml}");
    let mut tables = toml.split("\n\n");
    let table = tables.find(|table| table.contains("[vrrp.VI]"));
    table.expect("the instance is a virtual router").to_owned()
}

/// keepalived ignores `nopreempt` in an instance that starts as master; without `priority`, its priority is 255.
#[test]
fn initial_state_determines_preemption_and_priority() {
    let backup = import_keepalived("state BACKUP\npriority 100\nnopreempt\npreempt_delay 5", "");
    assert!(backup.contains("preempt = false"), "{backup}");
    assert!(!backup.contains("preempt_delay"), "{backup}");
    let master = import_keepalived("state MASTER\npriority 100\nnopreempt\npreempt_delay 5", "");
    assert!(!master.contains("preempt"), "{master}");
    let owner = import_keepalived("state MASTER\nnopreempt", "");
    assert!(owner.contains("priority = 255"), "{owner}");
    assert!(!owner.contains("preempt"), "{owner}");
}

#[test]
fn tracking_weights_of_sync_group_members_are_ignored() {
    let lines = "track_script {\n alive\n}\ntrack_interface {\n eth1 weight 10\n}";
    let without_group = import_keepalived(lines, "");
    assert!(
        without_group.contains("penalty = 20") && without_group.contains("bonus = 10"),
        "{without_group}"
    );
    let group = "vrrp_sync_group G {\n group {\n  VI\n }\n";
    let member = import_keepalived(lines, &format!("{group}}}\n"));
    assert!(member.contains("interface = \"eth1\" }"), "{member}");
    assert!(
        !member.contains("/bin/true") && !member.contains("bonus"),
        "{member}"
    );
    let weighted_group =
        import_keepalived(lines, &format!("{group} sync_group_tracking_weight\n}}\n"));
    assert!(weighted_group.contains("penalty = 20"), "{weighted_group}");
    let group_script =
        import_keepalived("", &format!("{group} track_script {{\n  alive\n }}\n}}\n"));
    assert!(group_script.contains("penalty = 20"), "{group_script}");
}

/// keepalived multiplies the file's number by the weight, which is 1 by default. With weight 0, every number except 0
/// is a failure.
#[test]
fn weight_of_a_tracked_file_is_its_factor() {
    let file = |weight: &str, lines: &str| {
        let block = format!("track_file w {{\n file /run/w\n {weight}\n}}\n");
        import_keepalived(lines, &block)
    };
    let lines = "track_file {\n w\n}";
    for (weight, expected) in [
        ("", "bonus = 1 "),
        ("weight 5", "bonus = 5 "),
        ("weight -5", "penalty = 5 "),
        ("weight 0", "fault = true "),
    ] {
        let imported = file(weight, lines);
        assert!(imported.contains(expected), "{weight}: {imported}");
    }
    let own_weight = file("weight 5", "track_file {\n w weight -2\n}");
    assert!(own_weight.contains("penalty = 2 "), "{own_weight}");
    let owner = file("", &format!("priority 255\n{lines}"));
    assert!(!owner.contains("/run/w"), "{owner}");
    let owner = file("weight 0", &format!("priority 255\n{lines}"));
    assert!(owner.contains("fault = true "), "{owner}");
}

/// keepalived accepts any TTL in unicast packets unless a range is configured.
#[test]
fn unicast_ttl_and_its_minimum_are_imported() {
    let peers = |lines: &str| {
        import_keepalived(&format!("unicast_peer {{\n{lines}\n}}\nunicast_ttl 9"), "")
    };
    let any_ttl = peers("192.0.2.2");
    assert!(
        any_ttl.contains("unicast_min_ttl = 1\n") && any_ttl.contains("unicast_ttl = 9"),
        "{any_ttl}"
    );
    let several_ranges = peers("192.0.2.2 min_ttl 254\n192.0.2.3 min_ttl 250 max_ttl 255");
    assert!(
        several_ranges.contains("unicast_min_ttl = 250\n"),
        "{several_ranges}"
    );
    let direct_peer = peers("192.0.2.2 min_ttl 255");
    assert!(!direct_peer.contains("unicast_min_ttl"), "{direct_peer}");
}

/// Without `preferred_lft forever`, keepalived and Weir both add the address as a deprecated address.
#[test]
fn ipv6_address_that_stays_preferred_is_not_imported_silently() {
    let has_note = |address: &str| {
        let text = format!(
            "vrrp_instance VI {{\n interface eth0\n virtual_router_id 51\n native_ipv6\n virtual_ipaddress {{\n  \
             {address}\n }}\n}}\n"
        );
        let toml = keepalived("keepalived.conf", &text, &EmptyEnvironment).toml;
        toml.contains("preferred_lft forever")
    };
    assert!(has_note("fd00::10 preferred_lft forever"));
    assert!(has_note("fd00::10/128 preferred_lft forever"));
    for address in [
        "fd00::10",
        "fd00::10 preferred_lft 0",
        "fd00::10/64 preferred_lft forever",
    ] {
        assert!(!has_note(address), "{address}");
    }
}
