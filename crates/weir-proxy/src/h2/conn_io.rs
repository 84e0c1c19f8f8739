//! Connects the transport of an HTTP/2 connection to the memory buffers that the `h2` crate reads and writes.
//!
//! Connections from clients and connections to servers both use it. For clients, it also filters header fields, counts
//! frames and slows down floods.

use std::cell::RefCell;
use std::rc::Rc;

use super::field_filter::FieldFilter;
use super::frame_counter::{FrameCounter, FrameCounts};
use super::io_buffer::{IoBuffer, IoHandle};
use super::upgrade::settings_end;
use crate::context::Readiness;
use crate::socket::{Read, Written};
use crate::transport::Transport;

/// Maximum number of bytes that wait for `h2`, and maximum capacity that an empty buffer retains.
const MAX_INBOX: usize = 64 << 10;

/// Maximum number of bytes per read from a client that sends too many idle frames. With TLS, a whole record must fit,
/// which can be slightly larger than 16 KiB.
const SLOW_READ_BYTES: usize = 2 << 10;
const SLOW_READ_BYTES_TLS: usize = 20 << 10;
/// Pause after each of these reads, in milliseconds. Even at this rate, a client can exceed the budget of
/// [`FrameCounter`], so a client that continues is disconnected within a few seconds.
const PAUSE_MS: u64 = 200;

/// The I/O of an HTTP/2 connection, which moves bytes between its transport and its buffers.
#[derive(Debug)]
pub(super) struct ConnIo {
    pub(super) transport: Transport,
    pub(super) ready: Readiness,
    buffer: Rc<RefCell<IoBuffer>>,
    /// Number of outbox bytes that the transport has accepted.
    sent: usize,
    /// Number of outbox bytes that the frame counter has parsed.
    counted: usize,
    /// A frame to insert after the peer's SETTINGS frame, and the bytes received while the SETTINGS frame is
    /// incomplete.
    inserted_frame: Vec<u8>,
    before_settings: Vec<u8>,
    /// Counts a client's frames; `None` for servers.
    counter: Option<FrameCounter>,
    /// Reading is paused until this time, in milliseconds on the worker clock.
    paused_until: u64,
    /// Turns malformed header fields from a client into stream errors instead of connection errors.
    fields: Option<Box<FieldFilter>>,
}

impl ConnIo {
    /// Creates the I/O of a connection. `input` contains bytes that were already read. `inserted_frame` is inserted
    /// after the peer's SETTINGS frame.
    pub(super) fn new(
        transport: Transport,
        ready: Readiness,
        input: &[u8],
        inserted_frame: Vec<u8>,
        counter: Option<FrameCounter>,
    ) -> Self {
        let mut io = Self {
            transport,
            ready,
            buffer: Rc::default(),
            sent: 0,
            counted: 0,
            inserted_frame,
            before_settings: Vec::new(),
            fields: counter.is_some().then(|| Box::new(FieldFilter::new())),
            counter,
            paused_until: 0,
        };
        io.put(input);
        io
    }

    /// Passes received bytes to `h2`.
    fn put(&mut self, bytes: &[u8]) {
        if let Some(counter) = &mut self.counter {
            counter.count_received(bytes);
        }
        let buffer = &mut *self.buffer.borrow_mut();
        let fields = &mut self.fields;
        let mut put = |buffer: &mut IoBuffer, bytes: &[u8]| match fields {
            Some(fields) => fields.pass(bytes, |bytes| buffer.put(bytes)),
            None => buffer.put(bytes),
        };
        if self.inserted_frame.is_empty() {
            return put(buffer, bytes);
        }
        self.before_settings.extend_from_slice(bytes);
        if let Some(end) = settings_end(&self.before_settings) {
            let (settings, rest) = self.before_settings.split_at(end);
            put(buffer, settings);
            buffer.put(&std::mem::take(&mut self.inserted_frame));
            put(buffer, rest);
            self.before_settings = Vec::new();
        }
    }

    /// Returns the handle through which `h2` reads and writes.
    pub(super) fn handle(&self) -> IoHandle {
        IoHandle(Rc::clone(&self.buffer))
    }

    /// Returns whether a client has sent too many idle frames.
    pub(super) fn check_flood(&mut self, now_ms: u64) -> bool {
        let counter = self.counter.as_mut();
        counter.is_some_and(|counter| counter.check_flood(now_ms))
    }

    /// Returns the number of streams that were reset because of client errors since the last call.
    pub(super) fn take_client_error_resets(&mut self) -> u64 {
        let counter = self.counter.as_mut();
        counter.map_or(0, FrameCounter::take_client_error_resets)
    }

    /// Returns the frame counts since the last call.
    pub(super) fn take_counts(&mut self) -> FrameCounts {
        let counter = self.counter.as_mut();
        counter.map_or_else(FrameCounts::default, FrameCounter::take_counts)
    }

    /// Returns whether the peer has finished sending.
    pub(super) fn is_read_closed(&self) -> bool {
        self.buffer.borrow().read_closed
    }

    fn has_room(&self) -> bool {
        let held_len = self.fields.as_ref().map_or(0, |fields| fields.held_len());
        self.buffer.borrow().unread() + self.before_settings.len() + held_len
            < MAX_INBOX.max(held_len + 1)
    }

    /// Reads and discards input from a closed connection. Returns whether the peer may still send.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> bool {
        while self.ready.readable {
            match self.transport.read(&mut self.ready, scratch) {
                Read::Some(_) => {}
                Read::Blocked => return true,
                Read::End | Read::Broken => return false,
            }
        }
        true
    }

    /// Sends frames. Returns whether the connection is usable.
    pub(super) fn flush(&mut self) -> bool {
        self.flush_with(Transport::write)
    }

    /// Sends the last frames, and closes the write direction. Without TLS, both take only one segment, which is cheaper
    /// when clients open connections only to violate the protocol. Returns whether the connection was usable.
    pub(super) fn flush_and_finish(&mut self) -> bool {
        let is_usable = self.flush_with(Transport::write_last);
        if is_usable {
            self.transport.finish();
        }
        is_usable
    }

    fn flush_with(&mut self, write: impl Fn(&mut Transport, &[u8]) -> Written) -> bool {
        let buffer = &mut *self.buffer.borrow_mut();
        if let Some(counter) = &mut self.counter {
            counter.count_sent(&buffer.outbox[self.counted..]);
            self.counted = buffer.outbox.len();
        }
        while self.ready.writable
            && (self.sent < buffer.outbox.len() || self.transport.has_unsent())
        {
            let rest = &buffer.outbox[self.sent..];
            match write(&mut self.transport, rest) {
                Written::Broken => return false,
                Written::Some(bytes) => {
                    self.ready.writable = bytes == rest.len() && !self.transport.has_unsent();
                    self.sent += bytes;
                }
            }
        }
        if self.sent == buffer.outbox.len() {
            if buffer.outbox.capacity() > MAX_INBOX {
                // Releases the memory of a large buffer.
                buffer.outbox = Vec::new();
            } else {
                buffer.outbox.clear();
            }
            (self.sent, self.counted) = (0, 0);
        } else if self.sent > MAX_INBOX {
            buffer.outbox.drain(..self.sent);
            self.counted = self.counted.saturating_sub(self.sent);
            self.sent = 0;
        }
        true
    }

    /// Returns the end of a read pause, if reading is paused. Reading is never paused after the client has closed the
    /// connection.
    pub(super) fn paused_until(&self, now_ms: u64) -> Option<u64> {
        let is_paused = now_ms < self.paused_until && !self.ready.read_closed;
        is_paused.then_some(self.paused_until)
    }

    /// Returns whether all bytes were written to the socket.
    pub(super) fn is_flushed(&self) -> bool {
        self.buffer.borrow().outbox.is_empty() && !self.transport.has_unsent()
    }

    /// Returns the maximum number of bytes per read.
    fn max_read_bytes(&self) -> usize {
        let is_slowed = self.counter.as_ref().is_some_and(FrameCounter::is_slowed);
        match is_slowed && !self.ready.read_closed {
            false => MAX_INBOX,
            true if self.transport.is_secure() => SLOW_READ_BYTES_TLS,
            true => SLOW_READ_BYTES,
        }
    }

    /// Starts a pause if there were too many idle frames.
    fn pause_if_slowed(&mut self, now_ms: u64) {
        if self.counter.as_mut().is_some_and(FrameCounter::take_pause) {
            self.paused_until = now_ms + PAUSE_MS;
        }
    }

    /// Reads from the transport. Returns whether bytes or the end of the input were received.
    pub(super) fn receive(&mut self, scratch: &mut [u8], now_ms: u64) -> bool {
        let mut received = false;
        while self.ready.readable
            && !self.is_read_closed()
            && self.has_room()
            && self.paused_until(now_ms).is_none()
        {
            let max = self.max_read_bytes();
            match self.transport.read(&mut self.ready, &mut scratch[..max]) {
                Read::Some(bytes) => {
                    self.put(&scratch[..bytes]);
                    self.pause_if_slowed(now_ms);
                }
                Read::Blocked => break,
                Read::End | Read::Broken => self.buffer.borrow_mut().read_closed = true,
            }
            received = true;
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn tcp_pair() -> (ConnIo, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind listener");
        let address = listener.local_addr().expect("listener has an address");
        let client = TcpStream::connect(address).expect("connect to listener");
        let (server, _) = listener.accept().expect("accept connection");
        let ready = Readiness {
            writable: true,
            ..Readiness::default()
        };
        let transport = Transport::plain(server.into());
        let io = ConnIo::new(transport, ready, &[], Vec::new(), None);
        (io, client)
    }

    #[test]
    fn last_frames_are_sent_before_connection_closes() {
        let (mut io, mut client) = tcp_pair();
        io.buffer.borrow_mut().outbox.extend(b"goaway");
        assert!(io.flush_with(Transport::write_last));
        client.set_nonblocking(true).expect("set nonblocking mode");
        let error = client.read(&mut [0; 9]).expect_err("nothing is sent yet");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        io.buffer.borrow_mut().outbox.extend(b"!");
        assert!(io.flush_and_finish());
        client.set_nonblocking(false).expect("set blocking mode");
        let mut received = Vec::new();
        client
            .read_to_end(&mut received)
            .expect("read until the end");
        assert_eq!(received, b"goaway!");
    }
}
