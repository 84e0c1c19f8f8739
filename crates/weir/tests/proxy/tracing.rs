//! Tests `[tracing]`: the spans that a collector receives, and the trace context that servers receive.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_testing::free_address;

use super::keeper::wait_until;
use super::origin::Origin;
use super::receiver::{ReceivedRequest, Receiver};
use super::{Client, Proxy, configuration};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

/// Returns the exports that a collector has accepted.
fn exports(collector: &Receiver) -> Vec<Value> {
    let received = collector.received();
    let accepted_requests = received.iter().filter(|request| request.status == 200);
    let export = |request: &ReceivedRequest| {
        let head = &request.head;
        assert!(
            head.starts_with("POST /v1/traces HTTP/1.1\r\n")
                && head.contains("Content-Type: application/json\r\n"),
            "{head}"
        );
        serde_json::from_slice(&request.body).expect("parse JSON")
    };
    accepted_requests.map(export).collect()
}

/// Returns all spans that a collector has accepted.
fn recorded_spans(collector: &Receiver) -> Vec<Span> {
    exports(collector).iter().flat_map(spans_of).collect()
}

/// A span as an OTLP/JSON receiver decodes it.
#[derive(Debug)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    trace_state: String,
    name: String,
    kind: u64,
    start_ns: u64,
    end_ns: u64,
    is_error: bool,
    attributes: BTreeMap<String, Value>,
    events: Vec<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the spans of an export.
fn spans_of(body: &Value) -> Vec<Span> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut spans = Vec::new();
    for resource in list(&body["resourceSpans"]) {
        for scope in list(&resource["scopeSpans"]) {
            for span in list(&scope["spans"]) {
                let attributes = list(&span["attributes"]).into_iter().map(|attribute| {
                    let value = attribute["value"].as_object().expect("no value");
                    let value = value.values().next().expect("no value").clone();
                    (text(&attribute["key"]), value)
                });
                spans.push(Span {
                    trace: text(&span["traceId"]),
                    id: text(&span["spanId"]),
                    parent: text(&span["parentSpanId"]),
                    trace_state: text(&span["traceState"]),
                    name: text(&span["name"]),
                    kind: span["kind"].as_u64().expect("no kind"),
                    start_ns: text(&span["startTimeUnixNano"])
                        .parse()
                        .expect("parse time"),
                    end_ns: text(&span["endTimeUnixNano"]).parse().expect("parse time"),
                    is_error: span["status"]["code"] == 2,
                    attributes: attributes.collect(),
                    events: list(&span["events"])
                        .iter()
                        .map(|event| text(&event["name"]))
                        .collect(),
                });
            }
        }
    }
    spans
}

impl Span {
    fn text(&self, key: &str) -> &str {
        self.attributes
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn seconds(&self, key: &str) -> Option<f64> {
        self.attributes.get(key).and_then(Value::as_f64)
    }
}

/// Returns a `[tracing]` table that exports to this collector, with the additional keys `extra`.
fn tracing_table(collector: SocketAddr, extra: &str) -> String {
    format!("[tracing]\nendpoint = \"http://{collector}\"\n{extra}\n")
}

/// Returns the values of a field in the request that the origin received. The origin returns that request as the
/// response body.
fn received_values(body: &[u8], field: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(body).into_owned();
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(field)
            .then(|| value.trim().to_owned())
    });
    lines.collect()
}

fn request(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: www.example:8080\r\nUser-Agent: test\r\n{fields}\r\n")
}

/// Returns the span with this URL path and kind. Panics if there is none.
fn find<'a>(spans: &'a [Span], path: &str, kind: u64) -> &'a Span {
    let matches = |span: &&Span| {
        span.kind == kind
            && (span.text("url.path") == path || span.text("url.full").ends_with(path))
    };
    spans
        .iter()
        .find(matches)
        .unwrap_or_else(|| panic!("{path} {kind}: {spans:#?}"))
}

#[test]
fn request_adds_a_server_span_and_a_client_span_to_the_clients_trace() {
    let collector = Receiver::start();
    let origin = Origin::start("o");
    let route = "[[route]]\nservice = \"s\"\npath = \"/img/*\"\npool = \"p\"\n";
    let extra = tracing_table(collector.address, "service_name = \"edge\"") + route;
    let proxy = Proxy::start("http", &[origin.address()], &extra);
    let mut client = Client::connect(proxy.listen);
    let parent = format!("traceparent: 00-{TRACE}-{CLIENT_SPAN}-01\r\ntracestate: vendor=x\r\n");
    let (_, body) = client.fetch(&request("/img/a?secret=1", &parent));
    let forwarded = received_values(&body, "traceparent");
    assert_eq!(forwarded.len(), 1, "{}", String::from_utf8_lossy(&body));
    assert_eq!(received_values(&body, "tracestate"), ["vendor=x"]);
    wait_until("two spans are exported", || {
        recorded_spans(&collector).len() >= 2
    });

    let spans = recorded_spans(&collector);
    let server = find(&spans, "/img/a", 2);
    assert_eq!(
        (server.trace.as_str(), server.parent.as_str()),
        (TRACE, CLIENT_SPAN)
    );
    assert_eq!(
        (server.name.as_str(), server.trace_state.as_str()),
        ("GET /img/*", "vendor=x")
    );
    let address = origin.address().to_string();
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", "/img/*"),
        ("http.response.status_code", "200"),
        ("server.address", "www.example"),
        ("server.port", "8080"),
        ("client.address", "127.0.0.1"),
        ("url.scheme", "http"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test"),
        ("weir.service", "s"),
        ("weir.pool", "p"),
        ("weir.server", &address),
        ("weir.retries", "0"),
    ] {
        assert_eq!(server.text(key), value, "{key}: {server:#?}");
    }
    assert!(
        !format!("{spans:?}").contains("secret"),
        "queries must be omitted"
    );
    let upstream = find(&spans, "/img/a", 3);
    assert_eq!(
        (&upstream.trace, &upstream.parent),
        (&server.trace, &server.id)
    );
    assert_eq!(
        forwarded[0],
        format!("00-{TRACE}-{}-01", upstream.id),
        "the client span must be the server's parent"
    );
    assert_eq!(upstream.text("server.address"), "127.0.0.1");
    assert!(upstream.seconds("weir.connect.duration").is_some());
    assert!(upstream.seconds("weir.response.duration").is_some());
    assert!(server.start_ns <= upstream.start_ns && upstream.start_ns <= upstream.end_ns);
    assert!(upstream.end_ns <= server.end_ns);
    assert!(!server.is_error);
    let resource = exports(&collector)[0]["resourceSpans"][0]["resource"].to_string();
    assert!(
        resource.contains(r#"{"key":"service.name","value":{"stringValue":"edge"}}"#),
        "{resource}"
    );

    // The next request reuses the connection, which is now idle.
    client.fetch(&request("/img/b", ""));
    wait_until("four spans are exported", || {
        recorded_spans(&collector).len() >= 4
    });
    let spans = recorded_spans(&collector);
    let upstream = find(&spans, "/img/b", 3);
    assert_eq!(upstream.attributes["weir.connection.reused"], true);
    assert_eq!(upstream.seconds("weir.connect.duration"), None);
    assert_ne!(
        find(&spans, "/img/b", 2).trace,
        TRACE,
        "expected a new trace"
    );
}

#[test]
fn client_sampling_decision_is_kept_and_invalid_context_is_replaced() {
    let collector = Receiver::start();
    let origin = Origin::start("o");
    // Weir records one in a million new traces.
    let extra = tracing_table(collector.address, "sample = 1000000");
    let proxy = Proxy::start("http", &[origin.address()], &extra);
    let mut client = Client::connect(proxy.listen);
    let unsampled = format!("00-{TRACE}-{CLIENT_SPAN}-00");
    let (_, body) = client.fetch(&request(
        "/no",
        &format!("traceparent: {unsampled}\r\ntracestate: a=b\r\n"),
    ));
    assert_eq!(
        received_values(&body, "traceparent"),
        [unsampled.as_str()],
        "the context must be forwarded unchanged"
    );
    assert_eq!(received_values(&body, "tracestate"), ["a=b"]);
    for invalid in [
        "traceparent: 00-x\r\ntracestate: a=b\r\n".to_owned(),
        format!("traceparent: {unsampled}\r\ntraceparent: {unsampled}\r\n"),
    ] {
        let (_, body) = client.fetch(&request("/wrong", &invalid));
        let forwarded = received_values(&body, "traceparent");
        assert!(
            forwarded.len() == 1 && forwarded[0].ends_with("-00") && !forwarded[0].contains(TRACE),
            "{forwarded:?}"
        );
        assert!(
            received_values(&body, "tracestate").is_empty(),
            "the state of an invalid trace must be dropped"
        );
    }
    client.fetch(&request(
        "/yes",
        &format!("traceparent: 00-{TRACE}-{CLIENT_SPAN}-01\r\n"),
    ));
    wait_until("two spans are exported", || {
        recorded_spans(&collector).len() >= 2
    });
    let spans = recorded_spans(&collector);
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");

    let text = configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        &tracing_table(collector.address, "parent = \"ignore\""),
    );
    proxy.reload(&text);
    let mut client = Client::connect(proxy.listen);
    client.fetch(&request(
        "/ignored",
        &format!("traceparent: 00-{TRACE}-{CLIENT_SPAN}-01\r\n"),
    ));
    wait_until("the request starts a new trace", || {
        let spans = recorded_spans(&collector);
        spans.iter().any(|span| {
            span.text("url.path") == "/ignored" && span.trace != TRACE && span.parent.is_empty()
        })
    });
}

#[test]
fn failed_attempts_redirects_and_errors_are_traced() {
    let collector = Receiver::start();
    let origin = Origin::start("o");
    let dead_address = free_address();
    let route = "[[route]]\nservice = \"s\"\npath = \"/moved/*\"\nredirect = \"http://e.example/\"\n[[route]]\n\
                 service = \"s\"\npath = \"/dead/*\"\npool = \"dead\"\n";
    let pool = format!("[pool.dead]\nservers = [\"{dead_address}\"]\n");
    let extra = tracing_table(collector.address, "") + &pool + route;
    let proxy = Proxy::start("http", &[origin.address(), dead_address], &extra);
    let mut client = Client::connect(proxy.listen);
    for _ in 0..20 {
        client.fetch(&request("/retried", ""));
    }
    client.fetch(&request("/moved/x", ""));
    let (head, _) = Client::connect(proxy.listen).fetch(&request("/dead/x", ""));
    assert!(
        head.starts_with("HTTP/1.1 503 ") || head.starts_with("HTTP/1.1 502 "),
        "{head}"
    );
    wait_until("all spans are exported", || {
        recorded_spans(&collector).len() >= 2 * 20 + 1 + 2
    });
    let spans = recorded_spans(&collector);
    let retried = spans
        .iter()
        .find(|span| span.kind == 2 && span.text("weir.retries") == "1");
    let retried = retried.expect("no request was retried");
    assert_eq!(retried.events, ["weir.attempt.failed"]);
    assert!(!retried.is_error && retried.text("weir.server") == origin.address().to_string());
    let redirect_span = find(&spans, "/moved/x", 2);
    assert!(
        redirect_span
            .text("http.response.status_code")
            .starts_with('3'),
        "{redirect_span:#?}"
    );
    assert!(
        !spans.iter().any(|span| span.parent == redirect_span.id),
        "a redirect must have no client span"
    );
    let failed_span = find(&spans, "/dead/x", 2);
    assert!(
        failed_span.is_error && failed_span.text("error.type") == "connect",
        "{failed_span:#?}"
    );
    assert!(find(&spans, "/dead/x", 3).is_error);
}

#[test]
fn failed_exports_are_retried_or_counted_and_requests_are_served() {
    let collector = Receiver::start();
    let origin = Origin::start("o");
    let proxy = Proxy::start(
        "http",
        &[origin.address()],
        &tracing_table(collector.address, ""),
    );
    collector.set_status(503);
    let mut client = Client::connect(proxy.listen);
    client.fetch(&request("/later", ""));
    wait_until("the log reports the failed export", || {
        proxy.log().contains("failed to send traces")
    });
    collector.set_status(200);
    wait_until("the export is retried", || {
        !recorded_spans(&collector).is_empty()
    });
    wait_until("the exported span is counted", || {
        proxy.status()["tracing"]["exported"] == 1
    });

    // If the collector is unreachable, the buffers fill, and Weir counts spans that do not fit as dropped.
    let unreachable = free_address();
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        &tracing_table(unreachable, ""),
    ));
    let count = |name: &str| {
        let count = proxy.status()["tracing"][name].as_u64();
        count.expect("not a number")
    };
    wait_until("a span is counted as dropped", || {
        let load = Command::new("wrk")
            .args(["-t1", "-c8", "-d1s", &format!("http://{}/x", proxy.listen)])
            .output()
            .expect("run wrk");
        assert!(load.status.success());
        count("dropped") > 0
    });
    wait_until("all requests are counted", || {
        let ended_count = proxy.status()["services"][0]["exchanges"]["ended"].as_u64();
        ended_count == Some(count("recorded"))
    });

    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        "",
    ));
    let (_, body) = Client::connect(proxy.listen).fetch(&request("/off", ""));
    assert!(
        received_values(&body, "traceparent").is_empty(),
        "tracing must be off again"
    );
    assert!(proxy.status()["tracing"].is_null());
}

/// A real OpenTelemetry Collector. Dropping it stops the collector.
struct RealCollector {
    child: Child,
    /// The spans that the collector has received, one export per line.
    spans_file: PathBuf,
    address: SocketAddr,
}

impl RealCollector {
    fn start(directory: PathBuf) -> Self {
        let address = free_address();
        let script =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/otelcol.sh");
        let build_directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("otelcol");
        let status = Command::new(script)
            .arg(&build_directory)
            .status()
            .expect("run build script");
        assert!(status.success(), "the collector was not built");
        let spans_file = directory.join("spans.json");
        let file = directory.join("otelcol.yaml");
        let text = format!(
            "receivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: {address}\nexporters:\n  file:\n    \
             path: {}\n    flush_interval: 100ms\nservice:\n  telemetry:\n    metrics:\n      level: none\n  \
             pipelines:\n    traces:\n      receivers: [otlp]\n      exporters: [file]\n",
            spans_file.display()
        );
        std::fs::write(&file, text).expect("write file");
        let log = std::fs::File::create(directory.join("otelcol.log")).expect("create log file");
        let child = Command::new(build_directory.join("otelcol"))
            .arg(format!("--config=file:{}", file.display()))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start collector");
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            let log = std::fs::read_to_string(directory.join("otelcol.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self {
            child,
            spans_file,
            address,
        }
    }

    fn spans(&self) -> Vec<Span> {
        let text = std::fs::read_to_string(&self.spans_file).unwrap_or_default();
        let bodies = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        bodies.flat_map(|body| spans_of(&body)).collect()
    }
}

impl Drop for RealCollector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The OpenTelemetry Collector accepts the exports and writes the same spans to its file.
#[test]
fn real_collector_accepts_all_spans_soak() {
    if std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("weir-otelcol-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("create directory");
    let collector = RealCollector::start(directory.clone());
    let origin = Origin::start("o");
    let proxy = Proxy::start(
        "http",
        &[origin.address()],
        &tracing_table(collector.address, ""),
    );
    let mut client = Client::connect(proxy.listen);
    let parent = format!("traceparent: 00-{TRACE}-{CLIENT_SPAN}-01\r\ntracestate: vendor=x\r\n");
    for _ in 0..1_000 {
        client.fetch(&request("/a", &parent));
    }
    wait_until("all spans have arrived", || {
        collector.spans().len() >= 2_000
    });
    let spans = collector.spans();
    let server = find(&spans, "/a", 2);
    assert_eq!(
        (server.trace.as_str(), server.parent.as_str()),
        (TRACE, CLIENT_SPAN)
    );
    assert_eq!(server.trace_state, "vendor=x");
    assert_eq!(server.text("http.response.status_code"), "200");
    let upstream = spans
        .iter()
        .find(|span| span.parent == server.id)
        .expect("no client span");
    assert_eq!(upstream.kind, 3);
    let status = proxy.status();
    assert_eq!(
        (&status["tracing"]["exported"], &status["tracing"]["failed"]),
        (&1_000.into(), &0.into())
    );
    drop(collector);
    let _ = std::fs::remove_dir_all(&directory);
}
