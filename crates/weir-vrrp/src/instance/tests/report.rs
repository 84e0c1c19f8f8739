//! Tests the values and reasons that the status shows.

use super::*;

#[test]
fn takeover_reason_depends_on_received_advertisements() {
    let reason = |packets: &[(u8, u32)], preempt_delay: u32| {
        let mut instance = started(Config {
            preempt_delay: preempt_delay * SECOND,
            ..config(100)
        });
        for (priority, second) in packets {
            let packet = peer_packet(*priority, SECOND);
            let now = *second * SECOND;
            instance.handle_packet(&packet, LOWER, now).unwrap();
        }
        instance.handle_timeout(instance.next_deadline().unwrap());
        assert_eq!(instance.state(), State::Active);
        instance.reason().to_owned()
    };
    assert_eq!(reason(&[], 0), "no other director is active");
    assert_eq!(reason(&[(200, 1)], 0), "no advertisement from 10.0.0.1");
    assert_eq!(reason(&[(50, 1)], 0), "10.0.0.1 has a lower priority");
    assert_eq!(reason(&[(50, 1)], 9), "10.0.0.1 has a lower priority");
    assert_eq!(
        reason(&[(50, 1), (200, 2)], 9),
        "no advertisement from 10.0.0.1"
    );
    assert_eq!(
        reason(&[(200, 1), (0, 2)], 0),
        "no other director is active"
    );
}

#[test]
fn reason_explains_a_start_or_a_lost_election() {
    let mut instance = started(config(100));
    assert_eq!(instance.reason(), "started");
    instance.handle_source(None, SECOND);
    instance.handle_source(Some(SOURCE), 2 * SECOND);
    assert_eq!(instance.reason(), "recovered from a fault");
    for (priority, expected) in [
        (101, "10.0.0.3 has a higher priority"),
        (100, "10.0.0.3 has a higher address"),
    ] {
        let (mut instance, now) = active();
        let packet = peer_packet(priority, SECOND);
        instance.handle_packet(&packet, HIGHER, now).unwrap();
        assert_eq!(instance.state(), State::Backup);
        assert_eq!(instance.reason(), expected);
    }
}

#[test]
fn times_of_the_last_state_change_and_advertisement_are_reported() {
    let mut instance = Instance::new(config(100), SECOND);
    let times = |instance: &Instance| (instance.since(), instance.last_sent());
    assert_eq!(times(&instance), (SECOND, SECOND));
    instance.handle_source(Some(SOURCE), 2 * SECOND);
    assert_eq!(times(&instance), (2 * SECOND, SECOND));
    let start = instance.next_deadline().unwrap();
    instance.handle_timeout(start);
    assert_eq!(times(&instance), (start, start));
    instance.handle_timeout(start + SECOND);
    assert_eq!(times(&instance), (start, start + SECOND));
}

#[test]
fn router_that_loses_the_election_adopts_the_interval_of_the_active_router() {
    let (mut instance, now) = active();
    let packet = peer_packet(200, 2 * SECOND);
    instance.handle_packet(&packet, LOWER, now).unwrap();
    let down = 3 * 2 * SECOND + 2 * SECOND * 156 / 256;
    assert_eq!(instance.down_interval(), down);
    assert_eq!(instance.next_deadline(), Some(now + down));
}

/// Sent packets have the form of the last received packet, so that its sender accepts them.
#[test]
fn checksum_form_follows_the_last_packet_or_the_configuration() {
    let mut instance = started(Config {
        checksum: ChecksumForm::GroupPseudoHeader,
        ..config(100)
    });
    assert_eq!(instance.checksum(), ChecksumForm::GroupPseudoHeader);
    for checksum in [ChecksumForm::PseudoHeader, ChecksumForm::Plain] {
        let packet = DecodedPacket {
            checksum,
            ..peer_packet(200, SECOND)
        };
        instance.handle_packet(&packet, LOWER, SECOND).unwrap();
        assert_eq!(instance.checksum(), checksum);
    }
}

#[test]
fn packet_without_addresses_is_accepted_only_by_a_router_without_addresses() {
    let mut packet = peer_packet(200, SECOND);
    packet.advertisement.addresses.clear();
    let mut instance = started(config(100));
    let result = instance.handle_packet(&packet, LOWER, SECOND);
    assert_eq!(result, Err(IgnoreReason::Addresses));
    let mut instance = started(Config {
        addresses: Vec::new(),
        ..config(100)
    });
    for packet in [packet, peer_packet(200, SECOND)] {
        assert_eq!(instance.handle_packet(&packet, LOWER, SECOND), Ok(()));
    }
    assert_eq!(
        instance.mismatches(),
        1,
        "only the second packet has addresses"
    );
}

#[test]
fn router_can_start_at_the_end_of_the_start_delay() {
    let mut instance = Instance::new(
        Config {
            start_delay: 10 * SECOND,
            ..config(100)
        },
        Duration::ZERO,
    );
    let last = 10 * SECOND - Duration::from_nanos(1);
    for (now, expected) in [(last, State::Init), (10 * SECOND, State::Backup)] {
        instance.handle_source(Some(SOURCE), now);
        assert_eq!(instance.state(), expected, "{now:?}");
    }
}
