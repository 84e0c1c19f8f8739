//! The kernel's two independent firewalls, and the command for each that accepts packets.

use std::fmt;
use std::net::IpAddr;

/// The tool that owns the rules and changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tool {
    /// nftables, and iptables where it uses nftables.
    #[default]
    Nft,
    /// x_tables for IPv4.
    Iptables,
    /// x_tables for IPv6.
    Ip6tables,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nft => "nftables",
            Self::Iptables => "iptables-legacy",
            Self::Ip6tables => "ip6tables-legacy",
        })
    }
}

/// An end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

/// The packets that a rule is to accept.
#[derive(Clone, Debug)]
pub struct Which {
    is_ipv4: bool,
    end: End,
    addresses: Vec<IpAddr>,
    port: Option<u16>,
    mark: Option<u32>,
}

impl Which {
    /// TCP packets with that port at that end; without one every packet.
    pub const fn all(is_ipv4: bool, end: End, port: Option<u16>) -> Self {
        Self {
            is_ipv4,
            end,
            addresses: Vec::new(),
            port,
            mark: None,
        }
    }

    /// Limited to these addresses.
    #[must_use]
    pub fn of(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            addresses: addresses.into_iter().collect(),
            ..self
        }
    }

    /// Packets with a firewall mark.
    pub const fn marked(is_ipv4: bool, mark: u32) -> Self {
        let mut which = Self::all(is_ipv4, End::Destination, None);
        which.mark = Some(mark);
        which
    }

    fn list(&self, between: &str) -> String {
        let texts: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        texts.join(between)
    }

    fn in_nft(&self) -> String {
        let side = match self.end {
            End::Source => "s",
            End::Destination => "d",
        };
        let family = if self.is_ipv4 { "ip" } else { "ip6" };
        let mut words = match (self.mark, self.addresses.len()) {
            (Some(mark), _) => format!("meta mark {mark}"),
            (None, 0) => format!("meta nfproto ipv{}", if self.is_ipv4 { 4 } else { 6 }),
            (None, 1) => format!("{family} {side}addr {}", self.list("")),
            (None, _) => format!("{family} {side}addr '{{ {} }}'", self.list(", ")),
        };
        if let Some(port) = self.port {
            words += &format!(" tcp {side}port {port}");
        }
        words
    }

    fn in_iptables(&self) -> String {
        let (address, port) = match self.end {
            End::Source => ("-s", "--sport"),
            End::Destination => ("-d", "--dport"),
        };
        let mut words = Vec::new();
        if !self.addresses.is_empty() {
            words.push(format!("{address} {}", self.list(",")));
        }
        if let Some(number) = self.port {
            words.push(format!("-p tcp {port} {number}"));
        }
        if let Some(mark) = self.mark {
            words.push(format!("-m mark --mark {mark}"));
        }
        words.join(" ")
    }
}

impl Tool {
    /// The command that accepts packets before all rules of a chain.
    pub(super) fn accept(self, table: &str, chain: &str, which: &Which) -> String {
        match self {
            Self::Nft => format!("nft insert rule {table} {chain} {} accept", which.in_nft()),
            Self::Iptables | Self::Ip6tables => {
                format!(
                    "{self} -t {table} -I {chain} {} -j ACCEPT",
                    which.in_iptables()
                )
            }
        }
    }
}
