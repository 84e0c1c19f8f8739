//! Tests `tls.certificates` as a list of files and directories.

use std::path::Path;

use super::tls::{Authority, connect, fetch, peer_certificate};
use super::*;

#[test]
fn certificates_from_list_are_selected_by_sni() {
    let authority = Authority::new("list");
    let one = authority.sign("one", "DNS:a.example", 30);
    let two = authority.sign("two", "DNS:b.example", 30);
    let origin = Origin::start("o");
    let tls = |list: &str| format!("tls = {{ certificates = [{list}] }}");
    let quoted = |path: &Path| format!("\"{}\"", path.display());
    let proxy = Proxy::start(
        "http",
        &[origin.address()],
        &tls(&format!("{}, {}", quoted(&two), quoted(&one))),
    );
    // Each handshake uses a new client configuration, because a resumed session presents no certificate.
    let certificate = |name: &str| {
        let mut stream = connect(&authority.client(None), proxy.listen, name);
        let response = fetch(&mut stream, GET).expect("fetch");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        peer_certificate(&stream)
    };
    let (first, second) = (certificate("a.example"), certificate("b.example"));
    assert_ne!(first, second);
    // The first list contains a file and also the directory of that file. The next list lacks one of the files.
    let text = |list: &str| configuration(proxy.listen, "http", &[origin.address()], &tls(list));
    proxy.reload(&text(&format!(
        "{}, \"{}\"",
        quoted(&one),
        authority.certs()
    )));
    assert_eq!(
        (certificate("a.example"), certificate("b.example")),
        (first, second)
    );
    proxy.reload(&text(&quoted(&one)));
    let mut stream = connect(&authority.client(None), proxy.listen, "b.example");
    let error = fetch(&mut stream, GET)
        .expect_err("certificate for a different name was accepted")
        .to_string();
    assert!(error.contains("not valid for name"), "{error}");
    // Invalid lists and entries are rejected.
    let file = proxy.directory.join("wrong.toml");
    for (list, message) in [
        ("", "`certificates` is an empty list"),
        (
            "\"/a.pem\", \"b.pem\"",
            "`certificates` must be an absolute path",
        ),
        (
            "\"/nowhere.pem\"",
            "/nowhere.pem: No such file or directory",
        ),
    ] {
        fs::write(&file, text(list)).expect("write file");
        let (succeeded, output) = proxy.weir(&["check", "-c", file.to_str().expect("not UTF-8")]);
        assert!(!succeeded && output.contains(message), "{output}");
    }
}
