//! Tests Weir and keepalived as peers, in both roles. `KEEPALIVED` can be the path of a different build of keepalived.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::pair::{Pair, VIP};
use super::world::{privileged, sh};

/// The key of the authentication trailer.
const KEY: &str = "hex:5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// A combination of protocol version, address family, unicast or multicast, and packet contents.
#[derive(Clone, Copy, Debug)]
struct Combination {
    version: u8,
    interval: &'static str,
    vip: &'static str,
    unicast: bool,
    password: bool,
    /// The version 3 checksum over IPv4 excludes the pseudo header (`v3_checksum_as_v2`; keepalived 2.2.8 and newer).
    plain: bool,
    /// The pseudo header of unicast packets has the multicast group as its destination (`old_unicast_checksum`).
    old: bool,
    /// Packets have the authentication trailer (keepalived 2.4.2 and newer).
    hmac: bool,
    virtual_mac: bool,
}

const V2: Combination = Combination {
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
const V3: Combination = Combination {
    version: 3,
    interval: "100ms",
    vip: "10.0.0.10/24",
    ..V2
};

impl Combination {
    const fn is_v6(self) -> bool {
        matches!(self.vip.as_bytes(), [b'f', ..])
    }

    /// Returns a director's address for unicast.
    fn host(self, number: u8) -> String {
        match self.is_v6() {
            true => format!("2001:db8::{number}"),
            false => format!("10.0.0.{number}"),
        }
    }

    fn weir_config(self, priority: u8, key: &str) -> String {
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

    fn keepalived_config(self, priority: u8) -> String {
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

/// Returns the keepalived program: `KEEPALIVED` if it is set, otherwise the installed one.
fn keepalived_program() -> String {
    std::env::var("KEEPALIVED").unwrap_or_else(|_| "keepalived".to_owned())
}

pub(super) fn start_keepalived(pair: &mut Pair, config: &str) {
    let host = "second";
    let path = pair.path("keepalived.conf");
    fs::write(&path, config).expect("write the file");
    let log = fs::File::create(pair.path(&format!("keepalived-{host}.log")))
        .expect("create the log file");
    let pid = pair.path("keepalived.pid");
    let child = pair
        .world
        .command(host, &keepalived_program())
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
        .expect("start keepalived");
    pair.world.kill_on_drop(child);
}

pub(super) fn stop_keepalived(pair: &Pair) {
    let pid = pair.path("keepalived.pid");
    pair.wait_for("keepalived", || Path::new(&pid).exists());
    sh(&format!("kill -TERM $(cat {pid})"));
    pair.wait_for("keepalived to exit", || !Path::new(&pid).exists());
}

/// Returns whether an address is on any device of a host. With a virtual MAC address, the address is on a separate
/// device.
fn has_address(pair: &Pair, host: &str, address: &str) -> bool {
    let output = pair.world.output(host, "ip -o addr show");
    String::from_utf8_lossy(&output.stdout).contains(&format!(" {address}/"))
}

/// Asserts that Weir takes over from keepalived when it has a higher priority and hands over with priority 0, and that
/// keepalived does the same.
fn assert_works_in_both_roles(combination: Combination) {
    if !privileged() {
        return;
    }
    let vip = combination.vip.split('/').next().expect("no address");
    let mut pair = Pair::new();
    for (host, number) in [("director", 3), ("second", 4)] {
        if combination.is_v6() && combination.unicast {
            pair.ip(
                host,
                &format!("addr add {}/64 dev eth0 nodad", combination.host(number)),
            );
        }
    }
    let key = pair.path("vrrp.key");
    fs::write(&key, format!("{KEY}\n")).expect("write the file");
    sh(&format!("chmod 600 {key}"));
    let wait_for_holder = |pair: &Pair, host: &str, other: &str| {
        pair.wait_for(&format!("{host} to have {vip}"), || {
            has_address(pair, host, vip) && !has_address(pair, other, vip)
        });
    };
    start_keepalived(&mut pair, &combination.keepalived_config(100));
    wait_for_holder(&pair, "second", "director");
    pair.start("director", &combination.weir_config(150, &key));
    wait_for_holder(&pair, "director", "second");
    pair.stop_and_wait("director");
    wait_for_holder(&pair, "second", "director");
    // keepalived remains active when Weir has a lower priority, and Weir reports it as the active peer.
    pair.start("director", &combination.weir_config(50, &key));
    pair.wait_for("the active peer", || {
        pair.router("director")["active_peer"].is_string()
    });
    assert_eq!(pair.router("director")["state"], "backup");
    stop_keepalived(&pair);
    wait_for_holder(&pair, "director", "second");
    start_keepalived(&mut pair, &combination.keepalived_config(100));
    wait_for_holder(&pair, "second", "director");
    let router = pair.router("director");
    assert_eq!(router["state"], "backup");
    assert_eq!(router["ignored"], serde_json::json!({}), "{router}");
    assert_eq!(router["address_mismatches"], 0, "{router}");
    if combination.version == 3 && !combination.is_v6() {
        let expected = match (combination.plain, combination.old) {
            (true, _) => "plain",
            (false, true) => "group-pseudo-header",
            (false, false) => "pseudo-header",
        };
        assert_eq!(router["checksum"], expected);
    }
}

#[test]
fn version_2_works_with_keepalived() {
    assert_works_in_both_roles(V2);
}

#[test]
fn version_3_works_with_keepalived() {
    assert_works_in_both_roles(V3);
}

#[test]
fn version_3_unicast_works_with_keepalived() {
    assert_works_in_both_roles(Combination {
        vip: "10.0.0.10/32",
        unicast: true,
        ..V3
    });
}

#[test]
fn old_unicast_checksum_works_with_keepalived() {
    assert_works_in_both_roles(Combination {
        vip: "10.0.0.10/32",
        unicast: true,
        old: true,
        ..V3
    });
}

#[test]
fn version_3_over_ipv6_works_with_keepalived() {
    assert_works_in_both_roles(Combination {
        vip: "fe80::10/64",
        ..V3
    });
}

#[test]
fn version_2_password_works_with_keepalived() {
    assert_works_in_both_roles(Combination {
        password: true,
        ..V2
    });
}

#[test]
fn virtual_mac_address_works_with_keepalived() {
    assert_works_in_both_roles(Combination {
        virtual_mac: true,
        ..V3
    });
}

/// Returns keepalived's version, which keepalived prints to standard error.
fn keepalived_version() -> Vec<u32> {
    let output = std::process::Command::new(keepalived_program())
        .arg("--version")
        .output()
        .expect("run keepalived");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = text.lines().next().unwrap_or_default();
    println!("{first}");
    let number = first.split(" v").nth(1).unwrap_or_default();
    let number = number.split(' ').next().unwrap_or_default();
    let parts = number.split('.').filter_map(|it| it.parse().ok());
    parts.collect()
}

/// Tests every combination that the installed keepalived, or the one in `KEEPALIVED`, supports.
fn test_all_combinations(base: Combination, addresses: &[&'static str]) {
    if std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    let version = keepalived_version();
    for vip in addresses {
        for bits in 0..64_u32 {
            let is_set = |bit: u32| bits & (1 << bit) != 0;
            let combination = Combination {
                vip,
                unicast: is_set(0),
                password: is_set(1),
                plain: is_set(2),
                hmac: is_set(3),
                virtual_mac: is_set(4),
                old: is_set(5),
                ..base
            };
            // Only version 2 has passwords, and they cannot be combined with an HMAC. Only version 3 over IPv4 has a
            // choice of checksums, and the old unicast checksum includes a pseudo header. Weir's virtual MAC address
            // requires multicast.
            let is_possible = !(combination.password
                && (combination.version == 3 || combination.hmac)
                || combination.plain && (combination.version == 2 || combination.is_v6())
                || combination.old
                    && (combination.version == 2
                        || combination.is_v6()
                        || !combination.unicast
                        || combination.plain)
                || combination.virtual_mac && combination.unicast);
            let is_supported = !(combination.plain && version < vec![2, 2, 8]
                || combination.hmac && version < vec![2, 4, 2]);
            if is_possible && !is_supported {
                println!("unsupported by this keepalived: {combination:?}");
            } else if is_possible {
                println!("{combination:?}");
                assert_works_in_both_roles(combination);
            }
        }
    }
}

#[test]
fn version_2_combinations_work_with_keepalived_soak() {
    test_all_combinations(V2, &["10.0.0.10/32", "10.0.0.10/24"]);
}

#[test]
fn version_3_combinations_work_with_keepalived_soak() {
    test_all_combinations(V3, &["10.0.0.10/32", "10.0.0.10/24"]);
}

#[test]
fn ipv6_combinations_work_with_keepalived_soak() {
    test_all_combinations(V3, &["fe80::10/64"]);
}
