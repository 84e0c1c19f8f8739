//! Writes to the client: sends and buffers bytes, generates Weir's own responses, and ends connections.

use std::rc::Rc;

use weir_http::{Exchange, LocalResponse};
use weir_model::ProxyProtocol;
use weir_select::Reason;
use weir_select::route::Rejection;

use super::edit::LocalResponseFields;
use super::state::{Linger, Phase, Watch};
use super::{LINGER_MS, Session, Step};
use crate::context::{Context, HEAD_BUFFER_BYTES};
use crate::page::{Content, Page};
use crate::plan::Detail;
use crate::slab::Key;
use crate::socket::{Read, Written};

impl Session {
    /// Sends the buffered bytes to the client. Returns whether all were sent, or `None` if the connection is broken.
    pub(super) fn flush(&mut self, cx: &mut Context) -> Option<bool> {
        if self.to_client.bytes.is_empty() && !self.transport.has_unsent() {
            return self.flush_down(cx);
        }
        if !self.ready.writable {
            return Some(false);
        }
        match self.transport.write(self.to_client.unsent()) {
            Written::Broken => None,
            Written::Some(bytes) => {
                self.made_progress |= bytes > 0;
                self.to_client.sent += bytes;
                if self.to_client.is_sent() {
                    // Memory is kept only while it is needed.
                    cx.recycle(self.to_client.take());
                    if !self.transport.has_unsent() {
                        return self.flush_down(cx);
                    }
                }
                self.ready.writable = !self.has_unsent_to_client();
                Some(self.ready.writable)
            }
        }
    }

    /// Sends the head and the body to the client, and buffers the bytes that the client does not accept yet. Returns
    /// false if the connection is broken.
    pub(super) fn send(&mut self, cx: &mut Context, head: &mut Vec<u8>, body: &[u8]) -> bool {
        /// Maximum body size in bytes at which appending the body to the head is cheaper than a vectored write.
        const MAX_JOINED: usize = 4096;
        let total = head.len() + body.len();
        if total == 0 {
            return true;
        }
        if self.is_copy() {
            return true;
        }
        self.count_out(total);
        self.count_h2_bytes(cx, Detail::H2BytesOut, total);
        self.local
            .service
            .counters
            .of(cx.worker)
            .bytes_out
            .add(total as u64);
        if let Some(upstream) = cx.upstreams.get(self.server) {
            upstream
                .target
                .counters
                .of(cx.worker)
                .bytes_out
                .add(total as u64);
        }
        let mut body = body;
        if !head.is_empty() && body.len() <= MAX_JOINED {
            head.extend_from_slice(body);
            body = &[];
        }
        if !self.to_client.bytes.is_empty() || !self.ready.writable {
            self.to_client.bytes.extend_from_slice(head);
            self.to_client.bytes.extend_from_slice(body);
            return true;
        }
        let result = match (head.is_empty(), body.is_empty()) {
            (_, true) => self.transport.write(head),
            (true, _) => self.transport.write(body),
            _ => self.transport.write_both(head, body),
        };
        match result {
            Written::Broken => false,
            Written::Some(bytes) => {
                if bytes == total && !self.transport.has_unsent() {
                    self.read_size = (self.read_size * 2).min(self.max_read_size());
                    return true;
                }
                self.ready.writable = false;
                self.read_size = (self.read_size / 2).max(HEAD_BUFFER_BYTES);
                if bytes < total {
                    self.to_client = cx.large_buffer().into();
                    let in_head = bytes.min(head.len());
                    self.to_client.bytes.extend_from_slice(&head[in_head..]);
                    self.to_client
                        .bytes
                        .extend_from_slice(&body[bytes - in_head..]);
                }
                true
            }
        }
    }

    /// Responds to an invalid request, and closes the connection, because the start of the next request is unknown.
    pub(super) fn reject(&mut self, key: Key, cx: &mut Context, status: u16) -> Step {
        self.request.exchange = Exchange::idle();
        self.fail(key, cx, status)
    }

    /// Responds to a request that received no valid response from a server, with the termination flags of `reason`.
    pub(super) fn fail_with_reason(
        &mut self,
        key: Key,
        cx: &mut Context,
        status: u16,
        reason: Reason,
    ) -> Step {
        self.set_termination_for_reason(reason);
        self.fail(key, cx, status)
    }

    /// Responds instead of the server. Closes the connection if part of a response was sent, or for a TCP service.
    pub(super) fn fail(&mut self, key: Key, cx: &mut Context, status: u16) -> Step {
        self.fail_with_rejection(key, cx, Rejection::new(status))
    }

    /// Responds like [`fail`](Self::fail), with the time after which the client may retry.
    pub(super) fn fail_with_rejection(
        &mut self,
        key: Key,
        cx: &mut Context,
        rejection: Rejection,
    ) -> Step {
        let status = rejection.status;
        self.set_termination_for_status(status);
        if self.is_copy() {
            return self.end_copy(cx, 0);
        }
        self.leave_server(cx, false);
        let is_http = self.local.service.protocol == ProxyProtocol::Http;
        self.count_error(cx);
        if !is_http || self.request.exchange.is_answered() {
            return Step::Close;
        }
        let local = Rc::clone(&self.local);
        let page = Page::find(&local.service.pages, status);
        if page.is_some_and(Page::is_close) {
            self.record(cx, status);
            return Step::Close;
        }
        let response = LocalResponse {
            retry_after: rejection.retry_after_s,
            ..self.local_response(cx, status, page)
        };
        self.send_local_response(key, cx, &response)
    }

    /// Sends the response that a route defines.
    pub(super) fn send_route_response(
        &mut self,
        key: Key,
        cx: &mut Context,
        status: u16,
        location: Option<&[u8]>,
        body: &[u8],
        route_fields: &LocalResponseFields,
    ) -> Step {
        self.set_termination(*b"LR");
        let local = Rc::clone(&self.local);
        let page = Page::find(&local.service.pages, status).filter(|_| body.is_empty());
        if page.is_some_and(Page::is_close) {
            self.record(cx, status);
            return Step::Close;
        }
        let text = (!body.is_empty()).then_some(body);
        let response = self.local_response(cx, status, page);
        let response = LocalResponse {
            location: location.or(response.location),
            body: text.or(response.body),
            content_type: route_fields
                .content_type
                .as_deref()
                .unwrap_or(response.content_type),
            fields: &route_fields.lines,
            ..response
        };
        self.send_local_response(key, cx, &response)
    }

    /// Sends a generated response with additional fields, which are complete lines.
    pub(super) fn respond_with_fields(
        &mut self,
        key: Key,
        cx: &mut Context,
        status: u16,
        fields: &[u8],
    ) -> Step {
        self.set_termination(*b"LR");
        let local = Rc::clone(&self.local);
        let page = Page::find(&local.service.pages, status);
        if page.is_some_and(Page::is_close) {
            self.record(cx, status);
            return Step::Close;
        }
        let response = LocalResponse {
            fields,
            ..self.local_response(cx, status, page)
        };
        self.send_local_response(key, cx, &response)
    }

    /// Returns a response that Weir generates, with the error page for its status. The connection persists if the
    /// client allows it.
    fn local_response<'a>(
        &self,
        cx: &Context,
        status: u16,
        page: Option<&'a Page>,
    ) -> LocalResponse<'a> {
        let exchange = &self.request.exchange;
        let (status, location, content_type, body) = match page.map(|page| &page.content) {
            Some(Content::Body { media_type, body }) => {
                (status, None, media_type.as_str(), Some(body.as_slice()))
            }
            Some(Content::Redirect { to, status }) => {
                (*status, Some(to.as_bytes()), LocalResponse::PLAIN, None)
            }
            Some(Content::Close) | None => (status, None, LocalResponse::PLAIN, None),
        };
        LocalResponse {
            body,
            location,
            content_type,
            close: !exchange.client_could_persist() || self.is_last(cx),
            omit_body: exchange.to_head(),
            http10: exchange.is_http10(),
            ..LocalResponse::closing(status)
        }
    }

    pub(super) fn send_local_response(
        &mut self,
        key: Key,
        cx: &mut Context,
        response: &LocalResponse<'_>,
    ) -> Step {
        let mut out = std::mem::take(&mut cx.out);
        out.clear();
        response.write(&mut out);
        let is_connected = self.send(cx, &mut out, &[]);
        cx.out = out;
        if is_connected {
            self.record(cx, response.status);
            self.after_response(key, cx, !response.close)
        } else {
            Step::Close
        }
    }

    /// Prepares for the next request, or for the end of the connection, after the response was sent or buffered.
    pub(super) fn after_response(&mut self, key: Key, cx: &mut Context, persists: bool) -> Step {
        if self.is_copy() {
            self.phase = Phase::Linger(Linger::Discard);
            return Step::Close;
        }
        cx.recycle(self.to_server.take());
        self.request = self.request.next_request();
        self.served = true;
        let timeouts = self.local.service.timeouts;
        if persists {
            self.phase = Phase::Head;
            let ms = if self.input.is_empty() {
                timeouts.idle
            } else {
                timeouts.request
            };
            self.set_deadline(key, cx, ms);
        } else {
            self.phase = Phase::Linger(Linger::Flush);
            self.set_deadline(key, cx, timeouts.client);
        }
        Step::Continue
    }

    /// Sends the remaining bytes, then closes so that the client can read all of them: closing with unread input would
    /// reset the connection.
    pub(super) fn linger(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.flush(cx) {
            None => return Step::Close,
            Some(false) => return Step::Pending,
            Some(true) => {}
        }
        if matches!(self.phase, Phase::Linger(Linger::Flush)) {
            let is_complete =
                self.request.exchange.request_done() && self.request.exchange.is_answered();
            if is_complete && self.input.is_empty() && !self.ready.readable {
                self.transport.notify_close();
                return Step::Close;
            }
            self.phase = Phase::Linger(Linger::Discard);
            self.transport.finish();
            self.set_deadline(key, cx, LINGER_MS);
        }
        if !self.ready.readable && self.watch == Watch::Yes {
            return Step::Pending;
        }
        match self.transport.discard(&mut self.ready, &mut cx.scratch) {
            Read::Some(_) => Step::Continue,
            Read::Blocked => Step::Pending,
            Read::End | Read::Broken => Step::Close,
        }
    }
}
