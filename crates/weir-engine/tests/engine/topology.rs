//! Creates namespaces around a bridge, and runs clients, servers and the engine in them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use weir_engine::Paths;
use weir_sys::NetNs;
use weir_sys::ethtool::Features;

/// Number of bytes that a bulk server sends.
const BULK_BYTES: usize = 50 << 20;

/// Maximum time that an operation may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of open connections of [`Topology::connect_during`].
const MAX_OPEN_CONNECTIONS: usize = 100;

/// See [`weir_testing::require_root`].
pub(crate) fn is_root() -> bool {
    weir_testing::require_root()
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
        let result = netns
            .run(|| Command::new("ip").args(line.split(' ')).output().unwrap())
            .unwrap();
        assert!(
            result.status.success(),
            "ip {line}: {}",
            String::from_utf8_lossy(&result.stderr)
        );
        output.push_str(&String::from_utf8_lossy(&result.stdout));
    }
    output
}

fn sysctl(netns: &NetNs, name: &str, value: &str) {
    netns
        .run(|| std::fs::write(format!("/proc/sys/{name}"), value).unwrap())
        .unwrap();
}

fn features(netns: &NetNs, interface: &str, settings: &[(&str, bool)]) {
    netns
        .run(|| {
            Features::read(interface)
                .unwrap()
                .set(settings)
                .map(drop)
                .unwrap()
        })
        .unwrap();
}

impl Topology {
    pub(crate) fn new(name: &str) -> Self {
        // All tests of the process have their maps and connections open at the same time.
        weir_sys::raise_nofile().unwrap();
        let directory =
            std::env::temp_dir().join(format!("weir-engine-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let new_namespace = || NetNs::create().unwrap();
        let servers = [
            (new_namespace(), "10.8.0.11"),
            (new_namespace(), "10.8.0.12"),
        ];
        let topology = Self {
            wire: new_namespace(),
            client: new_namespace(),
            director: new_namespace(),
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
        for (index, (server, address)) in self.servers.iter().enumerate() {
            self.join(server, &format!("s{index}"), &format!("{address}/24"));
            for scope in ["all", "lo"] {
                sysctl(server, &format!("net/ipv4/conf/{scope}/arp_ignore"), "1");
            }
            ip(server, "addr add 192.0.2.10/32 dev lo");
        }
        ip(&self.client, "route add 192.0.2.10 via 10.8.0.2");
    }

    /// Adds a veth pair between a namespace and the bridge. GRO is enabled on the bridge end, so veth accepts frames
    /// that the program at the other end sends. Senders compute complete checksums, so packets arrive as from a real
    /// network card.
    fn join(&self, netns: &NetNs, name: &str, address: &str) {
        let netns_path = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            netns.as_fd().as_raw_fd()
        );
        ip(
            &self.wire,
            &format!(
                "link add {name}-w type veth peer name {name} netns {netns_path}
                 link set {name}-w master br0
                 link set {name}-w up"
            ),
        );
        ip(
            netns,
            &format!("link set lo up\nlink set {name} up\naddr add {address} dev {name}"),
        );
        features(&self.wire, &format!("{name}-w"), &[("rx-gro", true)]);
        let complete_checksums = [("tx-checksum-ip-generic", false)];
        features(netns, name, &complete_checksums);
    }

    pub(crate) fn route_replies_through_director(&self) {
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

    /// Starts a service on each server that responds to every byte with the server's address. It runs until the process
    /// ends.
    pub(crate) fn serve(&self, address: &str, port: u16) {
        for (netns, server_address) in &self.servers {
            let server_address = *server_address;
            let listen_address = SocketAddr::new(address.parse().unwrap(), port);
            let listener = netns
                .run(|| TcpListener::bind(listen_address).unwrap())
                .unwrap();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    thread::spawn(move || {
                        let mut byte = [0];
                        while stream.read_exact(&mut byte).is_ok() {
                            if stream
                                .write_all(format!("{server_address}\n").as_bytes())
                                .is_err()
                            {
                                return;
                            }
                        }
                    });
                }
            });
        }
    }

    /// Starts a service on each server that sends [`BULK_BYTES`] bytes to every client.
    pub(crate) fn serve_bulk(&self, address: &str, port: u16) {
        for (netns, _) in &self.servers {
            send_bulk(netns, address, port);
        }
    }

    /// Starts a bulk service on the director itself. Checksums and segmentation are left to the device, which is the
    /// stack's default.
    pub(crate) fn director_serves_bulk(&self, address: &str, port: u16) {
        for feature in ["tx-checksum-ip-generic", "tx-tcp-segmentation"] {
            features(&self.director, "d0", &[(feature, true)]);
        }
        send_bulk(&self.director, address, port);
    }

    /// Receives the data of a bulk server and checks every byte.
    pub(crate) fn download(&self, address: &str, port: u16) {
        let mut stream = self.connect(address, port).0;
        let mut block = vec![0; 1 << 16];
        let mut received = 0;
        loop {
            match stream.read(&mut block).unwrap() {
                0 => break,
                length => {
                    let expected = (received..).map(bulk_byte);
                    assert!(
                        block[..length]
                            .iter()
                            .copied()
                            .zip(expected)
                            .all(|(a, b)| a == b),
                        "wrong bytes after byte {received}"
                    );
                    received += length;
                }
            }
        }
        assert_eq!(received, BULK_BYTES);
    }

    pub(crate) fn director_ip(&self, lines: &str) -> String {
        ip(&self.director, lines)
    }

    pub(crate) fn client_ip(&self, lines: &str) -> String {
        ip(&self.client, lines)
    }

    pub(crate) fn director_sysctl(&self, name: &str, value: &str) {
        sysctl(&self.director, name, value);
    }

    pub(crate) fn director_feature(&self, interface: &str, name: &str, on: bool) {
        features(&self.director, interface, &[(name, on)]);
    }

    /// Makes the director receive single packets with complete checksums, as from a network card: a veth would pass on
    /// merged packets with partial checksums from another port.
    pub(crate) fn complete_checksums_on_wire(&self) {
        features(&self.wire, "d0-w", &[("tx-checksum-ip-generic", false)]);
    }

    pub(crate) fn director_has_gro(&self, interface: &str) -> bool {
        self.director
            .run(|| Features::read(interface).unwrap().is_active("rx-gro"))
            .unwrap()
    }

    /// Waits until the client's neighbor table maps `address` to the MAC address of the director's d0.
    pub(crate) fn wait_until_client_resolves(&self, address: &str) {
        let link = ip(&self.director, "-o link show d0");
        let mac = link.split("link/ether ").nth(1).unwrap();
        let mac = mac.split(' ').next().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let neighbor = ip(&self.client, &format!("neigh show {address} dev c0"));
            if neighbor.contains(mac) {
                return;
            }
            assert!(Instant::now() < deadline, "{address} at {mac}: {neighbor}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Opens at least three connections to the VIP, one after another, while `operation` runs in the director. Returns
    /// the connections.
    pub(crate) fn connect_during(
        &self,
        address: &str,
        port: u16,
        operation: impl AsyncFnOnce(&Paths),
    ) -> Vec<Connection> {
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let connector = scope.spawn(|| {
                let mut connections = Vec::new();
                while connections.len() < 3 || !is_done.load(Ordering::Relaxed) {
                    let mut connection = self.connect(address, port);
                    connection.server();
                    connections.push(connection);
                    // Limit the number of open descriptors.
                    if connections.len() > MAX_OPEN_CONNECTIONS {
                        connections.remove(0).server();
                    }
                }
                connections
            });
            // Continue if `operation` panics, to let the other thread end.
            let result = catch_unwind(AssertUnwindSafe(|| self.run(operation)));
            is_done.store(true, Ordering::Relaxed);
            let connections = connector.join().unwrap();
            if let Err(panic) = result {
                resume_unwind(panic);
            }
            connections
        })
    }

    pub(crate) fn connect(&self, address: &str, port: u16) -> Connection {
        let destination = SocketAddr::new(address.parse().unwrap(), port);
        let stream = self
            .client
            .run(|| TcpStream::connect_timeout(&destination, TIMEOUT))
            .unwrap();
        let stream = stream.unwrap_or_else(|error| panic!("connect to {destination}: {error}"));
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Connection(stream)
    }

    /// Tries to open a connection to servers that have no service on this port, and asserts that it is refused.
    pub(crate) fn connect_without_service(&self, address: &str, port: u16) {
        let destination = SocketAddr::new(address.parse().unwrap(), port);
        let connect = || TcpStream::connect_timeout(&destination, TIMEOUT);
        let error = self.client.run(connect).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    }

    /// Returns the server that responds to a new connection from this port of the client.
    pub(crate) fn fetch_from(&self, source_port: u16, address: &str, port: u16) -> String {
        let destination = SocketAddr::new(address.parse().unwrap(), port);
        let source = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), source_port);
        let connect = || -> std::io::Result<TcpStream> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&source.into())?;
            socket.connect_timeout(&destination.into(), TIMEOUT)?;
            Ok(socket.into())
        };
        let stream = self.client.run(connect).unwrap();
        let stream = stream.unwrap_or_else(|error| panic!("{source} to {destination}: {error}"));
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Connection(stream).server()
    }

    /// Returns the server that responds to a new connection.
    pub(crate) fn fetch(&self, address: &str, port: u16) -> String {
        self.connect(address, port).server()
    }

    /// Runs `operation` in the director's namespace.
    pub(crate) fn run(&self, operation: impl AsyncFnOnce(&Paths)) {
        let paths = Paths {
            runtime_dir: self.directory.join("run"),
            pin_dir: self.directory.join("bpf/weir"),
        };
        let _inside = self.director.enter().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(operation(&paths));
    }

    /// Returns the state that an engine may change on the director.
    pub(crate) fn director_network(&self) -> Vec<String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let text = ip(
                &self.director,
                "-o -4 addr\n-4 route show table all\nneigh show nud permanent",
            );
            let links = ip(&self.director, "-o link show d0");
            let xdp = links.split("prog/xdp").nth(1).is_some().to_string();
            // Wait until duplicate address detection has finished.
            let lines: Vec<String> = text.lines().map(str::to_owned).chain([xdp]).collect();
            if lines.iter().all(|line| !line.contains("tentative")) || Instant::now() > deadline {
                return lines;
            }
        }
    }
}

fn bulk_byte(offset: usize) -> u8 {
    (offset % 251) as u8
}

fn send_bulk(netns: &NetNs, address: &str, port: u16) {
    let listen_address = SocketAddr::new(address.parse().unwrap(), port);
    let listener = netns
        .run(|| TcpListener::bind(listen_address).unwrap())
        .unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let bytes: Vec<u8> = (0..BULK_BYTES).map(bulk_byte).collect();
            let mut stream = stream.unwrap();
            // If the client closed the connection, its own test has failed.
            let _sent = stream.write_all(&bytes);
        }
    });
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
    /// Reads and discards all data until the end of the stream.
    pub(crate) fn drain(mut self) {
        let _all = std::io::copy(&mut self.0, &mut std::io::sink()).unwrap();
    }

    /// Requests the address of the server at the other end.
    pub(crate) fn server(&mut self) -> String {
        self.0.write_all(b"?").unwrap();
        let mut name = Vec::new();
        let mut byte = [0];
        loop {
            self.0
                .read_exact(&mut byte)
                .unwrap_or_else(|error| panic!("no response: {error}"));
            if byte == *b"\n" {
                return String::from_utf8(name).unwrap();
            }
            name.push(byte[0]);
        }
    }
}
