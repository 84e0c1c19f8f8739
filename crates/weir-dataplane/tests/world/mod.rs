//! One service with one server, loaded into the kernel, and packets of its client, its server and a router between.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::IpAddr;

use weir_abi::{
    Addr, Be16, Dest, Device, Extent, Filter, Forward, Hop, Listener, Member, Reason, Scheduler,
    Service, Settings, Vip,
};
use weir_dataplane::{Dataplane, TestInput};
use weir_wire::{Datagram, EthernetBuilder, MacAddr, Packet, Parsed, TcpFlags};

use crate::support::{Place, privileged};

pub(crate) const XDP_DROP: u32 = 1;
pub(crate) const XDP_PASS: u32 = 2;
pub(crate) const XDP_TX: u32 = 3;
pub(crate) const XDP_REDIRECT: u32 = 4;

pub(crate) const DIRECTOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];

pub(crate) const CLIENT_PORT: u16 = 40_000;
pub(crate) const PORT: u16 = 80;
pub(crate) const SERVER_PORT: u16 = 8080;
/// The loopback device of the test's namespace: where test packets seem to come from.
const IFINDEX: u32 = 1;

/// The addresses of one family.
#[derive(Clone, Copy)]
pub(crate) struct Net {
    pub(crate) v6: bool,
    pub(crate) client: IpAddr,
    pub(crate) vip: IpAddr,
    pub(crate) server: IpAddr,
    pub(crate) director: IpAddr,
    pub(crate) router: IpAddr,
    pub(crate) snat: IpAddr,
}

pub(crate) fn net(v6: bool) -> Net {
    let ip = |v4: &str, six: &str| if v6 { six } else { v4 }.parse().unwrap();
    Net {
        v6,
        client: ip("198.51.100.7", "2001:db8:2::7"),
        vip: ip("192.0.2.10", "2001:db8::10"),
        server: ip("10.0.0.5", "fd00::5"),
        director: ip("10.0.0.1", "fd00::1"),
        router: ip("203.0.113.1", "2001:db8:3::1"),
        snat: ip("10.0.0.200", "fd00::200"),
    }
}

/// Everything that a test may change before the rows are written.
pub(crate) struct Setup {
    pub(crate) net: Net,
    pub(crate) dest: Dest,
    pub(crate) service: Service,
    pub(crate) settings: Settings,
    pub(crate) hop_mtu: u16,
    pub(crate) servers: bool,
}

impl Setup {
    pub(crate) fn new(v6: bool, forward: Forward) -> Self {
        let net = net(v6);
        let dest = Dest {
            addr: Addr::from(net.server),
            tunnel_source: Addr::from(net.director),
            service: 1,
            live: 64,
            forward: forward as u8,
            flags: weir_abi::DEST_LIVE | weir_abi::DEST_USABLE,
            family: if v6 { 6 } else { 4 },
            port: Be16::new(if forward == Forward::Nat {
                SERVER_PORT
            } else {
                0
            }),
            tunnel_port: Be16::new(weir_wire::GUE_PORT),
            ..Dest::default()
        };
        let settings = Settings {
            timeouts: [600; 16],
            syn_budget: 1_000_000,
            reject_budget: 1_000,
            untracked_ticks: 10,
            flags: weir_abi::SETTINGS_LEARN_CLIENTS,
            ..Settings::default()
        };
        Self {
            net,
            dest,
            service: Service {
                generation: 1,
                ..Service::default()
            },
            settings,
            hop_mtu: 1500,
            servers: true,
        }
    }

    pub(crate) fn snat(mut self) -> Self {
        self.dest.flags |= weir_abi::DEST_SNAT;
        self.service.flags |= weir_abi::SERVICE_SNAT;
        (self.service.snat_at, self.service.snat_len) = (20, 1);
        (self.service.snat_port_first, self.service.snat_port_last) = (20_000, 20_999);
        self
    }

    /// `None` without root.
    pub(crate) fn open(self) -> Option<World> {
        if !privileged() {
            return None;
        }
        let place = Place::new();
        let (mut plane, _) = Dataplane::open(&place.options()).unwrap();
        self.write(&plane);
        plane.activate().unwrap();
        Some(World {
            net: self.net,
            plane,
            _place: place,
        })
    }

    #[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
    fn write(&self, plane: &Dataplane) {
        let (maps, net) = (plane.maps(), self.net);
        maps.set_settings(&self.settings).unwrap();
        maps.dests.set(1, &self.dest).unwrap();
        for slot in 0..weir_abi::HOPS_PER_DEST {
            maps.set_hop(1, slot, &hop(SERVER_MAC, self.hop_mtu))
                .unwrap();
        }
        maps.devices
            .set(
                &IFINDEX,
                &Device {
                    flags: weir_abi::DEVICE_SEND,
                    port: IFINDEX,
                    vlan: 0,
                    mtu: 1500,
                },
            )
            .unwrap();
        maps.set_elements(
            6,
            &[Member {
                seq: 1,
                dest: 1,
                weight: 1,
                live: 64,
            }],
        )
        .unwrap();
        maps.set_elements(7, &[1u32; 4]).unwrap();
        maps.set_elements(20, &[Addr::from(net.snat)]).unwrap();
        let extent = Extent {
            scheduler: Scheduler::Rr as u32,
            generation: 1,
            list_at: 6,
            list_len: u32::from(self.servers),
            spread_at: 7,
            spread_len: if self.servers { 4 } else { 0 },
            max_weight: 1,
            gcd: 1,
            ..Extent::default()
        };
        maps.set_elements(1, &[extent]).unwrap();
        maps.services.set(1, &self.service).unwrap();
        maps.set_extent(1, 1).unwrap();
        let mut filter = Filter::ZERO;
        filter.add_to(Addr::from(net.vip));
        filter.add_to(Addr::from(net.snat));
        filter.add_from(Addr::from(net.server));
        maps.set_filter(&filter).unwrap();
        maps.vips
            .set(
                &Addr::from(net.vip),
                &Vip {
                    flags: weir_abi::VIP_ECHO,
                    ..Vip::default()
                },
            )
            .unwrap();
        maps.vips
            .set(
                &Addr::from(net.snat),
                &Vip {
                    flags: weir_abi::VIP_SNAT,
                    ..Vip::default()
                },
            )
            .unwrap();
        for proto in [6, 17] {
            let listener = Listener {
                addr: Addr::from(net.vip),
                port: Be16::new(PORT),
                proto,
                ..Listener::default()
            };
            maps.listeners.set(&listener, &1).unwrap();
        }
    }
}

fn hop(mac: [u8; 6], mtu: u16) -> Hop {
    let word = |mac: [u8; 6], tag: u16| {
        let [a, b, c, d, e, f] = mac;
        let [g, h] = tag.to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    };
    let flags = weir_abi::HOP_READY | weir_abi::HOP_SEND | weir_abi::HOP_STATIC;
    Hop {
        link: u64::from(IFINDEX) << 32 | u64::from(flags) << 16 | u64::from(mtu),
        dmac: word(mac, weir_abi::HOP_VLAN_KEEP),
        smac: word(DIRECTOR_MAC, 0),
        renewed: 0,
    }
}

/// A loaded data plane.
pub(crate) struct World {
    pub(crate) net: Net,
    pub(crate) plane: Dataplane,
    _place: Place,
}

/// What became of one packet.
pub(crate) struct Out {
    pub(crate) verdict: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) parsed: Parsed,
}

impl Out {
    pub(crate) fn ip(&self) -> &Datagram {
        self.parsed.ip().unwrap()
    }

    /// Sent, with every checksum right, those of a quoted packet's IP header included.
    pub(crate) fn sent(&self) -> &Datagram {
        assert_eq!(self.verdict, XDP_TX, "not sent");
        let ip = self.ip();
        assert!(ip.checksums_valid(), "{}", weir_wire::describe(&self.frame));
        if let Some(quoted) = ip.quoted() {
            assert_ne!(
                quoted.header_checksum,
                weir_wire::ChecksumState::Invalid,
                "the quoted header's checksum"
            );
            assert_ne!(
                quoted.transport_checksum,
                weir_wire::ChecksumState::Invalid,
                "the quoted checksum"
            );
        }
        ip
    }

    pub(crate) fn bytes_of(&self, ip: &Datagram) -> &[u8] {
        &self.frame[ip.range.clone()]
    }
}

impl World {
    pub(crate) fn run(&self, program: &str, frame: &[u8]) -> Out {
        let input = if program.starts_with("weir_tc") {
            TestInput::classifier(frame)
        } else {
            TestInput::xdp(frame)
        };
        let run = self.plane.test_run(program, &input).unwrap();
        let parsed = Packet::parse(&run.packet)
            .unwrap_or_else(|error| panic!("{error}: {:02x?}", run.packet));
        Out {
            verdict: run.verdict,
            frame: run.packet,
            parsed,
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> Out {
        self.run("weir_xdp", frame)
    }

    pub(crate) fn count(&self, reason: Reason) -> u64 {
        self.plane.maps().reasons().unwrap()[reason.number() as usize]
    }

    /// Begins the client's TCP flow and answers what the server gets.
    pub(crate) fn begin(&self) -> Out {
        let out = self.send(&tcp(
            self.net.client,
            self.net.vip,
            CLIENT_PORT,
            PORT,
            TcpFlags::SYN,
        ));
        out.sent();
        out
    }
}

pub(crate) fn frame() -> EthernetBuilder {
    Packet::ethernet(MacAddr::new(PEER_MAC), MacAddr::new(DIRECTOR_MAC))
}

pub(crate) fn tcp(src: IpAddr, dst: IpAddr, sport: u16, dport: u16, flags: TcpFlags) -> Vec<u8> {
    frame().ip(src, dst).tcp(sport, dport).flags(flags).build()
}

/// An IP packet of a flow, with data of a length.
pub(crate) fn tcp_packet(
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    dport: u16,
    length: usize,
) -> Vec<u8> {
    let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
    Packet::ip(src, dst)
        .tcp(sport, dport)
        .flags(TcpFlags::ACK)
        .payload(&data)
        .build()
}

pub(crate) fn udp_packet(
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    dport: u16,
    length: usize,
) -> Vec<u8> {
    let data: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
    Packet::ip(src, dst)
        .udp(sport, dport)
        .payload(&data)
        .build()
}
