//! Starts and controls two directors on one segment, with addresses 10.0.0.3 and 10.0.0.4.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::world::{self, World, sh, wait_for};

pub(crate) const VIP: &str = "10.0.0.10";
/// Loading the BPF programs normally takes seconds, and longer on slow machines.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Two directors, `director` and `second`, and a client.
pub(crate) struct Pair {
    pub(crate) world: World,
    /// Process IDs of the keepers, by host.
    keepers: BTreeMap<String, u32>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let mut world = World::new(0);
        world.add_router("second", 4);
        for (host, number) in [("client", 2), ("director", 3), ("second", 4)] {
            world.ip(host, "addr flush dev eth0 scope global");
            world.ip(host, &format!("addr add 10.0.0.{number}/24 dev eth0"));
        }
        Self {
            world,
            keepers: BTreeMap::new(),
        }
    }

    /// Starts `weir run` and waits until its agent runs.
    pub(crate) fn start(&mut self, host: &str, config: &str) {
        self.spawn(host, config);
        self.wait_for("the agent", || {
            self.try_weir(host, &["vrrp"]).status.success()
        });
    }

    /// Starts `weir run` and waits until the daemon responds. The daemon adds addresses before it listens.
    pub(crate) fn start_without_agent(&mut self, host: &str, config: &str) {
        self.spawn(host, config);
        self.wait_for("the daemon", || {
            self.try_weir(host, &["status"]).status.success()
        });
    }

    fn spawn(&mut self, host: &str, config: &str) {
        let path = self.write(host, config);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(&format!("{host}.log")))
            .expect("open the log file");
        let child = self
            .world
            .weir(host)
            .args(["run", "-c"])
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start the process");
        self.keepers.insert(host.to_owned(), child.id());
        self.world.kill_on_drop(child);
    }

    fn write(&self, host: &str, config: &str) -> PathBuf {
        let path = self.world.path(&format!("{host}.toml"));
        // With only a proxy service, the daemon loads no BPF programs and starts fast. `vip_interface` must not add an
        // address of a virtual router.
        let proxy = format!(
            "[pool.p]\nservers = [\"127.0.0.1:9\"]\n[service.s]\nlisten = [\"{VIP}:8080\"]\nforward = \"proxy\"\n\
             protocol = \"tcp\"\npool = \"p\"\n"
        );
        let node = match config.contains(VIP) && !config.contains("[node]") {
            true => "[node]\nvip_interface = \"eth0\"\n",
            false => "",
        };
        fs::write(&path, format!("{config}{proxy}{node}")).expect("write the file");
        path
    }

    pub(crate) fn reload(&self, host: &str, config: &str) {
        let path = self.write(host, config);
        self.weir(host, &["reload", "-c", path.to_str().expect("not UTF-8")]);
    }

    /// Starts a reload with a guard of one minute. Another reload ends it. The errors are written to `guarded.err`.
    pub(crate) fn start_guarded_reload(&self, host: &str, config: &str) -> Child {
        let path = self.write(host, config);
        let mut command = self.world.weir(host);
        command.args(["reload", "--guard", "60s", "-c"]).arg(path);
        let errors = fs::File::create(self.path("guarded.err")).expect("create the file");
        command.stdout(Stdio::null()).stderr(errors);
        command.spawn().expect("start the reload")
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.world
            .path(name)
            .to_str()
            .expect("not UTF-8")
            .to_owned()
    }

    pub(crate) fn write_script(&self, path: &str, line: &str) {
        fs::write(path, format!("#!/bin/sh\n{line}\n")).expect("write the file");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set the file mode");
    }

    pub(crate) fn ip(&self, host: &str, arguments: &str) {
        self.world.ip(host, arguments);
    }

    pub(crate) fn try_weir(&self, host: &str, arguments: &[&str]) -> Output {
        self.world
            .weir(host)
            .args(arguments)
            .output()
            .expect("run weir")
    }

    pub(crate) fn weir(&self, host: &str, arguments: &[&str]) -> String {
        let output = self.try_weir(host, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("not UTF-8")
    }

    fn json(&self, host: &str, arguments: &[&str]) -> Value {
        let output = self.try_weir(host, arguments);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    pub(crate) fn status(&self, host: &str) -> Value {
        self.json(host, &["status", "--json"])
    }

    pub(crate) fn routers(&self, host: &str) -> Value {
        self.json(host, &["vrrp", "--json"])
    }

    /// Returns the status of the first virtual router.
    pub(crate) fn router(&self, host: &str) -> Value {
        self.routers(host)[0].clone()
    }

    pub(crate) fn holds(&self, host: &str, address: &str) -> bool {
        let output = self.world.output(host, "ip -o addr show dev eth0");
        String::from_utf8_lossy(&output.stdout).contains(&format!(" {address}/"))
    }

    /// Returns whether a host's neighbor entry for the VIP has this director's MAC address.
    pub(crate) fn resolves_vip_to(&self, host: &str, director: &str) -> bool {
        self.resolves_to(host, VIP, director)
    }

    /// Returns whether a host's neighbor entry for an address has this director's MAC address.
    pub(crate) fn resolves_to(&self, host: &str, address: &str, director: &str) -> bool {
        let output = self.world.output(host, &format!("ip neigh show {address}"));
        let neighbor = String::from_utf8_lossy(&output.stdout);
        neighbor.contains(&self.world.mac(director))
    }

    /// Returns a director's log.
    pub(crate) fn log(&self, host: &str) -> String {
        fs::read_to_string(self.path(&format!("{host}.log"))).unwrap_or_default()
    }

    pub(crate) fn wait_for(&self, description: &str, condition: impl FnMut() -> bool) {
        wait_for(description, TIMEOUT, condition);
    }

    pub(crate) fn wait_for_state(&self, host: &str, state: &str) {
        self.wait_for(&format!("{host} to be {state}"), || {
            self.router(host)["state"] == state
        });
    }

    /// Waits until only this host has the VIP.
    pub(crate) fn wait_for_holder(&self, host: &str) {
        let other = if host == "director" {
            "second"
        } else {
            "director"
        };
        self.wait_for(&format!("{host} to have the VIP"), || {
            self.holds(host, VIP) && !self.holds(other, VIP)
        });
    }

    /// Returns the process ID of the child of a host's keeper that runs this command.
    pub(crate) fn find_process(&self, host: &str, command: &str) -> Option<u32> {
        let keeper = self.keepers.get(host)?;
        let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
        children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .find(|pid: &u32| {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if name.trim_end() == "weir-standby" {
                    return false;
                }
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.split(|byte| *byte == 0)
                    .any(|word| word == command.as_bytes())
            })
    }

    pub(crate) fn process_id(&self, host: &str, command: &str) -> u32 {
        self.find_process(host, command)
            .unwrap_or_else(|| panic!("{host} runs no {command}"))
    }

    /// Returns how long a child of a host's keeper has been running, or zero if there is no such child.
    pub(crate) fn process_age(&self, host: &str, command: &str) -> Duration {
        let Some(pid) = self.find_process(host, command) else {
            return Duration::ZERO;
        };
        let started = fs::metadata(format!("/proc/{pid}")).and_then(|it| it.modified());
        started
            .ok()
            .and_then(|it| it.elapsed().ok())
            .unwrap_or_default()
    }

    pub(crate) fn daemon(&self, host: &str) -> u32 {
        self.process_id(host, "run")
    }

    pub(crate) fn kill(&self, pid: u32) {
        signal(pid, Signal::KILL);
    }

    pub(crate) fn resume(&self, pid: u32) {
        signal(pid, Signal::CONT);
    }

    pub(crate) fn suspend(&self, pid: u32) {
        signal(pid, Signal::STOP);
    }

    /// Kills all processes of a host's director.
    pub(crate) fn kill_all(&mut self, host: &str) {
        let mut pids: Vec<u32> = ["run", "vrrp-agent", "helper"]
            .iter()
            .filter_map(|name| self.find_process(host, name))
            .collect();
        pids.insert(
            0,
            self.keepers.remove(host).expect("process is not running"),
        );
        pids.iter().for_each(|pid| signal(*pid, Signal::KILL));
        self.wait_for("all processes to exit", || {
            pids.iter().all(|pid| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.is_empty() || stat.contains(") Z ")
            })
        });
    }

    /// Stops `weir run` with SIGTERM.
    pub(crate) fn stop(&mut self, host: &str) {
        signal(
            self.keepers.remove(host).expect("process is not running"),
            Signal::TERM,
        );
    }

    /// Stops `weir run` and waits until it has exited.
    pub(crate) fn stop_and_wait(&mut self, host: &str) {
        let keeper = self
            .keepers
            .get(host)
            .copied()
            .expect("process is not running");
        self.stop(host);
        self.wait_for("the keeper to exit", || {
            let stat = fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
    }

    /// Removes the host's port from the bridge: no packets pass, but the link keeps its carrier.
    pub(crate) fn disconnect(&self, host: &str) {
        sh(&format!(
            "ip -n {} link set {host} nomaster",
            self.world.namespace("wire")
        ));
    }

    /// Adds the host's port to the bridge again.
    pub(crate) fn reconnect(&self, host: &str) {
        sh(&format!(
            "ip -n {} link set {host} master br0",
            self.world.namespace("wire")
        ));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for host in ["director", "second"] {
            if std::thread::panicking() {
                for log in [format!("{host}.log"), format!("keepalived-{host}.log")] {
                    let text = fs::read_to_string(self.path(&log)).unwrap_or_default();
                    eprintln!("{log}:\n{text}\n{}", self.routers(host));
                }
            }
        }
        world::remove_tree(&self.world.pin_dir("second"));
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("invalid process ID");
    kill_process(pid, signal).expect("send a signal to the process");
}
