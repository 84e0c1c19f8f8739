//! Runs a director: BIRD, and either Weir or nftables rules.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::cost::{Cost, Meter};
use super::rig::{Fabric, GROUP, ROUTER, START_TIMEOUT, create_host, etcd_address};
use super::{Balancer, Method, VIP};
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::namespace::Namespace;
use crate::process::{self, Daemon, Launcher};

const SYNC_PORT: u16 = 8482;

/// One of the two programs under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Build {
    Tested,
    Second,
}

impl Build {
    const fn name(self) -> &'static str {
        match self {
            Self::Tested => "tested",
            Self::Second => "second",
        }
    }
}

/// The programs under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs<'a> {
    pub(super) tested: &'a Path,
    /// The program that some of the directors run, for faults that need two builds.
    pub(super) second: &'a Path,
}

impl<'a> Programs<'a> {
    const fn path(self, build: Build) -> &'a Path {
        match build {
            Build::Tested => self.tested,
            Build::Second => self.second,
        }
    }
}

/// A director in the group.
pub(super) struct Director {
    name: String,
    address: Ipv4Addr,
    namespace: Namespace,
    directory: PathBuf,
    pin_directory: PathBuf,
    build: Build,
    weir_program: PathBuf,
    balancer: Option<Daemon>,
    bird: Option<Daemon>,
}

pub(super) fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, 10 + number)
}

pub(super) fn name(number: u8) -> String {
    format!("d{number}")
}

impl Director {
    /// Starts director `number`. It announces the VIP once its servers are usable.
    pub(super) fn start(
        fabric: &Fabric<'_>,
        (number, build): (u8, Build),
        (method, max_directors): (Method, u8),
        servers: &[Ipv4Addr],
    ) -> Result<Self> {
        let name = name(number);
        let unique = format!("{name}-{}", fabric.session.next_number());
        let namespace = create_host(fabric, &name, address(number))?;
        let mut director = Self {
            address: address(number),
            namespace,
            directory: fabric.session.directory(&unique)?,
            pin_directory: fabric.session.pin_directory(&unique),
            build,
            weir_program: fabric.programs.path(build).to_owned(),
            name,
            balancer: None,
            bird: None,
        };
        director.start_bird()?;
        match method.balancer {
            Balancer::Rules => {
                director.namespace.set_sysctls(&[
                    ("net/ipv4/ip_forward", "1"),
                    ("net/ipv4/conf/all/rp_filter", "0"),
                    ("net/ipv4/conf/eth0/rp_filter", "0"),
                    ("net/ipv4/conf/all/send_redirects", "0"),
                    ("net/ipv4/conf/eth0/send_redirects", "0"),
                ])?;
                director.load_rules(servers)?;
                director.set_announced(true)?;
            }
            Balancer::Weir { has_sync, .. } => {
                director.start_weir(number, max_directors, has_sync)?
            }
        }
        Ok(director)
    }

    fn launcher(&self) -> Launcher<'_> {
        Launcher {
            namespace: &self.namespace,
            directory: &self.directory,
            cgroup: None,
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.directory.join(name);
        std::fs::write(&path, text).map_err(LabError::file(&path))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_string_lossy().into_owned()
    }

    fn start_bird(&mut self) -> Result<()> {
        let address = self.address;
        let text = format!(
            "router id {address};\ninclude \"{}\";\nprotocol device {{ }}\n{}protocol bgp upstream {{\n  \
             local {address} as 65001;\n  neighbor {ROUTER} as 65000;\n{}  \
             ipv4 {{ import none; export where proto = \"weir4\"; }};\n}}\n",
            self.path("weir*.conf"),
            super::rig::BFD,
            super::rig::SESSION,
        );
        let file = self.write("bird.conf", &text)?;
        let arguments = ["-f", "-c", &file, "-s", &self.path("bird.ctl")].map(OsString::from);
        let mut bird = self
            .launcher()
            .start("bird", Path::new("bird"), &arguments)?;
        let socket = self.directory.join("bird.ctl");
        bird.wait_ready("BIRD", START_TIMEOUT, || Ok(socket.exists()))?;
        self.bird = Some(bird);
        Ok(())
    }

    fn start_weir(&mut self, number: u8, max_directors: u8, has_sync: bool) -> Result<()> {
        let etcd: Vec<String> = (0..3)
            .map(|n| format!("\"http://{}:2379\"", etcd_address(n)))
            .collect();
        let mut text = format!(
            "[cluster]\netcd = [{}]\nname = \"{GROUP}\"\nmember = \"{}\"\nlease = \"4s\"\n[cluster.publish]\nvips = \
             [\"{VIP}\"]\nservers = [\"10.78.0.0/24\"]\n[announce]\nspeaker = \"bird\"\nsocket = \"{}\"\n\
             include = \"{}\"\ndrain_delay = \"1s\"\n",
            etcd.join(", "),
            self.name,
            self.path("bird.ctl"),
            self.path("weir.conf"),
        );
        if has_sync {
            let peers = (1..=max_directors).filter(|it| *it != number);
            let peers: Vec<String> = peers
                .map(|it| format!("\"{}:{SYNC_PORT}\"", address(it)))
                .collect();
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "[sync]\nlisten = \"{}:{SYNC_PORT}\"\npeers = [{}]\nkey = \"a key of the lab, 32 bytes long!\"\n",
                self.address,
                peers.join(", ")
            );
        }
        let file = self.write("weir.toml", &text)?;
        let arguments = self.arguments(&["run", "-c", &file]);
        self.balancer = Some(
            self.launcher()
                .start("weir", &self.weir_program, &arguments)?,
        );
        wait_for(
            "weir",
            START_TIMEOUT,
            || Ok(self.run("status", &["status"]).ok()),
            || process::tail(&self.directory.join("weir.log")),
        )
        .map(drop)
    }

    fn arguments(&self, args: &[&str]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = args.iter().map(Into::into).collect();
        arguments.extend(["--runtime-dir".into(), self.directory.join("run").into()]);
        arguments.extend(["--pin-dir".into(), self.pin_directory.clone().into()]);
        arguments
    }

    /// Runs a Weir command on this director.
    pub(super) fn run(&self, name: &str, args: &[&str]) -> Result<String> {
        let arguments = self.arguments(args);
        self.launcher()
            .run(name, &self.weir_program, &arguments, START_TIMEOUT)
    }

    /// Publishes a group configuration with options of `weir cluster publish`.
    pub(super) fn publish(&self, text: &str, options: &[&str]) -> Result<()> {
        let file = self.write("published.toml", text)?;
        let args = [&["cluster", "publish", &file], options].concat();
        self.run("publish", &args).map(drop)
    }

    /// Returns the JSON output of a Weir command; null if it fails.
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run("status", args).unwrap_or_default();
        serde_json::from_str(&output).unwrap_or_default()
    }

    fn status(&self) -> Value {
        self.json(&["status", "--json"])
    }

    /// Returns the number of servers that are up.
    pub(super) fn server_count(&self) -> usize {
        let status = self.status();
        let servers = status["services"][0]["servers"].as_array().into_iter();
        servers.flatten().filter(|it| it["state"] == "up").count()
    }

    pub(super) fn group_status(&self) -> Value {
        self.json(&["cluster", "status", "--json"])
    }

    /// Replaces the running program with `build`.
    pub(super) fn upgrade(&mut self, build: Build, programs: Programs<'_>) -> Result<()> {
        let path = programs.path(build);
        let argument = path.to_string_lossy();
        self.run("upgrade", &["upgrade", &argument])?;
        self.build = build;
        self.weir_program = path.to_owned();
        Ok(())
    }

    /// Returns the number of packets from clients; `None` = the director has no daemon.
    fn packets(&self) -> Option<u64> {
        let status = self.status();
        let services = status["services"].as_array()?.iter();
        let packets = services.map(|it| it["packets_in"].as_u64().unwrap_or(0));
        Some(packets.sum())
    }

    /// Starts to measure the CPU time of the director's programs.
    pub(super) fn start_meter(&self) -> Meter {
        match self.balancer {
            Some(_) => Meter::start(&self.pin_directory, self.packets().unwrap_or(0)),
            None => Meter::default(),
        }
    }

    /// Returns the CPU time per packet since the meter was started; `None` = unknown.
    pub(super) fn finish_meter(&self, meter: Meter) -> Option<Cost> {
        self.balancer.as_ref()?;
        let (packets, time_ns) = meter.finish(&self.pin_directory, self.packets()?);
        Cost::new(&self.name, self.build.name(), packets, time_ns)
    }

    /// Replaces the nftables rules.
    pub(super) fn load_rules(&self, servers: &[Ipv4Addr]) -> Result<()> {
        let network = format!("--net={}", self.namespace.path().display());
        let arguments = [&network, "--", "nft", "-f", "-"];
        process::run_with_input("nsenter", &arguments, &rules(servers)).map(drop)
    }

    /// Adds or removes the route that BIRD announces, as Weir would.
    fn set_announced(&self, is_announced: bool) -> Result<()> {
        let route = match is_announced {
            true => format!("  route {VIP}/32 blackhole;\n"),
            false => String::new(),
        };
        self.write(
            "weir.conf",
            &format!("protocol static weir4 {{\n  ipv4;\n{route}}}\n"),
        )?;
        let socket = self.path("bird.ctl");
        process::run("birdc", &["-s", &socket, "configure"]).map(drop)
    }

    /// Drains this director.
    pub(super) fn drain(&self, method: Method) -> Result<()> {
        match method.balancer {
            Balancer::Rules => self.set_announced(false),
            Balancer::Weir { .. } => self.run("drain", &["node", "drain"]).map(drop),
        }
    }

    /// Reverts [`Self::drain`].
    pub(super) fn undrain(&self, method: Method) -> Result<()> {
        match method.balancer {
            Balancer::Rules => self.set_announced(true),
            Balancer::Weir { .. } => self.run("ready", &["node", "ready"]).map(drop),
        }
    }

    /// Kills all processes immediately.
    pub(super) fn kill(&self) {
        let mut pids: Vec<Pid> = Vec::new();
        for daemon in [&self.balancer, &self.bird].into_iter().flatten() {
            pids.extend(Pid::from_raw(i32::try_from(daemon.pid()).unwrap_or(0)));
            pids.extend(process::children(daemon.pid()));
        }
        for pid in pids {
            // A process may already have exited with its parent.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Returns the end of Weir's log.
    pub(super) fn log_tail(&self) -> String {
        process::tail(&self.directory.join("weir.log"))
    }
}

impl Drop for Director {
    fn drop(&mut self) {
        let is_weir = self.balancer.take().is_some();
        self.bird = None;
        if is_weir {
            let _ = self.run("clean", &["clean", "--force"]);
        }
    }
}

/// Returns stateless rules: a hash of the client's address and port, modulo the number of servers, selects the server.
/// All directors use the same seed; by default, nftables would choose a random seed on each director.
fn rules(servers: &[Ipv4Addr]) -> String {
    let entries = servers.iter().enumerate();
    let entries: Vec<String> = entries.map(|(n, it)| format!("{n} : {it}")).collect();
    let rule = |protocol: &str| {
        format!(
            "  ip daddr {VIP} {protocol} dport 80 ip daddr set \
             jhash ip saddr . {protocol} sport mod {} seed 0x77656972 map {{ {} }}\n",
            servers.len(),
            entries.join(", ")
        )
    };
    format!(
        "table ip lab {{ }}\ndelete table ip lab\ntable ip lab {{\n chain prerouting {{\n  type filter hook prerouting \
         priority -300; policy accept;\n{}{} }}\n}}\n",
        rule("tcp"),
        rule("udp")
    )
}

/// Time limit for the router to remove its path to a failed or drained director.
pub(super) const PATH_REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_select_among_all_servers() {
        let servers = [Ipv4Addr::new(10, 78, 0, 41), Ipv4Addr::new(10, 78, 0, 42)];
        let text = rules(&servers);
        assert!(
            text.contains(
                "jhash ip saddr . tcp sport mod 2 seed 0x77656972 map { 0 : 10.78.0.41, 1 : 10.78.0.42 }"
            ),
            "{text}"
        );
    }
}
