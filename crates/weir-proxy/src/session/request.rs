//! From the client's octets to a server: heads, the choice, connecting, and trying again.

use std::rc::Rc;

use rustix::io::Errno;
use weir_http::head::{self, head_end};
use weir_http::{
    Client, Exchange, Field, Request, RequestEdit, RequestPath, Upload, encoding, path, route,
    write_request,
};
use weir_model::{Forwarded, ProxyProtocol, RetryCondition, RouteAction, SchedulerKind};
use weir_sys::{Clock, now_ns};

use super::choice::hash_of;
use super::record::Part;
use super::{Moved, Phase, Session};
use crate::balance::{Asked, Tried};
use crate::context::{Context, HEAD_ROOM};
use crate::h2::{PREFACE, first_stream};
use crate::plan::{Fault, Service};
use crate::slab::Key;
use crate::socket::{self, Read};
use crate::tls::Handshake;

impl Session {
    /// Reads until a head is complete.
    pub(super) fn take_request(&mut self, key: Key, cx: &mut Context) -> Moved {
        match self.flush(cx) {
            None => return Moved::Ends,
            Some(false) => return Moved::Waits,
            Some(true) => {}
        }
        // Who stays behind because of an upgrade, or because its service is gone, is told to leave by an answer, never
        // by silence.
        if cx.draining && !cx.handing && self.served && self.input.is_empty() {
            return Moved::Ends;
        }
        if self.looked < self.input.len() {
            return self.look(key, cx);
        }
        if !self.ready.readable {
            return Moved::Waits;
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
                    Moved::On
                }
            }
            Read::Blocked => Moved::Waits,
            Read::End | Read::Broken => Moved::Ends,
        };
        cx.scratch = scratch;
        moved
    }

    /// Looks into what was kept: octets that follow an earlier request, or a head that came in pieces.
    fn look(&mut self, key: Key, cx: &mut Context) -> Moved {
        match head_end(&self.input, self.looked) {
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
                self.looked = self.input.len();
                Moved::On
            }
            Err(refusal) => self.refuse(key, cx, refusal.request_status()),
        }
    }

    /// Reads a head from octets that begin with one, and goes on to a server.
    fn understand(&mut self, key: Key, cx: &mut Context, octets: &[u8]) -> Moved {
        let local = Rc::clone(&self.local);
        let service = &local.service;
        if octets.starts_with(PREFACE) && self.may_switch() && !self.served {
            self.input = octets.to_vec();
            return Moved::Http2;
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
        if service.timeouts.total > 0 {
            self.until = cx.now + service.timeouts.total;
        }
        self.keep(cx, &rest[body..]);
        self.exchange = exchange;
        let mut room = std::mem::take(&mut cx.path);
        let ended = self.route(key, cx, service, head, &request, &mut room);
        cx.path = room;
        if let Some(moved) = ended {
            return moved;
        }
        self.request.extend_from_slice(&rest[..forward]);
        self.request.extend_from_slice(&trailers);
        self.tried = Tried::default();
        (self.attempts, self.declined) = (0, 0);
        self.fresh = false;
        self.proceed(key, cx, &request)
    }

    /// The head that the octets begin with; or what becomes of a client that sent another.
    #[inline]
    fn read_head(&mut self, key: Key, cx: &mut Context, octets: &[u8]) -> Result<Request, Moved> {
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
                self.looked = octets.len();
                Err(Moved::On)
            }
            Err(_) if self.may_switch() && !self.served && head::is_other_protocol(octets) => {
                Err(Moved::Ends)
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
    ) -> Option<Moved> {
        (self.pool, self.route) = (0, None);
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
    ) -> Option<Moved> {
        if self.is_misdirected(head, request, &cx.fields) {
            return Some(self.fail(key, cx, 421));
        }
        if let Some(status) = self.admit(target, head, request, &cx.fields) {
            return Some(self.fail(key, cx, status));
        }
        let client = self.peer.ip();
        let at = route::choose(&service.routes, client, target, head, request, &cx.fields)?;
        self.route = Some(at);
        match (&service.routes[at].action, service.lead(at, &mut cx.dice)) {
            (_, Some(pool)) => self.pool = pool,
            (RouteAction::Redirect { to, status }, _) => {
                let host = self.host_of_nameless(head, request, &cx.fields);
                let host = host.as_bytes();
                let location = route::location(to, head, request, &cx.fields, host);
                return Some(self.answer_route(key, cx, *status, Some(&location), ""));
            }
            (RouteAction::Answer { status, body }, _) => {
                return Some(self.answer_route(key, cx, *status, None, body));
            }
            (RouteAction::Pool(_) | RouteAction::Split(_), None) => {}
        }
        None
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
        self.accepts = service
            .compression
            .as_ref()
            .and_then(|rules| encoding::negotiate(head, &cx.fields, &rules.codings));
        let targets = &service.pools[self.pool];
        if targets.scheduler.kind == SchedulerKind::Hash {
            self.hash = hash_of(&targets.hash_key, self.peer, target, head, &cx.fields);
        }
        self.sticks_to = None;
        let mut add = Vec::new();
        if let Some(sticky) = &targets.sticky {
            self.look_for_sign(sticky, head, &mut cx.fields, &mut add);
        }
        let rewritten = self.edit_request(target, head, &mut cx.fields, &mut add);
        let asked = service.asked(target, request.path_in(head));
        let route = self.route.and_then(|at| service.routes.get(at));
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
        self.request = cx.buffer();
        write_request(head, request, &cx.fields, &edit, &mut self.request);
        self.sent = 0;
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
        self.looked = 0;
        if octets.is_empty() {
            return;
        }
        if self.input.capacity() == 0 {
            self.input = cx.buffer();
        }
        self.input.extend_from_slice(octets);
    }

    /// Chooses a server and gets a connection to it.
    pub(super) fn connect(&mut self, key: Key, cx: &mut Context) -> Moved {
        self.choose(key, cx, false)
    }

    /// The same; `called` = its turn has come.
    #[expect(clippy::too_many_lines, reason = "the steps of one request in order")]
    pub(super) fn choose(&mut self, key: Key, cx: &mut Context, called: bool) -> Moved {
        let local = Rc::clone(&self.local);
        let service = &local.service;
        self.led = true;
        loop {
            let targets = &service.pools[self.pool];
            let may_wait = self.attempts == 0 && targets.queue_ms > 0;
            if may_wait && !called && targets.line.len() > 0 && targets.is_busy() {
                return self.queue_up(targets, key, cx);
            }
            let asked = Asked {
                client: self.peer,
                hash: self.hash,
                sticks_to: self.sticks_to,
                tried: self.tried,
                now_ms: cx.now,
            };
            let place = local.balances.borrow_mut()[self.pool].pick(targets, &asked, &mut cx.dice);
            let Some(place) = place else {
                if may_wait && targets.is_busy() {
                    return self.queue_up(targets, key, cx);
                }
                if self.attempts == 0 && service.pools[self.pool].silent {
                    service.counters.of(cx.worker).errors.add(1);
                    self.blame_for(503);
                    return Moved::Ends;
                }
                if self.attempts == 0 {
                    return self.fail(key, cx, 503);
                }
                self.phase = Phase::Connect;
                return self.fail(key, cx, 502);
            };
            let target = &targets.list[place];
            if !target.load.take() {
                // Another worker was faster.
                continue;
            }
            if self.line.take().is_some() {
                self.mark(Part::Queue);
            }
            (self.place, self.chosen) = (place, true);
            let port = target.port.unwrap_or(self.port);
            if service.protocol == ProxyProtocol::Http {
                target.counters.of(cx.worker).requests.add(1);
                if !self.fresh
                    && targets.preamble.is_none()
                    && let Some(server) = cx.reuse(target, port, key, !self.replayable)
                {
                    self.server = server;
                    self.ask(key, cx);
                    return Moved::On;
                }
            }
            let pool = &service.pools[self.pool];
            let streams = pool.http2 && service.protocol == ProxyProtocol::Http;
            let opened = if streams {
                cx.open_stream(target, port, key, pool.tls.as_ref(), service)
            } else {
                cx.open(target, port, key, pool.tls.as_ref())
            };
            match opened {
                Ok(server) => {
                    self.server = server;
                    self.phase = Phase::Connect;
                    self.wait(key, cx, service.timeouts.connect);
                    // A stream may stand at once.
                    return if streams { Moved::On } else { Moved::Waits };
                }
                // None of the servers is to blame, and none of the others could be reached either.
                Err(Errno::MFILE | Errno::NFILE) => {
                    target.give_back();
                    return self.fail(key, cx, 503);
                }
                Err(error) => {
                    if socket::is_answer(error) {
                        target.judge(cx.worker, Some(Fault::Unreached));
                    }
                    target.give_back();
                    let listed = service.retry.has(RetryCondition::Connect);
                    if self.attempts >= service.retries || !listed {
                        self.phase = Phase::Connect;
                        return self.fail(key, cx, 502);
                    }
                    self.count_attempt(cx);
                }
            }
        }
    }

    /// The server's connection stands: the request goes out.
    fn ask(&mut self, key: Key, cx: &mut Context) {
        self.mark(Part::Connect);
        self.phase = Phase::Exchange;
        let service = &self.local.service;
        let learns = service.pools[self.pool].scheduler.kind == SchedulerKind::LeastTime;
        self.asked = if learns { now_ns(Clock::Monotonic) } else { 0 };
        let ms = service.timeouts.response;
        self.wait(key, cx, ms);
    }

    /// Notes how the server of the present exchange did: as it should, or not.
    pub(super) fn judge(&self, cx: &Context, fault: Option<Fault>) {
        if let Some(upstream) = cx.upstreams.get(self.server) {
            upstream.target.judge(cx.worker, fault);
        }
    }

    fn count_attempt(&mut self, cx: &Context) {
        self.attempts += 1;
        self.tried.add(self.place);
        self.local.service.counters.of(cx.worker).retries.add(1);
    }

    /// The server could not be reached, or was of no use: another one, or the answer `status`.
    pub(super) fn try_another(
        &mut self,
        key: Key,
        cx: &mut Context,
        fault: Fault,
        status: u16,
    ) -> Moved {
        self.judge(cx, Some(fault));
        self.leave_server(cx, false);
        let service = &self.local.service;
        let listed = fault != Fault::Unreached || service.retry.has(RetryCondition::Connect);
        if self.attempts >= service.retries || !listed || !self.others_are_left() {
            return self.fail(key, cx, status);
        }
        self.count_attempt(cx);
        self.connect(key, cx)
    }

    /// The connection that was begun stands, or does not.
    pub(super) fn await_server(&mut self, key: Key, cx: &mut Context) -> Moved {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Moved::Ends;
        };
        if !upstream.ready.writable && !upstream.ready.ended {
            return Moved::Waits;
        }
        if upstream.transport.is_declined() {
            return self.go_elsewhere(key, cx);
        }
        if upstream.ready.broken || !upstream.transport.is_connected() {
            return self.try_another(key, cx, Fault::Unreached, 502);
        }
        let service = Rc::clone(&self.local);
        let targets = service.service.pools.get(self.pool);
        if let Some(version) = targets.and_then(|targets| targets.preamble)
            && !self.introduce(version, cx)
        {
            return self.try_another(key, cx, Fault::Unreached, 502);
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Moved::Ends;
        };
        match upstream.transport.handshake(&mut upstream.ready) {
            Handshake::Done => {}
            Handshake::Waits => return Moved::Waits,
            Handshake::Failed => return self.mistrust(key, cx),
        }
        if self.local.service.protocol == ProxyProtocol::Tcp {
            self.mark(Part::Connect);
            self.judge(cx, None);
            self.phase = Phase::Tunnel;
            let ms = self.local.service.timeouts.tunnel;
            self.wait(key, cx, ms);
        } else {
            self.ask(key, cx);
        }
        Moved::On
    }
}
