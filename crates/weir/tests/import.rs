//! Tests that imported configurations make Weir balance, check and fail over like the original program.
//!
//! `weir import` writes the configurations.

mod world;

use std::fs;
use std::process::Command;
use std::time::Duration;

use world::{Family, World, privileged, wait_for};

const NODE: &str = "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n\n";

const TIMEOUT: Duration = Duration::from_secs(20);

const KEEPALIVED: &str = "
global_defs {
    lvs_timeouts tcp 900 udp 300
}
$NET=10.71.0

virtual_server ${NET}.10 80 {
    delay_loop 0.2
    lvs_sched rr
    lvs_method DR
    protocol TCP
    retry 1
    ~LST(n, 20, 21) real_server ${NET}.$n 80 { $REAL }
}
";

const LDIRECTORD: &str = "\
checkinterval=1
negotiatetimeout=1
quiescent=no
virtual=10.71.0.10:80
\treal=10.71.0.20->10.71.0.21:80 gate
\tservice=http
\trequest=\"name\"
\treceive=\"server\"
\tscheduler=rr
";

const HAPROXY: &str = "
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
frontend web
    bind 10.71.0.3:8080
    http-request deny deny_status 403 if { path /secret }
    use_backend two if { hdr(host) -i two.example }
    default_backend one
backend one
    server a 10.71.0.20:80
backend two
    server b 10.71.0.21:80
";

const NGINX: &str = "
upstream one { server 10.71.0.20; }
upstream two { server 10.71.0.21; }
server {
    listen 10.71.0.3:8080 default_server;
    location / { proxy_pass http://one; }
    location = /secret { return 403; }
}
server {
    listen 10.71.0.3:8080;
    server_name two.example;
    location / { proxy_pass http://two; }
}
";

/// Imports a file. Returns the resulting configuration.
fn imported_config(world: &World, program: &str, text: &str) -> String {
    let file = world.path("original.conf");
    fs::write(&file, text).expect("write the file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["import", program]).arg(file).output();
    let output = output.expect("run weir");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    NODE.to_owned() + &String::from_utf8(output.stdout).expect("text is valid UTF-8")
}

fn state(world: &World, n: usize) -> String {
    let status = world.server_status(Family::V4.server(n));
    status["state"]
        .as_str()
        .expect("state is a string")
        .to_owned()
}

fn wait_for_states(world: &World, states: [&str; 2]) {
    wait_for(&format!("states {states:?}"), TIMEOUT, || {
        (0..2).all(|n| state(world, n) == states[n])
    });
}

fn assert_balances_and_fails_over(program: &str, text: &str) {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(16);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    let config = imported_config(&world, program, text);
    world.start_daemon(&config);

    wait_for_states(&world, ["up", "up"]);
    assert_eq!(world.responding_servers(), ["server0", "server1"]);
    world.kill_nginx(0);
    wait_for_states(&world, ["down", "up"]);
    assert_eq!(world.responding_servers(), ["server1"]);
    world.start_nginx_on("server0", 0, "");
    wait_for_states(&world, ["up", "up"]);
    assert_eq!(world.responding_servers(), ["server0", "server1"]);
}

#[test]
fn imported_keepalived_file_balances_and_fails_over() {
    let text = "$REAL=HTTP_GET { \\\nurl { \\\npath /name \\\n} \\\nconnect_timeout 1 \\\n}\n"
        .to_owned()
        + KEEPALIVED;
    assert_balances_and_fails_over("keepalived", &text);
}

#[test]
fn imported_ldirectord_file_balances_and_fails_over() {
    assert_balances_and_fails_over("ldirectord", LDIRECTORD);
}

/// Sends a request to the director's proxy. Returns the body followed by the status code.
fn fetch(world: &World, host: &str, path: &str) -> String {
    let line = format!(
        "curl -s -m 5 -w %{{http_code}} -H Host:{host} http://{}:8080{path}",
        Family::V4.director()
    );
    String::from_utf8_lossy(&world.output("client", &line).stdout).into_owned()
}

fn assert_routes(program: &str, text: &str) {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(16);
    let config = imported_config(&world, program, text);
    world.start_daemon(
        config
            .strip_prefix(NODE)
            .expect("text starts with the [node] section"),
    );
    wait_for("a response", TIMEOUT, || {
        fetch(&world, "one.example", "/name").contains("server0")
    });
    assert!(fetch(&world, "two.example", "/name").contains("server1"));
    assert!(fetch(&world, "one.example", "/secret").ends_with("403"));
}

#[test]
fn imported_haproxy_file_routes_and_responds() {
    assert_routes("haproxy", HAPROXY);
}

#[test]
fn imported_nginx_file_routes_and_responds() {
    assert_routes("nginx", NGINX);
}
