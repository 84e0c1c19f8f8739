//! Creates a client, a director and a server in separate namespaces.
//!
//! The addresses are: client 10.9.1.1 — 10.9.1.2 director 10.9.2.2 — 10.9.2.3 server, and the same in fd09::/16. The
//! director is a router; each test defines how it forwards packets for a VIP.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use weir_dataplane::real_server::{Direction, programs_at};
use weir_model::Forward;
use weir_real_server::{DownRequest, Options, Report, Step, UpRequest};
use weir_sys::{NetNs, ethtool::Features};

pub(crate) const CLIENT: [&str; 2] = ["10.9.1.1", "fd09:1::1"];
pub(crate) const DIRECTOR: [&str; 2] = ["10.9.2.2", "fd09:2::2"];
pub(crate) const SERVER: [&str; 2] = ["10.9.2.3", "fd09:2::3"];
pub(crate) const VIP: [&str; 2] = ["192.0.2.10", "2001:db8::10"];
pub(crate) const PORT: u16 = 8080;
/// Bytes that a connection transfers in each direction: more than the capacity of all buffers on the path.
pub(crate) const VOLUME_BYTES: usize = 4 << 20;
/// Time limit of each operation.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Topology {
    pub(crate) client: NetNs,
    pub(crate) director: NetNs,
    pub(crate) server: NetNs,
    dir: PathBuf,
}

/// Indexes into the pairs of addresses above.
pub(crate) const FAMILIES: [usize; 2] = [0, 1];

/// See [`weir_testing::require_root`].
pub(crate) fn is_root() -> bool {
    weir_testing::require_root()
}

pub(crate) fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// Runs `ip` with the arguments in each line, and returns the output.
pub(crate) fn run_ip(netns: &NetNs, lines: &str) -> String {
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

pub(crate) fn write_sysctl(netns: &NetNs, name: &str, value: &str) {
    netns
        .run(|| std::fs::write(format!("/proc/sys/{name}"), value).unwrap())
        .unwrap();
}

impl Topology {
    pub(crate) fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("weir-real-server-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("bpf")).unwrap();
        let create = || NetNs::create().unwrap();
        let topology = Self {
            client: create(),
            director: create(),
            server: create(),
            dir,
        };
        topology.connect();
        topology
    }

    fn connect(&self) {
        let netns_path = |netns: &NetNs| {
            format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                netns.as_fd().as_raw_fd()
            )
        };
        run_ip(
            &self.director,
            &format!(
                "link add d0 type veth peer name c0 netns {}
                 link add d1 type veth peer name s0 netns {}
                 link set lo up\nlink set d0 up mtu 1400\nlink set d1 up
                 addr add 10.9.1.2/24 dev d0\naddr add fd09:1::2/64 dev d0 nodad
                 addr add 10.9.2.2/24 dev d1\naddr add fd09:2::2/64 dev d1 nodad
                 route add blackhole 192.0.2.10\n-6 route add blackhole 2001:db8::10",
                netns_path(&self.client),
                netns_path(&self.server)
            ),
        );
        for forwarding in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            write_sysctl(&self.director, forwarding, "1");
        }
        run_ip(
            &self.client,
            "link set lo up\nlink set c0 up mtu 1400
             addr add 10.9.1.1/24 dev c0\naddr add fd09:1::1/64 dev c0 nodad
             route add default via 10.9.1.2\nroute add default via fd09:1::2",
        );
        run_ip(
            &self.server,
            // A generated link-local address would change its state during a comparison.
            "link set lo up\nlink set s0 addrgenmode none\nlink set s0 up
             addr add 10.9.2.3/24 dev s0\naddr add fd09:2::3/64 dev s0 nodad\naddr add fe80::3/64 dev s0 nodad
             route add default via 10.9.2.2 mtu 1400\nroute add default via fd09:2::2 mtu 1400",
        );
        // The kernel adds the routes of an IPv6 address asynchronously.
        wait_until("the server's routes", || {
            let routes = run_ip(&self.server, "-6 route show table local");
            routes.contains("local fd09:2::3") && routes.contains("local fe80::3")
        });
        self.set_offloads();
    }

    /// Disables segmentation and checksum offload on the client, because the tests' director handles only unsegmented
    /// packets with complete checksums. Enables GRO on the server, as on a hardware NIC: veth merges packets if the
    /// peer does not send merged ones, and threaded NAPI processes many packets at once.
    fn set_offloads(&self) {
        let set = |netns: &NetNs, interface, features: &[(&str, bool)]| {
            netns
                .run(|| {
                    Features::read(interface)
                        .unwrap()
                        .set(features)
                        .map(drop)
                        .unwrap()
                })
                .unwrap();
        };
        let segmentation = [
            ("tx-tcp-segmentation", false),
            ("tx-tcp-ecn-segmentation", false),
            ("tx-tcp-mangleid-segmentation", false),
            ("tx-tcp6-segmentation", false),
        ];
        set(&self.client, "c0", &segmentation);
        set(
            &self.client,
            "c0",
            &[
                ("tx-generic-segmentation", false),
                ("tx-checksum-ip-generic", false),
            ],
        );
        set(&self.director, "d1", &segmentation);
        set(&self.server, "s0", &[("rx-gro", true)]);
        let threaded = "mount -t sysfs none /sys && echo 1 >/sys/class/net/s0/threaded";
        let output = self.server.run(|| {
            Command::new("unshare")
                .args(["-m", "sh", "-c", threaded])
                .output()
                .unwrap()
        });
        assert!(output.unwrap().status.success(), "{threaded}");
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            runtime_dir: self.dir.join("run"),
            pin_dir: self.dir.join("bpf/weir"),
        }
    }

    pub(crate) fn up_with(
        &self,
        options: &Options,
        request: &UpRequest,
    ) -> weir_real_server::Result<Vec<Step>> {
        self.server
            .run(|| block_on(weir_real_server::up(options, request)))
            .unwrap()
    }

    pub(crate) fn up(&self, request: &UpRequest) -> Vec<Step> {
        self.up_with(&self.options(), request).unwrap()
    }

    pub(crate) fn down(&self, vips: &[&str]) -> Vec<Step> {
        let options = self.options();
        let request = DownRequest {
            vips: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
        };
        self.server
            .run(|| block_on(weir_real_server::down(&options, &request)))
            .unwrap()
            .unwrap()
    }

    pub(crate) fn show(&self) -> Report {
        let options = self.options();
        self.server
            .run(|| block_on(weir_real_server::show(&options)))
            .unwrap()
            .unwrap()
    }

    pub(crate) fn in_client<T: Send, F: Future<Output = T>>(
        &self,
        work: impl FnOnce() -> F + Send,
    ) -> T {
        self.client.run(|| block_on(work())).unwrap()
    }

    /// Returns all state that `up` can change on the server, one line for each setting.
    pub(crate) fn server_state(&self) -> BTreeSet<String> {
        let mut state = run_ip(
            &self.server,
            "-o addr\nroute show table all\n-6 route show table all",
        );
        let command = "grep -r . /proc/sys/net/ipv[46]/conf; tc filter show dev s0 ingress; tc filter show dev s0 \
         egress";
        let output = self
            .server
            .run(|| Command::new("sh").args(["-c", command]).output().unwrap())
            .unwrap();
        state.push_str(&String::from_utf8_lossy(&output.stdout));
        for direction in [Direction::Ingress, Direction::Egress] {
            let programs = self.server.run(|| programs_at("s0", direction).unwrap());
            state.push_str(&format!("{direction} {:?}\n", programs.unwrap()));
        }
        state.lines().map(str::to_owned).collect()
    }

    /// Asserts that the server's state is equal to `before`.
    pub(crate) fn assert_unchanged(&self, before: &BTreeSet<String>) {
        let current = self.server_state();
        let difference: Vec<_> = before.symmetric_difference(&current).collect();
        assert!(difference.is_empty(), "{difference:#?}");
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        // The mount exists only if the test used programs.
        let _unmounted = Command::new("umount").arg(self.dir.join("bpf")).output();
        let _removed = std::fs::remove_dir_all(&self.dir);
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

pub(crate) fn request(forward: Forward, vips: &[&str]) -> UpRequest {
    UpRequest {
        forward,
        vips: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
        tunnel: None,
        dscp: None,
        except: Vec::new(),
        interfaces: Vec::new(),
    }
}

/// Polls until `condition` holds; panics at the deadline.
pub(crate) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "timed out waiting for {description}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index.wrapping_mul(31) >> 3) as u8)
        .collect()
}

/// Runs an echo server at `address`: it returns the data of a TCP connection after the client's end of stream, and each
/// datagram. It ends with the process.
pub(crate) fn serve(netns: &NetNs, address: IpAddr) {
    let (listener, socket) = netns
        .run(|| {
            let local = SocketAddr::new(address, PORT);
            (
                TcpListener::bind(local).unwrap(),
                UdpSocket::bind(local).unwrap(),
            )
        })
        .unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut data = Vec::new();
                let result = stream
                    .read_to_end(&mut data)
                    .and_then(|_| stream.write_all(&data));
                drop(result);
            });
        }
    });
    thread::spawn(move || {
        let mut data = [0; 8192];
        while let Ok((len, from)) = socket.recv_from(&mut data) {
            let _sent = socket.send_to(&data[..len], from);
        }
    });
}

/// Sends [`VOLUME_BYTES`] bytes to `address` and asserts that they are returned.
pub(crate) fn exchange_tcp(netns: &NetNs, address: IpAddr) {
    let stream = netns
        .run(|| TcpStream::connect_timeout(&SocketAddr::new(address, PORT), TIMEOUT))
        .unwrap();
    let mut stream = stream.unwrap_or_else(|error| panic!("connect to {address}: {error}"));
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    let data = pattern(VOLUME_BYTES);
    stream.write_all(&data).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(
        received == data,
        "{} of {} bytes were received from {address}, or some differ",
        received.len(),
        data.len()
    );
}

/// Returns a socket that receives replies from `address` only.
pub(crate) fn connect_udp(netns: &NetNs, address: IpAddr, port: u16) -> UdpSocket {
    let socket = netns
        .run(|| {
            let socket = UdpSocket::bind(if address.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            })
            .unwrap();
            socket.connect(SocketAddr::new(address, port)).unwrap();
            socket
        })
        .unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Sends a datagram of each length on `socket` and asserts that it is returned.
pub(crate) fn echo(socket: &UdpSocket, lengths: &[usize]) {
    let peer = socket.peer_addr().unwrap();
    for len in lengths {
        let data = pattern(*len);
        socket.send(&data).unwrap();
        let mut received = [0; 8192];
        let length = socket
            .recv(&mut received)
            .unwrap_or_else(|error| panic!("{len} bytes to {peer}: {error}"));
        assert_eq!(&received[..length], data);
    }
}

/// Exchanges datagrams of odd and even lengths, and of the maximum length that fits into a packet.
pub(crate) fn exchange_udp(netns: &NetNs, address: IpAddr) {
    echo(
        &connect_udp(netns, address, PORT),
        &[1, 2, 3, 255, 256, 1001, 1340],
    );
}
