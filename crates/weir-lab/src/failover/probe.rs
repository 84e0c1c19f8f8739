//! Implements the client and the server, which exchange a datagram every millisecond and keep connections open.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::rig::VIP;
use super::{FLOWS, MONITORING_TIME};
use crate::error::{LabError, Result};
use crate::namespace::Namespace;
use crate::process;

const PORT: u16 = 80;
const DATAGRAM_INTERVAL: Duration = Duration::from_millis(1);
/// Number of responses to receive before the fault.
const RESPONSES_BEFORE_FAULT: u32 = 200;
/// Time limit for a response on a connection.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    pub(crate) outage: Duration,
    pub(crate) broken: usize,
}

fn socket_error(source: std::io::Error) -> LabError {
    LabError::file("socket")(source)
}

/// A server whose threads echo the data that they receive. Dropping it stops the threads.
pub(super) struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(namespace: &Namespace) -> Result<Self> {
        let (udp, tcp) = namespace.enter(|| {
            let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
            // Bind to the VIP, so that responses have the VIP as their source.
            let udp = UdpSocket::bind((VIP, PORT)).map_err(socket_error)?;
            let tcp = TcpListener::bind(unspecified).map_err(socket_error)?;
            Ok((udp, tcp))
        })?;
        udp.set_read_timeout(Some(Duration::from_millis(100)))
            .map_err(socket_error)?;
        tcp.set_nonblocking(true).map_err(socket_error)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (udp_stop, tcp_stop) = (Arc::clone(&stop), Arc::clone(&stop));
        let datagrams = std::thread::spawn(move || {
            set_real_time_priority();
            let mut bytes = [0; 16];
            while !udp_stop.load(Ordering::Relaxed) {
                if let Ok((length, from)) = udp.recv_from(&mut bytes) {
                    let _ = udp.send_to(&bytes[..length], from);
                }
            }
        });
        let streams = std::thread::spawn(move || {
            let mut open: Vec<TcpStream> = Vec::new();
            while !tcp_stop.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = tcp.accept() {
                    let _ = stream.set_nonblocking(true);
                    open.push(stream);
                }
                open.retain_mut(echo);
                std::thread::sleep(DATAGRAM_INTERVAL);
            }
        });
        Ok(Self {
            stop,
            threads: vec![datagrams, streams],
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Echoes the data that a connection has received. Returns whether the connection is still open.
fn echo(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 16];
    match stream.read(&mut bytes) {
        Ok(0) => false,
        Ok(length) => stream.write_all(&bytes[..length]).is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Sets real-time priority for this thread, so that the measured outage does not include the time for which the client
/// and the server wait for a CPU. If the lab lacks the privilege, the measured outage is longer on a busy machine.
fn set_real_time_priority() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let _ = process::run("chrt", &["--fifo", "--pid", "1", &thread]);
}

/// The client's sockets.
pub(super) struct Client {
    udp: UdpSocket,
    streams: Vec<TcpStream>,
}

impl Client {
    /// Opens all connections and waits for one response on each.
    pub(super) fn open(namespace: &Namespace) -> Result<Self> {
        namespace.enter(|| {
            let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(socket_error)?;
            udp.connect((VIP, PORT)).map_err(socket_error)?;
            let mut streams = Vec::new();
            for _ in 0..FLOWS {
                let mut stream = TcpStream::connect((VIP, PORT)).map_err(socket_error)?;
                stream
                    .set_read_timeout(Some(RESPONSE_TIMEOUT))
                    .map_err(socket_error)?;
                if !responds(&mut stream) {
                    return Err(socket_error(ErrorKind::ConnectionReset.into()));
                }
                streams.push(stream);
            }
            Ok(Self { udp, streams })
        })
    }

    /// Returns whether the VIP responds.
    pub(super) fn vip_responds(namespace: &Namespace) -> Result<bool> {
        namespace.enter(|| {
            let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(socket_error)?;
            udp.set_read_timeout(Some(Duration::from_millis(50)))
                .map_err(socket_error)?;
            let sent = udp.connect((VIP, PORT)).and_then(|()| udp.send(b"a"));
            Ok(sent.is_ok() && udp.recv(&mut [0; 1]).is_ok())
        })
    }

    /// Monitors the VIP while `fault` runs, and then counts the connections that no longer respond.
    pub(super) fn measure(
        mut self,
        fault: impl FnOnce() -> Result<()> + Send,
    ) -> Result<Measurement> {
        self.udp.set_nonblocking(true).map_err(socket_error)?;
        let outage = std::thread::scope(|scope| {
            let (ready, is_ready) = std::sync::mpsc::channel();
            let client = &self;
            let monitor_thread = scope.spawn(move || {
                set_real_time_priority();
                client.watch(&ready)
            });
            // If the client's thread has failed, `recv` returns an error.
            let _ = is_ready.recv();
            let result = fault();
            let outage = monitor_thread.join().unwrap_or(Duration::MAX);
            result.map(|()| outage)
        })?;
        let broken = self
            .streams
            .iter_mut()
            .map(responds)
            .filter(|responds| !responds)
            .count();
        Ok(Measurement { outage, broken })
    }

    /// Sends to `ready` after [`RESPONSES_BEFORE_FAULT`] responses. Returns the longest time without a response since
    /// then, including the time after the last one.
    fn watch(&self, ready: &Sender<()>) -> Duration {
        let mut end = Instant::now() + MONITORING_TIME;
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        let mut next = Instant::now();
        let mut responses = 0_u32;
        while Instant::now() < end {
            let _ = self.udp.send(b"a");
            while self.udp.recv(&mut [0; 1]).is_ok() {
                let now = Instant::now();
                longest = longest.max(now - last);
                last = now;
                responses = responses.saturating_add(1);
                if responses == RESPONSES_BEFORE_FAULT {
                    (longest, end) = (Duration::ZERO, now + MONITORING_TIME);
                    let _ = ready.send(());
                }
            }
            next += DATAGRAM_INTERVAL;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        longest.max(last.elapsed())
    }
}

/// Sends one byte and waits for the response. Returns whether a response arrives.
fn responds(stream: &mut TcpStream) -> bool {
    stream.write_all(b"a").is_ok() && stream.read_exact(&mut [0; 1]).is_ok()
}
