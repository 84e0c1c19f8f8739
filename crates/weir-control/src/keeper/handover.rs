//! Hands over connections from a daemon to its successor: one message per connection, with the connection's sockets.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Receiver;

use serde::{Deserialize, Serialize};
use weir_proxy::{Handed, Inlet, Tunnel};
use weir_sys::{Channel, Message};

/// The header of a message, followed by the connection's buffered bytes. Fields may be added; a missing field gets its
/// default.
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
    /// Client ended, end sent to server, server ended, end sent to client.
    ends: [bool; 4],
}

/// Size in bytes of the header's length, which is in network order.
const LENGTH_BYTES: usize = 4;

/// The message whose attached file contains the final counters.
const COUNTERS_MESSAGE: &[u8] = b"counts";

/// Sends all connections, then the counters. Runs on its own thread until `connections` is closed.
pub(crate) fn send(
    channel: &Channel,
    connections: &Receiver<Handed>,
    counts: impl FnOnce() -> io::Result<OwnedFd>,
) {
    let mut count = 0usize;
    while let Ok(handed) = connections.recv() {
        let sent = message(&handed).map(|bytes| match &handed.tunnel {
            Some(tunnel) => channel.send(&bytes, &[handed.client.as_fd(), tunnel.server.as_fd()]),
            None => channel.send(&bytes, &[handed.client.as_fd()]),
        });
        match sent {
            Some(Ok(())) => count += 1,
            Some(Err(error)) => tracing::error!(%error, "failed to hand over a connection"),
            None => tracing::error!("failed to serialize a connection"),
        }
    }
    tracing::info!(count, "handed over connections");
    let sent = counts().map(|file| channel.send(COUNTERS_MESSAGE, &[file.as_fd()]));
    if !matches!(sent, Ok(Ok(()))) {
        tracing::warn!("failed to hand over the final counters");
    }
}

/// Receives connections and the final counters, until the other process closes the channel. Runs on its own thread.
pub(crate) fn receive(channel: &Channel, inlet: &mut Inlet, count: impl Fn(&mut Inlet, File)) {
    while let Ok(Some(mut message)) = channel.receive() {
        if message.bytes == COUNTERS_MESSAGE {
            if let Some(file) = message.files.pop() {
                count(inlet, file.into());
            }
            continue;
        }
        match connection(message) {
            Some(handed) => inlet.give(handed),
            None => tracing::error!("received an invalid connection message"),
        }
    }
}

fn message(handed: &Handed) -> Option<Vec<u8>> {
    let head = Head {
        service: handed.service.clone(),
        peer: handed.peer,
        port: handed.port,
        destination: handed.destination,
        served: handed.served,
        input: handed.input.len(),
        tunnel: handed.tunnel.as_ref().map(|tunnel| TunnelHead {
            pool: tunnel.pool.clone(),
            name: tunnel.name.clone(),
            port: tunnel.port,
            to_server: tunnel.to_server.len(),
            to_client: tunnel.to_client.len(),
            ends: [
                tunnel.client_ended,
                tunnel.end_sent_to_server,
                tunnel.server_ended,
                tunnel.end_sent_to_client,
            ],
        }),
    };
    let head = serde_json::to_vec(&head).ok()?;
    let mut bytes = u32::try_from(head.len()).ok()?.to_be_bytes().to_vec();
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&handed.input);
    if let Some(tunnel) = &handed.tunnel {
        bytes.extend_from_slice(&tunnel.to_server);
        bytes.extend_from_slice(&tunnel.to_client);
    }
    Some(bytes)
}

fn connection(message: Message) -> Option<Handed> {
    let bytes = message.bytes.as_slice();
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let (head, mut rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let head: Head = serde_json::from_slice(head).ok()?;
    let mut take = |length: usize| -> Option<Vec<u8>> {
        let (taken, left) = rest.split_at_checked(length)?;
        rest = left;
        Some(taken.to_vec())
    };
    let mut files = message.files.into_iter();
    let client: OwnedFd = files.next()?;
    let input = take(head.input)?;
    let tunnel = match head.tunnel {
        None => None,
        Some(tunnel) => {
            let [
                client_ended,
                end_sent_to_server,
                server_ended,
                end_sent_to_client,
            ] = tunnel.ends;
            Some(Tunnel {
                server: files.next()?,
                pool: tunnel.pool,
                name: tunnel.name,
                port: tunnel.port,
                to_server: take(tunnel.to_server)?,
                to_client: take(tunnel.to_client)?,
                client_ended,
                end_sent_to_server,
                server_ended,
                end_sent_to_client,
            })
        }
    };
    Some(Handed {
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
        let handed = Handed {
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
                client_ended: true,
                end_sent_to_server: false,
                server_ended: false,
                end_sent_to_client: true,
            }),
        };
        let bytes = message(&handed).unwrap();
        let files = vec![file(), file()];
        let received = connection(Message {
            bytes: bytes.clone(),
            files,
        })
        .unwrap();
        assert_eq!(
            (received.service.as_str(), received.peer, received.port),
            ("www", handed.peer, 80)
        );
        assert_eq!(
            (received.input.as_slice(), received.destination),
            (&b"GET"[..], handed.destination)
        );
        let tunnel = received.tunnel.unwrap();
        assert_eq!(
            (tunnel.to_server.as_slice(), tunnel.to_client.as_slice()),
            (&b"up"[..], &b"down!"[..])
        );
        assert!(tunnel.client_ended && tunnel.end_sent_to_client && !tunnel.end_sent_to_server);
        for length in 0..bytes.len() {
            let bytes = bytes[..length].to_vec();
            let files = vec![file(), file()];
            assert!(connection(Message { bytes, files }).is_none(), "{length}");
        }
    }
}
