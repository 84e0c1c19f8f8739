//! Tests health checks against real servers (nginx, redis, dnsmasq) and against hostile servers.

mod world;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use world::{Family, World, checks, privileged, wait_for};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the state, effective weight and reason of a pool's server.
fn check_result(world: &World, name: &str) -> (String, u64, String) {
    let server = checks::server(world, name);
    let text = |key: &str| server[key].as_str().unwrap_or_default().to_owned();
    let weight = server["effective_weight"]
        .as_u64()
        .expect("weight is not a number");
    (text("state"), weight, text("reason"))
}

fn wait_for_each(world: &World, expected: &[(&str, &str, u64, &str)]) {
    for (name, state, weight, reason) in expected {
        let mut last = String::new();
        let expectation =
            format!("expected {name} to be {state} with weight {weight} and reason {reason}");
        let deadline = std::time::Instant::now() + TIMEOUT;
        loop {
            let (found_state, found_weight, found_reason) = check_result(world, name);
            if found_state == *state && found_weight == *weight && found_reason.contains(reason) {
                break;
            }
            last.clear();
            last += &format!("{found_state} {found_weight} {found_reason}");
            assert!(
                std::time::Instant::now() < deadline,
                "{expectation}, not {last}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Starts a TCP server on server 0 that calls `handle` with each client.
fn start_tcp_server(world: &World, port: u16, handle: fn(TcpStream)) {
    world
        .spawn_on("server0", move || {
            let listener = TcpListener::bind(("0.0.0.0", port)).expect("bind a listener");
            std::thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    std::thread::spawn(move || handle(client));
                }
            });
        })
        .join()
        .expect("thread panicked");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn probes_of_real_servers_report_expected_results() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let spawn_quietly = |command: &mut std::process::Command| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start the process")
    };
    let redis = spawn_quietly(world.command("server0", "redis-server").args([
        "--port",
        "6379",
        "--save",
        "",
        "--protected-mode",
        "no",
        "--dir",
        "/tmp",
    ]));
    let dns = spawn_quietly(world.command("server0", "dnsmasq").args([
        "-k",
        "-p",
        "53",
        "--no-resolv",
        "--no-hosts",
        "--user=root",
        "--pid-file=",
        "--address=/www.example/10.9.8.7",
    ]));
    world.kill_on_drop(redis);
    world.kill_on_drop(dns);
    world.start_udp_echo(7000, |n| Family::V4.server(n));
    let weight = world.path("weight");
    std::fs::write(&weight, "42\n").expect("write the file");
    let checks = [
        ("tcp", "kind = \"tcp\"\nport = 80".to_owned()),
        ("http", "kind = \"http\"\nport = 80\npath = \"/name\"\nexpect = { body = \"server0\" }".to_owned()),
        ("redis", "kind = \"redis\"\nport = 6379".to_owned()),
        (
            "primary",
            r#"kind = "tcp"
port = 6379
exchange = [
    { send = "PING\r\n", expect = "+PONG" },
    { send = "INFO replication\r\n", expect = "role:master" },
    { send = "QUIT\r\n", regex = '^\+OK' },
]"#
            .to_owned(),
        ),
        (
            "replica",
            r#"kind = "tcp"
port = 6379
exchange = [{ send = "INFO replication\r\n", expect = "role:slave" }]"#
                .to_owned(),
        ),
        ("dns", "kind = \"dns\"\nport = 53\nquery = \"www.example\"\nexpect = { answer = \"10.9.8.7\" }".to_owned()),
        ("wrong", "kind = \"dns\"\nport = 53\nquery = \"www.example\"\nexpect = { answer = \"10.9.8.8\" }".to_owned()),
        ("udp", "kind = \"udp\"\nport = 7000\npayload = \"61 62\"\nexpect = { bytes = \"30 xx 62\" }".to_owned()),
        ("ping", "kind = \"ping\"".to_owned()),
        ("script", "kind = \"script\"\ncommand = [\"/bin/sh\", \"-c\", \"test -n $WEIR_ADDRESS && exit 12\"]\ndynamic \
         = true".to_owned()),
        ("slow", "kind = \"script\"\ncommand = [\"/bin/sleep\", \"60\"]".to_owned()),
        ("absent", "kind = \"script\"\ncommand = [\"/opt/absent/check\"]".to_owned()),
        ("file", format!("kind = \"file\"\nfile = \"{}\"", weight.display())),
    ];
    world.start_daemon(&checks::config(&checks, "500ms"));
    wait_for_each(
        &world,
        &[
            ("tcp", "up", 100, "tcp connected"),
            ("http", "up", 100, "http 200"),
            ("redis", "up", 100, "redis PONG"),
            ("primary", "up", 100, "tcp exchange completed"),
            ("replica", "down", 0, "no response within 500ms"),
            ("dns", "up", 100, "dns 10.9.8.7"),
            ("wrong", "down", 0, "10.9.8.8 is not in the response"),
            ("udp", "up", 100, "udp 3 bytes"),
            ("ping", "up", 100, "ping"),
            ("script", "up", 10, "exit code 12"),
            ("slow", "down", 0, "no response within 500ms"),
            (
                "absent",
                "down",
                0,
                "/opt/absent/check: No such file or directory",
            ),
            ("file", "up", 42, "file contains 42"),
        ],
    );
    std::fs::write(&weight, "7\n").expect("write the file");
    wait_for_each(&world, &[("file", "up", 7, "file contains 7")]);
    std::fs::remove_file(&weight).expect("remove the file");
    wait_for_each(&world, &[("file", "down", 0, "No such file")]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn probes_of_hostile_servers_fail_without_delaying_others() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    start_tcp_server(&world, 81, |client| {
        std::thread::sleep(Duration::from_secs(30));
        drop(client);
    });
    start_tcp_server(&world, 82, |mut client| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nServer: half");
    });
    start_tcp_server(&world, 83, |mut client| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\n");
        while client.write_all(&[b'x'; 4096]).is_ok() {}
    });
    start_tcp_server(&world, 84, |mut client| {
        let _ = client.write_all(&[0xff; 64]);
        let _ = client.read(&mut [0; 64]);
    });
    start_tcp_server(&world, 85, |mut client| {
        for byte in b"HTTP/1.1 200 OK\r\n\r\n".iter().cycle() {
            if client.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    start_tcp_server(&world, 86, |mut client| {
        let _ = client.write_all(b"up 50%\n");
    });
    start_tcp_server(&world, 87, |mut client| {
        let _ = client.write_all(b"220 ready\r\n");
        let mut buffer = [0; 64];
        while client.read(&mut buffer).is_ok_and(|length| length > 0) {
            let _ = client.write_all(b"250 hello\r\n");
        }
    });
    let http = |port: u16| format!("kind = \"http\"\nport = {port}");
    let check = |kind: &str, port: u16| format!("kind = \"{kind}\"\nport = {port}");
    let checks = [
        ("refused", http(9)),
        ("silent", http(81)),
        ("half", http(82)),
        ("endless", http(83)),
        ("garbage", http(84)),
        ("drip", http(85)),
        ("agent", check("agent", 86)),
        ("smtp", check("smtp", 87)),
        ("redis", check("redis", 84)),
        ("mysql", check("mysql", 84)),
        ("postgres", check("postgres", 84)),
        ("closed", check("udp", 9) + "\npayload = \"00\""),
    ];
    world.start_daemon(&checks::config(&checks, "500ms"));
    wait_for_each(
        &world,
        &[
            ("refused", "down", 0, "connection refused"),
            ("silent", "down", 0, "no response within 500ms"),
            (
                "half",
                "down",
                0,
                "connection closed before the end of the header",
            ),
            ("endless", "down", 0, "header too long"),
            ("garbage", "down", 0, "not HTTP"),
            ("drip", "down", 0, "no response within 500ms"),
            ("agent", "up", 50, "up 50%"),
            ("smtp", "up", 100, "smtp 250"),
            ("redis", "down", 0, ""),
            ("mysql", "down", 0, "not MySQL"),
            ("postgres", "down", 0, "not PostgreSQL"),
            ("closed", "down", 0, "connection refused"),
        ],
    );
    wait_for("more than 60 probes", TIMEOUT, || {
        world.status()["checks"]["probes"].as_u64() > Some(60)
    });
}

/// Creates a key and a certificate for `www.example` and the address of server 0 with openssl. Returns their paths.
fn create_certificate(world: &World) -> (String, String) {
    let (key, certificate) = (world.path("key.pem"), world.path("cert.pem"));
    let output = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args(["-days", "2", "-subj", "/CN=www.example", "-addext"])
        .arg(format!(
            "subjectAltName=DNS:www.example,IP:{}",
            Family::V4.server(0)
        ))
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("run openssl");
    assert!(output.status.success(), "{output:?}");
    (key.display().to_string(), certificate.display().to_string())
}

/// Starts nginx with TLS on ports 443 and 444 (HTTP/2) of the server. Returns the path of its certificate.
fn start_tls_server(world: &mut World) -> String {
    let (key, certificate) = create_certificate(world);
    let root = world.path("tls");
    std::fs::create_dir_all(&root).expect("create a directory");
    let path = root.display();
    let config_file = root.join("nginx.conf");
    std::fs::write(
        &config_file,
        format!(
            "daemon off; master_process off; user root; pid {path}/pid; error_log {path}/error.log;\n\
             events {{ }}\nhttp {{ access_log off;\n\
             client_body_temp_path {path}/b; proxy_temp_path {path}/p; fastcgi_temp_path {path}/f; uwsgi_temp_path \
             {path}/u; scgi_temp_path {path}/s;\n\
             server {{ listen 443 ssl; listen 444 ssl http2; ssl_certificate {certificate}; ssl_certificate_key \
             {key};\n\
             location / {{ return 200 \"Up at $ssl_server_name\"; }} }} }}\n"
        ),
    )
    .expect("write the configuration");
    let nginx = world
        .command("server0", "nginx")
        .arg("-c")
        .arg(&config_file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start nginx");
    world.kill_on_drop(nginx);
    certificate
}

#[test]
fn probes_over_tls_check_certificate_and_response() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let certificate = start_tls_server(&mut world);
    start_tcp_server(&world, 84, |mut client| {
        let _ = client.write_all(b"SSH-2.0-nothing\r\n");
        let _ = client.read(&mut [0; 64]);
    });
    let https = |extra: &str| format!("kind = \"https\"\nport = 443\n{extra}");
    let checks = [
        ("ca", https(&format!("ca = \"{certificate}\""))),
        (
            "named",
            https(&format!(
                "ca = \"{certificate}\"\nhost = \"www.example\"\nexpect = {{ body = \"Up at www.example\" }}"
            )),
        ),
        (
            "other",
            https(&format!(
                "ca = \"{certificate}\"\nserver_name = \"other.example\""
            )),
        ),
        ("system", https("")),
        ("unverified", https("verify = false")),
        (
            "tls",
            format!("kind = \"tls\"\nport = 443\nca = \"{certificate}\""),
        ),
        (
            "none",
            "kind = \"tls\"\nport = 84\nverify = false".to_owned(),
        ),
        (
            "nogrpc",
            "kind = \"grpc\"\nport = 444\ntls = true\nverify = false".to_owned(),
        ),
    ];
    world.start_daemon(&checks::config(&checks, "500ms"));
    wait_for_each(
        &world,
        &[
            ("ca", "up", 100, "http 200"),
            ("named", "up", 100, "http 200"),
            ("other", "down", 0, "certificate"),
            ("system", "down", 0, "certificate"),
            ("unverified", "up", 100, "http 200"),
            ("tls", "up", 100, "tls handshake completed"),
            ("none", "down", 0, ""),
            ("nogrpc", "down", 0, ""),
        ],
    );
}

#[test]
fn server_keeps_its_state_while_the_ca_file_of_its_check_is_unusable() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let certificate = start_tls_server(&mut world);
    let ca = world.path("ca.pem");
    std::fs::copy(&certificate, &ca).expect("copy the file");
    let check = format!("kind = \"https\"\nport = 443\nca = \"{}\"", ca.display());
    let config = checks::config(&[("ca", check)], "500ms");
    world.start_daemon(&config);
    wait_for_each(&world, &[("ca", "up", 100, "http 200")]);
    std::fs::remove_file(&ca).expect("remove the file");
    let error = || {
        world.status()["certificate_error"]
            .as_str()
            .map(str::to_owned)
    };
    wait_for("the status to report the missing file", TIMEOUT, || {
        error().is_some()
    });
    let message = format!("health check: {}", ca.display());
    let error_text = error().expect("no certificate error in the status");
    assert!(error_text.starts_with(&message), "{error_text}");
    assert!(world.log().contains(&message), "{}", world.log());
    let doctor = world.weir("director").arg("doctor").output();
    let doctor = doctor.expect("run weir").stdout;
    let doctor = String::from_utf8_lossy(&doctor);
    assert!(doctor.contains(&message), "{doctor}");
    // A reload is rejected, and probes still use the previous certificates.
    let path = world.write_config(&config);
    let mut reload = world.weir("director");
    let reload = reload.arg("reload").arg("-c").arg(&path).output();
    let reload = reload.expect("run weir");
    let reload_errors = String::from_utf8_lossy(&reload.stderr);
    assert_eq!(reload.status.code(), Some(1), "{reload_errors}");
    assert!(reload_errors.contains(&message), "{reload_errors}");
    wait_for_each(&world, &[("ca", "up", 100, "http 200")]);
    std::fs::copy(&certificate, &ca).expect("copy the file");
    wait_for("the file to be loaded again", TIMEOUT, || error().is_none());
}
