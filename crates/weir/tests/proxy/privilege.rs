//! Tests that users other than root cannot make Weir run programs or read files as root.
//!
//! They can change server lists, use the API, and upload configurations.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::keeper::wait_until;
use super::servers_file::server_addresses;
use super::{Origin, Proxy, configuration, free_address};

/// An unprivileged user of the host.
const OTHER_USER: u32 = 65_534;

/// Runs a shell command as `OTHER_USER`. Returns its output.
pub(super) fn run_as_other_user(command: &str) -> String {
    let id = OTHER_USER.to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .args(["/bin/sh", "-c", command])
        .output()
        .expect("run setpriv");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the path of the file that a program would create if it ran as root.
fn marker(proxy: &Proxy) -> PathBuf {
    proxy.directory.join("pwned")
}

/// Returns a check, as JSON, that would create the marker file.
fn marker_check(proxy: &Proxy) -> serde_json::Value {
    let command = format!("id > {}", marker(proxy).display());
    serde_json::json!({
        "kind": "script", "command": ["/bin/sh", "-c", command], "user": "root", "interval": "200ms"
    })
}

/// Returns the same check as a configuration table.
fn marker_check_table(proxy: &Proxy) -> String {
    format!(
        "[pool.p.check]\nkind = \"script\"\ncommand = [\"/bin/sh\", \"-c\", \"id > {}\"]\nuser = \"root\"\ninterval = \
         \"200ms\"\n",
        marker(proxy).display()
    )
}

/// Returns the discovery error from the status document, or an empty string.
fn discovery_error(proxy: &Proxy) -> String {
    let status = proxy.status();
    let error = status["sources"][0]["problem"].as_str();
    error.unwrap_or_default().to_owned()
}

/// Creates a directory that another user owns. Returns the path of the list in it.
fn create_list_directory(proxy: &Proxy) -> PathBuf {
    let directory = proxy.directory.join("discovery");
    fs::create_dir(&directory).expect("create directory");
    chown(&directory, Some(OTHER_USER), Some(OTHER_USER)).expect("change owner");
    directory.join("list")
}

/// Returns a configuration whose pool reads its servers from `list`.
fn with_list(proxy: &Proxy, servers: &[SocketAddr], list: &Path, extra: &str) -> String {
    let text = configuration(proxy.listen, "http", servers, extra);
    let key = format!("[pool.p]\nservers_file = \"{}\"\n", list.display());
    text.replace("[pool.p]\n", &key)
}

#[test]
fn server_list_of_another_user_cannot_run_programs() {
    if !weir_testing::require_root() {
        return;
    }
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address()], "");
    let list = create_list_directory(&proxy);
    let write = |text: &str| {
        let file = list.display();
        let output = run_as_other_user(&format!(
            "printf '%s' '{text}' > {file}.new && mv {file}.new {file}"
        ));
        assert_eq!(output, "");
    };
    write(&two.address().to_string());
    let site = "[check.site]\nkind = \"tcp\"\ninterval = \"200ms\"";
    proxy.reload(&with_list(&proxy, &[one.address()], &list, site));
    let addresses = [one.address(), two.address()].map(|server| server.to_string());
    assert_eq!(server_addresses(&proxy), addresses);

    for check in [
        marker_check(&proxy),
        serde_json::json!([marker_check(&proxy)]),
    ] {
        let entry = serde_json::json!([{"address": two.address().to_string(), "check": check}]);
        write(&entry.to_string());
        wait_until("the list is rejected", || {
            marker(&proxy).exists() || discovery_error(&proxy).contains("`check` can only name")
        });
        assert!(!marker(&proxy).exists(), "the list ran a program as root");
        assert_eq!(server_addresses(&proxy), addresses);
        write(&two.address().to_string());
        wait_until("the valid list is accepted", || {
            discovery_error(&proxy).is_empty()
        });
    }
    // A list may set weights, limits, and the name of a check that the configuration defines.
    write(&format!(
        "{} weight=3 max_connections=9 check=site\n",
        two.address()
    ));
    wait_until("the server has weight 3", || {
        proxy.status()["services"][0]["servers"][1]["weight"] == 3
    });
    wait_until("the server is up", || {
        proxy.status()["services"][0]["servers"][1]["state"] == "up"
    });
    assert!(!marker(&proxy).exists());
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn symlinked_list_is_neither_read_nor_shown() {
    if !weir_testing::require_root() {
        return;
    }
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address()], "");
    let list = create_list_directory(&proxy);
    let directory = list.parent().expect("no parent directory").to_owned();
    run_as_other_user(&format!("echo {} > {}", two.address(), list.display()));
    proxy.reload(&with_list(&proxy, &[one.address()], &list, ""));
    let addresses = [one.address(), two.address()].map(|server| server.to_string());
    assert_eq!(server_addresses(&proxy), addresses);

    let secret = proxy.directory.join("secret");
    fs::write(&secret, "TOPSECRET-line-one\nTOPSECRET-line-two\n").expect("write file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set permissions");
    let visible_text = |proxy: &Proxy| {
        let (_, table) = proxy.weir(&["status"]);
        let (_, json) = proxy.weir(&["status", "--json"]);
        [table, json, proxy.log()].concat()
    };
    let shadow = fs::read_to_string("/etc/shadow").unwrap_or_default();
    let first = shadow.lines().next().unwrap_or("TOPSECRET");
    for target in [
        secret.as_path(),
        Path::new("/etc/shadow"),
        Path::new("../secret"),
    ] {
        let output = run_as_other_user(&format!(
            "cd {} && ln -sfn {} made && mv -T made list",
            directory.display(),
            target.display()
        ));
        assert_eq!(output, "");
        wait_until("the link is rejected", || {
            !discovery_error(&proxy).is_empty()
        });
        assert!(
            discovery_error(&proxy).contains("outside its directory"),
            "{}",
            discovery_error(&proxy)
        );
        let text = visible_text(&proxy);
        assert!(
            !text.contains("TOPSECRET") && !text.contains(first),
            "{text}"
        );
        assert_eq!(server_addresses(&proxy), addresses);
        run_as_other_user(&format!(
            "rm {}; echo {} > {0}",
            list.display(),
            two.address()
        ));
        wait_until("the valid list is accepted", || {
            discovery_error(&proxy).is_empty()
        });
    }

    // Weir does not show the contents of a file that is not a list, and rejects a file that a third user owns.
    run_as_other_user(&format!("echo 'TOPSECRET=1 x' > {}", list.display()));
    wait_until("the invalid list is rejected", || {
        !discovery_error(&proxy).is_empty()
    });
    assert_eq!(
        discovery_error(&proxy),
        "line 1, column 1: not a valid IP address of a server"
    );
    assert!(!visible_text(&proxy).contains("TOPSECRET"));
    fs::write(directory.join("other"), "10.0.0.9").expect("write file");
    chown(directory.join("other"), Some(1), None).expect("change owner");
    fs::rename(directory.join("other"), &list).expect("rename file");
    wait_until("the file of another user is rejected", || {
        discovery_error(&proxy).contains("is owned by user 1")
    });
    assert_eq!(server_addresses(&proxy), addresses);

    // Links with targets inside the directory, as in a Kubernetes volume, are accepted.
    let data = directory.join("..1");
    fs::create_dir(&data).expect("create directory");
    fs::write(data.join("list"), two.address().to_string()).expect("write file");
    symlink("..1", directory.join("..data")).expect("create link");
    fs::remove_file(&list).expect("remove file");
    symlink("..data/list", &list).expect("create link");
    wait_until("the link inside the directory is accepted", || {
        discovery_error(&proxy).is_empty()
    });
    assert_eq!(server_addresses(&proxy), addresses);
}

/// Sends a request over TCP with the token. Returns the response.
fn call_api_over_tcp(
    proxy: &Proxy,
    admin: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> String {
    let token = fs::read_to_string(proxy.directory.join("run/token")).expect("read token");
    let (token, length) = (token.trim(), body.len());
    let mut stream = TcpStream::connect(admin).expect("connect to the API");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: \
         {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("write");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("read response");
    response
}

/// Adds the address of the API to a configuration.
fn with_admin(admin: SocketAddr, text: &str) -> String {
    text.replace("[node]\n", &format!("[node]\nadmin = \"{admin}\"\n"))
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn token_holder_cannot_run_programs() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address()], "");
    let admin = free_address();
    let active_configuration = with_admin(
        admin,
        &configuration(proxy.listen, "http", &[one.address()], ""),
    );
    proxy.reload(&active_configuration);
    let put = format!("/v1/servers/p/{}", two.address());
    for check in [
        marker_check(&proxy),
        serde_json::json!([marker_check(&proxy)]),
    ] {
        let body = serde_json::json!({ "check": check }).to_string();
        let response = call_api_over_tcp(&proxy, admin, "PUT", &put, &body);
        assert!(response.starts_with("HTTP/1.1 422"), "{response}");
        assert!(
            response.contains("`check` can only name a [check.NAME]"),
            "{response}"
        );
    }
    for key in ["user", "command", "path", "file", "forward", "tunnel"] {
        let body = serde_json::json!({ key: "x" }).to_string();
        let response = call_api_over_tcp(&proxy, admin, "PUT", &put, &body);
        assert!(response.starts_with("HTTP/1.1 422"), "{response}");
        assert!(
            response.contains(&format!("unknown key `{key}`")),
            "{response}"
        );
    }
    assert!(
        call_api_over_tcp(
            &proxy,
            admin,
            "PUT",
            &put,
            r#"{"weight": 2, "max_connections": 9}"#
        )
        .starts_with("HTTP/1.1 200")
    );

    // Submit complete configurations as text, each with a key that is reserved for root.
    let log = proxy.directory.join("written");
    let pool = |extra: &str| {
        active_configuration.replace("\n[service.s]", &format!("{extra}\n[service.s]"))
    };
    for (text, key) in [
        (
            pool(&marker_check_table(&proxy)),
            "`command` of [pool.p.check]",
        ),
        (
            pool("notify = [\"/bin/sh\", \"-c\", \"id\"]\n"),
            "`notify` of [pool.p]",
        ),
        (
            pool("servers_file = \"/etc/shadow\"\n"),
            "`servers_file` of [pool.p]",
        ),
        (
            active_configuration.replace(
                "protocol = ",
                &format!("access_log = \"{}\"\nprotocol = ", log.display()),
            ),
            "`access_log` of [service.s]",
        ),
        (
            active_configuration.replace(
                "protocol = ",
                "error_pages = [{ status = 503, file = \"/etc/shadow\" }]\nprotocol = ",
            ),
            "`file` of [service.s.error_pages]",
        ),
        (
            active_configuration.replace("admin = \"127.0.0.1", "admin = \"127.0.0.2"),
            "`admin` of [node]",
        ),
        // Weir rejects the request before it reads any file. Otherwise, the response would disclose whether a file
        // exists.
        (
            pool("sticky = { cookie = \"S\", secret = { file = \"/no/such/secret\" } }\n"),
            "`file` of [pool.p.sticky",
        ),
    ] {
        for path in ["/v1/plan", "/v1/reload"] {
            let body = serde_json::json!({ "text": text }).to_string();
            let response = call_api_over_tcp(&proxy, admin, "POST", path, &body);
            assert!(response.starts_with("HTTP/1.1 422"), "{response}");
            assert!(
                response.contains(key) && response.contains("E061"),
                "{response}"
            );
            assert!(!response.contains("No such file"), "{response}");
        }
    }
    let body = serde_json::json!({ "text": pool("scheduler = \"rr\"\n") }).to_string();
    let response = call_api_over_tcp(&proxy, admin, "POST", "/v1/reload", &body);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(!marker(&proxy).exists() && !log.exists());
}

#[test]
fn socket_user_cannot_run_programs() {
    if !weir_testing::require_root() {
        return;
    }
    let origin = Origin::start("one");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let active_configuration = configuration(proxy.listen, "http", &[origin.address()], "");
    // Grant the other user the same access as a member of `socket_group`.
    let run = proxy.directory.join("run");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).expect("set permissions");
    let socket = run.join("weir.sock");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("set permissions");
    let home = create_list_directory(&proxy)
        .parent()
        .expect("no parent directory")
        .to_owned();
    let fetch = |path: &str, body: &serde_json::Value| {
        fs::write(home.join("body"), body.to_string()).expect("write file");
        run_as_other_user(&format!(
            "curl -sS -w ' [%{{http_code}}]' --unix-socket {} --data-binary @{} http://weir{path}",
            socket.display(),
            home.join("body").display()
        ))
    };
    let text = active_configuration.replace(
        "\n[service.s]",
        &format!("{}\n[service.s]", marker_check_table(&proxy)),
    );
    let file = home.join("weir.toml");
    fs::write(&file, &text).expect("write file");
    for path in ["/v1/plan", "/v1/reload"] {
        let response = fetch(path, &serde_json::json!({ "path": file }));
        assert!(
            response.ends_with("[403]"),
            "{path} with a file: {response}"
        );
        let response = fetch(path, &serde_json::json!({ "text": text }));
        assert!(
            response.ends_with("[422]") && response.contains("E061"),
            "{path} with a text: {response}"
        );
    }
    let response = fetch("/v1/upgrade", &serde_json::json!({ "program": "/bin/sh" }));
    assert!(response.ends_with("[403]"), "{response}");
    let extra = active_configuration.replace("[pool.p]\n", "[pool.p]\nscheduler = \"rr\"\n");
    let response = fetch("/v1/reload", &serde_json::json!({ "text": extra }));
    assert!(response.ends_with("[200]"), "{response}");
    assert!(
        !marker(&proxy).exists(),
        "a user of the socket ran a program as root"
    );
    // Root's own file may use all of these keys.
    proxy.reload(&text);
    wait_until("the check of root's configuration has run", || {
        marker(&proxy).exists()
    });
}

/// An older build, whose lists accepted every key of a server, wrote the persisted state.
#[test]
fn checks_persisted_by_an_older_build_are_not_run() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let mut proxy = Proxy::start("http", &[one.address()], "");
    let site = "[pool.p.check]\nkind = \"tcp\"\ninterval = \"200ms\"\n";
    let text = configuration(proxy.listen, "http", &[one.address()], site);
    proxy.reload(&text);
    assert!(proxy.terminate().success());
    let entry =
        serde_json::json!([{"address": two.address().to_string(), "check": marker_check(&proxy)}]);
    let persisted = serde_json::json!([["p", "api", entry.to_string()]]);
    fs::write(
        proxy.directory.join("run/members.json"),
        persisted.to_string(),
    )
    .expect("write file");
    proxy.start_again();
    // Weir has checked the server, so it would have run the persisted check.
    wait_until("the added server is up", || {
        proxy.status()["services"][0]["servers"][1]["state"] == "up"
    });
    assert!(!marker(&proxy).exists(), "a persisted check was run");
    let log = proxy.log();
    let address = two.address().to_string();
    let warning = log
        .lines()
        .find(|line| line.contains("a persisted server defines a check"));
    let warning = warning.expect("no warning");
    assert!(
        warning.contains(&address) && warning.contains("pool=\"p\""),
        "{warning}"
    );
    assert!(!log.contains("id > ") && !log.contains("script"), "{log}");
    let members_file =
        fs::read_to_string(proxy.directory.join("run/members.json")).expect("read file");
    assert!(
        members_file.contains(&address) && !members_file.contains("script"),
        "{members_file}"
    );
}

#[test]
fn commands_report_missing_privileges() {
    if !weir_testing::require_root() {
        return;
    }
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    // The build directory may be inaccessible to other users.
    let program = proxy.directory.join("weir");
    fs::copy(super::PROGRAM, &program).expect("copy the program");
    let run = |arguments: &str| {
        let directory = proxy.directory.display();
        run_as_other_user(&format!(
            "WEIR_RUNTIME_DIR={directory}/run WEIR_PIN_DIR={directory}/pins WEIR_CONFIG={directory}/weir.toml \
             {} {arguments}",
            program.display()
        ))
    };
    for command in [
        "status",
        "reload",
        &format!("server p/{} drain", origin.address()),
    ] {
        let output = run(command);
        assert!(
            output.contains("weir.sock: permission denied"),
            "{command}: {output}"
        );
        assert!(
            output.contains("run as root, or as a member of `socket_group`"),
            "{command}: {output}"
        );
    }
    let output = run("doctor");
    assert!(!output.contains("no daemon is running"), "{output}");
    assert!(output.contains("the daemon was not examined: "), "{output}");
    assert!(!output.contains("no problems found"), "{output}");
    assert!(
        output.contains("run as root, or as a member of `socket_group`"),
        "{output}"
    );
    assert!(output.contains("run as root to see everything"), "{output}");
    for command in [
        "run",
        "clean",
        "protect -- true",
        "real-server show",
        "real-server up --forward direct --vip 192.0.2.10",
    ] {
        let output = run(command);
        assert!(output.contains("run as root"), "{command}: {output}");
    }
}
