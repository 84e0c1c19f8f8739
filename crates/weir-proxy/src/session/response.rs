//! Passing on a request's rest and its response.

use std::rc::Rc;

use weir_http::{ResponseEdit, ServerEnd, Upload};
use weir_select::{Fault, Replay};
use weir_sys::{Clock, now_ns};

use super::record::Part;
use super::{Moved, Phase, Session};
use crate::context::{Context, HEAD_ROOM};
use crate::slab::Key;
use crate::socket::{Read, Written};

impl Session {
    /// One turn of an exchange.
    pub(super) fn pass_on(&mut self, key: Key, cx: &mut Context) -> Moved {
        let asked = self.send_request(key, cx);
        if self.phase != Phase::Exchange || asked == Moved::Ends {
            return asked;
        }
        let answered = self.take_response(key, cx);
        if self.phase != Phase::Exchange || answered == Moved::Ends {
            return answered;
        }
        let waits = asked == Moved::Waits && answered == Moved::Waits;
        let took = std::mem::take(&mut self.took);
        if waits && !took {
            return Moved::Waits;
        }
        let client = self.waits_for_client(cx);
        let timeouts = &self.local.service.timeouts;
        let begins = self.exchange.request_done() && !self.exchange.is_answered();
        let ms = match client {
            true => timeouts.client,
            false if begins => timeouts.response,
            false => timeouts.server,
        };
        self.wait(key, cx, ms);
        if waits { Moved::Waits } else { Moved::On }
    }

    /// What is ready to be sent, then what the client still sends.
    fn send_request(&mut self, key: Key, cx: &mut Context) -> Moved {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Moved::Ends;
        };
        if self.sent < self.request.len() || upstream.transport.holds() {
            if !upstream.ready.writable {
                return Moved::Waits;
            }
            let rest = &self.request[self.sent..];
            return match upstream.transport.write(rest) {
                // It may have answered before it closed.
                Written::Broken if upstream.ready.readable => Moved::Waits,
                Written::Broken => self.server_broke(key, cx),
                Written::Some(octets) => {
                    upstream.ready.writable = octets == rest.len() && !upstream.transport.holds();
                    let moved = if upstream.ready.writable {
                        Moved::On
                    } else {
                        Moved::Waits
                    };
                    upstream
                        .target
                        .counters
                        .of(cx.worker)
                        .bytes_in
                        .add(octets as u64);
                    self.took |= octets > 0;
                    self.sent += octets;
                    if self.sent == self.request.len()
                        && self.selection.replay() == Replay::Forbidden
                    {
                        self.sent = 0;
                        cx.recycle(std::mem::take(&mut self.request));
                    }
                    moved
                }
            };
        }
        match self.drain_up(cx) {
            Some(true) => {}
            Some(false) => return Moved::Waits,
            None if self.server_speaks(cx) => return Moved::Waits,
            None => return self.break_off(key, cx),
        }
        if self.exchange.request_done() || !self.ready.readable {
            return Moved::Waits;
        }
        if let Some(moved) = self.splice_request(key, cx) {
            return moved;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let moved = self.stream_request(key, cx, &mut scratch);
        cx.scratch = scratch;
        moved
    }

    fn stream_request(&mut self, key: Key, cx: &mut Context, scratch: &mut [u8]) -> Moved {
        let octets = match self.transport.read(&mut self.ready, scratch) {
            Read::Some(octets) => octets,
            Read::Blocked => return Moved::Waits,
            // The server would wait for the rest for ever.
            Read::End | Read::Broken => return Moved::Ends,
        };
        let Upload {
            forward, trailers, ..
        } = match self.receive(key, cx, &scratch[..octets]) {
            Ok(upload) => upload,
            Err(moved) => return moved,
        };
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Moved::Ends;
        };
        let sent = match upstream.transport.write(&scratch[..forward]) {
            Written::Some(sent) => sent,
            // Its answer, if there is one, is read next.
            Written::Broken if upstream.ready.readable => return Moved::On,
            Written::Broken => return self.break_off(key, cx),
        };
        upstream
            .target
            .counters
            .of(cx.worker)
            .bytes_in
            .add((forward + trailers.len()) as u64);
        upstream.ready.writable = sent == forward && !upstream.transport.holds();
        self.request.extend_from_slice(&scratch[sent..forward]);
        self.request.extend_from_slice(&trailers);
        Moved::On
    }

    /// What belongs to the request of the octets that came; or what becomes of a client that sent others.
    pub(super) fn receive(
        &mut self,
        key: Key,
        cx: &mut Context,
        octets: &[u8],
    ) -> Result<Upload, Moved> {
        let upload = match self.exchange.client_data(octets) {
            Ok(upload) => upload,
            Err(refusal) => return Err(self.fail(key, cx, refusal.request_status())),
        };
        if !self
            .local
            .service
            .limits
            .allows_body(self.exchange.request_content())
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
    fn take_response(&mut self, key: Key, cx: &mut Context) -> Moved {
        match self.flush(cx) {
            None => return Moved::Ends,
            Some(false) => return Moved::Waits,
            Some(true) => {}
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Moved::Ends;
        };
        if !upstream.ready.readable {
            return Moved::Waits;
        }
        if let Some(moved) = self.splice_response(key, cx) {
            return moved;
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Moved::Ends;
        };
        let room = if self.exchange.is_answered() {
            self.room
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
            Read::Blocked => Moved::Waits,
            Read::End | Read::Broken => self.server_ended(key, cx),
        };
        cx.scratch = scratch;
        moved
    }

    fn answer(&mut self, key: Key, cx: &mut Context, octets: &[u8]) -> Moved {
        let local = Rc::clone(&self.local);
        let targets = local.service.pools.get(self.pool);
        let first = !self.exchange.is_answered();
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
        let step = self
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
                self.exchange.discard_response();
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
            return Moved::Ends;
        }
        let excess = &octets[step.consumed..];
        if self.exchange.response_done() {
            let stays = self.exchange.server_persists() && excess.is_empty();
            return self.finish(key, cx, stays);
        }
        if self.exchange.is_tunnel() {
            return self.become_tunnel(key, cx);
        }
        if !excess.is_empty()
            && let Some(upstream) = cx.upstreams.get_mut(self.server)
        {
            upstream.input = excess.to_vec();
        }
        Moved::On
    }

    /// The server ended in the middle, or spoke nonsense.
    pub(super) fn break_off(&mut self, key: Key, cx: &mut Context) -> Moved {
        self.judge(cx, Some(Fault::Broken));
        self.fail(key, cx, 502)
    }

    /// The first octets of a response: how long they took.
    fn began_to_answer(&mut self, cx: &Context) {
        if self.asked != 0
            && let Some(upstream) = cx.upstreams.get(self.server)
        {
            let us = (now_ns(Clock::Monotonic) - self.asked) / 1_000;
            upstream.target.load.record_latency(us, cx.now);
            self.asked = 0;
        }
        if self.note.is_some() {
            self.mark(Part::Response);
        }
    }

    pub(super) fn server_ended(&mut self, key: Key, cx: &mut Context) -> Moved {
        match self.exchange.server_end() {
            ServerEnd::Complete => {
                let mut rest = Vec::new();
                if !self.end_encoding(&mut rest) || !self.deliver(cx, &mut rest, &[]) {
                    return Moved::Ends;
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
                self.record(cx, self.exchange.status());
                self.after_response(key, cx, false)
            }
        }
    }

    pub(super) fn finish(&mut self, key: Key, cx: &mut Context, server_persists: bool) -> Moved {
        let status = self.exchange.status();
        self.judge(cx, (status >= 500).then_some(Fault::Status));
        self.leave_server(cx, server_persists);
        self.record(cx, status);
        let stays = self.exchange.client_persists() && !self.client_ended;
        self.after_response(key, cx, stays)
    }

    /// The client's octets behind its request belong to the new protocol.
    fn become_tunnel(&mut self, key: Key, cx: &mut Context) -> Moved {
        self.judge(cx, None);
        (self.phase, self.until) = (Phase::Tunnel, u64::MAX);
        self.request = std::mem::take(&mut self.input);
        self.sent = 0;
        let ms = self.local.service.timeouts.tunnel;
        self.wait(key, cx, ms);
        Moved::On
    }
}
