//! Tests WebSocket over HTTP/2 (RFC 8441), and early hints over HTTP/2 on both sides, with Node and curl as clients.

use std::io::{BufRead, BufReader};

use super::http2::{Echo, start_grpc_proxy};
use super::scripted::{Action, ScriptedServer, send_text};
use super::tls::Authority;
use super::*;

/// Node program that accepts upgrades and echoes bytes. Certain paths cause a rejection, an invalid accept value, or a
/// response without an upgrade.
const SERVER: &str = r#"
const crypto = require('crypto');
const server = require('http').createServer((request, response) => response.end('no upgrade'));
server.on('upgrade', (request, socket) => {
  const salt = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const key = request.headers['sec-websocket-key'] + (request.url === '/invalid-accept' ? 'x' : '') + salt;
  const accept = crypto.createHash('sha1').update(key).digest('base64');
  if (request.url === '/rejected')
    return socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno');
  if (request.url === '/plain')
    return socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
    `Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: ${request.headers['sec-websocket-protocol']}\r\n\r\n`);
  socket.pipe(socket);
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"#;

/// Node program that opens one stream per path over one connection, sends bytes, and prints the received bytes.
const CLIENT: &str = r#"
const [origin, ca, ...paths] = process.argv.slice(1);
const options = ca ? { ca: require('fs').readFileSync(ca) } : {};
const session = require('http2').connect(origin, options);
session.on('error', (error) => { console.log('session', error.message); process.exit(1); });
session.on('remoteSettings', (settings) => {
  console.log('offered', settings.enableConnectProtocol);
  let open = paths.length;
  for (const entry of paths) {
    const [path, protocol = 'websocket'] = entry.split(' ');
    const stream = session.request({ ':method': 'CONNECT', ':protocol': protocol, ':path': path,
      'sec-websocket-version': '13', 'sec-websocket-protocol': 'chat' }, { endStream: false });
    let bytes = 0;
    stream.on('response', (headers) => {
      console.log(path, headers[':status'], headers['sec-websocket-protocol'], headers['sec-websocket-accept'],
        headers['upgrade']);
      if (headers[':status'] !== 200) return stream.end();
      stream.write(Buffer.alloc(300000, 'x'));
      stream.end('end');
    });
    stream.on('data', (data) => { bytes += data.length; });
    stream.on('error', (error) => console.log(path, error.code));
    stream.on('close', () => {
      console.log(path, 'bytes', bytes);
      if (--open === 0) session.close();
    });
  }
});
"#;

fn node(script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("node");
    // Node 18 warns that the server name of a TLS connection is an IP address.
    command
        .args(["--no-deprecation", "-e", script, "--"])
        .args(arguments);
    command
}

/// A WebSocket server that runs in Node, and its address. Dropping it stops the server.
struct Server(Child, SocketAddr);

impl Server {
    fn start() -> Self {
        let mut command = node(SERVER, &[]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("start node");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("not piped");
        let read = BufReader::new(stdout).read_line(&mut port);
        assert!(
            read.is_ok_and(|bytes| bytes > 0),
            "the server did not print its port"
        );
        let port: u16 = port.trim().parse().expect("parse port");
        Self(child, SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the client with these paths. Returns its output.
fn run_client(origin: &str, ca: &str, paths: &[&str]) -> String {
    let output = node(CLIENT, &[&[origin, ca], paths].concat())
        .output()
        .expect("run node");
    let text = [output.stdout, output.stderr].concat();
    let mut lines: Vec<String> = String::from_utf8_lossy(&text)
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn websockets_share_an_http2_connection() {
    let server = Server::start();
    let authority = Authority::new("websocket");
    authority.sign("one", "IP:127.0.0.1", 30);
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let plain = Proxy::start("http", &[server.1], "");
    let secure = Proxy::start("http", &[server.1], &tls);
    let paths = [
        "/one",
        "/two",
        "/rejected",
        "/plain",
        "/invalid-accept",
        "/other foreign",
    ];
    let expected = "/invalid-accept 502 undefined undefined undefined\n/invalid-accept bytes 0\n\
                    /one 200 chat undefined undefined\n/one bytes 300003\n\
                    /other 501 undefined undefined undefined\n/other bytes 0\n\
                    /plain 502 undefined undefined undefined\n/plain bytes 0\n\
                    /rejected 403 undefined undefined undefined\n/rejected bytes 2\n\
                    /two 200 chat undefined undefined\n/two bytes 300003\n\
                    offered true";
    let origins = [
        (format!("http://{}", plain.listen), String::new()),
        (format!("https://{}", secure.listen), authority.ca()),
    ];
    for (origin, ca) in &origins {
        assert_eq!(run_client(origin, ca, &paths), expected, "{origin}");
    }
}

#[test]
fn early_hints_are_sent_over_http2() {
    let origin = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"),
        send_text("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"),
        Action::Close,
    ]]);
    let echo = Echo::start();
    let proxies = [
        Proxy::start("http", &[origin.address()], ""),
        start_grpc_proxy(&echo),
    ];
    for (proxy, versions) in proxies.iter().zip([
        ["--http2-prior-knowledge", "HTTP/2"],
        ["--http1.1", "HTTP/1.1"],
    ]) {
        for [flag, version] in [["--http2-prior-knowledge", "HTTP/2"], versions] {
            let output = Command::new("curl")
                .args(["-sSi", "--max-time", "20", flag, "-d", "body"])
                .arg(format!("http://{}/hints", proxy.listen))
                .output()
                .expect("run curl");
            let text = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
            let (first, rest) = text.split_once("\r\n\r\n").expect("incomplete first head");
            let version = version.to_ascii_lowercase();
            assert!(first.starts_with(&format!("{version} 103")), "{text}");
            assert!(first.contains("link: </a.css>; rel=preload"), "{text}");
            assert!(rest.starts_with(&format!("{version} 200")), "{text}");
            assert!(rest.contains("\r\n\r\n") && rest.contains("body"), "{text}");
        }
    }
}
