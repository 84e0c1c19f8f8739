//! Formats a packet as text, one line per layer, for test failures and logs.
//!
//! The text is stable enough for snapshots, but not intended for parsing.

use std::fmt;

use crate::Packet;
use crate::arp::{ArpOperation, ArpPacket};
use crate::decode::{
    ChecksumState, Content, Datagram, IpHeader, ParsedFrame, Transport, TunnelHeader,
};
use crate::ethernet::EthernetHeader;
use crate::icmp4::Icmpv4Message;
use crate::icmp6::Icmpv6Message;
use crate::ndp::NeighborMessage;
use crate::protocol::IpProtocol;
use crate::tcp::TcpHeader;

/// Maximum number of payload bytes that the text shows.
const DATA_MAX_BYTES: usize = 24;

/// Formats a frame with its payload. For bytes that cannot be decoded, formats the error and the bytes.
#[must_use]
pub fn describe(frame: &[u8]) -> String {
    match Packet::parse(frame) {
        Ok(parsed) => {
            let data = parsed
                .ip()
                .map(innermost_data)
                .and_then(|range| frame.get(range));
            match data {
                Some(data) if !data.is_empty() => format!("{parsed}\n{}", data_line(data)),
                _ => parsed.to_string(),
            }
        }
        Err(error) => format!("not a packet: {error}\n{}", data_line(frame)),
    }
}

/// Compares the descriptions of two frames line by line; `-` marks lines from the first frame and `+` lines from the
/// second. Returns `None` if the frames are equal.
///
/// The last line shows the first different byte, because some differences do not appear in any other line.
#[must_use]
pub fn diff(expected: &[u8], actual: &[u8]) -> Option<String> {
    if expected == actual {
        return None;
    }
    let (left, right) = (describe(expected), describe(actual));
    let (left, right): (Vec<_>, Vec<_>) = (left.lines().collect(), right.lines().collect());
    let mut text = String::new();
    for index in 0..left.len().max(right.len()) {
        match (left.get(index), right.get(index)) {
            (Some(a), Some(b)) if a == b => text += &format!("  {a}\n"),
            (a, b) => {
                text.extend(a.map(|line| format!("- {line}\n")));
                text.extend(b.map(|line| format!("+ {line}\n")));
            }
        }
    }
    let offset = expected
        .iter()
        .zip(actual)
        .take_while(|(a, b)| a == b)
        .count();
    let byte = |bytes: &[u8]| {
        bytes
            .get(offset)
            .map_or("end of frame".to_owned(), |byte| format!("{byte:#04x}"))
    };
    text += &format!(
        "first difference at byte {offset} (lengths {} and {}): {} and {}",
        expected.len(),
        actual.len(),
        byte(expected),
        byte(actual)
    );
    Some(text)
}

fn innermost_data(datagram: &Datagram) -> std::ops::Range<usize> {
    match datagram.inner().or_else(|| datagram.quoted()) {
        Some(inner) => innermost_data(inner),
        None => datagram.payload.clone(),
    }
}

fn data_line(data: &[u8]) -> String {
    let beginning = data.get(..DATA_MAX_BYTES).unwrap_or(data);
    let ellipsis = if beginning.len() < data.len() {
        "…"
    } else {
        ""
    };
    format!(
        "data {} bytes \"{}\"{ellipsis}",
        data.len(),
        beginning.escape_ascii()
    )
}

impl fmt::Display for ParsedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ethernet)?;
        match &self.content {
            Content::Arp(packet) => write!(f, "\n{packet}"),
            Content::Ip(datagram) => write!(f, "\n{datagram}"),
            Content::Other(range) => write!(f, "\ncontent {} bytes", range.len()),
        }
    }
}

impl fmt::Display for EthernetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ethernet {} > {}", self.src, self.dst)?;
        for tag in &self.tags {
            let kind = if tag.service { "service vlan" } else { "vlan" };
            write!(f, ", {kind} {}", tag.vlan())?;
            if tag.priority() != 0 {
                write!(f, " priority {}", tag.priority())?;
            }
        }
        write!(f, ", {}", self.ethertype)
    }
}

impl fmt::Display for ArpPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            ArpOperation::Request => write!(
                f,
                "arp who has {} tell {} at {}",
                self.target, self.sender, self.sender_mac
            ),
            ArpOperation::Reply => write!(
                f,
                "arp {} is at {} for {}",
                self.sender, self.sender_mac, self.target
            ),
        }
    }
}

impl fmt::Display for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ip {
            IpHeader::V4(header) => {
                write!(
                    f,
                    "ipv4 {} > {}, {}, ttl {}",
                    header.src, header.dst, self.protocol, header.ttl
                )?;
                write!(f, ", tos {:#04x}, id {}", header.tos, header.id)?;
                if header.dont_fragment {
                    f.write_str(", DF")?;
                }
                if !header.options.is_empty() {
                    f.write_str(", options")?;
                    write_hex(f, header.options.as_bytes())?;
                }
            }
            IpHeader::V6(header, chain) => {
                write!(f, "ipv6 {} > {}, {}", header.src, header.dst, self.protocol)?;
                write!(
                    f,
                    ", hop limit {}, class {:#04x}",
                    header.hop_limit, header.traffic_class
                )?;
                if header.flow_label != 0 {
                    write!(f, ", flow {:#07x}", header.flow_label)?;
                }
                for (index, header) in chain.headers.iter().enumerate() {
                    write!(
                        f,
                        "{}{header}",
                        if index == 0 {
                            ", extension headers "
                        } else {
                            " "
                        }
                    )?;
                }
            }
        }
        if let Some(fragment) = self.fragment {
            write!(
                f,
                ", fragment {:#x} at {}",
                fragment.id, fragment.offset_bytes
            )?;
            f.write_str(if fragment.more { " more" } else { " last" })?;
        }
        write!(f, ", {} bytes", self.range.len())?;
        if !self.complete {
            f.write_str(", truncated")?;
        }
        write_if_invalid(f, self.header_checksum)?;
        self.fmt_transport(f)
    }
}

impl Datagram {
    fn fmt_transport(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checksum = self.transport_checksum;
        match &self.transport {
            Transport::Tcp(header) => write!(f, "\n{header}")?,
            Transport::Udp(header) => write!(f, "\nudp {} > {}", header.src_port, header.dst_port)?,
            Transport::Ports { src_port, dst_port } => {
                write!(f, "\n{} {src_port} > {dst_port}, truncated", self.protocol)?;
            }
            Transport::Icmp4 { message, quoted } => {
                write!(f, "\n{message}")?;
                write_if_invalid(f, checksum)?;
                return fmt_quoted(f, quoted.as_deref(), message.is_error());
            }
            Transport::Icmp6 {
                message,
                neighbor,
                quoted,
            } => {
                match neighbor {
                    Some(neighbor) => write!(f, "\n{neighbor}")?,
                    None => write!(f, "\n{message}")?,
                }
                write_if_invalid(f, checksum)?;
                return fmt_quoted(f, quoted.as_deref(), message.is_error());
            }
            Transport::Tunnel { header, inner } => {
                fmt_tunnel(f, header)?;
                if *header != TunnelHeader::Ip {
                    write_if_absent(f, checksum)?;
                    write_if_invalid(f, checksum)?;
                }
                return write!(f, "\n{inner}");
            }
            Transport::Opaque { error: Some(error) } => write!(f, "\nunreadable: {error}")?,
            Transport::Opaque { error: None } => return Ok(()),
        }
        if self.protocol == IpProtocol::UDP {
            write_if_absent(f, checksum)?;
        }
        write_if_invalid(f, checksum)
    }
}

fn fmt_tunnel(f: &mut fmt::Formatter<'_>, header: &TunnelHeader) -> fmt::Result {
    match header {
        TunnelHeader::Ip => Ok(()),
        TunnelHeader::Gre(gre) => write!(f, "\ngre {}", gre.protocol),
        TunnelHeader::Gue(udp, gue) => {
            write!(
                f,
                "\ngue {} > {}, {}",
                udp.src_port, udp.dst_port, gue.protocol
            )?;
            match gue.remote_checksum {
                Some(remote) => write!(
                    f,
                    ", remote checksum from {} at {}",
                    remote.start, remote.offset
                ),
                None => Ok(()),
            }
        }
    }
}

fn fmt_quoted(
    f: &mut fmt::Formatter<'_>,
    quoted: Option<&Datagram>,
    is_error: bool,
) -> fmt::Result {
    match quoted {
        Some(quoted) => quoted
            .to_string()
            .lines()
            .try_for_each(|line| write!(f, "\n| {line}")),
        None if is_error => f.write_str("\n| unreadable"),
        None => Ok(()),
    }
}

fn write_if_invalid(f: &mut fmt::Formatter<'_>, state: ChecksumState) -> fmt::Result {
    if state == ChecksumState::Invalid {
        f.write_str(", bad checksum")
    } else {
        Ok(())
    }
}

fn write_if_absent(f: &mut fmt::Formatter<'_>, state: ChecksumState) -> fmt::Result {
    if state == ChecksumState::Absent {
        f.write_str(", no checksum")
    } else {
        Ok(())
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for (index, byte) in bytes.iter().enumerate() {
        write!(f, "{}{byte:02x}", if index % 4 == 0 { " " } else { "" })?;
    }
    Ok(())
}

impl fmt::Display for TcpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "tcp {} > {}, {}, seq {}",
            self.src_port, self.dst_port, self.flags, self.seq
        )?;
        write!(f, ", ack {}, window {}", self.ack, self.window)?;
        if self.urgent != 0 {
            write!(f, ", urgent {}", self.urgent)?;
        }
        if !self.options.is_empty() {
            f.write_str(", options")?;
            write_hex(f, self.options.as_bytes())?;
        }
        Ok(())
    }
}

impl fmt::Display for Icmpv4Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EchoRequest { id, seq } => write!(f, "icmp echo request, id {id}, seq {seq}"),
            Self::EchoReply { id, seq } => write!(f, "icmp echo reply, id {id}, seq {seq}"),
            Self::FragmentationNeeded { mtu } => write!(f, "icmp fragmentation needed, mtu {mtu}"),
            Self::Unreachable { code } => write!(f, "icmp unreachable, code {code}"),
            Self::Redirect { code, gateway } => {
                write!(f, "icmp redirect, code {code}, to {gateway}")
            }
            Self::TimeExceeded { code } => write!(f, "icmp time exceeded, code {code}"),
            Self::ParameterProblem { code, pointer } => {
                write!(f, "icmp parameter problem, code {code}, at {pointer}")
            }
            Self::Other { kind, code, .. } => write!(f, "icmp type {kind}, code {code}"),
        }
    }
}

impl fmt::Display for Icmpv6Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EchoRequest { id, seq } => write!(f, "icmpv6 echo request, id {id}, seq {seq}"),
            Self::EchoReply { id, seq } => write!(f, "icmpv6 echo reply, id {id}, seq {seq}"),
            Self::Unreachable { code } => write!(f, "icmpv6 unreachable, code {code}"),
            Self::PacketTooBig { mtu } => write!(f, "icmpv6 packet too big, mtu {mtu}"),
            Self::TimeExceeded { code } => write!(f, "icmpv6 time exceeded, code {code}"),
            Self::ParameterProblem { code, pointer } => {
                write!(f, "icmpv6 parameter problem, code {code}, at {pointer}")
            }
            Self::Other { kind, code, .. } => write!(f, "icmpv6 type {kind}, code {code}"),
        }
    }
}

impl fmt::Display for NeighborMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mac = |f: &mut fmt::Formatter<'_>, prefix: &str, mac: &Option<_>| match mac {
            Some(mac) => write!(f, "{prefix} {mac}"),
            None => Ok(()),
        };
        match self {
            Self::Solicitation { target, source_mac } => {
                write!(f, "ndp who has {target}")?;
                mac(f, ", tell", source_mac)
            }
            Self::Advertisement {
                target,
                target_mac,
                router,
                solicited,
                overrides,
            } => {
                write!(f, "ndp {target}")?;
                mac(f, " is at", target_mac)?;
                for (is_set, name) in [
                    (router, "router"),
                    (solicited, "solicited"),
                    (overrides, "override"),
                ] {
                    if *is_set {
                        write!(f, ", {name}")?;
                    }
                }
                Ok(())
            }
        }
    }
}
