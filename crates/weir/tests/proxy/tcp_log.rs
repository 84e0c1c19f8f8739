//! Access logs of TCP services: one line for each connection, with its server, duration and end state.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Origin, Proxy, configuration, free_address};

/// Starts a daemon with a TCP service for that server, and its access log. `format` follows `path` in `access_log`;
/// `more` is a line of the service.
fn proxy(server: SocketAddr, format: &str, more: &str) -> (Proxy, PathBuf) {
    let proxy = Proxy::start("tcp", &[server], "");
    let file = proxy.directory.join("access.log");
    let log = format!(
        "access_log = {{ path = \"{}\"{format} }}\n{more}",
        file.display()
    );
    proxy.reload(&configuration(proxy.listen, "tcp", &[server], &log));
    (proxy, file)
}

/// Waits for line `number` of the log and returns it.
fn line(file: &Path, number: usize) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(line) = text.lines().nth(number).filter(|_| text.ends_with('\n')) {
            return line.to_owned();
        }
        assert!(Instant::now() < deadline, "no line {number}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connects to the service.
fn client(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.listen).expect("connect");
    let limit = Some(Duration::from_secs(10));
    stream.set_read_timeout(limit).expect("set read timeout");
    stream
}

/// Sends `bytes`, reads them back, and waits for `pause`.
fn echo(stream: &mut TcpStream, bytes: &[u8], pause: Duration) {
    stream.write_all(bytes).expect("write");
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).expect("read echo");
    std::thread::sleep(pause);
}

/// Makes the connection close with a reset.
fn reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("set SO_LINGER");
}

/// Starts a server that accepts one connection, reads once, and then calls `end` with it.
fn server(end: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
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
    let (proxy, file) = proxy(origin.address(), "", "");
    let mut stream = client(&proxy);
    let port = stream.local_addr().expect("get local address").port();
    echo(&mut stream, b"0123456789", Duration::from_millis(120));
    stream.shutdown(Shutdown::Write).expect("shut down writing");
    assert_eq!(stream.read(&mut [0; 8]).expect("read"), 0);
    let line = line(&file, 0);
    let (before, rest) = line.split_once(" [").expect("no date");
    let (_, rest) = rest.split_once("] ").expect("no date");
    assert_eq!(before, format!("127.0.0.1 {port}"));
    let words: Vec<&str> = rest.splitn(6, ' ').collect();
    let [service, to, times, bytes, end, why] = words[..] else {
        panic!("{line}");
    };
    assert_eq!(
        (service, to),
        ("s", format!("p/{}", origin.address()).as_str())
    );
    assert_eq!(
        (bytes, end, why),
        ("10/10", "--", "\"completed\""),
        "{line}"
    );
    let times: Vec<f64> = times
        .split('/')
        .map(|ms| ms.parse().expect("parse milliseconds"))
        .collect();
    let [queue, connect, total] = times[..] else {
        panic!("{line}");
    };
    assert!(queue + connect <= total && total >= 120.0, "{line}");
}

#[test]
fn tcp_line_names_the_side_that_aborted() {
    let format = ", format = \"{server} {end} {end_reason}\"";
    let short = "timeouts = { tunnel = \"300ms\" }";

    let dead = free_address();
    let (no_server, file) = proxy(dead, format, "");
    let _ = client(&no_server).read(&mut [0; 8]);
    assert_eq!(
        line(&file, 0),
        format!("{dead} SC no server could be reached")
    );

    let echoes = Origin::start_tcp();
    let address = echoes.address();
    let (alive, file) = proxy(address, format, short);
    let mut gone = client(&alive);
    echo(&mut gone, b"hello", Duration::ZERO);
    reset(&gone);
    drop(gone);
    assert_eq!(
        line(&file, 0),
        format!("{address} CD the client aborted the transfer")
    );
    let mut silent = client(&alive);
    echo(&mut silent, b"hello", Duration::ZERO);
    let _ = silent.read(&mut [0; 8]);
    assert_eq!(
        line(&file, 1),
        format!("{address} cD the client was idle for too long")
    );

    let address = server(|stream| {
        reset(&stream);
        drop(stream);
    });
    let (broken, file) = proxy(address, format, "");
    let mut stream = client(&broken);
    stream.write_all(b"hello").expect("write");
    let _ = stream.read(&mut [0; 8]);
    assert_eq!(
        line(&file, 0),
        format!("{address} SD the server aborted the transfer")
    );
}

#[test]
fn connections_without_a_server_are_logged() {
    let origin = Origin::start_tcp();
    let format = ", format = \"{pool} {server} {end}\"";
    let (proxy, file) = proxy(origin.address(), format, "");
    let server = format!("p/{}", origin.address());
    let (done, output) = proxy.weir(&["server", &server, "drain"]);
    assert!(done, "{output}");
    let _ = client(&proxy).read(&mut [0; 8]);
    assert_eq!(line(&file, 0), "p  SC");

    // A service that routes by the server name in a TLS handshake waits for the handshake.
    let log = format!("access_log = {{ path = \"{}\"{format} }}", file.display());
    let text = configuration(proxy.listen, "tcp", &[origin.address()], &log);
    let route = "\n[[route]]\nservice = \"s\"\nhost = \"a.example\"\npool = \"p\"\n";
    proxy.reload(&format!("{text}{route}"));
    drop(client(&proxy));
    assert_eq!(line(&file, 1), "  CR");
}
