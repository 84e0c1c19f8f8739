use super::*;
use crate::packet::{ChecksumForm, GROUP_V4, Version};
use crate::{Effect, Tracked};

const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const SECOND: Duration = Duration::from_secs(1);

fn config(name: &str, vrid: u8, priority: u8) -> Config {
    Config {
        name: name.to_owned(),
        version: Version::V3,
        vrid,
        priority,
        interval: SECOND,
        addresses: vec!["10.0.0.10".parse().unwrap()],
        preempt: true,
        preempt_delay: Duration::ZERO,
        password: None,
        group: Some("pair".to_owned()),
        tracked: vec![Tracked {
            name: "interface".to_owned(),
            effect: Effect::Fault,
        }],
    }
}

fn pair() -> Router {
    let mut router = Router::new(
        vec![config("a", 1, 200), config("b", 2, 100)],
        Duration::ZERO,
    );
    for index in 0..2 {
        router.handle_source(index, Some(SOURCE), Duration::ZERO);
        router.handle_tracked(index, 0, TrackedState::Up, Duration::ZERO);
    }
    router
}

fn states(router: &Router) -> Vec<State> {
    router
        .instances()
        .map(|(instance, _)| instance.state())
        .collect()
}

fn packet(vrid: u8, priority: u8) -> Vec<u8> {
    let sender = Instance::new(config("a", vrid, 100), Duration::ZERO);
    sender
        .advertisement(priority)
        .encode(PEER, GROUP_V4.into(), ChecksumForm::Plain)
}

fn hear(router: &mut Router, vrid: u8, priority: u8, now: Duration) -> Result<(), Ignored> {
    let bytes = packet(vrid, priority);
    let arrival = Arrival {
        bytes: &bytes,
        source: PEER,
        destination: GROUP_V4.into(),
        hop_limit: 255,
    };
    router.handle_packet(usize::from(vrid) - 1, &arrival, &[], now)
}

#[test]
fn group_becomes_active_backup_and_faulty_together() {
    let mut router = pair();
    assert_eq!(states(&router), [State::Backup; 2]);
    let now = router.next_deadline().unwrap();
    router.handle_timeout(now);
    assert_eq!(states(&router), [State::Active; 2]);
    hear(&mut router, 2, 101, now).unwrap();
    assert_eq!(states(&router), [State::Backup; 2]);
    router.handle_tracked(0, 0, TrackedState::Down, now);
    assert_eq!(states(&router), [State::Fault; 2]);
    let reason = router.instance(1).unwrap().reason();
    assert_eq!(reason, "a of the same group is in fault");
    router.handle_tracked(0, 0, TrackedState::Up, now);
    assert_eq!(states(&router), [State::Backup; 2]);
}

#[test]
fn packets_of_other_routers_and_strangers_are_ignored() {
    let mut router = pair();
    let bytes = packet(9, 200);
    let arrival = Arrival {
        bytes: &bytes,
        source: PEER,
        destination: GROUP_V4.into(),
        hop_limit: 255,
    };
    assert_eq!(
        router.handle_packet(0, &arrival, &[], SECOND),
        Err(Ignored::RouterId)
    );
    let bytes = packet(1, 200);
    let arrival = Arrival {
        bytes: &bytes,
        ..arrival
    };
    assert_eq!(
        router.handle_packet(0, &arrival, &[PEER], SECOND),
        Err(Ignored::Peer)
    );
    assert_eq!(router.handle_packet(0, &arrival, &[], SECOND), Ok(()));
    let (_, counters) = router.instances().next().unwrap();
    assert_eq!(
        (counters.received, counters.ignored.get(&Ignored::Peer)),
        (1, Some(&1))
    );
}

#[test]
fn unchanged_router_continues_after_reload() {
    let mut router = pair();
    let now = router.next_deadline().unwrap();
    router.handle_timeout(now);
    let mut changed = config("a", 1, 150);
    changed.preempt = false;
    let continues = router.handle_configs(vec![changed, config("c", 3, 100)], now);
    assert_eq!(continues, [true, false]);
    assert_eq!(states(&router), [State::Active, State::Init]);
    assert_eq!(router.instance(0).unwrap().priority(), 150);
}
