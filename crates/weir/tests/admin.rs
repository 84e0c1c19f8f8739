//! Tests the API over TCP (`[node] admin`): which clients it accepts, and how it responds.

#[path = "admin/browser.rs"]
mod browser;
#[path = "admin/daemon.rs"]
mod daemon;
#[path = "admin/dashboard.rs"]
mod dashboard;
#[path = "admin/openapi.rs"]
mod openapi;
#[path = "admin/page.rs"]
mod page;
#[path = "admin/page_of_world.rs"]
mod page_of_world;
mod world;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use daemon::AdminDaemon;
use world::{Family, World, privileged};

const SECRET: &str = "TOPSECRET-0123456789abcdef";

#[test]
fn file_path_is_rejected_over_tcp() {
    let daemon = AdminDaemon::start("");
    let secret = daemon.write("secret", &format!("{SECRET}\n"));
    let body = format!("{{\"path\": \"{}\", \"color\": false}}", secret.display());
    for path in ["/v1/plan", "/v1/reload"] {
        let response = daemon.post(path, Some(&daemon.runtime_token()), &body);
        assert!(
            !response.contains(SECRET),
            "{path} shows the file: {response}"
        );
        assert!(response.starts_with("HTTP/1.1 403"), "{response}");
        assert!(response.contains("only on the Unix socket"), "{response}");
    }
    let response = daemon.post(
        "/v1/upgrade",
        Some(&daemon.runtime_token()),
        "{\"program\": \"/bin/true\"}",
    );
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
}

#[test]
fn errors_in_the_active_file_are_located_but_not_quoted() {
    let daemon = AdminDaemon::start("");
    let good = fs::read_to_string(daemon.config()).expect("read the file");
    let bad = format!("{good}\n[pool.q]\nservers = [\"{SECRET}\"]\n{SECRET} = 1\n");
    daemon.write("weir.toml", &bad);
    for path in ["/v1/plan", "/v1/reload"] {
        let response = daemon.post(path, Some(&daemon.runtime_token()), "");
        assert!(response.starts_with("HTTP/1.1 422"), "{response}");
        assert!(
            !response.contains(SECRET),
            "{path} quotes the file: {response}"
        );
        assert!(response.contains("weir.toml:"), "{response}");
    }
    // The owner's `weir reload` receives the whole error.
    let (_, printed) = daemon.weir(&["reload"]);
    assert!(printed.contains(SECRET), "{printed}");
}

#[test]
fn submitted_text_is_planned_applied_and_quoted() {
    let daemon = AdminDaemon::start("");
    let token = daemon.runtime_token();
    let good = fs::read_to_string(daemon.config()).expect("read the file");
    let body = |text: &str| serde_json::json!({ "text": text }).to_string();
    let more = format!("{good}\n[pool.more]\nservers = [\"127.0.0.9:1\"]\n");
    let planned = daemon.post("/v1/plan", Some(&token), &body(&more));
    assert!(planned.starts_with("HTTP/1.1 200"), "{planned}");
    assert!(planned.contains("pool more"), "{planned}");
    let applied = daemon.post("/v1/reload", Some(&token), &body(&more));
    assert!(applied.starts_with("HTTP/1.1 200"), "{applied}");
    // The file has not changed, so a reload would activate it again.
    let (_, printed) = daemon.weir(&["plan"]);
    assert!(printed.contains("- pool more"), "{printed}");
    let json = serde_json::json!({
        "node": { "admin": daemon.admin.to_string() },
        "pool": { "j": { "servers": ["127.0.0.9:1"] } },
    });
    let json = daemon.post("/v1/plan", Some(&token), &body(&json.to_string()));
    assert!(json.contains("pool j"), "{json}");
    let broken = daemon.post("/v1/reload", Some(&token), &body("[nod]\n"));
    assert!(broken.starts_with("HTTP/1.1 422"), "{broken}");
    assert!(
        broken.contains("text:1:") && broken.contains("[nod]"),
        "{broken}"
    );
    let ambiguous = serde_json::json!({ "text": "", "path": "/x" }).to_string();
    let ambiguous = daemon.post("/v1/plan", Some(&token), &ambiguous);
    assert!(ambiguous.starts_with("HTTP/1.1 400"), "{ambiguous}");
}

#[test]
fn submitted_text_cannot_add_files_or_programs() {
    let daemon = AdminDaemon::start("");
    let token = daemon.runtime_token();
    let good = fs::read_to_string(daemon.config()).expect("read the file");
    let target = daemon.directory.join("made");
    let target = target.display();
    for more in [
        format!("access_log = \"{target}\""),
        format!("error_pages = [{{ status = 503, file = \"{target}\" }}]"),
        format!("[pool.q]\nservers_file = \"{target}\""),
        format!(
            "[pool.q]\nservers = [\"127.0.0.1:2\"]\ncheck = {{ kind = \"script\", command = [\"/bin/touch\", \
             \"{target}\"], user = \"root\" }}"
        ),
    ] {
        let body = serde_json::json!({ "text": format!("{good}\n{more}\n") }).to_string();
        for path in ["/v1/plan", "/v1/reload"] {
            let response = daemon.post(path, Some(&token), &body);
            assert!(response.starts_with("HTTP/1.1 422"), "{more}: {response}");
            assert!(response.contains("E061"), "{response}");
        }
    }
    assert!(!daemon.directory.join("made").exists());
    let body = serde_json::json!({ "text": good }).to_string();
    let unchanged = daemon.post("/v1/reload", Some(&token), &body);
    assert!(unchanged.starts_with("HTTP/1.1 200"), "{unchanged}");
}

#[test]
fn foreign_host_or_origin_is_rejected() {
    let plain = AdminDaemon::start("");
    let evil = plain
        .send_raw("GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert!(evil.starts_with("HTTP/1.1 421"), "{evil}");
    drop(plain);
    let daemon = AdminDaemon::start("hosts = [\"lb1.example\"]\n");
    let port = daemon.admin.port();
    let status = |fields: &str| {
        let request = format!("GET /v1/status HTTP/1.1\r\nConnection: close\r\n{fields}\r\n");
        daemon.send_raw(&request)
    };
    let evil = status(&format!("Host: evil.example:{port}\r\n"));
    assert!(evil.starts_with("HTTP/1.1 421"), "{evil}");
    for host in ["127.0.0.1", "localhost", "LOCALHOST", "lb1.example"] {
        let good = status(&format!("Host: {host}:{port}\r\n"));
        assert!(good.starts_with("HTTP/1.1 200"), "{host}: {good}");
    }
    let host = format!("Host: localhost:{port}\r\n");
    let same_origin = status(&format!("{host}Origin: http://localhost:{port}\r\n"));
    assert!(same_origin.starts_with("HTTP/1.1 200"), "{same_origin}");
    for origin in ["http://evil.example", "null", "http://localhost"] {
        let other = status(&format!("{host}Origin: {origin}\r\n"));
        assert!(other.starts_with("HTTP/1.1 403"), "{origin}: {other}");
    }
    let absolute =
        format!("GET http://evil.example/v1/status HTTP/1.1\r\nConnection: close\r\n{host}\r\n");
    let absolute = daemon.send_raw(&absolute);
    assert!(absolute.starts_with("HTTP/1.1 421"), "{absolute}");
    let metrics = daemon.get("/metrics", None);
    let counter = "weir_admin_refused_total{reason=\"host\"} 2";
    assert!(metrics.contains(counter), "{metrics}");
}

/// Opens a connection from each address, sends `request` on it and keeps it open. Requests the metrics while the
/// connections are open, and returns the response.
fn metrics_during(
    daemon: &AdminDaemon,
    last_bytes: impl Iterator<Item = u8>,
    request: &str,
) -> String {
    let mut streams = Vec::new();
    for last in last_bytes {
        let mut stream = daemon::connect_from(last, daemon.admin);
        // The daemon may have closed the connection to make room for another one.
        let _ = stream.write_all(request.as_bytes());
        streams.push(stream);
    }
    let response = daemon.get("/metrics", None);
    drop(streams);
    response
}

#[test]
fn silent_clients_do_not_block_others() {
    let daemon = AdminDaemon::start("");
    let host = format!("Host: {}\r\n", daemon.admin);
    let silent = "";
    let incomplete = format!("GET /metrics HTTP/1.1\r\n{host}");
    let body = format!("POST /v1/explain HTTP/1.1\r\n{host}Content-Length: 900\r\n\r\n{{");
    let unread = format!("GET /metrics HTTP/1.1\r\n{host}\r\n");
    for request in [silent, &incomplete, &body, &unread] {
        let response = metrics_during(&daemon, (0..200).map(|_| 1), request);
        assert!(
            response.starts_with("HTTP/1.1 200"),
            "200 connections from one address, {request:?}: {response}"
        );
        let response = metrics_during(&daemon, (0..200).map(|n| 2 + n % 40), request);
        assert!(
            response.starts_with("HTTP/1.1 200"),
            "200 connections from forty addresses, {request:?}: {response}"
        );
    }
}

#[test]
fn endpoints_require_their_role() {
    let daemon = AdminDaemon::start("tokens = TOKENS\nread_requires_token = true\n");
    let token = |role: &str| daemon.token(role, role);
    let tokens = [token("read"), token("operate"), token("write")];
    let (reloaded, printed) = daemon.weir(&["reload"]);
    assert!(reloaded, "{printed}");
    let routes = [
        ("GET", "/v1/status", 0),
        ("GET", "/metrics", 0),
        ("GET", "/v1/caller", 0),
        ("GET", "/no/such/thing", 0),
        ("POST", "/v1/explain", 0),
        ("POST", "/v1/servers/p/127.0.0.1:1", 1),
        ("PUT", "/v1/servers/p/127.0.0.1:1", 2),
        ("DELETE", "/v1/servers/p/127.0.0.1:1", 2),
        ("POST", "/v1/plan", 2),
        ("POST", "/v1/reload", 2),
        ("POST", "/v1/ipvsadm", 2),
        ("POST", "/v1/upgrade", 2),
        ("POST", "/no/such/thing", 2),
    ];
    for (method, path, required_role) in routes {
        let code = |token: Option<&str>| daemon.fetch(method, path, token, "{}").code();
        assert_eq!(code(None), 401, "{method} {path} without a token");
        assert_eq!(
            code(Some("0123456789abcdef0123456789abcdef")),
            401,
            "{method} {path} with a wrong token"
        );
        assert_eq!(code(Some("")), 401, "{method} {path} with an empty token");
        for (role, token) in tokens.iter().enumerate() {
            let response = daemon.fetch(method, path, Some(token), "{}");
            if role < required_role {
                assert_eq!(response.code(), 403, "{method} {path} with role {role}");
                assert!(response.0.contains("insufficient_scope"), "{}", response.0);
            } else if path == "/v1/upgrade" {
                assert!(
                    response.0.contains("only on the Unix socket"),
                    "{}",
                    response.0
                );
            } else {
                let code = response.code();
                assert!(
                    code != 401 && code != 403,
                    "{method} {path} with role {role}: {}",
                    response.0
                );
            }
        }
    }
    let log = daemon.log();
    for token in &tokens {
        assert!(!log.contains(token.as_str()), "a token is in the log");
    }
    let refusals = log
        .matches("rejected a client of the admin listener")
        .count();
    assert!(
        (1..10).contains(&refusals),
        "{refusals} lines about rejected clients: {log}"
    );
}

#[test]
fn removed_token_is_rejected_after_reload() {
    let daemon = AdminDaemon::start("tokens = TOKENS\n");
    let token = daemon.token("deploy", "write");
    let code = || daemon.fetch("POST", "/v1/plan", Some(&token), "").code();
    assert_eq!(code(), 401, "before the reload");
    assert!(daemon.weir(&["reload"]).0);
    assert_eq!(code(), 200);
    daemon.write("tokens", "# none\n");
    assert!(daemon.weir(&["reload"]).0);
    assert_eq!(code(), 401);
    // The daemon rejects a file that other users may write, and the active tokens do not change.
    let tokens = daemon.directory.join("tokens");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o660)).expect("set the file mode");
    let (reloaded, printed) = daemon.weir(&["reload"]);
    assert!(!reloaded && printed.contains("chmod 0600"), "{printed}");
}

#[test]
fn non_loopback_listener_requires_tls() {
    let daemon = AdminDaemon::start("");
    for address in ["0.0.0.0:9900", "[::]:9900", "192.0.2.1:9900"] {
        for text in [
            format!("[node]\nadmin = \"{address}\"\n"),
            format!("[node]\nadmin = {{ listen = \"{address}\" }}\n"),
        ] {
            let path = daemon.write("wide.toml", &text);
            let path = path.to_str().expect("path is not UTF-8");
            let (checked, printed) = daemon.weir(&["check", "-c", path]);
            assert!(!checked, "{address} without TLS is accepted: {printed}");
            assert!(
                printed.contains("wide.toml:2:") && printed.contains("needs `tls`"),
                "{printed}"
            );
            let (ran, printed) = daemon.weir(&["run", "-c", path]);
            assert!(!ran && printed.contains("wide.toml:2:"), "{printed}");
        }
    }
}

/// A program of another user, such as a member of `socket_group`, uses the Unix socket.
#[test]
fn socket_rejects_file_paths_from_other_users() {
    if !privileged() {
        return;
    }
    let daemon = AdminDaemon::start("");
    for (path, mode) in [("", 0o755), ("run", 0o755), ("run/weir.sock", 0o666)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(daemon.directory.join(path), mode).expect("set the file mode");
    }
    let secret = daemon.write("secret", &format!("{SECRET}\n"));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set the file mode");
    let as_other_user = |arguments: &[&str]| {
        let program = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(env!("CARGO_BIN_EXE_weir"))
            .args(arguments)
            .env("WEIR_RUNTIME_DIR", daemon.directory.join("run"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .expect("run setpriv");
        let text = [program.stdout, program.stderr].concat();
        (
            program.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let path = secret.to_str().expect("path is not UTF-8");
    for command in ["plan", "reload"] {
        let (succeeded, printed) = as_other_user(&[command, "-c", path]);
        assert!(
            !printed.contains(SECRET),
            "{command} shows the file: {printed}"
        );
        assert!(
            !succeeded && printed.contains("only on the Unix socket, by root"),
            "{printed}"
        );
    }
    let (succeeded, printed) = as_other_user(&["upgrade", "/bin/true"]);
    assert!(
        !succeeded && printed.contains("only on the Unix socket, by root"),
        "{printed}"
    );
    let (succeeded, printed) = as_other_user(&["plan"]);
    assert!(succeeded && printed.contains("no changes"), "{printed}");
    let good = fs::read_to_string(daemon.config()).expect("read the file");
    daemon.write("weir.toml", &format!("{good}\n{SECRET} = 1\n"));
    let (succeeded, printed) = as_other_user(&["reload"]);
    assert!(
        !succeeded && printed.contains("weir.toml:") && !printed.contains(SECRET),
        "{printed}"
    );
}

#[test]
fn remote_client_uses_tls_and_token() {
    if !privileged() {
        return;
    }
    let mut world = World::new(0);
    let address = SocketAddr::new(Family::V4.director(), 9900);
    let authority = daemon::Authority::new(&world.path("tls"));
    let certificate = authority.sign("admin", "IP:10.71.0.3");
    let tokens = world.path("tokens");
    let tokens = tokens.to_str().expect("path is not UTF-8");
    let add =
        |name, role| world.run_weir(&["token", "add", name, "--role", role, "--file", tokens]);
    let (reader, writer) = (add("prometheus", "read"), add("deploy", "write"));
    let config = format!(
        "[node]\nadmin = {{ listen = \"{address}\", tls = {{ certificates = \"{certificate}\" }}, tokens = \
         \"{tokens}\", \
         hosts = [\"lb1.example\"] }}\n"
    );
    world.start_daemon(&config);
    let curl = |arguments: &str, token: Option<&str>| {
        let mut command = world.command("client", "curl");
        command.args(["-sS", "--max-time", "20", "--cacert", &authority.ca()]);
        if let Some(token) = token {
            command.args(["-H", &format!("Authorization: Bearer {}", token.trim())]);
        }
        command.args(arguments.split(' '));
        command.args(["-w", " code=%{http_code}"]);
        let output = command.output().expect("run curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let url = format!("https://{address}");
    let anonymous = curl(&format!("{url}/v1/status"), None);
    assert!(anonymous.ends_with("code=401"), "{anonymous}");
    let runtime_token =
        fs::read_to_string(world.path("run-director").join("token")).expect("read the token");
    let response = curl(&format!("{url}/v1/status"), Some(&runtime_token));
    assert!(
        response.ends_with("code=401"),
        "the runtime directory's token must be accepted on loopback only: {response}"
    );
    let status = curl(&format!("{url}/v1/status"), Some(&reader));
    assert!(status.ends_with("code=200"), "{status}");
    let plan = curl(&format!("-X POST {url}/v1/plan"), Some(&reader));
    assert!(plan.ends_with("code=403"), "{plan}");
    let plan = curl(&format!("-X POST {url}/v1/plan"), Some(&writer));
    assert!(plan.ends_with("code=200"), "{plan}");
    let plain = curl(&format!("http://{address}/metrics"), Some(&reader));
    assert!(plain.ends_with("code=000"), "{plain}");
    let old = curl(&format!("--tls-max 1.1 {url}/metrics"), Some(&reader));
    assert!(old.ends_with("code=000"), "{old}");
    // A reload activates a new certificate.
    authority.sign("admin", "DNS:lb1.example");
    world.run_weir(&["reload"]);
    let renewed = format!(
        "--resolve lb1.example:9900:{} https://lb1.example:9900/metrics",
        address.ip()
    );
    let renewed = curl(&renewed, Some(&reader));
    assert!(renewed.ends_with("code=200"), "{renewed}");
    let certificates = world.status()["admin_certificates"].clone();
    assert_eq!(
        (&certificates[0]["file"], &certificates[0]["name"]),
        (&certificate.as_str().into(), &"lb1.example".into()),
        "{certificates:#}"
    );
    let series = format!(
        "\nweir_certificate_not_after_timestamp_seconds{{service=\"[node] \
         admin\",certificate=\"{certificate}\"}} {}\n",
        certificates[0]["not_after_s"]
    );
    assert!(renewed.contains(&series), "{series}: {renewed}");
}

/// The response exceeds the socket buffers, and the clients read nothing.
#[test]
fn clients_that_do_not_read_do_not_delay_others() {
    let servers: Vec<String> = (0..1000u32)
        .map(|n| format!("\"{}:1\"", std::net::Ipv4Addr::from(0x7f10_0000 + n)))
        .collect();
    let daemon = AdminDaemon::start_with("", &servers.join(", "));
    let request = format!("GET /v1/status HTTP/1.1\r\nHost: {}\r\n\r\n", daemon.admin);
    let response = metrics_during(&daemon, (0..80).map(|n| 2 + n % 40), &request);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}
