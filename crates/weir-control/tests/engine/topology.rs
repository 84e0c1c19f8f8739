//! Namespaces around a bridge, and what runs in them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use weir_control::engine::Paths;
use weir_sys::NetNs;
use weir_sys::ethtool::Features;

/// How long anything may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn is_root() -> bool {
    let root = weir_sys::Capabilities::effective()
        .is_ok_and(|all| all.has(weir_sys::Capability::SysAdmin));
    if !root {
        println!("SKIPPED: needs root");
    }
    root
}

pub(crate) struct Topology {
    wire: NetNs,
    client: NetNs,
    director: NetNs,
    servers: [(NetNs, &'static str); 2],
    directory: PathBuf,
}

fn ip(netns: &NetNs, lines: &str) -> String {
    let mut output = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let done = netns
            .run(|| Command::new("ip").args(line.split(' ')).output().unwrap())
            .unwrap();
        assert!(
            done.status.success(),
            "ip {line}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        output.push_str(&String::from_utf8_lossy(&done.stdout));
    }
    output
}

fn sysctl(netns: &NetNs, name: &str, value: &str) {
    netns
        .run(|| std::fs::write(format!("/proc/sys/{name}"), value).unwrap())
        .unwrap();
}

fn features(netns: &NetNs, interface: &str, wanted: &[(&str, bool)]) {
    netns
        .run(|| {
            Features::read(interface)
                .unwrap()
                .set(wanted)
                .map(drop)
                .unwrap()
        })
        .unwrap();
}

impl Topology {
    pub(crate) fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("weir-engine-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let made = || NetNs::create().unwrap();
        let servers = [(made(), "10.8.0.11"), (made(), "10.8.0.12")];
        let topology = Self {
            wire: made(),
            client: made(),
            director: made(),
            servers,
            directory,
        };
        topology.build();
        topology
    }

    fn build(&self) {
        ip(&self.wire, "link add br0 type bridge\nlink set br0 up");
        self.join(&self.client, "c0", "10.8.0.1/24");
        self.join(&self.director, "d0", "10.8.0.2/24");
        for (at, (server, address)) in self.servers.iter().enumerate() {
            self.join(server, &format!("s{at}"), &format!("{address}/24"));
            for scope in ["all", "lo"] {
                sysctl(server, &format!("net/ipv4/conf/{scope}/arp_ignore"), "1");
            }
            ip(server, "addr add 192.0.2.10/32 dev lo");
        }
        ip(&self.client, "route add 192.0.2.10 via 10.8.0.2");
    }

    /// A veth between a namespace and the bridge. Its bridge end merges what it receives, which is what makes veth accept
    /// frames that the other end's program sends; senders compute checksums themselves, as behind a real card.
    fn join(&self, netns: &NetNs, name: &str, address: &str) {
        let place = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            netns.as_fd().as_raw_fd()
        );
        ip(
            &self.wire,
            &format!(
                "link add {name}-w type veth peer name {name} netns {place}
                 link set {name}-w master br0
                 link set {name}-w up"
            ),
        );
        ip(
            netns,
            &format!("link set lo up\nlink set {name} up\naddr add {address} dev {name}"),
        );
        features(&self.wire, &format!("{name}-w"), &[("rx-gro", true)]);
        let plain = [("tx-checksum-ip-generic", false)];
        features(netns, name, &plain);
    }

    pub(crate) fn servers_route_by_director(&self) {
        for (server, address) in &self.servers {
            ip(server, "route add 10.8.0.1 via 10.8.0.2");
            assert!(!address.is_empty());
            for scope in ["all", "default"] {
                sysctl(
                    server,
                    &format!("net/ipv4/conf/{scope}/accept_redirects"),
                    "0",
                );
            }
        }
    }

    /// Has each server answer every byte on `address` with its own address, as long as the process lives.
    pub(crate) fn serve(&self, address: &str, port: u16) {
        for (netns, own) in &self.servers {
            let own = *own;
            let at = SocketAddr::new(address.parse().unwrap(), port);
            let listener = netns.run(|| TcpListener::bind(at).unwrap()).unwrap();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    thread::spawn(move || {
                        let mut byte = [0];
                        while stream.read_exact(&mut byte).is_ok() {
                            if stream.write_all(format!("{own}\n").as_bytes()).is_err() {
                                return;
                            }
                        }
                    });
                }
            });
        }
    }

    pub(crate) fn connect(&self, address: &str, port: u16) -> Connection {
        let at = SocketAddr::new(address.parse().unwrap(), port);
        let stream = self
            .client
            .run(|| TcpStream::connect_timeout(&at, PATIENCE))
            .unwrap();
        let stream = stream.unwrap_or_else(|error| panic!("connect to {at}: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection(stream)
    }

    /// The server that answers a new connection.
    pub(crate) fn ask(&self, address: &str, port: u16) -> String {
        self.connect(address, port).server()
    }

    /// Runs `work` in the director's namespace.
    pub(crate) fn run(&self, work: impl AsyncFnOnce(&Paths)) {
        let paths = Paths {
            runtime_dir: self.directory.join("run"),
            pin_dir: self.directory.join("bpf/weir"),
        };
        let _inside = self.director.enter().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(work(&paths));
    }

    /// What an engine may change on the director.
    pub(crate) fn director_facts(&self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = ip(
                &self.director,
                "-o -4 addr\n-4 route show table all\nneigh show nud permanent",
            );
            let links = ip(&self.director, "-o link show d0");
            let xdp = links.split("prog/xdp").nth(1).is_some().to_string();
            // The kernel frees what was detached a moment later.
            let facts: Vec<String> = text.lines().map(str::to_owned).chain([xdp]).collect();
            if facts.iter().all(|fact| !fact.contains("tentative")) || Instant::now() > deadline {
                return facts;
            }
        }
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount")
            .arg("-l")
            .arg(self.directory.join("bpf"))
            .output();
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) struct Connection(TcpStream);

impl Connection {
    /// Asks the server at the other end who it is.
    pub(crate) fn server(&mut self) -> String {
        self.0.write_all(b"?").unwrap();
        let mut name = Vec::new();
        let mut byte = [0];
        loop {
            self.0
                .read_exact(&mut byte)
                .unwrap_or_else(|error| panic!("no answer: {error}"));
            if byte == *b"\n" {
                return String::from_utf8(name).unwrap();
            }
            name.push(byte[0]);
        }
    }
}
