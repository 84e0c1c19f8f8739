//! Starts, stops and queries the program under test.

use std::fmt::Display;
use std::fs;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weir_sys::LockFile;

use super::{Family, World, full_prefix, subnet_prefix, wait_for};

/// Time limit for processes to end.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the path of the program under test.
pub fn program_under_test() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_weir"))
}

impl World {
    /// Returns a command that runs `weir` on a host with the directories of this test.
    pub fn weir(&self, host: &str) -> Command {
        self.weir_with(program_under_test(), host)
    }

    /// Like [`Self::weir`], but with a different build.
    pub fn weir_with(&self, program: &Path, host: &str) -> Command {
        let mut command = self.command(host, program.to_str().expect("path is valid UTF-8"));
        command
            .env("WEIR_RUNTIME_DIR", self.path(&format!("run-{host}")))
            .env("WEIR_PIN_DIR", self.pin_dir(host))
            .env("NO_COLOR", "1");
        command
    }

    /// Writes the configuration, with the network's attach mode if one is set.
    pub fn write_config(&self, text: &str) -> PathBuf {
        let path = self.path("weir.toml");
        let text = match self.attach {
            Some(attach) => {
                text.replacen("[node]\n", &format!("[node]\nattach = \"{attach}\"\n"), 1)
            }
            None => text.to_owned(),
        };
        fs::write(&path, text).expect("write the configuration");
        path
    }

    /// Starts the daemon on the director and waits until it responds. Returns the process ID.
    pub fn start_daemon(&mut self, config: &str) -> u32 {
        self.start_daemon_with(program_under_test(), config)
    }

    /// Like [`Self::start_daemon`], but with a different build.
    pub fn start_daemon_with(&mut self, program: &Path, config: &str) -> u32 {
        let path = self.write_config(config);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("director.log"))
            .expect("open the log file");
        let child = self
            .weir_with(program, "director")
            .args(["run", "-c"])
            .arg(path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("duplicate the file descriptor"))
            .stderr(log)
            .spawn()
            .expect("start the daemon");
        let pid = child.id();
        self.children.push(child);
        self.wait_for_daemon();
        pid
    }

    /// Waits until the daemon responds.
    pub fn wait_for_daemon(&self) {
        wait_for("the daemon to respond", Duration::from_secs(120), || {
            self.weir("director")
                .args(["status", "--json"])
                .output()
                .is_ok_and(|output| output.status.success())
        });
    }

    /// Returns the log of the director's daemon.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("director.log")).unwrap_or_default()
    }

    /// Sends SIGSTOP to the process that serves the director's socket. Returns its process ID.
    pub fn suspend_daemon(&self) -> Pid {
        let socket = self.path("run-director").join("weir.sock");
        let stream = UnixStream::connect(socket).expect("connect to the daemon");
        let peer =
            rustix::net::sockopt::socket_peercred(&stream).expect("read the peer's process ID");
        kill_process(peer.pid, Signal::STOP).expect("send a signal to the process");
        peer.pid
    }

    /// Kills the keeper with SIGKILL. Waits until its processes, which hold its lock too, have also ended.
    pub fn kill_keeper(&mut self, pid: u32) {
        for child in &mut self.children {
            if child.id() == pid {
                child.kill().expect("send a signal to the process");
                child.wait().expect("wait for the process");
            }
        }
        let lock = self.path("run-director").join("lock");
        wait_for("the director's processes to exit", TIMEOUT, || {
            !LockFile::is_held(&lock)
        });
    }

    /// Returns the output of `weir status --json`. If the daemon does not respond within two seconds, `weir` shows the
    /// pinned data plane; in that case, this function repeats the command.
    pub fn status(&self) -> serde_json::Value {
        let start = Instant::now();
        loop {
            let output = self
                .weir("director")
                .args(["status", "--json"])
                .output()
                .expect("run weir");
            let errors = String::from_utf8_lossy(&output.stderr);
            let is_slow = errors.contains("the daemon did not respond within 2 s: showing");
            if is_slow && start.elapsed() < Duration::from_secs(30) {
                continue;
            }
            return serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
                let text = String::from_utf8_lossy(&output.stdout);
                panic!("status: {error}: {text}{errors}")
            });
        }
    }

    /// Runs `weir ARGUMENTS` on the director. Returns its output.
    ///
    /// # Panics
    /// Panics with the output if the command fails.
    pub fn run_weir(&self, arguments: &[&str]) -> String {
        let output = self
            .weir("director")
            .args(arguments)
            .output()
            .expect("run weir");
        assert!(
            output.status.success(),
            "{arguments:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the whole output of `weir COMMAND` on the director, whether or not the command succeeds.
    pub fn output_of(&self, command: &str) -> String {
        let mut weir = self.weir("director");
        weir.env("WEIR_CONFIG", self.path("weir.toml")).arg(command);
        let output = weir.output().expect("run weir");
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    /// Replaces the active configuration.
    pub fn reload(&self, config: &str) {
        let path = self.write_config(config);
        self.run_weir(&["reload", "-c", path.to_str().expect("path is valid UTF-8")]);
    }

    /// Returns the director's packet count for `reason`.
    pub fn packet_count(&self, reason: &str) -> u64 {
        let status = self.status();
        let reasons = status["reasons"].as_array().expect("reasons is an array");
        let row = reasons.iter().find(|row| row["reason"] == reason);
        row.and_then(|row| row["packets"].as_u64()).unwrap_or(0)
    }

    /// Returns the status of the first service's server with this address.
    pub fn server_status(&self, address: IpAddr) -> serde_json::Value {
        let status = self.status();
        let servers = status["services"][0]["servers"].as_array();
        let mut servers = servers.expect("the service should exist").iter();
        servers
            .find(|server| server["address"] == address.to_string())
            .unwrap_or_else(|| panic!("{address} is not in {status:#}"))
            .clone()
    }

    /// Returns the response to `/metrics` from the Unix socket.
    pub fn metrics(&self) -> String {
        self.api("/metrics")
    }

    /// Sends a GET request on the daemon's Unix socket.
    pub fn api(&self, path: &str) -> String {
        let output = Command::new("curl")
            .args(["-sS", "-f", "--max-time", "10", "--unix-socket"])
            .arg(self.path("run-director").join("weir.sock"))
            .arg(format!("http://weir{path}"))
            .output()
            .expect("run curl");
        assert!(
            output.status.success(),
            "{path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Moves the director's addresses to a bridge over eth0. The bridge driver does not support XDP.
    pub fn move_director_to_bridge(&self) {
        self.ip(
            "director",
            "link add br0 type bridge forward_delay 0 mcast_snooping 0",
        );
        self.ip("director", "link set eth0 master br0");
        self.move_director_to("br0");
    }

    /// Moves the director's addresses to a macvlan over eth0.
    pub fn move_director_to_macvlan(&self) {
        self.ip(
            "director",
            "link add mv0 link eth0 type macvlan mode bridge",
        );
        // Only the device that has the address may reply to ARP requests for it.
        self.output("director", "sysctl -qw net.ipv4.conf.all.arp_ignore=1");
        self.move_director_to("mv0");
    }

    fn move_director_to(&self, device: &str) {
        self.ip("director", "addr flush dev eth0");
        self.ip("director", &format!("link set {device} up"));
        for family in [Family::V4, Family::V6] {
            let (length, full) = (subnet_prefix(family), full_prefix(family));
            for address in [
                format!("{}/{length}", family.director()),
                format!("{}/{full}", family.vip()),
            ] {
                let nodad = if family == Family::V6 { " nodad" } else { "" };
                self.ip(
                    "director",
                    &format!("addr add {address} dev {device}{nodad}"),
                );
            }
        }
    }

    /// Runs `weir real-server up` on every server.
    pub fn prepare_servers(&self, arguments: &[&str]) {
        for n in 0..self.servers {
            let output = self
                .weir(&format!("server{n}"))
                .args(["real-server", "up"])
                .args(arguments)
                .output()
                .expect("run weir");
            assert!(
                output.status.success(),
                "real-server up: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }

    /// Calls [`Self::prepare_servers`] for direct routing to a VIP.
    pub fn prepare_direct_servers(&self, vip: &dyn Display) {
        self.prepare_servers(&["--forward", "direct", "--vip", &vip.to_string()]);
    }

    /// Routes replies to the client through the director, which `nat` requires for servers on the client's segment.
    pub fn route_replies_through_director(&self) {
        for n in 0..self.servers {
            for family in [Family::V4, Family::V6] {
                let flag = if family == Family::V6 { "-6 " } else { "" };
                self.ip(
                    &format!("server{n}"),
                    &format!(
                        "{flag}route add {}/{} via {}",
                        family.client(),
                        full_prefix(family),
                        family.director()
                    ),
                );
            }
        }
    }
}
