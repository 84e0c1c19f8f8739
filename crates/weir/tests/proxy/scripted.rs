//! A server that sends the bytes that a test specifies, and reports what it received.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long either side waits before a test fails.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Its actions on a connection, in order.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Reads a head, and the part of a body that its `Content-Length` announces.
    Read,
    /// Sends these bytes.
    Say(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Reads until the other side ends.
    Drain,
    /// Waits until the test continues.
    Wait,
}

/// Sends a text.
pub(crate) fn say(text: &str) -> Act {
    Act::Say(text.as_bytes().to_vec())
}

/// The test server.
pub(crate) struct Scripted {
    address: SocketAddr,
    received: Receiver<String>,
    go_on: Sender<()>,
}

impl Scripted {
    /// The connections use these scripts in turn; further connections use the last one.
    pub(crate) fn start(scripts: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (sender, received) = channel();
        let (go_on, wait) = channel();
        std::thread::spawn(move || {
            let mut next = scripts.iter().peekable();
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(script) = next.next() else { return };
                if next.peek().is_none() {
                    next = scripts[scripts.len() - 1..].iter().peekable();
                }
                // The test breaks connections on purpose.
                let _ = play(stream, script, &sender, &wait);
            }
        });
        Self {
            address,
            received,
            go_on,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next message received, head and body.
    pub(crate) fn received(&self) -> String {
        self.received
            .recv_timeout(TIMEOUT)
            .expect("a request comes")
    }

    /// Whether no further message has arrived.
    pub(crate) fn received_nothing(&self) -> bool {
        self.received.try_recv().is_err()
    }

    /// Continues after the next [`Act::Wait`].
    pub(crate) fn go_on(&self) {
        self.go_on.send(()).expect("it waits");
    }
}

fn play(
    mut stream: TcpStream,
    script: &[Act],
    sender: &Sender<String>,
    wait: &Receiver<()>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    for act in script {
        match act {
            Act::Read => {
                let message = read_message(&mut stream)?;
                let _ = sender.send(message);
            }
            Act::Say(bytes) => stream.write_all(bytes)?,
            Act::Close => return stream.shutdown(Shutdown::Both),
            Act::Drain => {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest)?;
                let _ = sender.send(String::from_utf8_lossy(&rest).into_owned());
            }
            Act::Wait => {
                let _ = wait.recv_timeout(TIMEOUT);
            }
        }
    }
    // Further requests on this connection get no response, but no reset either.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    if !rest.is_empty() {
        let _ = sender.send(String::from_utf8_lossy(&rest).into_owned());
    }
    Ok(())
}

/// A head, and the body that its `Content-Length` or its chunks announce.
fn read_message(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut message = Vec::new();
    let mut byte = [0u8; 1];
    let mut until = |message: &mut Vec<u8>, end: &[u8]| -> std::io::Result<()> {
        let from = message.len();
        while !message[from..].ends_with(end) {
            stream.read_exact(&mut byte)?;
            message.push(byte[0]);
        }
        Ok(())
    };
    until(&mut message, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&message).to_ascii_lowercase();
    if head.contains("\r\ntransfer-encoding: chunked\r\n") {
        until(&mut message, b"0\r\n\r\n")?;
    } else if let Some(length) = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
    {
        let mut body = vec![0; length.trim().parse().unwrap_or(0)];
        stream.read_exact(&mut body)?;
        message.extend_from_slice(&body);
    }
    Ok(String::from_utf8_lossy(&message).into_owned())
}
