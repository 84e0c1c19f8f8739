//! Counts a client's idle frames: frames that carry no request. A few are normal; thousands are an attack.
//!
//! SETTINGS and PING must be acknowledged, and CONTINUATION and empty DATA must be parsed, but none of them contains a
//! request (CVE-2019-9512, CVE-2019-9515, CVE-2019-9518, CVE-2024-27316). WINDOW_UPDATE frames that acknowledge sent
//! data are normal; any others count as idle. Only frame headers are parsed here.
//!
//! Up to [`FREE_IDLE_FRAMES`] idle frames have no effect. Above that, the connection is read slowly, and a client that
//! continues is disconnected. A flood then costs little CPU time, because the sender has to wait. If the connection
//! were closed immediately, the client would simply open another one.
//!
//! Outbound frames are parsed too: DATA, because the client may acknowledge it, and RST_STREAM, because client errors
//! can cause it.

/// Initial and maximum budget of idle frames, and its growth per second.
const MAX_BUDGET: u64 = 1_000;
const BUDGET_PER_S: u64 = 100;

/// Number of idle frames that are read at full speed, and number of idle frames that one HEADERS or DATA frame offsets.
/// Elapsed time offsets them too, at the rate [`BUDGET_PER_S`].
const FREE_IDLE_FRAMES: u64 = 100;
const IDLE_FRAMES_PER_PROGRESS: u64 = 10;

/// Number of WINDOW_UPDATE frames allowed per DATA frame, and number of content bytes that allow one more. Some clients
/// acknowledge every frame twice, for the stream and for the connection, or every kilobyte that they read.
const UPDATES_PER_DATA: u64 = 2;
const BYTES_PER_UPDATE: usize = 1 << 10;
/// Number of WINDOW_UPDATE frames allowed per request: some clients enlarge the stream's window immediately.
const UPDATES_PER_REQUEST: u64 = 4;
/// Maximum number of WINDOW_UPDATE frames in flight, for a client with windows of 32 MiB that acknowledges every
/// kilobyte.
const MAX_UPDATES: u64 = 1 << 16;

const HEADER_LEN: usize = 9;
const PREFACE_LEN: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// The parser of frame headers in a byte stream that arrives in segments.
#[derive(Debug)]
struct FrameParser {
    /// Number of bytes until the next frame header.
    skip: usize,
    /// A frame header and, for RST_STREAM, the error code. The first `filled` bytes are present.
    header: [u8; HEADER_LEN + 4],
    filled: usize,
}

/// A frame's header.
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    /// RST_STREAM error code.
    code: u32,
}

impl FrameParser {
    const fn new(skip: usize) -> Self {
        Self {
            skip,
            header: [0; HEADER_LEN + 4],
            filled: 0,
        }
    }

    /// Returns the next frame whose header (and error code) is complete, and advances `bytes` past that header.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<Frame> {
        let skipped = self.skip.min(bytes.len());
        *bytes = &bytes[skipped..];
        self.skip -= skipped;
        loop {
            let needed_len = match self.filled {
                HEADER_LEN.. if self.is_reset() => HEADER_LEN + 4,
                _ => HEADER_LEN,
            };
            if self.filled == needed_len {
                break;
            }
            let more = (needed_len - self.filled).min(bytes.len());
            if more == 0 {
                return None;
            }
            self.header[self.filled..self.filled + more].copy_from_slice(&bytes[..more]);
            *bytes = &bytes[more..];
            self.filled += more;
        }
        let [a, b, c, kind, flags, _, _, _, _, code @ ..] = self.header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.skip = length - (self.filled - HEADER_LEN);
        self.filled = 0;
        Some(Frame {
            length,
            kind,
            flags,
            code: u32::from_be_bytes(code),
        })
    }

    /// Returns whether the header is that of a RST_STREAM frame with an error code.
    fn is_reset(&self) -> bool {
        self.header[..4] == [0, 0, 4, RST_STREAM]
    }
}

/// Counts the idle frames on one connection.
#[derive(Debug)]
pub(super) struct FrameCounter {
    inbound: FrameParser,
    outbound: FrameParser,
    budget: u64,
    refilled_at: u64,
    /// Number of idle frames that have not been offset, and whether any arrived since the last
    /// [`FrameCounter::take_pause`].
    debt: u64,
    has_new_idle: bool,
    /// Number of WINDOW_UPDATE frames that are still allowed.
    updates_allowed: u64,
    /// Number of streams that were reset because of client errors.
    client_error_resets: u64,
    counts: FrameCounts,
}

/// Frame counts by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FrameCounts {
    pub(super) headers: u64,
    pub(super) data: u64,
    pub(super) settings: u64,
    pub(super) goaways: u64,
    pub(super) goaways_sent: u64,
}

impl FrameCounter {
    /// Creates a counter that starts before the client's preface.
    pub(super) const fn new() -> Self {
        Self {
            inbound: FrameParser::new(PREFACE_LEN),
            outbound: FrameParser::new(0),
            budget: MAX_BUDGET,
            refilled_at: 0,
            debt: 0,
            has_new_idle: false,
            updates_allowed: 0,
            client_error_resets: 0,
            counts: FrameCounts {
                headers: 0,
                data: 0,
                settings: 0,
                goaways: 0,
                goaways_sent: 0,
            },
        }
    }

    /// Returns the frame counts since the last call.
    pub(super) fn take_counts(&mut self) -> FrameCounts {
        std::mem::take(&mut self.counts)
    }

    /// Counts the frames in bytes from the client.
    pub(super) fn count_received(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.inbound.next(&mut bytes) {
            match frame.kind {
                DATA => self.counts.data += 1,
                HEADERS => self.counts.headers += 1,
                SETTINGS => self.counts.settings += 1,
                GOAWAY => self.counts.goaways += 1,
                _ => {}
            }
            let makes_progress = match frame.kind {
                DATA => frame.length > 0 || frame.flags & END_STREAM != 0,
                HEADERS => {
                    self.allow_updates(UPDATES_PER_REQUEST);
                    true
                }
                WINDOW_UPDATE => {
                    let allowed = self.updates_allowed > 0;
                    self.updates_allowed = self.updates_allowed.saturating_sub(1);
                    allowed
                }
                // Resets are counted elsewhere, where the state of the stream is known.
                RST_STREAM => true,
                _ => false,
            };
            if !makes_progress {
                self.budget = self.budget.saturating_sub(1);
                self.debt += 1;
                self.has_new_idle = true;
            } else if matches!(frame.kind, DATA | HEADERS) {
                self.debt = self.debt.saturating_sub(IDLE_FRAMES_PER_PROGRESS);
            }
        }
    }

    /// Returns whether the connection must be read slowly.
    pub(super) const fn is_slowed(&self) -> bool {
        self.debt > FREE_IDLE_FRAMES
    }

    /// Returns whether reading must pause because of idle frames since the last call.
    pub(super) fn take_pause(&mut self) -> bool {
        std::mem::take(&mut self.has_new_idle) && self.is_slowed()
    }

    /// Counts the frames in bytes to the client.
    pub(super) fn count_sent(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.outbound.next(&mut bytes) {
            match frame.kind {
                DATA => {
                    let more = (frame.length / BYTES_PER_UPDATE) as u64;
                    self.allow_updates(UPDATES_PER_DATA + more);
                    if frame.length > 0 {
                        self.debt = self.debt.saturating_sub(IDLE_FRAMES_PER_PROGRESS);
                    }
                }
                // PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED and FRAME_SIZE_ERROR are client errors; the other
                // codes are not.
                RST_STREAM => {
                    self.client_error_resets += u64::from(matches!(frame.code, 1 | 3 | 5 | 6))
                }
                GOAWAY => self.counts.goaways_sent += 1,
                _ => {}
            }
        }
    }

    fn allow_updates(&mut self, more: u64) {
        self.updates_allowed = (self.updates_allowed + more).min(MAX_UPDATES);
    }

    /// Returns the number of streams that were reset because of client errors since the last call.
    pub(super) fn take_client_error_resets(&mut self) -> u64 {
        std::mem::take(&mut self.client_error_resets)
    }

    /// Adds the growth since the last call to the budget of idle frames. Returns whether the budget is exhausted.
    pub(super) fn check_flood(&mut self, now_ms: u64) -> bool {
        let refill = now_ms.saturating_sub(self.refilled_at) * BUDGET_PER_S / 1_000;
        if refill > 0 {
            self.refilled_at = now_ms;
            self.debt = self.debt.saturating_sub(refill);
            // An exhausted budget does not grow again.
            if self.budget > 0 {
                self.budget = (self.budget + refill).min(MAX_BUDGET);
            }
        }
        self.budget == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let mut frame = (length as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
        frame.resize(HEADER_LEN + length, 7);
        frame
    }

    fn new_counter() -> FrameCounter {
        let mut counter = FrameCounter::new();
        counter.count_received(&[b'x'; PREFACE_LEN]);
        counter
    }

    #[test]
    fn only_idle_frames_count_as_flood() {
        let mut counter = new_counter();
        for _ in 0..5_000 {
            counter.count_received(&frame(HEADERS, 5, 40));
            counter.count_received(&frame(DATA, 0, 1_000));
            counter.count_received(&frame(WINDOW_UPDATE, 0, 4));
        }
        assert!(!counter.check_flood(1));
        (0..999).for_each(|_| counter.count_received(&frame(6, 0, 8)));
        assert!(!counter.check_flood(2));
        (0..50).for_each(|_| counter.count_received(&frame(4, 0, 0)));
        assert!(counter.check_flood(1_000));
    }

    #[test]
    fn idle_frames_slow_connection_until_they_are_offset() {
        let mut counter = new_counter();
        assert!(!counter.check_flood(1));
        (0..FREE_IDLE_FRAMES).for_each(|_| counter.count_received(&frame(6, 0, 8)));
        assert!(!counter.is_slowed() && !counter.take_pause());
        counter.count_received(&frame(6, 0, 8));
        assert!(counter.is_slowed() && counter.take_pause());
        // Without new idle frames, there is no new pause.
        assert!(!counter.take_pause());
        for progress in [frame(HEADERS, 5, 40), frame(DATA, 0, 40)] {
            (0..IDLE_FRAMES_PER_PROGRESS).for_each(|_| counter.count_received(&frame(6, 0, 8)));
            assert!(counter.take_pause());
            counter.count_received(&progress);
            counter.count_received(&progress);
            assert!(!counter.is_slowed());
            (0..IDLE_FRAMES_PER_PROGRESS).for_each(|_| counter.count_received(&frame(6, 0, 8)));
        }
        counter.count_sent(&frame(DATA, 0, 40));
        counter.count_sent(&frame(DATA, 0, 0));
        assert_eq!(
            counter.debt,
            FREE_IDLE_FRAMES + 1 - IDLE_FRAMES_PER_PROGRESS
        );
        (0..IDLE_FRAMES_PER_PROGRESS).for_each(|_| counter.count_received(&frame(0, 0, 0)));
        assert!(counter.take_pause());
        assert!(!counter.check_flood(1_001) && !counter.is_slowed());
    }

    #[test]
    fn only_window_updates_beyond_sent_data_count_as_flood() {
        let mut counter = new_counter();
        for _ in 0..20_000 {
            counter.count_sent(&frame(DATA, 0, 16_384));
            // One WINDOW_UPDATE per kilobyte for the stream, and one per frame for the connection.
            (0..17).for_each(|_| counter.count_received(&frame(WINDOW_UPDATE, 0, 4)));
        }
        assert!(!counter.check_flood(0));
        // Each small message is acknowledged for the stream and for the connection.
        for _ in 0..20_000 {
            counter.count_sent(&frame(DATA, 0, 10));
            (0..2).for_each(|_| counter.count_received(&frame(WINDOW_UPDATE, 0, 4)));
        }
        assert!(!counter.check_flood(0));
        let count = MAX_UPDATES + MAX_BUDGET;
        (0..count).for_each(|_| counter.count_received(&frame(WINDOW_UPDATE, 0, 4)));
        assert!(counter.check_flood(0));
        let mut idle_counter = new_counter();
        (0..MAX_BUDGET).for_each(|_| idle_counter.count_received(&frame(WINDOW_UPDATE, 0, 4)));
        assert!(idle_counter.check_flood(0));
    }

    #[test]
    fn only_resets_for_client_errors_are_counted() {
        let mut counter = new_counter();
        for code in 0..14u8 {
            let mut reset = frame(RST_STREAM, 0, 4);
            reset[HEADER_LEN..].copy_from_slice(&[0, 0, 0, code]);
            reset.chunks(5).for_each(|part| counter.count_sent(part));
            counter.count_sent(&frame(DATA, 0, 100));
        }
        assert_eq!(
            (
                counter.take_client_error_resets(),
                counter.take_client_error_resets()
            ),
            (4, 0)
        );
    }

    proptest! {
        #[test]
        fn counts_do_not_depend_on_segmentation(
            kinds in prop::collection::vec((0u8..12, 0usize..30), 0..60),
            step in 1usize..20,
        ) {
            let mut text = vec![b'x'; PREFACE_LEN];
            for (kind, length) in &kinds {
                text.extend(frame(*kind, 0, *length));
            }
            let (mut whole, mut parts) = (FrameCounter::new(), FrameCounter::new());
            whole.count_received(&text);
            text.chunks(step).for_each(|part| parts.count_received(part));
            prop_assert_eq!(whole.budget, parts.budget);
            let (mut expected_idle, mut updates_allowed) = (0u64, 0u64);
            for (kind, length) in &kinds {
                match kind {
                    1 => updates_allowed += UPDATES_PER_REQUEST,
                    8 if updates_allowed > 0 => updates_allowed -= 1,
                    3 => {}
                    0 if *length > 0 => {}
                    _ => expected_idle += 1,
                }
            }
            prop_assert_eq!(MAX_BUDGET - whole.budget, expected_idle);
        }
    }
}
