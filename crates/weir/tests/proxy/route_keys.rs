//! `rewrite` with a regular expression, `Retry-After` of limits, and maps in access logs, tested with curl.

use std::process::Command;
use std::time::Duration;

use super::keeper::until;
use super::origin::Origin;
use super::{Proxy, free_address, fs};

/// Returns head and body that curl receives.
fn curl(proxy: &Proxy, path: &str, arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-s", "-i", "--path-as-is", "--max-time", "20"])
        .args(arguments)
        .arg(format!("http://{}{path}", proxy.listen))
        .output()
        .expect("run curl (see tools/install-deps.sh)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(proxy: &Proxy, origin: &Origin, service: &str, more: &str) -> String {
    let (server, listen) = (origin.address(), proxy.listen);
    format!(
        "[pool.p]\nservers = [\"{server}\"]\n\n[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \
         \"http\"\npool = \"p\"\n{service}\n\n{more}\n"
    )
}

/// Starts a daemon with these lines in its service, and after it.
fn proxy(origin: &Origin, service: &str, more: &str) -> Proxy {
    let proxy = Proxy::start("http", &[free_address()], "");
    proxy.reload(&text(&proxy, origin, service, more));
    proxy
}

const REWRITE: &str = "rewrite = { regex = '^/a/([^/]*)/(.*)$', to = \"/b/{2}/{1}\" }";

#[test]
fn rewrite_regex_changes_only_matching_paths() {
    let origin = Origin::start("o");
    let route = format!("[[route]]\nservice = \"s\"\npool = \"p\"\n{REWRITE}");
    let proxy = proxy(&origin, "", &route);
    for arguments in [&[][..], &["--http2-prior-knowledge"]] {
        for (path, sent) in [
            ("/a/x/y/z?q=/a/1/2", "/b/y/z/x?q=/a/1/2"),
            ("/%61/x/../x/y", "/b/y/x"),
            ("/a/x", "/a/x"),
            ("/c/./x?q", "/c/./x?q"),
        ] {
            let seen = curl(&proxy, path, arguments);
            assert!(
                seen.contains(&format!("\r\n\r\no\nGET {sent} HTTP/1.1\r\n")),
                "{path}: {seen}"
            );
        }
    }
    for (path, printed) in [
        ("/a/x/y", "path sent to the server: /b/y/x"),
        ("/a/x", "path sent to the server: not changed"),
    ] {
        let request = format!("GET http://{}{path}", proxy.listen);
        let (done, output) = proxy.weir(&["explain", "--request", &request]);
        assert!(done && output.contains(printed), "{output}");
    }
    let file = proxy.directory.join("weir.toml");
    let (done, output) = {
        let other = text(&proxy, &origin, "", &route.replace("/b/", "/c/"));
        fs::write(&file, other).expect("write file");
        proxy.weir(&["plan", "-c", file.to_str().expect("not UTF-8")])
    };
    assert!(
        done && output.contains("/c/{2}/{1} if ^/a/([^/]*)/(.*)$ matches"),
        "{output}"
    );
    for (wrong, printed) in [
        (
            "{ regex = '^/a/(.*)$', to = \"/b/{2}\" }",
            "`{2}` has no value: `regex` has 1 groups",
        ),
        (
            "{ regex = '^/a/(.*$', to = \"/b\" }",
            "invalid regular expression: unclosed group",
        ),
        (
            "{ regex = '^//a', to = \"/b\" }",
            "this expression cannot match any normalized path",
        ),
        ("{ regex = '^/a', to = \"b\" }", "invalid path `b`"),
        ("{ regex = '^/a' }", "`to` is missing"),
        ("{ to = \"/b\" }", "`regex` is missing"),
        ("5", "rewrite"),
    ] {
        let route = route.replace(REWRITE, &format!("rewrite = {wrong}"));
        fs::write(&file, text(&proxy, &origin, "", &route)).expect("write file");
        let (done, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
        let is_warning = printed.contains("normalized");
        assert!(
            done == is_warning && output.contains(printed) && output.contains("weir.toml:14:"),
            "{wrong}: {output}"
        );
    }
}

/// Returns the seconds in `Retry-After` of a 429 response, or `None` for other responses.
fn retry_after(seen: &str) -> Option<u64> {
    if !seen.contains(" 429 ") {
        return None;
    }
    let line = seen
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
fn request_succeeds_after_retry_after_of_per_minute_limit() {
    let origin = Origin::start("o");
    let routes = "[[route]]\nservice = \"s\"\npath = \"/slow\"\nstatus = 204\nlimits = { rate = \"1/m\", burst = 1 \
                  }\n\n\
                  [[route]]\nservice = \"s\"\npath = \"/fast\"\nstatus = 204\nlimits = { rate = \"20/m\", burst = 2 }";
    let proxy = proxy(&origin, "", routes);
    let first = |path: &str| {
        let mut answers = (0..1000).map(|_| curl(&proxy, path, &[]));
        answers
            .find_map(|seen| retry_after(&seen))
            .expect("no request was limited")
    };
    // The waiting time of a minute starts again if the host was slower than that.
    let wait = first("/slow");
    assert!((2..=60).contains(&wait), "{wait}");
    let wait = first("/fast");
    assert!((1..=3).contains(&wait), "{wait}");
    std::thread::sleep(Duration::from_secs(wait));
    let seen = curl(&proxy, "/fast", &[]);
    assert!(seen.starts_with("HTTP/1.1 204 "), "{seen}");
}

#[test]
fn limit_per_minute_applies_to_a_service() {
    let origin = Origin::start("o");
    let routes = "[[route]]\nservice = \"s\"\npath = \"/*\"\nstatus = 204";
    let proxy = proxy(&origin, "limits = { rate = \"1/m\", burst = 1 }", routes);
    let mut answers = (0..1000).map(|_| curl(&proxy, "/", &[]));
    let wait = answers
        .find_map(|seen| retry_after(&seen))
        .expect("no request was limited");
    assert!((2..=60).contains(&wait), "{wait}");
    let service = proxy.status()["services"][0].clone();
    assert_eq!(service["rate_limit_per_minute"], 1, "{service:#}");
    assert_eq!(
        service["rate_limit"], 1,
        "the limit per second is rounded up"
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
    let proxy = proxy(&origin, &service, &maps);
    let fetch = |path: &str| curl(&proxy, path, &["-H", "Host: A.example"]);
    let lines = |count: usize| {
        let read = || fs::read_to_string(&log).unwrap_or_default();
        until("the lines", || read().lines().count() >= count);
        read().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // Each request is in the log before the next one is sent, because two workers may write their lines in any order.
    assert!(fetch("/admin/1").contains(" 200 "));
    assert_eq!(lines(1), [r"/admin/1 one \x22x\x22 staff."]);
    assert!(curl(&proxy, "/2", &[]).contains(" 200 "));
    assert_eq!(lines(2)[1], "/2 none .");
    // The file is read again without a reload.
    fs::write(&list, "a.example two\n").expect("write file");
    until("the changed map", || {
        let before = lines(0).len();
        fetch("/");
        lines(before + 1)[before] == "/ two ."
    });
    let wrong = text(
        &proxy,
        &origin,
        &service.replace("map.area", "map.aera"),
        &maps,
    );
    let file = proxy.directory.join("weir.toml");
    fs::write(&file, wrong).expect("write file");
    let (done, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(
        !done
            && output.contains("unknown log variable `map.aera`")
            && output.contains("`map.area`"),
        "{output}"
    );
    fs::remove_dir_all(&directory).expect("remove directory");
}
