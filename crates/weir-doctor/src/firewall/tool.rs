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
    ports: Vec<u16>,
    mark: Option<u32>,
}

/// Maximum number of ports in an iptables rule (XT_MULTI_PORTS).
const MAX_IPTABLES_PORTS: usize = 15;

impl PacketFilter {
    /// Selects TCP packets with this port on `side`, or all packets if `port` is `None`.
    pub fn all(is_ipv4: bool, side: Side, port: Option<u16>) -> Self {
        Self {
            is_ipv4,
            side,
            addresses: Vec::new(),
            ports: port.into_iter().collect(),
            mark: None,
        }
    }

    /// Selects TCP packets with one of these ports.
    #[must_use]
    pub fn with_ports(self, ports: impl IntoIterator<Item = u16>) -> Self {
        Self {
            ports: ports.into_iter().collect(),
            ..self
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
    pub fn marked(is_ipv4: bool, mark: u32) -> Self {
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
        match self.ports.as_slice() {
            [] => {}
            [port] => words += &format!(" tcp {side}port {port}"),
            ports => words += &format!(" tcp {side}port '{{ {} }}'", join_ports(ports, ", ")),
        }
        words
    }

    /// Returns the command that makes firewalld accept the packets in the default zone; `None` = firewalld has no such
    /// rule, or it would accept all packets.
    fn firewalld_command(&self) -> Option<String> {
        let is_expressible = self.side == Side::Destination && self.mark.is_none();
        if !is_expressible || self.addresses.is_empty() && self.ports.is_empty() {
            return None;
        }
        let family = if self.is_ipv4 { "ipv4" } else { "ipv6" };
        let destinations = self.addresses.iter();
        let mut destinations: Vec<String> = destinations
            .map(|address| format!(" destination address=\"{address}\""))
            .collect();
        if destinations.is_empty() {
            destinations.push(String::new());
        }
        let ports = self.ports.iter();
        let mut ports: Vec<String> = ports
            .map(|port| format!(" port port=\"{port}\" protocol=\"tcp\""))
            .collect();
        if ports.is_empty() {
            ports.push(String::new());
        }
        let mut command = "firewall-cmd --permanent".to_owned();
        for destination in &destinations {
            for port in &ports {
                command += &format!(
                    " --add-rich-rule='rule family=\"{family}\"{destination}{port} accept'"
                );
            }
        }
        Some(command + " && firewall-cmd --reload")
    }

    fn iptables_options(&self, ports: &[u16]) -> String {
        let (address, port) = match self.side {
            Side::Source => ("-s", "--sport"),
            Side::Destination => ("-d", "--dport"),
        };
        let mut words = Vec::new();
        if !self.addresses.is_empty() {
            words.push(format!("{address} {}", self.join_addresses(",")));
        }
        match ports {
            [] => {}
            [number] => words.push(format!("-p tcp {port} {number}")),
            ports => words.push(format!(
                "-p tcp -m multiport {port}s {}",
                join_ports(ports, ",")
            )),
        }
        if let Some(mark) = self.mark {
            words.push(format!("-m mark --mark {mark}"));
        }
        words.join(" ")
    }
}

fn join_ports(ports: &[u16], separator: &str) -> String {
    let texts: Vec<String> = ports.iter().map(ToString::to_string).collect();
    texts.join(separator)
}

impl Tool {
    /// Returns the command that inserts an accepting rule before all rules of a chain. For firewalld's table, this is
    /// firewalld's own command: only firewalld may change this table (`NftablesTableOwner`), and it replaces the table
    /// at each reload.
    pub(super) fn accept(self, table: &str, chain: &str, filter: &PacketFilter) -> String {
        let is_firewalld = self == Self::Nft && table.ends_with(" firewalld");
        if let Some(command) = filter.firewalld_command().filter(|_| is_firewalld) {
            return command;
        }
        match self {
            Self::Nft => format!(
                "nft insert rule {table} {chain} {} accept",
                filter.nft_expression()
            ),
            Self::Iptables | Self::Ip6tables => {
                let command = |ports: &[u16]| {
                    let options = filter.iptables_options(ports);
                    format!("{self} -t {table} -I {chain} {options} -j ACCEPT")
                };
                let rules = filter.ports.chunks(MAX_IPTABLES_PORTS);
                match filter.ports.is_empty() {
                    true => command(&[]),
                    false => rules.map(command).collect::<Vec<_>>().join(" && "),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_accepts_all_ports_in_the_filter() {
        let vip: IpAddr = [10, 0, 0, 10].into();
        let command = |tool: Tool, side, ports: &[u16]| {
            let filter = PacketFilter::all(true, side, None).with_addresses([vip]);
            tool.accept("filter", "INPUT", &filter.with_ports(ports.iter().copied()))
        };
        for (tool, ports, expected) in [
            (Tool::Nft, &[][..], "daddr 10.0.0.10 accept"),
            (Tool::Nft, &[80], "daddr 10.0.0.10 tcp dport 80 accept"),
            (Tool::Nft, &[80, 443], "tcp dport '{ 80, 443 }' accept"),
            (Tool::Iptables, &[], "-I INPUT -d 10.0.0.10 -j ACCEPT"),
            (Tool::Iptables, &[80], "-d 10.0.0.10 -p tcp --dport 80 -j"),
            (
                Tool::Iptables,
                &[80, 443],
                "-p tcp -m multiport --dports 80,443 -j",
            ),
        ] {
            let command_text = command(tool, Side::Destination, ports);
            assert!(command_text.contains(expected), "{command_text}");
        }
        let firewalld_command = |side, ports: &[u16]| {
            let filter = PacketFilter::all(true, side, None).with_addresses([vip]);
            let filter = filter.with_ports(ports.iter().copied());
            Tool::Nft.accept("inet firewalld", "filter_INPUT", &filter)
        };
        assert_eq!(
            firewalld_command(Side::Destination, &[80, 443]),
            "firewall-cmd --permanent --add-rich-rule='rule family=\"ipv4\" destination address=\"10.0.0.10\" port \
             port=\"80\" protocol=\"tcp\" accept' --add-rich-rule='rule family=\"ipv4\" destination \
             address=\"10.0.0.10\" port port=\"443\" protocol=\"tcp\" accept' && firewall-cmd --reload"
        );
        assert!(
            firewalld_command(Side::Destination, &[]).contains("address=\"10.0.0.10\" accept'")
        );
        assert!(
            firewalld_command(Side::Source, &[80]).starts_with("nft insert rule inet firewalld")
        );
        let many_ports: Vec<u16> = (1..=16).collect();
        let command_text = command(Tool::Iptables, Side::Source, &many_ports);
        assert!(
            command_text.contains("--sports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 -j ACCEPT && "),
            "{command_text}"
        );
        assert!(
            command_text.ends_with("-p tcp --sport 16 -j ACCEPT"),
            "{command_text}"
        );
    }
}
