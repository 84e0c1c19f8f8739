//! Tests packet sequences for which the estimator could produce wrong samples.

use super::*;

mod limit;

const CLIENT_ISN: u32 = 1_000;
const SERVER_ISN: u32 = 9_000;
const CLOCK: u32 = 70_000;
/// Round-trip time to the client.
const RTT_US: u64 = 10_000;

/// A connection with exact clocks. Times are in microseconds since the SYN arrived at the director.
struct Connection {
    table: Table,
    start_us: u64,
    /// Unit of the server's clock in microseconds; 0 = no timestamps.
    unit_us: u64,
    /// How much too low the timestamp of the SYN-ACK is, in units of the server's clock.
    shift: u32,
    seq: u32,
    ack: u32,
    hash: u64,
}

impl Connection {
    fn new(unit_us: u64) -> Self {
        Self {
            table: Table::default(),
            start_us: 5_000_000,
            unit_us,
            shift: 0,
            seq: CLIENT_ISN,
            ack: SERVER_ISN,
            hash: 7 << 60,
        }
    }

    fn send(&mut self, at_us: u64, packet: Packet) {
        let packet = Packet {
            hash: self.hash,
            dest: 1,
            ..packet
        };
        self.table
            .process_packet(&packet, (self.start_us + at_us) * 1_000);
    }

    /// Returns the value of the server's clock at a time since the SYN.
    fn echo(&self, sent_us: u64) -> Option<u32> {
        (self.unit_us > 0).then(|| CLOCK.wrapping_add((sent_us / self.unit_us) as u32))
    }

    fn syn(&mut self, at_us: u64) {
        let seq = self.seq;
        self.send(
            at_us,
            Packet {
                seq,
                flags: SYN,
                ..Packet::default()
            },
        );
    }

    /// Sends the SYN and the ACK that completes the handshake.
    fn open(mut self) -> Self {
        self.syn(0);
        self.seq += 1;
        self.ack += 1;
        let shift = self.shift;
        let ts_ecr = self.echo(0).map(|clock| clock.wrapping_sub(shift));
        let (seq, ack) = (self.seq, self.ack);
        self.send(
            RTT_US,
            Packet {
                seq,
                ack,
                ts_ecr,
                flags: 16,
                ..Packet::default()
            },
        );
        self
    }

    /// Sends payload; the server sent its last packet at `server_sent_us`.
    fn payload(&mut self, at_us: u64, length: u16, server_sent_us: u64) {
        self.first_payload(at_us, length, server_sent_us, FirstPayload::Other);
    }

    fn first_payload(&mut self, at_us: u64, length: u16, server_sent_us: u64, first: FirstPayload) {
        let (seq, ack, ts_ecr) = (self.seq, self.ack, self.echo(server_sent_us));
        self.seq += u32::from(length);
        self.send(
            at_us,
            Packet {
                seq,
                ack,
                ts_ecr,
                length,
                flags: 24,
                first,
                ..Packet::default()
            },
        );
    }

    /// Acknowledges `bytes` that the server sent at `sent_us`.
    fn acknowledge(&mut self, at_us: u64, bytes: u32, sent_us: u64) {
        self.ack += bytes;
        let (seq, ack, ts_ecr) = (self.seq, self.ack, self.echo(sent_us));
        self.send(
            at_us,
            Packet {
                seq,
                ack,
                ts_ecr,
                flags: 16,
                ..Packet::default()
            },
        );
    }

    #[track_caller]
    fn check(mut self, expected_us: &[i64], reasons: &[Reason]) {
        let samples = self.table.take_samples();
        let us: Vec<i64> = samples.iter().map(|sample| sample.ns / 1_000).collect();
        assert_eq!(us, expected_us);
        for (reason, label, _) in LATENCY_REASONS {
            let expected = match reason {
                Reason::Packets | Reason::Samples => continue,
                other => reasons.iter().filter(|it| **it == other).count() as u64,
            };
            assert_eq!(self.table.count(reason), expected, "{label}");
        }
        let counts = LATENCY_REASONS.map(|(reason, _, _)| self.table.count(reason));
        assert_eq!(self.table.counts(), counts);
    }
}

#[test]
fn sample_excludes_round_trip_and_delayed_acknowledgement() {
    for (unit_us, expected) in [(1_000, 5_000), (1, 5_300)] {
        let mut connection = Connection::new(unit_us).open();
        connection.payload(20_000, 200, 0);
        // Sent 5.3 ms after the request, acknowledged 40 ms late.
        connection.acknowledge(75_300, 700, 25_300);
        // A request after a pause of four seconds.
        connection.payload(4_000_000, 200, 25_300);
        connection.acknowledge(4_015_300, 700, 4_005_300);
        connection.check(&[expected; 2], &[]);
    }
}

#[test]
fn acknowledgement_in_next_request_counts_as_response() {
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 200, 0);
    connection.ack += 700;
    connection.payload(34_000, 200, 24_000);
    connection.acknowledge(50_000, 700, 40_000);
    connection.check(&[4_000, 6_000], &[]);
}

#[test]
fn negative_samples_of_coarse_clock_are_kept() {
    let mut connection = Connection::new(1_000).open();
    connection.payload(20_900, 200, 0);
    connection.acknowledge(31_000, 700, 20_950);
    connection.check(&[-900], &[]);
}

#[test]
fn gap_without_timestamps_excludes_handshake() {
    let mut connection = Connection::new(0).open();
    connection.payload(20_000, 200, 0);
    connection.acknowledge(35_300, 700, 0);
    connection.check(&[5_300], &[]);
}

#[test]
fn early_acknowledgement_without_timestamps_is_discarded() {
    let mut connection = Connection::new(0).open();
    connection.payload(20_000, 200, 0);
    connection.acknowledge(21_000, 700, 0);
    connection.check(&[], &[Reason::Early]);
}

#[test]
fn shifted_timestamp_of_syn_cookie_is_detected() {
    for shift in [4, 20, 63] {
        let mut connection = Connection {
            shift,
            ..Connection::new(1_000)
        }
        .open();
        connection.payload(11_000, 200, 0);
        connection.acknowledge(26_000, 700, 16_000);
        connection.payload(40_000, 200, 0);
        connection.acknowledge(55_000, 700, 45_000);
        connection.check(&[], &[Reason::ClockShifted]);
    }
}

#[test]
fn retransmitted_syn_and_late_syn_ack_end_sampling() {
    let mut connection = Connection::new(1_000);
    connection.syn(0);
    connection.syn(100_000);
    connection.seq += 1;
    connection.ack += 1;
    connection.payload(120_000, 200, 100_000);
    connection.acknowledge(130_000, 700, 125_000);
    connection.check(&[], &[Reason::SynAgain]);

    let mut connection = Connection::new(1_000);
    connection.syn(0);
    connection.seq += 1;
    connection.ack += 1;
    connection.acknowledge(1_010_000, 0, 1_000_000);
    connection.payload(1_020_000, 200, 1_000_000);
    connection.acknowledge(1_040_000, 700, 1_030_000);
    connection.check(&[], &[Reason::HandshakeLate]);
}

#[test]
fn drift_of_100_ppm_adds_less_than_1_ms_and_old_handshakes_are_not_used() {
    for ppm in [-100_i64, 100] {
        let drifted = |us: u64| (us as i64 + us as i64 * ppm / 1_000_000) as u64;
        let mut connection = Connection::new(1).open();
        connection.payload(9_900_000, 200, 0);
        connection.acknowledge(9_915_000, 700, drifted(9_905_000));
        connection.payload(10_100_000, 200, 0);
        connection.acknowledge(10_115_000, 700, drifted(10_105_000));
        let samples = connection.table.take_samples();
        assert_eq!(samples.len(), 1);
        assert!((samples[0].ns - 5_000_000).abs() < 1_000_000);
        assert_eq!(connection.table.count(Reason::AnchorOld), 1);
    }
}

#[test]
fn sample_after_backward_clock_step_is_discarded() {
    let mut connection = Connection::new(1_000).open();
    connection.payload(20_000, 200, 0);
    connection.ack += 700;
    let (seq, ack) = (connection.seq, connection.ack);
    connection.send(
        30_000,
        Packet {
            seq,
            ack,
            ts_ecr: Some(CLOCK - 500),
            flags: 16,
            ..Packet::default()
        },
    );
    connection.check(&[], &[Reason::ClockBackward]);
}

#[test]
fn forward_clock_step_yields_no_sample() {
    // With a unit of 1 ms, the step makes the clock look like one with a unit of 1 µs.
    for (unit, reasons) in [
        (1, &[Reason::ClockShifted][..]),
        (1_000, &[Reason::Early, Reason::Early][..]),
    ] {
        let mut connection = Connection::new(unit).open();
        connection.payload(20_000, 200, 0);
        // According to the clock, the response was sent half a second after it was acknowledged.
        connection.acknowledge(30_000, 700, 530_000);
        connection.payload(40_000, 200, 530_000);
        connection.acknowledge(50_000, 700, 545_000);
        connection.check(&[], reasons);
    }
}

#[test]
fn idle_time_between_requests_is_not_latency() {
    for unit in [1, 1_000] {
        let mut connection = Connection::new(unit).open();
        let mut samples = Vec::new();
        for second in 0..4_u64 {
            let start = second * 2_000_000 + 20_000;
            connection.payload(start, 200, start - 10_000);
            connection.acknowledge(start + 17_000, 700, start + 7_000);
            samples.extend(connection.table.take_samples());
        }
        assert_eq!(samples.len(), 4);
        let near = |ns: i64| (ns - 7_000_000).abs() <= 1_000_000;
        assert!(samples.iter().all(|sample| near(sample.ns)), "{samples:?}");
    }
}

#[test]
fn tls_handshake_and_tickets_are_not_responses() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 3_000, 12_000);
    // The Finished message and the request; two tickets; the response, then the rest of it.
    connection.payload(23_000, 80, 12_000);
    connection.payload(23_100, 300, 12_000);
    connection.acknowledge(33_300, 255, 23_200);
    connection.acknowledge(33_400, 255, 23_300);
    connection.acknowledge(38_100, 1_448, 28_100);
    connection.acknowledge(38_200, 1_448, 28_200);
    // The next exchange is ordinary.
    connection.payload(40_000, 300, 28_200);
    connection.acknowledge(57_000, 700, 47_000);
    connection.check(&[5_000, 7_000], &[Reason::Handshake]);
}

#[test]
fn tls_finished_message_alone_is_not_a_request() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 3_000, 12_000);
    connection.payload(23_000, 80, 12_000);
    connection.acknowledge(33_300, 255, 23_200);
    connection.acknowledge(33_400, 255, 23_300);
    connection.payload(900_000, 300, 23_300);
    connection.acknowledge(915_000, 700, 905_000);
    connection.check(&[5_000], &[Reason::Handshake, Reason::Handshake]);
}

#[test]
fn tickets_acknowledged_together_with_the_response_are_discarded() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 3_000, 12_000);
    connection.payload(23_000, 380, 12_000);
    connection.acknowledge(73_000, 1_210, 23_200);
    connection.payload(80_000, 300, 23_200);
    connection.acknowledge(95_000, 700, 85_000);
    connection.check(&[5_000], &[Reason::Handshake, Reason::Handshake]);
}

#[test]
fn http2_settings_are_not_a_response() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(20_000, 150, 0, FirstPayload::Preface);
    connection.acknowledge(30_200, 40, 20_100);
    connection.acknowledge(36_000, 300, 26_000);
    connection.payload(50_000, 60, 26_000);
    connection.acknowledge(63_000, 300, 53_000);
    connection.check(&[6_000, 3_000], &[]);
}

#[test]
fn interim_response_yields_no_sample() {
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 200, 0);
    connection.acknowledge(30_100, 25, 20_100);
    connection.payload(30_200, 1_400, 20_100);
    connection.payload(30_300, 900, 20_100);
    connection.acknowledge(48_300, 700, 38_300);
    connection.check(&[8_000], &[Reason::Interim]);
}

#[test]
fn acknowledgement_of_many_segments_yields_one_sample() {
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 200, 0);
    // One acknowledgement of sixteen segments contains the clock value of the first segment.
    connection.acknowledge(37_000, 16 * 1_448, 24_000);
    connection.acknowledge(38_000, 16 * 1_448, 26_000);
    connection.check(&[4_000], &[]);
}

#[test]
fn retransmissions_are_discarded() {
    // The request is retransmitted.
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 200, 0);
    connection.seq -= 200;
    connection.payload(220_000, 200, 0);
    connection.acknowledge(235_000, 700, 225_000);
    connection.check(&[], &[Reason::Retransmitted]);
    // The response is retransmitted: duplicate acknowledgements arrive.
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 200, 0);
    connection.acknowledge(35_100, 0, 0);
    connection.acknowledge(60_000, 2_896, 50_000);
    connection.check(&[], &[Reason::Retransmitted]);
    // A segment in the middle is lost before it reaches the director.
    let mut connection = Connection::new(1).open();
    connection.seq += 1_448;
    connection.payload(20_000, 200, 0);
    connection.acknowledge(260_000, 700, 250_000);
    connection.check(&[], &[Reason::Retransmitted]);
}

#[test]
fn pipelined_requests_are_discarded() {
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 100, 0);
    connection.payload(22_000, 100, 0);
    connection.acknowledge(35_000, 300, 25_000);
    connection.acknowledge(37_000, 300, 27_000);
    connection.check(&[], &[Reason::Pipelined]);
}

#[test]
fn latency_of_upload_starts_at_its_last_packet() {
    let mut connection = Connection::new(1).open();
    for packet in 0..50 {
        connection.payload(20_000 + packet * 2_000, 1_448, 0);
    }
    connection.payload(120_000, 300, 0);
    connection.acknowledge(133_000, 200, 123_000);
    connection.check(&[3_000], &[]);
}

#[test]
fn response_before_end_of_upload_is_discarded() {
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 1_448, 0);
    connection.payload(29_000, 1_448, 0);
    connection.acknowledge(35_000, 200, 25_000);
    connection.check(&[], &[Reason::Early]);
}

#[test]
fn server_close_and_greeting_are_not_responses() {
    let mut connection = Connection::new(1).open();
    // A greeting, as in SMTP or MySQL.
    connection.acknowledge(25_000, 90, 15_000);
    connection.payload(30_000, 40, 15_000);
    connection.acknowledge(55_000, 1, 45_000);
    connection.check(&[], &[Reason::Closed]);
}

#[test]
fn rescheduled_flow_is_ignored() {
    let mut connection = Connection::new(1).open();
    let (seq, ack, ts_ecr) = (connection.seq, connection.ack, connection.echo(0));
    let packet = Packet {
        hash: connection.hash,
        dest: 2,
        seq,
        ack,
        ts_ecr,
        length: 10,
        flags: 24,
        first: FirstPayload::Other,
    };
    let now = (connection.start_us + 20_000) * 1_000;
    connection.table.process_packet(&packet, now);
    connection.acknowledge(40_000, 700, 25_000);
    connection.check(&[], &[Reason::Rescheduled]);
}

#[test]
fn slot_is_not_reused_before_it_is_idle() {
    let mut connection = Connection::new(1).open();
    let other = Packet {
        hash: connection.hash + 1,
        flags: SYN,
        ..Packet::default()
    };
    let now = (connection.start_us + 20_000) * 1_000;
    connection.table.process_packet(&other, now);
    assert_eq!(connection.table.count(Reason::TableFull), 1);
    connection.table.process_packet(&other, now + SLOT_IDLE_NS);
    assert_eq!(connection.table.count(Reason::TableFull), 1);
    connection.payload(1_900_000, 10, 0);
    connection.acknowledge(1_920_000, 10, 1_910_000);
    assert_eq!(connection.table.take_samples(), []);
}

#[test]
fn missing_timestamp_option_ends_sampling() {
    let mut connection = Connection::new(1).open();
    connection.unit_us = 0;
    connection.payload(20_000, 100, 0);
    connection.check(&[], &[Reason::Options]);
}

#[test]
fn ticket_acknowledged_with_the_request_is_not_a_response() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 1_327, 12_000);
    connection.payload(23_000, 80, 12_000);
    connection.ack += 271;
    connection.payload(33_100, 102, 23_050);
    // The acknowledgement of the second ticket and the start of the response contains the time of the ticket; the next
    // acknowledgement contains the time of the response.
    connection.acknowledge(43_300, 8_959, 33_150);
    connection.acknowledge(46_300, 7_240, 36_100);
    connection.acknowledge(46_400, 4_000, 36_150);
    connection.check(&[3_000], &[Reason::Handshake, Reason::Handshake]);
}

#[test]
fn ticket_sent_before_the_request_is_not_a_response() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 1_327, 12_000);
    connection.payload(23_000, 80, 12_000);
    connection.ack += 271;
    connection.payload(33_100, 102, 23_050);
    connection.acknowledge(43_300, 1_719, 23_070);
    connection.acknowledge(47_200, 2_896, 37_100);
    connection.check(&[4_000], &[Reason::Handshake, Reason::Handshake]);
}

#[test]
fn small_response_after_tickets_needs_a_prompt_acknowledgement() {
    for (delay_us, expected, reasons) in [
        (0, &[2_000][..], &[Reason::Handshake, Reason::Handshake][..]),
        (40_000, &[], &[Reason::Handshake; 3]),
    ] {
        let mut connection = Connection::new(1).open();
        connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
        connection.acknowledge(22_000, 1_327, 12_000);
        connection.payload(23_000, 80, 12_000);
        connection.ack += 271;
        connection.payload(33_100, 102, 23_050);
        connection.acknowledge(45_100 + delay_us, 271 + 355 + 25, 35_100);
        // An alert ends the connection.
        connection.payload(45_200 + delay_us, 24, 35_100);
        connection.check(expected, reasons);
    }
}

#[test]
fn response_after_a_pause_is_not_a_ticket() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 1_327, 12_000);
    connection.payload(23_000, 80, 12_000);
    connection.acknowledge(33_300, 510, 23_200);
    // One small response, after which the server sends nothing.
    connection.payload(50_000, 300, 23_200);
    connection.acknowledge(65_000, 200, 55_000);
    connection.check(&[5_000], &[Reason::Handshake, Reason::Handshake]);
}

#[test]
fn http2_control_frames_are_not_requests() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(20_000, 150, 0, FirstPayload::Preface);
    connection.acknowledge(30_200, 40, 20_100);
    // The acknowledgement of SETTINGS, then a WINDOW_UPDATE.
    connection.payload(30_300, 9, 20_100);
    connection.acknowledge(36_000, 300, 26_000);
    connection.payload(36_100, 13, 26_000);
    connection.acknowledge(36_300, 300, 26_200);
    connection.payload(50_000, 60, 26_200);
    connection.acknowledge(63_000, 300, 53_000);
    connection.check(&[6_000, 3_000], &[]);
    // The same frames in TLS records.
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 1_320, 12_000);
    connection.payload(23_000, 64, 12_000);
    connection.payload(23_100, 126, 12_000);
    connection.acknowledge(33_200, 510, 23_150);
    connection.acknowledge(33_300, 189, 23_200);
    connection.payload(33_400, 31, 23_200);
    connection.acknowledge(38_100, 249, 28_100);
    connection.payload(38_200, 42, 28_100);
    connection.acknowledge(55_200, 249, 45_200);
    connection.check(&[5_000, 7_000], &[Reason::Handshake]);
}

#[test]
fn client_probe_discards_only_responses_that_may_have_been_sent_twice() {
    // The response, or the retransmission by the server after the response was lost, at least 200 ms later.
    for (response_us, expected, reasons) in [
        (50_000, &[29_700][..], &[][..]),
        (230_000, &[], &[Reason::Retransmitted][..]),
    ] {
        let mut connection = Connection::new(1).open();
        for packet in 0..3 {
            connection.payload(20_000 + packet * 100, 1_448, 0);
        }
        connection.payload(20_300, 500, 0);
        connection.seq -= 500;
        connection.payload(44_000, 500, 0);
        connection.acknowledge(response_us + 10_000, 700, response_us);
        connection.check(expected, reasons);
    }
}

#[test]
fn response_sent_again_because_the_next_request_was_lost_is_discarded() {
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 36, 0);
    // The next request would have acknowledged the response.
    connection.seq += 36;
    connection.acknowledge(245_000, 5, 235_000);
    connection.check(&[], &[Reason::Retransmitted]);
}

#[test]
fn server_alert_and_close_are_not_responses() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 1_327, 12_000);
    connection.payload(23_000, 80, 12_000);
    connection.acknowledge(33_300, 510, 23_200);
    connection.payload(50_000, 300, 23_200);
    connection.acknowledge(5_050_000, 25, 5_040_000);
    connection.check(&[], &[Reason::Handshake, Reason::Handshake, Reason::Closed]);
}

#[test]
fn lost_response_is_discarded_if_the_client_probes() {
    let mut connection = Connection::new(1).open();
    connection.payload(20_000, 36, 0);
    connection.seq -= 36;
    connection.payload(240_000, 36, 0);
    connection.acknowledge(255_000, 5, 245_000);
    connection.check(&[], &[Reason::Retransmitted]);
}

#[test]
fn window_ends_with_the_first_response() {
    let mut connection = Connection::new(1).open();
    connection.first_payload(11_000, 517, 0, FirstPayload::Tls);
    connection.acknowledge(22_000, 1_320, 12_000);
    connection.payload(23_000, 64, 12_000);
    connection.payload(23_100, 126, 12_000);
    connection.acknowledge(33_200, 2_149, 23_150);
    connection.acknowledge(38_200, 2_896, 28_100);
    // In the next exchange, the first acknowledgement yields a sample.
    connection.payload(50_000, 41, 28_200);
    connection.acknowledge(63_000, 2_896, 53_000);
    connection.acknowledge(67_000, 2_896, 57_000);
    connection.check(&[5_000, 3_000], &[Reason::Handshake]);
}

#[test]
fn upload_in_pieces_does_not_count_as_pipelined() {
    let mut connection = Connection::new(1).open();
    for piece in 0..4 {
        for packet in 0..12 {
            connection.payload(20_000 + piece * 2_000 + packet * 10, 1_448, 0);
        }
        // The last segment of a piece is not full.
        connection.payload(20_200 + piece * 2_000, 376, 0);
    }
    connection.acknowledge(40_200, 146, 30_200);
    connection.check(&[4_000], &[]);
}
