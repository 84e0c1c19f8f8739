//! Lists this director's proxied connections in a separate thread.
//!
//! With many connections, this takes tens of milliseconds.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use weir_netlink::tcp_connections;
use weir_sync::{Change, Connection, ConnectionTable, MAX_CONNECTIONS};

use super::ProxyListeners;

/// Maximum number of connections in a sample.
const MAX_SAMPLED: usize = 4 * MAX_CONNECTIONS;

/// The changes since the previous sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) changes: Vec<Change>,
    /// Connections that are not listed because the list is full.
    pub(super) excess: usize,
    /// How long sampling took.
    pub(super) duration: Duration,
}

/// The thread, which is started by the first request. It exits when the sampler is dropped.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    thread: Option<(Sender<Arc<ProxyListeners>>, Receiver<Sample>)>,
    is_waiting: bool,
}

impl Sampler {
    /// Requests a sample, unless one is pending.
    pub(super) fn request(&mut self, listeners: &Arc<ProxyListeners>) {
        if self.is_waiting {
            return;
        }
        if self.thread.is_none() {
            self.thread = start();
        }
        if let Some((requests, _)) = &self.thread {
            self.is_waiting = requests.send(Arc::clone(listeners)).is_ok();
        }
    }

    /// Returns the requested sample when it is complete.
    pub(super) fn receive(&mut self) -> Option<Sample> {
        let (_, samples) = self.thread.as_ref()?;
        let sample = samples.try_recv().ok()?;
        self.is_waiting = false;
        Some(sample)
    }
}

fn start() -> Option<(Sender<Arc<ProxyListeners>>, Receiver<Sample>)> {
    let (requests, request_receiver) = mpsc::channel::<Arc<ProxyListeners>>();
    let (sender, samples) = mpsc::channel();
    let run = move || {
        let mut table = ConnectionTable::default();
        while let Ok(listeners) = request_receiver.recv() {
            if sender.send(take_sample(&mut table, &listeners)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("proxied".to_owned());
    match thread.spawn(run) {
        Ok(_) => Some((requests, samples)),
        Err(error) => {
            tracing::warn!(%error, "failed to start a thread; proxied connections are not sent to [sync] peers");
            None
        }
    }
}

fn take_sample(table: &mut ConnectionTable, listeners: &ProxyListeners) -> Sample {
    let start = Instant::now();
    let is_proxy_listener = |local: SocketAddr| listeners.contains(local);
    let connections = match tcp_connections(is_proxy_listener, MAX_SAMPLED) {
        Ok(connections) => connections,
        Err(error) => {
            tracing::debug!(%error, "failed to list proxied connections");
            return Sample {
                excess: table.excess(),
                duration: start.elapsed(),
                ..Sample::default()
            };
        }
    };
    let connections: HashSet<Connection> = connections
        .into_iter()
        .map(|(vip, client)| Connection { client, vip })
        .collect();
    let changes = table.update(&connections);
    Sample {
        changes,
        excess: table.excess(),
        duration: start.elapsed(),
    }
}
