//! Tests servers on Unix sockets: HTTP and TCP services, health checks, logs, overrides, and permission to use sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::keeper::wait_until;
use super::privilege::run_as_other_user;
use super::{Client, GET, Origin, Proxy, fs};

/// Listens on a Unix socket at `path` and relays each connection to the server at `address`.
fn relay(path: &Path, address: SocketAddr) {
    let listener = UnixListener::bind(path).expect("bind a listener");
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("set permissions");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(address).expect("connect to the server");
            let reverse = (
                server.try_clone().expect("duplicate descriptor"),
                client.try_clone().expect("duplicate descriptor"),
            );
            std::thread::spawn(move || copy_to_server(client, server));
            std::thread::spawn(move || copy_to_client(reverse));
        }
    });
}

fn copy_to_server(mut client: UnixStream, mut server: TcpStream) {
    // Ignore errors: the test closes connections intentionally.
    let _ = std::io::copy(&mut client, &mut server);
    let _ = server.shutdown(Shutdown::Write);
}

fn copy_to_client((mut server, mut client): (TcpStream, UnixStream)) {
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Write);
}

/// Starts a daemon and creates a directory for sockets that every user may enter. Returns both.
fn start_proxy(protocol: &str) -> (Proxy, PathBuf) {
    let daemon = Proxy::start(protocol, &[super::free_address()], "");
    let sockets = daemon.directory.join("sockets");
    fs::create_dir(&sockets).expect("create directory");
    for directory in [&daemon.directory, &sockets] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("set permissions");
    }
    (daemon, sockets)
}

fn configuration_with(proxy: &Proxy, protocol: &str, pool: &str, service: &str) -> String {
    format!(
        "[pool.p]\n{pool}\n\n[service.s]\nlisten = [\"{}\"]\nforward = \"proxy\"\nprotocol = \"{protocol}\"\npool = \
         \"p\"\n{service}\n",
        proxy.listen
    )
}

/// Returns the server at this index from the status document.
fn server(proxy: &Proxy, index: usize) -> serde_json::Value {
    proxy.status()["services"][0]["servers"][index].clone()
}

/// Runs a command that must succeed. Returns its output.
fn run_weir(proxy: &Proxy, arguments: &[&str]) -> String {
    let (succeeded, output) = proxy.weir(arguments);
    assert!(succeeded, "{arguments:?}: {output}");
    output
}

/// Returns `/metrics`, read through the control socket.
fn metrics(proxy: &Proxy) -> String {
    let metrics = Command::new("curl")
        .args(["-s", "--max-time", "10", "--unix-socket"])
        .arg(proxy.directory.join("run/weir.sock"))
        .arg("http://weir/metrics")
        .output()
        .expect("run curl (see tools/install-deps.sh)");
    String::from_utf8_lossy(&metrics.stdout).into_owned()
}

#[test]
fn requests_are_balanced_by_weight_over_sockets_and_addresses() {
    let (one, two, three) = (
        Origin::start("one"),
        Origin::start("two"),
        Origin::start("three"),
    );
    let (proxy, sockets) = start_proxy("http");
    let (a, b) = (sockets.join("a.sock"), sockets.join("b.sock"));
    relay(&a, one.address());
    relay(&b, two.address());
    let (a, b) = (
        format!("unix:{}", a.display()),
        format!("unix:{}", b.display()),
    );
    let log = proxy.directory.join("access.log");
    let pool = format!(
        "scheduler = \"rr\"\nservers = [\"{a}\", {{ address = \"{b}\" }}, \"{}\"]",
        three.address()
    );
    let service = format!("access_log = {{ path = {log:?}, format = \"{{server}} {{status}}\" }}");
    proxy.reload(&configuration_with(&proxy, "http", &pool, &service));
    let mut client = Client::connect(proxy.listen);
    let mut names = Vec::new();
    for _ in 0..6 {
        let (head, body) = client.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let body = String::from_utf8_lossy(&body).into_owned();
        names.push(body.lines().next().unwrap_or_default().to_owned());
    }
    let count = |name: &str| names.iter().filter(|other| *other == name).count();
    assert_eq!(["one", "two", "three"].map(count), [2, 2, 2], "{names:?}");
    // Weir reuses connections to sockets, as it does connections to addresses.
    assert_eq!([&one, &two].map(Origin::connections), [1, 1]);
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("the log has six lines", || lines().lines().count() == 6);
    let count_lines = |name: &str| {
        lines()
            .lines()
            .filter(|line| *line == format!("{name} 200"))
            .count()
    };
    assert_eq!([count_lines(&a), count_lines(&b)], [2, 2], "{}", lines());
    let first = server(&proxy, 0);
    assert_eq!(
        (first["address"].as_str(), first["connections"].as_u64()),
        (Some(a.as_str()), Some(1)),
        "{first:#}"
    );
    let body = "x".repeat(300_000);
    for _ in 0..3 {
        let (_, sum) = client.fetch(&format!(
            "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert_eq!(sum, b"300000");
    }
    // Overrides use the server's name from the configuration.
    run_weir(&proxy, &["server", &format!("p/{a}"), "maint"]);
    run_weir(&proxy, &["server", &format!("p/{b}"), "drain"]);
    for _ in 0..4 {
        let (_, body) = client.fetch(GET);
        assert!(body.starts_with(b"three\n"));
    }
    assert_eq!(server(&proxy, 0)["state"], "maint");
    let request = format!("GET http://{}/", proxy.listen);
    let output = run_weir(&proxy, &["explain", "--request", &request]);
    assert!(output.contains(&a), "{output}");
    run_weir(&proxy, &["server", &format!("p/{a}"), "ready"]);
    let (_, body) = client.fetch(GET);
    assert!(!body.is_empty());
    let metrics = metrics(&proxy);
    assert!(metrics.contains(&format!("server=\"{a}\"")), "{metrics}");
}

#[test]
fn tcp_service_transfers_bytes_in_both_directions() {
    let origin = Origin::start_tcp();
    let (proxy, sockets) = start_proxy("tcp");
    let socket = sockets.join("echo.sock");
    relay(&socket, origin.address());
    let pool = format!("servers = [\"unix:{}\"]", socket.display());
    proxy.reload(&configuration_with(&proxy, "tcp", &pool, ""));
    let mut client = Client::connect(proxy.listen);
    let data: Vec<u8> = (0..2_000_000_u32).map(|number| number as u8).collect();
    let mut writer = client.0.try_clone().expect("duplicate descriptor");
    let bytes = data.clone();
    let writer_thread = std::thread::spawn(move || {
        writer.write_all(&bytes).expect("write");
        writer
            .shutdown(Shutdown::Write)
            .expect("shut down the write side");
    });
    let mut received = Vec::new();
    client.0.read_to_end(&mut received).expect("read");
    writer_thread.join().expect("writer thread panicked");
    assert!(
        received == data,
        "{} of {} bytes received",
        received.len(),
        data.len()
    );
}

#[test]
fn check_over_the_socket_determines_the_state_and_its_reason() {
    let (origin, other) = (Origin::start("one"), Origin::start("two"));
    let (proxy, sockets) = start_proxy("http");
    let (path, present) = (sockets.join("late.sock"), sockets.join("present.sock"));
    relay(&present, other.address());
    let pool = format!(
        "servers = [\"unix:{}\", \"unix:{}\"]\ncheck = {{ kind = \"http\", interval = \"100ms\", rise = 1, fall = 1 }}",
        path.display(),
        present.display()
    );
    proxy.reload(&configuration_with(&proxy, "http", &pool, ""));
    let reason = |index| {
        server(&proxy, index)["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    wait_until("the server with the missing socket is down", || {
        server(&proxy, 0)["state"] == "down"
    });
    let expected = format!("unix:{}: the socket does not exist", path.display());
    assert_eq!(reason(0), expected);
    wait_until("the other server is up", || {
        server(&proxy, 1)["state"] == "up"
    });
    assert!(reason(1).starts_with("http 200 in "), "{}", reason(1));
    relay(&path, origin.address());
    wait_until("the server is up", || server(&proxy, 0)["state"] == "up");
    // A killed server leaves behind a socket without a listener.
    fs::remove_file(&path).expect("remove file");
    drop(UnixListener::bind(&path).expect("bind a listener"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("set permissions");
    wait_until("the server is down", || {
        server(&proxy, 0)["state"] == "down"
    });
    assert!(reason(0).ends_with("connection refused"), "{}", reason(0));
    let mut client = Client::connect(proxy.listen);
    for _ in 0..4 {
        let (_, body) = client.fetch(GET);
        assert!(body.starts_with(b"two\n"));
    }
}

#[test]
fn request_is_retried_when_a_socket_is_missing() {
    let origin = Origin::start("one");
    let (proxy, sockets) = start_proxy("http");
    let (missing, present) = (sockets.join("missing.sock"), sockets.join("present.sock"));
    relay(&present, origin.address());
    let pool = format!(
        "scheduler = \"rr\"\nmax_ejected = 0\nservers = [\"unix:{}\", \"unix:{}\"]",
        missing.display(),
        present.display()
    );
    proxy.reload(&configuration_with(&proxy, "http", &pool, ""));
    let mut client = Client::connect(proxy.listen);
    for _ in 0..4 {
        let (head, body) = client.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(body.starts_with(b"one\n"));
    }
    assert!(proxy.status()["services"][0]["retries"].as_u64() > Some(0));
    let only_missing = format!("servers = [\"unix:{}\"]", missing.display());
    proxy.reload(&configuration_with(&proxy, "http", &only_missing, ""));
    let (head, _) = client.fetch(GET);
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
}

#[test]
fn inaccessible_socket_error_names_the_daemons_user() {
    if !weir_testing::require_root() {
        return;
    }
    let origin = Origin::start("one");
    let (proxy, sockets) = start_proxy("http");
    let path = sockets.join("private.sock");
    relay(&path, origin.address());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set permissions");
    let pool = format!(
        "servers = [\"unix:{}\"]\ncheck = {{ kind = \"http\", interval = \"100ms\", rise = 1, fall = 1 }}",
        path.display()
    );
    proxy.reload(&configuration_with(&proxy, "http", &pool, ""));
    wait_until("the first check has a result", || {
        server(&proxy, 0)["state"] != "starting"
    });
    let state = server(&proxy, 0);
    // A daemon that runs as root can use every socket.
    if state["state"] == "down" {
        let reason = state["reason"].as_str().unwrap_or_default();
        let expected = "needs write permission for the socket";
        assert!(reason.contains("permission denied: user "), "{reason}");
        assert!(reason.ends_with(expected), "{reason}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("set permissions");
    wait_until("the server is up", || server(&proxy, 0)["state"] == "up");
}

#[test]
fn other_users_cannot_add_sockets() {
    if !weir_testing::require_root() {
        return;
    }
    let origin = Origin::start("one");
    let (proxy, sockets) = start_proxy("http");
    let path = sockets.join("a.sock");
    relay(&path, origin.address());
    let pool_with = |path: &Path| format!("servers = [\"unix:{}\"]", path.display());
    let pool = pool_with(&path);
    proxy.reload(&configuration_with(&proxy, "http", &pool, ""));
    // The control socket accepts commands from the daemon's user, so as a server it would give clients access to the
    // API.
    let run = proxy.directory.join("run");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).expect("set permissions");
    let control_socket = run.join("weir.sock");
    fs::set_permissions(&control_socket, fs::Permissions::from_mode(0o666))
        .expect("set permissions");
    let upload = |text: &str| {
        let body = proxy.directory.join("body");
        fs::write(&body, serde_json::json!({ "text": text }).to_string()).expect("write file");
        run_as_other_user(&format!(
            "curl -sS --max-time 20 -w ' [%{{http_code}}]' --unix-socket {} --data-binary @{} http://weir/v1/reload",
            control_socket.display(),
            body.display()
        ))
    };
    let both = format!(
        "servers = [\"unix:{}\", {{ address = \"unix:{}\" }}]",
        path.display(),
        control_socket.display()
    );
    for pool in [pool_with(&control_socket), both] {
        let response = upload(&configuration_with(&proxy, "http", &pool, ""));
        assert!(
            response.contains("E061") && response.ends_with("[422]"),
            "{response}"
        );
    }
    // A different pool may use a socket that the active configuration already uses.
    let with_second_pool = format!(
        "{pool}\n[pool.q]\n{pool}\n[service.t]\nlisten = [\"{}\"]\nforward = \"proxy\"\nprotocol = \"http\"\n\
         pool = \"q\"",
        super::free_address()
    );
    let response = upload(&configuration_with(&proxy, "http", &with_second_pool, ""));
    assert!(response.ends_with("[200]"), "{response}");
    // Server lists may contain only addresses.
    let list = proxy.directory.join("list");
    fs::write(&list, format!("unix:{}\n", control_socket.display())).expect("write file");
    let with_list = pool + &format!("\nservers_file = {list:?}");
    proxy.reload(&configuration_with(&proxy, "http", &with_list, ""));
    let status = proxy.status();
    let discovery_error = status["sources"][0]["problem"].as_str().unwrap_or_default();
    assert!(
        discovery_error.contains("not a valid IP address"),
        "{status:#}"
    );
    let servers = status["services"][0]["servers"].as_array().map(Vec::len);
    assert_eq!(servers, Some(1));
}

/// nginx with a site on a Unix socket. Dropping it stops nginx.
struct Nginx(Child);

impl Nginx {
    fn start(directory: &Path, socket: &Path, server: &str) -> Self {
        let (directory, socket) = (directory.display(), socket.display());
        let text = format!(
            "daemon off;\nmaster_process off;\nuser root;\npid {directory}/nginx.pid;\n\
             error_log {directory}/error.log;\n\
             events {{ worker_connections 64; }}\nhttp {{\naccess_log off;\nclient_body_temp_path {directory}/body;\n\
             proxy_temp_path {directory}/proxy;\nfastcgi_temp_path {directory}/fastcgi;\nuwsgi_temp_path \
             {directory}/uwsgi;\nscgi_temp_path {directory}/scgi;\nserver {{ listen unix:{socket}{server} }}\n}}\n"
        );
        let file = format!("{directory}/nginx.conf");
        fs::write(&file, text).expect("write file");
        let child = Command::new("nginx")
            .args(["-c", &file])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start nginx (see tools/install-deps.sh)");
        Self(child)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nginx_on_a_socket_is_reached_with_proxy_protocol_and_by_curl() {
    let (proxy, sockets) = start_proxy("http");
    let socket = sockets.join("nginx.sock");
    let _nginx = Nginx::start(
        &sockets,
        &socket,
        " proxy_protocol; location / { return 200 \"$proxy_protocol_addr $host\\n\"; }",
    );
    wait_until("nginx listens", || socket.exists());
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("set permissions");
    let pool = format!(
        "servers = [\"unix:{}\"]\nproxy_protocol = \"v1\"\n[pool.p.check]\nkind = \"http\"\nproxy_protocol = \
         \"v1\"\ninterval = \"100ms\"",
        socket.display()
    );
    proxy.reload(&configuration_with(&proxy, "http", &pool, ""));
    wait_until("the server is up", || server(&proxy, 0)["state"] == "up");
    let output = Command::new("curl")
        .args(["-s", "--max-time", "20"])
        .arg(format!("http://{}/", proxy.listen))
        .output()
        .expect("run curl (see tools/install-deps.sh)");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "127.0.0.1 127.0.0.1\n"
    );
    let reason = server(&proxy, 0)["reason"].clone();
    assert!(
        reason
            .as_str()
            .is_some_and(|text| text.starts_with("http 200")),
        "{reason}"
    );
}
