//! Defines the settings of `[announce]`, the announcement of VIPs by BGP.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[announce]`: BGP announcement of VIPs through a speaker on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Announce {
    /// The speaker.
    pub speaker: Speaker,
    /// How long routes stay announced after the daemon has stopped, at least two seconds.
    pub withdraw_after: Duration,
    /// How long a drained node's routes are announced with `drain_communities` before they are withdrawn.
    pub drain_delay: Duration,
    /// Names of the services whose VIPs are announced; `None` = all services.
    pub services: Option<Vec<String>>,
    /// Which of a VIP's services must be able to serve.
    pub require: RequiredServices,
    /// Communities for every route.
    pub communities: Vec<Community>,
    /// Additional communities for a drained node's routes.
    pub drain_communities: Vec<Community>,
}

impl Announce {
    /// `GRACEFUL_SHUTDOWN` (RFC 8326 section 3): receivers prefer any other route.
    pub const GRACEFUL_SHUTDOWN: Community = Community(65535, 0);

    /// Returns whether a service's VIPs are announced.
    pub fn covers(&self, service: &str) -> bool {
        match &self.services {
            Some(names) => names.iter().any(|name| name == service),
            None => true,
        }
    }
}

/// A BGP speaker and its control interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Speaker {
    /// BIRD 2 or 3: an include file, and `configure` over the control socket.
    Bird {
        /// The control socket.
        socket: PathBuf,
        /// The include file, which Weir writes.
        include: PathBuf,
    },
    /// ExaBGP: commands written to its named pipe.
    Exabgp {
        /// The pipe.
        pipe: PathBuf,
    },
    /// GoBGP: its command line.
    Gobgp {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// FRR: the sockets of its daemons, or vtysh.
    Frr {
        /// The program and its arguments.
        command: Vec<String>,
        /// AS number in `router bgp`.
        asn: u32,
        /// Name of the prefix list that filters the routes to the neighbors, for fast withdrawals.
        prefix_list: Option<String>,
    },
}

impl Speaker {
    /// Names of all speakers in the configuration.
    pub const NAMES: [&'static str; 4] = ["bird", "exabgp", "gobgp", "frr"];

    /// Returns the name in the configuration.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Bird { .. } => Self::NAMES[0],
            Self::Exabgp { .. } => Self::NAMES[1],
            Self::Gobgp { .. } => Self::NAMES[2],
            Self::Frr { .. } => Self::NAMES[3],
        }
    }

    /// Returns the control socket, if the speaker has one.
    pub const fn socket(&self) -> Option<&PathBuf> {
        match self {
            Self::Bird { socket, .. } => Some(socket),
            Self::Exabgp { .. } | Self::Gobgp { .. } | Self::Frr { .. } => None,
        }
    }

    /// Returns the include file, if the speaker has one.
    pub const fn include(&self) -> Option<&PathBuf> {
        match self {
            Self::Bird { include, .. } => Some(include),
            Self::Exabgp { .. } | Self::Gobgp { .. } | Self::Frr { .. } => None,
        }
    }

    /// Returns the named pipe, if the speaker has one.
    pub const fn pipe(&self) -> Option<&PathBuf> {
        match self {
            Self::Exabgp { pipe } => Some(pipe),
            Self::Bird { .. } | Self::Gobgp { .. } | Self::Frr { .. } => None,
        }
    }

    /// Returns the program and its arguments, if a program controls the speaker.
    pub fn command(&self) -> Option<&[String]> {
        match self {
            Self::Gobgp { command } | Self::Frr { command, .. } => Some(command),
            Self::Bird { .. } | Self::Exabgp { .. } => None,
        }
    }

    /// Returns the AS number, if the speaker needs it.
    pub const fn asn(&self) -> Option<u32> {
        match self {
            Self::Frr { asn, .. } => Some(*asn),
            Self::Bird { .. } | Self::Exabgp { .. } | Self::Gobgp { .. } => None,
        }
    }

    /// Returns the name of the prefix list, if one is set.
    pub fn prefix_list(&self) -> Option<&str> {
        match self {
            Self::Frr { prefix_list, .. } => prefix_list.as_deref(),
            Self::Bird { .. } | Self::Exabgp { .. } | Self::Gobgp { .. } => None,
        }
    }
}

/// Which of a VIP's services must be able to serve for the VIP to be announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequiredServices {
    /// At least one of the services.
    #[default]
    Any,
    /// All of the services.
    All,
}

impl RequiredServices {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Any, Self::All];

    /// Returns the name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::All => "all",
        }
    }
}

/// A BGP community (RFC 1997): AS number and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Community(pub u16, pub u16);

impl Community {
    /// Parses a text such as `65001:100`; `None` if it is not a community.
    pub fn parse(text: &str) -> Option<Self> {
        let (asn, value) = text.split_once(':')?;
        Some(Self(asn.parse().ok()?, value.parse().ok()?))
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}
