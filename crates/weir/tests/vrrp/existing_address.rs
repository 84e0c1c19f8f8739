//! Tests addresses that are on a director's interface before its virtual router becomes active.

use super::config;
use super::pair::{Pair, VIP};
use super::world::privileged;

const EXTRA: &str = "10.0.0.77";

fn wait_for_only_holder(pair: &Pair, host: &str, other: &str) {
    pair.wait_for(&format!("only {host} to have the addresses"), || {
        [VIP, EXTRA]
            .iter()
            .all(|address| pair.holds(host, address) && !pair.holds(other, address))
    });
}

/// If the address remained, both directors would reply to ARP requests for it.
#[test]
fn existing_address_is_removed_while_director_is_not_active() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let extra = format!("excluded_addresses = [\"{EXTRA}/32\"]");
    for host in ["director", "second"] {
        pair.ip(host, &format!("addr add {VIP}/32 dev eth0"));
        pair.ip(host, &format!("addr add {EXTRA}/24 dev eth0"));
    }
    pair.start("director", &config(150, &extra));
    pair.wait_for_state("director", "active");
    pair.start("second", &config(100, &extra));
    wait_for_only_holder(&pair, "director", "second");
    assert_eq!(pair.router("second")["state"], "backup");
    assert!(pair.log("second").contains("this director is not active"));

    // The addresses are present when the router becomes active, and another program then adds one of them again.
    pair.ip("director", &format!("addr del {VIP}/24 dev eth0"));
    pair.ip("director", &format!("addr add {VIP}/32 dev eth0"));
    pair.weir("director", &["vrrp", "outside", "release"]);
    wait_for_only_holder(&pair, "second", "director");
    pair.ip("director", &format!("addr add {EXTRA}/32 dev eth0"));
    wait_for_only_holder(&pair, "second", "director");
    // Other addresses of the interface remain.
    assert!(pair.holds("director", "10.0.0.3") && pair.holds("second", "10.0.0.4"));
}

#[test]
fn address_that_is_removed_from_the_active_director_is_added_again() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let extra = format!("excluded_addresses = [\"{EXTRA}/32\"]");
    pair.start("director", &config(150, &extra));
    pair.wait_for_state("director", "active");
    pair.wait_for("both addresses to be added", || {
        pair.holds("director", VIP) && pair.holds("director", EXTRA)
    });
    for (address, prefix) in [(VIP, 24), (EXTRA, 32)] {
        pair.ip("director", &format!("addr del {address}/{prefix} dev eth0"));
        pair.wait_for("the address to be added again", || {
            pair.holds("director", address)
        });
    }
    // A director that is also a server has the VIP on `lo`.
    pair.ip("director", &format!("addr add {VIP}/32 dev lo"));
    pair.ip("director", &format!("addr del {VIP}/24 dev eth0"));
    pair.wait_for("the address to be added to eth0 again", || {
        pair.holds("director", VIP)
    });
    assert_eq!(pair.router("director")["state"], "active");
    assert!(
        pair.log("director")
            .contains("was removed; adding it again")
    );
}

/// A router that becomes active immediately adopts an existing address.
#[test]
fn own_address_is_kept_and_leftovers_are_removed() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    pair.ip("director", &format!("addr add {EXTRA}/32 dev eth0"));
    let extra = format!("excluded_addresses = [\"{EXTRA}/32\", \"10.0.0.3/24\"]");
    pair.start("director", &config(255, &extra));
    pair.wait_for_holder("director");
    assert!(pair.holds("director", EXTRA));
    pair.wait_for("the log messages", || {
        let log = pair.log("director");
        log.contains("the address was already on the interface")
            && log.contains("the address is the interface's own and is never removed")
    });
    pair.weir("director", &["vrrp", "outside", "release"]);
    pair.wait_for("the addresses to be removed", || {
        !pair.holds("director", VIP) && !pair.holds("director", EXTRA)
    });
    assert!(pair.holds("director", "10.0.0.3"));
    pair.weir("director", &["vrrp", "outside", "resume"]);
    pair.wait_for_holder("director");
    // No Weir process remains that could remove the address.
    for name in ["vrrp-agent", "helper"] {
        pair.suspend(pair.process_id("director", name));
    }
    pair.kill_all("director");
    assert!(pair.holds("director", VIP));
    pair.weir("director", &["clean"]);
    for address in [VIP, EXTRA] {
        assert!(
            !pair.holds("director", address),
            "{address} must be removed"
        );
    }
    assert!(pair.holds("director", "10.0.0.3"));
    let output = pair.try_weir("director", &["vrrp"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}
