//! Tests VRRP instances of keepalived.conf: states, priorities and packet settings that an importer can easily lose.

use weir_import::{EmptyEnvironment, keepalived};

fn import_keepalived(instance: &str, more: &str) -> String {
    let text = format!(
        "vrrp_script alive {{\n script /bin/true\n weight -20\n}}\nvrrp_instance VI {{\n interface eth0\n \
         virtual_router_id 51\n virtual_ipaddress {{\n  192.0.2.10\n }}\n{instance}\n}}\n{more}"
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
    let waits = import_keepalived("state BACKUP\npriority 100\nnopreempt\npreempt_delay 5", "");
    assert!(waits.contains("preempt = false"), "{waits}");
    assert!(!waits.contains("preempt_delay"), "{waits}");
    let master = import_keepalived("state MASTER\npriority 100\nnopreempt\npreempt_delay 5", "");
    assert!(!master.contains("preempt"), "{master}");
    let owner = import_keepalived("state MASTER\nnopreempt", "");
    assert!(owner.contains("priority = 255"), "{owner}");
    assert!(!owner.contains("preempt"), "{owner}");
}

#[test]
fn weights_of_an_instance_in_a_group_are_ignored() {
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
    let weighted = import_keepalived(lines, &format!("{group} sync_group_tracking_weight\n}}\n"));
    assert!(weighted.contains("penalty = 20"), "{weighted}");
    let of_group = import_keepalived("", &format!("{group} track_script {{\n  alive\n }}\n}}\n"));
    assert!(of_group.contains("penalty = 20"), "{of_group}");
}

/// keepalived accepts any TTL in unicast packets unless a range is configured.
#[test]
fn ttl_of_unicast_packets_is_imported() {
    let peers = |lines: &str| {
        import_keepalived(&format!("unicast_peer {{\n{lines}\n}}\nunicast_ttl 9"), "")
    };
    let any = peers("192.0.2.2");
    assert!(
        any.contains("unicast_min_ttl = 1\n") && any.contains("unicast_ttl = 9"),
        "{any}"
    );
    let ranges = peers("192.0.2.2 min_ttl 254\n192.0.2.3 min_ttl 250 max_ttl 255");
    assert!(ranges.contains("unicast_min_ttl = 250\n"), "{ranges}");
    let direct = peers("192.0.2.2 min_ttl 255");
    assert!(!direct.contains("unicast_min_ttl"), "{direct}");
}
