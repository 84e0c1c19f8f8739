//! Cookies that Weir sets: their attributes, and the key that signs them if the configuration has no secret.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::keeper::kill_daemon;
use super::tls::{Authority, connect, fetch};
use super::{Client, GET, Origin, Proxy, configuration};

/// Returns a configuration whose pool has `sticky`.
fn text(proxy: &Proxy, origins: &[&Origin], sticky: &str, service: &str) -> String {
    let servers: Vec<_> = origins.iter().map(|origin| origin.address()).collect();
    let text = configuration(proxy.listen, "http", &servers, service);
    text.replace(
        "\n\n[service.s]",
        &format!("\nscheduler = \"rr\"\nsticky = {{ {sticky} }}\n\n[service.s]"),
    )
}

/// Returns the text after `Set-Cookie: SRV=` in a head.
fn cookie_of(head: &str) -> String {
    let cookie = head
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: SRV="));
    cookie
        .unwrap_or_else(|| panic!("no cookie: {head}"))
        .to_owned()
}

/// Returns the cookie of a response to a new client.
fn cookie(proxy: &Proxy) -> String {
    cookie_of(&Client::connect(proxy.listen).fetch(GET).0)
}

/// Whether Weir accepts this cookie on every request.
fn selects_its_server(proxy: &Proxy, value: &str) -> bool {
    let mut client = Client::connect(proxy.listen);
    (0..4).all(|_| {
        let (head, _) = client.fetch(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV={value}\r\n\r\n"
        ));
        // An invalid cookie is replaced.
        !head.contains("Set-Cookie")
    })
}

#[test]
fn cookie_defaults_are_lax_and_secure_under_tls() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let authority = Authority::new("sticky");
    authority.sign("a", "DNS:a.example", 10);
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let config = authority.client(None);
    let sent = |sticky: &str, service: &str| {
        proxy.reload(&text(&proxy, &[&origin], sticky, service));
        let line = match service {
            "" => cookie(&proxy),
            _ => {
                let mut stream = connect(&config, proxy.listen, "a.example");
                cookie_of(&fetch(&mut stream, GET).expect("fetch"))
            }
        };
        let (value, attributes) = line.split_at(16);
        assert!(value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
        attributes.to_owned()
    };
    let own = "cookie = \"SRV\", secret = \"s\"";
    assert_eq!(sent(own, ""), "; Path=/; HttpOnly; SameSite=Lax");
    assert_eq!(sent(own, &tls), "; Path=/; HttpOnly; SameSite=Lax; Secure");
    for (written, expected) in [
        ("Path=/x; SameSite=Strict", "; Path=/x; SameSite=Strict"),
        ("", ""),
    ] {
        let sticky = format!("{own}, attributes = \"{written}\"");
        for service in ["", tls.as_str()] {
            assert_eq!(sent(&sticky, service), expected);
        }
    }
}

#[test]
fn cookies_that_are_removed_do_not_return() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    for mode in ["insert", "prefix"] {
        let sticky = format!("cookie = \"SRV\", mode = \"{mode}\"");
        let seen = |service: &str| {
            proxy.reload(&text(&proxy, &[&origin], &sticky, service));
            let (_, body) = Client::connect(proxy.listen)
                .fetch("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV=x~y; admin=1\r\n\r\n");
            String::from_utf8_lossy(&body).into_owned()
        };
        assert!(seen("").contains("admin=1\r\n"), "{mode}");
        assert!(!seen("remove_header = [\"cookie\"]").contains("admin"));
        let set = seen("set_header = [\"Cookie: a=b\"]");
        assert!(
            set.contains("Cookie: a=b\r\n") && !set.contains("admin"),
            "{set}"
        );
        let route = "[[route]]\nservice = \"s\"\npool = \"p\"\nremove_header = [\"Cookie\"]";
        assert!(!seen(route).contains("admin"));
    }
}

#[test]
fn missing_secret_key_is_generated_and_kept() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let start = || {
        let proxy = Proxy::start("http", &[one.address()], "");
        proxy.reload(&text(&proxy, &[&one, &two], "cookie = \"SRV\"", ""));
        proxy
    };
    let (mut proxy, other) = (start(), start());
    let value = cookie(&proxy)[..16].to_owned();
    assert!(selects_its_server(&proxy, &value));
    assert!(
        !selects_its_server(&other, &value),
        "two directors must have different keys"
    );

    let file = proxy.directory.join("run/cookie.key");
    let key = fs::read_to_string(&file).expect("read key file");
    let mode = || {
        fs::metadata(&file)
            .expect("read metadata")
            .permissions()
            .mode()
            & 0o7777
    };
    assert!(key.len() >= 32, "{} characters", key.len());
    assert_eq!(mode(), 0o600);

    let (done, output) = proxy.upgrade();
    assert!(done, "{output}");
    assert!(selects_its_server(&proxy, &value), "after an upgrade");
    kill_daemon(&proxy);
    proxy.wait_until_ready();
    assert!(selects_its_server(&proxy, &value), "after a crash");
    proxy.terminate();
    proxy.start_again();
    assert!(selects_its_server(&proxy, &value), "after a restart");
    assert_eq!(fs::read_to_string(&file).expect("read key file"), key);
    assert_eq!(mode(), 0o600);

    let configuration = proxy.directory.join("weir.toml");
    let file_name = configuration.to_str().expect("not UTF-8");
    for shown in [
        proxy.log(),
        proxy.status().to_string(),
        proxy.weir(&["plan", "-c", file_name]).1,
        proxy.weir(&["doctor"]).1,
    ] {
        assert!(!shown.contains(&key), "{shown}");
    }

    // An invalid key is replaced, and a line is logged.
    proxy.terminate();
    fs::write(&file, "short").expect("write file");
    proxy.start_again();
    assert!(!selects_its_server(&proxy, &value));
    assert!(
        proxy
            .log()
            .contains("contains no valid key for sticky cookies")
    );
}

#[test]
fn key_is_not_generated_if_every_pool_has_a_secret() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let file = proxy.directory.join("run/cookie.key");
    assert!(!file.exists(), "expected no key without a sticky pool");
    proxy.reload(&text(
        &proxy,
        &[&origin],
        "cookie = \"SRV\", secret = \"s\"",
        "",
    ));
    let value = cookie(&proxy)[..16].to_owned();
    assert!(selects_its_server(&proxy, &value) && !file.exists());
}

/// A client that is sent to another director after a failover keeps its server.
#[test]
fn cookies_of_directors_with_one_secret_are_interchangeable() {
    let origins = [Origin::start("o"), Origin::start("p")];
    let all = origins.each_ref();
    let servers: Vec<_> = origins.iter().map(|origin| origin.address()).collect();
    let directors = [0, 1].map(|_| Proxy::start("http", &servers, ""));
    let shared = "cookie = \"SRV\", secret = \"of both directors\"";
    for director in &directors {
        director.reload(&text(director, &all, shared, ""));
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let value = cookie(&directors[from]);
        let (value, _) = value.split_at(16);
        assert!(selects_its_server(&directors[to], value), "{from} to {to}");
        let server = |at: usize| {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV={value}\r\n\r\n");
            Client::connect(directors[at].listen).fetch(&request).1
        };
        let expected = server(from);
        assert!((0..4).all(|_| server(to) == expected), "another server");
    }
    let other = &directors[1];
    let value = cookie(&directors[0]);
    other.reload(&text(
        other,
        &all,
        "cookie = \"SRV\", secret = \"its own\"",
        "",
    ));
    assert!(!selects_its_server(other, value.split_at(16).0));
}
