//! Tests routes with alternatives, negated conditions, address files and templates.

use std::process::Command;
use std::time::Duration;

use super::origin::Origin;
use super::{Client, Proxy, free_address};

/// Returns a configuration with a pool `p` and with these lines in and after its service.
fn configuration_with(proxy: &Proxy, origin: &Origin, service: &str, routes: &str) -> String {
    format!(
        "[pool.p]\nservers = [\"{}\"]\n\n[service.s]\nlisten = [\"{}\"]\nforward = \"proxy\"\nprotocol = \
         \"http\"\npool = \"p\"\n{service}\n{routes}\n",
        origin.address(),
        proxy.listen
    )
}

fn start_proxy(origin: &Origin, service: &str, routes: &str) -> Proxy {
    let daemon = Proxy::start("http", &[free_address()], "");
    daemon.reload(&configuration_with(&daemon, origin, service, routes));
    daemon
}

fn route(lines: &str) -> String {
    format!("\n[[route]]\nservice = \"s\"\n{lines}\n")
}

/// Sends a request from a new client. Returns the head and the body of the response.
fn fetch(proxy: &Proxy, target: &str, extra: &str) -> (String, String) {
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(&format!("GET {target} HTTP/1.1\r\n{extra}\r\n"));
    (head, String::from_utf8_lossy(&body).into_owned())
}

fn status(proxy: &Proxy, target: &str, extra: &str) -> String {
    let (head, _) = fetch(proxy, target, extra);
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn lists_negations_and_expressions_select_routes() {
    let origin = Origin::start("a");
    let routes = [
        "path = \"/admin/*\"\nnot.source = [\"192.0.2.0/24\", \"198.51.100.7\"]\nstatus = 401",
        "host = [\"a.example\", \"~^www[0-9]+\\\\.example$\"]\npath = [\"/x\", \"*.png\"]\nstatus = 410",
        "header = [\"Accept: *json*\", \"Accept: text/plain\", \"X-Key: ~^[0-9]{3}$\"]\nstatus = 402",
        "path_regex = ['^/u/[0-9]+$', '(?i)\\.gif$']\nnot.method = [\"GET\", \"HEAD\"]\nstatus = 405",
        "query = [\"v=1\", \"v=2*\"]\nnot.cookie = \"beta\"\nstatus = 406",
    ];
    let proxy = start_proxy(&origin, "", &routes.map(route).concat());
    let host = |name: &str, extra: &str| format!("Host: {name}\r\n{extra}");
    assert_eq!(status(&proxy, "/admin/x", &host("h", "")), "401");
    assert_eq!(status(&proxy, "/x", &host("a.example:80", "")), "410");
    assert_eq!(
        status(&proxy, "/y/a.png", &host("WWW12.example", "")),
        "410"
    );
    assert_eq!(status(&proxy, "/x", &host("www.example", "")), "200");
    assert_eq!(
        status(
            &proxy,
            "/z",
            &host("h", "X-Key: 123\r\nAccept: a/json;q=1\r\n")
        ),
        "402"
    );
    assert_eq!(
        status(
            &proxy,
            "/z",
            &host("h", "X-Key: 123\r\nAccept: text/html\r\n")
        ),
        "200"
    );
    assert_eq!(
        status(
            &proxy,
            "/z",
            &host("h", "X-Key: 1234\r\nAccept: text/plain\r\n")
        ),
        "200"
    );
    assert_eq!(status(&proxy, "/u/7", &host("h", "")), "200");
    assert_eq!(status(&proxy, "/?v=0&v=22", &host("h", "")), "406");
    assert_eq!(
        status(&proxy, "/?v=22", &host("h", "Cookie: beta=1\r\n")),
        "200"
    );
    let (succeeded, output) = proxy.weir(&[
        "explain",
        "--request",
        &format!("POST http://{}/u/x", proxy.listen),
    ]);
    assert!(
        succeeded && output.contains("does not match: path_regex"),
        "{output}"
    );
    assert!(
        output.contains("(/admin/* not source=192.0.2.0/24 198.51.100.7/32 -> respond 401)"),
        "{output}"
    );
}

#[test]
fn address_file_is_reloaded_and_errors_keep_the_active_list() {
    let origin = Origin::start("a");
    let proxy = Proxy::start("http", &[free_address()], "");
    let list = proxy.directory.join("allowed.txt");
    std::fs::write(&list, "# office\n10.0.0.0/8 # old\n\n2001:db8::/32\n").expect("write file");
    let lines = format!("not.source = {{ file = {list:?} }}\nstatus = 403");
    proxy.reload(&configuration_with(&proxy, &origin, "", &route(&lines)));
    assert_eq!(status(&proxy, "/", "Host: h\r\n"), "403");
    std::fs::write(&list, "10.0.0.0/8\n127.0.0.0/8\n").expect("write file");
    proxy.reload(&configuration_with(&proxy, &origin, "", &route(&lines)));
    assert_eq!(status(&proxy, "/", "Host: h\r\n"), "200");
    let assert_rejected = |content: Option<&str>, error: &str| {
        match content {
            Some(text) => std::fs::write(&list, text).expect("write file"),
            None => std::fs::remove_file(&list).expect("remove file"),
        }
        let (succeeded, output) = proxy.weir(&["reload"]);
        assert!(!succeeded && output.contains(error), "{output}");
        assert_eq!(
            status(&proxy, "/", "Host: h\r\n"),
            "200",
            "the active list must stay active"
        );
    };
    assert_rejected(
        Some("10.0.0.0/8\nsecret words\n"),
        "allowed.txt:2: not a valid network or address",
    );
    assert_rejected(None, "cannot read the addresses");
}

#[test]
fn templates_expand_request_values() {
    let origin = Origin::start("a");
    let routes = [
        "path = \"/old/*\"\nstatus = 308\nredirect = \"https://{host}/new/{rest}?{query}\"",
        "path_regex = '^/u/([a-z]+)/(.*)$'\nstatus = 307\nredirect = \"/{2}/{header.X-A}/{1}\"",
        "path = \"/who\"\nstatus = 200\nbody = \"{client} {method} {scheme} {cookie.c}\"",
        "path = \"/to/*\"\npool = \"p\"\nrewrite = \"/v2/{host}/{rest}\"\nset_header = [\"X-Real-IP: \
         {client}\", \"X-Id: {request_id}\", \"X-All: {host} {path} {query} {pool}\"]\nadd_header = [\"X-B: \
         {header.X-A}\"]\n\
         set_response_header = [\"X-Id: {request_id}\", \"X-Server: {server} \
         {path}\"]\nadd_response_header = [{ header = \"X-Bad: 1\", status = \"400-599\" }, { header = \
         \"X-Good: {pool}\", status = 200 }]",
    ];
    let service = "set_header = [\"X-Service: s\", \"X-Id: none\"]\nset_response_header = [\"X-Frame-Options: \
         DENY\"]\n\
                   remove_response_header = [\"X-Origin\"]";
    let proxy = start_proxy(&origin, service, &routes.map(route).concat());
    let extra = "Host: h.example:8080\r\nX-A: a b/c\r\nCookie: c=1\r\nX-B: own\r\n";
    let location = |target: &str| {
        let (head, _) = fetch(&proxy, target, extra);
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix("Location: "));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(location("/old/x/y?a=b"), "https://h.example/new/x/y?a=b");
    assert_eq!(location("/u/ann/x"), "/x/a%20b%2Fc/ann");
    assert_eq!(
        location("/u/ann//evil.example/"),
        "/evil.example//a%20b%2Fc/ann"
    );
    assert_eq!(fetch(&proxy, "/who", extra).1, "127.0.0.1 GET http 1");
    let (head, forwarded) = fetch(&proxy, "/to/z?q", extra);
    assert!(
        forwarded.starts_with("a\nGET /v2/h.example/z?q HTTP/1.1\r\n"),
        "{forwarded}"
    );
    for line in [
        "X-Real-IP: 127.0.0.1\r\n",
        "X-All: h.example /to/z q p\r\n",
        "X-B: own\r\n",
        "X-B: a b/c\r\n",
        "X-Service: s\r\n",
    ] {
        assert_eq!(forwarded.matches(line).count(), 1, "{line}: {forwarded}");
    }
    let id = |text: &str| {
        let lines: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("X-Id: "))
            .collect();
        assert_eq!(lines.len(), 1, "{text}");
        lines[0].to_owned()
    };
    assert_eq!(id(&forwarded), id(&head));
    assert_eq!(id(&head).len(), 32);
    let server = format!("X-Server: {} /to/z\r\n", origin.address());
    for line in [
        server.as_str(),
        "X-Good: p\r\n",
        "X-Frame-Options: DENY\r\n",
    ] {
        assert!(head.contains(line), "{line} is not in {head}");
    }
    assert!(!head.contains("X-Bad"), "{head}");
    let (_, unrouted) = fetch(&proxy, "/", extra);
    assert!(unrouted.contains("X-Id: none\r\n"), "{unrouted}");
}

#[test]
fn unknown_variables_are_reported() {
    let origin = Origin::start("a");
    let proxy = Proxy::start("http", &[free_address()], "");
    let invalid = [
        "pool = \"p\"\nset_header = [\"X: {clinet}\"]",
        "pool = \"p\"\nset_header = [\"X: {server}\"]",
        "redirect = \"/{1}\"",
    ];
    let path = proxy.directory.join("wrong.toml");
    std::fs::write(
        &path,
        configuration_with(&proxy, &origin, "", &invalid.map(route).concat()),
    )
    .expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", path.to_str().expect("not UTF-8")]);
    assert!(!succeeded, "{output}");
    for text in [
        "unknown variable `{clinet}`",
        "did you mean `{client}`?",
        "`{server}` is not known before a server is selected",
        "`{1}` has no value: `path_regex` has 0 capture groups",
    ] {
        assert!(output.contains(text), "{text} is not in {output}");
    }
}

#[test]
fn route_closes_without_a_response() {
    let origin = Origin::start("a");
    let proxy = start_proxy(&origin, "", &route("path = \"/gone\"\nclose = true"));
    let curl = |path: &str, extra: &[&str]| {
        let url = format!("http://{}{path}", proxy.listen);
        let output = Command::new("curl")
            .args(["-sS", "-o", "/dev/null", &url])
            .args(extra)
            .output()
            .expect("run curl");
        output.status.code()
    };
    assert_eq!(curl("/gone", &[]), Some(52), "expected an empty reply");
    assert_eq!(curl("/", &[]), Some(0));
    assert!(curl("/gone", &["--http2-prior-knowledge"]).is_some_and(|code| code != 0));
    assert_eq!(curl("/", &["--http2-prior-knowledge"]), Some(0));
}

#[test]
fn each_x_forwarded_field_has_its_own_rule() {
    let origin = Origin::start("a");
    let forward_with = |rules: &str| {
        let proxy = start_proxy(&origin, &format!("x_forwarded = {{ {rules} }}"), "");
        let extra = "Host: h:81\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: gopher\r\nX-Forwarded-Host: \
                    own\r\nX-Forwarded-Port: 7\r\nX-Real-IP: 192.0.2.2\r\n";
        (fetch(&proxy, "/", extra).1, proxy.listen.port())
    };
    let (text, port) = forward_with(
        "for = \"append\", proto = \"set\", host = \"set\", port = \"set\", real_ip = \"set\"",
    );
    for line in [
        "X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n".to_owned(),
        "X-Forwarded-Proto: http\r\n".to_owned(),
        "X-Forwarded-Host: h:81\r\n".to_owned(),
        format!("X-Forwarded-Port: {port}\r\n"),
        "X-Real-IP: 127.0.0.1\r\n".to_owned(),
    ] {
        let name = line.split(':').next().unwrap_or_default();
        assert!(text.contains(&line), "{line} is not in {text}");
        assert_eq!(text.matches(name).count(), 1, "{name}: {text}");
    }
    let (text, _) = forward_with("for = \"keep\", proto = \"drop\", real_ip = \"keep\"");
    assert!(text.contains("X-Forwarded-For: 192.0.2.1\r\n"), "{text}");
    assert!(text.contains("X-Real-IP: 192.0.2.2\r\n"), "{text}");
    for removed in ["X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port"] {
        assert!(!text.contains(removed), "{removed} is in {text}");
    }
}

#[test]
fn tcp_service_closes_connections_by_source() {
    let origin = Origin::start("a");
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let with_route = |conditions: &str| {
        let extra = format!("\n[[route]]\nservice = \"s\"\n{conditions}\nclose = true\n");
        super::configuration(proxy.listen, "tcp", &[origin.address()], &extra)
    };
    let is_served = || {
        let mut client = std::net::TcpStream::connect(proxy.listen).expect("connect");
        client
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("set read timeout");
        // On a closed connection, the write or the read fails.
        let mut start = [0; 12];
        std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .and_then(|()| std::io::Read::read_exact(&mut client, &mut start))
            .is_ok_and(|()| start == *b"HTTP/1.1 200")
    };
    assert!(is_served());
    proxy.reload(&with_route("source = \"127.0.0.0/8\""));
    assert!(!is_served());
    proxy.reload(&with_route("not.source = [\"127.0.0.0/8\"]"));
    assert!(is_served());
    proxy.reload(&with_route("not.source = [\"192.0.2.0/24\"]"));
    assert!(!is_served());
}
