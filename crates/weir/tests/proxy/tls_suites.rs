//! Tests `tls.ciphers` and `tls.groups` with openssl as the client, and the route condition `scheme`.

use std::process::{Command, Stdio};

use super::tls::Authority;
use super::{Client, Origin, Proxy, configuration, fs};

/// Returns the cipher suite that `openssl s_client` negotiates with these options, or `None` if the handshake fails.
fn handshake(proxy: &Proxy, options: &str) -> Option<String> {
    let output = Command::new("timeout")
        .args(["20", "openssl", "s_client", "-connect"])
        .arg(proxy.listen.to_string())
        .args(["-servername", "a.example"])
        .args(options.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .expect("run openssl (see tools/install-deps.sh)");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let cipher = text.lines().find_map(|line| {
        let (_, cipher) = line.split_once("Cipher is ")?;
        Some(cipher.trim().to_owned())
    });
    cipher.filter(|cipher| cipher != "(NONE)")
}

#[test]
fn only_listed_suites_and_groups_are_negotiated() {
    let authority = Authority::new("suites");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let certificates = authority.certs();
    let tls = |keys: &str| format!("tls = {{ certificates = \"{certificates}\"{keys} }}");
    let proxy = Proxy::start("http", &[origin.address()], &tls(""));
    let reload_with = |keys: &str| {
        let text = configuration(proxy.listen, "http", &[origin.address()], &tls(keys));
        proxy.reload(&text);
    };
    let handshake_tls12 = |cipher: &str| handshake(&proxy, &format!("-tls1_2 -cipher {cipher}"));
    let handshake_tls13 =
        |cipher: &str| handshake(&proxy, &format!("-tls1_3 -ciphersuites {cipher}"));
    let (aes, chacha) = (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    );
    assert_eq!(handshake_tls12(aes).as_deref(), Some(aes));
    assert_eq!(handshake_tls12(chacha).as_deref(), Some(chacha));
    reload_with(&format!(", ciphers = [\"{chacha}\"]"));
    assert_eq!(handshake_tls12(aes), None);
    assert_eq!(handshake_tls12(chacha).as_deref(), Some(chacha));
    // The other TLS version keeps its suites.
    for cipher in ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"] {
        assert_eq!(handshake_tls13(cipher).as_deref(), Some(cipher));
    }
    reload_with(", ciphers = [\"TLS_AES_256_GCM_SHA384\"]");
    assert_eq!(handshake_tls13("TLS_AES_128_GCM_SHA256"), None);
    let cipher = "TLS_AES_256_GCM_SHA384";
    assert_eq!(handshake_tls13(cipher).as_deref(), Some(cipher));
    assert_eq!(handshake_tls12(aes).as_deref(), Some(aes));
    reload_with(", groups = [\"P-384\"]");
    for (group, is_allowed) in [("P-256", false), ("X25519", false), ("P-384", true)] {
        // With TLS 1.2, openssl's list of groups would also restrict the curve of the certificate, so use TLS 1.3.
        let cipher = handshake(&proxy, &format!("-tls1_3 -groups {group}"));
        assert_eq!(cipher.is_some(), is_allowed, "{group}");
    }
    let file = proxy.directory.join("wrong.toml");
    let invalid_configuration =
        tls(", minimum = \"1.3\", ciphers = [\"ECDHE-RSA-AES128-GCM-SHA256\", \"AES128-SHA\"]");
    let text = configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        &invalid_configuration,
    );
    fs::write(&file, text).expect("write file");
    let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
    assert!(!succeeded, "{output}");
    for part in [
        "unknown value \"AES128-SHA\"",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS 1.2, which `minimum` excludes",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

/// Returns the status and location of a response.
fn get(client: &mut Client, fields: &str) -> (String, String) {
    let (head, _) = client.fetch(&format!(
        "GET /x?y HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"
    ));
    let location = head
        .lines()
        .find_map(|line| line.strip_prefix("Location: "));
    (
        head[9..12].to_owned(),
        location.unwrap_or_default().to_owned(),
    )
}

#[test]
fn scheme_matches_the_connection_or_the_field_of_a_trusted_proxy() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let routes = "[[route]]\nservice = \"s\"\nscheme = \"http\"\nredirect = \"https://{host}{path}\"\n\n[[route]]\n\
        service = \"s\"\nscheme = [\"https\"]\nredirect = \"{scheme}://secure.example/\"\n";
    let reload_with = |service: &str| {
        let text = configuration(proxy.listen, "http", &[origin.address()], service);
        proxy.reload(&format!("{text}\n{routes}"));
    };
    reload_with("");
    let mut client = Client::connect(proxy.listen);
    let redirected = ("302".to_owned(), "https://a.example/x?y".to_owned());
    assert_eq!(get(&mut client, ""), redirected);
    // Weir ignores the field of an untrusted client.
    assert_eq!(get(&mut client, "X-Forwarded-Proto: https\r\n"), redirected);
    reload_with("trusted = [\"127.0.0.0/8\"]");
    let secure = ("302".to_owned(), "https://secure.example/".to_owned());
    for value in ["https", "HTTPS", "https, http"] {
        let field = format!("X-Forwarded-Proto: {value}\r\n");
        assert_eq!(get(&mut client, &field), secure, "{value}");
    }
    for value in ["http", "http, https", "ftp", ""] {
        let field = format!("X-Forwarded-Proto: {value}\r\n");
        assert_eq!(get(&mut client, &field), redirected, "{value}");
    }
    let (succeeded, output) = proxy.weir(&[
        "explain",
        "--request",
        &format!("GET http://{}/", proxy.listen),
    ]);
    assert!(succeeded && output.contains("scheme=http"), "{output}");
    // The client uses TLS.
    let authority = Authority::new("scheme");
    authority.sign("one", "DNS:a.example", 30);
    reload_with(&format!(
        "tls = {{ certificates = \"{}\" }}",
        authority.certs()
    ));
    let config = authority.client(None);
    let mut stream = super::tls::connect(&config, proxy.listen, "a.example");
    let head = super::tls::fetch(&mut stream, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let head = head.expect("no response");
    assert!(
        head.contains("Location: https://secure.example/\r\n"),
        "{head}"
    );
}
