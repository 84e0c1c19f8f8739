//! Implements `forward_auth`: a separate server decides whether a request is allowed.
//!
//! The authorization request has no body. Like a copy for a mirror, it is sent by a session without a client, and
//! therefore uses the same selection, connections, TLS and HTTP/2 as all requests. It is sent to a pool directly, not
//! through the routes, so it cannot cause another authorization request. Meanwhile, the client's request waits, and its
//! head stays in the input buffer. When the verdict arrives, the head is handled again.
//!
//! If anything fails, the request is rejected: [`Session::reject_unauthorized`] requires a verdict under the same rules
//! for every request of such a route.

use std::rc::Rc;
use std::sync::Arc;

use weir_http::head::{self, HeadLimits, head_end};
use weir_http::route::{self, RouteInput, ValueEncoding};
use weir_http::{
    ClientEdit, Exchange, Field, Name, Request, RequestEdit, RequestPath, write_request,
};
use weir_model::{ClientField, SchedulerKind, Underscores};
use weir_select::key::hash_of_request;
use weir_select::limit::Admission;
use weir_select::route::{HostCheck, RequestProperties};

use super::admission::admit;
use super::state::{AdmittedSlots, AuthResult, Phase, UserCheck};
use super::{Outcome, Session, Step};
use crate::context::{Context, MirrorCopy};
use crate::job_result::Ticket;
use crate::plan::{Detail, ForwardAuth, Service, Targets};
use crate::slab::Key;
use crate::tls::TlsDetails;
use crate::verdict::{AuthRequest, Verdict};

/// How much longer a request waits than its authorization request may take, in milliseconds, so that the authorization
/// request times out first.
const GRACE_MS: u64 = 1_000;

/// Fields of a rejecting response that are sent to the client.
const RETURNED_FIELDS: [&str; 7] = [
    "Location",
    "WWW-Authenticate",
    "Set-Cookie",
    "Cache-Control",
    "Expires",
    "Pragma",
    "Vary",
];

/// Fields in the client's request about its body, ranges and conditions, which the authorization request omits.
const OMITTED_FIELDS: [&str; 12] = [
    "content-type",
    "content-encoding",
    "content-md5",
    "digest",
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "trailer",
    "priority",
];

impl Session {
    /// Sends an authorization request for the request whose head is at the start of `bytes`, if its route has
    /// `forward_auth` and there is no verdict yet. Returns `None` if the session waits for the verdict; the head is
    /// then handled again. `user_check` is the result of [`Session::verify_user`].
    pub(super) fn request_authorization(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        request: &Request,
        bytes: &[u8],
        user_check: (UserCheck, Option<Box<AdmittedSlots>>),
    ) -> Option<(UserCheck, Option<Box<AdmittedSlots>>)> {
        let (check, admitted) = user_check;
        if check != UserCheck::Passed {
            self.auth_result = None;
            return Some((check, admitted));
        }
        let head = &bytes[..request.len];
        let mut path_buffer = std::mem::take(&mut cx.path);
        let fields = std::mem::take(&mut cx.fields);
        let mut restarted = Vec::new();
        let tls = self.tls_details(service);
        let tls_properties = (
            tls.as_deref()
                .map(TlsDetails::properties)
                .unwrap_or_default(),
            self.is_client_secure(head, &fields),
        );
        let buffers = (&mut path_buffer, &mut restarted);
        let target = self.target(service, (head, request), &fields, tls_properties, buffers);
        let authorization = match &target {
            Ok(target) => {
                let route_input = (head, request, fields.as_slice(), target);
                self.authorize(key, cx, service, route_input, admitted)
            }
            // An invalid path is rejected later.
            Err(_) => Authorization::Continue(UserCheck::Passed, admitted),
        };
        cx.fields = fields;
        cx.path = path_buffer;
        let (ticket, timeout_ms, admitted) = match authorization {
            Authorization::Continue(check, admitted) => return Some((check, admitted)),
            Authorization::Pending {
                ticket,
                timeout_ms,
                admitted,
            } => (ticket, timeout_ms, admitted),
        };
        self.begin_log_record(cx);
        self.input = cx.buffer();
        self.input.extend_from_slice(bytes);
        self.scanned = 0;
        self.phase = Phase::Verify(ticket, admitted);
        self.set_deadline(key, cx, timeout_ms + GRACE_MS);
        None
    }

    fn authorize(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        (head, request, fields, target): (&[u8], &Request, &[Field], &RequestPath<'_>),
        admitted: Option<Box<AdmittedSlots>>,
    ) -> Authorization {
        let tls = self.tls_details(service);
        let properties = RequestProperties {
            client: self.client,
            head,
            request,
            fields,
            target,
            received_body_bytes: 0,
            host: HostCheck::Allowed,
            tls: tls
                .as_deref()
                .map(TlsDetails::properties)
                .unwrap_or_default(),
            secure: self.is_client_secure(head, fields),
            admitted: admitted.is_some(),
        };
        let route = service.routes.choose(&properties.route_input());
        let Some(rules) = service.forward_auth_for(route) else {
            self.auth_result = None;
            return Authorization::Continue(UserCheck::Passed, admitted);
        };
        if let Some(auth_result) = &mut self.auth_result
            && auth_result.applies_to(&rules.rules)
        {
            let slots = auth_result.admitted.take();
            return Authorization::Continue(UserCheck::Passed, admitted.or(slots));
        }
        self.auth_result = None;
        // Limits are applied first, because an authorization request is expensive.
        let admitted = match admitted {
            Some(admitted) => admitted,
            None => match admit(&properties, service, route) {
                Ok(admitted) => Box::new(admitted),
                Err(check) => return Authorization::Continue(check, None),
            },
        };
        let rules = Arc::clone(rules);
        let route_input = properties.route_input();
        let copy = self.build_auth_request(cx, service, &rules, route_input, route);
        let Some(mut copy) = copy else {
            self.auth_result = Some(Box::new(AuthResult {
                rules,
                verdict: Verdict::Failed,
                admitted: None,
            }));
            return Authorization::Continue(UserCheck::Passed, Some(admitted));
        };
        let ticket = cx.next_ticket();
        let timeout_ms = rules.mirror.timeouts.total;
        copy.auth_request = Some(AuthRequest {
            session: key,
            ticket,
            rules,
        });
        cx.copies.push(copy);
        Authorization::Pending {
            ticket,
            timeout_ms,
            admitted,
        }
    }

    /// Builds the authorization request. Returns `None` if its pool does not exist, too many are in progress, or it
    /// cannot be written.
    fn build_auth_request(
        &mut self,
        cx: &mut Context,
        service: &Service,
        rules: &ForwardAuth,
        input: RouteInput<'_>,
        route: Option<usize>,
    ) -> Option<MirrorCopy> {
        let targets = service.pools.get(rules.mirror.pool_index)?;
        let Admission::Counted(slot) = rules.mirror.concurrent.admit(0) else {
            return None;
        };
        let host = self.default_host(input.head, input.request, input.fields);
        let route = route.and_then(|index| service.routes.get(index));
        let mut add = Vec::new();
        let template_context =
            self.template_context(input, host.as_bytes(), &targets.pool, route, &mut cx.random);
        for field in &rules.rules.set {
            add.extend_from_slice(field.name.as_bytes());
            add.extend_from_slice(b": ");
            route::expand(
                &field.value,
                ValueEncoding::Field,
                &template_context,
                &mut add,
            );
            add.extend_from_slice(b"\r\n");
        }
        let client_edit = self.client_edit(service);
        let request_host = input.request.host_in(input.head, input.fields);
        let request_host = request_host.unwrap_or(host.as_bytes());
        write_forwarded(input, request_host, client_edit.as_ref(), &mut add);
        let text = auth_request_text(input, &rules.rules, &add);
        let limits = HeadLimits {
            head: usize::MAX,
            target: usize::MAX,
            fields: usize::MAX,
            connect: false,
            underscores: Underscores::Keep,
        };
        let mut fields = Vec::new();
        let request = head::parse_request(&text, &limits, &mut fields).ok()??;
        let set_host = self.server_host(targets, input, host.as_bytes(), route, &mut cx.random);
        let edit = RequestEdit {
            client: self.forwarded_client(),
            fields: client_edit,
            set_host: set_host.as_deref(),
            host: host.as_bytes(),
            version: self.version(input.request),
            path: None,
            add: &add,
            edits: [None, None],
            close: false,
        };
        let mut bytes = Vec::new();
        write_request(&text, &request, &fields, &edit, &mut bytes);
        let mut exchange = Exchange::new(&request, service.head.underscores);
        exchange.process_client_data(&[]).ok()?;
        Some(MirrorCopy {
            local: Rc::clone(&self.local),
            mirror: Arc::clone(&rules.mirror),
            pool: targets.pool.clone(),
            peer: self.client,
            port: self.port,
            slot,
            exchange,
            head_len: bytes.len(),
            bytes,
            hash: self.hash_for(targets, input),
            auth_request: None,
        })
    }

    /// Returns the hash that selects the server of the authorization request.
    fn hash_for(&self, targets: &Targets, input: RouteInput<'_>) -> u64 {
        match targets.scheduler.kind {
            SchedulerKind::Hash => {
                let key = &targets.hash_key;
                hash_of_request(key, self.client, input.target, input.head, input.fields)
            }
            _ => 0,
        }
    }

    /// Handles the verdict on the client's request.
    pub(crate) fn handle_verdict(
        &mut self,
        auth_request: AuthRequest,
        verdict: Verdict,
        key: Key,
        cx: &mut Context,
    ) -> Outcome {
        if let Phase::Verify(expected, admitted) = &mut self.phase
            && *expected == auth_request.ticket
        {
            self.auth_result = Some(Box::new(AuthResult {
                rules: auth_request.rules,
                verdict,
                admitted: Some(std::mem::take(admitted)),
            }));
            self.phase = Phase::Head;
        }
        self.run(Step::Continue, key, cx)
    }

    /// Rejects a request on a `forward_auth` route if it was not allowed. Returns `None` if it was allowed, or if the
    /// route has no `forward_auth`.
    pub(super) fn reject_unauthorized(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        route: Option<usize>,
    ) -> Option<Step> {
        let rules = service.forward_auth_for(route)?;
        let auth_result = self.request.auth_result.as_ref();
        let verdict = auth_result.filter(|auth_result| auth_result.applies_to(&rules.rules));
        let verdict = verdict.map_or(Verdict::Failed, |auth_result| auth_result.verdict.clone());
        let detail = match &verdict {
            Verdict::Allowed(_) => Detail::AuthAdmitted,
            Verdict::Denied { .. } => Detail::AuthRefused,
            Verdict::Failed => Detail::AuthFailed,
        };
        service.detail(cx.worker, detail).add(1);
        match verdict {
            Verdict::Allowed(_) => None,
            Verdict::Denied { status, lines } => {
                self.request.route = route;
                Some(self.respond_with_fields(key, cx, status, &lines))
            }
            Verdict::Failed => {
                self.request.route = route;
                Some(self.fail(key, cx, 503))
            }
        }
    }

    /// Returns whether the session sends another session's authorization request and has no verdict yet.
    pub(crate) const fn is_auth_request(&self) -> bool {
        self.auth_request.is_some()
    }

    /// Sends the verdict that follows from a response. `bytes` starts with the response's head, or with interim heads
    /// before it.
    pub(super) fn send_verdict(&mut self, cx: &mut Context, bytes: &[u8]) {
        let status = self.request.exchange.status();
        if let Some(auth_request) = self.auth_request.take() {
            let verdict = verdict(&auth_request.rules.rules, status, final_head(bytes));
            cx.verdicts.push((*auth_request, verdict));
        }
    }

    /// Ends the authorization request without a decision, if there is no verdict yet.
    pub(super) fn end_auth_request(&mut self, cx: &mut Context) {
        if let Some(auth_request) = self.auth_request.take() {
            cx.verdicts.push((*auth_request, Verdict::Failed));
        }
    }
}

/// The next step for a request whose route may have `forward_auth`.
enum Authorization {
    /// Processing of the request continues.
    Continue(UserCheck, Option<Box<AdmittedSlots>>),
    /// The request waits for the verdict.
    Pending {
        ticket: Ticket,
        timeout_ms: u64,
        admitted: Box<AdmittedSlots>,
    },
}

/// Writes the fields that describe the client's request for the authorization server.
fn write_forwarded(
    properties: RouteInput<'_>,
    host: &[u8],
    client_edit: Option<&ClientEdit<'_>>,
    add: &mut Vec<u8>,
) {
    let head = properties.head;
    let mut write = |name: &[u8], value: &[u8]| {
        add.extend_from_slice(name);
        add.extend_from_slice(b": ");
        add.extend_from_slice(value);
        add.extend_from_slice(b"\r\n");
    };
    write(b"X-Forwarded-Method", properties.request.method_in(head));
    write(b"X-Forwarded-Uri", properties.request.path_in(head));
    let is_written =
        client_edit.is_some_and(|client_edit| client_edit.rules.rule(ClientField::Host).is_some());
    if !is_written {
        write(b"X-Forwarded-Host", host);
    }
}

/// Returns the text of the authorization request, as if the client had sent it: a GET request with those fields of the
/// client's request that `add` does not replace.
fn auth_request_text(
    properties: RouteInput<'_>,
    rules: &weir_model::ForwardAuth,
    add: &[u8],
) -> Vec<u8> {
    let head = properties.head;
    let mut text = Vec::with_capacity(head.len() + 64);
    text.extend_from_slice(b"GET ");
    text.extend_from_slice(rules.path.as_bytes());
    text.extend_from_slice(b" HTTP/1.1\r\n");
    let has_authority = properties.request.has_authority();
    if let (true, Some(host)) = (
        has_authority,
        properties.request.host_in(head, properties.fields),
    ) {
        text.extend_from_slice(b"Host: ");
        text.extend_from_slice(host);
        text.extend_from_slice(b"\r\n");
    }
    for field in properties.fields {
        let name = field.name_in(head);
        let is_omitted = field.dropped
            || match field.name {
                Name::Connection
                | Name::ContentLength
                | Name::TransferEncoding
                | Name::HopByHop
                | Name::Upgrade
                | Name::Expect => true,
                Name::Host => has_authority,
                Name::ForwardedFor | Name::Forwarded | Name::Other => {
                    let is_name =
                        |field_name: &&str| name.eq_ignore_ascii_case(field_name.as_bytes());
                    OMITTED_FIELDS.iter().any(is_name) || has_line(name, add)
                }
            };
        if !is_omitted {
            text.extend_from_slice(&head[field.line()]);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Returns whether one of these lines has this name.
fn has_line(name: &[u8], lines: &[u8]) -> bool {
    let mut lines = lines.split(|byte| *byte == b'\n');
    lines.any(|line| {
        let line_name = line.split(|byte| *byte == b':').next();
        line_name.is_some_and(|line_name| line_name.eq_ignore_ascii_case(name))
    })
}

/// Returns the final response head; empty if it is incomplete.
fn final_head(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Ok(Some(end)) = head_end(rest, 0) {
        let is_interim = rest.get(9) == Some(&b'1');
        if !is_interim {
            return &rest[..end];
        }
        rest = &rest[end..];
    }
    &[]
}

/// Returns the names and values of the lines in a head that has been parsed.
fn lines(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

fn verdict(rules: &weir_model::ForwardAuth, status: u16, head: &[u8]) -> Verdict {
    let mut out = Vec::new();
    let mut write = |name: &str, value: &[u8]| {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    };
    match status {
        200..=299 => {
            for (name, value) in lines(head) {
                let is_name = |source: &str| source.as_bytes().eq_ignore_ascii_case(name);
                for (target, _) in rules.copy.iter().filter(|(_, source)| is_name(source)) {
                    write(target, value);
                }
            }
            Verdict::Allowed(out)
        }
        401 | 403 | 301 | 302 | 303 | 307 | 308 => {
            for (name, value) in lines(head) {
                let is_name = |field_name: &&&str| field_name.as_bytes().eq_ignore_ascii_case(name);
                if let Some(field_name) = RETURNED_FIELDS.iter().find(is_name) {
                    write(field_name, value);
                }
            }
            Verdict::Denied { status, lines: out }
        }
        _ => Verdict::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rules() -> weir_model::ForwardAuth {
        weir_model::ForwardAuth {
            pool: "p".to_owned(),
            path: "/verify".to_owned(),
            timeout: Duration::from_secs(1),
            copy: vec![
                ("X-User".to_owned(), "X-User".to_owned()),
                ("X-Mail".to_owned(), "X-Auth-Mail".to_owned()),
            ],
            set: Vec::new(),
        }
    }

    #[test]
    fn only_listed_fields_are_copied_and_other_statuses_are_failures() {
        let head = b"HTTP/1.1 200 OK\r\nx-user:  a\r\nX-Auth-Mail: m\r\nX-User: b\r\nX-Mail: n\r\nLocation: /\r\n\r\n";
        assert_eq!(
            verdict(&rules(), 200, head),
            Verdict::Allowed(b"X-User: a\r\nX-Mail: m\r\nX-User: b\r\n".to_vec())
        );
        let head = b"HTTP/1.1 302 Found\r\nLocation: /login\r\nServer: s\r\nset-cookie: a=b\r\n\
            Content-Length: 5\r\n\r\n";
        assert_eq!(
            verdict(&rules(), 302, head),
            Verdict::Denied {
                status: 302,
                lines: b"Location: /login\r\nSet-Cookie: a=b\r\n".to_vec()
            }
        );
        for status in [304, 300, 400, 404, 407, 429, 500, 502, 503, 999] {
            assert_eq!(verdict(&rules(), status, head), Verdict::Failed, "{status}");
        }
    }

    #[test]
    fn interim_heads_are_skipped() {
        let last = b"HTTP/1.1 200 OK\r\nX-User: a\r\n\r\n";
        let early_hints = b"HTTP/1.1 103 Early Hints\r\nX-User: evil\r\n\r\n";
        let bytes = [
            &early_hints[..],
            &early_hints[..],
            &last[..],
            b"body\r\n\r\n",
        ]
        .concat();
        assert_eq!(final_head(&bytes), last);
        assert_eq!(final_head(last), last);
        assert_eq!(final_head(b"HTTP/1.1 200 OK\r\n"), b"");
    }
}
