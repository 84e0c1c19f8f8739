//! Defines virtual routers. Only the active director of a virtual router has its addresses.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Network;

/// A virtual router, `[vrrp.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VirtualRouter {
    /// Name.
    pub name: String,
    /// Interface for advertisements and addresses; `None` = the interface that has `source`.
    pub interface: Option<String>,
    /// Virtual router ID, 1 to 255.
    pub router_id: u8,
    /// Priority, 1 to 255; 255 marks the address owner.
    pub priority: u8,
    /// Protocol version, 2 or 3.
    pub version: u8,
    /// Advertisement interval.
    pub advert_interval: Duration,
    /// Addresses that advertisements list, all of one family. Empty = the router manages no addresses and only runs the
    /// state machine.
    pub addresses: Vec<Network>,
    /// Addresses that advertisements do not list.
    pub excluded_addresses: Vec<Network>,
    /// Interfaces for addresses that are not on `interface`.
    #[serde(default)]
    pub other_interfaces: Vec<AddressInterface>,
    /// Whether the director takes over from an active director with a lower priority.
    pub preempt: bool,
    /// Delay before preemption.
    pub preempt_delay: Duration,
    /// Advertisement source address.
    pub source: Option<IpAddr>,
    /// Receivers of advertisements; empty = the multicast group.
    pub peers: Vec<IpAddr>,
    /// TTL or hop limit for packets to `peers`, 1 to 255; `None` = 255.
    #[serde(default)]
    pub unicast_ttl: Option<u8>,
    /// The lowest accepted TTL or hop limit of packets from `peers`, 1 to 255; `None` = 255 for IPv4, any for IPv6.
    #[serde(default)]
    pub unicast_min_ttl: Option<u8>,
    /// Name of the group. Virtual routers in the same group change state together.
    pub group: Option<String>,
    /// Tracked objects.
    pub track: Vec<Track>,
    /// Programs to run on state changes.
    pub notify: Notify,
    /// Delay after startup before the director participates in elections.
    pub start_delay: Duration,
    /// Missed advertisements after which a backup becomes active, 1 to 100.
    pub down_adverts: u32,
    /// Whether the checksum of version 3 over IPv4 includes a pseudo header. After the first packet from a peer, the
    /// form that the peer uses applies.
    pub pseudo_header: bool,
    /// Whether advertisements and addresses use the virtual MAC address (RFC 9568 section 7.3).
    pub virtual_mac: bool,
    /// Whether the router is in the fault state while its interface is down or has no carrier.
    pub track_interface: bool,
    /// Address announcements while the director is active.
    pub announcements: RouterAnnouncements,
    /// Simple text password of version 2, at most 8 bytes.
    pub password: Option<RouterKey>,
    /// Authentication trailer.
    pub hmac: Option<RouterHmac>,
    /// Routes that exist while the director is active.
    pub routes: Vec<VirtualRoute>,
    /// Policy routing rules that exist while the director is active.
    pub rules: Vec<VirtualRule>,
    /// Which packets to the addresses the active director accepts.
    #[serde(default)]
    pub accept: Accept,
}

/// Which packets to the addresses the active director accepts (RFC 9568 section 6.1, `Accept_Mode`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accept {
    /// All packets.
    #[default]
    All,
    /// Packets for services, and packets that neighbor discovery and path MTU discovery need.
    Services(Vec<AcceptedPorts>),
}

/// Ports at an address on which a service listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AcceptedPorts {
    /// An address of the virtual router.
    pub address: IpAddr,
    /// IANA protocol number.
    pub protocol: u8,
    /// First port.
    pub first: u16,
    /// Last port, inclusive.
    pub last: u16,
}

/// Address announcements by gratuitous ARP and unsolicited neighbor advertisements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouterAnnouncements {
    /// Frames per address at a takeover.
    pub repeat: u32,
    /// Time from a takeover to the second announcement; zero = no second announcement.
    #[serde(rename = "again")]
    pub second_announcement_delay: Duration,
    /// Interval between further announcements; zero = no further announcements.
    pub refresh: Duration,
    /// Frames per address in each further announcement.
    pub refresh_repeat: u32,
}

/// A key or password. `Debug` omits the value.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouterKey(pub Vec<u8>);

impl fmt::Debug for RouterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouterKey")
    }
}

/// Authentication of advertisements by HMAC, keepalived's `auth_hmac`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouterHmac {
    /// Accepted keys by ID, 32 to 64 bytes each.
    pub keys: Vec<(u8, RouterKey)>,
    /// ID of the key that signs packets.
    pub active: u8,
    /// Whether sent packets are signed, and whether received packets must be.
    pub mode: RouterHmacMode,
    /// Maximum difference between the clocks of two directors.
    pub window: Duration,
}

named_enum! {
    /// Whether sent packets are signed, and whether received packets must be.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum RouterHmacMode {
        /// Packets are signed, and signatures are required.
        Enforce = "enforce",
        /// Packets are signed; packets without a signature are accepted.
        Permissive = "permissive",
        /// Packets are not signed; packets without a signature are accepted.
        ReceiveOnly = "receive-only",
    }
}

/// A route that exists while a virtual router is active.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VirtualRoute {
    /// Destination.
    pub to: Network,
    /// Next hop.
    pub via: Option<IpAddr>,
    /// Interface; `None` = the interface of the virtual router.
    pub interface: Option<String>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Routing table.
    pub table: u32,
    /// Metric; 0 = the kernel's default.
    pub metric: u32,
}

/// A policy routing rule that exists while a virtual router is active. Packets that match all conditions use the
/// routing table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VirtualRule {
    /// Source.
    pub from: Option<Network>,
    /// Destination.
    pub to: Option<Network>,
    /// Interface on which packets are received.
    pub interface: Option<String>,
    /// Firewall mark.
    pub mark: Option<u32>,
    /// Routing table.
    pub table: u32,
    /// Rule priority.
    pub priority: u32,
}

impl VirtualRouter {
    /// Returns whether advertisements are sent over IPv4. `addresses` determines the family; without addresses,
    /// `source` or `peers` does.
    pub const fn is_ipv4(&self) -> bool {
        match (
            self.addresses.as_slice(),
            self.source,
            self.peers.as_slice(),
        ) {
            ([first, ..], _, _) => first.address.is_ipv4(),
            (_, Some(source), _) => source.is_ipv4(),
            (_, None, [peer, ..]) => peer.is_ipv4(),
            (_, None, []) => true,
        }
    }

    /// Returns the interface of an address that is not on the interface of the virtual router; `None` for other
    /// addresses.
    pub fn other_interface(&self, address: IpAddr) -> Option<&str> {
        let mut others = self.other_interfaces.iter();
        let found = others.find(|it| it.addresses.contains(&address))?;
        Some(&found.interface)
    }

    /// Returns the configured interface of an address that the router manages; `None` = the interface that has
    /// `source`.
    pub fn interface_of(&self, address: IpAddr) -> Option<&str> {
        self.other_interface(address).or(self.interface.as_deref())
    }

    /// Returns the addresses that the router manages on an interface; `None` = its own interface.
    pub fn managed_on<'a>(
        &'a self,
        interface: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Network> {
        let addresses = self.addresses_with_interfaces().into_iter();
        addresses.filter_map(move |(address, other)| (other == interface).then_some(address))
    }

    /// Returns the addresses that the router manages, each with its interface (`None` = the router's own), in time
    /// proportional to their number.
    pub fn addresses_with_interfaces(&self) -> Vec<(&Network, Option<&str>)> {
        let mut others: HashMap<IpAddr, &str> = HashMap::new();
        for other in &self.other_interfaces {
            for address in &other.addresses {
                others.entry(*address).or_insert(&other.interface);
            }
        }
        let interface = |network: &Network| others.get(&network.address).copied();
        self.managed_addresses()
            .map(|network| (network, interface(network)))
            .collect()
    }

    /// Returns all addresses that the router manages.
    pub fn managed_addresses(&self) -> impl Iterator<Item = &Network> {
        self.addresses.iter().chain(&self.excluded_addresses)
    }
}

/// A virtual router's addresses on an interface other than its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddressInterface {
    /// The interface.
    pub interface: String,
    /// Some of the virtual router's addresses.
    pub addresses: Vec<IpAddr>,
}

/// A tracked object and its effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Track {
    /// The tracked object.
    pub object: TrackObject,
    /// Subtracted from the priority on failure. For a file, its number is multiplied by this value and subtracted.
    pub penalty: u8,
    /// Added to the priority on success. If `penalty` and `bonus` are both 0, a failure releases the addresses. For a
    /// file, its number is multiplied by this value and added; if both are 0, the number itself is added.
    pub bonus: u8,
    /// For a file: every number except 0 releases the addresses. `penalty` and `bonus` are 0.
    #[serde(default)]
    pub fault: bool,
}

/// The tracked object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackObject {
    /// An interface that must be up.
    Interface(String),
    /// A process that must be running, by name.
    Process(String),
    /// A file with a number that changes the priority.
    File(String),
    /// A program that must exit with 0.
    Script(TrackScript),
    /// A service whose pool must have a usable server, or the quorum that the pool requires.
    Service(String),
    /// A pool that must have a usable server, or the quorum that the pool requires.
    Pool(String),
    /// The data plane, which must be able to forward packets.
    DataPlane,
}

/// A tracked program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TrackScript {
    /// Program and arguments, at least one.
    pub command: Vec<String>,
    /// Interval between runs.
    pub interval: Duration,
    /// Time limit for a run.
    pub timeout: Duration,
    /// Consecutive successes required.
    pub rise: u32,
    /// Consecutive failures required.
    pub fall: u32,
    /// Account that the program runs as.
    pub user: String,
}

/// Programs to run on state changes, with arguments; empty = no program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Notify {
    /// Runs on every change, with four additional arguments.
    pub all: Vec<String>,
    /// Runs when the director becomes active.
    pub active: Vec<String>,
    /// Runs when the director becomes a backup.
    pub backup: Vec<String>,
    /// Runs when the virtual router enters the fault state.
    pub fault: Vec<String>,
    /// Runs when the virtual router stops.
    pub stop: Vec<String>,
    /// Runs on every change of the group's state, once for the whole group.
    pub group: Vec<String>,
    /// A FIFO that receives a line for every change, in keepalived's format.
    pub fifo: Option<String>,
    /// Account that the programs run as.
    pub user: String,
}
