//! Implements the connection of a probe, over TCP or a Unix socket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// The connection of a probe.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A connection to an address and port.
    Tcp(TcpStream),
    /// A connection to a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Makes the kernel send a reset when a TCP connection is closed. Without the reset, each probe leaves a port in
    /// TIME_WAIT for a minute.
    pub(crate) fn reset_on_close(&self) {
        match self {
            // This fails only if the connection is already broken.
            Self::Tcp(stream) => drop(stream.set_zero_linger()),
            Self::Unix(_) => {}
        }
    }
}

/// Calls a method of the inner stream.
macro_rules! delegate {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Self::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_shutdown(cx))
    }
}
