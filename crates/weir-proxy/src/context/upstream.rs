//! Connections to servers: begun, waiting for their next request, ended.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;

use super::{Context, Ready, token};
use crate::h2::{Back, Owner, Strand, StrandEnd};
use crate::plan::{Millis, Service, Target};
use crate::slab::Key;
use crate::socket;
use crate::tls::{self, Channel};
use crate::transport::Transport;
use crate::wheel::Deadline;

/// How long connections wait of which there are more than a service keeps: clients that come in bursts would else have most of
/// their requests wait for new ones.
const SURPLUS_MS: u64 = 1_000;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) transport: Transport,
    pub(crate) target: Arc<Target>,
    pub(crate) port: u16,
    /// Who uses it; none while it waits.
    pub(crate) session: Key,
    pub(crate) ready: Ready,
    /// The beginning of a response head that is not all there.
    pub(crate) input: Vec<u8>,
    /// It was told for whom it is, and is for nobody else.
    pub(crate) introduced: bool,
    /// Exchanges that it had before.
    pub(crate) served: u32,
    pub(crate) deadline: Deadline,
}

impl Context {
    /// Begins a connection for `session`, which has a place at the server.
    pub(crate) fn open(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        session: Key,
        tls: Option<&tls::Back>,
    ) -> rustix::io::Result<Key> {
        let transport = reach(target, port, tls)?;
        let key = self.upstreams.insert(Upstream {
            transport,
            target: Arc::clone(target),
            port,
            session,
            ready: Ready::default(),
            input: Vec::new(),
            introduced: false,
            served: 0,
            deadline: Deadline::default(),
        });
        let watched = match self.upstreams.get(key) {
            Some(upstream) => upstream
                .transport
                .watch(&self.epoll, token::of(token::SERVER, key)),
            None => Ok(()),
        };
        if let Err(error) = watched {
            self.upstreams.remove(key);
            return Err(error);
        }
        target.counters.of(self.worker).connections.add(1);
        Ok(key)
    }

    /// A request for `session` over an HTTP/2 connection to the server, a new one where none has room.
    pub(crate) fn open_stream(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        session: Key,
        tls: Option<&tls::Back>,
        service: &Service,
    ) -> rustix::io::Result<Key> {
        let takes = |key: &Key| {
            let back = self.backs.get(*key).and_then(Option::as_deref);
            back.is_some_and(|back| back.takes(target, port, service.server_requests))
        };
        let known = self.backs.keys().into_iter().find(takes);
        let link = match known {
            Some(link) => link,
            None => self.open_back(target, port, tls, &service.timeouts)?,
        };
        let Some(Some(back)) = self.backs.get_mut(link) else {
            return Err(Errno::NOTCONN);
        };
        let token = token::of(token::BACK, link);
        let strand = Strand::new(&self.bell, token, back.is_secure(), back.strand_state());
        let strand = Rc::new(RefCell::new(strand));
        back.add(Rc::clone(&strand));
        let key = self.upstreams.insert(Upstream {
            transport: Transport::strand(StrandEnd(Rc::clone(&strand))),
            target: Arc::clone(target),
            port,
            session,
            ready: Ready {
                writable: true,
                ..Ready::default()
            },
            input: Vec::new(),
            served: u32::from(known.is_some()),
            introduced: true,
            deadline: Deadline::default(),
        });
        strand.borrow_mut().owner = Owner::Server(key);
        Ok(key)
    }

    fn open_back(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        tls: Option<&tls::Back>,
        timeouts: &Millis,
    ) -> rustix::io::Result<Key> {
        let transport = reach(target, port, tls)?;
        let back = Back::new(transport, target, port, timeouts.idle);
        let key = self.backs.insert(Some(Box::new(back)));
        let Some(Some(back)) = self.backs.get_mut(key) else {
            return Err(Errno::NOTCONN);
        };
        if let Err(error) = back.watch(&self.epoll, token::of(token::BACK, key)) {
            self.backs.remove(key);
            return Err(error);
        }
        self.back_wheel
            .set(&mut back.deadline, key, self.now + timeouts.connect);
        target.counters.of(self.worker).connections.add(1);
        Ok(key)
    }

    /// A waiting connection for `session`, which has a place at the server; `checked` asks the kernel whether it still stands.
    pub(crate) fn reuse(
        &mut self,
        target: &Target,
        port: u16,
        session: Key,
        checked: bool,
    ) -> Option<Key> {
        loop {
            let waiting = self.idle.get_mut(target.id as usize)?;
            let at = waiting.iter().rposition(|key| {
                self.upstreams
                    .get(*key)
                    .is_some_and(|upstream| upstream.port == port)
            })?;
            let key = waiting.remove(at);
            target.counters.of(self.worker).present.sub(1);
            let upstream = self.upstreams.get_mut(key)?;
            if upstream.ready.ended
                || upstream.ready.readable
                || (checked && !upstream.transport.is_silent())
            {
                self.upstreams.remove(key);
                continue;
            }
            upstream.session = session;
            upstream.served = upstream.served.saturating_add(1);
            return Some(key);
        }
    }

    /// The exchange over it is over; `stays` = it can serve another, of which `most` wait for long.
    pub(crate) fn release(&mut self, key: Key, stays: bool, most: usize, idle_ms: u64) {
        let Some(upstream) = self.upstreams.get_mut(key) else {
            return;
        };
        let target = Arc::clone(&upstream.target);
        upstream.session = Key::NONE;
        let id = upstream.target.id as usize;
        let waits = stays
            && !upstream.transport.is_strand()
            && !self.draining
            && !upstream.ready.ended
            && !upstream.ready.readable;
        match self.idle.get_mut(id).filter(|_| waits && most > 0) {
            Some(waiting) => {
                let ms = if waiting.len() < most {
                    idle_ms
                } else {
                    idle_ms.min(SURPLUS_MS)
                };
                waiting.push(key);
                upstream.target.counters.of(self.worker).present.add(1);
                self.idle_wheel
                    .set(&mut upstream.deadline, key, self.now + ms);
            }
            None => drop(self.upstreams.remove(key)),
        }
        target.give_back();
    }

    /// Ends a connection that nobody uses.
    pub(crate) fn end_idle(&mut self, key: Key) {
        let Some(upstream) = self.upstreams.get(key) else {
            return;
        };
        if upstream.session.is_none() {
            let target = Arc::clone(&upstream.target);
            if let Some(waiting) = self.idle.get_mut(target.id as usize) {
                let before = waiting.len();
                waiting.retain(|other| *other != key);
                target
                    .counters
                    .of(self.worker)
                    .present
                    .sub((before - waiting.len()) as u64);
            }
            self.upstreams.remove(key);
        }
    }

    /// Ends every connection that waits for a target that `stays` does not name.
    pub(crate) fn end_idle_of(&mut self, stays: impl Fn(&Target) -> bool) {
        let ends = |key: &Key| {
            let upstream = self.upstreams.get(*key);
            upstream.is_some_and(|upstream| upstream.session.is_none() && !stays(&upstream.target))
        };
        let keys: Vec<Key> = self.upstreams.keys().into_iter().filter(ends).collect();
        for key in keys {
            self.end_idle(key);
        }
    }
}

/// Begins to connect.
fn reach(target: &Target, port: u16, tls: Option<&tls::Back>) -> rustix::io::Result<Transport> {
    let socket = socket::connect((target.address, port).into())?;
    let Some(back) = tls else {
        return Ok(Transport::plain(socket));
    };
    let channel = Channel::connect(&back.config, back.name(target.address));
    Ok(Transport::secure(
        socket,
        channel.map_err(|_| Errno::INVAL)?,
    ))
}
