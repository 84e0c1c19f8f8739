//! Tests alternative spellings of paths.
//!
//! Routes match the normalized path, and servers receive the path that the client sent.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_model::SplitMix64;

use super::origin::Origin;
use super::{Client, Proxy, free_address};

const FORBIDDEN: &str = "\n[[route]]\nservice = \"s\"\npath = \"/admin/*\"\nstatus = 403\n";

/// Spellings of `/admin/x`.
const SPELLINGS: [&str; 13] = [
    "/admin/x",
    "//admin/x",
    "/%61dmin/x",
    "/x/../admin/x",
    "/./admin/x",
    "/x/%2e%2e/admin/x",
    "/x/.%2E/admin/x",
    "/admin//x",
    "/%2e/admin/x",
    "/../admin/x",
    "/a//../admin/x",
    "///%61%64%6d%69%6E/./x",
    "/admin/y/../x?z=1",
];

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn status(head: &str) -> &str {
    head.get(9..12).unwrap_or_default()
}

/// Sends a request over HTTP/2. Returns the status and the first line that the server received.
fn fetch_http2(proxy: &Proxy, target: &str) -> (String, String) {
    let output = Command::new("curl")
        .args(["-sS", "--http2-prior-knowledge", "--path-as-is"])
        .args(["--max-time", "20", "-w", "\n%{http_code}"])
        .arg(format!("http://{}{target}", proxy.listen))
        .output()
        .expect("run curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = text.lines().last().unwrap_or_default().to_owned();
    (code, text.lines().nth(1).unwrap_or_default().to_owned())
}

/// Sends a request and returns the request line that the server received.
fn forwarded_request_line(client: &mut Client, target: &str) -> String {
    let (head, body) = client.fetch(&get(target));
    assert_eq!(status(&head), "200", "{target}: {head}");
    let body = String::from_utf8_lossy(&body).into_owned();
    body.lines().nth(1).unwrap_or_default().to_owned()
}

#[test]
fn every_path_spelling_matches_its_route() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], FORBIDDEN);
    let mut client = Client::connect(proxy.listen);
    let mut accepted_targets = Vec::new();
    for target in SPELLINGS {
        let absolute = format!("http://a.example{target}");
        for target in [target, &absolute] {
            if status(&client.fetch(&get(target)).0) != "403" {
                accepted_targets.push(target.to_owned());
            }
        }
        if fetch_http2(&proxy, target).0 != "403" {
            accepted_targets.push(format!("HTTP/2: {target}"));
        }
    }
    assert_eq!(
        accepted_targets,
        Vec::<String>::new(),
        "these spellings bypass the rule"
    );
    for other in [
        "/admin",
        "/administrator/x",
        "/x?/admin/x",
        "/x/..admin/x",
        "/admin%2Fx",
    ] {
        assert_eq!(status(&client.fetch(&get(other)).0), "200", "{other}");
    }
}

#[test]
fn path_is_forwarded_as_received() {
    let origin = Origin::start("o");
    let directory = std::env::temp_dir().join(format!("weir-paths-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("create directory");
    let file = directory.join("access.log");
    let log = format!("access_log = \"{}\"", file.display());
    let proxy = Proxy::start("http", &[origin.address()], &log);
    let mut client = Client::connect(proxy.listen);
    for target in SPELLINGS
        .iter()
        .chain(&["/a%2fb;c=/%C3%a9?%zz=//", "/a|{b}\\c"])
    {
        let line = format!("GET {target} HTTP/1.1");
        assert_eq!(forwarded_request_line(&mut client, target), line);
        if !target.contains(['{', '\\']) {
            assert_eq!(fetch_http2(&proxy, target).1, line);
        }
    }
    let read = || fs::read_to_string(&file).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !read().contains("/a|{b}") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let log_text = read();
    for target in SPELLINGS {
        assert!(
            log_text.contains(&format!("\"GET {target} HTTP/1.1\"")),
            "{log_text}"
        );
    }
    let _ = fs::remove_dir_all(&directory);
}

#[test]
fn normalized_path_is_forwarded_if_configured() {
    let origin = Origin::start("o");
    let extra = format!("normalize_path = {{ forward = \"normalized\" }}\n{FORBIDDEN}");
    let proxy = Proxy::start("http", &[origin.address()], &extra);
    let mut client = Client::connect(proxy.listen);
    for (target, line) in [
        ("//a/./b/../%63?x=/..//%61", "GET /a/c?x=/..//%61 HTTP/1.1"),
        ("/a%2fb|c", "GET /a%2Fb%7Cc HTTP/1.1"),
        ("http://h?q", "GET /?q HTTP/1.1"),
        ("/plain?q", "GET /plain?q HTTP/1.1"),
    ] {
        assert_eq!(
            forwarded_request_line(&mut client, target),
            line,
            "{target}"
        );
    }
    let (head, body) = client.fetch("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(status(&head), "200");
    assert!(body.starts_with(b"o\nOPTIONS * HTTP/1.1\r\n"));
    assert_eq!(fetch_http2(&proxy, "/x/../%61").1, "GET /a HTTP/1.1");
}

#[test]
fn rewrites_use_the_normalized_path() {
    let origin = Origin::start("o");
    let routes = "\n[[route]]\nservice = \"s\"\npath = \"/api/*\"\npool = \"p\"\nrewrite = \"/v2/{rest}\"\n\
                  \n[[route]]\nservice = \"s\"\npath_regex = '^/u/([^/]+)/(.*)$'\npool = \"p\"\nrewrite = \
                  \"/{2}/of/{1}\"\n\
                  \n[[route]]\nservice = \"s\"\npath = \"/old/*\"\nredirect = \"https://new{path}\"\n";
    let proxy = Proxy::start("http", &[origin.address()], routes);
    let mut client = Client::connect(proxy.listen);
    for (target, path) in [
        ("/api/x?y=/../z", "/v2/x?y=/../z"),
        ("//api//x/../y?q=//", "/v2/y?q=//"),
        ("/%61pi/a/%2e%2e/b", "/v2/b"),
        ("/x/../api/y", "/v2/y"),
        ("/api/%2e%2e/api/y", "/v2/y"),
        ("/api/..%2fy", "/v2/..%2Fy"),
        ("/u/a/../%62/c", "/c/of/b"),
    ] {
        let line = format!("GET {path} HTTP/1.1");
        assert_eq!(
            forwarded_request_line(&mut client, target),
            line,
            "{target}"
        );
    }
    // A path that leaves `/api/` after normalization does not match the route.
    assert_eq!(
        forwarded_request_line(&mut client, "/api/../y"),
        "GET /api/../y HTTP/1.1"
    );
    let (head, _) = client.fetch(&get("//old/./x?y"));
    assert!(head.contains("https://new//old/./x?y\r\n"), "{head}");
}

#[test]
fn invalid_escapes_cause_400_and_keep_the_connection() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], FORBIDDEN);
    let mut client = Client::connect(proxy.listen);
    for target in ["/%00", "/a%", "/a%4", "/a%zz/b", "/a%%61"] {
        assert_eq!(status(&client.fetch(&get(target)).0), "400", "{target}");
        assert_eq!(fetch_http2(&proxy, target).0, "400", "{target}");
    }
    assert_eq!(status(&client.fetch(&get("/a?%zz%00")).0), "200");
    let raw = format!("normalize_path = false\n{FORBIDDEN}");
    let proxy = Proxy::start("http", &[origin.address()], &raw);
    let mut client = Client::connect(proxy.listen);
    assert_eq!(status(&client.fetch(&get("/a%zz")).0), "200");
    assert_eq!(
        status(&client.fetch(&get("//admin/x")).0),
        "200",
        "the path must be forwarded as received"
    );
    assert_eq!(status(&client.fetch(&get("/admin/x")).0), "403");
}

#[test]
fn encoded_slash_is_handled_as_configured() {
    let origin = Origin::start("o");
    let status_with = |key: &str, target: &str| {
        let extra = format!("normalize_path = {{ encoded_slash = \"{key}\" }}\n{FORBIDDEN}");
        let proxy = Proxy::start("http", &[origin.address()], &extra);
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch(&get(target));
        status(&head).to_owned()
    };
    for target in [
        "/x%2F..%2fadmin/x",
        "/x\\..\\admin\\x",
        "/x%5c..%5Cadmin%2fx",
    ] {
        assert_eq!(status_with("keep", target), "200", "{target}");
        assert_eq!(status_with("decode", target), "403", "{target}");
        assert_eq!(status_with("reject", target), "400", "{target}");
    }
    assert_eq!(status_with("reject", "/x?%2F"), "200");
}

#[test]
fn limits_and_hashes_use_the_normalized_path() {
    let origin = Origin::start("o");
    let limits = "limits = { rate = 1, burst = 5, key = \"path\" }";
    let proxy = Proxy::start("http", &[origin.address()], limits);
    let mut client = Client::connect(proxy.listen);
    let mut fetch = |target: &str| status(&client.fetch(&get(target)).0).to_owned();
    let spellings = SPELLINGS.iter().filter(|target| !target.contains('?'));
    let statuses: Vec<String> = spellings.map(|target| fetch(target)).collect();
    let limited = statuses.iter().filter(|status| *status == "429").count();
    // Some of the limit may be replenished, because a few seconds may pass between the requests.
    assert!(limited >= 4, "{statuses:?}");
    assert_eq!(fetch("/another"), "200");

    let servers: Vec<Origin> = (0..8)
        .map(|index| Origin::start(&format!("o{index}")))
        .collect();
    let addresses: Vec<SocketAddr> = servers.iter().map(Origin::address).collect();
    let hash = "\n[pool.h]\nscheduler = { name = \"hash\", key = \"uri\" }\nservers = [";
    let list: Vec<String> = addresses
        .iter()
        .map(|address| format!("\"{address}\""))
        .collect();
    let route = "\n[[route]]\nservice = \"s\"\npath = \"/admin/*\"\npool = \"h\"\n";
    let extra = format!("{hash}{}]\n{route}", list.join(", "));
    let proxy = Proxy::start("http", &addresses, &extra);
    let mut client = Client::connect(proxy.listen);
    let spellings = SPELLINGS.iter().filter(|target| !target.contains('?'));
    let selected_servers: BTreeSet<Vec<u8>> = spellings
        .map(|target| client.fetch(&get(target)).1)
        .map(|body| {
            body.split(|byte| *byte == b'\n')
                .next()
                .unwrap_or_default()
                .to_vec()
        })
        .collect();
    assert_eq!(selected_servers.len(), 1, "{selected_servers:?}");
}

#[test]
fn explain_shows_both_path_forms_and_check_reports_unreachable_routes() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], FORBIDDEN);
    let explain = |target: &str| {
        let request = format!("GET http://{}{target}", proxy.listen);
        proxy.weir(&["explain", "--request", &request]).1
    };
    let output = explain("//x/../%61dmin/x?y");
    for part in [
        "path received: //x/../%61dmin/x\n",
        "path normalized: /admin/x, used to match routes",
        "forwarded as received",
        "response 403",
    ] {
        assert!(output.contains(part), "{part} is not in {output}");
    }
    assert!(!explain("/admin/x").contains("normalized"));
    assert!(explain("/%zz").contains("response 400: malformed escape in the path"));

    let file = proxy.directory.join("old.toml");
    let text = fs::read_to_string(proxy.directory.join("weir.toml")).expect("read file");
    let check = |text: String| {
        fs::write(&file, text).expect("write file");
        proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")])
    };
    let (succeeded, output) = check(text.replace("/admin/*", "//admin/*"));
    assert!(succeeded && output.contains("warning[W031]"), "{output}");
    assert!(
        output.contains("old.toml:") && output.contains("write path = \"/admin/*\""),
        "{output}"
    );
    let (succeeded, output) = check(text.replace("/admin/*", "/%61dmin/%c3*"));
    assert!(succeeded && output.contains("warning[W030]"), "{output}");
    assert!(output.contains("compared as `/admin/%C3*`"), "{output}");
    let received = text.replace("/admin/*", "//admin/*");
    let received = received.replace("pool = \"p\"\n", "pool = \"p\"\nnormalize_path = false\n");
    let (succeeded, output) = check(received);
    assert!(succeeded && !output.contains("W03"), "{output}");
}

/// nginx on a separate port. It responds with the path that it matches against its locations. Dropping it stops nginx.
struct Nginx {
    child: Child,
    directory: PathBuf,
    listen: SocketAddr,
}

impl Nginx {
    fn start() -> Self {
        let directory = std::env::temp_dir().join(format!("weir-nginx-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("create directory");
        let listen = free_address();
        let prefix = directory.display();
        let text = format!(
            "daemon off; master_process off; pid {prefix}/pid; error_log {prefix}/error.log;\nevents {{}}\nhttp {{ \
             access_log off; \
             client_body_temp_path {prefix}/b; proxy_temp_path {prefix}/p; fastcgi_temp_path {prefix}/f; \
             uwsgi_temp_path {prefix}/u; \
             scgi_temp_path {prefix}/s;\nserver {{ listen {listen}; location / {{ return 200 $uri; }} error_page 400 \
             /; }} }}\n"
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, text).expect("write file");
        let child = Command::new("nginx")
            .arg("-c")
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .expect("start nginx (see tools/install-deps.sh)");
        let nginx = Self {
            child,
            directory,
            listen,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(listen).is_err() {
            assert!(Instant::now() < deadline, "nginx is not listening");
            std::thread::sleep(Duration::from_millis(20));
        }
        nginx
    }

    /// Returns the path that nginx matches, or `None` if it responds with 400.
    fn matched_path(&self, target: &str) -> Option<Vec<u8>> {
        let mut stream = TcpStream::connect(self.listen).expect("connect to nginx");
        let request = format!("GET {target} HTTP/1.0\r\nHost: h\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("write");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("read response");
        if !response.starts_with(b"HTTP/1.1 200 ") {
            let head = String::from_utf8_lossy(&response).into_owned();
            assert!(head.starts_with("HTTP/1.1 400 "), "{target}: {head}");
            return None;
        }
        let end = response.windows(4).position(|window| window == b"\r\n\r\n");
        Some(response[end.expect("incomplete head") + 4..].to_vec())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Decodes percent-encoded bytes. Malformed escapes are kept.
fn percent_decode(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        match u8::from_str_radix(digits, 16) {
            Ok(value) => out.push(value),
            Err(_) => out.extend_from_slice(format!("%{digits}").as_bytes()),
        }
        out.extend_from_slice(rest.as_bytes());
    }
    out
}

/// Returns whether dot segments in any spelling lead above the root. For such a path, nginx responds with 400, but Weir
/// stays at the root, as RFC 3986 section 5.2.4 requires.
fn leads_above_root(target: &str) -> bool {
    let path = String::from_utf8_lossy(&percent_decode(target)).into_owned();
    let mut depth = 0;
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

/// Returns random paths composed of special parts. The seed is fixed.
fn corpus(count: usize, with_encoded_slashes: bool) -> Vec<String> {
    const PARTS: [&str; 24] = [
        "/", "/", "/", "/", "//", ".", "..", "/..", "/.", "/../", "%2e", "%2E.", "a", "b.c", "..d",
        "%61", "%7E", "%c3%A9", "%3b;x=1", "%25", "%20", "|{\"", "%zz", "%00",
    ];
    const SLASHES: [&str; 2] = ["%2f", "%2F.."];
    let mut random = SplitMix64::new(1);
    let mut next_below = |end: usize| random.below(end as u64) as usize;
    let mut corpus = Vec::new();
    while corpus.len() < count {
        let mut path = "/".to_owned();
        for _ in 0..next_below(10) {
            // Malformed parts are rare, so that most paths can be compared.
            let part = match next_below(PARTS.len() + 40) {
                index if index >= PARTS.len() => PARTS[index % (PARTS.len() - 2)],
                index => PARTS[index],
            };
            path.push_str(part);
            if with_encoded_slashes && next_below(4) == 0 {
                path.push_str(SLASHES[next_below(2)]);
            }
        }
        corpus.push(path);
    }
    corpus
}

#[test]
fn path_normalization_matches_nginx() {
    let nginx = Nginx::start();
    let origin = Origin::start("o");
    for (key, with_encoded_slashes) in [("keep", false), ("decode", true)] {
        let extra =
            format!("normalize_path = {{ encoded_slash = \"{key}\", forward = \"normalized\" }}");
        let proxy = Proxy::start("http", &[origin.address()], &extra);
        let mut client = Client::connect(proxy.listen);
        let (mut same, mut rejected, mut above) = (0, 0, 0);
        for target in corpus(600, with_encoded_slashes) {
            let (head, body) = client.fetch(&get(&target));
            let weir_path = (status(&head) == "200").then(|| {
                let body = String::from_utf8_lossy(&body).into_owned();
                let line = body.lines().nth(1).unwrap_or_default();
                percent_decode(line.split(' ').nth(1).unwrap_or_default())
            });
            let nginx_path = nginx.matched_path(&target);
            match (&weir_path, &nginx_path) {
                (Some(_), None) => {
                    assert!(leads_above_root(&target), "only nginx rejects {target}");
                    above += 1;
                }
                _ => {
                    assert_eq!(
                        weir_path.as_deref().map(String::from_utf8_lossy),
                        nginx_path.as_deref().map(String::from_utf8_lossy),
                        "{target}"
                    );
                    same += usize::from(weir_path.is_some());
                    rejected += usize::from(weir_path.is_none());
                }
            }
        }
        eprintln!("{key}: {same} equal, {rejected} rejected by both, {above} above the root");
        assert!(
            same >= 200 && rejected >= 10 && above >= 10,
            "{same} {rejected} {above}"
        );
    }
    // The only other difference: nginx treats a backslash as an ordinary character, Weir as a slash.
    assert_eq!(
        nginx.matched_path("/a%5cb\\c").as_deref(),
        Some(&b"/a\\b\\c"[..])
    );
}
