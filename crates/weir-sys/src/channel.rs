//! Sends messages with file descriptors between two processes on this machine, over a Unix socket (SOCK_SEQPACKET).
//!
//! A message is received completely or not at all. It must not be empty: an empty message looks like the end of the
//! connection. Received descriptors are close-on-exec, so child processes do not inherit them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::{Error, Result};

/// Maximum length of a message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Maximum number of descriptors in a message.
pub const MAX_FILES: usize = 16;

/// One end of a socket pair, in blocking mode.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// A received message.
#[derive(Debug)]
pub struct Message {
    /// At most [`MAX_MESSAGE_BYTES`] bytes.
    pub bytes: Vec<u8>,
    /// At most [`MAX_FILES`] descriptors.
    pub files: Vec<OwnedFd>,
}

fn call_error(call: &'static str) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::call(call, "socket pair", errno)
}

impl Channel {
    /// Creates two connected ends.
    ///
    /// # Errors
    /// Fails if the open-file limit is reached.
    pub fn pair() -> Result<(Self, Self)> {
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let (first, second) = pair.map_err(call_error("socketpair"))?;
        Ok((Self { socket: first }, Self { socket: second }))
    }

    /// Sends a message, which must not be empty. Blocks while the other end has too many unreceived messages.
    ///
    /// # Errors
    /// Fails if the other end is closed, or the message is too long or has too many descriptors.
    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<()> {
        if bytes.len() > MAX_MESSAGE_BYTES || files.len() > MAX_FILES {
            return Err(call_error("sendmsg")(Errno::MSGSIZE));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let parts = [IoSlice::new(bytes)];
        loop {
            match sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop).map_err(call_error("sendmsg")),
            }
        }
    }

    /// Waits for a message. `None` = the other end is closed and all messages have been received.
    ///
    /// # Errors
    /// Fails if recvmsg(2) fails, for example because of the receive timeout.
    pub fn receive(&self) -> Result<Option<Message>> {
        self.receive_with(RecvFlags::empty())
            .map_err(call_error("recvmsg"))
    }

    /// Receives a message like [`Self::receive`], but does not wait. `Pending` = there is no message.
    ///
    /// # Errors
    /// Fails if recvmsg(2) fails.
    pub fn poll_receive(&self) -> Result<Poll<Option<Message>>> {
        match self.receive_with(RecvFlags::DONTWAIT) {
            Ok(received) => Ok(Poll::Ready(received)),
            Err(Errno::AGAIN) => Ok(Poll::Pending),
            Err(errno) => Err(call_error("recvmsg")(errno)),
        }
    }

    fn receive_with(&self, flags: RecvFlags) -> std::result::Result<Option<Message>, Errno> {
        let mut bytes = vec![0; MAX_MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let length = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Ok(received) => break received.bytes,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => break 0,
                Err(errno) => return Err(errno),
            }
        };
        if length == 0 {
            return Ok(None);
        }
        bytes.truncate(length);
        let mut files = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = part {
                files.extend(passed);
            }
        }
        Ok(Some(Message { bytes, files }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write, pipe};

    #[test]
    fn poll_does_not_wait_for_a_message() {
        let (first, second) = Channel::pair().unwrap();
        assert!(matches!(second.poll_receive(), Ok(Poll::Pending)));
        first.send(b"a", &[]).unwrap();
        let received = second.poll_receive().unwrap();
        let bytes = received.map(|message| message.map(|received| received.bytes));
        assert_eq!(bytes, Poll::Ready(Some(b"a".to_vec())));
        drop(first);
        assert!(matches!(second.poll_receive(), Ok(Poll::Ready(None))));
    }

    #[test]
    fn message_transfers_descriptors() {
        let (first, second) = Channel::pair().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        first.send(b"a pipe", &[writer.as_fd()]).unwrap();
        first.send(b"nothing", &[]).unwrap();
        drop(writer);
        let message = second.receive().unwrap().unwrap();
        assert_eq!(
            (message.bytes.as_slice(), message.files.len()),
            (&b"a pipe"[..], 1)
        );
        let [file] = <[OwnedFd; 1]>::try_from(message.files).unwrap();
        std::fs::File::from(file).write_all(b"through it").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through it");
        assert!(second.receive().unwrap().unwrap().files.is_empty());
        drop(first);
        assert!(second.receive().unwrap().is_none());
    }

    #[test]
    fn oversized_message_is_rejected() {
        let (first, _second) = Channel::pair().unwrap();
        assert!(first.send(&vec![0; MAX_MESSAGE_BYTES + 1], &[]).is_err());
    }
}
