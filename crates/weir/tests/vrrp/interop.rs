//! Weir and keepalived as peers, in both roles. `KEEPALIVED` names another keepalived than the installed one.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

/// A combination of version, family and way of sending.
#[derive(Clone, Copy)]
struct Cell {
    version: u8,
    interval: &'static str,
    vip: &'static str,
    unicast: bool,
    password: bool,
}

impl Cell {
    fn weir(self, priority: u8) -> String {
        let Self {
            version,
            interval,
            vip,
            unicast,
            password,
        } = self;
        let peers = if unicast {
            "unicast_peers = [\"10.0.0.4\"]"
        } else {
            ""
        };
        let password = if password {
            "password = \"secret\""
        } else {
            ""
        };
        format!(
            "[vrrp.v]\ninterface = \"eth0\"\nvirtual_router_id = 60\nversion = {version}\npriority = {priority}\n\
             advert_interval = \"{interval}\"\naddresses = [\"{vip}\"]\n{peers}\n{password}\n"
        )
    }

    fn keepalived(self, priority: u8) -> String {
        let Self {
            version,
            interval,
            vip,
            unicast,
            password,
        } = self;
        let password = if password {
            "authentication {\n    auth_type PASS\n    auth_pass secret\n  }"
        } else {
            ""
        };
        let seconds = if interval == "1s" { "1" } else { "0.1" };
        let peers = if unicast {
            "unicast_src_ip 10.0.0.4\n  unicast_peer {\n    10.0.0.3\n  }"
        } else {
            ""
        };
        format!(
            "global_defs {{\n  vrrp_version {version}\n}}\nvrrp_instance v {{\n  state BACKUP\n  interface eth0\n  \
             virtual_router_id 60\n  priority {priority}\n  advert_int {seconds}\n  {peers}\n  {password}\n  \
             virtual_ipaddress {{\n    {vip} dev eth0\n  }}\n}}\n"
        )
    }
}

/// The program: the one that `KEEPALIVED` names, a newer one for example.
fn keepalived() -> String {
    std::env::var("KEEPALIVED").unwrap_or_else(|_| "keepalived".to_owned())
}

fn start_keepalived(pair: &mut Pair, config: &str) {
    let host = "second";
    let path = pair.path("keepalived.conf");
    fs::write(&path, config).expect("written");
    let log = fs::File::create(pair.path(&format!("keepalived-{host}.log"))).expect("a log");
    let pid = pair.path("keepalived.pid");
    let child = pair
        .world
        .command(host, &keepalived())
        .args([
            "--dont-fork",
            "--log-console",
            "--vrrp",
            "--use-file",
            &path,
        ])
        .args(["--pid", &pid, "--vrrp_pid", &format!("{pid}.vrrp")])
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
        .expect("keepalived starts");
    pair.world.adopt(child);
}

fn stop_keepalived(pair: &Pair) {
    let pid = pair.path("keepalived.pid");
    pair.wait_for("keepalived", || Path::new(&pid).exists());
    sh(&format!("kill -TERM $(cat {pid})"));
    pair.wait_for("keepalived's end", || !Path::new(&pid).exists());
}

/// Weir takes over from keepalived by priority and hands over by priority 0; then the other way around.
fn both_roles(cell: Cell) {
    if !privileged() {
        return;
    }
    let vip = cell.vip.split('/').next().expect("an address");
    let mut pair = Pair::new();
    let alone = |pair: &Pair, host: &str, other: &str| {
        pair.wait_for(&format!("{host} to have {vip}"), || {
            pair.holds(host, vip) && !pair.holds(other, vip)
        });
    };
    start_keepalived(&mut pair, &cell.keepalived(100));
    alone(&pair, "second", "director");
    pair.start("director", &cell.weir(150));
    alone(&pair, "director", "second");
    pair.stop("director");
    alone(&pair, "second", "director");
    // keepalived stays active against a lower priority, and Weir knows it.
    pair.start("director", &cell.weir(50));
    pair.wait_for("the active peer", || {
        pair.router("director")["active_peer"].is_string()
    });
    assert_eq!(pair.router("director")["state"], "backup");
    stop_keepalived(&pair);
    alone(&pair, "director", "second");
    start_keepalived(&mut pair, &cell.keepalived(100));
    alone(&pair, "second", "director");
    let router = pair.router("director");
    assert_eq!(router["state"], "backup");
    assert_eq!(router["ignored"], serde_json::json!({}), "{router}");
    assert_eq!(router["address_mismatches"], 0, "{router}");
    if cell.version == 3 && !vip.contains(':') {
        assert_eq!(router["checksum"], "pseudo-header");
    }
}

#[test]
fn version_2_with_keepalived() {
    both_roles(Cell {
        version: 2,
        interval: "1s",
        vip: VIP,
        unicast: false,
        password: false,
    });
}

#[test]
fn version_3_with_keepalived() {
    both_roles(Cell {
        version: 3,
        interval: "100ms",
        vip: "10.0.0.10/24",
        unicast: false,
        password: false,
    });
}

#[test]
fn version_3_by_unicast_with_keepalived() {
    both_roles(Cell {
        version: 3,
        interval: "100ms",
        vip: "10.0.0.10/32",
        unicast: true,
        password: false,
    });
}

#[test]
fn version_3_over_ipv6_with_keepalived() {
    both_roles(Cell {
        version: 3,
        interval: "100ms",
        vip: "fe80::10/64",
        unicast: false,
        password: false,
    });
}

#[test]
fn version_2_with_a_password_with_keepalived() {
    both_roles(Cell {
        version: 2,
        interval: "1s",
        vip: VIP,
        unicast: false,
        password: true,
    });
}

/// Every combination that keepalived has, in the long tests: with `KEEPALIVED` for each version of it.
#[test]
fn all_cells_with_keepalived_at_length() {
    if std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    let version = std::process::Command::new(keepalived())
        .arg("--version")
        .output()
        .expect("keepalived runs");
    // It prints its version to standard error.
    let text = String::from_utf8_lossy(&version.stderr).into_owned();
    println!("{}", text.lines().next().unwrap_or_default());
    for version in [2, 3] {
        for vip in ["10.0.0.10/32", "10.0.0.10/24", "fe80::10/64"] {
            for unicast in [false, true] {
                for password in [false, true] {
                    let is_v6 = vip.contains(':');
                    // Version 2 is for IPv4, and has the only passwords; unicast peers are IPv4 here.
                    if is_v6 && (version == 2 || unicast) || password && version == 3 {
                        println!(
                            "unsupported: version {version}, {vip}, unicast {unicast}, password {password}"
                        );
                        continue;
                    }
                    println!("version {version}, {vip}, unicast {unicast}, password {password}");
                    both_roles(Cell {
                        version,
                        interval: if version == 2 { "1s" } else { "100ms" },
                        vip,
                        unicast,
                        password,
                    });
                }
            }
        }
    }
}
