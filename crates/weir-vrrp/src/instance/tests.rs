//! Tests one virtual router with packets and timeouts in virtual time.

use super::*;
use crate::settings::Effect;

mod report;

const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const LOWER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const HIGHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));
const SECOND: Duration = Duration::from_secs(1);

fn config(priority: u8) -> Config {
    Config {
        name: "outside".to_owned(),
        version: Version::V3,
        vrid: 51,
        priority,
        interval: SECOND,
        addresses: vec!["10.0.0.10".parse().unwrap()],
        preempt: true,
        group: None,
        ..Config::default()
    }
}

fn started(config: Config) -> Instance {
    let mut instance = Instance::new(config, Duration::ZERO);
    instance.handle_source(Some(SOURCE), Duration::ZERO);
    drain(&mut instance);
    instance
}

fn drain(instance: &mut Instance) -> Vec<Output> {
    std::iter::from_fn(|| instance.poll_output()).collect()
}

fn peer_packet(priority: u8, interval: Duration) -> DecodedPacket {
    let advertisement = Advertisement {
        interval,
        ..Instance::new(config(100), Duration::ZERO).advertisement(priority)
    };
    DecodedPacket {
        advertisement,
        checksum: ChecksumForm::Plain,
        length: 12,
    }
}

/// Returns a previous process that sent its last advertisement at 9 s.
fn previous(is_announced: bool) -> PreviousProcess {
    PreviousProcess {
        last_sent: 9 * SECOND,
        is_announced,
    }
}

/// Returns an active router with priority 100, and the time at which it became active.
fn active() -> (Instance, Duration) {
    let mut instance = started(config(100));
    let now = instance.next_deadline().unwrap();
    instance.handle_timeout(now);
    assert_eq!(instance.state(), State::Active);
    drain(&mut instance);
    (instance, now)
}

#[test]
fn backup_becomes_active_after_three_intervals_and_skew() {
    let mut instance = started(config(100));
    assert_eq!(instance.state(), State::Backup);
    let expiry = 3 * SECOND + SECOND * 156 / 256;
    assert_eq!(instance.next_deadline(), Some(expiry));
    instance.handle_timeout(expiry - Duration::from_nanos(1));
    assert_eq!(instance.state(), State::Backup);
    instance.handle_timeout(expiry);
    let expected = [
        Output::Send { priority: 100 },
        Output::Changed {
            from: State::Backup,
            to: State::Active,
        },
        Output::Announce { repeat: 5 },
    ];
    assert_eq!(drain(&mut instance), expected);
}

#[test]
fn owner_becomes_active_immediately() {
    assert_eq!(started(config(255)).state(), State::Active);
}

#[test]
fn backup_adopts_interval_of_active_router() {
    let mut instance = started(config(156));
    let interval = Duration::from_millis(100);
    instance
        .handle_packet(&peer_packet(200, interval), LOWER, SECOND)
        .unwrap();
    let down = 3 * interval + interval * 100 / 256;
    assert_eq!(instance.next_deadline(), Some(SECOND + down));
    assert_eq!(instance.active_peer().map(|it| it.address), Some(LOWER));
}

#[test]
fn version_2_requires_same_interval_and_skew_is_fraction_of_second() {
    let mut settings = config(100);
    settings.version = Version::V2;
    settings.interval = 2 * SECOND;
    let mut instance = started(settings);
    assert_eq!(
        instance.next_deadline(),
        Some(6 * SECOND + SECOND * 156 / 256)
    );
    let mut other = peer_packet(200, SECOND);
    other.advertisement.version = Version::V2;
    assert_eq!(
        instance.handle_packet(&other, LOWER, SECOND),
        Err(IgnoreReason::Interval)
    );
    other.advertisement.interval = 2 * SECOND;
    assert_eq!(instance.handle_packet(&other, LOWER, SECOND), Ok(()));
    other.advertisement.password = Some(*b"other\0\0\0");
    assert_eq!(
        instance.handle_packet(&other, LOWER, SECOND),
        Err(IgnoreReason::Authentication)
    );
}

#[test]
fn priority_0_shortens_down_timer_to_skew() {
    let mut instance = started(config(100));
    instance
        .handle_packet(&peer_packet(200, SECOND), LOWER, SECOND)
        .unwrap();
    instance
        .handle_packet(&peer_packet(0, SECOND), LOWER, SECOND)
        .unwrap();
    assert_eq!(instance.next_deadline(), Some(SECOND + SECOND * 156 / 256));
}

#[test]
fn lower_priority_is_preempted_unless_preemption_is_disabled_or_delayed() {
    let (low, now) = (peer_packet(50, SECOND), 3 * SECOND);
    for (preempt, delay, restarts) in [(true, 0, false), (false, 0, true), (true, 60, true)] {
        let mut settings = config(100);
        settings.preempt = preempt;
        settings.preempt_delay = Duration::from_secs(delay);
        let mut instance = started(settings);
        let before = instance.next_deadline();
        instance.handle_packet(&low, LOWER, now).unwrap();
        assert_eq!(
            instance.next_deadline() != before,
            restarts,
            "{preempt} {delay}"
        );
    }
}

#[test]
fn preemption_happens_after_its_delay() {
    let mut settings = config(100);
    settings.preempt_delay = 10 * SECOND;
    let mut instance = started(settings);
    for second in 1..=60 {
        let now = SECOND * second;
        while let Some(deadline) = instance.next_deadline().filter(|deadline| *deadline <= now) {
            instance.handle_timeout(deadline);
        }
        if instance.state() == State::Active {
            // The first packet arrives after 1 s, the delay is 10 s, and the last packet restarted the down timer.
            assert_eq!(second, 14);
            return;
        }
        instance
            .handle_packet(&peer_packet(50, SECOND), LOWER, now)
            .unwrap();
    }
    panic!("{:?}", instance.state());
}

#[test]
fn higher_address_wins_if_priorities_are_equal() {
    let (mut instance, now) = active();
    instance
        .handle_packet(&peer_packet(100, SECOND), LOWER, now)
        .unwrap();
    assert_eq!(instance.state(), State::Active);
    assert_eq!(drain(&mut instance)[0], Output::Send { priority: 100 });
    instance
        .handle_packet(&peer_packet(100, SECOND), HIGHER, now)
        .unwrap();
    assert_eq!(instance.state(), State::Backup);
    // The final advertisement makes the other router announce the addresses.
    assert_eq!(
        drain(&mut instance),
        [
            Output::Send { priority: 100 },
            Output::Changed {
                from: State::Active,
                to: State::Backup
            }
        ]
    );
}

#[test]
fn addresses_are_announced_after_packets_with_lower_priority() {
    let announce = Output::Announce { repeat: 5 };
    let (mut instance, start) = active();
    let receive = |instance: &mut Instance, now| {
        instance
            .handle_packet(&peer_packet(50, SECOND), LOWER, now)
            .unwrap();
        drain(instance)
    };
    let first = start + SECOND;
    assert_eq!(
        receive(&mut instance, first),
        [Output::Send { priority: 100 }, announce]
    );
    // The router announces at most once a second, and again one second after the last packet.
    let last = first + SECOND / 2;
    assert_eq!(
        receive(&mut instance, last),
        [Output::Send { priority: 100 }]
    );
    assert_eq!(instance.next_deadline(), Some(first + SECOND));
    instance.handle_timeout(first + SECOND);
    assert_eq!(drain(&mut instance), [announce]);
    assert_eq!(instance.next_deadline(), Some(last + SECOND));
}

#[test]
fn announcement_is_repeated_once_by_default() {
    let (mut instance, start) = active();
    let mut announced = 0;
    for tick in 1..20 {
        instance.handle_timeout(start + SECOND * tick);
        announced += drain(&mut instance)
            .iter()
            .filter(|it| **it == Output::Announce { repeat: 5 })
            .count();
    }
    assert_eq!(announced, 1);
}

#[test]
fn stalled_active_router_becomes_backup_without_sending() {
    let (mut instance, start) = active();
    let now = start + 3 * SECOND;
    // Without the stall, this packet with a lower priority would make the router assert its state.
    instance
        .handle_packet(&peer_packet(50, SECOND), LOWER, now)
        .unwrap();
    assert_eq!(
        drain(&mut instance),
        [Output::Changed {
            from: State::Active,
            to: State::Backup
        }]
    );
    assert_eq!(
        instance.next_deadline(),
        Some(now + instance.down_interval())
    );
    let (mut instance, start) = active();
    instance.handle_timeout(start + 2 * SECOND);
    assert_eq!(drain(&mut instance), [Output::Send { priority: 100 }]);
    // After a stall, the router sends nothing, not even a final advertisement.
    instance.handle_source(None, start + 30 * SECOND);
    assert_eq!(
        drain(&mut instance),
        [Output::Changed {
            from: State::Active,
            to: State::Fault
        }]
    );
}

#[test]
fn stalled_backup_restarts_down_timer() {
    let mut instance = started(config(100));
    let now = Duration::from_mins(1);
    instance.handle_timeout(now);
    assert_eq!(instance.state(), State::Backup);
    instance.handle_timeout(now + instance.down_interval());
    assert_eq!(instance.state(), State::Active);
}

#[test]
fn tracked_objects_change_priority_and_cause_faults() {
    let mut settings = config(100);
    let tracked = |name: &str, effect| TrackConfig {
        name: name.to_owned(),
        identity: name.to_owned(),
        effect,
    };
    settings.tracked = vec![
        tracked(
            "script a",
            Effect::Weight {
                bonus: 10,
                penalty: 20,
            },
        ),
        tracked("interface eth1", Effect::Fault),
        tracked("file /f", Effect::Factor(1)),
    ];
    let mut instance = started(settings);
    assert_eq!(instance.state(), State::Init);
    assert_eq!(
        instance.reason(),
        "waiting for the first result of script a"
    );
    for (index, state) in [TrackedState::Up, TrackedState::Up, TrackedState::Number(-7)]
        .into_iter()
        .enumerate()
    {
        instance.handle_tracked(index, state, SECOND);
    }
    assert_eq!(
        (instance.state(), instance.priority()),
        (State::Backup, 103)
    );
    instance.handle_tracked(0, TrackedState::Down, SECOND);
    instance.handle_tracked(2, TrackedState::Number(i32::MAX), SECOND);
    assert_eq!(instance.priority(), 254);
    instance.handle_tracked(2, TrackedState::Number(-253), SECOND);
    assert_eq!(instance.priority(), 1);
    instance.handle_tracked(1, TrackedState::Down, SECOND);
    assert_eq!(
        (instance.state(), instance.reason()),
        (State::Fault, "interface eth1 has failed")
    );
    assert_eq!(instance.next_deadline(), None);
    instance.handle_tracked(1, TrackedState::Up, SECOND);
    assert_eq!(instance.state(), State::Backup);
}

#[test]
fn stop_and_release_send_priority_0() {
    for stop in [true, false] {
        let (mut instance, now) = active();
        let to = if stop {
            instance.stop(now);
            State::Init
        } else {
            instance.handle_block(Some("released"), now);
            State::Fault
        };
        let expected = [
            Output::Send { priority: 0 },
            Output::Changed {
                from: State::Active,
                to,
            },
        ];
        assert_eq!(drain(&mut instance), expected);
    }
}

#[test]
fn differing_addresses_are_counted_but_accepted() {
    let mut instance = started(config(100));
    let mut other = peer_packet(200, SECOND);
    other.advertisement.addresses = vec!["10.0.0.11".parse().unwrap()];
    assert_eq!(instance.mismatches(), 0);
    instance.handle_packet(&other, LOWER, SECOND).unwrap();
    assert_eq!(
        (
            instance.mismatches(),
            instance.active_peer().map(|it| it.address)
        ),
        (1, Some(LOWER))
    );
    assert!(instance.peer_addresses_differ());
    instance
        .handle_packet(&peer_packet(200, SECOND), LOWER, SECOND)
        .unwrap();
    assert!(!instance.peer_addresses_differ());
    assert_eq!(
        instance.handle_packet(&other, SOURCE, SECOND),
        Err(IgnoreReason::Own)
    );
}

#[test]
fn router_starts_after_start_delay() {
    let mut instance = started(Config {
        start_delay: 10 * SECOND,
        ..config(255)
    });
    assert_eq!(instance.state(), State::Init);
    assert_eq!(instance.reason(), "waiting for the start delay to end");
    assert_eq!(instance.next_deadline(), Some(10 * SECOND));
    instance.handle_timeout(10 * SECOND);
    assert_eq!(instance.state(), State::Active);
}

#[test]
fn restarted_active_router_continues_unless_it_is_late() {
    for (is_late, state) in [(false, State::Active), (true, State::Backup)] {
        let mut instance = Instance::new(config(100), 9 * SECOND);
        instance.continue_from(previous(true));
        let now = if is_late { 12 * SECOND } else { 11 * SECOND };
        instance.handle_source(Some(SOURCE), now);
        assert_eq!(instance.state(), state);
        let has_sent = drain(&mut instance).contains(&Output::Send { priority: 100 });
        assert_eq!(has_sent, !is_late);
    }
}

#[test]
fn restarted_active_router_announces_only_if_takeover_was_not_announced() {
    for is_announced in [true, false] {
        let mut instance = Instance::new(config(100), 9 * SECOND);
        instance.continue_from(previous(is_announced));
        instance.handle_source(Some(SOURCE), 10 * SECOND);
        let has_announced = |outputs: Vec<Output>| {
            let mut outputs = outputs.iter();
            outputs.any(|it| matches!(it, Output::Announce { .. }))
        };
        assert_eq!(has_announced(drain(&mut instance)), !is_announced);
        for second in 11..20 {
            instance.handle_timeout(second * SECOND);
        }
        assert_eq!(instance.state(), State::Active);
        assert_eq!(has_announced(drain(&mut instance)), !is_announced);
    }
}

#[test]
fn backup_counts_lost_advertisements_of_the_active_router() {
    let mut instance = started(config(100));
    let mut receive = |priority, time| {
        let packet = peer_packet(priority, SECOND);
        let now = time * SECOND;
        instance.handle_packet(&packet, HIGHER, now).unwrap();
        instance.lost()
    };
    let lost = [1, 2, 4, 5, 6].map(|time| receive(200, time));
    assert_eq!(lost, [0, 0, 0, 1, 1]);
    // The active router stops and starts again.
    receive(0, 7);
    let lost = [9, 10, 11].map(|time| receive(200, time));
    assert_eq!(lost, [1, 1, 1]);
}

#[test]
fn file_number_is_multiplied_by_its_factor_as_in_keepalived() {
    let priority = |factor, number| {
        let mut settings = config(100);
        settings.tracked = vec![TrackConfig {
            name: "file /f".to_owned(),
            identity: "f".to_owned(),
            effect: Effect::Factor(factor),
        }];
        let mut instance = started(settings);
        instance.handle_tracked(0, TrackedState::Number(number), SECOND);
        let priority = instance.priority();
        (instance.state() != State::Fault).then_some(priority)
    };
    for (factor, number, expected) in [
        (1, 0, Some(100)),
        (1, -7, Some(93)),
        (10, 3, Some(130)),
        (-10, 3, Some(70)),
        (-10, -3, Some(130)),
        (2, 1000, Some(254)),
        (1, -253, Some(1)),
        (1, -254, None),
        (-254, 1, None),
        (254, i32::MIN, None),
        (254, i32::MAX, Some(254)),
        (0, 0, Some(100)),
        (0, 1, None),
        (0, -1, None),
    ] {
        assert_eq!(priority(factor, number), expected, "{factor} * {number}");
    }
}

#[test]
fn fault_reason_contains_the_number() {
    let mut settings = config(100);
    settings.tracked = vec![TrackConfig {
        name: "file /f".to_owned(),
        identity: "f".to_owned(),
        effect: Effect::Factor(0),
    }];
    let mut instance = started(settings);
    instance.handle_tracked(0, TrackedState::Number(3), SECOND);
    assert_eq!(instance.reason(), "file /f contains 3");
    instance.handle_tracked(0, TrackedState::Number(0), SECOND);
    assert_eq!(instance.state(), State::Backup);
}

#[test]
fn addresses_are_announced_again_as_configured() {
    let mut instance = started(Config {
        announcements: Announcements {
            repeat: 2,
            second_announcement_delay: 3 * SECOND,
            refresh: 10 * SECOND,
            refresh_repeat: 7,
        },
        ..config(255)
    });
    let mut announced = Vec::new();
    while let Some(deadline) = instance
        .next_deadline()
        .filter(|deadline| *deadline < 25 * SECOND)
    {
        instance.handle_timeout(deadline);
        for output in drain(&mut instance) {
            if let Output::Announce { repeat } = output {
                announced.push((deadline, repeat));
            }
        }
    }
    assert_eq!(
        announced,
        [(3 * SECOND, 2), (10 * SECOND, 7), (20 * SECOND, 7)]
    );
}

#[test]
fn changed_refresh_interval_starts_with_the_reload() {
    let with_refresh = |seconds: u64| Config {
        announcements: Announcements {
            second_announcement_delay: Duration::ZERO,
            refresh: Duration::from_secs(seconds),
            ..Announcements::default()
        },
        ..config(255)
    };
    // The new interval, and the times of announcements after a reload at 5 s.
    for (refresh, expected) in [(10, &[10][..]), (8, &[13]), (4, &[9, 13]), (0, &[])] {
        let mut instance = started(with_refresh(10));
        let mut announced = Vec::new();
        for second in 1..=14 {
            let now = second * SECOND;
            if second == 5 {
                instance.handle_config(with_refresh(refresh), now);
            }
            instance.handle_timeout(now);
            if drain(&mut instance).contains(&Output::Announce { repeat: 1 }) {
                announced.push(second);
            }
        }
        assert_eq!(announced, expected, "{refresh}");
    }
}

#[test]
fn router_in_fault_state_reports_the_active_peer() {
    let mut instance = started(config(100));
    instance.handle_source(None, Duration::ZERO);
    assert_eq!(instance.state(), State::Fault);
    for (priority, expected) in [(200, Some(200)), (1, Some(1)), (0, None)] {
        let packet = peer_packet(priority, SECOND);
        instance.handle_packet(&packet, LOWER, SECOND).unwrap();
        let peer = instance.active_peer();
        assert_eq!(peer.map(|peer| peer.priority), expected);
    }
}

#[test]
fn down_adverts_sets_down_interval() {
    let instance = started(Config {
        down_adverts: 5,
        ..config(100)
    });
    assert_eq!(
        instance.next_deadline(),
        Some(5 * SECOND + SECOND * 156 / 256)
    );
}

/// With keepalived's `down_timer_adverts 1`, the timer of an active router expires after one interval, which is not a
/// stall.
#[test]
fn down_adverts_1_does_not_cause_stalls() {
    let mut instance = started(Config {
        down_adverts: 1,
        ..config(100)
    });
    let start = instance.next_deadline().unwrap();
    assert_eq!(start, SECOND + SECOND * 156 / 256);
    instance.handle_timeout(start);
    for second in 1..10 {
        instance.handle_timeout(start + SECOND * second);
        assert_eq!(instance.state(), State::Active);
    }
    instance.handle_timeout(start + 11 * SECOND);
    assert_eq!(instance.state(), State::Backup);
}

#[test]
fn link_that_fails_and_recovers_does_not_shorten_start_delay() {
    let mut settings = config(255);
    settings.start_delay = 10 * SECOND;
    settings.tracked = vec![TrackConfig {
        name: "script /x".to_owned(),
        identity: "script /x".to_owned(),
        effect: Effect::Fault,
    }];
    let mut instance = started(settings);
    instance.handle_source(None, SECOND);
    assert_eq!(instance.state(), State::Fault);
    instance.handle_source(Some(SOURCE), 2 * SECOND);
    assert_eq!(
        (instance.state(), instance.reason()),
        (State::Fault, "waiting for the start delay to end")
    );
    instance.handle_timeout(10 * SECOND);
    assert_eq!(
        (instance.state(), instance.reason()),
        (State::Fault, "waiting for the first result of script /x")
    );
    instance.handle_tracked(0, TrackedState::Up, 11 * SECOND);
    assert_eq!(instance.state(), State::Active);
}

#[test]
fn backup_adopts_changed_interval_in_version_2_or_without_active_router() {
    let longer = |version| {
        let interval = 5 * SECOND;
        Config {
            version,
            interval,
            ..config(156)
        }
    };
    let mut version_2 = started(Config {
        version: Version::V2,
        ..config(156)
    });
    version_2.handle_config(longer(Version::V2), SECOND);
    let expected = SECOND + 15 * SECOND + SECOND * 100 / 256;
    assert_eq!(version_2.next_deadline(), Some(expected));
    let mut alone = started(config(156));
    alone.handle_config(longer(Version::V3), SECOND);
    let expected = SECOND + 15 * SECOND + 5 * SECOND * 100 / 256;
    assert_eq!(alone.next_deadline(), Some(expected));
    // In version 3, the active router's interval applies.
    let mut version_3 = started(config(156));
    version_3
        .handle_packet(&peer_packet(200, SECOND), LOWER, SECOND)
        .unwrap();
    let before = version_3.next_deadline();
    version_3.handle_config(longer(Version::V3), SECOND);
    assert_eq!(version_3.next_deadline(), before);
}

/// Until the next advertisement, other routers apply the interval of the last one.
#[test]
fn changed_interval_neither_causes_nor_hides_a_stall() {
    let with_interval = |interval| Config {
        interval,
        ..config(100)
    };
    let (mut instance, start) = active();
    let now = start + Duration::from_millis(700);
    instance.handle_config(with_interval(Duration::from_millis(100)), now);
    let next = Some(start + Duration::from_millis(800));
    assert_eq!(instance.next_deadline(), next);
    instance.handle_timeout(now);
    assert_eq!(
        (instance.state(), instance.next_deadline()),
        (State::Active, Some(start + Duration::from_millis(800)))
    );
    instance.handle_timeout(start + Duration::from_millis(800));
    assert_eq!(drain(&mut instance), [Output::Send { priority: 100 }]);
    instance.handle_timeout(start + Duration::from_millis(1100));
    assert_eq!(instance.state(), State::Backup);

    let (mut instance, start) = active();
    instance.handle_config(with_interval(10 * SECOND), start + 3 * SECOND);
    instance.handle_timeout(start + 3 * SECOND);
    assert_eq!(instance.state(), State::Backup);
}

fn config_with_bonuses(names: &[&str]) -> Config {
    let tracked = names.iter().map(|name| TrackConfig {
        name: (*name).to_owned(),
        identity: (*name).to_owned(),
        effect: Effect::Weight {
            bonus: 20,
            penalty: 10,
        },
    });
    Config {
        tracked: tracked.collect(),
        ..config(100)
    }
}

#[test]
fn tracked_objects_keep_their_states_after_reload() {
    let mut instance = started(config_with_bonuses(&["a"]));
    instance.handle_tracked(0, TrackedState::Up, Duration::ZERO);
    instance.handle_config(config_with_bonuses(&["b", "a"]), SECOND);
    assert_eq!(
        (instance.state(), instance.priority()),
        (State::Backup, 120)
    );
    let states: Vec<TrackedState> = instance.tracked().map(|(_, state)| state).collect();
    assert_eq!(states, [TrackedState::Unknown, TrackedState::Up]);
}

#[test]
fn active_router_counts_bonuses_until_first_results() {
    let mut instance = Instance::new(config_with_bonuses(&["a"]), 9 * SECOND);
    instance.continue_from(previous(true));
    instance.handle_source(Some(SOURCE), 10 * SECOND);
    let sent = drain(&mut instance);
    assert!(sent.contains(&Output::Send { priority: 120 }), "{sent:?}");
    assert_eq!(instance.priority(), 120);
    instance.handle_config(config_with_bonuses(&["a", "b"]), 11 * SECOND);
    assert_eq!(instance.priority(), 140);
    instance.handle_tracked(0, TrackedState::Down, 11 * SECOND);
    assert_eq!(instance.priority(), 110);
}

#[test]
fn source_is_announced_when_router_starts_or_recovers() {
    let mut instance = Instance::new(config(100), Duration::ZERO);
    let mut is_announced = |source, now| {
        instance.handle_source(source, now);
        drain(&mut instance).contains(&Output::AnnounceSource)
    };
    assert!(is_announced(Some(SOURCE), Duration::ZERO));
    assert!(!is_announced(None, SECOND));
    assert!(is_announced(Some(SOURCE), 2 * SECOND));
    assert!(!is_announced(Some(SOURCE), 3 * SECOND));
}

#[test]
fn first_election_ends_if_a_peer_is_active_or_a_fault_occurs() {
    let is_first = |change: &dyn Fn(&mut Instance)| {
        let mut instance = started(config(100));
        assert!(instance.is_first_election());
        change(&mut instance);
        instance.is_first_election()
    };
    let receive = |priority: u8| {
        move |instance: &mut Instance| {
            let packet = peer_packet(priority, SECOND);
            instance.handle_packet(&packet, LOWER, SECOND).unwrap();
        }
    };
    // Priority 0: the other router releases the addresses.
    assert!(is_first(&receive(0)));
    // A lower priority ends the election too, although this router will take over.
    assert!(!is_first(&receive(1)));
    assert!(!is_first(&receive(200)));
    assert!(!is_first(&|it| it.handle_source(None, SECOND)));
    assert!(!is_first(&|it| it.handle_block(Some("released"), SECOND)));
    assert!(!is_first(&|it| it.stop(SECOND)));
    let (mut instance, now) = active();
    assert!(!instance.is_first_election());
    instance
        .handle_packet(&peer_packet(200, SECOND), HIGHER, now)
        .unwrap();
    assert_eq!(instance.state(), State::Backup);
    assert!(!instance.is_first_election());
    // An advertisement also ends the election before the router has started.
    let mut instance = Instance::new(config(100), Duration::ZERO);
    assert!(instance.is_first_election());
    instance
        .handle_packet(&peer_packet(50, SECOND), LOWER, SECOND)
        .unwrap();
    assert!(!instance.is_first_election());
}
