//! Relays the daemon's echo requests, so that the raw socket stays in the privileged helper.
//!
//! A raw socket can send any IP packet from any source (IP_HDRINCL, raw(7)).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use weir_sys::Channel;
use weir_sys::privileged::{PingTarget, ping_socket_without_helper};

/// Maximum number of relayed sockets; further requests fail.
pub(super) const MAX_RELAYS: usize = 4096;
/// Maximum length of a packet; longer packets are truncated.
const MAX_PACKET_BYTES: usize = 4096;
/// Length of the ICMP header: type, code, checksum, identifier and sequence number.
const HEADER_BYTES: usize = 8;

/// Opens a relayed socket. Returns the daemon's end ([`weir_sys::privileged::PingSocket::Relayed`]). Must be called
/// inside a tokio runtime. The relay ends when the daemon closes its end.
///
/// # Errors
/// Fails if the kernel rejects the request, or too many sockets are relayed.
pub(super) fn relay(target: &PingTarget, limit: &Arc<Semaphore>) -> io::Result<OwnedFd> {
    let permit = Arc::clone(limit).try_acquire_owned();
    let permit = permit.map_err(|_| io::Error::from(Errno::AGAIN))?;
    let raw = nonblocking(ping_socket_without_helper(target)?)?;
    let (helper_end, daemon_end) = Channel::pair().map_err(io::Error::other)?;
    let helper_end = nonblocking(helper_end.into())?;
    let daemon_end = OwnedFd::from(daemon_end);
    rustix::io::ioctl_fionbio(&daemon_end, true)?;
    let is_ipv6 = target.to.is_ipv6();
    tokio::spawn(async move {
        if let Err(error) = forward(&raw, &helper_end, is_ipv6).await {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            // The daemon may have exited.
            let _ = helper_end.send(&errno.to_ne_bytes()).await;
        }
        drop(permit);
    });
    Ok(daemon_end)
}

/// Registers a socket with the runtime. send(2) and recv(2) are the same for every kind of socket.
fn nonblocking(socket: OwnedFd) -> io::Result<UdpSocket> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    UdpSocket::from_std(socket.into())
}

/// Forwards packets until the daemon closes its end of the socket pair.
///
/// # Errors
/// Fails if the raw socket reports an error, such as an unreachable target, or if the daemon sent something other than
/// an echo request.
async fn forward(raw: &UdpSocket, daemon: &UdpSocket, is_ipv6: bool) -> io::Result<()> {
    let (mut request, mut reply) = ([0; MAX_PACKET_BYTES], [0; MAX_PACKET_BYTES]);
    loop {
        tokio::select! {
            received = daemon.recv(&mut request) => match received {
                Ok(0) | Err(_) => return Ok(()),
                Ok(length) if is_echo_request(&request[..length], is_ipv6) => {
                    raw.send(&request[..length]).await?;
                }
                Ok(_) => {
                    tracing::error!("refused a request from the daemon: it is not an ICMP echo request");
                    return Err(Errno::PERM.into());
                }
            },
            received = raw.recv(&mut reply) => {
                let length = received?;
                if is_echo_reply(&reply[..length], is_ipv6) && daemon.send(&reply[..length]).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns whether the message is an echo request (type and code: RFC 792, RFC 4443).
fn is_echo_request(message: &[u8], is_ipv6: bool) -> bool {
    let kind = if is_ipv6 { 128 } else { 8 };
    message.len() >= HEADER_BYTES && message.starts_with(&[kind, 0])
}

/// Returns whether the packet is an echo reply. A raw IPv4 socket also delivers the IP header.
fn is_echo_reply(packet: &[u8], is_ipv6: bool) -> bool {
    let (kind, message) = if is_ipv6 {
        (129, packet)
    } else {
        let header = packet.first().map_or(0, |byte| usize::from(byte & 0xf) * 4);
        (0, packet.get(header..).unwrap_or_default())
    };
    message.len() >= HEADER_BYTES && message.starts_with(&[kind, 0])
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use rustix::net::AddressFamily;
    use rustix::net::sockopt::socket_domain;
    use tokio::time::timeout;
    use weir_sys::privileged::ping_error;

    use super::*;

    /// An echo request with its checksum (RFC 1071).
    const REQUEST: [u8; 8] = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1];

    #[test]
    fn daemon_gets_replies_but_no_raw_socket() {
        if !weir_testing::require_root() {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let target = PingTarget {
                to: Ipv4Addr::LOCALHOST.into(),
                from: None,
                is_optional: false,
                interface: None,
            };
            let limit = Arc::new(Semaphore::new(1));
            let socket = relay(&target, &limit).unwrap();
            assert_eq!(socket_domain(&socket), Ok(AddressFamily::UNIX));
            assert!(
                relay(&target, &limit).is_err(),
                "the number of relays must be limited"
            );
            let socket = nonblocking(socket).unwrap();
            let mut buffer = [0; 64];
            let mut receive =
                async || timeout(Duration::from_secs(10), socket.recv(&mut buffer)).await;
            socket.send(&REQUEST).await.unwrap();
            let length = receive().await.expect("receive a message in time").unwrap();
            assert_eq!(length, 28, "IP header and message");
            // A redirect (RFC 792).
            socket.send(&[5, 1, 0, 0, 192, 0, 2, 1]).await.unwrap();
            let length = receive().await.expect("receive a message in time").unwrap();
            let error = ping_error(&buffer[..length]).unwrap();
            assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
        });
    }

    #[test]
    fn only_echo_requests_are_accepted() {
        assert!(is_echo_request(&REQUEST, false) && !is_echo_request(&REQUEST, true));
        assert!(is_echo_request(&[128, 0, 0, 0, 0, 0, 0, 0], true));
        // Redirects, router advertisements, a nonzero code, a short message, and the header of a different packet.
        for other in [
            [5, 1, 0, 0, 0, 0, 0, 0].as_slice(),
            &[9, 0, 0, 0, 0, 0, 0, 0],
            &[8, 1, 0, 0, 0, 0, 0, 0],
            &[8, 0, 0, 0],
            &[0x45, 0, 0, 28, 0, 0, 0, 0],
        ] {
            assert!(!is_echo_request(other, false), "{other:?}");
        }
        assert!(!is_echo_request(&[134, 0, 0, 0, 0, 0, 0, 0], true));
    }
}
