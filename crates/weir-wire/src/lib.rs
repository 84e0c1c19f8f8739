//! Parses and builds packets: Ethernet, ARP, IPv4, IPv6, TCP, UDP, ICMP, NDP, and the tunnels IP-in-IP, GUE and GRE.
//!
//! The crate has two interfaces, both with pure functions on byte slices:
//!
//! * For most protocols, a checked **view** of bytes (`Ipv4View`: its constructor verifies all lengths, so its
//!   accessors cannot fail) and a small **header** value (`Ipv4Header`) that contains only valid field values and
//!   has `emit`.
//! * For complete packets, [`Packet`]: a fluent builder, which computes lengths and checksums unless they are
//!   overridden, and a decoder, which returns [`ParsedFrame`]; [`describe`] formats it as text.
//!
//! The crate does not panic on any input, does no I/O, and uses neither clocks nor random numbers: its output is
//! deterministic. It does not reassemble fragments. TCP states and forwarding decisions are in `weir-flow`. The crate
//! does not depend on other Weir crates.
//!
//! ```
//! use weir_wire::{Packet, TcpFlags};
//!
//! let frame = Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into())
//!     .vlan(10)
//!     .ipv4([192, 0, 2, 1].into(), [192, 0, 2, 10].into())
//!     .ttl(64)
//!     .tcp(40000, 80)
//!     .flags(TcpFlags::SYN)
//!     .build();
//! let parsed = Packet::parse(&frame)?;
//! assert!(parsed.has_valid_checksums());
//! assert_eq!(parsed.five_tuple().map(|t| t.dport), Some(80));
//! # Ok::<(), weir_wire::ParseError>(())
//! ```

mod address;
mod arp;
mod build;
mod bytes;
pub mod checksum;
mod decode;
mod error;
mod ethernet;
mod gre;
mod gue;
mod icmp4;
mod icmp6;
mod ipv4;
mod ipv6;
mod ndp;
mod options;
mod protocol;
mod tcp;
mod tuple;
mod udp;

pub use address::MacAddr;
pub use arp::{ArpOperation, ArpPacket};
pub use build::address_query::{address_claim, address_query};
pub use build::announcement::announcement_frame;
pub use build::fragment::fragment;
pub use build::ipv4::Ipv4Builder;
pub use build::ipv6::Ipv6Builder;
pub use build::link::EthernetBuilder;
pub use build::network::IpBuilder;
pub use build::transport::{IcmpBuilder, RawBuilder, TcpBuilder, UdpBuilder};
pub use build::tunnel::{
    Encapsulation, GreBuilder, GueBuilder, GueChecksum, encap_gre, encap_gue, encap_ipip,
};
pub use decode::describe::{describe, diff};
pub use decode::{
    ChecksumState, Content, Datagram, DecodeOptions, FragmentInfo, IpHeader, ParsedFrame,
    Transport, TunnelHeader,
};
pub use error::{Layer, LengthField, ParseError};
pub use ethernet::{EthernetHeader, EthernetView, VlanTag};
pub use gre::{GreHeader, GreView};
pub use gue::{GueHeader, GueView, RemoteChecksum};
pub use icmp4::{Icmpv4Message, Icmpv4View};
pub use icmp6::{Icmpv6Message, Icmpv6View};
pub use ipv4::{Ipv4Fragment, Ipv4Header, Ipv4View};
pub use ipv6::extension::{Extension, FragmentHeader, Ipv6Chain};
pub use ipv6::{Ipv6Header, Ipv6View};
pub use ndp::NeighborMessage;
pub use options::HeaderOptions;
pub use protocol::{EtherType, IpProtocol, TcpFlags};
pub use tcp::{TcpHeader, TcpView};
pub use tuple::FiveTuple;
pub use udp::{UdpHeader, UdpView};

/// UDP port assigned to GUE by IANA; [`Packet::parse`] expects GUE on this port.
pub const GUE_PORT: u16 = 6080;

/// Entry point for the builder and the decoder.
#[derive(Debug, Clone, Copy)]
pub struct Packet;
