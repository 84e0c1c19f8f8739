//! Runs probes that send one datagram: DNS, UDP with a configured payload, ICMP echo.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use weir_health::{Outcome, Target, datagram};
use weir_model::Probe;
use weir_sys::privileged::{self, PingSocket, PingTarget, ping_error};

use crate::connect::{bind, local_address};
use crate::context::Context;
use crate::path::PathProbe;

/// Delay before the next attempt after the privileged helper has exited.
const HELPER_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Identifier of the next probe, which distinguishes concurrent probes.
static NEXT_ID: AtomicU16 = AtomicU16::new(1);

/// Sends the request and waits for the reply. The caller enforces the deadline.
///
/// # Errors
/// Returns an error if the socket cannot be opened or used, or if the network reports that the target is unreachable.
pub(crate) async fn probe(
    context: &Context,
    target: &Target,
    path: Option<&PathProbe>,
) -> io::Result<Outcome> {
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    if target.probe == Probe::Ping {
        return ping(context, target, id).await;
    }
    let socket = open_socket(context, target, path).await?;
    let mut buffer = [0; 4096];
    let request = datagram::request(&target.probe, id).unwrap_or_default();
    socket.send(&request).await?;
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(outcome) = datagram::evaluate(&target.probe, id, &buffer[..length]) {
            return Ok(outcome);
        }
    }
}

/// Sends an echo request and waits for the reply. If the privileged helper exits, sends the request again.
async fn ping(context: &Context, target: &Target, id: u16) -> io::Result<Outcome> {
    let (from, is_optional) = local_address(context, target);
    let to = PingTarget {
        to: target.address,
        from,
        is_optional,
        interface: target.interface.clone(),
    };
    let request = echo_request(target.address, id);
    let mut buffer = [0; 4096];
    loop {
        let (socket, is_relayed) = match privileged::ping_socket(&to)? {
            PingSocket::Raw(socket) => (socket, false),
            PingSocket::Relayed(socket) => (socket, true),
        };
        let socket = UdpSocket::from_std(socket.into())?;
        match socket.send(&request).await {
            Err(error) if !is_relayed => return Err(error),
            _ => {}
        }
        loop {
            let packet = match socket.recv(&mut buffer).await {
                // The helper has exited.
                Ok(0) | Err(_) if is_relayed => break,
                received => &buffer[..received?],
            };
            if is_relayed && let Some(error) = ping_error(packet) {
                return Err(error);
            }
            if is_echo_reply(target.address, id, packet) {
                return Ok(Outcome::passed("ping"));
            }
        }
        // The keeper starts another helper. The caller enforces the deadline.
        tokio::time::sleep(HELPER_RETRY_DELAY).await;
    }
}

/// Opens a connected socket, so the kernel delivers only the target's replies and ICMP errors.
async fn open_socket(
    context: &Context,
    target: &Target,
    path: Option<&PathProbe>,
) -> io::Result<UdpSocket> {
    let destination = SocketAddr::new(target.address, target.port.unwrap_or(0));
    let socket = Socket::new(
        Domain::for_address(destination),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if let Some(interface) = &target.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    match path {
        Some(path) => {
            let packets = path.bind(&socket, target, weir_model::Protocol::Udp)?;
            path.register(packets).await?;
        }
        None => bind(context, &socket, target)?,
    }
    socket.connect(&destination.into())?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(OwnedFd::from(socket).into())
}

/// Builds an echo request (RFC 792, RFC 4443); the kernel computes the ICMPv6 checksum.
fn echo_request(destination: IpAddr, id: u16) -> Vec<u8> {
    let kind = if destination.is_ipv4() { 8 } else { 128 };
    let [high, low] = id.to_be_bytes();
    let mut message = vec![kind, 0, 0, 0, high, low, 0, 1];
    message.extend(*b"weir health check");
    message.push(0);
    if destination.is_ipv4() {
        let words = message.chunks(2).map(|pair| match pair {
            [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
            _ => 0,
        });
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = !(((folded & 0xffff) + (folded >> 16)) as u16);
        message[2..4].copy_from_slice(&folded.to_be_bytes());
    }
    message
}

/// Returns whether a message is the reply to the echo request `id`. A raw IPv4 socket also delivers the IP header.
fn is_echo_reply(server: IpAddr, id: u16, message: &[u8]) -> bool {
    let (kind, icmp) = if server.is_ipv4() {
        let header = message
            .first()
            .map_or(0, |byte| usize::from(byte & 0xf) * 4);
        (0, message.get(header..).unwrap_or_default())
    } else {
        (129, message)
    };
    icmp.first() == Some(&kind) && icmp.get(4..6) == Some(&id.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reply_to_own_echo_request_is_recognized() {
        let v4: IpAddr = "10.0.0.5".parse().unwrap();
        let request = echo_request(v4, 0x1234);
        assert_eq!(request.len() % 2, 0);
        let sum: u32 = request
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        assert_eq!(
            (sum & 0xffff) + (sum >> 16),
            0xffff,
            "the checksum is invalid (RFC 1071)"
        );
        let mut reply = vec![0x45];
        reply.extend([0; 19]);
        reply.extend(&request);
        assert!(
            !is_echo_reply(v4, 0x1234, &reply),
            "a request is not a reply"
        );
        reply[20] = 0;
        assert!(is_echo_reply(v4, 0x1234, &reply));
        assert!(!is_echo_reply(v4, 0x1235, &reply));
        assert!(!is_echo_reply(v4, 0x1234, &[0x4f]));
        let v6: IpAddr = "fd00::5".parse().unwrap();
        assert!(is_echo_reply(v6, 7, &[129, 0, 0, 0, 0, 7, 0, 1]));
    }
}
