//! Builds the packets for the tests from descriptions.
//!
//! A description can be built for any source and destination, so the expected packet is built in the same way as the
//! sent packet.

use std::net::{IpAddr, SocketAddr};

use weir_abi::Reason;
use weir_wire::{Packet, TcpFlags};

use crate::bench::{Bench, CLIENT_MAC, DIRECTOR_MAC, Xdp};

pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const FIN: TcpFlags = TcpFlags(0x11);
pub(crate) const RST: TcpFlags = TcpFlags::RST;
pub(crate) const SYN_ACK: TcpFlags = TcpFlags(0x12);

/// Difference between a wrong checksum and the correct checksum.
pub(crate) const WRONG_CHECKSUM_DIFFERENCE: u16 = 0x1234;

/// A packet without source and destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) udp: bool,
    pub(crate) flags: TcpFlags,
    pub(crate) payload: &'static [u8],
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) tags: &'static [u16],
    /// IPv4 options, or hop-by-hop and destination options in IPv6.
    pub(crate) ip_options: bool,
    pub(crate) tcp_options: &'static [u8],
    pub(crate) bad_checksum: bool,
    pub(crate) no_checksum: bool,
    /// Number of bytes after the IP packet.
    pub(crate) padding: usize,
}

impl Shape {
    pub(crate) const fn tcp(flags: TcpFlags) -> Self {
        Self {
            udp: false,
            flags,
            payload: b"",
            ttl: 64,
            tos: 0,
            tags: &[],
            ip_options: false,
            tcp_options: &[],
            bad_checksum: false,
            no_checksum: false,
            padding: 0,
        }
    }

    pub(crate) const fn udp() -> Self {
        Self {
            udp: true,
            payload: b"datagram",
            ..Self::tcp(TcpFlags::NONE)
        }
    }

    /// Returns the packet as it leaves the director.
    pub(crate) const fn forwarded(self) -> Self {
        Self {
            ttl: self.ttl - 1,
            ..self
        }
    }

    /// Builds the frame with the MAC address, IP address and port of source and destination.
    pub(crate) fn build(
        &self,
        macs: ([u8; 6], [u8; 6]),
        src: SocketAddr,
        dst: SocketAddr,
    ) -> Vec<u8> {
        let mut link = Packet::ethernet(macs.0.into(), macs.1.into()).padding(self.padding);
        for tag in self.tags {
            link = link.vlan(*tag);
        }
        macro_rules! transport {
            ($ip:expr) => {
                if self.udp {
                    let udp = $ip.udp(src.port(), dst.port()).payload(self.payload);
                    if self.no_checksum {
                        udp.zero_udp_checksum().build()
                    } else {
                        udp.build()
                    }
                } else {
                    let tcp = $ip
                        .tcp(src.port(), dst.port())
                        .flags(self.flags)
                        .options(self.tcp_options);
                    tcp.payload(self.payload).build()
                }
            };
        }
        let mut frame = match (src.ip(), dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let ip = link.ipv4(src, dst).ttl(self.ttl).tos(self.tos);
                transport!(if self.ip_options {
                    ip.options(&[1, 1, 1, 1])
                } else {
                    ip
                })
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let ip = link.ipv6(src, dst).ttl(self.ttl).tos(self.tos);
                transport!(if self.ip_options {
                    ip.hop_by_hop().dest_opts()
                } else {
                    ip
                })
            }
            ends => panic!("mixed families {ends:?}"),
        };
        if self.bad_checksum {
            self.corrupt_checksum(&mut frame);
        }
        frame
    }

    /// Makes the transport checksum wrong, always by the same amount: a director that updates the checksum
    /// incrementally sends the same packet as this module builds for the new addresses.
    fn corrupt_checksum(&self, frame: &mut [u8]) {
        let l4 = weir_flow::parse(frame).unwrap().l4;
        let offset = l4 + if self.udp { 6 } else { 16 };
        let correct = u16::from_be_bytes([frame[offset], frame[offset + 1]]);
        let wrong = weir_wire::checksum::update_u16(correct, 0, WRONG_CHECKSUM_DIFFERENCE);
        frame[offset..offset + 2].copy_from_slice(&wrong.to_be_bytes());
    }

    /// Returns the frame as a client sends it.
    pub(crate) fn arriving(&self, src: SocketAddr, dst: SocketAddr) -> Vec<u8> {
        self.build((CLIENT_MAC, DIRECTOR_MAC), src, dst)
    }
}

/// The VIP and the client of tests that need only one of each.
pub(crate) const VIP: &str = "192.0.2.10";
pub(crate) const CLIENT: &str = "198.51.100.7";

/// Returns a packet from [`CLIENT`] to port 80 of [`VIP`].
pub(crate) fn client_tcp(port: u16, flags: TcpFlags) -> Vec<u8> {
    Shape::tcp(flags).arriving(at(CLIENT, port), at(VIP, 80))
}

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A packet and its expected outcome.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) frame: Vec<u8>,
    pub(crate) verdict: Xdp,
    /// The expected frame; `None` = unchanged.
    pub(crate) out: Option<Vec<u8>>,
    pub(crate) counted: Vec<Reason>,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, frame: Vec<u8>) -> Self {
        Self {
            name: name.into(),
            frame,
            verdict: Xdp::Tx,
            out: None,
            counted: Vec::new(),
        }
    }

    /// Sets the expected outcome: the packet leaves as this frame.
    pub(crate) fn sends(self, out: Vec<u8>) -> Self {
        Self {
            out: Some(out),
            ..self
        }
    }

    pub(crate) fn passes(self, reason: Reason) -> Self {
        Self {
            verdict: Xdp::Pass,
            counted: vec![reason],
            ..self
        }
    }

    pub(crate) fn drops(self, reason: Reason) -> Self {
        Self {
            verdict: Xdp::Drop,
            counted: vec![reason],
            ..self
        }
    }

    #[track_caller]
    pub(crate) fn check(&self, bench: &mut Bench) {
        let Self { name, .. } = self;
        let outcome = bench.send(&self.frame);
        assert_eq!(outcome.counted, self.counted, "{name}");
        assert_eq!(outcome.verdict, self.verdict, "{name}");
        let out = self.out.as_ref().unwrap_or(&self.frame);
        if let Some(difference) = weir_wire::diff(out, &outcome.frame) {
            panic!("{name}: expected frame first, then the frame of the data plane\n{difference}");
        }
    }
}

#[track_caller]
pub(crate) fn check_all(bench: &mut Bench, cases: &[Case]) {
    for case in cases {
        case.check(bench);
    }
    bench.assert_same_state();
}
