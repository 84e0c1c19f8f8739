//! Builds a network of namespaces for the integration tests.
//!
//! A client, a director and servers are on one bridge, with IPv4 and IPv6.
//!
//! `ip` creates everything in namespaces whose names contain this process's ID; dropping [`World`] removes them.
//! Programs run with `nsenter --net`, which keeps the mounts, including bpffs.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses only part of this module"
)]

pub mod checks;
pub mod client;
pub mod load;
pub mod program;
mod relay;
mod server;
mod tcp_failures;
mod two_directors;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weir_sys::NetNs;
pub use weir_testing::require_root as privileged;

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// Values of `attach` that the director's veth supports: the default, which is tc on a veth, and native XDP.
pub const MODES: [Option<&str>; 2] = [None, Some("xdp")];

/// Address family of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Returns the address of host number `n` on the network's segment.
    pub fn host(self, n: u16) -> IpAddr {
        match self {
            Family::V4 => {
                Ipv4Addr::new(10, 71, 0, u8::try_from(n).expect("number fits in 8 bits")).into()
            }
            Family::V6 => Ipv6Addr::new(0xfd71, 0, 0, 0, 0, 0, 0, n).into(),
        }
    }

    /// Returns the address of the client.
    pub fn client(self) -> IpAddr {
        self.host(2)
    }

    /// Returns the address of the director.
    pub fn director(self) -> IpAddr {
        self.host(3)
    }

    /// Returns a VIP that is configured on the director.
    pub fn vip(self) -> IpAddr {
        self.host(10)
    }

    /// Returns the address of server `n`, counted from 0.
    pub fn server(self, n: usize) -> IpAddr {
        self.host(20 + u16::try_from(n).expect("number fits in 16 bits"))
    }
}

/// Returns an address in the form that URLs and weir.toml use, with IPv6 addresses in brackets.
pub fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

/// The namespaces of one test, with the processes and threads in them.
pub struct World {
    tag: String,
    directory: PathBuf,
    servers: usize,
    extra_hosts: Vec<String>,
    attach: Option<&'static str>,
    children: Vec<Child>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl World {
    /// Creates the segment with `servers` servers. The VIPs are configured on the director, but not on the servers.
    pub fn new(servers: usize) -> Self {
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let tag = format!("wt{}x{number}", std::process::id());
        let directory = std::env::temp_dir().join(format!("weir-{tag}"));
        fs::create_dir_all(&directory).expect("create the test directory");
        let world = Self {
            tag,
            directory,
            servers,
            extra_hosts: Vec::new(),
            attach: None,
            children: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        world.build();
        world
    }

    /// Like [`Self::new`], but with one of [`MODES`].
    pub fn with_mode(servers: usize, mode: Option<&'static str>) -> Self {
        let mut world = Self::new(servers);
        world.attach = mode;
        world
    }

    /// Sets the attach mode for configurations that are written afterwards.
    pub fn set_mode(&mut self, mode: Option<&'static str>) {
        self.attach = mode;
    }

    fn build(&self) {
        let wire = self.namespace("wire");
        sh(&format!("ip netns add {wire}"));
        sh(&format!(
            "ip -n {wire} link add br0 type bridge forward_delay 0 mcast_snooping 0 && ip -n {wire} link set br0 up"
        ));
        self.add_host("client", 2);
        self.add_host("director", 3);
        for n in 0..self.servers {
            self.add_host(
                &format!("server{n}"),
                20 + u16::try_from(n).expect("number fits in 16 bits"),
            );
        }
        self.pin_server_flows_to_one_cpu();
        // An IPv6 VIP that is not deprecated can become the source of packets to the servers.
        for (family, lifetime) in [(Family::V4, ""), (Family::V6, "preferred_lft 0")] {
            self.ip(
                "director",
                &format!(
                    "addr add {}/{} dev eth0 nodad {lifetime}",
                    family.vip(),
                    full_prefix(family)
                ),
            );
        }
    }

    fn add_host(&self, host: &str, number: u16) {
        let (name, wire) = (self.namespace(host), self.namespace("wire"));
        sh(&format!(
            "ip netns add {name} && ip -n {name} link set lo up"
        ));
        sh(&format!(
            "ip -n {wire} link add {host} type veth peer name eth0 netns {name}"
        ));
        sh(&format!(
            "ip netns exec {name} sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
             net.ipv6.conf.eth0.accept_dad=0 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.accept_redirects=0 \
             net.ipv4.conf.all.accept_redirects=0 net.ipv6.conf.eth0.accept_redirects=0"
        ));
        sh(&format!(
            "ip -n {wire} link set {host} master br0 up && ip -n {name} link set eth0 up"
        ));
        // XDP_TX on a veth needs NAPI on the peer. XDP forwards checksums unchanged, so both ends must compute them,
        // including the bridge's end, which splits packets that its GRO has merged.
        sh(&format!(
            "ip netns exec {wire} ethtool -K {host} gro on tx off"
        ));
        sh(&format!("ip netns exec {name} ethtool -K eth0 tx off"));
        self.ip(
            host,
            &format!("addr add {}/24 dev eth0", Family::V4.host(number)),
        );
        self.ip(
            host,
            &format!("addr add {}/64 dev eth0 nodad", Family::V6.host(number)),
        );
    }

    /// Returns the name of a host's network namespace.
    pub fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.tag)
    }

    /// Returns the path of a file in the test directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the path of a host's BPF pins.
    pub fn pin_dir(&self, host: &str) -> PathBuf {
        PathBuf::from(format!("/sys/fs/bpf/{}", self.namespace(host)))
    }

    /// Runs `ip -n HOST ARGUMENTS`.
    pub fn ip(&self, host: &str, arguments: &str) {
        sh(&format!("ip -n {} {arguments}", self.namespace(host)));
    }

    /// Returns a command that runs a program on a host, with this process's mounts. The kernel kills the program when
    /// the thread that started it ends.
    pub fn command(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.namespace(host)))
            .args(["setpriv", "--pdeathsig", "KILL", program]);
        command
    }

    /// Runs a command line, split at spaces, on a host. Returns its output.
    pub fn output(&self, host: &str, line: &str) -> Output {
        let mut words = line.split_whitespace();
        self.command(host, words.next().expect("line starts with a program"))
            .args(words)
            .output()
            .expect("run nsenter")
    }

    /// Runs `work` on a new thread in a host's network namespace.
    pub fn spawn_on<T: Send + 'static>(
        &self,
        host: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let name = self.namespace(host);
        std::thread::spawn(move || {
            let namespace = NetNs::open_named(&name).expect("open the namespace");
            let _inside = namespace.enter().expect("enter the namespace as root");
            work()
        })
    }

    /// Adds a host that forwards packets.
    pub fn add_router(&mut self, host: &str, number: u16) {
        self.add_host(host, number);
        sh(&format!(
            "ip netns exec {} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
            self.namespace(host)
        ));
        self.extra_hosts.push(host.to_owned());
    }

    /// Registers an additional namespace of a test, which is removed with the network.
    pub fn register_namespace(&mut self, host: &str) {
        self.extra_hosts.push(host.to_owned());
    }

    /// Returns the MAC address of a host.
    pub fn mac(&self, host: &str) -> String {
        let output = self.output(host, "ip -br link show dev eth0");
        let link = String::from_utf8_lossy(&output.stdout);
        let mac = link.split_whitespace().nth(2);
        mac.unwrap_or_else(|| panic!("no MAC address of {host} in {link:?}"))
            .to_owned()
    }

    /// Returns the number of packets that a host has received.
    pub fn received_packets(&self, host: &str) -> u64 {
        let output = self.output(host, "cat /proc/thread-self/net/dev");
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("eth0:"));
        let packets = line.and_then(|line| line.split_whitespace().nth(1));
        packets
            .and_then(|packets| packets.parse().ok())
            .expect("read a counter of eth0")
    }
}

fn subnet_prefix(family: Family) -> u8 {
    if family == Family::V4 { 24 } else { 64 }
}

/// Returns the prefix length of a single address.
pub fn full_prefix(family: Family) -> u8 {
    if family == Family::V4 { 32 } else { 128 }
}

/// Waits until `condition` is true. Panics with `description` after `limit`.
pub fn wait_for(description: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "timed out after {limit:?} waiting for {description}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a shell command and asserts that it succeeds.
pub fn sh(line: &str) {
    let output = Command::new("sh")
        .arg("-ec")
        .arg(line)
        .output()
        .expect("run sh");
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

pub fn remove_tree(path: &Path) {
    let _ = fs::remove_dir_all(path);
}

/// Kills every process in a namespace, including the children of killed shells, and deletes the namespace.
fn delete_namespace(name: &str) {
    let ip = |arguments: [&str; 3]| Command::new("ip").args(arguments).output();
    if let Ok(output) = ip(["netns", "pids", name]) {
        let pids = String::from_utf8_lossy(&output.stdout);
        let pids = pids.split_whitespace().filter_map(|word| word.parse().ok());
        for pid in pids.filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = ip(["netns", "del", name]);
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            eprintln!("the director's log:\n{}", self.log());
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for host in ["director".to_owned()]
            .into_iter()
            .chain((0..self.servers).map(|n| format!("server{n}")))
        {
            let _ = self.weir(&host).args(["clean", "--force"]).output();
            remove_tree(&self.pin_dir(&host));
        }
        for host in ["client", "director", "wire"]
            .map(str::to_owned)
            .into_iter()
            .chain(self.extra_hosts.drain(..).collect::<Vec<_>>())
            .chain((0..self.servers).map(|n| format!("server{n}")))
        {
            delete_namespace(&self.namespace(&host));
        }
        remove_tree(&self.directory);
    }
}
