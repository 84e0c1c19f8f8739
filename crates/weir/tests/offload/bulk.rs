//! Runs TCP connections through a VIP: bulk transfers in both directions, and an echo connection with small messages.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::world::{Family, World, wait_for};

/// A transfer that stalls for this long has failed.
const TIMEOUT: Duration = Duration::from_secs(20);
const CHUNK: usize = 1 << 16;

/// Size of a transfer, and its duration in each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    bytes: usize,
    up: Duration,
    down: Duration,
}

impl Transfer {
    /// Returns the throughput in MB/s, to the server and back.
    fn rates(&self) -> (f64, f64) {
        let rate = |time: Duration| self.bytes as f64 / 1e6 / time.as_secs_f64();
        (rate(self.up), rate(self.down))
    }
}

impl Transfer {
    /// Returns the shorter duration of two transfers of the same size, in each direction.
    pub(crate) fn fastest(self, other: Self) -> Self {
        assert_eq!(self.bytes, other.bytes, "transfers of different sizes");
        Self {
            bytes: self.bytes,
            up: self.up.min(other.up),
            down: self.down.min(other.down),
        }
    }

    /// Returns the throughput relative to another transfer.
    pub(crate) fn ratio_to(&self, other: &Self) -> Ratio {
        let ((up, down), (other_up, other_down)) = (self.rates(), other.rates());
        Ratio {
            up: up / other_up,
            down: down / other_down,
        }
    }
}

/// The throughput of a transfer relative to another one, to the server and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    up: f64,
    down: f64,
}

impl Ratio {
    /// Returns whether the ratio is at least `goal` in both directions.
    pub(crate) fn reaches(self, goal: f64) -> bool {
        self.up.min(self.down) >= goal
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} × up, {:.2} × down", self.up, self.down)
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (up, down) = self.rates();
        write!(
            f,
            "{} MB, {up:.0} MB/s up, {down:.0} MB/s down",
            self.bytes / 1_000_000
        )
    }
}

fn unspecified_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Returns the byte at an offset in a block, which the stream repeats. The byte depends on the offset, so the receiver
/// detects lost or reordered data.
fn pattern(offset: usize) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 13) as u8
}

fn send(stream: &mut TcpStream, block: &[u8], bytes: usize) {
    let mut sent = 0;
    while sent < bytes {
        let length = block.len().min(bytes - sent);
        stream
            .write_all(&block[..length])
            .unwrap_or_else(|error| panic!("after {sent} bytes sent: {error}"));
        sent += length;
    }
}

fn receive(stream: &mut TcpStream, block: &[u8], bytes: usize) {
    let (mut received, mut buffer) = (0, vec![0; CHUNK]);
    while received < bytes {
        let limit = (CHUNK - received % CHUNK).min(bytes - received);
        let length = match stream.read(&mut buffer[..limit]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => {
                result.unwrap_or_else(|error| panic!("after {received} bytes received: {error}"))
            }
        };
        assert!(length > 0, "the stream ended after {received} bytes");
        let offset = received % CHUNK;
        assert!(
            buffer[..length] == block[offset..offset + length],
            "wrong bytes after {received}"
        );
        received += length;
    }
}

fn block() -> Vec<u8> {
    (0..CHUNK).map(pattern).collect()
}

fn set_blocking_with_timeouts(stream: &TcpStream) {
    stream
        .set_nonblocking(false)
        .expect("set the socket to blocking mode");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("set the read timeout");
    stream
        .set_write_timeout(Some(TIMEOUT))
        .expect("set the write timeout");
}

/// Accepts one connection on the first server and passes it to `handler`. Returns once the server is listening.
fn serve(
    world: &World,
    family: Family,
    port: u16,
    handler: impl FnOnce(TcpStream) + Send + 'static,
) -> JoinHandle<()> {
    let server = world.spawn_on("server0", move || {
        let listener = TcpListener::bind(SocketAddr::new(unspecified_address(family), port))
            .expect("bind a listener");
        listener
            .set_nonblocking(true)
            .expect("set the listener to non-blocking mode");
        let deadline = Instant::now() + TIMEOUT;
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "no connection arrived: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        set_blocking_with_timeouts(&stream);
        handler(stream);
    });
    wait_for("the server to listen", TIMEOUT, || {
        let output = world.output("server0", &format!("ss -Hltn sport = :{port}"));
        !output.stdout.is_empty()
    });
    server
}

fn connect(world: &World, from: &str, address: SocketAddr) -> TcpStream {
    let thread = world.spawn_on(from, move || TcpStream::connect_timeout(&address, TIMEOUT));
    let stream = thread.join().expect("thread panicked").expect("connect");
    set_blocking_with_timeouts(&stream);
    stream
}

/// Sends `bytes` bytes from host `from` to the server, which sends the same number of bytes back.
pub(crate) fn transfer(
    world: &World,
    family: Family,
    from: &str,
    server_address: SocketAddr,
    bytes: usize,
) -> Transfer {
    let server = serve(world, family, server_address.port(), move |mut stream| {
        let block = block();
        receive(&mut stream, &block, bytes);
        stream.write_all(&[1]).expect("write the acknowledgement");
        send(&mut stream, &block, bytes);
    });
    let mut stream = connect(world, from, server_address);
    let (block, started) = (block(), Instant::now());
    send(&mut stream, &block, bytes);
    stream
        .read_exact(&mut [0])
        .expect("read the server's acknowledgement");
    let up = started.elapsed();
    receive(&mut stream, &block, bytes);
    let down = started.elapsed() - up;
    server.join().expect("server thread panicked");
    Transfer { bytes, up, down }
}

/// A connection that exchanges small messages with an echo server.
pub(crate) struct EchoConnection(TcpStream);

impl EchoConnection {
    /// Starts an echo server on the first server and connects to it through the VIP.
    pub(crate) fn connect(world: &World, family: Family, port: u16) -> Self {
        serve(world, family, port, |mut stream| {
            let mut buffer = [0; CHUNK];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
        });
        Self(connect(
            world,
            "client",
            SocketAddr::new(family.vip(), port),
        ))
    }

    /// Writes a message to the socket without waiting for the echo.
    pub(crate) fn send(&mut self, message: &[u8]) {
        self.0.write_all(message).expect("send the message");
    }

    /// Sends a message and waits for the echo. `limit` applies to each read.
    pub(crate) fn exchange(&mut self, limit: Duration) {
        let message = vec![7; 10_000];
        self.0
            .set_read_timeout(Some(limit))
            .expect("set the read timeout");
        self.0.write_all(&message).expect("send the message");
        let mut received = vec![0; message.len()];
        self.0.read_exact(&mut received).expect("read the echo");
        assert_eq!(message, received);
    }

    /// Exchanges messages until the connection ends. Returns the error, or `None` after a normal end of stream. `limit`
    /// applies to each read.
    pub(crate) fn wait_until_closed(&mut self, limit: Duration) -> Option<ErrorKind> {
        self.0
            .set_read_timeout(Some(limit))
            .expect("set the read timeout");
        let mut received = [0; CHUNK];
        loop {
            if let Err(error) = self.0.write_all(&[7]) {
                return Some(error.kind());
            }
            match self.0.read(&mut received) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(error.kind()),
            }
        }
    }
}

#[test]
fn ratio_compares_the_fastest_transfers_in_each_direction() {
    let transfer = |up, down| Transfer {
        bytes: 1_000_000,
        up: Duration::from_millis(up),
        down: Duration::from_millis(down),
    };
    let baseline = transfer(70, 100).fastest(transfer(100, 70));
    let slow = transfer(100, 200);
    assert!(slow.ratio_to(&baseline).reaches(0.35) && !slow.ratio_to(&baseline).reaches(0.36));
    let fastest = slow.fastest(transfer(300, 100));
    assert!(fastest.ratio_to(&baseline).reaches(0.7) && !fastest.ratio_to(&baseline).reaches(0.71));
}
