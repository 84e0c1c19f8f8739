//! Tests revocation lists for client certificates.

use std::path::Path;

use super::tls::{Authority, connect, fetch};
use super::*;

/// Creates a revocation list that contains the certificates in these files. Returns the path of the list.
fn revoke(authority: &Authority, files: &[&str]) -> String {
    let mut index = String::new();
    for file in files {
        let serial = authority.openssl(&format!("x509 -in {file}.crt -noout -serial"));
        let serial = serial.trim().trim_start_matches("serial=");
        index += &format!("R\t491231235959Z\t250101000000Z\t{serial}\tunknown\t/CN={file}\n");
    }
    authority.write_file("revoked", index.as_bytes());
    let settings = "[ca]\ndefault_ca=own\n[own]\ndatabase=revoked\ncrlnumber=number\ndefault_md=sha256\n\
                    default_crl_days=30\n";
    // openssl creates a version 2 list if the list has a CRL number. RFC 5280 requires both.
    authority.write_file("number", b"01\n");
    authority.write_file("crl.cnf", settings.as_bytes());
    let output = authority
        .openssl("ca -config crl.cnf -gencrl -keyfile ca.key -cert ca.pem -out clients.crl");
    let path = Path::new(&authority.ca()).with_file_name("clients.crl");
    assert!(path.exists(), "{output}");
    path.display().to_string()
}

#[test]
fn revoked_client_certificates_are_rejected() {
    let authority = Authority::new("revoked");
    authority.sign("one", "DNS:a.example", 30);
    let good = authority.sign("good", "DNS:good.example", 30);
    let bad = authority.sign("bad", "DNS:bad.example", 30);
    let list = revoke(&authority, &[]);
    let origin = Origin::start("o");
    let tls = format!(
        "tls = {{ certificates = \"{}/one.pem\", client_ca = \"{}\", client_crl = \"{list}\" }}",
        authority.certs(),
        authority.ca()
    );
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let clients = [&good, &bad].map(|certificate| authority.client(Some(certificate)));
    let accepted = || {
        clients.each_ref().map(|client| {
            let mut stream = connect(client, proxy.listen, "a.example");
            fetch(&mut stream, GET).is_ok()
        })
    };
    assert_eq!(accepted(), [true, true]);
    revoke(&authority, &["bad"]);
    let configuration = configuration(proxy.listen, "http", &[origin.address()], &tls);
    proxy.reload(&configuration);
    // The client has a session from before the reload, which it must not be able to resume.
    assert_eq!(accepted(), [true, false]);
    authority.write_file("clients.crl", b"no list");
    let (succeeded, output) = proxy.weir(&["reload"]);
    assert!(!succeeded, "{output}");
    assert!(
        output.contains("no certificate revocation list in PEM format"),
        "{output}"
    );
    assert_eq!(
        accepted(),
        [true, false],
        "a rejected reload changed which clients are accepted"
    );
}
