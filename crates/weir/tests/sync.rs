//! Tests that flow synchronization keeps open connections when the active director is cut off and the VIP moves.
//!
//! Director 1 is 10.0.0.3, director 2 is 10.0.0.4; clients reach the VIP on the same switch.

mod world;

#[path = "sync/datagrams.rs"]
mod datagrams;
#[path = "sync/link_failure.rs"]
mod link_failure;
#[path = "sync/proxied.rs"]
mod proxied;
#[path = "sync/removed_server.rs"]
mod removed_server;
#[path = "sync/renamed_service.rs"]
mod renamed_service;
#[path = "sync/translation.rs"]
mod translation;
#[path = "sync/upgrade.rs"]
mod upgrade;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;
use world::{World, privileged, wait_for};

const HELD_CONNECTIONS: usize = 40;
const SERVERS: u8 = 4;
const VIP: &str = "10.0.0.10";
/// Time limit of each wait. On a slow machine, loading a director's BPF programs takes most of this time.
const TIMEOUT: Duration = Duration::from_secs(120);
const ADDRESSES: [(&str, &str); 2] = [("director", "10.0.0.3"), ("second", "10.0.0.4")];

/// Setting of a `nat` service. The source address moves with the VIP.
const SNAT: &str = "snat = { addresses = [\"10.0.0.100\"] }";
const SNAT_ADDRESS: &str = "10.0.0.100";

/// Two directors on one switch.
struct Pair {
    world: World,
    forward: &'static str,
    snat: bool,
}

/// Settings that vary between tests.
#[derive(Clone, Copy)]
struct Setup {
    forward: &'static str,
    /// Additional lines of the service.
    service: &'static str,
    scheduler: &'static str,
    sync: bool,
}

const DIRECT: Setup = Setup {
    forward: "direct",
    service: "",
    scheduler: "wlc",
    sync: true,
};

impl Pair {
    fn new(forward: &'static str) -> Self {
        Self::with_setup(Setup { forward, ..DIRECT }, 1024)
    }

    /// Creates the hosts for a setup. Each server has a file of `bytes` bytes.
    fn with_setup(setup: Setup, bytes: usize) -> Self {
        let forward = setup.forward;
        let world = World::with_two_directors(SERVERS, bytes);
        world::sh(&format!(
            "ip netns exec {} sysctl -qw net.ipv4.ip_forward=1",
            world.namespace("director")
        ));
        match forward {
            "direct" | "tunnel" => world.prepare_servers(&["--forward", forward, "--vip", VIP]),
            // Replies go through the director that has the gateway address.
            _ => (0..SERVERS).for_each(|n| {
                world.ip(&format!("server{n}"), "route add 10.0.0.2/32 via 10.0.0.1");
            }),
        }
        let pair = Self {
            world,
            forward,
            snat: setup.service == SNAT,
        };
        pair.move_vip_to("director", None);
        fs::write(
            pair.world.path("sync.key"),
            "a key for the tests of synchronization",
        )
        .expect("write the file");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(pair.world.path("sync.key"), mode).expect("set the file mode");
        pair
    }

    fn config(&self, host: &str, setup: &Setup) -> String {
        let servers: Vec<String> = (0..SERVERS)
            .map(|n| format!("\"10.0.0.{}:80\"", 5 + n))
            .collect();
        let mut text = format!(
            "[pool.web]\nscheduler = \"{}\"\nservers = [{}]\ncheck = {{ kind = \"http\", path = \"/name\" }}\n\
             [service.web]\nlisten = [\"{VIP}:80\"]\nforward = \"{}\"\npool = \"web\"\n{}\n",
            setup.scheduler,
            servers.join(", "),
            setup.forward,
            setup.service
        );
        if setup.sync {
            text.push_str(&self.sync_section(host));
        }
        text
    }

    fn sync_section(&self, host: &str) -> String {
        let local = ADDRESSES
            .iter()
            .find(|(name, _)| *name == host)
            .expect("director not found")
            .1;
        let peer = ADDRESSES
            .iter()
            .find(|(name, _)| *name != host)
            .expect("director not found")
            .1;
        format!(
            "[sync]\nlisten = \"{local}:8482\"\npeers = [\"{peer}:8482\"]\nkey = {{ file = \"{}\" }}\n",
            self.world.path("sync.key").display()
        )
    }

    fn start(&mut self, host: &str, setup: &Setup) {
        self.start_with(host, &self.config(host, setup));
        self.wait_until_up(host, SERVERS.into());
    }

    fn wait_until_up(&self, host: &str, servers: usize) {
        wait_for("servers to be up", TIMEOUT, || {
            self.weir_output(host, &["status"]).matches(" up ").count() == servers
        });
    }

    fn start_with(&mut self, host: &str, config: &str) {
        let path = self.world.path(&format!("{host}.toml"));
        fs::write(&path, config).expect("write the file");
        self.world.start_daemon_on(host, &path);
    }

    fn weir_output(&self, host: &str, arguments: &[&str]) -> String {
        let output = self
            .world
            .weir(host)
            .args(arguments)
            .output()
            .expect("run weir");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn status(&self, host: &str) -> Value {
        serde_json::from_str(&self.weir_output(host, &["status", "--json"])).unwrap_or_default()
    }

    fn peer(&self, host: &str) -> Value {
        self.status(host)["sync"]["peers"][0].clone()
    }

    /// Returns the numbers of active and inactive connections of each server.
    fn counts(&self, host: &str) -> Vec<(u64, u64)> {
        let status = self.status(host);
        let servers = status["services"][0]["servers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let number = |server: &Value, key: &str| server[key].as_u64().unwrap_or(0);
        servers
            .iter()
            .map(|server| {
                (
                    number(server, "active_connections"),
                    number(server, "inactive_connections"),
                )
            })
            .collect()
    }

    fn total(&self, host: &str) -> u64 {
        self.counts(host)
            .iter()
            .map(|(active, inactive)| active + inactive)
            .sum()
    }

    /// Moves the VIP, and the gateway and `snat` addresses if there are any, from one director to the other.
    fn move_vip_to(&self, host: &str, previous: Option<&str>) {
        if let Some(previous) = previous {
            // Cut the link of the previous director: it neither sends nor receives.
            self.world.ip("wire", &format!("link set {previous} down"));
        }
        self.world.ip(host, &format!("addr add {VIP}/32 dev eth0"));
        let update_neighbor =
            |neighbor: &str, address: &str| self.update_neighbor(neighbor, address, host);
        update_neighbor("client", VIP);
        if self.forward == "nat" {
            self.world.ip(host, "addr add 10.0.0.1/24 dev eth0");
            (0..SERVERS).for_each(|n| update_neighbor(&format!("server{n}"), "10.0.0.1"));
        }
        if self.snat {
            self.world
                .ip(host, &format!("addr add {SNAT_ADDRESS}/32 dev eth0"));
            (0..SERVERS).for_each(|n| update_neighbor(&format!("server{n}"), SNAT_ADDRESS));
        }
    }

    /// Changes the ARP table of `neighbor`, as a gratuitous ARP packet from `host` would.
    fn update_neighbor(&self, neighbor: &str, address: &str, host: &str) {
        let mac = self.world.mac(host);
        let entry = format!("neigh replace {address} lladdr {mac} dev eth0");
        self.world.ip(neighbor, &entry);
    }

    fn open_connections(&self, count: usize) -> Vec<Connection> {
        let opened = self.world.spawn_on("client", move || {
            (0..count)
                .map(|_| Connection::open().expect("open a connection"))
                .collect()
        });
        opened.join().expect("thread panicked")
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (host, _) in ADDRESSES {
                let log = fs::read_to_string(self.world.path(&format!("{host}.log")));
                eprintln!(
                    "{host}: {}\n{}",
                    log.unwrap_or_default(),
                    self.weir_output(host, &["status", "--json"])
                );
            }
        }
        let _ = self
            .world
            .weir("second")
            .args(["clean", "--force"])
            .output();
        world::remove_tree(&self.world.pin_dir("second"));
    }
}

/// An open connection and the name of its server.
struct Connection {
    stream: TcpStream,
    server: String,
}

impl Connection {
    fn open() -> Option<Self> {
        Self::open_to(VIP)
    }

    fn open_to(vip: &str) -> Option<Self> {
        let mut stream = TcpStream::connect((vip, 80)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
        let server = request_server_name(&mut stream)?;
        Some(Self { stream, server })
    }

    /// Sends another request. Returns whether the same server responds.
    fn reaches_same_server(&mut self) -> bool {
        request_server_name(&mut self.stream).is_some_and(|server| server == self.server)
    }
}

/// Sends a request and returns the response body, which is the server's name.
fn request_server_name(stream: &mut TcpStream) -> Option<String> {
    stream
        .write_all(b"GET /name HTTP/1.1\r\nHost: a\r\n\r\n")
        .ok()?;
    let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        text.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&text);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.ends_with('\n')
        {
            return head
                .starts_with("HTTP/1.1 200")
                .then(|| body.trim().to_owned());
        }
    }
}

/// Returns the number of connections that continue with the same server after the failover. Asserts before the failover
/// that both directors have the same counts.
fn count_surviving_connections(setup: Setup) -> usize {
    let mut pair = Pair::new(setup.forward);
    pair.start("director", &setup);
    pair.start("second", &setup);
    let mut connections = pair.open_connections(HELD_CONNECTIONS);
    if setup.sync {
        wait_for("the flows on the second director", TIMEOUT, || {
            pair.total("second") >= HELD_CONNECTIONS as u64
                && pair.counts("second") == pair.counts("director")
        });
    }
    pair.move_vip_to("second", Some("director"));
    let surviving = connections
        .iter_mut()
        .map(|it| usize::from(it.reaches_same_server()))
        .sum();
    // New connections must be served, to show that a broken network does not cause failures of the old ones.
    assert_eq!(pair.open_connections(4).len(), 4);
    surviving
}

#[test]
fn direct_connections_continue_only_with_sync() {
    if !privileged() {
        return;
    }
    assert_eq!(count_surviving_connections(DIRECT), HELD_CONNECTIONS);
    let surviving = count_surviving_connections(Setup {
        sync: false,
        ..DIRECT
    });
    assert_eq!(surviving, 0, "without [sync]");
}

#[test]
fn nat_connections_continue_with_sync() {
    if privileged() {
        let setup = Setup {
            forward: "nat",
            ..DIRECT
        };
        assert_eq!(count_surviving_connections(setup), HELD_CONNECTIONS);
    }
}

#[test]
fn maglev_connections_continue_after_server_change() {
    if !privileged() {
        return;
    }
    let setup = Setup {
        scheduler: "maglev",
        ..DIRECT
    };
    let mut pair = Pair::new("direct");
    pair.start("director", &setup);
    pair.start("second", &setup);
    let mut connections = pair.open_connections(HELD_CONNECTIONS);
    wait_for("an established peer", TIMEOUT, || {
        pair.peer("director")["state"] == "established"
    });
    // The second director computes the servers, so it needs no flows.
    assert_eq!(pair.total("second"), 0);
    let drained = pair.counts("director")[0].0;
    assert!(drained > 0, "the first server must have connections");
    for host in ["director", "second"] {
        pair.weir_output(host, &["server", "web/10.0.0.5:80", "drain"]);
    }
    wait_for("the flows of the drained server", TIMEOUT, || {
        pair.total("second") >= drained
    });
    pair.move_vip_to("second", Some("director"));
    let surviving = connections
        .iter_mut()
        .map(|it| usize::from(it.reaches_same_server()))
        .sum::<usize>();
    assert_eq!(surviving, HELD_CONNECTIONS);
}

#[test]
fn director_that_starts_later_receives_all_flows() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new("direct");
    pair.start("director", &DIRECT);
    let mut connections = pair.open_connections(HELD_CONNECTIONS);
    pair.start("second", &DIRECT);
    wait_for("the flows on the second director", TIMEOUT, || {
        pair.counts("second") == pair.counts("director") && pair.total("second") > 0
    });
    wait_for("an established peer", TIMEOUT, || {
        pair.peer("director")["state"] == "established" && pair.peer("second")["complete"] == true
    });
    pair.move_vip_to("second", Some("director"));
    assert!(connections.iter_mut().all(Connection::reaches_same_server));
    wait_for("a silent peer", TIMEOUT, || {
        pair.peer("second")["state"] == "silent"
    });
    let table = pair.weir_output("second", &["status"]);
    assert!(
        table.contains("SYNC PEER") && table.contains("silent"),
        "{table}"
    );
}

#[test]
fn persistent_client_keeps_its_server() {
    if !privileged() {
        return;
    }
    let setup = Setup {
        service: "persistence = { timeout = \"5m\" }",
        ..DIRECT
    };
    let mut pair = Pair::new("direct");
    pair.start("director", &setup);
    pair.start("second", &setup);
    let connections = pair.open_connections(3);
    let server = connections[0].server.clone();
    assert!(
        connections.iter().all(|it| it.server == server),
        "all connections must reach the persistent server"
    );
    wait_for("the flows on the second director", TIMEOUT, || {
        pair.total("second") >= 3
    });
    drop(connections);
    // The second director has no connections of other clients, so without synchronization, wlc would choose the first
    // server.
    pair.move_vip_to("second", Some("director"));
    assert!(
        pair.open_connections(4)
            .iter()
            .all(|it| it.server == server),
        "the client must reach its server"
    );
}

#[test]
fn forged_replayed_and_truncated_datagrams_are_counted_and_ignored() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new("direct");
    // This test acts as director 2 and sends only invalid or copied datagrams.
    pair.start("director", &DIRECT);
    let target: SocketAddr = "10.0.0.3:8482".parse().expect("parse the address");
    let sender = pair.world.spawn_on("second", move || {
        let local: Ipv4Addr = "10.0.0.4".parse().expect("parse the address");
        let socket = UdpSocket::bind((local, 8482)).expect("bind a UDP socket");
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("set the read timeout");
        let mut hello = [0; 1500];
        let length = socket
            .recv(&mut hello)
            .expect("receive the director's hello");
        socket
            .send_to(&hello[..length], target)
            .expect("send the director's own datagram back");
        socket
            .send_to(&hello[..length - 1], target)
            .expect("send a truncated datagram");
        hello[4] ^= 1;
        socket
            .send_to(&hello[..length], target)
            .expect("send a forged datagram");
        socket
            .send_to(b"not a datagram", target)
            .expect("send an invalid datagram");
        let unknown_sender = UdpSocket::bind((local, 0)).expect("bind a UDP socket");
        unknown_sender
            .send_to(&hello[..length], target)
            .expect("send from an unknown address");
    });
    sender.join().expect("thread panicked");
    wait_for("the counters", TIMEOUT, || {
        let status = pair.status("director");
        let ignored = &status["sync"]["peers"][0]["ignored"];
        ignored["forged"] == 3 && ignored["format"] == 1 && status["sync"]["unknown_senders"] == 1
    });
    wait_for("the peer to be silent", TIMEOUT, || {
        pair.peer("director")["state"] == "silent"
    });
    assert_eq!(pair.total("director"), 0);
}

#[test]
fn ipvsadm_stops_starts_and_lists_synchronization() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new("direct");
    pair.start("director", &DIRECT);
    let run = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = pair
            .world
            .weir("director")
            .arg("ipvsadm")
            .args(words)
            .output();
        let output = output.expect("run weir");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let line = |role: &str| {
        format!(
            "{role} sync daemon (mcast=10.0.0.3, syncid=0, maxlen=1400, group=10.0.0.4, port=8482, ttl=64)\n"
        )
    };
    assert_eq!(run("-L --daemon").1, line("master") + &line("backup"));
    let repeated = run("--start-daemon master --mcast-interface eth0");
    assert_eq!(
        (repeated.0, repeated.2.as_str()),
        (Some(255), "Daemon has already run\n")
    );
    assert_eq!(run("--stop-daemon master").0, Some(0));
    assert_eq!(run("-L --daemon").1, line("backup"));
    assert_eq!(run("--stop-daemon master").2, "No daemon is running\n");
    assert_eq!(run("--start-daemon master").0, Some(0));
    assert_eq!(run("-L --daemon").1, line("master") + &line("backup"));
    wait_for("a finding about the silent peer", TIMEOUT, || {
        let doctor = pair.weir_output("director", &["doctor"]);
        doctor.contains("the [sync] peer 10.0.0.4:8482 does not respond")
    });
}
