//! `on_remove` of a pool in proxy services: connections to servers that a reload or failed checks remove.

use super::keeper::until;
use super::*;

/// A connection through the proxy that the server has answered.
fn established(proxy: &Proxy) -> Client {
    let mut client = Client::connect(proxy.listen);
    assert!(is_open(&mut client));
    client
}

/// Whether the server still echoes what the client sends. A connection that neither answers nor ends is an error.
fn is_open(client: &mut Client) -> bool {
    if client.0.write_all(b"hello").is_err() {
        return false;
    }
    let mut echo = [0; 5];
    match client.0.read_exact(&mut echo) {
        Ok(()) => true,
        Err(error) => {
            let kind = error.kind();
            let is_late = matches!(
                kind,
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            );
            assert!(!is_late, "neither an echo nor the end: {error}");
            false
        }
    }
}

fn with(text: &str, keys: &str) -> String {
    text.replace("[pool.p]\n", &format!("[pool.p]\n{keys}"))
}

#[test]
fn reload_closes_connections_to_removed_servers_if_configured() {
    let (one, two) = (Origin::start_tcp(), Origin::start_tcp());
    for (on_remove, stays) in [("keep", true), ("reset", false)] {
        let keys = format!("on_remove = \"{on_remove}\"\n");
        let proxy = Proxy::start("tcp", &[one.address()], "");
        let text = |server| with(&configuration(proxy.listen, "tcp", &[server], ""), &keys);
        proxy.reload(&text(one.address()));
        let mut client = established(&proxy);
        proxy.reload(&text(two.address()));
        // The reload is complete when the command returns; the worker acts at its next wake-up.
        if !stays {
            until("the end", || !is_open(&mut client));
        }
        assert_eq!(is_open(&mut client), stays, "{on_remove}");
        established(&proxy);
    }
}

#[test]
fn failed_checks_close_connections_if_configured() {
    let origin = Origin::start_tcp();
    for (on_failure, on_remove, stays) in [
        ("remove", "reset", false),
        ("remove", "keep", true),
        ("quiesce", "reset", true),
    ] {
        let checked = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = checked.local_addr().expect("its address").port();
        let check = format!(
            "[pool.p.check]\nkind = \"tcp\"\nport = {port}\ninterval = \"200ms\"\ntimeout = \"200ms\"\nrise = \
             1\nfall = 1\non_failure = \"{on_failure}\"\n"
        );
        let proxy = Proxy::start("tcp", &[origin.address()], &check);
        let text = configuration(proxy.listen, "tcp", &[origin.address()], &check);
        proxy.reload(&with(&text, &format!("on_remove = \"{on_remove}\"\n")));
        let state = |proxy: &Proxy| proxy.status()["services"][0]["servers"][0]["state"].clone();
        until("the check", || state(&proxy) == "up");
        let mut client = established(&proxy);
        drop(checked);
        until("the failure", || state(&proxy) == "down");
        if !stays {
            until("the end", || !is_open(&mut client));
        }
        assert_eq!(is_open(&mut client), stays, "{on_failure} {on_remove}");
        // A server that is up again gets connections that stay.
        let checked = TcpListener::bind(("127.0.0.1", port)).expect("the same port");
        until("the recovery", || state(&proxy) == "up");
        let mut client = established(&proxy);
        assert!(is_open(&mut client));
        drop(checked);
    }
}
