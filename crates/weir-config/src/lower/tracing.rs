//! Lowers `[tracing]`, and the URLs of receivers.

use weir_model::{HttpReceiver, ParentTrace, Tracing};

use super::check::check_absolute;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::view::{Sink, View};

pub(super) fn tracing(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Tracing> {
    let endpoint = receiver(sink, view, "endpoint", "ca", "http://127.0.0.1:4318");
    let sample = view.integer(sink, "sample");
    let parent = view.choice(sink, "parent", &ParentTrace::ALL, ParentTrace::as_str);
    let service_name = view
        .text(sink, "service_name")
        .map_or(Tracing::SERVICE_NAME, |(name, _)| name);
    let mut endpoint = endpoint?;
    endpoint.path = format!("{}{}", endpoint.path.trim_end_matches('/'), Tracing::PATH);
    Some(Tracing {
        endpoint,
        sample: sample.unwrap_or(Tracing::SAMPLE.0),
        parent: parent.unwrap_or_default(),
        service_name: service_name.to_owned(),
    })
}

/// Returns the receiver with the URL in `key` and the CA certificate file in `ca_key`.
pub(super) fn receiver(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    key: &str,
    ca_key: &str,
    example: &str,
) -> Option<HttpReceiver> {
    let ca = view.text(sink, ca_key);
    let ca = ca.map(|(path, span)| {
        check_absolute(sink, path, span);
        (path.to_owned(), span.clone())
    });
    let (url, span) = view.text(sink, key)?;
    let receiver = HttpReceiver::parse(url).map_err(|cause| {
        let fix = format!("write \"{example}\"");
        sink.push(Diagnostic::new(Code::BadText, span, cause).fix(fix));
    });
    let mut receiver = receiver.ok()?;
    if let Some((path, ca_span)) = ca {
        if !receiver.is_secure {
            let message = format!("`{ca_key}` has no effect: the URL does not use TLS");
            let conflict = Diagnostic::new(Code::Contradiction, &ca_span, message);
            sink.push(
                conflict
                    .related(span, "the URL")
                    .fix(format!("remove `{ca_key}`, or write https://")),
            );
        }
        receiver.ca = Some(path);
    }
    Some(receiver)
}
