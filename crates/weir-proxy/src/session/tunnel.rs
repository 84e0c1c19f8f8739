//! Octets both ways, with each direction's own end: TCP services, and protocols that a client upgraded to.

use super::bulk::Bulk;
use super::state::{Direction, Phase, Tunnel};
use super::{Session, Step};
use crate::context::Context;
use crate::slab::Key;
use crate::socket::{Read, Written};

impl Session {
    /// One turn of both directions.
    pub(super) fn carry(&mut self, key: Key, cx: &mut Context) -> Step {
        let mut scratch = std::mem::take(&mut cx.scratch);
        let sent = self.carry_up(cx, &mut scratch);
        let received = if sent == Step::Close {
            Step::Close
        } else {
            self.carry_down(cx, &mut scratch)
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
        // Both directions closed in order look the same as a reset.
        if waits && self.ready.broken && down != Direction::Closed {
            return self.client_broke_off();
        }
        if waits && !took {
            return Step::Pending;
        }
        let ms = self.local.service.timeouts.tunnel;
        self.wait(key, cx, ms);
        if waits { Step::Pending } else { Step::Continue }
    }

    fn carry_up(&mut self, cx: &mut Context, scratch: &mut [u8]) -> Step {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
        };
        if !self.to_server.is_sent() || upstream.transport.holds() {
            if !upstream.ready.writable {
                return Step::Pending;
            }
            let rest = self.to_server.unsent();
            let Written::Some(octets) = upstream.transport.write(rest) else {
                return self.server_broke_off();
            };
            upstream.ready.writable = octets == rest.len() && !upstream.transport.holds();
            self.made_progress |= octets > 0;
            self.to_server.sent += octets;
            if self.to_server.is_sent() {
                drop(self.to_server.take());
            }
            return if upstream.ready.writable {
                Step::Continue
            } else {
                Step::Pending
            };
        }
        match self.drain_up(cx) {
            Some(true) => {}
            Some(false) => return Step::Pending,
            None => return self.server_broke_off(),
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
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
                other => self.up_is_over(other),
            };
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
        };
        match self.transport.read(&mut self.ready, scratch) {
            Read::Some(octets) => {
                self.count_in(octets);
                self.update_tunnel(|tunnel| tunnel.bulk.up = Bulk::after(octets));
                self.local
                    .service
                    .counters
                    .of(cx.worker)
                    .bytes_in
                    .add(octets as u64);
                upstream
                    .target
                    .counters
                    .of(cx.worker)
                    .bytes_in
                    .add(octets as u64);
                let Written::Some(sent) = upstream.transport.write(&scratch[..octets]) else {
                    return self.server_broke_off();
                };
                upstream.ready.writable = sent == octets && !upstream.transport.holds();
                if sent < octets {
                    self.to_server
                        .bytes
                        .extend_from_slice(&scratch[sent..octets]);
                }
                Step::Continue
            }
            other => self.up_is_over(other),
        }
    }

    /// The client says nothing now, or nothing more.
    fn up_is_over(&mut self, found: Read) -> Step {
        self.ready.readable = false;
        match found {
            Read::Some(_) | Read::Blocked => Step::Pending,
            Read::End => {
                self.update_tunnel(|tunnel| tunnel.up = Direction::Ended);
                Step::Continue
            }
            Read::Broken => self.client_broke_off(),
        }
    }

    fn carry_down(&mut self, cx: &mut Context, scratch: &mut [u8]) -> Step {
        match self.flush(cx) {
            None => return self.client_broke_off(),
            Some(false) => return Step::Pending,
            Some(true) => {}
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
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
                Read::Some(_) if self.flush_pipe(cx).is_none() => self.client_broke_off(),
                Read::Some(_) => Step::Continue,
                other => self.down_is_over(cx, other),
            };
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
        };
        let room = self.read_size;
        match upstream
            .transport
            .read(&mut upstream.ready, &mut scratch[..room])
        {
            Read::Some(octets) => {
                self.update_tunnel(|tunnel| tunnel.bulk.down = Bulk::after(octets));
                let mut nothing = Vec::new();
                if self.deliver(cx, &mut nothing, &scratch[..octets]) {
                    Step::Continue
                } else {
                    self.client_broke_off()
                }
            }
            other => self.down_is_over(cx, other),
        }
    }

    /// The server says nothing now, or nothing more.
    fn down_is_over(&mut self, cx: &mut Context, found: Read) -> Step {
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
            Read::Broken => self.server_broke_off(),
        }
    }

    /// The state of the tunnel; of one that has not begun in other phases.
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

    fn client_broke_off(&mut self) -> Step {
        self.blame(*b"CD");
        Step::Close
    }

    fn server_broke_off(&mut self) -> Step {
        self.blame(*b"SD");
        Step::Close
    }
}
