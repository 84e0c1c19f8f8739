//! Client, director and server in namespaces of their own: client 10.9.1.1 — 10.9.1.2 director 10.9.2.2 — 10.9.2.3
//! server, and the same in fd09::/16. The director forwards as a plain router does; what it does for a VIP is each
//! test's.

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
/// What a connection carries each way: more than every buffer on the way.
pub(crate) const VOLUME: usize = 4 << 20;
/// How long anything may take before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Topology {
    pub(crate) client: NetNs,
    pub(crate) director: NetNs,
    pub(crate) server: NetNs,
    dir: PathBuf,
}

/// Index into the pairs of addresses above.
pub(crate) const FAMILIES: [usize; 2] = [0, 1];

/// As [`weir_testing::require_root`].
pub(crate) fn is_root() -> bool {
    weir_testing::require_root()
}

pub(crate) fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// Runs `ip` with the words of each line.
pub(crate) fn run_ip(netns: &NetNs, lines: &str) -> String {
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
        let made = || NetNs::create().unwrap();
        let topology = Self {
            client: made(),
            director: made(),
            server: made(),
            dir,
        };
        topology.wire();
        topology
    }

    fn wire(&self) {
        let place = |netns: &NetNs| {
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
                place(&self.client),
                place(&self.server)
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
            // A generated link-local address would settle in the middle of a comparison.
            "link set lo up\nlink set s0 addrgenmode none\nlink set s0 up
             addr add 10.9.2.3/24 dev s0\naddr add fd09:2::3/64 dev s0 nodad\naddr add fe80::3/64 dev s0 nodad
             route add default via 10.9.2.2 mtu 1400\nroute add default via fd09:2::2 mtu 1400",
        );
        // The kernel adds IPv6 routes some time after their address.
        wait_until("the server's routes", || {
            let routes = run_ip(&self.server, "-6 route show table local");
            routes.contains("local fd09:2::3") && routes.contains("local fe80::3")
        });
        self.set_offloads();
    }

    /// The client sends packets as they are, one by one and with their checksums, which is what a test's director
    /// handles. The server merges what arrives, as a card's driver would: veth does so for a peer that never sends
    /// merged ones, and a thread of its own takes many packets in one go.
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
        let done = self.server.run(|| {
            Command::new("unshare")
                .args(["-m", "sh", "-c", threaded])
                .output()
                .unwrap()
        });
        assert!(done.unwrap().status.success(), "{threaded}");
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

    /// Everything that `up` could change on the server, a line each.
    pub(crate) fn server_facts(&self) -> BTreeSet<String> {
        let mut facts = run_ip(
            &self.server,
            "-o addr\nroute show table all\n-6 route show table all",
        );
        let others = "grep -r . /proc/sys/net/ipv[46]/conf; tc filter show dev s0 ingress; tc filter show dev s0 \
         egress";
        let others = self
            .server
            .run(|| Command::new("sh").args(["-c", others]).output().unwrap())
            .unwrap();
        facts.push_str(&String::from_utf8_lossy(&others.stdout));
        for direction in [Direction::Ingress, Direction::Egress] {
            let programs = self.server.run(|| programs_at("s0", direction).unwrap());
            facts.push_str(&format!("{direction} {:?}\n", programs.unwrap()));
        }
        facts.lines().map(str::to_owned).collect()
    }

    /// The server is as it was `before`.
    pub(crate) fn assert_unchanged(&self, before: &BTreeSet<String>) {
        let now = self.server_facts();
        let changed: Vec<_> = before.symmetric_difference(&now).collect();
        assert!(changed.is_empty(), "{changed:#?}");
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        // The mount exists only where a test needed programs.
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

/// Looks again and again until `met`; only the deadline fails.
pub(crate) fn wait_until(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !met() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at.wrapping_mul(31) >> 3) as u8)
        .collect()
}

/// Answers TCP connections with what they sent, once it is all there, and datagrams with themselves, at `address`. Ends
/// with the process.
pub(crate) fn serve(netns: &NetNs, address: IpAddr) {
    let (listener, socket) = netns
        .run(|| {
            let at = SocketAddr::new(address, PORT);
            (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap())
        })
        .unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut data = Vec::new();
                let answered = stream
                    .read_to_end(&mut data)
                    .and_then(|_| stream.write_all(&data));
                drop(answered);
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

/// Sends [`VOLUME`] bytes to `address` and gets them back.
pub(crate) fn exchange_tcp(netns: &NetNs, address: IpAddr) {
    let stream = netns
        .run(|| TcpStream::connect_timeout(&SocketAddr::new(address, PORT), PATIENCE))
        .unwrap();
    let mut stream = stream.unwrap_or_else(|error| panic!("connect to {address}: {error}"));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let sent = pattern(VOLUME);
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(
        back == sent,
        "{} of {} bytes came back from {address}",
        back.len(),
        sent.len()
    );
}

/// A socket that takes answers from `address` alone.
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
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a datagram of each length on `socket` and gets it back.
pub(crate) fn echo(socket: &UdpSocket, lengths: &[usize]) {
    let peer = socket.peer_addr().unwrap();
    for len in lengths {
        let sent = pattern(*len);
        socket.send(&sent).unwrap();
        let mut back = [0; 8192];
        let got = socket
            .recv(&mut back)
            .unwrap_or_else(|error| panic!("{len} bytes to {peer}: {error}"));
        assert_eq!(&back[..got], sent);
    }
}

/// Datagrams of lengths that are odd, even, and just fit.
pub(crate) fn exchange_udp(netns: &NetNs, address: IpAddr) {
    echo(
        &connect_udp(netns, address, PORT),
        &[1, 2, 3, 255, 256, 1001, 1340],
    );
}
