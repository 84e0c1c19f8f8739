//! Tests the estimator's limits, and the slots of its table.

use super::*;

#[test]
fn first_payload_is_classified_by_its_first_bytes() {
    for (payload, expected) in [
        (&[0x16, 3, 1, 2][..], FirstPayload::Tls),
        (&[0x16, 3, 3], FirstPayload::Tls),
        (&[0x16, 3], FirstPayload::Other),
        (&[0x16, 2, 1], FirstPayload::Other),
        (&[0x17, 3, 3], FirstPayload::Other),
        (b"PRI * HTTP/2.0", FirstPayload::Preface),
        (b"PRI", FirstPayload::Preface),
        (b"PR", FirstPayload::Other),
        (b"PUT / HTTP/1.1", FirstPayload::Other),
        (b"", FirstPayload::Other),
    ] {
        assert_eq!(FirstPayload::from_bytes(payload), expected, "{payload:?}");
    }
}

#[test]
fn clock_unit_is_microseconds_if_milliseconds_exceed_the_age_or_microseconds_fit() {
    const AGE: u64 = 100 * MS;
    const LOOP: u64 = 10 * MS;
    for (clock, loop_ns, request_offset, expected) in [
        (90, LOOP, 20 * MS, MS),
        // The timestamp of a SYN cookie is up to 63 units too low.
        (264, LOOP, 20 * MS, MS),
        (265, LOOP, 20 * MS, US),
        // The response was not sent before the request, which arrived up to 264 us after the SYN.
        (200, LOOP, 264 * US, US),
        (200, LOOP, 264 * US + 1, MS),
        // The acknowledgement takes as long as in the handshake.
        (200, AGE - 200 * US, 264 * US, US),
        (200, AGE - 200 * US + 1, 264 * US, MS),
        // Milliseconds also fit, with a tolerance of 4 ms.
        (104, LOOP, 0, MS),
        (105, LOOP, 0, US),
    ] {
        let unit = clock_unit(clock, AGE, loop_ns, request_offset);
        assert_eq!(unit, expected, "{clock} {loop_ns} {request_offset}");
    }
}

#[test]
fn handshake_may_take_900_ms_and_is_used_for_10_s() {
    for (us, reasons) in [(900_000, &[][..]), (900_001, &[Reason::HandshakeLate])] {
        let mut connection = Connection::new(1);
        connection.syn(0);
        (connection.seq, connection.ack) = (connection.seq + 1, connection.ack + 1);
        connection.acknowledge(us, 0, 0);
        connection.check(&[], reasons);
    }
    for (us, expected, reasons) in [
        (10_000_000, &[4_000][..], &[][..]),
        (10_000_001, &[], &[Reason::AnchorOld]),
    ] {
        let mut connection = Connection::new(1).open();
        connection.payload(9_986_000, 200, 0);
        connection.acknowledge(us, 700, 9_990_000);
        connection.check(expected, reasons);
    }
}

/// The handshake took 10 ms. The tolerance is 2 ms and one unit of the clock.
#[test]
fn acknowledgement_takes_at_least_as_long_as_in_the_handshake() {
    for (sent_us, expected, reasons) in [
        (13_000, &[2_000][..], &[][..]),
        (14_000, &[], &[Reason::ClockShifted]),
    ] {
        let mut connection = Connection::new(1_000).open();
        connection.payload(11_000, 200, 0);
        connection.acknowledge(20_000, 700, sent_us);
        connection.check(expected, reasons);
    }
}

/// A request is one or more segments. Payload after a pause is another request, unless the last segment was full or the
/// request is an upload.
#[test]
fn payload_after_a_pause_is_a_new_request() {
    const FULL: [u16; 11] = [1_448; 11];
    let upload = |last| [&FULL[..], &[last]].concat();
    for (lengths, pause_us, is_pipelined) in [
        (vec![535], 250, false),
        (vec![535], 251, true),
        (vec![536], 251, false),
        (upload(455), 251, true),
        // 16384 bytes.
        (upload(456), 251, false),
    ] {
        let mut connection = Connection::new(1).open();
        for length in &lengths {
            connection.payload(20_000, *length, 0);
        }
        connection.payload(20_000 + pause_us, 100, 0);
        connection.acknowledge(40_000 + pause_us, 300, 30_000 + pause_us);
        match is_pipelined {
            true => connection.check(&[], &[Reason::Pipelined]),
            false => connection.check(&[10_000], &[]),
        }
    }
}

/// Without timestamps, the tolerance is 1 ms and half of the handshake's duration of 10 ms.
#[test]
fn gap_may_be_shorter_than_the_handshake_by_the_tolerance() {
    for (us, expected, reasons) in [
        (4_000, &[-6_000][..], &[][..]),
        (3_999, &[], &[Reason::Early]),
    ] {
        let mut connection = Connection::new(0).open();
        connection.payload(20_000, 200, 0);
        connection.acknowledge(20_000 + us, 700, 0);
        connection.check(expected, reasons);
    }
}

#[test]
fn slow_response_after_a_probe_is_discarded_at_190_ms_or_more() {
    for (us, expected, reasons) in [
        (189_999, &[189_999][..], &[][..]),
        (190_000, &[], &[Reason::Retransmitted]),
    ] {
        let mut connection = Connection::new(1).open();
        connection.payload(20_000, 200, 0);
        connection.seq -= 200;
        connection.payload(20_000, 200, 0);
        connection.acknowledge(30_000 + us, 700, 20_000 + us);
        connection.check(expected, reasons);
    }
}

/// The sample is held until a packet shows whether it belongs to a response.
#[test]
fn small_response_after_tickets_needs_more_bytes_than_two_tickets() {
    for (bytes, expected, reasons) in [
        // With the first ticket, 640 bytes.
        (369, &[][..], &[Reason::Handshake; 3][..]),
        (370, &[2_000], &[Reason::Handshake; 2]),
    ] {
        // An alert, a FIN or an RST ends the connection.
        for (length, flags) in [(24, 24), (0, 17), (0, RST)] {
            let mut connection = Connection::new(1).open();
            connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
            connection.acknowledge(22_000, 1_327, 12_000);
            connection.payload(23_000, 80, 12_000);
            connection.ack += 271;
            connection.payload(33_100, 102, 23_050);
            connection.acknowledge(45_100, bytes, 35_100);
            end(&mut connection, 45_200, length, flags, 35_100);
            connection.check(expected, reasons);
        }
    }
}

/// Sends the last packet of a connection.
fn end(connection: &mut Connection, at_us: u64, length: u16, flags: u8, server_sent_us: u64) {
    let packet = Packet {
        seq: connection.seq,
        ack: connection.ack,
        ts_ecr: connection.echo(server_sent_us),
        length,
        flags,
        ..Packet::default()
    };
    connection.send(at_us, packet);
}

#[test]
fn small_http2_response_needs_more_bytes_than_settings() {
    for (bytes, expected, reasons) in [
        (128, &[][..], &[Reason::Handshake][..]),
        (129, &[4_000], &[]),
    ] {
        for flags in [17, RST] {
            let mut connection = Connection::new(1).open();
            connection.first_payload(20_000, 150, 0, FirstPayload::Preface);
            connection.acknowledge(34_000, bytes, 24_000);
            end(&mut connection, 34_100, 0, flags, 24_000);
            connection.check(expected, reasons);
        }
    }
}

#[test]
fn end_of_a_connection_without_a_held_sample_counts_nothing() {
    for flags in [17, RST] {
        let mut connection = Connection::new(1).open();
        connection.payload(20_000, 200, 0);
        end(&mut connection, 20_100, 0, flags, 0);
        connection.check(&[], &[]);
    }
}

/// The first exchange is discarded. Bytes that are acknowledged after it still count.
#[test]
fn tickets_are_counted_between_two_exchanges() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 1_327, 12_000);
    connection.payload(23_000, 380, 12_000);
    connection.acknowledge(33_000, 0, 12_000);
    connection.acknowledge(33_300, 271, 23_200);
    connection.acknowledge(33_400, 940, 23_300);
    connection.payload(34_000, 300, 23_300);
    connection.acknowledge(49_000, 200, 39_000);
    connection.check(&[5_000], &[Reason::Handshake, Reason::Retransmitted]);
}

/// Returns whether the SYN of another flow takes the slot of a connection, `at_us` after the start of the connection.
fn is_slot_free(connection: &mut Connection, at_us: u64) -> bool {
    let other_packet = Packet {
        hash: connection.hash + 1,
        flags: SYN,
        ..Packet::default()
    };
    let before = connection.table.count(Reason::TableFull);
    let now = (connection.start_us + at_us) * 1_000;
    connection.table.process_packet(&other_packet, now);
    connection.table.count(Reason::TableFull) == before
}

#[test]
fn slot_is_used_from_the_syn_until_the_connection_ends() {
    let mut connection = Connection::new(1);
    connection.syn(0);
    assert!(!is_slot_free(&mut connection, 20_000));
    for flags in [17, RST] {
        let mut connection = Connection::new(1).open();
        assert!(!is_slot_free(&mut connection, 20_000));
        end(&mut connection, 30_000, 0, flags, 0);
        assert!(is_slot_free(&mut connection, 30_001), "{flags}");
    }
    let mut connection = Connection::new(1).open();
    assert!(!is_slot_free(&mut connection, 1_009_999));
    assert!(is_slot_free(&mut connection, 1_010_000));
}

#[test]
fn highest_bits_of_the_hash_select_the_slot() {
    let lowest = 64 - LATENCY_SLOTS_LOG2;
    for (difference, is_same_slot) in [(1 << (lowest - 1), true), (1 << lowest, false)] {
        let mut connection = Connection::new(1);
        connection.syn(0);
        connection.hash += difference;
        connection.syn(100);
        let full = connection.table.count(Reason::TableFull);
        assert_eq!(full, u64::from(is_same_slot), "{difference:#x}");
    }
}

#[test]
fn packets_of_different_flow_in_same_slot_are_not_counted() {
    let mut connection = Connection::new(1).open();
    assert_eq!(connection.table.count(Reason::Packets), 2);
    connection.payload(20_000, 200, 0);
    connection.hash += 1;
    let (seq, ack) = (connection.seq, connection.ack);
    connection.acknowledge(25_000, 700, 21_000);
    (connection.seq, connection.ack) = (seq, ack);
    connection.hash -= 1;
    connection.acknowledge(34_000, 700, 24_000);
    assert_eq!(connection.table.count(Reason::Packets), 4);
    connection.check(&[4_000], &[]);
}

#[test]
fn ignored_flow_keeps_its_slot_until_it_ends() {
    for flags in [17, RST] {
        let mut connection = Connection::new(1).open();
        connection.unit_us = 0;
        connection.payload(20_000, 100, 0);
        assert_eq!(connection.table.count(Reason::Options), 1);
        connection.payload(30_000, 100, 0);
        assert!(!is_slot_free(&mut connection, 30_001));
        end(&mut connection, 40_000, 0, flags, 0);
        assert!(is_slot_free(&mut connection, 40_001), "{flags}");
    }
    // A retransmitted SYN.
    let mut connection = Connection::new(1);
    connection.syn(0);
    connection.syn(900_000);
    assert_eq!(connection.table.count(Reason::SynAgain), 1);
    assert!(!is_slot_free(&mut connection, 1_100_000));
}

/// The tolerance is a unit of the server's clock, the drift (3.6 us in 30 ms), and 64 us.
#[test]
fn response_may_precede_the_request_by_the_tolerance() {
    for (unit_us, request_us, sent_us, expected, reasons) in [
        (1, 20_000, 19_932, &[-68][..], &[][..]),
        (1, 20_000, 19_931, &[], &[Reason::Early]),
        (1_000, 20_067, 19_000, &[-1_067], &[]),
        (1_000, 20_068, 19_000, &[], &[Reason::Early]),
    ] {
        let mut connection = Connection::new(unit_us).open();
        connection.payload(request_us, 200, 0);
        connection.acknowledge(30_000, 700, sent_us);
        connection.check(expected, reasons);
    }
}

#[test]
fn response_to_a_request_with_a_fin_is_measured() {
    let mut connection = Connection::new(1).open();
    end(&mut connection, 20_000, 200, 25, 0);
    connection.seq += 201;
    connection.acknowledge(35_000, 700, 25_000);
    connection.check(&[5_000], &[]);
}

/// Returns a TLS connection that has completed its first two flights.
fn tls() -> Connection {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 3_000, 12_000);
    connection
}

#[test]
fn response_more_than_5_ms_after_ticket_acknowledgement_is_not_a_ticket() {
    for (pause_us, expected) in [(5_000, &[][..]), (5_001, &[5_000])] {
        let mut connection = tls();
        connection.payload(23_000, 80, 12_000);
        connection.acknowledge(33_300, 510, 23_200);
        connection.payload(33_300 + pause_us, 300, 23_200);
        connection.acknowledge(48_300 + pause_us, 200, 38_300 + pause_us);
        connection.check(expected, &[Reason::Handshake; 2]);
    }
}

/// Each case: the length of the client's second flight, the number of 255-byte acknowledgements, and the expected
/// samples.
#[test]
fn finished_message_has_at_most_100_bytes_and_two_tickets_follow_it() {
    for (length, acknowledgements, expected) in [
        (100, 3, &[][..]),
        (101, 3, &[300]),
        (101, 2, &[]),
        (101, 4, &[400]),
    ] {
        let mut connection = tls();
        connection.payload(23_000, length, 12_000);
        for number in 1..=acknowledgements {
            connection.acknowledge(33_000 + number * 100, 255, 23_000 + number * 100);
        }
        end(&mut connection, 34_000, 0, 17, 23_400);
        let discarded = usize::from(expected.is_empty());
        connection.check(expected, &[Reason::Handshake; 2][..1 + discarded]);
    }
}

#[test]
fn http2_response_follows_one_acknowledgement_of_settings() {
    for (acknowledgements, expected, reasons) in
        [(1, &[][..], &[Reason::Handshake][..]), (2, &[2_000], &[])]
    {
        let mut connection = Connection::new(1).open();
        connection.first_payload(20_000, 150, 0, FirstPayload::Preface);
        for number in 1..=acknowledgements {
            connection.acknowledge(30_000 + number * 1_000, 40, 20_000 + number * 1_000);
        }
        end(&mut connection, 40_000, 0, 17, 22_000);
        connection.check(expected, reasons);
    }
}

#[test]
fn sample_after_1200_bytes_is_not_held() {
    for (bytes, expected) in [(1_199, &[][..]), (1_200, &[12_000])] {
        let mut connection = tls();
        connection.payload(23_000, 380, 12_000);
        connection.acknowledge(33_100, bytes, 23_100);
        connection.acknowledge(45_000, 700, 35_000);
        connection.check(expected, &[Reason::Handshake]);
    }
}

#[test]
fn interim_responses_and_alerts_are_recognized_by_length() {
    for (is_tls, bytes, reason) in [
        (false, 1, Some(Reason::Closed)),
        (false, 2, None),
        (false, 24, None),
        (false, 25, Some(Reason::Interim)),
        (false, 26, None),
        (false, 47, None),
        (true, 1, Some(Reason::Closed)),
        (true, 23, None),
        (true, 24, Some(Reason::Closed)),
        (true, 25, Some(Reason::Closed)),
        (true, 26, None),
        (true, 46, None),
        (true, 47, Some(Reason::Interim)),
        (true, 48, None),
    ] {
        let mut connection = if is_tls {
            tls()
        } else {
            Connection::new(1).open()
        };
        if is_tls {
            // More bytes than the session tickets.
            connection.payload(23_000, 380, 12_000);
            connection.acknowledge(33_000, 1_200, 23_100);
            connection.acknowledge(33_100, 1_200, 23_200);
            assert_eq!(connection.table.take_samples().len(), 1);
        }
        connection.payload(50_000, 300, 23_200);
        connection.acknowledge(65_000, bytes, 55_000);
        let handshake = [Reason::Handshake].into_iter().filter(|_| is_tls);
        let reasons: Vec<Reason> = handshake.chain(reason).collect();
        match reason {
            Some(_) => connection.check(&[], &reasons),
            None => connection.check(&[5_000], &reasons),
        }
    }
}

/// If the payload counted as a request, the response could not be attributed to the first request.
#[test]
fn control_messages_are_recognized_by_length() {
    for (protocol, length, is_control) in [
        (FirstPayload::Other, 9, false),
        (FirstPayload::Preface, 9, true),
        (FirstPayload::Preface, 13, true),
        (FirstPayload::Preface, 17, true),
        (FirstPayload::Preface, 24, false),
        (FirstPayload::Tls, 9, false),
        (FirstPayload::Tls, 24, true),
        (FirstPayload::Tls, 31, true),
        (FirstPayload::Tls, 35, true),
        (FirstPayload::Tls, 39, true),
    ] {
        let mut connection = Connection::new(1).open();
        connection.first_payload(11_000, 517, 0, protocol);
        connection.acknowledge(22_000, 3_000, 12_000);
        connection.payload(23_000, 380, 12_000);
        connection.acknowledge(33_000, 1_200, 23_100);
        connection.acknowledge(33_100, 1_200, 23_200);
        connection.table.take_samples();
        connection.payload(50_000, 300, 23_200);
        connection.payload(51_000, length, 23_200);
        connection.acknowledge(65_000, 700, 55_000);
        let samples = connection.table.take_samples();
        assert_eq!(
            samples.len(),
            usize::from(is_control),
            "{protocol:?} {length}"
        );
        let pipelined = connection.table.count(Reason::Pipelined);
        assert_eq!(pipelined, u64::from(!is_control), "{protocol:?} {length}");
    }
}

#[test]
fn request_in_the_first_packet_after_the_syn_is_measured() {
    let mut connection = Connection::new(1);
    connection.syn(0);
    (connection.seq, connection.ack) = (connection.seq + 1, connection.ack + 1);
    connection.payload(10_000, 200, 0);
    connection.acknowledge(25_000, 700, 15_000);
    connection.check(&[5_000], &[]);
}

/// The client's FIN can be lost on the way to the director. It consumes a sequence number but carries no payload.
#[test]
fn sequence_gap_of_a_lost_fin_is_not_a_lost_request() {
    for (missing, expected, reasons) in [
        (1, &[5_000][..], &[][..]),
        (2, &[], &[Reason::Retransmitted]),
    ] {
        let mut connection = Connection::new(1).open();
        connection.payload(20_000, 200, 0);
        connection.seq += missing;
        connection.acknowledge(35_000, 700, 25_000);
        connection.check(expected, reasons);
    }
}

#[test]
fn tickets_are_still_expected_if_none_was_acknowledged() {
    let mut connection = tls();
    connection.payload(23_000, 380, 12_000);
    connection.acknowledge(33_000, 25, 23_100);
    connection.payload(40_000, 300, 23_100);
    connection.acknowledge(55_000, 200, 45_000);
    connection.check(&[], &[Reason::Handshake, Reason::Closed]);
}

#[test]
fn end_of_an_exchange_clears_its_flags() {
    let flags = |connection: &Connection| -> Vec<u8> {
        let flows = connection.table.flows.values();
        flows.map(|flow| flow.flags).collect()
    };
    let ended = LATENCY_TIMESTAMPS | LATENCY_DATA;
    let open = || Connection::new(1).open();
    // A duplicate acknowledgement.
    let mut connection = open();
    connection.payload(20_000, 200, 0);
    connection.acknowledge(30_000, 0, 0);
    assert_eq!(
        flags(&connection),
        [ended | LATENCY_PENDING | LATENCY_LOSSY]
    );
    connection.acknowledge(35_000, 700, 25_000);
    assert_eq!(flags(&connection), [ended]);
    // A second request.
    let mut connection = open();
    connection.payload(20_000, 200, 0);
    connection.payload(22_000, 200, 0);
    assert_eq!(
        flags(&connection),
        [ended | LATENCY_PENDING | LATENCY_OVERLAP]
    );
    connection.acknowledge(35_000, 700, 25_000);
    assert_eq!(flags(&connection), [ended]);
    // A probe.
    let mut connection = open();
    connection.payload(20_000, 200, 0);
    connection.seq -= 200;
    connection.payload(21_000, 200, 0);
    assert_eq!(
        flags(&connection),
        [ended | LATENCY_PENDING | LATENCY_PROBE]
    );
    connection.acknowledge(35_000, 700, 25_000);
    assert_eq!(flags(&connection), [ended]);
    // The TLS handshake.
    let mut connection = open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    assert_eq!(
        flags(&connection),
        [ended | LATENCY_PENDING | LATENCY_HELLO]
    );
    connection.acknowledge(22_000, 3_000, 12_000);
    assert_eq!(flags(&connection), [ended | LATENCY_FINISHED]);
    connection.payload(23_000, 380, 12_000);
    connection.acknowledge(33_000, 25, 23_100);
    assert_eq!(flags(&connection), [ended]);
}

#[test]
fn new_connection_with_the_same_ports_is_measured() {
    let mut connection = Connection::new(1).open();
    connection.start_us += 100_000;
    connection.seq += 10_000;
    let mut connection = connection.open();
    connection.payload(20_000, 200, 0);
    connection.acknowledge(35_000, 700, 25_000);
    connection.check(&[5_000], &[]);
}

#[test]
fn syn_of_another_flow_is_not_a_retransmission() {
    let mut connection = Connection::new(1);
    connection.syn(0);
    connection.hash += 1;
    connection.start_us += 1_000_000;
    let mut connection = connection.open();
    connection.payload(20_000, 200, 0);
    connection.acknowledge(35_000, 700, 25_000);
    connection.check(&[5_000], &[]);
}

#[test]
fn bytes_that_the_server_sends_before_the_preface_are_not_settings() {
    let mut connection = Connection::new(1).open();
    connection.acknowledge(15_000, 100, 5_000);
    connection.first_payload(20_000, 150, 5_000, FirstPayload::Preface);
    connection.acknowledge(30_200, 40, 20_100);
    connection.acknowledge(36_000, 300, 26_000);
    end(&mut connection, 36_100, 0, 17, 26_000);
    connection.check(&[6_000], &[]);
}

#[test]
fn acknowledgements_are_counted_only_in_a_window() {
    let counted = |first| {
        let mut connection = Connection::new(1).open();
        connection.first_payload(20_000, 150, 0, first);
        connection.acknowledge(30_200, 40, 20_100);
        let flow = connection.table.flows.values().next().copied().unwrap();
        (flow.acked, flow.acks)
    };
    assert_eq!(counted(FirstPayload::Preface), (40, 1));
    assert_eq!(counted(FirstPayload::Other), (0, 0));
}

#[test]
fn unchanged_clock_is_not_a_backward_step() {
    let mut connection = Connection::new(1_000).open();
    connection.payload(20_000, 200, 0);
    connection.acknowledge(30_000, 700, 0);
    connection.check(&[], &[Reason::Early]);
}
