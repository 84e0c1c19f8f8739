//! Defines the tools of the kernel's two independent firewalls, and writes the commands that insert accepting rules.

use std::fmt;
use std::net::IpAddr;

/// The tool that manages a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tool {
    /// nftables, and the iptables variant that uses nftables.
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

/// The sender or the receiver of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

/// The packets that a rule should accept.
#[derive(Clone, Debug)]
pub struct PacketFilter {
    is_ipv4: bool,
    side: Side,
    addresses: Vec<IpAddr>,
    port: Option<u16>,
    mark: Option<u32>,
}

impl PacketFilter {
    /// Selects TCP packets with this port on `side`, or all packets without a port.
    pub const fn all(is_ipv4: bool, side: Side, port: Option<u16>) -> Self {
        Self {
            is_ipv4,
            side,
            addresses: Vec::new(),
            port,
            mark: None,
        }
    }

    /// Limits the filter to these addresses.
    #[must_use]
    pub fn with_addresses(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            addresses: addresses.into_iter().collect(),
            ..self
        }
    }

    /// Selects packets with a firewall mark.
    pub const fn marked(is_ipv4: bool, mark: u32) -> Self {
        let mut filter = Self::all(is_ipv4, Side::Destination, None);
        filter.mark = Some(mark);
        filter
    }

    fn join_addresses(&self, separator: &str) -> String {
        let texts: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        texts.join(separator)
    }

    fn nft_expression(&self) -> String {
        let side = match self.side {
            Side::Source => "s",
            Side::Destination => "d",
        };
        let family = if self.is_ipv4 { "ip" } else { "ip6" };
        let mut words = match (self.mark, self.addresses.len()) {
            (Some(mark), _) => format!("meta mark {mark}"),
            (None, 0) => format!("meta nfproto ipv{}", if self.is_ipv4 { 4 } else { 6 }),
            (None, 1) => format!("{family} {side}addr {}", self.join_addresses("")),
            (None, _) => format!("{family} {side}addr '{{ {} }}'", self.join_addresses(", ")),
        };
        if let Some(port) = self.port {
            words += &format!(" tcp {side}port {port}");
        }
        words
    }

    fn iptables_options(&self) -> String {
        let (address, port) = match self.side {
            Side::Source => ("-s", "--sport"),
            Side::Destination => ("-d", "--dport"),
        };
        let mut words = Vec::new();
        if !self.addresses.is_empty() {
            words.push(format!("{address} {}", self.join_addresses(",")));
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
    /// Returns the command that inserts an accepting rule before all rules of a chain.
    pub(super) fn accept(self, table: &str, chain: &str, filter: &PacketFilter) -> String {
        match self {
            Self::Nft => format!(
                "nft insert rule {table} {chain} {} accept",
                filter.nft_expression()
            ),
            Self::Iptables | Self::Ip6tables => {
                format!(
                    "{self} -t {table} -I {chain} {} -j ACCEPT",
                    filter.iptables_options()
                )
            }
        }
    }
}
