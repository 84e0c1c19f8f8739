//! Tests two directors with the same configuration on a hub, that is, a bridge that floods every frame to every port.
//!
//! A director must not forward frames addressed to the other director's MAC address or virtual MAC address. If both
//! directors forwarded such frames, the frames would go back and forth.

mod world;

use std::time::Duration;

use serde_json::Value;
use world::{World, privileged, sh, wait_for};

/// The address of the virtual router, with the virtual MAC address.
const VIRTUAL: &str = "10.0.0.10";
/// An address of one director, with the MAC address of its interface.
const REGULAR: &str = "10.0.0.11";
const REQUESTS: u64 = 6;
const TIMEOUT: Duration = Duration::from_secs(60);

fn config(attach: &str, priority: u8) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\nattach = \"{attach}\"\n\
         [vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\nversion = 3\npriority = {priority}\n\
         advert_interval = \"100ms\"\naddresses = [\"{VIRTUAL}/24\"]\nvirtual_mac = true\n\
         [pool.web]\nscheduler = \"rr\"\nservers = [\"10.0.0.5\"]\n\
         [service.web]\nlisten = [\"{VIRTUAL}:80\", \"{REGULAR}:80\"]\nforward = \"direct\"\npool = \"web\"\n"
    )
}

struct Hub {
    world: World,
}

impl Hub {
    /// Starts both directors. `director` has both addresses, and `second` is the backup.
    fn new(attach: &str) -> Self {
        let mut world = World::with_two_directors(1, 1024);
        sh(&format!(
            "ip -n {} link set br0 type bridge ageing_time 0",
            world.namespace("wire")
        ));
        world.ip("director", &format!("addr add {REGULAR}/32 dev eth0"));
        world.prepare_servers(&["--forward", "direct", "--vip", VIRTUAL, "--vip", REGULAR]);
        for (host, priority) in [("director", 150), ("second", 100)] {
            let path = world.path(&format!("{host}.toml"));
            std::fs::write(&path, config(attach, priority)).expect("write the file");
            world.start_daemon_on(host, &path);
        }
        let hub = Self { world };
        for (host, state) in [("director", "active"), ("second", "backup")] {
            hub.wait_for_state(host, state);
            let expected = if attach == "tc" { "tc" } else { "native" };
            assert_eq!(hub.status(host)["xdp"][0]["mode"], expected, "{host}");
        }
        hub
    }

    fn run_json(&self, host: &str, arguments: &[&str]) -> Value {
        let output = self.world.weir(host).args(arguments).output();
        serde_json::from_slice(&output.expect("run weir").stdout).unwrap_or_default()
    }

    fn status(&self, host: &str) -> Value {
        self.run_json(host, &["status", "--json"])
    }

    fn wait_for_state(&self, host: &str, state: &str) {
        wait_for(&format!("{host} to be {state}"), TIMEOUT, || {
            self.run_json(host, &["vrrp", "--json"])[0]["state"] == state
        });
    }

    fn connections(&self, host: &str) -> u64 {
        let status = self.status(host);
        status["services"][0]["connections"]
            .as_u64()
            .expect("no connection count")
    }

    /// Returns the number of frames to a VIP that the director ignored because they are for another MAC address.
    fn ignored_frames(&self, host: &str) -> u64 {
        let status = self.status(host);
        let mut reasons = status["reasons"]
            .as_array()
            .expect("reasons is not an array")
            .iter();
        let row = reasons.find(|row| row["reason"] == "pass_other_host");
        row.and_then(|row| row["packets"].as_u64()).unwrap_or(0)
    }

    /// Sends requests. Asserts that `forwarder` forwards them, and that `other` receives them but forwards none.
    fn assert_forwarded_by(&self, address: &str, forwarder: &str, other: &str) {
        let before = [self.connections(forwarder), self.connections(other)];
        let ignored_before = self.ignored_frames(other);
        for _ in 0..REQUESTS {
            let url = format!("http://{address}/big");
            self.world.get_within(10, &url).expect("get a response");
        }
        let after = [self.connections(forwarder), self.connections(other)];
        assert_eq!(
            after[1], before[1],
            "{other} must not forward frames to {forwarder}"
        );
        assert_eq!(
            after[0] - before[0],
            REQUESTS,
            "{forwarder} must count each connection once"
        );
        let flooded = self.ignored_frames(other) - ignored_before;
        assert!(flooded >= REQUESTS, "{flooded} frames were flooded");
    }

    fn neighbor_entry(&self, address: &str) -> String {
        let output = self
            .world
            .output("client", &format!("ip neigh show {address}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.world.path("second.log"));
            eprintln!("the second director's log:\n{}", log.unwrap_or_default());
        }
        let clean = |host: &str| self.world.weir(host).args(["clean", "--force"]).output();
        drop(clean("second"));
        world::remove_tree(&self.world.pin_dir("second"));
    }
}

fn assert_only_addressed_director_forwards(attach: &str) {
    if !privileged() {
        return;
    }
    let hub = Hub::new(attach);
    hub.assert_forwarded_by(REGULAR, "director", "second");
    hub.assert_forwarded_by(VIRTUAL, "director", "second");
    let virtual_mac = "00:00:5e:00:01:33";
    assert!(
        hub.neighbor_entry(VIRTUAL).contains(virtual_mac)
            && !hub.neighbor_entry(REGULAR).contains(virtual_mac)
    );

    // The second director takes over the virtual MAC address; the client's neighbor entry does not change.
    hub.run_json("director", &["vrrp", "outside", "release"]);
    hub.wait_for_state("second", "active");
    wait_for("the second director to have the address", TIMEOUT, || {
        let output = hub.world.output("second", "ip -o addr show dev vrrp.51");
        String::from_utf8_lossy(&output.stdout).contains(VIRTUAL)
    });
    hub.assert_forwarded_by(VIRTUAL, "second", "director");
    hub.assert_forwarded_by(REGULAR, "director", "second");
}

#[test]
fn only_the_addressed_director_forwards_at_tc() {
    assert_only_addressed_director_forwards("tc");
}

#[test]
fn only_the_addressed_director_forwards_in_xdp() {
    assert_only_addressed_director_forwards("xdp");
}
