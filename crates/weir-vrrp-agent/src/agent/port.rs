//! Holds a virtual router's state on this host: socket, addresses, and time of the last state change.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use weir_model::VirtualRouter;
use weir_sys::{FrameSocket, RawIpSocket};
use weir_vrrp::{GROUP_V4, GROUP_V6, PROTOCOL, State};
use weir_wire::MacAddr;

use super::address::ActiveAddresses;
use crate::frame;
use crate::link::Attachment;

#[derive(Debug)]
pub(super) struct Port {
    attachment: Option<Attachment>,
    socket: Option<AsyncFd<RawIpSocket>>,
    /// TTL of sent packets, if the socket sends to unicast peers.
    unicast_ttl: Option<u8>,
    /// Whether the router must not be active; see the `release` module.
    pub(super) is_released: bool,
    /// The addresses while the router is active.
    pub(super) addresses: ActiveAddresses,
    /// Whether the router, although not active, has addresses that a former owner handed over.
    pub(super) has_handed_over_addresses: bool,
    /// When the state was entered.
    pub(super) since: SystemTime,
    /// The state in the previous agent, and when it was entered. `None` = unknown, or the state has changed.
    pub(super) previous_state: Option<(State, SystemTime)>,
    /// Number of times the router became active since `weir run` started.
    pub(super) takeovers: u64,
}

/// Time in which due announcements are sent, with a margin for a busy machine.
const ANNOUNCEMENT_TIME: Duration = Duration::from_secs(1);

impl Default for Port {
    fn default() -> Self {
        Self {
            attachment: None,
            socket: None,
            unicast_ttl: None,
            is_released: false,
            addresses: ActiveAddresses::default(),
            has_handed_over_addresses: false,
            since: SystemTime::now(),
            previous_state: None,
            takeovers: 0,
        }
    }
}

impl Port {
    pub(super) const fn socket(&self) -> Option<&AsyncFd<RawIpSocket>> {
        self.socket.as_ref()
    }

    pub(super) const fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// Returns the source address of packets; `None` if there is no usable interface.
    pub(super) fn source(&self) -> Option<IpAddr> {
        let attachment = self.attachment.as_ref()?;
        self.socket.is_some().then_some(attachment.source)
    }

    /// Returns the interface name if the interface is usable.
    pub(super) fn interface(&self) -> Option<String> {
        self.source()?;
        self.attachment.as_ref().map(|it| it.interface.clone())
    }

    /// Returns the interface index and the MAC address for advertisements and announcements; `None` if there is no
    /// interface or it has no MAC address.
    pub(super) fn link(&self, settings: &VirtualRouter) -> Option<(u32, MacAddr)> {
        let attachment = self.attachment.as_ref()?;
        let mac = match settings.virtual_mac {
            true => weir_helper::virtual_mac(settings.router_id, attachment.source.is_ipv6()),
            false => attachment.mac?.octets(),
        };
        Some((attachment.ifindex, MacAddr::new(mac)))
    }

    /// Opens the socket if there is none or the attachment has changed. Returns whether the caller must pass the source
    /// address to the state machine.
    pub(super) fn attach(
        &mut self,
        settings: &VirtualRouter,
        attachment: Option<Attachment>,
        changed: bool,
    ) -> bool {
        let unicast_ttl =
            (!settings.peers.is_empty()).then(|| settings.unicast_ttl.unwrap_or(u8::MAX));
        let is_same = self.attachment == attachment && self.unicast_ttl == unicast_ttl;
        if is_same && (self.socket.is_some() || attachment.is_none()) {
            return changed;
        }
        self.socket = attachment
            .as_ref()
            .and_then(|it| open(it, unicast_ttl, &settings.name));
        self.attachment = attachment;
        self.unicast_ttl = unicast_ttl;
        true
    }

    /// Returns the destinations of advertisements: the peers, or the multicast group if there are none.
    pub(super) fn receivers(&self, settings: &VirtualRouter, source: IpAddr) -> Vec<IpAddr> {
        if settings.peers.is_empty() {
            vec![group(source)]
        } else {
            settings.peers.clone()
        }
    }

    pub(super) fn send(
        &self,
        settings: &VirtualRouter,
        packets: &[(IpAddr, Vec<u8>)],
        frames: &FrameSocket,
    ) {
        let (Some(socket), Some(source)) = (&self.socket, self.source()) else {
            return;
        };
        for (receiver, bytes) in packets {
            let sent = match self.link(settings) {
                Some((ifindex, mac)) if settings.virtual_mac => {
                    frames.send(ifindex, &frame::multicast(source, *receiver, mac, bytes))
                }
                _ => socket.get_ref().send(bytes, *receiver),
            };
            if let Err(error) = sent {
                tracing::debug!(router = settings.name, %error, "failed to send an advertisement");
            }
        }
    }

    /// Records a state change. If this agent's first state is that of the previous agent, the state has not changed,
    /// and the function returns true.
    pub(super) fn record_state_change(&mut self, to: State) -> bool {
        let previous = self.previous_state.take();
        let continued = previous.filter(|(state, _)| *state == to);
        self.since = continued.map_or_else(SystemTime::now, |(_, since)| since);
        self.addresses = ActiveAddresses::default();
        if to == State::Active && continued.is_none() {
            self.takeovers += 1;
        }
        continued.is_some()
    }

    /// Returns whether the previous agent became active so long ago that it has made all announcements of its takeover.
    pub(super) fn was_announced(&self, settings: &VirtualRouter) -> bool {
        let Some((State::Active, since)) = self.previous_state else {
            return false;
        };
        let announcement_duration =
            settings.announcements.second_announcement_delay + ANNOUNCEMENT_TIME;
        since
            .elapsed()
            .is_ok_and(|elapsed| elapsed > announcement_duration)
    }
}

const fn group(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => IpAddr::V4(GROUP_V4),
        IpAddr::V6(_) => IpAddr::V6(GROUP_V6),
    }
}

#[expect(
    deprecated,
    reason = "the alternatives are unsafe; the socket owns its descriptor while it is registered"
)]
fn open(
    attachment: &Attachment,
    unicast_ttl: Option<u8>,
    router: &str,
) -> Option<AsyncFd<RawIpSocket>> {
    let Attachment {
        interface,
        ifindex,
        source,
        ..
    } = attachment;
    let group = unicast_ttl.is_none().then_some(group(*source));
    let opened = RawIpSocket::open(PROTOCOL, interface, *ifindex, *source, group);
    let registered = opened
        .and_then(|mut socket| {
            unicast_ttl.map_or(Ok(()), |ttl| socket.set_unicast_ttl(ttl))?;
            Ok(socket)
        })
        .map_err(|error| error.to_string())
        .and_then(|socket| {
            AsyncFd::with_interest(socket, Interest::READABLE).map_err(|error| error.to_string())
        });
    registered
        .inspect_err(|error| {
            tracing::warn!(
                router,
                error,
                "failed to open the socket of a virtual router"
            )
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_first_state_continues_state_of_previous_agent() {
        let since = SystemTime::UNIX_EPOCH;
        let port = || Port {
            previous_state: Some((State::Active, since)),
            ..Port::default()
        };
        let mut active = port();
        assert!(active.record_state_change(State::Active));
        assert_eq!((active.since, active.takeovers), (since, 0));
        let mut backup = port();
        assert!(!backup.record_state_change(State::Backup));
        assert_ne!(backup.since, since);
        assert!(!backup.record_state_change(State::Active));
        assert_ne!(backup.since, since);
        assert_eq!(backup.takeovers, 1);
    }

    #[test]
    fn takeover_counts_as_announced_only_after_the_second_announcement() {
        let settings = crate::link::tests::router("addresses = [\"10.0.0.10/24\"]");
        let was_announced = |state, seconds| {
            let since = SystemTime::now() - Duration::from_secs(seconds);
            let port = Port {
                previous_state: Some((state, since)),
                ..Port::default()
            };
            port.was_announced(&settings)
        };
        assert!(was_announced(State::Active, 60));
        assert!(!was_announced(State::Active, 5));
        assert!(!was_announced(State::Backup, 60));
        assert!(!Port::default().was_announced(&settings));
    }
}
