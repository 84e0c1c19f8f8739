//! Carries the bytes of one HTTP/2 stream as HTTP/1.1, between the HTTP/2 connection and a session.
//!
//! Two bounded buffers provide backpressure in both directions. Flags and a list of wake-ups record which side has work
//! to do.

use std::cell::RefCell;
use std::rc::Rc;

use crate::context::Readiness;
use crate::slab::Key;
use crate::socket::{Read, Written};

/// Maximum number of bytes that a pipe buffers per direction.
pub(crate) const MAX_PIPE: usize = 32 << 10;

/// Outbound limit before the stream accepts content, in bytes: enough for a response of 16 KiB with its head. Clients
/// with a window of 0 never accept content.
const PIPE_START: usize = 18 << 10;

/// Minimum size of a read that is worth a system call, in bytes.
const MIN_READ: usize = 2 << 10;

/// Initial capacity in bytes: most heads fit, so writing one allocates once.
const HEAD_CAPACITY: usize = 512;

/// Tokens for connections with pending work.
pub(crate) type Wakeups = Rc<RefCell<Vec<u64>>>;

/// One HTTP/2 stream as a pair of byte buffers.
#[derive(Debug)]
pub(crate) struct StreamPipe {
    /// Bytes received on the stream. The session has read the first `read` bytes.
    inbound: Vec<u8>,
    read: usize,
    /// Whether the peer has finished sending on the stream.
    pub(crate) inbound_ended: bool,
    /// Bytes to send on the stream.
    pub(crate) outbound: Vec<u8>,
    /// Maximum length of `outbound`. More than [`MAX_PIPE`] only while a longer head is incomplete.
    outbound_max: usize,
    /// Whether the session has finished sending.
    pub(crate) outbound_ended: bool,
    /// Whether the session could not write everything and waits for room.
    pub(crate) waits_for_room: bool,
    /// State of the stream.
    pub(crate) state: PipeState,
    /// Whether the session has dropped its side.
    pub(crate) detached: bool,
    /// The session or server connection that uses the other side.
    pub(crate) owner: Owner,
    /// Whether the HTTP/2 connection uses TLS.
    pub(crate) secure: bool,
    wakeups: Wakeups,
    /// Token of the HTTP/2 connection.
    token: u64,
}

/// The user of the HTTP/1.1 side of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No session serves the stream yet. A stream that ends before a session is started never gets one; see
    /// [`Action::Serve`](super::Action).
    Pending,
    /// The session that serves a client's stream.
    Session(Key),
    /// A session's connection to a server.
    Server(Key),
}

/// State of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeState {
    /// The connection is not established yet, or the server has not sent its stream limit yet.
    Connecting,
    Open,
    Closed,
    /// The connection accepts no more streams, and has sent no part of this one.
    Refused,
}

impl StreamPipe {
    pub(crate) fn new(wakeups: &Wakeups, token: u64, secure: bool, state: PipeState) -> Self {
        Self {
            inbound: Vec::new(),
            read: 0,
            inbound_ended: false,
            outbound: Vec::new(),
            outbound_max: PIPE_START,
            outbound_ended: false,
            waits_for_room: false,
            state,
            detached: false,
            owner: Owner::Pending,
            secure,
            wakeups: Rc::clone(wakeups),
            token,
        }
    }

    /// Returns whether the stream is closed in both directions.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.state, PipeState::Closed | PipeState::Refused)
    }

    /// Returns whether the inbound buffer accepts more bytes.
    pub(crate) const fn has_room(&self) -> bool {
        self.inbound.len() - self.read < MAX_PIPE
    }

    /// Returns the inbound buffer, to append to.
    pub(crate) fn inbound(&mut self) -> &mut Vec<u8> {
        if self.read == self.inbound.len() {
            self.inbound.clear();
            self.read = 0;
        }
        if self.inbound.capacity() == 0 {
            self.inbound.reserve(HEAD_CAPACITY);
        }
        &mut self.inbound
    }

    /// Raises the outbound limit if the buffer is full, so that the rest of an incomplete head fits. The sender limits
    /// the length of the head.
    pub(super) const fn raise_outbound_max_for_head(&mut self) {
        if self.outbound.len() >= self.outbound_max {
            self.outbound_max *= 2;
        }
    }

    /// Removes the outbound head after it was sent.
    pub(super) fn remove_head(&mut self, length: usize) {
        self.outbound.drain(..length);
        self.outbound_max = PIPE_START;
    }

    /// Raises the outbound limit, because the stream accepts content.
    pub(super) const fn raise_outbound_max(&mut self) {
        self.outbound_max = MAX_PIPE;
    }

    /// Returns whether the session was waiting for room and has it now. Returns true only once per wait.
    pub(super) const fn take_room_event(&mut self) -> bool {
        let has_room_again = self.waits_for_room && self.outbound.len() < self.outbound_max;
        self.waits_for_room &= !has_room_again;
        has_room_again
    }

    fn wake(&self) {
        let mut wakeups = self.wakeups.borrow_mut();
        if wakeups.last() != Some(&self.token) {
            wakeups.push(self.token);
        }
    }
}

/// The session's side of a pipe.
#[derive(Debug)]
pub(crate) struct StreamPipeEnd(pub(crate) Rc<RefCell<StreamPipe>>);

impl StreamPipeEnd {
    pub(crate) fn read(&self, ready: &mut Readiness, buffer: &mut [u8]) -> Read {
        let pipe = &mut *self.0.borrow_mut();
        let bytes = (pipe.inbound.len() - pipe.read).min(buffer.len());
        if bytes == 0 {
            if pipe.inbound_ended || pipe.is_closed() {
                return Read::End;
            }
            ready.readable = false;
            return Read::Blocked;
        }
        let end = pipe.read + bytes;
        buffer[..bytes].copy_from_slice(&pipe.inbound[pipe.read..end]);
        pipe.read = end;
        if end == pipe.inbound.len() {
            pipe.inbound = Vec::new();
            pipe.read = 0;
            ready.readable = pipe.inbound_ended;
        }
        if !pipe.inbound_ended {
            pipe.wake();
        }
        Read::Some(bytes)
    }

    pub(crate) fn write(&self, parts: &[&[u8]]) -> Written {
        let pipe = &mut *self.0.borrow_mut();
        if pipe.is_closed() {
            return Written::Broken;
        }
        let mut written_len = 0;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let room = pipe.outbound_max.saturating_sub(pipe.outbound.len());
        pipe.outbound.reserve(total.min(room));
        for part in parts {
            let room = pipe.outbound_max.saturating_sub(pipe.outbound.len());
            let bytes = room.min(part.len());
            pipe.outbound.extend_from_slice(&part[..bytes]);
            written_len += bytes;
            if bytes < part.len() {
                pipe.waits_for_room = true;
                break;
            }
        }
        pipe.wake();
        Written::Some(written_len)
    }

    /// Returns the maximum number of bytes worth reading for a write to this pipe: more would only wait in a second
    /// buffer.
    pub(crate) fn useful_read_size(&self) -> usize {
        let pipe = self.0.borrow();
        let room = pipe.outbound_max.saturating_sub(pipe.outbound.len());
        room.max(MIN_READ)
    }

    pub(crate) fn finish(&self) {
        let pipe = &mut *self.0.borrow_mut();
        pipe.outbound_ended = true;
        pipe.wake();
    }

    pub(crate) fn state(&self) -> PipeState {
        self.0.borrow().state
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.0.borrow().secure
    }
}

impl Drop for StreamPipeEnd {
    fn drop(&mut self) {
        // The pipe can only be borrowed here during a panic, after which its connection is closed too.
        if let Ok(mut pipe) = self.0.try_borrow_mut() {
            pipe.detached = true;
            pipe.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(state: PipeState) -> (Rc<RefCell<StreamPipe>>, StreamPipeEnd, Wakeups) {
        let wakeups = Wakeups::default();
        let pipe = Rc::new(RefCell::new(StreamPipe::new(&wakeups, 7, true, state)));
        (Rc::clone(&pipe), StreamPipeEnd(pipe), wakeups)
    }

    /// Returns everything that the session can read, with at most `room` bytes per read, and the result of the last
    /// read.
    fn read_all(end: &StreamPipeEnd, ready: &mut Readiness, room: usize) -> (Vec<u8>, Read) {
        let (mut content, mut buffer) = (Vec::new(), vec![0; room]);
        loop {
            match end.read(ready, &mut buffer) {
                Read::Some(bytes) => content.extend_from_slice(&buffer[..bytes]),
                last => return (content, last),
            }
        }
    }

    #[test]
    fn session_reads_received_bytes_in_order() {
        for room in [1, 3, 1_000] {
            let (pipe, end, wakeups) = pipe(PipeState::Open);
            let mut ready = Readiness::default();
            pipe.borrow_mut().inbound().extend_from_slice(b"first ");
            pipe.borrow_mut().inbound().extend_from_slice(b"second");
            let read = read_all(&end, &mut ready, room);
            assert_eq!(read, (b"first second".to_vec(), Read::Blocked));
            assert!(!ready.readable, "the session must wait for an event");
            assert_eq!(*wakeups.borrow(), [7], "the connection may receive more");
            pipe.borrow_mut().inbound_ended = true;
            assert_eq!(read_all(&end, &mut ready, room).1, Read::End);
        }
    }

    #[test]
    fn inbound_buffer_is_full_only_at_limit() {
        let (pipe, end, _) = pipe(PipeState::Open);
        pipe.borrow_mut().inbound().resize(MAX_PIPE - 1, 0);
        assert!(pipe.borrow().has_room());
        pipe.borrow_mut().inbound().push(0);
        assert!(!pipe.borrow().has_room());
        let mut buffer = [0];
        assert_eq!(
            end.read(&mut Readiness::default(), &mut buffer),
            Read::Some(1)
        );
        assert!(pipe.borrow().has_room());
    }

    #[test]
    fn writes_stop_at_limit_and_resume_once() {
        let (pipe, end, _) = pipe(PipeState::Open);
        let content = vec![1; PIPE_START + 10];
        assert_eq!(end.write(&[b"head", &content]), Written::Some(PIPE_START));
        assert_eq!(end.write(&[b"more"]), Written::Some(0));
        assert_eq!(end.useful_read_size(), MIN_READ);
        let mut pipe = pipe.borrow_mut();
        assert!(!pipe.take_room_event(), "nothing was removed");
        pipe.outbound.drain(..10);
        assert!(pipe.take_room_event());
        assert!(
            !pipe.take_room_event(),
            "the event must be reported only once"
        );
    }

    #[test]
    fn outbound_limit_is_raised_for_content_and_long_head() {
        let (pipe, end, _) = pipe(PipeState::Open);
        let long = vec![b'a'; 100 << 10];
        assert_eq!(end.write(&[&long]), Written::Some(PIPE_START));
        pipe.borrow_mut().raise_outbound_max_for_head();
        assert_eq!(
            end.write(&[&long]),
            Written::Some(PIPE_START),
            "twice the room"
        );
        pipe.borrow_mut().remove_head(2 * PIPE_START);
        assert_eq!(end.write(&[&long]), Written::Some(PIPE_START));
        pipe.borrow_mut().raise_outbound_max();
        assert_eq!(end.write(&[&long]), Written::Some(MAX_PIPE - PIPE_START));
    }

    #[test]
    fn closed_stream_ends_reads_and_breaks_writes() {
        for (state, read, written) in [
            (PipeState::Connecting, Read::Blocked, Written::Some(1)),
            (PipeState::Open, Read::Blocked, Written::Some(1)),
            (PipeState::Closed, Read::End, Written::Broken),
            (PipeState::Refused, Read::End, Written::Broken),
        ] {
            let (_pipe, end, _) = pipe(state);
            assert_eq!(end.write(&[b"x"]), written, "{state:?}");
            assert_eq!(
                end.read(&mut Readiness::default(), &mut [0]),
                read,
                "{state:?}"
            );
        }
    }

    #[test]
    fn content_received_before_close_is_read() {
        let (pipe, end, _) = pipe(PipeState::Open);
        pipe.borrow_mut().inbound().extend_from_slice(b"last");
        pipe.borrow_mut().state = PipeState::Closed;
        let read = read_all(&end, &mut Readiness::default(), 10);
        assert_eq!(read, (b"last".to_vec(), Read::End));
    }

    #[test]
    fn session_end_and_drop_wake_connection_once() {
        let (pipe, end, wakeups) = pipe(PipeState::Open);
        end.finish();
        assert!(pipe.borrow().outbound_ended && !pipe.borrow().detached);
        drop(end);
        assert!(pipe.borrow().detached);
        assert_eq!(*wakeups.borrow(), [7]);
    }
}
