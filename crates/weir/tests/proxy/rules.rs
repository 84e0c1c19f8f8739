//! Tests route conditions other than host and path, changes to requests and responses, and limits per client.

use super::origin::Origin;
use super::{Client, GET, Proxy, free_address, wait_until};

/// Starts a daemon with pools `a` and `b`, a default pool `p`, and these lines in and after the service.
fn start_proxy(a: &Origin, b: &Origin, service: &str, routes: &str) -> Proxy {
    let daemon = Proxy::start("http", &[free_address()], "");
    let (one, two) = (a.address(), b.address());
    daemon.reload(&format!(
        "[pool.p]\nservers = [\"{one}\"]\n[pool.a]\nservers = [\"{one}\"]\n[pool.b]\nservers = [\"{two}\"]\n\n\
         [service.s]\nlisten \
         = [\"{}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n{service}\n{routes}\n",
        daemon.listen
    ));
    daemon
}

fn route(lines: &str) -> String {
    format!("\n[[route]]\nservice = \"s\"\n{lines}\n")
}

/// Returns the first line of a body, which is the server's name.
fn server_name(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn query_cookie_and_source_select_the_pool() {
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let routes = [
        route("source = [\"192.0.2.0/24\"]\nstatus = 403"),
        route("query = [\"v=2\"]\npool = \"b\""),
        route("cookie = [\"beta\"]\nsource = [\"127.0.0.0/8\"]\npool = \"b\""),
    ];
    let proxy = start_proxy(&a, &b, "", &routes.concat());
    let mut client = Client::connect(proxy.listen);
    let mut fetch = |target: &str, extra: &str| {
        server_name(
            &client
                .fetch(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n{extra}\r\n"))
                .1,
        )
    };
    assert_eq!(fetch("/", ""), "a");
    assert_eq!(fetch("/x?u&v=2", ""), "b");
    assert_eq!(fetch("/x?v=22", ""), "a");
    assert_eq!(fetch("/", "Cookie: x=1; beta=\r\n"), "b");
    let (succeeded, output) = proxy.weir(&[
        "explain",
        "--request",
        &format!("GET http://{}/?v=2", proxy.listen),
    ]);
    assert!(succeeded && output.contains("pool b"), "{output}");
}

#[test]
fn route_rewrites_paths_and_headers_in_both_directions() {
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let lines = "path = \"/api/*\"\npool = \"b\"\nrewrite = \"/v2/{rest}\"\nset_header = [\"X-Tenant: t\", \"Accept: \
     text/plain\"]\n\
                 remove_header = [\"X-Debug\"]\nset_response_header = [\"X-From: weir\"]\nremove_response_header = \
                 [\"X-Origin\"]";
    let proxy = start_proxy(&a, &b, "", &route(lines));
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(
        "GET /api/x?y=1 HTTP/1.1\r\nHost: h\r\nX-Debug: 1\r\nAccept: */*\r\nX-Tenant: forged\r\nX-Kept: 1\r\n\r\n",
    );
    let forwarded = String::from_utf8_lossy(&body).into_owned();
    assert!(
        forwarded.starts_with("b\nGET /v2/x?y=1 HTTP/1.1\r\n"),
        "{forwarded}"
    );
    for line in ["X-Tenant: t\r\n", "Accept: text/plain\r\n", "X-Kept: 1\r\n"] {
        assert_eq!(forwarded.matches(line).count(), 1, "{line}: {forwarded}");
    }
    for removed in ["X-Debug", "forged", "*/*"] {
        assert!(!forwarded.contains(removed), "{removed} is in {forwarded}");
    }
    assert!(head.contains("X-From: weir\r\n"), "{head}");
    // Requests without a matching route are unchanged.
    let (head, body) = client.fetch("GET /x HTTP/1.1\r\nHost: h\r\nX-Debug: 1\r\n\r\n");
    assert!(String::from_utf8_lossy(&body).contains("X-Debug: 1\r\n"));
    assert!(!head.contains("X-From"), "{head}");
}

#[test]
fn route_client_headers_replace_the_defaults() {
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let routes = [
        "path = \"/set\"\npool = \"b\"\nset_header = [\"X-Forwarded-Proto: https\", \"x-forwarded-for: 192.0.2.1\"]",
        "path = \"/removed\"\npool = \"b\"\nremove_header = [\"X-Forwarded-For\", \"Forwarded\"]",
    ];
    let proxy = start_proxy(&a, &b, "forwarded = \"both\"", &routes.map(route).concat());
    let mut client = Client::connect(proxy.listen);
    let mut forwarded = |path: &str| {
        let body = client
            .fetch(&format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"))
            .1;
        String::from_utf8_lossy(&body).to_lowercase()
    };
    let set = forwarded("/set");
    assert!(set.contains("\r\nx-forwarded-proto: https\r\n"), "{set}");
    assert_eq!(set.matches("x-forwarded-proto").count(), 1, "{set}");
    assert_eq!(set.matches("x-forwarded-for").count(), 1, "{set}");
    assert!(set.contains("\r\nforwarded: for=127.0.0.1;"), "{set}");
    let removed = forwarded("/removed");
    assert!(
        removed.contains("\r\nx-forwarded-proto: http\r\n"),
        "{removed}"
    );
    assert!(!removed.contains("forwarded-for"), "{removed}");
    assert!(!removed.contains("\r\nforwarded:"), "{removed}");
}

#[test]
fn status_and_metrics_separate_pools_of_a_service() {
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let routes = [
        route("path = \"/a\"\npool = \"a\""),
        route("path = \"/b\"\npool = \"b\""),
    ];
    let proxy = start_proxy(&a, &b, "", &routes.concat());
    let mut client = Client::connect(proxy.listen);
    for _ in 0..3 {
        client.fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    // The same server is in pools `p` and `a`.
    let status = proxy.status();
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("no servers");
    let pools: Vec<_> = servers
        .iter()
        .map(|server| server["pool"].as_str())
        .collect();
    assert_eq!(pools, [Some("p"), Some("a"), Some("b")]);
    let (_, text) = proxy.weir(&["status"]);
    assert!(
        text.contains("\n  pool a\n") && text.contains("\n  pool b\n"),
        "{text}"
    );
    assert!(
        !text.contains("\n  pool p\n"),
        "the default pool must have no heading: {text}"
    );
    let curl = std::process::Command::new("curl")
        .args(["-sS", "http://weir/metrics", "--unix-socket"])
        .arg(proxy.directory.join("run/weir.sock"))
        .output()
        .expect("run curl");
    let metrics = String::from_utf8_lossy(&curl.stdout).into_owned();
    let mut series: Vec<&str> = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, _)| series)
        .collect();
    let total = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), total, "duplicate series: {metrics}");
    let series_of_a = format!(
        "weir_server_connections_total{{service=\"s\",pool=\"a\",server=\"{}\"}} 1",
        a.address()
    );
    assert!(metrics.contains(&series_of_a), "{metrics}");
}

#[test]
fn split_divides_requests_by_weight() {
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let proxy = start_proxy(&a, &b, "", &route("split = [\"a:3\", \"b:1\"]"));
    let mut client = Client::connect(proxy.listen);
    let b_count = (0..400)
        .filter(|_| server_name(&client.fetch(GET).1) == "b")
        .count();
    // The bounds are 100 ± 9 standard deviations.
    assert!((22..=178).contains(&b_count), "{b_count}");
}

#[test]
fn rate_limit_is_per_client() {
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let proxy = start_proxy(
        &a,
        &b,
        "limits = { rate = 1, burst = 5, key = \"header:X-Key\" }",
        "",
    );
    let count_limited = |key: &str| {
        let mut client = Client::connect(proxy.listen);
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Key: {key}\r\n\r\n");
        let heads: Vec<String> = (0..20).map(|_| client.fetch(&request).0).collect();
        let limited = heads
            .iter()
            .filter(|head| head.starts_with("HTTP/1.1 429 "));
        limited.count()
    };
    // A few seconds may pass between the requests. Each call uses a new connection, which any worker may accept.
    assert!(
        (10..=15).contains(&count_limited("one")),
        "expected the burst and only a few more"
    );
    assert!(
        (15..=20).contains(&count_limited("one")),
        "expected the burst to be used up"
    );
    assert!(
        (10..=15).contains(&count_limited("two")),
        "expected a separate burst for another client"
    );
}

#[test]
fn concurrency_and_body_limits_apply() {
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let proxy = start_proxy(&a, &b, "limits = { concurrent = 1, body = 10 }", "");
    let mut first = Client::connect(proxy.listen);
    first.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    a.wait_for_slow();
    let mut second = Client::connect(proxy.listen);
    assert!(second.fetch(GET).0.starts_with("HTTP/1.1 429 "));
    assert!(first.read_response().expect("read response").is_some());
    // Weir releases the slot after it has sent the response.
    wait_until("the slot is free", || {
        second.fetch(GET).0.starts_with("HTTP/1.1 200 ")
    });
    let post = |body: &str| format!("POST /sum HTTP/1.1\r\nHost: h\r\n{body}");
    assert_eq!(
        second
            .fetch(&post("Content-Length: 10\r\n\r\n0123456789"))
            .1,
        b"10"
    );
    let (head, _) = second.fetch(&post("Content-Length: 11\r\n\r\n01234567890"));
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    // The limit also applies to a body without an announced length, even if all of it arrives with the head. Chunk
    // framing does not count.
    let chunked = |chunks: String| {
        post(&format!(
            "Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
        ))
    };
    assert_eq!(second.fetch(&chunked("1\r\nx\r\n".repeat(10))).1, b"10");
    let (head, _) = second.fetch(&chunked("b\r\n01234567890\r\n".to_owned()));
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
}

#[test]
fn regular_expressions_match_and_rewrite() {
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let routes = [
        route("path_regex = '^/users/([0-9]+)(/.*)?$'\npool = \"b\"\nrewrite = \"/u{2}/{1}\""),
        route("path_regex = '(?i)\\.(png|gif)$'\nstatus = 404"),
    ];
    let proxy = start_proxy(&a, &b, "", &routes.concat());
    let mut client = Client::connect(proxy.listen);
    let mut fetch = |target: &str| {
        let (head, body) = client.fetch(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        (head, String::from_utf8_lossy(&body).into_owned())
    };
    let (_, forwarded) = fetch("/users/17/x?y=/users/18");
    assert!(
        forwarded.starts_with("b\nGET /u/x/17?y=/users/18 HTTP/1.1\r\n"),
        "{forwarded}"
    );
    assert!(fetch("/users/x").1.starts_with("a\n"));
    assert!(fetch("/img/A.PNG?v=1").0.starts_with("HTTP/1.1 404 "));
    assert!(fetch("/img/A.PNG.html").1.starts_with("a\n"));
    let (succeeded, output) = proxy.weir(&[
        "explain",
        "--request",
        &format!("GET http://{}/users/1", proxy.listen),
    ]);
    assert!(succeeded && output.contains("pool b"), "{output}");
    let file = proxy.directory.join("wrong.toml");
    let text = std::fs::read_to_string(proxy.directory.join("weir.toml")).expect("read file");
    std::fs::write(&file, text.replace("([0-9]+)(", "([0-9]+(")).expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(
        !succeeded && output.contains("invalid regular expression: unclosed group"),
        "{output}"
    );
}
