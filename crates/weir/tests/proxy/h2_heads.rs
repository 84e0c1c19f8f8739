//! Tests that Weir forwards all of an HTTP/2 head that is longer than a stream's content buffer.

use super::http2::{Echo, start_http2_proxy};
use super::scripted::{Action, ScriptedServer};
use super::*;

/// Returns header fields with a total of 40,000 bytes.
fn fields() -> Vec<(String, String)> {
    (0..5)
        .map(|number| (format!("x-long-{number}"), "a".repeat(8_000)))
        .collect()
}

const LIMITS: &str = "limits = { head = 65536 }";

/// Returns the head and the body that curl receives over HTTP/2.
fn curl(listen: SocketAddr, arguments: &[String]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--http2-prior-knowledge", "-i"])
        .args(arguments)
        .arg(format!("http://{listen}/"))
        .output()
        .expect("run curl");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn long_response_head_reaches_http2_client() {
    let mut response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n".to_owned();
    for (name, value) in fields() {
        response += &format!("{name}: {value}\r\n");
    }
    response += "\r\nhello";
    let server = ScriptedServer::start(vec![vec![
        Action::Read,
        scripted::send_text(&response),
        Action::Drain,
    ]]);
    let proxy = Proxy::start("http", &[server.address()], LIMITS);
    let text = curl(proxy.listen, &[]);
    assert!(text.starts_with("HTTP/2 200"), "{text:.300}");
    for (name, value) in fields() {
        assert!(text.contains(&format!("{name}: {value}\r\n")), "{name}");
    }
    assert!(text.ends_with("\r\n\r\nhello"));
}

#[test]
fn long_request_head_reaches_http2_server() {
    let echo = Echo::start();
    let proxy = start_http2_proxy(&echo, LIMITS);
    let mut arguments = vec!["--data".to_owned(), "hello".to_owned()];
    for (name, value) in fields() {
        arguments.extend(["-H".to_owned(), format!("{name}: {value}")]);
    }
    let text = curl(proxy.listen, &arguments);
    assert!(text.starts_with("HTTP/2 200"), "{text:.300}");
    assert!(text.contains("\r\n\r\nhello"), "{text:.300}");
}
