//! Tests route selection: routing after a rewrite, pools selected by a hash, a preferred server, and several mirrors.

use super::keeper::wait_until;
use super::origin::Origin;
use super::receiver::Receiver;
use super::{Client, Proxy, free_address, fs};

/// Starts a daemon with these routes and these pools, each given as a name and a list of servers.
fn start_proxy(pools: &[(&str, String)], routes: &[&str]) -> Proxy {
    let daemon = Proxy::start("http", &[free_address()], "");
    daemon.reload(&configuration_with(&daemon, pools, routes));
    daemon
}

fn configuration_with(proxy: &Proxy, pools: &[(&str, String)], routes: &[&str]) -> String {
    let pools = pools
        .iter()
        .map(|(name, servers)| format!("[pool.{name}]\nservers = [{servers}]\n\n"));
    let routes = routes
        .iter()
        .map(|lines| format!("\n[[route]]\nservice = \"s\"\n{lines}\n"));
    let (pools, routes) = (pools.collect::<String>(), routes.collect::<String>());
    let listen = proxy.listen;
    format!(
        "{pools}[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n{routes}"
    )
}

fn quoted_address(origin: &Origin) -> String {
    format!("\"{}\"", origin.address())
}

/// Sends a request from a new client. Returns the status and the body of the response.
fn fetch(proxy: &Proxy, target: &str, extra: &str) -> (String, String) {
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n{extra}\r\n"));
    let status = head.split(' ').nth(1).unwrap_or_default();
    (
        status.to_owned(),
        String::from_utf8_lossy(&body).into_owned(),
    )
}

#[test]
fn rewritten_paths_are_routed_again() {
    let (p, q) = (Origin::start("p"), Origin::start("q"));
    let pools = [("p", quoted_address(&p)), ("q", quoted_address(&q))];
    let routes = [
        "path = \"/old/*\"\nrewrite = \"/new/{rest}\"\nrestart = \"first\"",
        "rewrite = { regex = \"^/q/(.*)$\", to = \"/new/q?name={1}\" }\nrestart = \"first\"",
        "path = \"/loop/*\"\nrewrite = \"/loop/x{path}\"\nrestart = \"first\"",
        "path = \"/a/*\"\nrewrite = \"/b/{rest}\"\nrestart = \"next\"",
        "path = \"/b/*\"\nrewrite = \"/a/{rest}\"\nrestart = \"next\"",
        "path = \"/a/*\"\nstatus = 410",
        "path = \"/dots/*\"\nrewrite = \"/new/x/../../private/{rest}\"\nrestart = \"first\"",
        "path = \"/private/*\"\nstatus = 403",
        "path = \"/new/y/*\"\npool = \"q\"\nrewrite = \"/z/{rest}\"",
        "path = \"/new/*\"\npool = \"q\"",
    ];
    let proxy = start_proxy(&pools, &routes);
    let route = |target: &str| fetch(&proxy, target, "");
    let (status, body) = route("/old/x?v=1");
    assert_eq!(status, "200");
    assert!(body.starts_with("q\nGET /new/x?v=1 HTTP/1.1\r\n"), "{body}");
    let (_, body) = route("/old/y/1");
    assert!(body.starts_with("q\nGET /z/1 HTTP/1.1\r\n"), "{body}");
    let (_, body) = route("/q/ab?v=1");
    assert!(
        body.starts_with("q\nGET /new/q?name=ab&v=1 HTTP/1.1\r\n"),
        "{body}"
    );
    // If no route rewrites a path, Weir forwards the path as received.
    let (_, body) = route("/other//x?v");
    assert!(
        body.starts_with("p\nGET /other//x?v HTTP/1.1\r\n"),
        "{body}"
    );
    assert_eq!(route("/loop/1").0, "500");
    // Matching continues with the next route and the new path. Weir does not match earlier routes again.
    assert_eq!(route("/a/1").0, "410");
    // Weir matches a new path in normalized form.
    assert_eq!(route("/dots/x").0, "403");
    let (succeeded, output) = proxy.weir(&[
        "explain",
        "--request",
        &format!("GET http://{}/old/x", proxy.listen),
    ]);
    assert!(succeeded, "{output}");
    assert!(output.contains("rewrites the path to /new/x"), "{output}");
}

#[test]
fn basic_auth_of_the_route_after_a_rewrite_applies() {
    let origin = Origin::start("p");
    let pools = [("p", quoted_address(&origin))];
    let proxy = Proxy::start("http", &[free_address()], "");
    let file = proxy.directory.join("users");
    // The password is "secret".
    let hash = "$6$saltsalt$9Xb9ZSjUcUEaXQF3TN8wAHhVvnVlTh.8oTzNgtdFPdxHcBNpt0jwAVZ3oHuYUkeS5kdXYRpw7oV2zC7bgzsvI0";
    fs::write(&file, format!("alice:{hash}\n")).expect("write file");
    let secured = format!(
        "path = \"/secured/*\"\npool = \"p\"\nbasic_auth = {{ file = \"{}\", realm = \"r\" }}",
        file.display()
    );
    let routes = [
        "path = \"/open/*\"\nrewrite = \"/secured/{rest}\"\nrestart = \"first\"",
        &secured,
    ];
    proxy.reload(&configuration_with(&proxy, &pools, &routes));
    assert_eq!(fetch(&proxy, "/secured/x", "").0, "401");
    assert_eq!(fetch(&proxy, "/open/x", "").0, "401");
    assert_eq!(fetch(&proxy, "/other", "").0, "200");
}

#[test]
fn split_by_hash_is_stable_and_distributes_requests() {
    let (p, q) = (Origin::start("p"), Origin::start("q"));
    let pools = [("p", quoted_address(&p)), ("q", quoted_address(&q))];
    let routes = ["split = [\"p:30\", \"q:70\"]\nsplit_by = \"{header.X-Key}\""];
    let proxy = start_proxy(&pools, &routes);
    let mut p_count = 0;
    for key in 0..400 {
        let extra = format!("X-Key: user-{key}\r\n");
        let first = fetch(&proxy, "/", &extra)
            .1
            .lines()
            .next()
            .map(str::to_owned);
        let second = fetch(&proxy, "/again", &extra).1;
        assert_eq!(first.as_deref(), second.lines().next(), "{key}");
        p_count += usize::from(first.as_deref() == Some("p"));
    }
    // The hash has no state, so the number is always the same.
    assert!((80..=160).contains(&p_count), "{p_count}");
}

#[test]
fn route_prefers_a_server_while_it_is_usable() {
    let servers = [Origin::start("a"), Origin::start("b"), Origin::start("c")];
    let addresses: Vec<String> = servers.iter().map(quoted_address).collect();
    let pools = [("p", addresses.join(", "))];
    let route = format!(
        "path = \"/b/*\"\npool = \"p\"\nserver = {}",
        quoted_address(&servers[1])
    );
    let proxy = start_proxy(&pools, &[&route]);
    let names = |target: &str| {
        let bodies = (0..12).map(|_| fetch(&proxy, target, "").1);
        let mut names: Vec<String> = bodies
            .map(|body| body.lines().next().unwrap_or_default().to_owned())
            .collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(names("/b/"), ["b"]);
    let server = format!("p/{}", servers[1].address());
    let (succeeded, output) = proxy.weir(&["server", &server, "maint"]);
    assert!(succeeded, "{output}");
    wait_until("requests are sent to another server", || {
        !names("/b/").contains(&"b".to_owned())
    });
    let invalid = configuration_with(&proxy, &pools, &["pool = \"p\"\nserver = \"10.0.0.1\""]);
    let file = proxy.directory.join("wrong.toml");
    fs::write(&file, invalid).expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", &file.display().to_string()]);
    assert!(
        !succeeded && output.contains("pool `p` has no server"),
        "{output}"
    );
}

#[test]
fn each_mirror_gets_a_copy() {
    let origin = Origin::start("p");
    let mirrors = [Receiver::start(), Receiver::start()];
    let pools = [
        ("p", quoted_address(&origin)),
        ("m", format!("\"{}\"", mirrors[0].address)),
        ("n", format!("\"{}\"", mirrors[1].address)),
    ];
    let routes =
        ["pool = \"p\"\nmirror = [\"m\", { pool = \"n\", path = \"/copies\", body = 100 }]"];
    let proxy = start_proxy(&pools, &routes);
    let mut client = Client::connect(proxy.listen);
    let post = |length: usize| {
        let body = "x".repeat(length);
        format!("POST /sum HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let (head, _) = client.fetch("GET /a?v HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(client.fetch(&post(50)).1, b"50");
    // The body is too long for one of the mirrors.
    assert_eq!(client.fetch(&post(5_000)).1, b"5000");
    wait_until("both mirrors have received their copies", || {
        mirrors[0].received().len() == 3 && mirrors[1].received().len() == 2
    });
    let all = mirrors[0].received().clone();
    let lengths: Vec<usize> = all.iter().map(|request| request.body.len()).collect();
    assert_eq!(lengths, [0, 50, 5_000]);
    assert!(all[0].head.starts_with("GET /a?v "), "{}", all[0].head);
    let copies = mirrors[1].received().clone();
    let head = &copies[0].head;
    assert!(head.starts_with("GET /copies?v "), "{head}");
    assert_eq!(copies[1].body.len(), 50);
}
