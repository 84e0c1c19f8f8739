//! Virtual routers: addresses that move between directors.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Network;

/// A virtual router, `[vrrp.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VirtualRouter {
    /// Its name.
    pub name: String,
    /// Interface of advertisements and addresses; `None`: the one that has `source`.
    pub interface: Option<String>,
    /// Virtual router ID, 1 to 255.
    pub router_id: u8,
    /// 1 to 255; 255 marks the address owner.
    pub priority: u8,
    /// Protocol version, 2 or 3.
    pub version: u8,
    /// Interval of advertisements.
    pub advert_interval: Duration,
    /// Addresses that are listed in advertisements; all of one family, at least one.
    pub addresses: Vec<Network>,
    /// Addresses that are not listed in advertisements.
    pub excluded_addresses: Vec<Network>,
    /// Whether it takes over from an active director with a lower priority.
    pub preempt: bool,
    /// How long it waits before it does.
    pub preempt_delay: Duration,
    /// Source address of advertisements.
    pub source: Option<IpAddr>,
    /// Receivers of advertisements; empty: the multicast group.
    pub peers: Vec<IpAddr>,
    /// Virtual routers of the same group move together.
    pub group: Option<String>,
    /// Tracked objects.
    pub track: Vec<Track>,
    /// Programs that are called on state changes.
    pub notify: Notify,
}

impl VirtualRouter {
    /// All addresses that it manages.
    pub fn managed(&self) -> impl Iterator<Item = &Network> {
        self.addresses.iter().chain(&self.excluded_addresses)
    }
}

/// A tracked object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Track {
    /// What is tracked.
    pub object: TrackObject,
    /// Subtracted from the priority on failure.
    pub penalty: u8,
    /// Added to the priority on success. Without both, a failure releases the addresses.
    pub bonus: u8,
}

/// What is tracked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackObject {
    /// An interface that must be up.
    Interface(String),
    /// A process that must be running, by name.
    Process(String),
    /// A file with a number that is added to the priority.
    File(String),
    /// A program that must exit with 0.
    Script(TrackScript),
}

/// A tracked program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TrackScript {
    /// Program and arguments, at least one.
    pub command: Vec<String>,
    /// Interval between runs.
    pub interval: Duration,
    /// Maximum run time.
    pub timeout: Duration,
    /// Consecutive successes required.
    pub rise: u32,
    /// Consecutive failures required.
    pub fall: u32,
    /// Account that it runs as.
    pub user: String,
}

/// Programs and arguments that are called on state changes; empty: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Notify {
    /// On every change, with four more arguments.
    pub all: Vec<String>,
    /// When the director becomes active.
    pub active: Vec<String>,
    /// When it becomes backup.
    pub backup: Vec<String>,
    /// When it is in fault.
    pub fault: Vec<String>,
    /// When it stops.
    pub stop: Vec<String>,
}
