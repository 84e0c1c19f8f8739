//! Tests VRRP: addresses move between two directors, and between a director and keepalived.

mod world;

#[path = "vrrp/accept.rs"]
mod accept;
#[path = "vrrp/announcements.rs"]
mod announcements;
#[path = "vrrp/busy_cpus.rs"]
mod busy_cpus;
#[path = "vrrp/connections.rs"]
mod connections;
#[path = "vrrp/corner_cases.rs"]
mod corner_cases;
#[path = "vrrp/existing_address.rs"]
mod existing_address;
#[path = "vrrp/failed_requests.rs"]
mod failed_requests;
#[path = "vrrp/frr.rs"]
mod frr;
#[path = "vrrp/groups.rs"]
mod groups;
#[path = "vrrp/guarded.rs"]
mod guarded;
#[path = "vrrp/handover.rs"]
mod handover;
#[path = "vrrp/interop.rs"]
mod interop;
#[path = "vrrp/keys.rs"]
mod keys;
#[path = "vrrp/mistakes.rs"]
mod mistakes;
#[path = "vrrp/notified.rs"]
mod notified;
#[path = "vrrp/other_interface.rs"]
mod other_interface;
#[path = "vrrp/pair.rs"]
mod pair;
#[path = "vrrp/proxied_failover.rs"]
mod proxied_failover;
#[path = "vrrp/recorder.rs"]
mod recorder;
#[path = "vrrp/released.rs"]
mod released;
#[path = "vrrp/schedules.rs"]
mod schedules;
#[path = "vrrp/upgrade.rs"]
mod upgrade;

use pair::{Pair, VIP};
use serde_json::Value;
use std::time::Duration;
use world::privileged;

/// Minimum age of a process before a test kills it. The keeper delays the replacement of a process that exits within
/// one second of its start; the rest is a margin.
const MIN_PROCESS_AGE: Duration = Duration::from_millis(1500);

fn config(priority: u8, extra: &str) -> String {
    format!(
        "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\nversion = 3\npriority = {priority}\n\
         advert_interval = \"100ms\"\naddresses = [\"{VIP}/24\"]\n{extra}\n"
    )
}

fn two_directors() -> Pair {
    let mut pair = Pair::new();
    pair.start("director", &config(150, ""));
    pair.wait_for_state("director", "active");
    pair.start("second", &config(100, ""));
    pair.wait_for("the peer", || {
        pair.router("second")["active_peer"] == "10.0.0.3"
    });
    pair
}

fn assert_drained_director_stays_released(pair: &Pair) {
    pair.weir("director", &["node", "drain"]);
    pair.wait_for_holder("second");
    let refused = pair.try_weir("director", &["vrrp", "outside", "resume"]);
    assert!(!refused.status.success(), "{refused:?}");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("run `weir node ready`"), "{message}");
    pair.weir("director", &["node", "ready"]);
    pair.wait_for_holder("director");
}

#[test]
fn vip_moves_on_release_stop_and_link_failure() {
    if !privileged() {
        return;
    }
    let mut pair = two_directors();
    pair.wait_for_holder("director");
    assert_eq!(pair.router("second")["state"], "backup");

    pair.weir("director", &["vrrp", "outside", "release"]);
    pair.wait_for_holder("second");
    let released = pair.router("director");
    assert_eq!(
        (&released["state"], &released["reason"]),
        (
            &Value::from("fault"),
            &Value::from("released by an operator")
        )
    );
    pair.weir("director", &["vrrp", "outside", "resume"]);
    pair.wait_for_holder("director");

    assert_drained_director_stays_released(&pair);

    // Cut the active director's link but keep its carrier up: the director cannot detect this and keeps the address.
    pair.disconnect("director");
    pair.wait_for("the second director", || pair.holds("second", VIP));
    pair.wait_for("the client to use the second director", || {
        let command = format!("ping -c 1 -W 1 {VIP}");
        pair.world.output("client", &command);
        pair.resolves_vip_to("client", "second")
    });
    pair.reconnect("director");
    pair.wait_for_holder("director");
    // This director was active the whole time, but clients have the other director's MAC address.
    pair.wait_for("the client to use the director", || {
        pair.resolves_vip_to("client", "director")
    });

    // A graceful stop hands over with priority 0 and removes the address.
    pair.stop("director");
    pair.wait_for_holder("second");
    let reason = pair.router("second")["reason"].clone();
    assert_eq!(
        reason, "no other director is active",
        "priority 0 must have been received"
    );
    let log = std::fs::read_to_string(pair.path("director.log")).expect("read the log file");
    assert!(
        log.contains("stopped; virtual routers release their addresses"),
        "{log}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one step for each process")]
fn vip_stays_after_process_crash_and_moves_while_agent_is_paused() {
    if !privileged() {
        return;
    }
    let pair = two_directors();
    let agent = pair.process_id("director", "vrrp-agent");
    let takeovers = || pair.router("second")["takeovers"].clone();
    assert_eq!(takeovers(), 0);
    pair.kill(pair.daemon("director"));
    pair.wait_for("the next daemon", || {
        pair.status("director")["restarts"] == 1
    });
    pair.reload("director", &config(140, ""));
    pair.wait_for("the new priority", || {
        pair.router("director")["priority"] == 140
    });
    assert_eq!(
        (takeovers(), pair.process_id("director", "vrrp-agent")),
        (Value::from(0), agent)
    );
    pair.wait_for("the daemon's status", || {
        let router = pair.status("director")["vrrp"][0].clone();
        router["name"] == "outside" && router["state"] == "active"
    });
    let metrics = pair.world.metrics();
    assert!(
        metrics.contains("weir_vrrp_active{router=\"outside\"} 1\n"),
        "{metrics}"
    );

    // After a pause, the agent listens for advertisements before it becomes active again.
    pair.suspend(agent);
    pair.wait_for("the second director", || pair.holds("second", VIP));
    pair.resume(agent);
    pair.wait_for_holder("director");
    let log = std::fs::read_to_string(pair.path("director.log")).expect("read the log");
    assert!(log.contains("this director was paused or stalled"), "{log}");

    // A standby process takes over from a killed agent, and the next helper adopts the addresses. An interval of one
    // second gives a slow machine three seconds for this.
    for (host, priority) in [("director", 140), ("second", 100)] {
        pair.reload(host, &config(priority, "").replace("100ms", "1s"));
    }
    pair.wait_for("the new interval", || {
        let log = std::fs::read_to_string(pair.path("second.log")).unwrap_or_default();
        log.matches("virtual routers are configured").count() > 1
    });
    pair.wait_for("the agent to be old enough", || {
        pair.process_age("director", "vrrp-agent") > MIN_PROCESS_AGE
    });
    let before = takeovers();
    for kill in [&["vrrp-agent"][..], &["helper"], &["vrrp-agent", "helper"]] {
        let killed: Vec<u32> = kill
            .iter()
            .map(|name| pair.process_id("director", name))
            .collect();
        killed.iter().for_each(|pid| pair.kill(*pid));
        pair.wait_for("new processes", || {
            kill.iter().zip(&killed).all(|(name, pid)| {
                pair.find_process("director", name)
                    .is_some_and(|found| found != *pid)
            })
        });
        pair.wait_for("advertisements", || {
            pair.router("director")["sent"].as_u64() > Some(3)
        });
        assert_eq!(pair.router("director")["state"], "active");
        assert!(pair.holds("director", VIP));
        pair.wait_for("processes to be old enough", || {
            kill.iter()
                .all(|name| pair.process_age("director", name) > MIN_PROCESS_AGE)
        });
    }
    assert_eq!(
        takeovers(),
        before,
        "the other director must not become active"
    );

    // Without virtual routers, both processes exit.
    pair.reload("director", "");
    pair.wait_for_holder("second");
    pair.wait_for("the agent to exit", || {
        pair.find_process("director", "vrrp-agent").is_none()
    });
}

#[test]
fn tracked_fault_releases_all_addresses_of_group_and_notifies() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let (flag, log) = (pair.path("flag"), pair.path("notified"));
    let notify = pair.path("notify");
    pair.write_script(&notify, &format!("echo \"$@\" >> {log}"));
    let check = pair.path("check");
    pair.write_script(&check, &format!("test -e {flag}"));
    std::fs::write(&flag, "").expect("write the file");
    let extra = format!(
        "group = \"pair\"\nnotify = [\"{notify}\"]\ntrack = [\n  {{ script = [\"{check}\"], user = \"root\", \
         interval = \"50ms\" }},\n  {{ process = \"no such process\", penalty = 10 }},\n]\n\
         [vrrp.other]\ninterface = \"eth0\"\nvirtual_router_id = 52\nversion = 3\nadvert_interval = \"100ms\"\n\
         addresses = [\"10.0.0.11/32\"]\nexcluded_addresses = [\"2001:db8::10/64\"]\ngroup = \"pair\""
    );
    pair.start("director", &config(150, &extra));
    pair.wait_for_state("director", "active");
    assert_eq!(pair.router("director")["priority"], 140);
    pair.wait_for("all addresses", || {
        [VIP, "10.0.0.11", "2001:db8::10"]
            .iter()
            .all(|vip| pair.holds("director", vip))
    });
    std::fs::remove_file(&flag).expect("remove the file");
    pair.wait_for_state("director", "fault");
    pair.wait_for("no address", || {
        ![VIP, "10.0.0.11", "2001:db8::10"]
            .iter()
            .any(|vip| pair.holds("director", vip))
    });
    let other_router = pair.routers("director")[1].clone();
    assert_eq!(
        other_router["reason"],
        "outside of the same group is in the fault state"
    );
    pair.wait_for("the notification", || {
        std::fs::read_to_string(&log).is_ok_and(|text| {
            text.contains("INSTANCE outside MASTER 140\n")
                && text.contains("INSTANCE outside FAULT 140\n")
        })
    });
}
