//! Weir and keepalived as peers, in both roles. `KEEPALIVED` names another keepalived than the installed one.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

/// The key of the authentication trailer.
const KEY: &str = "hex:5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// A combination of version, family, way of sending, and what packets contain.
#[derive(Clone, Copy, Debug)]
struct Cell {
    version: u8,
    interval: &'static str,
    vip: &'static str,
    unicast: bool,
    password: bool,
    /// The checksum of version 3 over IPv4 without a pseudo header (`v3_checksum_as_v2`): keepalived 2.2.8 and newer.
    plain: bool,
    /// The pseudo header of unicast packets has the multicast group as its destination (`old_unicast_checksum`).
    old: bool,
    /// The authentication trailer: keepalived 2.4.2 and newer.
    hmac: bool,
    virtual_mac: bool,
}

const V2: Cell = Cell {
    version: 2,
    interval: "1s",
    vip: VIP,
    unicast: false,
    password: false,
    plain: false,
    old: false,
    hmac: false,
    virtual_mac: false,
};
const V3: Cell = Cell {
    version: 3,
    interval: "100ms",
    vip: "10.0.0.10/24",
    ..V2
};

impl Cell {
    const fn is_v6(self) -> bool {
        matches!(self.vip.as_bytes(), [b'f', ..])
    }

    /// The address of a director for unicast.
    fn host(self, number: u8) -> String {
        match self.is_v6() {
            true => format!("2001:db8::{number}"),
            false => format!("10.0.0.{number}"),
        }
    }

    fn weir(self, priority: u8, key: &str) -> String {
        let Self {
            version,
            interval,
            vip,
            ..
        } = self;
        let mut lines = Vec::new();
        if self.unicast {
            lines.push(format!(
                "source = \"{}\"\nunicast_peers = [\"{}\"]",
                self.host(3),
                self.host(4)
            ));
        }
        if self.password {
            lines.push("password = \"secret\"".to_owned());
        }
        if self.hmac {
            lines.push(format!(
                "hmac = {{ keys = [{{ id = 7, secret = {{ file = \"{key}\" }} }}] }}"
            ));
        }
        if self.virtual_mac {
            lines.push("virtual_mac = true".to_owned());
        }
        format!(
            "[vrrp.v]\ninterface = \"eth0\"\nvirtual_router_id = 60\nversion = {version}\npriority = {priority}\n\
             advert_interval = \"{interval}\"\naddresses = [\"{vip}\"]\n{}\n",
            lines.join("\n")
        )
    }

    fn keepalived(self, priority: u8) -> String {
        let Self { version, vip, .. } = self;
        let seconds = if self.interval == "1s" { "1" } else { "0.1" };
        let mut lines = Vec::new();
        if self.unicast {
            lines.push(format!(
                "unicast_src_ip {}\n  unicast_peer {{\n    {}\n  }}",
                self.host(4),
                self.host(3)
            ));
        }
        if self.password {
            lines
                .push("authentication {\n    auth_type PASS\n    auth_pass secret\n  }".to_owned());
        }
        if self.plain {
            lines.push("v3_checksum_as_v2".to_owned());
        }
        if self.old {
            lines.push("old_unicast_checksum".to_owned());
        }
        if self.hmac {
            lines.push(format!(
                "auth_hmac {{\n    key 7 {KEY}\n    active_key 7\n  }}"
            ));
        }
        let device = match self.virtual_mac {
            true => "",
            false => " dev eth0",
        };
        if self.virtual_mac {
            lines.push("use_vmac".to_owned());
        }
        format!(
            "global_defs {{\n  vrrp_version {version}\n}}\nvrrp_instance v {{\n  state BACKUP\n  interface eth0\n  \
             virtual_router_id 60\n  priority {priority}\n  advert_int {seconds}\n  {}\n  \
             virtual_ipaddress {{\n    {vip}{device}\n  }}\n}}\n",
            lines.join("\n  ")
        )
    }
}

/// The program: the one that `KEEPALIVED` names, a newer one for example.
fn keepalived() -> String {
    std::env::var("KEEPALIVED").unwrap_or_else(|_| "keepalived".to_owned())
}

pub(super) fn start_keepalived(pair: &mut Pair, config: &str) {
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

pub(super) fn stop_keepalived(pair: &Pair) {
    let pid = pair.path("keepalived.pid");
    pair.wait_for("keepalived", || Path::new(&pid).exists());
    sh(&format!("kill -TERM $(cat {pid})"));
    pair.wait_for("keepalived's end", || !Path::new(&pid).exists());
}

/// Whether an address is on any device of a host: with a virtual MAC address it is on another one.
fn has(pair: &Pair, host: &str, address: &str) -> bool {
    let shown = pair.world.output(host, "ip -o addr show");
    String::from_utf8_lossy(&shown.stdout).contains(&format!(" {address}/"))
}

/// Weir takes over from keepalived by priority and hands over by priority 0; then the other way around.
fn both_roles(cell: Cell) {
    if !privileged() {
        return;
    }
    let vip = cell.vip.split('/').next().expect("an address");
    let mut pair = Pair::new();
    for (host, number) in [("director", 3), ("second", 4)] {
        if cell.is_v6() && cell.unicast {
            pair.ip(
                host,
                &format!("addr add {}/64 dev eth0 nodad", cell.host(number)),
            );
        }
    }
    let key = pair.path("vrrp.key");
    fs::write(&key, format!("{KEY}\n")).expect("written");
    sh(&format!("chmod 600 {key}"));
    let alone = |pair: &Pair, host: &str, other: &str| {
        pair.wait_for(&format!("{host} to have {vip}"), || {
            has(pair, host, vip) && !has(pair, other, vip)
        });
    };
    start_keepalived(&mut pair, &cell.keepalived(100));
    alone(&pair, "second", "director");
    pair.start("director", &cell.weir(150, &key));
    alone(&pair, "director", "second");
    pair.stop_and_wait("director");
    alone(&pair, "second", "director");
    // keepalived stays active against a lower priority, and Weir knows it.
    pair.start("director", &cell.weir(50, &key));
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
    if cell.version == 3 && !cell.is_v6() {
        let expected = match (cell.plain, cell.old) {
            (true, _) => "plain",
            (false, true) => "group-pseudo-header",
            (false, false) => "pseudo-header",
        };
        assert_eq!(router["checksum"], expected);
    }
}

#[test]
fn version_2_with_keepalived() {
    both_roles(V2);
}

#[test]
fn version_3_with_keepalived() {
    both_roles(V3);
}

#[test]
fn version_3_by_unicast_with_keepalived() {
    both_roles(Cell {
        vip: "10.0.0.10/32",
        unicast: true,
        ..V3
    });
}

#[test]
fn old_checksum_by_unicast_with_keepalived() {
    both_roles(Cell {
        vip: "10.0.0.10/32",
        unicast: true,
        old: true,
        ..V3
    });
}

#[test]
fn version_3_over_ipv6_with_keepalived() {
    both_roles(Cell {
        vip: "fe80::10/64",
        ..V3
    });
}

#[test]
fn version_2_with_a_password_with_keepalived() {
    both_roles(Cell {
        password: true,
        ..V2
    });
}

#[test]
fn virtual_mac_address_with_keepalived() {
    both_roles(Cell {
        virtual_mac: true,
        ..V3
    });
}

/// The version of keepalived, which it prints to standard error.
fn version() -> Vec<u32> {
    let version = std::process::Command::new(keepalived())
        .arg("--version")
        .output()
        .expect("keepalived runs");
    let text = String::from_utf8_lossy(&version.stderr).into_owned();
    let first = text.lines().next().unwrap_or_default();
    println!("{first}");
    let number = first.split(" v").nth(1).unwrap_or_default();
    let number = number.split(' ').next().unwrap_or_default();
    let parts = number.split('.').filter_map(|it| it.parse().ok());
    parts.collect()
}

/// Every combination that keepalived has, in the long tests: with `KEEPALIVED` for each version of it.
fn all_cells(base: Cell, addresses: &[&'static str]) {
    if std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    let version = version();
    for vip in addresses {
        for bits in 0..64_u32 {
            let on = |bit: u32| bits & (1 << bit) != 0;
            let cell = Cell {
                vip,
                unicast: on(0),
                password: on(1),
                plain: on(2),
                hmac: on(3),
                virtual_mac: on(4),
                old: on(5),
                ..base
            };
            // These do not exist: passwords are those of version 2, which has one checksum, as has IPv6; the old
            // checksum is that of unicast; a virtual MAC address is for multicast in Weir, and keepalived has one kind
            // of authentication at a time.
            let is_possible = !(cell.password && (cell.version == 3 || cell.hmac)
                || cell.plain && (cell.version == 2 || cell.is_v6())
                || cell.old && (cell.version == 2 || cell.is_v6() || !cell.unicast || cell.plain)
                || cell.virtual_mac && cell.unicast);
            let is_supported =
                !(cell.plain && version < vec![2, 2, 8] || cell.hmac && version < vec![2, 4, 2]);
            if is_possible && !is_supported {
                println!("unsupported by this keepalived: {cell:?}");
            } else if is_possible {
                println!("{cell:?}");
                both_roles(cell);
            }
        }
    }
}

#[test]
fn all_cells_of_version_2_with_keepalived_at_length() {
    all_cells(V2, &["10.0.0.10/32", "10.0.0.10/24"]);
}

#[test]
fn all_cells_of_version_3_with_keepalived_at_length() {
    all_cells(V3, &["10.0.0.10/32", "10.0.0.10/24"]);
}

#[test]
fn all_cells_of_ipv6_with_keepalived_at_length() {
    all_cells(V3, &["fe80::10/64"]);
}
