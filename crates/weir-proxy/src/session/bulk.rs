//! Forwards large bodies and busy tunnels through a pipe in the kernel, if their bytes need no processing.

use super::{Session, Step};
use crate::context::Context;
use crate::pipe::{MIN_SPLICE, Pipe};
use crate::plan::Detail;
use crate::slab::Key;
use crate::socket::{Read, Written};

/// Threshold in bytes. In a tunnel, a read of at least this size switches to the pipe, and a smaller read through the
/// pipe switches back.
const BULK_BYTES: usize = 64 << 10;

/// The directions of a tunnel that use pipes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BulkDirections {
    pub(super) up: bool,
    pub(super) down: bool,
}

impl BulkDirections {
    /// Returns whether the next read should use a pipe, given the size of the last read.
    pub(super) const fn is_bulk(bytes: usize) -> bool {
        bytes >= BULK_BYTES
    }
}

/// Returns an empty pipe to the worker. Otherwise, a body that arrives in small pieces would always occupy two
/// descriptors.
fn release_if_empty(pipe: &mut Option<Pipe>, cx: &mut Context) {
    if pipe.as_ref().is_some_and(Pipe::is_empty) {
        cx.pipes.put_back(pipe.take());
    }
}

impl Session {
    /// Sends the content of the pipe to the client. Returns whether the pipe is empty, or `None` if the client's
    /// connection is broken.
    pub(super) fn flush_down(&mut self, cx: &mut Context) -> Option<bool> {
        let Some(pipe) = &mut self.down else {
            return Some(true);
        };
        if !pipe.is_empty() {
            if !self.ready.writable {
                return Some(false);
            }
            match pipe.drain(self.transport.plain_socket()?) {
                Written::Broken => return None,
                Written::Some(bytes) => self.made_progress |= bytes > 0,
            }
            if !pipe.is_empty() {
                self.ready.writable = false;
                return Some(false);
            }
        }
        if self.request.exchange.response_remaining().is_none() && !self.tunnel().bulk.down {
            cx.pipes.put_back(self.down.take());
        }
        Some(true)
    }

    /// Forwards part of the response body through a pipe. Returns `None` if a pipe is not available or not worthwhile.
    pub(super) fn splice_response(&mut self, key: Key, cx: &mut Context) -> Option<Step> {
        let remaining = self.request.exchange.response_remaining()?;
        if self.down.is_none() && remaining < MIN_SPLICE {
            return None;
        }
        let read = self.fill_down(cx, remaining)?;
        Some(match read {
            Read::Some(bytes) => {
                self.request
                    .exchange
                    .record_forwarded_response(bytes as u64);
                let is_empty = self.flush_down(cx);
                match is_empty {
                    None => Step::Close,
                    // The rest is sent before the client's next request is read.
                    Some(_) if self.request.exchange.response_done() => {
                        let is_reusable =
                            self.request.exchange.server_persists() && self.has_no_excess(cx);
                        self.finish_exchange(key, cx, is_reusable)
                    }
                    Some(_) => Step::Continue,
                }
            }
            Read::Blocked => {
                release_if_empty(&mut self.down, cx);
                Step::Pending
            }
            Read::End | Read::Broken => self.handle_server_end(key, cx),
        })
    }

    /// Returns whether no bytes follow the response. The size of a read into a pipe does not show this.
    fn has_no_excess(&self, cx: &mut Context) -> bool {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return false;
        };
        if upstream.ready.readable && !upstream.ready.read_closed {
            upstream.ready.readable = !upstream.transport.is_silent();
        }
        !upstream.ready.readable
    }

    /// Fills the pipe to the client from the server. Returns `None` if there is no pipe or no server.
    fn fill_down(&mut self, cx: &mut Context, max: u64) -> Option<Read> {
        self.transport.plain_socket()?;
        let upstream = cx.upstreams.get_mut(self.server)?;
        let socket = upstream.transport.plain_socket()?;
        if self.down.is_none() {
            self.down = cx.pipes.take();
        }
        let read = self.down.as_mut()?.fill(socket, max);
        match read {
            Read::Some(bytes) => {
                let target = upstream.target.counters.of(cx.worker);
                target.bytes_out.add(bytes as u64);
                let service = self.local.service.counters.of(cx.worker);
                service.bytes_out.add(bytes as u64);
                self.local
                    .service
                    .detail(cx.worker, Detail::SplicedOut)
                    .add(bytes as u64);
                self.count_out(bytes);
            }
            Read::Blocked => upstream.ready.readable = false,
            Read::End | Read::Broken => {}
        }
        Some(read)
    }

    /// Sends the content of the pipe to the server. Returns whether the pipe is empty, or `None` if the server's
    /// connection is broken.
    pub(super) fn flush_up(&mut self, cx: &mut Context) -> Option<bool> {
        let Some(pipe) = &mut self.up else {
            return Some(true);
        };
        if !pipe.is_empty() {
            let upstream = cx.upstreams.get_mut(self.server)?;
            if !upstream.ready.writable {
                return Some(false);
            }
            match pipe.drain(upstream.transport.plain_socket()?) {
                Written::Broken => return None,
                Written::Some(bytes) => self.made_progress |= bytes > 0,
            }
            if !pipe.is_empty() {
                upstream.ready.writable = false;
                return Some(false);
            }
        }
        if self
            .request
            .exchange
            .request_remaining()
            .is_none_or(|remaining| remaining == 0)
            && !self.tunnel().bulk.up
        {
            cx.pipes.put_back(self.up.take());
        }
        Some(true)
    }

    /// Forwards part of the request body through a pipe. Returns `None` if a pipe is not available or not worthwhile.
    pub(super) fn splice_request(&mut self, key: Key, cx: &mut Context) -> Option<Step> {
        let remaining = self.request.exchange.request_remaining()?;
        if self.up.is_none() && remaining < MIN_SPLICE {
            return None;
        }
        let read = self.fill_up(cx, remaining)?;
        Some(match read {
            Read::Some(bytes) => {
                self.request.exchange.record_forwarded_request(bytes as u64);
                match self.flush_up(cx) {
                    Some(_) => Step::Continue,
                    None if self.has_response_bytes(cx) => Step::Continue,
                    None => self.fail_response(key, cx),
                }
            }
            Read::Blocked => {
                release_if_empty(&mut self.up, cx);
                Step::Pending
            }
            // The server would wait forever for the rest.
            Read::End | Read::Broken => Step::Close,
        })
    }

    /// Returns whether the server has sent bytes that have not been read yet. They may be a response that explains why
    /// the server accepts no more bytes. If there are any, discards the pipe to the server with its content.
    pub(super) fn has_response_bytes(&mut self, cx: &Context) -> bool {
        let has_bytes = cx
            .upstreams
            .get(self.server)
            .is_some_and(|upstream| upstream.ready.readable);
        if has_bytes {
            self.up = None;
        }
        has_bytes
    }

    fn fill_up(&mut self, cx: &mut Context, max: u64) -> Option<Read> {
        let socket = self.transport.plain_socket()?;
        cx.upstreams.get(self.server)?.transport.plain_socket()?;
        if self.up.is_none() {
            self.up = cx.pipes.take();
        }
        let read = self.up.as_mut()?.fill(socket, max);
        match read {
            Read::Some(bytes) => {
                if let Some(upstream) = cx.upstreams.get(self.server) {
                    let target = upstream.target.counters.of(cx.worker);
                    target.bytes_in.add(bytes as u64);
                }
                let service = self.local.service.counters.of(cx.worker);
                service.bytes_in.add(bytes as u64);
                self.local
                    .service
                    .detail(cx.worker, Detail::SplicedIn)
                    .add(bytes as u64);
                self.count_in(bytes);
            }
            Read::Blocked => self.ready.readable = false,
            Read::End | Read::Broken => {}
        }
        Some(read)
    }

    /// Forwards bytes to the server through the pipe. Returns `None` if there is no pipe.
    pub(super) fn splice_up(&mut self, cx: &mut Context) -> Option<Read> {
        let read = self.fill_up(cx, u64::MAX)?;
        if let Read::Some(bytes) = read {
            self.update_tunnel(|tunnel| tunnel.bulk.up = BulkDirections::is_bulk(bytes));
        }
        Some(read)
    }

    /// Forwards bytes to the client through the pipe. Returns `None` if there is no pipe.
    pub(super) fn splice_down(&mut self, cx: &mut Context) -> Option<Read> {
        let read = self.fill_down(cx, u64::MAX)?;
        if let Read::Some(bytes) = read {
            self.update_tunnel(|tunnel| tunnel.bulk.down = BulkDirections::is_bulk(bytes));
        }
        Some(read)
    }
}

/// Returns whether the pipe contains bytes.
pub(super) fn has_content(pipe: &Option<Pipe>) -> bool {
    pipe.as_ref().is_some_and(|pipe| !pipe.is_empty())
}
