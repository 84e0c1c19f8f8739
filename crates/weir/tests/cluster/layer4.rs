//! Tests layer 4 services in a cluster: all directors choose the same server for a flow.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::*;

/// An address outside the segment, so the client's route selects the director.
pub(super) const VIP: &str = "192.0.2.10";
const FLOWS: u16 = 32;
/// The client port of the first flow. The kernel does not select it for the client's other connections, which would
/// leave it in TIME_WAIT, because `ip_local_port_range` starts at 32768.
const FIRST_PORT: u16 = 20_000;

/// Returns a configuration to publish, with a service on port 80 and a `nat` service on port 8080.
pub(super) fn published_config(forward: &str, servers: &[&str]) -> String {
    let servers: Vec<String> = servers.iter().map(|it| format!("\"{it}\"")).collect();
    let service = |name: &str, forward: &str, port: u16| {
        format!(
            "[service.{name}]\nlisten = [\"{VIP}:{port}\"]\nforward = \"{forward}\"\npool = \"web\"\n"
        )
    };
    format!(
        "[pool.web]\nscheduler = \"maglev\"\nservers = [{}]\n[pool.web.check]\nkind = \"tcp\"\nport = 80\ninterval = \
         \"100ms\"\ntimeout = \"90ms\"\nfall = 2\nrise = 1\n{}{}",
        servers.join(", "),
        service("web", forward, 80),
        service("translated", "nat", 8080),
    )
}

impl Group {
    /// Starts a cluster whose directors have no local services.
    pub(super) fn layer4(etcd: usize, directors: usize, servers: usize) -> Self {
        let mut group = Self::with_options(etcd, directors, servers, false);
        group.has_local_services = false;
        group.start_all();
        group
    }

    pub(super) fn api(&self, n: usize) -> Api {
        let directory = self.world.path(&format!("run-{}", DIRECTORS[n]));
        Api::connect(&directory.join("weir.sock"))
    }

    /// Returns the server that a director would choose for each flow.
    fn choices(&self, n: usize, port: u16) -> Vec<String> {
        self.choices_for(n, port, 0..FLOWS)
    }

    fn choices_for(&self, n: usize, port: u16, flows: Range<u16>) -> Vec<String> {
        let mut api = self.api(n);
        for flow in flows.clone() {
            let packet = format!("tcp 10.71.0.2:{} {VIP}:{port}", FIRST_PORT + flow);
            api.post("/v1/explain", &serde_json::json!({ "packet": packet }));
        }
        let responses = flows.map(|_| api.receive());
        responses
            .map(|it| it["server"].as_str().unwrap_or("none").to_owned())
            .collect()
    }

    /// Waits until all directors choose the same servers and `is_expected` returns true for them.
    fn wait_for_agreement(
        &self,
        description: &str,
        port: u16,
        is_expected: impl Fn(&[String]) -> bool,
    ) {
        wait_for(description, TIMEOUT, || {
            let first = self.choices(0, port);
            is_expected(&first) && (1..self.directors.len()).all(|n| self.choices(n, port) == first)
        });
    }

    /// Routes the client's packets for the VIP to a director.
    fn route_to(&self, n: usize) {
        self.world.ip(
            "client",
            &format!("route replace {VIP}/32 via 10.71.0.{}", host_number(n)),
        );
    }

    /// Sends a request from a client port. Returns the name of the server that responds.
    fn responding_server(&self, client_port: u16, port: u16) -> String {
        let work = move || {
            let mut stream = connect(client_port, port)?;
            request_server_name(&mut stream)
        };
        let server_name = self.world.spawn_on("client", work).join();
        server_name
            .expect("client thread panicked")
            .expect("receive a response")
    }
}

/// A connection to a daemon's API.
pub(super) struct Api(BufReader<UnixStream>);

impl Api {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("connect to the API");
        // A daemon that is applying thousands of services does not reply until it has finished.
        let limit = Some(4 * TIMEOUT);
        stream
            .set_read_timeout(limit)
            .expect("set the read timeout");
        Self(BufReader::new(stream))
    }

    /// Sends a request. Several requests may be outstanding.
    pub(super) fn post(&mut self, path: &str, body: &Value) {
        self.send("POST", path, &body.to_string());
    }

    pub(super) fn get(&mut self, path: &str) {
        self.send("GET", path, "");
    }

    fn send(&mut self, method: &str, path: &str, body: &str) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let stream = self.0.get_mut();
        stream
            .write_all((head + body).as_bytes())
            .expect("send the request");
    }

    pub(super) fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("read the response");
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("parse the length");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("read the body");
        serde_json::from_slice(&body).expect("parse the output")
    }
}

/// Connects to the VIP from a local port.
fn connect(local_port: u16, port: u16) -> std::io::Result<TcpStream> {
    // Programs that other tests start at the same time must not inherit the socket, because they would keep it open.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    // Closing the connection must not leave it in TIME_WAIT, which would block the next connection from the same port.
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    rustix::net::bind(
        &socket,
        &SocketAddr::from((Ipv4Addr::UNSPECIFIED, local_port)),
    )?;
    let vip: Ipv4Addr = VIP.parse().expect("parse the address");
    rustix::net::connect(&socket, &SocketAddr::from((vip, port)))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// Requests the server's name and keeps the connection open.
fn request_server_name(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.write_all(b"GET /name HTTP/1.1\r\nhost: a\r\n\r\n")?;
    let mut response = Vec::new();
    let mut buffer = [0; 1024];
    // The head ends with an empty line. The body is a single line.
    while !response.ends_with(b"\n")
        || !response.windows(4).any(|it| it == b"\r\n\r\n")
        || response.ends_with(b"\r\n\r\n")
    {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => response.extend_from_slice(&buffer[..length]),
        }
    }
    let text = String::from_utf8_lossy(&response);
    Ok(text.lines().last().unwrap_or_default().to_owned())
}

/// Returns the name in the response of the server at this address.
fn server_name(address: &str) -> String {
    let last: u16 = address
        .rsplit('.')
        .next()
        .expect("text contains no address")
        .parse()
        .expect("parse a number");
    format!("server{}", last - 20)
}

pub(super) const POOL: [&str; 3] = ["10.71.0.20", "10.71.0.21", "10.71.0.22"];

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn all_directors_choose_same_server() {
    if !privileged() {
        return;
    }
    let group = Group::layer4(1, 3, 3);
    group.world.prepare_direct_servers(&VIP);
    let output = group.publish(0, &published_config("direct", &POOL[..2]), "0s");
    assert!(output.status.success(), "{output:?}");
    let contains = |choices: &[String], server: &str| choices.iter().any(|it| it == server);
    group.wait_for_agreement("the first servers", 80, |it| {
        contains(it, POOL[0]) && contains(it, POOL[1]) && !contains(it, "none")
    });

    // Publish a configuration with a third server. The `nat` service selects the same servers.
    let output = group.publish(1, &published_config("direct", &POOL), "0s");
    assert!(output.status.success(), "{output:?}");
    group.wait_for_agreement("the third server", 80, |it| {
        POOL.iter().all(|server| contains(it, server))
    });
    group.wait_for_agreement("the same servers for the nat service", 8080, |it| {
        POOL.iter().all(|server| contains(it, server))
    });

    // A flow's packets reach the same server no matter which director receives them.
    let chosen = group.choices(0, 80);
    for n in 0..3 {
        group.route_to(n);
        for flow in (0..FLOWS).step_by(6) {
            let server = group.responding_server(FIRST_PORT + flow, 80);
            assert_eq!(
                server,
                server_name(&chosen[usize::from(flow)]),
                "director {n}, flow {flow}"
            );
        }
    }

    // Weights and overrides reach the tables of all directors.
    group.run_weir(2, &["server", "web/10.71.0.20", "weight", "20"]);
    let first_count = |it: &[String]| it.iter().filter(|server| *server == POOL[0]).count();
    group.wait_for_agreement("the weight", 8080, |it| {
        first_count(it) > usize::from(FLOWS) * 3 / 4
    });
    group.run_weir(0, &["server", "web/10.71.0.20", "drain"]);
    group.wait_for_agreement("the drain", 8080, |it| first_count(it) == 0);
    group.run_weir(1, &["server", "web/10.71.0.20", "ready"]);
    group.wait_for_agreement("the override to be removed", 8080, |it| first_count(it) > 0);

    // Only the director that cannot reach a server skips it. Its choices for other flows do not change.
    let before = group.choices(0, 8080);
    group
        .world
        .ip("second", "route add blackhole 10.71.0.21/32");
    wait_for("the failed check", TIMEOUT, || {
        group.state(1, POOL[1]) == "down"
    });
    wait_for("the director to skip the server", TIMEOUT, || {
        !contains(&group.choices(1, 8080), POOL[1])
    });
    assert_eq!(
        (group.choices(0, 8080), group.choices(2, 8080)),
        (before.clone(), before.clone())
    );
    let replacements: BTreeSet<String> = group
        .choices(1, 8080)
        .into_iter()
        .zip(&before)
        .filter_map(|(choice, previous)| match previous == POOL[1] {
            true => Some(choice),
            false => {
                assert_eq!(&choice, previous);
                None
            }
        })
        .collect();
    assert_eq!(
        replacements.len(),
        2,
        "the other servers must share the flows of the skipped one: {replacements:?}"
    );
    group
        .world
        .ip("second", "route del blackhole 10.71.0.21/32");
    group.wait_for_agreement("the server to recover", 8080, |it| *it == before);

    // The server is down for all directors, and they all skip it in the same way.
    group.world.kill_nginx(1);
    group.wait_for_agreement("the loss of a server", 8080, |it| !contains(it, POOL[1]));

    // The directors compare the MTUs of the interfaces that they are attached to; `interfaces` is not configured.
    let differences = || group.group(0)["members"][1]["differences"].to_string();
    assert!(!differences().contains("MTU"), "{}", differences());
    group.world.ip("second", "link set eth0 mtu 1400");
    wait_for("the difference", TIMEOUT, || {
        differences().contains("MTU 1400, here 1500")
    });
}

/// Returns a configuration to publish, with a service that encapsulates packets in GUE.
fn gue_config(servers: &[&str]) -> String {
    let servers: Vec<String> = servers.iter().map(|it| format!("\"{it}\"")).collect();
    format!(
        "[pool.web]\nscheduler = \"maglev\"\nservers = [{}]\n[pool.web.check]\nkind = \"tcp\"\nport = 80\ninterval = \
         \"100ms\"\ntimeout = \"90ms\"\n[service.web]\nlisten = [\"{VIP}:80\"]\nforward = \"tunnel\"\ntunnel = \
         \"gue\"\npool = \"web\"\n",
        servers.join(", ")
    )
}

impl Group {
    /// Opens a connection from the port of each flow. Returns the connections with the names of their servers.
    fn open_connections(&self) -> Vec<(TcpStream, String)> {
        let work = || {
            let open = |flow: u16| {
                let mut stream = connect(FIRST_PORT + flow, 80).expect("connect");
                let server = request_server_name(&mut stream).expect("receive a response");
                (stream, server)
            };
            (0..FLOWS).map(open).collect()
        };
        self.world
            .spawn_on("client", work)
            .join()
            .expect("thread panicked")
    }

    /// Returns the number of packets that a server has sent to the second hop.
    fn second_hop_packets(&self, server: usize) -> u64 {
        let mut command = self.world.weir(&format!("server{server}"));
        let output = command.args(["real-server", "show", "--json"]).output();
        let status: Value = serde_json::from_slice(&output.expect("run the command").stdout)
            .expect("parse the output");
        status["counts"]["second-hop"]
            .as_u64()
            .expect("count is not a number")
    }
}

#[test]
fn connections_survive_new_server_and_director_failure() {
    if !privileged() {
        return;
    }
    let group = Group::layer4(1, 2, 4);
    let pool = ["10.71.0.20", "10.71.0.21", "10.71.0.22", "10.71.0.23"];
    let arguments = ["--forward", "tunnel", "--tunnel", "gue", "--vip", VIP];
    group.world.prepare_servers(&arguments);
    let output = group.publish(0, &gue_config(&pool[..3]), "0s");
    assert!(output.status.success(), "{output:?}");
    let contains = |choices: &[String], server: &str| choices.iter().any(|it| it == server);
    group.wait_for_agreement("the servers", 80, |it| {
        pool[..3].iter().all(|server| contains(it, server))
    });
    group.route_to(0);
    let mut connections = group.open_connections();

    // Only the first director has entries for the connections, and it fails right after the pool changes.
    let output = group.publish(1, &gue_config(&pool), "0s");
    assert!(output.status.success(), "{output:?}");
    wait_for("the new server", TIMEOUT, || {
        contains(&group.choices(1, 80), pool[3])
    });
    group.route_to(1);
    let chosen = group.choices(1, 80);
    let remapped = chosen.iter().zip(&connections);
    let remapped = remapped
        .filter(|(choice, (_, server))| server_name(choice) != *server)
        .count();
    assert!(
        remapped > 0,
        "no connection maps to a different server in the new table"
    );
    Group::assert_alive(&mut connections);
    println!(
        "{remapped} of {FLOWS} connections map to a different server in the new table, none broke"
    );
    let forwarded: u64 = (0..4).map(|n| group.second_hop_packets(n)).sum();
    assert!(
        forwarded >= remapped as u64,
        "only {forwarded} packets were forwarded to the second hop"
    );

    // New connections use the new table.
    let chosen = group.choices_for(1, 80, FLOWS..2 * FLOWS);
    let flow = chosen
        .iter()
        .position(|it| it == pool[3])
        .expect("no flow selected the new server");
    let flow = FLOWS + u16::try_from(flow).expect("number exceeds 16 bits");
    assert_eq!(group.responding_server(FIRST_PORT + flow, 80), "server3");
}

impl Group {
    /// Asserts that all connections still have their servers.
    fn assert_alive(connections: &mut [(TcpStream, String)]) {
        let mut broken = 0;
        for (stream, server) in connections {
            match request_server_name(stream) {
                Ok(server_name) => assert_eq!(&server_name, server),
                Err(error) => {
                    eprintln!("a connection to {server} broke: {error}");
                    broken += 1;
                }
            }
        }
        assert_eq!(broken, 0);
    }

    /// Removes everything that a director has stored, as on a new machine, and starts it.
    fn start_without_state(&mut self, n: usize) {
        self.stop(n);
        self.run_weir(n, &["clean", "--force"]);
        let run = self.world.path(&format!("run-{}", DIRECTORS[n]));
        for directory in [run, self.state_dir(n)] {
            let _ = fs::remove_dir_all(directory);
        }
        self.start(n);
    }

    /// Returns whether a director has logged a message.
    fn has_logged(&self, n: usize, message: &str) -> bool {
        let path = self.world.path(&format!("{}.log", DIRECTORS[n]));
        let log = fs::read_to_string(path).expect("read the log");
        log.contains(message)
    }
}

const GUE_POOL: [&str; 4] = ["10.71.0.20", "10.71.0.21", "10.71.0.22", "10.71.0.23"];

/// Starts two directors with three servers, and a fourth server that is not published yet.
fn group_with_gue() -> Group {
    let group = Group::layer4(1, 2, 4);
    let arguments = ["--forward", "tunnel", "--tunnel", "gue", "--vip", VIP];
    group.world.prepare_servers(&arguments);
    let output = group.publish(0, &gue_config(&GUE_POOL[..3]), "0s");
    assert!(output.status.success(), "{output:?}");
    group.wait_for_agreement("the servers", 80, |it| {
        GUE_POOL[..3]
            .iter()
            .all(|server| it.iter().any(|choice| choice == server))
    });
    group
}

/// The first director uses the new server while the second one is still waiting. Then the first director fails.
#[test]
fn connections_to_a_new_server_survive_director_failure_during_the_guard() {
    if !privileged() {
        return;
    }
    let group = group_with_gue();
    let path = group.world.path("next.toml");
    fs::write(&path, gue_config(&GUE_POOL)).expect("write the file");
    let mut publish = group.world.weir(DIRECTORS[0]);
    publish.args(["cluster", "publish"]).arg(&path);
    let mut publish = publish
        .args(["--guard", "120s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start the command");
    let has_new_server = |n: usize| group.choices(n, 80).iter().any(|it| it == GUE_POOL[3]);
    let mut first = 0;
    wait_for("the first director", TIMEOUT, || {
        first = usize::from(!has_new_server(0));
        has_new_server(first)
    });
    group.route_to(first);
    let mut connections = group.open_connections();
    let to_new_server = connections.iter().filter(|(_, it)| it == "server3").count();
    assert!(to_new_server > 0, "no connection is on the new server");
    let second = 1 - first;
    assert!(!has_new_server(second), "the second director does not wait");
    group.route_to(second);
    Group::assert_alive(&mut connections);
    println!("{to_new_server} of {FLOWS} connections are on the new server, none broke");
    publish.kill().expect("send a signal to the process");
    publish.wait().expect("wait for the process");
}

/// A director without any state replaces the one that the connections used, right after the servers have changed: a new
/// version has another server, or an operator has drained a server.
#[test]
fn connections_survive_on_a_director_that_has_just_started() {
    if !privileged() {
        return;
    }
    for drains in [false, true] {
        let mut group = group_with_gue();
        group.route_to(0);
        let mut connections = group.open_connections();
        let message = match drains {
            true => {
                group.run_weir(0, &["server", "web/10.71.0.20", "drain"]);
                "staged the servers from before the last change"
            }
            false => {
                let output = group.publish(0, &gue_config(&GUE_POOL), "0s");
                assert!(output.status.success(), "{output:?}");
                "staged the servers of another version"
            }
        };
        group.start_without_state(1);
        wait_for("the servers", TIMEOUT, || {
            let choices = group.choices(1, 80);
            let contains = |server: &str| choices.iter().any(|it| it == server);
            !contains("none") && contains(GUE_POOL[0]) != drains && contains(GUE_POOL[3]) != drains
        });
        wait_for("the second hop", TIMEOUT, || group.has_logged(1, message));
        let moved = group.choices(1, 80).into_iter().zip(&connections);
        let moved = moved.filter(|(choice, (_, server))| server_name(choice) != *server);
        assert!(
            moved.count() > 0,
            "no connection maps to a different server"
        );
        group.route_to(1);
        Group::assert_alive(&mut connections);
    }
}

/// With a guard, a director reports its success long after it has started to forward packets.
#[test]
fn director_that_has_just_started_announces_vips_after_it_has_staged_the_previous_version() {
    if !privileged() {
        return;
    }
    let mut group = group_with_gue();
    let output = group.publish(0, &gue_config(&GUE_POOL), "1s");
    assert!(output.status.success(), "{output:?}");

    // The speaker records whether the previous version was staged when it received the route.
    let (speaker, record) = (group.world.path("gobgp"), group.world.path("routes"));
    let log = group.world.path(&format!("{}.log", DIRECTORS[1]));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *' add {VIP}/32 '*) ;; *) exit 0 ;; esac\nif grep -q 'staged the servers of another \
         version' {log:?}; then echo staged; else echo missing; fi >> {record:?}\n"
    );
    fs::write(&speaker, script).expect("write the file");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&speaker, mode).expect("set the mode");
    group.sections = format!("[announce]\nspeaker = \"gobgp\"\ncommand = [{speaker:?}]\n");
    group.start_without_state(1);
    let routes = || fs::read_to_string(&record).unwrap_or_default();
    wait_for("the route", TIMEOUT, || routes().ends_with('\n'));
    assert!(routes().starts_with("staged\n"), "{}", routes());
}
