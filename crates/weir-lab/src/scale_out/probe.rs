//! Clients and servers: connections that stay open under load, and datagrams of several flows.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::VIP;
use crate::error::{LabError, Result};
use crate::interrupt;
use crate::namespace::Namespace;

const PORT: u16 = 80;
/// Flows of datagrams: enough for each of eight directors.
const DATAGRAM_FLOWS: usize = 32;
/// Between two datagrams of a flow.
const DATAGRAM_INTERVAL: Duration = Duration::from_millis(5);
/// Between two bytes on a connection.
const BYTE_INTERVAL: Duration = Duration::from_millis(100);
/// Load before the event.
const BEFORE: Duration = Duration::from_millis(500);
/// Load after the event has ended: BFD needs 0.9 s.
const AFTER: Duration = Duration::from_secs(2);
/// How long a connection may take to return a byte at the end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may take to begin.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Sent at the end; other bytes may still be on their way.
const LAST: u8 = b'z';

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The longest time without an answer on one of the flows of datagrams.
    pub(crate) outage: Duration,
    /// Connections that do not return a byte any more.
    pub(crate) broken: usize,
    /// How long the router took to have the paths that it should have; `None` = they did not change.
    pub(crate) route: Option<Duration>,
}

fn failed(source: std::io::Error) -> LabError {
    LabError::file("socket")(source)
}

/// A thread that returns what it receives, until it is dropped.
pub(super) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `address` is the source of its datagrams.
    pub(super) fn start(namespace: &Namespace, address: Ipv4Addr) -> Result<Self> {
        let (udp, tcp) = namespace.enter(|| {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
            let udp = UdpSocket::bind((address, PORT)).map_err(failed)?;
            let tcp = TcpListener::bind(any).map_err(failed)?;
            udp.set_nonblocking(true).map_err(failed)?;
            tcp.set_nonblocking(true).map_err(failed)?;
            Ok((udp, tcp))
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    _ = accept(tcp) => {}
                    _ = datagrams(udp) => {}
                }
            });
            runtime.shutdown_background();
        });
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

async fn accept(listener: TcpListener) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut bytes = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                if stream.write_all(&bytes[..length]).await.is_err() {
                    break;
                }
            }
        });
    }
}

async fn datagrams(socket: UdpSocket) -> std::io::Result<()> {
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let mut bytes = [0; 16];
    loop {
        // An ICMP error of an earlier datagram is no reason to end.
        if let Ok((length, from)) = socket.recv_from(&mut bytes).await {
            let _ = socket.send_to(&bytes[..length], from).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection of the client.
struct Connection {
    stream: TcpStream,
    is_open: bool,
}

impl Connection {
    fn open() -> std::io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((VIP, PORT)), CONNECT_LIMIT)?;
        stream.set_read_timeout(Some(CONNECT_LIMIT))?;
        stream.set_nodelay(true)?;
        stream.write_all(b"a")?;
        stream.read_exact(&mut [0; 1])?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            is_open: true,
        })
    }

    fn send(&mut self, byte: u8) {
        if let Err(error) = self.stream.write_all(&[byte]) {
            self.is_open &= error.kind() == ErrorKind::WouldBlock;
        }
    }

    /// Reads what has arrived. Returns whether the last byte is among it.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 256];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    self.is_open = false;
                    return false;
                }
                Ok(length) if bytes[..length].contains(&LAST) => return true,
                Ok(_) => {}
                Err(error) => {
                    self.is_open &= error.kind() == ErrorKind::WouldBlock;
                    return false;
                }
            }
        }
    }
}

/// A flow of datagrams.
struct Datagrams {
    socket: UdpSocket,
    last: Instant,
    longest: Duration,
}

impl Datagrams {
    fn open() -> std::io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((VIP, PORT))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            last: Instant::now(),
            longest: Duration::ZERO,
        })
    }

    fn step(&mut self) {
        let _ = self.socket.send(b"a");
        while self.socket.recv(&mut [0; 1]).is_ok() {
            let now = Instant::now();
            self.longest = self.longest.max(now - self.last);
            self.last = now;
        }
    }
}

/// The client's sockets.
pub(super) struct Client {
    connections: Vec<Connection>,
    flows: Vec<Datagrams>,
}

impl Client {
    /// Opens all connections, with one answer each.
    pub(super) fn open(namespace: &Namespace, connections: usize) -> Result<Self> {
        namespace.enter(|| {
            let mut opened = Vec::with_capacity(connections);
            for _ in 0..connections {
                if interrupt::requested() {
                    return Err(LabError::Interrupted);
                }
                opened.push(Connection::open().map_err(failed)?);
            }
            let flows = (0..DATAGRAM_FLOWS).map(|_| Datagrams::open());
            let flows: std::io::Result<Vec<_>> = flows.collect();
            Ok(Self {
                connections: opened,
                flows: flows.map_err(failed)?,
            })
        })
    }

    /// Whether the VIP answers a datagram and a connection.
    pub(super) fn is_answered(namespace: &Namespace) -> Result<bool> {
        namespace.enter(|| {
            let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
            udp.set_read_timeout(Some(Duration::from_millis(200)))
                .map_err(failed)?;
            let sent = udp.connect((VIP, PORT)).and_then(|()| udp.send(b"a"));
            Ok(sent.is_ok() && udp.recv(&mut [0; 1]).is_ok() && Connection::open().is_ok())
        })
    }

    /// Sends on all flows while the event happens. It returns how long the router took.
    pub(super) fn measure(
        mut self,
        event: impl FnOnce() -> Result<Option<Duration>> + Send,
    ) -> Result<Measured> {
        let is_over = AtomicBool::new(false);
        let route = std::thread::scope(|scope| {
            let load = scope.spawn(|| self.load(&is_over));
            std::thread::sleep(BEFORE);
            let happened = event();
            if happened.is_ok() {
                std::thread::sleep(AFTER);
            }
            is_over.store(true, Ordering::Relaxed);
            // The thread has no reason to panic.
            let _ = load.join();
            happened
        })?;
        let longest = self
            .flows
            .iter()
            .map(|it| it.longest.max(it.last.elapsed()));
        let outage = longest.max().unwrap_or_default();
        Ok(Measured {
            outage,
            broken: self.broken(),
            route,
        })
    }

    fn load(&mut self, is_over: &AtomicBool) {
        // No answer before this moment counts.
        let begin = Instant::now();
        for flow in &mut self.flows {
            flow.last = begin;
        }
        let (mut next, mut round) = (begin, 0_usize);
        let rounds = BYTE_INTERVAL.as_millis() / DATAGRAM_INTERVAL.as_millis();
        let rounds = usize::try_from(rounds).unwrap_or(1).max(1);
        while !is_over.load(Ordering::Relaxed) {
            for flow in &mut self.flows {
                flow.step();
            }
            // A part of the connections in each round.
            for connection in self.connections.iter_mut().skip(round).step_by(rounds) {
                if connection.is_open {
                    connection.send(b'a');
                    connection.receive();
                }
            }
            round = (round + 1) % rounds;
            next += DATAGRAM_INTERVAL;
            let now = Instant::now();
            // A late thread does not send the missed ones at once.
            next = next.max(now);
            std::thread::sleep(next - now);
        }
    }

    fn broken(&mut self) -> usize {
        let end = Instant::now() + PATIENCE;
        let mut waiting: Vec<&mut Connection> = self.connections.iter_mut().collect();
        for connection in &mut waiting {
            connection.send(LAST);
        }
        let mut broken = 0;
        while !waiting.is_empty() && Instant::now() < end {
            waiting.retain_mut(|connection| {
                let is_answered = connection.receive();
                broken += usize::from(!is_answered && !connection.is_open);
                !is_answered && connection.is_open
            });
            std::thread::sleep(DATAGRAM_INTERVAL);
        }
        broken + waiting.len()
    }
}
