//! Runs the exchange with a server: sends the rest of the request, and forwards its response.

use std::rc::Rc;

use weir_http::{RequestStep, ResponseEdit, ServerEnd};
use weir_select::{Fault, Replay};
use weir_sys::{Clock, now_ns};

use super::edit::ResponseTexts;
use super::record::Timer;
use super::state::{Phase, Tunnel};
use super::{Session, Step};
use crate::context::{Context, HEAD_BUFFER_BYTES};
use crate::plan::Detail;
use crate::slab::Key;
use crate::socket::{Read, Written};
use crate::times::Stage;

impl Session {
    /// Runs one step of an exchange, in both directions.
    pub(super) fn run_exchange(&mut self, key: Key, cx: &mut Context) -> Step {
        let sent_step = self.flush_request(key, cx);
        if !matches!(self.phase, Phase::Exchange) || sent_step == Step::Close {
            return sent_step;
        }
        let read_step = self.read_response(key, cx);
        if !matches!(self.phase, Phase::Exchange) || read_step == Step::Close {
            return read_step;
        }
        let is_pending = sent_step == Step::Pending && read_step == Step::Pending;
        let made_progress = std::mem::take(&mut self.made_progress);
        if is_pending && !made_progress {
            return Step::Pending;
        }
        let is_client_slow = self.is_client_slow(cx);
        let timeouts = self.timeouts();
        let awaits_response =
            self.request.exchange.request_done() && !self.request.exchange.is_answered();
        let ms = match is_client_slow {
            true => timeouts.client,
            false if awaits_response => timeouts.response,
            false => timeouts.server,
        };
        self.set_deadline(key, cx, ms);
        if is_pending {
            Step::Pending
        } else {
            Step::Continue
        }
    }

    /// Sends the buffered bytes to the server, then new bytes from the client.
    fn flush_request(&mut self, key: Key, cx: &mut Context) -> Step {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        if !self.to_server.is_sent() || upstream.transport.has_unsent() {
            if !upstream.ready.writable {
                return Step::Pending;
            }
            let unsent = self.to_server.unsent();
            return match upstream.transport.write(unsent) {
                // The server may have sent a response before it closed the connection.
                Written::Broken if upstream.ready.readable => Step::Pending,
                Written::Broken => self.handle_server_loss(key, cx),
                Written::Some(bytes) => {
                    upstream.ready.writable =
                        bytes == unsent.len() && !upstream.transport.has_unsent();
                    let step = if upstream.ready.writable {
                        Step::Continue
                    } else {
                        Step::Pending
                    };
                    upstream
                        .target
                        .counters
                        .of(cx.worker)
                        .bytes_in
                        .add(bytes as u64);
                    self.made_progress |= bytes > 0;
                    self.to_server.sent += bytes;
                    if self.to_server.is_sent()
                        && self.request.selection.replay() == Replay::Forbidden
                    {
                        cx.recycle(self.to_server.take());
                    }
                    step
                }
            };
        }
        match self.flush_up(cx) {
            Some(true) => {}
            Some(false) => return Step::Pending,
            None if self.has_response_bytes(cx) => return Step::Pending,
            None => return self.fail_response(key, cx),
        }
        if self.request.exchange.request_done() || !self.ready.readable {
            return Step::Pending;
        }
        if !self.is_copied()
            && let Some(step) = self.splice_request(key, cx)
        {
            return step;
        }
        let mut scratch = std::mem::take(&mut cx.scratch);
        let step = self.stream_request(key, cx, &mut scratch);
        cx.scratch = scratch;
        step
    }

    fn stream_request(&mut self, key: Key, cx: &mut Context, scratch: &mut [u8]) -> Step {
        let bytes = match self.transport.read(&mut self.ready, scratch) {
            Read::Some(bytes) => bytes,
            Read::Blocked => return Step::Pending,
            // The server would wait forever for the rest.
            Read::End | Read::Broken => return Step::Close,
        };
        let RequestStep {
            forward_len,
            trailers,
            ..
        } = match self.receive(key, cx, &scratch[..bytes]) {
            Ok(request_step) => request_step,
            Err(step) => return step,
        };
        self.copy_content(cx, [&scratch[..forward_len], &trailers]);
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        let sent_bytes = match upstream.transport.write(&scratch[..forward_len]) {
            Written::Some(sent_bytes) => sent_bytes,
            // The server's response, if any, is read next.
            Written::Broken if upstream.ready.readable => return Step::Continue,
            Written::Broken => return self.fail_response(key, cx),
        };
        upstream
            .target
            .counters
            .of(cx.worker)
            .bytes_in
            .add((forward_len + trailers.len()) as u64);
        upstream.ready.writable = sent_bytes == forward_len && !upstream.transport.has_unsent();
        self.to_server
            .bytes
            .extend_from_slice(&scratch[sent_bytes..forward_len]);
        self.to_server.bytes.extend_from_slice(&trailers);
        Step::Continue
    }

    /// Parses request body bytes. Returns `Err` if they are invalid or exceed a limit.
    pub(super) fn receive(
        &mut self,
        key: Key,
        cx: &mut Context,
        bytes: &[u8],
    ) -> Result<RequestStep, Step> {
        let mut request_step = match self.request.exchange.process_client_data(bytes) {
            Ok(request_step) => request_step,
            Err(error) => return Err(self.fail(key, cx, error.request_status())),
        };
        self.filter_trailers(&mut request_step.trailers);
        let content = self.request.exchange.request_content();
        let limit = self.body_limit();
        if !self.local.service.limits.allows_body(content) || limit > 0 && content > limit {
            return Err(self.fail(key, cx, 413));
        }
        self.buffer_input(cx, &bytes[request_step.consumed..]);
        self.count_in(request_step.consumed);
        let counters = self.local.service.counters.of(cx.worker);
        counters.bytes_in.add(request_step.consumed as u64);
        self.count_h2_bytes(cx, Detail::H2BytesIn, request_step.consumed);
        Ok(request_step)
    }

    /// Reads from the server, if the client has received everything that was read before.
    fn read_response(&mut self, key: Key, cx: &mut Context) -> Step {
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
        if let Some(step) = self.splice_response(key, cx) {
            return step;
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        let max = if self.request.exchange.is_answered() {
            self.read_size
        } else {
            HEAD_BUFFER_BYTES
        };
        let max = max.min(self.transport.useful_read_size());
        let mut scratch = std::mem::take(&mut cx.scratch);
        let read = upstream
            .transport
            .read(&mut upstream.ready, &mut scratch[..max]);
        let step = match read {
            Read::Some(bytes) => {
                if upstream.input.is_empty() {
                    self.handle_response(key, cx, &scratch[..bytes])
                } else {
                    let mut input = std::mem::take(&mut upstream.input);
                    input.extend_from_slice(&scratch[..bytes]);
                    self.handle_response(key, cx, &input)
                }
            }
            Read::Blocked => Step::Pending,
            Read::End | Read::Broken => self.handle_server_end(key, cx),
        };
        cx.scratch = scratch;
        step
    }

    fn handle_response(&mut self, key: Key, cx: &mut Context, bytes: &[u8]) -> Step {
        let local = Rc::clone(&self.local);
        let targets = local.service.pools.get(self.request.pool);
        let is_first = !self.request.exchange.is_answered();
        if is_first {
            self.record_first_byte(cx);
        }
        let snapshot = self.snapshot_for_retry(cx, is_first);
        let is_last = self.is_last(cx);
        let mut out = std::mem::take(&mut cx.out);
        out.clear();
        let head = &local.service.head;
        let edits_response = is_first && !self.is_copy();
        let mut texts = match edits_response {
            true => self.response_texts(&local.service),
            false => ResponseTexts::default(),
        };
        let edit = match targets {
            Some(targets) if edits_response => {
                self.response_edit(&local.service, targets, bytes, &mut texts)
            }
            _ => ResponseEdit::default(),
        };
        if is_first {
            self.log_response_fields(bytes);
        }
        let exchange = &mut self.request.exchange;
        let step =
            exchange.process_server_data(bytes, head, is_last, &edit, &mut cx.fields, &mut out);
        if let Some(snapshot) = snapshot
            && let Some(retry_step) = self.retry_unwanted(key, cx, snapshot, step.as_ref().ok())
        {
            cx.out = out;
            return retry_step;
        }
        let Ok(step) = step else {
            cx.out = out;
            if is_first {
                self.request.exchange.discard_response();
            }
            return self.fail_response(key, cx);
        };
        if is_first && self.request.exchange.is_answered() && self.is_auth_request() {
            self.send_verdict(cx, bytes);
        }
        if !self.encode(cx, &step, &mut out) {
            cx.out = out;
            return self.fail(key, cx, 502);
        }
        let is_connected = self.send(cx, &mut out, &bytes[step.forward]);
        cx.out = out;
        if !is_connected {
            return Step::Close;
        }
        let excess = &bytes[step.consumed..];
        if self.request.exchange.response_done() {
            let persists = self.request.exchange.server_persists() && excess.is_empty();
            return self.finish_exchange(key, cx, persists);
        }
        if self.request.exchange.is_tunnel() {
            return self.upgrade_to_tunnel(key, cx);
        }
        if !excess.is_empty()
            && let Some(upstream) = cx.upstreams.get_mut(self.server)
        {
            upstream.input = excess.to_vec();
        }
        Step::Continue
    }

    /// Handles an invalid or incomplete response.
    pub(super) fn fail_response(&mut self, key: Key, cx: &mut Context) -> Step {
        self.record_result(cx, Some(Fault::BadResponse));
        self.fail(key, cx, 502)
    }

    /// Records the time to the first byte of the response.
    fn record_first_byte(&mut self, cx: &Context) {
        if self.request.sent_ns != 0
            && let Some(upstream) = cx.upstreams.get(self.server)
        {
            let us = (now_ns(Clock::Monotonic) - self.request.sent_ns) / 1_000;
            upstream.target.load.record_latency(us, cx.now);
            self.request.sent_ns = 0;
        }
        self.request.times.end(Stage::Response, cx.now_us);
        self.trace_response_start();
        if self.log_record.is_some() {
            self.stop_timer(Timer::Response);
        }
    }

    pub(super) fn handle_server_end(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.request.exchange.handle_server_end() {
            ServerEnd::Complete => {
                let mut rest = Vec::new();
                if !self.end_encoding(cx, &mut rest) || !self.send(cx, &mut rest, &[]) {
                    return Step::Close;
                }
                self.finish_exchange(key, cx, false)
            }
            ServerEnd::Unanswered => self.handle_server_loss(key, cx),
            ServerEnd::Interim => self.fail_response(key, cx),
            // The client detects the truncation when the connection closes.
            ServerEnd::Truncated => {
                self.count_error(cx);
                self.set_termination(*b"SD");
                self.record_result(cx, Some(Fault::BadResponse));
                self.leave_server(cx, false);
                self.record(cx, self.request.exchange.client_status());
                self.after_response(key, cx, false)
            }
        }
    }

    pub(super) fn finish_exchange(
        &mut self,
        key: Key,
        cx: &mut Context,
        server_persists: bool,
    ) -> Step {
        let status = self.request.exchange.status();
        self.record_result(cx, (status >= 500).then_some(Fault::ErrorStatus));
        self.leave_server(cx, server_persists);
        self.record(cx, self.request.exchange.client_status());
        let persists = self.request.exchange.client_persists();
        self.after_response(key, cx, persists)
    }

    /// Converts the exchange to a tunnel. Bytes from the client after its request belong to the new protocol.
    fn upgrade_to_tunnel(&mut self, key: Key, cx: &mut Context) -> Step {
        self.record_result(cx, None);
        self.phase = Phase::Tunnel(Tunnel::default());
        self.request.deadline_ms = u64::MAX;
        self.to_server = std::mem::take(&mut self.input).into();
        let ms = self.timeouts().tunnel;
        self.set_deadline(key, cx, ms);
        Step::Continue
    }
}
