//! From the client's octets to a server: heads, the choice, connecting, and trying again.

use std::rc::Rc;

use weir_http::head::{self, head_end};
use weir_http::{Client, Exchange, RequestEdit, route, write_request};
use weir_model::{ProxyProtocol, RouteAction};

use super::{Moved, Phase, Session};
use crate::balance::Tried;
use crate::context::{Context, HEAD_ROOM};
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
        if self.is_last(cx) && self.served && self.input.is_empty() {
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
        let request = match head::request(octets, &service.head, &mut cx.fields) {
            Ok(Some(request)) => request,
            Ok(None) => {
                if self.served && self.input.is_empty() {
                    self.wait(key, cx, service.timeouts.request);
                }
                self.input = cx.buffer();
                self.input.extend_from_slice(octets);
                self.looked = octets.len();
                return Moved::On;
            }
            Err(refusal) => return self.refuse(key, cx, refusal.request_status()),
        };
        let (head, rest) = octets.split_at(request.len);
        let mut exchange = Exchange::new(&request);
        let body = match exchange.client_data(rest) {
            Ok(body) => body,
            Err(refusal) => return self.refuse(key, cx, refusal.request_status()),
        };
        let counters = service.counters.of(cx.worker);
        counters.requests.add(1);
        counters.bytes_in.add((head.len() + body) as u64);
        self.pool = 0;
        if let Some(at) = route::choose(&service.routes, head, &request, &cx.fields) {
            match (&service.routes[at].action, service.leads[at]) {
                (_, Some(pool)) => self.pool = pool,
                (RouteAction::Redirect { to, status }, _) => {
                    let location = route::location(to, head, &request, &cx.fields);
                    self.exchange = exchange;
                    self.keep(cx, &rest[body..]);
                    return self.answer_route(key, cx, *status, Some(&location), "");
                }
                (RouteAction::Answer { status, body: text }, _) => {
                    self.exchange = exchange;
                    self.keep(cx, &rest[body..]);
                    return self.answer_route(key, cx, *status, None, text);
                }
                (RouteAction::Pool(_), None) => {}
            }
        }
        let client = service.forwarded.then(|| Client {
            address: self.peer.ip(),
            secure: self.transport.is_secure(),
            trusted: service
                .trusted
                .iter()
                .any(|network| network.contains(self.peer.ip())),
        });
        let edit = RequestEdit {
            client,
            host: service.host.as_bytes(),
            path: None,
            close: service.idle_servers == 0,
        };
        self.request = cx.buffer();
        write_request(head, &request, &cx.fields, &edit, &mut self.request);
        self.request.extend_from_slice(&rest[..body]);
        self.sent = 0;
        self.keep(cx, &rest[body..]);
        self.replayable = request.method.is_idempotent() && exchange.request_done();
        self.exchange = exchange;
        self.tried = Tried::default();
        self.attempts = 0;
        self.fresh = false;
        self.connect(key, cx)
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
        let local = Rc::clone(&self.local);
        let service = &local.service;
        loop {
            let place = local.balances.borrow_mut()[self.pool].pick(
                &service.pools[self.pool],
                self.peer,
                self.tried,
                &mut cx.dice,
            );
            let Some(place) = place else {
                if self.attempts == 0 && service.pools[self.pool].silent {
                    service.counters.of(cx.worker).errors.add(1);
                    return Moved::Ends;
                }
                return self.fail(key, cx, if self.attempts == 0 { 503 } else { 502 });
            };
            self.place = place;
            let target = &service.pools[self.pool].list[place];
            let port = target.port.unwrap_or(self.port);
            if service.protocol == ProxyProtocol::Http {
                target.counters.of(cx.worker).requests.add(1);
                if !self.fresh
                    && let Some(server) = cx.reuse(target, port, key, !self.replayable)
                {
                    self.server = server;
                    self.phase = Phase::Exchange;
                    self.wait(key, cx, service.timeouts.server);
                    return Moved::On;
                }
            }
            match cx.open(target, port, key, service.pools[self.pool].tls.as_ref()) {
                Ok(server) => {
                    self.server = server;
                    self.phase = Phase::Connect;
                    self.wait(key, cx, service.timeouts.connect);
                    return Moved::Waits;
                }
                Err(_) if self.attempts < service.retries => self.count_attempt(cx),
                Err(_) => return self.fail(key, cx, 502),
            }
        }
    }

    fn count_attempt(&mut self, cx: &Context) {
        self.attempts += 1;
        self.tried.add(self.place);
        self.local.service.counters.of(cx.worker).retries.add(1);
    }

    /// The server could not be reached: another one, or the answer `status`.
    pub(super) fn try_another(&mut self, key: Key, cx: &mut Context, status: u16) -> Moved {
        self.leave_server(cx, false);
        if self.attempts >= self.local.service.retries {
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
        if upstream.ready.broken || !socket::is_connected(&upstream.transport) {
            return self.try_another(key, cx, 502);
        }
        match upstream.transport.handshake(&mut upstream.ready) {
            Handshake::Done => {}
            Handshake::Waits => return Moved::Waits,
            Handshake::Failed => return self.mistrust(key, cx),
        }
        let timeouts = self.local.service.timeouts;
        if self.local.service.protocol == ProxyProtocol::Tcp {
            self.phase = Phase::Tunnel;
            self.wait(key, cx, timeouts.tunnel);
        } else {
            self.phase = Phase::Exchange;
            self.wait(key, cx, timeouts.server);
        }
        Moved::On
    }

    /// The server ended before it said anything. A waiting connection may just have been closed by it: that is nobody's
    /// failure, and a new one is tried. What cannot be sent twice without harm is answered.
    pub(super) fn server_broke(&mut self, key: Key, cx: &mut Context) -> Moved {
        let reused = cx
            .upstreams
            .get(self.server)
            .is_some_and(|upstream| upstream.reused);
        if !self.replayable {
            return self.fail(key, cx, 502);
        }
        self.sent = 0;
        if reused && !self.fresh {
            self.leave_server(cx, false);
            self.fresh = true;
            return self.connect(key, cx);
        }
        self.try_another(key, cx, 502)
    }
}
