//! Tests that `weir doctor` reports conflicting settings of two directors, with the values and the key to change.

use crate::pair::{Pair, VIP};
use crate::world::privileged;
use crate::{config, two_directors};

fn doctor(pair: &Pair, host: &str) -> String {
    let output = pair.try_weir(host, &["doctor"]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn equal_priorities_are_reported_on_the_backup() {
    if !privileged() {
        return;
    }
    let pair = two_directors();
    let equal = "the virtual router outside has priority";
    assert!(!doctor(&pair, "second").contains(equal));
    pair.reload("second", &config(150, ""));
    pair.wait_for("the finding to appear", || {
        doctor(&pair, "second").contains(equal)
    });
    let text = doctor(&pair, "second");
    assert!(
        text.contains("has priority 150 on this director and on the active one, 10.0.0.3"),
        "{text}"
    );
    assert!(
        text.contains("a different `priority` in [vrrp.outside]"),
        "{text}"
    );
    assert_eq!(pair.router("second")["active_peer_priority"], 150);
    pair.reload("second", &config(100, ""));
    pair.wait_for("the finding to disappear", || {
        !doctor(&pair, "second").contains(equal)
    });
}

#[test]
fn different_router_ids_are_reported_with_both_values() {
    if !privileged() {
        return;
    }
    let mut pair = two_directors();
    let other_config = config(100, "").replace("_id = 51", "_id = 52");
    pair.stop_and_wait("second");
    pair.start("second", &other_config);
    pair.wait_for("both directors to be active", || {
        pair.holds("director", VIP) && pair.holds("second", VIP)
    });
    let finding = |host: &str, peer: &str, own: u8, other_id: u8| {
        let expected = format!(
            "{peer} advertises an address of the virtual router outside with the virtual router ID {other_id}; this \
             director uses {own}"
        );
        pair.wait_for("the finding to appear", || {
            doctor(&pair, host).contains(&expected)
        });
        let text = doctor(&pair, host);
        let fix = format!(
            "use the same `virtual_router_id` in [vrrp.outside] on all directors: {own}, as here, or {other_id}, as on \
             {peer}"
        );
        assert!(text.contains(&fix), "{text}");
        let status = pair.weir(host, &["vrrp"]);
        let line = format!(
            "{peer} advertises an address of this router with virtual router ID {other_id}"
        );
        assert!(status.contains(&line), "{status}");
    };
    finding("director", "10.0.0.4", 51, 52);
    finding("second", "10.0.0.3", 52, 51);
    // The client may have learned the MAC address of either director.
    pair.wait_for("the conflict to be logged", || {
        pair.log("director")
            .contains("another machine replies for a VIP of this director")
    });
    let mac = pair.world.mac("second");
    let entry = format!("neigh replace {VIP} lladdr {mac} dev eth0 nud reachable");
    pair.ip("client", &entry);
    pair.reload("second", &config(100, ""));
    pair.wait_for_holder("director");
    pair.wait_for("the client to get the announcement", || {
        pair.resolves_vip_to("client", "director")
    });
    pair.wait_for("the finding to disappear", || {
        !doctor(&pair, "director").contains("virtual router ID")
    });
}

/// The standby listens on an address that only the active director has in `addresses`.
#[test]
fn address_missing_on_the_standby_is_reported_once() {
    if !privileged() {
        return;
    }
    let other_vip = "10.0.0.11";
    let with_service = |priority, addresses: &str| {
        let list = format!("addresses = [{addresses}]");
        let text = config(priority, "").replace(&format!("addresses = [\"{VIP}/24\"]"), &list);
        assert!(text.contains(&list), "{text}");
        format!(
            "[node]\n{text}[pool.q]\nservers = [\"127.0.0.1:9\"]\n[service.t]\nlisten = [\"{other_vip}:8080\"]\n\
             forward = \"proxy\"\nprotocol = \"tcp\"\npool = \"q\"\n"
        )
    };
    let both_addresses = format!("\"{VIP}/24\", \"{other_vip}/24\"");
    let mut pair = Pair::new();
    pair.start("director", &with_service(150, &both_addresses));
    pair.wait_for_state("director", "active");
    pair.start("second", &with_service(100, &format!("\"{VIP}/24\"")));
    pair.wait_for("the standby to know its peer", || {
        pair.router("second")["active_peer"] == "10.0.0.3"
    });
    let finding = format!(
        "10.0.0.3, the active director of the virtual router outside, has the VIP {other_vip}, which `addresses` in \
         [vrrp.outside] does not list"
    );
    pair.wait_for("the finding to appear", || {
        doctor(&pair, "second").contains(&finding)
    });
    let text = doctor(&pair, "second");
    let fix = format!("fix:  add {other_vip} to `addresses` in [vrrp.outside]; then: weir reload");
    assert!(text.contains(&fix), "{text}");
    for harmful in [
        "ip addr add",
        "ip addr del",
        "replies to ARP",
        "no interface of this machine has the VIP",
    ] {
        assert!(!text.contains(harmful), "{harmful:?} is in {text}");
    }
    let text = doctor(&pair, "director");
    assert!(!text.contains(other_vip), "{text}");
    pair.reload("second", &with_service(100, &both_addresses));
    pair.wait_for("the finding to disappear", || {
        !doctor(&pair, "second").contains(other_vip)
    });
    assert!(!pair.holds("second", other_vip));
}
