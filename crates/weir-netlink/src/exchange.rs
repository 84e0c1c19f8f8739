//! Sends requests and receives replies on a netlink socket (RFC 3549).
//!
//! Except in batches, one request is outstanding at a time, and it asks for an acknowledgement or is a dump, so the end
//! of the replies is always marked. In a batch, the kernel replies to each request with exactly one message.
//! Replies to a request whose future was dropped have an old sequence number and are skipped.
//! Messages that this build cannot decode, for example because of an attribute of a newer kernel, are skipped and
//! counted, so the rest of a table is still read.

use std::io;

use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};

use crate::{Error, Result};

const HEADER_BYTES: usize = 16;
const MAX_DUMP_ATTEMPTS: u32 = 5;
/// Number of requests in a datagram. The default receive buffer (`net.core.rmem_default`) is several times larger than
/// the replies to these requests.
const BATCH_SIZE: usize = 64;
/// Buffer size for a datagram of single replies; the kernel uses the same size for dumps.
const REPLY_BYTES: usize = 1 << 15;
// linux/netlink.h, enum nlmsgerr_attrs
const NLMSGERR_ATTR_MSG: u16 = 1;

/// A netlink socket, with the sequence number of the last request.
pub(crate) struct Exchange {
    socket: TokioSocket,
    sequence: u32,
    undecodable: u64,
}

impl Exchange {
    /// Opens a socket of `protocol` in the calling thread's network namespace.
    pub(crate) fn open(protocol: isize) -> Result<Self> {
        let open = || {
            let mut socket = TokioSocket::new(protocol)?;
            socket.socket_mut().bind_auto()?;
            let inner = socket.socket_ref();
            inner.set_ext_ack(true)?;
            inner.set_cap_ack(true)?;
            inner.set_netlink_get_strict_chk(true)?;
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(|source| Error::Socket { source })?,
            sequence: 0,
            undecodable: 0,
        })
    }

    /// Returns the number of messages that were skipped since the socket was opened because they could not be decoded.
    pub(crate) fn undecodable_count(&self) -> u64 {
        self.undecodable
    }

    /// Sends `payload` with `flags`, REQUEST and ACK, and returns the messages before the acknowledgement. Errors
    /// contain the description `request`.
    pub(crate) async fn transact<T>(
        &mut self,
        request: &str,
        payload: T,
        flags: u16,
    ) -> Result<Vec<T>>
    where
        T: NetlinkSerializable + NetlinkDeserializable,
    {
        let replies = self
            .send_request(request, payload, flags | NLM_F_ACK)
            .await?;
        Ok(replies.messages)
    }

    /// Reads a table, and reads it again if it changed in the meantime, at most `MAX_DUMP_ATTEMPTS` times in total.
    pub(crate) async fn dump<T>(&mut self, request: &str, payload: T) -> Result<Vec<T>>
    where
        T: NetlinkSerializable + NetlinkDeserializable + Clone,
    {
        for _ in 0..MAX_DUMP_ATTEMPTS {
            let replies = self
                .send_request(request, payload.clone(), NLM_F_DUMP)
                .await?;
            if !replies.interrupted {
                return Ok(replies.messages);
            }
        }
        Err(Error::Unstable {
            request: request.to_owned(),
        })
    }

    /// Sends many requests in batches. The kernel replies to each request with one message or error. Returns the
    /// replies in the order of the requests. `request` returns the description of a request by its index, for errors.
    pub(crate) async fn transact_each<T>(
        &mut self,
        payloads: Vec<T>,
        request: impl Fn(usize) -> String,
    ) -> Result<Vec<Result<T>>>
    where
        T: NetlinkSerializable + NetlinkDeserializable,
    {
        let mut replies: Vec<Result<T>> = Vec::with_capacity(payloads.len());
        let mut payloads = payloads.into_iter().peekable();
        let mut datagram = Vec::with_capacity(REPLY_BYTES);
        while payloads.peek().is_some() {
            let batch: Vec<T> = payloads.by_ref().take(BATCH_SIZE).collect();
            let first = self.sequence.wrapping_add(1);
            let mut outstanding = self.send_each(batch).await?;
            let completed = replies.len();
            let mut batch_replies: Vec<Option<Result<T>>> =
                (0..outstanding).map(|_| None).collect();
            while outstanding > 0 {
                // Single replies fit into the buffer. Querying the size first would double the number of system calls.
                datagram.clear();
                let received = self.socket.recv_from(&mut datagram).await;
                let sender = received.map_err(|source| Error::Socket { source })?;
                if sender.port_number() != 0 {
                    continue;
                }
                for bytes in messages(&datagram) {
                    let Some((index, reply)) =
                        parse_reply::<T>(bytes, first, |index| request(completed + index as usize))
                    else {
                        continue;
                    };
                    if let Some(slot) = batch_replies.get_mut(index as usize)
                        && slot.replace(reply).is_none()
                    {
                        outstanding -= 1;
                    }
                }
            }
            replies.extend(batch_replies.into_iter().flatten());
        }
        Ok(replies)
    }

    /// Sends one datagram with a request for each payload. Returns the number of requests.
    async fn send_each<T: NetlinkSerializable>(&mut self, payloads: Vec<T>) -> Result<usize> {
        let mut datagram = Vec::new();
        let count = payloads.len();
        for payload in payloads {
            self.sequence = self.sequence.wrapping_add(1);
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST;
            header.sequence_number = self.sequence;
            let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(payload));
            message.finalize();
            let start = datagram.len();
            datagram.resize((start + message.buffer_len()).next_multiple_of(4), 0);
            message.serialize(&mut datagram[start..start + message.buffer_len()]);
        }
        let kernel = SocketAddr::new(0, 0);
        let sent = self.socket.send_to(&datagram, &kernel).await;
        sent.map_err(|source| Error::Socket { source })?;
        Ok(count)
    }

    async fn send_request<T>(&mut self, request: &str, payload: T, flags: u16) -> Result<Replies<T>>
    where
        T: NetlinkSerializable + NetlinkDeserializable,
    {
        let socket_error = |source| Error::Socket { source };
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(payload));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let kernel = SocketAddr::new(0, 0);
        self.socket
            .send_to(&bytes, &kernel)
            .await
            .map_err(socket_error)?;

        let mut replies = Replies {
            messages: Vec::new(),
            interrupted: false,
            undecodable: 0,
        };
        loop {
            let (datagram, sender) = self.socket.recv_from_full().await.map_err(socket_error)?;
            // Only the kernel replies to requests: ignore messages from other processes.
            if sender.port_number() != 0 {
                continue;
            }
            let end = replies.add_datagram(&datagram, self.sequence);
            self.undecodable += std::mem::take(&mut replies.undecodable);
            match end {
                None => {}
                Some(Ok(())) => return Ok(replies),
                Some(Err((source, reason))) => {
                    return Err(Error::Rejected {
                        request: request.to_owned(),
                        source,
                        reason,
                    });
                }
            }
        }
    }
}

/// Parses the reply to one of the requests with sequence numbers from `first`. Returns it with the index of the
/// request.
fn parse_reply<T: NetlinkDeserializable>(
    bytes: &[u8],
    first: u32,
    request: impl Fn(u32) -> String,
) -> Option<(u32, Result<T>)> {
    let sequence = u32::from_ne_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    let index = sequence.wrapping_sub(first);
    let request_failed = |source, reason| Error::Rejected {
        request: request(index),
        source,
        reason,
    };
    let reply = match NetlinkMessage::<T>::deserialize(bytes).map(|message| message.payload) {
        Ok(NetlinkPayload::InnerMessage(inner)) => Ok(inner),
        Ok(NetlinkPayload::Error(reply)) => {
            let text = reply.header.get(HEADER_BYTES..).and_then(error_text);
            Err(request_failed(reply.to_io(), text))
        }
        Ok(_) => return None,
        // The reply contains an attribute of a newer kernel and cannot be decoded.
        Err(_) => Err(request_failed(io::ErrorKind::InvalidData.into(), None)),
    };
    Some((index, reply))
}

/// The replies to a request.
struct Replies<T> {
    messages: Vec<T>,
    interrupted: bool,
    undecodable: u64,
}

/// The end of a request: acknowledged, or the error and the kernel's message.
type End = std::result::Result<(), (io::Error, Option<String>)>;

impl<T: NetlinkDeserializable> Replies<T> {
    /// Adds the messages of a datagram. Returns the end of the request, if the datagram contains it.
    fn add_datagram(&mut self, datagram: &[u8], sequence: u32) -> Option<End> {
        for bytes in messages(datagram) {
            let field = |offset: usize| {
                [
                    bytes[offset],
                    bytes[offset + 1],
                    bytes[offset + 2],
                    bytes[offset + 3],
                ]
            };
            if u32::from_ne_bytes(field(8)) != sequence {
                continue;
            }
            let Ok(message) = NetlinkMessage::<T>::deserialize(bytes) else {
                self.undecodable += 1;
                continue;
            };
            self.interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => self.messages.push(inner),
                NetlinkPayload::Done(done) if done.code < 0 => {
                    let text = error_text(&done.extended_ack);
                    return Some(Err((io::Error::from_raw_os_error(-done.code), text)));
                }
                NetlinkPayload::Done(_) => return Some(Ok(())),
                NetlinkPayload::Error(reply) if reply.code.is_some() => {
                    let text = reply.header.get(HEADER_BYTES..).and_then(error_text);
                    return Some(Err((reply.to_io(), text)));
                }
                NetlinkPayload::Error(_) => return Some(Ok(())),
                _ => {}
            }
        }
        None
    }
}

/// Iterates over the messages in a datagram, including their headers. Stops at an invalid length.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = rest
            .first_chunk::<4>()
            .map(|bytes| u32::from_ne_bytes(*bytes) as usize)?;
        if length < HEADER_BYTES || length > rest.len() {
            return None;
        }
        let (message, tail) = rest.split_at(length);
        // Messages are aligned to four bytes; the last one may have no padding.
        rest = tail
            .get(length.next_multiple_of(4) - length..)
            .unwrap_or(&[]);
        Some(message)
    })
}

/// Returns the text of an extended acknowledgement.
fn error_text(attributes: impl AsRef<[u8]>) -> Option<String> {
    let text = NlasIterator::new(attributes.as_ref())
        .map_while(|attribute| attribute.ok())
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .map(|attribute| attribute.value().to_vec())?;
    let text = String::from_utf8_lossy(&text);
    Some(text.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::RouteNetlinkMessage;

    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + payload.len()) as u32)
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn replies() -> Replies<RouteNetlinkMessage> {
        Replies {
            messages: Vec::new(),
            interrupted: false,
            undecodable: 0,
        }
    }

    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    const NEWROUTE: u16 = 24;

    #[test]
    fn reply_with_a_different_sequence_number_does_not_end_a_request() {
        let mut replies = replies();
        assert!(
            replies
                .add_datagram(&message(ERROR, 0, 6, &[0; 20]), 7)
                .is_none()
        );
        assert!(matches!(
            replies.add_datagram(&message(ERROR, 0, 7, &[0; 20]), 7),
            Some(Ok(()))
        ));
    }

    #[test]
    fn interrupted_dump_is_detected() {
        let mut replies = replies();
        let mut datagram = message(NEWROUTE, 0, 1, &[2, 24, 0, 0, 254, 2, 0, 1, 0, 0, 0, 0]);
        datagram.extend(message(DONE, NLM_F_DUMP_INTR, 1, &[0; 4]));
        assert!(matches!(replies.add_datagram(&datagram, 1), Some(Ok(()))));
        assert_eq!((replies.messages.len(), replies.interrupted), (1, true));
    }

    #[test]
    fn error_contains_number_and_message() {
        let mut payload = (-22_i32).to_ne_bytes().to_vec();
        payload.extend([0; HEADER_BYTES]);
        payload.extend(8_u16.to_ne_bytes());
        payload.extend(NLMSGERR_ATTR_MSG.to_ne_bytes());
        payload.extend(b"no\0\0");
        match replies().add_datagram(&message(ERROR, 0, 1, &payload), 1) {
            Some(Err((error, reason))) => {
                assert_eq!(error.raw_os_error(), Some(22));
                assert_eq!(reason.as_deref(), Some("no"));
            }
            _ => panic!("expected an error"),
        }
    }

    #[test]
    fn undecodable_messages_are_counted() {
        let mut replies = replies();
        assert!(
            replies
                .add_datagram(&message(NEWROUTE, 0, 1, &[2]), 1)
                .is_none()
        );
        assert_eq!(replies.undecodable, 1);
    }

    #[test]
    fn invalid_length_ends_the_datagram() {
        let valid = message(DONE, 0, 1, &[0; 4]);
        for length in [0_u32, 15, 4096] {
            let mut datagram = valid.clone();
            datagram.extend(length.to_ne_bytes());
            datagram.extend([0; 12]);
            assert_eq!(messages(&datagram).count(), 1, "{length}");
        }
        assert_eq!(messages(&[1, 2, 3]).count(), 0);
    }
}
