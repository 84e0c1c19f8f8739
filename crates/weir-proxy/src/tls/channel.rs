//! Implements a TLS connection over a socket, with rustls' unbuffered API.
//!
//! An idle connection owns no buffer: between calls it keeps only incomplete incoming records, and outgoing records
//! that the socket has not accepted. Records are read and written through two buffers per thread.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedConnectionCommon, UnbufferedStatus,
};
use rustls::{ClientConfig, CommonState, HandshakeKind, ProtocolVersion, ServerConfig};

use weir_http::hello::{self, SniResult};
use weir_http::route::TlsProperties;
use weir_model::TlsVersion;

use super::x509;

use crate::context::{BODY_BUFFER_BYTES, HEAD_BUFFER_BYTES, Readiness};
use crate::socket::{self, Read, Written};

/// Maximum overhead of a record over its content in bytes, for all cipher suites.
const RECORD_OVERHEAD: usize = 64;
/// Maximum content of a record, in bytes.
const MAX_RECORD_CONTENT: usize = 16 << 10;

thread_local! {
    /// Buffer for received records.
    static INCOMING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Buffer for records to send.
    static OUTGOING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection that processes records. Implemented for rustls' server and client connections.
trait Records {
    type Data;
    /// Returns whether there are bytes to send.
    fn wants_write(&self) -> bool;
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Records for UnbufferedConnectionCommon<ServerConnectionData> {
    type Data = ServerConnectionData;

    fn wants_write(&self) -> bool {
        CommonState::wants_write(self)
    }

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Records for UnbufferedConnectionCommon<ClientConnectionData> {
    type Data = ClientConnectionData;

    fn wants_write(&self) -> bool {
        CommonState::wants_write(self)
    }

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

/// The server's or the client's end of a connection.
enum End {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// Evaluates the same expression for either end.
macro_rules! either {
    ($end:expr, $connection:ident => $expression:expr) => {
        match $end {
            End::Server($connection) => $expression,
            End::Client($connection) => $expression,
        }
    };
}

/// The result of processing records.
#[derive(Debug, Default)]
struct Progress {
    /// Number of input bytes that were processed.
    used: usize,
    /// Whether the peer has sent close_notify.
    closed: bool,
    /// The error, if the connection has failed. The output then contains an alert.
    failed: Option<rustls::Error>,
}

/// Processes records until more input is needed, then encrypts `content`. Passes received content to `on_plaintext`,
/// and appends the bytes to send to `out`.
fn advance<C: Records + ?Sized>(
    connection: &mut C,
    incoming: &mut [u8],
    content: &[&[u8]],
    out: &mut Vec<u8>,
    on_plaintext: &mut dyn FnMut(&[u8]),
) -> Progress {
    let mut progress = Progress::default();
    loop {
        // After an error only the alert is sent: rustls must not see the malformed record again.
        if progress.failed.is_some() && !connection.wants_write() {
            return progress;
        }
        let status = connection.process(&mut incoming[progress.used..]);
        let state = match status.state {
            Ok(state) => state,
            Err(error) => {
                progress.used += status.discard;
                if progress.failed.replace(error).is_some() {
                    return progress;
                }
                continue;
            }
        };
        let is_blocked = match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    match record {
                        Ok(record) => on_plaintext(record.payload),
                        Err(error) => progress.failed = Some(error),
                    }
                }
                false
            }
            ConnectionState::EncodeTlsData(mut data) => {
                append_with(out, 0, |room| match data.encode(room) {
                    Err(EncodeError::InsufficientSize(size)) => Err(size.required_size),
                    other => Ok(other.unwrap_or(0)),
                });
                false
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                false
            }
            ConnectionState::PeerClosed | ConnectionState::Closed => {
                progress.closed = true;
                true
            }
            ConnectionState::WriteTraffic(mut traffic) => {
                for part in content.iter().filter(|part| !part.is_empty()) {
                    let records = part.len() / MAX_RECORD_CONTENT + 1;
                    let room = part.len() + records * RECORD_OVERHEAD;
                    append_with(out, room, |room| match traffic.encrypt(part, room) {
                        Err(EncryptError::InsufficientSize(size)) => Err(size.required_size),
                        other => Ok(other.unwrap_or(0)),
                    });
                }
                true
            }
            // The handshake needs more input. The only other state is for early data, which is not enabled.
            _ => true,
        };
        progress.used += status.discard;
        if is_blocked {
            return progress;
        }
    }
}

/// Calls `write` with a buffer of `min_size` bytes, and appends the written bytes. If `write` returns the size that it
/// needs, tries once more with that size.
fn append_with(
    out: &mut Vec<u8>,
    min_size: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, usize>,
) {
    let start = out.len();
    let mut room = min_size;
    for _ in 0..2 {
        out.resize(start + room, 0);
        match write(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return;
            }
            Err(needed) => room = needed,
        }
    }
    out.truncate(start);
}

/// The state of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshake {
    Done,
    Pending,
    Failed,
}

/// A TLS connection, without its socket.
pub(crate) struct Channel {
    end: End,
    /// The start of an incomplete record.
    partial_record: Vec<u8>,
    /// Records that the socket has not accepted; the first `sent` bytes were sent.
    unsent: Vec<u8>,
    sent: usize,
    /// Content that was received during the handshake or by [`is_closed`](Self::is_closed), and not read yet.
    unread: Vec<u8>,
    /// Whether the peer has finished sending.
    read_closed: bool,
    /// Whether close_notify was sent.
    close_notify_sent: bool,
    /// Whether the socket is shut down once all records are sent.
    is_finishing: bool,
    /// The client's SNI, once it is known.
    pub(crate) sni: Option<String>,
    /// The TLS error that ended the connection, if any.
    pub(crate) error: Option<rustls::Error>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

/// Details of a client's TLS connection, for route conditions and header templates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsDetails {
    pub(crate) version: Option<TlsVersion>,
    /// The cipher suite.
    pub(crate) cipher: Option<&'static str>,
    /// The SNI.
    pub(crate) server_name: Option<String>,
    /// The subject of the verified client certificate.
    pub(crate) client_subject: Option<String>,
}

impl TlsDetails {
    pub(crate) fn properties(&self) -> TlsProperties<'_> {
        TlsProperties {
            version: self.version,
            cipher: self.cipher,
            server_name: self.server_name.as_deref(),
            client_subject: self.client_subject.as_deref(),
        }
    }
}

impl Channel {
    /// Returns the details of the connection after its handshake.
    pub(crate) fn details(&self) -> TlsDetails {
        let (version, suite, certificate) = either!(&self.end, connection => {
            let chain = connection.peer_certificates();
            let suite = connection.negotiated_cipher_suite();
            (connection.protocol_version(), suite, chain.and_then(<[_]>::first))
        });
        TlsDetails {
            version: match version {
                Some(ProtocolVersion::TLSv1_2) => Some(TlsVersion::V12),
                Some(ProtocolVersion::TLSv1_3) => Some(TlsVersion::V13),
                _ => None,
            },
            cipher: suite.and_then(|suite| suite.suite().as_str()),
            server_name: self.sni.clone(),
            client_subject: certificate.and_then(|certificate| x509::subject(certificate)),
        }
    }

    /// Creates the server's end of a connection.
    ///
    /// # Errors
    /// Fails if the configuration is inconsistent.
    pub(crate) fn accept(config: &Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        UnbufferedServerConnection::new(Arc::clone(config)).map(|end| Self::new(End::Server(end)))
    }

    /// Creates the client's end of a connection; the server's certificate is verified for `name`.
    ///
    /// # Errors
    /// Fails if the configuration is inconsistent.
    pub(crate) fn connect(
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        UnbufferedClientConnection::new(Arc::clone(config), name)
            .map(|end| Self::new(End::Client(end)))
    }

    const fn new(end: End) -> Self {
        Self {
            end,
            partial_record: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            unread: Vec::new(),
            read_closed: false,
            close_notify_sent: false,
            is_finishing: false,
            sni: None,
            error: None,
        }
    }

    fn is_handshaking(&self) -> bool {
        either!(&self.end, connection => connection.is_handshaking())
    }

    /// Returns whether the handshake resumed a session.
    pub(crate) fn is_resumed(&self) -> bool {
        let kind = either!(&self.end, connection => connection.handshake_kind());
        kind == Some(HandshakeKind::Resumed)
    }

    /// Returns the negotiated ALPN protocol.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        either!(&self.end, connection => connection.alpn_protocol())
    }

    /// Returns whether there are records that the socket has not accepted.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends buffered records. Returns whether the connection is usable.
    fn flush(&mut self, socket: &OwnedFd) -> bool {
        if self.unsent.is_empty() {
            return true;
        }
        match socket::write(socket, &self.unsent[self.sent..]) {
            Written::Broken => return false,
            Written::Some(bytes) => self.sent += bytes,
        }
        if self.sent == self.unsent.len() {
            self.unsent = Vec::new();
            self.sent = 0;
            if self.is_finishing {
                socket::finish(socket);
            }
        }
        true
    }

    /// Sends records, or appends them to those that wait. Returns whether the connection is usable.
    fn send(&mut self, socket: &OwnedFd, records: &[u8]) -> bool {
        if records.is_empty() {
            return true;
        }
        if self.has_unsent() {
            self.unsent.extend_from_slice(records);
            return true;
        }
        match socket::write(socket, records) {
            Written::Broken => false,
            Written::Some(bytes) => {
                self.unsent.extend_from_slice(&records[bytes..]);
                true
            }
        }
    }

    /// Processes the incomplete record, and encrypts and sends `content` if the handshake is complete. Returns whether
    /// the connection is usable.
    fn push(&mut self, socket: &OwnedFd, content: &[&[u8]]) -> bool {
        let mut out = OUTGOING.take();
        out.clear();
        let (end, partial_record, unread) =
            (&mut self.end, &mut self.partial_record, &mut self.unread);
        let progress = either!(end, connection => advance(
            &mut **connection, partial_record, content, &mut out,
            &mut |plaintext| unread.extend_from_slice(plaintext),
        ));
        partial_record.drain(..progress.used);
        self.read_closed |= progress.closed;
        let is_usable = self.send(socket, &out) && progress.failed.is_none();
        self.error = progress.failed;
        OUTGOING.set(out);
        is_usable
    }

    /// Reads records once, and passes their content to `on_plaintext`.
    fn fill(
        &mut self,
        socket: &OwnedFd,
        ready: &mut Readiness,
        room: usize,
        on_plaintext: &mut dyn FnMut(&[u8]),
    ) -> Read {
        let mut incoming = INCOMING.take();
        // The buffer is empty at first, and after a panic.
        incoming.resize(BODY_BUFFER_BYTES, 0);
        let read = self.fill_from(socket, ready, room, &mut incoming, on_plaintext);
        INCOMING.set(incoming);
        read
    }

    fn fill_from(
        &mut self,
        socket: &OwnedFd,
        ready: &mut Readiness,
        room: usize,
        incoming: &mut [u8],
        on_plaintext: &mut dyn FnMut(&[u8]),
    ) -> Read {
        let partial_length = self.partial_record.len();
        let room = room.min(incoming.len());
        if partial_length >= room {
            return Read::Broken;
        }
        let bytes = match socket::read(socket, &mut incoming[partial_length..room]) {
            Read::Some(bytes) => bytes,
            Read::Blocked => {
                ready.readable = false;
                return Read::Blocked;
            }
            other => return other,
        };
        ready.after_read(bytes, room - partial_length);
        incoming[..partial_length].copy_from_slice(&self.partial_record);
        self.partial_record.clear();
        let incoming = &mut incoming[..partial_length + bytes];
        if self.sni.is_none()
            && self.is_handshaking()
            && let SniResult::Name(name) = hello::server_name(incoming)
        {
            self.sni = Some(name);
        }
        let mut out = OUTGOING.take();
        out.clear();
        let progress = either!(&mut self.end, connection => advance(
            &mut **connection, incoming, &[], &mut out, on_plaintext,
        ));
        self.partial_record
            .extend_from_slice(&incoming[progress.used..]);
        self.read_closed |= progress.closed;
        let is_usable = self.send(socket, &out) && progress.failed.is_none();
        self.error = progress.failed;
        OUTGOING.set(out);
        if is_usable {
            Read::Some(bytes)
        } else {
            Read::Broken
        }
    }

    /// Continues the handshake as far as possible without waiting.
    pub(crate) fn handshake(&mut self, socket: &OwnedFd, ready: &mut Readiness) -> Handshake {
        if !self.flush(socket) {
            return Handshake::Failed;
        }
        if matches!(self.end, End::Client(_))
            && self.partial_record.is_empty()
            && !self.push(socket, &[])
        {
            return Handshake::Failed;
        }
        while self.is_handshaking() {
            if self.read_closed {
                return Handshake::Failed;
            }
            if !ready.readable {
                return Handshake::Pending;
            }
            let mut unread = std::mem::take(&mut self.unread);
            let read = self.fill(socket, ready, BODY_BUFFER_BYTES, &mut |plaintext| {
                unread.extend_from_slice(plaintext);
            });
            self.unread = unread;
            match read {
                Read::Some(_) | Read::Blocked => {}
                Read::End | Read::Broken => return Handshake::Failed,
            }
        }
        // No further event reports content that was received already.
        ready.readable |= !self.unread.is_empty() || self.read_closed;
        Handshake::Done
    }

    /// Returns whether the peer has closed the connection. Keeps the content of one read for [`read`](Self::read). If
    /// more content precedes the end, returns false; a later read then detects the end.
    pub(crate) fn is_closed(&mut self, socket: &OwnedFd, ready: &mut Readiness) -> bool {
        while ready.readable && self.unread.is_empty() && !self.read_closed {
            let mut unread = std::mem::take(&mut self.unread);
            let read = self.fill(socket, ready, HEAD_BUFFER_BYTES, &mut |plaintext| {
                unread.extend_from_slice(plaintext);
            });
            self.unread = unread;
            self.read_closed |= matches!(read, Read::End | Read::Broken);
        }
        ready.readable |= !self.unread.is_empty() || self.read_closed;
        self.read_closed
    }

    /// See [`Transport::read`](crate::transport::Transport::read).
    pub(crate) fn read(
        &mut self,
        socket: &OwnedFd,
        ready: &mut Readiness,
        buffer: &mut [u8],
    ) -> Read {
        if !self.unread.is_empty() {
            let bytes = self.unread.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&self.unread[..bytes]);
            self.unread.drain(..bytes);
            return Read::Some(bytes);
        }
        loop {
            if self.read_closed {
                return Read::End;
            }
            let mut filled = 0;
            let mut is_large_enough = true;
            // Content is shorter than its records, so `buffer` is large enough.
            let read = self.fill(socket, ready, buffer.len(), &mut |plaintext| {
                match buffer.get_mut(filled..filled + plaintext.len()) {
                    Some(span) => span.copy_from_slice(plaintext),
                    None => is_large_enough = false,
                }
                filled += plaintext.len();
            });
            match read {
                _ if !is_large_enough => return Read::Broken,
                // If the end was received too, the next read returns it.
                Read::Some(_) if filled > 0 => {
                    ready.readable |= self.read_closed;
                    return Read::Some(filled);
                }
                Read::Some(_) if self.read_closed => return Read::End,
                Read::Some(_) if !ready.readable => return Read::Blocked,
                Read::Some(_) => {}
                other => return other,
            }
        }
    }

    /// See [`Transport::write`](crate::transport::Transport::write).
    pub(crate) fn write(&mut self, socket: &OwnedFd, parts: &[&[u8]]) -> Written {
        if !self.flush(socket) {
            return Written::Broken;
        }
        if self.has_unsent() || self.is_handshaking() {
            return Written::Some(0);
        }
        let total = parts.iter().map(|part| part.len()).sum();
        if total > 0 && !self.push(socket, parts) {
            return Written::Broken;
        }
        Written::Some(total)
    }

    /// Sends close_notify, unless it was sent already or the connection has failed.
    pub(crate) fn send_close_notify(&mut self, socket: &OwnedFd) {
        if self.close_notify_sent || self.error.is_some() || self.is_handshaking() {
            return;
        }
        self.close_notify_sent = true;
        let mut out = Vec::new();
        either!(&mut self.end, connection => {
            let status = connection.process_tls_records(&mut self.partial_record);
            if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
                append_with(&mut out, RECORD_OVERHEAD, |room| match traffic.queue_close_notify(room) {
                    Err(EncryptError::InsufficientSize(size)) => Err(size.required_size),
                    other => Ok(other.unwrap_or(0)),
                });
            }
        });
        // A broken connection does not need close_notify.
        let _ = self.send(socket, &out);
    }

    /// Sends close_notify, then shuts down the write direction of the socket.
    pub(crate) fn finish(&mut self, socket: &OwnedFd) {
        self.send_close_notify(socket);
        self.is_finishing = true;
        if !self.has_unsent() {
            socket::finish(socket);
        }
    }
}

#[cfg(test)]
mod tests;
