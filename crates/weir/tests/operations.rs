//! Tests an operator's actions on a director under load, and mistakes that must not disturb clients.
//!
//! The cases are reloads that are rolled back, drains, failed starts, configurations that do not fit this host, and a
//! daemon that hangs.

mod world;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use world::{Family, World, privileged, wait_for};

/// Time limit of a step. It is much longer than any step of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(40);

fn config(forward: &str, extra: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers = [\"{}\", \"{}\"]\n{extra}\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"{forward}\"\npool = \"web\"\n",
        Family::V4.server(0),
        Family::V4.server(1),
        Family::V4.vip()
    )
}

fn proxy_config(listen: &str) -> String {
    format!(
        "[pool.web]\nservers = [\"{}\"]\n[service.www]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\n\
         protocol = \"tcp\"\npool = \"web\"\n",
        Family::V4.server(0)
    )
}

fn output_text(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Runs `weir ARGUMENTS` on the director. Returns the exit code and the whole output.
fn weir(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let output = world.weir("director").args(arguments).output();
    let output = output.expect("run weir");
    (output.status.code(), output_text(&output))
}

fn fetch(world: &World) -> Result<Vec<u8>, String> {
    world.get_within(3, &format!("http://{}/name", Family::V4.vip()))
}

fn nat_world(extra: &str) -> World {
    let mut world = World::new(2);
    world.start_nginx(1 << 16);
    world.route_replies_through_director();
    world.start_daemon(&config("nat", extra));
    world
}

/// Starts a director with `direct` and two servers without a web server.
fn direct_world() -> World {
    let mut world = World::new(2);
    world.prepare_direct_servers(&Family::V4.vip().to_string());
    world.start_daemon(&config("direct", ""));
    world
}

#[test]
fn no_nat_request_fails_during_rolled_back_reload() {
    if !privileged() {
        return;
    }
    let check = |path: &str| {
        format!(
            "[pool.web.check]\nkind = \"http\"\npath = \"{path}\"\ninterval = \"300ms\"\ntimeout = \"200ms\"\n"
        )
    };
    let world = nat_world(&check("/name"));
    let states = || -> Vec<serde_json::Value> {
        let status = world.status();
        let servers = status["services"][0]["servers"].as_array().cloned();
        let state = |server: serde_json::Value| server["state"].clone();
        servers.into_iter().flatten().map(state).collect()
    };
    wait_for("both servers to be up", TIMEOUT, || {
        states().iter().all(|state| state == "up")
    });
    let path = world.write_config(&config("nat", &check("/nowhere")));
    let mut reload = world
        .weir("director")
        .args(["reload", "--guard", "60s", "-c"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start weir");
    let mut last_request = None;
    let mut requests = 0;
    while last_request.is_none_or(|end: u32| requests < end) {
        fetch(&world).unwrap_or_else(|error| panic!("request {requests}: {error}"));
        requests += 1;
        if last_request.is_none()
            && reload
                .try_wait()
                .expect("query the process state")
                .is_some()
        {
            last_request = Some(requests + 60);
        }
    }
    let message = output_text(&reload.wait_with_output().expect("wait for the process"));
    assert!(message.contains("rolled back: web/"), "{message}");
    assert_eq!(states(), ["up", "up"]);
}

#[test]
fn drain_waits_for_open_flows_but_not_closed_ones() {
    if !privileged() {
        return;
    }
    let world = nat_world("");
    for _ in 0..4 {
        fetch(&world).expect("receive a response");
    }
    let name = format!("web/{}", Family::V4.server(0));
    let other = format!("web/{}", Family::V4.server(1));
    let closed = |index| server_counter(&world, index, "inactive_connections");
    assert!(closed(0) > 0, "no closed flows: {:#}", world.status());
    let (code, message) = weir(&world, &["server", &name, "drain", "--wait"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(closed(0) > 0, "the drain waited for closed flows");
    assert_eq!(
        message,
        format!("{name} is drained: no new connections, no open connections\n")
    );
    // The drain waits for a connection that the client keeps open.
    let to = SocketAddr::new(Family::V4.vip(), 80);
    let (close_sender, close_receiver) = mpsc::channel::<()>();
    let (connected_sender, connected_receiver) = mpsc::channel();
    let client = world.spawn_on("client", move || {
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5)).expect("connect");
        connected_sender.send(()).expect("send the result");
        let _ = close_receiver.recv();
        drop(stream);
    });
    connected_receiver
        .recv()
        .expect("client thread did not connect");
    let assert_waits = || {
        let drain = ["server", &other, "drain", "--wait", "--timeout", "1500ms"];
        let (code, message) = weir(&world, &drain);
        assert_eq!(code, Some(1), "{message}");
        let expected = "1 open connection after 1 s; the server stays drained";
        assert!(message.contains(expected), "{message}");
    };
    assert_waits();
    // The drain also waits after the service is renamed, because its flows continue.
    let renamed = config("nat", "").replace("[service.web]", "[service.www]");
    let file = world.write_config(&renamed);
    let (code, message) = weir(&world, &["reload", "-c", &file.display().to_string()]);
    assert_eq!(code, Some(0), "{message}");
    assert_waits();
    drop(close_sender);
    client.join().expect("client thread panicked");
    assert_drained_before_flows_expire(&world, &other);
}

/// Waits until the server is drained. Asserts that closed flows have not expired by then.
fn assert_drained_before_flows_expire(world: &World, name: &str) {
    let drain = ["server", name, "drain", "--wait", "--json"];
    let output = world.weir("director").args(drain).output();
    let output = output.expect("run weir");
    assert!(output.status.success(), "{}", output_text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("parse JSON");
    assert_eq!(report["open_connections"], 0, "{report:#}");
    let closed = report["closed_connections"].as_u64();
    assert!(
        closed > Some(0),
        "the drain waited until flows expired: {report:#}"
    );
}

/// Returns a counter of the first service's server at this index.
fn server_counter(world: &World, index: usize, counter: &str) -> u64 {
    let status = world.status();
    let value = status["services"][0]["servers"][index][counter].as_u64();
    value.unwrap_or_else(|| panic!("no {counter}: {status:#}"))
}

#[test]
fn drain_does_not_wait_for_closed_flows_of_direct_servers() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(1 << 16);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_daemon(&config("direct", ""));
    for _ in 0..4 {
        fetch(&world).expect("receive a response");
    }
    for n in 0..2 {
        let name = format!("web/{}", Family::V4.server(n));
        assert_drained_before_flows_expire(&world, &name);
    }
}

#[test]
fn drain_does_not_wait_for_abandoned_handshakes() {
    if !privileged() {
        return;
    }
    let world = direct_world();
    // Nothing listens on the servers, and the director does not see their resets.
    let to = SocketAddr::new(Family::V4.vip(), 80);
    let connect = |attempts: usize| {
        let client = world.spawn_on("client", move || {
            let attempt = |_| TcpStream::connect_timeout(&to, Duration::from_secs(5));
            (0..attempts).map(attempt).collect::<Vec<_>>()
        });
        client.join().expect("client thread panicked")
    };
    for attempt in connect(8) {
        attempt.expect_err("the connection was accepted");
    }
    let handshakes = |index| server_counter(&world, index, "active_connections");
    assert!(
        handshakes(0) > 0 && handshakes(1) > 0,
        "no handshakes: {:#}",
        world.status()
    );
    let name = |index| format!("web/{}", Family::V4.server(index));
    assert_drained_before_flows_expire(&world, &name(0));
    assert!(handshakes(0) > 0, "the drain waited for handshakes");
    // An open connection among the handshakes delays the drain until it ends.
    let host = "server1";
    let listener = world.spawn_on(host, move || TcpListener::bind(to).expect("listen"));
    let listener = listener.join().expect("server thread panicked");
    let open = connect(1).remove(0).expect("connect");
    let drain = ["server", &name(1), "drain", "--wait", "--timeout", "1500ms"];
    let (code, message) = weir(&world, &drain);
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message.contains(": 1 open connection after 1 s"),
        "{message}"
    );
    drop(open);
    drop(listener);
    assert_drained_before_flows_expire(&world, &name(1));
    assert!(handshakes(1) > 0, "the drain waited for handshakes");
}

/// Accepts a connection, reads to its end, and then sends a byte every 100 ms until the client resets the connection.
fn send_after_half_close(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().expect("accept");
    stream.read_to_end(&mut Vec::new()).expect("read");
    while stream.write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn drain_waits_for_half_closed_direct_connection_that_transfers_data() {
    if !privileged() {
        return;
    }
    let world = direct_world();
    let to = SocketAddr::new(Family::V4.vip(), 80);
    for host in ["server0", "server1"] {
        let (ready_sender, ready_receiver) = mpsc::channel();
        drop(world.spawn_on(host, move || {
            let listener = TcpListener::bind(to).expect("listen");
            ready_sender.send(()).expect("send the result");
            send_after_half_close(&listener);
        }));
        ready_receiver
            .recv()
            .expect("server thread does not listen");
    }
    let client = world.spawn_on("client", move || {
        TcpStream::connect_timeout(&to, Duration::from_secs(5)).expect("connect")
    });
    let mut client = client.join().expect("client thread panicked");
    client
        .shutdown(Shutdown::Write)
        .expect("shut down the sending direction");
    client.read_exact(&mut [0]).expect("receive data");
    let half_closed = |index: &usize| server_counter(&world, *index, "inactive_connections") > 0;
    let index = (0..2).find(half_closed).expect("no half-closed flow");
    let name = format!("web/{}", Family::V4.server(index));
    let drain = ["server", &name, "drain", "--wait", "--timeout", "4s"];
    let (code, message) = weir(&world, &drain);
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message.contains(": 1 open connection after 4 s"),
        "{message}"
    );
    drop(client);
    assert_drained_before_flows_expire(&world, &name);
}

#[test]
fn failed_start_pins_nothing_and_names_conflicting_program() {
    if !privileged() {
        return;
    }
    // The arguments are the attach modes of the first and the second director.
    assert_second_director_rejected(None, None, "tc program: weir_skb");
    assert_second_director_rejected(None, Some("xdp"), "tc program: weir_skb");
    assert_second_director_rejected(Some("xdp"), None, "XDP program: weir_xdp");
    assert_second_director_rejected(Some("xdp"), Some("xdp"), "XDP program: weir_xdp");
}

/// Files that were in the runtime directory before the start remain.
#[test]
fn failed_start_removes_the_files_that_it_created() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let program = "import socket, time; s = socket.socket(); s.bind(('0.0.0.0', 8080)); s.listen(); time.sleep(600)";
    let program = world
        .command("director", "python3")
        .args(["-c", program])
        .spawn();
    world.kill_on_drop(program.expect("start python3"));
    let is_listening = || {
        let output = world.output("director", "ss -Hltn sport = :8080");
        !output.stdout.is_empty()
    };
    wait_for("the listener", TIMEOUT, is_listening);
    let layer_4 = config("nat", "").replacen("]\n", "]\nvip_interface = \"eth0\"\n", 1);
    let admin = "\n[node.admin]\nlisten = \"127.0.0.1:8080\"\n";
    let proxy = proxy_config("0.0.0.0:8080");
    let (_, proxy_service) = proxy.split_once("[service").expect("text has no service");
    let run_dir = world.path("run-failed");
    let assert_start_fails = |text: &str| {
        let path = world.write_config(text);
        let mut command = world.weir("director");
        command
            .env("WEIR_RUNTIME_DIR", &run_dir)
            .env("WEIR_PIN_DIR", world.pin_dir("failed"))
            .args(["run", "-c"])
            .arg(&path);
        let output = command.output().expect("run weir");
        let message = output_text(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("Address already in use"), "{message}");
        assert!(!world.pin_dir("failed").exists(), "{message}");
    };
    for text in [
        proxy.clone(),
        format!("{layer_4}{admin}"),
        format!("{layer_4}[service{proxy_service}"),
    ] {
        assert_start_fails(&text);
        let entries = std::fs::read_dir(&run_dir);
        assert!(entries.is_err(), "{entries:?}");
    }
    std::fs::create_dir(&run_dir).expect("create a directory");
    std::fs::write(run_dir.join("token"), "0123456789abcdef0123456789abcdef\n")
        .expect("write the file");
    assert_start_fails(&proxy);
    let entries = std::fs::read_dir(&run_dir).expect("read the directory");
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["token"]);
}

fn assert_second_director_rejected(
    first_mode: Option<&'static str>,
    second_mode: Option<&'static str>,
    expected: &str,
) {
    let mut world = World::with_mode(1, first_mode);
    world.start_nginx(1 << 16);
    let servers = config("nat", "").replace(&format!(", \"{}\"", Family::V4.server(1)), "");
    world.start_daemon(&servers);
    // Another director in the same namespace cannot use the interface.
    world.set_mode(second_mode);
    let path = world.write_config(&servers);
    let second_weir = |arguments: &[&str]| {
        let mut command = world.weir("director");
        command
            .env("WEIR_RUNTIME_DIR", world.path("run-second"))
            .env("WEIR_PIN_DIR", world.pin_dir("second"))
            .args(arguments)
            .arg("-c")
            .arg(&path);
        command
    };
    let output = second_weir(&["run"]).output().expect("run weir");
    let message = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains(&format!("interface eth0 already has another {expected}")),
        "{message}"
    );
    assert!(message.contains("of another Weir"), "{message}");
    assert!(
        !world.pin_dir("second").exists(),
        "pinned by a start that failed: {:?}",
        std::fs::read_dir(world.pin_dir("second")).map(|all| all.flatten().collect::<Vec<_>>())
    );
    // The second director starts with a configuration that needs no XDP.
    let proxied = world.write_config(&proxy_config("0.0.0.0:8080"));
    let log = std::fs::File::create(world.path("second.log")).expect("create the log file");
    let mut daemon = second_weir(&["run"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("start weir");
    assert_eq!(proxied, path);
    wait_for("the second daemon", TIMEOUT, || {
        let ended = daemon.try_wait().expect("query the process state");
        let log = std::fs::read_to_string(world.path("second.log")).unwrap_or_default();
        assert_eq!(ended, None, "{log}");
        let status = second_weir(&["status"]).output();
        status.is_ok_and(|output| output.status.success())
    });
    assert!(
        !world.pin_dir("second").exists(),
        "a proxy must pin nothing"
    );
    let pid = Pid::from_child(&daemon);
    kill_process(pid, Signal::TERM).expect("send a signal to the process");
    daemon.wait().expect("wait for the process");
}

#[test]
fn missing_interface_is_rejected_with_its_position() {
    if !privileged() {
        return;
    }
    let world = World::new(0);
    let bad = "[node]\ninterfaces = [\"eth0\", \"enp3s0\"]\nvip_interface = \"eth9\"\n";
    let path = world.write_config(bad);
    let file = path.to_str().expect("path is not UTF-8");
    let parts = [
        format!("{file}:2:23"),
        "interface `enp3s0` does not exist".to_owned(),
        format!("{file}:3:17"),
        "interface `eth9` does not exist".to_owned(),
    ];
    let assert_rejected = |command: &str| {
        let (code, message) = weir(&world, &[command, "-c", file]);
        assert_eq!(code, Some(1), "{command}: {message}");
        for part in &parts {
            assert!(message.contains(part), "{command}: {part}: {message}");
        }
    };
    ["check", "plan", "run"]
        .iter()
        .for_each(|command| assert_rejected(command));
    // The same applies with a running daemon.
    let mut world = world;
    world.start_daemon("[node]\ninterfaces = [\"eth0\"]\n");
    let path = world.path("bad.toml");
    std::fs::write(&path, bad).expect("write the file");
    let file = path.to_str().expect("path is not UTF-8");
    for command in ["plan", "reload"] {
        let (code, message) = weir(&world, &[command, "-c", file]);
        assert_eq!(code, Some(1), "{command}: {message}");
        assert!(
            message.contains(&format!("{file}:2:23")) && message.contains("`enp3s0`"),
            "{command}: {message}"
        );
    }
}

#[test]
fn plan_rejects_the_same_files_as_reload() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let listen = format!("{}:8080", Family::V4.director());
    world.start_daemon(&proxy_config(&listen));
    let path = world.path("next.toml");
    let file = path.to_str().expect("path is not UTF-8").to_owned();
    let assert_rejected = |text: &str, parts: &[&str]| {
        std::fs::write(&path, text).expect("write the file");
        for command in ["plan", "reload"] {
            let (code, message) = weir(&world, &[command, "-c", &file]);
            assert_eq!(code, Some(1), "{command}: {message}");
            for part in parts {
                assert!(message.contains(part), "{command}: {part}: {message}");
            }
        }
    };
    // Test a file that is not a certificate.
    std::fs::write(world.path("bad.pem"), "nothing\n").expect("write the file");
    let bad = world.path("bad.pem").display().to_string();
    let tls = proxy_config("0.0.0.0:443") + &format!("tls = {{ certificates = \"{bad}\" }}\n");
    assert_rejected(&tls, &["next.toml:8:1", "bad.pem"]);
    let check = proxy_config("0.0.0.0:80")
        + &format!("[pool.web.check]\nkind = \"https\"\nca = \"{bad}\"\n");
    assert_rejected(&check, &["next.toml:10:1", "health check: ", "bad.pem"]);
    // Test an address on which another program listens.
    let address = SocketAddr::new(Family::V4.director(), 9000);
    let listener = world.spawn_on("director", move || std::net::TcpListener::bind(address));
    let _listener = listener
        .join()
        .expect("thread panicked")
        .expect("bind a listener");
    assert_rejected(
        &proxy_config(&address.to_string()),
        &["Address already in use"],
    );
    let (code, message) = weir(&world, &["check", "-c", &file]);
    assert_eq!(code, Some(0), "{message}");
    let warning = format!("warning: service www: {address}: Address already in use");
    assert!(message.contains(&warning), "{message}");
    assert!(message.contains("`weir reload` would reject"), "{message}");
    // The daemon's own listener is not a conflict.
    std::fs::write(&path, proxy_config(&listen)).expect("write the file");
    for command in ["plan", "check"] {
        let (code, message) = weir(&world, &[command, "-c", &file]);
        assert_eq!(code, Some(0), "{message}");
        assert!(!message.contains("in use"), "{message}");
    }
}

#[test]
fn hung_daemon_is_reported_and_pinned_state_is_shown() {
    if !privileged() {
        return;
    }
    let world = nat_world("");
    fetch(&world).expect("receive a response");
    let hung = world.suspend_daemon();
    let status = world
        .weir("director")
        .arg("status")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut status = status.expect("run weir");
    wait_for("the report about the hung daemon", TIMEOUT, || {
        status
            .try_wait()
            .expect("query the process state")
            .is_some()
    });
    let output = status.wait_with_output().expect("wait for the process");
    let (code, message) = (output.status.code(), output_text(&output));
    assert_eq!(code, Some(3), "{message}");
    assert!(
        message.contains(&Family::V4.server(0).to_string()),
        "{message}"
    );
    assert!(
        message.contains(&format!(
            "the daemon did not respond within 2 s: process {} is stopped",
            hung.as_raw_nonzero()
        )),
        "{message}"
    );
    assert!(
        message.contains("showing the pinned data plane"),
        "{message}"
    );
    // A command that needs the daemon reports that it is waiting for the daemon.
    let packet = format!("tcp {}:40000 {}:80", Family::V4.client(), Family::V4.vip());
    let mut explain = world
        .weir("director")
        .args(["explain", "--packet", &packet])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start weir");
    let mut progress = String::new();
    let errors = explain.stderr.take().expect("stream is not piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(errors), &mut progress)
        .expect("read a line");
    assert!(
        progress.contains("still waiting for the explanation"),
        "{progress}"
    );
    kill_process(hung, Signal::CONT).expect("send a signal to the process");
    assert!(explain.wait().expect("wait for the process").success());
    let (code, message) = weir(&world, &["status"]);
    assert_eq!(code, Some(0), "{message}");
}

#[test]
fn plan_without_daemon_compares_with_pinned_state() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    let text = config("nat", "");
    let daemon = world.start_daemon(&text);
    world.kill_keeper(daemon);
    let path = world.write_config(&text);
    let plan = ["plan", "-c", path.to_str().expect("path is not UTF-8")];
    let output = world.weir("director").args(plan).output();
    let output = output.expect("run weir");
    let message = output_text(&output);
    assert!(output.status.success(), "{message}");
    assert!(
        message.contains("comparing with the last active configuration"),
        "{message}"
    );
    assert!(!message.contains("+ service"), "{message}");
}
