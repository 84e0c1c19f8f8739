//! Tests `rewrite` with a regular expression, `Retry-After` of limits, and maps in access logs, with curl.

use std::process::Command;
use std::time::Duration;

use super::keeper::wait_until;
use super::origin::Origin;
use super::{Proxy, free_address, fs};

/// Returns the head and the body that curl receives.
fn curl(proxy: &Proxy, path: &str, arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-s", "-i", "--path-as-is", "--max-time", "20"])
        .args(arguments)
        .arg(format!("http://{}{path}", proxy.listen))
        .output()
        .expect("run curl (see tools/install-deps.sh)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn configuration_with(proxy: &Proxy, origin: &Origin, service: &str, extra: &str) -> String {
    let (server, listen) = (origin.address(), proxy.listen);
    format!(
        "[pool.p]\nservers = [\"{server}\"]\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \
         \"http\"\npool = \"p\"\n{service}\n\n{extra}\n"
    )
}

/// Starts a daemon with these lines in and after its service.
fn start_proxy(origin: &Origin, service: &str, extra: &str) -> Proxy {
    let daemon = Proxy::start("http", &[free_address()], "");
    daemon.reload(&configuration_with(&daemon, origin, service, extra));
    daemon
}

const REWRITE: &str = "rewrite = { regex = '^/a/([^/]*)/(.*)$', to = \"/b/{2}/{1}\" }";

#[test]
fn rewrite_regex_changes_only_matching_paths() {
    let origin = Origin::start("o");
    let route = format!("[[route]]\nservice = \"s\"\npool = \"p\"\n{REWRITE}");
    let proxy = start_proxy(&origin, "", &route);
    for arguments in [&[][..], &["--http2-prior-knowledge"]] {
        for (path, forwarded) in [
            ("/a/x/y/z?q=/a/1/2", "/b/y/z/x?q=/a/1/2"),
            ("/%61/x/../x/y", "/b/y/x"),
            ("/a/x", "/a/x"),
            ("/c/./x?q", "/c/./x?q"),
        ] {
            let response = curl(&proxy, path, arguments);
            assert!(
                response.contains(&format!("\r\n\r\no\nGET {forwarded} HTTP/1.1\r\n")),
                "{path}: {response}"
            );
        }
    }
    for (path, expected) in [
        ("/a/x/y", "path sent to the server: /b/y/x"),
        ("/a/x", "path sent to the server: not changed"),
    ] {
        let request = format!("GET http://{}{path}", proxy.listen);
        let (succeeded, output) = proxy.weir(&["explain", "--request", &request]);
        assert!(succeeded && output.contains(expected), "{output}");
    }
    let file = proxy.directory.join("weir.toml");
    let (succeeded, output) = {
        let other_configuration =
            configuration_with(&proxy, &origin, "", &route.replace("/b/", "/c/"));
        fs::write(&file, other_configuration).expect("write file");
        proxy.weir(&["plan", "-c", file.to_str().expect("not UTF-8")])
    };
    assert!(
        succeeded && output.contains("/c/{2}/{1} if ^/a/([^/]*)/(.*)$ matches"),
        "{output}"
    );
    for (rewrite, error) in [
        (
            "{ regex = '^/a/(.*)$', to = \"/b/{2}\" }",
            "`{2}` has no value: `regex` has 1 capture group",
        ),
        (
            "{ regex = '^/a/(.*$', to = \"/b\" }",
            "invalid regular expression: unclosed group",
        ),
        (
            "{ regex = '^//a', to = \"/b\" }",
            "this regular expression cannot match any normalized path",
        ),
        ("{ regex = '^/a', to = \"b\" }", "invalid path `b`"),
        ("{ regex = '^/a' }", "`to` is missing"),
        ("{ to = \"/b\" }", "`regex` is missing"),
        ("5", "rewrite"),
    ] {
        let route = route.replace(REWRITE, &format!("rewrite = {rewrite}"));
        fs::write(&file, configuration_with(&proxy, &origin, "", &route)).expect("write file");
        let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
        let is_warning = error.contains("normalized");
        assert!(
            succeeded == is_warning && output.contains(error) && output.contains("weir.toml:14:"),
            "{rewrite}: {output}"
        );
    }
}

/// Returns the seconds in `Retry-After` of a 429 response, or `None` for other responses.
fn retry_after(response: &str) -> Option<u64> {
    if !response.contains(" 429 ") {
        return None;
    }
    let line = response
        .lines()
        .find_map(|line| line.strip_prefix("Retry-After: "));
    Some(
        line.expect("no Retry-After")
            .trim()
            .parse()
            .expect("parse seconds"),
    )
}

#[test]
fn retry_after_of_per_minute_limit_is_sufficient() {
    let origin = Origin::start("o");
    let routes = "[[route]]\nservice = \"s\"\npath = \"/slow\"\nstatus = 204\nlimits = { rate = \"1/m\", burst = 1 \
                  }\n\n\
                  [[route]]\nservice = \"s\"\npath = \"/fast\"\nstatus = 204\nlimits = { rate = \"20/m\", burst = 2 }";
    let proxy = start_proxy(&origin, "", routes);
    let first_retry_after = |path: &str| {
        let mut responses = (0..1000).map(|_| curl(&proxy, path, &[]));
        responses
            .find_map(|response| retry_after(&response))
            .expect("no request was limited")
    };
    // On a slow host, part of the minute has passed by the time the response arrives.
    let wait = first_retry_after("/slow");
    assert!((2..=60).contains(&wait), "{wait}");
    let wait = first_retry_after("/fast");
    assert!((1..=3).contains(&wait), "{wait}");
    std::thread::sleep(Duration::from_secs(wait));
    let response = curl(&proxy, "/fast", &[]);
    assert!(response.starts_with("HTTP/1.1 204 "), "{response}");
}

#[test]
fn limit_per_minute_applies_to_a_service() {
    let origin = Origin::start("o");
    let routes = "[[route]]\nservice = \"s\"\npath = \"/*\"\nstatus = 204";
    let proxy = start_proxy(&origin, "limits = { rate = \"1/m\", burst = 1 }", routes);
    let mut responses = (0..1000).map(|_| curl(&proxy, "/", &[]));
    let wait = responses
        .find_map(|response| retry_after(&response))
        .expect("no request was limited");
    assert!((2..=60).contains(&wait), "{wait}");
    let service = proxy.status()["services"][0].clone();
    assert_eq!(service["rate_limit_per_minute"], 1, "{service:#}");
    assert_eq!(
        service["rate_limit"], 1,
        "the limit per second must be rounded up"
    );
}

#[test]
fn access_log_contains_map_values() {
    let origin = Origin::start("o");
    let directory = std::env::temp_dir().join(format!("weir-log-maps-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("create directory");
    let (list, log) = (directory.join("tenants.map"), directory.join("access.log"));
    fs::write(&list, "a.example one \"x\"\n").expect("write file");
    let service = format!(
        "access_log = {{ path = {log:?}, format = \"{{path}} {{map.tenants}} {{map.area}}.\" }}"
    );
    let maps = format!(
        "[map.tenants]\nfile = {list:?}\ndefault = \"none\"\n\n[map.area]\nkind = \"prefix\"\nkey = \"{{path}}\"\n\
         entries = [\"/admin/ staff\"]"
    );
    let proxy = start_proxy(&origin, &service, &maps);
    let fetch = |path: &str| curl(&proxy, path, &["-H", "Host: A.example"]);
    let lines = |count: usize| {
        let read = || fs::read_to_string(&log).unwrap_or_default();
        wait_until("the log has enough lines", || {
            read().lines().count() >= count
        });
        read().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // The test waits for each request to be logged before it sends the next, because two workers may write their lines
    // in any order.
    assert!(fetch("/admin/1").contains(" 200 "));
    assert_eq!(lines(1), [r"/admin/1 one \x22x\x22 staff."]);
    assert!(curl(&proxy, "/2", &[]).contains(" 200 "));
    assert_eq!(lines(2)[1], "/2 none .");
    // Weir rereads the file without a reload.
    fs::write(&list, "a.example two\n").expect("write file");
    wait_until("the changed map applies", || {
        let before = lines(0).len();
        fetch("/");
        lines(before + 1)[before] == "/ two ."
    });
    let invalid_configuration = configuration_with(
        &proxy,
        &origin,
        &service.replace("map.area", "map.aera"),
        &maps,
    );
    let file = proxy.directory.join("weir.toml");
    fs::write(&file, invalid_configuration).expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(
        !succeeded
            && output.contains("unknown log variable `map.aera`")
            && output.contains("`map.area`"),
        "{output}"
    );
    fs::remove_dir_all(&directory).expect("remove directory");
}
