//! Tests failures that make Weir send a request to another server (`retry_on`).
//!
//! Also tests the maximum number of requests per server connection.

use super::scripted::{Action, ScriptedServer, send_text};
use super::*;

/// Starts a daemon that prefers the first server while it is available, and that ejects no server.
fn start_proxy(servers: &[SocketAddr], extra: &str) -> Proxy {
    let daemon = Proxy::start("http", servers, "");
    let text = configuration(daemon.listen, "http", servers, extra).replace(
        "[pool.p]\n",
        "[pool.p]\nscheduler = \"first\"\nmax_ejected = 0\n",
    );
    daemon.reload(&text);
    daemon
}

fn fetch_status(proxy: &Proxy, request: &str) -> String {
    let (head, _) = Client::connect(proxy.listen).fetch(request);
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";

/// Tests each kind of failure, both listed and not listed in `retry_on`.
#[test]
fn only_listed_failures_are_retried() {
    let unavailable =
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy";
    let failures: [(&str, &str, Vec<Action>); 5] = [
        ("empty", "502", vec![Action::Read, Action::Close]),
        ("timeout", "504", vec![Action::Read, Action::Drain]),
        (
            "malformed",
            "502",
            vec![Action::Read, send_text("220 ready\r\n\r\n")],
        ),
        (
            "malformed",
            "502",
            vec![
                Action::Read,
                send_text("HTTP/1.1 200 OK\r\nContent-Le"),
                Action::Close,
            ],
        ),
        ("500-503", "503", vec![Action::Read, send_text(unavailable)]),
    ];
    let good = Origin::start("o");
    for (condition, unlisted, script) in failures {
        let bad = ScriptedServer::start(vec![script]);
        let servers = [bad.address(), good.address()];
        let limit = "timeouts = { response = \"200ms\" }";
        let proxy = start_proxy(&servers, &format!("retry_on = []\n{limit}"));
        assert_eq!(
            fetch_status(&proxy, GET),
            unlisted,
            "{condition} is not listed"
        );
        let text = configuration(
            proxy.listen,
            "http",
            &servers,
            &format!("retry_on = [\"{condition}\"]\n{limit}"),
        )
        .replace(
            "[pool.p]\n",
            "[pool.p]\nscheduler = \"first\"\nmax_ejected = 0\n",
        );
        proxy.reload(&text);
        assert_eq!(fetch_status(&proxy, GET), "200", "{condition} is listed");
        // Weir does not retry a request that is not idempotent.
        assert_eq!(
            fetch_status(&proxy, POST),
            unlisted,
            "{condition} of a POST"
        );
    }
}

#[test]
fn connect_failure_is_retried_if_listed() {
    let good = Origin::start("o");
    let servers = [free_address(), good.address()];
    let listed = start_proxy(&servers, "");
    assert_eq!(fetch_status(&listed, GET), "200");
    // Weir may retry even a POST, because it has sent nothing.
    assert_eq!(fetch_status(&listed, POST), "200");
    let unlisted = start_proxy(&servers, "retry_on = [\"empty\"]");
    assert_eq!(fetch_status(&unlisted, GET), "502");
}

#[test]
fn last_servers_response_is_forwarded_unchanged() {
    let start_busy_server = || {
        ScriptedServer::start(vec![vec![
            Action::Read,
            send_text(
                "HTTP/1.1 503 Service Unavailable\r\nX-Own: words\r\nContent-Length: 4\r\n\r\nbusy",
            ),
        ]])
    };
    let (one, other) = (start_busy_server(), start_busy_server());
    let proxy = start_proxy(
        &[one.address(), other.address()],
        "retry_on = [\"connect\", 503]",
    );
    let (head, body) = Client::connect(proxy.listen).fetch(GET);
    assert!(
        head.starts_with("HTTP/1.1 503 ") && head.contains("X-Own: words\r\n"),
        "{head}"
    );
    assert_eq!(body, b"busy");
    assert!(one.receive().starts_with("GET ") && other.receive().starts_with("GET "));
    assert_eq!(proxy.status()["services"][0]["retries"], 1);
}

/// The client has received an interim response. After a retry, it could receive a second one.
#[test]
fn request_is_not_retried_after_response_bytes_were_sent() {
    let bad = ScriptedServer::start(vec![vec![
        Action::Read,
        send_text("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        Action::Wait,
        send_text("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"),
    ]]);
    let good = Origin::start("o");
    let proxy = start_proxy(&[bad.address(), good.address()], "retry_on = [\"503\"]");
    let mut client = Client::connect(proxy.listen);
    let (hints, _) = client.fetch(GET);
    assert!(hints.starts_with("HTTP/1.1 103 "), "{hints}");
    bad.resume();
    let (head, _) = client
        .read_response()
        .expect("read response")
        .expect("no response");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
}

#[test]
fn server_connection_closes_after_its_request_limit() {
    let origin = Origin::start("o");
    let proxy = Proxy::start(
        "http",
        &[origin.address()],
        "limits = { server_requests = 3 }",
    );
    let mut client = Client::connect(proxy.listen);
    let before = origin.connections();
    for _ in 0..9 {
        let (head, _) = client.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
    assert_eq!(origin.connections() - before, 3);
}
