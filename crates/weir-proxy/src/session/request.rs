//! From the client's octets to a server: heads, the choice, connecting, and trying again.

use std::rc::Rc;

use weir_http::head::{self, head_end};
use weir_http::{
    Client, Exchange, Field, Request, RequestEdit, RequestPath, Upload, encoding, path, route,
    write_request,
};
use weir_model::{Forwarded, RouteAction, SchedulerKind};
use weir_select::key::hash_of_request;
use weir_select::route::{self as decision, Decision, Facts};
use weir_sys::{Clock, now_ns};

use super::{Session, Step, state};
use crate::context::{Context, HEAD_ROOM};
use crate::h2::{PREFACE, first_stream};
use crate::plan::Service;
use crate::slab::Key;
use crate::socket::{self, Read};

impl Session {
    /// Reads until a head is complete.
    pub(super) fn take_request(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.flush(cx) {
            None => return Step::Close,
            Some(false) => return Step::Pending,
            Some(true) => {}
        }
        // Who stays behind because of an upgrade, or because its service is gone, is told to leave by an answer, never
        // by silence.
        if cx.draining && !cx.handing && self.served && self.input.is_empty() {
            return Step::Close;
        }
        if self.scanned < self.input.len() {
            return self.look(key, cx);
        }
        if !self.ready.readable {
            return Step::Pending;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let moved = match self
            .transport
            .read(&mut self.ready, &mut scratch[..HEAD_ROOM])
        {
            Read::Some(octets) => {
                if self.input.is_empty() {
                    self.understand(key, cx, &scratch[..octets])
                } else {
                    self.input.extend_from_slice(&scratch[..octets]);
                    Step::Continue
                }
            }
            Read::Blocked => Step::Pending,
            Read::End | Read::Broken => Step::Close,
        };
        cx.scratch = scratch;
        moved
    }

    /// Looks into what was kept: octets that follow an earlier request, or a head that came in pieces.
    fn look(&mut self, key: Key, cx: &mut Context) -> Step {
        match head_end(&self.input, self.scanned) {
            Ok(Some(_)) => {
                let input = std::mem::take(&mut self.input);
                let moved = self.understand(key, cx, &input);
                cx.recycle(input);
                moved
            }
            Ok(None) if self.input.len() > self.local.service.head.head => {
                self.refuse(key, cx, 431)
            }
            Ok(None) => {
                self.scanned = self.input.len();
                Step::Continue
            }
            Err(refusal) => self.refuse(key, cx, refusal.request_status()),
        }
    }

    /// Reads a head from octets that begin with one, and goes on to a server.
    fn understand(&mut self, key: Key, cx: &mut Context, octets: &[u8]) -> Step {
        let local = Rc::clone(&self.local);
        let service = &local.service;
        if octets.starts_with(PREFACE) && self.may_switch() && !self.served {
            self.input = octets.to_vec();
            return Step::Http2;
        }
        let request = match self.read_head(key, cx, octets) {
            Ok(request) => request,
            Err(moved) => return moved,
        };
        let (head, rest) = octets.split_at(request.len);
        if self.may_switch()
            && let Some(frame) = first_stream(head, &request, &cx.fields)
        {
            return self.switch(frame, rest);
        }
        if request.underscores > 0 {
            self.note_underscores(&request);
        }
        let mut exchange = Exchange::new(&request, service.head.underscores);
        let Upload {
            consumed: body,
            forward,
            trailers,
        } = match exchange.client_data(rest) {
            Ok(upload) => upload,
            Err(refusal) => return self.refuse(key, cx, refusal.request_status()),
        };
        let counters = service.counters.of(cx.worker);
        counters.requests.add(1);
        counters.bytes_in.add((head.len() + body) as u64);
        self.note_request(cx, head, &request, body);
        local.budget.earn(service.retry_percent);
        self.request = state::Request::new(exchange);
        if service.timeouts.total > 0 {
            self.request.deadline_ms = cx.now + service.timeouts.total;
        }
        self.keep(cx, &rest[body..]);
        let mut room = std::mem::take(&mut cx.path);
        let ended = self.route(key, cx, service, head, &request, &mut room);
        cx.path = room;
        if let Some(moved) = ended {
            return moved;
        }
        self.to_server.bytes.extend_from_slice(&rest[..forward]);
        self.to_server.bytes.extend_from_slice(&trailers);
        self.proceed(key, cx, &request)
    }

    /// The head that the octets begin with; or what becomes of a client that sent another.
    #[inline]
    fn read_head(&mut self, key: Key, cx: &mut Context, octets: &[u8]) -> Result<Request, Step> {
        let service = &self.local.service;
        match head::request(octets, &service.head, &mut cx.fields) {
            Ok(Some(request)) => Ok(request),
            Ok(None) => {
                let ms = service.timeouts.request;
                if self.served && self.input.is_empty() {
                    self.wait(key, cx, ms);
                }
                self.begin_note(cx);
                self.input = cx.buffer();
                self.input.extend_from_slice(octets);
                self.scanned = octets.len();
                Err(Step::Continue)
            }
            Err(_) if self.may_switch() && !self.served && head::is_other_protocol(octets) => {
                Err(Step::Close)
            }
            Err(refusal) => {
                self.begin_note(cx);
                Err(self.refuse(key, cx, refusal.request_status()))
            }
        }
    }

    /// Fields that were left out are worth a line where an operator looks for one.
    #[cold]
    fn note_underscores(&self, request: &Request) {
        let service = &self.local.service.name;
        let count = request.underscores;
        tracing::debug!(service, peer = %self.peer, count, "fields with an underscore in their names were dropped");
    }

    /// Finds the request's pool and writes what the server is asked; what became of a request that no server gets.
    /// `room` is for a path that is not normal.
    #[inline]
    fn route(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        head: &[u8],
        request: &Request,
        room: &mut Vec<u8>,
    ) -> Option<Step> {
        let received = request.path_in(head);
        let target = match &service.normalize_path {
            None => RequestPath::received(received),
            Some(rules) => match path::normalize(received, rules, room) {
                Ok(target) => target,
                Err(refusal) => return Some(self.fail(key, cx, refusal.request_status())),
            },
        };
        let ended = self.find_pool(key, cx, service, head, request, &target);
        if ended.is_none() {
            self.prepare(cx, service, head, request, &target);
        }
        ended
    }

    /// Finds the request's pool; what became of a request that no server gets.
    #[inline]
    fn find_pool(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        head: &[u8],
        request: &Request,
        target: &RequestPath<'_>,
    ) -> Option<Step> {
        let facts = Facts {
            client: self.peer,
            head,
            request,
            fields: &cx.fields,
            target,
            body_received: self.request.exchange.request_content(),
            host: self.check_host(head, request, &cx.fields),
        };
        let now_ns = if service.limits.needs_time() {
            now_ns(Clock::Monotonic)
        } else {
            0
        };
        let (routes, limits) = (&service.routes, &service.limits);
        let (decided, slot) = decision::decide(routes, limits, &facts, now_ns, &mut cx.random);
        self.request.slot = slot;
        let route = match decided {
            Decision::Forward { pool, route } => {
                (self.request.pool, self.request.route) = (pool, route);
                return None;
            }
            Decision::Reject { status } => return Some(self.fail(key, cx, status)),
            Decision::Redirect { route } | Decision::Answer { route } => route,
        };
        self.request.route = Some(route);
        match &service.routes.get(route)?.action {
            RouteAction::Redirect { to, status } => {
                let host = self.host_of_nameless(head, request, &cx.fields);
                let host = host.as_bytes();
                let location = route::location(to, head, request, &cx.fields, host);
                Some(self.answer_route(key, cx, *status, Some(&location), ""))
            }
            RouteAction::Answer { status, body } => {
                Some(self.answer_route(key, cx, *status, None, body))
            }
            RouteAction::Pool(_) | RouteAction::Split(_) => None,
        }
    }

    /// Writes what the server is asked, and notes by what it is chosen.
    #[inline]
    fn prepare(
        &mut self,
        cx: &mut Context,
        service: &Service,
        head: &[u8],
        request: &Request,
        target: &RequestPath<'_>,
    ) {
        self.request.accepts = service
            .compression
            .as_ref()
            .and_then(|rules| encoding::negotiate(head, &cx.fields, &rules.codings));
        let targets = &service.pools[self.request.pool];
        if targets.scheduler.kind == SchedulerKind::Hash {
            let key = &targets.hash_key;
            let hash = hash_of_request(key, self.peer, target, head, &cx.fields);
            self.request.selection.set_hash(hash);
        }
        let mut add = Vec::new();
        if let Some(sticky) = &targets.sticky {
            self.look_for_sign(sticky, head, &mut cx.fields, &mut add);
        }
        let rewritten = self.edit_request(target, head, &mut cx.fields, &mut add);
        let asked = service.asked(target, request.path_in(head));
        let route = self.request.route.and_then(|at| service.routes.get(at));
        let host = self.host_of_nameless(head, request, &cx.fields);
        let edit = RequestEdit {
            add: &add,
            route: route.map(|route| &route.edits),
            client: self.introduction(),
            host: host.as_bytes(),
            version: self.version(request),
            path: Some(rewritten.as_deref().unwrap_or(asked)),
            close: service.idle_servers == 0,
        };
        self.to_server = cx.buffer().into();
        write_request(head, request, &cx.fields, &edit, &mut self.to_server.bytes);
    }

    /// The host of a client that named none: where it connected to.
    fn host_of_nameless(&self, head: &[u8], request: &Request, fields: &[Field]) -> String {
        if !request.http10 || request.host_in(head, fields).is_some() {
            return String::new();
        }
        let own = || socket::own_address(self.transport.socket()?);
        let address = self.spoken_to.or_else(own);
        address.map_or_else(|| self.local.service.host.clone(), |it| it.to_string())
    }

    /// What servers are told of the client.
    fn introduction(&self) -> Option<Client> {
        let service = &self.local.service;
        let address = self.peer.ip();
        (service.forwarded != Forwarded::Off).then(|| Client {
            address,
            secure: self.transport.is_secure(),
            trusted: service
                .trusted
                .iter()
                .any(|network| network.contains(address)),
            by: service.forwarded,
        })
    }

    /// The version that the client speaks, for `Via`.
    pub(super) const fn version(&self, request: &Request) -> &'static str {
        match request.http10 {
            _ if self.is_stream() => "2",
            true => "1.0",
            false => "1.1",
        }
    }

    /// Keeps what belongs to a later request.
    pub(super) fn keep(&mut self, cx: &mut Context, octets: &[u8]) {
        self.scanned = 0;
        if octets.is_empty() {
            return;
        }
        if self.input.capacity() == 0 {
            self.input = cx.buffer();
        }
        self.input.extend_from_slice(octets);
    }
}
