//! Tests groups of virtual routers on two segments, with keepalived's `vrrp_sync_group` as the peer.

use std::time::Duration;

use super::interop::{start_keepalived, stop_keepalived};
use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

const INSIDE: &str = "10.8.0.10";

/// Returns a configuration for Weir with a virtual router on each segment.
fn weir_config(priority: u8) -> String {
    let router = |name: &str, id: u8, interface: &str, vip: &str| {
        format!(
            "[vrrp.{name}]\ninterface = \"{interface}\"\nvirtual_router_id = {id}\nversion = 3\n\
             priority = {priority}\nadvert_interval = \"300ms\"\naddresses = [\"{vip}/32\"]\ngroup = \"both\"\n"
        )
    };
    format!(
        "{}{}",
        router("outside", 51, "eth0", VIP),
        router("inside", 52, "side", INSIDE)
    )
}

fn keepalived_config() -> String {
    let instance = |name: &str, id: u8, interface: &str, vip: &str| {
        format!(
            "vrrp_instance {name} {{\n  state BACKUP\n  interface {interface}\n  virtual_router_id {id}\n  \
             version 3\n  priority 100\n  advert_int 0.3\n  virtual_ipaddress {{\n    \
             {vip}/32 dev {interface}\n  }}\n}}\n"
        )
    };
    format!(
        "vrrp_sync_group both {{\n  group {{\n    outside\n    inside\n  }}\n}}\n{}{}",
        instance("outside", 51, "eth0", VIP),
        instance("inside", 52, "side", INSIDE)
    )
}

/// Returns two directors that are also connected by a second segment.
fn two_segments() -> Pair {
    let pair = Pair::new();
    let (director, second) = (
        pair.world.namespace("director"),
        pair.world.namespace("second"),
    );
    sh(&format!(
        "ip -n {director} link add side type veth peer name side netns {second}"
    ));
    for (host, number) in [("director", 3), ("second", 4)] {
        pair.ip(host, &format!("addr add 10.8.0.{number}/24 dev side"));
        pair.ip(host, "link set side up");
    }
    pair
}

/// Returns `Some(true)` if a host has the addresses of both segments, `Some(false)` if it has neither, and `None` if it
/// has only one.
fn has_addresses(pair: &Pair, host: &str) -> Option<bool> {
    let output = pair.world.output(host, "ip -o addr show");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let present = [VIP, INSIDE].map(|vip| output.contains(&format!(" {vip}/")));
    (present[0] == present[1]).then_some(present[0])
}

fn wait_for_holder(pair: &Pair, host: &str, other: &str) {
    pair.wait_for(&format!("{host} to have both addresses"), || {
        has_addresses(pair, host) == Some(true) && has_addresses(pair, other) == Some(false)
    });
}

/// A director that does not receive the peer's advertisements on one of two segments remains a backup on both. If
/// it became active, the peer's advertisements on the other segment would make it a backup again and again.
#[test]
fn group_does_not_flap_while_one_segment_is_cut() {
    if !privileged() {
        return;
    }
    let mut pair = two_segments();
    start_keepalived(&mut pair, &keepalived_config());
    wait_for_holder(&pair, "second", "director");
    pair.start("director", &weir_config(50));
    pair.wait_for("both virtual routers to have an active peer", || {
        let routers = pair.routers("director");
        (0..2).all(|index| routers[index]["active_peer"].is_string())
    });
    pair.disconnect("director");
    let router = |name: &str| {
        let routers = pair.routers("director");
        let routers = routers.as_array().cloned().unwrap_or_default();
        let found = routers.into_iter().find(|it| it["name"] == name);
        found.unwrap_or_default()
    };
    pair.wait_for("the first member to be ready", || {
        let outside = router("outside");
        let reason = outside["reason"].as_str().unwrap_or_default();
        reason.contains("waiting for the other members of the group")
    });
    // Wait for several active-down intervals.
    std::thread::sleep(Duration::from_secs(4));
    for name in ["outside", "inside"] {
        let member = router(name);
        assert_eq!(
            (&member["state"], &member["takeovers"]),
            (&"backup".into(), &0.into()),
            "{member}"
        );
    }
    assert_eq!(has_addresses(&pair, "second"), Some(true));
    // Without keepalived, all members are ready.
    stop_keepalived(&pair);
    wait_for_holder(&pair, "director", "second");
}

/// When the first of keepalived's members becomes a backup, all of its members do, and Weir announces all addresses.
#[test]
fn group_takes_over_from_keepalived_and_hands_back() {
    if !privileged() {
        return;
    }
    let mut pair = two_segments();
    start_keepalived(&mut pair, &keepalived_config());
    wait_for_holder(&pair, "second", "director");
    pair.start("director", &weir_config(150));
    wait_for_holder(&pair, "director", "second");
    pair.stop_and_wait("director");
    wait_for_holder(&pair, "second", "director");
    pair.start("director", &weir_config(150));
    wait_for_holder(&pair, "director", "second");
}
