//! Tests `on_remove` of proxy pools: connections to servers that a reload or failed checks remove.

use super::keeper::wait_until;
use super::*;

/// Connects through the proxy and waits for an echo from the server.
fn connect_and_echo(proxy: &Proxy) -> Client {
    let mut client = Client::connect(proxy.listen);
    assert!(is_open(&mut client));
    client
}

/// Returns whether the server still echoes. Panics if the connection neither echoes nor ends.
fn is_open(client: &mut Client) -> bool {
    if client.0.write_all(b"hello").is_err() {
        return false;
    }
    let mut echo = [0; 5];
    match client.0.read_exact(&mut echo) {
        Ok(()) => true,
        Err(error) => {
            let kind = error.kind();
            let is_timeout = matches!(
                kind,
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            );
            assert!(!is_timeout, "expected an echo or end of stream: {error}");
            false
        }
    }
}

/// Returns the configuration with these additional keys in the pool.
fn with_pool_keys(text: &str, keys: &str) -> String {
    text.replace("[pool.p]\n", &format!("[pool.p]\n{keys}"))
}

#[test]
fn reload_closes_connections_to_removed_servers_if_configured() {
    let (one, two) = (Origin::start_tcp(), Origin::start_tcp());
    for (on_remove, expect_open) in [("keep", true), ("reset", false)] {
        let keys = format!("on_remove = \"{on_remove}\"\n");
        let proxy = Proxy::start("tcp", &[one.address()], "");
        let text =
            |server| with_pool_keys(&configuration(proxy.listen, "tcp", &[server], ""), &keys);
        proxy.reload(&text(one.address()));
        let mut client = connect_and_echo(&proxy);
        proxy.reload(&text(two.address()));
        // The reload is complete when the command returns. The worker closes the connection at its next wake-up.
        if !expect_open {
            wait_until("the connection is closed", || !is_open(&mut client));
        }
        assert_eq!(is_open(&mut client), expect_open, "{on_remove}");
        connect_and_echo(&proxy);
    }
}

#[test]
fn failed_checks_close_connections_if_configured() {
    let origin = Origin::start_tcp();
    for (on_failure, on_remove, expect_open) in [
        ("remove", "reset", false),
        ("remove", "keep", true),
        ("quiesce", "reset", true),
    ] {
        let check_listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let port = check_listener
            .local_addr()
            .expect("get local address")
            .port();
        let check = format!(
            "[pool.p.check]\nkind = \"tcp\"\nport = {port}\ninterval = \"200ms\"\ntimeout = \"200ms\"\nrise = \
             1\nfall = 1\non_failure = \"{on_failure}\"\n"
        );
        let proxy = Proxy::start("tcp", &[origin.address()], &check);
        let text = configuration(proxy.listen, "tcp", &[origin.address()], &check);
        proxy.reload(&with_pool_keys(
            &text,
            &format!("on_remove = \"{on_remove}\"\n"),
        ));
        let state = |proxy: &Proxy| proxy.status()["services"][0]["servers"][0]["state"].clone();
        wait_until("the server is up", || state(&proxy) == "up");
        let mut client = connect_and_echo(&proxy);
        drop(check_listener);
        wait_until("the server is down", || state(&proxy) == "down");
        if !expect_open {
            wait_until("the connection is closed", || !is_open(&mut client));
        }
        assert_eq!(
            is_open(&mut client),
            expect_open,
            "{on_failure} {on_remove}"
        );
        // New connections to a server that has recovered stay open.
        let check_listener = TcpListener::bind(("127.0.0.1", port)).expect("bind the same port");
        wait_until("the server is up again", || state(&proxy) == "up");
        let mut client = connect_and_echo(&proxy);
        assert!(is_open(&mut client));
        drop(check_listener);
    }
}

/// The access log and response fields contain the name of a server that a reload removes during an exchange.
#[test]
fn removed_server_is_named_in_log_and_response() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let removed_address = listener.local_addr().expect("get local address");
    let other_origin = Origin::start("other");
    let proxy = Proxy::start("http", &[removed_address], "");
    let file = proxy.directory.join("access.log");
    let lines = format!(
        "access_log = {{ path = \"{}\", format = \"{{pool}} {{server}}.\" }}\n\
         set_response_header = [\"X-Server: {{server}}\"]\n",
        file.display()
    );
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[removed_address],
        &lines,
    ));
    let mut client = Client::connect(proxy.listen);
    client.send(GET);
    let (mut stream, _) = listener.accept().expect("accept the request");
    let text = configuration(proxy.listen, "http", &[other_origin.address()], &lines);
    let other_pool = text
        .replace("[pool.p]", "[pool.q]")
        .replace("pool = \"p\"", "pool = \"q\"");
    for text in [text, other_pool] {
        proxy.reload(&text);
    }
    let read = |stream: &mut std::net::TcpStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("read the request");
            head.push(byte[0]);
        }
    };
    read(&mut stream);
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    stream.write_all(response).expect("send the response");
    let (head, _) = client
        .read_response()
        .expect("receive")
        .expect("no response");
    assert!(
        head.contains(&format!("X-Server: {removed_address}\r\n")),
        "{head}"
    );
    let log_text = || fs::read_to_string(&file).unwrap_or_default();
    wait_until("the request is logged", || !log_text().is_empty());
    assert_eq!(log_text(), format!("p {removed_address}.\n"));
}

/// The process that takes over a connection logs the connection with its pool and server.
#[test]
fn handed_over_connection_is_logged_with_its_server() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let file = proxy.directory.join("access.log");
    let lines = format!(
        "access_log = {{ path = \"{}\", format = \"{{pool}} {{server}}.\" }}\n",
        file.display()
    );
    proxy.reload(&configuration(
        proxy.listen,
        "tcp",
        &[origin.address()],
        &lines,
    ));
    let mut client = connect_and_echo(&proxy);
    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    assert!(is_open(&mut client));
    drop(client);
    let log_text = || fs::read_to_string(&file).unwrap_or_default();
    wait_until("the connection is logged", || !log_text().is_empty());
    assert_eq!(log_text(), format!("p {}.\n", origin.address()));
}
