//! Chooses the time of a fault between two advertisements of the active director.
//!
//! A standby's timeout begins with the last advertisement that it received, so the outage depends on this time: with an
//! interval of 100 ms, by up to 100 ms. With random times, two programs that behave in the same way would have
//! different medians. In each round, the fault therefore happens at the same point between two advertisements for all
//! pairs.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_ip_add_membership, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketType, recv, socket};

use crate::error::{LabError, Result};
use crate::namespace::Namespace;

/// IP protocol and group of VRRP (RFC 9568, section 5.1.1).
const PROTOCOL: u32 = 112;
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// Position of the source address in an IPv4 header (RFC 791, section 3.1).
const SOURCE: std::ops::Range<usize> = 12..16;
/// Time limit for the next VRRP packet.
const LIMIT: Duration = Duration::from_secs(3);

/// Waits for a director's advertisement, and then for this round's part of the advertisement interval. `host` receives
/// on the directors' switch and has the address `address`.
///
/// # Errors
/// Fails if no VRRP packet arrives for three seconds, or the socket cannot be opened.
pub(super) fn wait(
    (host, address): (&Namespace, Ipv4Addr),
    director: Ipv4Addr,
    interval: Duration,
    round: u32,
) -> Result<()> {
    host.enter(|| {
        let socket = open(address).map_err(|errno| LabError::file("socket")(errno.into()))?;
        receive_from(&socket, director).map_err(|errno| LabError::file("VRRP")(errno.into()))
    })?;
    std::thread::sleep(delay(interval, round));
    Ok(())
}

fn open(address: Ipv4Addr) -> rustix::io::Result<OwnedFd> {
    let protocol = rustix::net::Protocol::from_raw(PROTOCOL.try_into().map_err(|_| Errno::INVAL)?);
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(protocol))?;
    set_ip_add_membership(&socket, &GROUP, &address)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(LIMIT))?;
    Ok(socket)
}

/// Receives packets until one is from this address. Fails if no packet arrives for [`LIMIT`].
fn receive_from(socket: &OwnedFd, sender: Ipv4Addr) -> rustix::io::Result<()> {
    let mut packet = [0; 256];
    loop {
        let (_, length) = recv(socket, packet.as_mut_slice(), RecvFlags::empty())?;
        if packet[..length].get(SOURCE) == Some(&sender.octets()) {
            return Ok(());
        }
    }
}

/// Returns the part of the interval after which the fault of a round happens. The parts of successive rounds are
/// distributed evenly, because they are the fractional parts of multiples of the golden ratio.
fn delay(interval: Duration, round: u32) -> Duration {
    interval * (round.wrapping_mul(618) % 1_000) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_twenty_rounds_are_distributed_evenly() {
        let interval = Duration::from_millis(100);
        let mut delays: Vec<_> = (0..20).map(|round| delay(interval, round)).collect();
        delays.sort_unstable();
        for (index, delay) in (0_u32..).zip(delays) {
            let expected = interval * index / 20;
            assert!(delay.abs_diff(expected) < interval / 10, "{delay:?}");
        }
    }
}
