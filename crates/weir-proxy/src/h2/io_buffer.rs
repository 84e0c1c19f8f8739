//! Provides the memory buffers that the `h2` crate uses instead of a socket, one pair per HTTP/2 connection.
//!
//! There are no wakers: the code that adds or removes bytes polls the connection afterwards.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of bytes waiting for the socket at which `h2` cannot write. It does not read either, because it sends its
/// replies first.
const MAX_OUT: usize = 256 << 10;

/// The buffers of one connection, as the `h2` crate uses them.
#[derive(Debug, Default)]
pub(crate) struct IoBuffer {
    /// Received bytes. `h2` has read the first `read` bytes.
    pub(crate) inbox: Vec<u8>,
    read: usize,
    /// Bytes to send.
    pub(crate) outbox: Vec<u8>,
    /// Whether the peer has finished sending.
    pub(crate) read_closed: bool,
}

impl IoBuffer {
    /// Returns the number of received bytes that `h2` has not read.
    pub(crate) const fn unread(&self) -> usize {
        self.inbox.len() - self.read
    }

    /// Adds received bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if self.read == self.inbox.len() {
            self.inbox.clear();
            self.read = 0;
        }
        self.inbox.extend_from_slice(bytes);
    }
}

/// The `h2` crate's handle to the buffers.
#[derive(Debug)]
pub(crate) struct IoHandle(pub(crate) Rc<RefCell<IoBuffer>>);

impl AsyncRead for IoHandle {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let buffer = &mut *self.0.borrow_mut();
        let bytes = buffer.unread().min(target.remaining());
        if bytes == 0 && !buffer.read_closed {
            return Poll::Pending;
        }
        target.put_slice(&buffer.inbox[buffer.read..buffer.read + bytes]);
        buffer.read += bytes;
        if buffer.read == buffer.inbox.len() {
            // Idle connections keep no buffer.
            buffer.inbox = Vec::new();
            buffer.read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for IoHandle {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let buffer = &mut *self.0.borrow_mut();
        if buffer.outbox.len() >= MAX_OUT {
            return Poll::Pending;
        }
        buffer.outbox.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let buffer = &mut *self.0.borrow_mut();
        if buffer.outbox.len() >= MAX_OUT {
            return Poll::Pending;
        }
        for part in parts {
            buffer.outbox.extend_from_slice(part);
        }
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
