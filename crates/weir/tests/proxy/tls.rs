//! Tests TLS with clients and servers: server names, reloads, tickets, client certificates, and `weir check`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use super::*;

/// A certificate authority, and the directory that contains it and the certificates that it has signed. Dropping it
/// removes the directory.
pub(super) struct Authority(PathBuf);

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("weir-tls-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("certs")).expect("create directory");
        let authority = Self(directory);
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=authority -keyout ca.key \
             -out ca.pem",
        );
        authority
    }

    /// Runs `openssl` in the directory. Returns its output.
    pub(super) fn openssl(&self, arguments: &str) -> String {
        let output = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .output()
            .expect("run openssl");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Writes `certs/FILE.pem`, which contains a certificate for these names and its key. Returns the path of the file.
    pub(super) fn sign(&self, file: &str, names: &str, days: u32) -> PathBuf {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={file} -keyout {file}.key -out {file}.csr"
        ));
        fs::write(
            self.0.join("extensions"),
            format!("subjectAltName={names}\n"),
        )
        .expect("write file");
        let output = self.openssl(&format!(
            "x509 -req -in {file}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -extfile extensions -out \
             {file}.crt"
        ));
        let read = |name: String| {
            fs::read_to_string(self.0.join(name)).unwrap_or_else(|_| panic!("{output}"))
        };
        let joined = read(format!("{file}.crt")) + &read(format!("{file}.key"));
        let path = self.0.join("certs").join(format!("{file}.pem"));
        fs::write(&path, joined).expect("write file");
        path
    }

    /// Writes an OCSP response with the status "good" for the certificate in `file`. Returns openssl's output.
    fn sign_ocsp_response(&self, file: &str, path: &Path) -> String {
        let serial = self.openssl(&format!("x509 -in {file}.crt -noout -serial"));
        let serial = serial.trim().trim_start_matches("serial=");
        let index = format!("V\t491231235959Z\t\t{serial}\tunknown\t/CN={file}\n");
        fs::write(self.0.join("index"), index).expect("write file");
        self.openssl(&format!(
            "ocsp -index index -rsigner ca.pem -rkey ca.key -CA ca.pem -issuer ca.pem -cert {file}.crt -ndays 7 \
             -respout {}",
            path.display()
        ))
    }

    /// Writes FILE.crt, a certificate signed with its own key FILE.key.
    fn self_sign(&self, file: &str, options: &str) {
        let output = self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {file}.key -out {file}.crt {options}"
        ));
        assert!(self.0.join(format!("{file}.crt")).exists(), "{output}");
    }

    pub(super) fn certs(&self) -> String {
        self.0.join("certs").display().to_string()
    }

    /// Writes a file. Returns its path.
    pub(super) fn write_file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("write file");
        path.display().to_string()
    }

    pub(super) fn ca(&self) -> String {
        self.0.join("ca.pem").display().to_string()
    }

    /// Returns the configuration of a client that trusts the authority and sends the certificate in this file.
    pub(super) fn client(&self, certificate: Option<&Path>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.0.join("ca.pem")).expect("read CA certificate");
        roots.add(ca).expect("add CA certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("select TLS versions")
            .with_root_certificates(roots);
        Arc::new(match certificate {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let chain = CertificateDer::pem_file_iter(path).expect("read PEM file");
                let chain = chain.map(|der| der.expect("parse certificate")).collect();
                let key = PrivateKeyDer::from_pem_file(path).expect("read private key");
                builder
                    .with_client_auth_cert(chain, key)
                    .expect("set client certificate")
            }
        })
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Starts a TLS connection with this server name.
pub(super) fn connect(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> Stream {
    let name = name.to_owned().try_into().expect("parse server name");
    let connection = ClientConnection::new(Arc::clone(config), name).expect("create TLS client");
    StreamOwned::new(connection, Client::connect(address).0)
}

/// Sends one request and reads the response by its Content-Length.
pub(super) fn fetch(stream: &mut Stream, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    let mut byte = [0u8; 1];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&text).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    text.extend_from_slice(&body);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the certificate that the server presented.
pub(super) fn peer_certificate(stream: &Stream) -> Vec<u8> {
    let chain = stream
        .conn
        .peer_certificates()
        .expect("no peer certificate");
    chain[0].to_vec()
}

#[test]
fn certificate_is_selected_by_sni() {
    let authority = Authority::new("names");
    authority.sign("one", "DNS:a.example", 30);
    authority.sign("two", "DNS:*.b.example", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let config = authority.client(None);
    let mut first = connect(&config, proxy.listen, "a.example");
    let response = fetch(&mut first, GET).expect("fetch");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(
        response.contains("X-Forwarded-Proto: https\r\n"),
        "{response}"
    );
    let mut second = connect(&config, proxy.listen, "x.b.example");
    let large = "x".repeat(3_000_000);
    let length = large.len();
    let post = format!("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{large}");
    let response = fetch(&mut second, &post).expect("fetch");
    assert!(response.ends_with("\r\n\r\n3000000"), "{response}");
    assert_ne!(peer_certificate(&first), peer_certificate(&second));
    // For an unknown name, Weir uses the first file, so the client finds no matching name.
    let mut other = connect(&config, proxy.listen, "c.example");
    let error = fetch(&mut other, GET)
        .expect_err("certificate for another name was accepted")
        .to_string();
    assert!(error.contains("not valid for name"), "{error}");
    // With `strict_sni`, Weir sends no certificate.
    let strict = tls.replace(" }", ", strict_sni = true }");
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        &strict,
    ));
    assert!(
        fetch(&mut first, GET).is_ok(),
        "the connection must survive the reload"
    );
    let mut other = connect(&config, proxy.listen, "c.example");
    let error = fetch(&mut other, GET)
        .expect_err("handshake without a matching certificate succeeded")
        .to_string();
    assert!(error.contains("alert"), "{error}");
}

#[test]
fn reload_replaces_certificates_without_closing_connections() {
    let authority = Authority::new("reload");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let config = authority.client(None);
    let mut existing_stream = connect(&config, proxy.listen, "a.example");
    fetch(&mut existing_stream, GET).expect("fetch");
    let before = peer_certificate(&existing_stream);
    let path = authority.sign("one", "DNS:a.example", 30);
    let same = configuration(proxy.listen, "http", &[origin.address()], &tls);
    proxy.reload(&same);
    let mut new = connect(&authority.client(None), proxy.listen, "a.example");
    fetch(&mut new, GET).expect("fetch");
    assert_ne!(
        peer_certificate(&new),
        before,
        "the new certificate must be sent"
    );
    // Tickets from before the reload are valid in each worker.
    for _ in 0..4 {
        let mut resumed = connect(&config, proxy.listen, "a.example");
        fetch(&mut resumed, GET).expect("fetch");
        assert_eq!(resumed.conn.handshake_kind(), Some(HandshakeKind::Resumed));
    }
    // An invalid file has no effect.
    fs::write(&path, "no certificate").expect("write file");
    let file = proxy.directory.join("weir.toml");
    let (succeeded, output) = proxy.weir(&["reload", "-c", file.to_str().expect("not UTF-8")]);
    assert!(!succeeded && output.contains("one.pem"), "{output}");
    fetch(&mut existing_stream, GET).expect("fetch");
    let mut new = connect(&config, proxy.listen, "a.example");
    fetch(&mut new, GET).expect("fetch");
}

#[test]
fn client_certificates_are_required_or_optional() {
    let (authority, stranger) = (Authority::new("auth"), Authority::new("stranger"));
    authority.sign("one", "DNS:a.example", 30);
    let certificate = authority.sign("client", "DNS:client.example", 30);
    let untrusted = stranger.sign("client", "DNS:client.example", 30);
    let origin = Origin::start("o");
    let tls = format!(
        "tls = {{ certificates = \"{}/one.pem\", client_ca = \"{}\", minimum = \"1.3\" }}",
        authority.certs(),
        authority.ca()
    );
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let fetch_with = |certificate: Option<&Path>| {
        let mut stream = connect(&authority.client(certificate), proxy.listen, "a.example");
        fetch(&mut stream, GET)
    };
    assert!(fetch_with(Some(&certificate)).is_ok());
    assert!(fetch_with(None).is_err());
    assert!(fetch_with(Some(&untrusted)).is_err());
    // A client that continues to send before it has read the response still receives the reason for the rejection.
    let mut stream = connect(
        &authority.client(Some(&untrusted)),
        proxy.listen,
        "a.example",
    );
    for _ in 0..4 {
        stream.write_all(GET.as_bytes()).expect("write");
        std::thread::sleep(Duration::from_millis(50));
    }
    let error = stream.read(&mut [0]).expect_err("no alert").to_string();
    assert!(error.contains("fatal alert"), "{error}");
    let optional = tls.replace(" }", ", client_auth = \"optional\" }");
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        &optional,
    ));
    assert!(fetch_with(None).is_ok());
    assert!(fetch_with(Some(&untrusted)).is_err());
    let output = authority.openssl(&format!("s_client -connect {} -tls1_2", proxy.listen));
    assert!(output.contains("alert protocol version"), "{output}");
}

#[test]
fn ocsp_staple_is_sent_and_tls_1_2_is_supported() {
    let authority = Authority::new("staple");
    let path = authority.sign("one", "DNS:a.example", 30);
    let staple = path.with_extension("pem.ocsp");
    let log = authority.sign_ocsp_response("one", &staple);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let handshake = |version: &str| {
        authority.openssl(&format!(
            "s_client -connect {} -status {version}",
            proxy.listen
        ))
    };
    let output = handshake("-tls1_2");
    assert!(output.contains("Cert Status: good"), "{log} {output}");
    assert!(output.contains("Protocol  : TLSv1.2"), "{output}");
    // Weir does not send an invalid OCSP response, because clients would reject the connection.
    authority.sign("two", "DNS:b.example", 30);
    let other = authority.0.join("two.ocsp");
    authority.sign_ocsp_response("two", &other);
    let other = fs::read(other).expect("read OCSP response");
    let file = proxy.directory.join("weir.toml");
    let file = file.to_str().expect("not UTF-8");
    for (content, error) in [
        (&b""[..], "not an OCSP response"),
        (b"\x30\x03\x0a\x01\x06", "OCSP responder returned an error"),
        (&other, "is for a different certificate"),
    ] {
        fs::write(&staple, content).expect("write file");
        let (succeeded, output) = proxy.weir(&["check", "-c", file]);
        assert!(
            succeeded && output.contains("one.pem.ocsp: ") && output.contains(error),
            "{output}"
        );
        let (succeeded, output) = proxy.weir(&["reload", "-c", file]);
        assert!(succeeded, "{output}");
        for version in ["-tls1_2", "-tls1_3"] {
            let output = handshake(version);
            assert!(
                output.contains("OCSP response: no response sent"),
                "{output}"
            );
            assert!(!output.contains("Cipher is (NONE)"), "{output}");
        }
        assert!(proxy.log().contains(error), "{}", proxy.log());
    }
}

#[test]
fn server_certificates_are_verified_and_connections_reused() {
    let authority = Authority::new("back");
    authority.sign("one", "DNS:web.internal,IP:127.0.0.1", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let server = Proxy::start("http", &[origin.address()], &tls);
    let proxy = Proxy::start("http", &[server.listen], "");
    let fetch_twice = |pool: &str| {
        let text = configuration(proxy.listen, "http", &[server.listen], "");
        proxy.reload(&text.replace("\n\n[service.s]", &format!("\n{pool}\n\n[service.s]")));
        let mut client = Client::connect(proxy.listen);
        let (first, second) = (client.fetch(GET).0, client.fetch(GET));
        (
            first[9..12].to_owned(),
            String::from_utf8_lossy(&second.1).into_owned(),
        )
    };
    let ca = authority.ca();
    let connections = || server.status()["services"][0]["connections"].as_u64();
    let (status, forwarded) = fetch_twice(&format!("tls = {{ ca = \"{ca}\" }}"));
    assert_eq!(status, "200", "the address in the certificate must match");
    assert!(forwarded.contains("Via: 1.1 weir\r\n"), "{forwarded}");
    assert_eq!(
        connections(),
        Some(1),
        "expected one connection for both requests"
    );
    assert_eq!(
        fetch_twice(&format!(
            "tls = {{ ca = \"{ca}\", server_name = \"web.internal\" }}"
        ))
        .0,
        "200"
    );
    assert_eq!(
        fetch_twice(&format!(
            "tls = {{ ca = \"{ca}\", server_name = \"other.internal\" }}"
        ))
        .0,
        "502"
    );
    assert!(
        proxy.log().contains("TLS handshake with a server failed"),
        "{}",
        proxy.log()
    );
    assert_eq!(
        fetch_twice("tls = true").0,
        "502",
        "the system must not trust the authority"
    );
    assert_eq!(fetch_twice("tls = { verify = false }").0, "200");
}

#[test]
fn tls_tickets_survive_a_crash() {
    let authority = Authority::new("killed");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let config = authority.client(None);
    let handshake_kind = || {
        let mut stream = connect(&config, proxy.listen, "a.example");
        fetch(&mut stream, GET).expect("fetch");
        stream.conn.handshake_kind()
    };
    assert_eq!(handshake_kind(), Some(HandshakeKind::Full));
    assert_eq!(handshake_kind(), Some(HandshakeKind::Resumed));
    for _ in 0..2 {
        super::keeper::kill_daemon(&proxy);
        assert_eq!(handshake_kind(), Some(HandshakeKind::Resumed));
    }
    // No file in the runtime directory contains ticket keys.
    let run = fs::read_dir(proxy.directory.join("run")).expect("read directory");
    for entry in run.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        assert!(
            !text.contains("tickets"),
            "{}: {text}",
            entry.path().display()
        );
    }
}

/// A TLS server that runs openssl. Dropping it stops the server.
struct OpensslServer {
    child: std::process::Child,
    listen: SocketAddr,
}

impl OpensslServer {
    fn start(authority: &Authority, file: &str) -> Self {
        let listen = super::free_address();
        let child = Command::new("openssl")
            .args(["s_server", "-www", "-quiet", "-accept", &listen.to_string()])
            .args([
                "-cert",
                &format!("{file}.crt"),
                "-key",
                &format!("{file}.key"),
            ])
            .current_dir(&authority.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start openssl");
        super::keeper::wait_until("openssl listens", || TcpStream::connect(listen).is_ok());
        Self { child, listen }
    }
}

impl Drop for OpensslServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request to a pool whose `tls` has these keys, and runs a check with the same keys. Returns the status of the
/// response, and the state and reason of the check.
fn request_and_check(proxy: &Proxy, server: SocketAddr, keys: &str) -> (String, String, String) {
    let text = configuration(proxy.listen, "http", &[server], "");
    let text = text.replace(
        "\n\n[service.s]",
        &format!("\ntls = {{ {keys} }}\n\n[service.s]"),
    );
    let checked = format!(
        "\n[pool.c]\nservers = [\"{server}\"]\n\n[pool.c.check]\nkind = \"tls\"\ninterval = \"100ms\"\nrise = 1\nfall \
         = 1\n{}\n\n\
         [[route]]\nservice = \"s\"\npath = \"/checked\"\npool = \"c\"\n",
        keys.replace(", ", "\n")
    );
    proxy.reload(&(text + &checked));
    let status = Client::connect(proxy.listen).fetch(GET).0[9..12].to_owned();
    let mut result = (String::new(), String::new());
    super::keeper::wait_until("the check has a result", || {
        let status = proxy.status();
        let services = status["services"].as_array().cloned().unwrap_or_default();
        let servers = services
            .iter()
            .flat_map(|service| service["servers"].as_array().cloned());
        let server = servers
            .flatten()
            .find(|server| server["pool"] == "c" || server["checks"].is_array());
        let text = |key: &str| {
            server
                .as_ref()
                .and_then(|server| server[key].as_str().map(str::to_owned))
        };
        result = (
            text("state").unwrap_or_default(),
            text("reason").unwrap_or_default(),
        );
        matches!(result.0.as_str(), "up" | "down")
    });
    // The reason for a failure begins with the server's address.
    let reason = result.1.replacen(&format!("{server}: "), "", 1);
    assert_eq!(reason == result.1, result.0 == "up", "{}", result.1);
    (status, result.0, reason)
}

#[test]
fn self_signed_certificate_can_be_pinned_as_ca() {
    let authority = Authority::new("pinned");
    let self_sign = |file: &str, options: &str| authority.self_sign(file, options);
    let proxy = Proxy::start("http", &[super::free_address()], "");
    let fetch_pinned = |file: &str, ca: &str, name: &str| {
        let server = OpensslServer::start(&authority, file);
        let path = authority.0.join(ca).display().to_string();
        request_and_check(
            &proxy,
            server.listen,
            &format!("ca = \"{path}\", server_name = \"{name}\""),
        )
    };
    // By default, openssl sets CA:TRUE and writes the name only to the common name.
    self_sign("plain", "-days 30 -subj /CN=web.internal");
    self_sign(
        "named",
        "-days 30 -subj /CN=x -addext subjectAltName=DNS:web.internal",
    );
    self_sign(
        "leaf",
        "-days 30 -subj /CN=x -addext subjectAltName=DNS:web.internal -addext basicConstraints=critical,CA:FALSE",
    );
    for file in ["plain", "named", "leaf"] {
        let (status, state, reason) = fetch_pinned(file, &format!("{file}.crt"), "web.internal");
        assert_eq!(
            (status.as_str(), state.as_str()),
            ("200", "up"),
            "{file}: {reason} {}",
            proxy.log()
        );
    }
    // Weir does not accept another certificate with the same subject.
    self_sign("other", "-days 30 -subj /CN=web.internal");
    let (status, state, reason) = fetch_pinned("other", "plain.crt", "web.internal");
    assert_eq!(
        (status.as_str(), state.as_str()),
        ("502", "down"),
        "{reason}"
    );
    let (status, state, reason) = fetch_pinned("named", "named.crt", "other.internal");
    assert_eq!((status.as_str(), state.as_str()), ("502", "down"));
    assert!(
        reason.starts_with("the server's certificate is not valid for other.internal, only for "),
        "{reason}"
    );
    authority.openssl("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=web.internal -keyout past.key \
     -out past.csr");
    authority.write_file("extensions", b"subjectAltName=DNS:web.internal\n");
    authority.openssl(
        "x509 -req -in past.csr -signkey past.key -days 0 -extfile extensions -out past.crt",
    );
    std::thread::sleep(Duration::from_secs(1));
    let (status, state, reason) = fetch_pinned("past", "past.crt", "web.internal");
    assert_eq!((status.as_str(), state.as_str()), ("502", "down"));
    assert_eq!(reason, "the server's certificate has expired");
    // The pinned certificate is not an authority for other names.
    authority.sign("unused", "DNS:web.internal", 30);
    authority.openssl(
        "x509 -req -in unused.csr -CA leaf.crt -CAkey leaf.key -CAcreateserial -days 30 -extfile \
     extensions -out unused.crt",
    );
    let (status, state, reason) = fetch_pinned("unused", "leaf.crt", "web.internal");
    assert_eq!(
        (status.as_str(), state.as_str()),
        ("502", "down"),
        "{reason}"
    );
}

#[test]
fn x509_v1_certificate_error_is_readable() {
    let authority = Authority::new("version");
    authority.openssl("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=web.internal -keyout old.key \
     -out old.csr");
    // If no extensions are specified, `openssl x509 -req` of OpenSSL 3.0 creates a version 1 certificate. OpenSSL 3.5
    // adds extensions, but its `openssl req` has an option for version 1, which 3.0 rejects.
    let arguments = "-in old.csr -CA ca.pem -CAkey ca.key -days 30 -out old.crt";
    let mut output = authority.openssl(&format!("x509 -req -CAcreateserial {arguments}"));
    output += &authority.openssl(&format!("req -config /dev/null -x509v1 {arguments}"));
    let text = authority.openssl("x509 -in old.crt -noout -text");
    assert!(text.contains("Version: 1 "), "{output} {text}");
    let proxy = Proxy::start("http", &[super::free_address()], "");
    let server = OpensslServer::start(&authority, "old");
    let message = "the server's certificate is X.509 version 1, which is not supported: ";
    for verify in [
        format!("ca = \"{}\"", authority.ca()),
        "verify = false".to_owned(),
    ] {
        let (status, state, reason) = request_and_check(&proxy, server.listen, &verify);
        assert_eq!((status.as_str(), state.as_str()), ("502", "down"));
        assert!(reason.starts_with(message), "{reason}");
    }
    let log = proxy.log();
    assert!(
        log.contains(message) && !log.contains("OtherError"),
        "{log}"
    );
    // Now use this certificate for a service.
    let certificate_and_key = ["old.crt", "old.key"]
        .map(|name| fs::read_to_string(authority.0.join(name)).expect("read file"));
    let path = authority.write_file("certs/old.pem", certificate_and_key.concat().as_bytes());
    let tls = format!("tls = {{ certificates = \"{path}\" }}");
    let file = proxy.directory.join("weir.toml");
    let text = configuration(proxy.listen, "http", &[server.listen], &tls);
    fs::write(&file, text).expect("write file");
    for command in ["check", "reload"] {
        let (succeeded, output) = proxy.weir(&[command, "-c", file.to_str().expect("not UTF-8")]);
        let expected = "old.pem: the certificate is X.509 version 1, which is not supported: ";
        assert!(
            !succeeded && output.contains(expected) && !output.contains("OtherError"),
            "{command}: {output}"
        );
    }
}

#[test]
fn tcp_services_terminate_tls() {
    let authority = Authority::new("tcp");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("tcp", &[origin.address()], &tls);
    let mut stream = connect(&authority.client(None), proxy.listen, "a.example");
    let response = fetch(&mut stream, GET).expect("fetch");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    // `read_to_end` succeeds only if close_notify arrives before the connection closes.
    let close = "GET /until-close HTTP/1.1\r\nHost: a\r\n\r\n";
    fetch(&mut stream, close).expect("fetch");
    let mut rest = Vec::new();
    stream
        .read_to_end(&mut rest)
        .expect("read to the end of the stream");
}

#[test]
fn sni_selects_pools_with_tls_passthrough() {
    let authority = Authority::new("sni");
    authority.sign("one", "DNS:a.example,DNS:b.example,DNS:x.c.example", 30);
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let tls_proxies =
        [one.address(), two.address()].map(|origin| Proxy::start("http", &[origin], &tls));
    let routes = format!(
        "[pool.q]\nservers = [\"{}\"]\n\n[[route]]\nservice = \"s\"\nhost = \"b.example\"\npool = \"q\"\n\n\
         [[route]]\nservice = \"s\"\nhost = \"*.c.example\"\npool = \"q\"",
        tls_proxies[1].listen
    );
    let service_lines = |tls: &str| format!("{tls}\n\n{routes}");
    let proxy = Proxy::start("tcp", &[tls_proxies[0].listen], &service_lines(""));
    let config = authority.client(None);
    let server_of = |name: &str| {
        let mut stream = connect(&config, proxy.listen, name);
        let response = fetch(&mut stream, GET).expect("fetch");
        let body = response.split("\r\n\r\n").nth(1).unwrap_or_default();
        body.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(server_of("a.example"), "one");
    assert_eq!(server_of("b.example"), "two");
    assert_eq!(server_of("x.c.example"), "two");
    // A handshake message that arrives byte by byte and is not a ClientHello gets an alert.
    let mut raw = Client::connect(proxy.listen);
    for byte in [22u8, 3, 1, 0, 4, 2, 0, 0, 0] {
        raw.0.write_all(&[byte]).expect("write");
    }
    let mut rest = Vec::new();
    let _ = raw.0.read_to_end(&mut rest);
    assert_eq!(rest.first(), Some(&21), "expected an alert: {rest:?}");
    // Server names also select pools when Weir terminates TLS.
    proxy.reload(
        &configuration(proxy.listen, "tcp", &[one.address()], &service_lines(&tls)).replace(
            &tls_proxies[1].listen.to_string(),
            &two.address().to_string(),
        ),
    );
    assert_eq!(server_of("a.example"), "one");
    assert_eq!(server_of("b.example"), "two");
}

#[test]
fn check_reports_certificate_faults() {
    let authority = Authority::new("check");
    authority.sign("good", "DNS:a.example", 60);
    let path = authority.0.join("weir.toml");
    let text = configuration(
        "127.0.0.1:1".parse().expect("parse address"),
        "http",
        &["127.0.0.1:2".parse().expect("parse address")],
        &format!(
            "tls = {{ certificates = \"{}\" }}\n\n[[route]]\nservice = \"s\"\nhost = \"b.example\"\npool = \"p\"",
            authority.certs()
        ),
    );
    fs::write(&path, text).expect("write file");
    let check = || {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["check", "-c"])
            .arg(&path)
            .output()
            .expect("run weir");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (succeeded, output) = check();
    assert!(
        succeeded && output.contains("warning: service s: no certificate covers b.example"),
        "{output}"
    );
    authority.sign("past", "DNS:b.example", 0);
    authority.sign("soon", "DNS:c.example", 5);
    let (succeeded, output) = check();
    assert!(
        succeeded && output.contains("past.pem: the certificate expired less than a day ago"),
        "{output}"
    );
    assert!(
        output.contains("soon.pem: the certificate expires in "),
        "{output}"
    );
    let certs = authority.0.join("certs");
    let other_key = fs::read_to_string(authority.0.join("past.key")).expect("read key file");
    let chain = fs::read_to_string(authority.0.join("good.crt")).expect("read certificate file");
    fs::write(certs.join("swapped.pem"), chain + &other_key).expect("write file");
    fs::write(certs.join("lone.crt"), "nothing").expect("write file");
    let (succeeded, output) = check();
    assert!(
        !succeeded && output.contains("swapped.pem: the key does not match the certificate"),
        "{output}"
    );
    assert!(
        output.contains("lone.crt: no certificate in PEM format"),
        "{output}"
    );
}

#[test]
fn routes_match_tls_properties() {
    let authority = Authority::new("routes");
    authority.sign("one", "DNS:a.example,DNS:b.example", 30);
    let certificate = authority.sign("client", "DNS:client.example", 30);
    let origin = Origin::start("o");
    let tls = format!(
        "tls = {{ certificates = \"{}/one.pem\", client_ca = \"{}\", client_auth = \"optional\" }}",
        authority.certs(),
        authority.ca()
    );
    let route = |condition: &str, status: u16| {
        format!("\n[[route]]\nservice = \"s\"\n{condition}\nstatus = {status}\n")
    };
    let routes = [
        route("tls_version = \"1.2\"", 426),
        route("tls_sni = \"b.*\"", 403),
        route("not.client_cert_subject = \"CN=client\"", 401),
    ]
    .concat();
    let proxy = Proxy::start("http", &[origin.address()], &(tls + "\n" + &routes));
    let status = |certificate: Option<&Path>, name: &str| {
        let mut stream = connect(&authority.client(certificate), proxy.listen, name);
        let request = GET.replace("a.example", name);
        let response = fetch(&mut stream, &request).expect("fetch");
        response.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status(Some(&certificate), "a.example"), "200");
    assert_eq!(status(None, "a.example"), "401");
    assert_eq!(status(Some(&certificate), "b.example"), "403");
    let curl = Command::new("curl")
        .args([
            "-sk",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--tls-max",
            "1.2",
            "--max-time",
            "20",
        ])
        .arg(format!("https://{}/", proxy.listen))
        .output()
        .expect("run curl (see tools/install-deps.sh)");
    assert_eq!(String::from_utf8_lossy(&curl.stdout), "426");
}
