//! Tests `forward = "socket"` and `balance_own` with unmodified programs on the director's host as clients.

#[path = "local_clients/programs.rs"]
mod programs;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use world::{Family, World, bracketed, privileged, sh, wait_for};

const TIMEOUT: Duration = Duration::from_secs(20);

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/local_clients")
        .join(name)
}

/// A network whose clients run on the director, in a cgroup.
struct Fixture {
    world: World,
    /// A separate mount of cgroup2, because the machine may use cgroup version 1.
    mount: PathBuf,
    cgroup: PathBuf,
}

impl Fixture {
    fn new(servers: usize) -> Self {
        let world = World::new(servers);
        let mount = world.path("cgroup2");
        fs::create_dir(&mount).expect("create a directory");
        sh(&format!("mount -t cgroup2 none {}", mount.display()));
        let cgroup = mount.join(world.namespace("clients"));
        fs::create_dir(&cgroup).expect("create the cgroup");
        let mut fixture = Self {
            world,
            mount,
            cgroup,
        };
        for server in 0..servers {
            fixture.start_server(server);
        }
        fixture
    }

    fn start_server(&mut self, server: usize) {
        let mut command = self.world.command(&format!("server{server}"), "python3");
        command
            .arg(script("server.py"))
            .arg(format!("server{server}"))
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("start python3");
        let mut line = String::new();
        let output = child.stdout.take().expect("stream is not piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("read the line `ready`");
        assert_eq!(line, "ready\n");
        // The server process is killed with the namespace.
        std::mem::forget(child);
    }

    fn start_client(&self) -> Client {
        Client::start(&self.world, &self.cgroup)
    }

    /// Returns the number of active connections of each server of a service.
    fn active_connections(&self, service: &str) -> Vec<u64> {
        let status = self.world.status();
        let services = status["services"]
            .as_array()
            .expect("services is not an array");
        let found = services.iter().find(|it| it["name"] == service);
        let servers = found.expect("service not found")["servers"].as_array();
        let count = |server: &Value| {
            server["active_connections"]
                .as_u64()
                .expect("count is not a number")
        };
        servers
            .expect("servers is not an array")
            .iter()
            .map(count)
            .collect()
    }

    /// Returns the total number of active connections of a service's servers.
    fn total_connections(&self, service: &str) -> u64 {
        self.active_connections(service).iter().sum()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self
            .world
            .weir("director")
            .args(["clean", "--force"])
            .output();
        for cgroup in [&self.cgroup, &second_cgroup(&self.cgroup)] {
            let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
            for pid in pids.lines() {
                let _ = Command::new("kill").args(["-9", pid]).status();
            }
            for _ in 0..100 {
                if !cgroup.exists() || fs::remove_dir(cgroup).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // Unmount lazily: the daemon may still have the cgroup open.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}

/// Returns the path of a second cgroup, a sibling of the first.
fn second_cgroup(cgroup: &Path) -> PathBuf {
    cgroup.with_extension("other")
}

struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(world: &World, cgroup: &Path) -> Self {
        let mut child = world
            .command("director", "python3")
            .arg(script("client.py"))
            .arg(cgroup)
            .arg(world.path("stop"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start python3");
        let input = child.stdin.take().expect("stream is not piped");
        let output = BufReader::new(child.stdout.take().expect("stream is not piped"));
        Self {
            child,
            input,
            output,
        }
    }

    /// Sends a command to the client program.
    fn send_command(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("write to the client");
    }

    /// Reads the client program's reply to a command.
    fn read_reply(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("read a reply");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Sends a command to the client program. Returns its reply.
    fn call(&mut self, line: &str) -> Value {
        self.send_command(line);
        self.read_reply()
    }

    fn kill(mut self) {
        self.child.kill().expect("kill the client");
        self.child.wait().expect("wait for the process");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const VIP: &str = "198.51.100.10";
const VIP6: &str = "2001:db8:9::10";

fn config(cgroup: &Path, pool: &str, extra: &str) -> String {
    let servers = |family: Family| format!("\"{}\", \"{}\"", family.server(0), family.server(1));
    let (v4, v6) = (servers(Family::V4), servers(Family::V6));
    let common = format!("forward = \"socket\"\ncgroup = \"{}\"\n", cgroup.display());
    format!(
        "[pool.web]\n{pool}servers = [{v4}]\n[pool.six]\nservers = [{v6}]\n\
         [pool.none]\nservers = [{{ address = \"192.0.2.99\", weight = 0 }}]\n\
         [service.web]\nlisten = [\"{VIP}:80\", \"{VIP}:8090\"]\npool = \"web\"\n{common}{extra}\
         [service.dns]\nlisten = [\"udp/{VIP}:53\"]\npool = \"web\"\n{common}\
         [service.six]\nlisten = [\"[{VIP6}]:80\", \"udp/[{VIP6}]:53\"]\npool = \"six\"\n{common}\
         [service.none]\nlisten = [\"{VIP}:81\"]\npool = \"none\"\n{common}"
    )
}

/// Returns the server's name from a reply. The name is the same for both address families.
fn name(reply: &Value) -> &str {
    reply[0].as_str().unwrap_or_else(|| panic!("{reply}"))
}

#[test]
fn addresses_are_translated_both_ways() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let text = config(&fixture.cgroup, "scheduler = \"rr\"\n", "");
    fixture.world.start_daemon(&text);
    let mut client = fixture.start_client();
    let names: Vec<String> = (0..4)
        .map(|_| {
            let reply = client.call(&format!("get {VIP} 80"));
            assert_eq!(reply[1], json!([VIP, 80]));
            name(&reply).to_owned()
        })
        .collect();
    assert!(names[0] == names[2] && names[1] == names[3] && names[0] != names[1]);
    let ipv4_mapped = format!("::ffff:{VIP}");
    for (command, port) in [("get", 80), ("connected", 53), ("unconnected", 53)] {
        for address in [VIP, VIP6, &ipv4_mapped] {
            let reply = client.call(&format!("{command} {address} {port}"));
            for peer in &reply.as_array().expect("reply is not an array")[1..] {
                assert_eq!(*peer, json!([address, port]), "{command}: {reply}");
            }
        }
    }
    let refused = client.call(&format!("get {VIP} 81"));
    assert_eq!(refused["error"], "ECONNREFUSED");
    // Weir counts only open sockets.
    assert_eq!(
        (
            fixture.total_connections("web"),
            fixture.total_connections("dns"),
            fixture.total_connections("six")
        ),
        (0, 4, 2)
    );
    client.call("close");
    assert_eq!(
        (
            fixture.total_connections("web"),
            fixture.total_connections("dns"),
            fixture.total_connections("six")
        ),
        (0, 0, 0)
    );
    // Test another program, first inside and then outside the cgroup.
    let line_in_cgroup = format!(
        "echo $$ > {}/cgroup.procs; exec curl -sS -m 5 {VIP}:8090",
        fixture.cgroup.display()
    );
    let shell = |line: &str| {
        let mut command = fixture.world.command("director", "sh");
        command.args(["-c", line]).output().expect("run sh")
    };
    let output = shell(&line_in_cgroup);
    assert!(output.stdout.starts_with(b"server"), "{output:?}");
    let output = shell(&format!("exec curl -sS -m 1 {VIP}:8090"));
    assert!(!output.status.success());
    let explanation =
        fixture
            .world
            .run_weir(&["explain", "--packet", &format!("tcp 127.0.0.1:1 {VIP}:80")]);
    assert!(explanation.contains("when they connect"), "{explanation}");
}

#[test]
fn counts_are_exact_after_kills() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let text = config(&fixture.cgroup, "scheduler = \"wlc\"\n", "");
    let daemon = fixture.world.start_daemon(&text);
    let mut client = fixture.start_client();
    for _ in 0..6 {
        client.call(&format!("hold {VIP} 80"));
    }
    client.call(&format!("unconnected {VIP} 53"));
    assert_eq!(
        (
            fixture.active_connections("web"),
            fixture.total_connections("dns")
        ),
        (vec![3, 3], 1)
    );
    fixture.world.kill_keeper(daemon);
    for _ in 0..4 {
        client.call(&format!("hold {VIP} 80"));
    }
    assert_eq!(name(&client.call(&format!("get {VIP} 80"))).len(), 7);
    let daemon = fixture.world.start_daemon(&text);
    assert_eq!(
        (
            fixture.active_connections("web"),
            fixture.total_connections("dns")
        ),
        (vec![5, 5], 1)
    );
    client.kill();
    wait_for(
        "the counts of the closed sockets to be removed",
        TIMEOUT,
        || fixture.total_connections("web") == 0 && fixture.total_connections("dns") == 0,
    );
    let pins = fixture.world.pin_dir("director");
    fixture.world.kill_keeper(daemon);
    fixture.world.run_weir(&["clean", "--force"]);
    assert!(!pins.exists() || fs::read_dir(&pins).map_or(true, |mut it| it.next().is_none()));
}

#[test]
fn sockets_of_removed_server_are_closed() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let pool = "scheduler = \"rr\"\non_remove = \"reset\"\n";
    let text = config(&fixture.cgroup, pool, "");
    fixture.world.start_daemon(&text);
    let (first, second) = (
        Family::V4.server(0).to_string(),
        Family::V4.server(1).to_string(),
    );
    let drained = fixture
        .world
        .run_weir(&["server", &format!("web/{second}"), "drain"]);
    let (mut stream, mut datagrams, mut unconnected) = (
        fixture.start_client(),
        fixture.start_client(),
        fixture.start_client(),
    );
    for _ in 0..3 {
        assert_eq!(
            name(&stream.call(&format!("hold {VIP} 80"))),
            "server0",
            "{drained}"
        );
    }
    assert_eq!(
        name(&datagrams.call(&format!("connected {VIP} 53"))),
        "server0"
    );
    assert_eq!(
        name(&unconnected.call(&format!("unconnected {VIP} 53"))),
        "server0"
    );
    fixture
        .world
        .run_weir(&["server", &format!("web/{second}"), "ready"]);
    fixture
        .world
        .reload(&text.replace(&format!("\"{first}\", "), ""));
    assert_eq!(name(&stream.call(&format!("get {VIP} 80"))), "server1");
    assert!(stream.call("receive")["error"].is_string());
    assert!(datagrams.call("send")["error"].is_string());
    // An unconnected socket stays open and gets another server.
    assert_eq!(
        unconnected.call(&format!("again {VIP} 53")),
        json!(["server1", [VIP, 53]])
    );
}

#[test]
fn no_connection_is_lost_during_server_changes() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(3);
    let text = config(&fixture.cgroup, "scheduler = \"rr\"\n", "");
    fixture.world.start_daemon(&text);
    let mut clients = [fixture.start_client(), fixture.start_client()];
    for client in &mut clients {
        client.send_command(&format!("load {VIP} 80"));
    }
    let socket = fixture.world.path("run-director").join("weir.sock");
    let third = Family::V4.server(2);
    // Make up to 1000 changes within the time limit, but at least 20.
    let limit_s = if std::env::var_os("WEIR_SOAK").is_some() {
        600
    } else {
        6
    };
    let end = Instant::now() + Duration::from_secs(limit_s);
    let mut changes = 0;
    while changes < 1_000 && (Instant::now() < end || changes < 20) {
        let change = changes;
        changes += 1;
        let method = if change % 2 == 0 { "PUT" } else { "DELETE" };
        let status = send_request(&socket, method, &format!("/v1/servers/web/{third}"));
        assert!(status.starts_with("HTTP/1.1 2"), "{method}: {status}");
    }
    fs::write(fixture.world.path("stop"), "").expect("write the file");
    for client in &mut clients {
        let reply = client.read_reply();
        assert_eq!(reply[0], 0, "{reply}");
        assert!(reply[1].as_u64() > Some(100), "{reply}");
    }
    println!("{changes} changes");
    assert_eq!(fixture.total_connections("web"), 0);
}

/// Sends a request to the daemon's socket. Returns the status line.
fn send_request(socket: &Path, method: &str, path: &str) -> String {
    use std::os::unix::net::UnixStream;
    let mut stream = UnixStream::connect(socket).expect("connect to the daemon");
    let body = if method == "PUT" { "{}" } else { "" };
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .expect("send the request");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("read the reply");
    line
}

#[test]
fn reload_moves_attachment_to_new_cgroup() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let second = second_cgroup(&fixture.cgroup);
    fs::create_dir(&second).expect("create the cgroup");
    let text = config(&fixture.cgroup, "scheduler = \"sh\"\n", "");
    fixture.world.start_daemon(&text);
    let mut before = fixture.start_client();
    let mut after = Client::start(&fixture.world, &second);
    // With the `sh` scheduler, one cgroup is one client.
    let first = name(&before.call(&format!("hold {VIP} 80"))).to_owned();
    for _ in 0..3 {
        assert_eq!(name(&before.call(&format!("get {VIP} 80"))), first);
    }
    fixture
        .world
        .reload(&config(&second, "scheduler = \"sh\"\n", ""));
    after.call(&format!("hold {VIP} 80"));
    // Weir still counts and translates an open socket of the previous cgroup.
    assert_eq!(fixture.total_connections("web"), 2);
    before.call("close");
    assert_eq!(fixture.total_connections("web"), 1);
    let link_count = || {
        let entries = fs::read_dir(fixture.world.pin_dir("director").join("socket"))
            .expect("read the pin directory");
        let names = entries.map(|it| {
            it.expect("read a directory entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        });
        names.filter(|name| name.starts_with("link-1-")).count()
    };
    wait_for("the detachment from the previous cgroup", TIMEOUT, || {
        link_count() == 0
    });
}

#[test]
fn persistent_user_keeps_its_server() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let persistence = "persistence = { timeout = \"5m\", client = \"uid\" }\n";
    let text = config(&fixture.cgroup, "scheduler = \"rr\"\n", persistence);
    fixture.world.start_daemon(&text);
    let mut client = fixture.start_client();
    let first = name(&client.call(&format!("get {VIP} 80"))).to_owned();
    for _ in 0..3 {
        assert_eq!(name(&client.call(&format!("get {VIP} 80"))), first);
    }
    let index = if first == "server0" { 0 } else { 1 };
    let server = Family::V4.server(index);
    fixture
        .world
        .run_weir(&["server", &format!("web/{server}"), "drain"]);
    assert_ne!(name(&client.call(&format!("get {VIP} 80"))), first);
}

#[test]
fn persistent_cgroup_keeps_its_server() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let persistence = "persistence = { timeout = \"5m\" }\n";
    let text = config(&fixture.cgroup, "scheduler = \"rr\"\n", persistence);
    fixture.world.start_daemon(&text);
    // Each child cgroup of the service's cgroup is one client, regardless of its number of processes.
    let child_cgroups = ["one", "two", "three"].map(|name| fixture.cgroup.join(name));
    let mut names = Vec::new();
    for cgroup in &child_cgroups {
        fs::create_dir(cgroup).expect("create the cgroup");
        let mut clients = [
            Client::start(&fixture.world, cgroup),
            Client::start(&fixture.world, cgroup),
        ];
        let replies = clients
            .each_mut()
            .map(|it| it.call(&format!("get {VIP} 80")));
        let [first, second] = &replies;
        assert_eq!(name(first), name(second));
        names.push(name(first).to_owned());
    }
    assert!(names[0] != names[1] && names[0] == names[2], "{names:?}");
    for cgroup in &child_cgroups {
        wait_for("an empty cgroup", TIMEOUT, || {
            fs::remove_dir(cgroup).is_ok()
        });
    }
}

#[test]
fn connected_udp_socket_moves_from_dead_server() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let pool = "scheduler = \"rr\"\ncheck = { kind = \"tcp\", port = 80, interval = \"200ms\", timeout = \"150ms\", \
                fall = 2 }\n";
    let text = config(&fixture.cgroup, pool, "");
    fixture.world.start_daemon(&text);
    let is_up =
        |fixture: &Fixture, n| fixture.world.server_status(Family::V4.server(n))["state"] == "up";
    wait_for("both servers", TIMEOUT, || {
        is_up(&fixture, 0) && is_up(&fixture, 1)
    });
    let mut client = fixture.start_client();
    let first = name(&client.call(&format!("connected {VIP} 53"))).to_owned();
    let dead = usize::from(first == "server1");
    // The host is down, so it sends no replies, not even errors. A resolver that keeps its socket would always time
    // out.
    fixture.world.ip(&first, "link set dev eth0 down");
    wait_for("the server to be down", TIMEOUT, || !is_up(&fixture, dead));
    assert!(client.call("send")["error"].is_string());
    let next = client.call(&format!("connected {VIP} 53"));
    assert_ne!(name(&next), first);
    assert_eq!(next[2], json!([VIP, 53]));
}

#[test]
fn least_time_avoids_slowly_connecting_server() {
    if !privileged() {
        return;
    }
    let mut fixture = Fixture::new(2);
    let text = config(&fixture.cgroup, "scheduler = \"least-time\"\n", "");
    fixture.world.start_daemon(&text);
    fixture.world.insert_relay("server1", "0.01", 0);
    let mut client = fixture.start_client();
    let latency = |n| fixture.world.server_status(Family::V4.server(n))["latency"].clone();
    wait_for("samples from both servers", TIMEOUT, || {
        for _ in 0..20 {
            client.call(&format!("get {VIP} 80"));
        }
        (0..2).all(|n| latency(n)["samples"].as_u64() > Some(5))
    });
    assert_eq!(latency(0)["method"], "measured");
    let slow = latency(1)["mean_ms"]
        .as_f64()
        .expect("latency is not a number");
    assert!(slow > 15.0, "{slow} ms");
    let mut names = BTreeMap::new();
    for _ in 0..200 {
        let reply = client.call(&format!("get {VIP} 80"));
        *names.entry(name(&reply).to_owned()).or_insert(0) += 1;
    }
    println!("{names:?}");
    assert!(names.get("server1").copied().unwrap_or(0) < 40, "{names:?}");
}

#[test]
fn director_balances_its_own_connections() {
    if !privileged() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let mut fixture = Fixture::new(2);
        let text = format!(
            "[node]\ninterfaces = [\"eth0\"]\nbalance_own = true\n\
             [pool.web]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\"]\n\
             [service.web]\nlisten = [\"{}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
            family.server(0),
            family.server(1),
            bracketed(family.vip())
        );
        fixture.world.start_daemon(&text);
        let mut client = Client::start(&fixture.world, Path::new("-"));
        let vip = family.vip();
        let (first, second) = (
            client.call(&format!("hold {vip} 80")),
            client.call(&format!("hold {vip} 80")),
        );
        assert_ne!(name(&first), name(&second));
        assert_eq!(first[1], json!([vip.to_string(), 80]));
        assert_eq!(fixture.active_connections("web"), [1, 1]);
        fixture
            .world
            .reload(&text.replace("balance_own = true", "balance_own = false"));
        assert!(!client.call(&format!("get {vip} 80"))["error"].is_null());
    }
}
