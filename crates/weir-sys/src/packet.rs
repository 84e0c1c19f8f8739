//! Frames sent as they are, by AF_PACKET: what announces an address has no socket of its own in the stack.
//!
//! Sends only; nothing is received, so the socket costs the host no copy of its packets. The interface is one of the
//! network namespace in which the socket was opened. What a frame says is the caller's matter.

#![allow(
    unsafe_code,
    reason = "sendto(2) with struct sockaddr_ll has no safe wrapper"
)]

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

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

    /// Sends a whole frame, link header included, out of an interface.
    ///
    /// # Errors
    /// No such interface, it is down, or the frame is longer than it takes.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> Result<()> {
        let subject = || format!("interface {ifindex}");
        let index = i32::try_from(ifindex)
            .map_err(|_| Error::call("sendto", subject(), rustix::io::Errno::NODEV))?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0,
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, Capability, NetNs};

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        if !Capabilities::effective().unwrap().has(Capability::SysAdmin) {
            println!("SKIPPED: needs root");
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
