//! Encodes traced requests in OTLP, as an `ExportTraceServiceRequest`.
//!
//! The encoding is the JSON encoding of opentelemetry-proto (trace.proto), with the attributes of the stable semantic
//! conventions for HTTP (version 1.23 and later).
//!
//! JSON is used because every collector accepts it and because it needs no library other than serde. Identifiers are
//! hexadecimal, and 64-bit integers are strings (OTLP specification, "JSON Protobuf Encoding"). Names that begin with
//! `weir.` have no counterpart in the conventions.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use weir_proxy::trace::{TracedRequest, TracedUpstream};

/// Span kinds and status codes from trace.proto.
const KIND_SERVER: u8 = 2;
const KIND_CLIENT: u8 = 3;
const STATUS_ERROR: u8 = 2;

/// The methods that the conventions list; others are reported as `_OTHER`.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY",
];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Export {
    resource_spans: [ResourceSpans; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    resource: Resource,
    scope_spans: [ScopeSpans; 1],
}

#[derive(Debug, Serialize)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Debug, Serialize)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<Span>,
}

#[derive(Debug, Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    parent_span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    trace_state: String,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u8,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    time_unix_nano: String,
    name: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<Attribute>,
}

#[derive(Debug, Serialize)]
struct Attribute {
    key: &'static str,
    value: Value,
}

#[derive(Debug, Serialize)]
enum Value {
    #[serde(rename = "stringValue")]
    Text(String),
    #[serde(rename = "intValue")]
    Integer(String),
    #[serde(rename = "doubleValue")]
    Number(f64),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

/// Attributes of a span; empty strings are omitted.
#[derive(Debug, Default)]
struct Attributes(Vec<Attribute>);

impl Attributes {
    fn add(&mut self, key: &'static str, value: Value) {
        self.0.push(Attribute { key, value });
    }

    fn add_text(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.add(key, Value::Text(value.to_owned()));
        }
    }

    fn add_integer(&mut self, key: &'static str, value: impl Into<i64>) {
        self.add(key, Value::Integer(value.into().to_string()));
    }

    fn add_seconds(&mut self, key: &'static str, value: Option<Duration>) {
        if let Some(value) = value {
            self.add(key, Value::Number(value.as_secs_f64()));
        }
    }

    fn add_method(&mut self, method: &str) {
        if METHODS.contains(&method) {
            self.add_text("http.request.method", method);
        } else {
            self.add_text("http.request.method", "_OTHER");
            self.add_text("http.request.method_original", method);
        }
    }

    fn add_result(&mut self, request: &TracedRequest) {
        if request.status > 0 {
            self.add_integer("http.response.status_code", request.status);
        }
        match request.error {
            Some(kind) => self.add_text("error.type", kind),
            None if request.status >= 500 => {
                self.add_text("error.type", &request.status.to_string())
            }
            None => {}
        }
    }
}

/// The director's resource attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The attribute `service.name`.
    pub(super) service_name: String,
    /// The attribute `service.instance.id`, which is unique for each process.
    pub(super) instance: String,
    /// The attribute `host.name`.
    pub(super) host: String,
}

/// Returns the body of a request to a collector.
///
/// # Errors
/// Never fails in practice, because every value has an encoding.
pub(super) fn encode(
    identity: &Identity,
    requests: &[TracedRequest],
) -> Result<String, serde_json::Error> {
    let mut resource = Attributes::default();
    resource.add_text("service.name", &identity.service_name);
    resource.add_text("service.instance.id", &identity.instance);
    resource.add_text("service.version", env!("CARGO_PKG_VERSION"));
    resource.add_text("host.name", &identity.host);
    let mut spans = Vec::with_capacity(2 * requests.len());
    for request in requests {
        spans.push(server_span(request));
        spans.extend(
            request
                .upstream
                .as_ref()
                .map(|upstream| client_span(request, upstream)),
        );
    }
    serde_json::to_string(&Export {
        resource_spans: [ResourceSpans {
            resource: Resource {
                attributes: resource.0,
            },
            scope_spans: [ScopeSpans {
                scope: Scope {
                    name: "weir",
                    version: env!("CARGO_PKG_VERSION"),
                },
                spans,
            }],
        }],
    })
}

fn span_name(request: &TracedRequest) -> String {
    let method = if METHODS.contains(&request.method.as_str()) {
        request.method.as_str()
    } else {
        "HTTP"
    };
    match request.route_path.as_str() {
        "" => method.to_owned(),
        path => format!("{method} {path}"),
    }
}

fn nanoseconds(time: Duration) -> String {
    time.as_nanos().to_string()
}

/// Returns the span for the client's request.
fn server_span(request: &TracedRequest) -> Span {
    let mut attributes = Attributes::default();
    attributes.add_method(&request.method);
    attributes.add_text("url.scheme", scheme(request.is_secure));
    attributes.add_text("url.path", &request.path);
    let (host, port) = split_host(&request.host);
    attributes.add_text("server.address", host);
    if let Some(port) = port {
        attributes.add_integer("server.port", port);
    }
    if let Some(client) = request.client {
        let address = client.ip().to_canonical().to_string();
        attributes.add_text("client.address", &address);
        attributes.add_integer("client.port", client.port());
    }
    attributes.add_text("network.protocol.version", request.version);
    attributes.add_text("user_agent.original", &request.user_agent);
    attributes.add_text("http.route", &request.route_path);
    attributes.add_text("weir.service", &request.service);
    attributes.add_text("weir.route", &request.route);
    if let Some(upstream) = &request.upstream {
        attributes.add_text("weir.pool", &upstream.pool);
        attributes.add_text("weir.server", &upstream.server);
    }
    attributes.add_integer("weir.retries", request.retries);
    let queue = request.queue_us.map(|us| Duration::from_micros(us.into()));
    attributes.add_seconds("weir.queue.duration", queue);
    attributes.add_result(request);
    let events = request.failed.iter().map(|(time, server)| {
        let mut attributes = Attributes::default();
        attributes.add_text("weir.server", server);
        Event {
            time_unix_nano: nanoseconds(*time),
            name: "weir.attempt.failed",
            attributes: attributes.0,
        }
    });
    Span {
        trace_id: format!("{:032x}", request.trace_id),
        span_id: format!("{:016x}", request.span_id),
        parent_span_id: match request.parent_id {
            0 => String::new(),
            parent => format!("{parent:016x}"),
        },
        trace_state: request.trace_state.clone(),
        name: span_name(request),
        kind: KIND_SERVER,
        start_time_unix_nano: nanoseconds(request.began),
        end_time_unix_nano: nanoseconds(request.ended),
        attributes: attributes.0,
        events: events.collect(),
        // In a server span, a status of 4xx is not an error (semantic conventions, "Status").
        status: (request.status >= 500 || request.status == 0)
            .then_some(Status { code: STATUS_ERROR }),
    }
}

/// Returns the span for the last attempt to send the request to a server.
fn client_span(request: &TracedRequest, upstream: &TracedUpstream) -> Span {
    let mut attributes = Attributes::default();
    attributes.add_method(&request.method);
    if let Some(address) = upstream.address {
        let ip = address.ip().to_canonical().to_string();
        attributes.add_text("server.address", &ip);
        attributes.add_integer("server.port", address.port());
        attributes.add_text("network.peer.address", &ip);
        attributes.add_integer("network.peer.port", address.port());
        let url = url(upstream.is_secure, address, &request.path);
        attributes.add_text("url.full", &url);
    }
    attributes.add_text("weir.pool", &upstream.pool);
    attributes.add_text("weir.server", &upstream.server);
    let reused = Value::Flag(upstream.is_reused);
    attributes.add("weir.connection.reused", reused);
    if request.retries > 0 {
        attributes.add_integer("http.request.resend_count", request.retries);
    }
    let connected = upstream.connected;
    let connect = connected.filter(|_| !upstream.is_reused);
    let connect = connect.map(|connected| connected.saturating_sub(upstream.began));
    attributes.add_seconds("weir.connect.duration", connect);
    let answered = connected.zip(upstream.answered);
    let response = answered.map(|(start, end)| end.saturating_sub(start));
    attributes.add_seconds("weir.response.duration", response);
    attributes.add_result(request);
    let moments = [
        ("weir.connected", connected),
        ("weir.response.began", upstream.answered),
    ];
    let events = moments.into_iter().filter_map(|(name, time)| {
        Some(Event {
            time_unix_nano: nanoseconds(time?),
            name,
            attributes: Vec::new(),
        })
    });
    Span {
        trace_id: format!("{:032x}", request.trace_id),
        span_id: format!("{:016x}", upstream.span_id),
        parent_span_id: format!("{:016x}", request.span_id),
        trace_state: request.trace_state.clone(),
        name: span_name(request),
        kind: KIND_CLIENT,
        start_time_unix_nano: nanoseconds(upstream.began),
        end_time_unix_nano: nanoseconds(request.ended),
        attributes: attributes.0,
        events: events.collect(),
        // In a client span, every status of 400 or above is an error.
        status: (request.status >= 400 || request.status == 0)
            .then_some(Status { code: STATUS_ERROR }),
    }
}

const fn scheme(is_secure: bool) -> &'static str {
    if is_secure { "https" } else { "http" }
}

fn url(is_secure: bool, address: SocketAddr, path: &str) -> String {
    format!("{}://{address}{path}", scheme(is_secure))
}

/// Splits the value of `Host` into host and port.
fn split_host(host: &str) -> (&str, Option<u16>) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (host, None),
        },
        None => (host, None),
    };
    (name.trim_start_matches('[').trim_end_matches(']'), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> TracedRequest {
        let at = |ms| Duration::from_secs(1_795_000_000) + Duration::from_millis(ms);
        TracedRequest {
            trace_id: 0xab,
            span_id: 1,
            parent_id: 2,
            trace_state: "a=b".to_owned(),
            began: at(0),
            ended: at(30),
            service: "www".to_owned(),
            route: "path=/img/* -> pool images".to_owned(),
            route_path: "/img/*".to_owned(),
            method: "GET".to_owned(),
            path: "/img/x".to_owned(),
            host: "[::1]:8080".to_owned(),
            user_agent: "curl".to_owned(),
            version: "1.1",
            client: Some("192.0.2.1:4000".parse().unwrap()),
            status: 502,
            retries: 1,
            failed: vec![(at(5), "10.0.0.4".to_owned())],
            queue_us: Some(1_500),
            upstream: Some(TracedUpstream {
                span_id: 3,
                began: at(10),
                connected: Some(at(15)),
                answered: Some(at(25)),
                pool: "images".to_owned(),
                server: "10.0.0.5".to_owned(),
                address: Some("10.0.0.5:80".parse().unwrap()),
                ..TracedUpstream::default()
            }),
            ..TracedRequest::default()
        }
    }

    #[test]
    fn request_is_a_server_span_and_a_client_span() {
        let identity = Identity {
            service_name: "weir".to_owned(),
            instance: "lb1-1".to_owned(),
            host: "lb1".to_owned(),
        };
        let body = encode(&identity, &[request()]).unwrap();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&body).unwrap());
    }

    #[test]
    fn unknown_method_is_reported_as_other() {
        let mut request = request();
        request.method = "BREW".to_owned();
        request.upstream = None;
        request.status = 404;
        let span = server_span(&request);
        assert_eq!(span.name, "HTTP /img/*");
        assert!(
            span.status.is_none(),
            "a client error is not a server error"
        );
        let text = serde_json::to_string(&span).unwrap();
        assert!(text.contains(r#"{"key":"http.request.method","value":{"stringValue":"_OTHER"}}"#));
        assert!(text.contains(r#"method_original","value":{"stringValue":"BREW"}}"#));
    }

    #[test]
    fn host_is_split_into_name_and_port() {
        assert_eq!(split_host("h"), ("h", None));
        assert_eq!(split_host("h:80"), ("h", Some(80)));
        assert_eq!(split_host("[::1]"), ("::1", None));
        assert_eq!(split_host("[::1]:80"), ("::1", Some(80)));
    }
}
