//! Weir and FRR's vrrpd as peers, in both roles. FRR has the address on a macvlan device with the virtual MAC, which is
//! there before and which it sets up and down (`protodown`).

use std::fs;
use std::process::Stdio;

use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

const DEVICE: &str = "vrrp4";
const PROGRAMS: &str = "/usr/lib/frr";

struct Frr {
    directory: String,
    vrrpd: u32,
}

impl Frr {
    fn start(pair: &mut Pair, version: u8, priority: u8, interval_ms: u32) -> Self {
        let namespace = pair.world.namespace("second");
        if !is_there(pair) {
            pair.ip(
                "second",
                &format!("link add {DEVICE} link eth0 type macvlan mode bridge"),
            );
            for line in [
                format!("link set {DEVICE} address 00:00:5e:00:01:3c"),
                format!("addr add {VIP}/24 dev {DEVICE}"),
                format!("link set {DEVICE} up"),
            ] {
                pair.ip("second", &line);
            }
        }
        // Its daemons give up root.
        let directory = pair.path(&format!("frr{version}"));
        fs::create_dir_all(&directory).expect("a directory");
        sh(&format!(
            "chown frr:frr {directory} && chmod 755 $(dirname {directory})"
        ));
        fs::write(format!("{directory}/zebra.conf"), "hostname second\n").expect("written");
        let config = format!(
            "hostname second\nlog stdout\ninterface eth0\n vrrp 60 version {version}\n vrrp 60 priority {priority}\n \
             vrrp 60 advertisement-interval {interval_ms}\n vrrp 60 ip {VIP}\n"
        );
        fs::write(format!("{directory}/vrrpd.conf"), config).expect("written");
        let mut start = |program: &str| {
            let log = fs::File::create(format!("{directory}/{program}.log")).expect("a log");
            let file = |kind: &str| format!("{directory}/{program}.{kind}");
            let child = pair
                .world
                .command("second", &format!("{PROGRAMS}/{program}"))
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
            pair.world.adopt(child);
            pid
        };
        start("zebra");
        super::world::wait_for("zebra", super::pair::PATIENCE, || {
            fs::metadata(format!("{directory}/zserv.api")).is_ok()
        });
        let vrrpd = start("vrrpd");
        Self { directory, vrrpd }
    }

    /// Ends vrrpd in order, and zebra.
    fn stop(self, pair: &Pair) {
        sh(&format!("kill -TERM {}", self.vrrpd));
        pair.wait_for("the end of vrrpd", || !holds(pair));
        let zebra = fs::read_to_string(format!("{}/zebra.pid", self.directory));
        sh(&format!("kill -TERM {}", zebra.expect("its pid").trim()));
        let _ = fs::remove_file(format!("{}/zserv.api", self.directory));
    }
}

fn device(pair: &Pair) -> String {
    let shown = pair
        .world
        .output("second", &format!("ip -d link show dev {DEVICE}"));
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

fn is_there(pair: &Pair) -> bool {
    !device(pair).is_empty()
}

/// Whether FRR is active.
fn holds(pair: &Pair) -> bool {
    is_there(pair) && !device(pair).contains("protodown on")
}

fn weir(version: u8, priority: u8, interval: &str) -> String {
    format!(
        "[vrrp.v]\ninterface = \"eth0\"\nvirtual_router_id = 60\nversion = {version}\npriority = {priority}\n\
         advert_interval = \"{interval}\"\naddresses = [\"{VIP}/24\"]\n"
    )
}

fn both_roles(version: u8, (interval, interval_ms): (&str, u32)) {
    let mut pair = Pair::new();
    let weir_alone = |pair: &Pair| {
        pair.wait_for("Weir to have the VIP", || {
            pair.holds("director", VIP) && !holds(pair)
        });
    };
    let frr_alone = |pair: &Pair| {
        pair.wait_for("FRR to have the VIP", || {
            !pair.holds("director", VIP) && holds(pair)
        });
    };
    let frr = Frr::start(&mut pair, version, 100, interval_ms);
    frr_alone(&pair);
    // Weir takes over by priority, and hands over by priority 0.
    pair.start("director", &weir(version, 150, interval));
    weir_alone(&pair);
    pair.stop_and_wait("director");
    frr_alone(&pair);
    // FRR stays active against a lower priority, and hands over.
    pair.start("director", &weir(version, 50, interval));
    pair.wait_for("the active peer", || {
        pair.router("director")["active_peer"].is_string()
    });
    assert_eq!(pair.router("director")["state"], "backup");
    frr.stop(&pair);
    weir_alone(&pair);
    Frr::start(&mut pair, version, 100, interval_ms);
    frr_alone(&pair);
    let router = pair.router("director");
    assert_eq!(router["state"], "backup");
    assert_eq!(router["ignored"], serde_json::json!({}), "{router}");
}

#[test]
fn version_3_with_frr() {
    if privileged() {
        both_roles(3, ("100ms", 100));
    }
}

#[test]
fn version_2_with_frr_at_length() {
    if std::env::var_os("WEIR_SOAK").is_some() && privileged() {
        both_roles(2, ("1s", 1000));
    }
}
