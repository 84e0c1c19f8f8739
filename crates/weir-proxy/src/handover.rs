//! Clients' connections on their way from one process to another, with all that this side knows of them.
//!
//! What can go: a client of HTTP/1 that waits for its next request, and bytes both ways with what is buffered of them;
//! no TLS, whose keys stay in the process. Everything else ends where it began.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::plan::Shared;
use crate::status::{self, ServiceStatus};

/// The most bytes that a connection takes along; with more it waits until they are fewer.
pub const TAKEN_ALONG_MAX: usize = 32 << 10;

/// A connection without a process.
#[derive(Debug)]
pub struct Handed {
    /// Its service's name.
    pub service: String,
    /// The client.
    pub client: OwnedFd,
    /// The client's address.
    pub peer: SocketAddr,
    /// The listener's port.
    pub port: u16,
    /// Where the client connected to, as a proxy in front said.
    pub spoken_to: Option<SocketAddr>,
    /// A request came before.
    pub served: bool,
    /// What came from the client and was not dealt with.
    pub input: Vec<u8>,
    /// Bytes both ways; without one the next request is waited for.
    pub tunnel: Option<Tunnel>,
}

/// The other half of a connection that carries bytes both ways.
#[derive(Debug)]
pub struct Tunnel {
    /// The server.
    pub server: OwnedFd,
    /// Its pool.
    pub pool: String,
    /// Its name there.
    pub name: String,
    /// The port it was reached at.
    pub port: u16,
    /// What the server is still to get.
    pub to_server: Vec<u8>,
    /// What the client is still to get.
    pub to_client: Vec<u8>,
    /// The client sends no more; the server was told so.
    pub client_ended: bool,
    /// See `client_ended`.
    pub end_sent_to_server: bool,
    /// The server sends no more; the client was told so.
    pub server_ended: bool,
    /// See `server_ended`.
    pub end_sent_to_client: bool,
}

/// Connections that came for workers, and are not theirs yet: the worker's number with each.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Vec<(usize, Handed)>>);

impl Inbox {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<(usize, Handed)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of one worker.
    pub(crate) fn take(&self, worker: usize) -> Vec<Handed> {
        let mut all = self.lock();
        let (own, others) = std::mem::take(&mut *all)
            .into_iter()
            .partition(|(to, _)| *to == worker);
        *all = others;
        let own: Vec<(usize, Handed)> = own;
        own.into_iter().map(|(_, handed)| handed).collect()
    }
}

/// Where another process's connections come in.
#[derive(Debug)]
pub struct Inlet {
    /// As long as there is one, services that a reload removes are remembered.
    pub(crate) _open: Arc<()>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) wakes: Vec<Arc<OwnedFd>>,
    pub(crate) next: usize,
}

impl Inlet {
    /// Adds what the other process has counted to the services in force. One caller at a time may, and
    /// [`Proxy::count_from`](crate::Proxy::count_from) not meanwhile.
    pub fn count(&mut self, more: &[ServiceStatus]) {
        status::add(&self.shared.plan().services, more);
    }

    /// Gives a connection to a worker, or onwards when the workers' own go to yet another process. One whose service is
    /// not there is closed.
    pub fn give(&mut self, handed: Handed) {
        if self.wakes.is_empty() {
            return;
        }
        // Held until the connection is in: whoever hands over next finds it, or is seen here.
        let mut inbox = self.shared.inbox.lock();
        if self.shared.handing.load(Ordering::Acquire) {
            drop(inbox);
            if let Some(outlet) = self.shared.outlet() {
                // Nobody takes it if that process is gone.
                let _ = outlet.send(handed);
            }
            return;
        }
        let worker = self.next % self.wakes.len();
        self.next = worker + 1;
        inbox.push((worker, handed));
        drop(inbox);
        // Behind the connection: a worker that sees the number finds it.
        self.shared.arrivals.fetch_add(1, Ordering::Release);
        // A full counter wakes it too.
        let _ = rustix::io::write(&*self.wakes[worker], &1u64.to_ne_bytes());
    }
}
