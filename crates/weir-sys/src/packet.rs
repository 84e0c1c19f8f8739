//! Sends and receives raw frames with AF_PACKET, for ARP, neighbor discovery and probes.
//!
//! A socket for sending receives nothing, so the kernel copies no packets to it. A listening socket receives the frames
//! of one protocol from one interface. Interface indexes refer to the network namespace that the socket was opened in.
//! The caller builds and parses the frames.

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

/// A packet socket.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
}

impl FrameSocket {
    /// Opens a socket for sending in the calling thread's network namespace.
    ///
    /// # Errors
    /// Fails if the process lacks `CAP_NET_RAW`.
    pub fn open() -> Result<Self> {
        // With protocol 0, the socket receives nothing (packet(7)).
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| Error::call("socket", "AF_PACKET", error))?;
        Ok(Self { socket })
    }

    /// Opens a nonblocking socket that also receives the frames of an EtherType from an interface.
    ///
    /// # Errors
    /// Fails if the process lacks `CAP_NET_RAW`, or the interface does not exist.
    pub fn open_listener(ifindex: u32, ethertype: u16) -> Result<Self> {
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|error| Error::call("socket", "AF_PACKET", error))?;
        let address = link_layer_address(ifindex, ethertype)?;
        // SAFETY: the pointer points to a live address of the passed length.
        let result = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if result < 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::call("bind", format!("interface {ifindex}"), cause));
        }
        Ok(Self { socket })
    }

    /// Makes a listening socket receive only frames with these bytes, each with its offset from the start of the
    /// link-layer header. Frames that were received before remain.
    ///
    /// # Errors
    /// Fails if the kernel rejects the filter, for example because it is too long.
    pub fn keep_only(&self, bytes: &[(u32, u8)]) -> Result<()> {
        let mut filter = Vec::new();
        for (index, (offset, value)) in bytes.iter().enumerate() {
            // A frame that is too short is dropped.
            filter.push(instruction(
                libc::BPF_LD | libc::BPF_B | libc::BPF_ABS,
                0,
                *offset,
            ));
            let remaining = 2 * (bytes.len() - 1 - index) + 1;
            let to_drop = u8::try_from(remaining).unwrap_or(u8::MAX);
            let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
            filter.push(instruction(equal, to_drop, (*value).into()));
        }
        filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, u32::MAX));
        filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, 0));
        let program = libc::sock_fprog {
            len: u16::try_from(filter.len()).unwrap_or(u16::MAX),
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the pointers point to a live program of the passed length, which the kernel copies.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if result < 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::call("setsockopt", "SO_ATTACH_FILTER", cause));
        }
        Ok(())
    }

    /// Receives the next frame, including the link-layer header, on a listening socket. Returns the frame's length, at
    /// most that of the buffer; 0 if there is no frame after all, or a signal interrupted the call; or `None` after
    /// `limit`.
    ///
    /// # Errors
    /// Fails if the interface is down.
    pub fn receive_within(&self, frame: &mut [u8], limit: Duration) -> Result<Option<usize>> {
        let call_error = |error: Errno| Error::call("recv", "AF_PACKET", error);
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
            Err(error) => return Err(call_error(error)),
        }
        match recv(&self.socket, frame, RecvFlags::empty()) {
            Ok((length, _)) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Some(0)),
            Err(error) => Err(call_error(error)),
        }
    }

    /// Sends a frame, including the link-layer header, on an interface.
    ///
    /// # Errors
    /// Fails if the interface does not exist or is down, or the frame is too long.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> Result<()> {
        let subject = || format!("interface {ifindex}");
        let address = link_layer_address(ifindex, 0)?;
        // SAFETY: the pointers point to a live frame and a live address of the passed lengths.
        let result = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if result < 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::call("sendto", subject(), cause));
        }
        Ok(())
    }
}

/// Returns an instruction of a socket filter. `skipped` is the number of instructions that a failed comparison skips.
fn instruction(code: u32, skipped: u8, operand: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skipped,
        k: operand,
    }
}

fn link_layer_address(ifindex: u32, ethertype: u16) -> Result<libc::sockaddr_ll> {
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
    fn only_frames_with_the_bytes_are_received() {
        if !weir_testing::require_root() {
            return;
        }
        let netns = NetNs::create().unwrap();
        let received = netns.run(|| {
            let mut command = std::process::Command::new("ip");
            let status = command.args(["link", "set", "lo", "up"]).status();
            assert!(status.unwrap().success());
            let socket = FrameSocket::open_listener(1, 0x0806).unwrap();
            socket.keep_only(&[(20, 0), (21, 2)]).unwrap();
            for operation in [1, 2, 3, 2] {
                let mut frame = [0; 60];
                (frame[12], frame[13], frame[21]) = (8, 6, operation);
                socket.send(1, &frame).unwrap();
            }
            let (mut frame, mut received) = ([0; 128], Vec::new());
            while let Some(length) = socket.receive_within(&mut frame, Duration::ZERO).unwrap() {
                received.push((length, frame[21]));
            }
            received
        });
        assert_eq!(received.unwrap(), [(60, 2), (60, 2)]);
    }

    #[test]
    fn error_contains_missing_interface() {
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
