//! Provides the byte stream of a session: a plain socket, TLS over a socket, or an HTTP/2 stream pipe.
//!
//! The streams of an HTTP/2 connection share its socket. A transport may have accepted bytes that the socket has not
//! accepted yet ([`Transport::has_unsent`]). It then accepts no more until the socket is writable. An empty write sends
//! the pending bytes.

use std::os::fd::OwnedFd;

use rustix::io;

use crate::context::Readiness;
use crate::descriptor::{DescriptorGuard, DescriptorUse};
use crate::h2::{PipeState, StreamPipeEnd};
use crate::socket::{self, Read, Written};
use crate::tls::{Channel, Handshake, TlsDetails};

/// The byte stream of a session: a plain socket, TLS, or a stream of an HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Transport {
    kind: Kind,
    /// Counts the socket's descriptor.
    descriptor_guard: Option<DescriptorGuard>,
}

#[derive(Debug)]
enum Kind {
    Plain(OwnedFd),
    Secure(OwnedFd, Box<Channel>),
    Stream(StreamPipeEnd),
    /// No peer: written bytes are discarded, and there is never anything to read.
    Null,
}

impl Transport {
    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            descriptor_guard: None,
        }
    }

    /// Creates a transport without TLS.
    pub(crate) const fn plain(socket: OwnedFd) -> Self {
        Self::new(Kind::Plain(socket))
    }

    /// Creates a transport with TLS over the socket.
    pub(crate) fn secure(socket: OwnedFd, channel: Channel) -> Self {
        Self::new(Kind::Secure(socket, Box::new(channel)))
    }

    /// Counts the descriptor as a client's or a server's until the transport is dropped.
    pub(crate) fn with_descriptor_count(mut self, kind: DescriptorUse) -> Self {
        self.descriptor_guard = Some(DescriptorGuard::new(kind));
        self
    }

    /// Creates a transport from the parts that [`into_parts`](Self::into_parts) returned.
    pub(crate) fn from_parts(socket: OwnedFd, channel: Option<Box<Channel>>) -> Self {
        Self::new(match channel {
            Some(channel) => Kind::Secure(socket, channel),
            None => Kind::Plain(socket),
        })
    }

    /// Returns the socket and its TLS channel, if any, for another thread. Returns `None` for a stream.
    pub(crate) fn into_parts(self) -> Option<(OwnedFd, Option<Box<Channel>>)> {
        match self.kind {
            Kind::Plain(socket) => Some((socket, None)),
            Kind::Secure(socket, channel) => Some((socket, Some(channel))),
            Kind::Stream(_) | Kind::Null => None,
        }
    }

    /// Creates a transport for a stream of an HTTP/2 connection.
    pub(crate) const fn stream(end: StreamPipeEnd) -> Self {
        Self::new(Kind::Stream(end))
    }

    /// Creates a transport without a peer, for a request whose response is discarded.
    pub(crate) const fn null() -> Self {
        Self::new(Kind::Null)
    }

    /// Returns whether there is no socket: the transport is a stream, or has no peer.
    pub(crate) const fn is_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream(_) | Kind::Null)
    }

    /// Returns the socket if there is no TLS over it.
    pub(crate) fn into_plain(self) -> Option<OwnedFd> {
        match self.kind {
            Kind::Plain(socket) => Some(socket),
            Kind::Secure(..) | Kind::Stream(_) | Kind::Null => None,
        }
    }

    /// Returns whether the connection is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        match &self.kind {
            Kind::Plain(_) | Kind::Null => false,
            Kind::Secure(..) => true,
            Kind::Stream(end) => end.is_secure(),
        }
    }

    /// Returns the underlying socket, if there is one.
    pub(crate) const fn socket(&self) -> Option<&OwnedFd> {
        match &self.kind {
            Kind::Plain(socket) | Kind::Secure(socket, _) => Some(socket),
            Kind::Stream(_) | Kind::Null => None,
        }
    }

    /// Removes the socket from epoll.
    pub(crate) fn unwatch(&self, epoll: &OwnedFd) {
        if let Some(socket) = self.socket() {
            socket::unwatch(epoll, socket);
        }
    }

    /// Registers the socket, if there is one, for all events; see [`socket::watch`].
    pub(crate) fn watch(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.socket()
            .map_or(Ok(()), |socket| socket::watch(epoll, socket, token))
    }

    /// Registers the socket for all events except write events; see [`socket::watch_reading`].
    pub(crate) fn watch_reading(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.socket()
            .map_or(Ok(()), |socket| socket::watch_reading(epoll, socket, token))
    }

    /// Changes the token of the socket's events, and enables all events.
    pub(crate) fn rewatch(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.socket()
            .map_or(Ok(()), |socket| socket::rewatch(epoll, socket, token))
    }

    /// Disables read events until [`Transport::rewatch`].
    pub(crate) fn suspend_reading(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.socket().map_or(Ok(()), |socket| {
            socket::suspend_reading(epoll, socket, token)
        })
    }

    /// Returns whether a connection attempt has succeeded.
    pub(crate) fn is_connected(&self) -> bool {
        self.socket().is_none_or(socket::is_connected)
    }

    /// Returns whether an idle connection is open and has no input.
    pub(crate) fn is_silent(&self) -> bool {
        self.socket().is_some_and(socket::is_silent)
    }

    /// Returns whether the transport is a stream that its HTTP/2 connection did not accept.
    pub(crate) fn is_refused(&self) -> bool {
        match &self.kind {
            Kind::Plain(_) | Kind::Secure(..) | Kind::Null => false,
            Kind::Stream(end) => end.state() == PipeState::Refused,
        }
    }

    /// Continues the TLS handshake, or the setup of the HTTP/2 connection.
    pub(crate) fn handshake(&mut self, ready: &mut Readiness) -> Handshake {
        match &mut self.kind {
            Kind::Plain(_) | Kind::Null => Handshake::Done,
            Kind::Secure(socket, channel) => channel.handshake(socket, ready),
            Kind::Stream(end) => match end.state() {
                PipeState::Connecting => Handshake::Pending,
                PipeState::Open => Handshake::Done,
                PipeState::Closed | PipeState::Refused => Handshake::Failed,
            },
        }
    }

    const fn channel(&self) -> Option<&Channel> {
        match &self.kind {
            Kind::Secure(_, channel) => Some(channel),
            Kind::Plain(_) | Kind::Stream(_) | Kind::Null => None,
        }
    }

    /// Returns the negotiated ALPN protocol.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.channel()?.protocol()
    }

    /// Returns whether the TLS handshake resumed a session.
    pub(crate) fn is_resumed(&self) -> bool {
        self.channel().is_some_and(Channel::is_resumed)
    }

    /// Returns the client's SNI.
    pub(crate) fn sni(&self) -> Option<&str> {
        self.channel()?.sni.as_deref()
    }

    /// Returns the details of the TLS connection for routes and templates; `None` = no TLS.
    pub(crate) fn tls_details(&self) -> Option<TlsDetails> {
        self.channel().map(Channel::details)
    }

    /// Returns the TLS error that ended the connection, if any.
    pub(crate) fn error(&self) -> Option<&rustls::Error> {
        self.channel()?.error.as_ref()
    }

    /// Reads, and updates `ready`. `buffer` must be at least 64 KiB long.
    pub(crate) fn read(&mut self, ready: &mut Readiness, buffer: &mut [u8]) -> Read {
        let socket = match &mut self.kind {
            Kind::Plain(socket) => socket,
            Kind::Secure(socket, channel) => return channel.read(socket, ready, buffer),
            Kind::Stream(end) => return end.read(ready, buffer),
            Kind::Null => {
                ready.readable = false;
                return Read::Blocked;
            }
        };
        let result = socket::read(socket, buffer);
        match result {
            Read::Some(bytes) => ready.after_read(bytes, buffer.len()),
            Read::Blocked => ready.readable = false,
            Read::End | Read::Broken => {}
        }
        result
    }

    /// Returns whether the peer has sent close_notify, which may precede the end of the TCP stream.
    pub(crate) fn is_closed(&mut self, ready: &mut Readiness) -> bool {
        match &mut self.kind {
            Kind::Secure(socket, channel) => channel.is_closed(socket, ready),
            Kind::Plain(_) | Kind::Stream(_) | Kind::Null => false,
        }
    }

    /// Reads input and discards it, even after a TLS error.
    pub(crate) fn discard(&mut self, ready: &mut Readiness, buffer: &mut [u8]) -> Read {
        let Kind::Secure(socket, channel) = &mut self.kind else {
            return self.read(ready, buffer);
        };
        if channel.error.is_none() {
            return channel.read(socket, ready, buffer);
        }
        let result = socket::read(socket, buffer);
        match result {
            Read::Some(bytes) => ready.after_read(bytes, buffer.len()),
            Read::Blocked => ready.readable = false,
            Read::End | Read::Broken => {}
        }
        result
    }

    /// Writes as much as possible.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Written {
        match &mut self.kind {
            Kind::Plain(socket) => socket::write(socket, bytes),
            Kind::Secure(socket, channel) => channel.write(socket, &[bytes]),
            Kind::Stream(end) => end.write(&[bytes]),
            Kind::Null => Written::Some(bytes.len()),
        }
    }

    /// Writes the last bytes; the caller calls [`Transport::finish`] next.
    pub(crate) fn write_last(&mut self, bytes: &[u8]) -> Written {
        match &mut self.kind {
            Kind::Plain(socket) => socket::write_last(socket, bytes),
            Kind::Secure(..) | Kind::Stream(_) | Kind::Null => self.write(bytes),
        }
    }

    /// Writes two slices with one call.
    pub(crate) fn write_both(&mut self, first: &[u8], second: &[u8]) -> Written {
        match &mut self.kind {
            Kind::Plain(socket) => socket::write_both(socket, first, second),
            Kind::Secure(socket, channel) => channel.write(socket, &[first, second]),
            Kind::Stream(end) => end.write(&[first, second]),
            Kind::Null => Written::Some(first.len() + second.len()),
        }
    }

    /// Returns the socket if there is no TLS over it, so that bytes can be spliced.
    pub(crate) const fn plain_socket(&self) -> Option<&OwnedFd> {
        match &self.kind {
            Kind::Plain(socket) => Some(socket),
            Kind::Secure(..) | Kind::Stream(_) | Kind::Null => None,
        }
    }

    /// Returns the maximum number of bytes worth reading for a write to this transport.
    pub(crate) fn useful_read_size(&self) -> usize {
        match &self.kind {
            Kind::Plain(_) | Kind::Secure(..) | Kind::Null => usize::MAX,
            Kind::Stream(end) => end.useful_read_size(),
        }
    }

    /// Returns whether the transport has accepted bytes that the socket has not.
    pub(crate) fn has_unsent(&self) -> bool {
        self.channel().is_some_and(Channel::has_unsent)
    }

    /// Sends the end of the connection to the peer before the socket is closed: close_notify with TLS, the end of the
    /// stream with HTTP/2.
    pub(crate) fn notify_close(&mut self) {
        match &mut self.kind {
            Kind::Plain(_) | Kind::Null => {}
            Kind::Secure(socket, channel) => channel.send_close_notify(socket),
            Kind::Stream(end) => end.finish(),
        }
    }

    /// Closes the write direction.
    pub(crate) fn finish(&mut self) {
        match &mut self.kind {
            Kind::Plain(socket) => socket::finish(socket),
            Kind::Secure(socket, channel) => channel.finish(socket),
            Kind::Stream(end) => end.finish(),
            Kind::Null => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use super::*;
    use crate::h2::{StreamPipe, Wakeups};

    fn stream(state: PipeState, secure: bool) -> Transport {
        let pipe = StreamPipe::new(&Wakeups::default(), 1, secure, state);
        Transport::stream(StreamPipeEnd(Rc::new(RefCell::new(pipe))))
    }

    fn plain() -> (Transport, UnixStream) {
        let (socket_end, peer) = UnixStream::pair().expect("create socket pair");
        socket_end.set_nonblocking(true).expect("set nonblocking");
        (Transport::plain(socket_end.into()), peer)
    }

    #[test]
    fn plain_transport_reads_and_writes_socket() {
        let (mut transport, peer) = plain();
        let (mut ready, mut buffer) = (Readiness::default(), [0; 16]);
        ready.readable = true;
        assert_eq!(transport.read(&mut ready, &mut buffer), Read::Blocked);
        assert!(!ready.readable);
        rustix::io::write(&peer, b"in").expect("write");
        ready.readable = true;
        assert_eq!(transport.read(&mut ready, &mut buffer), Read::Some(2));
        assert_eq!(&buffer[..2], b"in");
        assert!(
            !ready.readable,
            "a short read means that nothing more is available"
        );
        assert_eq!(transport.write(b"a"), Written::Some(1));
        assert_eq!(transport.write_both(b"b", b"c"), Written::Some(2));
        assert_eq!(rustix::io::read(&peer, &mut buffer), Ok(3));
        assert_eq!(&buffer[..3], b"abc");
        transport.notify_close();
        assert_eq!(
            transport.write(b"d"),
            Written::Some(1),
            "notify_close must not close a plain socket"
        );
        transport.finish();
        assert_eq!(rustix::io::read(&peer, &mut buffer), Ok(1));
        assert_eq!(rustix::io::read(&peer, &mut buffer), Ok(0));
        drop(peer);
        ready.readable = true;
        assert_eq!(transport.read(&mut ready, &mut buffer), Read::End);
    }

    #[test]
    fn transport_kinds_report_their_properties() {
        let (socket, _peer) = plain();
        assert!(socket.socket().is_some() && socket.plain_socket().is_some());
        assert!(!socket.is_secure() && !socket.is_stream() && !socket.has_unsent());
        assert_eq!(socket.useful_read_size(), usize::MAX);
        assert!(
            socket
                .into_parts()
                .is_some_and(|(_, channel)| channel.is_none())
        );
        let open = stream(PipeState::Open, true);
        assert!(open.socket().is_none() && open.plain_socket().is_none() && open.is_connected());
        assert!(open.is_secure() && open.is_stream() && !open.is_silent());
        assert!(open.useful_read_size() < usize::MAX);
        assert!(open.into_parts().is_none());
        assert!(!stream(PipeState::Open, false).is_secure());
        assert!(stream(PipeState::Open, false).into_plain().is_none());
        assert!(plain().0.into_plain().is_some());
    }

    #[test]
    fn stream_handshake_result_depends_on_pipe_state() {
        for (state, handshake, refused) in [
            (PipeState::Connecting, Handshake::Pending, false),
            (PipeState::Open, Handshake::Done, false),
            (PipeState::Closed, Handshake::Failed, false),
            (PipeState::Refused, Handshake::Failed, true),
        ] {
            let mut transport = stream(state, false);
            assert_eq!(
                transport.handshake(&mut Readiness::default()),
                handshake,
                "{state:?}"
            );
            assert_eq!(transport.is_refused(), refused, "{state:?}");
        }
        assert_eq!(
            plain().0.handshake(&mut Readiness::default()),
            Handshake::Done
        );
        assert!(!plain().0.is_refused());
    }
}
