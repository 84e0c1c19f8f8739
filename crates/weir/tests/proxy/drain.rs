//! Tests `weir server … drain --wait` and the output of `weir server`.

use std::io::Read;
use std::time::{Duration, Instant};

use super::keeper::wait_until;
use super::{Client, GET, Origin, Proxy, configuration};

/// Returns the server at this index from the status document.
fn server(proxy: &Proxy, index: usize) -> serde_json::Value {
    proxy.status()["services"][0]["servers"][index].clone()
}

/// Runs `weir` with these arguments. Panics if the command takes so long that idle connections may have timed out.
fn run_quickly(proxy: &Proxy, arguments: &[&str]) -> (bool, String) {
    const IDLE: Duration = Duration::from_secs(60);
    let started = Instant::now();
    let result = proxy.weir(arguments);
    assert!(started.elapsed() < IDLE / 2, "{arguments:?}: {result:?}");
    result
}

#[test]
fn drain_closes_idle_server_connections_without_waiting() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address(), two.address()], "");
    // Each client uses a new connection, so Weir keeps connections to servers for the next client.
    for _ in 0..16 {
        Client::connect(proxy.listen).fetch(GET);
    }
    let idle_connections = |index| server(&proxy, index)["inactive_connections"].as_u64();
    assert!(idle_connections(0) > Some(0) && idle_connections(1) > Some(0));
    let name = format!("p/{}", one.address());
    let (succeeded, output) = run_quickly(&proxy, &["server", &name, "drain", "--wait"]);
    assert!(succeeded, "{output}");
    assert_eq!(
        output,
        format!("{name} is drained: no new connections, no open connections\n")
    );
    wait_until(
        "the idle connections to the drained server are closed",
        || idle_connections(0) == Some(0),
    );
    // The connections to the other server stay open.
    assert!(idle_connections(1) > Some(0));
    let (succeeded, output) = proxy.weir(&["server", &name, "ready"]);
    assert!(
        succeeded && output.contains("has no override: unchecked, effective weight 1"),
        "{output}"
    );
}

#[test]
fn drain_waits_for_open_connections_up_to_its_timeout() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    // Neither side closes this connection.
    let mut client = Client::connect(proxy.listen);
    let mut echo = [0; 5];
    client.send("hello");
    client.0.read_exact(&mut echo).expect("read echo");
    let name = format!("p/{}", origin.address());
    let (succeeded, output) = proxy.weir(&["server", &name, "drain", "--wait", "--timeout", "1s"]);
    assert!(!succeeded, "{output}");
    let progress = format!("{name} is draining: no new connections, 1 open connection\n");
    assert!(output.contains(&progress), "{output}");
    assert!(
        output.contains("waiting for 1 open connection to end"),
        "{output}"
    );
    assert!(
        output.contains("1 open connection after 1 s; the server stays drained"),
        "{output}"
    );
    // The command finishes when the connection closes.
    std::thread::scope(|scope| {
        let command = scope.spawn(|| run_quickly(&proxy, &["server", &name, "drain", "--wait"]));
        client.send("still");
        client.0.read_exact(&mut echo).expect("read echo");
        assert!(!command.is_finished());
        drop(client);
        let (succeeded, output) = command.join().expect("command thread panicked");
        assert!(succeeded && output.contains("is drained"), "{output}");
    });
}

/// The request is finished by the process that received it.
#[test]
fn drain_waits_for_connections_of_a_replaced_daemon() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "request_buffering = false");
    let mut client = Client::connect(proxy.listen);
    client.send("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    wait_until("the request has reached the server", || {
        origin.connections() == 1
    });
    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    let name = format!("p/{}", origin.address());
    let (succeeded, output) = proxy.weir(&["server", &name, "drain", "--wait", "--timeout", "2s"]);
    assert!(
        !succeeded && output.contains("1 open connection after 2 s"),
        "{output}"
    );
    std::thread::scope(|scope| {
        let command = scope.spawn(|| run_quickly(&proxy, &["server", &name, "drain", "--wait"]));
        client.send("world");
        let response = client.read_response().expect("read response");
        assert_eq!(response.expect("no response").1, b"10");
        let (succeeded, output) = command.join().expect("command thread panicked");
        assert!(succeeded && output.contains("is drained"), "{output}");
    });
}

#[test]
fn every_server_change_is_reported() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        "",
    ));
    let name = format!("p/{}", origin.address());
    let assert_output = |arguments: &[&str], expected: &str| {
        let (succeeded, output) = proxy.weir(&[&["server", name.as_str()], arguments].concat());
        assert!(
            succeeded && output == format!("{name} {expected}\n"),
            "{output}"
        );
    };
    assert_output(
        &["drain"],
        "is drained: no new connections, no open connections",
    );
    assert_output(
        &["maint"],
        "is in maintenance: no new connections, no checks, no open connections",
    );
    assert_output(
        &["weight", "3"],
        "has weight 3 (configured: 1): unchecked, effective weight 3",
    );
    assert_output(&["ready"], "has no override: unchecked, effective weight 1");
    let (succeeded, output) = proxy.weir(&["server", &name, "drain", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&output).expect("parse JSON");
    assert!(succeeded);
    assert_eq!(
        (
            &report["state"],
            &report["override"],
            &report["open_connections"]
        ),
        (&"drain".into(), &"drain".into(), &0.into()),
        "{report:#}"
    );
}

#[test]
fn clean_removes_proxy_overrides_and_runtime_state() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let mut proxy = Proxy::start("http", &[one.address(), two.address()], "");
    let name = format!("p/{}", one.address());
    assert!(proxy.weir(&["server", &name, "drain"]).0);
    assert!(proxy.terminate().success());
    // A restart does not remove the override.
    proxy.start_again();
    assert_eq!(server(&proxy, 0)["state"], "drain");
    assert!(proxy.terminate().success());

    let (succeeded, output) = proxy.weir(&["clean"]);
    assert!(
        succeeded && output.contains("files removed from the runtime directory"),
        "{output}"
    );
    let names = std::fs::read_dir(proxy.directory.join("run")).expect("read runtime directory");
    let names = names.map(|entry| {
        entry
            .expect("read directory entry")
            .file_name()
            .into_string()
            .expect("not UTF-8")
    });
    let remaining: Vec<String> = names.filter(|name| !name.ends_with("lock")).collect();
    assert_eq!(remaining, Vec::<String>::new());
    assert_eq!(
        proxy.weir(&["clean"]),
        (true, "nothing to remove\n".to_owned())
    );

    proxy.start_again();
    let server = server(&proxy, 0);
    assert_eq!(
        (&server["state"], &server["override"]),
        (&"unchecked".into(), &serde_json::Value::Null)
    );
}
