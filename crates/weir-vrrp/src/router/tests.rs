//! Tests groups of virtual routers, and the packets that a director accepts and sends.

use super::*;
use crate::packet::{ChecksumForm, GROUP_V4, Version};
use crate::{Effect, TrackConfig};

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
        group: Some("pair".to_owned()),
        tracked: vec![TrackConfig {
            name: "interface".to_owned(),
            identity: "interface".to_owned(),
            effect: Effect::Fault,
        }],
        ..Config::default()
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

/// Returns two routers that are active before t = 4 s.
fn active_pair() -> Router {
    let mut router = pair();
    for _ in 0..2 {
        let now = router.next_deadline().unwrap();
        router.handle_timeout(now);
    }
    assert_eq!(states(&router), [State::Active; 2]);
    while router.poll_output().is_some() {}
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

fn receive(router: &mut Router, vrid: u8, priority: u8, now: Duration) -> Result<(), IgnoreReason> {
    let bytes = packet(vrid, priority);
    let arrival = ReceivedPacket {
        bytes: &bytes,
        source: PEER,
        destination: GROUP_V4.into(),
        hop_limit: 255,
    };
    router.handle_packet(usize::from(vrid) - 1, &arrival, &[], (now, Duration::ZERO))
}

#[test]
fn group_becomes_active_backup_and_faulty_together() {
    let mut router = pair();
    assert_eq!(states(&router), [State::Backup; 2]);
    // The second router is not ready, because its lower priority makes its timer expire later.
    let now = router.next_deadline().unwrap();
    router.handle_timeout(now);
    assert_eq!(states(&router), [State::Backup; 2]);
    let reason = router.instance(0).unwrap().reason();
    assert_eq!(
        reason,
        "no other director is active; waiting for the other members of the group"
    );
    let now = router.next_deadline().unwrap();
    router.handle_timeout(now);
    assert_eq!(states(&router), [State::Active; 2]);
    receive(&mut router, 2, 101, now).unwrap();
    assert_eq!(states(&router), [State::Backup; 2]);
    router.handle_tracked(0, 0, TrackedState::Down, now);
    assert_eq!(states(&router), [State::Fault; 2]);
    let reason = router.instance(1).unwrap().reason();
    assert_eq!(reason, "a of the same group is in the fault state");
    router.handle_tracked(0, 0, TrackedState::Up, now);
    assert_eq!(states(&router), [State::Backup; 2]);
}

#[test]
fn first_election_of_group_ends_when_one_member_ends_its_own() {
    let mut router = pair();
    assert!(router.is_first_election(0) && router.is_first_election(1));
    assert!(!router.is_first_election(2));
    receive(&mut router, 2, 101, SECOND).unwrap();
    // The first member cannot become active either.
    assert!(!router.is_first_election(0) && !router.is_first_election(1));
}

/// Returns active routers `a` and `b` of a group, and `c` and `d` without a group.
fn active_pair_and_others() -> Router {
    let alone = |name: &str, vrid| Config {
        group: None,
        ..config(name, vrid, 100)
    };
    let mut configs = vec![config("a", 1, 200), config("b", 2, 100)];
    configs.extend([alone("c", 3), alone("d", 4)]);
    let mut router = Router::new(configs, Duration::ZERO);
    for index in 0..4 {
        router.handle_source(index, Some(SOURCE), Duration::ZERO);
        router.handle_tracked(index, 0, TrackedState::Up, Duration::ZERO);
    }
    router
}

fn activate(router: &mut Router) {
    while states(router).contains(&State::Backup) {
        router.handle_timeout(router.next_deadline().unwrap());
    }
    while router.poll_output().is_some() {}
}

#[test]
fn first_election_does_not_depend_on_routers_outside_the_group() {
    let first_elections = |vrid| {
        let mut router = active_pair_and_others();
        receive(&mut router, vrid, 101, SECOND).unwrap();
        [0, 1, 2, 3].map(|index| router.is_first_election(index))
    };
    assert_eq!(first_elections(2), [false, false, true, true]);
    assert_eq!(first_elections(3), [true, true, false, true]);
}

#[test]
fn router_that_becomes_backup_changes_only_its_group() {
    use State::{Active, Backup};
    for (vrid, expected) in [
        (1, [Backup, Backup, Active, Active]),
        (2, [Backup, Backup, Active, Active]),
        (3, [Active, Active, Backup, Active]),
    ] {
        let mut router = active_pair_and_others();
        activate(&mut router);
        receive(&mut router, vrid, 250, 4 * SECOND).unwrap();
        assert_eq!(states(&router), expected, "{vrid}");
    }
}

#[test]
fn packets_for_other_vrids_and_from_unknown_peers_are_ignored() {
    let mut router = pair();
    let bytes = packet(9, 200);
    let arrival = ReceivedPacket {
        bytes: &bytes,
        source: PEER,
        destination: GROUP_V4.into(),
        hop_limit: 255,
    };
    assert_eq!(
        router.handle_packet(0, &arrival, &[], (SECOND, Duration::ZERO)),
        Err(IgnoreReason::RouterId)
    );
    let bytes = packet(1, 200);
    let arrival = ReceivedPacket {
        bytes: &bytes,
        ..arrival
    };
    assert_eq!(
        router.handle_packet(0, &arrival, &[PEER], (SECOND, Duration::ZERO)),
        Err(IgnoreReason::Peer)
    );
    assert_eq!(
        router.handle_packet(0, &arrival, &[], (SECOND, Duration::ZERO)),
        Ok(())
    );
    let (_, counters) = router.instances().next().unwrap();
    let ignored = counters.ignored.get(&IgnoreReason::Peer);
    assert_eq!(
        (counters.received, ignored.map(|it| it.packets)),
        (1, Some(1))
    );
}

#[test]
fn router_with_same_identity_continues_after_reload() {
    let mut router = active_pair();
    let now = 4 * SECOND;
    let mut changed_config = config("a", 1, 150);
    changed_config.preempt = false;
    let continues = router.handle_configs(vec![changed_config, config("c", 3, 100)], now);
    assert_eq!(continues, [true, false]);
    assert_eq!(states(&router), [State::Active, State::Init]);
    assert_eq!(router.instance(0).unwrap().priority(), 150);
}

#[test]
fn changed_identity_removes_a_router() {
    let router = pair();
    let (a, b) = (config("a", 1, 200), config("b", 2, 100));
    let changed = |change: &dyn Fn(&mut Config)| {
        let mut a = a.clone();
        change(&mut a);
        router.removed_by(&[a, b.clone()])
    };
    assert_eq!(router.removed_by(&[b.clone(), a.clone()]), [] as [usize; 0]);
    assert_eq!(router.removed_by(std::slice::from_ref(&a)), [1]);
    assert_eq!(router.removed_by(std::slice::from_ref(&b)), [0]);
    assert_eq!(router.removed_by(&[]), [0, 1]);
    assert_eq!(changed(&|a| a.priority = 1), [] as [usize; 0]);
    assert_eq!(changed(&|a| a.group = None), [] as [usize; 0]);
    assert_eq!(changed(&|a| a.name = "c".to_owned()), [0]);
    assert_eq!(changed(&|a| a.version = Version::V2), [0]);
    assert_eq!(changed(&|a| a.vrid = 3), [0]);
    assert_eq!(changed(&|a| a.addresses.clear()), [0]);
}

#[test]
fn sent_advertisements_are_counted() {
    let mut router = pair();
    let sent_counts = |router: &Router| -> Vec<u64> {
        let instances = router.instances();
        instances.map(|(_, counters)| counters.sent).collect()
    };
    assert_eq!(sent_counts(&router), [0, 0]);
    for _ in 0..2 {
        router.handle_timeout(router.next_deadline().unwrap());
    }
    assert_eq!(states(&router), [State::Active; 2]);
    assert_eq!(sent_counts(&router), [1, 1]);
    let now = router.next_deadline().unwrap();
    router.handle_timeout(now);
    assert_eq!(sent_counts(&router), [2, 2]);
    // The final advertisement counts too.
    router.stop(1, now);
    assert_eq!(sent_counts(&router), [2, 3]);
}

#[test]
fn router_that_leaves_group_in_fault_starts() {
    let mut router = pair();
    router.handle_source(1, None, SECOND);
    assert_eq!(states(&router), [State::Fault; 2]);
    let config = Config {
        group: None,
        ..config("a", 1, 200)
    };
    router.handle_configs(vec![config], SECOND);
    assert_eq!(states(&router), [State::Backup]);
    router.handle_timeout(router.next_deadline().unwrap());
    assert_eq!(states(&router), [State::Active]);
}

#[test]
fn authentication_trailer_is_sent_and_required() {
    use crate::hmac::{HmacConfig, HmacKey, HmacMode};
    let unix = Duration::from_secs(1_764_000_000);
    let signed = |mode| Config {
        group: None,
        tracked: Vec::new(),
        hmac: Some(HmacConfig {
            keys: vec![HmacKey {
                id: 1,
                bytes: vec![7; 32],
            }],
            signing_key_id: 1,
            mode,
            window: Duration::from_secs(5),
        }),
        ..config("a", 1, 100)
    };
    let start = |config| {
        let mut router = Router::new(vec![config], Duration::ZERO);
        router.handle_source(0, Some(SOURCE), Duration::ZERO);
        router
    };
    for (peer, group, addresses) in [
        (PEER, IpAddr::V4(GROUP_V4), "10.0.0.10"),
        (
            "fe80::1".parse().unwrap(),
            crate::GROUP_V6.into(),
            "fe80::10",
        ),
    ] {
        let config = |mode| Config {
            addresses: vec![addresses.parse().unwrap()],
            ..signed(mode)
        };
        let mut sender = start(config(HmacMode::Enforce));
        let packets = sender.packets(0, 150, peer, &[group], unix);
        let [(_, bytes)] = packets.as_slice() else {
            panic!("expected one packet");
        };
        let arrival = ReceivedPacket {
            bytes,
            source: peer,
            destination: group,
            hop_limit: 255,
        };
        let mut receiver = start(config(HmacMode::Enforce));
        let mut receive = |arrival| receiver.handle_packet(0, &arrival, &[], (SECOND, unix));
        assert_eq!(receive(arrival), Ok(()));
        assert_eq!(receive(arrival), Err(IgnoreReason::Replay));
        let mut plain = start(Config {
            hmac: None,
            ..config(HmacMode::Enforce)
        });
        assert_eq!(
            plain.handle_packet(0, &arrival, &[], (SECOND, unix)),
            Err(IgnoreReason::Length)
        );
        let unsigned = plain.packets(0, 150, peer, &[group], unix);
        let unsigned = ReceivedPacket {
            bytes: &unsigned[0].1,
            ..arrival
        };
        assert_eq!(receive(unsigned), Err(IgnoreReason::Authentication));
    }
}

#[test]
fn reload_replaces_the_keys_and_continues_the_sequence_numbers() {
    use crate::hmac::{HmacConfig, HmacKey, HmacMode};
    let unix = Duration::from_secs(1_764_000_000);
    let signed = |id| Config {
        group: None,
        tracked: Vec::new(),
        hmac: Some(HmacConfig {
            keys: vec![HmacKey {
                id,
                bytes: vec![id; 32],
            }],
            signing_key_id: id,
            mode: HmacMode::Enforce,
            window: Duration::from_secs(5),
        }),
        ..config("a", 1, 100)
    };
    let packet = |router: &mut Router| {
        let mut packets = router.packets(0, 150, PEER, &[GROUP_V4.into()], unix);
        packets.remove(0).1
    };
    let mut sender = Router::new(vec![signed(1)], Duration::ZERO);
    let mut receiver = Router::new(vec![signed(1)], Duration::ZERO);
    let receive = |receiver: &mut Router, bytes: &[u8]| {
        let arrival = ReceivedPacket {
            bytes,
            source: PEER,
            destination: GROUP_V4.into(),
            hop_limit: 255,
        };
        receiver.handle_packet(0, &arrival, &[], (SECOND, unix))
    };
    let mut later_sender = Router::new(vec![signed(2)], Duration::ZERO);
    let first_of_key_2 = packet(&mut later_sender);
    packet(&mut sender);
    assert_eq!(receive(&mut receiver, &packet(&mut sender)), Ok(()));
    for router in [&mut sender, &mut receiver] {
        assert_eq!(router.handle_configs(vec![signed(2)], SECOND), [true]);
    }
    // The receiver remembers the last sequence number, and the sender does not start again at its clock.
    let replayed = receive(&mut receiver, &first_of_key_2);
    assert_eq!(replayed, Err(IgnoreReason::Replay));
    assert_eq!(receive(&mut receiver, &packet(&mut sender)), Ok(()));
}

/// While a peer is active on one of two links, the whole group waits; otherwise the group would flap.
#[test]
fn group_waits_while_one_member_receives_advertisements() {
    let mut router = pair();
    for second in 1..60 {
        let now = SECOND * second;
        router.handle_timeout(now);
        receive(&mut router, 2, 150, now).unwrap();
        assert_eq!(states(&router), [State::Backup; 2], "{second}");
    }
    let last = 59 * SECOND;
    while let Some(deadline) = router
        .next_deadline()
        .filter(|deadline| *deadline < last + 4 * SECOND)
    {
        router.handle_timeout(deadline);
        if states(&router) == [State::Active; 2] {
            return;
        }
    }
    panic!("{:?}", states(&router));
}

#[test]
fn group_waits_for_first_results_of_all_members() {
    let mut router = Router::new(
        vec![config("a", 1, 200), config("b", 2, 255)],
        Duration::ZERO,
    );
    for index in 0..2 {
        router.handle_source(index, Some(SOURCE), Duration::ZERO);
    }
    router.handle_tracked(1, 0, TrackedState::Up, Duration::ZERO);
    for second in 1..30 {
        router.handle_timeout(SECOND * second);
    }
    assert_eq!(states(&router), [State::Init, State::Backup]);
    router.handle_tracked(0, 0, TrackedState::Up, 30 * SECOND);
    assert_eq!(states(&router), [State::Backup; 2]);
    router.handle_timeout(router.next_deadline().unwrap());
    assert_eq!(states(&router), [State::Active; 2]);
}

#[test]
fn weight_tracked_by_one_member_changes_priority_of_group() {
    let weighted = |identity: &str, penalty| TrackConfig {
        name: "script /bin/sh".to_owned(),
        identity: identity.to_owned(),
        effect: Effect::Weight { bonus: 0, penalty },
    };
    let config_with = |name, vrid, tracked| Config {
        tracked,
        ..config(name, vrid, 200)
    };
    let shared = weighted("both", 10);
    let mut router = Router::new(
        vec![
            config_with("a", 1, vec![shared.clone(), weighted("first", 20)]),
            config_with("b", 2, vec![shared, weighted("second", 40)]),
            Config {
                group: None,
                ..config_with("c", 3, Vec::new())
            },
        ],
        Duration::ZERO,
    );
    let priorities = |router: &Router| -> Vec<u8> {
        let instances = router.instances();
        instances.map(|(it, _)| it.priority()).collect()
    };
    router.handle_tracked(0, 1, TrackedState::Down, SECOND);
    assert_eq!(priorities(&router), [180, 180, 200]);
    router.handle_tracked(1, 1, TrackedState::Down, SECOND);
    assert_eq!(priorities(&router), [140, 140, 200]);
    // Each member uses its own state of an object that both track.
    router.handle_tracked(0, 0, TrackedState::Down, SECOND);
    assert_eq!(priorities(&router), [130, 140, 200]);
    router.handle_tracked(1, 0, TrackedState::Down, SECOND);
    assert_eq!(priorities(&router), [130, 130, 200]);
    router.handle_configs(vec![config_with("a", 1, Vec::new())], SECOND);
    assert_eq!(priorities(&router), [200]);
}

#[test]
fn bonus_without_result_counts_in_active_group() {
    let script = TrackConfig {
        name: "script /bin/sh".to_owned(),
        identity: "script".to_owned(),
        effect: Effect::Weight {
            bonus: 20,
            penalty: 0,
        },
    };
    let config_with = |name, vrid, tracked| Config {
        tracked,
        ..config(name, vrid, 100)
    };
    let configs = vec![
        config_with("a", 1, Vec::new()),
        config_with("b", 2, vec![script]),
    ];
    let mut router = Router::new(configs, SECOND);
    let priorities = |router: &Router| -> Vec<u8> {
        let instances = router.instances();
        instances.map(|(it, _)| it.priority()).collect()
    };
    let previous = PreviousProcess {
        last_sent: SECOND,
        is_announced: true,
    };
    (0..2).for_each(|index| router.continue_from(index, previous));
    // This router sends its first advertisement before the other one is active.
    assert_eq!(priorities(&router)[0], 120);
    for index in 0..2 {
        router.handle_source(index, Some(SOURCE), SECOND);
    }
    assert_eq!(states(&router), [State::Active; 2]);
    assert_eq!(priorities(&router), [120; 2]);
    receive(&mut router, 2, 200, SECOND).unwrap();
    assert_eq!(states(&router), [State::Backup; 2]);
    assert_eq!(priorities(&router), [100; 2]);
}

/// All members on the peer become backup with the first one. Clients may have cached the peer's MAC address for the
/// addresses of all members.
#[test]
fn all_members_announce_after_packet_with_lower_priority() {
    for (vrid, priority, expected) in [
        (1, 50, &[0, 1][..]),
        (2, 50, &[0, 1]),
        (3, 50, &[2]),
        // The sender was not active.
        (1, 0, &[]),
    ] {
        let mut router = active_pair_and_others();
        activate(&mut router);
        receive(&mut router, vrid, priority, 5 * SECOND).unwrap();
        let outputs = std::iter::from_fn(|| router.poll_output());
        let announcing: Vec<usize> = outputs
            .filter(|(_, output)| matches!(output, Output::Announce { .. }))
            .map(|(index, _)| index)
            .collect();
        assert_eq!(announcing, expected, "{vrid}");
    }
}

#[test]
fn unicast_min_ttl_limits_accepted_packets() {
    for (min_ttl, hop_limit, expected) in [
        (255, 254, Err(IgnoreReason::HopLimit)),
        (254, 254, Ok(())),
        (254, 253, Err(IgnoreReason::HopLimit)),
        (1, 1, Ok(())),
    ] {
        let mut router = Router::new(
            vec![Config {
                unicast_min_ttl: min_ttl,
                ..config("a", 1, 200)
            }],
            Duration::ZERO,
        );
        router.handle_source(0, Some(SOURCE), Duration::ZERO);
        let bytes = packet(1, 100);
        let arrival = ReceivedPacket {
            bytes: &bytes,
            source: PEER,
            destination: SOURCE,
            hop_limit,
        };
        let result = router.handle_packet(0, &arrival, &[PEER], (SECOND, Duration::ZERO));
        assert_eq!(result, expected, "{min_ttl} {hop_limit}");
    }
}

#[test]
fn other_id_with_the_same_address_is_a_conflict_until_its_router_is_silent() {
    let mut router = pair();
    let mut receive = |address: &str, priority: u8, source: IpAddr, now: Duration| {
        let other_config = Config {
            addresses: vec![address.parse().unwrap()],
            ..config("a", 9, 100)
        };
        let bytes = Instance::new(other_config, Duration::ZERO)
            .advertisement(priority)
            .encode(source, GROUP_V4.into(), ChecksumForm::Plain);
        let arrival = ReceivedPacket {
            bytes: &bytes,
            source,
            destination: GROUP_V4.into(),
            hop_limit: 255,
        };
        let received = router.handle_packet(0, &arrival, &[], (now, Duration::ZERO));
        assert_eq!(received, Err(IgnoreReason::RouterId));
        let instance = router.instance(0).unwrap();
        let conflict = |now| instance.id_conflict(now).map(|it| (it.sender, it.vrid));
        let end = now + SECOND * 3;
        assert_eq!(conflict(now), conflict(end - Duration::from_nanos(1)));
        (conflict(now), conflict(end))
    };
    assert_eq!(receive("10.0.0.11", 200, PEER, SECOND), (None, None));
    assert_eq!(receive("10.0.0.10", 200, SOURCE, SECOND), (None, None));
    let actual = receive("10.0.0.10", 200, PEER, SECOND);
    assert_eq!(actual, (Some((PEER, 9)), None));
    assert_eq!(receive("10.0.0.10", 0, PEER, SECOND), (None, None));
}

#[test]
fn blocked_router_puts_its_group_into_the_fault_state() {
    let mut router = active_pair();
    router.handle_block(1, Some("blocked by an operator"), 4 * SECOND);
    assert_eq!(states(&router), [State::Fault; 2]);
    let reasons: Vec<&str> = router.instances().map(|(it, _)| it.reason()).collect();
    let expected = [
        "b of the same group is in the fault state",
        "blocked by an operator",
    ];
    assert_eq!(reasons, expected);
    router.handle_block(1, None, 5 * SECOND);
    assert_eq!(states(&router), [State::Backup; 2]);
}

#[test]
fn own_fault_has_precedence_over_that_of_another_member() {
    let mut router = pair();
    router.handle_tracked(0, 0, TrackedState::Down, SECOND);
    let reason = |router: &Router, index| router.instance(index).unwrap().reason().to_owned();
    let fault_of_a = reason(&router, 0);
    assert_ne!(fault_of_a, "b of the same group is in the fault state");
    router.handle_source(1, None, SECOND);
    assert_eq!(states(&router), [State::Fault; 2]);
    assert_eq!(reason(&router, 0), fault_of_a);
}

/// A member that waits for its first results has not started, so it cannot fail.
#[test]
fn fault_of_another_member_does_not_end_the_initial_state() {
    let mut router = Router::new(
        vec![config("a", 1, 200), config("b", 2, 100)],
        Duration::ZERO,
    );
    router.handle_source(0, Some(SOURCE), Duration::ZERO);
    router.handle_tracked(1, 0, TrackedState::Down, Duration::ZERO);
    assert_eq!(states(&router), [State::Init, State::Fault]);
}

#[test]
fn active_peer_is_reported_with_its_priority() {
    let mut router = pair();
    receive(&mut router, 1, 200, SECOND).unwrap();
    let peer = router.instance(0).unwrap().active_peer().unwrap();
    assert_eq!((peer.address, peer.priority), (PEER, 200));
    receive(&mut router, 1, 0, SECOND).unwrap();
    assert_eq!(router.instance(0).unwrap().active_peer(), None);
}
