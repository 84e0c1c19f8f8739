//! Tests requests to the helper that fail or are lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::pair::{Pair, VIP};
use super::world::privileged;
use super::{MIN_PROCESS_AGE, config, two_directors};

/// A helper that exits before it removes an address leaves the address and its record to the next helper. If the
/// address remained, both directors would reply to ARP requests for it.
#[test]
fn recorded_address_is_removed_from_standby() {
    if !privileged() {
        return;
    }
    let pair = two_directors();
    pair.wait_for("the helper to be old enough", || {
        pair.process_age("second", "helper") > MIN_PROCESS_AGE
    });
    let helper = pair.process_id("second", "helper");
    pair.suspend(helper);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read the boot ID");
    let record = serde_json::json!({
        "boot": boot.trim_end(),
        "added": [{"router": "outside", "interface": "eth0", "address": VIP, "prefix": 24}],
    });
    let path = pair.path("run-second/vrrp.json");
    fs::write(path, record.to_string()).expect("write the file");
    pair.ip("second", &format!("addr add {VIP}/24 dev eth0"));
    pair.kill(helper);
    pair.wait_for_holder("director");
    assert_eq!(pair.router("second")["state"], "backup");
}

/// The record cannot be written if the file system is full.
#[test]
fn address_is_added_although_it_cannot_be_recorded() {
    if !privileged() {
        return;
    }
    let mut pair = two_directors();
    // The helper writes a new record to a file with this name.
    let obstacle = pair.path("run-second/vrrp.json.new");
    fs::create_dir(&obstacle).expect("create the directory");
    pair.stop("director");
    pair.wait_for_holder("second");
    fs::remove_dir(&obstacle).expect("remove the directory");
    let path = pair.path("run-second/vrrp.json");
    pair.wait_for("the address to be recorded", || {
        fs::read_to_string(&path).is_ok_and(|text| text.contains(VIP))
    });
}

/// A new helper that cannot read the virtual routers rejects all requests for their addresses. The agent must make it
/// read them again, although no reload follows.
#[test]
fn new_helper_reads_virtual_routers_as_soon_as_it_can() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    pair.start("director", &config(150, ""));
    pair.wait_for("the director to have the VIP", || {
        pair.holds("director", VIP)
    });
    pair.wait_for("the helper to be old enough", || {
        pair.process_age("director", "helper") > MIN_PROCESS_AGE
    });
    let record = pair.path("run-director/in-force.toml");
    let set_mode = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(&record, permissions).expect("set the file mode");
    };
    // The helper does not trust a file that every user can change.
    set_mode(0o666);
    pair.kill(pair.process_id("director", "helper"));
    let has_logged = |text: &str| pair.log("director").contains(text);
    pair.wait_for("the failure to be logged", || {
        has_logged("failed to get the virtual routers")
    });
    pair.ip("director", &format!("addr del {VIP}/24 dev eth0"));
    pair.wait_for("the rejection to be logged", || {
        has_logged("failed to add addresses")
    });
    set_mode(0o600);
    pair.wait_for("the director to have the VIP", || {
        pair.holds("director", VIP)
    });
}

/// A new agent cannot advertise before the helper has sent it the virtual routers. If this takes too long, the peer
/// becomes active, and this director must not keep the addresses.
#[test]
fn addresses_are_removed_if_new_agent_cannot_advertise() {
    if !privileged() {
        return;
    }
    let pair = two_directors();
    for (host, priority) in [("director", 150), ("second", 100)] {
        pair.reload(host, &config(priority, "preempt = false"));
    }
    pair.wait_for("the agent to be old enough", || {
        pair.process_age("director", "vrrp-agent") > MIN_PROCESS_AGE
    });
    pair.suspend(pair.process_id("director", "helper"));
    pair.kill(pair.process_id("director", "vrrp-agent"));
    pair.wait_for_holder("second");
    pair.wait_for_state("director", "backup");
}
