//! Implements the clients and servers, with connections that remain open under load, and datagrams in several flows.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::VIP;
use super::cost::Cost;
use crate::error::{LabError, Result};
use crate::interrupt;
use crate::namespace::Namespace;

const PORT: u16 = 80;
/// Number of UDP flows. With this number, each of eight directors receives some.
const DATAGRAM_FLOWS: usize = 32;
/// Interval between two datagrams of a flow.
const DATAGRAM_INTERVAL: Duration = Duration::from_millis(5);
/// Interval between two bytes on a connection.
const BYTE_INTERVAL: Duration = Duration::from_millis(100);
/// Duration of the load before the event.
const LOAD_BEFORE: Duration = Duration::from_millis(500);
/// Duration of the load after the event. BFD needs 0.9 s to detect a failure.
const LOAD_AFTER: Duration = Duration::from_secs(2);
/// Time limit for a connection to return a byte at the end.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The byte that the client sends at the end. It distinguishes the last response from earlier ones.
const LAST_BYTE: u8 = b'z';

/// The result of one run.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    /// The longest time without a response on one of the UDP flows.
    pub(crate) outage: Duration,
    /// Number of connections that no longer return a byte.
    pub(crate) broken: usize,
    /// Time until the router had the expected paths; `None` = the paths did not change.
    pub(crate) route: Option<Duration>,
    /// The CPU time of each director's programs; empty = unknown.
    pub(crate) costs: Vec<Cost>,
}

fn socket_error(source: std::io::Error) -> LabError {
    LabError::file("socket")(source)
}

/// A server whose thread echoes the data that it receives. Dropping it stops the thread.
pub(super) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server whose datagrams have the source `address`.
    pub(super) fn start(namespace: &Namespace, address: Ipv4Addr) -> Result<Self> {
        let (udp, tcp) = namespace.enter(|| {
            let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
            let udp = UdpSocket::bind((address, PORT)).map_err(socket_error)?;
            let tcp = TcpListener::bind(unspecified).map_err(socket_error)?;
            udp.set_nonblocking(true).map_err(socket_error)?;
            tcp.set_nonblocking(true).map_err(socket_error)?;
            Ok((udp, tcp))
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(socket_error)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    _ = echo_streams(tcp) => {}
                    _ = echo_datagrams(udp) => {}
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

async fn echo_streams(listener: TcpListener) -> std::io::Result<()> {
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

async fn echo_datagrams(socket: UdpSocket) -> std::io::Result<()> {
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let mut bytes = [0; 16];
    loop {
        // Ignore ICMP errors caused by earlier datagrams.
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
        let mut stream =
            TcpStream::connect_timeout(&SocketAddr::from((VIP, PORT)), CONNECT_TIMEOUT)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
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

    /// Reads the received data. Returns whether it contains the last byte.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 256];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    self.is_open = false;
                    return false;
                }
                Ok(length) if bytes[..length].contains(&LAST_BYTE) => return true,
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
struct DatagramFlow {
    socket: UdpSocket,
    last_response: Instant,
    longest_gap: Duration,
}

impl DatagramFlow {
    fn open() -> std::io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((VIP, PORT))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            last_response: Instant::now(),
            longest_gap: Duration::ZERO,
        })
    }

    fn step(&mut self) {
        let _ = self.socket.send(b"a");
        while self.socket.recv(&mut [0; 1]).is_ok() {
            let now = Instant::now();
            self.longest_gap = self.longest_gap.max(now - self.last_response);
            self.last_response = now;
        }
    }
}

/// The client's sockets.
pub(super) struct Client {
    connections: Vec<Connection>,
    flows: Vec<DatagramFlow>,
}

impl Client {
    /// Opens all connections and waits for one response on each.
    pub(super) fn open(namespace: &Namespace, connections: usize) -> Result<Self> {
        namespace.enter(|| {
            let mut opened = Vec::with_capacity(connections);
            for _ in 0..connections {
                if interrupt::is_interrupted() {
                    return Err(LabError::Interrupted);
                }
                opened.push(Connection::open().map_err(socket_error)?);
            }
            let flows = (0..DATAGRAM_FLOWS).map(|_| DatagramFlow::open());
            let flows: std::io::Result<Vec<_>> = flows.collect();
            Ok(Self {
                connections: opened,
                flows: flows.map_err(socket_error)?,
            })
        })
    }

    /// Returns whether the VIP responds to a datagram and on a connection.
    pub(super) fn vip_responds(namespace: &Namespace) -> Result<bool> {
        namespace.enter(|| {
            let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(socket_error)?;
            udp.set_read_timeout(Some(Duration::from_millis(200)))
                .map_err(socket_error)?;
            let sent = udp.connect((VIP, PORT)).and_then(|()| udp.send(b"a"));
            Ok(sent.is_ok() && udp.recv(&mut [0; 1]).is_ok() && Connection::open().is_ok())
        })
    }

    /// Sends on all connections and flows before, during and after `event`, which returns the time until the router had
    /// the expected paths.
    pub(super) fn measure(
        mut self,
        event: impl FnOnce() -> Result<Option<Duration>> + Send,
    ) -> Result<Measurement> {
        let is_over = AtomicBool::new(false);
        let route = std::thread::scope(|scope| {
            let load = scope.spawn(|| self.load(&is_over));
            std::thread::sleep(LOAD_BEFORE);
            let result = event();
            if result.is_ok() {
                std::thread::sleep(LOAD_AFTER);
            }
            is_over.store(true, Ordering::Relaxed);
            // The thread does not panic.
            let _ = load.join();
            result
        })?;
        let longest = self
            .flows
            .iter()
            .map(|it| it.longest_gap.max(it.last_response.elapsed()));
        let outage = longest.max().unwrap_or_default();
        Ok(Measurement {
            outage,
            broken: self.count_broken(),
            route,
            costs: Vec::new(),
        })
    }

    fn load(&mut self, is_over: &AtomicBool) {
        // Gaps between responses are measured from now on.
        let begin = Instant::now();
        for flow in &mut self.flows {
            flow.last_response = begin;
        }
        let (mut next, mut round) = (begin, 0_usize);
        let rounds = BYTE_INTERVAL.as_millis() / DATAGRAM_INTERVAL.as_millis();
        let rounds = usize::try_from(rounds).unwrap_or(1).max(1);
        while !is_over.load(Ordering::Relaxed) {
            for flow in &mut self.flows {
                flow.step();
            }
            // Each round sends on some of the connections.
            for connection in self.connections.iter_mut().skip(round).step_by(rounds) {
                if connection.is_open {
                    connection.send(b'a');
                    connection.receive();
                }
            }
            round = (round + 1) % rounds;
            next += DATAGRAM_INTERVAL;
            let now = Instant::now();
            // A late thread does not make up for the rounds that it missed.
            next = next.max(now);
            std::thread::sleep(next - now);
        }
    }

    fn count_broken(&mut self) -> usize {
        let end = Instant::now() + RESPONSE_TIMEOUT;
        let mut waiting: Vec<&mut Connection> = self.connections.iter_mut().collect();
        for connection in &mut waiting {
            connection.send(LAST_BYTE);
        }
        let mut broken = 0;
        while !waiting.is_empty() && Instant::now() < end {
            waiting.retain_mut(|connection| {
                let has_responded = connection.receive();
                broken += usize::from(!has_responded && !connection.is_open);
                !has_responded && connection.is_open
            });
            std::thread::sleep(DATAGRAM_INTERVAL);
        }
        broken + waiting.len()
    }
}
