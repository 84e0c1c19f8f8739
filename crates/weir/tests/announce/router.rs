//! Tests `weir doctor --router` on a router with BIRD or FRR, to which two directors announce VIPs.
//!
//! Each test causes one fault after another, and fixes each as the finding describes.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::world::{World, privileged, sh, wait_for};
use super::{SESSION, TIMEOUT, VIP};

const VIP6: &str = "2001:db8::10";
const NO_PROBLEMS: &str = "no problems found\n";

/// The directors: host, last part of its addresses.
const DIRECTORS: [(&str, u8); 2] = [("server0", 20), ("server1", 21)];

/// A router on the host `client`, and two directors.
struct Network {
    world: World,
    /// The command of the router's speaker.
    speaker: String,
}

impl Network {
    fn new() -> Self {
        let mut network = Self {
            world: World::new(DIRECTORS.len()),
            speaker: String::new(),
        };
        for (host, _) in DIRECTORS {
            network.write(host, "bird.conf", &director_config(host, 65001, ""));
            network.start_bird(host);
        }
        network
    }

    /// Returns the path of a file of a host's speaker.
    fn path(&self, host: &str, name: &str) -> PathBuf {
        let directory = self.world.path(&format!("speaker-{host}"));
        fs::create_dir_all(&directory).expect("create a directory");
        directory.join(name)
    }

    fn write(&self, host: &str, name: &str, text: &str) {
        fs::write(self.path(host, name), text).expect("write the file");
    }

    fn start(&mut self, host: &str, program: &str, arguments: &[&str]) {
        let mut command = self.world.command(host, program);
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("start the program");
        self.world.kill_on_drop(child);
    }

    fn start_bird(&mut self, host: &str) {
        let [file, socket] = ["bird.conf", "bird.ctl"].map(|name| self.path(host, name));
        let arguments = [
            "-f",
            "-c",
            &file.to_string_lossy(),
            "-s",
            &socket.to_string_lossy(),
        ];
        self.start(host, "bird", &arguments);
        wait_for("BIRD's socket", TIMEOUT, || socket.exists());
    }

    /// Writes the configuration of a host's BIRD, and makes BIRD read it.
    fn configure_bird(&self, host: &str, text: &str) {
        self.write(host, "bird.conf", text);
        let mut birdc = Command::new("birdc");
        birdc
            .arg("-s")
            .arg(self.path(host, "bird.ctl"))
            .arg("configure");
        let output = birdc.output().expect("run birdc");
        let reply = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(reply.contains("econfigur"), "{reply}");
    }

    /// Changes how the second director announces the VIPs: its AS, and statements of BIRD's export filter.
    fn change_second_director(&self, asn: u32, statements: &str) {
        let (host, _) = DIRECTORS[1];
        self.configure_bird(host, &director_config(host, asn, statements));
    }

    /// Returns the number of next hops of the kernel's route to a prefix.
    fn next_hop_count(&self, prefix: &str) -> usize {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let output = self
            .world
            .output("client", &format!("ip {family} route show {prefix}"));
        String::from_utf8_lossy(&output.stdout)
            .matches("via ")
            .count()
    }

    fn wait_for_next_hops(&self, count: usize) {
        let prefix = format!("{VIP}/32");
        let description = format!("{count} next hops");
        wait_for(&description, TIMEOUT, || {
            self.next_hop_count(&prefix) == count
        });
    }

    /// Runs `weir doctor --router` with VIPs. Returns the exit code and the output.
    fn doctor(&self, vips: &[&str]) -> (Option<i32>, String) {
        let mut weir = self.world.weir("client");
        weir.args(["doctor", "--router"]).args(vips);
        let output = weir.args(["--speaker", &self.speaker]).output();
        let output = output.expect("run weir");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Returns the findings about `vips`, or about all VIPs if `vips` is empty.
    fn findings(&self, vips: &[&str]) -> Vec<String> {
        let (_, text) = self.doctor(vips);
        let findings = text.split("\n\n").filter(|it| *it != NO_PROBLEMS);
        findings.map(str::to_owned).collect()
    }

    /// Asserts that there is exactly one finding, which contains these texts. Returns its fix.
    fn assert_only_finding(&self, vips: &[&str], texts: &[&str]) -> String {
        let findings = self.findings(vips);
        let [finding] = findings.as_slice() else {
            panic!("not one finding: {findings:#?}");
        };
        for text in texts {
            assert!(finding.contains(text), "{text}: {finding}");
        }
        fix_of(finding)
    }

    /// Waits for a finding that contains a text. The routes of the two address families do not change at the same time.
    fn wait_for_finding(&self, text: &str) {
        wait_for(text, TIMEOUT, || {
            self.findings(&[]).iter().any(|it| it.contains(text))
        });
    }

    fn wait_for_no_findings(&self) {
        wait_for("no findings", TIMEOUT, || self.findings(&[]).is_empty());
        let (code, text) = self.doctor(&[]);
        assert_eq!((code, text.as_str()), (Some(0), NO_PROBLEMS));
    }

    /// Runs the command of a fix on the router.
    fn run_fix(&self, command: &str) {
        let output = self
            .world
            .command("client", "sh")
            .args(["-ec", command])
            .output();
        let output = output.expect("run sh");
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

/// Returns the fix of a finding.
fn fix_of(finding: &str) -> String {
    let (_, fix) = finding.split_once("\n  fix:  ").expect("no fix");
    fix.trim_end().to_owned()
}

/// Returns the configuration of a director's BIRD, whose filter contains `statements`.
fn director_config(host: &str, asn: u32, statements: &str) -> String {
    let (_, number) = DIRECTORS
        .into_iter()
        .find(|(director, _)| *director == host)
        .expect("not a director");
    let session = |name: &str, own: &str, router: &str, channel: &str| {
        format!(
            "protocol bgp {name} {{\n  local {own} as {asn};\n  neighbor {router} as 65000;\n{SESSION}  {channel} {{ \
             import none; export filter {{ if source = RTS_STATIC then {{ {statements} accept; }} reject; }}; \
             }};\n}}\n"
        )
    };
    format!(
        "router id 10.71.0.{number};\nprotocol device {{ }}\nprotocol static vips4 {{ ipv4; route {VIP}/32 blackhole; \
         }}\nprotocol static vips6 {{ ipv6; route {VIP6}/128 blackhole; }}\n{}{}",
        session("router4", &format!("10.71.0.{number}"), "10.71.0.2", "ipv4"),
        session("router6", &format!("fd71::{number:x}"), "fd71::2", "ipv6"),
    )
}

/// Returns the configuration of the router's BIRD. `kernel` contains options of the kernel protocols, `export` the
/// export filter to the kernel.
fn router_config(kernel: &str, export: &str, more: &str) -> String {
    let mut text = format!("router id 10.71.0.2;\nprotocol device {{ scan time 1; }}\n{more}\n");
    for (channel, export) in [("ipv4", export), ("ipv6", "all")] {
        text += &format!(
            "protocol kernel {{ {kernel} {channel} {{ import none; export {export}; }}; }}\n"
        );
    }
    for (index, (_, number)) in DIRECTORS.into_iter().enumerate() {
        let asn = 65001;
        for (channel, own, neighbor) in [
            ("ipv4", "10.71.0.2".to_owned(), format!("10.71.0.{number}")),
            ("ipv6", "fd71::2".to_owned(), format!("fd71::{number:x}")),
        ] {
            text += &format!(
                "protocol bgp d{index}_{channel} {{\n  local {own} as 65000;\n  neighbor {neighbor} as \
                 {asn};\n{SESSION}  {channel} {{ import all; export none; }};\n}}\n"
            );
        }
    }
    text
}

#[test]
fn doctor_finds_faults_of_router_with_bird() {
    if !privileged() {
        return;
    }
    let mut network = Network::new();
    let healthy = router_config("merge paths on;", "all", "");
    network.write("client", "bird.conf", &healthy);
    network.start_bird("client");
    network.speaker = format!("birdc -s {}", network.path("client", "bird.ctl").display());
    network.wait_for_next_hops(2);
    wait_for("IPv6 routes", TIMEOUT, || {
        network.next_hop_count(&format!("{VIP6}/128")) == 2
    });

    // The kernel's default policy ignores ports.
    for family in ["ipv4", "ipv6"] {
        let sysctl = format!("net.{family}.fib_multipath_hash_policy");
        let findings = network.findings(&[]);
        let finding = findings.iter().find(|it| it.contains(&sysctl));
        let finding = finding.unwrap_or_else(|| panic!("{sysctl}: {findings:#?}"));
        network.run_fix(&fix_of(finding));
    }
    network.wait_for_no_findings();

    // One director announces a different origin.
    network.change_second_director(65001, "bgp_origin = ORIGIN_INCOMPLETE;");
    network.wait_for_next_hops(1);
    let texts = [
        "different origins: igp (d0_ipv4), incomplete (d1_ipv4)",
        VIP,
    ];
    let fix = network.assert_only_finding(&[VIP], &texts);
    assert!(fix.contains("origin IGP"), "{fix}");
    network.wait_for_finding("igp (d0_ipv6), incomplete (d1_ipv6)");
    network.change_second_director(65001, "");
    network.wait_for_next_hops(2);
    network.wait_for_no_findings();

    // A drained director is not a fault.
    let drain = "bgp_community.add((65535,0)); bgp_med = 100;";
    network.change_second_director(65001, drain);
    network.wait_for_next_hops(1);
    network.wait_for_no_findings();
    network.change_second_director(65001, "");
    network.wait_for_next_hops(2);

    // BIRD exports only one of the paths.
    network.configure_bird("client", &router_config("", "all", ""));
    network.wait_for_next_hops(1);
    let fix =
        network.assert_only_finding(&[VIP], &["the kernel has one next hop", "d0_ipv4, d1_ipv4"]);
    assert!(fix.contains("`merge paths on;`"), "{fix}");
    network.configure_bird("client", &healthy);
    network.wait_for_next_hops(2);

    // The kernel has only an aggregate.
    let aggregate = "protocol static aggregate { ipv4; route 192.0.2.0/24 via 10.71.0.20; }";
    let filtered = router_config("merge paths on;", "where net.len < 32", aggregate);
    network.configure_bird("client", &filtered);
    network.wait_for_next_hops(0);
    wait_for("the aggregate", TIMEOUT, || {
        network.next_hop_count("192.0.2.0/24") == 1
    });
    let fix = network.assert_only_finding(
        &[VIP],
        &[
            "but the kernel has none",
            "192.0.2.0/24",
            "d0_ipv4, d1_ipv4",
        ],
    );
    assert!(fix.contains("`export all;`"), "{fix}");
    // BGP has no path to another VIP.
    network.assert_only_finding(
        &["192.0.2.99"],
        &["no usable host route to the VIP 192.0.2.99", "192.0.2.0/24"],
    );
    network.configure_bird("client", &healthy);
    network.wait_for_next_hops(2);
    network.wait_for_no_findings();
}

/// Starts zebra and bgpd on the router, and waits until both directors' routes have arrived.
fn start_frr(network: &mut Network) {
    let zserv = network.path("client", "zserv.api");
    let directory = zserv.parent().expect("path has no directory").to_owned();
    let directory = directory.to_str().expect("path is not UTF-8").to_owned();
    // FRR's daemons drop root privileges.
    sh(&format!(
        "chown frr:frr {directory} && chmod 755 $(dirname {directory})"
    ));
    let mut bgpd = "hostname router\nrouter bgp 65000\n bgp router-id 10.71.0.2\n no bgp ebgp-requires-policy\n \
                    bgp network import-check\n"
        .to_owned();
    for (_, number) in DIRECTORS {
        let neighbor = format!(" neighbor 10.71.0.{number}");
        bgpd += &format!(
            "{neighbor} remote-as external\n{neighbor} timers 3 9\n{neighbor} timers connect 1\n"
        );
    }
    network.write("client", "zebra.conf", "hostname router\n");
    network.write("client", "bgpd.conf", &bgpd);
    for program in ["zebra", "bgpd"] {
        let file = |kind: &str| format!("{directory}/{program}.{kind}");
        let arguments = [
            "-f",
            &file("conf"),
            "-i",
            &file("pid"),
            "--vty_socket",
            &directory,
        ];
        let socket = format!("{directory}/zserv.api");
        let arguments = [arguments.as_slice(), &["-z", &socket]].concat();
        network.start("client", &format!("/usr/lib/frr/{program}"), &arguments);
        wait_for(program, TIMEOUT, || {
            zserv.exists() && fs::metadata(file("vty")).is_ok()
        });
    }
    network.speaker = format!("vtysh --vty_socket {directory}");
    network.wait_for_next_hops(2);
}

#[test]
fn doctor_finds_faults_of_router_with_frr() {
    if !privileged() {
        return;
    }
    let mut network = Network::new();
    start_frr(&mut network);
    let configure = |lines: &[&str]| {
        let mut command = format!("{} -c 'configure terminal'", network.speaker);
        for line in lines {
            command += &format!(" -c '{line}'");
        }
        network.run_fix(&command);
    };
    let family = ["router bgp 65000", "address-family ipv4 unicast"];
    let in_family = |line| configure(&[family[0], family[1], line]);

    let fix = network.assert_only_finding(&[], &["net.ipv4.fib_multipath_hash_policy is 0"]);
    network.run_fix(&fix);
    network.wait_for_no_findings();

    network.change_second_director(65001, "bgp_origin = ORIGIN_INCOMPLETE;");
    network.wait_for_next_hops(1);
    let texts = ["different origins: igp (10.71.0.20), incomplete (10.71.0.21)"];
    network.assert_only_finding(&[], &texts);
    network.change_second_director(65001, "bgp_med = 7;");
    network.wait_for_finding("different MEDs: 0 (10.71.0.20), 7");
    network.change_second_director(65001, "");
    network.wait_for_next_hops(2);

    // FRR uses one path.
    in_family("maximum-paths 1");
    network.wait_for_next_hops(1);
    let fix = network.assert_only_finding(&[], &["FRR uses 1 of 2 equal paths"]);
    network.run_fix(&fix);
    network.wait_for_next_hops(2);
    network.wait_for_no_findings();

    // The directors are in different ASes.
    network.change_second_director(65002, "");
    network.wait_for_next_hops(1);
    network.wait_for_finding("different AS paths");
    let fix = network.assert_only_finding(&[], &["different AS paths: 65001", "65002"]);
    network.run_fix(&fix);
    network.wait_for_next_hops(2);
    network.wait_for_no_findings();

    // An aggregate suppresses the route to the VIP. This is a note.
    in_family("aggregate-address 192.0.2.0/24 summary-only");
    network.wait_for_finding("an aggregate suppresses it");
    network.assert_only_finding(
        &[],
        &["note: FRR does not send", "an aggregate suppresses it"],
    );
    assert_eq!(network.doctor(&[]).0, Some(0));
    in_family("no aggregate-address 192.0.2.0/24 summary-only");
    network.wait_for_no_findings();

    // A filter prevents the route from reaching the kernel.
    configure(&[
        "route-map NONE deny 10",
        "exit",
        "ip protocol bgp route-map NONE",
    ]);
    network.wait_for_next_hops(0);
    let fix = network.assert_only_finding(&[], &["but the kernel has none: packets are dropped"]);
    assert!(fix.contains("`ip protocol bgp route-map`"), "{fix}");
    configure(&["no ip protocol bgp route-map NONE"]);
    network.wait_for_next_hops(2);
    network.wait_for_no_findings();
    network.assert_only_finding(
        &["198.51.100.1"],
        &["no usable host route to the VIP 198.51.100.1"],
    );
}

/// Without a speaker, the command fails with one error.
#[test]
fn doctor_reports_missing_speaker() {
    if !privileged() {
        return;
    }
    let mut network = Network::new();
    let socket = network.path("client", "none.ctl");
    network.speaker = format!("birdc -s {}", socket.display());
    let (code, text) = network.doctor(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.starts_with("weir: birdc: ") && text.contains("none.ctl"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    network.speaker = "gobgp".to_owned();
    let (code, text) = network.doctor(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("neither `birdc` nor `vtysh`"), "{text}");
}
