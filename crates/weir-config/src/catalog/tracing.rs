//! Defines the keys of `[tracing]`: traces of proxied requests.

use weir_model::{ParentTrace, Tracing};

use super::integer;
use crate::key::{Choices, Key, Kind, Presence, Section};

use Presence::{Absent, Default, Required};

fn parent_modes() -> Choices {
    Choices {
        values: ParentTrace::ALL.iter().map(|it| it.as_str()).collect(),
        ..Choices::default()
    }
}

/// Keys of `[tracing]`.
pub(crate) static TRACING: Section = Section {
    path: "tracing",
    page: "tracing",
    purpose: "Traces of requests to `http` services, sent to an OpenTelemetry collector (OTLP over HTTP, JSON). Each \
              request has a server span, and a client span if it was sent to a server. Trace context (W3C \
              `traceparent` and `tracestate`) is accepted from clients and passed on to servers. Without this table, \
              requests are not traced.",
    example: "[tracing]\nendpoint = \"http://127.0.0.1:4318\"\nsample = 100\n",
    keys: &[
        Key::new(
            "endpoint",
            Kind::DescribedText("`http://HOST[:PORT]` or `https://…`"),
            Required,
            "URL of the collector. Traces are sent to this URL followed by `/v1/traces`, every second; up to 4096 \
             requests per processor are queued. Traces that cannot be sent are retried three times, then dropped and \
             counted.",
            "endpoint = \"http://127.0.0.1:4318\"",
        )
        .known_as(&["OTEL_EXPORTER_OTLP_ENDPOINT", "collector", "otlp"]),
        Key::new(
            "sample",
            integer(Tracing::SAMPLE),
            Default("1"),
            "Records one in N new traces, selected by their identifiers. Traces that a client has started are recorded \
             if the client records them.",
            "sample = 100",
        )
        .known_as(&["ratio", "sampling"]),
        Key::new(
            "parent",
            Kind::OneOf(parent_modes),
            Default("continue"),
            "Treatment of the trace context in a client's request: `continue` continues the trace, with the client's \
             decision whether to record it; `ignore` starts a new trace.",
            "parent = \"ignore\"",
        ),
        Key::new(
            "service_name",
            Kind::Text,
            Default(Tracing::SERVICE_NAME),
            "Value of the `service.name` attribute of all spans.",
            "service_name = \"edge\"",
        )
        .known_as(&["OTEL_SERVICE_NAME"]),
        Key::new(
            "ca",
            Kind::DescribedText("a path"),
            Absent("the system's CA certificates"),
            "File with the CA certificates for verifying the collector.",
            "ca = \"/etc/weir/collector-ca.pem\"",
        ),
    ],
};
