//! Tests `client_ip_header`: the address of the client that a trusted proxy sends.

use std::collections::BTreeSet;
use std::path::Path;

use super::origin::Origin;
use super::{Client, Proxy, configuration};

/// Settings of a service that logs the client's address and rejects clients from one network.
fn settings(log: &Path, keys: &str) -> String {
    format!(
        "access_log = {{ path = \"{}\", format = \"{{client}}\" }}\nset_header = [\"X-Client: {{client}}\"]\n\
         x_forwarded = {{ real_ip = \"set\" }}\nlimits = {{ rate = 1, burst = 2 }}\n{keys}\n\
         [[route]]\nservice = \"s\"\nsource = [\"198.51.100.0/24\"]\nstatus = 403\n",
        log.display()
    )
}

/// Sends a request with this value of X-Forwarded-For. Returns the status, and the request that the server received.
fn fetch(proxy: &Proxy, forwarded_for: &str) -> (String, String) {
    let request = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: {forwarded_for}\r\n\r\n");
    let (head, body) = Client::connect(proxy.listen).fetch(&request);
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn forwarded_client_address_applies_to_routes_limits_fields_and_logs() {
    const HEADER: &str = "client_ip_header = \"X-Forwarded-For\"";
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let log = proxy.directory.join("access.log");
    let reload = |keys: &str| {
        let text = settings(&log, keys);
        proxy.reload(&configuration(
            proxy.listen,
            "http",
            &[origin.address()],
            &text,
        ));
    };
    reload(&format!(
        "{HEADER}\ntrusted = [\"127.0.0.0/8\", \"192.0.2.7\"]"
    ));
    // Weir uses the last untrusted address, because the client can write anything before it.
    for (forwarded_for, client) in [
        ("203.0.113.5", "203.0.113.5"),
        ("198.51.100.1, 203.0.113.6, 192.0.2.7", "203.0.113.6"),
        ("x, 203.0.113.7:4711, 127.0.0.9", "203.0.113.7"),
        ("[2001:db8::5]:80", "2001:db8::5"),
        ("unknown", "127.0.0.1"),
    ] {
        let (status, request) = fetch(&proxy, forwarded_for);
        assert_eq!(status, "200", "{forwarded_for}: {request}");
        for line in [
            format!("X-Client: {client}\r\n"),
            format!("X-Real-IP: {client}\r\n"),
            format!("X-Forwarded-For: {forwarded_for}, 127.0.0.1\r\n"),
        ] {
            assert!(request.contains(&line), "{line:?} in {request}");
        }
    }
    // Several workers may have accepted the connections, so the order of the lines is arbitrary.
    let logged_clients: BTreeSet<String> = super::request_log::read_lines(&log, 5)
        .into_iter()
        .collect();
    let clients = [
        "127.0.0.1",
        "2001:db8::5",
        "203.0.113.5",
        "203.0.113.6",
        "203.0.113.7",
    ];
    assert_eq!(logged_clients, clients.map(str::to_owned).into());
    // The route and the per-client limit use the address.
    assert_eq!(fetch(&proxy, "198.51.100.9").0, "403");
    let statuses: Vec<String> = (0..5).map(|_| fetch(&proxy, "203.0.113.8").0).collect();
    assert!(statuses.contains(&"429".to_owned()), "{statuses:?}");
    assert_eq!(fetch(&proxy, "203.0.113.9").0, "200");

    // Without recursion, Weir uses the last address, even if it belongs to a trusted proxy.
    reload(&format!(
        "{HEADER}\nclient_ip_recursive = false\ntrusted = [\"127.0.0.0/8\", \"192.0.2.7\"]"
    ));
    let (_, request) = fetch(&proxy, "203.0.113.6, 192.0.2.7");
    assert!(request.contains("X-Client: 192.0.2.7\r\n"), "{request}");

    // Weir ignores the field of an untrusted client.
    reload(&format!("{HEADER}\ntrusted = [\"192.0.2.7\"]"));
    let (status, request) = fetch(&proxy, "198.51.100.9");
    assert_eq!(status, "200", "{request}");
    assert!(request.contains("X-Client: 127.0.0.1\r\n"), "{request}");
}

#[test]
fn client_ip_header_requires_trusted_proxies() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("weir.toml");
    let text = configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        "client_ip_header = \"X-Forwarded-For\"",
    );
    std::fs::write(&file, text).expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(
        !succeeded && output.contains("`client_ip_header` requires `trusted`"),
        "{output}"
    );
}
