//! Relays bytes for TCP services and after protocol upgrades, in two directions that end independently.

use super::bulk::BulkDirections;
use super::state::{DirectionState, Phase, Tunnel};
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
        if up == DirectionState::Closed && down == DirectionState::Closed {
            return Step::Close;
        }
        let is_pending = sent == Step::Pending && received == Step::Pending;
        let made_progress = std::mem::take(&mut self.made_progress);
        // If both directions have ended normally, the socket also reports that it is broken.
        if is_pending && self.ready.broken && down != DirectionState::Closed {
            return self.fail_client_side();
        }
        if is_pending && !made_progress {
            return Step::Pending;
        }
        let ms = self.timeouts().tunnel;
        self.set_deadline(key, cx, ms);
        if is_pending {
            Step::Pending
        } else {
            Step::Continue
        }
    }

    fn relay_up(&mut self, cx: &mut Context, scratch: &mut [u8]) -> Step {
        if let Some(step) = self.flush_to_server(cx) {
            return step;
        }
        match self.flush_up(cx) {
            Some(true) => {}
            Some(false) => return Step::Pending,
            None => return self.fail_server_side(),
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.fail_server_side();
        };
        match self.tunnel().up {
            DirectionState::Open => {}
            DirectionState::Ended => {
                upstream.transport.finish();
                self.update_tunnel(|tunnel| tunnel.up = DirectionState::Closed);
                return Step::Continue;
            }
            DirectionState::Closed => return Step::Pending,
        }
        if !self.ready.readable {
            return Step::Pending;
        }
        if self.tunnel().bulk.up
            && let Some(read) = self.splice_up(cx)
        {
            return match read {
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
            return Some(self.fail_server_side());
        };
        if self.to_server.is_sent() && !upstream.transport.has_unsent() {
            return None;
        }
        if !upstream.ready.writable {
            return Some(Step::Pending);
        }
        let unsent = self.to_server.unsent();
        let Written::Some(bytes) = upstream.transport.write(unsent) else {
            return Some(self.fail_server_side());
        };
        upstream.ready.writable = bytes == unsent.len() && !upstream.transport.has_unsent();
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
            return self.fail_server_side();
        };
        let count = bytes.len() as u64;
        self.count_in(bytes.len());
        self.update_tunnel(|tunnel| tunnel.bulk.up = BulkDirections::is_bulk(bytes.len()));
        let service = &self.local.service;
        service.counters.of(cx.worker).bytes_in.add(count);
        let target = &upstream.target;
        target.counters.of(cx.worker).bytes_in.add(count);
        let Written::Some(sent) = upstream.transport.write(bytes) else {
            return self.fail_server_side();
        };
        upstream.ready.writable = sent == bytes.len() && !upstream.transport.has_unsent();
        if sent < bytes.len() {
            self.to_server.bytes.extend_from_slice(&bytes[sent..]);
        }
        Step::Continue
    }

    /// Handles a read from the client that returned no bytes.
    fn end_up(&mut self, read: Read) -> Step {
        self.ready.readable = false;
        match read {
            Read::Some(_) | Read::Blocked => Step::Pending,
            Read::End => {
                self.update_tunnel(|tunnel| tunnel.up = DirectionState::Ended);
                Step::Continue
            }
            Read::Broken => self.fail_client_side(),
        }
    }

    fn relay_down(&mut self, cx: &mut Context, scratch: &mut [u8]) -> Step {
        match self.flush(cx) {
            None => return self.fail_client_side(),
            Some(false) => return Step::Pending,
            Some(true) => {}
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.fail_server_side();
        };
        match self.tunnel().down {
            DirectionState::Open => {}
            DirectionState::Ended => {
                self.update_tunnel(|tunnel| tunnel.down = DirectionState::Closed);
                self.transport.finish();
                return Step::Continue;
            }
            DirectionState::Closed => return Step::Pending,
        }
        if !upstream.ready.readable {
            return Step::Pending;
        }
        if self.tunnel().bulk.down
            && let Some(read) = self.splice_down(cx)
        {
            return match read {
                Read::Some(_) if self.flush_down(cx).is_none() => self.fail_client_side(),
                Read::Some(_) => Step::Continue,
                other => self.end_down(cx, other),
            };
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.fail_server_side();
        };
        let max = self.read_size;
        match upstream
            .transport
            .read(&mut upstream.ready, &mut scratch[..max])
        {
            Read::Some(bytes) => {
                self.update_tunnel(|tunnel| tunnel.bulk.down = BulkDirections::is_bulk(bytes));
                let mut no_head = Vec::new();
                if self.send(cx, &mut no_head, &scratch[..bytes]) {
                    Step::Continue
                } else {
                    self.fail_client_side()
                }
            }
            other => self.end_down(cx, other),
        }
    }

    /// Handles a read from the server that returned no bytes.
    fn end_down(&mut self, cx: &mut Context, read: Read) -> Step {
        match read {
            Read::Some(_) | Read::Blocked => {
                if let Some(upstream) = cx.upstreams.get_mut(self.server) {
                    upstream.ready.readable = false;
                }
                Step::Pending
            }
            Read::End => {
                self.update_tunnel(|tunnel| tunnel.down = DirectionState::Ended);
                Step::Continue
            }
            Read::Broken => self.fail_server_side(),
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

    fn fail_client_side(&mut self) -> Step {
        self.set_termination(*b"CD");
        Step::Close
    }

    fn fail_server_side(&mut self) -> Step {
        self.set_termination(*b"SD");
        Step::Close
    }
}
