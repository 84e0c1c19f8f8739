//! Tests reloads with `--guard`, and the files and keys that commands mention.

use std::net::SocketAddr;

use super::keeper::{kill_daemon, wait_until};
use super::{Client, GET, Origin, Proxy, configuration, free_address};

/// Returns a configuration with a pool of these servers and a check.
fn configuration_with_check(proxy: &Proxy, servers: &[SocketAddr]) -> String {
    let check = "[pool.p.check]\ninterval = \"100ms\"\ntimeout = \"100ms\"\nfall = 1\nrise = 1\n";
    configuration(proxy.listen, "http", servers, "") + check
}

#[test]
fn reload_with_failing_servers_is_rolled_back() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("weir.toml");
    let reload = |text: &str, guard: &str| {
        std::fs::write(&file, text).expect("write file");
        proxy.weir(&["reload", "--guard", guard])
    };
    let (succeeded, output) = reload(&configuration_with_check(&proxy, &[origin.address()]), "1s");
    assert!(
        succeeded && output.contains("revision 2 is active"),
        "{output}"
    );

    let closed = free_address();
    let (succeeded, output) = reload(
        &configuration_with_check(&proxy, &[origin.address(), closed]),
        "60s",
    );
    assert!(
        !succeeded && output.contains(&format!("rolled back: p/{closed} is down")),
        "{output}"
    );
    let status = proxy.status();
    // A rollback counts as a separate change.
    assert_eq!(status["revision"], 4, "{status:#}");
    assert!(
        output.contains("; the previous configuration is active again as revision 4"),
        "{output}"
    );
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("no servers");
    assert_eq!(servers.len(), 1, "{status:#}");
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));

    // Without checks, the results of requests show whether a server works.
    let text = configuration(proxy.listen, "http", &[closed], "");
    std::fs::write(&file, text).expect("write file");
    std::thread::scope(|scope| {
        let guarded = scope.spawn(|| proxy.weir(&["reload", "--guard", "60s"]));
        while !guarded.is_finished() {
            let mut client = Client::connect(proxy.listen);
            client.fetch(GET);
        }
        let (succeeded, output) = guarded.join().expect("command thread panicked");
        assert!(
            !succeeded && output.contains("requests to service s failed"),
            "{output}"
        );
    });
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));
}

#[test]
fn differently_spelled_address_of_a_down_server_causes_no_rollback() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("weir.toml");
    let port = free_address().port();
    let reload = |spelling: &str, arguments: &[&str]| {
        let text = configuration_with_check(&proxy, &[origin.address()]);
        let first = format!("\"{}\"", origin.address());
        let text = text.replace(&first, &format!("{first}, \"{spelling}\""));
        std::fs::write(&file, text).expect("write file");
        proxy.weir(arguments)
    };
    let (succeeded, output) = reload(&format!("[::1]:{port}"), &["reload"]);
    assert!(succeeded, "{output}");
    wait_until("the server is down", || {
        proxy.status()["services"][0]["servers"][1]["state"] == "down"
    });
    let same_address = format!("[0::1]:{port}");
    let (succeeded, output) = reload(&same_address, &["reload", "--guard", "1s"]);
    assert!(succeeded, "{output}");
    let status = proxy.status();
    let server = &status["services"][0]["servers"][1];
    assert_eq!(
        (&server["address"], &server["state"]),
        (&same_address.into(), &"down".into())
    );
}

/// Returns the number of servers in the active configuration.
fn server_count(proxy: &Proxy) -> usize {
    let status = proxy.status();
    let servers = status["services"][0]["servers"].as_array();
    servers.expect("no servers").len()
}

#[test]
fn guarded_reload_is_rolled_back_by_a_crash_but_not_by_a_rejected_reload() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address()], "");
    let file = proxy.directory.join("weir.toml");
    let both_servers = configuration(proxy.listen, "http", &[one.address(), two.address()], "");
    std::fs::write(&file, &both_servers).expect("write file");
    std::thread::scope(|scope| {
        let guarded = scope.spawn(|| proxy.weir(&["reload", "--guard", "60s"]));
        wait_until("two servers are active", || server_count(&proxy) == 2);
        std::fs::write(&file, "nonsense").expect("write file");
        assert!(!proxy.weir(&["reload"]).0);
        assert!(
            !guarded.is_finished(),
            "a rejected reload must not end the guarded reload"
        );
        kill_daemon(&proxy);
        assert!(!guarded.join().expect("command thread panicked").0);
    });
    assert_eq!(server_count(&proxy), 1);
    // A configuration that was not rolled back survives a crash.
    std::fs::write(&file, &both_servers).expect("write file");
    let (succeeded, output) = proxy.weir(&["reload", "--guard", "1s"]);
    assert!(succeeded, "{output}");
    kill_daemon(&proxy);
    assert_eq!(server_count(&proxy), 2);
}

#[test]
fn api_changes_survive_rollback() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("weir.toml");
    let closed = free_address();
    let mut text = configuration_with_check(&proxy, &[origin.address(), closed]);
    // Make the checks fail so slowly that an API client can make a change before the rollback.
    text = text.replace("fall = 1", "fall = 20");
    text += "start = \"up\"\n";
    std::fs::write(&file, text).expect("write file");
    std::thread::scope(|scope| {
        let guarded = scope.spawn(|| proxy.weir(&["reload", "--guard", "60s"]));
        wait_until("two servers are active", || server_count(&proxy) == 2);
        let added = super::discovery::call_api(&proxy, "PUT", "/v1/servers/p/127.0.0.1:9", "");
        assert!(added.starts_with("HTTP/1.1 200"), "{added}");
        let (succeeded, output) = guarded.join().expect("command thread panicked");
        assert!(!succeeded && output.contains("rolled back"), "{output}");
    });
    let names = super::servers_file::server_addresses(&proxy);
    assert_eq!(
        names,
        [origin.address().to_string(), "127.0.0.1:9".to_owned()]
    );
}

#[test]
fn no_request_fails_during_rollback() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let servers = [one.address(), two.address()];
    let proxy = Proxy::start("http", &servers, "");
    let file = proxy.directory.join("weir.toml");
    let text = |status: &str| {
        configuration(proxy.listen, "http", &servers, "")
            + "[pool.p.check]\nkind = \"http\"\ninterval = \"300ms\"\ntimeout = \"200ms\"\n"
            + &format!("expect = {{ status = \"{status}\" }}\n")
    };
    proxy.reload(&text("200"));
    let states = || {
        let status = proxy.status();
        let servers = status["services"][0]["servers"].as_array().cloned();
        let state = |server: &serde_json::Value| {
            (
                server["state"].clone(),
                server["since"].clone(),
                server["reason"].clone(),
            )
        };
        servers.iter().flatten().map(state).collect::<Vec<_>>()
    };
    wait_until("both servers are up", || {
        states().iter().all(|(state, ..)| state == "up")
    });
    let before = states();
    // The new check is wrong: both servers fail it.
    std::fs::write(&file, text("201")).expect("write file");
    std::thread::scope(|scope| {
        let guarded = scope.spawn(|| proxy.weir(&["reload", "--guard", "60s"]));
        let mut last = None;
        let mut requests = 0;
        // Continue after the rollback, because the effects of the wrong check must not appear later either.
        while last.is_none_or(|last: u32| requests < last) {
            let (head, _) = Client::connect(proxy.listen).fetch(GET);
            assert!(
                head.starts_with("HTTP/1.1 200"),
                "request {requests}: {head}"
            );
            requests += 1;
            if last.is_none() && guarded.is_finished() {
                last = Some(requests + 200);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (succeeded, output) = guarded.join().expect("command thread panicked");
        assert!(!succeeded && output.contains("rolled back: p/"), "{output}");
    });
    let after = states();
    for ((old_state, old_since, _), (state, since, reason)) in before.iter().zip(&after) {
        assert_eq!((old_state, old_since), (state, since), "{after:?}");
        assert!(!reason.to_string().contains("previous state"), "{reason}");
    }
}

#[test]
fn reload_and_check_name_the_active_file() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let text = configuration(proxy.listen, "http", &[origin.address()], "");
    let (first, second) = (
        proxy.directory.join("weir.toml"),
        proxy.directory.join("second.toml"),
    );
    std::fs::write(&second, &text).expect("write file");
    let (succeeded, output) = proxy.weir(&["reload", "-c", second.to_str().expect("not UTF-8")]);
    let active = format!("is active: {}\n", second.display());
    assert!(succeeded && output.contains(&active), "{output}");
    let (succeeded, output) = proxy.weir(&["check", "-c", first.to_str().expect("not UTF-8")]);
    let note = format!("note: the daemon uses {}", second.display());
    assert!(succeeded && output.contains(&note), "{output}");
    let (succeeded, output) = proxy.weir(&["check", "-c", second.to_str().expect("not UTF-8")]);
    assert!(
        succeeded && !output.contains("note: the daemon"),
        "{output}"
    );
}

#[test]
fn token_add_names_the_missing_configuration_key() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let tokens = proxy.directory.join("tokens");
    let add = |name| {
        let tokens = tokens.to_str().expect("not UTF-8");
        let line = ["token", "add", name, "--role", "read", "--file", tokens];
        proxy.weir(&line)
    };
    let key = format!("tokens = \"{}\"", tokens.display());
    let (succeeded, output) = add("a");
    assert!(
        succeeded && output.contains(&format!("set `{key}` in [node.admin] of")),
        "{output}"
    );
    let text = configuration(proxy.listen, "http", &[origin.address()], "")
        + &format!("[node.admin]\nlisten = \"{}\"\n{key}\n", free_address());
    std::fs::write(proxy.directory.join("weir.toml"), text).expect("write file");
    assert!(proxy.weir(&["reload"]).0);
    let (succeeded, output) = add("b");
    assert!(
        succeeded
            && output.contains("run `weir reload` to activate it")
            && !output.contains("set `"),
        "{output}"
    );
}
