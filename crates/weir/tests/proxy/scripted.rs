//! Provides a server that sends the bytes that a test specifies and reports the bytes that it receives.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Time limit of each wait. Only `receive` fails the test when the limit expires.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An action on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// Reads a head and a body framed by `Content-Length` or chunked encoding.
    Read,
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Reads until the other side closes the connection.
    Drain,
    /// Waits until the test calls `resume`.
    Wait,
}

/// Returns the action that sends a text.
pub(crate) fn send_text(text: &str) -> Action {
    Action::Send(text.as_bytes().to_vec())
}

/// The test server.
pub(crate) struct ScriptedServer {
    address: SocketAddr,
    messages: Receiver<String>,
    resume: Sender<()>,
}

impl ScriptedServer {
    /// Starts the server, which serves one connection at a time. Connections use these scripts in turn; additional
    /// connections use the last script.
    pub(crate) fn start(scripts: Vec<Vec<Action>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let (sender, messages) = channel();
        let (resume, wait) = channel();
        std::thread::spawn(move || {
            let mut next = scripts.iter().peekable();
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(script) = next.next() else { return };
                if next.peek().is_none() {
                    next = scripts[scripts.len() - 1..].iter().peekable();
                }
                // Errors are expected: tests close connections intentionally.
                let _ = run_script(stream, script, &sender, &wait);
            }
        });
        Self {
            address,
            messages,
            resume,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next message and returns its head and body.
    pub(crate) fn receive(&self) -> String {
        self.messages
            .recv_timeout(TIMEOUT)
            .expect("receive a message")
    }

    /// Returns whether no further message has arrived.
    pub(crate) fn has_no_further_message(&self) -> bool {
        self.messages.try_recv().is_err()
    }

    /// Ends the next [`Action::Wait`].
    pub(crate) fn resume(&self) {
        self.resume.send(()).expect("script has ended");
    }
}

/// Runs a script on a connection.
fn run_script(
    mut stream: TcpStream,
    script: &[Action],
    sender: &Sender<String>,
    wait: &Receiver<()>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    for action in script {
        match action {
            Action::Read => {
                let message = read_message(&mut stream)?;
                let _ = sender.send(message);
            }
            Action::Send(bytes) => stream.write_all(bytes)?,
            Action::Close => return stream.shutdown(Shutdown::Both),
            Action::Drain => {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest)?;
                let _ = sender.send(String::from_utf8_lossy(&rest).into_owned());
            }
            Action::Wait => {
                let _ = wait.recv_timeout(TIMEOUT);
            }
        }
    }
    // Additional requests on this connection get neither a response nor a reset.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    if !rest.is_empty() {
        let _ = sender.send(String::from_utf8_lossy(&rest).into_owned());
    }
    Ok(())
}

/// Reads a head and a body framed by `Content-Length` or chunked encoding.
fn read_message(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut message = Vec::new();
    let mut byte = [0u8; 1];
    let mut read_until = |message: &mut Vec<u8>, end: &[u8]| -> std::io::Result<()> {
        let start = message.len();
        while !message[start..].ends_with(end) {
            stream.read_exact(&mut byte)?;
            message.push(byte[0]);
        }
        Ok(())
    };
    read_until(&mut message, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&message).to_ascii_lowercase();
    if head.contains("\r\ntransfer-encoding: chunked\r\n") {
        read_until(&mut message, b"0\r\n\r\n")?;
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
