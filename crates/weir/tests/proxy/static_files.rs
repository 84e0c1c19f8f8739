//! Tests the `files` key of routes with curl.

use std::os::unix::fs::symlink;
use std::process::Command;

use super::origin::Origin;
use super::{Client, Proxy, free_address, fs};

/// Starts a daemon with these routes and creates a directory of files. Replaces `ROOT` with the directory's path.
fn start_proxy(origin: &Origin, routes: &[&str]) -> Proxy {
    let daemon = Proxy::start("http", &[free_address()], "");
    let root = daemon.directory.join("site");
    fs::create_dir_all(root.join("sub/deep")).expect("create directory");
    fs::create_dir_all(root.join(".well-known/acme-challenge")).expect("create directory");
    fs::create_dir_all(root.join("empty")).expect("create directory");
    fs::create_dir(root.join(".git")).expect("create directory");
    for (name, content) in [
        ("index.html", "front"),
        ("sub/index.html", "below"),
        ("page.html", "page"),
        ("a b.txt", "0123456789"),
        (".well-known/acme-challenge/token", "proof"),
        (".git/config", "hidden"),
        ("../outside.txt", "outside"),
        ("nothing", ""),
    ] {
        fs::write(root.join(name), content).expect("write file");
    }
    let big: Vec<u8> = (0..1_500_000u32).map(|index| (index % 251) as u8).collect();
    fs::write(root.join("big.bin"), big).expect("write file");
    symlink("../outside.txt", root.join("escape")).expect("create link");
    symlink("/etc/hostname", root.join("absolute")).expect("create link");
    symlink("page.html", root.join("inside")).expect("create link");
    let mkfifo = Command::new("mkfifo").arg(root.join("pipe")).status();
    assert!(mkfifo.expect("run mkfifo").success());
    let (server, listen) = (origin.address(), daemon.listen);
    let routes: Vec<String> = routes
        .iter()
        .map(|lines| {
            let lines = lines.replace("ROOT", root.to_str().expect("not UTF-8"));
            format!("[[route]]\nservice = \"s\"\n{lines}\n")
        })
        .collect();
    daemon.reload(&format!(
        "[pool.p]\nservers = [\"{server}\"]\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \
         \"http\"\npool = \"p\"\n\n{}",
        routes.concat()
    ));
    daemon
}

/// Returns the head and the body that curl receives.
fn curl(proxy: &Proxy, path: &str, arguments: &[&str]) -> (String, Vec<u8>) {
    let output = Command::new("curl")
        .args(["-s", "-i", "--path-as-is", "--max-time", "20"])
        .args(arguments)
        .arg(format!("http://{}{path}", proxy.listen))
        .output()
        .expect("run curl (see tools/install-deps.sh)");
    let text = output.stdout;
    let end = text.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.map_or(text.len(), |offset| offset + 4);
    (
        String::from_utf8_lossy(&text[..end]).into_owned(),
        text[end..].to_vec(),
    )
}

/// Returns the status code that curl receives.
fn status(proxy: &Proxy, path: &str, arguments: &[&str]) -> String {
    let (head, _) = curl(proxy, path, arguments);
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Returns the value of the first field with this name. The name is case-sensitive.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let prefix = format!("{name}: ");
    head.lines()
        .find_map(|line| line.strip_prefix(prefix.as_str()))
}

#[test]
fn files_are_served_and_escapes_from_the_root_are_rejected() {
    let origin = Origin::start("o");
    let proxy = start_proxy(
        &origin,
        &[
            "path = \"/app/*\"\n\
             files = { root = \"ROOT\", strip = \"/app\", try = [\"{path}\", \"{path}.html\", \"/index.html\"] }",
            "path = \"/gone/*\"\nfiles = { root = \"ROOT\", strip = \"/gone\", index = [] }\nstatus = 410",
            "path = \"/pool\"\npool = \"p\"",
            "files = \"ROOT\"\nset_response_header = [\"Cache-Control: max-age=60\", \
             { header = \"X-Error: {path}\", status = \"400-499\" }]",
        ],
    );
    let (head, body) = curl(&proxy, "/", &[]);
    assert_eq!(body, b"front", "{head}");
    assert_eq!(field(&head, "Content-Type"), Some("text/html"), "{head}");
    assert_eq!(field(&head, "Cache-Control"), Some("max-age=60"), "{head}");
    assert_eq!(curl(&proxy, "/sub/", &[]).1, b"below");
    assert_eq!(curl(&proxy, "/a%20b.txt?x=y", &[]).1, b"0123456789");
    assert_eq!(curl(&proxy, "/inside", &[]).1, b"page");
    assert_eq!(
        curl(&proxy, "/.well-known/acme-challenge/token", &[]).1,
        b"proof"
    );
    let (head, body) = curl(&proxy, "/nothing", &[]);
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body.is_empty(),
        "{head}"
    );
    let (head, _) = curl(&proxy, "/sub?x=y", &[]);
    assert!(head.starts_with("HTTP/1.1 301 "), "{head}");
    assert_eq!(field(&head, "Location"), Some("/sub/?x=y"), "{head}");
    for missing in [
        "/.git/config",
        "/escape",
        "/absolute",
        "/pipe",
        "/no",
        "/page.html/",
        "/page.html/x",
        "/sub/%2e%2e%2f%2e%2e%2foutside.txt",
        "/..%2foutside.txt",
        "/%00",
        "/sub/.%2e/index.html%2f",
    ] {
        assert!(
            matches!(status(&proxy, missing, &[]).as_str(), "404" | "400"),
            "{missing}"
        );
    }
    assert_eq!(status(&proxy, "/../outside.txt", &[]), "404");
    // Weir does not list a directory without an index.
    assert_eq!(status(&proxy, "/empty/", &[]), "403");
    assert_eq!(curl(&proxy, "/app/page", &[]).1, b"page");
    assert_eq!(curl(&proxy, "/app/some/view", &[]).1, b"front");
    assert_eq!(status(&proxy, "/gone/x", &[]), "410");
    assert_eq!(status(&proxy, "/gone/sub/", &[]), "410");
    assert!(curl(&proxy, "/pool", &[]).1.starts_with(b"o\n"));
    let (head, _) = curl(&proxy, "/", &["-X", "POST", "-d", "x"]);
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    assert_eq!(field(&head, "Allow"), Some("GET, HEAD"), "{head}");
    assert_eq!(field(&head, "Cache-Control"), Some("max-age=60"), "{head}");
    assert_eq!(field(&head, "X-Error"), Some("/"), "{head}");
    let (head, body) = curl(&proxy, "/page.html", &["-I"]);
    assert_eq!(
        (field(&head, "Content-Length"), body.len()),
        (Some("4"), 0),
        "{head}"
    );
}

#[test]
fn range_conditional_and_pipelined_requests_are_served() {
    let origin = Origin::start("o");
    let proxy = start_proxy(&origin, &["files = \"ROOT\""]);
    let (head, body) = curl(&proxy, "/big.bin", &[]);
    let is_complete = body.len() == 1_500_000
        && (0..)
            .zip(&body)
            .all(|(index, byte)| index % 251 == u32::from(*byte));
    assert!(is_complete, "{head}");
    let (head, _) = curl(&proxy, "/page.html", &[]);
    let tag = field(&head, "ETag").expect("no ETag").to_owned();
    let date = field(&head, "Last-Modified")
        .expect("no Last-Modified")
        .to_owned();
    let status_with = |name: &str, value: &str| {
        status(&proxy, "/page.html", &["-H", &format!("{name}: {value}")])
    };
    assert_eq!(status_with("If-None-Match", &tag), "304");
    assert_eq!(status_with("If-None-Match", "\"other\""), "200");
    assert_eq!(status_with("If-Modified-Since", &date), "304");
    assert_eq!(status_with("If-Match", "\"other\""), "412");
    let fetch_range = |range: &str, extra: &[&str]| {
        let range = format!("Range: bytes={range}");
        let mut arguments = vec!["-H", range.as_str()];
        arguments.extend(extra);
        curl(&proxy, "/a%20b.txt", &arguments)
    };
    let (head, body) = fetch_range("2-4", &[]);
    assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
    assert_eq!(
        (field(&head, "Content-Range"), body.as_slice()),
        (Some("bytes 2-4/10"), &b"234"[..])
    );
    assert_eq!(fetch_range("-3", &[]).1, b"789");
    assert_eq!(
        fetch_range("0-1,4-5", &[]).1,
        b"0123456789",
        "a Range header with several ranges must be ignored"
    );
    assert_eq!(
        fetch_range("2-4", &["-H", "If-Range: \"other\""]).1,
        b"0123456789"
    );
    let (head, _) = fetch_range("10-", &[]);
    assert!(head.starts_with("HTTP/1.1 416 "), "{head}");
    assert_eq!(field(&head, "Content-Range"), Some("bytes */10"));
    let range = "Range: bytes=1000000-1299999";
    let (_, body) = curl(&proxy, "/big.bin", &["-H", range]);
    assert!(body.len() == 300_000 && body[0] == (1_000_000 % 251) as u8);
    // The connection persists, and pipelined requests get their responses in order.
    let mut client = Client::connect(proxy.listen);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send(
        &[
            get("/page.html"),
            get("/big.bin"),
            get("/no"),
            get("/index.html"),
        ]
        .concat(),
    );
    let mut next = || {
        client
            .read_response()
            .expect("read response")
            .expect("no response")
    };
    let lengths = [0; 4].map(|_| next().1.len());
    assert_eq!([lengths[0], lengths[1], lengths[3]], [4, 1_500_000, 5]);
    // Test HTTP/2 without TLS.
    let (_, body) = curl(&proxy, "/big.bin", &["--http2-prior-knowledge"]);
    assert_eq!(body.len(), 1_500_000);
}

#[test]
fn missing_directory_is_rejected() {
    let origin = Origin::start("o");
    let proxy = start_proxy(&origin, &["files = \"ROOT\""]);
    let path = proxy.directory.join("weir.toml");
    let text = fs::read_to_string(&path).expect("read file");
    fs::write(&path, text.replace("/site\"", "/absent\"")).expect("write file");
    let (succeeded, output) = proxy.weir(&["reload"]);
    assert!(!succeeded && output.contains("/absent"), "{output}");
    assert_eq!(curl(&proxy, "/page.html", &[]).1, b"page");
    let (succeeded, output) = proxy.weir(&[
        "explain",
        "--request",
        &format!("GET http://{}/x", proxy.listen),
    ]);
    assert!(
        succeeded && output.contains("/site: a file, or response 404"),
        "{output}"
    );
}

/// Weir looks up files by the decoded path, but routes match the normalized path, which keeps `%2F` and `%40`.
#[test]
fn alternative_path_spellings_do_not_bypass_authentication() {
    let origin = Origin::start("o");
    let users = "basic_auth = { users = [\"a:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"] }";
    let routes = [
        format!("path = \"/sub/*\"\nfiles = \"ROOT\"\n{users}"),
        "path = \"/.git/*\"\nstatus = 403".to_owned(),
        "files = \"ROOT\"".to_owned(),
    ];
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    let proxy = start_proxy(&origin, &routes);
    assert_eq!(status(&proxy, "/sub/index.html", &[]), "401");
    assert_eq!(status(&proxy, "//sub//index.html", &[]), "401");
    assert_eq!(status(&proxy, "/%73ub/index.html", &[]), "401");
    for spelling in [
        "/sub%2Findex.html",
        "/sub%2findex.html",
        "/%2fsub/index.html",
        "/sub%2F",
        "/%2F%2Fsub%2F%2Findex.html",
    ] {
        assert_eq!(status(&proxy, spelling, &[]), "404", "{spelling}");
    }
    let credentials = ["-u", "a:password"];
    assert_eq!(curl(&proxy, "/sub/index.html", &credentials).1, b"below");
    // Weir serves a percent-encoded path if no other route matches the decoded path.
    assert_eq!(curl(&proxy, "/page%2Ehtml", &[]).1, b"page");
}

#[test]
fn requests_for_missing_files_are_sent_to_the_pool() {
    let origin = Origin::start("o");
    let proxy = start_proxy(
        &origin,
        &[
            "path = \"/*\"\nfiles = { root = \"ROOT\", try = [\"{path}\"], pool = \"p\" }\nset_header = [\"X-A: b\"]",
        ],
    );
    let (head, body) = curl(&proxy, "/page.html", &[]);
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body == b"page",
        "{head}"
    );
    let (head, body) = curl(&proxy, "/absent?q", &[]);
    let received = String::from_utf8_lossy(&body).into_owned();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        received.starts_with("o\nGET /absent?q HTTP/1.1\r\n") && received.contains("X-A: b\r\n"),
        "{received}"
    );
    // With this `try`, a directory does not count as a file. Files support only GET and HEAD.
    assert!(curl(&proxy, "/sub/", &[]).1.starts_with(b"o\n"));
    let (head, _) = curl(&proxy, "/page.html", &["-X", "POST", "-d", "x"]);
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    let large_file = format!("@{}", proxy.directory.join("site/big.bin").display());
    for (data, length) in [("hello", "5"), (large_file.as_str(), "1500000")] {
        for protocol in ["--http1.1", "--http2-prior-knowledge"] {
            let (_, body) = curl(
                &proxy,
                "/sum",
                &["--data-binary", data, protocol, "-H", "Expect:"],
            );
            assert_eq!(body, length.as_bytes(), "{protocol}");
        }
    }
    // The connection stays open in all cases.
    let mut client = Client::connect(proxy.listen);
    for (path, expected) in [
        ("/page.html", "page"),
        ("/absent", "o\n"),
        ("/page.html", "page"),
    ] {
        let (_, body) = client.fetch(&format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert!(body.starts_with(expected.as_bytes()), "{path}");
    }
}

#[test]
fn field_of_a_file_is_sent_regardless_of_the_request_path() {
    let origin = Origin::start("o");
    let proxy = start_proxy(
        &origin,
        &[
            "files = { root = \"ROOT\", try = [\"{path}\", \"{path}/\", \"/index.html\"] }\n\
             add_response_header = [{ header = \"X-Page: a\", file = \"/index.html\" }, \
             { header = \"X-Found: b\", file = \"/index.html\", status = \"200\" }, \
             { header = \"X-Below: c\", file = \"/sub/index.html\" }]",
        ],
    );
    for (path, expected) in [
        ("/", [true, true, false]),
        ("/index.html", [true, true, false]),
        ("/some/view", [true, true, false]),
        ("/sub/", [false, false, true]),
        ("/page.html", [false, false, false]),
    ] {
        let (head, _) = curl(&proxy, path, &[]);
        let actual = ["X-Page", "X-Found", "X-Below"].map(|name| field(&head, name).is_some());
        assert_eq!(actual, expected, "{path}: {head}");
    }
    let (head, _) = curl(&proxy, "/", &["-H", "If-None-Match: *"]);
    assert!(head.starts_with("HTTP/1.1 304 "), "{head}");
    let actual = ["X-Page", "X-Found"].map(|name| field(&head, name).is_some());
    assert_eq!(actual, [true, false], "{head}");
}

#[test]
fn server_page_for_missing_files_has_the_configured_status() {
    let origin = Origin::start("o");
    let proxy = start_proxy(
        &origin,
        &[
            "path = \"/*\"\nfiles = { root = \"ROOT\", try = [\"{path}\"], pool = \"p\" }\n\
             rewrite = \"/missing?\"\nresponse_status = 404",
        ],
    );
    assert_eq!(curl(&proxy, "/page.html", &[]).1, b"page");
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let (head, body) = curl(&proxy, "/absent?q", &[protocol]);
        assert_eq!(head.split(' ').nth(1), Some("404"), "{head}");
        assert!(body.starts_with(b"o\nGET /missing HTTP/1.1\r\n"), "{head}");
    }
}
