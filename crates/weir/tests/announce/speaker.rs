//! Tests Weir with each BGP speaker: BIRD, ExaBGP, GoBGP and FRR.
//!
//! The speaker announces an IPv4 VIP and an IPv6 VIP to a router, which also receives routes to the VIPs from another
//! director.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::world::{Family, World, full_prefix, privileged, sh, wait_for};
use super::{Fabric, SESSION, TIMEOUT, child, kill};

const FAMILIES: [(Family, &str, &str); 2] = [
    (Family::V4, "ipv4", "192.0.2.10"),
    (Family::V6, "ipv6", "2001:db8::10"),
];
/// Number of the other director.
const OTHER: u16 = 4;
const FRR_DIRECTORY: &str = "/usr/lib/frr";
const PREFIX_LIST: &str = "OUT";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    Bird,
    ExaBgp,
    GoBgp,
    /// FRR, controlled through the sockets of its daemons.
    Frr,
    /// FRR whose sockets Weir does not use, as in a container.
    FrrByVtysh,
    /// FRR with the prefix list [`PREFIX_LIST`].
    FrrWithPrefixList,
}

/// The router's routes to a VIP.
#[derive(Debug, PartialEq, Eq)]
enum Routes {
    /// Packets go to both directors, because their routes are equal.
    Both,
    /// The router has both routes, and uses only that of the other director, because Weir's has GRACEFUL_SHUTDOWN.
    OtherPreferred,
    /// The router has only the route to the other director.
    Other,
}

pub(super) struct Site {
    pub(super) fabric: Fabric,
}

impl Site {
    /// Starts the server, the router and the other director.
    pub(super) fn new() -> Self {
        let mut fabric = Fabric {
            world: World::new(1),
        };
        fabric.world.start_nginx(64);
        fabric.world.add_router("other", OTHER);
        fabric.start_bird("client", &router());
        fabric.start_bird("other", &other_director());
        Self { fabric }
    }

    /// Starts the speaker on the director. Returns the keys of `[announce]`.
    pub(super) fn start(&mut self, speaker: Speaker) -> String {
        match speaker {
            Speaker::Bird => self.start_bird(),
            Speaker::ExaBgp => self.start_exabgp(),
            Speaker::GoBgp => self.start_gobgp(),
            Speaker::Frr | Speaker::FrrByVtysh | Speaker::FrrWithPrefixList => {
                self.start_frr(speaker)
            }
        }
    }

    fn start_bird(&mut self) -> String {
        let path = |name: &str| self.fabric.path("director", name).display().to_string();
        let (socket, include, wildcard) = (path("bird.ctl"), path("weir.conf"), path("weir*.conf"));
        let mut text =
            format!("router id 10.71.0.3;\ninclude \"{wildcard}\";\nprotocol device {{ }}\n");
        for (family, channel, _) in FAMILIES {
            let export = format!(
                "import none; export where proto = \"weir{}\";",
                &channel[3..]
            );
            text += &bgp("router", channel, (family, 3, 65001), (2, 65000), &export);
        }
        self.fabric.start_bird("director", &text);
        format!("speaker = \"bird\"\nsocket = \"{socket}\"\ninclude = \"{include}\"\n")
    }

    fn start_exabgp(&mut self) -> String {
        let root = self.fabric.world.path("exabgp");
        let run = root.join("run");
        fs::create_dir_all(&run).expect("create a directory");
        let pipe = self.fabric.world.namespace("exabgp");
        let path = run.join(&pipe);
        sh(&format!("mkfifo {0}.in {0}.out", path.display()));
        let mut text = String::new();
        for (family, channel, _) in FAMILIES {
            text += &format!(
                "neighbor {} {{\n  router-id 10.71.0.3;\n  local-address {};\n  local-as 65001;\n  peer-as 65000;\n  \
                 hold-time 9;\n  family {{ {channel} unicast; }}\n}}\n",
                family.client(),
                family.director()
            );
        }
        let file = root.join("exabgp.conf");
        fs::write(&file, text).expect("write the file");
        let log = fs::File::create(root.join("log")).expect("create the log file");
        let child = self
            .fabric
            .world
            .command("director", "exabgp")
            .arg("--root")
            .arg(&root)
            .arg(file)
            .env("exabgp_api_pipename", pipe)
            .env("exabgp_daemon_user", "root")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("duplicate the file descriptor"))
            .stderr(log)
            .spawn()
            .expect("start exabgp (tools/install-deps.sh installs it)");
        self.fabric.world.kill_on_drop(child);
        format!("speaker = \"exabgp\"\npipe = \"{}.in\"\n", path.display())
    }

    fn start_gobgp(&mut self) -> String {
        let mut text = "[global.config]\nas = 65001\nrouter-id = \"10.71.0.3\"\n".to_owned();
        for (family, channel, _) in FAMILIES {
            // GoBGP waits for the router to connect, because its own first attempt can take a minute.
            text += &format!(
                "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{}\"\npeer-as = \
                 65000\n[neighbors.transport.config]\npassive-mode = true\n[[neighbors.afi-safis]]\n\
                 [neighbors.afi-safis.config]\nafi-safi-name = \"{channel}-unicast\"\n",
                family.client()
            );
        }
        let file = self.fabric.world.path("gobgpd.conf");
        fs::write(&file, text).expect("write the file");
        let log = fs::File::create(self.fabric.world.path("gobgpd.log"));
        let child = self
            .fabric
            .world
            .command("director", "gobgpd")
            .args(["--pprof-disable", "-f"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(log.expect("create the log file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("start gobgpd (tools/install-deps.sh installs it)");
        self.fabric.world.kill_on_drop(child);
        "speaker = \"gobgp\"\n".to_owned()
    }

    fn start_frr(&mut self, speaker: Speaker) -> String {
        let directory = self.fabric.world.path("frr");
        fs::create_dir_all(&directory).expect("create a directory");
        let directory = directory.to_str().expect("path is valid UTF-8").to_owned();
        // FRR's daemons drop root privileges.
        sh(&format!(
            "chown frr:frr {directory} && chmod 755 $(dirname {directory})"
        ));
        // With graceful restart, the router would keep the routes of a bgpd that was killed.
        let mut bgpd =
            "router bgp 65001\n bgp router-id 10.71.0.3\n no bgp ebgp-requires-policy\n \
                        no bgp default ipv4-unicast\n bgp graceful-restart-disable\n"
                .to_owned();
        for (family, channel, _) in FAMILIES {
            let router = family.client();
            let filter = match speaker {
                Speaker::FrrWithPrefixList => {
                    format!("  neighbor {router} prefix-list {PREFIX_LIST} out\n")
                }
                _ => String::new(),
            };
            bgpd += &format!(
                " neighbor {router} remote-as 65000\n neighbor {router} timers connect 1\n \
                 address-family {channel} unicast\n  neighbor {router} activate\n{filter} exit-address-family\n"
            );
        }
        if speaker == Speaker::FrrWithPrefixList {
            for keyword in ["ip", "ipv6"] {
                bgpd += &format!("{keyword} prefix-list {PREFIX_LIST} seq 5 permit any\n");
            }
        }
        for (program, config) in [("zebra", ""), ("staticd", ""), ("bgpd", &bgpd)] {
            let file = |kind: &str| format!("{directory}/{program}.{kind}");
            fs::write(
                file("conf"),
                format!("hostname director\nlog stdout\n{config}"),
            )
            .expect("write the file");
            let log = fs::File::create(file("log")).expect("create the log file");
            let child = self
                .fabric
                .world
                .command("director", &format!("{FRR_DIRECTORY}/{program}"))
                .args(["-f", &file("conf"), "-i", &file("pid")])
                .args(["-z", &format!("{directory}/zserv.api")])
                .args(["--vty_socket", &directory])
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{program}: {error}"));
            self.fabric.world.kill_on_drop(child);
            wait_for(program, TIMEOUT, || fs::metadata(file("vty")).is_ok());
        }
        let (program, key) = match speaker {
            Speaker::FrrByVtysh => ("\"env\", \"vtysh\"", String::new()),
            Speaker::FrrWithPrefixList => {
                ("\"vtysh\"", format!("prefix_list = \"{PREFIX_LIST}\"\n"))
            }
            _ => ("\"vtysh\"", String::new()),
        };
        format!(
            "speaker = \"frr\"\nasn = 65001\ncommand = [{program}, \"--vty_socket\", \"{directory}\"]\n{key}"
        )
    }

    /// Executes commands in FRR's bgpd. Returns the output.
    fn vtysh(&self, lines: &[&str]) -> String {
        let mut command = Command::new("vtysh");
        command
            .arg("--vty_socket")
            .arg(self.fabric.world.path("frr"))
            .args(["-d", "bgpd"]);
        for line in lines {
            command.args(["-c", line]);
        }
        let output = command.output().expect("run vtysh");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn wait_for(&self, expected: &Routes) {
        for (family, _, vip) in FAMILIES {
            let mut last = None;
            wait_for(&format!("{expected:?} for {vip}"), TIMEOUT, || {
                last = self.routes(family, vip);
                last.as_ref() == Some(expected)
            });
        }
    }

    /// Returns the router's routes to a VIP; `None` = they are changing.
    fn routes(&self, family: Family, vip: &str) -> Option<Routes> {
        let prefix = format!("{vip}/{}", full_prefix(family));
        let birdc = |line: &str| self.fabric.birdc("client", line);
        let received = birdc(&format!("show route {prefix} all"));
        let primary = birdc(&format!("show route {prefix} primary"));
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        let output = self
            .fabric
            .world
            .output("client", &format!("ip {flag} route show {prefix}"));
        let used = String::from_utf8_lossy(&output.stdout)
            .matches("via ")
            .count();
        let has_director = received.contains("[director_");
        let is_drained = received.contains("(65535,0)");
        match (has_director, is_drained, used) {
            (true, false, 2) => Some(Routes::Both),
            (true, true, 1) if primary.contains("[other_") => Some(Routes::OtherPreferred),
            (false, false, 1) => Some(Routes::Other),
            _ => None,
        }
    }

    fn wait_for_success(&self) {
        wait_for("accepted routes and no error", TIMEOUT, || {
            let status = self.fabric.world.status();
            let routes = status["announce"].as_array();
            let is_announced = |route: &serde_json::Value| route["state"] == "announced";
            status["announce_error"].is_null()
                && routes.is_some_and(|it| it.len() == 2 && it.iter().all(is_announced))
        });
    }
}

/// The configuration of the router's BIRD. The filter implements RFC 8326.
fn router() -> String {
    let mut text = "router id 10.71.0.2;\nprotocol device { scan time 1; }\nfilter received {\n  if (65535, 0) ~ \
                    bgp_community then bgp_local_pref = 0;\n  accept;\n}\n"
        .to_owned();
    for (family, channel, _) in FAMILIES {
        text += &format!(
            "protocol kernel {{ merge paths on; {channel} {{ export all; import none; }}; }}\n"
        );
        for (name, number) in [("director", 3), ("other", OTHER)] {
            let policy = "import filter received; export none;";
            text += &bgp(name, channel, (family, 2, 65000), (number, 65001), policy);
        }
    }
    text
}

fn other_director() -> String {
    let mut text = "router id 10.71.0.4;\nprotocol device { }\n".to_owned();
    for (family, channel, vip) in FAMILIES {
        let prefix = full_prefix(family);
        text += &format!("protocol static {{ {channel}; route {vip}/{prefix} blackhole; }}\n");
        let export = "import none; export where source = RTS_STATIC;";
        text += &bgp(
            "router",
            channel,
            (family, OTHER, 65001),
            (2, 65000),
            export,
        );
    }
    text
}

/// Returns a BGP session `NAME_CHANNEL` of BIRD between two hosts, each specified with its AS number.
fn bgp(
    name: &str,
    channel: &str,
    (family, local, asn): (Family, u16, u32),
    (peer, peer_asn): (u16, u32),
    policy: &str,
) -> String {
    let (local, peer) = (family.host(local), family.host(peer));
    format!(
        "protocol bgp {name}_{channel} {{\n  local {local} as {asn};\n  neighbor {peer} as {peer_asn};\n{SESSION}  \
         {channel} {{ {policy} }};\n}}\n"
    )
}

fn config(announce: &str) -> String {
    let mut text = String::new();
    for (family, name, vip) in FAMILIES {
        let vip = super::world::bracketed(vip.parse().expect("parse the address"));
        let server = super::world::bracketed(family.server(0));
        text += &format!(
            "[pool.{name}]\nservers = [\"{server}\"]\ncheck = {{ kind = \"http\", path = \"/name\", interval = \
             \"200ms\", timeout = \"150ms\", fall = 2, rise = 1 }}\n[service.{name}]\nlisten = \
             [\"{vip}:80\"]\nforward = \"direct\"\npool = \"{name}\"\n"
        );
    }
    text + "[announce]\ndrain_delay = \"3s\"\nwithdraw_after = \"4s\"\n" + announce
}

/// Asserts that the speaker announces, withdraws and drains the VIPs, and keeps them for `withdraw_after` if the keeper
/// and the daemon are killed.
fn assert_announces_and_withdraws(speaker: Speaker) {
    if !privileged() {
        return;
    }
    let mut site = Site::new();
    let announce = site.start(speaker);
    let keeper = site.fabric.world.start_daemon(&config(&announce));
    site.wait_for(&Routes::Both);
    site.wait_for_success();

    site.fabric.world.kill_nginx(0);
    site.wait_for(&Routes::Other);
    site.fabric.world.start_nginx_on("server0", 0, "");
    site.wait_for(&Routes::Both);

    site.fabric.world.run_weir(&["node", "drain"]);
    site.wait_for(&Routes::OtherPreferred);
    site.wait_for(&Routes::Other);
    site.fabric.world.run_weir(&["node", "ready"]);
    site.wait_for(&Routes::Both);
    site.wait_for_success();

    let daemon = child(keeper, "weir run");
    kill(keeper);
    kill(daemon);
    std::thread::sleep(Duration::from_secs(1));
    for (family, _, vip) in FAMILIES {
        assert_eq!(
            site.routes(family, vip),
            Some(Routes::Both),
            "the routes must not be withdrawn immediately"
        );
    }
    site.wait_for(&Routes::Other);
}

#[test]
fn bird_announces_and_withdraws_vips() {
    assert_announces_and_withdraws(Speaker::Bird);
}

#[test]
fn exabgp_announces_and_withdraws_vips() {
    assert_announces_and_withdraws(Speaker::ExaBgp);
}

#[test]
fn gobgp_announces_and_withdraws_vips() {
    assert_announces_and_withdraws(Speaker::GoBgp);
}

#[test]
fn frr_announces_and_withdraws_vips() {
    assert_announces_and_withdraws(Speaker::Frr);
}

#[test]
fn frr_controlled_by_vtysh_announces_and_withdraws_vips() {
    assert_announces_and_withdraws(Speaker::FrrByVtysh);
}

#[test]
fn frr_with_prefix_list_announces_and_withdraws_vips() {
    assert_announces_and_withdraws(Speaker::FrrWithPrefixList);
}

/// Entry 1 of the prefix list is first one that a killed Weir has left, and then one of the operator's. Weir removes
/// only its own entry. The routes do not depend on the list.
#[test]
fn frr_prefix_list_keeps_entries_of_operator() {
    if !privileged() {
        return;
    }
    let mut site = Site::new();
    let announce = site.start(Speaker::FrrWithPrefixList);
    let show = "show ip prefix-list OUT";
    let own_rule = "seq 1 deny 255.255.255.255/32";
    let change = |site: &Site, line: &str| site.vtysh(&["configure terminal", line]);
    change(&site, &format!("ip prefix-list OUT {own_rule}"));
    assert!(site.vtysh(&[show]).contains(own_rule));
    site.fabric.world.start_daemon(&config(&announce));
    site.wait_for(&Routes::Both);
    site.wait_for_success();
    wait_for("the removal of the entry", TIMEOUT, || {
        !site.vtysh(&[show]).contains(own_rule)
    });

    let entry = "seq 1 deny 198.51.100.0/24";
    change(&site, &format!("ip prefix-list OUT {entry}"));
    site.fabric.world.kill_nginx(0);
    site.wait_for(&Routes::Other);
    wait_for_warning(&site, "sequence number 1");
    assert!(site.vtysh(&[show]).contains(entry));
    change(&site, &format!("no ip prefix-list OUT {entry}"));
    site.fabric.world.start_nginx_on("server0", 0, "");
    site.wait_for(&Routes::Both);
    site.wait_for_success();

    // Weir does not create a list that FRR does not have.
    site.fabric
        .world
        .reload(&config(&announce.replace("\"OUT\"", "\"NONE\"")));
    wait_for_warning(&site, "does not have the `ip prefix-list NONE`");
    site.fabric.world.kill_nginx(0);
    site.wait_for(&Routes::Other);
    assert!(!site.vtysh(&["show running-config"]).contains("NONE"));
}

fn wait_for_warning(site: &Site, text: &str) {
    wait_for(text, TIMEOUT, || {
        let status = site.fabric.world.status();
        let warning = status["announce_warning"].as_str().unwrap_or_default();
        warning.contains(text)
    });
}

/// vtysh reaches FRR's other daemons, so its reply differs from that of an FRR that is not running.
#[test]
fn frr_whose_bgpd_has_stopped_is_replaced_by_bird() {
    if !privileged() {
        return;
    }
    let mut site = Site::new();
    let announce = site.start(Speaker::Frr);
    site.fabric.world.start_daemon(&config(&announce));
    site.wait_for(&Routes::Both);
    let file = site.fabric.world.path("frr/bgpd.pid");
    let pid = fs::read_to_string(file).expect("read the process id");
    kill(pid.trim().parse().expect("parse the process id"));
    site.wait_for(&Routes::Other);
    let announce = site.start(Speaker::Bird);
    site.fabric.world.reload(&config(&announce));
    site.wait_for(&Routes::Both);
    site.wait_for_success();
}
