//! Reads and routes request heads, and writes the head for the server.

use std::net::IpAddr;
use std::rc::Rc;

use weir_http::head::{self, head_end};
use weir_http::route::{self, RestartedPath, RouteInput, TlsProperties, ValueEncoding};
use weir_http::{
    Exchange, Field, Framing, ParseError, Request, RequestEdit, RequestPath, RequestStep, encoding,
    path, write_request,
};
use weir_model::{RouteAction, SchedulerKind, Scheme};
use weir_select::key::hash_of_request;
use weir_select::route::{self as decision, Decision, RequestProperties};
use weir_sys::{Clock, now_ns};

use super::admission::apply_limits;
use super::edit::{
    drop_fields, local_response_fields, replace_copied, replaces_cookie, trailer_filter,
};
use super::encode::compression;
use super::file::file_request;
use super::state::{AdmittedSlots, AuthResult, UserCheck};
use super::{Session, Step, state};
use crate::context::{Context, HEAD_BUFFER_BYTES};
use crate::h2::{PREFACE, first_stream};
use crate::plan::Service;
use crate::slab::Key;
use crate::socket::{self, Read};
use crate::tls::TlsDetails;

/// A request whose head was parsed.
#[derive(Clone, Copy)]
pub(super) struct IncomingRequest<'a> {
    pub(super) head: &'a [u8],
    pub(super) request: &'a Request,
    /// The path in the form that is compared with routes.
    pub(super) target: &'a RequestPath<'a>,
    /// Data of the client's TLS connection, if routes or templates use it.
    tls: TlsProperties<'a>,
    /// Whether the client uses TLS, either to Weir or to a trusted proxy.
    secure: bool,
}

impl<'a> IncomingRequest<'a> {
    pub(super) fn properties(&self, client: IpAddr, fields: &'a [Field]) -> RouteInput<'a> {
        RouteInput {
            client,
            target: self.target,
            head: self.head,
            request: self.request,
            fields,
            tls: self.tls,
            secure: self.secure,
        }
    }
}

impl Session {
    /// Reads until a head is complete.
    pub(super) fn read_head(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.flush(cx) {
            None => return Step::Close,
            Some(false) => return Step::Pending,
            Some(true) => {}
        }
        // If the client cannot be handed over, or its service was removed, the connection is closed only after a
        // response.
        if cx.draining && !cx.handing_over && self.served && self.input.is_empty() {
            return Step::Close;
        }
        if self.scanned < self.input.len() {
            return self.resume_head(key, cx);
        }
        if !self.ready.readable {
            return Step::Pending;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let step = match self
            .transport
            .read(&mut self.ready, &mut scratch[..HEAD_BUFFER_BYTES])
        {
            Read::Some(bytes) => {
                if self.input.is_empty() {
                    self.handle_head(key, cx, &scratch[..bytes])
                } else {
                    self.input.extend_from_slice(&scratch[..bytes]);
                    Step::Continue
                }
            }
            Read::Blocked => Step::Pending,
            Read::End | Read::Broken => Step::Close,
        };
        cx.scratch = scratch;
        step
    }

    /// Scans buffered input: bytes that followed an earlier request, or an incomplete head.
    fn resume_head(&mut self, key: Key, cx: &mut Context) -> Step {
        match head_end(&self.input, self.scanned) {
            Ok(Some(_)) => {
                let input = std::mem::take(&mut self.input);
                let step = self.handle_head(key, cx, &input);
                cx.recycle(input);
                step
            }
            Ok(None) if self.input.len() > self.local.service.head.head => {
                self.reject(key, cx, 431)
            }
            Ok(None) => {
                self.scanned = self.input.len();
                Step::Continue
            }
            Err(error) => self.reject(key, cx, error.request_status()),
        }
    }

    /// Handles input that starts with a complete head, up to the connection to a server.
    fn handle_head(&mut self, key: Key, cx: &mut Context, bytes: &[u8]) -> Step {
        let local = Rc::clone(&self.local);
        let service = &local.service;
        if bytes.starts_with(PREFACE) && self.may_upgrade_to_h2() && !self.served {
            self.input = bytes.to_vec();
            return Step::Http2;
        }
        let request = match self.parse_head(key, cx, bytes) {
            Ok(request) => request,
            Err(step) => return step,
        };
        let (head, rest) = bytes.split_at(request.len);
        if self.may_upgrade_to_h2()
            && let Some(frame) = first_stream(head, &request, &cx.fields)
        {
            return self.upgrade_to_h2(frame, rest);
        }
        if request.removed_underscores > 0 {
            self.log_underscores(&request);
        }
        let Some((check, admitted)) = self.check_user(key, cx, service, &request, bytes) else {
            return Step::Pending;
        };
        let mut exchange = Exchange::new(&request, service.head.underscores);
        let RequestStep {
            consumed: body,
            forward_len,
            mut trailers,
        } = match exchange.process_client_data(rest) {
            Ok(request_step) => request_step,
            Err(error) => return self.reject(key, cx, error.request_status()),
        };
        let counters = service.counters.of(cx.worker);
        counters.requests.add(1);
        counters.bytes_in.add((head.len() + body) as u64);
        self.count_begin(cx, head.len() + body);
        self.log_request(cx, head, &request, body);
        local.budget.earn(service.retry_percent);
        self.request = state::Request::new(exchange);
        self.request.user_check = check;
        self.request.auth_result = self.auth_result.take();
        self.request.admit(admitted);
        self.request.times = state::Times::new(cx.now_us);
        if service.timeouts.total > 0 {
            self.request.deadline_ms = cx.now + service.timeouts.total;
        }
        self.begin_trace(cx, head, &request);
        self.buffer_input(cx, &rest[body..]);
        let mut path_buffer = std::mem::take(&mut cx.path);
        let next_step = self.route(key, cx, service, head, &request, &mut path_buffer);
        cx.path = path_buffer;
        if let Some(step) = next_step {
            return step;
        }
        self.filter_trailers(&mut trailers);
        self.to_server.bytes.extend_from_slice(&rest[..forward_len]);
        self.to_server.bytes.extend_from_slice(&trailers);
        self.copy_content(cx, [&rest[..forward_len], &trailers]);
        if let Some(lookup) = self.request.lookup.take() {
            let (query, mut transfer) = *lookup;
            transfer.fallback = Some(Box::new(request));
            return self.begin_file(key, cx, (query, transfer));
        }
        self.collect_or_connect(key, cx, &request)
    }

    /// Parses the head at the start of the input. Returns the next step if it is incomplete or invalid.
    #[inline]
    fn parse_head(&mut self, key: Key, cx: &mut Context, bytes: &[u8]) -> Result<Request, Step> {
        let service = &self.local.service;
        match head::parse_request(bytes, &service.head, &mut cx.fields) {
            Ok(Some(request)) => {
                self.mark_untrusted(service, None, &bytes[..request.len], &mut cx.fields);
                self.client = self.client_of(service, &bytes[..request.len], &cx.fields);
                Ok(request)
            }
            Ok(None) => {
                let ms = service.timeouts.request;
                if self.served && self.input.is_empty() {
                    self.set_deadline(key, cx, ms);
                }
                self.begin_log_record(cx);
                self.input = cx.buffer();
                self.input.extend_from_slice(bytes);
                self.scanned = bytes.len();
                Err(Step::Continue)
            }
            Err(_)
                if self.may_upgrade_to_h2() && !self.served && head::is_other_protocol(bytes) =>
            {
                Err(Step::Close)
            }
            Err(error) => {
                self.begin_log_record(cx);
                Err(self.reject(key, cx, error.request_status()))
            }
        }
    }

    /// Returns the result of the user check and the slots that the request already holds. Returns `None` if the session
    /// waits for a password to be verified or for the verdict of `forward_auth`.
    #[inline]
    fn check_user(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        request: &Request,
        bytes: &[u8],
    ) -> Option<(UserCheck, Option<Box<AdmittedSlots>>)> {
        let user_check = match service.auth.is_some() {
            false => {
                self.password_result = None;
                (UserCheck::Passed, None)
            }
            true => self.verify_user(key, cx, service, request, bytes)?,
        };
        match service.has_forward_auth {
            false => Some(user_check),
            true => self.request_authorization(key, cx, service, request, bytes, user_check),
        }
    }

    /// Logs that fields were dropped, so that operators can find the reason.
    #[cold]
    fn log_underscores(&self, request: &Request) {
        let service = &self.local.service.name;
        let count = request.removed_underscores;
        tracing::debug!(service, peer = %self.peer, count, "dropped header fields with underscores in their names");
    }

    /// Routes the request, and writes it for the server. Returns `Some` if the request needs no server. `path_buffer`
    /// is a buffer for a normalized path.
    #[inline]
    fn route(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        head: &[u8],
        request: &Request,
        path_buffer: &mut Vec<u8>,
    ) -> Option<Step> {
        let tls = self.tls_details(service);
        let tls = tls
            .as_deref()
            .map(TlsDetails::properties)
            .unwrap_or_default();
        let secure = self.is_client_secure(head, &cx.fields);
        let mut restart_buffer = Vec::new();
        let buffers = (path_buffer, &mut restart_buffer);
        let tls_properties = (tls, secure);
        let target = match self.target(
            service,
            (head, request),
            &cx.fields,
            tls_properties,
            buffers,
        ) {
            Ok(target) => target,
            Err(error) => return Some(self.fail(key, cx, error.request_status())),
        };
        let incoming = IncomingRequest {
            head,
            request,
            target: &target,
            tls,
            secure,
        };
        if self.records_variables() {
            let host = self.default_host(head, request, &cx.fields);
            let route_input = incoming.properties(self.client.ip(), &cx.fields);
            self.log_variables(route_input, host.as_bytes(), &mut cx.random);
        }
        let next_step = self.find_pool(key, cx, service, incoming);
        if next_step.is_some() {
            return next_step;
        }
        if let Some(step) = self.apply_options(key, cx, request) {
            return Some(step);
        }
        self.write_request(cx, service, incoming);
        None
    }

    /// Returns the path that is used to select a route: normalized, and rewritten by routes with `restart`. `normal`
    /// and `rewritten` are buffers for these forms.
    ///
    /// # Errors
    /// Fails if the path cannot be normalized.
    #[inline]
    pub(super) fn target<'a>(
        &self,
        service: &Service,
        (head, request): (&'a [u8], &Request),
        fields: &[Field],
        tls_properties: (TlsProperties<'_>, bool),
        (normal, rewritten): (&'a mut Vec<u8>, &'a mut Vec<u8>),
    ) -> Result<RequestPath<'a>, ParseError> {
        let received = request.path_in(head);
        let target = match &service.normalize_path {
            None => RequestPath::as_received(received),
            Some(rules) => path::normalize(received, rules, normal)?,
        };
        let received = (&target, head, request);
        let restarted =
            self.restart_routing(service, received, fields, tls_properties, rewritten)?;
        Ok(restarted.map_or(target, |restarted| restarted.target(target, rewritten)))
    }

    /// Applies the routes that rewrite the path and restart the route selection. Returns `None` if there are no such
    /// routes.
    #[inline]
    fn restart_routing(
        &self,
        service: &Service,
        (target, head, request): (&RequestPath<'_>, &[u8], &Request),
        fields: &[Field],
        (tls, secure): (TlsProperties<'_>, bool),
        path_buffer: &mut Vec<u8>,
    ) -> Result<Option<RestartedPath>, ParseError> {
        if !service.routes.has_restarts() {
            return Ok(None);
        }
        let properties = RouteInput {
            client: self.client.ip(),
            target,
            head,
            request,
            fields,
            tls,
            secure,
        };
        let rules = service.normalize_path.as_ref();
        service
            .routes
            .apply_restarts(&properties, rules, path_buffer)
            .map(Some)
    }

    /// Returns whether the client uses TLS: to Weir, or to a trusted proxy that reports it.
    pub(super) fn is_client_secure(&self, head: &[u8], fields: &[Field]) -> bool {
        let uses_tls = self.transport.is_secure();
        let trusted = &self.local.service.trusted;
        let address = self.peer.ip();
        if !trusted.iter().any(|network| network.contains(address)) {
            return uses_tls;
        }
        let forwarded = route::forwarded_scheme(head, fields);
        forwarded.map_or(uses_tls, |scheme| scheme == Scheme::Https)
    }

    /// Returns the client's TLS details, if routes, texts or taps use them.
    pub(super) fn tls_details(&self, service: &Service) -> Option<Rc<TlsDetails>> {
        if !service.needs_tls && !service.taps.is_active() {
            return None;
        }
        let connection_details = || self.transport.tls_details().map(Rc::new);
        self.stream_tls.clone().or_else(connection_details)
    }

    /// Applies the route's settings to the request. Returns `Some` if the body is too long.
    #[inline]
    fn apply_options(&mut self, key: Key, cx: &mut Context, request: &Request) -> Option<Step> {
        if self.local.service.options.is_empty() {
            return None;
        }
        let total = self.options().map_or(0, |options| options.timeouts.total);
        if total > 0 {
            self.request.deadline_ms = cx.now + total;
        }
        let limit = self.body_limit();
        let length = match request.framing {
            Framing::Length(bytes) => bytes,
            Framing::None | Framing::Chunked | Framing::UntilClose => {
                self.request.exchange.request_content()
            }
        };
        (limit > 0 && length > limit).then(|| self.fail(key, cx, 413))
    }

    /// Finds the request's pool. Returns `Some` if the request needs no server.
    #[inline]
    fn find_pool(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        incoming: IncomingRequest<'_>,
    ) -> Option<Step> {
        let IncomingRequest {
            head,
            request,
            target,
            tls,
            secure,
        } = incoming;
        let properties = RequestProperties {
            client: self.client,
            head,
            request,
            fields: &cx.fields,
            target,
            received_body_bytes: self.request.exchange.request_content(),
            host: self.check_host(head, request, &cx.fields),
            tls,
            secure,
            admitted: self.request.admitted,
        };
        if let UserCheck::Rejected { rejection, route } = self.request.user_check {
            self.request.route = route;
            return Some(self.fail_with_rejection(key, cx, rejection));
        }
        let now_ns = if service.limits.needs_time() {
            now_ns(Clock::Monotonic)
        } else {
            0
        };
        let (routes, limits) = (&service.routes, &service.limits);
        let (decision, slot) =
            decision::decide(routes, limits, &properties, now_ns, &mut cx.random);
        if !self.request.admitted {
            self.request.slot = slot;
        }
        let route = match decision {
            Decision::Reject(rejection) => {
                return Some(self.fail_with_rejection(key, cx, rejection));
            }
            Decision::Forward { route, .. } => route,
            Decision::Redirect { route }
            | Decision::Respond { route }
            | Decision::ForwardByKey { route }
            | Decision::Files { route }
            | Decision::Close { route } => Some(route),
        };
        if let Some(route) = route
            && !service.options.is_empty()
            && !self.request.admitted
        {
            match apply_limits(&properties, service, route) {
                Ok(slots) => self.request.route_slots.extend(slots.into_iter().flatten()),
                Err(rejection) => {
                    self.request.route = Some(route);
                    return Some(self.fail_with_rejection(key, cx, rejection));
                }
            }
        }
        if let Some(step) = self.reject_unadmitted(key, cx, service, route) {
            return Some(step);
        }
        let route = match (decision, route) {
            (Decision::Forward { pool, route }, _) => {
                (self.request.pool, self.request.route) = (pool, route);
                return None;
            }
            (_, None) => return None,
            (_, Some(route)) => route,
        };
        self.apply_route_action(key, cx, service, incoming, route)
    }

    /// Applies a route whose action is not a fixed pool. Returns `Some` if the request needs no server.
    fn apply_route_action(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        incoming: IncomingRequest<'_>,
        route: usize,
    ) -> Option<Step> {
        let IncomingRequest { head, request, .. } = incoming;
        self.request.route = Some(route);
        let index = route;
        let route = service.routes.get(route)?;
        let host = self.default_host(head, request, &cx.fields);
        let route_input = incoming.properties(self.client.ip(), &cx.fields);
        let template_context = self.template_context(
            route_input,
            host.as_bytes(),
            "",
            Some(route),
            &mut cx.random,
        );
        match &route.action {
            RouteAction::Redirect { to, status } => {
                let location = route::location(to, &template_context);
                let route_fields =
                    local_response_fields(&route.edits.response, *status, &template_context);
                Some(self.send_route_response(
                    key,
                    cx,
                    *status,
                    Some(&location),
                    &[],
                    &route_fields,
                ))
            }
            RouteAction::Respond { status, body } => {
                let mut text = Vec::new();
                route::expand(body, ValueEncoding::Body, &template_context, &mut text);
                let route_fields =
                    local_response_fields(&route.edits.response, *status, &template_context);
                Some(self.send_route_response(key, cx, *status, None, &text, &route_fields))
            }
            RouteAction::Close => {
                self.set_termination(*b"LR");
                Some(Step::Close)
            }
            RouteAction::Mapped(map) => {
                let text = route::map_key(map, &template_context);
                self.request.pool = service.routes.mapped_pool(index, &text);
                None
            }
            RouteAction::Files(_)
                if has_other_route(service, &template_context.route_input, index) =>
            {
                Some(self.fail(key, cx, 404))
            }
            RouteAction::Files(files) => {
                let lookup = file_request(service, files, &template_context);
                match service.routes.fallback_pool(index) {
                    Some(pool) => {
                        self.request.pool = pool;
                        self.request.lookup = Some(Box::new(lookup));
                        None
                    }
                    None => Some(self.begin_file(key, cx, lookup)),
                }
            }
            RouteAction::Split(split) => {
                if let Some(key) = &split.by {
                    let text = route::key_text(key, &template_context);
                    self.request.pool = service.routes.split_pool(index, &text);
                }
                None
            }
            RouteAction::Restart(_) => Some(self.fail(key, cx, 500)),
            RouteAction::Pool(_) => None,
        }
    }

    /// Writes the request for the server, and sets the inputs for the server selection.
    #[inline]
    fn write_request(
        &mut self,
        cx: &mut Context,
        service: &Service,
        incoming: IncomingRequest<'_>,
    ) {
        let IncomingRequest {
            head,
            request,
            target,
            ..
        } = incoming;
        self.request.negotiated_coding = compression(service, self.request.route)
            .and_then(|rules| encoding::negotiate(head, &cx.fields, &rules.codings));
        let targets = &service.pools[self.request.pool];
        self.set_hash(cx, service, incoming);
        let auth_result = self.request.auth_result.take();
        let copied = auth_result.as_deref().and_then(AuthResult::copied_fields);
        let mut add = Vec::new();
        if let Some(sticky) = &targets.sticky {
            self.find_sticky_server(sticky, head, &mut cx.fields, &mut add);
        }
        self.prefer_server(targets);
        let forwarded = service.forwarded_path(target, request.path_in(head));
        let routes = &service.routes;
        let route = self.request.route.and_then(|index| routes.get(index));
        let host = self.default_host(head, request, &cx.fields);
        let edits = [
            Some(&service.request_header),
            route.map(|route| &route.edits.request),
        ]
        .map(|edits| edits.filter(|edits| !edits.is_empty()));
        if replaces_cookie(edits, copied) {
            // This discards the client's other cookies.
            add.clear();
        }
        let mut rewritten = None;
        if route.is_some_and(|route| !route.edits.is_empty()) || service.has_header_edits() {
            let route_input = incoming.properties(self.client.ip(), &cx.fields);
            let template_context = self.template_context(
                route_input,
                host.as_bytes(),
                &targets.pool,
                route,
                &mut cx.random,
            );
            rewritten = self.edit_request(service, &template_context, &mut add);
            drop_fields(edits, head, &mut cx.fields);
        }
        replace_copied(copied, head, &mut cx.fields, &mut add);
        self.write_trace_context(head, &mut cx.fields, &mut add);
        let route_input = incoming.properties(self.client.ip(), &cx.fields);
        let set_host =
            self.server_host(targets, route_input, host.as_bytes(), route, &mut cx.random);
        let edit = RequestEdit {
            add: &add,
            edits,
            set_host: set_host.as_deref(),
            client: self.forwarded_client(),
            fields: self.client_edit(service),
            host: host.as_bytes(),
            version: self.version(request),
            path: Some(rewritten.as_deref().unwrap_or(forwarded)),
            close: service.idle_servers == 0,
        };
        self.request.trailer_filter = trailer_filter(request, &edit, copied);
        self.to_server = cx.buffer().into();
        write_request(head, request, &cx.fields, &edit, &mut self.to_server.bytes);
        self.begin_copies(cx, service, incoming, &edit);
    }

    /// Marks the fields that the route's rules do not allow, then sets the hash for the `hash` scheduler.
    #[inline]
    fn set_hash(&mut self, cx: &mut Context, service: &Service, incoming: IncomingRequest<'_>) {
        let IncomingRequest { head, target, .. } = incoming;
        if let Some(route) = self.request.route
            && service.client_rules_of(route).is_some()
        {
            self.mark_untrusted(service, Some(route), head, &mut cx.fields);
        }
        let targets = &service.pools[self.request.pool];
        if targets.scheduler.kind == SchedulerKind::Hash {
            let key = &targets.hash_key;
            let hash = hash_of_request(key, self.client, target, head, &cx.fields);
            self.request.selection.set_hash(hash);
        }
    }

    /// Returns the host for an HTTP/1.0 request without `Host`: the address that the client connected to. Empty for all
    /// other requests.
    pub(super) fn default_host(&self, head: &[u8], request: &Request, fields: &[Field]) -> String {
        if !request.http10 || request.host_in(head, fields).is_some() {
            return String::new();
        }
        let local_address = || socket::local_address(self.transport.socket()?);
        let address = self.destination.or_else(local_address);
        address.map_or_else(
            || self.local.service.host.clone(),
            |address| address.to_string(),
        )
    }

    /// Returns the port that the client connected to: the listener's port, or the port in the PROXY protocol header.
    pub(super) fn listen_port(&self) -> u16 {
        self.destination.map_or(self.port, |address| address.port())
    }

    /// Returns the client's HTTP version, for `Via`.
    pub(super) const fn version(&self, request: &Request) -> &'static str {
        match request.http10 {
            _ if self.is_stream() => "2",
            true => "1.0",
            false => "1.1",
        }
    }

    /// Removes the trailers that the server must not receive.
    pub(super) fn filter_trailers(&self, trailers: &mut Vec<u8>) {
        if let Some(filter) = self.request.trailer_filter.as_deref()
            && !trailers.is_empty()
        {
            filter.apply(trailers);
        }
    }

    /// Buffers the bytes of later requests.
    pub(super) fn buffer_input(&mut self, cx: &mut Context, bytes: &[u8]) {
        self.scanned = 0;
        if bytes.is_empty() {
            return;
        }
        if self.input.capacity() == 0 {
            self.input = cx.buffer();
        }
        self.input.extend_from_slice(bytes);
    }
}

/// Returns whether the decoded path matches a different route. That route could require authentication or reject the
/// request, so the file must not be sent for this spelling of the path.
fn has_other_route(service: &Service, route_input: &RouteInput<'_>, route: usize) -> bool {
    let mut buffer = Vec::new();
    let Some(target) = path::decode_fully(route_input.target, &mut buffer) else {
        return false;
    };
    let route_input = RouteInput {
        target: &target,
        ..*route_input
    };
    service.routes.choose(&route_input) != Some(route)
}
