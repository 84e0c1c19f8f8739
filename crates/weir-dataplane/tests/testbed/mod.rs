//! Loads a service with one server into the kernel, and builds packets from a client, the server and a router.

#![allow(dead_code, reason = "each test file uses only a part")]

use std::net::IpAddr;

use weir_abi::{Dest, Device, Forward, Hop, Reason, Settings};
use weir_dataplane::{Dataplane, OpenOptions, TestInput};
use weir_model::{NoServer, Pool, Server, Service, Snat};
use weir_wire::{Datagram, EthernetBuilder, MacAddr, Packet, ParsedFrame, TcpFlags};

use crate::support::planned::PlannedRows;
use crate::support::{Sandbox, listeners, privileged, small_sizes};

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
/// The loopback device of the test's namespace: the ingress device of test packets.
const IFINDEX: u32 = 1;
/// Row of the server.
const DEST: u32 = 1;

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
    let ip = |v4: &str, v6_text: &str| if v6 { v6_text } else { v4 }.parse().unwrap();
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

/// The settings that a test may change before the rows are written.
pub(crate) struct Setup {
    pub(crate) net: Net,
    pub(crate) dest: Dest,
    pub(crate) settings: Settings,
    pub(crate) hop_mtu: u16,
    pub(crate) servers: bool,
    pub(crate) no_server: NoServer,
    pub(crate) forward: weir_model::Forward,
    pub(crate) snat: bool,
}

impl Setup {
    pub(crate) fn new(v6: bool, forward: Forward) -> Self {
        let net = net(v6);
        let settings = Settings {
            timeouts: [600; 16],
            syn_budget: 1_000_000,
            reject_budget: 1_000,
            untracked_ticks: 10,
            flags: weir_abi::SETTINGS_LEARN_CLIENTS,
            ..Settings::default()
        };
        let mut setup = Self {
            net,
            dest: Dest::ZERO,
            settings,
            hop_mtu: 1500,
            servers: true,
            no_server: NoServer::default(),
            forward: match forward {
                Forward::Nat => weir_model::Forward::Nat,
                Forward::Direct => weir_model::Forward::Direct,
                Forward::Tunnel => weir_model::Forward::Tunnel,
                Forward::L3dsr => weir_model::Forward::L3dsr,
                Forward::None | Forward::Socket => panic!("a service forwards packets"),
            },
            snat: false,
        };
        setup.dest = Dest {
            dscp: 0,
            ..setup.planned().rows().dests[&DEST]
        };
        setup
    }

    pub(crate) fn snat(mut self) -> Self {
        self.dest.flags |= weir_abi::DEST_SNAT;
        self.snat = true;
        self
    }

    fn planned(&self) -> PlannedRows {
        let net = self.net;
        let mut service = Service::new("service", self.forward, "pool");
        service.listen = listeners(net.vip, PORT);
        service.snat = self.snat.then(|| Snat {
            addresses: vec![net.snat],
            ports: (20_000, 20_999),
        });
        let port = (self.forward == weir_model::Forward::Nat).then_some(SERVER_PORT);
        let mut pool = Pool::new("pool");
        pool.no_server = self.no_server;
        pool.scheduler = Some(weir_model::Scheduler::new(weir_model::SchedulerKind::Rr));
        if self.servers {
            pool.servers.push(Server::new("server", net.server, port));
        }
        let mut planned = PlannedRows::new(small_sizes());
        planned.desired.services.push(service);
        planned.desired.pools.push(pool);
        planned.surroundings.sources = [(net.server, net.director)].into();
        planned
    }

    /// Loads the data plane without the programs that balance at tc; `None` without root.
    pub(crate) fn open(self) -> Option<Testbed> {
        self.open_for(true)
    }

    /// Loads the whole data plane; `None` without root.
    pub(crate) fn open_with_tc(self) -> Option<Testbed> {
        self.open_for(false)
    }

    fn open_for(self, xdp_only: bool) -> Option<Testbed> {
        if !privileged() {
            return None;
        }
        let sandbox = Sandbox::new();
        let (mut plane, _) = Dataplane::open(&OpenOptions {
            xdp_only,
            ..sandbox.options()
        })
        .unwrap();
        self.write(&plane);
        plane.activate().unwrap();
        Some(Testbed {
            net: self.net,
            plane,
            _sandbox: sandbox,
        })
    }

    fn write(&self, plane: &Dataplane) {
        let maps = plane.maps();
        let mut planned = self.planned();
        let mut rows = planned.rows();
        rows.settings = self.settings;
        if self.servers {
            rows.dests.insert(DEST, self.dest);
        }
        planned.write(plane, &rows);
        for slot in 0..weir_abi::HOPS_PER_DEST {
            let hop = hop(SERVER_MAC, self.hop_mtu);
            maps.set_hop(DEST, slot, &hop).unwrap();
        }
        let device = Device {
            flags: weir_abi::DEVICE_SEND,
            port: IFINDEX,
            vlan: 0,
            mtu: 1500,
        };
        maps.devices.set(&IFINDEX, &device).unwrap();
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
pub(crate) struct Testbed {
    pub(crate) net: Net,
    pub(crate) plane: Dataplane,
    _sandbox: Sandbox,
}

/// The outcome of a packet.
pub(crate) struct PacketOutcome {
    pub(crate) verdict: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) parsed: ParsedFrame,
}

impl PacketOutcome {
    pub(crate) fn ip(&self) -> &Datagram {
        self.parsed.ip().unwrap()
    }

    /// Returns the packet that was sent. Asserts that all checksums are correct, including those of a quoted packet.
    pub(crate) fn sent(&self) -> &Datagram {
        assert_eq!(self.verdict, XDP_TX, "not sent");
        let ip = self.ip();
        assert!(
            ip.has_valid_checksums(),
            "{}",
            weir_wire::describe(&self.frame)
        );
        if let Some(quoted) = ip.quoted() {
            assert_ne!(
                quoted.header_checksum,
                weir_wire::ChecksumState::Invalid,
                "checksum of the quoted header"
            );
            assert_ne!(
                quoted.transport_checksum,
                weir_wire::ChecksumState::Invalid,
                "quoted checksum"
            );
        }
        ip
    }

    pub(crate) fn bytes_of(&self, ip: &Datagram) -> &[u8] {
        &self.frame[ip.range.clone()]
    }
}

impl Testbed {
    pub(crate) fn run(&self, program: &str, frame: &[u8]) -> PacketOutcome {
        let input = if program.starts_with("weir_tc") || program.starts_with("weir_skb") {
            TestInput::classifier(frame)
        } else {
            TestInput::xdp(frame)
        };
        let run = self.plane.test_run(program, &input).unwrap();
        let parsed = Packet::parse(&run.packet)
            .unwrap_or_else(|error| panic!("{error}: {:02x?}", run.packet));
        PacketOutcome {
            verdict: run.verdict,
            frame: run.packet,
            parsed,
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> PacketOutcome {
        self.run("weir_xdp", frame)
    }

    pub(crate) fn count(&self, reason: Reason) -> u64 {
        self.plane.maps().reasons().unwrap()[reason.number() as usize]
    }

    /// Starts the client's TCP flow and returns the packet that the server receives.
    pub(crate) fn start_flow(&self) -> PacketOutcome {
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

/// Returns an IP packet of a flow, with a payload of this length in bytes.
pub(crate) fn tcp_packet(
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    dport: u16,
    length: usize,
) -> Vec<u8> {
    let data: Vec<u8> = (0..length).map(|index| index as u8).collect();
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
    let data: Vec<u8> = (0..length).map(|index| (index * 7) as u8).collect();
    Packet::ip(src, dst)
        .udp(sport, dport)
        .payload(&data)
        .build()
}
