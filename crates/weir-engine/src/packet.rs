//! Parses the packet syntax of `weir explain --packet`, and defines the explanation of a packet.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use weir_model::Protocol;

/// A client's packet, written as `PROTOCOL SOURCE:PORT VIP:PORT`, with IPv6 addresses in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Transport protocol.
    pub protocol: Protocol,
    /// The client's address and port.
    pub source: SocketAddr,
    /// The VIP and port.
    pub destination: SocketAddr,
}

/// Why a packet is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The text does not consist of three words.
    #[error("expected 'tcp SOURCE:PORT VIP:PORT', found {text:?}")]
    Form {
        /// The specified text.
        text: String,
    },
    /// The protocol is neither tcp nor udp.
    #[error("unknown protocol {text:?}: expected tcp or udp")]
    Protocol {
        /// The specified protocol.
        text: String,
    },
    /// An address does not have the form ADDRESS:PORT.
    #[error("expected ADDRESS:PORT, found {text:?}; IPv6 addresses need brackets")]
    Address {
        /// The specified address.
        text: String,
    },
    /// Source and destination have different address families.
    #[error("{packet}: source and destination have different address families")]
    Families {
        /// The parsed packet.
        packet: Packet,
    },
}

impl FromStr for Packet {
    type Err = PacketError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [protocol, source, destination] = words[..] else {
            return Err(PacketError::Form {
                text: text.to_owned(),
            });
        };
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            other => {
                return Err(PacketError::Protocol {
                    text: other.to_owned(),
                });
            }
        };
        let address = |text: &str| {
            text.parse::<SocketAddr>()
                .map_err(|_| PacketError::Address {
                    text: text.to_owned(),
                })
        };
        let packet = Self {
            protocol,
            source: address(source)?,
            destination: address(destination)?,
        };
        if packet.source.is_ipv4() != packet.destination.is_ipv4() {
            return Err(PacketError::Families { packet });
        }
        Ok(packet)
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.protocol, self.source, self.destination)
    }
}

/// The result of explaining a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Explanation {
    /// The parsed packet.
    pub packet: String,
    /// The service that receives the packet; `None` = no service.
    pub service: Option<String>,
    /// The pool of that service.
    pub pool: Option<String>,
    /// The server that would receive the packet: its address as in the file.
    pub server: Option<String>,
    /// The steps of the decision, one per line.
    pub steps: Vec<String>,
    /// Candidates that are down according to their checks: the index of the step, and the address as in the file. The
    /// engine has only the reason for the state, not the last result.
    #[serde(default)]
    pub down: Vec<(usize, String)>,
    /// The outcome, if service and server do not imply it, for example that the server is chosen at random.
    pub outcome: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_syntax_matches_the_manual() {
        let packet: Packet = "udp [2001:db8::1]:53 [2001:db8::2]:53".parse().unwrap();
        assert_eq!(packet.to_string(), "udp [2001:db8::1]:53 [2001:db8::2]:53");
        assert_eq!(packet.protocol, Protocol::Udp);
    }

    #[test]
    fn invalid_packets_are_explained() {
        let error_text = |text: &str| text.parse::<Packet>().unwrap_err().to_string();
        insta::assert_snapshot!(
            [
                "",
                "tcp 10.0.0.1:1",
                "sctp 10.0.0.1:1 10.0.0.2:2",
                "tcp 10.0.0.1 10.0.0.2:2",
                "tcp 2001:db8::1:80 10.0.0.2:2",
                "tcp 10.0.0.1:1 [::1]:2",
            ]
            .map(error_text)
            .join("\n")
        );
    }
}
