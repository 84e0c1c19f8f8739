//! Tests route settings that override those of the service, and `host` of pools.

use super::origin::Origin;
use super::{Client, GET, Proxy, fs};

/// Starts a daemon with the pools `p` and `q`, and with these lines in its service, at the end of pool `q` (more tables
/// may follow), and in the route `/r/*`.
fn start_proxy(origin: &Origin, service: &str, pool: &str, route: &str) -> Proxy {
    let daemon = Proxy::start("http", &[origin.address()], "");
    let (listen, server) = (daemon.listen, origin.address());
    daemon.reload(&format!(
        "[pool.p]\nservers = [\"{server}\"]\n[pool.q]\nservers = [\"{server}\"]\n{pool}\n\n[service.s]\nlisten = \
         [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n{service}\n\n[[route]]\nservice = \
         \"s\"\npath = \"/r/*\"\npool = \"q\"\n{route}\n"
    ));
    daemon
}

fn post(path: &str, length: usize) -> String {
    let body = "x".repeat(length);
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[test]
fn route_body_limit_replaces_service_limit() {
    let origin = Origin::start("o");
    let proxy = start_proxy(&origin, "limits = { body = 100 }", "", "max_body = 1000");
    let fetch = |path: &str, length: usize| {
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch(&post(path, length));
        head.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(fetch("/sum", 100), "200");
    assert_eq!(fetch("/sum", 101), "413");
    assert_eq!(fetch("/r/sum", 1000), "200");
    assert_eq!(fetch("/r/sum", 1001), "413");
}

#[test]
fn pool_sets_host_and_x_forwarded_host_has_the_requested_host() {
    let origin = Origin::start("o");
    let proxy = start_proxy(
        &origin,
        "x_forwarded = { host = \"set\" }",
        "host = \"app.internal:81\"",
        "",
    );
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client.fetch("GET /r/x HTTP/1.1\r\nHost: www.example\r\n\r\n");
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(
        forwarded.matches("Host: app.internal:81\r\n").count(),
        1,
        "{forwarded}"
    );
    assert!(
        forwarded.contains("X-Forwarded-Host: www.example\r\n"),
        "{forwarded}"
    );
    assert!(!forwarded.contains("\nHost: www.example"), "{forwarded}");
    let (_, body) = client.fetch("GET /x HTTP/1.1\r\nHost: www.example\r\n\r\n");
    assert!(String::from_utf8_lossy(&body).contains("\nHost: www.example\r\n"));
}

#[test]
fn pool_builds_host_from_request_values() {
    let origin = Origin::start("o");
    let host = "host = \"{host}:{listen_port}{header.x-tenant}\"";
    let proxy = start_proxy(&origin, "", host, "");
    let port = proxy.listen.port();
    let forwarded_host = |fields: &str| {
        let mut client = Client::connect(proxy.listen);
        let (_, body) = client.fetch(&format!("GET /r/x HTTP/1.1\r\n{fields}\r\n"));
        let text = String::from_utf8_lossy(&body).into_owned();
        let mut lines = text.lines().map(str::to_owned);
        let found = lines.find_map(|line| Some(line.strip_prefix("Host: ")?.to_owned()));
        found.unwrap_or_default()
    };
    assert_eq!(
        forwarded_host("Host: a.example:99\r\n"),
        format!("a.example:{port}")
    );
    assert_eq!(
        forwarded_host("Host: [2001:db8::1]\r\n"),
        format!("[2001:db8::1]:{port}")
    );
    // If the result is not a valid host, the server receives the requested host.
    let tenant = "Host: a.example\r\nX-Tenant: b c\r\n";
    assert_eq!(forwarded_host(tenant), "a.example");
}

#[test]
fn route_x_forwarded_rules_replace_service_rules() {
    let origin = Origin::start("o");
    let proxy = start_proxy(
        &origin,
        "forwarded = false\nx_forwarded = { for = \"append\", real_ip = \"set\" }",
        "",
        "x_forwarded = { for = \"keep\" }\n\n[[route]]\nservice = \"s\"\npath = \"/except/*\"\npool = \"q\"\n\
         x_forwarded = { for = \"set\", except = [\"127.0.0.0/8\"] }",
    );
    let forwarded = |path: &str| {
        let mut client = Client::connect(proxy.listen);
        let (_, body) = client.fetch(&format!(
            "GET {path} HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
        ));
        String::from_utf8_lossy(&body).into_owned()
    };
    let service_request = forwarded("/x");
    assert!(
        service_request.contains("X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n"),
        "{service_request}"
    );
    assert!(
        service_request.contains("X-Real-IP: 127.0.0.1\r\n"),
        "{service_request}"
    );
    for path in ["/r/x", "/except/x"] {
        let route_request = forwarded(path);
        assert!(
            route_request.contains("X-Forwarded-For: 192.0.2.1\r\n"),
            "{route_request}"
        );
        assert!(!route_request.contains("X-Real-IP"), "{route_request}");
    }
}

#[test]
fn route_disables_access_log_and_sets_timeout() {
    let silent_server = std::net::TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let origin = Origin::start("o");
    let log = std::env::temp_dir().join(format!("weir-options-{}.log", std::process::id()));
    let _ = fs::remove_file(&log);
    let service = format!("access_log = \"{}\"", log.display());
    let silent_address = silent_server.local_addr().expect("get local address");
    let pool = format!("[pool.silent]\nservers = [\"{silent_address}\"]");
    let route = "access_log = false\n\n[[route]]\nservice = \"s\"\npath = \"/slow\"\npool = \"silent\"\n\
                 timeouts = { response = \"300ms\" }\nretries = 0";
    let proxy = start_proxy(&origin, &service, &pool, route);
    let mut client = Client::connect(proxy.listen);
    assert!(
        client
            .fetch("GET /r/hidden HTTP/1.1\r\nHost: h\r\n\r\n")
            .0
            .contains("200 OK")
    );
    assert!(client.fetch(GET).0.contains("200 OK"));
    let (head, _) = client.fetch("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 504"), "{head}");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let lines = loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.lines().count() >= 2 || std::time::Instant::now() > deadline {
            break text;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert!(
        !lines.contains("/r/hidden") && lines.contains("/slow"),
        "{lines}"
    );
    let _ = fs::remove_file(&log);
}

#[test]
fn route_retries_replace_service_retries() {
    let origin = Origin::start("o");
    let dead_address = super::free_address();
    let pool = format!(
        "scheduler = \"first\"\nmax_ejected = 0\n[pool.broken]\nservers = [\"{dead_address}\", \"{}\"]\nscheduler = \
         \"first\"\nmax_ejected = 0",
        origin.address()
    );
    let route = [
        ("/once", "retries = 0"),
        ("/listed", "retry_on = [\"503\"]"),
        ("/again", ""),
    ]
    .map(|(path, extra)| {
        format!("\n[[route]]\nservice = \"s\"\npath = \"{path}\"\npool = \"broken\"\n{extra}\n")
    });
    let proxy = start_proxy(&origin, "", &pool, &route.concat());
    let fetch = |path: &str| {
        let mut client = Client::connect(proxy.listen);
        client.fetch(&format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"))
    };
    for (path, status) in [("/once", "502"), ("/listed", "502"), ("/again", "200")] {
        let (head, _) = fetch(path);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {head}"
        );
    }
}

#[test]
fn response_status_replaces_the_status_of_the_server() {
    let origin = Origin::start("o");
    let fields = "response_status = 404\nset_response_header = [{ header = \"X-A: b\", status = \"404\" }, \
                  { header = \"X-C: d\", status = \"200\" }]";
    let proxy = start_proxy(&origin, "", "", fields);
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch("GET /r/x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n"), "{head}");
    assert!(
        head.contains("X-A: b\r\n") && !head.contains("X-C"),
        "{head}"
    );
    assert!(body.starts_with(b"o\n"), "{head}");
    let (head, _) = client.fetch(GET);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[test]
fn forwarded_for_lists_all_addresses_and_pool_host_may_contain_literal_text() {
    let origin = Origin::start("o");
    let fields = "set_header = [\"X-Forwarded-For: {client}\", \"X-All: {forwarded_for}\"]\n\
                  add_header = [\"X-Forwarded-For: {forwarded_for}\"]";
    let proxy = start_proxy(&origin, "", "host = '\\{host}'", fields);
    let mut client = Client::connect(proxy.listen);
    let (_, body) = client.fetch(
        "GET /r/x HTTP/1.1\r\nHost: www.example\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n\r\n",
    );
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    let all_addresses = "192.0.2.1, 192.0.2.2, 127.0.0.1\r\n";
    assert!(
        forwarded.contains(&format!("X-All: {all_addresses}")),
        "{forwarded}"
    );
    let own_field = "X-Forwarded-For: 127.0.0.1\r\n";
    assert!(
        forwarded.contains(own_field)
            && forwarded.contains(&format!("X-Forwarded-For: {all_addresses}")),
        "{forwarded}"
    );
    assert!(forwarded.contains("Host: \\www.example\r\n"), "{forwarded}");
}
