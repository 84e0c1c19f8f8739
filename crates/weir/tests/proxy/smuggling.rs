//! Sends ambiguous requests through Weir to common servers.
//!
//! Weir and the server must count the same number of requests: if Weir treats bytes as a body and the server treats
//! them as a request, the server counts one more.

#[path = "smuggling/lenient.rs"]
mod lenient;
#[path = "smuggling/request.rs"]
mod request;
#[path = "smuggling/response.rs"]
mod response;
#[path = "smuggling/stream.rs"]
mod stream;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Proxy, free_address};

/// Outcomes of the cases.
#[derive(Debug, Default)]
struct Tally {
    /// For each kind of ambiguity, the number of cases and the number that Weir rejected.
    groups: BTreeMap<&'static str, (usize, usize)>,
    control_requests: u64,
    /// Wrong responses that the client received.
    errors: Vec<String>,
}

impl Tally {
    /// Records a case, and whether Weir rejected it.
    fn record(&mut self, group: &'static str, rejected: bool) {
        let entry = self.groups.entry(group).or_default();
        entry.0 += 1;
        entry.1 += usize::from(rejected);
    }

    /// Returns the number of cases.
    fn cases(&self) -> usize {
        self.groups.values().map(|(cases, _)| cases).sum()
    }

    /// Returns the number of cases that Weir rejected.
    fn rejected(&self) -> usize {
        self.groups.values().map(|(_, rejected)| rejected).sum()
    }

    fn print(&self, title: &str) {
        println!(
            "{title}: {} cases, {} rejected, {} errors",
            self.cases(),
            self.rejected(),
            self.errors.len()
        );
        for (group, (cases, rejected)) in &self.groups {
            println!("  {group:12} {cases:5} cases {rejected:5} rejected");
        }
    }
}

/// Sends one request on a new connection and shuts down the write side if `half_close` is true. Returns the response.
fn exchange(address: SocketAddr, request: &str, half_close: bool) -> Vec<u8> {
    let mut client = TcpStream::connect(address).expect("connect");
    client
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("set read timeout");
    // Weir may reject the request before the client has sent all of it.
    let _ = client.write_all(request.as_bytes());
    if half_close {
        let _ = client.shutdown(Shutdown::Write);
    }
    let mut response = Vec::new();
    let _ = client.read_to_end(&mut response);
    response
}

/// Requests a path that no case contains. Returns the response as an error if it is not the response for that path.
fn send_control_request(address: SocketAddr, number: usize) -> Result<(), String> {
    let request = format!("GET /canary/{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let response = exchange(address, &request, false);
    let text = String::from_utf8_lossy(&response);
    let is_correct = text.starts_with("HTTP/1.1 ")
        && text.contains(&format!("/canary/{number}"))
        && text.matches("HTTP/1.1 ").count() == 1;
    is_correct.then_some(()).ok_or_else(|| text.into_owned())
}

/// Starts a service with one server, without retries.
fn start_service(server: SocketAddr, extra: &str) -> Proxy {
    Proxy::start(
        "http",
        &[server],
        &format!(
            "timeouts = {{ request = \"2s\", client = \"2s\", server = \"2s\" }}\nabort_on_close = false\n\
             normalize_path = false\n{extra}"
        ),
    )
}

/// Returns the number of requests that Weir counted and the number that it retried.
fn request_counts(proxy: &Proxy) -> (u64, u64) {
    let service = &proxy.status()["services"][0];
    let number = |name: &str| service[name].as_u64().expect("not a number");
    (number("requests"), number("retries"))
}

/// Waits up to 10 seconds until the server has logged as many requests as Weir counted. Returns both numbers. Some
/// servers write their logs late.
fn wait_for_log(request_count: u64, logged: &dyn Fn() -> u64) -> (u64, u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while logged() < request_count && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    (request_count, logged())
}

/// Sends every case through Weir, with a control request after each.
fn send_requests(cases: &[request::Case], proxy: &Proxy) -> Tally {
    let mut tally = Tally::default();
    for (number, (group, text)) in cases.iter().enumerate() {
        let response = exchange(proxy.listen, text, true);
        tally.record(
            group,
            response.starts_with(b"HTTP/1.1 4") || response.starts_with(b"HTTP/1.1 505"),
        );
        tally.control_requests += 1;
        if let Err(error) = send_control_request(proxy.listen, number) {
            tally.errors.push(format!("after {text:?}: {error:?}"));
        }
    }
    tally
}

/// A real server that logs a line for each request that it receives, including those that it rejects.
struct Peer {
    name: &'static str,
    child: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Peer {
    /// Starts the program that `command` builds from an address and a directory. The program's log is the file `log` in
    /// the directory.
    fn start(name: &'static str, command: impl FnOnce(SocketAddr, &Path) -> Command) -> Self {
        let directory =
            std::env::temp_dir().join(format!("weir-smuggling-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("create directory");
        let address = free_address();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = command(address, &directory);
        command
            .env("PATH", format!("{path}:/usr/sbin:/usr/local/go/bin"))
            .env("LOG", directory.join("log"))
            .env("ADDRESS", address.ip().to_string())
            .env("PORT", address.port().to_string())
            .stderr(Stdio::null());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let peer = Self {
            name,
            child,
            address,
            directory,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "{name} is not listening");
            std::thread::sleep(Duration::from_millis(20));
        }
        peer
    }

    /// Returns the number of requests in the server's log.
    fn logged_requests(&self) -> u64 {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        log.lines().count() as u64
    }

    /// Returns the lines in the server's log for requests that the server rejected.
    fn rejected_lines(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let is_path = |line: &&str| line.starts_with("/open") || line.starts_with("/canary/");
        let lines = log.lines().filter(|line| !is_path(line));
        lines.map(str::to_owned).collect()
    }

    /// Sends every case through Weir and asserts that the server counted the same requests.
    fn assert_same_count(&self, cases: &[request::Case]) {
        let before = self.logged_requests();
        let proxy = start_service(self.address, "http2 = false");
        let tally = send_requests(cases, &proxy);
        tally.print(&format!("requests to {}", self.name));
        let (request_count, retries) = request_counts(&proxy);
        let (request_count, logged) =
            wait_for_log(request_count, &|| self.logged_requests() - before);
        assert_eq!(
            (request_count, retries),
            (logged, 0),
            "of {} cases, {} rejected; {:?}",
            cases.len(),
            tally.rejected(),
            self.rejected_lines()
        );
        assert_eq!(tally.errors, Vec::<String>::new());
        assert!(
            tally.rejected() > 100 && request_count - tally.control_requests > 100,
            "too few cases: {} rejected, {request_count} counted",
            tally.rejected()
        );
    }

    /// Sends every HTTP/2 case through Weir and asserts that the server counted the same requests.
    fn assert_same_stream_count(&self) {
        let before = self.logged_requests();
        assert_stream_counts_match(self.name, self.address, &|| self.logged_requests() - before);
    }
}

/// Sends every HTTP/2 case through Weir to the server, with a control request after each, on the same connection if it
/// is still open. Asserts that Weir and the server counted the same requests.
fn assert_stream_counts_match(name: &str, server: SocketAddr, logged: &dyn Fn() -> u64) {
    let proxy = start_service(server, "");
    let mut tally = Tally::default();
    let mut connection = stream::Connection::open(proxy.listen);
    let cases = stream::cases();
    for (number, case) in cases.iter().enumerate() {
        tally.record(case.name, connection.send(case).is_none());
        if !connection.is_open() {
            connection = stream::Connection::open(proxy.listen);
        }
        let path = format!("/canary/{number}");
        let response = connection
            .send(&stream::control_request(&path))
            .unwrap_or_default();
        if !String::from_utf8_lossy(&response).contains(&path) {
            tally.errors.push(format!("after {case:?}: {response:?}"));
        }
        if !connection.is_open() {
            connection = stream::Connection::open(proxy.listen);
        }
    }
    tally.print(&format!("HTTP/2 to {name}"));
    let (request_count, retries) = request_counts(&proxy);
    let (request_count, logged) = wait_for_log(request_count, logged);
    assert_eq!(
        (request_count, retries),
        (logged, 0),
        "{} cases",
        cases.len()
    );
    assert_eq!(tally.errors, Vec::<String>::new());
    assert!(
        tally.rejected() > 50 && tally.rejected() < cases.len() - 50,
        "{tally:?}"
    );
}

#[test]
fn there_are_at_least_1200_distinct_cases() {
    let requests = request::cases().len();
    let responses = response::cases().len() * 2;
    let streams = stream::cases().len();
    println!("{requests} requests, {responses} responses, {streams} HTTP/2 requests");
    assert!(requests >= 800 && responses >= 190 && streams >= 190);
    assert!(requests + responses + streams >= 1_200);
}

#[test]
fn lenient_server_and_weir_count_the_same_requests() {
    let origin = lenient::LenientServer::start();
    let cases = request::cases();
    let proxy = start_service(origin.address, "http2 = false");
    let tally = send_requests(&cases, &proxy);
    tally.print("requests to the lenient server");
    let (request_count, retries) = request_counts(&proxy);
    let logged = || origin.paths().len() as u64;
    let (request_count, logged) = wait_for_log(request_count, &logged);
    assert_eq!((request_count, retries), (logged, 0), "{:?}", tally.errors);
    assert_eq!(tally.errors, Vec::<String>::new());
}

#[test]
fn cases_detect_a_server_that_reads_underscores_as_hyphens() {
    let origin = lenient::LenientServer::start();
    let cases: Vec<_> = request::cases()
        .into_iter()
        .filter(|(group, _)| *group == "underscore")
        .collect();
    let proxy = start_service(origin.address, "http2 = false\nunderscores = \"keep\"");
    let tally = send_requests(&cases, &proxy);
    let (request_count, logged) =
        wait_for_log(request_counts(&proxy).0, &|| origin.paths().len() as u64);
    assert!(
        request_count != logged || !tally.errors.is_empty(),
        "{request_count} {logged}"
    );
}

#[test]
fn lenient_server_and_weir_count_the_same_streams() {
    let origin = lenient::LenientServer::start();
    assert_stream_counts_match("the lenient server", origin.address, &|| {
        origin.paths().len() as u64
    });
}

#[test]
fn clients_and_weir_read_the_same_responses() {
    let cases = Arc::new(response::cases());
    let proxy = start_service(
        response::serve(Arc::clone(&cases)),
        "http2 = false\nlimits = { retries = 0 }",
    );
    let mut tally = Tally::default();
    for (number, (group, text)) in cases.iter().enumerate() {
        for (version, is_http10) in [("1.1", false), ("1.0", true)] {
            let request = format!(
                "GET /response/{number} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"
            );
            let response = exchange(proxy.listen, &request, false);
            tally.record(
                group,
                response.windows(13).any(|found| found == b"HTTP/1.1 502 "),
            );
            if let Some(error) = response::find_error(&response, is_http10) {
                let response = String::from_utf8_lossy(&response);
                tally
                    .errors
                    .push(format!("{text:?} to {version}: {error}: {response:?}"));
            }
            tally.control_requests += 1;
            if let Err(error) = send_control_request(proxy.listen, number) {
                tally.errors.push(format!("after {text:?}: {error:?}"));
            }
        }
    }
    tally.print("responses");
    assert_eq!(tally.errors, Vec::<String>::new());
    assert!(
        tally.rejected() > 50 && tally.rejected() < tally.cases() - 50,
        "{tally:?}"
    );
}

#[test]
fn nginx_and_weir_count_the_same_requests() {
    let nginx = |address: SocketAddr, directory: &Path| {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", directory.display()))
            .join(" ");
        let text = format!(
            "daemon off; master_process off; pid {0}/pid; error_log {0}/err;\nevents {{}}\nhttp {{ {temporary} \
             log_format l \
             '$request_uri'; access_log {0}/log l; keepalive_requests 1000000; server {{ listen {address}; location / \
             {{ return 200 \
             $request_uri; }} }} }}\n",
            directory.display()
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, text).expect("write file");
        let mut command = Command::new("nginx");
        command.arg("-c").arg(file);
        command
    };
    let peer = Peer::start("nginx", nginx);
    peer.assert_same_count(&request::cases());
    peer.assert_same_stream_count();
}

#[test]
fn apache_and_weir_count_the_same_requests() {
    let apache = |address: SocketAddr, directory: &Path| {
        let text = format!(
            "ServerRoot {0}\nServerName a\nListen {address}\nPidFile {0}/pid\nErrorLog {0}/err\nUser nobody\nGroup \
             nogroup\n\
             LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
             LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
             LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so\nRedirectMatch 302 ^(/canary/.*)$ \
             http://o$1\n\
             DocumentRoot {0}\nMaxKeepAliveRequests 0\nLogFormat \"%U\" l\nCustomLog {0}/log l\n",
            directory.display()
        );
        let file = directory.join("apache.conf");
        fs::write(&file, text).expect("write file");
        let mut command = Command::new("apache2");
        command.arg("-X").arg("-f").arg(file);
        command
    };
    Peer::start("apache", apache).assert_same_count(&request::framing());
}

#[test]
fn haproxy_and_weir_count_the_same_requests() {
    let haproxy = |address: SocketAddr, directory: &Path| {
        let text = format!(
            "global\n log stdout format raw local0\ndefaults\n mode http\n timeout client 10s\n timeout \
             http-keep-alive 60s\n log \
             global\n option dontlognull\n log-format %HU\nfrontend f\n bind {address}\n http-request return status \
             200 content-type text/plain lf-string \
             %[path]\n"
        );
        let file = directory.join("haproxy.cfg");
        fs::write(&file, text).expect("write file");
        let log = fs::File::create(directory.join("log")).expect("create log file");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(file).stdout(log);
        command
    };
    Peer::start("haproxy", haproxy).assert_same_count(&request::framing());
}

const NODE: &str = r#"
const fs = require('fs'), http = require('http');
const log = (word) => fs.appendFileSync(process.env.LOG, word + '\n');
const server = http.createServer({ keepAliveTimeout: 60000, insecureHTTPParser: true }, (request, response) => {
  log(request.url);
  request.socket.busy = true;
  request.on('error', () => {});
  request.resume();
  request.on('end', () => { request.socket.busy = false; response.end(request.url); });
});
server.on('checkContinue', (request, response) => {
  response.writeContinue();
  server.emit('request', request, response);
});
server.on('clientError', (error, socket) => {
  // A truncated body belongs to a request that is already logged.
  if (error.code !== 'ECONNRESET' && !socket.busy) log('refused ' + error.code);
  socket.destroy();
});
server.listen(+process.env.PORT, process.env.ADDRESS);
"#;

#[test]
fn node_and_weir_count_the_same_requests() {
    let node = |_: SocketAddr, _: &Path| {
        let mut command = Command::new("node");
        command.arg("-e").arg(NODE);
        command
    };
    let peer = Peer::start("node", node);
    peer.assert_same_count(&request::cases());
    peer.assert_same_stream_count();
}

const PYTHON: &str = r#"
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

log = open(os.environ['LOG'], 'a', buffering=1)

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do(self):
        log.write(self.path + '\n')
        if self.headers.get('Transfer-Encoding', '').lower() == 'chunked':
            while True:
                size = int(self.rfile.readline().split(b';')[0], 16)
                if size == 0:
                    while self.rfile.readline() not in (b'\r\n', b''):
                        pass
                    break
                self.rfile.read(size + 2)
        else:
            self.rfile.read(int(self.headers.get('Content-Length', 0)))
        self.send_response(200)
        self.send_header('Content-Length', str(len(self.path)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(self.path.encode())

    do_GET = do_POST = do_HEAD = do

    def send_error(self, *arguments):
        log.write(f'refused {arguments}\n')
        super().send_error(*arguments)

    def log_message(self, *arguments):
        pass

ThreadingHTTPServer((os.environ['ADDRESS'], int(os.environ['PORT'])), Handler).serve_forever()
"#;

#[test]
fn python_and_weir_count_the_same_requests() {
    let python = |_: SocketAddr, _: &Path| {
        let mut command = Command::new("python3");
        command.arg("-c").arg(PYTHON);
        command
    };
    Peer::start("python", python).assert_same_count(&request::framing());
}

const GO: &str = r#"
package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
)

var (
	lock sync.Mutex
	file *os.File
)

func log(word string) {
	lock.Lock()
	defer lock.Unlock()
	file.WriteString(word + "\n")
}

// Logs the requests that the server itself rejects, because they reach no handler.
type conn struct{ net.Conn }

func (c conn) Write(data []byte) (int, error) {
	if bytes.HasPrefix(data, []byte("HTTP/1.1 4")) || bytes.HasPrefix(data, []byte("HTTP/1.1 5")) {
		log("refused")
	}
	return c.Conn.Write(data)
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return conn{c}, err
}

func main() {
	file, _ = os.OpenFile(os.Getenv("LOG"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	l, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("ADDRESS"), os.Getenv("PORT")))
	if err != nil {
		panic(err)
	}
	panic(http.Serve(listener{l}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log(r.URL.Path)
		io.Copy(io.Discard, r.Body)
		w.Write([]byte(r.URL.Path))
	})))
}
"#;

#[test]
fn go_and_weir_count_the_same_requests() {
    let go = |_: SocketAddr, directory: &Path| {
        let source = directory.join("main.go");
        fs::write(&source, GO).expect("write file");
        let program = directory.join("origin");
        let path = std::env::var("PATH").unwrap_or_default();
        let built = Command::new("go")
            .env("PATH", format!("{path}:/usr/local/go/bin"))
            .env("GOCACHE", directory.join("cache"))
            .env("GOFLAGS", "-mod=mod")
            .arg("build")
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .output()
            .expect("run go");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        Command::new(program)
    };
    Peer::start("go", go).assert_same_count(&request::framing());
}
