//! Tests the model without a data plane.

use core::net::IpAddr;

use weir_abi::{
    DEST_LIVE, DEST_USABLE, Dest, Forward, HOP_READY, HOP_SEND, HOP_VLAN_KEEP,
    SERVICE_DROP_NO_SERVER,
};
use weir_wire::Packet;

use super::*;

/// A scheduler that always chooses this server; 0 = none.
struct ConstantScheduler(u32);

impl Scheduler for ConstantScheduler {
    fn choose(&mut self, _: u32, _: &Arrival<'_>, _: &dyn Fn(u32) -> Load) -> Option<u32> {
        (self.0 != 0).then_some(self.0)
    }
}

const VIP: [u8; 4] = [192, 0, 2, 10];
const CLIENT: [u8; 4] = [198, 51, 100, 7];
const SERVER: [u8; 4] = [10, 0, 0, 5];

fn addr(bytes: [u8; 4]) -> Addr {
    IpAddr::from(bytes).into()
}

/// Returns a model with service 1, `tcp/192.0.2.10:80`, and server 1.
fn model(forward: Forward) -> Model<ConstantScheduler> {
    let mut config = Config::new([1, 2], 64);
    config.settings.timeouts = [100; 16];
    config.settings.syn_budget = 10;
    config.settings.flags = SETTINGS_REUSE;
    config.filter.add_destination(addr(VIP));
    config.filter.add_source(addr(SERVER));
    config.vips.insert(addr(VIP), VipRow::default());
    config.listeners.insert((addr(VIP), 80, 6), 1);
    let service = ServiceRow {
        has_extent: true,
        spread: vec![1; 251],
        flags: SERVICE_DROP_NO_SERVER,
        ..ServiceRow::default()
    };
    config.services.insert(1, service);
    let dest = Dest {
        addr: addr(SERVER),
        forward: forward as u8,
        flags: DEST_LIVE | DEST_USABLE,
        live: 1,
        family: 4,
        ..Dest::default()
    };
    config.dests.insert(1, dest);
    for slot in 0..4 {
        let hop = HopParts {
            ifindex: 1,
            flags: HOP_READY | HOP_SEND,
            vlan: HOP_VLAN_KEEP,
            ..HopParts::default()
        };
        config.hops.insert((1, slot), hop);
    }
    Model::new(config, ConstantScheduler(1))
}

fn tcp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16, flags: TcpFlags) -> Vec<u8> {
    Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into())
        .ipv4(src.into(), dst.into())
        .tcp(sport, dport)
        .flags(flags)
        .build()
}

fn request(flags: TcpFlags) -> Vec<u8> {
    tcp(CLIENT, 1000, VIP, 80, flags)
}

#[test]
fn only_syn_begins_a_flow() {
    let mut model = model(Forward::Direct);
    let stray = model.process(&request(TcpFlags::ACK), 5);
    assert_eq!(
        (stray.verdict, stray.counted),
        (Verdict::Pass, vec![Reason::PassNoFlow])
    );
    assert_eq!(
        model.process(&request(TcpFlags::SYN), 5).verdict,
        Verdict::Tx
    );
    assert_eq!(
        model.process(&request(TcpFlags::ACK), 6).verdict,
        Verdict::Tx
    );
    assert_eq!(model.flows().count(), 1);
    assert_eq!((model.live(1).active, model.live(1).total), (1, 1));
    assert_eq!(model.traffic(1).packets_in, 2);
}

#[test]
fn maglev_accepts_connections_from_another_director() {
    let mut model = model(Forward::Direct);
    let row = model.config_mut().services.get_mut(&1).unwrap();
    row.hashed = true;
    let stray = model.process(&request(TcpFlags::ACK), 5);
    assert_eq!(
        (stray.verdict, stray.counted),
        (Verdict::Tx, vec![Reason::CountUntracked])
    );
    assert_eq!(model.flows().count(), 0, "a stray packet creates no entry");
    // Persistent clients and translated flows need state that this director does not have.
    let row = model.config_mut().services.get_mut(&1).unwrap();
    row.persistence = Some(super::config::Persistence {
        ticks: 100,
        prefix4: 32,
        prefix6: 128,
        scope: 0,
    });
    assert_eq!(
        model.process(&request(TcpFlags::ACK), 5).counted,
        [Reason::PassNoFlow]
    );
    let row = model.config_mut().services.get_mut(&1).unwrap();
    row.persistence = None;
    model.config_mut().dests.get_mut(&1).unwrap().forward = Forward::Nat as u8;
    assert_eq!(
        model.process(&request(TcpFlags::ACK), 5).counted,
        [Reason::PassNoFlow]
    );
}

#[test]
fn nat_replies_have_the_vip_as_source() {
    let mut model = model(Forward::Nat);
    let out = model.process(&request(TcpFlags::SYN), 5).frame;
    assert_eq!(
        Packet::parse(&out).unwrap().five_tuple().unwrap().dst,
        IpAddr::from(SERVER)
    );
    let reply = model.process(&tcp(SERVER, 80, CLIENT, 1000, TcpFlags(0x12)), 5);
    // The client's next hop is unknown: the tc program resolves it.
    assert!(matches!(reply.verdict, Verdict::ToTc(_)));
    let parsed = Packet::parse(&reply.frame).unwrap();
    assert!(parsed.has_valid_checksums());
    assert_eq!(parsed.five_tuple().unwrap().src, IpAddr::from(VIP));
}

#[test]
fn expired_flows_are_swept() {
    let mut model = model(Forward::Nat);
    model.process(&request(TcpFlags::SYN), 5);
    assert_eq!(
        model.process(&request(TcpFlags::ACK), 105).verdict,
        Verdict::Tx,
        "the flow has not expired in the last tick of its timeout"
    );
    assert_eq!(
        model.process(&request(TcpFlags::ACK), 206).counted,
        [Reason::PassNoFlow]
    );
    model.process(&request(TcpFlags::SYN), 206);
    assert_eq!((model.sweep(306), model.sweep(307)), (0, 1));
    assert_eq!((model.flows().count(), model.live(1).active), (0, 0));
}

#[test]
fn flows_beyond_the_budget_are_forwarded_by_hash() {
    let mut model = model(Forward::Direct);
    model.config_mut().settings.syn_budget = 0;
    model.config_mut().settings.untracked_ticks = 10;
    let syn_outcome = model.process(&request(TcpFlags::SYN), 4);
    assert_eq!(
        syn_outcome.counted,
        [Reason::CountSynBudget, Reason::CountUntracked]
    );
    assert_eq!(
        model.process(&request(TcpFlags::ACK), 15).counted,
        [Reason::CountUntracked]
    );
    assert_eq!(
        model.process(&request(TcpFlags::ACK), 16).counted,
        [Reason::PassNoFlow]
    );
}

#[test]
fn service_without_server_rejects_or_drops_packets_by_its_flag() {
    let mut model = model(Forward::Direct);
    *model.scheduler_mut() = ConstantScheduler(0);
    assert_eq!(
        model.process(&request(TcpFlags::SYN), 5).counted,
        [Reason::DropNoServer]
    );
    if let Some(service) = model.config_mut().services.get_mut(&1) {
        service.flags = 0;
    }
    model.config_mut().settings.reject_budget = 1;
    let rejected = model.process(&request(TcpFlags::SYN), 5);
    assert_eq!(rejected.counted, [Reason::RejectNoServer, Reason::PassToTc]);
    assert!(
        Packet::parse(&rejected.frame)
            .unwrap()
            .ip()
            .unwrap()
            .quoted()
            .is_some()
    );
    assert_eq!(
        model.process(&request(TcpFlags::SYN), 5).counted,
        [Reason::DropNoServer],
        "the budget is exhausted"
    );
}

#[test]
fn icmp_and_fragments_are_not_modeled() {
    let link = || Packet::ethernet([2, 0, 0, 0, 0, 1].into(), [2, 0, 0, 0, 0, 2].into());
    let mut model = model(Forward::Direct);
    let echo = link()
        .ipv4(CLIENT.into(), VIP.into())
        .echo_request(1, 1)
        .build();
    let first = link()
        .ipv4(CLIENT.into(), VIP.into())
        .fragment(0, true)
        .tcp(1000, 80)
        .build();
    for frame in [echo, first] {
        assert_eq!(model.process(&frame, 5).verdict, Verdict::Unmodeled);
    }
}
