//! Measures a packet's whole path on one core, with Weir's program or nftables as the director.
//!
//! The path is generator, veth, director, veth, sink.
//!
//! The generator and the sink are always the same. Weir sends frames back from the driver; nftables receives frames as
//! socket buffers, with GRO enabled, and sends them through the same device. All sent packets must arrive. On a veth,
//! Weir runs at tc with `attach = "auto"`: these rows are printed next to those of `attach = "xdp"` and have no goal.

use aya::programs::links::FdLink;
use weir_dataplane::{Sizes, XdpChoice};
use weir_model::{Forward, SchedulerKind, TunnelChecksum, TunnelKind};

use crate::Result;
use crate::clock::Clock;
use crate::director::{Director, Setup};
use crate::feed::{Feed, Objects, Plan};
use crate::frame::{ACK, DIRECTOR_MAC, Frame, SYN, Sender};
use crate::measure::Effort;
use crate::network::{
    CLIENTS, DIRECTOR_DEVICE, GENERATOR_DEVICE, PORT, TestNetwork, interface_index, mac,
    run_with_input, server, server_mac, vip,
};
use crate::report::{Summary, Table, print_ratio};

const FLOWS: u32 = 1 << 14;
const DIRECT_SERVERS: u32 = 4;

/// The directions of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// Only client packets.
    OneWay,
    /// A client's packets and the server's replies, alternately.
    BothWays,
}

/// The program or rule set that forwards the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forwarder {
    Null,
    Weir(Forward, Attach),
    IngressDsr,
    Dnat,
}

/// Weir's `attach` setting. On a veth, `auto` selects tc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attach {
    Xdp,
    Auto,
}

/// The contenders. The order is the same for each kind of traffic: the floor, Weir with XDP, Weir with `auto`,
/// nftables.
const CONTENDERS: [(&str, Traffic, Forwarder); 8] = [
    ("transmit only", Traffic::OneWay, Forwarder::Null),
    (
        "weir direct, xdp",
        Traffic::OneWay,
        Forwarder::Weir(Forward::Direct, Attach::Xdp),
    ),
    (
        "weir direct, auto",
        Traffic::OneWay,
        Forwarder::Weir(Forward::Direct, Attach::Auto),
    ),
    (
        "nftables ingress DSR",
        Traffic::OneWay,
        Forwarder::IngressDsr,
    ),
    ("transmit only", Traffic::BothWays, Forwarder::Null),
    (
        "weir nat, xdp",
        Traffic::BothWays,
        Forwarder::Weir(Forward::Nat, Attach::Xdp),
    ),
    (
        "weir nat, auto",
        Traffic::BothWays,
        Forwarder::Weir(Forward::Nat, Attach::Auto),
    ),
    ("nftables DNAT", Traffic::BothWays, Forwarder::Dnat),
];

/// Runs all contenders in turn, once per round, and prints their times and ratios.
pub(crate) fn run(
    network: &mut TestNetwork,
    objects: &mut Objects,
    effort: Effort,
    filter: &str,
) -> Result<()> {
    if !"pipeline".contains(filter) {
        return Ok(());
    }
    println!(
        "\n2. Generator, veth, director, veth, sink on one core ({} rounds of {} packets, {} K flows)\n",
        effort.rounds,
        effort.packets,
        FLOWS >> 10
    );
    let mut pipeline = Pipeline::new(network, objects)?;
    let mut times = CONTENDERS.map(|_| Vec::new());
    for _ in 0..effort.rounds {
        for ((name, traffic, forwarder), times) in CONTENDERS.into_iter().zip(&mut times) {
            let ns = pipeline
                .measure(traffic, forwarder, effort.packets)
                .map_err(|error| format!("{name}: {error}"))?;
            times.push(ns);
        }
    }
    pipeline.close()?;
    print(&times);
    Ok(())
}

fn print(times: &[Vec<f64>; CONTENDERS.len()]) {
    let table = Table::new(&["director", "packets", "Mpps", "ns", "least…most", "net ns"]);
    table.print_header();
    for (index, ((name, traffic, _), rounds)) in CONTENDERS.into_iter().zip(times).enumerate() {
        let time = Summary::from_values(rounds.clone());
        table.print_row(&[
            name.to_owned(),
            match traffic {
                Traffic::OneWay => "to the servers".to_owned(),
                Traffic::BothWays => "both ways".to_owned(),
            },
            format!("{:.2}", 1000.0 / time.median),
            format!("{:.0}", time.median),
            format!("{:.0}…{:.0}", time.min, time.max),
            format!("{:.0}", Summary::from_values(nets(times, index)).median),
        ]);
    }
    // Ratios are computed within a round, because its contenders ran under the same conditions.
    let quotients = |numerators: Vec<f64>, denominators: Vec<f64>| {
        Summary::from_values(
            numerators
                .iter()
                .zip(&denominators)
                .map(|(a, b)| a / b)
                .collect(),
        )
    };
    let net = |index| nets(times, index);
    println!();
    print_ratio(
        "nat to nftables DNAT, net",
        quotients(net(5), net(7)),
        0.15,
        true,
    );
    print_ratio_without_goal(
        "nat to nftables DNAT, net, attach = \"auto\"",
        quotients(net(6), net(7)),
    );
    print_ratio(
        "direct to nftables ingress DSR, net",
        quotients(net(1), net(3)),
        0.15,
        true,
    );
    print_ratio_without_goal(
        "direct to nftables ingress DSR, net, attach = \"auto\"",
        quotients(net(2), net(3)),
    );
    print_ratio(
        "direct to nftables ingress DSR, packets of the whole pipeline",
        quotients(times[3].clone(), times[1].clone()),
        3.5,
        false,
    );
    print_ratio_without_goal(
        "direct to nftables ingress DSR, packets of the whole pipeline, attach = \"auto\"",
        quotients(times[3].clone(), times[2].clone()),
    );
}

fn print_ratio_without_goal(label: &str, ratio: Summary) {
    println!("{label}: {}", ratio.as_ratio());
}

/// Returns a contender's times minus those of the floor (generator and sink) in the same rounds.
fn nets(times: &[Vec<f64>; CONTENDERS.len()], index: usize) -> Vec<f64> {
    let floors = &times[index / 4 * 4];
    times[index]
        .iter()
        .zip(floors)
        .map(|(a, b)| a - b)
        .collect()
}

/// The veth pair with its sink, and all contenders.
struct Pipeline {
    clock: Clock,
    one_way: Feed,
    both_ways: Feed,
    handshake: Vec<Feed>,
    direct: Director,
    nat: Director,
    sink: FdLink,
}

impl Pipeline {
    fn new(network: &mut TestNetwork, objects: &mut Objects) -> Result<Self> {
        let (client, server) = (
            Sender::Client(vip(4), PORT),
            Sender::Server(server(4, 0), PORT),
        );
        let generator = network.generator;
        let mut load = |frame: Frame, alternate: Option<Frame>| {
            let plan = Plan {
                frame,
                alternate,
                flows: FLOWS,
                client: CLIENTS,
                random: false,
                ifindex: generator,
                overhead_bytes: 0,
            };
            Feed::load(objects, &plan)
        };
        let mut one_way = load(Frame::tcp(client, ACK), None)?;
        let both_ways = load(Frame::tcp(client, ACK), Some(Frame::tcp(server, ACK)))?;
        let handshake = vec![
            load(Frame::tcp(client, SYN), None)?,
            load(Frame::tcp(server, SYN | ACK), None)?,
            load(Frame::tcp(client, ACK), None)?,
        ];
        let sink = one_way.attach("sink", GENERATOR_DEVICE)?;
        let mut open = |forward, servers| {
            let setup = Setup {
                family: 4,
                forward,
                tunnel: TunnelKind::Ipip,
                checksum: TunnelChecksum::None,
                scheduler: SchedulerKind::Wlc,
                servers,
                weighted: false,
                other_services: 0,
                flow_entries: Sizes::default().flows,
                sampled: 0,
                sync: false,
            };
            let director = Director::open(network.pin_dir(), network.director, setup)?;
            director.limit_syns(false)?;
            Result::Ok(director)
        };
        let (direct, nat) = (
            open(Forward::Direct, DIRECT_SERVERS)?,
            open(Forward::Nat, 1)?,
        );
        let mut pipeline = Self {
            clock: Clock::new(crate::last_cpu())?,
            one_way,
            both_ways,
            handshake,
            direct,
            nat,
            sink,
        };
        for forward in [Forward::Direct, Forward::Nat] {
            let attached = pipeline.attach(Forwarder::Weir(forward, Attach::Xdp))?;
            pipeline.send_handshakes(forward != Forward::Direct)?;
            pipeline.detach(attached)?;
        }
        Ok(pipeline)
    }

    /// Attaches a contender, runs it once and detaches it. Returns the nanoseconds per packet of the whole path.
    fn measure(&mut self, traffic: Traffic, forwarder: Forwarder, packets: u32) -> Result<f64> {
        let attached = self.attach(forwarder)?;
        if forwarder == Forwarder::Dnat {
            self.send_handshakes(true)?;
        }
        // The first packets of a run fill the caches (pages, routes) and are not measured.
        self.send(traffic, packets / 16)?;
        let before = self.one_way.received()?;
        let start = self.clock.now()?;
        self.send(traffic, packets)?;
        let ns = self.clock.ns_since(&start)?;
        let received = self.one_way.received()?[0] - before[0];
        self.detach(attached)?;
        if received != u64::from(packets) {
            return Err(format!("{received} of {packets} packets arrived").into());
        }
        Ok(ns / f64::from(packets))
    }

    fn send(&mut self, traffic: Traffic, packets: u32) -> Result<()> {
        match traffic {
            Traffic::OneWay => self.one_way.send(packets),
            Traffic::BothWays => self.both_ways.send(packets),
        }
    }

    /// Sends every flow's handshake, including the server's part if replies pass through the director.
    fn send_handshakes(&mut self, with_replies: bool) -> Result<()> {
        for (step, feed) in self.handshake.iter_mut().enumerate() {
            if with_replies || step != 1 {
                feed.send(FLOWS)?;
            }
        }
        Ok(())
    }

    fn director(&self, forward: Forward) -> &Director {
        if forward == Forward::Nat {
            &self.nat
        } else {
            &self.direct
        }
    }

    fn attach(&mut self, forwarder: Forwarder) -> Result<AttachedForwarder> {
        Ok(match forwarder {
            Forwarder::Null => {
                AttachedForwarder::Null(self.one_way.attach("null_tx", DIRECTOR_DEVICE)?)
            }
            Forwarder::Weir(forward, attach) => {
                let ifindex = interface_index(DIRECTOR_DEVICE)?;
                let plane = &self.director(forward).dataplane;
                match attach {
                    Attach::Xdp => plane.attach(ifindex, XdpChoice::Native)?,
                    Attach::Auto => plane.attach_at_tc(ifindex)?,
                };
                AttachedForwarder::Weir(forward, ifindex)
            }
            Forwarder::IngressDsr => {
                run_with_input(&["nft", "-f", "-"], &ingress_dsr())?;
                AttachedForwarder::Rules
            }
            Forwarder::Dnat => {
                run_with_input(&["nft", "-f", "-"], &dnat())?;
                AttachedForwarder::Rules
            }
        })
    }

    fn detach(&self, attached: AttachedForwarder) -> Result<()> {
        match attached {
            AttachedForwarder::Null(link) => drop(link),
            AttachedForwarder::Weir(forward, ifindex) => {
                self.director(forward).dataplane.detach(ifindex)?
            }
            AttachedForwarder::Rules => run_with_input(&["nft", "-f", "-"], "flush ruleset\n")?,
        }
        Ok(())
    }

    fn close(self) -> Result<()> {
        drop(self.sink);
        self.direct.close()?;
        self.nat.close()
    }
}

/// The attached contender, with the data for detaching it.
enum AttachedForwarder {
    Null(FdLink),
    Weir(Forward, u32),
    Rules,
}

fn ingress_dsr() -> String {
    let macs: Vec<String> = (0..DIRECT_SERVERS)
        .map(|index| format!("{index} : {}", mac(server_mac(index))))
        .collect();
    format!(
        "table netdev bench {{\n chain ingress {{\n  \
         type filter hook ingress device {DIRECTOR_DEVICE} priority 0; policy accept;\n  \
         ip daddr {} tcp dport {PORT} ether saddr set {} \
         ether daddr set jhash ip saddr . tcp sport mod {DIRECT_SERVERS} map {{ {} }} \
         fwd to {DIRECTOR_DEVICE}\n }}\n}}\n",
        vip(4),
        mac(DIRECTOR_MAC),
        macs.join(", ")
    )
}

fn dnat() -> String {
    format!(
        "table ip bench {{\n chain prerouting {{\n  type nat hook prerouting priority dstnat; policy accept;\n  \
         ip daddr {} tcp dport {PORT} dnat to {}\n }}\n}}\n",
        vip(4),
        server(4, 0)
    )
}
