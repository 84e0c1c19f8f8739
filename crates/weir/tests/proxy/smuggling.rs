//! Requests made to be understood in two ways, through Weir to servers that people use: both must count the same requests. What
//! Weir takes for a body and the server for a request would be one too many there.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Seat, free_address};

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

/// Ways to write that a body is chunked, right ones and wrong ones.
fn codings() -> Vec<String> {
    let mut lines: Vec<String> = [
        "chunked",
        "Chunked",
        "CHUNKED",
        " chunked",
        "\tchunked",
        "chunked ",
        "chunked\t",
        "chunked, identity",
        "identity, chunked",
        "chunked,",
        ",chunked",
        "chunked;",
        "chunked; q=1",
        "\"chunked\"",
        "'chunked'",
        "x-chunked",
        "chunkedx",
        "chunk",
        "gzip",
        "",
        "\u{b}chunked",
        "chunked\u{b}",
        "\0chunked",
        "chunked\r",
        "\u{a0}chunked",
        "chunked chunked",
        "chunked, chunked",
    ]
    .into_iter()
    .map(|value| format!("Transfer-Encoding:{value}\r\n"))
    .collect();
    lines.extend(
        [
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding\t: chunked\r\n",
            " Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding:\r\n chunked\r\n",
            "Transfer-Encoding\r\n: chunked\r\n",
            "X: y\r\n Transfer-Encoding: chunked\r\n",
            "X: y\nTransfer-Encoding: chunked\r\n",
            "X: y\rTransfer-Encoding: chunked\r\n",
            "Transfer_Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
            "TE: trailers\r\nTransfer-Encoding: chunked\r\n",
        ]
        .map(str::to_owned),
    );
    lines
}

fn lengths() -> Vec<String> {
    let body = HIDDEN.len();
    let mut lines: Vec<String> = [
        format!("{body}"),
        "0".to_owned(),
        "3".to_owned(),
        format!("+{body}"),
        format!("-{body}"),
        format!(" {body} "),
        format!("0{body}"),
        format!("0x{body:x}"),
        format!("{body}, {body}"),
        format!("{body},0"),
        format!("{body};0"),
        format!("{body} 0"),
        "1e2".to_owned(),
        format!("\"{body}\""),
        String::new(),
        "99999999999999999999".to_owned(),
        format!("{body}\u{b}"),
    ]
    .into_iter()
    .map(|value| format!("Content-Length:{value}\r\n"))
    .collect();
    lines.push(format!(
        "Content-Length: {body}\r\nContent-Length: {body}\r\n"
    ));
    lines.push(format!("Content-Length: 0\r\nContent-Length: {body}\r\n"));
    lines.push(format!("Content-Length : {body}\r\n"));
    lines.push(format!("Content_Length: {body}\r\n"));
    lines.push(format!(
        "Connection: Content-Length\r\nContent-Length: {body}\r\n"
    ));
    lines.push(format!("Content-Length:\r\n {body}\r\n"));
    lines
}

/// Every attempt, each to be sent on a connection of its own.
fn attempts() -> Vec<String> {
    let mut attempts = Vec::new();
    let post =
        |fields: &str, body: &str| format!("POST /open HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}");
    let chunked = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    for coding in codings() {
        for body in [
            format!("0\r\n\r\n{HIDDEN}"),
            chunked.clone(),
            HIDDEN.to_owned(),
        ] {
            attempts.push(post(&coding, &body));
            attempts.push(post(
                &format!("Content-Length: {}\r\n{coding}", body.len()),
                &body,
            ));
            attempts.push(post(&format!("{coding}Content-Length: 4\r\n"), &body));
        }
    }
    for length in lengths() {
        attempts.push(post(&length, HIDDEN));
        attempts.push(format!(
            "GET /open HTTP/1.1\r\nHost: a\r\n{length}\r\n{HIDDEN}"
        ));
        attempts.push(format!(
            "POST /open HTTP/1.0\r\n{length}Connection: keep-alive\r\n\r\n{HIDDEN}"
        ));
    }
    for size in [
        "0",
        "00",
        "0x0",
        "+0",
        "-0",
        " 0",
        "0 ",
        "0\t",
        "0;x",
        "0;x=\"\n\"",
        "0;x\r",
        "g",
        "",
        "\n0",
        "0\u{b}",
        "10000000000000000",
    ] {
        for end in [
            "\r\n\r\n",
            "\n\n",
            "\r\r",
            "\r\n\n",
            "\r\nX: y\r\n\r\n",
            "\r\nContent-Length: 9\r\n\r\n",
            "\r\n X: y\r\n\r\n",
        ] {
            attempts.push(post(
                "Transfer-Encoding: chunked\r\n",
                &format!("{size}{end}{HIDDEN}"),
            ));
            attempts.push(post(
                "Transfer-Encoding: chunked\r\n",
                &format!("1\r\nx\r\n{size}{end}{HIDDEN}"),
            ));
        }
    }
    for line in [
        "GET /open HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/open HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nX: y\n\n",
        "GET /open\r\n\r\n",
        "GET /open HTTP/1.1\nHost: a\n\n",
        "\r\n\r\nGET /open HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
        "HEAD /open HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    ] {
        attempts.push(format!("{line}{HIDDEN}"));
    }
    attempts
}

/// A server of another make, which writes a line for each request that it sees, refused ones included.
struct Peer {
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
    /// Starts what `command` makes of an address and a directory; its log is the directory's `log`.
    fn start(name: &str, command: impl FnOnce(SocketAddr, &Path) -> Command) -> Self {
        let directory =
            std::env::temp_dir().join(format!("weir-smuggling-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
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
            child,
            address,
            directory,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "{name} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        peer
    }

    fn seen(&self) -> u64 {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        log.lines().count() as u64
    }

    /// What it says of requests that it refused.
    fn refused(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let refused = log.lines().filter(|line| !line.starts_with("/open"));
        refused.map(str::to_owned).collect()
    }

    /// Sends every attempt through Weir, and compares.
    fn agrees(&self) {
        let before = self.seen();
        let seat = Seat::start(
            "http",
            &[self.address],
            "http2 = false\ntimeouts = { request = \"2s\", client = \"2s\", server = \"2s\" }",
        );
        let attempts = attempts();
        assert!(attempts.len() >= 300, "{} attempts", attempts.len());
        let mut refused = 0;
        for attempt in &attempts {
            let mut client = TcpStream::connect(seat.listen).expect("it listens");
            client
                .set_read_timeout(Some(Duration::from_secs(10)))
                .expect("set");
            // It may be refused before it is all sent.
            let _ = client.write_all(attempt.as_bytes());
            let _ = client.shutdown(Shutdown::Write);
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer);
            refused += usize::from(answer.starts_with(b"HTTP/1.1 400 "));
        }
        let service = &seat.status()["services"][0];
        let counted = service["requests"].as_u64().expect("a count");
        let retries = service["retries"].as_u64().expect("a count");
        // Some write their lines a little later.
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.seen() - before < counted && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(
            (counted, retries),
            (self.seen() - before, 0),
            "of {} attempts, {refused} refused; {:?}",
            attempts.len(),
            self.refused()
        );
        assert!(
            refused > 100 && counted > 100,
            "{refused} refused, {counted} counted: the attempts show nothing"
        );
    }
}

#[test]
fn nginx_and_weir_count_the_same_requests() {
    let nginx = |address: SocketAddr, directory: &Path| {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", directory.display()))
            .join(" ");
        let text = format!(
            "daemon off; master_process off; pid {0}/pid; error_log {0}/err;\nevents {{}}\nhttp {{ {temporary} log_format l \
             '$request_uri'; access_log {0}/log l; keepalive_requests 1000000; server {{ listen {address}; location / {{ return 200 \
             ok; }} }} }}\n",
            directory.display()
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, text).expect("written");
        let mut command = Command::new("nginx");
        command.arg("-c").arg(file);
        command
    };
    Peer::start("nginx", nginx).agrees();
}

#[test]
fn apache_and_weir_count_the_same_requests() {
    let apache = |address: SocketAddr, directory: &Path| {
        let text = format!(
            "ServerRoot {0}\nServerName a\nListen {address}\nPidFile {0}/pid\nErrorLog {0}/err\nUser nobody\nGroup nogroup\n\
             LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
             LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
             DocumentRoot {0}\nMaxKeepAliveRequests 0\nLogFormat \"%U\" l\nCustomLog {0}/log l\n",
            directory.display()
        );
        let file = directory.join("apache.conf");
        fs::write(&file, text).expect("written");
        let mut command = Command::new("apache2");
        command.arg("-X").arg("-f").arg(file);
        command
    };
    Peer::start("apache", apache).agrees();
}

#[test]
fn haproxy_and_weir_count_the_same_requests() {
    let haproxy = |address: SocketAddr, directory: &Path| {
        let text = format!(
            "global\n log stdout format raw local0\ndefaults\n mode http\n timeout client 10s\n timeout http-keep-alive 60s\n log \
             global\n option dontlognull\n log-format %HU\nfrontend f\n bind {address}\n http-request return status 200 content-type text/plain string \
             ok\n"
        );
        let file = directory.join("haproxy.cfg");
        fs::write(&file, text).expect("written");
        let log = fs::File::create(directory.join("log")).expect("a log");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(file).stdout(log);
        command
    };
    Peer::start("haproxy", haproxy).agrees();
}

const NODE: &str = r#"
const fs = require('fs'), http = require('http');
const log = (word) => fs.appendFileSync(process.env.LOG, word + '\n');
const server = http.createServer({ keepAliveTimeout: 60000 }, (request, response) => {
  log(request.url);
  request.socket.busy = true;
  request.on('error', () => {});
  request.resume();
  request.on('end', () => { request.socket.busy = false; response.end('ok'); });
});
server.on('checkContinue', (request, response) => { response.writeContinue(); server.emit('request', request, response); });
server.on('clientError', (error, socket) => {
  // A body that breaks off belongs to its request.
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
    Peer::start("node", node).agrees();
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
        self.send_header('Content-Length', '2')
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(b'ok')

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
    Peer::start("python", python).agrees();
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

// What the server refuses by itself is seen in what it writes.
type conn struct{ net.Conn }

func (c conn) Write(octets []byte) (int, error) {
	if bytes.HasPrefix(octets, []byte("HTTP/1.1 4")) || bytes.HasPrefix(octets, []byte("HTTP/1.1 5")) {
		log("refused")
	}
	return c.Conn.Write(octets)
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
		w.Write([]byte("ok"))
	})))
}
"#;

#[test]
fn go_and_weir_count_the_same_requests() {
    let go = |_: SocketAddr, directory: &Path| {
        let source = directory.join("main.go");
        fs::write(&source, GO).expect("written");
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
            .expect("go is installed");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        Command::new(program)
    };
    Peer::start("go", go).agrees();
}
