//! Compares CPU time per request over TLS and HTTP/2 with HAProxy and nginx; see `rig`.
//!
//! `WEIR_BENCH_SECONDS` and `WEIR_BENCH_ROUNDS` override the defaults of 2 and 3.

mod rig;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rig::{
    Candidate, ORIGIN, command_on, compare, haproxy_command, nginx_command, nginx_log, setting,
    spawn, start_origin, weir_command, wrk,
};
use weir_model::{Proxy, ProxyProtocol, ServiceTls, Source, TlsVersion};

const SERVE: &str = "WEIR_BENCH_SERVE_TLS";

fn main() {
    if let Ok(certificate) = std::env::var(SERVE) {
        return serve(&certificate);
    }
    let programs = ["nginx", "haproxy", "wrk", "h2load", "openssl", "taskset"];
    if let Some(reason) = rig::missing_requirements(&programs) {
        println!("TLS and HTTP/2 compared with peers: skipped, {reason}");
        return;
    }
    let directory = rig::directory();
    let certificate = create_certificate(&directory);
    let _origin = start_origin(&directory);
    let candidates = [
        start_haproxy(&directory, &certificate),
        start_weir(&directory, &certificate),
    ];
    let https = |candidate: &Candidate, path: &str| format!("https://{}{path}", candidate.listen);
    compare(
        "TLS 1.3, small, keep-alive, 64 connections",
        &candidates,
        |candidate| wrk(&https(candidate, "/small"), 64, true),
    );
    compare(
        "TLS 1.3, 16 KB, keep-alive, 64 connections",
        &candidates,
        |candidate| wrk(&https(candidate, "/16k"), 64, true),
    );
    compare(
        "TLS 1.3, small, a handshake each, 64 connections",
        &candidates,
        |candidate| wrk(&https(candidate, "/small"), 64, false),
    );
    let [_, weir] = candidates;
    let candidates = [start_nginx(&directory, &certificate), weir];
    compare(
        "HTTP/2 over TLS, small, 1 connection, 100 streams",
        &candidates,
        |candidate| h2load(&https(candidate, "/small"), 1),
    );
    compare(
        "HTTP/2 over TLS, small, 8 connections, 100 streams each",
        &candidates,
        |candidate| h2load(&https(candidate, "/small"), 8),
    );
    let _ = fs::remove_dir_all(&directory);
}

/// Creates a P-256 certificate. Returns the path of a file that contains the chain and the key.
fn create_certificate(directory: &Path) -> String {
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 -subj /CN=bench \
                  -keyout key -out chain 2>/dev/null && cat chain key > bench.pem";
    let status = Command::new("sh")
        .args(["-c", script])
        .current_dir(directory)
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "openssl failed to create a certificate"
    );
    directory.join("bench.pem").display().to_string()
}

/// Runs h2load, and returns the number of successful requests. Panics if a request failed.
fn h2load(url: &str, connections: u32) -> u64 {
    // Limits the number of requests instead of the duration, because h2load sometimes hangs with `-D`.
    let requests = 20_000 * setting("WEIR_BENCH_SECONDS", 2);
    let mut command = command_on("1", "h2load");
    command.args([
        "-t1",
        "-m100",
        &format!("-c{connections}"),
        &format!("-n{requests}"),
    ]);
    let output = command
        .arg(url)
        .stderr(Stdio::null())
        .output()
        .expect("run h2load");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("status codes: "));
    let succeeded = line.and_then(|line| line.split(' ').next()?.parse().ok());
    assert!(text.contains(" 0 4xx, 0 5xx"), "{url}: {text}");
    succeeded.unwrap_or(0)
}

/// Runs the proxy. The benchmark re-executes itself for this.
fn serve(certificate: &str) {
    let mut service = Proxy::new("bench", ProxyProtocol::Http, "origin");
    service
        .listen
        .push("127.0.0.1:17093".parse().expect("parse address"));
    service.tls = Some(ServiceTls {
        ticket_keys: Vec::new(),
        certificates: vec![certificate.to_owned()],
        strict_sni: false,
        sni_host: weir_model::SniHost::default(),
        minimum: TlsVersion::V13,
        ciphers: Vec::new(),
        groups: Vec::new(),
        client_ca: None,
        client_crl: None,
        client_auth: weir_model::ClientAuth::Required,
        source: Source::default(),
    });
    rig::serve(service);
}

fn start_weir(directory: &Path, certificate: &str) -> Candidate {
    let mut command = weir_command(directory, "0");
    command.env(SERVE, certificate);
    spawn("weir", "127.0.0.1:17093", command)
}

fn start_haproxy(directory: &Path, certificate: &str) -> Candidate {
    let text = format!(
        "global\n nbthread 1\n maxconn 2000\n tune.bufsize 65536\n tune.ssl.cachesize 100000\ndefaults\n mode http\n timeout \
         client 60s\n timeout server 60s\n timeout connect 5s\n http-reuse always\n option forwardfor\nfrontend f\n bind \
         127.0.0.1:17091 ssl crt {certificate} alpn h2,http/1.1 ssl-min-ver TLSv1.3\n default_backend b\nbackend b\n server s \
         {ORIGIN}\n"
    );
    spawn(
        "haproxy",
        "127.0.0.1:17091",
        haproxy_command(directory, &text),
    )
}

fn start_nginx(directory: &Path, certificate: &str) -> Candidate {
    let server = format!(
        "upstream u {{ server {ORIGIN}; keepalive 1024; keepalive_requests 100000000; }} server {{ listen 127.0.0.1:17092 ssl \
         http2; {} ssl_certificate {certificate}; ssl_certificate_key {certificate}; ssl_protocols TLSv1.3; location / {{ \
         proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header X-Forwarded-For \
         $remote_addr; proxy_buffers 8 64k; }} }}",
        nginx_log(directory)
    );
    let command = nginx_command(directory, "peer", "0", &server);
    spawn("nginx", "127.0.0.1:17092", command)
}
