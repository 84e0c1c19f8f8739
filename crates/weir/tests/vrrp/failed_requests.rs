//! Tests requests to the helper that fail or are lost.

use std::fs;

use super::pair::VIP;
use super::world::privileged;
use super::{MIN_PROCESS_AGE, two_directors};

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
    pair.wait_for("the record", || {
        fs::read_to_string(&path).is_ok_and(|text| text.contains(VIP))
    });
}
