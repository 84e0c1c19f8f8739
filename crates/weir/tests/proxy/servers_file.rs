//! Servers from a file that another program writes.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use super::keeper::{ConnectionLoad, until};
use super::{Client, GET, Origin, Proxy, configuration};

/// Returns a configuration whose pool reads its servers from the file `members`.
fn with_file(proxy: &Proxy, servers: &[SocketAddr]) -> String {
    let file = proxy.directory.join("members");
    let text = configuration(proxy.listen, "http", servers, "");
    let key = format!("[pool.p]\nservers_file = \"{}\"\n", file.display());
    text.replace("[pool.p]\n", &key)
}

/// Returns the addresses of the servers in the status document.
pub(super) fn names(proxy: &Proxy) -> Vec<String> {
    let status = proxy.status();
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("no servers");
    let names = servers
        .iter()
        .map(|server| server["address"].as_str().expect("no address"));
    names.map(str::to_owned).collect()
}

#[test]
fn servers_file_changes_fail_no_request_at_length() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address()], "");
    let file = proxy.directory.join("members");
    proxy.reload(&with_file(&proxy, &[one.address()]));
    // The file is replaced atomically, so that no reader sees an incomplete one.
    let write = |text: &str| {
        let made = file.with_extension("new");
        fs::write(&made, text).expect("write file");
        fs::rename(&made, &file).expect("rename file");
    };
    let load = ConnectionLoad::start(proxy.listen);
    let rounds = if std::env::var_os("WEIR_SOAK").is_some() {
        600
    } else {
        20
    };
    for round in 0..rounds {
        // One of two servers is not more than half, so the list is accepted.
        let text = match round % 2 {
            0 => format!("[\"{}\", \"{}\"]", one.address(), two.address()),
            _ => format!("# one is left\n{} weight=2\n", one.address()),
        };
        write(&text);
        std::thread::sleep(Duration::from_millis(100));
    }
    write(&format!("{}\n", two.address()));
    let both = [one.address().to_string(), two.address().to_string()];
    until("both servers", || names(&proxy) == both);
    let before = two.connections();
    until("clients of the new one", || two.connections() > before);
    let [served, refused, broken] = load.stop();
    println!("{served} served over {rounds} changes");
    assert_eq!((refused, broken), (0, 0));
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
    assert_eq!(names(&proxy), all);
    let problem = || {
        let status = proxy.status();
        status["sources"][0]["problem"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(problem(), "");
    for (text, word) in [
        ("nonsense", "line 1, column 1: not a valid IP address"),
        (all[1].as_str(), "shrank"),
        ("", "shrank"),
    ] {
        fs::write(&file, text).expect("write file");
        until(word, || problem().contains(word));
        assert_eq!(names(&proxy), all);
    }
    let (_, shown) = proxy.weir(&["status"]);
    assert!(
        shown.contains("the previous servers stay in use: the list shrank from 3 to 0 servers"),
        "{shown}"
    );
    // The state survives a restart. A reload accepts the list as it is.
    fs::remove_file(&file).expect("remove file");
    assert!(proxy.terminate().success());
    proxy.start_again();
    assert_eq!(names(&proxy), all);
    fs::write(&file, &all[2]).expect("write file");
    assert!(proxy.weir(&["reload"]).0);
    assert_eq!(names(&proxy), all[2..]);
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));
}
