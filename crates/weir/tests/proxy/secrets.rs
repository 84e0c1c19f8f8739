//! Tests secrets: their sources, errors if they are missing, and outputs and logs that must not contain them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustls::HandshakeKind;

use super::keeper::{kill_daemon, wait_until};
use super::runtime_dir::TestDirectory;
use super::tls::{Authority, connect, fetch};
use super::{Client, GET, Origin, PROGRAM, Proxy, configuration};

const VALUE: &str = "hidden-5e1f-cookie-secret";

/// Writes a file with this mode.
fn write_with_mode(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).expect("write file");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set permissions");
}

/// Returns a configuration in which the cookie has this `secret` value.
fn with_secret(proxy: &Proxy, origin: &Origin, secret: &str) -> String {
    let text = configuration(proxy.listen, "http", &[origin.address()], "");
    let sticky = format!("\nsticky = {{ cookie = \"SRV\", secret = {secret} }}\n\n[service.s]");
    text.replace("\n\n[service.s]", &sticky)
}

/// Returns the cookie that selects the server.
fn fetch_cookie(proxy: &Proxy) -> String {
    let (head, _) = Client::connect(proxy.listen).fetch(GET);
    let line = head.lines().find(|line| line.contains("SRV="));
    line.unwrap_or_else(|| panic!("no cookie: {head}"))
        .to_owned()
}

/// Restarts the daemon with additional environment variables.
fn start_again(proxy: &mut Proxy, environment: &[(&str, &str)]) {
    proxy.terminate();
    let log = fs::File::create(proxy.directory.join("log")).expect("create log file");
    let mut command = Command::new(PROGRAM);
    Proxy::set_directories(&mut command, &proxy.directory);
    proxy.child = command
        .envs(environment.iter().copied())
        .args(["run", "-c"])
        .arg(proxy.directory.join("weir.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("start daemon");
    proxy.wait_until_ready();
}

#[test]
fn secrets_from_all_sources_are_equivalent_and_survive_a_crash() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    let credentials = proxy.directory.join("credentials");
    fs::create_dir(&credentials).expect("create directory");
    let file = proxy.directory.join("cookie.secret");
    write_with_mode(&file, &format!("{VALUE}\n"), 0o600);
    write_with_mode(&credentials.join("cookie"), VALUE, 0o600);
    let directory = credentials.display().to_string();
    start_again(
        &mut proxy,
        &[
            ("WEIR_TEST_COOKIE", VALUE),
            ("CREDENTIALS_DIRECTORY", &directory),
        ],
    );
    proxy.reload(&with_secret(&proxy, &origin, &format!("\"{VALUE}\"")));
    let expected_cookie = fetch_cookie(&proxy);
    let file_secret = format!("{{ file = \"{}\" }}", file.display());
    for secret in [
        &file_secret,
        "{ env = \"WEIR_TEST_COOKIE\" }",
        "{ credential = \"cookie\" }",
    ] {
        let text = with_secret(&proxy, &origin, secret);
        fs::write(proxy.directory.join("weir.toml"), text).expect("write file");
        // The value comes from the daemon's environment, not from the caller's.
        let pid = rustix::process::Pid::from_child(&proxy.child);
        let before = proxy.status()["revision"].as_u64();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("send signal");
        wait_until("the reload is complete", || {
            proxy.status()["revision"].as_u64() > before
        });
        assert_eq!(fetch_cookie(&proxy), expected_cookie, "{secret}");
        kill_daemon(&proxy);
        assert_eq!(
            fetch_cookie(&proxy),
            expected_cookie,
            "{secret}, after a crash"
        );
        let copy = fs::read_to_string(proxy.directory.join("run/in-force.toml"))
            .expect("read the saved configuration");
        assert!(copy.contains(secret) && !copy.contains(VALUE), "{copy}");
    }
    // The active configuration stays active even though the secret's file has changed or is missing.
    proxy.reload(&with_secret(&proxy, &origin, &file_secret));
    write_with_mode(&file, "another secret", 0o600);
    kill_daemon(&proxy);
    assert_eq!(fetch_cookie(&proxy), expected_cookie);
    fs::remove_file(&file).expect("remove file");
    kill_daemon(&proxy);
    assert_eq!(fetch_cookie(&proxy), expected_cookie);
    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    assert_eq!(fetch_cookie(&proxy), expected_cookie);
    for entry in fs::read_dir(proxy.directory.join("run"))
        .expect("read directory")
        .flatten()
    {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        assert!(
            !text.contains(VALUE),
            "{} contains the secret",
            entry.path().display()
        );
    }
    assert!(!proxy.log().contains(VALUE), "{}", proxy.log());
}

#[test]
fn missing_or_invalid_secret_is_reported_at_its_line() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("weir.toml");
    let path = file.to_str().expect("not UTF-8");
    let large_file = proxy.directory.join("large");
    fs::write(&large_file, "x".repeat(70_000)).expect("write file");
    let empty_file = proxy.directory.join("empty");
    fs::write(&empty_file, "\n").expect("write file");
    let file_secret = |path: &Path| format!("{{ file = \"{}\" }}", path.display());
    for (secret, error) in [
        (
            file_secret(Path::new("/nonexistent/key")),
            "cannot read the secret: file /nonexistent/key: No such file",
        ),
        (file_secret(&proxy.directory), "it is not a regular file"),
        (file_secret(&large_file), "it has more than 65536 bytes"),
        (file_secret(&empty_file), "it is empty"),
        (
            "{ env = \"WEIR_TEST_NONE\" }".to_owned(),
            "environment variable WEIR_TEST_NONE: it is not set",
        ),
        (
            "{ credential = \"key\" }".to_owned(),
            "credential key: CREDENTIALS_DIRECTORY is not set",
        ),
        (
            "{ credential = \"../key\" }".to_owned(),
            "invalid credential name",
        ),
        (
            "{ file = \"key\" }".to_owned(),
            "`file` must be an absolute path",
        ),
        (
            "{ file = \"/a\", env = \"B\" }".to_owned(),
            "a secret must have exactly one source",
        ),
        ("\"\"".to_owned(), "the secret is empty"),
        ("{}".to_owned(), "a secret must have exactly one source"),
    ] {
        fs::write(&file, with_secret(&proxy, &origin, &secret)).expect("write file");
        for command in ["check", "plan", "reload"] {
            let (succeeded, output) = proxy.weir(&[command, "-c", path]);
            assert!(
                !succeeded && output.contains(error),
                "{command} {secret}: {output}"
            );
            assert!(
                output.contains("weir.toml:6:"),
                "{command} {secret}: {output}"
            );
        }
    }
}

#[test]
fn daemon_does_not_start_if_its_secret_has_no_source() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let test_directory = TestDirectory::new("secret");
    fs::write(
        test_directory.0.join("weir.toml"),
        with_secret(&proxy, &origin, "{}"),
    )
    .expect("write file");
    let mut command = Command::new("timeout");
    Proxy::set_directories(&mut command, &test_directory.0);
    let output = command
        .args(["10", PROGRAM, "run", "-c"])
        .arg(test_directory.0.join("weir.toml"))
        .output();
    let output = output.expect("run weir");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && error.contains("a secret must have exactly one source"),
        "{error}"
    );
}

#[test]
fn secrets_appear_in_no_output_or_log() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("weir.toml");
    let path = file.to_str().expect("not UTF-8");
    let text = with_secret(&proxy, &origin, &format!("\"{VALUE}\""));
    // Test errors in the line that contains the secret.
    for (valid, invalid) in [
        ("cookie = \"SRV\"", "cookie = \"S R V\""),
        ("secret =", "secert ="),
        ("secret =", "color = 1, secret ="),
        (&format!("\"{VALUE}\""), &format!("\"{VALUE}")),
        (&format!("\"{VALUE}\""), VALUE),
        (&format!("\"{VALUE}\""), &format!("[\"{VALUE}\"]")),
    ] {
        let invalid_text = text.replace(valid, invalid);
        assert_ne!(invalid_text, text);
        fs::write(&file, invalid_text).expect("write file");
        for arguments in [&["check"][..], &["check", "--json"], &["plan"], &["reload"]] {
            let line: Vec<&str> = arguments.iter().copied().chain(["-c", path]).collect();
            let (succeeded, output) = proxy.weir(&line);
            assert!(
                !succeeded && !output.contains("5e1f"),
                "{arguments:?} after {invalid}: {output}"
            );
        }
        let pid = rustix::process::Pid::from_child(&proxy.child);
        let failed_reloads = || proxy.log().matches("reload failed").count();
        let before = failed_reloads();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("send signal");
        wait_until("the log reports the failed reload", || {
            failed_reloads() > before
        });
    }
    // A file that every user can read causes a warning.
    write_with_mode(&file, &text, 0o644);
    let (succeeded, output) = proxy.weir(&["check", "-c", path]);
    assert!(succeeded && !output.contains("5e1f"), "{output}");
    assert!(
        output.contains("W070") && output.contains("this file contains a secret, and every user"),
        "{output}"
    );
    write_with_mode(&file, &text, 0o600);
    let (_, output) = proxy.weir(&["check", "-c", path]);
    assert!(!output.contains("W070"), "{output}");
    proxy.reload(&text);
    let other_text = text.replace(VALUE, "another-5e1f");
    fs::write(&file, other_text).expect("write file");
    let (succeeded, plan) = proxy.weir(&["plan", "-c", path]);
    assert!(
        succeeded && plan.contains("sticky.secret changed"),
        "{plan}"
    );
    let texts = [plan, proxy.log(), proxy.status().to_string()];
    assert!(!texts.iter().any(|text| text.contains("5e1f")), "{texts:?}");
    let secret = proxy.directory.join("cookie.secret");
    write_with_mode(&secret, VALUE, 0o604);
    fs::write(
        &file,
        with_secret(
            &proxy,
            &origin,
            &format!("{{ file = \"{}\" }}", secret.display()),
        ),
    )
    .expect("write file");
    let (_, plan) = proxy.weir(&["plan", "-c", path]);
    assert!(
        plan.contains(&format!("sticky.secret text -> file {}", secret.display())),
        "{plan}"
    );
    let (_, output) = proxy.weir(&["check", "-c", path]);
    assert!(output.contains("cookie.secret (mode 0604)"), "{output}");
}

#[test]
fn shared_ticket_key_resumes_sessions_across_directors() {
    let authority = Authority::new("ticket-keys");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let key = |name: &str| {
        let path = authority.write_file(
            name,
            format!("a key of {name} with at least thirty-two bytes\n").as_bytes(),
        );
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set permissions");
        format!("{{ file = \"{path}\" }}")
    };
    let (old, new, other) = (key("old"), key("new"), key("other"));
    let tls = |keys: &[&str]| {
        format!(
            "tls = {{ certificates = \"{}\", ticket_keys = [{}] }}",
            authority.certs(),
            keys.join(", ")
        )
    };
    let proxies = [0, 1].map(|_| Proxy::start("http", &[origin.address()], &tls(&[&old])));
    let config = authority.client(None);
    let handshake_kind = |index: usize| {
        let mut stream = connect(&config, proxies[index].listen, "a.example");
        fetch(&mut stream, GET).expect("fetch");
        stream.conn.handshake_kind()
    };
    let reload = |index: usize, keys: &[&str]| {
        let listen = proxies[index].listen;
        proxies[index].reload(&configuration(
            listen,
            "http",
            &[origin.address()],
            &tls(keys),
        ));
    };
    assert_eq!(handshake_kind(0), Some(HandshakeKind::Full));
    assert_eq!(
        [handshake_kind(1), handshake_kind(0)],
        [Some(HandshakeKind::Resumed); 2]
    );
    kill_daemon(&proxies[1]);
    assert_eq!(handshake_kind(1), Some(HandshakeKind::Resumed));
    // During a rotation, both directors have both keys before either removes the old one.
    reload(0, &[&new, &old]);
    assert_eq!(handshake_kind(0), Some(HandshakeKind::Resumed));
    reload(1, &[&new, &old]);
    assert_eq!(
        [handshake_kind(1), handshake_kind(0)],
        [Some(HandshakeKind::Resumed); 2]
    );
    reload(0, &[&new]);
    assert_eq!(handshake_kind(0), Some(HandshakeKind::Resumed));
    reload(0, &[&other]);
    assert_eq!(handshake_kind(0), Some(HandshakeKind::Full));
    let file = proxies[0].directory.join("weir.toml");
    let text = configuration(
        proxies[0].listen,
        "http",
        &[origin.address()],
        &tls(&["\"too short\""]),
    );
    fs::write(&file, text).expect("write file");
    let (succeeded, output) = proxies[0].weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(
        !succeeded
            && output.contains("a ticket key is shorter than 32 bytes")
            && !output.contains("too short"),
        "{output}"
    );
}
