//! Proxy services from the command line, over loopback and without privileges: requests, reloads and failing servers
//! under load, and shutdown.

#[path = "proxy/basic_auth.rs"]
mod basic_auth;
#[path = "proxy/basics.rs"]
mod basics;
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

/// Waits until `holds` returns true, for 30 seconds.
fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

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
