//! Describes client connections that are handed over to another process, and passes received ones to workers.
//!
//! HTTP/1 clients that are idle between requests can be handed over, and so can tunnels with their buffered bytes. TLS
//! and HTTP/2 connections cannot, because their state cannot leave the process; they finish in the old process.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::plan::SharedState;
use crate::status::{self, ServiceStatus};

/// Maximum number of buffered bytes in a connection that is handed over. A connection with more bytes is handed over
/// later, once fewer remain.
pub const MAX_HANDOVER_BUFFER: usize = 32 << 10;

/// A client connection that is handed over from one process to another.
#[derive(Debug)]
pub struct HandedOverConnection {
    /// Service name.
    pub service: String,
    /// The client's socket.
    pub client: OwnedFd,
    /// The client's address.
    pub peer: SocketAddr,
    /// The listener's port.
    pub port: u16,
    /// The address that the client connected to, according to the PROXY protocol.
    pub destination: Option<SocketAddr>,
    /// Whether a request has been served on this connection.
    pub served: bool,
    /// Bytes from the client that were not processed.
    pub input: Vec<u8>,
    /// The tunnel; `None` = the connection waits for the next request.
    pub tunnel: Option<Tunnel>,
}

/// The server's side of a tunnel.
#[derive(Debug)]
pub struct Tunnel {
    /// The server's socket.
    pub server: OwnedFd,
    /// Name of the server's pool.
    pub pool: String,
    /// Name of the server in the pool.
    pub name: String,
    /// The server's port.
    pub port: u16,
    /// Bytes to send to the server.
    pub to_server: Vec<u8>,
    /// Bytes to send to the client.
    pub to_client: Vec<u8>,
    /// Whether the client has finished sending.
    pub client_eof: bool,
    /// Whether the client's end of stream was forwarded to the server.
    pub eof_sent_to_server: bool,
    /// Whether the server has finished sending.
    pub server_eof: bool,
    /// Whether the server's end of stream was forwarded to the client.
    pub eof_sent_to_client: bool,
}

/// Connections that no worker has taken yet, each with the index of its worker.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Vec<(usize, HandedOverConnection)>>);

impl Inbox {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<(usize, HandedOverConnection)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connections for one worker.
    pub(crate) fn take(&self, worker: usize) -> Vec<HandedOverConnection> {
        let mut inbox = self.lock();
        let (connections, others) = std::mem::take(&mut *inbox)
            .into_iter()
            .partition(|(index, _)| *index == worker);
        *inbox = others;
        let connections: Vec<(usize, HandedOverConnection)> = connections;
        connections
            .into_iter()
            .map(|(_, connection)| connection)
            .collect()
    }
}

/// Receives connections from another process, and distributes them to the workers.
#[derive(Debug)]
pub struct HandoverReceiver {
    /// While this reference exists, services that a reload removes stay available for connections that arrive later.
    pub(crate) _open: Arc<()>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) wake_fds: Vec<Arc<OwnedFd>>,
    pub(crate) next_worker: usize,
}

impl HandoverReceiver {
    /// Adds the other process's counters to the active services. Must not run concurrently with itself or with
    /// [`Proxy::add_previous_counts`](crate::Proxy::add_previous_counts).
    pub fn add_counts(&mut self, counts: &[ServiceStatus]) {
        status::add_counts(&self.shared.plan().services, counts);
    }

    /// Passes a connection to a worker. If the workers are handing over their clients, passes it to the next process. A
    /// connection to an unknown service is closed.
    pub fn accept(&mut self, connection: HandedOverConnection) {
        if self.wake_fds.is_empty() {
            return;
        }
        // The lock is held until the connection is added: a concurrent handover either sees the connection, or this
        // function sees that the handover has started.
        let mut inbox = self.shared.inbox.lock();
        if self.shared.handing_over.load(Ordering::Acquire) {
            drop(inbox);
            if let Some(sender) = self.shared.handover_sender() {
                // Fails if the other process has exited; the connection is then closed.
                let _ = sender.send(connection);
            }
            return;
        }
        let worker = self.next_worker % self.wake_fds.len();
        self.next_worker = worker + 1;
        inbox.push((worker, connection));
        drop(inbox);
        // Incremented after the push, so that a worker that sees the new value finds the connection.
        self.shared.arrivals.fetch_add(1, Ordering::Release);
        // Fails if the counter is full, which also wakes the worker.
        let _ = rustix::io::write(&*self.wake_fds[worker], &1u64.to_ne_bytes());
    }
}
