//! Octets both ways, with each direction's own end: TCP services, and protocols that a client upgraded to.

use super::bulk::Bulk;
use super::{Moved, Session};
use crate::context::Context;
use crate::slab::Key;
use crate::socket::{Read, Written};

impl Session {
    /// One turn of both directions.
    pub(super) fn carry(&mut self, key: Key, cx: &mut Context) -> Moved {
        let mut scratch = std::mem::take(&mut cx.scratch);
        let up = self.carry_up(cx, &mut scratch);
        let down = if up == Moved::Ends {
            Moved::Ends
        } else {
            self.carry_down(cx, &mut scratch)
        };
        cx.scratch = scratch;
        if up == Moved::Ends || down == Moved::Ends {
            return Moved::Ends;
        }
        if self.server_told_end && self.told_end {
            return Moved::Ends;
        }
        let waits = up == Moved::Waits && down == Moved::Waits;
        let took = std::mem::take(&mut self.took);
        // Both directions closed in order look the same as a reset.
        if waits && self.ready.broken && !self.told_end {
            return self.client_broke_off();
        }
        if waits && !took {
            return Moved::Waits;
        }
        let ms = self.local.service.timeouts.tunnel;
        self.wait(key, cx, ms);
        if waits { Moved::Waits } else { Moved::On }
    }

    #[expect(clippy::too_many_lines, reason = "the states of one direction")]
    fn carry_up(&mut self, cx: &mut Context, scratch: &mut [u8]) -> Moved {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
        };
        if self.sent < self.request.len() || upstream.transport.holds() {
            if !upstream.ready.writable {
                return Moved::Waits;
            }
            let rest = &self.request[self.sent..];
            let Written::Some(octets) = upstream.transport.write(rest) else {
                return self.server_broke_off();
            };
            upstream.ready.writable = octets == rest.len() && !upstream.transport.holds();
            self.took |= octets > 0;
            self.sent += octets;
            if self.sent == self.request.len() {
                self.request = Vec::new();
                self.sent = 0;
            }
            return if upstream.ready.writable {
                Moved::On
            } else {
                Moved::Waits
            };
        }
        match self.drain_up(cx) {
            Some(true) => {}
            Some(false) => return Moved::Waits,
            None => return self.server_broke_off(),
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
        };
        if self.client_ended {
            if self.server_told_end {
                return Moved::Waits;
            }
            self.server_told_end = true;
            upstream.transport.finish();
            return Moved::On;
        }
        if !self.ready.readable {
            return Moved::Waits;
        }
        if self.bulk.up
            && let Some(found) = self.splice_up(cx)
        {
            return match found {
                Read::Some(_) => Moved::On,
                other => self.up_is_over(other),
            };
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
        };
        match self.transport.read(&mut self.ready, scratch) {
            Read::Some(octets) => {
                self.count_in(octets);
                self.bulk.up = Bulk::after(octets);
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
                    self.request.extend_from_slice(&scratch[sent..octets]);
                }
                Moved::On
            }
            other => self.up_is_over(other),
        }
    }

    /// The client says nothing now, or nothing more.
    fn up_is_over(&mut self, found: Read) -> Moved {
        self.ready.readable = false;
        match found {
            Read::Some(_) | Read::Blocked => Moved::Waits,
            Read::End => {
                self.client_ended = true;
                Moved::On
            }
            Read::Broken => self.client_broke_off(),
        }
    }

    fn carry_down(&mut self, cx: &mut Context, scratch: &mut [u8]) -> Moved {
        match self.flush(cx) {
            None => return self.client_broke_off(),
            Some(false) => return Moved::Waits,
            Some(true) => {}
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
        };
        if self.server_ended {
            if self.told_end {
                return Moved::Waits;
            }
            self.told_end = true;
            self.transport.finish();
            return Moved::On;
        }
        if !upstream.ready.readable {
            return Moved::Waits;
        }
        if self.bulk.down
            && let Some(found) = self.splice_down(cx)
        {
            return match found {
                Read::Some(_) if self.flush_pipe(cx).is_none() => self.client_broke_off(),
                Read::Some(_) => Moved::On,
                other => self.down_is_over(cx, other),
            };
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return self.server_broke_off();
        };
        let room = self.room;
        match upstream
            .transport
            .read(&mut upstream.ready, &mut scratch[..room])
        {
            Read::Some(octets) => {
                self.bulk.down = Bulk::after(octets);
                let mut nothing = Vec::new();
                if self.deliver(cx, &mut nothing, &scratch[..octets]) {
                    Moved::On
                } else {
                    self.client_broke_off()
                }
            }
            other => self.down_is_over(cx, other),
        }
    }

    /// The server says nothing now, or nothing more.
    fn down_is_over(&mut self, cx: &mut Context, found: Read) -> Moved {
        match found {
            Read::Some(_) | Read::Blocked => {
                if let Some(upstream) = cx.upstreams.get_mut(self.server) {
                    upstream.ready.readable = false;
                }
                Moved::Waits
            }
            Read::End => {
                self.server_ended = true;
                Moved::On
            }
            Read::Broken => self.server_broke_off(),
        }
    }

    fn client_broke_off(&mut self) -> Moved {
        self.blame(*b"CD");
        Moved::Ends
    }

    fn server_broke_off(&mut self) -> Moved {
        self.blame(*b"SD");
        Moved::Ends
    }
}
