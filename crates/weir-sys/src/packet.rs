//! Frames sent as they are, by AF_PACKET: what announces an address has no socket of its own in the stack.
//!
//! A socket for sending receives nothing, so it costs the host no copy of its packets; a listening one gets the frames
//! of one protocol from one interface. Interfaces are of the network namespace in which the socket was opened. What a
//! frame says is the caller's matter.

#![allow(
    unsafe_code,
    reason = "sendto(2) with struct sockaddr_ll has no safe wrapper"
)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use crate::{Error, Result};

/// An open socket for sending.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
}

impl FrameSocket {
    /// Opens one in the calling thread's network namespace.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_RAW`.
    pub fn open() -> Result<Self> {
        // Protocol 0: the kernel hands such a socket nothing that arrives (packet(7)).
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|e| Error::call("socket", "AF_PACKET", e))?;
        Ok(Self { socket })
    }

    /// Opens one that also receives the frames of an EtherType that an interface gets, without waiting for them.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_RAW`, or there is no such interface.
    pub fn listening(ifindex: u32, ethertype: u16) -> Result<Self> {
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|e| Error::call("socket", "AF_PACKET", e))?;
        let address = link_address(ifindex, ethertype)?;
        // SAFETY: the address is live for the call, and the length is its own.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound < 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::call("bind", format!("interface {ifindex}"), cause));
        }
        Ok(Self { socket })
    }

    /// The next frame that a listening socket gets within that time, link header included: its length, cut to the
    /// buffer's.
    ///
    /// # Errors
    /// The interface went down.
    pub fn receive_within(&self, frame: &mut [u8], limit: Duration) -> Result<Option<usize>> {
        let failed = |error: Errno| Error::call("recv", "AF_PACKET", error);
        let limit = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        match poll(
            &mut [PollFd::new(&self.socket, PollFlags::IN)],
            Some(&limit),
        ) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        match recv(&self.socket, frame, RecvFlags::empty()) {
            Ok((length, _)) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Some(0)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Sends a whole frame, link header included, out of an interface.
    ///
    /// # Errors
    /// No such interface, it is down, or the frame is longer than it takes.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> Result<()> {
        let subject = || format!("interface {ifindex}");
        let address = link_address(ifindex, 0)?;
        // SAFETY: the frame and the address are live for the call, and the lengths are theirs.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if sent < 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::call("sendto", subject(), cause));
        }
        Ok(())
    }
}

fn link_address(ifindex: u32, ethertype: u16) -> Result<libc::sockaddr_ll> {
    let index = i32::try_from(ifindex)
        .map_err(|_| Error::call("sockaddr_ll", format!("interface {ifindex}"), Errno::NODEV))?;
    Ok(libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetNs;

    #[test]
    fn error_names_missing_interface() {
        if !weir_testing::require_root() {
            return;
        }
        let netns = NetNs::create().unwrap();
        let error = netns
            .run(|| FrameSocket::open().unwrap().send(4_242, &[0; 60]))
            .unwrap()
            .unwrap_err();
        assert!(error.to_string().contains("interface 4242"), "{error}");
        assert!(matches!(error.errno(), Some(libc::ENXIO | libc::ENODEV)));
    }
}
