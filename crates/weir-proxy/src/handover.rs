//! Client connections that are handed over from one process to another, with their state.
//!
//! HTTP/1 clients that are idle between requests and tunnels with their buffers can be handed over. TLS and HTTP/2
//! connections cannot, because their state stays in the process; they finish where they began.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::plan::Shared;
use crate::status::{self, ServiceStatus};

/// Maximum number of buffered bytes of a connection that is handed over; with more it waits.
pub const HANDOVER_BUFFER_MAX: usize = 32 << 10;

/// A connection between two processes.
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
    /// The address that the client connected to, as reported by a proxy in front.
    pub destination: Option<SocketAddr>,
    /// It had requests before.
    pub served: bool,
    /// Input that was not processed.
    pub input: Vec<u8>,
    /// The tunnel; without one, the connection waits for the next request.
    pub tunnel: Option<Tunnel>,
}

/// The server's side of a tunnel.
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
    /// Bytes to send to the server.
    pub to_server: Vec<u8>,
    /// Bytes to send to the client.
    pub to_client: Vec<u8>,
    /// The client has ended its direction.
    pub client_ended: bool,
    /// That end was sent to the server.
    pub end_sent_to_server: bool,
    /// The server has ended its direction.
    pub server_ended: bool,
    /// That end was sent to the client.
    pub end_sent_to_client: bool,
}

/// Connections that workers have not taken yet, each with its worker's number.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Vec<(usize, Handed)>>);

impl Inbox {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<(usize, Handed)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connections of one worker.
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

/// Receives the connections of another process.
#[derive(Debug)]
pub struct Inlet {
    /// While it exists, services that a reload removes are kept.
    pub(crate) _open: Arc<()>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) wakes: Vec<Arc<OwnedFd>>,
    pub(crate) next: usize,
}

impl Inlet {
    /// Adds the other process's counters to the active services. Must not run concurrently with itself or with
    /// [`Proxy::count_from`](crate::Proxy::count_from).
    pub fn count(&mut self, more: &[ServiceStatus]) {
        status::add(&self.shared.plan().services, more);
    }

    /// Passes a connection to a worker, or to the next process while the workers hand over theirs. A connection of an
    /// unknown service is closed.
    pub fn give(&mut self, handed: Handed) {
        if self.wakes.is_empty() {
            return;
        }
        // Locked until the connection is added, so that a concurrent handover either finds it or is seen here.
        let mut inbox = self.shared.inbox.lock();
        if self.shared.handing.load(Ordering::Acquire) {
            drop(inbox);
            if let Some(outlet) = self.shared.outlet() {
                // Fails if that process has ended: the connection is closed.
                let _ = outlet.send(handed);
            }
            return;
        }
        let worker = self.next % self.wakes.len();
        self.next = worker + 1;
        inbox.push((worker, handed));
        drop(inbox);
        // After the connection, so that a worker that sees the new number finds it.
        self.shared.arrivals.fetch_add(1, Ordering::Release);
        // Fails if the counter is full, which also wakes the worker.
        let _ = rustix::io::write(&*self.wakes[worker], &1u64.to_ne_bytes());
    }
}
