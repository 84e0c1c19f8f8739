//! Hands over connections from a daemon to its successor. Each message contains one connection, with its sockets; the
//! last message contains the final counters.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Receiver;

use serde::{Deserialize, Serialize};
use weir_proxy::{HandedOverConnection, HandoverReceiver, Tunnel};
use weir_sys::{Channel, Message};

/// The header of a message, which the connection's buffered bytes follow. Later versions may add fields, but each new
/// field must have a default.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    service: String,
    peer: SocketAddr,
    port: u16,
    #[serde(default, rename = "spoken_to")]
    destination: Option<SocketAddr>,
    served: bool,
    input: usize,
    tunnel: Option<TunnelHead>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TunnelHead {
    pool: String,
    name: String,
    port: u16,
    to_server: usize,
    to_client: usize,
    /// Whether each direction has ended: end from client, end sent to server, end from server, end sent to client.
    ends: [bool; 4],
}

/// Size in bytes of the field with the header's length, which is in network byte order.
const LENGTH_BYTES: usize = 4;

/// The message that carries the file with the final counters.
const COUNTERS_MESSAGE: &[u8] = b"counts";

/// Sends all connections, then the counters. Runs on its own thread until `connections` is closed.
pub(crate) fn send(
    channel: &Channel,
    connections: &Receiver<HandedOverConnection>,
    counts: impl FnOnce() -> io::Result<OwnedFd>,
) {
    let mut count = 0usize;
    while let Ok(connection) = connections.recv() {
        let result = to_message(&connection).map(|bytes| match &connection.tunnel {
            Some(tunnel) => {
                channel.send(&bytes, &[connection.client.as_fd(), tunnel.server.as_fd()])
            }
            None => channel.send(&bytes, &[connection.client.as_fd()]),
        });
        match result {
            Some(Ok(())) => count += 1,
            Some(Err(error)) => tracing::error!(%error, "failed to hand over a connection"),
            None => tracing::error!("failed to serialize a connection"),
        }
    }
    tracing::info!(count, "handed over connections");
    let result = counts().map(|file| channel.send(COUNTERS_MESSAGE, &[file.as_fd()]));
    if !matches!(result, Ok(Ok(()))) {
        tracing::warn!("failed to hand over the final counters");
    }
}

/// Receives connections and the final counters, until the other process closes the channel. Runs on its own thread.
pub(crate) fn receive(
    channel: &Channel,
    receiver: &mut HandoverReceiver,
    count: impl Fn(&mut HandoverReceiver, File),
) {
    while let Ok(Some(mut message)) = channel.receive() {
        if message.bytes == COUNTERS_MESSAGE {
            if let Some(file) = message.files.pop() {
                count(receiver, file.into());
            }
            continue;
        }
        match parse_message(message) {
            Some(connection) => receiver.accept(connection),
            None => tracing::error!("received an invalid connection message"),
        }
    }
}

fn to_message(connection: &HandedOverConnection) -> Option<Vec<u8>> {
    let head = Head {
        service: connection.service.clone(),
        peer: connection.peer,
        port: connection.port,
        destination: connection.destination,
        served: connection.served,
        input: connection.input.len(),
        tunnel: connection.tunnel.as_ref().map(|tunnel| TunnelHead {
            pool: tunnel.pool.clone(),
            name: tunnel.name.clone(),
            port: tunnel.port,
            to_server: tunnel.to_server.len(),
            to_client: tunnel.to_client.len(),
            ends: [
                tunnel.client_eof,
                tunnel.eof_sent_to_server,
                tunnel.server_eof,
                tunnel.eof_sent_to_client,
            ],
        }),
    };
    let head = serde_json::to_vec(&head).ok()?;
    let mut bytes = u32::try_from(head.len()).ok()?.to_be_bytes().to_vec();
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&connection.input);
    if let Some(tunnel) = &connection.tunnel {
        bytes.extend_from_slice(&tunnel.to_server);
        bytes.extend_from_slice(&tunnel.to_client);
    }
    Some(bytes)
}

fn parse_message(message: Message) -> Option<HandedOverConnection> {
    let bytes = message.bytes.as_slice();
    let (length, remaining) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let (head, mut remaining) = remaining.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let head: Head = serde_json::from_slice(head).ok()?;
    let mut take = |length: usize| -> Option<Vec<u8>> {
        let (part, remainder) = remaining.split_at_checked(length)?;
        remaining = remainder;
        Some(part.to_vec())
    };
    let mut files = message.files.into_iter();
    let client: OwnedFd = files.next()?;
    let input = take(head.input)?;
    let tunnel = match head.tunnel {
        None => None,
        Some(tunnel) => {
            let [
                client_eof,
                eof_sent_to_server,
                server_eof,
                eof_sent_to_client,
            ] = tunnel.ends;
            Some(Tunnel {
                server: files.next()?,
                pool: tunnel.pool,
                name: tunnel.name,
                port: tunnel.port,
                to_server: take(tunnel.to_server)?,
                to_client: take(tunnel.to_client)?,
                client_eof,
                eof_sent_to_server,
                server_eof,
                eof_sent_to_client,
            })
        }
    };
    Some(HandedOverConnection {
        service: head.service,
        client,
        peer: head.peer,
        port: head.port,
        destination: head.destination,
        served: head.served,
        input,
        tunnel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn connection_message_round_trips() {
        let connection = HandedOverConnection {
            service: "www".to_owned(),
            client: file(),
            peer: "192.0.2.1:40000".parse().unwrap(),
            port: 80,
            destination: Some("198.51.100.1:443".parse().unwrap()),
            served: true,
            input: b"GET".to_vec(),
            tunnel: Some(Tunnel {
                server: file(),
                pool: "p".to_owned(),
                name: "10.0.0.1".to_owned(),
                port: 8080,
                to_server: b"up".to_vec(),
                to_client: b"down!".to_vec(),
                client_eof: true,
                eof_sent_to_server: false,
                server_eof: false,
                eof_sent_to_client: true,
            }),
        };
        let bytes = to_message(&connection).unwrap();
        let files = vec![file(), file()];
        let received = parse_message(Message {
            bytes: bytes.clone(),
            files,
        })
        .unwrap();
        assert_eq!(
            (received.service.as_str(), received.peer, received.port),
            ("www", connection.peer, 80)
        );
        assert_eq!(
            (received.input.as_slice(), received.destination),
            (&b"GET"[..], connection.destination)
        );
        let tunnel = received.tunnel.unwrap();
        assert_eq!(
            (tunnel.to_server.as_slice(), tunnel.to_client.as_slice()),
            (&b"up"[..], &b"down!"[..])
        );
        assert!(tunnel.client_eof && tunnel.eof_sent_to_client && !tunnel.eof_sent_to_server);
        for length in 0..bytes.len() {
            let bytes = bytes[..length].to_vec();
            let files = vec![file(), file()];
            assert!(
                parse_message(Message { bytes, files }).is_none(),
                "{length}"
            );
        }
    }
}
