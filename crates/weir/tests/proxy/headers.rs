//! Tests request and response heads that servers could interpret differently from Weir.
//!
//! The cases are repeated fields, underscores, removed trailers, invalid hosts, hosts of another service with client
//! authentication, and interim responses without a final response.

use super::scripted::{Action, ScriptedServer, send_text};
use super::tls::{Authority, connect, fetch};
use super::*;

/// Sends a request with these header lines. Returns the status line, and the request that the server received.
fn exchange_with(proxy: &Proxy, lines: &str) -> (String, String) {
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch(&format!("GET /x HTTP/1.1\r\n{lines}\r\n"));
    let status = head.lines().next().unwrap_or_default().to_owned();
    (status, String::from_utf8_lossy(&body).into_owned())
}

const BAD_REQUEST: &str = "HTTP/1.1 400 Bad Request";
const OK: &str = "HTTP/1.1 200 OK";

#[test]
fn second_upgrade_or_expect_is_rejected() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    for lines in [
        "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
        "Upgrade: websocket\r\nUpgrade: websocket\r\n",
        "Expect: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n",
        "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 0\r\n",
    ] {
        let (status, received) = exchange_with(&proxy, &format!("Host: a\r\n{lines}"));
        assert_eq!(status, BAD_REQUEST, "{lines} {received}");
    }
    for lines in [
        "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
    ] {
        let (status, received) = exchange_with(&proxy, &format!("Host: a\r\n{lines}"));
        assert_eq!(status, OK, "{lines}");
        assert!(
            !received.to_ascii_lowercase().contains("upgrade"),
            "{received}"
        );
    }
}

#[test]
fn fields_with_underscores_are_dropped_kept_or_rejected() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let lines = "Host: a\r\nX_Forwarded_For: 6.6.6.6\r\nA: b\r\nTransfer_Encoding: chunked\r\nX_Real-IP: 6.6.6.6\r\n";
    let route =
        "\n[[route]]\nservice = \"s\"\nheader = [\"X_Forwarded_For: 6.6.6.6\"]\nstatus = 403\n";
    let configuration_with = |service_lines: &str| {
        configuration(proxy.listen, "http", &[origin.address()], service_lines)
    };
    let (status, received) = exchange_with(&proxy, lines);
    assert_eq!(status, OK);
    assert!(
        !received.contains('_') && received.contains("A: b\r\n"),
        "{received}"
    );
    proxy.reload(&configuration_with(route));
    assert_eq!(
        exchange_with(&proxy, lines).0,
        OK,
        "routes must not match dropped fields"
    );
    proxy.reload(&configuration_with(&format!(
        "underscores = \"keep\"{route}"
    )));
    assert_eq!(exchange_with(&proxy, lines).0, "HTTP/1.1 403 Forbidden");
    proxy.reload(&configuration_with("underscores = \"keep\""));
    let (status, received) = exchange_with(&proxy, lines);
    assert_eq!(status, OK);
    assert!(
        received.contains("X_Forwarded_For: 6.6.6.6\r\n"),
        "{received}"
    );
    proxy.reload(&configuration_with("underscores = \"reject\""));
    assert_eq!(exchange_with(&proxy, lines).0, BAD_REQUEST);
    assert_eq!(exchange_with(&proxy, "Host: a_b\r\nX-Y: a_b\r\n").0, OK);
}

#[test]
fn fields_with_underscores_are_dropped_from_http2() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--http2-prior-knowledge"])
        .args(["-H", "X_Forwarded_For: 6.6.6.6", "-H", "A: b"])
        .arg(format!("http://{}/x", proxy.listen))
        .output()
        .expect("run curl");
    let received = String::from_utf8_lossy(&output.stdout);
    assert!(received.contains("a: b\r\n"), "{received}");
    assert!(!received.contains('_'), "{received}");
}

#[test]
fn trailers_with_underscores_are_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("get local address");
    let proxy = Proxy::start("http", &[address], "");
    let body = "1\r\nx\r\n0\r\nSum: 1\r\nX_Forwarded_For: 6.6.6.6\r\nSum2: 2\r\n\r\n";
    // The client sends the body in one segment, or in two segments split at `cut`.
    for cut in [body.len(), 1, 8, 12, 19, 20, 30, 45, 47, body.len() - 1] {
        let (first, second) = body.split_at(cut);
        let mut client = Client::connect(proxy.listen);
        client.send(&format!(
            "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{first}"
        ));
        let (mut server, _) = listener.accept().expect("accept a connection");
        let timeout = Some(Duration::from_secs(10));
        server.set_read_timeout(timeout).expect("set read timeout");
        let mut text = Vec::new();
        let mut read_until = |end: &[u8], sent: &mut bool, client: &mut Client| {
            let mut byte = [0];
            while !text.ends_with(end) {
                if !*sent && text.windows(4).any(|window| window == b"\r\n\r\n") {
                    *sent = true;
                    client.send(second);
                }
                server.read_exact(&mut byte).expect("read");
                text.push(byte[0]);
            }
            String::from_utf8_lossy(&text).into_owned()
        };
        let mut sent = false;
        let head = read_until(b"\r\n\r\n", &mut sent, &mut client);
        let all_bytes = read_until(b"2\r\n\r\n", &mut sent, &mut client);
        let received = &all_bytes[head.len()..];
        assert_eq!(
            received, "1\r\nx\r\n0\r\nSum: 1\r\nSum2: 2\r\n\r\n",
            "cut at {cut}"
        );
        server
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .expect("write");
        let (head, _) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(head.starts_with(OK), "{head}");
    }
}

/// Accepts a connection, reads a chunked request and responds to it. Returns the trailers and the final CRLF.
pub(super) fn receive_trailers(listener: &TcpListener) -> String {
    let (mut server, _) = listener.accept().expect("accept a connection");
    let timeout = Some(Duration::from_secs(10));
    server.set_read_timeout(timeout).expect("set read timeout");
    let (mut text, mut byte) = (Vec::new(), [0]);
    let last_chunk = |text: &[u8]| text.windows(5).position(|window| window == b"\r\n0\r\n");
    while last_chunk(&text).is_none() || !text.ends_with(b"\r\n\r\n") {
        server.read_exact(&mut byte).expect("read");
        text.push(byte[0]);
    }
    server
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .expect("write");
    let trailers = &text[last_chunk(&text).expect("no last chunk") + 5..];
    String::from_utf8_lossy(trailers).into_owned()
}

#[test]
fn trailers_that_rules_remove_or_replace_are_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("get local address");
    let rules = "remove_header = [\"X-User\"]\nset_header = [\"X-Group: none\"]";
    let route =
        "[[route]]\nservice = \"s\"\npath = \"/route\"\npool = \"p\"\nremove_header = [\"X-Role\"]";
    let configuration_with =
        |proxy: &Proxy, extra: &str| configuration(proxy.listen, "http", &[address], extra);
    let proxy = Proxy::start("http", &[free_address()], "");
    let sent_trailers = "x-user: a\r\nX-Group: b\r\nX-Role: c\r\nX-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
        Forwarded: for=6.6.6.6\r\nSum: 1\r\n\r\n";
    let forwarded_trailers = |path: &str, in_one_segment: bool| {
        let body = format!("1\r\nx\r\n0\r\n{sent_trailers}");
        let (first, second) = body.split_at(if in_one_segment { body.len() } else { 0 });
        let mut client = Client::connect(proxy.listen);
        client.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{first}"
        ));
        if !in_one_segment {
            std::thread::sleep(Duration::from_millis(50));
            client.send(second);
        }
        let trailers = receive_trailers(&listener);
        let (head, _) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(head.starts_with(OK), "{head}");
        trailers
    };
    for underscores in ["drop", "keep"] {
        let underscores = format!("underscores = \"{underscores}\"");
        for in_one_segment in [true, false] {
            proxy.reload(&configuration_with(
                &proxy,
                &format!("{underscores}\n{rules}\n{route}"),
            ));
            assert_eq!(
                forwarded_trailers("/", in_one_segment),
                "X-Role: c\r\nSum: 1\r\n\r\n"
            );
            assert_eq!(
                forwarded_trailers("/route", in_one_segment),
                "Sum: 1\r\n\r\n"
            );
            let without_rules = format!("{underscores}\nforwarded = false");
            proxy.reload(&configuration_with(&proxy, &without_rules));
            assert_eq!(
                forwarded_trailers("/", in_one_segment),
                sent_trailers,
                "without rules, trailers must be forwarded unchanged"
            );
        }
    }
}

#[test]
fn invalid_host_authority_is_rejected() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    for host in [
        "b:99999",
        "b:x",
        "b,c",
        "b%00",
        "[::1",
        "a@b",
        ":80",
        "b:80:80",
        "[::1%25lo]",
        "[::1]80",
        "b%2fc",
        "[]",
    ] {
        assert_eq!(
            exchange_with(&proxy, &format!("Host: {host}\r\n")).0,
            BAD_REQUEST,
            "{host}"
        );
    }
    for host in [
        "",
        "b",
        "b:80",
        "b:",
        "b_c",
        "b.",
        "10.0.0.1:65535",
        "[::1]",
        "[::1]:80",
        "b%c3%a9",
    ] {
        assert_eq!(
            exchange_with(&proxy, &format!("Host: {host}\r\n")).0,
            OK,
            "{host}"
        );
    }
    // The authority in the request target takes precedence and is validated in the same way.
    let mut client = Client::connect(proxy.listen);
    let (head, body) = client.fetch("GET http://b:80/x HTTP/1.1\r\nHost: c\r\n\r\n");
    let received = String::from_utf8_lossy(&body);
    assert!(
        head.starts_with(OK) && received.contains("Host: b:80\r\n"),
        "{received}"
    );
    for target in [
        "http://b:99999/x",
        "http://b,c/",
        "http://a@b/",
        "http://b%00/",
    ] {
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch(&format!("GET {target} HTTP/1.1\r\nHost: b\r\n\r\n"));
        assert!(head.starts_with(BAD_REQUEST), "{target} {head}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn request_for_another_service_with_client_auth_causes_421() {
    let authority = Authority::new("misdirected");
    let open = authority.sign("open", "DNS:*.b.example,DNS:open.test", 30);
    let client_certificate = authority.sign("client", "DNS:client", 30);
    let name = "DNS:admin.b.example,DNS:other.test";
    let guarded = authority.sign("guarded", name, 30);
    let origin = Origin::start("o");
    let (first, second) = (free_address(), free_address());
    let text = |extra: &str| {
        format!(
            "[pool.p]\nservers = [\"{0}\"]\n\n[service.s]\nlisten = [\"{first}\"]\nforward = \"proxy\"\nprotocol = \
             \"http\"\n\
             pool = \"p\"\ntls = {{ certificates = \"{1}\"{extra} }}\n\n[service.admin]\nlisten = [\"{second}\"]\n\
             forward = \"proxy\"\n\
             protocol = \"http\"\npool = \"p\"\ntls = {{ certificates = \"{2}\", client_ca = \"{3}\" }}\n",
            origin.address(),
            open.display(),
            guarded.display(),
            authority.ca(),
        )
    };
    let proxy = Proxy::start("http", &[origin.address()], "");
    proxy.reload(&text(""));
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let anonymous = authority.client(None);
    // All requests use one connection: a misdirected request does not close it.
    let mut stream = connect(&anonymous, first, "www.b.example");
    for (host, status) in [
        ("www.b.example", "200"),
        ("admin.b.example", "421"),
        ("ADMIN.b.example:443", "421"),
        ("other.test", "421"),
        ("open.test", "200"),
        ("unknown.test", "200"),
    ] {
        let response = fetch(&mut stream, &get(host)).expect("fetch");
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{host}: {response}"
        );
    }
    let mut stream = connect(
        &authority.client(Some(&client_certificate)),
        second,
        "admin.b.example",
    );
    for host in ["admin.b.example", "other.test", "www.b.example"] {
        let response = fetch(&mut stream, &get(host)).expect("fetch");
        assert!(response.starts_with("HTTP/1.1 200 "), "{host}: {response}");
    }
    let curl = |host: &str| {
        let ca = authority.ca();
        let output = Command::new("curl")
            .args([
                "-sS",
                "--max-time",
                "20",
                "--http2",
                "-o",
                "/dev/null",
                "-w",
                "%{http_version} %{http_code}",
            ])
            .args(["--cacert", &ca, "-H", &format!("Host: {host}")])
            .arg("--resolve")
            .arg(format!("www.b.example:{}:127.0.0.1", first.port()))
            .arg(format!("https://www.b.example:{}/", first.port()))
            .output()
            .expect("run curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(curl("admin.b.example"), "2 421");
    assert_eq!(curl("open.test"), "2 200");
    proxy.reload(&text(", sni_host = \"ignore\""));
    assert_eq!(curl("admin.b.example"), "2 200");
    proxy.reload(&text(", sni_host = \"same\""));
    assert_eq!(curl("open.test"), "2 421");
    assert_eq!(curl("www.b.example"), "2 200");
}

#[test]
fn interim_response_without_final_causes_502() {
    for interim in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
    ] {
        let origin =
            ScriptedServer::start(vec![vec![Action::Read, send_text(interim), Action::Close]]);
        let proxy = Proxy::start("http", &[origin.address()], "");
        let mut client = Client::connect(proxy.listen);
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut text = String::new();
        while !text.contains("502") {
            let response = client.read_response().expect("read response");
            let (head, body) =
                response.unwrap_or_else(|| panic!("connection closed after {text:?}"));
            text += &head;
            text += &String::from_utf8_lossy(&body);
        }
        assert!(text.starts_with(interim), "{text}");
        // The client can continue to use the connection.
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, _) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(head.starts_with("HTTP/1.1 10"), "{head}");
    }
}
