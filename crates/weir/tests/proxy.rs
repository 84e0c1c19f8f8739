//! Tests proxy services with a real `weir` on loopback.
//!
//! The tests cover requests, reloads and failing servers under load, upgrades and shutdown.

#[path = "proxy/basic_auth.rs"]
mod basic_auth;
#[path = "proxy/basics.rs"]
mod basics;
#[path = "proxy/certificate_list.rs"]
mod certificate_list;
#[path = "proxy/client_abort.rs"]
mod client_abort;
#[path = "proxy/client_address.rs"]
mod client_address;
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
#[path = "proxy/untrusted_fields.rs"]
mod untrusted_fields;
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

static NEXT_ID: AtomicU32 = AtomicU32::new(0);

/// A running daemon with its own directory. Dropping it stops the daemon and removes the directory.
struct Proxy {
    directory: PathBuf,
    child: Child,
    listen: SocketAddr,
    upgrades: AtomicU32,
}

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_weir");

/// Waits up to 30 seconds until `condition` returns true. Panics with this description otherwise.
fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {description}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the program that `Proxy::start` runs: the build at the path in `WEIR_OLD_BINARY` if it is set, otherwise the
/// program under test. With `WEIR_OLD_BINARY`, upgrades alternate between the two.
fn first_program() -> String {
    std::env::var("WEIR_OLD_BINARY").unwrap_or_else(|_| PROGRAM.to_owned())
}

/// Returns a configuration with the service `s` and its pool `p`. The service contains `service_lines`.
fn configuration(
    listen: SocketAddr,
    protocol: &str,
    servers: &[SocketAddr],
    service_lines: &str,
) -> String {
    let servers: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{server}\""))
        .collect();
    format!(
        "[node]\ndrain_timeout = \"5s\"\n\n[pool.p]\nservers = [{}]\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \
         \"proxy\"\nprotocol = \"{protocol}\"\npool = \"p\"\n{service_lines}\n",
        servers.join(", ")
    )
}

impl Proxy {
    /// Starts a daemon with the configuration that [`configuration`] returns, and waits until it responds.
    fn start(protocol: &str, servers: &[SocketAddr], service_lines: &str) -> Self {
        let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("weir-proxy-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("create directory");
        let listen = free_address();
        fs::write(
            directory.join("weir.toml"),
            configuration(listen, protocol, servers, service_lines),
        )
        .expect("write file");
        let proxy = Self {
            child: Self::run(&directory),
            directory,
            listen,
            upgrades: AtomicU32::new(0),
        };
        proxy.wait_until_ready();
        proxy
    }

    /// Starts `weir run`, which writes its log to a file in the directory.
    fn run(directory: &std::path::Path) -> Child {
        let log = fs::File::create(directory.join("log")).expect("create log file");
        let mut command = Command::new(first_program());
        Self::set_directories(&mut command, directory);
        command
            .args(["run", "-c"])
            .arg(directory.join("weir.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start daemon")
    }

    /// Starts the daemon again after it has stopped.
    fn start_again(&mut self) {
        self.child = Self::run(&self.directory);
        self.wait_until_ready();
    }

    /// Waits until `weir status` succeeds.
    fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.weir(&["status"]).0 {
            assert!(
                Instant::now() < deadline,
                "the daemon is not ready: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sets a command's runtime directory and pin directory.
    fn set_directories(command: &mut Command, directory: &std::path::Path) {
        command
            .env("WEIR_RUNTIME_DIR", directory.join("run"))
            .env("WEIR_PIN_DIR", directory.join("pins"))
            .env("NO_COLOR", "1");
    }

    /// Runs `weir` with these arguments. Returns whether it succeeded, and its output.
    fn weir(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(PROGRAM);
        Self::set_directories(&mut command, &self.directory);
        let output = command.args(arguments).output().expect("run weir");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Upgrades the daemon. With `WEIR_OLD_BINARY`, alternates between the two builds. Returns whether `weir upgrade`
    /// succeeded, and its output.
    fn upgrade(&self) -> (bool, String) {
        match self.upgrades.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => self.weir(&["upgrade"]),
            _ => self.weir(&["upgrade", &first_program()]),
        }
    }

    /// Reloads the daemon with this configuration.
    fn reload(&self, text: &str) {
        let file = self.directory.join("weir.toml");
        fs::write(&file, text).expect("write file");
        let (succeeded, output) = self.weir(&["reload", "-c", file.to_str().expect("not UTF-8")]);
        assert!(succeeded, "{output}");
    }

    /// Returns the parsed output of `weir status --json`.
    fn status(&self) -> serde_json::Value {
        let (succeeded, output) = self.weir(&["status", "--json"]);
        assert!(succeeded, "{output}");
        serde_json::from_str(&output).expect("parse JSON")
    }

    /// Returns the daemon's log.
    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Sends SIGTERM and waits for the exit status.
    fn terminate(&mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("send signal");
        self.child.wait().expect("wait for the process")
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

/// A client connection.
struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("set read timeout");
        Self(stream)
    }

    fn send(&mut self, request: &str) {
        self.0.write_all(request.as_bytes()).expect("write");
    }

    /// Reads one response: the head, and as many body bytes as Content-Length specifies (none without this field).
    /// Returns `None` if the connection was closed before the response began.
    fn read_response(&mut self) -> std::io::Result<Option<(String, Vec<u8>)>> {
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

    /// Sends a request and returns the head and the body of the response.
    fn fetch(&mut self, request: &str) -> (String, Vec<u8>) {
        self.send(request);
        self.read_response()
            .expect("read response")
            .expect("connection was closed")
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
