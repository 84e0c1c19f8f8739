//! Tests Weir and FRR's vrrpd as peers, in both roles.
//!
//! FRR needs an existing macvlan device with the virtual MAC address and the VIP, and sets the device up and down
//! (`protodown`).

use std::fs;
use std::process::Stdio;

use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

/// Settings that both peers use.
#[derive(Clone, Copy)]
struct Case {
    version: u8,
    /// Advertisement interval, as text in Weir's format and in milliseconds.
    interval: (&'static str, u32),
    /// For IPv6, a link-local address (RFC 9568, section 5.2.9).
    vip: &'static str,
}

const V3: Case = Case {
    version: 3,
    interval: ("100ms", 100),
    vip: VIP,
};

impl Case {
    const fn is_v6(self) -> bool {
        matches!(self.vip.as_bytes(), [b'f', ..])
    }

    /// Returns the name and the MAC address of FRR's device.
    const fn device(self) -> (&'static str, &'static str) {
        match self.is_v6() {
            true => ("vrrp6", "00:00:5e:00:02:3c"),
            false => ("vrrp4", "00:00:5e:00:01:3c"),
        }
    }

    /// Returns the VIP's prefix length with the flags for `ip`.
    const fn prefix(self) -> &'static str {
        match self.is_v6() {
            true => "64 nodad",
            false => "24",
        }
    }

    fn weir_config(self, priority: u8) -> String {
        let Self {
            version,
            interval: (interval, _),
            vip,
        } = self;
        let prefix = if self.is_v6() { 64 } else { 24 };
        format!(
            "[vrrp.v]\ninterface = \"eth0\"\nvirtual_router_id = 60\nversion = {version}\npriority = {priority}\n\
             advert_interval = \"{interval}\"\naddresses = [\"{vip}/{prefix}\"]\n"
        )
    }
}

const PROGRAM_DIRECTORY: &str = "/usr/lib/frr";

struct Frr {
    directory: String,
    vrrpd: u32,
    device: &'static str,
}

impl Frr {
    fn start(pair: &mut Pair, case: Case, priority: u8) -> Self {
        let namespace = pair.world.namespace("second");
        let (
            Case {
                version,
                interval: (_, interval),
                vip,
            },
            (device, mac),
        ) = (case, case.device());
        if !has_device(pair, device) {
            for line in [
                format!("link add {device} link eth0 type macvlan mode bridge"),
                format!("link set {device} address {mac}"),
                format!("addr add {vip}/{} dev {device}", case.prefix()),
                format!("link set {device} up"),
            ] {
                pair.ip("second", &line);
            }
        }
        // FRR's daemons drop root privileges.
        let directory = pair.path(&format!("frr{version}"));
        fs::create_dir_all(&directory).expect("create a directory");
        sh(&format!(
            "chown frr:frr {directory} && chmod 755 $(dirname {directory})"
        ));
        fs::write(format!("{directory}/zebra.conf"), "hostname second\n").expect("write the file");
        let family = if case.is_v6() { "ipv6" } else { "ip" };
        let config = format!(
            "hostname second\nlog stdout\ninterface eth0\n vrrp 60 version {version}\n vrrp 60 priority {priority}\n \
             vrrp 60 advertisement-interval {interval}\n vrrp 60 {family} {vip}\n"
        );
        fs::write(format!("{directory}/vrrpd.conf"), config).expect("write the file");
        let mut start = |program: &str| {
            let log = fs::File::create(format!("{directory}/{program}.log"))
                .expect("create the log file");
            let file = |kind: &str| format!("{directory}/{program}.{kind}");
            let child = pair
                .world
                .command("second", &format!("{PROGRAM_DIRECTORY}/{program}"))
                .args(["-f", &file("conf"), "-i", &file("pid")])
                .args([
                    "-z",
                    &format!("{directory}/zserv.api"),
                    "--vty_socket",
                    &directory,
                ])
                .stdout(log)
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{program} in {namespace}: {error}"));
            let pid = child.id();
            pair.world.kill_on_drop(child);
            pid
        };
        start("zebra");
        super::world::wait_for("zebra", super::pair::TIMEOUT, || {
            fs::metadata(format!("{directory}/zserv.api")).is_ok()
        });
        let vrrpd = start("vrrpd");
        Self {
            directory,
            vrrpd,
            device,
        }
    }

    /// Stops vrrpd gracefully, then zebra.
    fn stop(self, pair: &Pair) {
        sh(&format!("kill -TERM {}", self.vrrpd));
        pair.wait_for("vrrpd to exit", || !is_active(pair, self.device));
        let zebra = fs::read_to_string(format!("{}/zebra.pid", self.directory));
        sh(&format!(
            "kill -TERM {}",
            zebra.expect("read the process ID").trim()
        ));
        let _ = fs::remove_file(format!("{}/zserv.api", self.directory));
    }
}

fn device_status(pair: &Pair, device: &str) -> String {
    let output = pair
        .world
        .output("second", &format!("ip -d link show dev {device}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has_device(pair: &Pair, device: &str) -> bool {
    !device_status(pair, device).is_empty()
}

/// Returns whether FRR is active.
fn is_active(pair: &Pair, device: &str) -> bool {
    has_device(pair, device) && !device_status(pair, device).contains("protodown on")
}

fn assert_works_in_both_roles(case: Case) {
    let mut pair = Pair::new();
    let (vip, (device, _)) = (case.vip, case.device());
    let wait_for_weir = |pair: &Pair| {
        pair.wait_for("Weir to have the VIP", || {
            pair.holds("director", vip) && !is_active(pair, device)
        });
    };
    let wait_for_frr = |pair: &Pair| {
        pair.wait_for("FRR to have the VIP", || {
            !pair.holds("director", vip) && is_active(pair, device)
        });
    };
    let frr = Frr::start(&mut pair, case, 100);
    wait_for_frr(&pair);
    // Weir takes over with its higher priority, and hands over with priority 0.
    pair.start("director", &case.weir_config(150));
    wait_for_weir(&pair);
    pair.stop_and_wait("director");
    wait_for_frr(&pair);
    // FRR remains active when Weir has a lower priority, and hands over when it stops.
    pair.start("director", &case.weir_config(50));
    pair.wait_for("the active peer", || {
        pair.router("director")["active_peer"].is_string()
    });
    assert_eq!(pair.router("director")["state"], "backup");
    frr.stop(&pair);
    wait_for_weir(&pair);
    Frr::start(&mut pair, case, 100);
    wait_for_frr(&pair);
    let router = pair.router("director");
    assert_eq!(router["state"], "backup");
    assert_eq!(router["ignored"], serde_json::json!({}), "{router}");
}

#[test]
fn version_3_works_with_frr_in_both_roles() {
    if privileged() {
        assert_works_in_both_roles(V3);
    }
}

#[test]
fn version_3_over_ipv6_works_with_frr_in_both_roles() {
    if privileged() {
        assert_works_in_both_roles(Case {
            vip: "fe80::10",
            ..V3
        });
    }
}

#[test]
fn version_2_works_with_frr_in_both_roles_soak() {
    if std::env::var_os("WEIR_SOAK").is_some() && privileged() {
        assert_works_in_both_roles(Case {
            version: 2,
            interval: ("1s", 1000),
            vip: VIP,
        });
    }
}
