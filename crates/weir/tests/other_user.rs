//! Tests that another local user and a remote client can neither read secrets nor make changes.

#[path = "admin/daemon.rs"]
#[allow(dead_code, reason = "this test uses only a part of the module")]
mod daemon;
mod world;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use daemon::AdminDaemon;
use world::{Family, World, privileged};

const SECRET: &str = "TOPSECRET-sticky-0123456789";
/// Value of a header field that authenticates a CDN to the origin.
const SECRET_FIELD: &str = "TOPSECRET-field-0123456789";

/// Requests that change something, and requests with a file path.
const CHANGES: [(&str, &str, &str); 7] = [
    ("POST", "/v1/reload", ""),
    ("POST", "/v1/reload", "{\"text\": \"\"}"),
    ("POST", "/v1/plan", "{\"path\": \"/etc/shadow\"}"),
    (
        "POST",
        "/v1/servers/p/127.0.0.1:1",
        "{\"state\": \"drain\"}",
    ),
    ("PUT", "/v1/servers/p/127.0.0.9:1", "{}"),
    ("POST", "/v1/ipvsadm", "{}"),
    ("POST", "/v1/upgrade", "{\"program\": \"/bin/true\"}"),
];

fn run_as_other_user(program: &str, arguments: &[&str]) -> Output {
    Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("run setpriv")
}

fn service_address(config: &str) -> &str {
    let listen = config
        .split("listen = [\"")
        .nth(1)
        .expect("the service address should exist");
    listen.split('"').next().expect("text contains an address")
}

/// Returns a service's response to a request for `path`.
fn fetch_page(daemon: &AdminDaemon, path: &str) -> String {
    let config = fs::read_to_string(daemon.config()).expect("read the file");
    let mut stream = TcpStream::connect(service_address(&config)).expect("connect");
    let limit = std::time::Duration::from_secs(20);
    stream
        .set_read_timeout(Some(limit))
        .expect("set the read timeout");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("send the request");
    let mut response = String::new();
    stream
        .read_to_string(&mut response)
        .expect("read the response");
    response
}

fn output_text(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the paths of a directory and everything below it.
fn paths_below(directory: &Path) -> Vec<PathBuf> {
    let mut paths = vec![directory.to_owned()];
    for entry in fs::read_dir(directory)
        .expect("read the directory")
        .flatten()
    {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            paths.extend(paths_below(&entry.path()));
        } else {
            paths.push(entry.path());
        }
    }
    paths
}

/// Returns the sorted paths below a directory, without temporary files. It omits the contents, because the daemon may
/// change its files at any time.
fn sorted_paths(directory: &Path) -> Vec<PathBuf> {
    let mut paths = paths_below(directory);
    paths.retain(|path| path.extension().is_none_or(|it| it != "new"));
    paths.sort();
    paths
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn another_local_user_cannot_read_secrets_or_make_changes() {
    if !privileged() {
        return;
    }
    let daemon = AdminDaemon::start("");
    let config = fs::read_to_string(daemon.config()).expect("read the file");
    let sticky = format!("[pool.p]\nsticky = {{ cookie = \"SRV\", secret = \"{SECRET}\" }}\n");
    let route = format!(
        "[[route]]\nservice = \"s\"\nheader = [\"X-Origin: {SECRET_FIELD}\"]\npool = \"p\"\n"
    );
    let config = config.replace("[pool.p]\n", &sticky) + &route;
    daemon.write("weir.toml", &config);
    let (reloaded, printed) = daemon.weir(&["reload"]);
    assert!(reloaded && !printed.contains(SECRET), "{printed}");
    for command in [&["plan"][..], &["status"], &["status", "--json"]] {
        let (_, printed) = daemon.weir(command);
        assert!(!printed.contains(SECRET), "{command:?}: {printed}");
    }
    assert!(!daemon.log().contains(SECRET), "{}", daemon.log());

    let run = daemon.directory.join("run");
    let before = sorted_paths(&run);
    assert!(before.len() > 4, "{before:?}");
    for path in &before {
        let path = path.to_str().expect("path is valid UTF-8");
        let output = run_as_other_user("cat", &[path]);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{path} can be read"
        );
        let listing = run_as_other_user("ls", &[path]);
        assert!(
            path == run.to_str().unwrap_or("") || !listing.status.success(),
            "{path} can be listed"
        );
        for (program, arguments) in [
            ("sh", vec!["-c", "echo x >> \"$0\"", path]),
            ("rm", vec!["-rf", path]),
            ("mv", vec![path, "/tmp/"]),
            ("ln", vec!["-s", "/etc/passwd", path]),
            ("chmod", vec!["0777", path]),
        ] {
            let output = run_as_other_user(program, &arguments);
            assert!(!output.status.success(), "{program} {path} succeeded");
        }
    }
    assert!(
        run_as_other_user("ls", &[run.to_str().expect("path is valid UTF-8")])
            .stdout
            .is_empty()
    );
    assert_eq!(sorted_paths(&run), before);

    let socket = run.join("weir.sock");
    let socket = socket.to_str().expect("path is valid UTF-8");
    let output = run_as_other_user(
        "curl",
        &["-sS", "--unix-socket", socket, "http://weir/v1/status"],
    );
    assert!(
        !output.status.success(),
        "the socket must not respond to another user: {}",
        output_text(&output)
    );

    let revision = |daemon: &AdminDaemon| {
        let (_, status) = daemon.weir(&["status", "--json"]);
        let status: serde_json::Value =
            serde_json::from_str(&status).expect("output is valid JSON");
        status["revision"].clone()
    };
    let active_revision = revision(&daemon);
    for (method, path, body) in CHANGES {
        let response = daemon.fetch(method, path, None, body);
        assert_eq!(response.code(), 401, "{method} {path}: {}", response.0);
    }
    let request = r#"{"request": "GET http://HOST/x"}"#.replace("HOST", service_address(&config));
    let response = daemon.fetch("POST", "/v1/explain", None, &request).0;
    assert!(
        response.contains("x-origin=#") && !response.contains(SECRET_FIELD),
        "{response}"
    );
    let response = daemon
        .fetch(
            "POST",
            "/v1/explain",
            Some(&daemon.runtime_token()),
            &request,
        )
        .0;
    assert!(response.contains(SECRET_FIELD), "{response}");
    for path in ["/v1/status", "/metrics"] {
        let response = daemon.get(path, None);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let token = daemon.runtime_token();
        assert!(
            !response.contains(SECRET)
                && !response.contains(SECRET_FIELD)
                && !response.contains(&token),
            "{path}: {response}"
        );
    }
    assert_eq!(revision(&daemon), active_revision);
}

/// An unprivileged account owns the directory of a log or an error page.
#[test]
fn root_does_not_follow_links_of_directory_owner() {
    if !privileged() {
        return;
    }
    let daemon = AdminDaemon::start("");
    let account_directory = daemon.directory.join("account");
    fs::create_dir(&account_directory).expect("create a directory");
    std::os::unix::fs::chown(&account_directory, Some(65_534), None).expect("change the owner");
    fs::set_permissions(&daemon.directory, PermissionsExt::from_mode(0o755))
        .expect("set the file mode");
    let (secret, victim) = (
        daemon.directory.join("secret"),
        daemon.directory.join("victim"),
    );
    fs::write(&secret, SECRET).expect("write the file");
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).expect("set the file mode");
    let link = |target: &Path, name: &str| {
        let (target, name) = (target.display().to_string(), account_directory.join(name));
        let name = name.to_str().expect("path is valid UTF-8");
        let output = run_as_other_user("ln", &["-sfn", &target, name]);
        assert!(output.status.success(), "{}", output_text(&output));
    };
    link(&victim, "access.log");
    link(&secret, "404.html");
    let config = fs::read_to_string(daemon.config()).expect("read the file");
    let account_directory = account_directory.display();
    let reload = |keys: &str| {
        daemon.write("weir.toml", &format!("{config}{keys}\n"));
        daemon.weir(&["reload"])
    };
    let (_, printed) = reload(&format!("access_log = \"{account_directory}/access.log\""));
    fetch_page(&daemon, "/");
    assert!(
        !victim.exists(),
        "the link at the log's path was followed: {printed}"
    );
    let page = format!(
        "error_pages = [{{ status = \"404\", file = \"{account_directory}/404.html\" }}]\n[[route]]\nservice = \"s\"\n\
         path = \"/none\"\nstatus = 404\n"
    );
    let (reloaded, printed) = reload(&page);
    let response = fetch_page(&daemon, "/none");
    assert!(
        !response.contains(SECRET),
        "the page must not contain the secret: {response}"
    );
    assert!(
        !reloaded && printed.contains("a link owned by user 65534"),
        "{printed}"
    );
    // The daemon follows a link that root created.
    assert!(
        run_as_other_user("rm", &[&format!("{account_directory}/404.html")])
            .status
            .success()
    );
    std::os::unix::fs::symlink(&secret, format!("{account_directory}/404.html"))
        .expect("create a symbolic link");
    let (reloaded, printed) = reload(&page);
    assert!(reloaded, "{printed}");
    assert!(fetch_page(&daemon, "/none").contains(SECRET));
}

#[test]
fn remote_client_without_token_is_rejected() {
    if !privileged() {
        return;
    }
    let mut world = World::new(0);
    let address = SocketAddr::new(Family::V4.director(), 9900);
    let authority = daemon::Authority::new(&world.path("tls"));
    let certificate = authority.sign("admin", "IP:10.71.0.3");
    let tokens = world.path("tokens");
    let tokens = tokens.to_str().expect("path is valid UTF-8");
    world.run_weir(&[
        "token", "add", "deploy", "--role", "write", "--file", tokens,
    ]);
    world.start_daemon(&format!(
        "[node]\nadmin = {{ listen = \"{address}\", tls = {{ certificates = \"{certificate}\" }}, tokens = \
         \"{tokens}\" }}\n"
    ));
    let runtime_token =
        fs::read_to_string(world.path("run-director").join("token")).expect("read the token");
    let active_revision = world.status()["revision"].clone();
    let read_requests =
        ["/v1/caller", "/v1/status", "/metrics", "/v1/explain"].map(|path| ("GET", path, ""));
    for (method, path, body) in read_requests.into_iter().chain(CHANGES) {
        // Try without a token, with the runtime directory's token, and with a guessed one.
        for token in ["", runtime_token.trim(), "0123456789abcdef0123456789abcdef"] {
            let mut command = world.command("client", "curl");
            command.args(["-sS", "--max-time", "20", "--cacert", &authority.ca()]);
            command.args(["-X", method, "-w", " code=%{http_code}"]);
            if !token.is_empty() {
                command.args(["-H", &format!("Authorization: Bearer {token}")]);
            }
            if !body.is_empty() {
                command.args(["-d", body]);
            }
            let output = command.arg(format!("https://{address}{path}")).output();
            let text = output_text(&output.expect("run curl"));
            assert!(text.contains("code=401"), "{method} {path}: {text}");
            assert!(!text.contains("root:"), "{text}");
        }
    }
    assert_eq!(world.status()["revision"], active_revision);
}
