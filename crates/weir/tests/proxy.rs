//! Proxy services from the command line, over loopback and without privileges: requests, reloads and failing servers
//! under load, and shutdown.

#[path = "proxy/basic_auth.rs"]
mod basic_auth;
#[path = "proxy/certificate_list.rs"]
mod certificate_list;
#[path = "proxy/client_abort.rs"]
mod client_abort;
#[path = "proxy/configuration_files.rs"]
mod configuration_files;
#[path = "proxy/descriptors.rs"]
mod descriptors;
#[path = "proxy/discovery.rs"]
mod discovery;
#[path = "proxy/drain.rs"]
mod drain;
#[path = "proxy/ejection.rs"]
mod ejection;
#[path = "proxy/endurance.rs"]
mod endurance;
#[path = "proxy/forward_auth.rs"]
mod forward_auth;
#[path = "proxy/guard.rs"]
mod guard;
#[path = "proxy/h2_fields.rs"]
mod h2_fields;
#[path = "proxy/h2_flood.rs"]
mod h2_flood;
#[path = "proxy/h2_heads.rs"]
mod h2_heads;
#[path = "proxy/h2_reset.rs"]
mod h2_reset;
#[path = "proxy/h2_server.rs"]
mod h2_server;
#[path = "proxy/headers.rs"]
mod headers;
#[path = "proxy/http2.rs"]
mod http2;
#[path = "proxy/idle.rs"]
mod idle;
#[path = "proxy/keeper.rs"]
mod keeper;
#[path = "proxy/load.rs"]
mod load;
#[path = "world/log_line.rs"]
mod log_line;
#[path = "proxy/log_lines.rs"]
mod log_lines;
#[path = "proxy/long_lived.rs"]
mod long_lived;
#[path = "proxy/maps.rs"]
mod maps;
#[path = "proxy/metrics.rs"]
mod metrics;
#[path = "proxy/mirror.rs"]
mod mirror;
#[path = "proxy/mixed_operations.rs"]
mod mixed_operations;
#[path = "proxy/notifications.rs"]
mod notifications;
#[path = "proxy/origin.rs"]
mod origin;
#[path = "proxy/paths.rs"]
mod paths;
#[path = "proxy/privilege.rs"]
mod privilege;
#[path = "proxy/readded_service.rs"]
mod readded_service;
#[path = "proxy/receiver.rs"]
mod receiver;
#[path = "proxy/removed_server.rs"]
mod removed_server;
#[path = "proxy/request_log.rs"]
mod request_log;
#[path = "proxy/response.rs"]
mod response;
#[path = "proxy/retry.rs"]
mod retry;
#[path = "proxy/revocation.rs"]
mod revocation;
#[path = "proxy/route_choice.rs"]
mod route_choice;
#[path = "proxy/route_keys.rs"]
mod route_keys;
#[path = "proxy/route_options.rs"]
mod route_options;
#[path = "proxy/routes.rs"]
mod routes;
#[path = "proxy/rules.rs"]
mod rules;
#[path = "proxy/runtime_dir.rs"]
mod runtime_dir;
#[path = "proxy/scenario.rs"]
mod scenario;
#[path = "proxy/scripted.rs"]
mod scripted;
#[path = "proxy/secrets.rs"]
mod secrets;
#[path = "proxy/selection.rs"]
mod selection;
#[path = "proxy/servers_file.rs"]
mod servers_file;
#[path = "proxy/shares.rs"]
mod shares;
#[path = "proxy/slow_body.rs"]
mod slow_body;
#[path = "proxy/smuggling.rs"]
mod smuggling;
#[path = "proxy/static_files.rs"]
mod static_files;
#[path = "proxy/sticky.rs"]
mod sticky;
#[path = "proxy/tcp_log.rs"]
mod tcp_log;
#[path = "proxy/timeout.rs"]
mod timeout;
#[path = "proxy/tls.rs"]
mod tls;
#[path = "proxy/tls_suites.rs"]
mod tls_suites;
#[path = "proxy/tracing.rs"]
mod tracing;
#[path = "proxy/unix_server.rs"]
mod unix_server;
#[path = "proxy/upgrade.rs"]
mod upgrade;
#[path = "proxy/websocket.rs"]
mod websocket;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use origin::Origin;
use weir_testing::free_address;

static PROXIES: AtomicU32 = AtomicU32::new(0);

/// A daemon with a separate directory.
struct Proxy {
    directory: PathBuf,
    child: Child,
    listen: SocketAddr,
    upgrades: AtomicU32,
}

/// The program under test.
const PRESENT: &str = env!("CARGO_BIN_EXE_weir");

/// `WEIR_OLDER` is the path of another build's program: that one runs first, and upgrades alternate between the two.
fn first_program() -> String {
    std::env::var("WEIR_OLDER").unwrap_or_else(|_| PRESENT.to_owned())
}

fn configuration(listen: SocketAddr, protocol: &str, servers: &[SocketAddr], more: &str) -> String {
    let servers: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{server}\""))
        .collect();
    format!(
        "[node]\ndrain_timeout = \"5s\"\n\n[pool.p]\nservers = [{}]\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \
         \"proxy\"\nprotocol = \"{protocol}\"\npool = \"p\"\n{more}\n",
        servers.join(", ")
    )
}

impl Proxy {
    fn start(protocol: &str, servers: &[SocketAddr], more: &str) -> Self {
        let number = PROXIES.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("weir-proxy-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let listen = free_address();
        fs::write(
            directory.join("weir.toml"),
            configuration(listen, protocol, servers, more),
        )
        .expect("written");
        let proxy = Self {
            child: Self::run(&directory),
            directory,
            listen,
            upgrades: AtomicU32::new(0),
        };
        proxy.await_answer();
        proxy
    }

    fn run(directory: &std::path::Path) -> Child {
        let log = fs::File::create(directory.join("log")).expect("a log");
        let mut command = Command::new(first_program());
        Self::set_directories(&mut command, directory);
        command
            .args(["run", "-c"])
            .arg(directory.join("weir.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the daemon starts")
    }

    /// Starts again after the previous daemon has ended.
    fn start_again(&mut self) {
        self.child = Self::run(&self.directory);
        self.await_answer();
    }

    fn await_answer(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.weir(&["status"]).0 {
            assert!(Instant::now() < deadline, "the daemon: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn set_directories(command: &mut Command, directory: &std::path::Path) {
        command
            .env("WEIR_RUNTIME_DIR", directory.join("run"))
            .env("WEIR_PIN_DIR", directory.join("pins"))
            .env("NO_COLOR", "1");
    }

    /// Whether it succeeded, and its output.
    fn weir(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(PRESENT);
        Self::set_directories(&mut command, &self.directory);
        let output = command.args(arguments).output().expect("weir runs");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Runs `weir upgrade` to the program that is not running.
    fn upgrade(&self) -> (bool, String) {
        match self.upgrades.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => self.weir(&["upgrade"]),
            _ => self.weir(&["upgrade", &first_program()]),
        }
    }

    fn reload(&self, text: &str) {
        let file = self.directory.join("weir.toml");
        fs::write(&file, text).expect("written");
        let (done, printed) = self.weir(&["reload", "-c", file.to_str().expect("plain")]);
        assert!(done, "{printed}");
    }

    fn status(&self) -> serde_json::Value {
        let (done, text) = self.weir(&["status", "--json"]);
        assert!(done, "{text}");
        serde_json::from_str(&text).expect("JSON")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn terminate(&mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A client's connection.
struct Client(TcpStream);

impl Client {
    fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).expect("connected");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a timeout");
        Self(stream)
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("it is taken");
    }

    /// One response with Content-Length: head and body; `None` = the connection ended before the response began.
    fn response(&mut self) -> std::io::Result<Option<(String, Vec<u8>)>> {
        let mut head = Vec::new();
        let mut byte = [0u8; 1];
        while !head.ends_with(b"\r\n\r\n") {
            if self.0.read(&mut byte)? == 0 {
                return if head.is_empty() {
                    Ok(None)
                } else {
                    Err(std::io::ErrorKind::UnexpectedEof.into())
                };
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")
                    .map(|v| v.trim().parse())
            })
            .and_then(Result::ok)
            .unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(Some((head, body)))
    }

    fn fetch(&mut self, text: &str) -> (String, Vec<u8>) {
        self.send(text);
        self.response()
            .expect("a whole response")
            .expect("a response")
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

#[test]
fn requests_of_one_connection_are_balanced_and_connections_reused() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address(), two.address()], "");
    let mut client = Client::connect(proxy.listen);
    let mut counts = [0, 0];
    for _ in 0..64 {
        let (head, body) = client.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        counts[usize::from(body.starts_with(b"two\n"))] += 1;
    }
    // With a fair scheduler a server gets fewer than 13 of 64 requests in one of a million runs.
    assert!(counts.iter().all(|count| *count >= 13), "{counts:?}");
    assert_eq!(
        one.connections() + two.connections(),
        2,
        "one connection to each server serves them all"
    );
    let status = proxy.status();
    let service = &status["services"][0];
    assert_eq!(
        (
            service["requests"].as_u64(),
            service["connections"].as_u64()
        ),
        (Some(64), Some(1)),
        "{service:#}"
    );
    assert_eq!(
        (service["forward"].as_str(), service["protocol"].as_str()),
        (Some("proxy"), Some("http"))
    );
    assert!(
        !proxy.directory.join("pins").exists(),
        "nothing is pinned for a proxy"
    );
}

#[test]
fn client_address_headers_cannot_be_spoofed() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client.fetch(
        "GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nX-Forwarded-For: \
         192.0.2.9\r\n\
         X-Real-IP: 192.0.2.9\r\nKeep-Alive: 5\r\nAccept: */*\r\n\r\n",
    );
    let seen = String::from_utf8_lossy(&body).into_owned();
    assert!(
        seen.contains("GET /x HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n"),
        "{seen}"
    );
    assert!(
        seen.contains("X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nVia: 1.1 weir\r\n"),
        "{seen}"
    );
    for gone in ["X-Secret", "192.0.2.9", "Keep-Alive"] {
        assert!(!seen.contains(gone), "{gone} in {seen}");
    }
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        "trusted = [\"127.0.0.0/8\"]",
    ));
    let (_, body) = client.fetch(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: https\r\n\
     \r\n",
    );
    let seen = String::from_utf8_lossy(&body).into_owned();
    assert!(
        seen.contains("X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.9, 127.0.0.1\r\n"),
        "{seen}"
    );
}

#[test]
fn bodies_pass_in_every_framing() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let large = "x".repeat(3_000_000);
    let (_, body) = client.fetch(&format!(
        "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{large}",
        large.len()
    ));
    assert_eq!(body, large.len().to_string().as_bytes());
    let chunked = "POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n\
     0\r\nT: v\r\n\r\n";
    let (_, body) = client.fetch(chunked);
    assert_eq!(body, b"11");
    // Two requests and a half in one segment, then the rest.
    client.send(&format!("{chunked}{GET}GET /sum HT"));
    assert_eq!(client.response().unwrap().unwrap().1, b"11");
    assert!(client.response().unwrap().is_some());
    assert_eq!(client.fetch("TP/1.1\r\nHost: a\r\n\r\n").1, b"0");
    // The end of the server's connection ends the response.
    client.send("GET /until-close HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut rest = String::new();
    client.0.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("Connection: close\r\n") && rest.ends_with("\r\n\r\nuntil the end"),
        "{rest}"
    );
    // HTTP/1.0 has no chunks.
    let mut old = Client::connect(proxy.listen);
    old.send("GET /chunked HTTP/1.0\r\n\r\n");
    let mut text = String::new();
    old.0.read_to_string(&mut text).unwrap();
    assert!(
        text.ends_with("\r\n\r\nin two parts") && !text.contains("chunked"),
        "{text}"
    );
}

#[test]
fn ambiguous_requests_are_rejected_before_the_server() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    for (bad, status) in [
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ] {
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch(bad);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{bad:?}: {head}"
        );
        assert!(head.contains("Connection: close"), "{head}");
        assert!(
            matches!(client.response(), Ok(None)),
            "{bad:?}: the connection ends"
        );
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn upgrade_becomes_a_tunnel() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let (head, _) = client
        .fetch("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains("Upgrade: echo"),
        "{head}"
    );
    client.send("what is said\n");
    let mut printed = [0; 13];
    client.0.read_exact(&mut printed).unwrap();
    assert_eq!(&printed, b"what is said\n");
}

#[test]
fn missing_server_is_502_or_503_and_drain_works() {
    let origin = Origin::start("o");
    let dead = free_address();
    let proxy = Proxy::start("http", &[dead], "");
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 502 "));
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        "",
    ));
    assert!(
        client.fetch(GET).0.starts_with("HTTP/1.1 200 "),
        "the connection was kept"
    );
    let name = format!("p/{}", origin.address());
    assert!(proxy.weir(&["server", &name, "drain"]).0);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 503 "));
    let server = &proxy.status()["services"][0]["servers"][0];
    assert_eq!(
        (
            server["state"].as_str(),
            server["effective_weight"].as_u64()
        ),
        (Some("drain"), Some(0))
    );
    let silent = configuration(proxy.listen, "http", &[origin.address()], "")
        .replace("[pool.p]\n", "[pool.p]\nno_server = \"drop\"\n");
    proxy.reload(&silent);
    client.send(GET);
    assert!(
        matches!(client.response(), Ok(None)),
        "no answer, and the end"
    );
    let mut client = Client::connect(proxy.listen);
    assert!(proxy.weir(&["server", &name, "ready"]).0);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200 "));
}

#[test]
fn silent_server_is_504_and_slow_request_head_is_408() {
    let origin = Origin::start("o");
    let proxy = Proxy::start(
        "http",
        &[origin.address()],
        "timeouts = { server = \"300ms\", request = \"300ms\" }",
    );
    let mut client = Client::connect(proxy.listen);
    assert!(
        client
            .fetch("GET /silence HTTP/1.1\r\nHost: a\r\n\r\n")
            .0
            .starts_with("HTTP/1.1 504 ")
    );
    let mut client = Client::connect(proxy.listen);
    assert!(
        client
            .fetch("GET / HTTP/1.1\r\nHo")
            .0
            .starts_with("HTTP/1.1 408 ")
    );
}

#[test]
fn tcp_directions_close_independently() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    let large = vec![7u8; 5_000_000];
    let (mut sender, data) = (client.0.try_clone().unwrap(), large.clone());
    let sending = std::thread::spawn(move || {
        sender.write_all(&data).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    client.0.read_to_end(&mut back).unwrap();
    sending.join().unwrap();
    assert!(
        back == large,
        "{} of {} bytes came back",
        back.len(),
        large.len()
    );
}

#[test]
fn sigterm_finishes_open_requests() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    client.fetch(GET);
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_for_slow();
    let listen = proxy.listen;
    let waiting = std::thread::spawn(move || {
        let response = client.response();
        (response, client)
    });
    let status = proxy.terminate();
    let (response, _client) = waiting.join().unwrap();
    let (head, body) = response.unwrap().unwrap();
    assert!(
        head.contains("Connection: close") && body == b"slow",
        "{head}"
    );
    assert!(status.success(), "{status}");
    assert!(TcpStream::connect(listen).is_err());
}

#[test]
fn counters_continue_over_restart_and_crash() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    let fetch = |proxy: &Proxy, times: usize| {
        let mut client = Client::connect(proxy.listen);
        (0..times).for_each(|_| drop(client.fetch(GET)));
    };
    let counted = |proxy: &Proxy| {
        let service = &proxy.status()["services"][0];
        let server = &service["servers"][0];
        let number = |value: &serde_json::Value| value.as_u64().expect("a count");
        (
            number(&service["requests"]),
            number(&service["responses"][1]),
            number(&server["connections"]),
        )
    };
    fetch(&proxy, 5);
    let before = counted(&proxy);
    assert_eq!((before.0, before.1), (5, 5));
    assert!(proxy.terminate().success());
    proxy.start_again();
    assert_eq!(counted(&proxy), before);
    fetch(&proxy, 2);
    let before = counted(&proxy);
    assert_eq!(before.0, 7);
    let file = proxy.directory.join("run/proxy-left.json");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !fs::read_to_string(&file).is_ok_and(|text| text.contains(",7,")) {
        assert!(Instant::now() < deadline, "the counts are not written down");
        std::thread::sleep(Duration::from_millis(20));
    }
    proxy.child.kill().expect("it runs");
    proxy.child.wait().expect("it ends");
    proxy.start_again();
    assert_eq!(counted(&proxy), before);
}

#[test]
fn proxy_runs_without_privileges() {
    if !weir_testing::require_root() {
        return;
    }
    let directory =
        std::env::temp_dir().join(format!("weir-proxy-rootless-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let listen = free_address();
    let origin = Origin::start("o");
    fs::write(
        directory.join("weir.toml"),
        configuration(listen, "http", &[origin.address()], ""),
    )
    .unwrap();
    // The build directory may not be accessible to other users, but the program is. It is copied by another program: a
    // file that a child of this process, started by another test, still has open for writing cannot be executed
    // (ETXTBSY).
    let sh = "cp \"$1\" \"$2/weir\" && chown -R 65534:65534 \"$2\"";
    let copied = Command::new("sh")
        .args(["-c", sh, "sh", env!("CARGO_BIN_EXE_weir")])
        .arg(&directory)
        .status();
    assert!(copied.unwrap().success());
    let mut child = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
            "--pdeathsig=KILL",
        ])
        .arg(directory.join("weir"))
        .args(["run", "-c"])
        .arg(directory.join("weir.toml"))
        .env("WEIR_RUNTIME_DIR", directory.join("run"))
        .stdin(Stdio::null())
        .stderr(fs::File::create(directory.join("log")).unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(listen).is_err() {
        let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
        assert!(
            Instant::now() < deadline && child.try_wait().unwrap().is_none(),
            "{log}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        Client::connect(listen)
            .fetch(GET)
            .0
            .starts_with("HTTP/1.1 200 ")
    );
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn routes_select_pools_redirects_or_responses() {
    let (web, images) = (Origin::start("web"), Origin::start("images"));
    let proxy = Proxy::start("http", &[web.address()], "");
    let routes = format!(
        "\n[pool.images]\nservers = [\"{}\"]\n\n[[route]]\nservice = \"s\"\nhost = \"*.static.example\"\npath = \
         \"/img/*\"\npool = \
         \"images\"\n\n[[route]]\nservice = \"s\"\npath = \"/old/*\"\nredirect = \"https://{{host}}{{path}}\"\nstatus \
         = 308\n\n\
         [[route]]\nservice = \"s\"\nmethod = [\"DELETE\"]\nstatus = 403\nbody = \"never\"\n",
        images.address()
    );
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[web.address()],
        &routes,
    ));
    let mut client = Client::connect(proxy.listen);
    let mut fetch = |method: &str, host: &str, path: &str| {
        let (head, body) =
            client.fetch(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        (head, String::from_utf8_lossy(&body).into_owned())
    };
    assert!(
        fetch("GET", "a.static.example:80", "/img/x?y")
            .1
            .starts_with("images\n")
    );
    assert!(
        fetch("GET", "static.example", "/img/x")
            .1
            .starts_with("web\n")
    );
    let (head, _) = fetch("GET", "b.example", "/old/x?y=1");
    assert!(
        head.starts_with("HTTP/1.1 308 ")
            && head.contains("Location: https://b.example/old/x?y=1\r\n"),
        "{head}"
    );
    let (head, body) = fetch("DELETE", "b.example", "/");
    assert!(
        head.starts_with("HTTP/1.1 403 ") && body == "never",
        "{head}"
    );
    assert!(
        fetch("GET", "b.example", "/").1.starts_with("web\n"),
        "the connection is still the same"
    );
    let port = proxy.listen.port();
    let explain = |url: &str| {
        proxy
            .weir(&["explain", "--request", &format!("GET http://{url}")])
            .1
    };
    let printed = explain(&format!("a.static.example:{port}/img/x"));
    let sent = format!(
        "service s forwards it to {}, the only usable server of pool images\n",
        images.address()
    );
    assert!(
        printed.contains("-> pool images) matches\n") && printed.ends_with(&sent),
        "{printed}"
    );
    let printed = explain(&format!("b.example:{port}/old/x"));
    assert!(
        printed.ends_with("redirect 308 to https://b.example/old/x\n"),
        "{printed}"
    );
    let status = proxy.status();
    let servers = status["services"][0]["servers"].as_array().unwrap();
    let asked: Vec<Option<&str>> = servers
        .iter()
        .map(|server| server["address"].as_str())
        .collect();
    assert_eq!(
        asked,
        [
            Some(web.address().to_string().as_str()),
            Some(images.address().to_string().as_str())
        ]
    );
}
