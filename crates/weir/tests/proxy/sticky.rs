//! Tests the cookies that Weir sets: their attributes, and the key that signs them if the configuration has no secret.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::keeper::kill_daemon;
use super::tls::{Authority, connect, fetch};
use super::{Client, GET, Origin, Proxy, configuration};

/// Returns a configuration whose pool has these keys in `sticky`.
fn configuration_with(proxy: &Proxy, origins: &[&Origin], sticky: &str, service: &str) -> String {
    let servers: Vec<_> = origins.iter().map(|origin| origin.address()).collect();
    let configuration = configuration(proxy.listen, "http", &servers, service);
    configuration.replace(
        "\n\n[service.s]",
        &format!("\nscheduler = \"rr\"\nsticky = {{ {sticky} }}\n\n[service.s]"),
    )
}

/// Returns the text after `Set-Cookie: SRV=` in a head.
fn set_cookie_value(head: &str) -> String {
    let value = head
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: SRV="));
    value
        .unwrap_or_else(|| panic!("no cookie: {head}"))
        .to_owned()
}

/// Returns the cookie in a response to a new client.
fn fetch_cookie(proxy: &Proxy) -> String {
    set_cookie_value(&Client::connect(proxy.listen).fetch(GET).0)
}

/// Returns whether Weir accepts this cookie value in all of four requests.
fn is_accepted(proxy: &Proxy, value: &str) -> bool {
    let mut client = Client::connect(proxy.listen);
    (0..4).all(|_| {
        let (head, _) = client.fetch(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV={value}\r\n\r\n"
        ));
        // Weir replaces an invalid cookie.
        !head.contains("Set-Cookie")
    })
}

#[test]
fn cookie_defaults_are_lax_and_secure_with_tls() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let authority = Authority::new("sticky");
    authority.sign("a", "DNS:a.example", 10);
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let config = authority.client(None);
    let cookie_attributes = |sticky: &str, service: &str| {
        proxy.reload(&configuration_with(&proxy, &[&origin], sticky, service));
        let line = match service {
            "" => fetch_cookie(&proxy),
            _ => {
                let mut stream = connect(&config, proxy.listen, "a.example");
                set_cookie_value(&fetch(&mut stream, GET).expect("fetch"))
            }
        };
        let (value, rest) = line.split_at(16);
        assert!(value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
        rest.to_owned()
    };
    let keys = "cookie = \"SRV\", secret = \"s\"";
    assert_eq!(
        cookie_attributes(keys, ""),
        "; Path=/; HttpOnly; SameSite=Lax"
    );
    assert_eq!(
        cookie_attributes(keys, &tls),
        "; Path=/; HttpOnly; SameSite=Lax; Secure"
    );
    for (attributes, expected) in [
        ("Path=/x; SameSite=Strict", "; Path=/x; SameSite=Strict"),
        ("", ""),
    ] {
        let sticky = format!("{keys}, attributes = \"{attributes}\"");
        for service in ["", tls.as_str()] {
            assert_eq!(cookie_attributes(&sticky, service), expected);
        }
    }
}

#[test]
fn cookies_that_header_rules_remove_do_not_reach_the_server() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    for mode in ["insert", "prefix"] {
        let sticky = format!("cookie = \"SRV\", mode = \"{mode}\"");
        let forwarded = |service: &str| {
            proxy.reload(&configuration_with(&proxy, &[&origin], &sticky, service));
            let (_, body) = Client::connect(proxy.listen)
                .fetch("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV=x~y; admin=1\r\n\r\n");
            String::from_utf8_lossy(&body).into_owned()
        };
        assert!(forwarded("").contains("admin=1\r\n"), "{mode}");
        assert!(!forwarded("remove_header = [\"cookie\"]").contains("admin"));
        let set = forwarded("set_header = [\"Cookie: a=b\"]");
        assert!(
            set.contains("Cookie: a=b\r\n") && !set.contains("admin"),
            "{set}"
        );
        let route = "[[route]]\nservice = \"s\"\npool = \"p\"\nremove_header = [\"Cookie\"]";
        assert!(!forwarded(route).contains("admin"));
    }
}

#[test]
fn configured_cookie_values_are_set_and_accepted() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address()], "");
    let with_values = |mode: &str| {
        let mut text = configuration_with(
            &proxy,
            &[&one, &two],
            &format!("cookie = \"SRV\", attributes = \"\", mode = \"{mode}\""),
            "",
        );
        for (origin, value) in [(&one, "s1"), (&two, "s2")] {
            let address = format!("\"{}\"", origin.address());
            let table = format!("{{ address = {address}, cookie = \"{value}\" }}");
            text = text.replace(&address, &table);
        }
        text
    };
    proxy.reload(&with_values("insert"));
    let values: BTreeSet<String> = (0..8).map(|_| fetch_cookie(&proxy)).collect();
    assert_eq!(values, ["s1", "s2"].map(str::to_owned).into());
    let body_with = |cookie: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV={cookie}\r\n\r\n");
        let (_, body) = Client::connect(proxy.listen).fetch(&request);
        String::from_utf8_lossy(&body).into_owned()
    };
    for _ in 0..4 {
        assert!(is_accepted(&proxy, "s1") && is_accepted(&proxy, "s2"));
        assert!(body_with("s1").starts_with("one") && body_with("s2").starts_with("two"));
    }
    proxy.reload(&with_values("prefix"));
    for _ in 0..4 {
        let body = body_with("s2~x");
        assert!(
            body.starts_with("two") && body.contains("SRV=x\r\n"),
            "{body}"
        );
    }
}

#[test]
fn key_is_generated_and_kept_if_no_secret_is_configured() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let start = || {
        let proxy = Proxy::start("http", &[one.address()], "");
        proxy.reload(&configuration_with(
            &proxy,
            &[&one, &two],
            "cookie = \"SRV\"",
            "",
        ));
        proxy
    };
    let (mut proxy, other_director) = (start(), start());
    let value = fetch_cookie(&proxy)[..16].to_owned();
    assert!(is_accepted(&proxy, &value));
    assert!(
        !is_accepted(&other_director, &value),
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

    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    assert!(is_accepted(&proxy, &value), "after an upgrade");
    kill_daemon(&proxy);
    proxy.wait_until_ready();
    assert!(is_accepted(&proxy, &value), "after a crash");
    proxy.terminate();
    proxy.start_again();
    assert!(is_accepted(&proxy, &value), "after a restart");
    assert_eq!(fs::read_to_string(&file).expect("read key file"), key);
    assert_eq!(mode(), 0o600);

    let configuration_file = proxy.directory.join("weir.toml");
    let file_name = configuration_file.to_str().expect("not UTF-8");
    for output in [
        proxy.log(),
        proxy.status().to_string(),
        proxy.weir(&["plan", "-c", file_name]).1,
        proxy.weir(&["doctor"]).1,
    ] {
        assert!(!output.contains(&key), "{output}");
    }

    // Weir replaces an invalid key and logs a warning.
    proxy.terminate();
    fs::write(&file, "short").expect("write file");
    proxy.start_again();
    assert!(!is_accepted(&proxy, &value));
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
    proxy.reload(&configuration_with(
        &proxy,
        &[&origin],
        "cookie = \"SRV\", secret = \"s\"",
        "",
    ));
    let value = fetch_cookie(&proxy)[..16].to_owned();
    assert!(is_accepted(&proxy, &value) && !file.exists());
}

/// A client that reaches a different director after a failover keeps its server.
#[test]
fn directors_with_one_secret_accept_each_others_cookies() {
    let origins = [Origin::start("o"), Origin::start("p")];
    let origin_refs = origins.each_ref();
    let servers: Vec<_> = origins.iter().map(|origin| origin.address()).collect();
    let directors = [0, 1].map(|_| Proxy::start("http", &servers, ""));
    let shared = "cookie = \"SRV\", secret = \"of both directors\"";
    for director in &directors {
        director.reload(&configuration_with(director, &origin_refs, shared, ""));
    }
    for (first, second) in [(0, 1), (1, 0)] {
        let value = fetch_cookie(&directors[first]);
        let (value, _) = value.split_at(16);
        assert!(
            is_accepted(&directors[second], value),
            "{first} to {second}"
        );
        let server = |index: usize| {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV={value}\r\n\r\n");
            Client::connect(directors[index].listen).fetch(&request).1
        };
        let expected = server(first);
        assert!(
            (0..4).all(|_| server(second) == expected),
            "the cookie selects a different server"
        );
    }
    let other_director = &directors[1];
    let value = fetch_cookie(&directors[0]);
    other_director.reload(&configuration_with(
        other_director,
        &origin_refs,
        "cookie = \"SRV\", secret = \"its own\"",
        "",
    ));
    assert!(!is_accepted(other_director, value.split_at(16).0));
}
