//! Tests `forward_auth`: a separate server authorizes requests from HTTP/1 and HTTP/2 clients.
//!
//! Weir does not forward a request until that server has authorized it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::headers::receive_trailers;
use super::keeper::wait_until;
use super::{Client, Origin, Proxy, free_address, fs};

/// An authorization server with persistent connections. Its response depends on the client's `X-Ticket`.
struct AuthServer {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
}

impl AuthServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let auth_server = Self {
            address: listener.local_addr().expect("get local address"),
            heads: Arc::default(),
            connections: Arc::default(),
        };
        let (heads, connections) = (
            Arc::clone(&auth_server.heads),
            Arc::clone(&auth_server.connections),
        );
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                *connections.lock().expect("lock poisoned") += 1;
                let heads = Arc::clone(&heads);
                // Ignore errors: the test closes connections intentionally.
                std::thread::spawn(move || drop(serve(&stream, &heads)));
            }
        });
        auth_server
    }

    /// Returns the heads of all authorization requests.
    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("lock poisoned").clone()
    }
}

fn serve(stream: &TcpStream, heads: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        heads.lock().expect("lock poisoned").push(head.clone());
        let lower = head.to_ascii_lowercase();
        let ticket = lower
            .lines()
            .find_map(|line| line.strip_prefix("x-ticket: "));
        let response = match ticket.unwrap_or_default() {
            "good" => "HTTP/1.1 200 OK\r\nX-User: alice\r\nx-user: bob\r\nX-Auth-Mail: a@example\r\nX-Secret: 1\r\n\
                       Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                .to_owned(),
            "early" => "HTTP/1.1 103 Early Hints\r\nX-User: evil\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "bad" => "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"x\"\r\nX-Secret: 1\r\n\
                      Content-Length: 6\r\n\r\nsecret"
                .to_owned(),
            "forbidden" => "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "login" => "HTTP/1.1 302 Found\r\nLocation: https://login.example/?rd=/\r\nSet-Cookie: s=1\r\n\
                        Content-Length: 0\r\n\r\n"
                .to_owned(),
            "slow" => {
                std::thread::sleep(Duration::from_secs(3));
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
            "close" => return Ok(()),
            "garbage" => "not HTTP\r\n\r\n".to_owned(),
            "upgrade" => "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_owned(),
            other => format!("HTTP/1.1 {other} Status\r\nContent-Length: 0\r\n\r\n"),
        };
        writer.write_all(response.as_bytes())?;
    }
}

/// Returns a configuration with `auth` as its `forward_auth` and with these lines in the service.
fn configuration_with_auth(
    proxy: &Proxy,
    origin: SocketAddr,
    auth_server: SocketAddr,
    auth: &str,
    service_lines: &str,
) -> String {
    let listen = proxy.listen;
    format!(
        "[pool.p]\nservers = [\"{origin}\"]\n\n[pool.auth]\nservers = [\"{auth_server}\"]\n\n[service.s]\nlisten = \
         [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"p\"\n{service_lines}\n\n[[route]]\n\
         service = \"s\"\npath = \"/open/*\"\npool = \"p\"\n\n[[route]]\nservice = \"s\"\npool = \"p\"\n\
         forward_auth = {{ pool = \"auth\", {auth} }}\n"
    )
}

const AUTH: &str = "path = \"/verify?a=b\", timeout = \"1s\", copy_header = [\"X-User\", \"X-Mail: X-Auth-Mail\"], \
    set_header = [\"X-Original-URI: {path}\", \"X-Client: {client}\"]";

fn start(auth: &str, extra: &str) -> (Proxy, Origin, AuthServer) {
    let (origin, auth_server) = (Origin::start("o"), AuthServer::start());
    let proxy = Proxy::start("http", &[free_address()], "");
    proxy.reload(&configuration_with_auth(
        &proxy,
        origin.address(),
        auth_server.address,
        auth,
        extra,
    ));
    (proxy, origin, auth_server)
}

/// Sends a request with this ticket. Returns the head and the body of the response.
fn fetch(client: &mut Client, ticket: &str, extra: &str) -> (String, String) {
    let (head, body) = client.fetch(&format!(
        "GET /a/b?c=d HTTP/1.1\r\nHost: a.example\r\nX-Ticket: {ticket}\r\n{extra}\r\n"
    ));
    (head, String::from_utf8_lossy(&body).into_owned())
}

/// Returns a counter of the service.
fn count(proxy: &Proxy, name: &str) -> u64 {
    let details = &proxy.status()["services"][0]["details"];
    details[name].as_u64().expect("not a number")
}

/// Asserts that `haystack` contains all of the parts.
fn assert_contains(haystack: &str, parts: &[&str]) {
    for part in parts {
        assert!(haystack.contains(part), "{part} is not in {haystack}");
    }
}

/// Asserts that `haystack` contains none of the parts.
fn assert_contains_none(haystack: &str, parts: &[&str]) {
    for part in parts {
        assert!(!haystack.contains(part), "{part} is in {haystack}");
    }
}

/// Asserts that the client receives the authorization server's response when that server rejects a request.
fn assert_rejections_reach_the_client(client: &mut Client) {
    let (head, body) = fetch(client, "bad", "");
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert!(
        head.contains("\r\nWWW-Authenticate: Bearer realm=\"x\"\r\n"),
        "{head}"
    );
    assert!(
        !head.contains("X-Secret") && !body.contains("secret"),
        "{head}{body}"
    );
    let (head, _) = fetch(client, "forbidden", "");
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let (head, _) = fetch(client, "login", "");
    assert!(head.starts_with("HTTP/1.1 302 "), "{head}");
    assert_contains(
        &head,
        &[
            "\r\nLocation: https://login.example/?rd=/\r\n",
            "\r\nSet-Cookie: s=1\r\n",
        ],
    );
}

#[test]
fn admitted_requests_get_copied_fields_and_others_get_the_auth_response() {
    let (proxy, origin, auth_server) = start(AUTH, "");
    let mut client = Client::connect(proxy.listen);
    let spoofed = "X-User: root\r\nx-mail: root\r\nX-Client: 1\r\nX-Forwarded-Uri: /\r\nAuthorization: Bearer t\r\n\
        Connection: X-Hop\r\nX-Hop: 1\r\nIf-None-Match: \"e\"\r\n";
    let (head, received) = fetch(&mut client, "good", spoofed);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_contains(
        &received,
        &[
            "GET /a/b?c=d HTTP/1.1\r\n",
            "\r\nX-User: alice\r\nX-User: bob\r\nX-Mail: a@example\r\n",
            "\r\nAuthorization: Bearer t\r\n",
            "\r\nIf-None-Match: \"e\"\r\n",
        ],
    );
    assert_contains_none(&received, &["root", "X-Secret", "hello", "X-Hop"]);
    let auth_request = auth_server.heads().pop().expect("no authorization request");
    assert_contains(
        &auth_request,
        &[
            "GET /verify?a=b HTTP/1.1\r\nHost: a.example\r\n",
            "\r\nX-Ticket: good\r\n",
            "\r\nAuthorization: Bearer t\r\n",
            "\r\nX-Original-URI: /a/b?c=d\r\n",
            "\r\nX-Client: 127.0.0.1\r\n",
            "\r\nX-Forwarded-Method: GET\r\n",
            "\r\nX-Forwarded-Uri: /a/b?c=d\r\n",
            "\r\nX-Forwarded-Host: a.example\r\n",
            "\r\nX-Forwarded-For: 127.0.0.1\r\n",
            "\r\nX-Forwarded-Proto: http\r\n",
        ],
    );
    assert_contains_none(
        &auth_request,
        &[
            "X-Client: 1\r\n",
            "X-Forwarded-Uri: /\r\n",
            "X-Hop",
            "If-None-Match",
        ],
    );
    // If the authorization response lacks the fields, Weir still removes the client's fields.
    let (head, received) = fetch(&mut client, "early", "X-User: root\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        !received.to_ascii_lowercase().contains("x-user"),
        "{received}"
    );
    assert_rejections_reach_the_client(&mut client);
    // All requests use one connection to the authorization server and one to the origin.
    assert_eq!(*auth_server.connections.lock().expect("lock poisoned"), 1);
    assert_eq!(origin.connections(), 1);
    // On a route without `forward_auth`, Weir sends no authorization request.
    let before = auth_server.heads().len();
    let (head, _) = client.fetch("GET /open/x HTTP/1.1\r\nHost: a\r\nX-Ticket: bad\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(auth_server.heads().len(), before);
    assert_eq!(
        ["auth_admitted", "auth_refused", "auth_failed"].map(|name| count(&proxy, name)),
        [2, 3, 0]
    );
    assert_eq!(count(&proxy, "mirrored"), 0);
    let (succeeded, output) = proxy.weir(&[
        "explain",
        "--request",
        &format!("GET http://{}/a", proxy.listen),
    ]);
    let part = "forward_auth: GET /verify?a=b from pool auth, timeout 1s, copies X-User X-Auth-Mail as X-Mail";
    assert!(succeeded && output.contains(part), "{output}");
}

#[test]
fn no_request_is_admitted_without_a_verdict() {
    let (proxy, origin, auth_server) = start(AUTH, "");
    let mut client = Client::connect(proxy.listen);
    for ticket in [
        "500", "404", "304", "429", "407", "close", "garbage", "upgrade", "slow",
    ] {
        let (head, body) = fetch(&mut client, ticket, "");
        assert!(head.starts_with("HTTP/1.1 503 "), "{ticket}: {head}");
        assert!(!body.starts_with("o\n"), "{ticket}: {body}");
    }
    // The client's connection stays open.
    assert!(
        fetch(&mut client, "good", "")
            .0
            .starts_with("HTTP/1.1 200 ")
    );
    assert_eq!(count(&proxy, "auth_failed"), 9);
    // The authorization server is unreachable.
    let unreachable = free_address();
    proxy.reload(&configuration_with_auth(
        &proxy,
        origin.address(),
        unreachable,
        AUTH,
        "",
    ));
    let (head, _) = fetch(&mut client, "good", "");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    // If a reload happens during an authorization request, the new configuration applies.
    proxy.reload(&configuration_with_auth(
        &proxy,
        origin.address(),
        auth_server.address,
        &AUTH.replace("1s", "20s"),
        "",
    ));
    let auth_requests = auth_server.heads().len();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Ticket: slow\r\n\r\n");
    wait_until("the authorization request has arrived", || {
        auth_server.heads().len() > auth_requests
    });
    proxy.reload(&configuration_with_auth(
        &proxy,
        origin.address(),
        free_address(),
        AUTH,
        "",
    ));
    let (head, _) = client
        .read_response()
        .expect("read response")
        .expect("no response");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn requests_with_bodies_pipelined_requests_and_http2_requests_are_authorized() {
    let (proxy, _origin, auth_server) = start(AUTH, "");
    let mut client = Client::connect(proxy.listen);
    for length in [10, 10_000, 300_000] {
        let body = "x".repeat(length);
        let (head, sum) = client.fetch(&format!(
            "POST /sum HTTP/1.1\r\nHost: a\r\nX-Ticket: good\r\nContent-Type: text/plain\r\nContent-Length: \
             {length}\r\n\r\n{body}"
        ));
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(sum, length.to_string().as_bytes());
    }
    let (_, sum) = client.fetch(
        "POST /sum HTTP/1.1\r\nHost: a\r\nX-Ticket: good\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(sum, b"5");
    for head in auth_server.heads() {
        assert!(head.starts_with("GET /verify"), "{head}");
        let lower = head.to_ascii_lowercase();
        assert!(
            !lower.contains("content-") && !lower.contains("transfer-encoding"),
            "{head}"
        );
        assert!(lower.contains("x-forwarded-method: post\r\n"), "{head}");
    }
    let request = |ticket: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nX-Ticket: {ticket}\r\n\r\n");
    let tickets = ["good", "bad", "500", "good", "forbidden"];
    client.send(&tickets.map(request).concat());
    let statuses = tickets.map(|_| {
        let (head, _) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        head[9..12].to_owned()
    });
    assert_eq!(statuses, ["200", "401", "503", "200", "403"]);
    // The same applies over HTTP/2.
    let curl = |ticket: &str| {
        let output = Command::new("curl")
            .args(["-s", "--max-time", "20", "--http2-prior-knowledge", "-H"])
            .arg(format!("X-Ticket: {ticket}"))
            .args(["-o", "/dev/null", "-w", "%{http_code} %{http_version}"])
            .arg(format!("http://{}/", proxy.listen))
            .output()
            .expect("run curl (see tools/install-deps.sh)");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(curl("good"), "200 2");
    assert_eq!(curl("bad"), "401 2");
    assert_eq!(curl("close"), "503 2");
}

#[test]
fn client_cookies_and_trailers_cannot_spoof_copied_fields() {
    let (proxy, origin, auth_server) = start(AUTH, "");
    let auth = "copy_header = [\"Cookie: X-User\", \"X-User\"]";
    let configuration_for = |address: SocketAddr| {
        let configuration = configuration_with_auth(&proxy, address, auth_server.address, auth, "");
        configuration.replacen("\n\n", "\nsticky = { cookie = \"SRV\" }\n\n", 1)
    };
    proxy.reload(&configuration_for(origin.address()));
    let mut client = Client::connect(proxy.listen);
    let (head, received) = fetch(&mut client, "good", "Cookie: SRV=x; admin=1\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_contains(&received, &["\r\nCookie: alice\r\n"]);
    assert_contains_none(&received, &["admin"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    proxy.reload(&configuration_for(
        listener.local_addr().expect("get local address"),
    ));
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nX-Ticket: good\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx-user: \
         root\r\nSum: 1\r\n\r\n",
    );
    assert_eq!(receive_trailers(&listener), "Sum: 1\r\n\r\n");
}

#[test]
fn limits_and_passwords_apply_before_forward_auth() {
    let users = "users = [\"a:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"]";
    let auth =
        format!("{AUTH} }}\nbasic_auth = {{ {users} }}\nlimits = {{ rate = \"3/m\", burst = 3");
    let (proxy, _origin, auth_server) = start(&auth, "");
    let mut client = Client::connect(proxy.listen);
    let (head, _) = fetch(&mut client, "good", "");
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert_eq!(auth_server.heads().len(), 0);
    let password = "Authorization: Basic YTpwYXNzd29yZA==\r\n";
    let mut statuses = Vec::new();
    for ticket in ["good", "forbidden", "good", "good", "good"] {
        let (head, _) = fetch(&mut client, ticket, password);
        statuses.push(head[9..12].to_owned());
    }
    // The request without a password also counts toward the limit of three.
    let admitted = statuses.iter().filter(|status| *status != "429").count();
    assert_eq!(auth_server.heads().len(), admitted, "{statuses:?}");
    assert!(
        statuses.starts_with(&["200".to_owned(), "403".to_owned()]),
        "{statuses:?}"
    );
    assert_eq!(
        statuses.last().map(String::as_str),
        Some("429"),
        "{statuses:?}"
    );
}

/// If a route with `restart` changes the path, the `forward_auth` of the new path's route applies.
#[test]
fn rewritten_path_uses_forward_auth_of_its_new_route() {
    let (proxy, origin, auth_server) = start(AUTH, "");
    let routes = |path: &str, rewrite: &str| {
        let first = format!(
            "\n[[route]]\nservice = \"s\"\npath = \"{path}\"\nrewrite = \"{rewrite}\"\nrestart = \"first\"\n"
        );
        let configuration =
            configuration_with_auth(&proxy, origin.address(), auth_server.address, AUTH, "");
        configuration.replacen("\n[[route]]", &format!("{first}\n[[route]]"), 1)
    };
    let get = |path: &str, ticket: &str| {
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch(&format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nX-Ticket: {ticket}\r\n\r\n"
        ));
        head[9..12].to_owned()
    };
    proxy.reload(&routes("/open/secret/*", "/a/{rest}"));
    assert_eq!(get("/open/secret/x", "bad"), "401");
    assert_eq!(get("/open/secret/x", "good"), "200");
    assert_eq!(get("/open/x", "bad"), "200");
    let auth_requests = auth_server.heads().len();
    proxy.reload(&routes("/a/*", "/open/{rest}"));
    assert_eq!(get("/a/x", "bad"), "200");
    assert_eq!(auth_server.heads().len(), auth_requests);
    assert_eq!(get("/b", "bad"), "401");
}

#[test]
fn circular_forward_auth_is_rejected() {
    let (proxy, origin, _auth_server) = start(AUTH, "");
    let file = proxy.directory.join("loop.toml");
    let circular = configuration_with_auth(&proxy, origin.address(), proxy.listen, AUTH, "");
    fs::write(&file, circular).expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(
        !succeeded && output.contains("which also uses `forward_auth`"),
        "{output}"
    );
    let missing = configuration_with_auth(&proxy, origin.address(), origin.address(), AUTH, "")
        .replace("pool = \"auth\"", "pool = \"j\"");
    fs::write(&file, missing).expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(
        !succeeded && output.contains("pool `j` does not exist"),
        "{output}"
    );
}
