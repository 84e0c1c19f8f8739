//! Tests access logs of HTTP services, request identifiers, `weir tap`, and the levels of the event log.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::keeper::wait_until;
use super::tls::{self, Authority};
use super::{Client, GET, Origin, PROGRAM, Proxy, configuration};

/// Starts a daemon whose service has this `access_log` and these additional lines. Replaces `FILE` with the path of the
/// log. Returns the daemon and that path.
fn start_proxy(origin: &Origin, log: &str, extra: &str) -> (Proxy, PathBuf) {
    let daemon = Proxy::start("http", &[origin.address()], "");
    let file = daemon.directory.join("access.log");
    let log = log.replace("FILE", file.to_str().expect("not UTF-8"));
    let extra = format!("access_log = {log}\n{extra}");
    daemon.reload(&configuration(
        daemon.listen,
        "http",
        &[origin.address()],
        &extra,
    ));
    (daemon, file)
}

/// Waits until the log has at least this number of lines. Returns all lines.
pub(super) fn read_lines(file: &Path, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(file).unwrap_or_default();
    wait_until("the log has enough lines", || {
        read().lines().count() >= count
    });
    read().lines().map(str::to_owned).collect()
}

#[test]
fn format_logs_fields_and_escapes_control_characters() {
    let origin = Origin::start("o");
    let log = r#"{ path = "FILE", format = "FIELDS" }"#;
    let fields = "{method} {path} {query} {header.X-A} {cookie.u} {response.content-length} {scheme} {tls_cipher}.";
    let log = &log.replace("FIELDS", fields);
    let (proxy, file) = start_proxy(&origin, log, "");
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client
        .fetch("GET /a/./b?c=d HTTP/1.1\r\nHost: h\r\nX-A: \"x\\ny\"\tz\r\nCookie: u=v\r\n\r\n");
    let lines = read_lines(&file, 1);
    let length = body.len();
    let expected = format!(r"GET /a/b c=d \x22x\x5Cny\x22\x09z v {length} http .");
    assert_eq!(lines, [expected]);
}

#[test]
fn request_id_is_generated_accepted_from_trusted_clients_forwarded_and_logged() {
    let origin = Origin::start("o");
    let log = r#"{ path = "FILE", format = "{request_id}" }"#;
    let key = "request_id = \"X-Request-Id\"\nset_response_header = [\"X-Id: {request_id}\"]\n";
    let (proxy, file) = start_proxy(&origin, log, key);
    let mut client = Client::connect(proxy.listen);
    let request = "GET / HTTP/1.1\r\nHost: h\r\nx-request-id: from-client\r\n\r\n";
    let (head, body) = client.fetch(request);
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    let id = read_lines(&file, 1).remove(0);
    assert_eq!(id.len(), 32, "{id}");
    assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert!(
        forwarded.contains(&format!("X-Request-Id: {id}\r\n")),
        "{forwarded}"
    );
    assert!(head.contains(&format!("X-Id: {id}\r\n")), "{head}");
    assert!(!forwarded.contains("from-client"), "{forwarded}");

    let log = format!(
        "access_log = {{ path = \"{}\", format = \"{{request_id}}\" }}\ntrusted = [\"127.0.0.0/8\"]\n{key}",
        file.display()
    );
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        &log,
    ));
    let (_, body) = client.fetch(request);
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    assert!(
        forwarded.contains("X-Request-Id: from-client\r\n"),
        "{forwarded}"
    );
    assert_eq!(read_lines(&file, 2)[1], "from-client");
    client.fetch(&request.replace("from-client", &"x".repeat(65)));
    assert_eq!(
        read_lines(&file, 3)[2].len(),
        32,
        "an identifier that is too long must be replaced"
    );
}

#[test]
fn json_line_has_the_identifier_and_the_route() {
    let origin = Origin::start("o");
    let (proxy, file) = start_proxy(&origin, r#"{ path = "FILE", format = "json" }"#, "");
    Client::connect(proxy.listen).fetch(GET);
    let line = read_lines(&file, 1).remove(0);
    let line: serde_json::Value = serde_json::from_str(&line).expect("parse JSON");
    assert_eq!(
        line["request_id"].as_str().map(str::len),
        Some(32),
        "{line}"
    );
    assert_eq!(
        (&line["scheme"], &line["route"]),
        (&"http".into(), &"".into())
    );
}

#[test]
fn lines_are_sent_to_syslog_and_the_journal() {
    let origin = Origin::start("o");
    let directory = std::env::temp_dir().join(format!("weir-syslog-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("create directory");
    let path = directory.join("log.sock");
    let socket = UnixDatagram::bind(&path).expect("bind a socket");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set read timeout");
    let receive = || {
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).expect("receive a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let socket_path = path.display();
    let log = format!(r#"{{ path = "syslog:{socket_path}", format = "{{method}} {{status}}" }}"#);
    let (proxy, _) = start_proxy(&origin, &log, "");
    let mut client = Client::connect(proxy.listen);
    client.fetch(GET);
    let message = receive();
    assert!(message.starts_with("<134>weir["), "{message}");
    assert!(message.ends_with("]: GET 200"), "{message}");
    for (log, prefix, suffix) in [
        (
            format!(
                r#"{{ path = "syslog:{socket_path}", syslog_format = "rfc5424", format = "{{method}}" }}"#
            ),
            "<134>1 2",
            " access - GET",
        ),
        (
            format!(r#"{{ path = "journald:{socket_path}", format = "{{method}}" }}"#),
            "PRIORITY=6\n",
            "\nWEIR_SERVICE=s\nMESSAGE=GET\n",
        ),
    ] {
        let extra = format!("access_log = {log}\n");
        proxy.reload(&configuration(
            proxy.listen,
            "http",
            &[origin.address()],
            &extra,
        ));
        client.fetch(GET);
        let message = receive();
        assert!(message.starts_with(prefix), "{message}");
        assert!(message.ends_with(suffix), "{message}");
    }
    let _ = fs::remove_dir_all(directory);
}

#[test]
fn lines_are_counted_as_dropped_and_requests_succeed_without_syslog_daemon() {
    let origin = Origin::start("o");
    let (proxy, file) = start_proxy(&origin, r#""syslog:FILE""#, "");
    let mut client = Client::connect(proxy.listen);
    (0..3).for_each(|_| drop(client.fetch(GET)));
    wait_until("the dropped lines are counted", || {
        proxy.status()["services"][0]["log_dropped"].as_u64() == Some(3)
    });
    let socket = UnixDatagram::bind(&file).expect("bind a socket");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set read timeout");
    client.fetch(GET);
    assert!(
        socket.recv(&mut [0; 2048]).is_ok(),
        "a syslog daemon that starts later must receive lines"
    );
}

#[test]
fn renamed_log_file_is_recreated_and_daemon_survives_sigusr1() {
    let origin = Origin::start("o");
    let (proxy, file) = start_proxy(&origin, r#"{ path = "FILE", format = "{target}" }"#, "");
    let mut client = Client::connect(proxy.listen);
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.fetch(&get("/1"));
    assert_eq!(read_lines(&file, 1), ["/1"]);
    let old = file.with_extension("1");
    fs::rename(&file, &old).expect("rename file");
    client.fetch(&get("/2"));
    assert_eq!(read_lines(&file, 1), ["/2"]);
    assert_eq!(read_lines(&old, 1), ["/1"]);
    let pid = Pid::from_child(&proxy.child);
    kill_process(pid, Signal::USR1).expect("send signal");
    client.fetch(&get("/3"));
    assert_eq!(
        read_lines(&file, 2),
        ["/2", "/3"],
        "the daemon must survive the signal"
    );
}

#[test]
fn sampling_logs_every_failure() {
    let origin = Origin::start("o");
    let log = r#"{ path = "FILE", format = "{status}", sample = 1000 }"#;
    let (proxy, file) = start_proxy(&origin, log, "");
    let mut client = Client::connect(proxy.listen);
    (0..50).for_each(|_| drop(client.fetch(GET)));
    drop(client);
    for _ in 0..5 {
        Client::connect(proxy.listen).fetch("nonsense\r\n\r\n");
    }
    let is_failure = |line: &&String| line.as_str() == "400";
    wait_until("all failures are logged", || {
        fs::read_to_string(&file)
            .unwrap_or_default()
            .matches("400")
            .count()
            == 5
    });
    let lines = read_lines(&file, 5);
    let normal = lines.iter().filter(|line| !is_failure(line)).count();
    // Each worker logs its own first request, and one worker serves all requests of the client.
    assert!(normal <= 1, "{lines:?}");
}

#[test]
fn tap_without_service_lists_the_services() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut command = Command::new(PROGRAM);
    Proxy::set_directories(&mut command, &proxy.directory);
    let output = command.arg("tap").output().expect("run weir");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "weir: no SERVICE is specified; proxy services: s\n");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn tap_shows_matching_requests_while_it_runs() {
    let origin = Origin::start("o");
    // The variables of the access log's format are not those of the tap.
    let log = "access_log = { path = \"-\", format = \"{header.x} {query}\" }";
    let proxy = Proxy::start("http", &[origin.address()], log);
    let mut command = Command::new(PROGRAM);
    Proxy::set_directories(&mut command, &proxy.directory);
    command.args([
        "tap",
        "s",
        "--json",
        "--match",
        "target=/wanted*",
        "--match",
        "status=200",
    ]);
    let mut tap = command.stdout(Stdio::piped()).spawn().expect("start weir");
    let mut reader = BufReader::new(tap.stdout.take().expect("not piped"));
    let mut client = Client::connect(proxy.listen);
    // The tap might not be active yet for the first requests.
    let load = std::thread::spawn(move || {
        for number in 0..600 {
            client.fetch("GET /other HTTP/1.1\r\nHost: h\r\n\r\n");
            client.fetch(&format!(
                "GET /wanted/{number} HTTP/1.1\r\nHost: h\r\nX: 1\r\n\r\n"
            ));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    for number in 0..4 {
        let mut line = String::new();
        reader.read_line(&mut line).expect("read a line");
        let line: serde_json::Value = serde_json::from_str(&line).expect("parse JSON");
        let target = line["target"].as_str().expect("no target");
        assert!(target.starts_with("/wanted/"), "{line}");
        assert_eq!(
            (&line["service"], &line["status"]),
            (&"s".into(), &200.into())
        );
        // The first request may have begun before the tap was active.
        if number > 0 {
            let id = line["request_id"].as_str().expect("no identifier");
            assert_eq!((id.len(), &line["scheme"]), (32, &"http".into()), "{line}");
        }
    }
    tap.kill().expect("send signal");
    tap.wait().expect("wait for the process");
    drop(load);
    let (succeeded, output) = proxy.weir(&["tap", "nothing"]);
    assert!(
        !succeeded && output.contains("nothing: proxy service not found; proxy services: s"),
        "{output}"
    );
    let (succeeded, output) = proxy.weir(&["tap", "s", "--match", "sttus=200"]);
    assert!(
        !succeeded && output.contains("unknown variable `sttus`"),
        "{output}"
    );
}

/// Nothing else in the configuration uses the TLS properties.
#[test]
fn tap_shows_tls_properties() {
    let authority = Authority::new("tap");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let mut command = Command::new(PROGRAM);
    Proxy::set_directories(&mut command, &proxy.directory);
    command.args(["tap", "s", "--json"]);
    let mut tap = command.stdout(Stdio::piped()).spawn().expect("start weir");
    let output = tap.stdout.take().expect("not piped");
    let (config, listen) = (authority.client(None), proxy.listen);
    let is_over = Arc::new(AtomicBool::new(false));
    // The tap might not be active yet for the first requests.
    let load = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                let mut stream = tls::connect(&config, listen, "a.example");
                tls::fetch(&mut stream, GET).expect("fetch");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    is_over.store(true, Ordering::Relaxed);
    tap.kill().expect("send signal");
    tap.wait().expect("wait for the process");
    load.join().expect("load thread panicked");
    read.expect("read a line");
    let line: serde_json::Value = serde_json::from_str(&line).expect("parse JSON");
    let cipher = line["tls_cipher"].as_str().expect("no cipher");
    assert!(cipher.starts_with("TLS13_"), "{line}");
    assert_eq!(
        (&line["scheme"], &line["tls_version"], &line["tls_sni"]),
        (&"https".into(), &"1.3".into(), &"a.example".into())
    );
}

#[test]
fn log_levels_change_at_run_time() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    assert_eq!(proxy.weir(&["log"]), (true, "info\n".to_owned()));
    let underscore = "GET / HTTP/1.1\r\nHost: h\r\na_b: 1\r\n\r\n";
    let line = "dropped header fields with underscores";
    let mut client = Client::connect(proxy.listen);
    client.fetch(underscore);
    assert!(!proxy.log().contains(line));
    let (succeeded, output) = proxy.weir(&["log", "info,weir_proxy=debug"]);
    assert_eq!(
        (succeeded, output.as_str()),
        (true, "info,weir_proxy=debug\n")
    );
    client.fetch(underscore);
    wait_until("the debug line is logged", || proxy.log().contains(line));
    let (succeeded, output) = proxy.weir(&["log", "off"]);
    assert!(succeeded, "{output}");
    let before = proxy.log();
    client.fetch(underscore);
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        "",
    ));
    assert_eq!(proxy.log(), before, "expected no line with the level off");
    let (succeeded, output) = proxy.weir(&["log", "loud"]);
    assert!(
        !succeeded && output.contains("unknown level `loud`"),
        "{output}"
    );
}

#[test]
fn tls_handshakes_are_counted_and_their_cipher_is_logged() {
    let authority = Authority::new("cipher");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let log = r#"{ path = "FILE", format = "{tls_version} {tls_cipher} {tls_sni}" }"#;
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let (proxy, file) = start_proxy(&origin, log, &tls);
    let config = authority.client(None);
    for _ in 0..2 {
        // The response arrives after the session tickets, so the second handshake resumes the session.
        let mut stream = tls::connect(&config, proxy.listen, "a.example");
        tls::fetch(&mut stream, GET).expect("fetch");
    }
    let mut other_client = tls::connect(&config, proxy.listen, "other.example");
    tls::fetch(&mut other_client, GET).expect_err("certificate for another name was accepted");
    let count = |name: &str| proxy.status()["services"][0][name].as_u64();
    wait_until("the failed handshake is counted", || {
        count("tls_failures") == Some(1)
    });
    assert_eq!(
        (count("tls_handshakes"), count("tls_resumed")),
        (Some(2), Some(1))
    );
    for line in read_lines(&file, 2) {
        assert!(
            line.starts_with("1.3 TLS13_") && line.ends_with(" a.example"),
            "{line}"
        );
    }
}
