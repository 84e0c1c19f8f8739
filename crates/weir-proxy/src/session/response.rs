//! Passing on a request's rest and its response.

use std::rc::Rc;

use weir_http::{ResponseEdit, ServerEnd, Upload};
use weir_select::{Fault, Replay};
use weir_sys::{Clock, now_ns};

use super::record::Part;
use super::state::{Phase, Tunnel};
use super::{Session, Step};
use crate::context::{Context, HEAD_ROOM};
use crate::slab::Key;
use crate::socket::{Read, Written};

impl Session {
    /// One turn of an exchange.
    pub(super) fn pass_on(&mut self, key: Key, cx: &mut Context) -> Step {
        let asked = self.send_request(key, cx);
        if !matches!(self.phase, Phase::Exchange) || asked == Step::Close {
            return asked;
        }
        let answered = self.take_response(key, cx);
        if !matches!(self.phase, Phase::Exchange) || answered == Step::Close {
            return answered;
        }
        let waits = asked == Step::Pending && answered == Step::Pending;
        let took = std::mem::take(&mut self.made_progress);
        if waits && !took {
            return Step::Pending;
        }
        let client = self.waits_for_client(cx);
        let timeouts = &self.local.service.timeouts;
        let begins = self.request.exchange.request_done() && !self.request.exchange.is_answered();
        let ms = match client {
            true => timeouts.client,
            false if begins => timeouts.response,
            false => timeouts.server,
        };
        self.wait(key, cx, ms);
        if waits { Step::Pending } else { Step::Continue }
    }

    /// What is ready to be sent, then what the client still sends.
    fn send_request(&mut self, key: Key, cx: &mut Context) -> Step {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        if !self.to_server.is_sent() || upstream.transport.holds() {
            if !upstream.ready.writable {
                return Step::Pending;
            }
            let rest = self.to_server.unsent();
            return match upstream.transport.write(rest) {
                // It may have answered before it closed.
                Written::Broken if upstream.ready.readable => Step::Pending,
                Written::Broken => self.server_broke(key, cx),
                Written::Some(octets) => {
                    upstream.ready.writable = octets == rest.len() && !upstream.transport.holds();
                    let moved = if upstream.ready.writable {
                        Step::Continue
                    } else {
                        Step::Pending
                    };
                    upstream
                        .target
                        .counters
                        .of(cx.worker)
                        .bytes_in
                        .add(octets as u64);
                    self.made_progress |= octets > 0;
                    self.to_server.sent += octets;
                    if self.to_server.is_sent()
                        && self.request.selection.replay() == Replay::Forbidden
                    {
                        cx.recycle(self.to_server.take());
                    }
                    moved
                }
            };
        }
        match self.drain_up(cx) {
            Some(true) => {}
            Some(false) => return Step::Pending,
            None if self.server_speaks(cx) => return Step::Pending,
            None => return self.break_off(key, cx),
        }
        if self.request.exchange.request_done() || !self.ready.readable {
            return Step::Pending;
        }
        if let Some(moved) = self.splice_request(key, cx) {
            return moved;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let moved = self.stream_request(key, cx, &mut scratch);
        cx.scratch = scratch;
        moved
    }

    fn stream_request(&mut self, key: Key, cx: &mut Context, scratch: &mut [u8]) -> Step {
        let octets = match self.transport.read(&mut self.ready, scratch) {
            Read::Some(octets) => octets,
            Read::Blocked => return Step::Pending,
            // The server would wait for the rest for ever.
            Read::End | Read::Broken => return Step::Close,
        };
        let Upload {
            forward, trailers, ..
        } = match self.receive(key, cx, &scratch[..octets]) {
            Ok(upload) => upload,
            Err(moved) => return moved,
        };
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        let sent = match upstream.transport.write(&scratch[..forward]) {
            Written::Some(sent) => sent,
            // Its answer, if there is one, is read next.
            Written::Broken if upstream.ready.readable => return Step::Continue,
            Written::Broken => return self.break_off(key, cx),
        };
        upstream
            .target
            .counters
            .of(cx.worker)
            .bytes_in
            .add((forward + trailers.len()) as u64);
        upstream.ready.writable = sent == forward && !upstream.transport.holds();
        self.to_server
            .bytes
            .extend_from_slice(&scratch[sent..forward]);
        self.to_server.bytes.extend_from_slice(&trailers);
        Step::Continue
    }

    /// What belongs to the request of the octets that came; or what becomes of a client that sent others.
    pub(super) fn receive(
        &mut self,
        key: Key,
        cx: &mut Context,
        octets: &[u8],
    ) -> Result<Upload, Step> {
        let upload = match self.request.exchange.client_data(octets) {
            Ok(upload) => upload,
            Err(refusal) => return Err(self.fail(key, cx, refusal.request_status())),
        };
        if !self
            .local
            .service
            .limits
            .allows_body(self.request.exchange.request_content())
        {
            return Err(self.fail(key, cx, 413));
        }
        self.keep(cx, &octets[upload.consumed..]);
        self.count_in(upload.consumed);
        let counters = self.local.service.counters.of(cx.worker);
        counters.bytes_in.add(upload.consumed as u64);
        Ok(upload)
    }

    /// Reads from the server as long as the client takes what came before.
    fn take_response(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.flush(cx) {
            None => return Step::Close,
            Some(false) => return Step::Pending,
            Some(true) => {}
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        if !upstream.ready.readable {
            return Step::Pending;
        }
        if let Some(moved) = self.splice_response(key, cx) {
            return moved;
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        let room = if self.request.exchange.is_answered() {
            self.read_size
        } else {
            HEAD_ROOM
        };
        let room = room.min(self.transport.worth_reading());
        let mut scratch = std::mem::take(&mut cx.scratch);
        let found = upstream
            .transport
            .read(&mut upstream.ready, &mut scratch[..room]);
        let moved = match found {
            Read::Some(octets) => {
                if upstream.input.is_empty() {
                    self.answer(key, cx, &scratch[..octets])
                } else {
                    let mut input = std::mem::take(&mut upstream.input);
                    input.extend_from_slice(&scratch[..octets]);
                    self.answer(key, cx, &input)
                }
            }
            Read::Blocked => Step::Pending,
            Read::End | Read::Broken => self.server_ended(key, cx),
        };
        cx.scratch = scratch;
        moved
    }

    fn answer(&mut self, key: Key, cx: &mut Context, octets: &[u8]) -> Step {
        let local = Rc::clone(&self.local);
        let targets = local.service.pools.get(self.request.pool);
        let first = !self.request.exchange.is_answered();
        if first {
            self.began_to_answer(cx);
        }
        let before = self.remember(cx, first);
        let last = self.is_last(cx);
        let mut out = std::mem::take(&mut cx.out);
        out.clear();
        let head = &local.service.head;
        let (mut room, mut gone) = (Vec::new(), Vec::new());
        let touch = match targets {
            Some(targets) if first => self.touch(&local.service, targets, &mut room, &mut gone),
            _ => ResponseEdit::default(),
        };
        let step =
            self.request
                .exchange
                .server_data(octets, head, last, &touch, &mut cx.fields, &mut out);
        if let Some(before) = before
            && let Some(moved) = self.repeat_after(key, cx, before, step.as_ref().ok())
        {
            cx.out = out;
            return moved;
        }
        let Ok(step) = step else {
            cx.out = out;
            if first {
                self.request.exchange.discard_response();
            }
            return self.break_off(key, cx);
        };
        if !self.encode(cx, &step, &mut out) {
            cx.out = out;
            return self.fail(key, cx, 502);
        }
        let there = self.deliver(cx, &mut out, &octets[step.forward]);
        cx.out = out;
        if !there {
            return Step::Close;
        }
        let excess = &octets[step.consumed..];
        if self.request.exchange.response_done() {
            let stays = self.request.exchange.server_persists() && excess.is_empty();
            return self.finish(key, cx, stays);
        }
        if self.request.exchange.is_tunnel() {
            return self.become_tunnel(key, cx);
        }
        if !excess.is_empty()
            && let Some(upstream) = cx.upstreams.get_mut(self.server)
        {
            upstream.input = excess.to_vec();
        }
        Step::Continue
    }

    /// The server ended in the middle, or spoke nonsense.
    pub(super) fn break_off(&mut self, key: Key, cx: &mut Context) -> Step {
        self.judge(cx, Some(Fault::Broken));
        self.fail(key, cx, 502)
    }

    /// The first octets of a response: how long they took.
    fn began_to_answer(&mut self, cx: &Context) {
        if self.request.sent_ns != 0
            && let Some(upstream) = cx.upstreams.get(self.server)
        {
            let us = (now_ns(Clock::Monotonic) - self.request.sent_ns) / 1_000;
            upstream.target.load.record_latency(us, cx.now);
            self.request.sent_ns = 0;
        }
        if self.log_record.is_some() {
            self.mark(Part::Response);
        }
    }

    pub(super) fn server_ended(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.request.exchange.server_end() {
            ServerEnd::Complete => {
                let mut rest = Vec::new();
                if !self.end_encoding(&mut rest) || !self.deliver(cx, &mut rest, &[]) {
                    return Step::Close;
                }
                self.finish(key, cx, false)
            }
            ServerEnd::Unanswered => self.server_broke(key, cx),
            ServerEnd::Interim => self.break_off(key, cx),
            // The client sees by the end of its connection that something is missing.
            ServerEnd::Truncated => {
                self.local.service.counters.of(cx.worker).errors.add(1);
                self.blame(*b"SD");
                self.judge(cx, Some(Fault::Broken));
                self.leave_server(cx, false);
                self.record(cx, self.request.exchange.status());
                self.after_response(key, cx, false)
            }
        }
    }

    pub(super) fn finish(&mut self, key: Key, cx: &mut Context, server_persists: bool) -> Step {
        let status = self.request.exchange.status();
        self.judge(cx, (status >= 500).then_some(Fault::Status));
        self.leave_server(cx, server_persists);
        self.record(cx, status);
        let stays = self.request.exchange.client_persists();
        self.after_response(key, cx, stays)
    }

    /// The client's octets behind its request belong to the new protocol.
    fn become_tunnel(&mut self, key: Key, cx: &mut Context) -> Step {
        self.judge(cx, None);
        self.phase = Phase::Tunnel(Tunnel::default());
        self.request.deadline_ms = u64::MAX;
        self.to_server = std::mem::take(&mut self.input).into();
        let ms = self.local.service.timeouts.tunnel;
        self.wait(key, cx, ms);
        Step::Continue
    }
}
