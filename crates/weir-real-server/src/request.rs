//! Parses the command line of `weir real-server`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use weir_model::{Forward, Tunnel, TunnelKind};

/// The directories for the state file and the pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--runtime-dir`.
    pub runtime_dir: PathBuf,
    /// `--pin-dir`.
    pub pin_dir: PathBuf,
}

/// Arguments for `weir real-server up`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpRequest {
    /// `--forward`.
    pub forward: Forward,
    /// All `--vip` options.
    pub vips: Vec<VipArgument>,
    /// `--tunnel`; default ipip.
    pub tunnel: Option<TunnelArgument>,
    /// `--dscp`; default 1.
    pub dscp: Option<u8>,
    /// All `--except` options.
    pub except: Vec<PrefixArgument>,
    /// All `--interface` options; empty = every interface that has an address, now or later.
    pub interfaces: Vec<String>,
}

/// Arguments for `weir real-server down`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DownRequest {
    /// All `--vip` options; empty = every VIP that the runtime directory records.
    pub vips: Vec<VipArgument>,
}

/// An invalid argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {reason}")]
pub struct ArgumentError {
    /// The argument.
    pub text: String,
    /// Why it is invalid.
    pub reason: &'static str,
}

impl ArgumentError {
    fn new(text: &str, reason: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            reason,
        }
    }
}

/// A VIP and its ports: `ADDRESS[:PORT[-PORT]]`. An IPv6 address with ports must be in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VipArgument {
    /// The VIP.
    pub address: IpAddr,
    /// First and last port; `None` = every port.
    pub ports: Option<(u16, u16)>,
}

impl FromStr for VipArgument {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |reason| ArgumentError::new(text, reason);
        let (address, ports) =
            split_address(text).ok_or_else(|| invalid("expected ADDRESS[:PORT[-PORT]]"))?;
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            return Err(invalid(
                "a VIP must be a unicast address to which clients can connect",
            ));
        }
        let ports = ports.map(|ports| {
            parse_ports(ports)
                .ok_or_else(|| invalid("expected a port such as 80, or a range such as 8000-8999"))
        });
        Ok(Self {
            address,
            ports: ports.transpose()?,
        })
    }
}

fn split_address(text: &str) -> Option<(IpAddr, Option<&str>)> {
    if let Ok(address) = text.parse() {
        return Some((address, None));
    }
    let (address, ports) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.rfind(':')?),
    };
    let address: IpAddr = address.parse().ok()?;
    if ports.is_empty() {
        return Some((address, None));
    }
    // Without brackets, a port cannot be distinguished from the last group of an IPv6 address.
    if address.is_ipv6() && !text.starts_with('[') {
        return None;
    }
    Some((address, Some(ports.strip_prefix(':')?)))
}

fn parse_ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (first != 0 && first <= last).then_some((first, last))
}

impl fmt::Display for VipArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.ports) {
            (address, None) => write!(f, "{address}"),
            (IpAddr::V4(v4), Some(_)) => write!(f, "{v4}:{}", DisplayPorts(self.ports)),
            (IpAddr::V6(v6), Some(_)) => write!(f, "[{v6}]:{}", DisplayPorts(self.ports)),
        }
    }
}

struct DisplayPorts(Option<(u16, u16)>);

impl fmt::Display for DisplayPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("*"),
            Some((first, last)) if first == last => write!(f, "{first}"),
            Some((first, last)) => write!(f, "{first}-{last}"),
        }
    }
}

/// A tunnel: `ipip`, `gre`, `gue` or `gue:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelArgument {
    /// The encapsulation.
    pub kind: TunnelKind,
    /// The GUE UDP port; 0 for other tunnels.
    pub port: u16,
}

impl Default for TunnelArgument {
    fn default() -> Self {
        Self {
            kind: TunnelKind::Ipip,
            port: 0,
        }
    }
}

impl FromStr for TunnelArgument {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |reason| ArgumentError::new(text, reason);
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        };
        let kind = TunnelKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name);
        match (
            kind.ok_or_else(|| invalid("expected ipip, gue, gre or gue:PORT"))?,
            port,
        ) {
            (TunnelKind::Gue, None) => Ok(Self {
                kind: TunnelKind::Gue,
                port: Tunnel::DEFAULT_PORT,
            }),
            (TunnelKind::Gue, Some(port)) => match port.parse() {
                Ok(port) if port != 0 => Ok(Self {
                    kind: TunnelKind::Gue,
                    port,
                }),
                _ => Err(invalid("the UDP port must be 1 to 65535")),
            },
            (kind, None) => Ok(Self { kind, port: 0 }),
            (_, Some(_)) => Err(invalid("only gue has a port")),
        }
    }
}

impl fmt::Display for TunnelArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TunnelKind::Gue => write!(f, "gue:{}", self.port),
            kind => f.write_str(kind.as_str()),
        }
    }
}

/// A network: `ADDRESS[/LENGTH]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixArgument {
    /// An address in the network.
    pub address: IpAddr,
    /// The prefix length, in bits.
    pub len: u8,
}

impl FromStr for PrefixArgument {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ArgumentError::new(text, "expected ADDRESS[/LENGTH]");
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let full = if address.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(full), |len| len.parse().map_err(|_| invalid()))?;
        if len > full {
            return Err(ArgumentError::new(
                text,
                "the prefix length exceeds the length of the address",
            ));
        }
        Ok(Self { address, len })
    }
}

impl fmt::Display for PrefixArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_vip_argument_is_formatted_as_the_same_text() {
        for text in [
            "192.0.2.10",
            "192.0.2.10:80",
            "192.0.2.10:8000-8999",
            "2001:db8::10",
            "[2001:db8::10]:80",
            "[2001:db8::10]:1-65535",
        ] {
            assert_eq!(text.parse::<VipArgument>().unwrap().to_string(), text);
        }
        assert_eq!(
            "[2001:db8::10]".parse::<VipArgument>().unwrap().to_string(),
            "2001:db8::10"
        );
        // Without brackets the last group is part of the address.
        assert_eq!(
            "2001:db8::10:80".parse::<VipArgument>().unwrap().ports,
            None
        );
    }

    #[test]
    fn invalid_vip_is_rejected_with_reason() {
        for (text, reason) in [
            ("", "expected ADDRESS[:PORT[-PORT]]"),
            ("web:80", "expected ADDRESS[:PORT[-PORT]]"),
            ("[2001:db8::10]80", "expected ADDRESS[:PORT[-PORT]]"),
            (
                "192.0.2.10:",
                "expected a port such as 80, or a range such as 8000-8999",
            ),
            (
                "192.0.2.10:0",
                "expected a port such as 80, or a range such as 8000-8999",
            ),
            (
                "192.0.2.10:90-80",
                "expected a port such as 80, or a range such as 8000-8999",
            ),
            (
                "192.0.2.10:65536",
                "expected a port such as 80, or a range such as 8000-8999",
            ),
            (
                "127.0.0.1:80",
                "a VIP must be a unicast address to which clients can connect",
            ),
            (
                "0.0.0.0",
                "a VIP must be a unicast address to which clients can connect",
            ),
            (
                "[ff02::1]:80",
                "a VIP must be a unicast address to which clients can connect",
            ),
        ] {
            assert_eq!(
                text.parse::<VipArgument>().unwrap_err().reason,
                reason,
                "{text}"
            );
        }
    }

    #[test]
    fn tunnels_and_prefixes_are_parsed() {
        for text in ["ipip", "gre", "gue:6080", "gue:1"] {
            assert_eq!(text.parse::<TunnelArgument>().unwrap().to_string(), text);
        }
        assert_eq!("gue".parse::<TunnelArgument>().unwrap().port, 6080);
        for text in ["", "vxlan", "ipip:4", "gue:0", "gue:70000", "gue:"] {
            assert!(text.parse::<TunnelArgument>().is_err(), "{text}");
        }
        assert_eq!(
            "10.0.0.1".parse::<PrefixArgument>().unwrap().to_string(),
            "10.0.0.1/32"
        );
        assert_eq!("2001:db8::/32".parse::<PrefixArgument>().unwrap().len, 32);
        for text in ["", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "10.0.0.0/"] {
            assert!(text.parse::<PrefixArgument>().is_err(), "{text}");
        }
    }
}
