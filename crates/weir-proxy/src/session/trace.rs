//! Traces requests: propagates the trace context to the server, and records the request.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use weir_http::trace_context::{TRACEPARENT, TRACESTATE};
use weir_http::{Field, Request, TraceContext, route};
use weir_sys::{Clock, now_ns};

use super::Session;
use super::edit::random_key;
use crate::context::Context;
use crate::plan::Target;
use crate::times::{ErrorKind, Stage};
use crate::trace::{Decision, TracedRequest, TracedUpstream};

/// Maximum length of a `tracestate` that is recorded, in bytes (W3C Trace Context, section 3.3.1.5).
const MAX_STATE: usize = 512;
/// Maximum recorded length of a text from a request, in bytes.
const MAX_TEXT: usize = 2_048;

/// The trace of a request in progress.
#[derive(Debug)]
pub(super) struct Trace {
    /// The context that is sent to the server. Its span represents the request to the server.
    context: TraceContext,
    /// Whether the client's `tracestate` is dropped, because it belongs to a different trace.
    drop_trace_state: bool,
    /// The recorded data; `None` = the request is not recorded.
    recording: Option<Box<Recording>>,
}

#[derive(Debug)]
struct Recording {
    /// Start of the request, in nanoseconds on the monotonic clock.
    began_ns: u64,
    request: TracedRequest,
}

impl Recording {
    /// Returns the time since 1970, advanced by the monotonic clock since the start of the request.
    fn now(&self) -> Duration {
        self.request.began + Duration::from_nanos(now_ns(Clock::Monotonic) - self.began_ns)
    }
}

/// Returns the value of the only field with this name, or `Err` if there are several.
fn single_value<'a>(head: &'a [u8], fields: &[Field], name: &[u8]) -> Result<Option<&'a [u8]>, ()> {
    let mut values = fields
        .iter()
        .filter(|field| field.name_in(head).eq_ignore_ascii_case(name));
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => Err(()),
        (field, _) => Ok(field.map(|field| field.value_in(head))),
    }
}

fn truncated_text(bytes: &[u8]) -> String {
    let length = bytes.len().min(MAX_TEXT);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

impl Session {
    /// Decides whether the request is traced, and starts its trace.
    pub(super) fn begin_trace(&mut self, cx: &mut Context, head: &[u8], request: &Request) {
        let Some(tracer) = self.local.service.tracer.clone() else {
            return;
        };
        let field = single_value(head, &cx.fields, TRACEPARENT);
        let received = field.ok().flatten().and_then(TraceContext::parse);
        let random = route::hidden(random_key(&mut cx.random));
        let Decision::Trace {
            trace_id,
            parent_id,
            is_sampled,
        } = tracer.decide(received, random)
        else {
            return;
        };
        let spans = route::hidden(random_key(&mut cx.random));
        let (request_span, upstream) = (((spans >> 64) as u64).max(1), (spans as u64).max(1));
        let recording = is_sampled.then(|| {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            let path = request.path_in(head);
            let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
            let state = parent_id.and_then(|_| single_value(head, &cx.fields, TRACESTATE).ok()?);
            let agent = single_value(head, &cx.fields, b"user-agent").ok().flatten();
            let host = request.host_in(head, &cx.fields);
            Box::new(Recording {
                began_ns: now_ns(Clock::Monotonic),
                request: TracedRequest {
                    trace_id,
                    span_id: request_span,
                    parent_id: parent_id.unwrap_or(0),
                    trace_state: state
                        .filter(|state| state.len() <= MAX_STATE)
                        .map(truncated_text)
                        .unwrap_or_default(),
                    began: now,
                    service: self.local.service.name.clone(),
                    method: truncated_text(request.method_in(head)),
                    path: truncated_text(path),
                    host: truncated_text(host.unwrap_or_default()),
                    user_agent: truncated_text(agent.unwrap_or_default()),
                    version: self.version(request),
                    is_secure: self.transport.is_secure(),
                    client: Some(self.client),
                    ..TracedRequest::default()
                },
            })
        });
        self.request.trace = Some(Box::new(Trace {
            context: TraceContext {
                trace_id,
                span_id: upstream,
                is_sampled,
            },
            drop_trace_state: parent_id.is_none(),
            recording,
        }));
    }

    /// Replaces the trace context in a request to a server.
    pub(super) fn write_trace_context(&self, head: &[u8], fields: &mut [Field], add: &mut Vec<u8>) {
        let Some(trace) = &self.request.trace else {
            return;
        };
        for field in fields {
            let name = field.name_in(head);
            field.dropped |= name.eq_ignore_ascii_case(TRACEPARENT)
                || trace.drop_trace_state && name.eq_ignore_ascii_case(TRACESTATE);
        }
        trace.context.write_line(add);
    }

    fn recording(&mut self) -> Option<&mut Recording> {
        self.request.trace.as_mut()?.recording.as_deref_mut()
    }

    /// Records the start of an attempt on a selected server.
    pub(super) fn trace_attempt(&mut self, pool: &str, target: &Target, port: u16) {
        let Some(trace) = &mut self.request.trace else {
            return;
        };
        let span_id = trace.context.span_id;
        if let Some(recording) = &mut trace.recording {
            recording.request.upstream = Some(TracedUpstream {
                span_id,
                began: recording.now(),
                pool: pool.to_owned(),
                server: target.name.clone(),
                address: target
                    .unix
                    .is_none()
                    .then(|| SocketAddr::new(target.address, port)),
                is_secure: target.tls.is_some(),
                ..TracedUpstream::default()
            });
        }
    }

    /// Records that the request is sent to the server, over a new or an idle connection.
    pub(super) fn trace_connected(&mut self, is_reused: bool) {
        let Some(recording) = self.recording() else {
            return;
        };
        let now = recording.now();
        if let Some(upstream) = &mut recording.request.upstream {
            upstream.connected = Some(now);
            upstream.is_reused = is_reused;
        }
    }

    /// Records the start of the response.
    pub(super) fn trace_response_start(&mut self) {
        let Some(recording) = self.recording() else {
            return;
        };
        let now = recording.now();
        if let Some(upstream) = &mut recording.request.upstream {
            upstream.answered = Some(now);
        }
    }

    /// Records that the attempt failed and another one follows.
    pub(super) fn trace_failure(&mut self) {
        let Some(recording) = self.recording() else {
            return;
        };
        let now = recording.now();
        if let Some(upstream) = &recording.request.upstream {
            recording
                .request
                .failed
                .push((now, upstream.server.clone()));
        }
    }

    /// Records the end of an exchange.
    pub(super) fn end_trace(&mut self, cx: &Context, status: u16, end: [u8; 2]) {
        let Some(trace) = self.request.trace.take() else {
            return;
        };
        let Some(mut recording) = trace.recording else {
            return;
        };
        let service = &self.local.service;
        let Some(tracer) = &service.tracer else {
            return;
        };
        recording.request.ended = recording.now();
        let traced = &mut recording.request;
        traced.status = status;
        traced.error = ErrorKind::from_termination_flags(end).map(ErrorKind::as_str);
        traced.retries = self.request.selection.retries();
        traced.queue_us = self.request.times.stages[Stage::Queue as usize];
        if let Some(route) = self
            .request
            .route
            .and_then(|index| service.routes.get(index))
        {
            traced.route = format!("{route:#}");
            let path = route.when.paths.first();
            traced.route_path = path.map(ToString::to_string).unwrap_or_default();
        }
        tracer.put(cx.worker, recording.request);
    }
}
