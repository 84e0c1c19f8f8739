//! Ends the proxied connections of a director whose VIP this director has taken over.
//!
//! The connection of a client to another director's proxy cannot continue here. If the client sends a packet, this
//! director's kernel replies with a reset. A client that waits for data sends nothing, so it would wait until its own
//! timeout. Directors therefore send each other the lists of their proxied connections. When a VIP appears on this
//! machine, this director sends each of the VIP's clients a segment that is outside the client's window. The client
//! responds with an ACK that has the correct numbers (RFC 9293, 3.10.7.4), and the kernel resets it (`prompt`).
//!
//! The list contains the sockets of the whole network namespace, so it includes the connections of an earlier daemon
//! that is still draining. The sockets are listed in a separate thread (`sampler`).
//!
//! A peer's list determines only the destination of a segment. Its source is always the address of a proxy listener in
//! this director's own configuration, and is on this machine. The rate is limited.

mod listener;
mod prompt;
mod sampler;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_netlink::Event;
use weir_sync::{Change, Connection, Record, Session, Source};

pub use self::listener::ProxyListeners;
use self::prompt::Prompts;
use self::sampler::Sampler;

/// Interval between two samples of this director's connections.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the addresses of this machine are checked after a change: the event precedes the route.
const CHECK_TIME: Duration = Duration::from_secs(2);
/// Minimum interval between two checks. Changes do not shorten it: a takeover of many VIPs causes as many events.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The interval between two checks is at least this many times the duration of a check.
const CHECK_COST_FACTOR: u32 = 20;
/// The discard port (RFC 863).
const DISCARD_PORT: u16 = 9;

/// Numbers for the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProxiedCounts {
    /// Connections in this director's list.
    pub(crate) listed: usize,
    /// Connections that are not listed because the list is full.
    pub(crate) excess: usize,
    /// Segments sent to clients of other directors.
    pub(crate) prompts: u64,
}

/// This director's list of proxied connections, and its reaction to a takeover.
#[derive(Debug, Default)]
pub(crate) struct ProxiedConnections {
    listeners: Arc<ProxyListeners>,
    /// The content of each slot of this director's list.
    slots: Vec<Option<Connection>>,
    listed: usize,
    excess: usize,
    sampler: Sampler,
    sample_at: Duration,
    /// Whether each listener's address was on this machine at the last check.
    is_local: HashMap<IpAddr, bool>,
    check_at: Duration,
    /// Addresses are checked until a check begins at this time or later; `None` = there is nothing to check.
    check_until: Option<Duration>,
    prompts: Prompts,
}

impl ProxiedConnections {
    /// Adopts the listeners of a configuration.
    pub(crate) fn set_listeners(&mut self, listeners: ProxyListeners) {
        if *self.listeners == listeners {
            return;
        }
        let previous = std::mem::take(&mut self.is_local);
        let states = listeners.vips().map(|address| {
            let previous_state = previous.get(&address).copied();
            (address, previous_state.unwrap_or_else(|| is_local(address)))
        });
        self.is_local = states.collect();
        self.listeners = Arc::new(listeners);
    }

    /// Handles a change to the network.
    pub(crate) fn handle_event(&mut self, event: &Event, now: Duration) {
        if matches!(event, Event::Address { .. } | Event::Lost) && !self.is_local.is_empty() {
            self.check_until = Some(now + CHECK_TIME);
        }
    }

    /// Updates the list, and sends due segments. Returns whether segments are due soon.
    pub(crate) fn step<'a>(
        &mut self,
        now: Duration,
        sessions: impl Iterator<Item = &'a mut Session>,
    ) -> bool {
        let mut sessions: Vec<&mut Session> = sessions.collect();
        self.sample(now, &mut sessions);
        if self.check_until.is_some() && now >= self.check_at {
            let start = Instant::now();
            self.check_addresses(now, &mut sessions);
            self.check_at = now + CHECK_INTERVAL.max(start.elapsed() * CHECK_COST_FACTOR);
            self.check_until = self.check_until.filter(|until| now < *until);
        }
        self.prompts.send(now);
        !self.prompts.is_empty() || self.check_until.is_some()
    }

    fn sample(&mut self, now: Duration, sessions: &mut [&mut Session]) {
        if let Some(sample) = self.sampler.receive() {
            self.excess = sample.excess;
            // If sampling takes long, sample less often.
            self.sample_at = now + SAMPLE_INTERVAL.max(sample.duration * CHECK_COST_FACTOR);
            for (slot, content) in sample.changes {
                self.set((slot, content));
                for session in &mut *sessions {
                    session.queue_connection(slot, now);
                }
            }
        }
        let has_peer = sessions.iter().any(|it| it.accepts_connections(now));
        let has_listeners = !self.listeners.is_empty() || self.listed > 0;
        if has_peer && has_listeners && now >= self.sample_at {
            self.sampler.request(&self.listeners);
        }
    }

    fn set(&mut self, (slot, content): Change) {
        let index = slot as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, None);
        }
        if let Some(current) = self.slots.get_mut(index) {
            self.listed -= usize::from(current.is_some());
            self.listed += usize::from(content.is_some());
            *current = content;
        }
    }

    /// Prompts the clients of the addresses that are new on this machine.
    fn check_addresses(&mut self, now: Duration, sessions: &mut [&mut Session]) {
        let mut new = HashSet::new();
        for (address, was_local) in &mut self.is_local {
            let is_local = is_local(*address);
            if is_local && !*was_local {
                new.insert(*address);
            }
            *was_local = is_local;
        }
        let Some(vip) = new.iter().min() else {
            return;
        };
        let lists = sessions.iter_mut();
        let connections: Vec<Connection> = lists
            .flat_map(|session| session.take_peer_connections(&new))
            .filter(|it| self.listeners.contains(it.vip) && is_client(it.client))
            .collect();
        if !connections.is_empty() {
            tracing::info!(
                vips = new.len(),
                first = %vip,
                connections = connections.len(),
                "took over VIPs; ending the connections to the other director's proxy"
            );
            self.prompts.add(connections, now);
        }
    }

    pub(crate) const fn counts(&self) -> ProxiedCounts {
        ProxiedCounts {
            listed: self.listed,
            excess: self.excess,
            prompts: self.prompts.sent(),
        }
    }
}

/// Returns whether a client can have this address and port, so that a peer's list cannot make this director send
/// segments to groups or to itself.
fn is_client(client: SocketAddr) -> bool {
    let ip = client.ip();
    let is_group = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(is_group || ip.is_unspecified() || ip.is_loopback() || client.port() == 0)
}

/// Returns whether an address is on this machine. With `ip_nonlocal_bind`, a socket can be bound to other addresses
/// too, but IPv4 has no route from them. The kernel selects an IPv6 address as the source of packets to the same
/// address only if it is on this machine; the source of packets to a secondary IPv4 address is the primary one.
fn is_local(address: IpAddr) -> bool {
    let bound: IpAddr = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((bound, 0)).and_then(|socket| {
        socket.connect((address, DISCARD_PORT))?;
        socket.local_addr()
    });
    source.is_ok_and(|source: SocketAddr| source.ip() == address)
}

/// A flow table together with the list of proxied connections.
pub(crate) struct WithConnections<'a, S> {
    pub(crate) flows: &'a mut S,
    pub(crate) proxied: &'a ProxiedConnections,
}

impl<S: Source> Source for WithConnections<'_, S> {
    fn export(&mut self, entry: u32, records: &mut Vec<Record>) {
        self.flows.export(entry, records);
    }

    fn prefetch(&mut self, entry: u32) {
        self.flows.prefetch(entry);
    }

    fn scan(&mut self, from: u32, entries: &mut Vec<u32>) -> Option<u32> {
        self.flows.scan(from, entries)
    }

    fn connection_slots(&self) -> u32 {
        self.proxied.slots.len() as u32
    }

    fn connection(&self, slot: u32) -> Option<Connection> {
        self.proxied.slots.get(slot as usize).copied().flatten()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn segments_are_sent_only_to_addresses_of_hosts() {
        let is_client = |text: &str| is_client(text.parse().unwrap());
        assert!(is_client("192.0.2.1:4000") && is_client("[2001:db8::1]:4000"));
        for other in [
            "192.0.2.1:0",
            "127.0.0.1:4000",
            "0.0.0.0:4000",
            "224.0.0.1:4000",
            "255.255.255.255:4000",
            "[::1]:4000",
            "[ff02::1]:4000",
        ] {
            assert!(!is_client(other), "{other}");
        }
    }

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Returns a list for a VIP that is on this machine but was not at the last check.
    pub(crate) fn with_new_vip() -> ProxiedConnections {
        ProxiedConnections {
            is_local: [(LOOPBACK, false)].into(),
            ..ProxiedConnections::default()
        }
    }

    /// Returns whether the VIP of [`with_new_vip`] was found on this machine.
    pub(crate) fn has_found_vip(proxied: &ProxiedConnections) -> bool {
        proxied.is_local[&LOOPBACK]
    }

    #[test]
    fn events_do_not_shorten_the_interval_between_checks() {
        let mut proxied = with_new_vip();
        let mut now = Duration::from_secs(5);
        let mut checks = 0;
        // A takeover of 1000 VIPs.
        for _ in 0..1000 {
            proxied.handle_event(&Event::Lost, now);
            proxied.is_local = [(LOOPBACK, false)].into();
            assert!(proxied.step(now, std::iter::empty()), "a check must be due");
            checks += usize::from(has_found_vip(&proxied));
            now += Duration::from_millis(1);
        }
        let max = Duration::from_secs(1).as_millis() / CHECK_INTERVAL.as_millis();
        assert!(checks > 0 && checks as u128 <= max, "{checks} checks");
    }

    #[test]
    fn addresses_are_checked_after_the_last_event_even_if_checks_take_long() {
        let mut proxied = with_new_vip();
        let now = Duration::from_secs(5);
        proxied.check_at = now + 2 * CHECK_TIME;
        proxied.handle_event(&Event::Lost, now);
        assert!(proxied.step(now + CHECK_TIME, std::iter::empty()));
        assert!(!has_found_vip(&proxied));
        assert!(!proxied.step(now + 2 * CHECK_TIME, std::iter::empty()));
        assert!(has_found_vip(&proxied));
    }

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        assert!(is_local(Ipv4Addr::LOCALHOST.into()));
        assert!(is_local(Ipv6Addr::LOCALHOST.into()));
        // TEST-NET-1 (RFC 5737) and the documentation prefix (RFC 3849).
        assert!(!is_local(Ipv4Addr::new(192, 0, 2, 1).into()));
        assert!(!is_local(
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()
        ));
    }
}
