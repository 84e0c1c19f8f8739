//! Tests access logs of TCP services: one line for each connection, with its server, duration and end state.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Origin, Proxy, configuration, free_address};

/// Starts a daemon with a TCP service for this server and with an access log. `format` follows `path` in `access_log`;
/// `extra` is a line in the service.
fn start_proxy(backend: SocketAddr, format: &str, extra: &str) -> (Proxy, PathBuf) {
    let daemon = Proxy::start("tcp", &[backend], "");
    let file = daemon.directory.join("access.log");
    let log = format!(
        "access_log = {{ path = \"{}\"{format} }}\n{extra}",
        file.display()
    );
    daemon.reload(&configuration(daemon.listen, "tcp", &[backend], &log));
    (daemon, file)
}

/// Waits for the line with index `number` in the log and returns it.
fn wait_for_line(file: &Path, number: usize) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(found) = text.lines().nth(number).filter(|_| text.ends_with('\n')) {
            return found.to_owned();
        }
        assert!(Instant::now() < deadline, "no line {number}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connects to the service.
fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.listen).expect("connect");
    let limit = Some(Duration::from_secs(10));
    stream.set_read_timeout(limit).expect("set read timeout");
    stream
}

/// Sends `bytes`, reads them back, and sleeps for `pause`.
fn echo(stream: &mut TcpStream, bytes: &[u8], pause: Duration) {
    stream.write_all(bytes).expect("write");
    let mut received = vec![0; bytes.len()];
    stream.read_exact(&mut received).expect("read echo");
    std::thread::sleep(pause);
}

/// Configures the socket so that closing it sends a reset.
fn reset_on_close(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("set SO_LINGER");
}

/// Starts a server that accepts one connection, reads from it once, and then calls `end` with it.
fn start_server(end: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("get local address");
    std::thread::spawn(move || {
        // The daemon does not connect to the server when it starts, so the first connection is the client's.
        let (mut stream, _) = listener.accept().expect("accept a connection");
        let mut bytes = [0; 64];
        let _ = stream.read(&mut bytes);
        end(stream);
    });
    address
}

#[test]
fn tcp_line_has_server_durations_bytes_and_end_state() {
    let origin = Origin::start_tcp();
    let (proxy, file) = start_proxy(origin.address(), "", "");
    let mut stream = connect(&proxy);
    let port = stream.local_addr().expect("get local address").port();
    echo(&mut stream, b"0123456789", Duration::from_millis(120));
    stream
        .shutdown(Shutdown::Write)
        .expect("shut down the write side");
    assert_eq!(stream.read(&mut [0; 8]).expect("read"), 0);
    let line = wait_for_line(&file, 0);
    let (before, rest) = line.split_once(" [").expect("find the date");
    let (_, rest) = rest.split_once("] ").expect("find the date");
    assert_eq!(before, format!("127.0.0.1 {port}"));
    let fields: Vec<&str> = rest.splitn(6, ' ').collect();
    let [service, address, durations, bytes, end, end_reason] = fields[..] else {
        panic!("{line}");
    };
    assert_eq!(
        (service, address),
        ("s", format!("p/{}", origin.address()).as_str())
    );
    assert_eq!(
        (bytes, end, end_reason),
        ("10/10", "--", "\"completed\""),
        "{line}"
    );
    let durations: Vec<f64> = durations
        .split('/')
        .map(|ms| ms.parse().expect("parse milliseconds"))
        .collect();
    let [queue, connect, total] = durations[..] else {
        panic!("{line}");
    };
    assert!(queue + connect <= total && total >= 120.0, "{line}");
}

#[test]
fn tcp_line_shows_how_the_connection_ended() {
    let format = ", format = \"{server} {end} {end_reason}\"";
    let tunnel_timeout = "timeouts = { tunnel = \"300ms\" }";

    let dead_address = free_address();
    let (proxy, file) = start_proxy(dead_address, format, "");
    let _ = connect(&proxy).read(&mut [0; 8]);
    assert_eq!(
        wait_for_line(&file, 0),
        format!("{dead_address} SC no server could be reached")
    );

    let origin = Origin::start_tcp();
    let address = origin.address();
    let (proxy, file) = start_proxy(address, format, tunnel_timeout);
    let mut aborting = connect(&proxy);
    echo(&mut aborting, b"hello", Duration::ZERO);
    reset_on_close(&aborting);
    drop(aborting);
    assert_eq!(
        wait_for_line(&file, 0),
        format!("{address} CD the client aborted the transfer")
    );
    let mut silent_client = connect(&proxy);
    echo(&mut silent_client, b"hello", Duration::ZERO);
    let _ = silent_client.read(&mut [0; 8]);
    assert_eq!(
        wait_for_line(&file, 1),
        format!("{address} cD the client was idle for too long")
    );

    let address = start_server(|stream| {
        reset_on_close(&stream);
        drop(stream);
    });
    let (proxy, file) = start_proxy(address, format, "");
    let mut stream = connect(&proxy);
    stream.write_all(b"hello").expect("write");
    let _ = stream.read(&mut [0; 8]);
    assert_eq!(
        wait_for_line(&file, 0),
        format!("{address} SD the server aborted the transfer")
    );
}

#[test]
fn connections_without_a_server_are_logged() {
    let origin = Origin::start_tcp();
    let format = ", format = \"{pool} {server} {end}\"";
    let (proxy, file) = start_proxy(origin.address(), format, "");
    let name = format!("p/{}", origin.address());
    let (succeeded, output) = proxy.weir(&["server", &name, "drain"]);
    assert!(succeeded, "{output}");
    let _ = connect(&proxy).read(&mut [0; 8]);
    assert_eq!(wait_for_line(&file, 0), "p  SC");

    // A service that routes by the server name in a TLS handshake waits for the handshake.
    let log = format!("access_log = {{ path = \"{}\"{format} }}", file.display());
    let text = configuration(proxy.listen, "tcp", &[origin.address()], &log);
    let route = "\n[[route]]\nservice = \"s\"\nhost = \"a.example\"\npool = \"p\"\n";
    proxy.reload(&format!("{text}{route}"));
    drop(connect(&proxy));
    assert_eq!(wait_for_line(&file, 1), "  CR");
}
