//! Tests `basic_auth` with passwords from htpasswd files and from the configuration.
//!
//! The passwords are verified outside the worker threads.

use std::process::Command;
use std::time::{Duration, Instant};

use super::origin::Origin;
use super::{Client, Proxy, free_address, fs, keeper};

/// Starts a daemon with these lines in its service and these routes to its pool.
fn start_proxy(origin: &Origin, service: &str, routes: &[String]) -> Proxy {
    let daemon = Proxy::start("http", &[free_address()], "");
    daemon.reload(&configuration_with(&daemon, origin, service, routes));
    daemon
}

fn configuration_with(proxy: &Proxy, origin: &Origin, service: &str, routes: &[String]) -> String {
    let (server, listen) = (origin.address(), proxy.listen);
    let routes: Vec<String> = routes
        .iter()
        .map(|lines| format!("[[route]]\nservice = \"s\"\n{lines}\n"))
        .collect();
    format!(
        "[pool.p]\nservers = [\"{server}\"]\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \
         \"http\"\npool = \"p\"\n{service}\n\n{}",
        routes.concat()
    )
}

/// Returns the status code that curl receives.
fn curl(proxy: &Proxy, path: &str, arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--max-time",
            "20",
        ])
        .args(arguments)
        .arg(format!("http://{}{path}", proxy.listen))
        .output()
        .expect("run curl (see tools/install-deps.sh)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn htpasswd(arguments: &[&str]) {
    let output = Command::new("htpasswd").args(arguments).output();
    let output = output.expect("run htpasswd (see tools/install-deps.sh)");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn htpasswd_users_are_admitted_and_others_get_401() {
    let origin = Origin::start("o");
    let directory = std::env::temp_dir().join(format!("weir-users-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("create directory");
    let file = directory.join("users");
    let name = file.to_str().expect("not UTF-8");
    htpasswd(&["-cbB", name, "bcrypt", "secret one"]);
    htpasswd(&["-bm", name, "apr1", "secret two"]);
    htpasswd(&["-bs", name, "sha", "secret:three"]);
    let crypt = "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/";
    let routes = [
        format!(
            "path = \"/admin/*\"\npool = \"p\"\n\
             basic_auth = {{ realm = \"Staff\", file = {name:?}, users = [\"crypt:{crypt}\"] }}"
        ),
        "path = \"/text\"\nstatus = 200\nbasic_auth = { users = [\"a:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"] }".to_owned(),
    ];
    let proxy = start_proxy(&origin, "", &routes);
    let admin = |user: &str| curl(&proxy, "/admin/x", &["-u", user]);
    for user in [
        "bcrypt:secret one",
        "apr1:secret two",
        "sha:secret:three",
        "crypt:password",
    ] {
        // Weir verifies the password first, and then finds it in the cache.
        assert_eq!(admin(user), "200", "{user}");
        assert_eq!(admin(user), "200", "{user}");
    }
    for user in [
        "bcrypt:secret two",
        "bcrypt:",
        "absent:secret one",
        ":",
        "crypt:{SHA}",
    ] {
        assert_eq!(admin(user), "401", "{user}");
    }
    assert_eq!(curl(&proxy, "/admin/x", &[]), "401");
    assert_eq!(curl(&proxy, "/other", &[]), "200");
    assert_eq!(curl(&proxy, "/text", &[]), "401");
    assert_eq!(curl(&proxy, "/text", &["-u", "a:password"]), "200");
    // A connection continues after a rejected request. Requests that wait for password verification keep their order.
    let mut client = Client::connect(proxy.listen);
    let (head, _) = client.fetch("GET /admin/x HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{head}");
    assert!(
        head.contains("WWW-Authenticate: Basic realm=\"Staff\", charset=\"UTF-8\"\r\n"),
        "{head}"
    );
    let good = "GET /text HTTP/1.1\r\nHost: h\r\nAuthorization: Basic YTpwYXNzd29yZA==\r\n\r\n";
    let bad = "GET /text HTTP/1.1\r\nHost: h\r\nAuthorization: Basic YTp3cm9uZw==\r\n\r\n";
    client.send(&[good, bad, good].concat());
    let statuses = [0; 3].map(|_| {
        let (head, _) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        head.split(' ').nth(1).unwrap_or_default().to_owned()
    });
    assert_eq!(statuses, ["200", "401", "200"]);
    // Weir rejects two Authorization fields, because a server could use the one that Weir did not verify.
    let (head, _) = client.fetch(&good.replace(
        "\r\n\r\n",
        "\r\nAuthorization: Basic YTpwYXNzd29yZA==\r\n\r\n",
    ));
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    let _ = fs::remove_dir_all(&directory);
}

#[test]
fn changed_user_file_applies_and_invalid_file_keeps_previous_users() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[free_address()], "");
    let file = proxy.directory.join("users");
    fs::write(&file, "a:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n").expect("write file");
    let service = format!("basic_auth = {{ file = {file:?} }}");
    let open = "path = \"/open\"\nstatus = 204\nbasic_auth = false".to_owned();
    let configuration = configuration_with(&proxy, &origin, &service, &[open]);
    proxy.reload(&configuration);
    assert_eq!(curl(&proxy, "/open", &[]), "204");
    assert_eq!(curl(&proxy, "/", &["-u", "a:password"]), "200");
    assert_eq!(curl(&proxy, "/", &["-u", "b:password"]), "401");
    let wait_until = |description: &str, condition: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !condition() {
            assert!(Instant::now() < deadline, "timed out: {description}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // Weir rereads the file without a reload.
    fs::write(&file, "# new\nb:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n").expect("write file");
    wait_until("the new user is admitted", &|| {
        curl(&proxy, "/", &["-u", "b:password"]) == "200"
    });
    assert_eq!(curl(&proxy, "/", &["-u", "a:password"]), "401");
    fs::write(&file, "b:plain text\n").expect("write file");
    wait_until("the status reports the invalid file", &|| {
        proxy.status()["list_error"].is_string()
    });
    assert_eq!(curl(&proxy, "/", &["-u", "b:password"]), "200");
    assert_eq!(curl(&proxy, "/", &[]), "401");
    let (succeeded, output) = proxy.weir(&["reload"]);
    assert!(
        !succeeded && output.contains("users:1: unknown password hash format"),
        "{output}"
    );
    assert!(!output.contains("plain text"), "{output}");
    fs::remove_file(&file).expect("remove file");
    let path = proxy.directory.join("weir.toml");
    let (succeeded, output) = proxy.weir(&["check", "-c", path.to_str().expect("not UTF-8")]);
    assert!(
        !succeeded && output.contains("cannot read the users"),
        "{output}"
    );
}

/// The response time must not reveal which users exist, so Weir verifies a password even for unknown users.
#[test]
fn password_is_verified_even_for_unknown_users() {
    let origin = Origin::start("o");
    let users = "basic_auth = { users = [\"a:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"] }";
    let proxy = start_proxy(&origin, users, &[]);
    let daemon = keeper::daemon(proxy.child.id());
    let has_password_thread = || {
        let threads = fs::read_dir(format!("/proc/{daemon}/task")).expect("read /proc");
        let mut names = threads.map(|entry| {
            fs::read_to_string(entry.expect("read directory entry").path().join("comm"))
        });
        names.any(|name| name.is_ok_and(|name| name.trim() == "weir-password"))
    };
    assert_eq!(curl(&proxy, "/", &[]), "401");
    assert!(!has_password_thread());
    // The password belongs to another user.
    assert_eq!(curl(&proxy, "/", &["-u", "unknown:password"]), "401");
    assert!(has_password_thread());
    assert_eq!(curl(&proxy, "/", &["-u", "a:password"]), "200");
    assert_eq!(curl(&proxy, "/", &["-u", "unknown:password"]), "401");
}

/// Verifying a password is much more expensive than rejecting a request.
#[test]
fn limits_apply_before_a_password_is_verified_and_count_a_request_once() {
    let origin = Origin::start("o");
    let users = "basic_auth = { users = [\"a:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"] }";
    let limited = |path: &str| {
        format!("path = \"{path}\"\npool = \"p\"\nlimits = {{ rate = \"1/m\", burst = 2 }}")
    };
    let routes = [limited("/one"), limited("/two")];
    let proxy = start_proxy(&origin, users, &routes);
    let daemon = keeper::daemon(proxy.child.id());
    let has_password_thread = || {
        let threads = fs::read_dir(format!("/proc/{daemon}/task")).expect("read /proc");
        let mut names = threads.map(|entry| {
            fs::read_to_string(entry.expect("read directory entry").path().join("comm"))
        });
        names.any(|name| name.is_ok_and(|name| name.trim() == "weir-password"))
    };
    // Rejected requests also count.
    assert_eq!(curl(&proxy, "/one", &[]), "401");
    assert_eq!(curl(&proxy, "/one", &[]), "401");
    assert_eq!(curl(&proxy, "/one", &["-u", "a:password"]), "429");
    assert!(
        !has_password_thread(),
        "the limit must be checked before the password"
    );
    // The first request waits until its password is verified; the second finds the result in the cache.
    assert_eq!(curl(&proxy, "/two", &["-u", "a:password"]), "200");
    assert!(has_password_thread());
    assert_eq!(curl(&proxy, "/two", &["-u", "a:password"]), "200");
    assert_eq!(curl(&proxy, "/two", &["-u", "a:password"]), "429");
    // Requests that waited for password verification release their slots.
    let concurrent =
        "path = \"/three\"\npool = \"p\"\nmax_connections = 1\nlimits = { concurrent = 1 }";
    proxy.reload(&configuration_with(
        &proxy,
        &origin,
        users,
        &[concurrent.to_owned()],
    ));
    for user in ["a:wrong", "a:other", "a:password", "a:password"] {
        let expected = if user == "a:password" { "200" } else { "401" };
        assert_eq!(curl(&proxy, "/three", &["-u", user]), expected, "{user}");
    }
}
