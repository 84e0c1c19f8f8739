//! Defines the measured cases: a forwarding method, a stream of packets, and the expected counts of the data plane.

use weir_abi::{REASONS, Reason};
use weir_model::{Forward, SchedulerKind as Kind, TunnelChecksum, TunnelKind as Tunnel};

use crate::Result;
use crate::director::{Counts, Setup};
use crate::feed::{Plan, RunResult};
use crate::frame::{ACK, Frame, RST, SYN, Sender};
use crate::network::{CLIENTS, PORT, SERVERS, server, server_mac, vip};

const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
/// Number of entries in the flow table; 2^20 flows fill half of it.
pub(crate) const TABLE_ENTRIES: u32 = 1 << 21;

/// The packets sent in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// ACKs of this many established connections, in rotation.
    Established(u32),
    /// Server replies on this many established connections.
    Replies(u32),
    /// ACKs that complete the handshakes of this many half-open connections.
    Completions(u32),
    /// Datagrams of one flow.
    Datagrams,
    /// Datagrams that each come from a different client.
    RandomDatagrams,
    /// SYNs that each come from a different client, beyond the budget for new entries.
    Flood,
    /// SYNs that each come from a different client, with a sufficient budget.
    NewFlows,
    /// ACKs to an address that is not a VIP.
    NotVip,
}

/// One row of the printed table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) setup: Setup,
    pub(crate) stream: Stream,
}

const fn setup(forward: Forward) -> Setup {
    Setup {
        family: 4,
        forward,
        tunnel: Tunnel::Ipip,
        checksum: TunnelChecksum::None,
        scheduler: Kind::Mh,
        servers: SERVERS,
        weighted: false,
        other_services: 0,
        flow_entries: TABLE_ENTRIES,
        sampled: 0,
        sync: false,
    }
}

const fn tunnel(kind: Tunnel, checksum: TunnelChecksum) -> Setup {
    Setup {
        tunnel: kind,
        checksum,
        ..setup(Forward::Tunnel)
    }
}

/// A flow's replies must come from its server, so there is only one server; each flow takes two entries.
const NAT: Setup = Setup {
    servers: 1,
    flow_entries: 2 * TABLE_ENTRIES,
    ..setup(Forward::Nat)
};

/// Numbers of flows whose data fits in the second-level cache, exceeds it, and exceeds all caches.
const FLOW_COUNTS: [u32; 3] = [1, 1 << 14, 1 << 20];

const POOL_SIZES: [u32; 3] = [10, 1_000, 100_000];
/// The planner rejects a pool that has more servers than the `mh` table has entries.
const MAX_MH_SERVERS: u32 = 4093;

macro_rules! names_by_pool_size {
    ($scheduler:literal) => {
        [
            concat!($scheduler, ", pool of 10 servers"),
            concat!($scheduler, ", pool of 1 000 servers"),
            concat!($scheduler, ", pool of 100 000 servers"),
        ]
    };
}

/// The schedulers for which the cost of a new flow is measured, with the row names for each pool size.
const NEW_FLOW_POOLS: [(Kind, [&str; 3]); 10] = [
    (Kind::Wlc, names_by_pool_size!("wlc")),
    (Kind::Wrr, names_by_pool_size!("wrr")),
    (Kind::Lc, names_by_pool_size!("lc")),
    (Kind::Sed, names_by_pool_size!("sed")),
    (Kind::Mh, names_by_pool_size!("mh")),
    (Kind::Maglev, names_by_pool_size!("maglev")),
    (Kind::Twos, names_by_pool_size!("twos")),
    (Kind::P2c, names_by_pool_size!("p2c")),
    (Kind::Sh, names_by_pool_size!("sh")),
    (Kind::LeastTime, names_by_pool_size!("least-time")),
];

/// Returns the cases in the order in which their rows are printed.
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &'static str, setup: Setup, streams: &[Stream]| {
        cases.extend(streams.iter().map(|&stream| Case {
            name,
            setup,
            stream,
        }));
    };
    let established = FLOW_COUNTS.map(Stream::Established);
    let direct = setup(Forward::Direct);
    add("direct", direct, &established);
    add(
        "tunnel ipip",
        tunnel(Tunnel::Ipip, TunnelChecksum::None),
        &established,
    );
    add(
        "tunnel gue",
        tunnel(Tunnel::Gue, TunnelChecksum::None),
        &established,
    );
    add(
        "tunnel gue, checksum",
        tunnel(Tunnel::Gue, TunnelChecksum::Full),
        &established,
    );
    add(
        "tunnel gre",
        tunnel(Tunnel::Gre, TunnelChecksum::None),
        &established,
    );
    add("l3dsr", setup(Forward::L3dsr), &established);
    add("nat", NAT, &established);
    add("nat", NAT, &FLOW_COUNTS.map(Stream::Replies));
    add("nat", NAT, &[Stream::NewFlows]);
    let wlc = Setup {
        scheduler: Kind::Wlc,
        ..direct
    };
    add("direct, wlc", wlc, &established[..2]);
    add("direct, wlc", wlc, &[Stream::NewFlows]);
    let v6 = Setup {
        family: 6,
        ..direct
    };
    add("direct, IPv6", v6, &established);
    add(
        "direct",
        direct,
        &[
            Stream::Datagrams,
            Stream::RandomDatagrams,
            Stream::Flood,
            Stream::NewFlows,
            Stream::NotVip,
        ],
    );
    // katran uses this scheduler too. With it, a SYN beyond the budget needs no lookup.
    let maglev = Setup {
        scheduler: Kind::Maglev,
        ..direct
    };
    add(
        "direct, maglev",
        maglev,
        &[Stream::RandomDatagrams, Stream::Flood],
    );
    // The cost that `[sync]` adds to packets of established flows and to a new flow, which is recorded when its
    // handshake completes.
    let with_sync = Setup {
        sync: true,
        ..direct
    };
    let completions = Stream::Completions(1 << 20);
    add("direct", direct, &[completions]);
    add("direct, sync", with_sync, &established[..2]);
    add("direct, sync", with_sync, &[completions]);
    // The default sampling rate under heavy traffic, and 100 %.
    let [default_rate, full_rate] = [1 << 10, 1 << 16].map(|sampled| Setup { sampled, ..direct });
    add("direct, 1/64 sampled", default_rate, &established[..2]);
    add("direct, all sampled", full_rate, &established[..2]);
    let few = Setup {
        servers: 10,
        ..direct
    };
    add("direct, 10 servers", few, &[Stream::Established(1)]);
    for (name, other_services) in [
        ("direct, 100 services", 100),
        ("direct, 10 000 services", 10_000),
    ] {
        let many = Setup {
            other_services,
            ..direct
        };
        add(
            name,
            many,
            &[
                Stream::Established(1),
                Stream::Established(1 << 14),
                Stream::RandomDatagrams,
                Stream::NotVip,
            ],
        );
    }
    for (scheduler, names) in NEW_FLOW_POOLS {
        for (name, servers) in names.into_iter().zip(POOL_SIZES) {
            if scheduler == Kind::Mh && servers > MAX_MH_SERVERS {
                continue;
            }
            let pool = Setup {
                scheduler,
                servers,
                weighted: true,
                ..direct
            };
            add(name, pool, &[Stream::NewFlows, Stream::Established(1)]);
        }
    }
    let full = Setup {
        flow_entries: 1 << 14,
        ..direct
    };
    add("direct, table full", full, &[Stream::RandomDatagrams]);
    cases
}

/// Returns the `direct` case with ACKs of this many established connections.
pub(crate) fn established(flows: u32) -> Case {
    Case {
        name: "direct",
        setup: setup(Forward::Direct),
        stream: Stream::Established(flows),
    }
}

impl Stream {
    /// Returns the stream's name for the row.
    pub(crate) fn label(self) -> String {
        let flows = |flows: u32| match flows {
            1 => "1 flow".to_owned(),
            many if many < 1 << 20 => format!("{} K flows", many >> 10),
            many => format!("{} M flows", many >> 20),
        };
        match self {
            Self::Established(count) => format!("TCP, {}", flows(count)),
            Self::Replies(count) => format!("TCP replies, {}", flows(count)),
            Self::Completions(_) => "ACK, each completes a handshake".to_owned(),
            Self::Datagrams => "UDP, 1 flow".to_owned(),
            Self::RandomDatagrams => "UDP, random sources".to_owned(),
            Self::Flood => "SYN flood, random sources".to_owned(),
            Self::NewFlows => "SYN, each makes an entry".to_owned(),
            Self::NotVip => "not a VIP".to_owned(),
        }
    }

    fn is_random(self) -> bool {
        matches!(self, Self::RandomDatagrams | Self::Flood | Self::NewFlows)
    }

    /// Returns whether the budget for new entries applies while the packets are measured.
    pub(crate) fn is_limited(self) -> bool {
        self != Self::NewFlows
    }

    fn flows(self) -> u32 {
        match self {
            Self::Established(count) | Self::Replies(count) | Self::Completions(count) => count,
            _ => 1,
        }
    }
}

impl Case {
    fn plan(&self, frame: Frame) -> Plan {
        Plan {
            frame,
            alternate: None,
            flows: self.stream.flows(),
            client: CLIENTS,
            random: self.stream.is_random(),
            ifindex: 0,
            overhead_bytes: self.overhead_bytes(),
        }
    }

    fn client(&self) -> Sender {
        Sender::Client(vip(self.setup.family), PORT)
    }

    fn server(&self) -> Sender {
        Sender::Server(server(self.setup.family, 0), PORT)
    }

    /// Returns the plan of the measured packets.
    pub(crate) fn measured_plan(&self) -> Plan {
        let family = self.setup.family;
        self.plan(match self.stream {
            Stream::Established(_) | Stream::Completions(_) => Frame::tcp(self.client(), ACK),
            Stream::Replies(_) => Frame::tcp(self.server(), ACK),
            Stream::Datagrams | Stream::RandomDatagrams => Frame::udp(self.client()),
            Stream::Flood | Stream::NewFlows => Frame::tcp(self.client(), SYN),
            Stream::NotVip => Frame::tcp(Sender::Client(server(family, 0xfff0), PORT), ACK),
        })
    }

    /// Returns the plan of the packets that end the flows of `client` and the clients after it.
    pub(crate) fn reset_plan(&self, client: u32) -> Plan {
        Plan {
            client,
            ..self.plan(Frame::tcp(self.client(), RST))
        }
    }

    /// Returns the packets that are sent for each flow before the measurement, and the number of flows.
    pub(crate) fn setup_plans(&self) -> (Vec<Plan>, u32) {
        let handshake = [
            Frame::tcp(self.client(), SYN),
            Frame::tcp(self.server(), SYN | ACK),
            Frame::tcp(self.client(), ACK),
        ];
        let nat = self.setup.forward == Forward::Nat;
        let frames: Vec<Frame> = match self.stream {
            Stream::Established(_) | Stream::Replies(_) => handshake
                .into_iter()
                .enumerate()
                .filter(|(step, _)| nat || *step != 1)
                .map(|(_, frame)| frame)
                .collect(),
            Stream::Completions(_) => handshake.into_iter().take(1).collect(),
            Stream::Datagrams => vec![Frame::udp(self.client())],
            _ => Vec::new(),
        };
        let plans = frames.into_iter().map(|frame| self.plan(frame)).collect();
        (plans, self.stream.flows())
    }

    /// Returns the number of packets in one measured run. If each packet creates an entry, the number is smaller, so
    /// that the table is at most half full after all rounds.
    pub(crate) fn packets(&self, max: u32, rounds: u32) -> u32 {
        match self.stream {
            Stream::NewFlows => max.min(1 << 17),
            // The runs that measure the floor use up connections too.
            Stream::Completions(flows) => max.min(flows / rounds.max(1) / 2),
            _ => max,
        }
    }

    /// Returns the number of bytes that the forwarding method adds to a packet.
    fn overhead_bytes(&self) -> u32 {
        match (self.setup.forward, self.setup.tunnel) {
            (Forward::Tunnel, Tunnel::Ipip) => 20,
            (Forward::Tunnel, Tunnel::Gre) => 24,
            (Forward::Tunnel, Tunnel::Gue) => 32,
            _ => 0,
        }
    }

    /// Checks the verdict, length and destination of the last packet.
    pub(crate) fn check_frame(&self, result: &RunResult) -> Result<()> {
        let expected = if self.stream == Stream::NotVip {
            XDP_PASS
        } else {
            XDP_TX
        };
        if result.verdict != expected {
            return Err(format!("the verdict is {}, not {expected}", result.verdict).into());
        }
        let length = Frame::length(vip(self.setup.family)) + self.overhead_bytes() as usize;
        if result.frame.len() != length {
            return Err(format!("the frame has {} bytes, not {length}", result.frame.len()).into());
        }
        let to_server = result.frame[..4] == server_mac(0)[..4];
        let is_server_expected = !matches!(self.stream, Stream::NotVip | Stream::Replies(_));
        if to_server != is_server_expected {
            return Err(format!(
                "the frame has an unexpected destination: {:02x?}",
                &result.frame[..6]
            )
            .into());
        }
        Ok(())
    }

    /// Returns whether the packets of a tunnel with checksums lack the checksum. If they do, the row is not printed.
    pub(crate) fn lacks_checksum(&self, result: &RunResult) -> bool {
        let outer_udp_checksum = 14 + 20 + 6;
        self.setup.tunnel == Tunnel::Gue
            && self.setup.checksum == TunnelChecksum::Full
            && result
                .frame
                .get(outer_udp_checksum..outer_udp_checksum + 2)
                .is_none_or(|checksum| checksum == [0, 0])
    }

    /// Compares the counts of the measured runs with `sent`, the number of packets that were sent. Returns the share of
    /// packets for which an entry was found.
    pub(crate) fn check_counts(&self, before: &Counts, after: &Counts, sent: u64) -> Result<f64> {
        let delta = |count: fn(&Counts) -> u64| count(after) - count(before);
        let reason = |reason: Reason| after.reason(reason) - before.reason(reason);
        let (inserted, stateless) = (delta(|c| c.inserted), delta(|c| c.stateless));
        let (packets_in, packets_out) = (delta(|c| c.packets_in), delta(|c| c.packets_out));
        // A build without metrics, which is used to measure the cost of the counters, has only the first two counters.
        if option_env!("WEIR_WITHOUT_METRICS").is_some() {
            return Ok(1.0 - (inserted + stateless) as f64 / sent as f64);
        }
        if self.stream == Stream::NotVip {
            check_count(
                "packets to other addresses",
                reason(Reason::PassNotOurs),
                sent,
                0,
            )?;
            return check_count("packets forwarded", packets_in + packets_out, 0, 0).map(|()| 0.0);
        }
        let replies = matches!(self.stream, Stream::Replies(_));
        let (forwarded, other_direction) = if replies {
            (packets_out, packets_in)
        } else {
            (packets_in, packets_out)
        };
        // With nat, a flow for which no entry was free was rejected at its first packet, so its later packets pass
        // unchanged.
        let without_entry = reason(if replies {
            Reason::PassNotOurs
        } else {
            Reason::PassNoFlow
        });
        let nat = self.setup.forward == Forward::Nat;
        if forwarded + without_entry != sent {
            let reasons = counted_reasons(before, after);
            return Err(format!("{forwarded} of {sent} packets forwarded; {reasons}").into());
        }
        check_count("packets in the other direction", other_direction, 0, 0)?;
        check_count(
            "packets of rejected flows",
            without_entry,
            0,
            if nat { sent / 100 } else { 0 },
        )?;
        let directions = if nat { 2 } else { 1 };
        check_count("entries", after.entries, after.inserted * directions, 0)?;
        check_count("flows counted", after.tracked, after.inserted, 0)?;
        let untracked = reason(Reason::CountUntracked);
        let misses = match self.stream {
            stream if stream.is_random() => {
                // A few of the 2^40 possible random sources may occur twice.
                check_count("new flows", inserted + stateless, sent, sent >> 16)?;
                inserted + stateless
            }
            _ => {
                check_count("new flows", inserted + stateless, 0, 0)?;
                let rejected_count = after.reason(Reason::DropNoPlace);
                let flows = self.stream.flows().into();
                check_count(
                    "flows",
                    after.inserted + after.stateless + rejected_count,
                    flows,
                    0,
                )?;
                // In a half-full table, nearly every flow has an entry.
                check_count("packets without an entry", untracked, 0, sent / 100)?;
                untracked + without_entry
            }
        };
        Ok(1.0 - misses as f64 / sent as f64)
    }
}

fn check_count(label: &str, found: u64, expected: u64, slack: u64) -> Result<()> {
    if found.abs_diff(expected) <= slack {
        return Ok(());
    }
    Err(format!("expected {expected} {label}, found {found}").into())
}

/// Returns the reasons counted between `before` and `after`, as text.
fn counted_reasons(before: &Counts, after: &Counts) -> String {
    let count = |reason| after.reason(reason) - before.reason(reason);
    let counted_labels: Vec<String> = REASONS
        .iter()
        .filter(|info| count(info.reason) != 0)
        .map(|info| format!("{} {}", count(info.reason), info.label))
        .collect();
    counted_labels.join(", ")
}
