//! Relays bytes in both directions, each with its own end: for TCP services, and after protocol upgrades.

use super::bulk::Bulk;
use super::state::{Direction, Phase, Tunnel};
use super::{Session, Step};
use crate::context::Context;
use crate::slab::Key;
use crate::socket::{Read, Written};

impl Session {
    /// Runs one step in both directions.
    pub(super) fn run_tunnel(&mut self, key: Key, cx: &mut Context) -> Step {
        let mut scratch = std::mem::take(&mut cx.scratch);
        let sent = self.relay_up(cx, &mut scratch);
        let received = if sent == Step::Close {
            Step::Close
        } else {
            self.relay_down(cx, &mut scratch)
        };
        cx.scratch = scratch;
        if received == Step::Close {
            return Step::Close;
        }
        let Tunnel { up, down, .. } = self.tunnel();
        if up == Direction::Closed && down == Direction::Closed {
            return Step::Close;
        }
        let waits = sent == Step::Pending && received == Step::Pending;
        let took = std::mem::take(&mut self.made_progress);
        // A normal end of both directions looks like a reset.
        if waits && self.ready.broken && down != Direction::Closed {
            return self.client_failed();
        }
        if waits && !took {
            return Step::Pending;
        }
        let ms = self.timeouts().tunnel;
        self.set_deadline(key, cx, ms);
        if waits { Step::Pending } else { Step::Continue }
    }

    fn relay_up(&mut self, cx: &mut Context, scratch: &mut [u8]) -> Step {
        if let Some(step) = self.flush_to_server(cx) {
            return step;
        }
        match self.flush_up(cx) {
            Some(true) => {}
            Some(false) => return Step::Pending,
            None => return self.server_failed(),
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_failed();
        };
        match self.tunnel().up {
            Direction::Open => {}
            Direction::Ended => {
                upstream.transport.finish();
                self.update_tunnel(|tunnel| tunnel.up = Direction::Closed);
                return Step::Continue;
            }
            Direction::Closed => return Step::Pending,
        }
        if !self.ready.readable {
            return Step::Pending;
        }
        if self.tunnel().bulk.up
            && let Some(found) = self.splice_up(cx)
        {
            return match found {
                Read::Some(_) => Step::Continue,
                other => self.end_up(other),
            };
        }
        match self.transport.read(&mut self.ready, scratch) {
            Read::Some(bytes) => self.pass_up(cx, &scratch[..bytes]),
            other => self.end_up(other),
        }
    }

    /// Sends bytes that the server did not accept earlier. Returns `None` if there are none.
    fn flush_to_server(&mut self, cx: &mut Context) -> Option<Step> {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Some(self.server_failed());
        };
        if self.to_server.is_sent() && !upstream.transport.has_unsent() {
            return None;
        }
        if !upstream.ready.writable {
            return Some(Step::Pending);
        }
        let rest = self.to_server.unsent();
        let Written::Some(bytes) = upstream.transport.write(rest) else {
            return Some(self.server_failed());
        };
        upstream.ready.writable = bytes == rest.len() && !upstream.transport.has_unsent();
        let is_writable = upstream.ready.writable;
        self.made_progress |= bytes > 0;
        self.to_server.sent += bytes;
        if self.to_server.is_sent() {
            drop(self.to_server.take());
        }
        Some(match is_writable {
            true => Step::Continue,
            false => Step::Pending,
        })
    }

    /// Sends bytes from the client to the server, and buffers those that the server does not accept.
    fn pass_up(&mut self, cx: &mut Context, bytes: &[u8]) -> Step {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_failed();
        };
        let count = bytes.len() as u64;
        self.count_in(bytes.len());
        self.update_tunnel(|tunnel| tunnel.bulk.up = Bulk::after(bytes.len()));
        let service = &self.local.service;
        service.counters.of(cx.worker).bytes_in.add(count);
        let target = &upstream.target;
        target.counters.of(cx.worker).bytes_in.add(count);
        let Written::Some(sent) = upstream.transport.write(bytes) else {
            return self.server_failed();
        };
        upstream.ready.writable = sent == bytes.len() && !upstream.transport.has_unsent();
        if sent < bytes.len() {
            self.to_server.bytes.extend_from_slice(&bytes[sent..]);
        }
        Step::Continue
    }

    /// Handles a read from the client that returned no bytes.
    fn end_up(&mut self, found: Read) -> Step {
        self.ready.readable = false;
        match found {
            Read::Some(_) | Read::Blocked => Step::Pending,
            Read::End => {
                self.update_tunnel(|tunnel| tunnel.up = Direction::Ended);
                Step::Continue
            }
            Read::Broken => self.client_failed(),
        }
    }

    fn relay_down(&mut self, cx: &mut Context, scratch: &mut [u8]) -> Step {
        match self.flush(cx) {
            None => return self.client_failed(),
            Some(false) => return Step::Pending,
            Some(true) => {}
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_failed();
        };
        match self.tunnel().down {
            Direction::Open => {}
            Direction::Ended => {
                self.update_tunnel(|tunnel| tunnel.down = Direction::Closed);
                self.transport.finish();
                return Step::Continue;
            }
            Direction::Closed => return Step::Pending,
        }
        if !upstream.ready.readable {
            return Step::Pending;
        }
        if self.tunnel().bulk.down
            && let Some(found) = self.splice_down(cx)
        {
            return match found {
                Read::Some(_) if self.flush_pipe(cx).is_none() => self.client_failed(),
                Read::Some(_) => Step::Continue,
                other => self.end_down(cx, other),
            };
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_failed();
        };
        let room = self.read_size;
        match upstream
            .transport
            .read(&mut upstream.ready, &mut scratch[..room])
        {
            Read::Some(bytes) => {
                self.update_tunnel(|tunnel| tunnel.bulk.down = Bulk::after(bytes));
                let mut nothing = Vec::new();
                if self.send(cx, &mut nothing, &scratch[..bytes]) {
                    Step::Continue
                } else {
                    self.client_failed()
                }
            }
            other => self.end_down(cx, other),
        }
    }

    /// Handles a read from the server that returned no bytes.
    fn end_down(&mut self, cx: &mut Context, found: Read) -> Step {
        match found {
            Read::Some(_) | Read::Blocked => {
                if let Some(upstream) = cx.upstreams.get_mut(self.server) {
                    upstream.ready.readable = false;
                }
                Step::Pending
            }
            Read::End => {
                self.update_tunnel(|tunnel| tunnel.down = Direction::Ended);
                Step::Continue
            }
            Read::Broken => self.server_failed(),
        }
    }

    /// Returns the state of the tunnel. In other phases, returns the initial state.
    pub(super) fn tunnel(&self) -> Tunnel {
        match &self.phase {
            Phase::Tunnel(tunnel) => *tunnel,
            _ => Tunnel::default(),
        }
    }

    pub(super) fn update_tunnel(&mut self, update: impl FnOnce(&mut Tunnel)) {
        if let Phase::Tunnel(tunnel) = &mut self.phase {
            update(tunnel);
        }
    }

    fn client_failed(&mut self) -> Step {
        self.set_termination(*b"CD");
        Step::Close
    }

    fn server_failed(&mut self) -> Step {
        self.set_termination(*b"SD");
        Step::Close
    }
}
