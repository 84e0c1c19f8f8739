//! Tests that connections through all directors of a group survive etcd failures.
//!
//! Each member is killed once, then a majority is down, and then all data is lost.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::layer4::{POOL, VIP};
use super::*;

const PORT: u16 = 7000;
/// Number of UDP flows; each director receives some of them.
const DATAGRAM_FLOWS: usize = 64;
/// Duration of a round. One UDP flow sends a datagram per round.
const ROUND: Duration = Duration::from_millis(5);
/// Number of rounds in which each connection sends one byte: 10 s.
const ROUNDS_PER_BYTE: usize = 2000;
/// Number of rounds in which one new connection is opened, used and closed.
const ROUNDS_PER_CONNECTION: usize = 40;
/// Time limit for the last echoes.
const LAST_ECHOES_TIMEOUT: Duration = Duration::from_secs(20);

/// Size of the test.
#[derive(Clone, Copy)]
struct Scale {
    directors: usize,
    connections: usize,
    /// How long etcd has no majority.
    outage: Duration,
}

/// The client's counters.
#[derive(Debug, Default)]
struct Counts {
    /// Number of connections that were open during the whole test, and how many of them broke.
    connections: usize,
    broken: usize,
    /// Number of bytes sent on these connections, and how many of their echoes are missing.
    bytes: u64,
    missing_bytes: u64,
    /// Number of datagrams sent, and how many of their echoes are missing.
    datagrams: u64,
    lost: u64,
    /// Number of connections opened during the faults, and of attempts that failed.
    opened: u64,
    failed: u64,
}

/// Returns the address of the published service.
fn service_address() -> SocketAddr {
    SocketAddr::new(
        VIP.parse::<Ipv4Addr>().expect("parse the address").into(),
        PORT,
    )
}

/// Raises the open-file limit, because each connection needs a descriptor. Returns the number of connections that the
/// limit allows.
fn raise_connection_limit(requested: usize) -> usize {
    let needed_files = requested as u64 + 1000;
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    let raised = Rlimit {
        current: Some(needed_files.max(limit.current.unwrap_or(needed_files))),
        maximum: Some(needed_files.max(maximum)),
    };
    // Without the privilege to raise the maximum, use fewer connections.
    if setrlimit(Resource::Nofile, raised).is_ok() {
        return requested;
    }
    let allowed = Rlimit {
        current: Some(maximum),
        maximum: Some(maximum),
    };
    let _ = setrlimit(Resource::Nofile, allowed);
    let possible = usize::try_from(maximum.saturating_sub(1000)).unwrap_or(requested);
    possible.min(requested)
}

/// The program of an echo server. It runs in a separate process, because the test process holds the client's
/// descriptors.
const ECHO: &str = "
import asyncio, sys

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, '0.0.0.0', int(sys.argv[1]), backlog=1024)
    print('listening', flush=True)
    await server.serve_forever()

asyncio.run(main())
";

fn start_servers(group: &mut Group) {
    for n in 0..POOL.len() {
        let mut command = group.world.command(&format!("server{n}"), "python3");
        command.args(["-c", ECHO, &PORT.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("start python3");
        let mut line = String::new();
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        // If the program fails, it ends without printing a line.
        output.take(100).read_line(&mut line).expect("read a line");
        assert_eq!(line, "listening\n");
        group.world.kill_on_drop(child);
    }
    let vip: IpAddr = VIP.parse().expect("parse the address");
    group.world.start_udp_echo(PORT, |_| vip);
}

struct Connection {
    stream: TcpStream,
    sent: u64,
    received: u64,
    is_open: bool,
}

impl Connection {
    /// Opens a connection and receives the first echo.
    fn open() -> std::io::Result<Self> {
        let limit = Duration::from_secs(10);
        let mut stream = TcpStream::connect_timeout(&service_address(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        stream.write_all(b"a")?;
        stream.read_exact(&mut [0; 1])?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            sent: 1,
            received: 1,
            is_open: true,
        })
    }

    fn send(&mut self) {
        match self.stream.write(b"a") {
            Ok(length) => self.sent += length as u64,
            Err(error) => self.is_open &= error.kind() == ErrorKind::WouldBlock,
        }
    }

    fn receive(&mut self) {
        let mut bytes = [0; 64];
        while self.is_open {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_open = false,
                Ok(length) => self.received += length as u64,
                Err(error) => {
                    self.is_open = error.kind() == ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }
}

/// The client: one thread for all flows.
struct Generator {
    connections: Vec<Connection>,
    datagrams: Vec<(UdpSocket, u64, u64)>,
    counts: Counts,
}

impl Generator {
    fn open(count: usize) -> std::io::Result<Self> {
        let connections = (0..count).map(|_| Connection::open());
        let datagrams = (0..DATAGRAM_FLOWS).map(|_| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect(service_address())?;
            socket.set_nonblocking(true)?;
            Ok((socket, 0, 0))
        });
        Ok(Self {
            connections: connections.collect::<std::io::Result<_>>()?,
            datagrams: datagrams.collect::<std::io::Result<_>>()?,
            counts: Counts::default(),
        })
    }

    fn receive_datagrams(&mut self) {
        for (socket, _, received) in &mut self.datagrams {
            while socket.recv(&mut [0; 16]).is_ok() {
                *received += 1;
            }
        }
    }

    /// Sends the messages of one round.
    fn send_round(&mut self, number: usize) {
        let flow = number % DATAGRAM_FLOWS;
        let (socket, sent, _) = &mut self.datagrams[flow];
        // A datagram that the kernel does not send is also counted as lost.
        let _ = socket.send(b"a");
        *sent += 1;
        self.receive_datagrams();
        let part = self.connections.iter_mut().skip(number % ROUNDS_PER_BYTE);
        for connection in part.step_by(ROUNDS_PER_BYTE) {
            connection.receive();
            connection.send();
        }
        if number.is_multiple_of(ROUNDS_PER_CONNECTION) {
            self.counts.opened += 1;
            if let Err(error) = Connection::open() {
                eprintln!("failed to open a connection: {error}");
                self.counts.failed += 1;
            }
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Counts {
        let (mut next, mut number) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            self.send_round(number);
            number += 1;
            // If the thread is late, it must not send the missed messages in a burst.
            next = (next + ROUND).max(Instant::now());
            std::thread::sleep(next - Instant::now());
        }
        self.finish()
    }

    /// Sends one more byte on each connection and waits for the echoes. Returns the counters.
    fn finish(mut self) -> Counts {
        self.connections.iter_mut().for_each(Connection::send);
        let end = Instant::now() + LAST_ECHOES_TIMEOUT;
        let mut is_complete = false;
        while !is_complete && Instant::now() < end {
            self.connections.iter_mut().for_each(Connection::receive);
            self.receive_datagrams();
            let echoed = self.connections.iter();
            let echoed = echoed.filter(|it| it.is_open && it.received == it.sent);
            let all_echoed = self
                .datagrams
                .iter()
                .all(|(_, sent, received)| sent == received);
            is_complete = all_echoed && echoed.count() == self.connections.len();
            std::thread::sleep(ROUND);
        }
        let missing = |it: &Connection| it.sent - it.received;
        Counts {
            connections: self.connections.len(),
            broken: self.connections.iter().filter(|it| !it.is_open).count(),
            bytes: self.connections.iter().map(|it| it.sent).sum(),
            missing_bytes: self.connections.iter().map(missing).sum(),
            datagrams: self.datagrams.iter().map(|it| it.1).sum(),
            lost: self.datagrams.iter().map(|it| it.1 - it.2).sum(),
            ..self.counts
        }
    }
}

fn configuration() -> String {
    let servers: Vec<String> = POOL.iter().map(|it| format!("\"{it}\"")).collect();
    format!(
        "[pool.web]\nscheduler = \"maglev\"\nservers = [{}]\n[pool.web.check]\nkind = \"tcp\"\nport = {PORT}\ninterval \
         = \"1s\"\ntimeout = \"900ms\"\nfall = 3\nrise = 1\n[service.web]\nlisten = [\"{VIP}:{PORT}\", \
         \"udp/{VIP}:{PORT}\"]\nforward = \"direct\"\npool = \"web\"\n",
        servers.join(", ")
    )
}

impl Group {
    /// Distributes the client's packets for the VIP among all directors by a hash of addresses and ports.
    fn route_to_all(&self) {
        let sysctl = "sysctl -qw net.ipv4.fib_multipath_hash_policy=1";
        assert!(self.world.output("client", sysctl).status.success());
        let hops =
            (0..self.directors.len()).map(|n| format!(" nexthop via 10.71.0.{}", host_number(n)));
        let route = format!("route replace {VIP}/32{}", hops.collect::<String>());
        self.world.ip("client", &route);
    }

    /// Returns the daemon's status. Repeats `weir status`, which shows the kernel's state if the daemon is too slow.
    fn daemon_status(&self, n: usize) -> Value {
        let mut status = Value::Null;
        wait_for("a status that contains the cluster", TIMEOUT, || {
            status = self.status(n);
            status["cluster"].is_object()
        });
        status
    }

    /// Returns the number of connections and flows that each director has created.
    fn connection_counts(&self) -> Vec<u64> {
        let count = |n: usize| {
            let status = self.daemon_status(n);
            status["services"][0]["connections"].as_u64()
        };
        let counts = (0..self.directors.len()).map(count);
        counts.map(|it| it.expect("status has the count")).collect()
    }

    /// Returns the number of segments that the client's kernel retransmitted.
    fn retransmitted_segments(&self) -> u64 {
        let output = self
            .world
            .output("client", "cat /proc/thread-self/net/snmp");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, values) = (lines.next(), lines.next());
        let mut pairs = names
            .into_iter()
            .flat_map(str::split_whitespace)
            .zip(values.into_iter().flat_map(str::split_whitespace));
        let found = pairs.find(|(name, _)| *name == "RetransSegs");
        found
            .and_then(|(_, it)| it.parse().ok())
            .expect("parse the counter")
    }

    fn assert_no_server_is_removed(&self) {
        for n in 0..self.directors.len() {
            let status = self.daemon_status(n);
            let servers = status["services"][0]["servers"].as_array().map(Vec::len);
            assert_eq!(servers, Some(POOL.len()), "director {n}");
        }
    }
}

/// Injects the etcd failures one after another.
fn inject_etcd_failures(group: &mut Group, outage: Duration) {
    for n in 0..3 {
        group.kill_etcd(n);
        std::thread::sleep(Duration::from_millis(500));
        group.assert_no_server_is_removed();
        group.start_etcd(n);
        group.wait_for_etcd();
    }
    group.kill_etcd(0);
    group.kill_etcd(1);
    let end = Instant::now() + outage;
    // Querying the directors takes more CPU time than the load itself, so query rarely.
    let pause = (outage / 60).max(Duration::from_secs(1));
    while Instant::now() < end {
        group.assert_no_server_is_removed();
        std::thread::sleep(pause);
    }
    let count = group.directors.len();
    for n in 0..count {
        wait_for("the director to report the loss of etcd", TIMEOUT, || {
            group.group(n)["etcd"] == "away"
        });
        let status = group.daemon_status(n);
        let members = status["cluster"]["members"].as_array().map(Vec::len);
        assert_eq!(
            members,
            Some(count),
            "an etcd outage must not remove members"
        );
    }
    group.kill_etcd(2);
    for n in 0..3 {
        fs::remove_dir_all(group.data_dir(n)).expect("remove the data");
        group.start_etcd(n);
    }
    group.wait_for_etcd();
    for n in 0..count {
        wait_for("all members to register again", TIMEOUT, || {
            group.present_members(n) == count
        });
        wait_for("the rollout to be complete", TIMEOUT, || {
            group.group(n)["rollout"] == "complete"
        });
    }
    group.assert_no_server_is_removed();
}

fn assert_flows_survive(scale: Scale) {
    let connections = raise_connection_limit(scale.connections);
    let mut group = Group::layer4(3, scale.directors, POOL.len());
    let arguments = ["--forward", "direct", "--vip", VIP];
    group.world.prepare_servers(&arguments);
    start_servers(&mut group);
    let output = group.publish(0, &configuration(), "0s");
    assert!(output.status.success(), "{output:?}");
    for n in 0..scale.directors {
        wait_for("the servers to be up", TIMEOUT, || {
            POOL.iter().all(|it| group.state(n, it) == "up")
        });
    }
    group.route_to_all();
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, opened) = mpsc::channel();
    let client = {
        let stop = Arc::clone(&stop);
        group.world.spawn_on("client", move || {
            let generator = Generator::open(connections).expect("open all connections");
            ready.send(()).expect("test receives the result");
            generator.run(&stop)
        })
    };
    let limit = Duration::from_secs(120);
    opened.recv_timeout(limit).expect("open all connections");
    let per_director = group.connection_counts();
    let average = connections as u64 / scale.directors as u64;
    assert!(
        per_director.iter().all(|it| *it > average / 3),
        "{per_director:?}"
    );
    let before = group.retransmitted_segments();
    let start = Instant::now();
    inject_etcd_failures(&mut group, scale.outage);
    stop.store(true, Ordering::Relaxed);
    let counts = client.join().expect("load thread panicked");
    println!(
        "{} directors, connections per director {per_director:?}, etcd without a majority for {:?}, all faults in \
         {:?}: {counts:?}; {} segments retransmitted",
        scale.directors,
        scale.outage,
        start.elapsed(),
        group.retransmitted_segments() - before,
    );
    assert_eq!((counts.broken, counts.missing_bytes), (0, 0), "{counts:?}");
    assert_eq!((counts.lost, counts.failed), (0, 0), "{counts:?}");
    assert_eq!(counts.connections, connections, "{counts:?}");
    assert!(counts.bytes > connections as u64, "{counts:?}");
    assert!(counts.datagrams > 500 && counts.opened > 10, "{counts:?}");
}

#[test]
fn flows_survive_loss_of_etcd_and_its_data() {
    if privileged() {
        assert_flows_survive(Scale {
            directors: 2,
            connections: 300,
            outage: Duration::from_secs(2),
        });
    }
}

#[test]
fn ten_thousand_flows_survive_ten_minutes_without_etcd_soak() {
    if privileged() && std::env::var_os("WEIR_SOAK").is_some() {
        assert_flows_survive(Scale {
            directors: 4,
            connections: 10_000,
            outage: Duration::from_secs(600),
        });
    }
}
