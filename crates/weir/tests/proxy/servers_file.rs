//! Tests servers from a file that another program writes (`servers_file`).

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use super::keeper::{ConnectionLoad, wait_until};
use super::{Client, GET, Origin, Proxy, configuration};

/// Returns a configuration whose pool has `servers`, and those in the file `members`.
fn with_file(proxy: &Proxy, servers: &[SocketAddr]) -> String {
    let file = proxy.directory.join("members");
    let text = configuration(proxy.listen, "http", servers, "");
    let key = format!("[pool.p]\nservers_file = \"{}\"\n", file.display());
    text.replace("[pool.p]\n", &key)
}

/// Returns the servers' addresses from the status document.
pub(super) fn server_addresses(proxy: &Proxy) -> Vec<String> {
    let status = proxy.status();
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("no servers");
    let addresses = servers
        .iter()
        .map(|server| server["address"].as_str().expect("no address"));
    addresses.map(str::to_owned).collect()
}

#[test]
fn no_request_fails_while_the_servers_file_changes_soak() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address()], "");
    let file = proxy.directory.join("members");
    proxy.reload(&with_file(&proxy, &[one.address()]));
    // Replace the file atomically, so that no reader sees an incomplete file.
    let write = |text: &str| {
        let new_file = file.with_extension("new");
        fs::write(&new_file, text).expect("write file");
        fs::rename(&new_file, &file).expect("rename file");
    };
    let load = ConnectionLoad::start(proxy.listen);
    let rounds = if std::env::var_os("WEIR_SOAK").is_some() {
        600
    } else {
        20
    };
    for round in 0..rounds {
        // Weir accepts a list that loses at most half of its servers.
        let text = match round % 2 {
            0 => format!("[\"{}\", \"{}\"]", one.address(), two.address()),
            _ => format!("# one server\n{} weight=2\n", one.address()),
        };
        write(&text);
        std::thread::sleep(Duration::from_millis(100));
    }
    write(&format!("{}\n", two.address()));
    let both = [one.address().to_string(), two.address().to_string()];
    wait_until("the pool has both servers", || {
        server_addresses(&proxy) == both
    });
    let before = two.connections();
    wait_until("the added server gets requests", || {
        two.connections() > before
    });
    let [served, refused, failed] = load.stop();
    println!("{served} requests served during {rounds} changes");
    assert_eq!((refused, failed), (0, 0));
}

#[test]
fn implausible_list_changes_nothing() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::start("o")).collect();
    let all: Vec<String> = origins
        .iter()
        .map(|origin| origin.address().to_string())
        .collect();
    let mut proxy = Proxy::start("http", &[origins[0].address()], "");
    let file = proxy.directory.join("members");
    fs::write(&file, all.join("\n")).expect("write file");
    proxy.reload(&with_file(&proxy, &[]));
    assert_eq!(server_addresses(&proxy), all);
    let discovery_error = || {
        let status = proxy.status();
        status["sources"][0]["problem"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(discovery_error(), "");
    for (text, expected) in [
        ("nonsense", "line 1, column 1: not a valid IP address"),
        (all[1].as_str(), "shrank"),
        ("", "shrank"),
    ] {
        fs::write(&file, text).expect("write file");
        wait_until(&format!("the status reports {expected:?}"), || {
            discovery_error().contains(expected)
        });
        assert_eq!(server_addresses(&proxy), all);
    }
    let (_, output) = proxy.weir(&["status"]);
    assert!(
        output.contains("the previous servers remain in use: the list shrank from 3 to 0 servers"),
        "{output}"
    );
    // The servers are kept across a restart even if the file is missing. A reload accepts a list that has shrunk.
    fs::remove_file(&file).expect("remove file");
    assert!(proxy.terminate().success());
    proxy.start_again();
    assert_eq!(server_addresses(&proxy), all);
    fs::write(&file, &all[2]).expect("write file");
    assert!(proxy.weir(&["reload"]).0);
    assert_eq!(server_addresses(&proxy), all[2..]);
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));
}
